"""Windows that slide: what a hub reports if its sites send panes.

A window ends with every pane that came, and is the union of the last panes. It is due if its panes, or the revisions of
these, are others than in its last report: the last pane is new, or a late sketch has changed one of them. So what is
due follows from what is on disk, and a hub that was killed finds it again.

The panes of the last window are in a queue in memory (`pipeline/sliding.py`), so the next window takes few merges.
After a restart, or if a pane has changed, the queue is filled from the unions on disk.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from superhosts.core.pairs import Window
from superhosts.core.times import window_name
from superhosts.core.units import format_duration
from superhosts.errors import UsageError
from superhosts.fleet.archive import Archive
from superhosts.fleet.names import parse_window_name, site_of
from superhosts.fleet.report import HubReport, Reporter
from superhosts.fleet.store import SLIDING, UNKNOWN, Issue, Ledger, WindowStore, as_lines, revision_after
from superhosts.fleet.union import Merger
from superhosts.pipeline.sliding import PaneQueue
from superhosts.sketch.sketch import Sketch

KEPT = ("revision", "sites", "missing", "refused", "left_out")  # of a report that is in progress


class Grid(NamedTuple):
    """Which windows a hub takes and reports: of one length, or made of panes and sliding by a pane.

    Panes and windows begin at multiples of a pane's length since 1970, at all sites. A pane and the window that ends
    with it have the same number. Lengths are in nanoseconds.
    """

    length: int
    slide: int

    @property
    def panes(self) -> int:
        """How many panes a window has; 1 unless windows overlap."""
        return self.length // self.slide

    def check(self, window: Window) -> None:
        """Refuse (UsageError) a window that is not a pane of this grid."""
        length, pane = window.end - window.start, format_duration(self.slide)
        if self.panes > 1:
            wanted = f"panes of {pane} (--window {format_duration(self.length)} --slide {pane})"
            way = f"start its edge with --slide {pane}"
        else:
            wanted, way = f"windows of {pane} (--window)", f"start its edge with --window {pane}"
        if length != self.slide:
            raise UsageError(f"a window of {format_duration(length)}, and this hub takes {wanted}: {way}")
        if window.start % self.slide:
            raise UsageError(f"does not begin at a multiple of {pane}, and this hub takes {wanted}")

    def number(self, pane: str) -> int | None:
        """Return the number of a pane; None for any other window, and for all if windows do not slide."""
        window = parse_window_name(pane)
        if self.panes == 1 or window is None or window.end - window.start != self.slide or window.start % self.slide:
            return None
        return window.start // self.slide

    def pane(self, number: int) -> str:
        return window_name(Window(number * self.slide, (number + 1) * self.slide))

    def number_of_window(self, window: str) -> int:
        span = parse_window_name(window)
        assert span is not None
        return span.end // self.slide - 1

    def window(self, number: int) -> Window:
        end = (number + 1) * self.slide
        return Window(end - self.length, end)

    def panes_of(self, number: int) -> range:
        return range(number + 1 - self.panes, number + 1)

    def windows_of(self, number: int) -> range:
        return range(number, number + self.panes)

    def neighbours(self, number: int) -> range:
        """Return the panes that are in one window with a pane, itself included."""
        return range(number + 1 - self.panes, number + self.panes)


NOT_SLIDING = Grid(1, 1)  # whatever windows the sites send


class Pane(NamedTuple):
    """A pane and the revision of its last report: as long as both are the same, so are its pairs."""

    number: int
    revision: int


class _Attendance(NamedTuple):
    sites: set[str]
    missing: set[str]
    members: list[str]  # names of the sites' sketches


class SlidingWindows:
    """Makes and reports the windows of a grid from the panes of a store, which are like windows that do not slide.

    A report counts as in progress when its rows are on disk. So a hub that is killed meanwhile writes the same rows
    again, even if some pane has changed.
    """

    def __init__(
        self, grid: Grid, store: WindowStore, merger: Merger, reporter: Reporter, *, archive: Archive | None = None
    ) -> None:
        self._grid, self._store, self._archive = grid, store, archive
        self._reporter = reporter
        self._merger, self._ledgers = merger, store.ledgers
        self._fresh: tuple[Pane, Sketch] | None = None  # the pane that was merged last
        self._queue = PaneQueue()
        self._queued: list[Pane] = []
        self.due: dict[str, set[str]] = {}  # window → sites that wait for its report
        if grid.panes == 1:
            return
        panes = [number for name in store.windows() if (number := grid.number(name)) is not None]
        for number in {window for pane in panes for window in grid.windows_of(pane)}:
            self._examine(number, ())

    def is_pane(self, window: str) -> bool:
        """Return True if a window is not reported, but part of windows that are."""
        return self._grid.number(window) is not None

    def add(self, pane: str, sketch: Sketch, sites: Iterable[str]) -> None:
        """Take a pane whose new union is on disk, with sketches of these sites that were in none before."""
        number, revision = self._grid.number(pane), self._revision_of(pane)
        if number is None or revision is None:
            return
        self._fresh = Pane(number, revision), sketch
        for window in self._grid.windows_of(number):
            self._examine(window, sites)

    def ready(self, changing: Collection[str]) -> dict[str, set[str]]:
        """Return the windows to report now, oldest first, and the sites that each of them serves.

        A window waits for those of its panes that are about to be reported, for the first time or again.
        """
        waited = [number for name in changing if (number := self._grid.number(name)) is not None]
        blocked = {self._name(window) for number in waited for window in self._grid.windows_of(number)}
        ready = (window for window in sorted(self.due) if window not in blocked or self._ledger(window).issuing)
        return {window: self.due[window] for window in ready}

    def issue(self, window: str, report: Callable[[HubReport], None]) -> None:
        """Report a window. Its rows are on disk before, the fact that it is done after."""
        found = self._in_progress(window) or self._make(window)
        if found is None:  # nothing is left of it: its panes are gone, and so are the rows of its report
            self._write(window, issuing=None)
            self.due.pop(window, None)
            return
        report(found)
        self._write(window, issued=self._ledger(window).issuing, issuing=None)
        sites = self.due.pop(window)
        # A report from before a crash may lack what came since.
        self._examine(self._grid.number_of_window(window), sites)

    def needs(self, pane: str) -> bool:
        """Return True if a window that is due has this pane."""
        number = self._grid.number(pane)
        return number is not None and any(self._name(window) in self.due for window in self._grid.windows_of(number))

    def neighbours(self, pane: str) -> Iterator[str]:
        """Return the panes that may be in one window with a pane, and are in the store."""
        number = self._grid.number(pane)
        if number is not None:
            yield from filter(self._store.has, map(self._grid.pane, self._grid.neighbours(number)))

    def release(self, pane: str) -> None:
        """Drop what is kept for the window that ends with a pane that was retired."""
        if (number := self._grid.number(pane)) is not None:
            self._write(self._name(number), rows=b"")

    def _name(self, number: int) -> str:
        return window_name(self._grid.window(number))

    def _ledger(self, window: str) -> Ledger:
        return self._ledgers.read(window, SLIDING) or Ledger()

    def _write(self, window: str, rows: bytes | None = None, **changes: Any) -> None:
        self._ledgers.write(window, replace(self._ledger(window), **changes), rows, SLIDING)

    def _examine(self, number: int, sites: Iterable[str]) -> None:
        """Find out whether a window is due; sites that wait for it are added to those that wait already."""
        name = self._name(number)
        if self._store.has(name) or self._store.is_past(name):  # from before windows slid: reported there
            return
        ledger = self._ledger(name)
        if ledger.issuing is None:
            if self._revision_of(self._grid.pane(number)) is None or self._has_lost_panes(number):
                return
            if ledger.issued is not None and ledger.issued.content == _digest(self._panes(number)):
                return
        self.due[name] = self.due.get(name, set()) | set(sites)

    def _panes(self, number: int) -> list[Pane]:
        """Return the panes of a window that came and were merged."""
        found = ((pane, self._revision_of(self._grid.pane(pane))) for pane in self._grid.panes_of(number))
        return [Pane(pane, revision) for pane, revision in found if revision is not None]

    def _revision_of(self, pane: str) -> int | None:
        """Return the revision of a pane's union; None if it has none."""
        if self._store.has(pane):
            issued = self._store.ledger(pane).issued
            return None if issued is None else issued.revision
        if self._archive is None or not self._archive.holds(pane):
            return None
        issue = self._archive.last_issue(pane)
        return UNKNOWN if issue is None else issue.revision

    def _has_lost_panes(self, number: int) -> bool:
        """Return True if a pane is past --late, and in no archive: no report may have less than the one before."""
        past = filter(self._store.is_past, map(self._grid.pane, self._grid.panes_of(number)))
        return any(self._archive is None or not self._archive.holds(name) for name in past)

    def _in_progress(self, window: str) -> HubReport | None:
        """Return a report that was in progress when the hub stopped; None if there is none, or its rows are lost."""
        issue = self._ledger(window).issuing
        rows = self._ledgers.rows(window, SLIDING) if issue is not None else None
        if issue is None or rows is None:
            return None
        kept = {name: getattr(issue, name) for name in KEPT}
        return HubReport(rows=rows, window=self._grid.window(self._grid.number_of_window(window)), **kept)

    def _make(self, window: str) -> HubReport | None:
        """Make the report of a window, and write to disk that it is in progress; None if it has no pane any more."""
        number, ledger = self._grid.number_of_window(window), self._ledger(window)
        panes = self._panes(number)
        if not panes:
            return None
        sketch = self._union(panes)
        before = self._ledgers.rows(window, SLIDING) or []
        last = ledger.issued.revision if ledger.issued else None
        if last is None and (panes[-1].revision > 1 or not self._store.has(self._grid.pane(number))):
            last = UNKNOWN  # there may have been a report, and the state that told of it is lost
        came = [self._attendance(self._grid.pane(pane.number)) for pane in panes]
        files = self._files(came, only_whole=ledger.issued is not None)
        draft = self._draft(number, panes, came, revision_after(last))
        report = self._reporter.make(sketch, draft, files, before)
        kept = {name: getattr(report, name) for name in KEPT}
        self._write(window, rows=as_lines(report.rows), issuing=Issue(content=_digest(panes), **kept))
        return report

    def _union(self, panes: list[Pane]) -> Sketch:
        """Return the union of the panes of a window, oldest first."""
        while self._queued and self._queued[0].number < panes[0].number:
            self._queue.pop()
            self._queued.pop(0)
        if self._queued != panes[: len(self._queued)]:  # one has changed, or the window is an earlier one
            self._queue, self._queued = PaneQueue(), []
        try:
            for pane in panes[len(self._queued) :]:
                self._queue.push(self._load(pane))
                self._queued.append(pane)
            return self._queue.union()
        except BaseException:  # what is in the queue is not known any more
            self._queue, self._queued = PaneQueue(), []
            raise

    def _load(self, pane: Pane) -> Sketch:
        if self._fresh is not None and self._fresh[0] == pane:
            sketch, self._fresh = self._fresh[1], None
            return sketch
        return self._merger.reported_union(self._grid.pane(pane.number)) or Sketch()

    def _draft(self, number: int, panes: list[Pane], came: list[_Attendance], revision: int) -> HubReport:
        """Return who took part in a window. A site that lacks one of the panes is missing.

        Panes that nobody has sent count as missing between others; before the first one there was no fleet.
        """
        everyone = set[str]().union(*(pane.sites | pane.missing for pane in came))
        missing = set[str]().union(*(pane.missing for pane in came))
        if len(panes) < number + 1 - panes[0].number:
            missing = everyone
        names = [self._grid.pane(pane) for pane in self._grid.panes_of(number)]
        refused = {site: why for name in names for site, why in self._store.refusals(name).items()}
        return HubReport(
            window=self._grid.window(number),
            revision=revision,
            sites=sorted(everyone - missing),
            missing=sorted(missing),
            refused={site: why for site, why in refused.items() if site not in everyone - missing},
        )

    def _attendance(self, pane: str) -> _Attendance:
        if self._store.has(pane):
            ledger = self._store.ledger(pane)
            issue, held = ledger.issued, set(ledger.held)
        else:
            issue, held = self._archive.last_issue(pane) if self._archive is not None else None, set()
        if issue is None:
            return _Attendance(held, set(), [])
        return _Attendance({*map(site_of, issue.members), *held}, set(issue.missing), list(issue.members))

    def _files(self, came: list[_Attendance], *, only_whole: bool) -> dict[str, list[Path]]:
        """Return the sites' sketches; `only_whole`: of sites of which no sketch was removed meanwhile.

        Of the others, the rows of the last report tell what they saw.
        """
        files: dict[str, list[Path]] = defaultdict(list)
        removed: set[str] = set()
        for name in (name for pane in came for name in pane.members):
            path = self._store.sketch(name)
            if path is None:
                removed.add(site_of(name))
            else:
                files[site_of(name)].append(path)
        return {site: paths for site, paths in files.items() if not only_whole or site not in removed}


def _digest(panes: list[Pane]) -> str:
    text = " ".join(f"{pane.number}:{pane.revision}" for pane in panes)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
