"""A sensor: reads traffic and writes one sketch per window to the spool, from which it is sent to the hub.

Inputs that can be read again (files, folders, synthetic traffic) lose nothing when the edge is killed: a position is
kept with the spool. A live pipe cannot be read again: its open window is lost with the process, and the next start
reports that. When the clock that stamps packets is set, a window may be spooled a second time, with other packets; the
hub merges both. When the disk is full, sketches wait in memory. Then inputs that can wait are not read; a live input is
read on, and loses whole windows, which are counted, instead of an unknown number of packets.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from superhosts.core.files import read_state, write_json
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Window
from superhosts.core.times import shown_time, window_name
from superhosts.core.units import SECOND, format_duration, parse_duration
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import OutputError, UsageError
from superhosts.fleet.localrows import LocalRows
from superhosts.fleet.position import Position, is_time
from superhosts.fleet.receipts import Say
from superhosts.fleet.spool import Spool
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.windows import Jump
from superhosts.sketch.sketch import Sketch
from superhosts.sources.base import exports_of

JUMPS_SAID = 10  # jumps in time that are all logged; later ones at most once per minute


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
    """Runs a scan into a spool."""

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
        self._note = _OpenNote(spool, say)
        self._jump_said = 0.0
        scan.on_jump = self._jumped
        self.is_stuck = False  # the last attempt to write failed
        self.on_wait: Callable[[], None] = lambda: None  # called while the main loop waits for the disk

    def run(self) -> None:
        """Spool every window until the input ends or the edge is stopped."""
        self.counters.interrupted += self._note.tell_lost()
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
            self._note.clear()

    def stop(self) -> None:
        """End soon. Safe to call from a signal handler."""
        self.stopping.set()
        self._scan.stop()

    def on_progress(self) -> None:
        """Record which window a crash would lose, if the input cannot be read again."""
        if not self._replays:
            unwritten = self._writer.unwritten() if self._writer is not None else None
            self._note.set(unwritten or self._scan.open_window())

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
        way, then = (
            ("ahead", "whose clock is wrong?") if jump.by > 0 else ("back", "windows of that time are opened again")
        )
        by = format_duration(abs(jump.by) // SECOND * SECOND)
        self._say(
            Notice(f"TIMES JUMPED {way} by {by}, to {shown_time(jump.window.start)}: {then}", "times-jumped", WARNING)
        )

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
                    self._say(
                        Notice(f"SPOOL NOT WRITABLE: {error}; retrying until it is", "spool-not-writable", WARNING)
                    )
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
        self._unwritten: list[Window] = []  # closed, but not in the spool yet
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    def offer(self, sketch: Sketch) -> None:
        """Queue a sketch. If the disk fails or is too slow, the sketch that waits in the queue is dropped for it."""
        assert sketch.window is not None
        self._unwritten.append(sketch.window)
        limit = time.monotonic() + self._timing.hold_up
        while True:
            try:
                return self._queue.put(sketch, timeout=0.1)
            except queue.Full:
                if self._edge.is_stuck or time.monotonic() > limit:
                    self._lose()

    def _lose(self) -> None:
        try:
            older = self._queue.get_nowait()
        except queue.Empty:
            return
        if older is not None:
            self._tell_lost(older, "the spool could not be written for a whole window")

    def _tell_lost(self, sketch: Sketch, why: str) -> None:
        assert sketch.window is not None
        self._unwritten.remove(sketch.window)
        self._edge.counters.lost += 1
        self._edge._say(Notice(f"LOST: {window_name(sketch.window)}: {why}", "lost", WARNING))

    def unwritten(self) -> Window | None:
        """Return the earliest window that is closed but not in the spool yet."""
        return min(self._unwritten, default=None)

    def _run(self) -> None:
        while (sketch := self._queue.get()) is not None:
            assert sketch.window is not None
            if self._edge.write(sketch):
                self._unwritten.remove(sketch.window)
            else:
                self._tell_lost(sketch, "the spool could not be written before the stop")

    def finish(self) -> bool:
        """Write what is left; return False if that took too long."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=self._timing.final)
            self._thread.join(self._timing.final)
        if self._thread.is_alive():
            self._edge.counters.lost += 1
            self._edge._say(
                Notice(f"LOST: the last window could not be written within {self._timing.final:g} s", "lost", WARNING)
            )
        return not self._thread.is_alive()


class _OpenNote:
    """A file that names the open window, so that the next start can report what a crash has lost."""

    def __init__(self, spool: Spool, say: Say) -> None:
        self._path = spool.folder / "open.json"
        self._say = say
        self._window: Window | None = None

    def tell_lost(self) -> int:
        """Report the window that was open if the previous run was killed; return how many there were (0 or 1)."""
        note = read_state(self._path, _is_note, self._say)
        self.clear()
        if note is None:
            return 0
        span = f"{shown_time(note['start'])} to {shown_time(note['end'])}"
        self._say(Notice(f"LOST: the last run ended within {span}; its part of that window is lost", "lost", WARNING))
        return 1

    def set(self, window: Window | None) -> None:
        """Record the window that is open now."""
        if window == self._window:
            return
        self._window = window
        try:
            if window is None:
                self._path.unlink(missing_ok=True)
            else:
                write_json(self._path, {"start": window.start, "end": window.end})
        except OSError:  # a full disk is reported by the spool
            self._window = None

    def clear(self) -> None:
        """Record that no window is open."""
        with contextlib.suppress(OSError):  # then the next start reports a window that was not lost
            self._path.unlink(missing_ok=True)
        self._window = None


def _is_note(content: Any) -> bool:
    """Return True if the content of a file is a note of a window."""
    times: list[Any] = [content.get("start"), content.get("end")] if isinstance(content, dict) else [None]
    return all(map(is_time, times)) and bool(times[0] < times[1])
