"""The union of a window's sketches, built from the files of the store and the archive.

Sketches of the oldest open window are merged as they arrive, while the link receives the next ones; its report then has
to wait only for the last of them. One union is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from superhosts.core.profile import Durations
from superhosts.cubefile.container import DIGEST
from superhosts.detectors.stored import Stored
from superhosts.errors import HalfReadError, SketchFileError, SuperhostsError, UnreadableError
from superhosts.fleet.parcels import parse_window_name
from superhosts.sketch.files import read_header
from superhosts.sketch.sketch import Sketch


class RefusedMemberError(SuperhostsError):
    """A file that cannot be merged: damaged, invalid, or with another key or geometry than the hub's."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass
class _Partial:
    """A union in progress."""

    window: str
    sketch: Sketch = field(default_factory=Sketch)
    merged: set[str] = field(default_factory=set)  # names of members
    digests: set[str] = field(default_factory=set)  # of all merged files


class UnionBuilder:
    """Builds unions of files. `check` refuses (MergeError) a file that does not fit the hub's current settings.

    If a file cannot be read now (UnreadableError), the caller tries again.
    """

    def __init__(self, key: bytes | str | None, check: Callable[[Stored], None]) -> None:
        self.merging = Durations()  # of one file
        self._key = key
        self._check = check
        self._partial: _Partial | None = None

    @property
    def window(self) -> str | None:
        """The window whose union is being built."""
        return self._partial.window if self._partial else None

    @property
    def sites(self) -> set[str]:
        """The sites in the union."""
        return self._partial.sketch.sites if self._partial else set()

    def begin(self, window: str, union: Path | None = None) -> None:
        """Start the union of a window, from a union on disk if one is given. If that fails, no union is started."""
        self._partial = None  # release its memory first
        self._partial = _Partial(window)
        if union is not None:
            try:
                self.add_union(union)
            except BaseException:
                self._partial = None
                raise

    def missing(self, members: list[str]) -> list[str]:
        """Return the members that are not merged yet."""
        assert self._partial is not None
        return sorted(set(members) - self._partial.merged)

    def has_file(self, path: Path) -> bool:
        """Return True if a file with the same digest is merged already."""
        assert self._partial is not None
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - DIGEST))
            return file.read(DIGEST).hex() in self._partial.digests

    def add_union(self, path: Path) -> None:
        """Merge another union of this window. `contains` says which members are in it."""
        self._merge(path, trusted=False)

    def contains(self, members: Iterable[str]) -> None:
        """Record that these members were part of a union."""
        assert self._partial is not None
        self._partial.merged.update(members)

    def add(self, path: Path, *, trusted: bool = False) -> None:
        """Merge one member (`trusted`: its checksum is verified). If that fails half way, the union is dropped."""
        assert self._partial is not None
        self._merge(path, trusted=trusted)
        self._partial.merged.add(path.name)

    def take(self) -> Sketch:
        """Return the union, and release it here."""
        assert self._partial is not None
        sketch, self._partial = self._partial.sketch, None
        return sketch

    def _merge(self, path: Path, *, trusted: bool) -> None:
        """Merge a file. Raises RefusedMemberError for anything that is wrong with it."""
        partial = self._partial
        assert partial is not None
        try:
            stored = self._look_at(path, partial.window, trusted)
            self._partial = None  # until it is merged: half of a file must never remain in a union
            with self.merging.measured():
                partial.sketch.merge_file(path, key=self._key, trusted=True)
        except (UnreadableError, OSError, MemoryError) as error:
            if not isinstance(error, HalfReadError | MemoryError):
                self._partial = partial
            raise
        except Exception as error:  # any damage, accidental or deliberate
            known = isinstance(error, SuperhostsError)
            reason = str(error) if known else f"it is invalid ({type(error).__name__}: {error})"
            raise RefusedMemberError(path.name, reason) from None
        self._partial = partial
        partial.digests.add(stored.digest)

    def _look_at(self, path: Path, window: str, trusted: bool) -> Stored:
        """Check everything that can be checked before merging."""
        if not path.is_file():
            raise SketchFileError("cannot be read: not there, or not a file", file=str(path))
        stored = read_header(path, trusted=trusted)
        if stored.window != parse_window_name(window):
            raise SketchFileError("contains another window", file=str(path))
        self._check(stored)
        return stored
