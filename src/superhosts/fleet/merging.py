"""Merges a window's sketches into its union, starting from the unions in the store and the archive."""

from __future__ import annotations

import os
from collections.abc import Callable

from superhosts.core.files import is_plain
from superhosts.fleet.archive import Archive
from superhosts.fleet.ledger import Issue, Ledger
from superhosts.fleet.parcels import site_of
from superhosts.fleet.store import UNION, WindowStore
from superhosts.fleet.union import RefusedMemberError, UnionBuilder
from superhosts.sketch.sketch import Sketch


class Merger:
    """Builds the unions of a store's windows, one at a time. A file that cannot be merged is set aside."""

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
                self._store.asides.put(union, f"{error.reason}; the union of {window} is made without it", "left-out")
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
        self._store.asides.put(self._store.folder(window) / error.name, error.reason, "left-out")
        with self._store.lock:
            for names in (ledger.known, *(issue.members for issue in (ledger.issuing, ledger.issued) if issue)):
                if error.name in names:
                    names.remove(error.name)
            site = site_of(error.name)
            if (issue := ledger.issuing) is not None and site not in map(site_of, issue.members):
                issue.missing = sorted({*issue.missing, site} - set(ledger.held))
            self._store.write(window)
