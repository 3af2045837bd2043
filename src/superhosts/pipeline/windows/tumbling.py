"""Tumbling windows of event time, aligned to the epoch, so that all sites have the same windows.

Packets go to their own window while it is open. A window closes once 1,000 packets beyond it have come (and every
input has passed its end); until then those packets are held. What comes for a window that is closed is late. It is
counted, or it opens its window again (`reopens`), or its window is noted to be read a second time (`revises`), or, in
live traffic (`wall`), it waits until it is known whether the clock was set back (jumps.py). A stray timestamp, years
away from everything else, closes nothing.

Every packet is in a piece, late, stray or repeated, and in one of them only. The work grows with packets and windows
and with nothing else: whether a time is stray is decided by year, and times of 64 bits span fewer than 600 years.

A run that goes on where another ended (`resume_from`) drops what belongs to the windows that are done. Live traffic may
stop or be slow: then a clock closes windows (`tick`), and windows in which nothing came can be asked for (`gaps`).
With `joins`, a whole input that is shorter than a window is one window (short.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from superhosts.core.pairs import PacketBatch, PacketBlock, Window
from superhosts.pipeline.windows.events import Closed, Event, Piece, PutOff, split_by_window
from superhosts.pipeline.windows.held import LIMITS, Held, Limits, is_far_behind
from superhosts.pipeline.windows.jumps import AHEAD, BEHIND, Jump, OffTime
from superhosts.pipeline.windows.short import ShortInput

SETTLE = 1000  # packets beyond a window that close it
STRAY_SHARE = 100  # strays are fewer than one in a hundred packets
_CLOCK = -1  # the number of the clock among the inputs


class TumblingWindows:
    """Splits a stream of blocks into windows of `length` nanoseconds; with None everything is one window."""

    def __init__(
        self,
        length: int | None,
        *,
        settle: int = SETTLE,
        resume_from: int | None = None,
        gaps: int = 0,
        reopens: bool = False,
        revises: bool = False,
        joins: bool = False,
        wall: Callable[[], int] | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self.length = length
        self.settle = settle
        self.gaps = gaps  # empty windows reported in a row, the last ones before traffic comes again
        self.reopens = reopens  # what is late opens its window again
        self.revises = revises  # windows that get late packets are to be read again
        self.put_off: dict[int, int] = {}  # windows to read again, and how many packets were too late for each
        self.repeated = 0  # packets of windows that an earlier run has done
        self._late = 0
        self._stray = 0
        self._limits = limits
        self._short = ShortInput(length) if joins and length is not None else None  # None: the input is longer
        self._off = OffTime(length, settle, wall, limits) if wall is not None and length is not None else None
        self._done = (
            None if resume_from is None or length is None else resume_from // length
        )  # index of the first window not yet done
        self._next: int | None = None  # the window after the last one reported
        self._seen = 0
        self._current: int | None = None
        self._frontier: int | None = None  # index of the first window not yet closed
        self._held = Held(length or 1)
        self._older = 0  # packets held for windows before the current one, of the same year
        self._aside = 0  # packets held in stray years, or in years before the current window's
        self._strays: frozenset[int] = frozenset()  # years held whose times are stray
        self._anchors: dict[int, int] = {}  # by input, the year in which it is expected
        self._expected: Counter[int] = Counter()  # years: inputs that are expected there
        self._opened: set[int] = set()  # years in which a window was opened
        self._year: int | None = None  # of the window that was opened last
        self._hull: Window | None = None  # for the one window over everything

    @property
    def late(self) -> int:
        """Packets that came too late for their window."""
        return self._late + (self._off.late if self._off is not None else 0)

    @property
    def stray(self) -> int:
        """Packets with a stray time."""
        return self._stray + (self._off.stray if self._off is not None else 0)

    @property
    def waiting(self) -> int:
        """Packets held for windows that are not open yet."""
        return self._held.count

    def expect(self, time: int, source: int = 0) -> None:
        """Accept traffic around `time` as no stray. The last call for an input counts."""
        if self.length is None:
            return
        index = time // self.length
        if self._off is not None and self._off.newest is None:
            self._off.newest = index
        self._anchor(self._held.year_of(index), source)

    def _anchor(self, year: int, source: int) -> None:
        if source in self._anchors:
            self._expected[self._anchors[source]] -= 1
        self._anchors[source] = year
        self._expected[year] += 1

    def horizon(self) -> int | None:
        """Return the time beyond which packets are off their time; None if it is not known or not checked."""
        return self._off.horizon() if self._off is not None else None

    def push(self, block: PacketBlock, watermark: int | None = None) -> Iterator[Event]:
        """Take a block. `watermark`: the time that all inputs have reached; None if there is only one."""
        for batch in block:
            if not len(batch):
                continue
            self._seen += len(batch)
            if self.length is None:
                yield self._take_all(batch)
                continue
            for index, piece in split_by_window(batch, self.length):
                if self._short is not None:
                    self._short.note(index, piece.span)
                if index == self._current or (self._short is not None and index == self._short.first):
                    yield Piece(self._window(index), piece)
                else:
                    yield from self._sort(index, piece)
        if self._short is not None and self._short.first is not None and self._short.is_over(self._open_ones()):
            yield from self.split()
        if self._off is not None:
            self._off.look([batch for batch in block if len(batch)], self._frontier)
            while (direction := self._off.jumped()) is not None:
                yield from self._jump(direction)
        # Fewer packets neither open nor close a window.
        if self._held.count >= self.settle or self._held.pieces > self._limits.pieces:
            yield from self._advance(watermark, final=False)

    def tick(self, time: int) -> Iterator[Event]:
        """Close the windows that ended at or before `time`: by the clock no more packets come for them."""
        if self.length is None:
            return
        if self._off is not None and (direction := self._off.jumped_by(time)) is not None:
            yield from self._jump(direction)
            return  # the last packets set the clock, too
        limit = time // self.length
        self._judge()
        while (index := self._first_open(self._strays)) is not None and index < limit:
            if index == self._current:
                self._current = None
            else:
                yield from self._release(index)
            yield from self._close(index)
        if self._next is None or self._next >= limit:
            return
        self._anchor(self._held.year_of(limit), _CLOCK)  # packets that follow are no strays, however long this has run
        if self.gaps:
            first, self._next, self._frontier = max(self._next, limit - self.gaps), limit, limit
            for index in range(first, limit):
                yield Closed(self._window(index))

    def earliest(self) -> Window | None:
        """Return the earliest window that is open. May be asked from another thread."""
        if self.length is None:
            return self._hull
        found = [self._first_open(self._find_strays()), self._off.returning() if self._off is not None else None]
        found += self._open_ones()[:1]
        return min((self._window(index) for index in found if index is not None), default=None)

    def finish(self) -> Iterator[Event]:
        """Close all open windows: the input has ended."""
        if self.length is None:
            if self._hull is not None:
                yield Closed(self._hull)
            return
        if self._off is not None and (direction := self._off.jumped_at_end()) is not None:
            yield from self._jump(direction)
        if self._short is not None:
            yield from self._join()
        yield from self._advance(None, final=True)
        self._stray += self._held.count
        self._held = Held(self.length)
        self._forget_strays_put_off()

    def split(self) -> Iterator[Event]:
        """Give up joining windows: the input is longer than one, or its end will not be known."""
        short, self._short = self._short, None
        if short is not None and short.first is not None:
            yield from self._close_older(short.first)
            yield from self._close(short.first)

    def _open_ones(self) -> list[int]:
        """Return the windows that take packets at once: the current one, after the one that stays open beside it."""
        first = None if self._short is None else self._short.first
        return [index for index in (first, self._current) if index is not None]

    def _all_windows(self) -> list[int]:
        """Return all windows that have packets and are not closed, without strays."""
        held = [index for index in self._held.windows if self._held.year_of(index) not in self._strays]
        return self._open_ones() + held

    def _keeps_open(self, current: int) -> bool:
        """Return True if the current window, which would close now, may be one with the next."""
        if self._short is None or self._short.first is not None:
            return False
        return self._first_real(self._strays) == current + 1 and not self._short.is_over(self._all_windows())

    def _join(self) -> Iterator[Event]:
        """At the end, close all windows as one if the input is short."""
        assert self._short is not None
        self._judge()
        indexes = sorted(self._all_windows())
        if len(indexes) < 2 or self._short.is_over(indexes):
            yield from self.split()
            return
        hull, is_open = self._short.hull(indexes), self._open_ones()
        for index in indexes:
            if index not in is_open:
                yield from self._release(index)
        self._short = self._current = None
        yield Closed(hull, tuple(self._window(index).start for index in indexes))

    def _take_all(self, batch: PacketBatch) -> Piece:
        first, last = batch.span
        if self._hull is not None:
            first, last = min(first, self._hull.start), max(last, self._hull.end)
        self._hull = Window(first, last)
        return Piece(self._hull, batch)

    def _window(self, index: int) -> Window:
        assert self.length is not None
        return Window(index * self.length, (index + 1) * self.length)

    def _sort(self, index: int, piece: PacketBatch) -> Iterator[PutOff]:
        """Hold, count or put off packets that are not of the current window."""
        assert self.length is not None
        if self._done is not None and index < self._done:
            self.repeated += len(piece)
            self._next = self._done if self._next is None else self._next
        elif self._frontier is not None and index < self._frontier and not self.reopens:
            if self._off is not None:
                self._off.wait(BEHIND, index, piece, self._frontier)
            elif self.revises and (index in self.put_off or len(self.put_off) < self._limits.put_off):
                self.put_off[index] = self.put_off.get(index, 0) + len(piece)
                self._late += len(piece)  # until it is read again
                yield PutOff(piece)
            elif is_far_behind(index, self._frontier, self.length):
                self._stray += len(piece)
            else:
                self._late += len(piece)
        elif self._off is not None and self._off.is_ahead(index):
            self._off.wait(AHEAD, index, piece, self._frontier)
        else:
            self._hold(index, piece)

    def _hold(self, index: int, piece: PacketBatch) -> None:
        self._held.add(index, piece)
        current = self._current
        if current is not None and index < current and self._held.year_of(index) == self._held.year_of(current):
            self._older += len(piece)

    # Strays

    def _is_expected(self, year: int) -> bool:
        """Return True if an input is expected in a year or beside it, or a window was opened there."""
        return any(self._expected[near] or near in self._opened for near in (year - 1, year, year + 1))

    def _are_few(self, packets: int) -> bool:
        return packets < self.settle and packets * STRAY_SHARE < self._seen

    def _find_strays(self) -> frozenset[int]:
        """Return the held years that are far from all that is expected, with next to no packets around them."""
        packets = self._held.packets
        return frozenset(
            year
            for year in self._held.years[:]
            if self._are_few(packets(year - 1) + packets(year) + packets(year + 1)) and not self._is_expected(year)
        )

    def _judge(self) -> None:
        """Decide which held packets do not count as later than the current window.

        Nothing that happens until the next block, or until a window of another year opens, changes the answer.
        """
        self._strays = self._find_strays()
        current = None if self._current is None else self._held.year_of(self._current)
        years = (y for y in self._held.years if y in self._strays or (current is not None and y < current))
        self._aside = sum(map(self._held.packets, years))

    def _forget_strays_put_off(self) -> None:
        """Count packets that were put off as strays if they are years away from all others, as in a first reading."""
        packets: Counter[int] = Counter()
        for index, count in self.put_off.items():
            packets[self._held.year_of(index)] += count
        strays = {
            year
            for year in packets
            if not self._is_expected(year) and self._are_few(packets[year - 1] + packets[year] + packets[year + 1])
        }
        for index in [index for index in self.put_off if self._held.year_of(index) in strays]:
            self._stray += self.was_read_again(index)

    def was_read_again(self, index: int) -> int:
        """Remove a window from those to read again; return how many packets were too late for it."""
        packets = self.put_off.pop(index)
        self._late -= packets
        return packets

    # Opening and closing

    def _advance(self, watermark: int | None, *, final: bool) -> Iterator[Event]:
        """Open the next window or close the current one, as long as the held packets require it."""
        assert self.length is not None
        self._judge()
        while True:
            if self._current is None:
                if not final and self._held.count < self.settle:
                    return
                ready = self._first_real(self._strays)
                if ready is None:
                    return
                yield from self._open(ready)
            current = self._current
            assert current is not None
            if not final:
                behind = watermark is not None and watermark < (current + 1) * self.length
                full = self._held.count > self._limits.packets or self._held.pieces > self._limits.pieces
                if (behind or self._beyond() < self.settle) and not full:
                    return
                if self._short is not None and self._keeps_open(current):
                    self._short.first = current
                    yield from self._open(current + 1)
                    continue
            yield from self.split()
            yield from self._close_older(current)
            later = self._first_real(self._strays)
            self._current = None
            yield from self._close(current)
            if later is not None:
                yield from self._open(later)

    def _close_older(self, current: int) -> Iterator[Event]:
        """Report held windows that are older than the current one, and were never closed."""
        moved = False
        while (index := self._first_real(self._strays)) is not None and index < current:
            moved = True
            yield from self._release(index)
            yield from self._close(index)
        if moved:
            self._judge()

    def _jump(self, direction: int) -> Iterator[Event]:
        """Follow the traffic to another time. After a jump back windows that were closed open again."""
        assert self._off is not None
        before, group = self._off.newest, self._off.take(direction)
        most = max(map(group.packets, group.years))
        years = [year for year in group.years if group.packets(year) * 10 >= most]
        windows = sorted(group.windows)
        real = [index for index in windows if self._held.year_of(index) in years]
        if direction == BEHIND:
            yield from self._advance(None, final=True)  # no more packets come for those windows
            self._frontier = self._next = real[0]
        self._off.newest = real[-1]
        self._opened.update(years)
        before = real[-1] if before is None else before
        yield Jump((real[-1] - before) * group.length, self._window(real[0]))
        for index in windows:
            for piece in group.windows[index]:
                if self._held.year_of(index) in years:
                    self._hold(index, piece)
                else:
                    self._stray += len(piece)

    def _close(self, index: int) -> Iterator[Closed]:
        """Report a window, after the empty ones before it where those are asked for."""
        self._take_over()
        if self._off is not None:
            self._off.drop_passed()
        last, self._next, self._frontier = self._next, index + 1, index + 1
        if self.gaps and last is not None:
            for empty in range(max(last, index - self.gaps), index):
                yield Closed(self._window(empty))
        yield Closed(self._window(index))

    def _take_over(self) -> None:
        """Once a window opens that the earlier run has not done, packets for older windows are late, not repeated."""
        if self._done is not None and (self.reopens or self._off is not None):
            self._frontier, self._done = self._done, None

    def _first_open(self, strays: frozenset[int]) -> int | None:
        """Return the earliest window with packets that is not closed."""
        current, held = self._current, self._first_real(strays)
        return held if current is None or (held is not None and held < current) else current

    def _first_real(self, strays: frozenset[int]) -> int | None:
        """Return the first held window that is no stray."""
        years = (year for year in self._held.years[:] if year not in strays)
        return next((first for year in years if (first := self._held.first(year)) is not None), None)

    def _beyond(self) -> int:
        """Count the packets held for later windows, strays left out."""
        return self._held.count - self._aside - self._older

    def _open(self, index: int) -> Iterator[Piece]:
        self._take_over()
        if self._off is not None:
            self._off.newest = index  # most of the traffic is here, even if strays came first
        year, before = self._held.year_of(index), self._year
        self._current, self._older, self._year = index, 0, year
        yield from self._release(index)
        if year != before:
            self._opened.add(year)
            self._judge()

    def _release(self, index: int) -> Iterator[Piece]:
        current, pieces = self._current, self._held.pop(index)
        if current is not None and index < current and self._held.year_of(index) == self._held.year_of(current):
            self._older -= sum(map(len, pieces))
        for batch in pieces:
            yield Piece(self._window(index), batch)
