"""Unusable files are set aside: renamed in their folder, named in the log and counted in the status.

Nothing is deleted, so that an operator can inspect it, and no damaged or hostile file stops the hub.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from superhosts.core.files import set_aside
from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import printable
from superhosts.fleet.receipts import MAX_SAID, Say

NAMED = 20  # how many of these files the status names


class Asides:
    """The files set aside since the start. Safe to use from several threads."""

    def __init__(self, say: Say) -> None:
        self.count = 0
        self._say = say
        self._lock = threading.Lock()
        self._last: deque[str] = deque(maxlen=NAMED)  # paths

    @property
    def last(self) -> list[str]:
        """The paths of the most recent ones."""
        with self._lock:
            return list(self._last)

    def put(self, path: Path, reason: object, event: str = "set-aside") -> None:
        """Set a file or folder aside and log the reason. Raises OSError if it cannot be renamed."""
        try:
            where = f"kept as {set_aside(path).name}"
        except FileNotFoundError:
            where = "it is gone"
        with self._lock:
            self.count += 1
            self._last.append(str(path))
        why = str(reason).removeprefix(f"{path}: ")  # an error about a file repeats its path
        phrase = event.replace("-", " ").upper()
        self._say(Notice(f"{phrase}: {path}: {printable(why, MAX_SAID)} ({where})", event, WARNING))
