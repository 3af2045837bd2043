"""Files that cannot be used are set aside: renamed beside where they lay, named in the log, counted for the status.

Nothing is deleted, so that a person can look at them; nothing that a disk, a person or a site has spoilt ends the hub.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from superhosts.durable import set_aside
from superhosts.fleet.receipts import MOST_SAID, Say
from superhosts.text import printable

NAMED = 20  # files set aside that the status names


class Asides:
    """What was set aside since the start. Safe to use from several threads."""

    def __init__(self, say: Say) -> None:
        self.count = 0
        self._say = say
        self._lock = threading.Lock()
        self._last: deque[str] = deque(maxlen=NAMED)  # paths

    @property
    def last(self) -> list[str]:
        """The paths of the last ones."""
        with self._lock:
            return list(self._last)

    def put(self, path: Path, reason: object, word: str = "SET ASIDE") -> None:
        """Set a file or folder aside, and say why. OSError where the disk does not let it."""
        try:
            where = f"kept as {set_aside(path).name}"
        except FileNotFoundError:
            where = "it is gone"
        with self._lock:
            self.count += 1
            self._last.append(str(path))
        why = str(reason).removeprefix(f"{path}: ")  # errors of files name theirs
        self._say(f"{word}: {path}: {printable(why, MOST_SAID)} ({where})")
