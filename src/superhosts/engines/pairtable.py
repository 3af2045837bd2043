"""Open-addressing tables of distinct pairs: one table for each bin, filled to three quarters, with linear probing.

A slot is one entry of the bins (`bins.py`): one word for a 32-bit host and peer, otherwise the mangled host in one or
two words and the folded peer. No flag marks an empty slot. The low bits of a mangled host are the number of its bin, so
a host word with other low bits never belongs to an entry: 0 in all tables but that of bin 0, which has 1.

A hash of the pair with the key says where its search begins, so nobody without the key can choose pairs that collide.
The size of a table is any number: the hash is scaled to it by a multiplication.
"""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.engines.arrays import Words
from superhosts.engines.bins import BLOCK, CHUNK, Indexes, Pool, cache_shift
from superhosts.hashing import MASK32, Key, fold, pair_hash

GROUP_BITS = 12  # log2 of the groups of hosts whose pairs are counted together before hosts are
LARGE = 1 << 16  # bytes of a table whose memory is mapped
HOST_MULTIPLIER = 0x9E3779B97F4A7C15  # distributes mangled hosts over a small table


class Table(NamedTuple):
    """The distinct pairs of one bin."""

    slots: Words  # length: slots · width
    width: int  # words of a slot
    empty: np.uint64  # low word of the mangled host in an empty slot
    bin: int
    counts: NDArray[np.int64]  # pairs in the table of each bin, for all bins

    @property
    def size(self) -> int:
        """The number of slots."""
        return len(self.slots) // self.width


class Portion(NamedTuple):
    """Some entries of one bin, or of several in ascending order, as chunks of a pool."""

    chunks: Indexes
    sizes: Indexes  # entries of each chunk
    pool: Pool

    @property
    def width(self) -> int:
        """Words of an entry."""
        return len(self.pool.entries) // (len(self.pool.owner) * CHUNK)


def _zeros(words: int) -> Words:
    """Return zeros. Memory of a large table goes back to the system when it is freed, so that the cube can have it.

    The allocator of the C library would keep it, because the tables of all bins grow in turn.
    """
    if 8 * words < LARGE:
        return np.zeros(words, np.uint64)
    return np.frombuffer(mmap(-1, 8 * words, flags=MAP_PRIVATE | MAP_ANONYMOUS), np.uint64)


def make_table(size: int, width: int, bin_: int, counts: NDArray[np.int64]) -> Table:
    """Return an empty table. It uses no memory before it is written."""
    slots = _zeros(size * width)
    if bin_ == 0:
        slots[max(0, width - 2) :: width] = 1 << 32 if width == 1 else 1
    return Table(slots, width, np.uint64(bin_ == 0), bin_, counts)


@compiled
def capacity(size: int) -> int:
    """Return the most pairs of a table with this many slots."""
    return size * 3 // 4


@compiled
def insert_narrow(start: tuple[int, int], portion: Portion, table: Table, key: Key) -> tuple[int, int]:
    """Insert entries of one word, from chunk and entry `start` on, into a table of slots of one word.

    Return the chunk and entry at which it stopped: the number of chunks, or earlier if the table is full.
    """
    slots, empty, counts = table.slots, table.empty << np.uint64(32), table.counts
    entries, chunks, sizes = portion.pool.entries, portion.chunks, portion.sizes
    size, last, most = np.uint32(len(slots)), len(slots) - 1, capacity(len(slots))
    count = counts[table.bin]
    places = np.empty(CHUNK, np.int64)
    offset = start[1]
    for number in range(start[0], len(chunks)):
        first, used = chunks[number] * CHUNK, sizes[number]
        for i in range(used):
            places[i] = _narrow_place(entries[first + i], size, key)
        for i in range(offset, used):
            pair, place = entries[first + i], places[i]
            while slots[place] != pair:
                if slots[place] == empty:
                    if count >= most:
                        counts[table.bin] = count
                        return number, i
                    slots[place] = pair
                    count += 1
                    break
                place = place + 1 if place < last else 0
        offset = 0
    counts[table.bin] = count
    return len(chunks), 0


@compiled
def insert_wide(start: tuple[int, int], portion: Portion, table: Table, key: Key) -> tuple[int, int]:
    """Insert entries of any width into a table of slots of several words; return where it stopped."""
    slots, empty, counts, width = table.slots, table.empty, table.counts, table.width
    entries, chunks, sizes = portion.pool.entries, portion.chunks, portion.sizes
    given = len(entries) // (len(portion.pool.owner) * CHUNK)
    size = len(slots) // width
    most, count = capacity(size), counts[table.bin]
    offset = start[1]
    for number in range(start[0], len(chunks)):
        for i in range(offset, sizes[number]):
            j = (chunks[number] * CHUNK + i) * given
            high = entries[j] if given == 3 else np.uint64(0)
            low = entries[j] >> np.uint64(32) if given == 1 else entries[j + given - 2]
            peer = entries[j] & np.uint64(MASK32) if given == 1 else entries[j + given - 1]
            place = _place(high, low, peer, size, key) * width
            while True:
                found = slots[place + width - 2]
                if found == low and slots[place + width - 1] == peer and (width == 2 or slots[place] == high):
                    break
                if found == empty:
                    if count >= most:
                        counts[table.bin] = count
                        return number, i
                    slots[place] = high  # In a slot of two words, the low word replaces it.
                    slots[place + width - 2] = low
                    slots[place + width - 1] = peer
                    count += 1
                    break
                place += width
                if place == len(slots):
                    place = 0
        offset = 0
    counts[table.bin] = count
    return len(chunks), 0


@compiled
def _narrow_place(pair: Any, size: Any, key: Key) -> Any:
    """Return the slot at which the search for a pair of one word begins.

    It is `pair_hash` without the multiplication that joins host and peer, which are in different bits here. This is a
    sixth of the time of an insertion on processors with slow multiplications of 64 bits.
    """
    x = pair * np.uint64(key.pair[1])
    x = (x ^ (x >> np.uint64(32))) * np.uint64(key.pair[2])
    return np.int64(((x >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))


@compiled
def _place(high: Any, low: Any, peer: Any, size: int, key: Key) -> Any:
    """Return the slot at which the search for a pair begins."""
    hash_ = np.uint64(pair_hash(fold(high, low, key), peer, key))
    return np.int64(((hash_ >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))


@compiled
def rehash(old: Table, new: Table, key: Key) -> None:
    """Copy all pairs into an empty table of at least the same width that has room for them."""
    slots, width, wide = old.slots, old.width, new.width
    others, empty = new.slots, new.empty
    size = len(others) // wide
    for j in range(0, len(slots), width):
        high = slots[j] if width == 3 else np.uint64(0)
        low = slots[j] >> np.uint64(32) if width == 1 else slots[j + width - 2]
        if low == empty:
            continue
        if wide == 1:
            place = _narrow_place(slots[j], np.uint32(size), key)
            while others[place] >> np.uint64(32) != empty:
                place = place + 1 if place < size - 1 else 0
            others[place] = slots[j]
            continue
        peer = slots[j] & np.uint64(MASK32) if width == 1 else slots[j + width - 1]
        place = _place(high, low, peer, size, key) * wide
        while others[place + wide - 2] != empty:
            place += wide
            if place == len(others):
                place = 0
        others[place] = high
        others[place + wide - 2] = low
        others[place + wide - 1] = peer


@compiled
def compact(table: Table, out: Words) -> int:
    """Copy all pairs to the start of `out`, which may be the table's own memory; return their number.

    The rest of `out` becomes empty slots, so that a call after an interrupted one finds the same pairs.
    """
    slots, width = table.slots, table.width
    count = 0
    for j in range(0, len(slots), width):
        low = slots[j] >> np.uint64(32) if width == 1 else slots[j + width - 2]
        if low != table.empty:
            for w in range(width):
                out[count * width + w] = slots[j + w]
            count += 1
    out[count * width :] = table.empty << np.uint64(32) if width == 1 else table.empty
    return count


@compiled
def heavy_hosts(table: Table, minimum: int, bin_bits: int) -> tuple[Words, NDArray[np.int64]]:
    """Return the mangled hosts (high, low) with at least `minimum` pairs, and the number of pairs of each.

    Pairs are first counted by groups of hosts, and hosts only in groups that have enough.
    """
    heavy = _heavy_groups(table, minimum, bin_bits)
    if not heavy.any():
        return np.empty((0, 2), np.uint64), np.empty(0, np.int64)
    tally = Tally(np.empty((64, 2), np.uint64), np.zeros(64, np.int64))
    block = np.zeros((BLOCK, 2), np.uint64)
    start, used = 0, 0
    while start < len(table.slots):
        start, size = _gather(start, table, heavy, bin_bits, block)
        done = 0
        while done < size:
            done, used = _count_hosts(done, size, used, block, tally)
            if 2 * used >= len(tally.counts):
                tally = _twice(tally)
    enough = tally.counts >= minimum
    return tally.hosts[enough], tally.counts[enough]


class Tally(NamedTuple):
    """A small table of mangled hosts, at most half full, and their numbers of pairs; 0 in an empty slot."""

    hosts: Words  # (slots, 2): high and low word
    counts: NDArray[np.int64]


@compiled
def _heavy_groups(table: Table, minimum: int, bin_bits: int) -> NDArray[np.bool_]:
    """Return which groups of hosts have at least `minimum` pairs. Some bits of a mangled host are its group."""
    slots, width, empty = table.slots, table.width, table.empty
    shift, mask = np.uint64(bin_bits), np.uint64((1 << GROUP_BITS) - 1)
    counts = np.zeros(1 << GROUP_BITS, np.int32)
    for j in range(0, len(slots), width):
        low = slots[j] >> np.uint64(32) if width == 1 else slots[j + width - 2]
        counts[(low >> shift) & mask] += low != empty
    return counts >= minimum


@compiled
def _gather(start: int, table: Table, heavy: NDArray[np.bool_], bin_bits: int, block: Words) -> tuple[int, int]:
    """Copy the mangled hosts of heavy groups from the slots of a table, from word `start` on, until a block is full.

    Return the word at which it stopped and the number of hosts. A branch for each slot would be mispredicted.
    """
    slots, width, empty = table.slots, table.width, table.empty
    shift, mask = np.uint64(bin_bits), np.uint64((1 << GROUP_BITS) - 1)
    size = 0
    for j in range(start, len(slots), width):
        if size == len(block):
            return j, size
        low = slots[j] >> np.uint64(32) if width == 1 else slots[j + width - 2]
        block[size, 0] = slots[j] if width == 3 else np.uint64(0)
        block[size, 1] = low
        size += heavy[(low >> shift) & mask] & (low != empty)
    return len(slots), size


@compiled
def _count_hosts(start: int, stop: int, used: int, block: Words, tally: Tally) -> tuple[int, int]:
    """Count hosts start..stop of a block; return the index of the next one and the number of hosts in the tally.

    Stop when the tally is half full. Only the caller replaces the tally: a loop that did would count references.
    """
    hosts, counts = tally.hosts, tally.counts
    mask, shift = len(counts) - 1, cache_shift(len(counts))
    for i in range(start, stop):
        high, low = block[i, 0], block[i, 1]
        place = np.int64((low * np.uint64(HOST_MULTIPLIER)) >> shift)
        while counts[place] and (hosts[place, 1] != low or hosts[place, 0] != high):
            place = (place + 1) & mask
        counts[place] += 1
        if counts[place] == 1:
            hosts[place, 0], hosts[place, 1] = high, low
            used += 1
            if 2 * used >= len(counts):
                return i + 1, used
    return stop, used


@compiled
def _twice(tally: Tally) -> Tally:
    """Return a tally twice as large with the same content."""
    hosts, counts = tally
    larger = Tally(np.empty((2 * len(counts), 2), np.uint64), np.zeros(2 * len(counts), np.int64))
    shift, mask = cache_shift(len(larger.counts)), len(larger.counts) - 1
    for i in range(len(counts)):
        if counts[i]:
            place = np.int64((hosts[i, 1] * np.uint64(HOST_MULTIPLIER)) >> shift)
            while larger.counts[place]:
                place = (place + 1) & mask
            larger.hosts[place, 0], larger.hosts[place, 1] = hosts[i, 0], hosts[i, 1]
            larger.counts[place] = counts[i]
    return larger


@compiled
def count_pairs(hosts: Words, table: Table) -> NDArray[np.int64]:
    """Return the number of pairs of each of some mangled hosts (high, low), which must be distinct."""
    slots, width = table.slots, table.width
    size = 2
    while size < 2 * len(hosts):
        size *= 2
    index = np.full(size, -1, np.int64)
    shift, mask = cache_shift(size), size - 1
    for i in range(len(hosts)):
        place = np.int64((hosts[i, 1] * np.uint64(HOST_MULTIPLIER)) >> shift)
        while index[place] >= 0:
            place = (place + 1) & mask
        index[place] = i
    counts = np.zeros(len(hosts), np.int64)
    for j in range(0, len(slots), width):
        low = slots[j] >> np.uint64(32) if width == 1 else slots[j + width - 2]
        place = np.int64((low * np.uint64(HOST_MULTIPLIER)) >> shift)
        while index[place] >= 0:
            i = index[place]
            if hosts[i, 1] == low and (width < 3 or hosts[i, 0] == slots[j]):
                counts[i] += 1  # Empty slots match no host of this bin.
                break
            place = (place + 1) & mask
    return counts


@compiled
def unpack_portion(portion: Portion) -> tuple[Words, Words]:
    """Return the mangled hosts (high, low) and the folded peers of all entries."""
    entries, chunks, sizes = portion.pool.entries, portion.chunks, portion.sizes
    width = len(entries) // (len(portion.pool.owner) * CHUNK)
    total = 0
    for number in range(len(chunks)):
        total += sizes[number]
    hosts, peers = np.zeros((total, 2), np.uint64), np.empty(total, np.uint64)
    count = 0
    for number in range(len(chunks)):
        for i in range(sizes[number]):
            j = (chunks[number] * CHUNK + i) * width
            if width == 3:
                hosts[count, 0] = entries[j]
            hosts[count, 1] = entries[j] >> np.uint64(32) if width == 1 else entries[j + width - 2]
            peers[count] = entries[j] & np.uint64(MASK32) if width == 1 else entries[j + width - 1]
            count += 1
    return hosts, peers
