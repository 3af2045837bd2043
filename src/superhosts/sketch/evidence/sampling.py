"""The sample of an open window: the pairs with the smallest hashes so far, and what is known of them.

Each packet costs a hash and a comparison with the limit (`limits.py`). Once the window has many more pairs than the
sample, nearly all of them end there. The others wait in a buffer. When it is full, packets above the limit, which has
fallen meanwhile, are dropped before anything else was done with them. Only if that does not make room, the packets find
the rows of their pairs in a table (`pairrows.py`).

The limit only falls, so a pair that is in the sample in the end was never turned away, and all of its packets are
noted. Threads have buffers and tables of their own, which are merged when the window closes: what is in them does not
depend on who saw which packet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel
from superhosts.core.hashing import Key, fold, mangle64, pair_hash
from superhosts.core.packetdetails import SKIPPED, Details
from superhosts.core.pairs import Addresses, PacketBatch, Times
from superhosts.core.stopwatch import timed
from superhosts.jit.compiled import compiled
from superhosts.sketch.evidence.limits import LIMIT, admit, new_reach, places_of
from superhosts.sketch.evidence.pairrows import (
    TURNED,
    WAITING_DETAIL,
    WAITING_ENDS,
    WAITING_HASH,
    WAITING_TIME,
    Table,
    Words,
    compact,
    empty_table,
    note,
)
from superhosts.sketch.evidence.rows import HASH, NARROW, WIDE, Rows, smallest, sorted_rows, united

MOST_LANES = 4  # threads that write at the same time
WAITING = {4: 1 << 19, 6: 1 << 18}  # packets of a family that wait in a lane
WAITING_WORDS = {4: 3, 6: 7}  # of each of them
GATHERED = 1 << 16  # packets that are gathered before it is asked which of them count
BLOCK = 1024  # packets that are looked at together
SKIPPED_BIT = SKIPPED.bit_length() - 1

CountPackets = Callable[[PacketBatch], NDArray[np.uint8]]

_U = np.uint64
_ONE = _U(1)


class Room(NamedTuple):
    """Room for packets that wait."""

    rows: Words
    src: Addresses  # of those that were gathered last
    dst: Addresses


@compiled
def hash_narrow(src: np.uint32, dst: np.uint32, key: Key) -> np.uint64:
    """Return the hash of the pair of two IPv4 addresses, which is a bijection, the same in both directions."""
    pair: Any = _U(min(src, dst)) << _U(32) | _U(max(src, dst))
    return _U(mangle64(pair, key))


@compiled
def _hash_wide(src: Addresses, dst: Addresses, i: np.uint64, turned: bool, key: Key) -> np.uint64:
    """Return the hash of the pair of two IPv6 addresses, the same in both directions."""
    here, there = fold(src[i, 0], src[i, 1], key), fold(dst[i, 0], dst[i, 1], key)
    return _U(pair_hash(there, here, key) if turned else pair_hash(here, there, key))


@compiled
def gather(
    src: Addresses,
    dst: Addresses,
    said: tuple[Times, Details],
    first: int,
    sought: tuple[np.uint64, Key],
    room: Room,
    used: int,
) -> tuple[int, int]:
    """Let packets wait that the source has not left out, and whose pairs have hashes up to a limit.

    Begin with number `first`; return how many were looked at, all unless there is no room, and how many wait.
    """
    time, details = said
    limit, key = sought
    rows, sources, targets = room
    chosen, new = np.empty(BLOCK, np.uint32), _U(0)
    start, before = first, _U(used)
    most = min(len(rows), used + len(sources))
    while start < len(src) and used < most:
        part = details[start : start + min(BLOCK, most - used)]
        count: Any = 0
        for i in range(len(part)):  # written always, so that nothing is predicted wrongly
            chosen[count] = i
            count += 1 - np.int64((part[i] >> _U(SKIPPED_BIT)) & _ONE)
        for number in range(count):  # likewise
            at, place = _U(start) + _U(chosen[number]), before + new
            if src.ndim == 1:
                turned = src[at] > dst[at]
                sources[new], targets[new] = src[at], dst[at]
                hashed = hash_narrow(src[at], dst[at], key)
            else:
                turned = src[at, 0] > dst[at, 0] or (src[at, 0] == dst[at, 0] and src[at, 1] > dst[at, 1])
                for word in range(2):
                    sources[new, word], targets[new, word] = src[at, word], dst[at, word]
                    rows[place, WAITING_ENDS + word] = dst[at, word] if turned else src[at, word]
                    rows[place, WAITING_ENDS + 2 + word] = src[at, word] if turned else dst[at, word]
                hashed = _hash_wide(src, dst, at, turned, key)
            rows[place, WAITING_HASH] = hashed
            rows[place, WAITING_DETAIL] = details[at] | (_U(TURNED) if turned else _U(0))
            rows[place, WAITING_TIME] = _U(time[at])
            new += _U(hashed <= limit)
        start, used = start + len(part), np.int64(before + new)  # type: ignore[assignment]
    return start, used


@compiled
def _drop_above(waiting: Words, used: int, limit: np.uint64) -> int:
    """Remove packets with hashes above a limit; return how many wait then."""
    kept = 0
    for number in range(used):
        if waiting[number, WAITING_HASH] <= limit:
            for word in range(waiting.shape[1]):
                waiting[kept, word] = waiting[number, word]
            kept += 1
    return kept


def memory_of(size: int) -> int:
    """Return the most bytes that the samples of one window take, in both families, while it is open."""
    lane = sum(8 * WAITING_WORDS[family] * WAITING[family] for family in (4, 6)) + 2 * GATHERED * (4 + 16)
    return MOST_LANES * (lane + 8 * 2 * size * (NARROW + WIDE) + 2 * 32 * size) + 2 * 8 * places_of(size)


def compile_rest(family: int) -> None:
    """Compile what only packets beyond the first ones need."""
    lane = _Lane(family, 2)
    _drop_above(lane.room.rows, 0, _U(0))
    compact(empty_table(2, NARROW if family == 4 else WIDE), _U(0))


class _Lane:
    """What one thread at a time writes to: packets that wait, and a table of rows."""

    def __init__(self, family: int, size: int) -> None:
        most = WAITING[family]
        shape, kind = ((), np.uint32) if family == 4 else ((2,), np.uint64)
        ends = (np.empty((min(most, GATHERED), *shape), kind) for _ in range(2))
        self.room = Room(np.empty((most, WAITING_WORDS[family]), np.uint64), *ends)
        self.used = 0  # packets that wait
        self._size, self._width = size, NARROW if family == 4 else WIDE
        self._table: Table | None = None  # most windows need none: their packets all wait

    def make_room(self, limit: int) -> None:
        """Drop what is above the limit. If that is too little, put the packets that wait into the table."""
        self.used = int(_drop_above(self.room.rows, self.used, _U(limit)))
        if 2 * self.used > len(self.room.rows):
            self.absorb(limit)

    def absorb(self, limit: int) -> None:
        """Put the packets that wait into the table."""
        if self._table is None:
            self._table = empty_table(self._size, self._width)
        done = 0
        while (done := note(self.room.rows, done, self.used, _U(limit), self._table)) < self.used:
            limit = smallest(self._table.rows[:, HASH], self._size)
            compact(self._table, _U(limit))
        self.used = 0

    def rows(self, limit: int) -> Rows:
        """Return the rows of this lane in the order of hashes."""
        self.absorb(limit)
        assert self._table is not None
        return sorted_rows(self._table.rows[: self._table.used[0]], self._size)


class OpenSample:
    """The sample of one window that takes packets of one address family. Any number of threads may add to it."""

    def __init__(self, family: int, size: int, key: Key) -> None:
        self.family, self.size = family, size
        self._key, self._reach = key, new_reach(size)
        self._lanes: list[_Lane | None] = [None] * MOST_LANES  # those that nobody uses; None: not made yet
        self._free, self._lock = threading.Semaphore(MOST_LANES), threading.Lock()

    @property
    def limit(self) -> int:
        """A pair with a larger hash is not in the sample."""
        return int(self._reach.state[LIMIT])

    @timed("evidence", amount=lambda _, sample, batch, counts: len(batch))
    def add(self, batch: PacketBatch, counts: CountPackets) -> None:
        """Take packets of the family. `counts` tells for some of them which are of the traffic that is looked at."""
        assert batch.details is not None
        columns = batch.src, batch.dst, (batch.time, batch.details)
        with self._free:
            lane = self._lanes.pop()  # the one that was used last, which is in the cache
            if lane is None:
                lane = _Lane(self.family, self.size)
            try:
                done = 0
                while done < len(batch):
                    if lane.used == len(lane.room.rows):
                        lane.make_room(self.limit)
                    done, used = gather(*columns, done, (_U(self.limit), self._key), lane.room, lane.used)
                    if used > lane.used:
                        self._settle(lane, used, counts)
            finally:
                self._lanes.append(lane)

    def _settle(self, lane: _Lane, used: int, counts: CountPackets) -> None:
        """Keep those of the packets gathered last that count."""
        rows, src, dst = lane.room
        first, new = lane.used, used - lane.used
        time, details = rows[first:used, WAITING_TIME].view(np.int64), rows[first:used, WAITING_DETAIL]
        which = counts(PacketBatch(self.family, src[:new], dst[:new], time, (0, 0), details))
        with self._lock:
            lane.used = int(admit(rows, first, used, which, self._reach))

    def rows(self, threads: int = 1) -> Rows:
        """Return the sample so far, in the order of hashes. Nobody may add to it meanwhile."""
        calls = [(lane, self.limit) for lane in self._lanes if lane is not None]
        whole, *others = run_parallel(_Lane.rows, calls, threads) or [
            np.zeros((0, NARROW if self.family == 4 else WIDE), np.uint64)
        ]
        for each in others:
            whole = united(whole, each, self.size)
        return whole
