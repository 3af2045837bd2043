"""The sample of an open window: the pairs with the smallest hashes so far, and what is known of them.

Each packet costs a hash and a comparison with the limit. Once the window has many more pairs than the sample, nearly
all of them end there. The others wait in a buffer. When it is full, the hashes in it are looked at: the limit becomes
the largest hash of the sample, and packets above it are dropped before anything else was done with them. Only if that
does not make room, the packets find the rows of their pairs in a table (`pairrows.py`).

The limit only falls, so a pair that is in the sample in the end was never turned away, and all of its packets are
noted. Threads have buffers and tables of their own, which are merged when the window closes: what is in them does not
depend on who saw which packet.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.detectors.pairsample.cpu import absorb
from superhosts.evidence.pairrows import (
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
from superhosts.evidence.rows import HASH, NARROW, WIDE, Rows, smallest, sorted_rows, united
from superhosts.hashing import Key, fold, mangle64, pair_hash
from superhosts.packetdetails import SKIPPED, Details
from superhosts.pairs import Addresses, PacketBatch, Times
from superhosts.stopwatch import timed

ALL = (1 << 64) - 1  # the limit while every pair is in the sample
MOST_LANES = 4  # threads that write at the same time
WAITING = 1 << 18  # packets that wait in a lane
FRESH = 1 << 16  # of these, packets that may come before the hashes are looked at
BLOCK = 1024  # packets whose hashes are computed together
SKIPPED_BIT = SKIPPED.bit_length() - 1

CountPackets = Callable[[PacketBatch, NDArray[np.int32]], NDArray[np.uint8]]
Hashes = NDArray[np.uint64]

_U = np.uint64


@compiled
def hash_narrow(src: np.uint32, dst: np.uint32, key: Key) -> np.uint64:
    """Return the hash of the pair of two IPv4 addresses, which is a bijection, the same in both directions."""
    pair: Any = _U(min(src, dst)) << _U(32) | _U(max(src, dst))
    return _U(mangle64(pair, key))


@compiled
def _is_turned(src: Addresses, dst: Addresses, i: int) -> bool:
    """Return True if the source of a packet of IPv6 is the higher end of its pair."""
    return bool(src[i, 0] > dst[i, 0] or (src[i, 0] == dst[i, 0] and src[i, 1] > dst[i, 1]))


@compiled
def _hash_wide(src: Addresses, dst: Addresses, i: int, key: Key) -> np.uint64:
    """Return the hash of the pair of two IPv6 addresses, the same in both directions."""
    here, there = fold(src[i, 0], src[i, 1], key), fold(dst[i, 0], dst[i, 1], key)
    return _U(pair_hash(there, here, key) if _is_turned(src, dst, i) else pair_hash(here, there, key))


@compiled
def find_candidates(src: Addresses, dst: Addresses, details: Details, limit: np.uint64, key: Key) -> NDArray[np.int32]:
    """Return the packets whose pairs have hashes up to the limit, and that the source has not left out."""
    n = len(src)
    numbers, hashed = np.empty(n + 1, np.int32), np.empty(BLOCK, np.uint64)
    count = _U(0)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        left, right, said = src[start : start + size], dst[start : start + size], details[start : start + size]
        skipped = _U(0)
        for i in range(size):
            skipped += (said[i] >> _U(SKIPPED_BIT)) & _U(1)
        if skipped > _U(size // 2):  # Few are left: only these are looked at.
            for i in range(size):
                if said[i] & _U(SKIPPED):
                    continue
                if src.ndim == 1:
                    found = hash_narrow(left[i], right[i], key)
                else:
                    found = _hash_wide(left, right, i, key)
                numbers[count] = start + i
                count += _U(found <= limit)
            continue
        if src.ndim == 1:
            for i in range(size):  # so simple that it runs in vector registers
                hashed[i] = hash_narrow(left[i], right[i], key)
        else:
            for i in range(size):
                hashed[i] = _hash_wide(left, right, i, key)
        for i in range(size):  # written always, so that nothing is predicted wrongly
            numbers[count] = start + i
            count += _U(hashed[i] <= limit)  # What was skipped has a larger hash.
    return numbers[:count]


@compiled
def _append(
    src: Addresses,
    dst: Addresses,
    said: tuple[Times, Details],
    chosen: tuple[NDArray[np.int32], NDArray[np.uint8]],
    first: int,
    key: Key,
    waiting: Words,
    used: int,
) -> tuple[int, int]:
    """Let candidates that count wait, from number `first` on; return how many were looked at, and how many wait."""
    time, details = said
    numbers, counts = chosen
    for candidate in range(first, len(numbers)):
        if counts[candidate] == 0:
            continue
        if used == len(waiting):
            return candidate, used
        i = numbers[candidate]
        row = waiting[used]
        if src.ndim == 1:
            turned = src[i] > dst[i]
            row[WAITING_HASH] = hash_narrow(src[i], dst[i], key)
        else:
            turned = _is_turned(src, dst, i)
            row[WAITING_HASH] = _hash_wide(src, dst, i, key)
            for word in range(2):
                row[WAITING_ENDS + word] = dst[i, word] if turned else src[i, word]
                row[WAITING_ENDS + 2 + word] = src[i, word] if turned else dst[i, word]
        row[WAITING_DETAIL] = details[i] | (_U(TURNED) if turned else _U(0))
        row[WAITING_TIME] = _U(time[i])
        used += 1
    return len(numbers), used


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
    words = sum(WAITING * waiting + 2 * size * row for waiting, row in ((3, NARROW), (7, WIDE)))
    return MOST_LANES * (8 * words + 2 * 32 * size)


def compile_rest(family: int) -> None:
    """Compile what only packets beyond the first ones need."""
    lane = _Lane(family, 2)
    _drop_above(lane.waiting, 0, _U(0))
    compact(empty_table(2, NARROW if family == 4 else WIDE), _U(0))
    absorb(np.zeros(2, np.uint64), 0, np.zeros(2, np.uint64))


class _Lane:
    """What one thread at a time writes to: packets that wait, and a table of rows."""

    def __init__(self, family: int, size: int) -> None:
        self.waiting: Words = np.empty((WAITING, 3 if family == 4 else 7), np.uint64)
        self.used = self.looked_at = 0  # packets that wait, and those of them whose hashes have made the limit
        self._size, self._width = size, NARROW if family == 4 else WIDE
        self._table: Table | None = None  # most windows need none: their packets all wait

    def absorb(self, limit: int) -> None:
        """Put the packets that wait into the table, which may make the limit of this lane lower."""
        if self._table is None:
            self._table = empty_table(self._size, self._width)
        done = 0
        while (done := note(self.waiting, done, self.used, _U(limit), self._table)) < self.used:
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
        self.limit = ALL  # a pair with a larger hash is not in the sample
        self._key = key
        self._known: Hashes = np.empty(size, np.uint64)  # the smallest hashes that were looked at, in order
        self._count = 0  # of these
        self._lanes: deque[_Lane | None] = deque([None] * MOST_LANES)  # those that nobody uses; None: not made yet
        self._free, self._lock = threading.Semaphore(MOST_LANES), threading.Lock()

    @timed("evidence", amount=lambda _, sample, batch, counts: len(batch))
    def add(self, batch: PacketBatch, counts: CountPackets) -> None:
        """Take packets of the family. `counts` tells for some of them which are of the traffic that is looked at."""
        assert batch.details is not None
        numbers = find_candidates(batch.src, batch.dst, batch.details, _U(self.limit), self._key)
        if not len(numbers):
            return
        chosen = numbers, counts(batch, numbers)
        columns = batch.src, batch.dst, (batch.time, batch.details)
        with self._free:
            lane = self._lanes.popleft() or _Lane(self.family, self.size)
            try:
                done = 0
                while done < len(numbers):
                    room = lane.waiting[: lane.looked_at + FRESH]
                    done, lane.used = _append(*columns, chosen, done, self._key, room, lane.used)
                    if lane.used == len(room):
                        self._make_room(lane)
            finally:
                self._lanes.append(lane)

    def _make_room(self, lane: _Lane) -> None:
        """Lower the limit by the hashes of new packets. If the lane is full, drop what is above it, or take all in."""
        self._look_at(lane)
        if lane.used + FRESH > len(lane.waiting):
            lane.used = int(_drop_above(lane.waiting, lane.used, _U(self.limit)))
            if 2 * lane.used > len(lane.waiting):
                lane.absorb(self.limit)
        lane.looked_at = lane.used

    def _look_at(self, lane: _Lane) -> None:
        hashes = lane.waiting[lane.looked_at : lane.used, WAITING_HASH]
        fresh = np.sort(hashes[hashes <= _U(self.limit)])
        with self._lock:
            self._count = int(absorb(self._known, self._count, fresh))
            if self._count == self.size:
                self.limit = int(self._known[-1])

    def rows(self) -> Rows:
        """Return the sample so far, in the order of hashes. Nobody may add to it meanwhile."""
        whole = np.zeros((0, NARROW if self.family == 4 else WIDE), np.uint64)
        for lane in self._lanes:
            if lane is not None:
                whole = united(whole, lane.rows(self.limit), self.size)
        return whole
