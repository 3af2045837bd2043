"""The last windows of a run, for people to look at: a destination that keeps them in bounded memory.

The run hands it reports as to any other destination, and never waits for a viewer. The newest window has whole rows;
of older ones, what a graph needs of their largest hosts is kept.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from superhosts.core.hosttable import host_name
from superhosts.core.pairs import Window
from superhosts.output.destination import Destination
from superhosts.output.report import Report, Row

MOST_WINDOWS = 2016  # a week of five minutes each
MOST_ROWS = 10_000  # of the newest window, the largest hosts
MOST_POINTS = 1_000  # of each older window
MOST_KEPT = 200_000  # points of all windows together, some 60 MB
NO_WINDOW = Window(0, 0)


class Point(NamedTuple):
    host: str
    side: str
    direction: str
    peers: int | None  # None: saturated
    low: int
    high: int | None
    name: str  # how it is called, as far as known
    pattern: str


class Shown(NamedTuple):
    window: Window
    hosts: int  # reported, super hosts or not, of which the largest are kept
    points: tuple[Point, ...]
    rows: tuple[Row, ...] = ()  # of the newest window alone
    title: str = ""
    notes: tuple[str, ...] = ()
    revision: int = 1
    threshold: float | None = None  # peers of a super host; None: the largest hosts were asked for, whatever they have
    super_hosts: int | None = None  # of the hosts reported; None: without a threshold
    sites: tuple[str, ...] = ()  # of a hub's report
    missing: tuple[str, ...] = ()
    patterns: tuple[tuple[str, int], ...] = ()  # super hosts of each pattern; of all hosts without a threshold


class Board(Destination):
    """Takes reports in one thread; any thread reads. Listeners are called after each change, and must not wait."""

    kind = "view"

    def __init__(self) -> None:
        super().__init__("view")
        self.version = 0  # a number that grows with each change
        self.listeners: list[Callable[[], None]] = []
        self._shown: dict[Window, Shown] = {}
        self._points = 0
        self._lock = threading.Lock()

    def _write(self, report: Report) -> None:
        self.put(shown_of(report))

    def put(self, shown: Shown) -> None:
        with self._lock:
            before = self._shown.pop(shown.window, None)
            if before is not None and before.revision > shown.revision:
                shown = before
            self._points += len(shown.points) - (0 if before is None else len(before.points))
            self._shown[shown.window] = shown
            self._shrink(shown.window)
        self.touch()

    def touch(self) -> None:
        with self._lock:
            self.version += 1
        for listener in list(self.listeners):
            listener()

    def windows(self) -> list[Shown]:
        with self._lock:
            return sorted(self._shown.values(), key=_end)

    @property
    def newest(self) -> Shown | None:
        with self._lock:
            return max(self._shown.values(), key=_end, default=None)

    def _shrink(self, changed: Window) -> None:
        """Keep whole rows of the newest window alone, and forget the oldest windows beyond the bounds."""
        newest = max(self._shown.values(), key=_end)
        for window in {changed, *(each for each, shown in self._shown.items() if shown.rows)} - {newest.window}:
            shown = self._shown[window]
            self._points -= max(len(shown.points) - MOST_POINTS, 0)
            self._shown[window] = shown._replace(rows=(), points=shown.points[:MOST_POINTS])
        while len(self._shown) > MOST_WINDOWS or (self._points > MOST_KEPT and len(self._shown) > 1):
            oldest = min(self._shown.values(), key=_end)
            self._points -= len(self._shown.pop(oldest.window).points)


def _end(shown: Shown) -> tuple[int, int]:
    return shown.window.end, shown.window.start


def shown_of(report: Report) -> Shown:
    rows, threshold = tuple(report.rows[:MOST_ROWS]), report.threshold
    found = [row for row in rows if reaches(row["peers"], threshold)]
    others = len(rows) - len(found)  # They fill a short list: none is left out here.
    return Shown(
        window=report.window or NO_WINDOW,
        hosts=len(report.rows),
        points=tuple(map(point_of, rows)),
        rows=rows,
        title=report.title,
        notes=tuple(report.warnings),
        revision=report.revision,
        threshold=threshold,
        super_hosts=None if threshold is None else len(report.rows) - others,
        sites=tuple(map(str, getattr(report, "sites", ()))),
        missing=tuple(map(str, getattr(report, "missing", ()))),
        patterns=tuple(Counter(str(row.get("pattern") or "") for row in found).most_common()),
    )


def reaches(peers: int | None, threshold: float | None) -> bool:
    """Return True if a host is a super host, or if it is not asked for how many peers it has."""
    return threshold is None or peers is None or peers >= threshold


def point_of(row: Row) -> Point:
    numbers = row["peers"], row["peers_low"], row["peers_high"]
    place = str(row["host"]), str(row["side"]), str(row["direction"])
    return Point(*place, *numbers, host_name(row), str(row.get("pattern") or ""))
