"""Lines of a log as JSON: what happened has a stable name."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from places import fleet_guide
from superhosts.core.notices import ERROR, INFO, WARNING, Notice, json_line, text_line

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


@pytest.mark.parametrize(
    ("text", "event", "level"),
    [
        ("superhosts: NOT REPORTED: 20261114T120000Z-5m: no space; retrying until it works", "not-reported", WARNING),
        ("superhosts: syslog://x does NOT TAKE reports: refused; they wait, retrying", "not-take", WARNING),
        ("superhosts: LOST: the last run ended", "lost", WARNING),
        ("superhosts: TIMES JUMPED back by 5m", "times-jumped", WARNING),
        ("superhosts: windows: 3 spooled, 1 REFUSED by the hub", "refused", WARNING),
        ("superhosts: the NATS server at tls://x speaks TLS", "notice", INFO),
        ("superhosts: warning: INCOMPLETE: 3 windows", "incomplete", WARNING),
        ("warning: a.pcap: odd", "warning", WARNING),
        ("superhosts: the link to nats://x works again", "recovered", INFO),
        ("superhosts: the link to nats://x does not work: refused; retrying until it does", "link-down", WARNING),
        ("superhosts: no site is enrolled", "notice", INFO),
    ],
)
def test_the_event_of_other_lines_follows_from_their_words(text: str, event: str, level: str) -> None:
    found = record(text)
    assert (found["event"], found["level"]) == (event, level)
    assert not found["message"].startswith(("superhosts", "warning"))


def test_every_phrase_that_the_manual_tells_operators_to_look_for_is_a_warning() -> None:
    """The tables of docs/guides/fleet name lines of the log by their capitals."""
    page = fleet_guide()
    phrases = set(re.findall(r'"((?:[A-Z]{3,}|[A-Z]{2,} [A-Z]{2,})[A-Z ]*)"', page))
    assert len(phrases) > 8
    for phrase in phrases:
        found = record(f"superhosts: {phrase}: something")
        assert (found["level"], found["event"]) == (WARNING, phrase.strip().lower().replace(" ", "-")), phrase


def test_an_error_that_ends_the_program() -> None:
    assert record(Notice("superhosts: x.pcap: no such file", "error", ERROR))["level"] == "error"


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
