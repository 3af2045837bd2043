"""Files in the order of time: read side by side where they overlap, so that any split of a capture gives the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from superhosts.sources.base import Source
from superhosts.sources.live import YOUNG, Ahead, Step, drain, is_pipe, middle_time
from superhosts.sources.pace import PACE, Pace


class Interleaving:
    """The blocks of all inputs, the earliest next, with the time that all of them have reached.

    Each input is read ahead in a thread of its own, from when the others reach its first packet. `attempt` makes a call
    that may fail for an input, and returns None if it did and the rest goes on.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        attempt: Callable[[Callable[[], Any]], Any],
        stopped: Callable[[], bool],
        pace: Pace = PACE,
    ) -> None:
        self._sources = sources
        self._attempt = attempt
        self._stopped = stopped
        self._pace = pace
        self._started: list[Ahead] = []
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
                    heappush(active, (first, number, self._start(number, source)))
                    self._reading[number] = source
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

    def _first_times(self) -> list[tuple[int, int, Source]]:
        """Return the inputs that have packets, by the time of the first."""
        starts: list[tuple[int, int, Source]] = []
        for number, source in enumerate(self._sources):
            first = None if self._stopped() else self._attempt(source.first_time)
            if first is not None:
                starts.append((first, number, source))
        return sorted(starts, key=lambda item: item[:2])

    def _start(self, number: int, source: Source) -> Ahead:
        self._started.append(Ahead(source, number, stopped=self._stopped, pace=self._pace))
        return self._started[-1]

    def _end(self, number: int) -> None:
        """Note how far an input has come that has ended."""
        source, (position, packets) = self._reading.pop(number), self._ended
        self._ended = (position + source.position(), packets + source.counters.packets)
