"""A sensor: reads traffic and writes one sketch per window to the spool, from which it is sent to the hub.

Inputs that can be read again (files, folders, synthetic traffic) lose nothing when the edge is killed: a position is
kept with the spool. A live pipe cannot be read again: its open window is lost with the process, and the next start
reports that. When the clock that stamps packets is set, a window may be spooled a second time, with other packets; the
hub merges both. When the disk is full, sketches wait in memory. Then inputs that can wait are not read; a live input is
read on, and loses whole windows, which are counted, instead of an unknown number of packets.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from superhosts.core.database import Database, Format
from superhosts.core.fields import optional, record, sequence, table, whole
from superhosts.core.files import set_aside_and_report
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Window
from superhosts.core.times import shown_time, window_name
from superhosts.core.units import SECOND, format_duration, parse_duration
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import OutputError, UsageError
from superhosts.fleet.link import Say
from superhosts.fleet.spool import Spool
from superhosts.output.destination import Destinations
from superhosts.pipeline.builder import WindowResult, report_of
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.windows import Jump
from superhosts.sketch.sketch import Sketch
from superhosts.sources.base import exports_of
from superhosts.sources.input import COMPRESSED

STATE = "state.sqlite"  # the file in the spool folder; without it an edge starts at the beginning
MAX_AHEAD = 1 << 16  # windows ahead of the clock to remember
KEPT = 16  # positions of other command lines to keep
Spans = Mapping[str, tuple[int, int]]  # identity of a file → times of its first and last packet
RECENT_WINDOWS = 1000  # windows whose reports are remembered
JUMPS_SAID = 10  # jumps in time that are all logged; later ones at most once per minute
_TIME = whole(-(1 << 63), (1 << 63) - 1)  # of a packet, in nanoseconds
_POSITION = record({"frontier": _TIME, "files": table(sequence(_TIME, 2, 2))})
# Values in the database, as JSON: positions by their names, and the window that is open.
_STATE = {"position": table(_POSITION), "open": optional(record({"start": _TIME, "end": _TIME}))}
FORMAT = Format("the state of an edge", 1)


@dataclass(frozen=True)
class EdgeTiming:
    """How long an edge waits for its disk, in seconds."""

    retry: float = 1.0  # before a failed write is retried
    hold_up: float = 10.0  # of live input for a slow disk: several windows may close at once
    final: float = 60.0  # for the last sketch of a stopping edge


DEFAULT_TIMING = EdgeTiming()


@dataclass
class EdgeCounters:
    """What an edge has done, in addition to the counters of its scan, its spool and its link."""

    windows: int = 0
    waits: int = 0  # failed attempts to write the spool
    lost: int = 0  # windows of live input that never reached the spool
    interrupted: int = 0  # windows that were open when the previous run was killed
    jumps: int = 0  # times that the clock of the packets was set


def check_settings(settings: Settings) -> Settings:
    """Refuse settings whose sketches a hub cannot merge. Fleets report super hosts alone, unless asked otherwise."""
    if not issubclass(settings.kind, ColumnSketch):
        able = [name for name, kind in DETECTORS.items() if issubclass(kind, ColumnSketch)]
        raise UsageError(f"--detector {settings.kind.name}: a hub merges {', '.join(able)}")
    if settings.by != "address":
        raise UsageError(
            f"--by {settings.by}: a hub merges hosts that are addresses or prefixes; scan and watch take it"
        )
    if settings.window == "all" or parse_duration(settings.window) % SECOND:
        raise UsageError(
            f"--window {settings.window}: all sites need the same windows, of whole seconds; write it like 5m"
        )
    if settings.slide and parse_duration(settings.slide) % SECOND:
        raise UsageError(
            f"--slide {settings.slide}: all sites need the same panes, of whole seconds; write it like 30s"
        )
    return settings.with_threshold()


class Edge:
    def __init__(
        self,
        scan: Scan,
        spool: Spool,
        position: Position,
        say: Say,
        *,
        rows: LocalRows | None = None,
        timing: EdgeTiming = DEFAULT_TIMING,
    ) -> None:
        self.counters = EdgeCounters()
        self.stopping = threading.Event()
        self._scan, self._spool, self._position, self._say = scan, spool, position, say
        self._rows, self._timing = rows, timing
        self._replays = all(source.replays for source in scan.sources)
        if not self._replays and any(source.replays for source in scan.sources):
            raise UsageError(
                "a live pipe cannot be combined with files or folders, which keep a position: start one edge for each"
            )
        self._writer: _Writer | None = None
        self._jump_said = 0.0
        scan.on_jump = self._jumped
        self.is_stuck = False  # the last attempt to write failed
        self.on_wait: Callable[[], None] = lambda: None  # called while the main loop waits for the disk

    def run(self) -> None:
        self._tell_interrupted()
        writer = self._writer = None if self._replays else _Writer(self, self._timing)
        for result in self._scan:
            sketch = result.stored  # of windows that overlap, the last pane: every packet is sent once
            self.counters.windows += sketch is not None
            is_spooled = False
            if sketch is not None and writer is not None:
                writer.offer(sketch)
            elif sketch is not None:
                is_spooled = self.write(sketch)
            if self._rows is not None:
                self._rows.add(result, exports_of(self._scan.sources))
            if is_spooled:  # and its rows are handed in: a kill before this makes both again, which changes nothing
                self._advance(result.window)
            if result.partial:
                self._say(f"stopped within {window_name(result.window)}: the partial window is kept")
        if writer is None:
            self._go_back(self._scan.open_window())
        if writer is None or writer.finish():
            self._position.set_open(None)

    def _tell_interrupted(self) -> None:
        """Report the window that was open if the last run was killed."""
        if (window := self._position.open) is not None:
            self._position.set_open(None)
            self.counters.interrupted += 1
            span = f"{shown_time(window.start)} to {shown_time(window.end)}"
            text = f"the last run ended within {span}; its part of that window is lost"
            self._say(Notice(f"LOST: {text}", "lost", WARNING))

    def stop(self) -> None:
        """End soon. Safe to call from a signal handler."""
        self.stopping.set()
        self._scan.stop()

    def on_progress(self) -> None:
        """Record which window a crash would lose, if the input cannot be read again."""
        if not self._replays:
            unwritten = min(self._writer.unwritten, default=None) if self._writer is not None else None
            self._position.set_open(unwritten or self._scan.open_window())

    def write(self, sketch: Sketch) -> bool:
        """Write a sketch to the spool, with retries; return False if the edge was stopped before that succeeded."""
        return self._insist(lambda: self._spool.put(sketch))

    def _advance(self, window: Window) -> None:
        finished: dict[str, tuple[int, int]] = {}
        for source in self._scan.sources:
            finished.update(source.finished())
        if self._insist(lambda: self._position.advance(window.end, finished)):
            for source in self._scan.sources:
                source.release(window.end)

    def _jumped(self, jump: Jump) -> None:
        """Log that the packets' clock was set, and move the position back to windows that are open again."""
        self.counters.jumps += 1
        if self._replays:
            self._go_back(jump.window)
        if self.counters.jumps > JUMPS_SAID and time.monotonic() - self._jump_said < 60:
            return
        self._jump_said = time.monotonic()
        way, then = "ahead", "whose clock is wrong?"
        if jump.by < 0:
            way, then = "back", "windows of that time are opened again"
        by = format_duration(abs(jump.by) // SECOND * SECOND)
        text = f"{way} by {by}, to {shown_time(jump.window.start)}: {then}"
        self._say(Notice(f"TIMES JUMPED {text}", "times-jumped", WARNING))

    def _go_back(self, window: Window | None) -> None:
        """Make the next start begin with a window, if that is before the position."""
        frontier = self._position.frontier
        if window is not None and frontier is not None and window.start < frontier:
            start = window.start
            self._insist(lambda: self._position.go_back(start))

    def _insist(self, work: Callable[[], object]) -> bool:
        """Write to disk, with retries; return False if the edge was stopped before that succeeded."""
        while True:
            try:
                work()
            except (OSError, OutputError) as error:
                self.counters.waits += 1
                if not self.is_stuck:
                    self.is_stuck = True
                    why = f"{error}; retrying until it is"
                    self._say(Notice(f"SPOOL NOT WRITABLE: {why}", "spool-not-writable", WARNING))
                if self._writer is None:
                    self.on_wait()
                if self.stopping.wait(self._timing.retry):
                    return False
                continue
            if self.is_stuck:
                self.is_stuck = False
                self._say(Notice("the spool can be written again", "recovered"))
            return True


class _Writer:
    """Writes the sketches of live input in a thread of its own, so that a failing disk does not stop the reading."""

    def __init__(self, edge: Edge, timing: EdgeTiming) -> None:
        self._edge, self._timing = edge, timing
        self._queue: queue.Queue[Sketch | None] = queue.Queue(1)
        self.unwritten: list[Window] = []  # closed, but not in the spool yet
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    def offer(self, sketch: Sketch) -> None:
        """Queue a sketch. If the disk fails or is too slow, the sketch that waits is dropped to make room."""
        assert sketch.window is not None
        self.unwritten.append(sketch.window)
        limit = time.monotonic() + self._timing.hold_up
        while True:
            try:
                return self._queue.put(sketch, timeout=0.1)
            except queue.Full:
                if self._edge.is_stuck or time.monotonic() > limit:
                    with contextlib.suppress(queue.Empty):
                        if (older := self._queue.get_nowait()) is not None:
                            self._tell_lost(older, "the spool could not be written for a whole window")

    def _tell_lost(self, sketch: Sketch, why: str) -> None:
        assert sketch.window is not None
        self.unwritten.remove(sketch.window)
        self._edge.counters.lost += 1
        self._edge._say(Notice(f"LOST: {window_name(sketch.window)}: {why}", "lost", WARNING))

    def _run(self) -> None:
        while (sketch := self._queue.get()) is not None:
            assert sketch.window is not None
            if self._edge.write(sketch):
                self.unwritten.remove(sketch.window)
            else:
                self._tell_lost(sketch, "the spool could not be written before the stop")

    def finish(self) -> bool:
        """Write what is left; return False if that took too long."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=self._timing.final)
            self._thread.join(self._timing.final)
        if self._thread.is_alive():
            self._edge.counters.lost += 1
            text = f"the last window could not be written within {self._timing.final:g} s"
            self._edge._say(Notice(f"LOST: {text}", "lost", WARNING))
        return not self._thread.is_alive()


class Position:
    """How far an edge has read, stored in a database in the spool's folder. Of live inputs: which window is open.

    After each window, once its sketch is in the spool, the frontier is written, before which all windows are spooled,
    and the files that were read to their end. After a restart, files that end before the frontier are skipped, and
    packets before it are dropped. A position belongs to one set of inputs and settings.

    A frontier that is more than a window ahead of this machine's clock is neither stored nor trusted: some clock is or
    was wrong, and traffic captured with the right time would be skipped. Reading traffic twice is harmless.
    """

    def __init__(
        self,
        folder: Path,
        inputs: Sequence[str],
        fingerprint: Mapping[str, Any],
        say: Say = lambda text: None,
        *,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._wall = wall
        self._window = parse_duration(fingerprint["window"]) if "window" in fingerprint else 0
        self._ahead: deque[int] = deque(maxlen=MAX_AHEAD)  # ends of windows ahead of the clock, in order
        names = [str(Path(name).absolute()) if os.path.lexists(name) else name for name in inputs]
        text = json.dumps([sorted(names), dict(fingerprint)], sort_keys=True, default=str)
        self._name = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._state: dict[str, Any] = {}
        put_aside = partial(set_aside_and_report, say=say)
        self._database = Database.opened(folder / STATE, FORMAT, put_aside, partial(self._read, folder, say))
        self._others: dict[str, Any] = self._state.get("position", {})
        mine = self._others.pop(self._name, {})
        self.frontier: int | None = mine.get("frontier")
        self._files: dict[str, list[int]] = mine.get("files", {})
        left = self._state.get("open")
        self.open = None if left is None else Window(left["start"], left["end"])
        if self.frontier is not None and self.frontier > self._latest():
            ahead = f"the position in {folder / STATE} ({shown_time(self.frontier)}) lies ahead of this machine's clock"
            say(f"{ahead}: all input is read again, and what the hub has already changes nothing")
            self.frontier = None

    def _read(self, folder: Path, say: Say, database: Database) -> None:
        for name, check in _STATE.items():
            database.adopt(name, folder / f"{name}.json", check, say)
        with database.reading():
            state = database.state()
            self._state = {
                name: check(json.loads(state[name]), name) for name, check in _STATE.items() if name in state
            }

    def close(self) -> None:
        self._database.close()

    def _latest(self) -> int:
        return self._wall() + self._window

    def set_open(self, window: Window | None) -> None:
        """Store which window is open, and would be lost in a crash; None: there is none. A full disk is retried."""
        if window != self.open:
            note = None if window is None else {"start": window.start, "end": window.end}
            with contextlib.suppress(OutputError):  # tried again at the next call; a full disk is reported by the spool
                self._database.save(open=json.dumps(note))
                self.open = window

    def done(self) -> frozenset[str]:
        if self.frontier is None:
            return frozenset()
        return frozenset(name for name, (_, last) in self._files.items() if last < self.frontier)

    def advance(self, frontier: int, finished: Spans) -> None:
        """Store that all windows up to `frontier` are in the spool. Raises OutputError if the disk is full."""
        while self._ahead and self._ahead[-1] >= frontier:  # the packets' clock was set back
            self._ahead.pop()
        self._ahead.append(frontier)
        while self._ahead and self._ahead[0] <= self._latest():
            self.frontier = self._ahead.popleft()
        self._write(finished)

    def go_back(self, frontier: int) -> None:
        """Store that windows from `frontier` on may get more packets. Raises OutputError if the disk is full."""
        self._ahead.clear()
        self.frontier = frontier
        self._write({})

    def _write(self, finished: Spans) -> None:
        if self.frontier is None:
            return
        self._files.update({name: list(span) for name, span in finished.items()})
        self._files = {name: span for name, span in self._files.items() if _is_there(name)}
        others = dict(list(self._others.items())[-KEPT:])
        positions = {**others, self._name: {"frontier": self.frontier, "files": self._files}}
        self._database.save(position=json.dumps(positions))


def _is_there(identity: str) -> bool:
    """Return True if a file still exists, compressed or not."""
    name = identity.rpartition("@")[0]
    return any(os.path.lexists(name + ending) for ending in ("", *COMPRESSED))


class LocalRows:
    """Writes the super hosts of one site at the site itself, besides the sketches that are sent.

    The spool comes first, and every destination has a queue of its own: one that fails delays nothing. A window that a
    killed edge reads again gives the same rows, which a file takes once. If late packets reopen a window, the rows of
    its first report stay; the hub merges both sketches.
    """

    def __init__(self, destinations: Destinations, say: Say) -> None:
        self.reopened = 0  # windows that late packets reopened after their report
        self._reported: deque[Window] = deque(maxlen=RECENT_WINDOWS)
        self.destinations, self._say = destinations, say

    def add(self, result: WindowResult, exports: Sequence[dict[str, Any]] = ()) -> None:
        """Write the report of a window. `exports`: the status of inputs that are flow exports."""
        if result.window in self._reported:
            self.reopened += 1
            if self.reopened == 1:
                name = window_name(result.window)
                self._say(f"late packets reopened {name}: the hub counts them, the rows here do not")
            return
        self._reported.append(result.window)
        try:
            self.destinations.write(report_of(result, exports))
        except (OSError, OutputError) as error:
            self._say(Notice(f"ROWS NOT WRITTEN: {error}; sketches are sent nevertheless", "rows-not-written", WARNING))

    def status(self) -> dict[str, int]:
        each = self.destinations.all_status().values()
        waiting, lost = (sum(status[name] for status in each) for name in ("waiting", "dropped"))
        return {"waiting": waiting, "lost": lost, "reopened": self.reopened}
