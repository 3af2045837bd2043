"""Tumbling windows of event time, aligned to the epoch, so that all sites have the same windows.

Packets go to their own window while it is open. A window closes once 1,000 packets beyond it have come (and every
input has passed its end); until then those packets are held (`Held`). What comes for a window that is closed is late:
it is counted, opens its window again (`reopens`), has it read a second time (`revises`) or, in live traffic (`wall`),
waits until it is known whether the clock was set back (`OffTime`). A stray timestamp, years away from everything else,
closes nothing. Every packet is in a piece, late, stray or repeated, and in one of them only.

The work grows with packets and windows alone: whether a time is stray is decided by year. A run that goes on where
another ended (`resume_from`) drops what is done. In live traffic a clock closes windows, too (`tick`), and empty
windows can be asked for (`gaps`). With `joins`, a whole input that is shorter than a window is one (`ShortInput`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import PacketBatch, PacketBlock, Window
from superhosts.core.units import SECOND

YEAR = 365 * 86400 * SECOND


class Limits(NamedTuple):
    packets: int = 1 << 23  # held for other windows; beyond that, or `pieces`, the current window closes early
    pieces: int = 1 << 18  # one packet in each of very many windows takes more memory than the packets
    off_time: int = 1 << 20  # packets that lie off their time, in one direction
    put_off: int = 1 << 20  # windows noted to be read a second time; what is late for further ones stays late


LIMITS = Limits()


def is_far_behind(index: int, frontier: int, length: int) -> bool:
    """Return True if a window ends more than a year before the first one that is not closed begins."""
    return (frontier - index - 1) * length > YEAR


class Held:
    """Packets that are held until their window opens. A piece in, or a year's first window out, costs a logarithm."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.count = 0  # packets
        self.strays = 0  # of these, if they wait off their time: those that count as stray, and not as late
        self.pieces = 0
        self.windows: dict[int, list[PacketBatch]] = {}
        self.packets: Counter[int] = Counter()  # by year
        self._heaps: dict[int, list[int]] = {}  # windows by year, the earliest first

    @property
    def years(self) -> list[int]:
        return sorted(self._heaps)

    def year_of(self, index: int) -> int:
        return index * self.length // YEAR

    def add(self, index: int, piece: PacketBatch) -> None:
        year = self.year_of(index)
        if index not in self.windows:
            heapq.heappush(self._heaps.setdefault(year, []), index)
        self.windows.setdefault(index, []).append(piece)
        self.packets[year] += len(piece)
        self.count += len(piece)
        self.pieces += 1

    def pop(self, index: int) -> list[PacketBatch]:
        """Remove and return all packets of a window, which is the first of its year."""
        year = self.year_of(index)
        first = heapq.heappop(self._heaps[year])
        assert first == index
        pieces = self.windows.pop(index)
        packets = sum(map(len, pieces))
        self.packets[year] -= packets
        self.count -= packets
        self.pieces -= len(pieces)
        if not self._heaps[year]:
            del self.packets[year], self._heaps[year]
        return pieces

    def first(self, years: Iterable[int]) -> int | None:
        """Return the earliest window of the first of these years that holds packets."""
        return next((self._heaps[year][0] for year in years if year in self._heaps), None)


AHEAD, BEHIND = 1, -1
NEARLY_ALL = 0.9  # share of the last packets that a jump needs
SLOW_PACKETS = 10  # packets that are enough in slow traffic, after a window's length by the clock
MARGIN = 60 * SECOND  # less than this is never far ahead


class Jump(NamedTuple):
    by: int  # nanoseconds; negative: back
    window: Window  # the earliest one that the traffic has jumped to


class OffTime:
    """The packets off their time, in both directions, until it is known what they are.

    Times jump when a clock is set while traffic runs. A packet is off its time if its window is closed already
    (behind), or if it lies far ahead of the traffic before it, which may pause for hours, and of this machine's clock,
    which may differ from the one that stamps packets. Such packets wait. If nearly all that follow are off in the same
    direction, the traffic has jumped, and they go to their windows; if it goes on where it was, they are late or stray.
    """

    def __init__(self, length: int, settle: int, wall: Callable[[], int], limits: Limits = LIMITS) -> None:
        """`settle`: packets over which a jump is judged. `wall`: this machine's clock, in nanoseconds."""
        self.late = 0  # behind; those that wait included
        self.stray = 0  # ahead, or more than a year behind
        self.newest: int | None = None  # the latest window that the traffic has come to
        self._length, self._settle, self._wall, self._limits = length, settle, wall, limits
        self._needed = max(1, round(NEARLY_ALL * settle))
        self._margin = -(-max(length, MARGIN) // length)  # in windows
        self._reset()

    def _reset(self) -> None:
        self._groups = {AHEAD: Held(self._length), BEHIND: Held(self._length)}
        self._last = np.empty(0, np.int8)  # directions of the last packets, from the first on that waits; 0: in time
        self._tails: set[int] = set()  # directions of the last packets of each family
        self._seen: set[int] = set()  # directions in which the traffic has jumped
        self._since: int | None = None  # when the clock first saw that packets wait

    def horizon(self) -> int | None:
        """Return the time up to which packets are believed; None before the first."""
        if self.newest is None:
            return None
        return (max(self.newest, self._wall() // self._length) + self._margin + 1) * self._length

    def is_ahead(self, index: int) -> bool:
        """Return True if a window is far ahead of the traffic and of the clock. Else the traffic has come to it."""
        newest = index if self.newest is None else self.newest
        if index > newest + self._margin and index > self._wall() // self._length + self._margin:
            return True
        self.newest = max(newest, index)
        return False

    def wait(self, direction: int, index: int, piece: PacketBatch, frontier: int | None) -> None:
        """Let packets wait until `jumped`, or until they are dropped."""
        group = self._groups[direction]
        if group.count + len(piece) > self._limits.off_time or group.pieces >= self._limits.pieces:
            self._drop(direction)
            group = self._groups[direction]
        group.add(index, piece)
        if direction == AHEAD or (frontier is not None and is_far_behind(index, frontier, self._length)):
            group.strays += len(piece)
            self.stray += len(piece)
        else:
            self.late += len(piece)

    def look(self, batches: list[PacketBatch], frontier: int | None) -> None:
        """Note in which directions the packets of a block lie; the pieces of the block have found their place."""
        self._tails = set()
        if not self.waiting:
            return
        for batch in batches:
            index = batch.time // self._length
            ahead = index > self.newest if self.newest is not None else np.zeros(len(index), bool)
            behind = index < frontier if frontier is not None else np.zeros(len(index), bool)
            directions = ahead.astype(np.int8) - behind.astype(np.int8)
            if not len(self._last):  # what came before the first that waits says nothing
                directions = directions[np.argmax(directions != 0) :] if directions.any() else directions[:0]
            last = np.concatenate([self._last, directions])
            self._seen |= {direction for direction in self._groups if self._most(last == direction) >= self._needed}
            self._last = last[-self._settle :]
            self._tails |= set(directions[-1:].tolist())

    def _most(self, packets: NDArray[np.bool_]) -> int:
        """Return how many of as many packets in a row as a jump is judged by are of a kind, at most."""
        sums = np.concatenate([[0], np.cumsum(packets)])
        return int((sums[self._settle :] - sums[: -self._settle]).max() if len(packets) >= self._settle else sums[-1])

    def jumped(self) -> int | None:
        return next((d for d in (BEHIND, AHEAD) if d in self._seen and self._groups[d].count), None)

    def jumped_by(self, time: int) -> int | None:
        """Return the direction in which slow traffic has jumped: no other packets came for a window's length."""
        if not self.waiting:
            return None
        if self._since is None:
            self._since = time
        if time - self._since < self._length:
            return None
        return self._dominant(self._last, SLOW_PACKETS)

    def jumped_at_end(self) -> int | None:
        return self._dominant(self._last[-SLOW_PACKETS:], 1)

    def _dominant(self, last: NDArray[np.int8], least: int) -> int | None:
        for direction, group in self._groups.items():
            count = int((last == direction).sum())
            if group.count and count >= least and count >= NEARLY_ALL * len(last):
                return direction
        return None

    def take(self, direction: int) -> Held:
        """Hand out the packets of a jump; those of the other direction are dropped unless they have jumped, too."""
        group, other = self._groups[direction], -direction
        self.stray -= group.strays
        self.late -= group.count - group.strays
        kept, has_jumped = self._groups[other], other in self._seen
        self._reset()
        if has_jumped:
            self._groups[other], self._seen = kept, {other}
        return group

    def drop_passed(self) -> None:
        """Drop the packets of directions in which the traffic did not go on: another window has closed meanwhile."""
        for direction, group in self._groups.items():
            if group.count and direction not in self._tails:
                self._drop(direction)

    def _drop(self, direction: int) -> None:
        self._groups[direction] = Held(self._length)
        self._seen.discard(direction)
        if not self.waiting:
            self._reset()

    def returning(self) -> int | None:
        group = self._groups[BEHIND]
        return group.first(group.years) if BEHIND in self._tails else None

    @property
    def waiting(self) -> int:
        return sum(group.count for group in self._groups.values())


class Piece(NamedTuple):
    window: Window
    batch: PacketBatch


class Closed(NamedTuple):
    window: Window
    starts: tuple[int, ...] = ()  # of the windows that it joins; none: it is the one that begins at its start


class PutOff(NamedTuple):
    """Packets of a window that is closed; it is to be read again."""

    batch: PacketBatch


Event = Piece | Closed | PutOff | Jump


def split_by_window(batch: PacketBatch, length: int) -> Iterator[tuple[int, PacketBatch]]:
    """Split a batch by window, the earliest first. Nearly every batch belongs to one window."""
    if not len(batch):
        return
    first, last = batch.span[0] // length, batch.span[1] // length
    if first == last:
        yield first, batch
        return
    times, start = batch.time, 0
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times // length, kind="stable")
        times, batch = times[order], batch.take(order, batch.span)
    while start < len(times):  # A binary search finds where a window ends, in whatever order the times before are.
        index = int(times[start]) // length
        end = int(np.searchsorted(times, (index + 1) * length)) if index < last else len(times)
        yield index, batch.take(slice(start, end))
        start = end


class ShortInput:
    """The times of the packets of each window, as long as all of them may belong to one.

    The first two windows stay open side by side until the input ends, where they are merged, or is known to be longer.
    """

    def __init__(self, length: int) -> None:
        self.first: int | None = None  # index of the window that stays open beside the current one
        self._length = length
        self._spans: dict[int, tuple[int, int]] = {}

    def note(self, index: int, span: tuple[int, int]) -> None:
        first, last = self._spans.get(index, span)
        self._spans[index] = min(first, span[0]), max(last, span[1])

    def hull(self, indexes: Iterable[int]) -> Window:
        spans = [self._spans[index] for index in indexes]
        return Window(min(first for first, _ in spans), max(last for _, last in spans))

    def is_over(self, indexes: Iterable[int]) -> bool:
        hull = self.hull(indexes)
        return hull.end - hull.start >= self._length


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
        # Index of the first window not yet done
        self._done = None if resume_from is None or length is None else resume_from // length
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
        return self._late + (self._off.late if self._off is not None else 0)

    @property
    def stray(self) -> int:
        return self._stray + (self._off.stray if self._off is not None else 0)

    @property
    def waiting(self) -> int:
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
                first, last = batch.span
                if self._hull is not None:
                    first, last = min(first, self._hull.start), max(last, self._hull.end)
                self._hull = Window(first, last)
                yield Piece(self._hull, batch)
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
        self._anchor(self._held.year_of(limit), _CLOCK)  # packets that follow are not strays, however long this has run
        if self.gaps:
            first, self._next, self._frontier = max(self._next, limit - self.gaps), limit, limit
            for index in range(first, limit):
                yield Closed(self._window(index))

    def earliest(self) -> Window | None:
        """Return the earliest window that is open. May be asked from another thread."""
        if self.length is None:
            return self._hull
        found = [
            self._first_open(self._strays_among(self._held.packets)),
            self._off.returning() if self._off is not None else None,
        ]
        found += self._open_ones()[:1]
        return min((self._window(index) for index in found if index is not None), default=None)

    def finish(self) -> Iterator[Event]:
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
        held = [index for index in self._held.windows if self._held.year_of(index) not in self._strays]
        return self._open_ones() + held

    def _keeps_open(self, current: int) -> bool:
        """Return True if the current window, which would close now, may be one with the next."""
        if self._short is None or self._short.first is not None:
            return False
        return self._first_real(self._strays) == current + 1 and not self._short.is_over(self._all_windows())

    def _join(self) -> Iterator[Event]:
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

    def _window(self, index: int) -> Window:
        assert self.length is not None
        return Window(index * self.length, (index + 1) * self.length)

    def _sort(self, index: int, piece: PacketBatch) -> Iterator[PutOff]:
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

    def _strays_among(self, packets: Counter[int]) -> frozenset[int]:
        """Return the years of packets that are far from all that is expected, with next to none around them."""
        near = {year: packets[year - 1] + packets[year] + packets[year + 1] for year in packets}
        few = (year for year, count in near.items() if count < self.settle and count * STRAY_SHARE < self._seen)
        known = self._opened | {year for year, inputs in self._expected.items() if inputs}
        return frozenset(year for year in few if not known & {year - 1, year, year + 1})

    def _judge(self) -> None:
        """Decide which held packets do not count as later than the current window.

        Nothing that happens until the next block, or until a window of another year opens, changes the answer.
        """
        self._strays = self._strays_among(self._held.packets)
        current = None if self._current is None else self._held.year_of(self._current)
        years = (y for y in self._held.packets if y in self._strays or (current is not None and y < current))
        self._aside = sum(self._held.packets[year] for year in years)

    def _forget_strays_put_off(self) -> None:
        """Count packets that were put off as strays if they are years away from all others, as in a first reading."""
        packets: Counter[int] = Counter()
        for index, count in self.put_off.items():
            packets[self._held.year_of(index)] += count
        strays = self._strays_among(packets)
        for index in [index for index in self.put_off if self._held.year_of(index) in strays]:
            self._stray += self.was_read_again(index)

    def was_read_again(self, index: int) -> int:
        """Remove a window from those to read again; return how many packets were too late for it."""
        packets = self.put_off.pop(index)
        self._late -= packets
        return packets

    # Opening and closing

    def _advance(self, watermark: int | None, *, final: bool) -> Iterator[Event]:
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
                beyond = self._held.count - self._aside - self._older  # packets of later windows, strays left out
                if (behind or beyond < self.settle) and not full:
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
        most = max(group.packets.values())
        years = [year for year, packets in group.packets.items() if packets * 10 >= most]
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
        current, held = self._current, self._first_real(strays)
        return held if current is None or (held is not None and held < current) else current

    def _first_real(self, strays: frozenset[int]) -> int | None:
        return self._held.first(year for year in self._held.years if year not in strays)

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
