"""Files in the order of time: read side by side where they overlap, so that any split of a capture gives the same.

Files that one thread reads (compressed and small ones) are also read before their turn, as many at once as there are
threads. Their packets wait in memory, up to a share for each file. The order of blocks, the counters, warnings and
errors are those of files that are read one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from superhosts.core.device import thread_count
from superhosts.jit.memory import memory_of_machine
from superhosts.sources.base import PACE, Pace, Source, first_time_of
from superhosts.sources.readers import MOST_SHARE, YOUNG, Ahead, Step, drain, hold_warnings, is_pipe, middle_time

_PART_OF_MEMORY = 8  # what is read ahead takes at most this part of the machine's memory
_MANY = 8  # files whose first packets are looked for by several threads

Start = tuple[int, int, Source]  # time of the first packet, number, input


class Interleaver:
    """The blocks of all inputs, the earliest next, with the time that all of them have reached.

    Each input is read ahead in a thread of its own, from when the others reach its first packet, or before that.
    `attempt` makes a call that may fail for an input, and returns None if it did and the rest goes on.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        attempt: Callable[[Callable[[], Any]], Any],
        stopped: Callable[[], bool],
        threads: int | None = None,
        pace: Pace = PACE,
    ) -> None:
        self._sources = sources
        self._attempt = attempt
        self._stopped = stopped
        self._threads = thread_count(threads)
        self._share = min(MOST_SHARE, memory_of_machine() // _PART_OF_MEMORY // (self._threads + 1))
        self._pace = pace
        self._started: list[Ahead] = []
        self._early: dict[int, tuple[Ahead, Callable[[], None]]] = {}  # read before their turn, with held warnings
        self._reading: dict[int, Source] = {}  # inputs that have begun and not ended, by number
        self._ended = (0, 0)  # bytes and packets of inputs that have ended

    def __iter__(self) -> Iterator[Step]:
        starts = self._first_times()
        waiting = deque(starts)
        active: list[tuple[int, int, Ahead]] = []  # a heap; numbers differ, so no two inputs are compared
        try:
            while (waiting or active) and not self._stopped():
                while waiting and (not active or waiting[0][0] <= active[0][0]):
                    first, number, source = waiting.popleft()
                    heappush(active, (first, number, self._begin(number, source)))
                self._read_early(islice(waiting, self._threads))
                _, number, ahead = heappop(active)
                if self._attempt(ahead.next_time) is None:
                    self._end(number)
                    continue
                young = ahead.taken < YOUNG
                block = ahead.take()
                begins = (middle_time(block), number) if young else None
                if len(starts) == 1:  # do not wait for a live input's next block
                    yield Step(block, begins=begins)
                later = self._attempt(ahead.next_time)
                if later is not None:
                    heappush(active, (later, number, ahead))
                else:
                    self._end(number)
                if len(starts) > 1:
                    watermark = min((items[0][0] for items in (active, waiting) if items), default=None)
                    yield Step(block, watermark, begins)
            for _, number, source in waiting:
                if is_pipe(source):
                    self._start(number, source)
            for block in drain(self._started, self._attempt, self._pace.drain):
                yield Step(block)
        finally:
            for ahead in self._started:
                ahead.leave()

    def reached(self) -> tuple[int, int]:
        """Return the bytes and packets read so far. There may be very many inputs: only those being read are asked."""
        position, packets = self._ended
        for source in list(self._reading.values()):
            position, packets = position + source.position(), packets + source.counters.packets
        return position, packets

    def begun(self) -> list[Source]:
        """Return the inputs without those whose turn has not come: their packets do not count yet."""
        early = set(self._early)
        return [source for number, source in enumerate(self._sources) if number not in early]

    def _first_times(self) -> list[Start]:
        files = [(number, source) for number, source in enumerate(self._sources) if _is_file(source)]
        if len(files) < _MANY or self._threads == 1:
            return self._sorted([partial(first_time_of, source) for source in self._sources])
        with ThreadPoolExecutor(self._threads, "first packets") as pool:
            try:
                calls: list[Callable[[], int | None]] = [partial(first_time_of, each) for each in self._sources]
                for number, source in files:
                    release = hold_warnings(source)
                    calls[number] = partial(_found, pool.submit(first_time_of, source), release)
                return self._sorted(calls)
            finally:
                pool.shutdown(cancel_futures=True)

    def _sorted(self, calls: Sequence[Callable[[], int | None]]) -> list[Start]:
        starts: list[Start] = []
        for number, (source, call) in enumerate(zip(self._sources, calls, strict=True)):
            first = None if self._stopped() else self._attempt(call)
            if first is not None:
                starts.append((first, number, source))
        return sorted(starts, key=lambda item: item[:2])

    def _begin(self, number: int, source: Source) -> Ahead:
        self._reading[number] = source
        if number not in self._early:
            return self._start(number, source)
        ahead, release = self._early.pop(number)
        release()
        return ahead

    def _read_early(self, following: Iterable[Start]) -> None:
        for _, number, source in following:
            if number not in self._early and source.one_thread and _is_file(source) and self._is_idle():
                release = hold_warnings(source)
                self._early[number] = (self._start(number, source), release)

    def _start(self, number: int, source: Source) -> Ahead:
        share = self._share if source.one_thread and self._is_idle() else 0
        self._started.append(Ahead(source, number, share=share, stopped=self._stopped, pace=self._pace))
        return self._started[-1]

    def _is_idle(self) -> bool:
        """Return True if fewer inputs are open than threads can read, besides the one whose turn it is."""
        return len(self._reading) + len(self._early) <= self._threads

    def _end(self, number: int) -> None:
        source, (position, packets) = self._reading.pop(number), self._ended
        self._ended = (position + source.position(), packets + source.counters.packets)


def _found(first: Future[int | None], release: Callable[[], None]) -> int | None:
    """Return the first time of a file, looked for by another thread; its warnings come with it."""
    try:
        return first.result()
    finally:
        release()


def _is_file(source: Source) -> bool:
    return source.replays and not source.live
