"""The life of a pair: sources → windows → pairs → detectors → super hosts. The counters live here.

Inputs are ordered by their first packet and read side by side where they overlap in time, so that any order and
any split of a capture gives the same result. Each input is read ahead in a thread of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from superhosts.detectors.base import Detector
from superhosts.detectors.sketch import DETECTORS, Found, Sketch
from superhosts.device import choose_device, thread_count
from superhosts.errors import SuperhostsError, UsageError
from superhosts.network import Network
from superhosts.pairs import HostFormat, PacketBatch, Part, Window
from superhosts.sources.base import Block, Source
from superhosts.sources.capture import open_capture
from superhosts.units import format_size, parse_duration, parse_size
from superhosts.windows import SETTLE, Closed, Piece, TumblingWindows

READ_AHEAD = 4  # blocks of an input that wait to be processed
SIDES = ("inner", "outer")
DIRECTIONS = ("any", "out", "in")


@dataclass(frozen=True)
class Settings:
    """What to look for, and with what. The same names as the options of `superhosts scan`."""

    inner: Sequence[str] = ()
    exclude: Sequence[str] = ()
    watch: Sequence[str] = ("inner",)
    direction: Sequence[str] = ("any",)
    threshold: float | None = None
    top: int | None = None
    window: str = "5m"
    detector: str = "cube"
    memory: str | int = "128MiB"
    memory_total: str | int | None = None
    ipv6_prefix: int = 64
    key: bytes | str | None = None
    site: str = ""
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        for option, values, known in (("watch", self.watch, SIDES), ("direction", self.direction, DIRECTIONS)):
            for value in values:
                if value not in known:
                    raise UsageError(f"--{option} {value}: one of {', '.join(known)}")
        if "outer" in self.watch and not self.inner:
            raise UsageError("--watch outer needs --inner: without it every address is inner and nobody is outer")
        if self.detector not in DETECTORS:
            raise UsageError(f"--detector {self.detector}: one of {', '.join(DETECTORS)}")
        if self.threshold is not None and not self.threshold >= 1:
            raise UsageError(f"--threshold {self.threshold:g}: at least 1")
        if self.top is not None and self.top < 1:
            raise UsageError(f"--top {self.top}: at least 1")
        choose_device(self.device)
        limit = self.memory_total
        if self.detector == "exact":
            if limit is not None:
                raise UsageError("--memory-total: the exact detector's memory grows with the traffic")
        elif limit is not None and self.most_memory > parse_size(limit):
            needs = f"may reach {format_size(self.most_memory)} ({len(self.parts)} cubes and their buffers)"
            raise UsageError(f"--memory-total {limit}: this scan {needs}; take less --memory")

    @property
    def parts(self) -> list[Part]:
        """The detectors that may be needed: every family, side and direction."""
        families = (4, 6) if DETECTORS[self.detector].takes_ipv6 else (4,)
        sides, ways = dict.fromkeys(self.watch), dict.fromkeys(self.direction)
        return [Part(family, side, way) for family in families for side in sides for way in ways]

    @property
    def most_memory(self) -> int:
        """Bytes that the cubes, the pairs that wait for them and the caches may reach."""
        caches = 4 * (thread_count() if self.threads is None else self.threads) << 20
        return len(self.parts) * (parse_size(self.memory) * 3 // 2 + caches)

    @property
    def least_peers(self) -> float | None:
        """The threshold in force; None when only the largest hosts are asked for."""
        return self.threshold if self.threshold is not None or self.top is not None else 1024.0

    def make_detector(self, part: Part) -> Detector:
        """Return an empty detector for a part."""
        common: dict[str, Any] = {"key": self.key, "device": self.device, "threads": self.threads}
        host = HostFormat(4, 32) if part.family == 4 else HostFormat(6, self.ipv6_prefix)
        if DETECTORS[self.detector].takes_ipv6:
            common["key_bits"] = host.key_bits
        if self.detector == "filter":  # it lists hosts while they pass, so it must know the threshold before
            common["threshold"] = 1024 if self.least_peers is None else self.least_peers
        if self.detector != "exact":
            common["memory"] = self.memory
        detector = DETECTORS[self.detector](**common)
        detector.format = host
        return detector


@dataclass
class Counters:
    """What passed and what did not become a pair, over the whole scan."""

    packets: int = 0
    ipv4: int = 0
    ipv6: int = 0
    not_ip: int = 0
    cut: int = 0
    no_inner_end: int = 0
    same_ends: int = 0
    late: int = 0
    stray: int = 0
    skipped_family: int = 0  # IPv6 packets for a detector that takes IPv4 only
    warnings: list[str] = field(default_factory=list)


@dataclass
class WindowResult:
    """A window that has closed: its super hosts, its sketch, and how much went into it."""

    window: Window
    found: list[Found]
    sketch: Sketch
    packets: int

    def __iter__(self) -> Iterator[Found]:
        return iter(self.found)


@dataclass
class _Open:
    """A window that still takes packets."""

    sketch: Sketch
    packets: int = 0
    pairs: dict[Part, int] = field(default_factory=dict)


class _Ahead:
    """An input, read ahead by a thread of its own."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._queue: queue.Queue[Block | BaseException | None] = queue.Queue(READ_AHEAD)
        self._stopped = threading.Event()
        self._next: Block | None = None
        self.taken = 0  # packets
        threading.Thread(target=self._read, name=f"read {source.name}", daemon=True).start()

    def _read(self) -> None:
        try:
            for block in self.source.blocks():
                if not self._put(block):
                    return
            self._put(None)
        except BaseException as error:  # handed to the reader's thread
            self._put(error)

    def _put(self, item: Block | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def stop(self) -> None:
        self._stopped.set()

    def peek(self) -> Block | None:
        """Return the next block without taking it, None at the end. Errors of the reading thread appear here."""
        while self._next is None:
            item = self._queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                return None
            if any(len(batch) for batch in item):
                self._next = item
        return self._next

    def next_time(self) -> int | None:
        """Return the earliest time of the next block, None at the end."""
        block = self.peek()
        return None if block is None else min(int(batch.time.min()) for batch in block if len(batch))

    def take(self) -> Block:
        block = self.peek()
        assert block is not None
        self._next = None
        self.taken += sum(len(batch) for batch in block)
        return block


class Scan:
    """One run over inputs. Iterate over it for the windows; `counters` tells what passed."""

    def __init__(
        self,
        sources: Sequence[Source],
        settings: Settings,
        *,
        on_error: Callable[[SuperhostsError], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.sources = list(sources)
        self.settings = settings
        self._on_error = on_error
        self._on_progress = on_progress
        self._network = Network(settings.inner, settings.exclude, ipv6_prefix=settings.ipv6_prefix)
        self._windows = TumblingWindows(None if settings.window == "all" else parse_duration(settings.window))
        self._open: dict[int, _Open] = {}  # by start; more than one only where an older window turns up late
        self._skipped = 0

    @property
    def counters(self) -> Counters:
        """Return the counters as they stand."""
        total = Counters(late=self._windows.late, stray=self._windows.stray, skipped_family=self._skipped)
        for source in self.sources:
            for name, value in asdict(source.counters).items():
                if name == "warnings":
                    total.warnings += value
                else:
                    setattr(total, name, getattr(total, name) + value)
        total.no_inner_end = self._network.counters.no_inner_end
        total.same_ends = self._network.counters.same_ends
        return total

    def __iter__(self) -> Iterator[WindowResult]:
        for block, watermark in self._interleave():
            for event in self._windows.push(block, watermark):
                yield from self._handle(event)
            if self._on_progress is not None:
                done = sum(source.counters.packets for source in self.sources)
                self._on_progress(sum(source.position() for source in self.sources), done)
        for event in self._windows.finish():
            yield from self._handle(event)

    def _interleave(self) -> Iterator[tuple[Block, int | None]]:
        """Yield the blocks of all inputs, the earliest next, and the time that all of them have reached."""
        starts: list[tuple[int, int, Source]] = []
        for number, source in enumerate(self.sources):
            first = self._try(source.first_time)
            if first is not None:
                starts.append((first, number, source))
        waiting = sorted(starts)
        active: list[tuple[int, int, _Ahead]] = []
        started: list[_Ahead] = []
        try:
            while waiting or active:
                while waiting and (not active or waiting[0][0] <= active[0][0]):
                    first, number, source = waiting.pop(0)
                    started.append(_Ahead(source))
                    active.append((first, number, started[-1]))
                    active.sort(key=lambda item: item[:2])
                _, number, ahead = active.pop(0)
                if self._try(ahead.peek) is None:
                    continue
                young = ahead.taken < SETTLE
                block = ahead.take()
                if young:  # what it begins with may be a stray; most of what it begins with is not
                    middle = np.median(np.concatenate([batch.time for batch in block]))
                    self._windows.expect(int(middle), number)
                if len(starts) == 1:  # do not wait for a live input's next block
                    yield block, None
                time = self._try(ahead.next_time)
                if time is not None:
                    active.append((time, number, ahead))
                    active.sort(key=lambda item: item[:2])
                if len(starts) > 1:
                    reached = [item[0] for item in (*active[:1], *waiting[:1])]
                    yield block, min(reached) if reached else None
        finally:
            for ahead in started:
                ahead.stop()

    def _try(self, call: Callable[[], Any]) -> Any:
        """Call; an input that fails is reported and dropped when somebody takes the errors, else it ends the scan."""
        try:
            return call()
        except SuperhostsError as error:
            if self._on_error is None:
                raise
            self._on_error(error)
            return None

    def _handle(self, event: Piece | Closed) -> Iterator[WindowResult]:
        if isinstance(event, Piece):
            self._update(self._key(event.window), event.batch)
        else:
            yield self._close(event.window)

    def _key(self, window: Window) -> int:
        return 0 if self._windows.length is None else window.start  # the one window over everything still grows

    def _update(self, key: int, batch: PacketBatch) -> None:
        opened = self._open.setdefault(key, _Open(Sketch(self.settings.make_detector, site=self.settings.site)))
        parts = self.settings.parts
        if all(part.family != batch.family for part in parts):
            self._skipped += len(batch)
        for part, pairs in self._network.pairs(batch, parts):
            if len(pairs):
                opened.sketch.part(part).update(pairs)
                opened.pairs[part] = opened.pairs.get(part, 0) + len(pairs)
        opened.packets += len(batch)

    def _close(self, window: Window) -> WindowResult:
        opened = self._open.pop(self._key(window))
        sketch, packets = opened.sketch, opened.packets
        sketch.window = window
        sketch.entries = [
            {"site": self.settings.site, "start": window.start, "end": window.end, **part._asdict(), "pairs": pairs}
            for part, pairs in opened.pairs.items()
        ]
        return WindowResult(window, self._find(sketch), sketch, packets)

    def _find(self, sketch: Sketch) -> list[Found]:
        least, top = self.settings.least_peers, self.settings.top

        def monitored(part: Part, detector: Detector) -> Any:
            found = detector.super_hosts(least) if least is not None else detector.top(top or 1)
            return found.select(self._network.monitors(found.hosts, part))

        found = sketch.collect(monitored)
        return found[:top] if top is not None else found


def open_inputs(
    inputs: Sequence[str | Path], on_error: Callable[[SuperhostsError], None] | None = None
) -> list[Source]:
    """Open captures; one that cannot be opened goes to `on_error` where that is given."""
    sources: list[Source] = []
    for name in inputs:
        try:
            sources.append(open_capture(name))
        except SuperhostsError as error:
            if on_error is None:
                raise
            on_error(error)
    return sources


def scan(inputs: str | Path | Sequence[str | Path], **settings: Any) -> Scan:
    """Scan captures; iterate over the result for the windows. Settings are the fields of `Settings`.

    >>> for window in scan("trace.pcap", inner="10.0.0.0/8", threshold=1024, window="5m"):
    ...     for item in window:
    ...         print(item.host, item.peers)
    """
    names = [inputs] if isinstance(inputs, str | Path) else inputs
    for option in ("inner", "exclude", "watch", "direction"):
        if isinstance(settings.get(option), str):
            settings[option] = (settings[option],)
    return Scan(open_inputs(names), Settings(**settings))
