"""The union of a window's sketches, made from the files of the store and the archive.

Sketches of the window that is waited for are merged as they arrive, while the link is busy with the next; then its
report needs only the last ones. One union is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from superhosts.cubefile.container import DIGEST
from superhosts.errors import HalfReadError, SketchFileError, SuperhostsError, UnreadableError
from superhosts.fleet.parcels import parse_window_name
from superhosts.sketches.bundle import Sketch
from superhosts.sketches.header import Stored, read_header


class RefusedMemberError(SuperhostsError):
    """A file that cannot be merged: damaged by this disk, of another key or geometry than the hub's, or nonsense."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass
class _Warm:
    window: str
    sketch: Sketch = field(default_factory=Sketch)
    merged: set[str] = field(default_factory=set)  # names of members
    digests: set[str] = field(default_factory=set)  # of all files that are in it


class UnionBuilder:
    """Makes unions of files in a folder. `check` refuses (MergeError) what does not fit the hub as it is now.

    A file that cannot be read now (UnreadableError) is nobody's fault: the caller tries again.
    """

    def __init__(self, key: bytes | str | None, check: Callable[[Stored], None]) -> None:
        self._key = key
        self._check = check
        self._warm: _Warm | None = None

    @property
    def window(self) -> str | None:
        """The window whose union is being made."""
        return self._warm.window if self._warm else None

    @property
    def sites(self) -> set[str]:
        """The sites in the union."""
        return self._warm.sketch.sites if self._warm else set()

    def begin(self, window: str, union: Path | None = None) -> None:
        """Start the union of a window, with one that lies on disk; where that fails, nothing is started."""
        self._warm = None  # its memory first
        self._warm = _Warm(window)
        if union is not None:
            try:
                self.add_union(union)
            except BaseException:
                self._warm = None
                raise

    def missing(self, members: list[str]) -> list[str]:
        """Return the members that are not merged yet."""
        assert self._warm is not None
        return sorted(set(members) - self._warm.merged)

    def has_file(self, path: Path) -> bool:
        """Return True if this very content is merged already, as the digest at a file's end tells."""
        assert self._warm is not None
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - DIGEST))
            return file.read(DIGEST).hex() in self._warm.digests

    def add_union(self, path: Path) -> None:
        """Merge a union of this window that lies on disk. Which members are in it is told by `contains`."""
        self._merge(path, trusted=False)

    def contains(self, members: Iterable[str]) -> None:
        """Say that these members came with a union."""
        assert self._warm is not None
        self._warm.merged.update(members)

    def add(self, path: Path, *, trusted: bool = False) -> None:
        """Merge one member (`trusted`: checked a moment ago). Where it fails half way the union is dropped."""
        assert self._warm is not None
        self._merge(path, trusted=trusted)
        self._warm.merged.add(path.name)

    def take(self) -> Sketch:
        """Return the union, and forget it here."""
        assert self._warm is not None
        sketch, self._warm = self._warm.sketch, None
        return sketch

    def _merge(self, path: Path, *, trusted: bool) -> None:
        """Merge a file; RefusedMemberError for whatever is wrong with it."""
        warm = self._warm
        assert warm is not None
        try:
            stored = self._look_at(path, warm.window, trusted)
            self._warm = None  # until it is merged: half of a file must never stay in a union
            warm.sketch.merge_file(path, key=self._key, trusted=True)
        except (UnreadableError, OSError, MemoryError) as error:
            if not isinstance(error, HalfReadError | MemoryError):
                self._warm = warm
            raise
        except Exception as error:  # whatever this disk or somebody has made of it
            known = isinstance(error, SuperhostsError)
            reason = str(error) if known else f"it makes no sense ({type(error).__name__}: {error})"
            raise RefusedMemberError(path.name, reason) from None
        self._warm = warm
        warm.digests.add(stored.digest)

    def _look_at(self, path: Path, window: str, trusted: bool) -> Stored:
        """Check all that can be checked before anything is merged."""
        if not path.is_file():
            raise SketchFileError("cannot be read: not there, or not a file", file=str(path))
        stored = read_header(path, trusted=trusted)
        if stored.window != parse_window_name(window):
            raise SketchFileError("holds another window", file=str(path))
        self._check(stored)
        return stored
