"""The union of a window's sketches, built from the files of the store and the archive.

Sketches of the oldest open window are merged as they arrive, while the link receives the next ones; its report then has
to wait only for the last of them. One union is in memory at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from superhosts.core.files import is_plain
from superhosts.core.profile import Durations
from superhosts.cubefile.container import stored_digest
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
        self.name, self.reason = name, reason


@dataclass
class _Union:
    """The union in memory; half of a file is never part of it."""

    window: str
    sketch: Sketch = field(default_factory=Sketch)
    merged: set[str] = field(default_factory=set)  # names of members
    digests: set[str] = field(default_factory=set)  # of all merged files


class Merger:
    """Merges a window's sketches into its union, starting from the unions in the store and the archive.

    `check` refuses (MergeError) a file that does not fit the hub's current settings. If a file cannot be read now
    (UnreadableError), the caller tries again.
    """

    def __init__(
        self,
        store: WindowStore,
        archive: Archive | None,
        key: bytes | str | None,
        check: Callable[[Stored], None],
        on_left_out: Callable[[], None],
    ) -> None:
        self._store, self._archive, self._key, self._check = store, archive, key, check
        self._on_left_out = on_left_out
        self._union: _Union | None = None
        self.merging = Durations()  # of one file
        self.on_merged: Callable[[], None] = lambda: None  # called after each sketch: the work moves

    def take(self) -> Sketch:
        assert self._union is not None
        sketch, self._union = self._union.sketch, None
        return sketch

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
            self._open(window, self._archive.union(window))
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
            union = self._begun(window) or self.begin(window, ledger)
            name = min(set(members) - union.merged, default=None)
            if name is None or stop():
                return
            try:
                self._merge(folder / name, trusted=name in self._store.fresh)
                union.merged.add(name)
                self._store.fresh.discard(name)
                self.on_merged()
            except RefusedMemberError as error:
                self._set_aside(window, ledger, error)
                members.remove(name)

    def begin(self, window: str, ledger: Ledger) -> _Union:
        """Start from the unions on disk: what a report or the archive once contained stays in the next union."""
        while True:
            union = self._begun(window) or self._start(window, ledger)
            self._take_archived(union, ledger)
            if self._union is union:
                break
            # An archived union has failed half way and is set aside: start over without it.
        if ledger.issued is not None and ledger.names_lost:
            with self._store.lock:
                ledger.adopt(ledger.issued, union.sketch.sites)
        return union

    def _begun(self, window: str) -> _Union | None:
        return self._union if self._union is not None and self._union.window == window else None

    def _start(self, window: str, ledger: Ledger) -> _Union:
        path = self._store.folder(window) / UNION
        if os.path.lexists(path):
            try:
                union = self._open(window, path)
                union.merged.update(ledger.merged)
                return union
            except RefusedMemberError as error:
                self._on_left_out()
                reason = f"{error.reason}; the union of {window} is made without it"
                self._store.quarantine.put(path, reason, "left-out")
        return self._open(window)

    def _open(self, window: str, path: Path | None = None) -> _Union:
        """Start the union of a window, from a union on disk if one is given. If that fails, no union is started."""
        self._union = None  # release its memory first
        self._union = union = _Union(window)
        if path is not None:
            try:
                self._merge(path)
            except BaseException:
                self._union = None
                raise
        return union

    def _take_archived(self, union: _Union, ledger: Ledger) -> None:
        """Merge what the archive has of a window and this store does not: the archive never loses anything."""
        archive, window = self._archive, union.window
        if archive is None:
            return
        if not archive.holds(window):
            issue = archive.last_issue(window)
            if ledger.issued is None and issue is not None:  # its union was set aside
                ledger.adopt(Issue(issue.revision))
            return
        path, is_in = archive.union(window), True
        is_new = not path.is_file() or stored_digest(path) not in union.digests
        if not is_new and not ledger.names_lost:
            return
        if is_new:
            try:
                self._merge(path)
            except RefusedMemberError as error:
                self._on_left_out()
                archive.leave_out_union(window, error.reason)
                is_in = False
        issue = archive.last_issue(window)
        with self._store.lock:
            if issue is not None:  # from a damaged union only the number of reports is used
                ledger.adopt(issue if is_in else Issue(issue.revision))
            if is_in:
                union.merged.update(issue.members if issue else ())
                # Sketches that are no longer in the folder have come with the union, if their site is in it.
                gone = (name for name in ledger.known if not is_plain(self._store.folder(window) / name))
                union.merged.update(name for name in gone if site_of(name) in union.sketch.sites)

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

    def _merge(self, path: Path, *, trusted: bool = False) -> None:
        """Merge a file (`trusted`: its checksum is verified). If that fails half way, the union is dropped.

        Raises RefusedMemberError for anything that is wrong with the file.
        """
        union = self._union
        assert union is not None
        try:
            if not path.is_file():
                raise SketchFileError("cannot be read: not there, or not a file", file=str(path))
            stored = read_header(path, trusted=trusted)
            if stored.window != parse_window_name(union.window):
                raise SketchFileError("contains another window", file=str(path))
            self._check(stored)
            self._union = None  # until it is merged
            with self.merging.measured():
                union.sketch.merge_file(path, key=self._key, trusted=True)
        except (UnreadableError, OSError, MemoryError) as error:
            if not isinstance(error, HalfReadError | MemoryError):
                self._union = union
            raise
        except Exception as error:  # any damage, accidental or deliberate
            known = isinstance(error, SuperhostsError)
            reason = str(error) if known else f"it is invalid ({type(error).__name__}: {error})"
            raise RefusedMemberError(path.name, reason) from None
        self._union = union
        union.digests.add(stored.digest)
