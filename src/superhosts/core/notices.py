"""Lines of a log, for people and for programs.

Everything that a service says is one line of text. Programs get the same line as JSON, with a level and a short stable
name of what happened (`event`). A `Notice` is a text that brings its event and values along. The event of any other
line follows from its words: lines about trouble have a phrase in capitals (NOT REPORTED, LOST), which is their event
(`not-reported`, `lost`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from superhosts.core.text import printable

LONGEST = 10_000  # characters of a line
INFO, WARNING, ERROR = "info", "warning", "error"
_CAPITALS = re.compile(r"\b[A-Z]{2,}(?: [A-Z]{2,})*\b")
# Capitals that are names, and no trouble.
_NAMES = frozenset(
    (
        "ARP",
        "CA",
        "CPU",
        "CSV",
        "GPU",
        "GRE",
        "HTTP",
        "ID",
        "IP",
        "JSON",
        "NATS",
        "NFS",
        "SIGHUP",
        "SITE",
        "TCP",
        "TLS",
        "TOML",
        "UDP",
        "URL",
        "UTC",
    )
)
# Lines without capitals that programs may wait for.
_PHRASES = (
    (re.compile(r"\b(?:works|written|takes reports|is read|plausible) again\b"), "recovered", INFO),
    (re.compile(r"^the link to .* does not work\b|retrying until it works$"), "link-down", WARNING),
    (re.compile(r"^the embedded broker has ended unexpectedly"), "broker-restarts", WARNING),
    (re.compile(r"\bcannot be\b|\bcould not be\b|\bdoes not work\b"), "trouble", WARNING),
)


class Notice(str):
    """A text with the name of what happened, how serious it is, and values for programs."""

    event: str
    level: str
    fields: Mapping[str, Any]

    def __new__(cls, text: str, event: str, level: str = INFO, /, **fields: Any) -> Self:
        """Return a text with its event."""
        made = super().__new__(cls, text)
        made.event, made.level, made.fields = event, level, fields
        return made

    def after(self, prefix: str) -> Notice:
        """Return the same notice behind a prefix."""
        return Notice(f"{prefix}{self}", self.event, self.level, **self.fields)


class _Kind(NamedTuple):
    """What a line is about."""

    event: str
    level: str


def text_line(text: str) -> str:
    """Return a line for people; characters that cannot be shown are escaped."""
    return printable(text, most=LONGEST)


def json_line(text: str, now: datetime | None = None) -> str:
    """Return the same as one line of JSON, with the time and what happened."""
    message = str(text).removeprefix("superhosts: ")
    is_warning, message = message.startswith("warning: "), message.removeprefix("warning: ")
    if isinstance(text, Notice):
        kind, fields = _Kind(text.event, text.level), text.fields
    else:
        kind, fields = _kind_of(message, is_warning), {}
    time = (now or datetime.now(UTC)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    shown = printable(message, most=LONGEST)
    return json.dumps({"time": time, "level": kind.level, "event": kind.event, "message": shown, **fields}, default=str)


def _kind_of(message: str, is_warning: bool) -> _Kind:
    """Return what a line without an event is about."""
    for found in _CAPITALS.finditer(message):
        words = [word for word in found[0].split() if word not in _NAMES]
        if words:
            return _Kind("-".join(words).lower(), WARNING)
    for phrase, event, level in _PHRASES:
        if phrase.search(message):
            return _Kind(event, WARNING if is_warning else level)
    return _Kind("warning", WARNING) if is_warning else _Kind("notice", INFO)
