"""Threads that read inputs: `Ahead` reads one ahead of the run, `Following` follows several live ones.

What is read ahead is bounded: a few blocks, or a share of memory that the run gives to inputs that take long to read.
An input may also be read before its turn. Then its errors wait in the queue behind its blocks, as always, and its
warnings are held back until its turn comes.

`Following` is for traffic that has not happened yet. What it guarantees:

- Data from a pipe is taken at once: a capture program that has to wait loses packets. Files and folders are read in
  time order as far as they have anything to read.
- Every block comes with the time that all inputs have reached. An input with nothing to read holds it back for the
  grace, by the event clock, and no longer.
- The event clock gives the time in the traffic's own terms: this machine's clock minus the lag of recent packets. Only
  differences matter, so the traffic's clock may be wrong by years. It builds on a steady clock: setting this machine's
  time changes nothing.
- Packets with times far ahead of all clocks do not set it until the traffic follows them.
- A scan is not a sensor: it may read pipes that are as fast as files (`is_full` is given). A pipe that has nothing
  to read holds the others back until it has been silent for the grace, by this machine's clock, and inputs are read in
  the order of time. If very much waits for its window, an input that is ahead is not read meanwhile.
- The clock closes windows only after everything available has been read for a second. It never acts on a backlog, so
  results over files do not depend on the speed of the machine.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from superhosts.core.pairs import PacketBlock
from superhosts.core.profile import timed
from superhosts.core.units import SECOND
from superhosts.jit.compilation import is_compiling
from superhosts.sources.base import PACE, Pace, Source, first_time_of, input_border

READ_AHEAD = 4  # blocks of an input that may wait to be processed, whatever its share
MOST_SHARE = 32 * 1024 * 1024  # bytes of blocks of an input that may wait, where memory allows
NOT_YET = -(1 << 63)  # before all times: nothing was read yet

Clock = Callable[[], float]
Item = tuple[float, PacketBlock] | BaseException | None


class Ahead:
    def __init__(
        self,
        source: Source,
        number: int,
        *,
        reached: int = NOT_YET,
        share: int = 0,
        stopped: Callable[[], bool],
        clock: Clock = time.monotonic,
        wake: threading.Event | None = None,
        pace: Pace = PACE,
    ) -> None:
        """Begin to read. `share`: bytes of blocks that may wait to be processed."""
        self.source = source
        self.number = number
        self.reached = reached  # earliest time of the next block, or of the last one until the next has been read
        self.taken = 0  # packets
        self.ended = False
        self.arrival = 0.0  # of the block that was taken last
        self._stopped = stopped
        self._clock = clock
        self._wake = wake or threading.Event()
        self._pace = pace
        self._share = share
        self._waiting: deque[tuple[Item, int]] = deque()  # with their bytes
        self._bytes = 0
        self._changed = threading.Condition()
        self._left = False
        self._next: tuple[float, PacketBlock] | None = None
        threading.Thread(target=self._read, name=f"read {source.name}", daemon=True).start()

    def _read(self) -> None:
        try:
            with input_border(self.source.name):
                for block in self.source.blocks():
                    if not self._put((self._clock(), block), _size(block)):
                        return
            self._put(None)
        except BaseException as error:  # handed to the thread that takes the blocks
            self._put(error)

    @timed("wait")
    def _put(self, item: Item, size: int = 0) -> bool:
        """Hand something over, once there is room for it; return False if nobody takes it any more."""
        with self._changed:
            while not self._left and len(self._waiting) >= READ_AHEAD and self._bytes >= self._share:
                self._changed.wait(self._pace.wake)
            if self._left:
                return False
            self._waiting.append((item, size))
            self._bytes += size
            self._changed.notify()
        self._wake.set()
        return True

    def _get(self) -> Item:
        with self._changed:
            item, size = self._waiting.popleft()
            self._bytes -= size
            self._changed.notify()
        return item

    @timed("wait")
    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, self._pace.wake)

    def leave(self) -> None:
        self._left = True
        self.source.stop()

    def ready(self, *, wait: bool = False) -> bool:
        """Return True if there is a block to take. Raises the errors of the reading thread."""
        while self._next is None and not self.ended:
            if not self._waiting:
                if not wait or self._stopped():
                    return False
                self._wait()
                continue
            item = self._get()
            if item is None or isinstance(item, BaseException):
                self.ended = True
                if item is not None:
                    raise item
            elif any(len(batch) for batch in item[1]):
                self._next = item
                self.reached = min(batch.span[0] for batch in item[1] if len(batch))
        return self._next is not None

    def next_time(self) -> int | None:
        return self.reached if self.ready(wait=True) else None

    def take(self) -> PacketBlock:
        assert self._next is not None
        (self.arrival, block), self._next = self._next, None
        self.taken += sum(len(batch) for batch in block)
        return block

    def is_working(self) -> bool:
        return not self.source.waits() and self._next is None and not self.ended


def _size(block: PacketBlock) -> int:
    columns = (column for batch in block for column in (batch.src, batch.dst, batch.time, batch.details))
    return sum(column.nbytes for column in columns if column is not None)


def hold_warnings(source: Source) -> Callable[[], None]:
    """Hold back the warnings of an input, if something takes them as they come; return what releases them."""
    counters, lock, held = source.counters, threading.Lock(), list[str]()
    pass_on = counters.on_warning
    if pass_on is None:
        return lambda: None

    def hold(text: str) -> None:
        with lock:
            (held.append if counters.on_warning is hold else pass_on)(text)

    def release() -> None:
        with lock:
            counters.on_warning = pass_on
            for text in held:
                pass_on(text)

    counters.on_warning = hold
    return release


def is_pipe(source: Source) -> bool:
    return source.live and not source.replays


def drain(
    inputs: Iterable[Ahead], attempt: Callable[[Callable[[], Any]], Any], seconds: float
) -> Iterator[PacketBlock]:
    """Yield what pipes delivered before a stop. Their readers were told to stop and end soon.

    They have so many `seconds`, without the time in which loops are compiled, and that of the caller: a reader whose
    loops are not compiled yet has still to read everything.
    """
    pipes, since = [ahead for ahead in inputs if is_pipe(ahead.source)], time.monotonic()
    while (pipes := [ahead for ahead in pipes if not ahead.ended]) and seconds > 0:
        counts = not is_compiling()
        for ahead in pipes:
            if attempt(ahead.ready):
                yield ahead.take()
                since = time.monotonic()
        time.sleep(0.001)
        seconds -= time.monotonic() - since if counts else 0
        since = time.monotonic()


MOST_KEPT = 1000  # packets by which the event clock is set
STALE_AFTER = 3600.0  # seconds after which a packet no longer sets the clock: clocks drift, and are set
LEAST_KEPT = 10  # packets kept even when stale
MOST_NOTED = 100  # blocks whose packets wait to set the event clock
YOUNG = 1000  # first packets of an input, which show the time at which it begins


class EventClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind = np.empty(0)  # lag of the last packets: nanoseconds from their times to their arrival
        self._arrival = np.empty(0)
        self._noted: list[tuple[float, PacketBlock]] = []  # packets since then; few ask for the time of a busy pipe

    def note(self, arrival: float, block: PacketBlock) -> None:
        if sum(map(len, block)) >= MOST_KEPT:
            self._noted.clear()  # no packets before these count any more
        self._noted.append((arrival, block))
        if len(self._noted) > MOST_NOTED:
            self._keep()

    def _keep(self) -> None:
        if not self._noted:
            return
        behinds, arrivals = [self._behind], [self._arrival]
        for arrival, block in self._noted:
            times = np.concatenate([batch.time[-MOST_KEPT:] for batch in block])[-MOST_KEPT:]
            behinds.append(arrival * SECOND - times)
            arrivals.append(np.full(len(times), arrival))
        behind, arrived = np.concatenate(behinds), np.concatenate(arrivals)
        fresh = int((arrived > self._noted[-1][0] - STALE_AFTER).sum())
        keep = min(MOST_KEPT, max(fresh, LEAST_KEPT))
        self._behind, self._arrival = behind[-keep:], arrived[-keep:]
        self._noted.clear()

    def now(self, horizon: int | None = None) -> int | None:
        """Return the time in nanoseconds; None before the first packet.

        Packets that were read some time after they were sent say too little, and stray ones say anything. So this is by
        the tenth of the packets that are least behind; of very few packets, by the one in the middle. Packets with
        times beyond the `horizon` do not count, as long as there are others.
        """
        self._keep()
        if not len(self._behind):
            return None
        behind = self._behind
        if horizon is not None:
            believed = behind[self._arrival * SECOND - behind <= horizon]
            behind = believed if len(believed) else behind
        place = min(len(behind) // 2, max(len(behind) // 10, 2))
        return int(self._clock() * SECOND - np.partition(behind, place)[place])

    def forget(self) -> None:
        """Keep only the last few packets: the traffic's clock was set."""
        self._keep()
        self._behind, self._arrival = self._behind[-LEAST_KEPT:], self._arrival[-LEAST_KEPT:]


class Step(NamedTuple):
    block: PacketBlock = ()
    watermark: int | None = None  # the time that all inputs have reached; None if there is only one
    begins: tuple[int, int] | None = None  # time and number of an input that has just begun
    clock: int | None = None  # no packet before this time is still to come: the event clock minus the grace


def middle_time(block: PacketBlock) -> int:
    """Return the median time of a block. The first packets of an input may be strays, but not most of them."""
    return int(np.median(np.concatenate([batch.time for batch in block])))


class Following:
    """Blocks of several inputs, some of them live, and the passage of time."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        grace: float | None,
        clock: Clock,
        attempt: Callable[[Callable[[], Any]], Any],
        stopped: Callable[[], bool],
        horizon: Callable[[], int | None] = lambda: None,
        is_full: Callable[[], bool] | None = None,
        pace: Pace = PACE,
        steady: Clock = time.monotonic,
    ) -> None:
        """Prepare to read.

        `attempt` makes a call that may fail for one input, and returns None if it failed and the run continues.
        `horizon` returns the time up to which the times of packets are accepted. `is_full` returns True if no input
        should be read ahead of another that is silent; None: pipes are read at once. `clock` times the packets, and
        `steady` the checks of the inputs.
        """
        self._sources = sources
        self._horizon = horizon
        self._is_full = is_full
        self._silent: dict[int, float] = {}  # inputs that have nothing to read, by number, and since when
        self._grace = None if grace is None else round(grace * SECOND)
        self._pace = pace
        self._clock = clock
        self._steady = steady
        self._event = EventClock(clock)
        self._attempt = attempt
        self._stopped = stopped
        self._wake = threading.Event()
        self._files: deque[tuple[int, int, Source]] = deque()  # inputs that end by themselves and were not started yet
        self._active: list[Ahead] = []
        self._looked = self._kept_up = steady()
        self._since: float | None = None  # since when there is no backlog

    def __iter__(self) -> Iterator[Step]:
        try:
            for number, source in enumerate(self._sources):
                if source.live:
                    self._start(source, number)
            for number, source in enumerate(self._sources):
                if source.live or self._stopped():
                    continue
                first = self._attempt(partial(first_time_of, source))
                if first is not None:
                    self._files.append((first, number, source))
            self._files = deque(sorted(self._files, key=lambda item: item[:2]))
            while not self._stopped():
                self._start_files()
                chosen, is_quiet = self._choose(), False
                if chosen is not None:
                    yield self._take(chosen)
                elif not self._active and not self._files:
                    return
                else:
                    is_quiet = not self._wake.wait(self._pace.wake)
                    self._wake.clear()
                passed = self._passed()
                if is_quiet or passed is not None:  # A busy pipe has no time for more steps than blocks.
                    yield Step(watermark=self._watermark(), clock=passed)
            for block in drain(self._active, self._attempt, self._pace.drain):
                self._event.note(time.monotonic(), block)
                yield Step(block, self._watermark())
        finally:
            for ahead in self._active:
                ahead.leave()

    def _start(self, source: Source, number: int, first: int = NOT_YET) -> None:
        ahead = Ahead(
            source,
            number,
            reached=first,
            share=MOST_SHARE if source.loses else 0,
            stopped=self._stopped,
            clock=self._clock,
            wake=self._wake,
            pace=self._pace,
        )
        self._active.append(ahead)

    def _start_files(self) -> None:
        """Start the files whose first packet the other inputs have reached; there may be thousands."""
        while self._files:
            begun = [ahead.reached for ahead in self._active if not ahead.source.live]
            if begun and self._files[0][0] > min(begun):
                return
            first, number, source = self._files.popleft()
            self._start(source, number, first)

    def _choose(self) -> Ahead | None:
        """Return the input whose block is next: a pipe at once, another input unless an earlier block is being read."""
        ready = [ahead for ahead in self._active if self._attempt(ahead.ready)]
        self._active = [ahead for ahead in self._active if not ahead.ended]
        working = [ahead.reached for ahead in self._active if self._in_order(ahead) and ahead.is_working()]
        chosen = min(ready, key=lambda ahead: (self._in_order(ahead), ahead.reached, ahead.number), default=None)
        if chosen is None or not self._in_order(chosen):
            return chosen
        if self._is_full is not None and self._is_full():
            working += [ahead.reached for ahead in self._active if self._is_waited_for(ahead)]
        return None if working and min(working) < chosen.reached else chosen

    def _in_order(self, ahead: Ahead) -> bool:
        return ahead.source.replays or self._is_full is not None

    def _is_waited_for(self, ahead: Ahead) -> bool:
        """Return True if an input of a scan has nothing to read, but not for long."""
        if self._is_full is None or self._grace is None:
            return False
        if not self._is_caught_up(ahead):
            self._silent.pop(ahead.number, None)
            return False
        now = self._clock()
        return (now - self._silent.setdefault(ahead.number, now)) * SECOND < self._grace

    def _take(self, ahead: Ahead) -> Step:
        young = ahead.taken < YOUNG
        block = ahead.take()
        self._silent.pop(ahead.number, None)
        self._event.note(ahead.arrival, block)
        return Step(block, self._watermark(), (middle_time(block), ahead.number) if young else None)

    def forget_clock(self) -> None:
        """Reset the event clock to the last few packets: the traffic has jumped in time."""
        self._event.forget()

    def _watermark(self) -> int | None:
        if len(self._sources) == 1:
            return None
        reached = [time for ahead in self._active if (time := self._reached(ahead)) is not None]
        return min([*reached, *(first for first, _, _ in islice(self._files, 1))], default=None)

    def _reached(self, ahead: Ahead) -> int | None:
        """Return the time that an input has reached; None if the others do not wait for it."""
        if self._is_waited_for(ahead) or not self._is_caught_up(ahead):
            return ahead.reached
        now = self._event.now(self._horizon())
        if self._grace is None or now is None:
            return None
        return max(ahead.reached, now - self._grace)

    def _passed(self) -> int | None:
        """Return the time before which no packet is still to come; None while there is a backlog."""
        looked, self._looked = self._looked, self._steady()
        if self._looked - looked > self._pace.held_up:  # packets that came since the last check are not read yet
            self._since = None
        if self._files or not all(self._is_caught_up(ahead) for ahead in self._active):
            if self._looked - self._kept_up > self._pace.held_up:
                self._since = None
            return None
        self._kept_up = self._looked
        if self._since is None:
            self._since = self._looked
        now = self._event.now(self._horizon())
        if self._grace is None or now is None or self._looked - self._since < self._pace.caught_up:
            return None
        if len(self._sources) > 1:
            now = min([now, *(ahead.reached for ahead in self._active if self._is_waited_for(ahead))])
        return now - self._grace

    def _is_caught_up(self, ahead: Ahead) -> bool:
        waits = ahead.source.waits()  # asked first: what was read before the wait is in the queue
        return waits and not self._attempt(ahead.ready)
