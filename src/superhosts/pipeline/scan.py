"""The life of a pair: sources → windows → pairs → detectors → super hosts. The counters live here.

Inputs are ordered by their first packet and read side by side where they overlap in time, so that any order and
any split of a capture gives the same result. Each input is read ahead in a thread of its own.

A sensor that runs for months needs more (`grace`): live inputs do not wait for each other, windows close by a clock
when traffic stops or is slow, and windows in which nothing came are yielded, too: others see that it is alive.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from superhosts.detectors.base import Detector
from superhosts.errors import InputError, SuperhostsError, UsageError
from superhosts.network import Network
from superhosts.pairs import PacketBatch, PacketBlock, PairBatch, Part, Window
from superhosts.pipeline.second_reading import SecondReading
from superhosts.pipeline.settings import Settings
from superhosts.results import Found
from superhosts.sketches.bundle import Sketch
from superhosts.sources.base import Source
from superhosts.sources.live import Ahead, Clock, Following, drain, is_pipe
from superhosts.sources.opening import open_inputs
from superhosts.sources.streams import Stopped
from superhosts.units import parse_duration
from superhosts.windows.jumps import Jump
from superhosts.windows.tumbling import SETTLE, Event, Piece, PutOff, TumblingWindows

GAPS = 12  # empty windows yielded for a gap: a hub forgets a site that was silent for as many, and gaps may be years


@dataclass
class Counters:
    """What passed and what did not become a pair, over the whole scan."""

    packets: int = 0
    ipv4: int = 0
    ipv6: int = 0
    not_ip: int = 0
    cut: int = 0
    unsupported_link: int = 0  # packets of interfaces whose kind of frames cannot be read
    no_inner_end: int = 0
    same_ends: int = 0
    late: int = 0
    stray: int = 0
    repeated: int = 0  # packets of windows that were done before this run
    revised: int = 0  # windows that were read a second time: some of their packets lay far out of order
    unrevised: int = 0  # windows that are still to be read a second time; in the end: that were not, and lack packets
    skipped_family: int = 0  # IPv6 packets for a detector that takes IPv4 only
    warnings: list[str] = field(default_factory=list)


@dataclass
class WindowResult:
    """A window that has closed: its super hosts, its sketch, and how much went into it."""

    window: Window
    found: list[Found]
    sketch: Sketch
    packets: int
    partial: bool = False  # interrupted while it was open: more packets would have come
    revision: int = 1  # 2: it was yielded before, without packets that lay far out of order; this is all of it

    def __iter__(self) -> Iterator[Found]:
        return iter(self.found)


@dataclass
class _Open:
    """A window that still takes packets."""

    sketch: Sketch
    packets: int = 0
    pairs: dict[Part, int] = field(default_factory=dict)


class Results:
    """The windows of a run. Any number of threads may ask for the next one; each window goes to one of them."""

    def __init__(self, results: Generator[WindowResult, None, None]) -> None:
        self._results = results
        self._lock = threading.Lock()

    def __iter__(self) -> Results:
        return self

    def __next__(self) -> WindowResult:
        with self._lock:
            return next(self._results)

    def close(self) -> None:
        """End the run and its readers, once no thread waits for a window."""
        with self._lock:
            self._results.close()


class Scan:
    """One run over inputs. Iterate over it for the windows; `counters` tells what passed.

    Any thread may call it at any time. Threads that iterate at the same time share the windows.

    Inputs are read once. The run ends when nobody iterates any more: leaving a loop early ends the readers, and another
    loop then raises UsageError. Keep the iterator (`windows = iter(run)`) to go on later. After a run has come to its
    end another loop gets no windows.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        settings: Settings,
        *,
        on_error: Callable[[SuperhostsError], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        grace: float | None = None,
        resume_from: int | None = None,
        find: bool = True,
        reopens: bool = False,
        revises: bool = False,
        leaves_open: bool = True,
        clock: Clock = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        """Prepare a run.

        `grace`: seconds after which the clock closes windows of live inputs. `resume_from`: windows that end at or
        before this time are done. `find`: look for super hosts in each window; without it only sketches are made.
        `reopens`: packets that are late open their window again, which then comes twice: its sketches are to be merged.
        `revises`: windows for which packets were too late are read again in the end, and yielded whole (files only).
        `leaves_open`: a stop leaves the windows that are open to the next run if all inputs can be read again.
        `clock`: any steady one, in seconds. `wall`: this machine's time, in nanoseconds since the epoch.

        With a grace, too, a window may come twice: files open windows again as with `reopens`, and live inputs do after
        a clock was set back, of which `on_jump` tells.
        """
        if settings.window == "all" and (grace is not None or resume_from is not None):
            raise UsageError("--window all: it ends with the input, and never by a clock; write it like 5m")
        self.sources = list(sources)
        self.settings = settings
        self._on_error = on_error
        self._on_progress = on_progress
        self._network = Network(settings.inner, settings.exclude, ipv6_prefix=settings.ipv6_prefix)
        self._grace = grace
        self._leaves_open = leaves_open
        self._find_hosts = find
        self._clock = clock
        self._stopping = False
        # A folder may be empty for a long time: it cannot be asked for its first packet like a file.
        self._follows = any(source.live and (grace is not None or source.replays) for source in self.sources)
        self._windows = TumblingWindows(
            None if settings.window == "all" else parse_duration(settings.window),
            resume_from=resume_from,
            gaps=GAPS if self._follows and grace is not None else 0,
            reopens=reopens or (grace is not None and not self._follows),
            revises=revises and all(source.replays and not source.live for source in self.sources),
            wall=wall if self._follows and grace is not None else None,
        )
        self.on_jump: Callable[[Jump], None] | None = None
        self._following: Following | None = None
        self._open: dict[int, _Open] = {}  # by start; more than one only where an older window turns up late
        self._skipped = 0
        self._revised = 0
        self._reading: dict[int, Source] = {}  # inputs that have begun and not ended, by number
        self._ended = (0, 0)  # bytes and packets of inputs that have ended
        self._lock = threading.RLock()  # over the windows that are open; never held while an input is read
        self._running: weakref.ref[Results] | None = None  # weak: whoever leaves a loop ends the readers
        self._has_begun = False
        self._is_over = False  # the run has come to its end, and was not left before

    @property
    def counters(self) -> Counters:
        """Return the counters as they stand."""
        with self._lock:
            total = Counters(late=self._windows.late, stray=self._windows.stray, skipped_family=self._skipped)
            total.repeated, total.revised = self._windows.repeated, self._revised
            total.unrevised = len(self._windows.put_off)
        for source in self.sources:
            for name, value in asdict(source.counters).items():
                if name == "warnings":
                    total.warnings += value
                else:
                    setattr(total, name, getattr(total, name) + value)
        total.no_inner_end = self._network.counters.no_inner_end
        total.same_ends = self._network.counters.same_ends
        return total

    def stop(self) -> None:
        """End the iteration within a second. May be called by a signal handler or another thread.

        Windows that are open are yielded as they are, marked as partial, unless they are left to the next run.
        """
        self._stopping = True
        for source in self.sources:
            source.stop()

    def open_window(self) -> Window | None:
        """Return the earliest window that is open now: what a crash would lose of input that is not read again."""
        with self._lock:
            return self._windows.earliest()

    def __iter__(self) -> Results:
        with self._lock:
            running = None if self._running is None else self._running()
            if running is None:
                if self._has_begun and not self._is_over:
                    raise UsageError(
                        "this scan was left before its end or has failed, and reads its inputs once: keep its iterator "
                        "(windows = iter(run)) to go on later, or scan again"
                    )
                running = Results(self._run())
                self._running = weakref.ref(running)
            return running

    def _run(self) -> Generator[WindowResult, None, None]:
        if self._is_over:
            return
        self._has_begun = True
        try:
            yield from self._results()
            self._is_over = True
        finally:
            self._running = None  # also where somebody keeps the iterator

    def _results(self) -> Iterator[WindowResult]:
        for events in self._followed() if self._follows else self._read():
            for event in self._each(events):
                yield from self._handle(event)
            if self._on_progress is not None:
                self._on_progress(*self._reached())
        interrupted = self._stopping
        if interrupted and self._leaves_open and all(source.replays for source in self.sources):
            self._open.clear()
            return
        for event in self._each(self._windows.finish()):
            for result in self._handle(event):
                result.partial = interrupted
                yield result
                del result  # its cubes, while the next window's are made
        if self._windows.put_off and not interrupted:
            yield from self._revise()

    def _reached(self) -> tuple[int, int]:
        """Return the bytes and packets read so far. There may be very many inputs: only those being read are asked."""
        position, packets = self._ended
        for source in self.sources if self._follows else list(self._reading.values()):
            position, packets = position + source.position(), packets + source.counters.packets
        return position, packets

    def _end(self, number: int) -> None:
        """Note how far an input has come that has ended."""
        source, (position, packets) = self._reading.pop(number), self._ended
        self._ended = (position + source.position(), packets + source.counters.packets)

    def _each(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield events. They arise under the lock, so that other threads never see half a change of the windows."""
        while True:
            with self._lock:
                event = next(events, None)
            if event is None:
                return
            yield event

    def _revise(self) -> Iterator[WindowResult]:
        """Read the windows again for which packets came too late, and yield them whole."""
        assert self._windows.length is not None
        length = self._windows.length
        scan = Scan([], self.settings, find=self._find_hosts)  # its counters do not matter: all is counted already
        with closing(SecondReading(length, self._windows.put_off)) as second:
            if not all(self._try(partial(self._read_again, source, second)) for source in self.sources):
                return
            for index, batches in second.windows():
                for batch in batches:
                    scan._update(index * length, batch)
                result = scan._close(Window(index * length, (index + 1) * length))
                late = self._windows.was_read_again(index)
                result.revision = 2 if result.packets > late else 1  # or all of it was late: it is new
                self._revised += result.revision > 1
                yield result
                del result
                if self._stopping:
                    return

    def _read_again(self, source: Source, second: SecondReading) -> bool:
        """Read an input a second time; False if the scan was stopped."""
        again = source.again()
        second.read(again, lambda: self._stopping)
        if not self._stopping and again.counters.packets != source.counters.packets:
            raise InputError("changed between two readings", file=source.name)
        return not self._stopping

    def _read(self) -> Iterator[Iterator[Event]]:
        for block, watermark in self._interleave():
            yield self._windows.push(block, watermark)

    def _followed(self) -> Iterator[Iterator[Event]]:
        following = self._following = Following(
            self.sources,
            grace=self._grace,
            clock=self._clock,
            attempt=self._try,
            stopped=lambda: self._stopping,
            horizon=self._windows.horizon,
        )
        for step in following:
            if step.begins is not None:
                self._expect(*step.begins)
            yield self._windows.push(step.block, step.watermark)
            if step.clock is not None:
                yield self._windows.tick(step.clock)

    def _interleave(self) -> Iterator[tuple[PacketBlock, int | None]]:
        """Yield the blocks of all inputs, the earliest next, and the time that all of them have reached."""
        starts: list[tuple[int, int, Source]] = []
        for number, source in enumerate(self.sources):
            first = None if self._stopping else self._try(source.first_time)
            if first is not None:
                starts.append((first, number, source))
        waiting = deque(sorted(starts, key=lambda item: item[:2]))
        active: list[tuple[int, int, Ahead]] = []  # a heap; numbers differ, so no two inputs are compared
        started: list[Ahead] = []
        try:
            while (waiting or active) and not self._stopping:
                while waiting and (not active or waiting[0][0] <= active[0][0]):
                    first, number, source = waiting.popleft()
                    started.append(Ahead(source, number, stopped=lambda: self._stopping))
                    self._reading[number] = source
                    heappush(active, (first, number, started[-1]))
                _, number, ahead = heappop(active)
                if self._try(ahead.next_time) is None:
                    self._end(number)
                    continue
                young = ahead.taken < SETTLE
                block = ahead.take()
                if young:  # what it begins with may be a stray; most of what it begins with is not
                    middle = np.median(np.concatenate([batch.time for batch in block]))
                    self._expect(int(middle), number)
                if len(starts) == 1:  # do not wait for a live input's next block
                    yield block, None
                later = self._try(ahead.next_time)
                if later is not None:
                    heappush(active, (later, number, ahead))
                else:
                    self._end(number)
                if len(starts) > 1:
                    yield block, min((items[0][0] for items in (active, waiting) if items), default=None)
            pipes = [(number, source) for _, number, source in waiting if is_pipe(source)]
            started += [Ahead(source, number, stopped=lambda: self._stopping) for number, source in pipes]
            for block in drain(started, self._try):
                yield block, None
        finally:
            for ahead in started:
                ahead.leave()

    def _expect(self, time: int, source: int) -> None:
        with self._lock:
            self._windows.expect(time, source)

    def _try(self, call: Callable[[], Any]) -> Any:
        """Call; an input that fails is reported and dropped when somebody takes the errors, else it ends the scan."""
        try:
            return call()
        except Stopped:
            return None
        except SuperhostsError as error:
            if self._on_error is None:
                raise
            self._on_error(error)
            return None

    def _handle(self, event: Event) -> Iterator[WindowResult]:
        if isinstance(event, Piece):
            self._update(self._key(event.window), event.batch)
        elif isinstance(event, PutOff):
            for _ in self._pairs(event.batch):
                pass  # counted now, and not when they are read again
        elif isinstance(event, Jump):
            if self._following is not None:
                self._following.forget_clock()
            if self.on_jump is not None:
                self.on_jump(event)
        else:
            yield self._close(event.window)

    def _key(self, window: Window) -> int:
        return 0 if self._windows.length is None else window.start  # the one window over everything still grows

    def _new(self) -> _Open:
        return _Open(Sketch(self.settings.make_detector, site=self.settings.site))

    def _update(self, key: int, batch: PacketBatch) -> None:
        opened = self._open.setdefault(key, self._new())
        for part, pairs in self._pairs(batch):
            if len(pairs):
                opened.sketch.part(part).update(pairs)
                opened.pairs[part] = opened.pairs.get(part, 0) + len(pairs)
        opened.packets += len(batch)

    def _pairs(self, batch: PacketBatch) -> Iterator[tuple[Part, PairBatch]]:
        parts = self.settings.parts
        if all(part.family != batch.family for part in parts):
            self._skipped += len(batch)
        yield from self._network.pairs(batch, parts)

    def _close(self, window: Window) -> WindowResult:
        opened = self._open.pop(self._key(window), None) or self._new()
        sketch, packets = opened.sketch, opened.packets
        sketch.window = window
        sketch.entries = [
            {"site": self.settings.site, "start": window.start, "end": window.end, **part._asdict(), "pairs": pairs}
            for part, pairs in opened.pairs.items()
        ]
        return WindowResult(window, self.find(sketch) if self._find_hosts else [], sketch, packets)

    def find(self, sketch: Sketch) -> list[Found]:
        """Return the hosts of a sketch that are asked for and monitored."""
        least, top = self.settings.least_peers, self.settings.top

        def monitored(part: Part, detector: Detector) -> Any:
            found = detector.super_hosts(least) if least is not None else detector.top(top or 1)
            return found.select(self._network.monitors(found.hosts, part))

        found = sketch.collect(monitored)
        return found[:top] if top is not None else found


def scan(inputs: str | Path | Sequence[str | Path], **settings: Any) -> Scan:
    """Scan inputs; iterate over the result for the windows. Settings are the fields of `Settings`.

    An input is a file, a folder, a pattern, a URL, "-" (standard input) or synth:… (`sources/opening.py`).

    A window of files far out of order may come a second time, in the end, as `revision` 2: that is the whole of it.

    >>> for window in scan("trace.pcap", inner="10.0.0.0/8", threshold=1024, window="5m"):
    ...     for item in window:
    ...         print(item.host, item.peers)
    """
    names = [inputs] if isinstance(inputs, str | Path) else inputs
    for option in ("inner", "exclude", "watch", "direction"):
        if isinstance(settings.get(option), str):
            settings[option] = (settings[option],)
    return Scan(open_inputs(names), Settings(**settings), revises=True)
