"""Questions to a folder of saved sketches: another threshold, a longer time, other sites, one host's past.

One question is answered at a time, because each may take a sketch's whole memory. The union of the last question is
kept: the same time with another threshold is answered at once. Nothing in the folder is ever changed.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from superhosts.core.pairs import Part, Window
from superhosts.core.results import Searchable, Selection, SuperHosts
from superhosts.core.text import counted
from superhosts.core.units import SECOND
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.cube import Cube
from superhosts.detectors.exact import Exact
from superhosts.errors import SuperhostsError, UsageError
from superhosts.output.report import Report, make_report, search
from superhosts.sketch.files import SavedSketch, find_in_file, merge_named, saved_sketch
from superhosts.sketch.sketch import Sketch

ENDING = ".cube"
MOST_FILES = 100_000
SETTLED = 60 * SECOND  # a folder that changed less long ago, or has such files, is read again


class Listed(NamedTuple):
    sketch: SavedSketch
    changed: int
    size: int


class _Folder(NamedTuple):
    changed: int
    files: tuple[Listed, ...]
    folders: tuple[str, ...]
    is_settled: bool


class Listing:
    """The sketches in a folder and all folders in it, but for hidden ones. Any thread may look.

    Looking again is cheap: only folders that have changed are read. Files must come by a rename, or stay as they are
    when they are a minute old: what is older is not looked at again until something is added to its folder, or removed.
    A folder of three months has some 26,000 files.
    """

    def __init__(self, folder: Path) -> None:
        self._top = folder
        self._known: dict[Path, _Folder] = {}
        self._lock = threading.Lock()

    def look(self) -> list[Listed]:
        with self._lock:
            seen: dict[Path, _Folder] = {}
            found = [each for folder in self._walk(self._top, seen) for each in folder.files]
            self._known = seen
            return found[-MOST_FILES:]

    def _walk(self, path: Path, seen: dict[Path, _Folder]) -> Iterator[_Folder]:
        try:
            folder = self._read(path)
        except OSError:
            return
        seen[path] = folder
        yield folder
        for name in folder.folders:
            yield from self._walk(path / name, seen)

    def _read(self, path: Path) -> _Folder:
        changed, known = path.stat().st_mtime_ns, self._known.get(path)
        if known is not None and known.is_settled and known.changed == changed:
            return known
        old = {} if known is None else {each.sketch.path: each for each in known.files}
        files, folders = [], []
        with os.scandir(path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith("."):  # half written, or set aside
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.name.endswith(ENDING):
                    with suppress(OSError):  # gone meanwhile
                        files.append(_listed(entry, old.get(Path(entry.path))))
        newest = max([changed, *(each.changed for each in files)])
        return _Folder(changed, tuple(files), tuple(folders), newest < time.time_ns() - SETTLED)


def _listed(entry: os.DirEntry[str], known: Listed | None) -> Listed:
    status = entry.stat()
    if known is not None and (known.changed, known.size) == (status.st_mtime_ns, status.st_size):
        return known
    return Listed(saved_sketch(Path(entry.path)), status.st_mtime_ns, status.st_size)


Contents = frozenset[tuple[Path, int]]  # files, and when they were last changed
MOST_ASKED = 3_000  # files of one question
MOST_PAST = 2_016  # windows of a host's past, the newest: a week of five minutes each
LONGEST_PAST = 20.0  # seconds of a question about a host's past; what is not asked by then is left out, and told
LONGEST = 60.0  # seconds of any other question


class BusyError(SuperhostsError):
    """Other questions are being answered."""


class Question(NamedTuple):
    """Which hosts, of which time and sites. Times are in nanoseconds; None: from the first, or to the last sketch."""

    selection: Selection
    start: int | None = None
    end: int | None = None
    sites: frozenset[str] = frozenset()  # empty: all
    exactly: bool = False  # only sketches of the very window from start to end, none that overlap it


class PartState(NamedTuple):
    """How full one part of a sketch was. What is not known of its kind or state is None."""

    exact: bool | None = None  # False: it estimates some hosts, from bits
    pairs: int | None = None  # distinct, counted or estimated
    capacity: float | None = None  # while it has its pairs: share of those that it can count exactly
    fill: float | None = None  # of bits: the share that is set
    saturated: int | None = None  # columns of bits without a zero


def state_of(detector: object) -> PartState:
    """Return how full a detector is. A cube with its pairs is not asked for its bits: making them takes memory."""
    if isinstance(detector, Cube) and detector.exact and (pairs := detector.exact_count()) is not None:
        return PartState(True, pairs, pairs / detector.geometry.exact_pairs)
    if isinstance(detector, ColumnSketch):
        fill, is_exact = detector.fill(), isinstance(detector, Cube) and detector.exact_count() is not None
        return PartState(is_exact, fill.pairs, None, fill.mean, fill.saturated)
    return PartState(exact=True) if isinstance(detector, Exact) else PartState()


def states_of(sketch: Sketch) -> dict[Part, PartState]:
    return {part: state_of(detector) for part, detector in sketch.parts.items()}


class Answer(NamedTuple):
    report: Report
    sketches: int
    sites: tuple[str, ...]
    seconds: float
    parts: Mapping[Part, PartState]  # how full the union is


class Sighting(NamedTuple):
    window: Window
    found: SuperHosts  # one row for each part that may hold it


class Past(NamedTuple):
    sightings: list[Sighting]
    left_out: int  # older windows that were not asked, because it would take too long
    failed: int = 0  # windows whose sketches cannot be read,
    why: str = ""  # the newest of them because of this


class SketchFolder:
    """A folder of .cube files. Any thread may ask."""

    def __init__(self, folder: Path, key: bytes | str | None = None, *, memory: str | None = None) -> None:
        self.folder = folder
        self.damaged: tuple[Path, ...] = ()  # files whose headers cannot be read
        self.untimed: tuple[Path, ...] = ()  # sketches of traffic without times, which are in no window
        self._key, self._memory = key, memory
        self._listing = Listing(folder)
        self._united: tuple[list[Listed], Sketch] | None = None
        self._asking = threading.Lock()

    def sites(self) -> list[str]:
        """Return the sites that have sketches of their own here, for which one can ask alone."""
        return sorted({site for each in self._look() if len(each.sketch.sites) == 1 for site in each.sketch.sites})

    def contents(self) -> dict[Window, Contents]:
        found = _by_window(self._look())
        return {window: frozenset((each.sketch.path, each.changed) for each in of) for window, of in found.items()}

    def ask(self, question: Question, patience: float = 5.0, longest: float = LONGEST) -> Answer:
        """Return the hosts of the union of all sketches of a time. Raise UsageError if there are none."""
        chosen = self._choose(question)
        if not chosen:
            raise UsageError("no sketch of this time is here")
        if len(chosen) > MOST_ASKED:
            found = counted(len(chosen), "sketch", "sketches")
            raise UsageError(f"{found} in this period; at most {MOST_ASKED:,} are read; ask for a shorter period")
        with self._turn(patience):
            started = time.perf_counter()
            if self._united is None or self._united[0] != chosen:
                self._united = None  # before the next one takes its memory
                self._united = chosen, self._merged(chosen, started + longest)
            sketch = self._united[1]
            windows = [_window(each) for each in chosen]
            window = Window(min(each.start for each in windows), max(each.end for each in windows))
            report = answer(sketch, question.selection, window)
            seconds, sites = time.perf_counter() - started, tuple(sorted(sketch.sites))
            return Answer(report, len(chosen), sites, seconds, states_of(sketch))

    def past(self, host: str, question: Question, patience: float = 5.0) -> Past:
        """Return what the sketches of each window say about a host, whether or not it was reported."""
        by_window = _by_window(self._choose(question))
        newest_first = sorted(by_window, reverse=True)
        until = time.perf_counter() + LONGEST_PAST
        found: list[Sighting] = []
        failures: list[str] = []
        with self._turn(patience):
            for window in newest_first[:MOST_PAST]:
                if found and time.perf_counter() > until:
                    break
                try:
                    listed = by_window[window]
                    if len(listed) == 1:
                        seen = find_in_file(listed[0].sketch.path, host, key=self._key, max_memory=self._memory)
                    else:
                        seen = self._merged(listed).estimate(host)
                    found.append(Sighting(window, seen))
                except UsageError:  # about the host, not the file
                    raise
                except (SuperhostsError, OSError) as error:
                    failures.append(str(error))
        left_out = len(newest_first) - len(found) - len(failures)
        return Past(found[::-1], left_out, len(failures), failures[0] if failures else "")

    def _look(self) -> list[Listed]:
        listed = self._listing.look()
        self.damaged = tuple(each.sketch.path for each in listed if not each.sketch.is_readable)
        self.untimed = tuple(
            each.sketch.path for each in listed if each.sketch.is_readable and not each.sketch.is_timed
        )
        return [each for each in listed if each.sketch.is_timed]

    def _choose(self, question: Question) -> list[Listed]:
        """Return the sketches that answer a question, without those whose traffic others of the same window hold."""
        listed = self._look()
        wanted = [
            each for each in listed if not question.sites or (each.sketch.sites and each.sketch.sites <= question.sites)
        ]
        if listed and not wanted:
            unknown = question.sites - {site for each in listed for site in each.sketch.sites}
            raise UsageError(f"no sketch of {', '.join(sorted(unknown or question.sites))} is here")
        if question.exactly:
            chosen = [each for each in wanted if each.sketch.window == (question.start, question.end)]
        else:
            chosen = [each for each in wanted if each.sketch.overlaps(question.start, question.end)]
        return [
            each
            for of_window in _by_window(chosen).values()
            for each in of_window
            if not any(each.sketch.sites < other.sketch.sites for other in of_window)
        ]

    def _merged(self, listed: Iterable[Listed], until: float = math.inf) -> Sketch:
        whole = Sketch()
        for each in listed:
            if time.perf_counter() > until:
                raise UsageError("this takes too long; ask for a shorter time")
            merge_named(whole, each.sketch.path, self._key, self._memory)
        return whole

    @contextmanager
    def _turn(self, patience: float) -> Iterator[None]:
        if not self._asking.acquire(timeout=patience):
            raise BusyError("other questions are being answered; ask again in a few seconds")
        try:
            yield
        finally:
            self._asking.release()


def _window(listed: Listed) -> Window:
    window = listed.sketch.window
    assert window is not None  # of sketches that have a time
    return window


def _by_window(listed: Iterable[Listed]) -> dict[Window, list[Listed]]:
    found: dict[Window, list[Listed]] = {}
    for each in listed:
        found.setdefault(_window(each), []).append(each)
    return found


def answer(
    sketch: Sketch, selection: Selection, window: Window | None = None, searched: Searchable | None = None
) -> Report:
    """Return the hosts of a sketch that are asked for. `searched`: the sketch, with some of its hosts alone."""
    window = window or sketch.window
    found, words = search(sketch, selection, next((part.counts for part in sketch.parts), "hosts"), searched)
    notes = []
    if found.unnamed:
        shown = counted(found.unnamed, "host is", "hosts are")
        notes.append(f"{shown} shown as # and a hash: the sketch has not kept the name")
    return make_report(window, found, words, sketch, partial=sketch.partial, notes=notes)
