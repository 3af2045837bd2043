"""Lines of a log as JSON: what happened has a stable name."""

from __future__ import annotations

import ast
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from hypothesis import given
from hypothesis import strategies as st

import superhosts
from places import fleet_guide
from superhosts.core.notices import ERROR, INFO, WARNING, Notice, as_warning, json_line, text_line

NOON = datetime(2026, 11, 14, 12, 0, 0, 123456, UTC)


def record(text: str) -> dict[str, Any]:
    return json.loads(json_line(text, NOON))  # type: ignore[no-any-return]


def test_a_notice_is_its_text_and_brings_its_event_and_values() -> None:
    notice = Notice("site ams ready", "ready", site="ams", waiting=3)
    assert notice == "site ams ready"
    assert text_line(notice.after("superhosts: ")) == "superhosts: site ams ready"
    assert record(notice.after("superhosts: ")) == {
        "time": "2026-11-14T12:00:00.123Z",
        "level": "info",
        "event": "ready",
        "message": "site ams ready",
        "site": "ams",
        "waiting": 3,
    }


def test_a_text_alone_is_a_notice_or_a_warning() -> None:
    for text, event, level in (
        ("superhosts: LOST in the words of somebody else", "notice", INFO),
        (Notice("superhosts: x.pcap: no such file", "error", ERROR), "error", ERROR),
        (as_warning("a.pcap: odd"), "warning", WARNING),
        (as_warning("a.pcap: odd").after("superhosts: "), "warning", WARNING),
        (as_warning(Notice("INCOMPLETE: 3 windows", "incomplete", WARNING)), "incomplete", WARNING),
    ):
        found = record(text)
        assert (found["event"], found["level"]) == (event, level)
        assert not found["message"].startswith(("superhosts", "warning"))


def notices() -> dict[str, set[str]]:
    """The events of the notices in the source, each with the phrases in capitals that their texts begin with."""
    found: dict[str, set[str]] = {"set-aside": {"SET ASIDE"}, "left-out": {"LEFT OUT"}}  # Asides.put makes these texts
    for path in Path(superhosts.__file__).parent.rglob("*.py"):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if "Notice(" in source else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Notice" and len(node.args) > 1:
                event = node.args[1]
                if isinstance(event, ast.Constant) and isinstance(event.value, str):
                    text = "".join(each.value for each in ast.walk(node.args[0]) if _is_text(each))
                    found.setdefault(event.value, set()).update(re.findall(r"[A-Z]{2,}(?: [A-Z]{2,})*", text))
    return found


def _is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_every_phrase_that_the_manual_tells_operators_to_look_for_is_the_event_of_a_notice() -> None:
    """The tables of docs/guides/fleet name lines of the log by their capitals."""
    phrases = {each.strip() for each in re.findall(r'"((?:[A-Z]{3,}|[A-Z]{2,} [A-Z]{2,})[A-Z ]*)"', fleet_guide())}
    assert len(phrases) > 8
    found = notices()
    for phrase in phrases:
        assert phrase in found.get(phrase.lower().replace(" ", "-"), ()), phrase


@given(st.text(st.characters()), st.text(st.characters()))
def test_whatever_is_said_is_one_line_of_json(text: str, value: str) -> None:
    for each in (text, Notice(text, "event", value=value, list=[value])):
        line = json_line(each)
        assert line.isascii()
        assert "\n" not in line
        found = json.loads(line)
        assert list(found)[:4] == ["time", "level", "event", "message"]
        assert found["message"].isprintable()


def test_a_long_text_is_shortened() -> None:
    assert len(json_line("x" * 10**6)) < 11_000
