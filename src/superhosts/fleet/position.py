"""How far an edge has read inputs that can be read again; stored next to its spool.

Two things are written after each window, once its sketch is in the spool: the frontier, before which all windows are
spooled, and the files that were read to their end. After a restart, files that end before the frontier are skipped, the
others are read again, and packets before the frontier are dropped: the sketches are the same. A position belongs to one
set of inputs and settings; another command line starts at the beginning.

A frontier that is more than a window ahead of this machine's clock is neither stored nor trusted: some clock is or was
wrong, and traffic captured with the right time would be skipped. The frontier stays where it was until the clock
reaches the windows ahead of it. Reading traffic twice is harmless, dropping it is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from superhosts.core.files import read_state, write_json
from superhosts.core.times import shown_time
from superhosts.core.units import parse_duration
from superhosts.fleet.receipts import Say
from superhosts.sources.input import COMPRESSED

POSITION = "position.json"  # the file in the spool folder; without it an edge starts at the beginning
MAX_AHEAD = 1 << 16  # windows ahead of the clock to remember
KEPT = 16  # positions of other command lines to keep
Spans = Mapping[str, tuple[int, int]]  # identity of a file → times of its first and last packet


class Position:
    """The position of one command line, in a spool's folder."""

    def __init__(
        self,
        folder: Path,
        inputs: Sequence[str],
        fingerprint: Mapping[str, Any],
        say: Say = lambda text: None,
        *,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._path = folder / POSITION
        self._wall = wall
        self._window = parse_duration(fingerprint["window"]) if "window" in fingerprint else 0
        self._ahead: deque[int] = deque(maxlen=MAX_AHEAD)  # ends of windows ahead of the clock, in order
        text = json.dumps([sorted(map(_full_name, inputs)), dict(fingerprint)], sort_keys=True, default=str)
        self._name = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._others = self._read(say)
        mine = self._others.pop(self._name, {})
        self.frontier: int | None = mine.get("frontier")
        self._files: dict[str, list[int]] = mine.get("files", {})
        if self.frontier is not None and self.frontier > self._latest():
            ahead = f"the position in {self._path} ({shown_time(self.frontier)}) lies ahead of this machine's clock"
            say(f"{ahead}: all input is read again, and what the hub has already changes nothing")
            self.frontier = None

    def _latest(self) -> int:
        """Return the latest plausible frontier."""
        return self._wall() + self._window

    def _read(self, say: Say) -> dict[str, Any]:
        """Read all positions. A file with an invalid one is set aside: reading its input again is harmless."""
        right: dict[str, Any] = {}

        def fits(content: Any) -> bool:
            if isinstance(content, dict):
                right.update({name: entry for name, entry in content.items() if _is_position(entry)})
            return isinstance(content, dict) and len(right) == len(content)

        if read_state(self._path, fits, say) is None and right:
            with contextlib.suppress(OSError):  # a full disk is reported elsewhere
                write_json(self._path, right)
        return right

    def done(self) -> frozenset[str]:
        """Return the files to skip."""
        if self.frontier is None:
            return frozenset()
        return frozenset(name for name, (_, last) in self._files.items() if last < self.frontier)

    def advance(self, frontier: int, finished: Spans) -> None:
        """Store that all windows up to `frontier` are in the spool. Raises OSError if the disk is full."""
        while self._ahead and self._ahead[-1] >= frontier:  # the packets' clock was set back
            self._ahead.pop()
        self._ahead.append(frontier)
        while self._ahead and self._ahead[0] <= self._latest():
            self.frontier = self._ahead.popleft()
        self._write(finished)

    def go_back(self, frontier: int) -> None:
        """Store that windows from `frontier` on may get more packets. Raises OSError if the disk is full."""
        self._ahead.clear()
        self.frontier = frontier
        self._write({})

    def _write(self, finished: Spans) -> None:
        if self.frontier is None:
            return
        self._files.update({name: list(span) for name, span in finished.items()})
        self._files = {name: span for name, span in self._files.items() if _is_there(name)}
        others = dict(list(self._others.items())[-KEPT:])
        write_json(self._path, {**others, self._name: {"frontier": self.frontier, "files": self._files}})


def _is_position(entry: Any) -> bool:
    """Return True if an entry has the types that `advance` writes."""
    files = entry.get("files") if isinstance(entry, dict) else None
    return (
        isinstance(files, dict)
        and is_time(entry.get("frontier"))
        and all(isinstance(span, list) and len(span) == 2 and all(map(is_time, span)) for span in files.values())
    )


def is_time(value: Any) -> bool:
    """Return True if a value from a file is a valid packet time in nanoseconds."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _full_name(name: str) -> str:
    """Return the absolute path of an input that is a file; other inputs unchanged."""
    return str(Path(name).absolute()) if os.path.lexists(name) else name


def _is_there(identity: str) -> bool:
    """Return True if a file still exists, compressed or not."""
    name = identity.rpartition("@")[0]
    return any(os.path.lexists(name + ending) for ending in ("", *COMPRESSED))
