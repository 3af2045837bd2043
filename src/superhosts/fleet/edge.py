"""A sensor: traffic in, one sketch per window into the spool, and from there to the hub.

Inputs that can be read again (files, folders, synthetic traffic) lose nothing when the edge is killed: a position is
kept with the spool. A live pipe cannot be read again: its open window is lost with the process, and the next start
says so. When the clock that stamps packets is set, windows may be spooled a second time, with other packets: a hub
merges both. When the disk is full, sketches wait in memory: reading stops for inputs that can wait; a live one goes on,
and loses whole windows, counted, rather than unknown packets.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from superhosts.detectors.registry import DETECTORS
from superhosts.durable import read_state, write_json
from superhosts.errors import OutputError, UsageError
from superhosts.fleet.position import Position, is_time
from superhosts.fleet.receipts import Say
from superhosts.fleet.spool import Spool
from superhosts.pairs import Window
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sketches.bundle import Sketch
from superhosts.times import iso_time, window_name
from superhosts.units import SECOND, format_duration, parse_duration
from superhosts.windows.jumps import Jump

RETRY = 1.0  # seconds until a full disk is tried again
FINAL = 60.0  # seconds at most that a stopping edge takes to write what it holds
JUMPS_SAID = 10  # jumps in time that are all said; of later ones at most one in a minute
HOLD_UP = 10.0  # seconds that live input waits for a disk that is slow but not full: windows may close back to back


@dataclass
class EdgeCounters:
    """What an edge has done, beside the counters of its scan, its spool and its link."""

    windows: int = 0
    waits: int = 0  # times that the spool could not be written
    lost: int = 0  # windows of live input that never reached the spool
    interrupted: int = 0  # windows that were open when the last run was killed
    jumps: int = 0  # times that the clock of the packets was set


def check_settings(settings: Settings) -> Settings:
    """Refuse what cannot be merged by a hub."""
    if not DETECTORS[settings.detector].takes_blocks or DETECTORS[settings.detector].broken_laws:
        able = [n for n, kind in DETECTORS.items() if kind.takes_blocks and not kind.broken_laws]
        raise UsageError(f"--detector {settings.detector}: a hub merges {', '.join(able)}")
    if settings.window == "all" or parse_duration(settings.window) % SECOND:
        raise UsageError(f"--window {settings.window}: sites must cut alike, at whole seconds; write it like 5m")
    return settings


class Edge:
    """Runs a scan into a spool."""

    def __init__(self, scan: Scan, spool: Spool, position: Position, say: Say) -> None:
        self.counters = EdgeCounters()
        self.stopping = threading.Event()
        self._scan, self._spool, self._position, self._say = scan, spool, position, say
        self._replays = all(source.replays for source in scan.sources)
        if not self._replays and any(source.replays for source in scan.sources):
            raise UsageError("a live pipe beside files or folders, which keep a position: start an edge for each")
        self._writer: _Writer | None = None
        self._note = _OpenNote(spool, say)
        self._jump_said = 0.0
        scan.on_jump = self._jumped
        self.is_stuck = False  # whether the disk did not work at the last attempt

    def run(self) -> None:
        """Spool every window until the input ends or the edge is stopped."""
        self.counters.interrupted += self._note.tell_lost()
        writer = self._writer = None if self._replays else _Writer(self)
        for result in self._scan:
            self.counters.windows += 1
            if writer is not None:
                writer.offer(result.sketch)
            elif self.write(result.sketch):
                self._advance(result.window)
            if result.partial:
                self._say(f"stopped within {window_name(result.window)}: what it had seen so far is kept")
        if writer is None:
            self._go_back(self._scan.open_window())
        if writer is None or writer.finish():
            self._note.clear()

    def stop(self) -> None:
        """End soon. May be called by a signal handler."""
        self.stopping.set()
        self._scan.stop()

    def on_progress(self) -> None:
        """Note which window a crash would lose, where input cannot be read again."""
        if not self._replays:
            unwritten = self._writer.unwritten() if self._writer is not None else None
            self._note.set(unwritten or self._scan.open_window())

    def write(self, sketch: Sketch) -> bool:
        """Put a sketch into the spool, as often as it takes; False if the edge was stopped before it worked."""
        return self._insist(lambda: self._spool.put(sketch))

    def _advance(self, window: Window) -> None:
        finished: dict[str, tuple[int, int]] = {}
        for source in self._scan.sources:
            finished.update(source.finished())
        self._insist(lambda: self._position.advance(window.end, finished))

    def _jumped(self, jump: Jump) -> None:
        """Say that the clock of the packets was set; windows that open again are no longer behind the position."""
        self.counters.jumps += 1
        if self._replays:
            self._go_back(jump.window)
        if self.counters.jumps > JUMPS_SAID and time.monotonic() - self._jump_said < 60:
            return
        self._jump_said = time.monotonic()
        way, then = ("ahead", "whose clock is wrong?") if jump.by > 0 else ("back", "windows of then are opened again")
        by = format_duration(abs(jump.by) // SECOND * SECOND)
        self._say(f"TIMES JUMPED {way} by {by}, to {iso_time(jump.window.start)}: {then}")

    def _go_back(self, window: Window | None) -> None:
        """Begin with a window at the next start, if it lies before the position."""
        frontier = self._position.frontier
        if window is not None and frontier is not None and window.start < frontier:
            start = window.start
            self._insist(lambda: self._position.go_back(start))

    def _insist(self, work: Callable[[], object]) -> bool:
        """Do what needs the disk, as often as it takes; False if the edge was stopped before it worked."""
        while True:
            try:
                work()
            except (OSError, OutputError) as error:
                self.counters.waits += 1
                if not self.is_stuck:
                    self.is_stuck = True
                    self._say(f"SPOOL NOT WRITABLE: {error}; trying again until it is")
                if self.stopping.wait(RETRY):
                    return False
                continue
            if self.is_stuck:
                self.is_stuck = False
                self._say("the spool can be written again")
            return True


class _Writer:
    """Writes the sketches of live input in a thread of its own, so that reading goes on while the disk does not."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._queue: queue.Queue[Sketch | None] = queue.Queue(1)
        self._unwritten: list[Window] = []  # closed, not in the spool yet
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    def offer(self, sketch: Sketch) -> None:
        """Take a sketch. One that still waits is lost to it where the disk does not work, and only there."""
        assert sketch.window is not None
        self._unwritten.append(sketch.window)
        limit = time.monotonic() + HOLD_UP
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
        self._edge._say(f"LOST: {window_name(sketch.window)}: {why}")

    def unwritten(self) -> Window | None:
        """Return the earliest window that is closed and not in the spool yet."""
        return min(self._unwritten, default=None)

    def _run(self) -> None:
        while (sketch := self._queue.get()) is not None:
            assert sketch.window is not None
            if self._edge.write(sketch):
                self._unwritten.remove(sketch.window)
            else:
                self._tell_lost(sketch, "the spool could not be written before the stop")

    def finish(self) -> bool:
        """Write what is left; False if that took too long."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=FINAL)
            self._thread.join(FINAL)
        if self._thread.is_alive():
            self._edge.counters.lost += 1
            self._edge._say(f"LOST: the last window could not be written within {FINAL:g} s")
        return not self._thread.is_alive()


class _OpenNote:
    """A file that names the window that is open, so that the next start can say what a crash has lost."""

    def __init__(self, spool: Spool, say: Say) -> None:
        self._path = spool.folder / "open.json"
        self._say = say
        self._window: Window | None = None

    def tell_lost(self) -> int:
        """Say which window was open when the last run ended without a stop; return how many were."""
        note = read_state(self._path, _is_note, self._say)
        self.clear()
        if note is None:
            return 0
        span = f"{iso_time(note['start'])} to {iso_time(note['end'])}"
        self._say(f"LOST: the last run ended within {span}; what it had seen of that window is gone")
        return 1

    def set(self, window: Window | None) -> None:
        """Note the window that is open now."""
        if window == self._window:
            return
        self._window = window
        try:
            if window is None:
                self._path.unlink(missing_ok=True)
            else:
                write_json(self._path, {"start": window.start, "end": window.end})
        except OSError:  # the disk is full: the spool says so
            self._window = None

    def clear(self) -> None:
        """Nothing is open."""
        with contextlib.suppress(OSError):  # the next start tells of a window that was not lost
            self._path.unlink(missing_ok=True)
        self._window = None


def _is_note(content: Any) -> bool:
    """Say whether the content of a file names a window."""
    times: list[Any] = [content.get("start"), content.get("end")] if isinstance(content, dict) else [None]
    return all(map(is_time, times)) and bool(times[0] < times[1])
