"""The node that merges: one answer per window for all sites.

A window is reported when every site that is expected has sent its sketch, or when the grace has passed since the first
one came. A sketch that comes later re-opens its window: the union grows by exactly that sketch, and the window is
reported again with a higher revision. All that a report needs lies on disk (store.py), so a hub that is killed at
any point goes on where it was; a report that was being made is made again from the same sketches, with the same rows.
Memory is that of one cube, whatever the number of sites and open windows.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from superhosts.defaults import THRESHOLD
from superhosts.durable import is_plain, make_private, write_lines
from superhosts.errors import OutputError, SuperhostsError
from superhosts.fleet.archive import Archive
from superhosts.fleet.clock import RECORD, Clock, age_of
from superhosts.fleet.intake import Desk
from superhosts.fleet.ledger import Issue, Ledger
from superhosts.fleet.link import Say
from superhosts.fleet.parcels import Parcel, parse_key
from superhosts.fleet.sightings import Sightings
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import ROWS, UNION, Store
from superhosts.fleet.trouble import Troubles
from superhosts.fleet.turns import Turns
from superhosts.fleet.union import RefusedMemberError, Uniter
from superhosts.reports.base import Report
from superhosts.reports.rows import Row, make_rows
from superhosts.results import Selection
from superhosts.sketches.bundle import Sketch

REMEMBERED = 12  # windows whose sites are expected again, and whose sites' own sketches are kept
LATE_PAUSE = 10.0  # seconds that further late sketches are waited for before a window is reported again
LOOK = 1.0  # seconds of reporting after which all windows are looked at again: a grace may have passed
TIDY = 30.0  # seconds between two looks for what can go
PAST = 90 * 86400.0  # seconds that the ledger of a past window is kept, so that nothing is reported as new again
MOST_RETIRED = 100  # windows that are retired at one look


@dataclass(frozen=True)
class HubSettings:
    """What a hub looks for and how long it waits, in seconds."""

    threshold: float | None = float(THRESHOLD)
    top: int | None = None
    sites: tuple[str, ...] = ()
    grace: float = 60.0
    late: float = 86400.0
    late_pause: float = LATE_PAUSE
    key: bytes | str | None = None


class Rows(Sequence[Row]):
    """A hub's rows of one window, each made when it is asked for."""

    def __init__(self, plain: list[Row], sightings: Sightings, issue: Issue) -> None:
        self._plain, self._sightings, self._issue = plain, sightings, issue

    def __len__(self) -> int:
        return len(self._plain)

    def __getitem__(self, number: Any) -> Any:
        """Return a row, or a list of rows for a slice."""
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        plain = self._plain[number]
        sites = self._sightings.of(range(len(self))[number])
        return {**plain, "sites": sites, "missing": self._issue.missing, "revision": self._issue.revision}


@dataclass(frozen=True, kw_only=True)
class HubReport(Report):
    """What a hub reports about one window."""

    sites: list[str]
    missing: list[str]
    refused: dict[str, str]  # site → reason

    @property
    def attendance(self) -> str:
        """Who is in: "5 of 5 sites", "4 of 5 sites: missing fra"."""
        total = len(self.sites) + len(self.missing)
        text = f"{len(self.sites)} of {total} sites" + (f": missing {', '.join(self.missing)}" if self.missing else "")
        return text + "".join(f"; refused {site} ({reason})" for site, reason in self.refused.items())


@dataclass
class HubCounters:
    """What a hub has done."""

    reports: int = 0
    revisions: int = 0  # reports of a window that was reported before
    incomplete: int = 0  # first reports with sites missing
    waits: int = 0  # times that the disk could not be read or written, and was tried again
    damaged: int = 0  # sketches left out: this disk has damaged them, or the hub has another key or geometry now
    retired: int = 0  # windows past --late


class UnreportableError(SuperhostsError):
    """A window that cannot be reported for what is in it: trying at once again would not help."""


@dataclass
class _Made:
    """A report that is made, and stays until all of its destinations have it."""

    issue: Issue
    report: HubReport
    out: bool = False


class _LastSites:
    """The sites of the last windows to arrive."""

    def __init__(self, windows: dict[str, set[str]]) -> None:
        self._windows = windows
        self._all = set[str]().union(*windows.values())

    def beside(self, key: str) -> set[str]:
        """Return the sites of the others, for one window."""
        if key not in self._windows:
            return self._all
        return set[str]().union(*(sites for other, sites in self._windows.items() if other != key))


class Hub:
    """Reports the windows of a store. Receivers fill the store through the desk, in threads of their own."""

    def __init__(
        self,
        store: Store,
        desk: Desk,
        settings: HubSettings,
        report: Callable[[HubReport], None],
        say: Say,
        *,
        archive: Archive | None = None,
        upstream: Spool | None = None,
    ) -> None:
        self.settings = settings
        self.counters = HubCounters()
        self._store, self._desk = store, desk
        self._report, self._say = report, say
        self._archive, self._upstream = archive, upstream
        self._tidied = 0.0
        self._troubles = Troubles(say, self._count_wait)
        self._made: _Made | None = None
        self._last = _LastSites({})
        self._turns = Turns()
        self._uniter = Uniter(settings.key, desk.check_kinds)
        self._clock = Clock(store.state / RECORD, self._newest, say)
        self._fleet = self._known_sites()

    def status(self) -> dict[str, Any]:
        """Return what an operator should look at: files set aside, work that does not succeed, doubts of the clock."""
        places = [self._store.asides, *([self._archive.asides] if self._archive else [])]
        names = [name for place in places for name in place.last]
        return {
            "aside": {"count": sum(place.count for place in places), "last": names},
            "stuck": dict(self._troubles.open),
            "clock": self._clock.doubt,
        }

    def _count_wait(self) -> None:
        self.counters.waits += 1

    def _newest(self) -> float:
        return max(self._store.newest(), self._archive.newest() if self._archive else 0.0)

    def _known_sites(self) -> set[str]:
        """Return the sites of this fleet as far as this start knows them: those named, else those of all windows."""
        if self.settings.sites:
            return set(self.settings.sites)
        ledgers = (self._store.ledger(key) for key in self._store.windows())
        found = {site for ledger in ledgers for site in ledger.sites}
        return found | (self._archive.senders(REMEMBERED, self._clock.believed) if self._archive else set())

    def run(self, stop: threading.Event, *, on_turn: Callable[[], None] = lambda: None) -> None:
        """Report windows until told to stop; `on_turn` is called about once a second, and after each report."""
        while not stop.is_set():
            self._desk.arrived.wait(1.0)
            self.step(stop, on_turn=on_turn)
            self._troubles.attempt("NOT TIDIED", self._tidy)
            on_turn()

    def step(self, stop: threading.Event | None = None, *, on_turn: Callable[[], None] = lambda: None) -> None:
        """Report every window that is ready; of the oldest that is not, merge what has come.

        Sites take turns, and what arrives meanwhile takes part: no site's windows wait for all that another has sent.
        """
        stop = stop or threading.Event()
        failed: set[str] = set()  # tried again at the next step
        while True:
            self._desk.arrived.clear()
            again = time.monotonic() + LOOK
            ready, waiting = self._look(failed)
            for key in ready:
                if stop.is_set() or not self._take_turn(key, failed):
                    return
                on_turn()
                if self._desk.arrived.is_set() or time.monotonic() >= again:
                    break
            else:
                break
        if waiting is not None and not stop.is_set():
            self._troubles.attempt(f"NOT MERGED YET: {waiting}", partial(self._merge_ahead, waiting), waiting)

    def _look(self, failed: set[str]) -> tuple[list[str], str | None]:
        """Return the windows to report now, in the order of turns, and the oldest that is not ready."""
        self._last = self._last_sites()
        ready: dict[str, set[str]] = {}
        waiting: str | None = None
        for key in self._store.windows():
            ledger = self._store.ledger(key)
            if not ledger.is_due or key in failed or self._troubles.is_resting(key):
                continue
            if self._is_ready(key, ledger):
                ready[key] = ledger.sites_to_report
            else:
                waiting = waiting or key
        return self._turns.order(ready), waiting

    def _take_turn(self, key: str, failed: set[str]) -> bool:
        """Report a window, or note that it failed. Return False where none could be reported now."""
        ledger, what = self._store.ledger(key), f"NOT REPORTED: {key}"
        sites = ledger.sites_to_report
        if not self._troubles.attempt(what, partial(self._issue, key, ledger), key):
            return False  # nobody had a turn: the report that is made waits, and is the first again
        self._turns.take(sites)
        if what in self._troubles.open:
            failed.add(key)
        return True

    def _merge_ahead(self, key: str) -> None:
        ledger = self._store.ledger(key)
        self._unite(key, ledger, list(ledger.known), stop=lambda: self._is_ready(key, ledger))
        if not ledger.is_due:  # the archive knows the last report, and it was this one
            self._store.write(key)

    def _expected_sites(self, key: str) -> set[str]:
        """Return the sites that should be in a window: those named, else those of the last windows to arrive."""
        return set(self.settings.sites) or self._last.beside(key)

    def _last_sites(self) -> _LastSites:
        if self.settings.sites:
            return _LastSites({})
        return _LastSites({key: set(map(_site_of, list(self._store.ledger(key).known))) for key in self._recent()})

    def _recent(self) -> list[str]:
        keys = [key for key in self._store.windows() if self._store.ledger(key).known]
        return sorted(keys, key=lambda key: self._store.ledger(key).first)[-REMEMBERED:]

    def _is_ready(self, key: str, ledger: Ledger) -> bool:
        """Say whether to report a window now. One that was reported waits a little for further late sketches."""
        if ledger.issuing is not None:  # it was being made when the hub stopped
            return True
        pause = min(self.settings.grace, self.settings.late_pause)
        if ledger.issued is None:
            expected = self._expected_sites(key)
            if expected and expected <= ledger.sites:
                return True
            pause = self.settings.grace
        return not 0 <= time.time() - ledger.unreported < pause  # below zero: this machine's clock was set back

    def _issue(self, key: str, ledger: Ledger) -> None:
        """Report a window: what is needed to do it again stands on disk before, what was done after."""
        made = self._made
        if made is None or made.issue is not ledger.issuing:
            made = self._made = self._make(key, ledger)
        if made is None:
            return
        if not made.out:
            self._report(made.report)
            made.out = True
            self.counters.reports += 1
            self.counters.revisions += made.issue.revision > 1
            self.counters.incomplete += made.issue.revision == 1 and bool(made.issue.missing)
        with self._store.lock:
            before = ledger.issued
            ledger.issued, ledger.issuing = made.issue, None
            if ledger.is_due:  # more came while it was made: that waits as long as what comes now
                ledger.unreported = time.time()
            try:
                self._store.write(key)
            except OSError:  # only what the disk says counts
                ledger.issued, ledger.issuing = before, made.issue
                raise
        self._made = None

    def _make(self, key: str, ledger: Ledger) -> _Made | None:
        """Make a report, and have all on disk that follows from it; None where no sketch of it can be merged."""
        self._begin(key, ledger)
        with self._store.lock:
            if not ledger.is_due:  # the archive knows the last report, and it was this one
                self._store.write(key)
                return None
            if ledger.issuing is None:
                missing = sorted(self._expected_sites(key) - ledger.sites)
                ledger.issuing = Issue(ledger.next_revision, sorted(ledger.known), missing)
                self._store.write(key)
            issue = ledger.issuing
        self._unite(key, ledger, issue.members)
        sketch = self._uniter.take()
        if not issue.members:  # none could be merged
            with self._store.lock:
                ledger.issuing = None
                self._store.write(key)
            return None
        report = self._make_report(key, sketch, ledger, issue)
        self._save(sketch, self._store.folder(key) / UNION)
        new = set(issue.members) - set(ledger.merged)
        if self._archive is not None:
            self._put_into(self._archive, key, issue, new)
        with self._store.lock:
            ledger.merged = issue.members
            self._store.write(key)
        if self._upstream is not None:
            self._upstream.put(sketch)
        write_lines(self._store.folder(key) / ROWS, report.rows)
        return _Made(issue, report)

    def _save(self, sketch: Sketch, path: Path) -> None:
        try:
            sketch.save(path)
        except OutputError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise UnreportableError(str(error)) from None  # not the disk: it has too many sites and counters
        make_private(path)

    def _unite(self, key: str, ledger: Ledger, members: list[str], stop: Callable[[], bool] = lambda: False) -> None:
        """Merge what the union of a window lacks, until told to stop. A member that cannot be merged is left out."""
        folder, members = self._store.folder(key), list(members)
        while True:
            if self._uniter.window != key:
                self._begin(key, ledger)
            name = next(iter(self._uniter.missing(members)), None)
            if name is None or stop():
                return
            try:
                self._uniter.add(folder / name, trusted=name in self._store.fresh)
                self._store.fresh.discard(name)
            except RefusedMemberError as error:
                self._set_aside(key, ledger, error)
                members.remove(name)

    def _begin(self, key: str, ledger: Ledger) -> None:
        """Start a union with those that lie on disk: what a report or the archive once held stays in the next."""
        while True:
            if self._uniter.window != key:
                self._start(key, ledger)
            self._take_archived(key, ledger)
            if self._uniter.window == key:  # else an archived union failed half way and is set aside: all begins anew
                break
        if ledger.issued is not None and ledger.names_lost:
            with self._store.lock:
                ledger.adopt(ledger.issued, self._uniter.sites)

    def _start(self, key: str, ledger: Ledger) -> None:
        union = self._store.folder(key) / UNION
        if os.path.lexists(union):
            try:
                self._uniter.begin(key, union)
                self._uniter.contains(ledger.merged)
                return
            except RefusedMemberError as error:
                self.counters.damaged += 1
                self._store.asides.put(union, f"{error.reason}; the union of {key} is made without it", "LEFT OUT")
        self._uniter.begin(key)

    def _take_archived(self, key: str, ledger: Ledger) -> None:
        """Merge what the archive holds of a window and this store does not: it is never replaced by less."""
        archive = self._archive
        if archive is None:
            return
        if not archive.holds(key):
            if ledger.issued is None and (issue := archive.last_issue(key)) is not None:  # a union that was set aside
                ledger.adopt(Issue(issue.revision))
            return
        path = archive.union(key)
        is_new = not path.is_file() or not self._uniter.has_file(path)
        if not is_new and not ledger.names_lost:
            return
        is_in = True
        if is_new:
            try:
                self._uniter.add_union(path)
            except RefusedMemberError as error:
                self.counters.damaged += 1
                archive.leave_out_union(key, error.reason)
                is_in = False
        issue = archive.last_issue(key)
        with self._store.lock:
            if issue is not None:  # of a union that is damaged only the number of reports is worth knowing
                ledger.adopt(issue if is_in else Issue(issue.revision))
            if is_in:
                self._uniter.contains(issue.members if issue else ())
                self._uniter.contains(name for name in ledger.known if self._came_with_union(key, name))

    def _came_with_union(self, key: str, name: str) -> bool:
        """Return True if a sketch that lies here no more is of a site that the unions know."""
        return _site_of(name) in self._uniter.sites and not is_plain(self._store.folder(key) / name)

    def _set_aside(self, key: str, ledger: Ledger, error: RefusedMemberError) -> None:
        """Leave a sketch out that this disk has damaged, or that an earlier run took with another key or geometry."""
        self.counters.damaged += 1
        self._store.asides.put(self._store.folder(key) / error.name, error.reason, "LEFT OUT")
        with self._store.lock:
            for names in (ledger.known, *(issue.members for issue in (ledger.issuing, ledger.issued) if issue)):
                if error.name in names:
                    names.remove(error.name)
            site = Parcel.parse(error.name).site
            if (issue := ledger.issuing) is not None and site not in map(_site_of, issue.members):
                issue.missing = sorted({*issue.missing, site} - set(ledger.held))
            self._store.write(key)

    def _make_report(self, key: str, sketch: Sketch, ledger: Ledger, issue: Issue) -> HubReport:
        selection = Selection(self.settings.threshold, self.settings.top)
        found = selection.limit(selection.ask(sketch))
        sightings = Sightings(found, sketch, self.settings.key)
        if not sightings.remember(self._store.rows(key)):
            self._store.asides.put(self._store.folder(key) / ROWS, "not the rows of a report")
        # In a first report all files were merged, and checked, a moment ago.
        for error in sightings.ask(self._files_by_site(key, issue), trusted=issue.revision == 1):
            self.counters.damaged += 1
            self._say(f"LEFT OUT of the sites that saw a host: {error}")
        rows = Rows(make_rows(sketch.window, found), sightings, issue)
        names = sorted({*map(_site_of, issue.members), *ledger.held})
        refused = {site: why for site, why in self._store.refusals(key).items() if site not in names}
        return HubReport(
            rows=rows,
            window=Parcel.parse(issue.members[0]).window,
            revision=issue.revision,
            sites=names,
            missing=issue.missing,
            refused=refused,
        )

    def _files_by_site(self, key: str, issue: Issue) -> dict[str, list[Path]]:
        files: dict[str, list[Path]] = defaultdict(list)
        for path in self._store.sketches(key):
            if path.name in issue.members:
                files[_site_of(path.name)].append(path)
        return files

    def _put_into(self, archive: Archive, key: str, issue: Issue, new: set[str]) -> None:
        archive.add_union(self._store.folder(key) / UNION, key, issue)
        if archive.with_sites:
            for path in self._store.sketches(key):
                if path.name in new:
                    archive.add_site(path)

    def _tidy(self) -> None:
        """Let go of what no report needs any more, now and then; by age only where the clock can be believed."""
        if time.monotonic() - self._tidied < TIDY:
            return
        self._tidied = time.monotonic()
        by_age = self._clock.is_believed(self._store.heard, self._fleet)
        recent, before = set(self._recent()), self.counters.retired
        for key in self._store.windows():
            retire = by_age and self.counters.retired - before < MOST_RETIRED
            self._troubles.attempt(f"NOT TIDIED: {key}", partial(self._tidy_window, key, key in recent, retire))
        if self.counters.retired - before == MOST_RETIRED:
            self._say(f"{MOST_RETIRED} windows were past --late and are retired; others may follow")
        if by_age:
            if self._archive is not None:
                self._archive.sweep()
            self._store.forget_past(max(self._archive.keep if self._archive else 0.0, PAST))

    def _tidy_window(self, key: str, is_recent: bool, retire: bool) -> None:
        with self._store.lock:  # a sketch that arrives now must find the window whole, or gone
            ledger = self._store.ledger(key)
            if ledger.is_due or not ledger.unreported:  # with no time, nothing is known of it
                return
            if not is_recent:
                self._store.drop_sketches(key)
            if retire and self._is_past_late(key, ledger):
                self._store.retire(key)
                self._troubles.forget(key)
                self.counters.retired += 1

    def _is_past_late(self, key: str, ledger: Ledger) -> bool:
        window = parse_key(key)
        return window is not None and age_of(ledger.unreported, window.end, time.time()) > self.settings.late


def _site_of(name: str) -> str:
    return Parcel.parse(name).site
