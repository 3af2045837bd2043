"""The union of a window's sketches, built from the files of the store and the archive.

Sketches of the oldest open window are merged as they arrive, while the link receives the next ones; its report then has
to wait only for the last of them. One union is in memory at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from superhosts.core.files import is_plain
from superhosts.core.profile import Durations
from superhosts.cubefile.container import DIGEST
from superhosts.detectors.stored import Stored
from superhosts.errors import HalfReadError, SketchFileError, SuperhostsError, UnreadableError
from superhosts.fleet.archive import Archive
from superhosts.fleet.names import parse_window_name, site_of
from superhosts.fleet.store import UNION, Issue, Ledger, WindowStore
from superhosts.sketch.files import read_header
from superhosts.sketch.sketch import Sketch


class RefusedMemberError(SuperhostsError):
    """A file that cannot be merged: damaged, invalid, or with another key or geometry than the hub's."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class Merger:
    """Merges a window's sketches into its union, starting from the unions in the store and the archive."""

    def __init__(
        self, store: WindowStore, archive: Archive | None, builder: UnionBuilder, on_left_out: Callable[[], None]
    ) -> None:
        self._store, self._archive, self._builder = store, archive, builder
        self._on_left_out = on_left_out
        self.on_merged: Callable[[], None] = lambda: None  # called after each sketch: the work moves

    def take(self) -> Sketch:
        """Return the union, and release it here."""
        return self._builder.take()

    def reported_union(self, window: str) -> Sketch | None:
        """Return the union of a window as it was last reported, from the store or the archive; None if it is gone."""
        if self._store.has(window):
            ledger = self._store.ledger(window)
            self._start(window, ledger)  # what was merged ahead may have more than the report
            self.complete(window, ledger, ledger.issued.members if ledger.issued else [])
            return self.take()
        if self._archive is None or not self._archive.holds(window):
            return None
        try:
            self._builder.begin(window, self._archive.union(window))
        except RefusedMemberError as error:
            self._on_left_out()
            self._archive.leave_out_union(window, error.reason)
            return None
        return self.take()

    def complete(
        self, window: str, ledger: Ledger, members: list[str], stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Merge the members that are not yet in the union of a window, until `stop` returns True."""
        folder, members = self._store.folder(window), list(members)
        while True:
            if self._builder.window != window:
                self.begin(window, ledger)
            name = next(iter(self._builder.missing(members)), None)
            if name is None or stop():
                return
            try:
                self._builder.add(folder / name, trusted=name in self._store.fresh)
                self._store.fresh.discard(name)
                self.on_merged()
            except RefusedMemberError as error:
                self._set_aside(window, ledger, error)
                members.remove(name)

    def begin(self, window: str, ledger: Ledger) -> None:
        """Start from the unions on disk: what a report or the archive once contained stays in the next union."""
        while True:
            if self._builder.window != window:
                self._start(window, ledger)
            self._take_archived(window, ledger)
            if self._builder.window == window:
                break
            # An archived union has failed half way and is set aside: start over without it.
        if ledger.issued is not None and ledger.names_lost:
            with self._store.lock:
                ledger.adopt(ledger.issued, self._builder.sites)

    def _start(self, window: str, ledger: Ledger) -> None:
        union = self._store.folder(window) / UNION
        if os.path.lexists(union):
            try:
                self._builder.begin(window, union)
                self._builder.contains(ledger.merged)
                return
            except RefusedMemberError as error:
                self._on_left_out()
                self._store.quarantine.put(
                    union, f"{error.reason}; the union of {window} is made without it", "left-out"
                )
        self._builder.begin(window)

    def _take_archived(self, window: str, ledger: Ledger) -> None:
        """Merge what the archive has of a window and this store does not: the archive never loses anything."""
        archive = self._archive
        if archive is None:
            return
        if not archive.holds(window):
            issue = archive.last_issue(window)
            if ledger.issued is None and issue is not None:  # its union was set aside
                ledger.adopt(Issue(issue.revision))
            return
        path = archive.union(window)
        is_new = not path.is_file() or not self._builder.has_file(path)
        if not is_new and not ledger.names_lost:
            return
        is_in = True
        if is_new:
            try:
                self._builder.add_union(path)
            except RefusedMemberError as error:
                self._on_left_out()
                archive.leave_out_union(window, error.reason)
                is_in = False
        issue = archive.last_issue(window)
        with self._store.lock:
            if issue is not None:  # from a damaged union only the number of reports is used
                ledger.adopt(issue if is_in else Issue(issue.revision))
            if is_in:
                self._builder.contains(issue.members if issue else ())
                self._builder.contains(name for name in ledger.known if self._came_with_union(window, name))

    def _came_with_union(self, window: str, name: str) -> bool:
        """Return True if a sketch is no longer in the folder, and its site is in the union."""
        return site_of(name) in self._builder.sites and not is_plain(self._store.folder(window) / name)

    def _set_aside(self, window: str, ledger: Ledger, error: RefusedMemberError) -> None:
        """Leave out a sketch that is damaged, or that an earlier run accepted with another key or geometry."""
        self._on_left_out()
        self._store.quarantine.put(self._store.folder(window) / error.name, error.reason, "left-out")
        with self._store.lock:
            for names in (ledger.known, *(issue.members for issue in (ledger.issuing, ledger.issued) if issue)):
                if error.name in names:
                    names.remove(error.name)
            site = site_of(error.name)
            if (issue := ledger.issuing) is not None and site not in map(site_of, issue.members):
                issue.missing = sorted({*issue.missing, site} - set(ledger.held))
            self._store.write(window)


@dataclass
class _Partial:
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
        return self._partial.window if self._partial else None

    @property
    def sites(self) -> set[str]:
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
        assert self._partial is not None
        self._partial.merged.update(members)

    def add(self, path: Path, *, trusted: bool = False) -> None:
        """Merge one member (`trusted`: its checksum is verified). If that fails half way, the union is dropped."""
        assert self._partial is not None
        self._merge(path, trusted=trusted)
        self._partial.merged.add(path.name)

    def take(self) -> Sketch:
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
