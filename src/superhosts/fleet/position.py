"""How far an edge has come with inputs that can be read again, kept beside its spool.

Two things are written after each window, once its sketch is in the spool: the frontier, before which all windows are
spooled, and the files that were read to their end. After a restart files that end before the frontier are
left out, the others are read again, and packets before the frontier are dropped: the sketches come out the same.
A position belongs to one set of inputs and one way of cutting; another command line starts at the beginning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from superhosts.fleet.durable import read_json, write_json
from superhosts.sources.capture import COMPRESSED

POSITION = "position.json"  # the file in the spool; without it an edge begins anew
KEPT = 16  # positions of other command lines that are remembered
Spans = Mapping[str, tuple[int, int]]  # identity of a file → times of its first and last packet


class Position:
    """The position of one command line in a spool's folder."""

    def __init__(self, folder: Path, inputs: Sequence[str], cut: Mapping[str, Any]) -> None:
        self._path = folder / POSITION
        text = json.dumps([sorted(map(_full_name, inputs)), dict(cut)], sort_keys=True, default=str)
        self._name = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        mine = self._all().get(self._name)
        mine = mine if isinstance(mine, dict) else {}
        self.frontier: int | None = mine.get("frontier")
        self._files: dict[str, list[int]] = mine.get("files", {})

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
        everything = {name: position for name, position in self._all().items() if name != self._name}
        others = dict(list(everything.items())[-KEPT:])
        write_json(self._path, {**others, self._name: {"frontier": self.frontier, "files": self._files}})

    def _all(self) -> dict[str, Any]:
        content = read_json(self._path)
        return content if isinstance(content, dict) else {}


def _full_name(name: str) -> str:
    """Return a name that means the same in every folder; what is no file stays as it is."""
    return str(Path(name).absolute()) if Path(name).exists() else name


def _is_there(identity: str) -> bool:
    """Say whether a file still exists, compressed or not: only then could it be read again."""
    name = identity.rpartition("@")[0]
    return any(Path(name + ending).exists() for ending in ("", *COMPRESSED))
