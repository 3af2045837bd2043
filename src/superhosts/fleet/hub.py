"""The node that merges the sketches of all sites and reports every window.

A window is reported when every expected site has sent its sketch, or when the grace period since the first sketch has
passed. A later sketch re-opens its window, which is reported again with a higher revision. Everything that a report
needs is on disk (store.py), so a hub that is killed at any point continues where it was; a report in progress is made
again from the same sketches, with the same rows. Memory is that of one cube, whatever the number of sites and windows.

If windows slide (`HubSettings.grid`), sites send panes. They are merged in the same way, but not reported; the windows
made of them are (slidingwindows.py).
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Window
from superhosts.core.results import DEFAULT_SELECTION, Selection
from superhosts.core.text import counted, printable
from superhosts.core.units import SECOND
from superhosts.errors import OutputError, SuperhostsError, UnreadableError, internal_error
from superhosts.fleet.archive import Archive
from superhosts.fleet.clock import RECORD, TOLERANCE, Clock, age_of
from superhosts.fleet.intake import FUTURE, Intake
from superhosts.fleet.link import MAX_SAID, Say, retry_delay
from superhosts.fleet.names import SketchId, parse_window_name, site_of
from superhosts.fleet.report import HubReport, Reporter
from superhosts.fleet.slidingwindows import NOT_SLIDING, Grid, SlidingWindows
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import UNION, Issue, Ledger, WindowStore, as_lines
from superhosts.fleet.union import Merger
from superhosts.sketch.sketch import Sketch

LONGEST_REST = 300.0  # seconds between two attempts at a window that cannot be reported because of its content
# Errors that do not concern one window alone.
OF_THE_SYSTEM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
REMEMBERED = 12  # recent windows: their sites are expected again, and their sites' own sketches are kept
LATE_PAUSE = 10.0  # seconds to wait for further late sketches before a window is reported again
PAST = 90 * 86400.0  # seconds to keep the ledger of a past window, so that it is not reported as new again


@dataclass(frozen=True)
class HubSettings:
    """What a hub reports and how long it waits, in seconds."""

    selection: Selection = DEFAULT_SELECTION
    sites: tuple[str, ...] = ()
    grace: float = 60.0
    late: float = 86400.0
    late_pause: float = LATE_PAUSE
    grid: Grid | None = None  # the windows to report; None: whatever windows sites send
    look_every: float = 1.0  # of reporting, before all windows are examined again: a grace period may have passed
    tidy_every: float = 30.0  # between two searches for files that can be removed
    sweep_every: float = 600.0  # between two searches of the archive for sketches that are too old
    max_retired: int = 100  # windows to retire at a time
    key: bytes | str | None = field(default=None, repr=False)  # a secret


@dataclass
class HubCounters:
    reports: int = 0
    revisions: int = 0  # reports of windows that were reported before
    incomplete: int = 0  # first reports with sites missing
    waits: int = 0  # failed attempts to read or write the disk
    damaged: int = 0  # sketches left out: damaged on this disk, or the hub has another key or geometry now
    retired: int = 0  # windows past --late
    panes: int = 0  # merged, first or again, if windows slide


@dataclass
class _Made:
    """A finished report, kept until all destinations have it."""

    issue: Issue
    report: HubReport | None  # None for a pane
    sketch: Sketch | None = None  # of a pane


class Hub:
    """Reports the windows of a store, which receivers fill through the intake, in other threads."""

    def __init__(
        self,
        store: WindowStore,
        intake: Intake,
        settings: HubSettings,
        report: Callable[[HubReport], None],
        say: Say,
        *,
        archive: Archive | None = None,
        upstream: Spool | None = None,
    ) -> None:
        self.settings = settings
        self.counters = HubCounters()
        self._store, self._intake = store, intake
        self._report, self._say = report, say
        self._archive, self._upstream = archive, upstream
        self._times = store.times
        self._tidied = self._swept = 0.0
        self._retries = Retries(say, self.counters, self._times.steady)
        self._made: _Made | None = None
        self._out: tuple[Window | None, int] | None = None  # the last report that all destinations have
        self._last: dict[str, set[str]] = {}  # the sites of recent windows
        self._last_sites: set[str] = set()  # all of them
        self._turns = RoundRobin()
        self._merger = Merger(store, archive, settings.key, intake.check_kinds, self._count_damaged)
        self.reporter = Reporter(lambda: self.settings.selection, settings.key, self._left_out_of_sites)
        self.merging = self._merger.merging
        self.on_report: Callable[[HubReport], None] | None = None  # told each report that all destinations have
        self._grid = settings.grid or NOT_SLIDING
        self._sliding = SlidingWindows(self._grid, store, self._merger, self.reporter, archive=archive)
        self._remembered = max(REMEMBERED, 2 * self._grid.panes)  # panes: those of windows that are revised, too
        self._clock = Clock(store.state / RECORD, self._newest, say, self._times)
        # The sites of this fleet as known at the start: those named, otherwise those of all windows.
        self._fleet = set(settings.sites) or {site for name in store.windows() for site in store.ledger(name).sites}
        if archive is not None and not settings.sites:
            self._fleet |= archive.senders(REMEMBERED, self._clock.believed)

    def status(self) -> dict[str, Any]:
        """Return what needs an operator's attention: files set aside, work that fails, doubts about the clock."""
        places = [self._store.quarantine, *([self._archive.quarantine] if self._archive else [])]
        names = [name for place in places for name in place.last]
        return {
            "aside": {"count": sum(place.count for place in places), "last": names},
            "stuck": dict(self._retries.open),
            "clock": self._clock.doubt,
        }

    def due(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for window in self._store.windows():
            with contextlib.suppress(KeyError, OSError):  # retired meanwhile
                if self._store.ledger(window).is_due:
                    found[window] = sum(path.stat().st_size for path in self._store.sketches(window))
        return found

    def _count_damaged(self) -> None:
        self.counters.damaged += 1

    def _left_out_of_sites(self, error: SuperhostsError) -> None:
        self.counters.damaged += 1
        self._say(Notice(f"LEFT OUT of the sites that saw a host: {error}", "left-out", WARNING))

    def _newest(self) -> float:
        return max(self._store.ledgers.newest(), self._archive.newest() if self._archive else 0.0)

    def run(
        self,
        stop: threading.Event,
        *,
        on_turn: Callable[[], None] = lambda: None,
        on_merged: Callable[[], None] = lambda: None,
    ) -> None:
        """Report windows until told to stop; `on_turn` is called about once a second, and after each report.

        `on_merged` is called after each sketch, too: a window of hundreds takes minutes.
        """
        self._merger.on_merged = on_merged
        on_turn()  # it is ready, however much is to be merged first
        while not stop.is_set():
            self._intake.arrived.wait(1.0)
            self.step(stop, on_turn=on_turn)
            self._retries.attempt(Notice("NOT TIDIED", "not-tidied", WARNING), self.tidy)
            on_turn()

    def step(self, stop: threading.Event | None = None, *, on_turn: Callable[[], None] = lambda: None) -> None:
        """Report every window that is ready, and merge what has arrived for the oldest one that is not.

        Sites take turns, and windows that arrive meanwhile take part: no site waits for all windows of another site.
        """
        stop = stop or threading.Event()
        failed: set[str] = set()  # retried at the next step
        while True:
            self._intake.arrived.clear()
            again = self._times.steady() + self.settings.look_every
            ready, waiting = self._look(failed)
            for window in ready:
                if stop.is_set() or not self._take_turn(window, failed):
                    return
                on_turn()
                if self._intake.arrived.is_set() or self._times.steady() >= again:
                    break
            else:
                if not ready:  # otherwise panes may have made windows ready
                    break
        if waiting is not None and not stop.is_set():
            self._retries.attempt(
                Notice(f"NOT MERGED YET: {waiting}", "not-merged-yet", WARNING),
                partial(self._merge_ahead, waiting),
                waiting,
            )

    def _look(self, failed: set[str]) -> tuple[list[str], str | None]:
        if not self.settings.sites:
            recent = self._recent(timely=True) or self._recent()  # none is timely if all captures are old
            self._last = {window: set(map(site_of, list(self._store.ledger(window).known))) for window in recent}
            self._last_sites = set[str]().union(*self._last.values())
        ready: dict[str, set[str]] = {}
        changing: set[str] = set()  # panes for which windows wait
        waiting: str | None = None
        for window in self._store.windows():
            ledger = self._store.ledger(window)
            if not ledger.is_due or window in failed or self._retries.is_resting(window):
                continue
            if self._is_ready(window, ledger):
                ready[window] = ledger.sites_to_report
                changing.add(window)
            else:
                waiting = waiting or window
                changing |= set() if ledger.issued else {window}
        for window, sites in self._sliding.ready(changing).items():
            if window not in failed and not self._retries.is_resting(window):
                ready[window] = sites
        return self._turns.order(ready), waiting

    def _take_turn(self, window: str, failed: set[str]) -> bool:
        """Report a window, or note that it failed. Return False if no window can be reported now."""
        what = Notice(f"NOT REPORTED: {window}", "not-reported", WARNING)
        if window in self._sliding.due:
            sites = self._sliding.due[window]
            work = partial(self._sliding.issue, window, self._hand_out)
        else:
            ledger = self._store.ledger(window)
            sites = ledger.sites_to_report
            work = partial(self._issue, window, ledger)
        if not self._retries.attempt(what, work, window):
            return False  # no site had its turn: the finished report waits, and comes first next time
        self._turns.take(sites)
        if what in self._retries.open:
            failed.add(window)
        return True

    def _merge_ahead(self, window: str) -> None:
        ledger = self._store.ledger(window)
        self._merger.complete(window, ledger, list(ledger.known), stop=lambda: self._is_ready(window, ledger))
        if not ledger.is_due:  # according to the archive, this was reported already
            self._store.write(window)

    def _expected_sites(self, window: str) -> set[str]:
        """Return the sites that should be in a window: those named, otherwise those of the most recent windows."""
        if self.settings.sites or window not in self._last:
            return set(self.settings.sites) or self._last_sites
        return set[str]().union(*(sites for other, sites in self._last.items() if other != window))

    def _recent(self, *, timely: bool = False) -> list[str]:
        """Return the windows whose first sketches came last; `timely`: only those that came when they had ended.

        A site that makes up windows, or has a wrong clock, is no reason to expect less of the others.
        """
        found: list[tuple[float, str]] = []
        for window in self._store.windows():
            ledger, span = self._store.ledger(window), parse_window_name(window)
            is_timely = span is not None and -FUTURE <= ledger.first - span.end / SECOND <= TOLERANCE
            if ledger.known and (is_timely or not timely):
                found.append((ledger.first, window))
        return [window for _, window in sorted(found)[-self._remembered :]]

    def _is_ready(self, window: str, ledger: Ledger) -> bool:
        """Return True if a window is to be reported now. After a first report it waits for further late sketches.

        A window waits from its first sketch on. But a sketch may come before its window has ended: the clock of its
        site is ahead, or its edge was stopped within the window. Then the other sites cannot have sent theirs, and the
        wait begins with the end of the window. So a wrong clock never closes the windows of others before they had
        their time.

        A window that lies further ahead is reported soon: its time may never come, if a clock was years ahead. If it
        comes, the sketches of the other sites wait for each other as in any other window.
        """
        if ledger.issuing is not None:  # the report was in progress when the hub stopped
            return True
        now, span, grace = self._times.wall(), parse_window_name(window) or Window(0, 0), self.settings.grace
        start, end = span.start / SECOND, span.end / SECOND
        since, pause, for_all = ledger.unreported, grace, True
        ahead = 0.0  # how far `since` may lie in the future; further, and the clock was set back
        if ledger.issued is not None:
            for_all = ledger.first < end - FUTURE and bool(ledger.issued.missing)  # it was reported too soon
            pause = grace if for_all else min(grace, self.settings.late_pause)
        elif ledger.unreported < end and start - FUTURE <= now:
            since, ahead = end, end - start + FUTURE
        if for_all and (expected := self._expected_sites(window)) and expected <= ledger.sites:
            return True
        return not -ahead <= now - since < pause

    def _issue(self, window: str, ledger: Ledger) -> None:
        """Report a window. What is needed to repeat the report is on disk before, the fact that it is done after."""
        made = self._made
        if made is None or made.issue is not ledger.issuing:
            made = self._made = self._make(window, ledger)
        if made is None:
            return
        if made.report is not None:
            self._hand_out(made.report)
        sites = ledger.sites_to_report
        with self._store.lock:
            if set(ledger.known) != set(made.issue.members):  # what arrived meanwhile waits as long as what arrives now
                ledger.unreported = self._times.wall()
            self._store.write(window, replace(ledger, issued=made.issue, issuing=None))
        self._made = None
        if made.sketch is not None:
            self.counters.panes += 1
            self._sliding.add(window, made.sketch, sites)

    def _hand_out(self, report: HubReport) -> None:
        name = report.window, report.revision
        if name == self._out:  # the ledger, which says so, could not be written
            return
        self._report(report)
        self._out = name
        self.counters.reports += 1
        self.counters.revisions += report.revision > 1
        self.counters.incomplete += report.revision == 1 and bool(report.missing)
        if self.on_report is not None:
            self.on_report(report)

    def _make(self, window: str, ledger: Ledger) -> _Made | None:
        """Make a report and write all that follows from it to disk; None if none of its sketches can be merged."""
        self._merger.begin(window, ledger)
        with self._store.lock:
            if not ledger.is_due:  # according to the archive, this was reported already
                self._store.write(window)
                return None
            if ledger.issuing is None:
                missing = sorted(self._expected_sites(window) - ledger.sites)
                ledger.issuing = Issue(ledger.next_revision, sorted(ledger.known), missing)
                self._store.write(window)
            issue = ledger.issuing
        self._merger.complete(window, ledger, issue.members)
        sketch = self._merger.take()
        if not issue.members:  # none could be merged
            with self._store.lock:
                ledger.issuing = None
                self._store.write(window)
            return None
        report = None if self._sliding.is_pane(window) else self._make_report(window, sketch, ledger, issue)
        sketch.save(self._store.folder(window) / UNION)
        if self._archive is not None:
            self._archive.add_union(self._store.folder(window) / UNION, window, issue)
            new = set(issue.members) - set(ledger.merged)
            for path in self._store.sketches(window) if self._archive.with_sites else ():
                if path.name in new:
                    self._archive.add_site(path)
        if self._upstream is not None:
            self._upstream.put(sketch)
        rows = None if report is None else as_lines(report.rows)
        with self._store.lock:
            ledger.merged = issue.members
            self._store.write(window, rows=rows)
        return _Made(issue, report, sketch if report is None else None)

    def _make_report(self, window: str, sketch: Sketch, ledger: Ledger, issue: Issue) -> HubReport:
        names = sorted({*map(site_of, issue.members), *ledger.held})
        refused = {site: why for site, why in self._store.refusals(window).items() if site not in names}
        span, files = SketchId.parse(issue.members[0]).window, defaultdict[str, list[Path]](list)
        for path in self._store.sketches(window):
            if path.name in issue.members:
                files[site_of(path.name)].append(path)
        who: Any = {"sites": names, "missing": issue.missing, "refused": refused}
        draft = HubReport(window=span, revision=issue.revision, **who)
        # The files of a first report were verified a moment ago, when they were merged.
        trusted = issue.revision == 1
        return self.reporter.make(sketch, draft, files, self._store.ledgers.rows(window) or [], trusted=trusted)

    def tidy(self) -> None:
        """Remove what no report needs any more, from time to time; by age only if the clock is plausible."""
        if self._times.steady() - self._tidied < self.settings.tidy_every:
            return
        self._tidied = self._times.steady()
        by_age = self._clock.is_believed(self._store.heard, self._fleet)
        recent, before = set(self._recent()), self.counters.retired
        for window in self._store.windows():
            retire = by_age and self.counters.retired - before < self.settings.max_retired
            self._retries.attempt(
                Notice(f"NOT TIDIED: {window}", "not-tidied", WARNING),
                partial(self._tidy_window, window, window in recent, retire),
            )
        if self.counters.retired - before == self.settings.max_retired:
            self._say(f"{counted(self.settings.max_retired, 'window')} past --late retired; others may follow")
        if by_age:
            if self._archive is not None and self._times.steady() - self._swept >= self.settings.sweep_every:
                self._swept = self._times.steady()
                self._archive.sweep(self._times.wall())
            kept = self._archive.keep if self._archive else 0.0
            self._store.forget(max(kept, PAST) + self.settings.late)  # none of a window that is still open

    def _tidy_window(self, window: str, is_recent: bool, retire: bool) -> None:
        with self._store.lock:  # an arriving sketch must find the window either complete or gone
            ledger = self._store.ledger(window)
            if ledger.is_due or not ledger.unreported:  # without a time nothing is known about it
                return
            if not is_recent:
                self._store.drop_sketches(window)
            if retire and self._is_past_late(window, ledger) and not self._is_needed(window):
                self._store.retire(window)
                self._retries.forget(window)
                self.counters.retired += 1
                self._sliding.release(window)

    def _is_needed(self, pane: str) -> bool:
        """Return True if a window may yet be reported, for the first time or again, that has this pane."""
        others = ((other, self._store.ledger(other)) for other in self._sliding.neighbours(pane))
        is_open = (ledger.is_due or not self._is_past_late(other, ledger) for other, ledger in others)
        return self._sliding.needs(pane) or any(is_open)

    def _is_past_late(self, window: str, ledger: Ledger) -> bool:
        """Return True if a late sketch of this window is no longer expected, nor the other panes of its windows."""
        span = parse_window_name(window)
        late = self.settings.late + (self._grid.length / SECOND if self._sliding.is_pane(window) else 0.0)
        return span is not None and age_of(ledger.unreported, span.end, self._times.wall()) > late


class RoundRobin:
    """Which window a hub reports next: sites take turns.

    One site may have thousands of windows to report: it was offline for a week, or it makes them up. The next report
    goes to the site whose last turn is longest ago. So a window waits for at most one window of each other site.
    """

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[str, int] = {}  # site → number of its last turn

    def take(self, sites: Iterable[str]) -> None:
        self._count += 1
        self._last.update(dict.fromkeys(sites, self._count))

    def order(self, windows: Mapping[str, Collection[str]]) -> list[str]:
        """Return the windows in the order to report them: the first of every site, then the second of every site …

        `windows` maps each window, oldest first, to the sites that it serves.
        """
        given: defaultdict[str, int] = defaultdict(int)
        places: dict[str, tuple[int, int, str]] = {}
        for window, sites in windows.items():
            for site in sites or ("",):
                place = (given[site], self._last.get(site, 0), site)
                given[site] += 1
                places[window] = min(place, places.get(window, place))
        return sorted(places, key=places.__getitem__)


class Retries:
    """Runs work, logs once what failed, counts failed attempts, and retries it.

    A full disk affects everything: no other work would succeed either. A problem of one window alone (an invalid file,
    an output path that is taken by something else, a union that is too large) puts that window on hold, longer each
    time.
    """

    def __init__(self, say: Say, counters: HubCounters, clock: Callable[[], float] = time.monotonic) -> None:
        self.open: dict[str, str] = {}  # what failed at the last attempt, and why
        self._say, self._counters, self._clock = say, counters, clock
        self._rests: dict[str, tuple[int, float]] = {}  # window → attempts, and until when it rests (monotonic)

    def is_resting(self, window: str) -> bool:
        return window in self._rests and self._clock() < self._rests[window][1]

    def attempt(self, what: Notice, work: Callable[[], None], window: str | None = None) -> bool:
        """Run some work, on a window or on something else; `what` is logged if it fails.

        Return False if no other work could succeed now.
        """
        try:
            work()
        except UnreadableError as error:  # it may be readable a moment later
            self._note(what, error)
            return True
        except Exception as error:  # no input may stop the hub
            self._note(what, error if isinstance(error, OSError | SuperhostsError) else internal_error(error))
            cause = error.__cause__ if isinstance(error, OutputError) else error
            if isinstance(cause, OSError) and cause.errno in OF_THE_SYSTEM:
                return False
        else:
            for over in {what: None, **dict.fromkeys(self._all_of(window))}:
                if self.open.pop(over, None) is not None:
                    self._say(Notice(f"{over}: works again", "recovered"))
            if window is not None:
                self._rests.pop(window, None)
            return True
        if window is not None:
            attempts = self._rests.get(window, (0, 0.0))[0] + 1
            self._rests[window] = attempts, self._clock() + retry_delay(attempts, 1.0, LONGEST_REST)
        return True

    def _note(self, what: Notice, error: object) -> None:
        self._counters.waits += 1
        if what not in self.open:
            text = f"{what}: {printable(error, MAX_SAID)}; retrying until it works"
            self._say(Notice(text, what.event, what.level))
        self.open[what] = printable(error)

    def forget(self, window: str) -> None:
        self._rests.pop(window, None)
        for what in self._all_of(window):
            del self.open[what]

    def _all_of(self, window: str | None) -> list[str]:
        return [] if window is None else [what for what in self.open if what.endswith(f": {window}")]
