"""Tumbling windows of event time, aligned to the epoch, so that all sites cut alike.

Packets go to their own window while it is open. A window closes once 1,000 packets beyond it have come (and every
input has passed its end); until then those packets are held. What comes for a window that is closed is late: counted,
not lost in silence. A stray timestamp, years away from everything else, closes nothing.

A run that goes on where another ended (`resume_from`) drops what belongs to the windows that are done. Live traffic may
stop or be slow: then a clock closes windows (`tick`), and windows in which nothing came can be asked for (`gaps`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from superhosts.pairs import PacketBatch, Window
from superhosts.units import SECOND

SETTLE = 1000  # packets beyond a window that close it
YEAR = 365 * 86400 * SECOND
MAX_HELD = 1 << 23  # packets held for other windows; beyond that the current window closes early
STRAY_SHARE = 100  # strays are fewer than one in a hundred packets
_CLOCK = -1  # stands for the clock among the inputs that say what to expect


class Piece(NamedTuple):
    """Packets of one window."""

    window: Window
    batch: PacketBatch


class Closed(NamedTuple):
    """A window that will not change any more."""

    window: Window


class TumblingWindows:
    """Cuts a stream of blocks into windows of `length` nanoseconds; None takes everything as one window."""

    def __init__(
        self,
        length: int | None,
        *,
        settle: int = SETTLE,
        resume_from: int | None = None,
        gaps: int = 0,
        reopens: bool = False,
    ) -> None:
        self.length = length
        self.settle = settle
        self.gaps = gaps  # empty windows reported in a row, the last ones before traffic comes again
        self.reopens = reopens  # what is late opens its window again
        self.late = 0
        self.stray = 0
        self.repeated = 0  # packets of windows that an earlier run has done
        self._done = None if resume_from is None or length is None else resume_from // length  # windows below it are
        self._next: int | None = None  # the window after the last one reported
        self._seen = 0
        self._current: int | None = None
        self._frontier: int | None = None  # windows below this one are closed
        self._held: dict[int, list[PacketBatch]] = {}
        self._order: list[int] = []  # the windows that are held, in order: a quiet input may have thousands in a block
        self._waiting = 0  # packets that are held
        self._anchors: dict[int, int] = {}
        self._hull: Window | None = None  # for the one window over everything

    def expect(self, time: int, source: int = 0) -> None:
        """Say that traffic around `time` is no stray; what was said last of an input holds."""
        if self.length is not None:
            self._anchors[source] = time // self.length

    def push(self, block: tuple[PacketBatch, ...], watermark: int | None = None) -> Iterator[Piece | Closed]:
        """Take a block. `watermark`: the time that all inputs have reached, None where there is only one."""
        for batch in block:
            if not len(batch):
                continue
            self._seen += len(batch)
            if self.length is None:
                yield self._take_all(batch)
                continue
            for index, piece in self._cut(batch):
                if index == self._current:
                    yield Piece(self._window(index), piece)
                elif self._done is not None and index < self._done:
                    self.repeated += len(piece)
                    self._next = self._done if self._next is None else self._next
                elif self._frontier is not None and index < self._frontier and not self.reopens:
                    if (self._frontier - index) * self.length > YEAR:
                        self.stray += len(piece)
                    else:
                        self.late += len(piece)
                else:
                    self._hold(index, piece)
        if self._held:
            yield from self._advance(watermark, final=False)

    def tick(self, time: int) -> Iterator[Piece | Closed]:
        """Close the windows that ended at or before `time`: a clock says that nothing more comes for them."""
        if self.length is None:
            return
        limit = time // self.length
        while (index := self._first_open()) is not None and index < limit:
            if index == self._current:
                self._current = None
            else:
                yield from self._release(index)
            yield from self._close(index)
        if self._next is None or self._next >= limit:
            return
        self._anchors[_CLOCK] = limit  # what comes next is no stray, however long this has run
        if self.gaps:
            first, self._next, self._frontier = max(self._next, limit - self.gaps), limit, limit
            for index in range(first, limit):
                yield Closed(self._window(index))

    def earliest(self) -> Window | None:
        """Return the earliest window that is open. May be asked from another thread."""
        if self.length is None:
            return self._hull
        index = self._first_open()
        return None if index is None else self._window(index)

    def finish(self) -> Iterator[Piece | Closed]:
        """Close all that is open: the input has ended."""
        if self.length is None:
            if self._hull is not None:
                yield Closed(self._hull)
            return
        yield from self._advance(None, final=True)
        self.stray += self._waiting
        self._held, self._order, self._waiting = {}, [], 0

    def _take_all(self, batch: PacketBatch) -> Piece:
        first, last = int(batch.time.min()), int(batch.time.max())
        if self._hull is not None:
            first, last = min(first, self._hull.start), max(last, self._hull.end)
        self._hull = Window(first, last)
        return Piece(self._hull, batch)

    def _window(self, index: int) -> Window:
        assert self.length is not None
        return Window(index * self.length, (index + 1) * self.length)

    def _cut(self, batch: PacketBatch) -> list[tuple[int, PacketBatch]]:
        """Split a batch by window; nearly always all of it is of one."""
        assert self.length is not None
        first, last = int(batch.time.min()) // self.length, int(batch.time.max()) // self.length
        if first == last:
            return [(first, batch)]
        indexes = batch.time // self.length
        order = np.argsort(indexes, kind="stable")
        edges = np.flatnonzero(np.diff(indexes[order])) + 1
        return [
            (int(indexes[run[0]]), PacketBatch(batch.family, batch.src[run], batch.dst[run], batch.time[run]))
            for run in np.split(order, edges)
        ]

    def _hold(self, index: int, piece: PacketBatch) -> None:
        if index not in self._held:
            self._held[index] = []
            insort(self._order, index)
        self._held[index].append(piece)
        self._waiting += len(piece)

    def _order_between(self, first: int, last: int) -> list[int]:
        return self._order[bisect_left(self._order, first) : bisect_right(self._order, last)]

    def _count(self, index: int) -> int:
        return sum(len(batch) for batch in self._held.get(index, ()))

    def _is_stray(self, index: int) -> bool:
        """Say whether a held window is years from all that is expected, with next to no packets around it."""
        assert self.length is not None
        if self._current is not None and abs(index - self._current) * self.length <= YEAR:
            return False
        if any(abs(index - anchor) * self.length <= YEAR for anchor in list(self._anchors.values())):
            return False
        reach = YEAR // self.length
        around = sum(map(self._count, self._order_between(index - reach, index + reach)))
        return around < self.settle and around * STRAY_SHARE < self._seen

    def _advance(self, watermark: int | None, *, final: bool) -> Iterator[Piece | Closed]:
        """Open the next window or close the current one, as long as the held packets warrant it."""
        assert self.length is not None
        while True:
            if self._current is None:
                if not final and self._waiting < self.settle:
                    return
                ready = self._first_real(0)
                if ready is None:
                    return
                yield from self._open(ready)
            current = self._current
            assert current is not None
            if not final:
                behind = watermark is not None and watermark < (current + 1) * self.length
                if (behind or self._beyond(current) < self.settle) and self._waiting <= MAX_HELD:
                    return
            older = self._order[: bisect_left(self._order, current)]
            for index in [index for index in older if not self._is_stray(index)]:
                yield from self._release(index)  # older than the first window that settled, and never closed
                yield from self._close(index)
            later = self._first_real(bisect_right(self._order, current))
            self._current = None
            yield from self._close(current)
            if later is not None:
                yield from self._open(later)

    def _close(self, index: int) -> Iterator[Closed]:
        """Report a window, after the empty ones before it where those are asked for."""
        last, self._next, self._frontier = self._next, index + 1, index + 1
        if self.gaps and last is not None:
            for empty in range(max(last, index - self.gaps), index):
                yield Closed(self._window(empty))
        yield Closed(self._window(index))

    def _first_open(self) -> int | None:
        """Return the earliest window with packets that is not closed."""
        current, held = self._current, self._first_real(0)
        return held if current is None or (held is not None and held < current) else current

    def _first_real(self, place: int) -> int | None:
        """Return the first held window from a place in the order on that is no stray."""
        return next((index for index in islice(self._order, place, None) if not self._is_stray(index)), None)

    def _beyond(self, current: int) -> int:
        """Count the packets held for later windows, strays left out."""
        assert self.length is not None
        older = self._order[: bisect_left(self._order, current)]
        far = self._order[bisect_right(self._order, current + YEAR // self.length) :]
        return self._waiting - sum(map(self._count, [*older, *(index for index in far if self._is_stray(index))]))

    def _open(self, index: int) -> Iterator[Piece]:
        self._current = index
        yield from self._release(index)

    def _release(self, index: int) -> Iterator[Piece]:
        del self._order[bisect_left(self._order, index)]
        for batch in self._held.pop(index):
            self._waiting -= len(batch)
            yield Piece(self._window(index), batch)
