"""Questions to a folder of saved sketches: another threshold, a longer time, other sites, one host's past.

One question is answered at a time, because each may take a sketch's whole memory. The union of the last question is
kept: the same time with another threshold is answered at once. Nothing in the folder is ever changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from superhosts.errors import SuperhostsError, UsageError
from superhosts.metrics.windows import PartState, states_of
from superhosts.pairs import Part, Window
from superhosts.reports.answers import answer
from superhosts.reports.base import Report
from superhosts.results import SuperHosts
from superhosts.selection import Selection
from superhosts.sketches.bundle import Sketch
from superhosts.sketches.queries import find_in_file
from superhosts.sketches.saved import SavedSketch, describe, merge_named
from superhosts.text import counted

Contents = frozenset[tuple[Path, int]]  # files, and when they were last changed
MOST_FILES = 100_000  # in the folder
MOST_ASKED = 3_000  # files of one question
LONGEST = 20.0  # seconds of a question about a host's past; what is not asked by then is left out, and told


class BusyError(SuperhostsError):
    """Other questions are being answered."""


class Question(NamedTuple):
    """Which hosts, of which time and sites. Times are in nanoseconds; None: from the first, or to the last sketch."""

    selection: Selection
    start: int | None = None
    end: int | None = None
    sites: frozenset[str] = frozenset()  # empty: all
    exactly: bool = False  # only sketches of the very window from start to end, none that overlap it

    def takes(self, sketch: SavedSketch) -> bool:
        """Return True if a sketch is of this time."""
        if self.exactly:
            return sketch.window == (self.start, self.end)
        return sketch.overlaps(self.start, self.end)


class Answer(NamedTuple):
    """The hosts of a question, and what was asked."""

    report: Report
    sketches: int
    sites: tuple[str, ...]
    seconds: float
    parts: Mapping[Part, PartState]  # how full the union is


class Sighting(NamedTuple):
    """What the sketches of one window say about a host."""

    window: Window
    found: SuperHosts  # one row for each part that may hold it


class Past(NamedTuple):
    """One host's past, the oldest window first."""

    sightings: list[Sighting]
    left_out: int  # windows that were not asked, because it took too long


class SketchFolder:
    """A folder of .cube files. Any thread may ask."""

    def __init__(self, folder: Path, key: bytes | str | None = None, *, memory: str | None = None) -> None:
        self.folder = folder
        self.damaged: tuple[Path, ...] = ()  # files whose headers cannot be read
        self.untimed: tuple[Path, ...] = ()  # sketches of traffic without times, which are in no window
        self._key, self._memory = key, memory
        self._known: dict[Path, tuple[tuple[int, int], SavedSketch]] = {}
        self._united: tuple[list[tuple[Path, int]], Sketch] | None = None
        self._listing, self._asking = threading.Lock(), threading.Lock()

    def sketches(self) -> list[SavedSketch]:
        """Return the sketches of windows that the folder holds now. Headers are read once for each file."""
        with self._listing:
            found = {}
            for path in sorted(self.folder.rglob("*.cube"))[-MOST_FILES:]:
                if any(part.startswith(".") for part in path.relative_to(self.folder).parts):
                    continue  # half written, or set aside
                try:
                    stat = path.stat()
                except OSError:  # gone meanwhile
                    continue
                mark = stat.st_mtime_ns, stat.st_size
                known = self._known.get(path)
                found[path] = known if known is not None and known[0] == mark else (mark, describe(path))
            self._known = found
            sketches = [sketch for _, sketch in found.values()]
            self.damaged = tuple(each.path for each in sketches if not each.is_readable)
            self.untimed = tuple(each.path for each in sketches if each.is_readable and not each.is_timed)
            return [each for each in sketches if each.is_timed]

    def sites(self) -> list[str]:
        """Return all sites whose sketches are here."""
        return sorted({site for sketch in self.sketches() for site in sketch.sites})

    def windows(self) -> list[Window]:
        """Return the windows, the newest first."""
        found = {sketch.window for sketch in self.sketches() if sketch.window is not None}
        return sorted(found, key=lambda window: (window.end, window.start), reverse=True)

    def contents(self) -> dict[Window, Contents]:
        """Return the files of each window, and when they were last changed."""
        found: dict[Window, set[tuple[Path, int]]] = {}
        for sketch in self.sketches():
            if sketch.window is not None:
                found.setdefault(sketch.window, set()).add((sketch.path, self._known[sketch.path][0][0]))
        return {window: frozenset(files) for window, files in found.items()}

    def ask(self, question: Question, patience: float = 5.0) -> Answer:
        """Return the hosts of the union of all sketches of a time. Raise UsageError if there are none."""
        chosen = self._choose(question)
        with self._turn(patience):
            started = time.perf_counter()
            sketch = self._union(chosen)
            window = Window(
                min(each.window.start for each in chosen if each.window),
                max(each.window.end for each in chosen if each.window),
            )
            report = answer(sketch, question.selection, window)
            seconds, sites = time.perf_counter() - started, tuple(sorted(sketch.sites))
            return Answer(report, len(chosen), sites, seconds, states_of(sketch))

    def past(self, host: str, question: Question, patience: float = 5.0) -> Past:
        """Return what the sketches of each window say about a host, whether or not it was reported."""
        by_window: dict[Window, list[SavedSketch]] = {}
        for sketch in self._choose(question):
            if sketch.window is not None:
                by_window.setdefault(sketch.window, []).append(sketch)
        newest_first = sorted(by_window, reverse=True)
        until = time.monotonic() + LONGEST
        found: list[Sighting] = []
        with self._turn(patience):
            for window in newest_first:
                if found and time.monotonic() > until:
                    break
                found.append(Sighting(window, self._estimate(by_window[window], host)))
        return Past(found[::-1], len(newest_first) - len(found))

    def _estimate(self, sketches: Sequence[SavedSketch], host: str) -> SuperHosts:
        if len(sketches) == 1:
            return find_in_file(sketches[0].path, host, key=self._key, max_memory=self._memory)
        return self._merged(sketches).estimate(host)

    def _choose(self, question: Question) -> list[SavedSketch]:
        """Return the sketches that answer a question, without those whose traffic others of the same window hold."""
        sketches = self.sketches()
        wanted = [each for each in sketches if not question.sites or (each.sites and each.sites <= question.sites)]
        chosen = [each for each in wanted if question.takes(each)]
        if not chosen:
            unknown = question.sites - {site for each in sketches for site in each.sites}
            raise UsageError(
                f"no sketch of {', '.join(sorted(unknown or question.sites))} is here"
                if sketches and not wanted
                else "no sketch of this time is here"
            )
        if len(chosen) > MOST_ASKED:
            found = counted(len(chosen), "sketch", "sketches")
            raise UsageError(f"{found} of this time, and a question takes {MOST_ASKED:,}; ask for a shorter time")
        return list(_without_contained(chosen))

    def _union(self, sketches: Sequence[SavedSketch]) -> Sketch:
        marks = [(each.path, self._known[each.path][0][0]) for each in sketches if each.path in self._known]
        if self._united is None or self._united[0] != marks:
            self._united = None  # before the next one takes its memory
            self._united = marks, self._merged(sketches)
        return self._united[1]

    def _merged(self, sketches: Iterable[SavedSketch]) -> Sketch:
        whole = Sketch()
        for each in sketches:
            merge_named(whole, each.path, self._key, self._memory)
        return whole

    @contextmanager
    def _turn(self, patience: float) -> Iterator[None]:
        if not self._asking.acquire(timeout=patience):
            raise BusyError("other questions are being answered; ask again in a few seconds")
        try:
            yield
        finally:
            self._asking.release()


def _without_contained(sketches: Sequence[SavedSketch]) -> Iterator[SavedSketch]:
    """Leave out a site's own sketch where a union of the same window has it."""
    by_window: dict[Window | None, list[SavedSketch]] = {}
    for each in sketches:
        by_window.setdefault(each.window, []).append(each)
    for of_window in by_window.values():
        for each in of_window:
            if not any(each.sites < other.sites for other in of_window):
                yield each
