"""Answers that are not what a view answers: they are refused, or can be shown."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rich.text import Text

from superhosts.core.fields import FieldError
from superhosts.ui.answers import ANSWERS
from superhosts.ui.board import Board
from superhosts.ui.top.feed import NOTHING, check, look, parse
from superhosts.ui.top.hosts import filtered, header_line, host_line, host_rows, lay_out, ordered
from superhosts.ui.top.pages import (
    Where,
    alert_items,
    host_page,
    list_table,
    page_title,
    site_items,
    status_line,
    title_line,
    why_empty,
)
from ui.top.scene import HOSTS, WINDOWS, make_view, shown

WRONG = [None, "x", -1, 1e300, float("nan"), True, [], {}, [None], {"a": None}]
Path = tuple[str | int, ...]


def answers() -> dict[str, Any]:
    """What a hub answers about two windows with one host in each, as it is after its way as JSON."""
    view = make_view(1)
    view.board = Board()
    for number in (WINDOWS - 2, WINDOWS - 1):
        view.board.put(shown(number, HOSTS[:1]))
    view.mute("10.0.0.0/8", "scan-out", 60.0, "known")
    found = {
        "summary": view.summary() | {"reading": ["1 window of the folder is still to be read."]},
        "windows": view.windows(),
        "window": view.window(),
        "host": view.host(HOSTS[0][0]),
        "alerts": view.list_alerts(),
        "sites": view.list_sites(),
        "unmute": {"unmuted": True},
    }
    return json.loads(json.dumps(found))


def draw(found: dict[str, Any]) -> Iterator[Text]:
    names = {"summary": "summary", "windows": "windows", "window": "window", "list_alerts": "alerts"}
    questions = {name: lambda *_, answer=found[key]: answer for name, key in names.items()}
    snapshot = look(SimpleNamespace(**questions), None, NOTHING)
    for where in (Where(), Where(words="1 /")):
        yield title_line(snapshot, "", where, 80)
        yield status_line(snapshot, "", where, 1, 80)
        yield Text(why_empty(snapshot, "", where))
    rows = host_rows(found["window"]["rows"])
    for width in (20, 80, 200):
        layout = lay_out(rows, width)
        yield header_line(layout, "peers")
        for row in ordered(filtered(rows, "10.0.0.0/8"), "name"):
            yield host_line(row, layout, is_chosen=True)
    for row in rows:
        yield host_page(found["host"], row, 80)
        yield page_title(row, (0.0, 1e18))
    for items in (alert_items(found["alerts"]), site_items(found["sites"], found["summary"].get("now") or 0.0)):
        table = list_table(items, 120)
        yield table.header()
        yield from (table.line(place, True) for place in range(len(items)))


def places(found: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    for name in found if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ():
        yield from places(found[name], (*path, name))


def changed(found: Any, path: Path, value: Any) -> Any:
    """Return an answer with another value at a place; without the field, if the value is `places`."""
    if not path:
        return value
    whole = copy.deepcopy(found)
    inner = whole
    for name in path[:-1]:
        inner = inner[name]
    if value is places:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return whole


def test_answers_of_a_view_can_be_shown() -> None:
    found = answers()
    for name in found:
        assert check(name, found[name]) == found[name]
    assert "10.20.4.17" in "\n".join(text.plain for text in draw(found))


ELSEWHERE = {"ask", "sketch", "events", "mute", "alert", "acknowledge", "note", "trends"}  # not of a screen of top


@pytest.mark.slow
@pytest.mark.parametrize("question", sorted(ANSWERS.keys() - ELSEWHERE))
def test_any_other_answer_is_refused_or_can_be_shown(question: str) -> None:
    plain, refused = answers(), 0
    for path in places(plain[question]):
        for value in (*WRONG, *([places] if path else [])):
            wrong = parse(json.dumps(changed(plain[question], path, value)).encode())
            try:
                found = plain | {question: check(question, wrong)}
            except FieldError:
                refused += 1
                continue
            for text in draw(found):
                assert text.plain.replace("\n", "").isprintable(), (path, value)
    assert refused >= len(WRONG) - 2


def test_the_place_and_what_is_wrong_are_told() -> None:
    found = answers()["host"]
    for path, value, told in (
        (("points", 1, "start"), places, r"points\[1\].start: missing"),
        (("points", 1, "low"), 1e300, r"points\[1\].low: Expected `int`, got `str`"),
        (("rows",), 5, "rows: Expected `array`, got `int`"),
    ):
        with pytest.raises(FieldError, match=f"^field host.{told}$"):
            check("host", parse(json.dumps(changed(found, path, value)).encode()))
