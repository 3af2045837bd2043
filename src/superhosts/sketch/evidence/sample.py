"""The sample of a window's pairs: `OpenSample` while the window takes packets, `Evidence` once it is closed.

The sample has the pairs with the smallest keyed hashes. Each packet costs a hash and a comparison with the limit. Once
the window has many more pairs than the sample, nearly all of them end there. The others wait in a buffer. When it is
full, packets above the limit, which has fallen meanwhile, are dropped before anything else was done with them. Only if
that does not make room, the packets find the rows of their pairs in a table.

The limit only falls, so a pair that is in the sample in the end was never turned away, and all of its packets are
noted. Threads have buffers and tables of their own, which are merged when the window closes: what is in them does not
depend on who saw which packet.

A row describes a pair. Two rows of the same pair are combined word by word:

| word | content | combined by |
|---|---|---|
| 0 | the keyed hash of the pair; of IPv4 the pair itself follows from it | |
| 1 | what both ends have sent (`observations.py`) | OR |
| 2 | one of its services (`observations.py`) | the smaller |
| 3 | marks of its packets (`observations.py`) | OR |
| 4, 5 | marks of the services of the lower end, and of the higher end | OR |
| 6 to 9 | of IPv6: the lower address and the higher one, two words each | |
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import EVIDENCE_PAIRS
from superhosts.core.device import run_parallel
from superhosts.core.hashing import Key, fingerprint, fold, make_key, mangle64, mangle_column, pair_hash, unmangle64
from superhosts.core.pairs import SKIPPED, Addresses, Details, PacketBatch, Times
from superhosts.core.profile import timed
from superhosts.cubefile.header import EVIDENCE_WORDS, EvidenceKind
from superhosts.jit.cache import compiled, plain
from superhosts.sketch.evidence.observations import (
    CLASS_AT,
    HASH_AT,
    HASH_BITS,
    HIGH_END,
    NO_SERVICE,
    PORTLESS,
    mark_of,
    mixed,
    observed_flags,
    service_of,
)

Rows = NDArray[np.uint64]

HASH, DEEDS, SERVICE, PACKETS, LOWER_PORTS, HIGHER_PORTS, LOWER, HIGHER = 0, 1, 2, 3, 4, 5, 6, 8
NARROW, WIDE = EVIDENCE_WORDS[4], EVIDENCE_WORDS[6]


@compiled
def united(first: Rows, second: Rows, size: int) -> Rows:
    """Return the rows with the smallest hashes of two samples, each in order and without repeats."""
    found = np.empty((min(len(first) + len(second), size), first.shape[1]), np.uint64)
    here = there = count = 0
    while count < size and (here < len(first) or there < len(second)):
        takes_first = there == len(second) or (here < len(first) and first[here, HASH] <= second[there, HASH])
        is_both = takes_first and there < len(second) and here < len(first) and first[here, HASH] == second[there, HASH]
        for word in range(first.shape[1]):
            found[count, word] = first[here, word] if takes_first else second[there, word]
        if is_both:
            for word in (DEEDS, PACKETS, LOWER_PORTS, HIGHER_PORTS):
                found[count, word] |= second[there, word]
            found[count, SERVICE] = min(found[count, SERVICE], second[there, SERVICE])
        here += takes_first
        there += is_both or not takes_first
        count += 1
    return found[:count].copy()


# The limit falls while pairs come, and none of the `size` smallest hashes is ever above it. A hash table has the
# distinct hashes up to the limit, and buckets count them by their leading bits. As soon as the buckets below the
# highest one hold enough of them for the sample, that bucket is given up: the limit falls to its lower edge. So a hash
# costs one place of the table, nothing is sorted, and the limit is at most one bucket above the largest hash of the
# sample. Hashes may be missing in the table: then the limit is higher than it could be, and no pair is turned away
# wrongly.


ALL = (1 << 64) - 1  # the limit while every pair is in the sample
BUCKET_BITS = 11
LEAST_PLACES = 64
BLOCK = 128  # hashes whose places are fetched before they are looked at

# The slots of `Reach.state`
LIMIT, LIVE, TAKEN, SHIFT, SIZE = range(5)

_U = np.uint64
_ZERO, _ONE = _U(0), _U(1)


class Reach(NamedTuple):
    places: NDArray[np.uint64]  # an open hash table, twice as large as it may be full; 0: free
    buckets: NDArray[np.uint64]  # distinct hashes up to the limit, by their leading bits
    # Limit, hashes up to it, places taken, bits of a hash within a bucket, size of the sample
    state: NDArray[np.uint64]


def places_of(size: int) -> int:
    return max(4 << (size - 1).bit_length(), LEAST_PLACES)


def new_reach(size: int) -> Reach:
    state = np.array([ALL, 0, 0, 64 - BUCKET_BITS, size], np.uint64)
    return Reach(np.zeros(places_of(size), np.uint64), np.zeros(1 << BUCKET_BITS, np.uint64), state)


@compiled
def _clean(places: NDArray[np.uint64], buckets: NDArray[np.uint64], limit: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Remove hashes above the limit, divide the others among all buckets; return their number and the new shift."""
    last = _U(len(places) - 1)
    kept = places[(places != _ZERO) & (places <= limit)]
    places[:] = _ZERO
    buckets[:] = _ZERO
    shift = _ZERO
    while limit >> shift >= _U(len(buckets)):
        shift += _ONE
    for hashed in kept:
        place = hashed & last
        while places[place] != _ZERO:
            place = (place + _ONE) & last
        places[place] = hashed
        buckets[hashed >> shift] += _ONE
    return _U(len(kept)), shift


@compiled
def admit(rows: NDArray[np.uint64], first: int, used: int, counts: NDArray[np.uint8], reach: Reach) -> np.int64:
    """Lower the limit by the hashes in the first column, from row `first` on; return how many rows are left.

    Rows that do not count, and those above the limit, are removed.
    """
    places, buckets, state = reach
    limit, live, taken, shift, size = state[LIMIT], state[LIVE], state[TAKEN], state[SHIFT], state[SIZE]
    last, most = _U(len(places) - 1), _U(len(places) // 2)
    kept, touched = _U(first), _ZERO
    for start in range(first, used, BLOCK):
        block = range(_U(start), _U(min(start + BLOCK, used)))
        for number in block:  # so that the memory fetches several places at a time
            touched |= places[rows[number, 0] & last]
        for number in block:
            hashed = rows[number, 0]
            if counts[number - _U(first)] == 0 or hashed > limit:
                continue
            if kept < number:
                for word in range(rows.shape[1]):
                    rows[kept, word] = rows[number, word]
            kept += _ONE
            place = hashed & last
            while places[place] != hashed and places[place] != _ZERO:
                place = (place + _ONE) & last
            if places[place] == hashed:  # also the hash 0, which is never noted
                continue
            if taken == most:
                taken, shift = _clean(places, buckets, limit)
                if taken == most:
                    continue
                place = hashed & last
                while places[place] != _ZERO:
                    place = (place + _ONE) & last
            places[place] = hashed
            taken += _ONE
            live += _ONE
            buckets[hashed >> shift] += _ONE
            while live >= size + buckets[limit >> shift]:
                live -= buckets[limit >> shift]
                limit = (limit >> shift << shift) - _ONE
    state[LIMIT], state[LIVE], state[TAKEN], state[SHIFT] = limit, live, taken, shift
    return np.int64(kept) if touched | _ONE else np.int64(0)  # what was touched must seem to matter


Words = NDArray[np.uint64]

# A packet that waits: the hash of its pair, its details, its time, and of IPv6 the lower and the higher address.
WAITING_HASH, WAITING_DETAIL, WAITING_TIME, WAITING_ENDS = range(4)
TURNED: Final = 1 << 63  # a bit of the details: the higher end has sent the packet


class Table(NamedTuple):
    rows: Rows
    slots: NDArray[np.int32]  # number of a row, or -1
    used: NDArray[np.int64]  # rows


def empty_table(size: int, width: int) -> Table:
    """Return a table with room for twice the pairs of a sample. The system provides pages as they are written."""
    slots = 4 << (size - 1).bit_length()
    return Table(np.empty((2 * size, width), np.uint64), np.full(slots, -1, np.int32), np.zeros(1, np.int64))


@compiled
def note(waiting: Words, first: int, used: int, limit: np.uint64, table: Table) -> int:
    """Note packets up to the limit in the rows of their pairs; return how many are done: all, unless it is full."""
    rows, slots, count = table
    last, touched = _U(len(slots) - 1), _ZERO
    for start in range(first, used, BLOCK):
        stop = min(start + BLOCK, used)
        for packet in range(start, stop):  # so that the memory fetches several rows at a time
            number = np.int64(slots[waiting[packet, WAITING_HASH] & last])
            number = number if number >= 0 else np.int64(0)
            touched ^= rows[number, HASH] ^ rows[number, LOWER_PORTS + 1]  # A row is in two lines of the cache.
        for packet in range(start, stop):
            hashed = waiting[packet, WAITING_HASH]
            if hashed > limit:
                continue
            place = hashed & last
            number = np.int64(slots[place])
            while number >= 0 and rows[number, HASH] != hashed:
                place = (place + _ONE) & last
                number = np.int64(slots[place])
            if number < 0:
                number = count[0]
                if number == len(rows):
                    return packet
                slots[place] = number
                count[0] = number + 1
                rows[number, HASH], rows[number, SERVICE] = hashed, _U(NO_SERVICE)
                rows[number, DEEDS] = rows[number, PACKETS] = _ZERO
                rows[number, LOWER_PORTS] = rows[number, LOWER_PORTS + 1] = _ZERO
                for word in range(rows.shape[1] - NARROW):
                    rows[number, LOWER + word] = waiting[packet, WAITING_ENDS + word]
            detail = waiting[packet, WAITING_DETAIL]
            turned = detail & _U(TURNED) != _ZERO
            sent, received = observed_flags(detail)
            if turned:
                sent, received = received, sent
            rows[number, DEEDS] |= sent | received << _U(HIGH_END)
            rows[number, PACKETS] |= mark_of(mixed(mixed(waiting[packet, WAITING_TIME]) ^ detail))
            service, whose = service_of(detail)
            if whose >= 0:
                at_higher = _U((whose == 1) != turned)
                what = mixed(mixed(service << _U(2) | at_higher) ^ hashed)  # of another pair it is another one
                kept = service | what >> _U(64 - HASH_BITS) << _U(HASH_AT) | at_higher
                rows[number, SERVICE] = min(rows[number, SERVICE], kept)
                if service >> _U(CLASS_AT) != _U(PORTLESS):
                    rows[number, LOWER_PORTS + np.int64(at_higher)] |= mark_of(what)
    return used if touched | _ONE else 0  # what was touched must seem to matter


@compiled
def compact(table: Table, limit: np.uint64) -> None:
    rows, slots, used = table
    slots[:] = -1
    last, kept = _U(len(slots) - 1), 0
    for number in range(used[0]):
        if rows[number, HASH] > limit:
            continue
        for word in range(rows.shape[1]):
            rows[kept, word] = rows[number, word]
        place = rows[kept, HASH] & last
        while slots[place] >= 0:
            place = (place + _ONE) & last
        slots[place] = kept
        kept += 1
    used[0] = kept


MOST_LANES = 4  # threads that write at the same time
WAITING = {4: 1 << 19, 6: 1 << 18}  # packets of a family that wait in a lane
WAITING_WORDS = {4: 3, 6: 7}  # of each of them
GATHERED = 1 << 16  # packets of which it is asked at once, at most, which of them count; a quarter is enough
GATHER_BLOCK = 1024  # packets that are looked at together
SKIPPED_BIT = SKIPPED.bit_length() - 1

CountPackets = Callable[[PacketBatch], NDArray[np.uint8]]


class Room(NamedTuple):
    rows: Words
    src: Addresses  # of those that are not settled
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
    settled: int,
    used: int,
) -> tuple[int, int]:
    """Let packets wait that the source has not left out, and whose pairs have hashes up to a limit.

    Begin with number `first`; return how many were looked at, all unless there is no room, and how many wait. Of these
    the first `settled` count.
    """
    time, details = said
    limit, key = sought
    rows, sources, targets = room
    chosen, new = np.empty(GATHER_BLOCK, np.uint32), _U(used - settled)
    start, before = first, _U(settled)
    most = min(len(rows), settled + len(sources))
    while start < len(src) and used < most:
        part = details[start : start + min(GATHER_BLOCK, most - used)]
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


def memory_of(size: int) -> int:
    """Return the most bytes that the samples of one window take, in both families, while it is open."""
    lane = sum(8 * WAITING_WORDS[family] * WAITING[family] for family in (4, 6)) + 2 * GATHERED * (4 + 16)
    return MOST_LANES * (lane + 8 * 2 * size * (NARROW + WIDE) + 2 * 32 * size) + 2 * 8 * places_of(size)


def compile_rest(family: int) -> None:
    compact(empty_table(2, NARROW if family == 4 else WIDE), _U(0))


class _Lane:
    def __init__(self, family: int, size: int) -> None:
        most = WAITING[family]
        shape, kind = ((), np.uint32) if family == 4 else ((2,), np.uint64)
        ends = (np.empty((min(most, GATHERED), *shape), kind) for _ in range(2))
        self.room = Room(np.empty((most, WAITING_WORDS[family]), np.uint64), *ends)
        self.settled = self.used = 0  # packets that wait and count; all that wait
        self._size, self._width = size, NARROW if family == 4 else WIDE
        self._table: Table | None = None  # most windows need none: their packets all wait

    def make_room(self, limit: int) -> None:
        """Drop what is above the limit. If that is too little, put the packets that wait into the table."""
        waiting = self.room.rows[: self.used]
        kept = waiting[waiting[:, WAITING_HASH] <= _U(limit)]
        waiting[: len(kept)] = kept
        self.settled = self.used = len(kept)
        if 2 * self.used > len(self.room.rows):
            self.absorb(limit)

    def absorb(self, limit: int) -> None:
        if self._table is None:
            self._table = empty_table(self._size, self._width)
        done = 0
        while (done := note(self.room.rows, done, self.used, _U(limit), self._table)) < self.used:
            limit = int(np.partition(self._table.rows[:, HASH], self._size - 1)[self._size - 1])
            compact(self._table, _U(limit))
        self.settled = self.used = 0

    def rows(self, limit: int) -> Rows:
        self.absorb(limit)
        assert self._table is not None
        rows = self._table.rows[: self._table.used[0]]
        return np.ascontiguousarray(rows[np.argsort(rows[:, HASH])[: self._size]])


class OpenSample:
    """The sample of one window that takes packets of one address family. Any number of threads may add to it."""

    def __init__(self, family: int, size: int, key: Key) -> None:
        self.family, self.size = family, size
        self._key, self._reach = key, new_reach(size)
        self._lanes: list[_Lane | None] = [None] * MOST_LANES  # those that nobody uses; None: not made yet
        self._free, self._lock = threading.Semaphore(MOST_LANES), threading.Lock()
        self._counts: CountPackets  # of the batch that was added last; the same for all of them

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
                self._counts, done = counts, 0
                while done < len(batch):
                    if lane.used == len(lane.room.rows):
                        lane.make_room(self.limit)
                    done, lane.used = gather(
                        *columns, done, (_U(self.limit), self._key), lane.room, lane.settled, lane.used
                    )
                    if lane.used == len(lane.room.rows) or 4 * (lane.used - lane.settled) >= len(lane.room.src):
                        self._settle(lane)
            finally:
                self._lanes.append(lane)

    def _settle(self, lane: _Lane) -> None:
        rows, src, dst = lane.room
        first, new = lane.settled, lane.used - lane.settled
        time, details = rows[first : lane.used, WAITING_TIME].view(np.int64), rows[first : lane.used, WAITING_DETAIL]
        which = self._counts(PacketBatch(self.family, src[:new], dst[:new], time, (0, 0), details))
        with self._lock:
            lane.settled = lane.used = int(admit(rows, first, lane.used, which, self._reach))

    def rows(self, threads: int = 1) -> Rows:
        lanes = [lane for lane in self._lanes if lane is not None]
        for lane in lanes:
            self._settle(lane)
        whole, *others = run_parallel(_Lane.rows, [(lane, self.limit) for lane in lanes], threads) or [
            np.zeros((0, NARROW if self.family == 4 else WIDE), np.uint64)
        ]
        for each in others:
            whole = united(whole, each, self.size)
        return whole


class Evidence:
    def __init__(
        self, secret: bytes, size: int = EVIDENCE_PAIRS, rows: Mapping[int, Rows] | None = None, lacking: bool = False
    ) -> None:
        self.size = size
        self.lacking = lacking  # True if it was merged with sketches that have none
        self.secret = secret
        self.rows: dict[int, Rows] = dict(rows or {})  # by address family; in the order of hashes, never changed
        self.summaries: dict[int, Any] = {}  # of families: made when a host is asked for (`patterns.py`)

    @property
    def key(self) -> str:
        return fingerprint(self.secret)

    @property
    def kind(self) -> EvidenceKind:
        return EvidenceKind(self.size, self.key, self.lacking)

    @property
    def memory(self) -> int:
        return sum(rows.nbytes for rows in self.rows.values())

    def is_whole(self, family: int) -> bool:
        return len(self.rows.get(family, ())) < self.size and not self.lacking

    def merged(self, other: Evidence) -> Evidence:
        """Return the sample of the union. It is as small as the smaller of both."""
        size = min(self.size, other.size)
        rows = {}
        for family in sorted(self.rows.keys() | other.rows.keys()):
            empty = np.zeros((0, EVIDENCE_WORDS[family]), np.uint64)
            rows[family] = united(self.rows.get(family, empty), other.rows.get(family, empty), size)
        return Evidence(self.secret, size, rows, self.lacking or other.lacking)

    def as_lacking(self) -> Evidence:
        """Return the same, as that of a union in which others have none."""
        return Evidence(self.secret, self.size, self.rows, lacking=True)

    def __deepcopy__(self, _memo: object) -> Evidence:
        return self  # It never changes.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Evidence):
            return NotImplemented
        families = {family for each in (self, other) for family, rows in each.rows.items() if len(rows)}
        same = all(np.array_equal(self.rows.get(f, ()), other.rows.get(f, ())) for f in families)
        return same and (self.size, self.key, self.lacking) == (other.size, other.key, other.lacking)

    __hash__ = None  # type: ignore[assignment]

    # Files

    def stored(self) -> dict[int, Rows]:
        """Return the rows as files have them: nobody computes an address without the key."""
        key = make_key(self.secret)
        return {family: _mangled(rows, False, key) if family == 6 else rows for family, rows in self.rows.items()}

    @classmethod
    def loaded(cls, secret: bytes, kind: EvidenceKind, stored: Mapping[int, Rows]) -> Evidence:
        """Return the sample of a file. Raise ValueError if its rows are too many or not in order."""
        key = make_key(secret)
        rows = {}
        for family, each in stored.items():
            if len(each) > kind.pairs or (each[1:, HASH] <= each[:-1, HASH]).any():
                raise ValueError(f"the evidence of IPv{family} has too many pairs, or not in the order of their hashes")
            rows[family] = _mangled(each, True, key) if family == 6 else each
        return cls(secret, kind.pairs, rows, kind.lacking)


def _mangled(rows: Rows, inverse: bool, key: Key) -> Rows:
    rows = rows.copy()
    for end in (LOWER, HIGHER):
        rows[:, end : end + 2] = mangle_column(np.ascontiguousarray(rows[:, end : end + 2]), 128, inverse, key)
    return rows


def ends_of(rows: Rows, family: int, secret: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    if family == 6:
        return rows[:, LOWER : LOWER + 2], rows[:, HIGHER : HIGHER + 2]
    pairs: Any = plain(unmangle64)(rows[:, HASH], make_key(secret))  # type: ignore[arg-type]
    lower, higher = np.zeros((len(rows), 2), np.uint64), np.zeros((len(rows), 2), np.uint64)
    lower[:, 1], higher[:, 1] = pairs >> np.uint64(32), pairs & np.uint64(0xFFFFFFFF)
    return lower, higher
