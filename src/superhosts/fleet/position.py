"""How far an edge has come with inputs that can be read again, kept beside its spool.

Two things are written after each window, once its sketch is in the spool: the frontier, before which all windows are
spooled, and the files that were read to their end. After a restart files that end before the frontier are
left out, the others are read again, and packets before the frontier are dropped: the sketches come out the same.
A position belongs to one set of inputs and one way of cutting; another command line starts at the beginning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from superhosts.fleet.durable import read_state, write_json
from superhosts.fleet.link import Say
from superhosts.sources.capture import COMPRESSED

POSITION = "position.json"  # the file in the spool; without it an edge begins anew
KEPT = 16  # positions of other command lines that are remembered
Spans = Mapping[str, tuple[int, int]]  # identity of a file → times of its first and last packet


class Position:
    """The position of one command line in a spool's folder."""

    def __init__(
        self, folder: Path, inputs: Sequence[str], cut: Mapping[str, Any], say: Say = lambda text: None
    ) -> None:
        self._path = folder / POSITION
        text = json.dumps([sorted(map(_full_name, inputs)), dict(cut)], sort_keys=True, default=str)
        self._name = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._others = self._read(say)
        mine = self._others.pop(self._name, {})
        self.frontier: int | None = mine.get("frontier")
        self._files: dict[str, list[int]] = mine.get("files", {})

    def _read(self, say: Say) -> dict[str, Any]:
        """Read all positions. A file with one that cannot be used is set aside: reading its input again is harmless."""
        right: dict[str, Any] = {}

        def fits(content: Any) -> bool:
            if isinstance(content, dict):
                right.update({name: entry for name, entry in content.items() if _is_position(entry)})
            return isinstance(content, dict) and len(right) == len(content)

        if read_state(self._path, fits, say) is None and right:
            with contextlib.suppress(OSError):  # a full disk is said elsewhere
                write_json(self._path, right)
        return right

    def done(self) -> frozenset[str]:
        """Return the files that need not be read again."""
        if self.frontier is None:
            return frozenset()
        return frozenset(name for name, (_, last) in self._files.items() if last < self.frontier)

    def advance(self, frontier: int, finished: Spans) -> None:
        """Write down that all windows up to `frontier` are in the spool. OSError where the disk takes no more."""
        self.frontier = max(frontier, self.frontier or frontier)
        self._files.update({name: list(span) for name, span in finished.items()})
        self._files = {name: span for name, span in self._files.items() if _is_there(name)}
        others = dict(list(self._others.items())[-KEPT:])
        write_json(self._path, {**others, self._name: {"frontier": self.frontier, "files": self._files}})


def _is_position(entry: Any) -> bool:
    """Say whether an entry has the types that `advance` writes."""
    files = entry.get("files") if isinstance(entry, dict) else None
    return (
        isinstance(files, dict)
        and is_time(entry.get("frontier"))
        and all(isinstance(span, list) and len(span) == 2 and all(map(is_time, span)) for span in files.values())
    )


def is_time(value: Any) -> bool:
    """Say whether a value from a file is a time in nanoseconds, as packets have them."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _full_name(name: str) -> str:
    """Return a name that means the same in every folder; what is no file stays as it is."""
    return str(Path(name).absolute()) if os.path.lexists(name) else name


def _is_there(identity: str) -> bool:
    """Say whether a file still exists, compressed or not: only then could it be read again."""
    name = identity.rpartition("@")[0]
    return any(os.path.lexists(name + ending) for ending in ("", *COMPRESSED))
