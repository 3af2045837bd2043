"""What the answers of a view look like. They are checked when they come from another machine, so that screens need not.

Checked is what a screen relies on: lists and objects that it goes through, and numbers that it calculates with. Every
other value is shown as text. Fields that an earlier or later release does not have may be missing, and others may come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any, str], None]  # raises ValueError with the place, if something else is there
LARGEST = 1e18  # a number; what is larger, or is none, cannot be drawn


def _number(found: Any, place: str) -> None:
    if type(found) not in (int, float) or not -LARGEST <= found <= LARGEST:
        raise ValueError(place)


def _count(found: Any, place: str) -> None:
    _number(found, place)
    if found < 0:
        raise ValueError(place)


def _text(found: Any, place: str) -> None:
    """Take anything that is shown as it is."""
    if isinstance(found, list | dict):
        raise ValueError(place)


def _perhaps(check: Check) -> Check:
    return lambda found, place: None if found is None else check(found, place)


def _many(check: Check) -> Check:
    def checked(found: Any, place: str) -> None:
        if not isinstance(found, list):
            raise ValueError(place)
        for number, each in enumerate(found):
            check(each, f"{place}[{number}]")

    return checked


def _object(needed: Mapping[str, Check], others: Mapping[str, Check] | None = None) -> Check:
    """Take an object that has the needed fields. Of other fields, those that are there are checked."""

    def checked(found: Any, place: str) -> None:
        if not isinstance(found, dict):
            raise ValueError(place)
        for name, check in needed.items():
            if name not in found:
                raise ValueError(f"{place}.{name}")
            check(found[name], f"{place}.{name}")
        for name, check in (others or {}).items():
            if name in found:
                check(found[name], f"{place}.{name}")

    return checked


def _values(check: Check) -> Check:
    """Take an object with any names."""

    def checked(found: Any, place: str) -> None:
        if not isinstance(found, dict):
            raise ValueError(place)
        for name, each in found.items():
            check(each, f"{place}.{name}")

    return checked


def _all(check: Check, *names: str) -> dict[str, Check]:
    return dict.fromkeys(names, check)


_texts = _perhaps(_many(_text))
_window = {
    **_all(_perhaps(_number), "start", "end"),
    **_all(_perhaps(_count), "hosts", "super_hosts", "revision"),
    "largest": _perhaps(_object({}, _all(_perhaps(_count), "peers", "low"))),
    "title": _text,
    **_all(_texts, "notes", "sites", "missing"),
}
_evidence = _object(
    {},
    {
        **_all(_perhaps(_count), "pairs", "attempts"),
        **_all(_text, "complete", "answered", "failed", "opened", "ports_per_peer", "packets_per_peer"),
        "ports": _perhaps(_many(_object({"port": _text, "at": _text, "share": _count}))),
        "nets": _perhaps(_values(_count)),
        "peers": _texts,
    },
)
_seen_by = _object({"site": _text}, _all(_perhaps(_count), "peers", "peers_low"))
_row = _object(
    {"host": _text, "peers": _perhaps(_count), "peers_low": _count, "peers_high": _perhaps(_count)},
    {
        **_all(_text, "side", "direction", "counts", "label", "name", "pattern", "reason"),
        "sites": _perhaps(_many(_seen_by)),
        "evidence": _perhaps(_evidence),
    },
)
_point = _object(
    {**_all(_number, "start", "end"), "low": _count, "high": _perhaps(_count)},
    _all(_text, "side", "direction", "reported"),
)
_times = _all(_perhaps(_number), "opened", "last", "closed", "until", "peers", "peak")
_alert = _object({}, {**_times, **_all(_text, "id", "host", "rule", "reason", "why")})
_site_numbers = _all(_perhaps(_number), "seen", "window_end", "spool_sketches", "spool_bytes", "refused", "clock")
_site = _object({"site": _text}, {**_site_numbers, **_all(_text, "in_window", "version", "mismatch")})

ANSWERS: dict[str, Check] = {  # by the name of the question
    "summary": _object(
        {"can": _object({})},
        {
            "title": _text,
            **_all(_perhaps(_number), "now", "live_until"),
            "reading": _texts,
            "newest": _perhaps(_object({}, _window)),
        },
    ),
    "windows": _many(_object({}, _window)),
    "window": _object({"rows": _many(_row)}, _window),
    "host": _object(
        {"points": _many(_point)},
        {"rows": _perhaps(_many(_row)), "notes": _texts, "alerts": _perhaps(_many(_alert))},
    ),
    "alerts": _object({}, _all(_perhaps(_many(_alert)), "alerts", "muted")),
    "sites": _many(_site),
    "unmute": _object({"unmuted": _text}),
}


def check_answer(question: str, found: Any) -> None:
    """Raise ValueError, with the place in the answer, if it is not what a view answers to a question."""
    ANSWERS[question](found, question)
