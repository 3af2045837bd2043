"""Lines of a log, for people and for programs.

Everything that a service says is one line of text. Programs get the same line as JSON, with a level and a short stable
name of what happened (`event`). A `Notice` is a text that brings its event and values along; whoever writes a line
names the event. Any other text is a `notice`. The text of most trouble has its event in capitals (NOT REPORTED for
`not-reported`): the manual names lines by them, and a test compares both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

from superhosts.core.text import printable

LONGEST = 10_000  # characters of a line
INFO, WARNING, ERROR = "info", "warning", "error"


class Notice(str):
    """A text with the name of what happened, how serious it is, and values for programs."""

    event: str
    level: str
    fields: Mapping[str, Any]

    def __new__(cls, text: str, event: str, level: str = INFO, /, **fields: Any) -> Self:
        made = super().__new__(cls, text)
        made.event, made.level, made.fields = event, level, fields
        return made

    def after(self, prefix: str) -> Notice:
        return Notice(f"{prefix}{self}", self.event, self.level, **self.fields)


def as_warning(text: str) -> Notice:
    return text.after("warning: ") if isinstance(text, Notice) else Notice(f"warning: {text}", "warning", WARNING)


def text_line(text: str) -> str:
    return printable(text, most=LONGEST)


def json_line(text: str, now: datetime | None = None) -> str:
    notice = text if isinstance(text, Notice) else Notice(text, "notice")
    message = printable(text.removeprefix("superhosts: ").removeprefix("warning: "), most=LONGEST)
    time = (now or datetime.now(UTC)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": time, "level": notice.level, "event": notice.event, "message": message}
    return json.dumps({**line, **notice.fields}, default=str)
