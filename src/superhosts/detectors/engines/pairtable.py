"""Open-addressing tables of distinct pairs: one table for each bin, filled to three quarters, with linear probing.

A slot is one entry of the bins (`bins.py`): one word for a 32-bit host and peer, otherwise the mangled host in one or
two words and the folded peer. No flag marks an empty slot. The low bits of a mangled host are the number of its bin, so
a host word with other low bits never belongs to an entry: 0 in all tables but that of bin 0, which has 1.

A hash of the pair says where its search begins. Its key is not that of the sketch, which may be public, but TABLE_KEY,
which is random and never leaves the process: nobody can choose pairs that collide. Nothing that leaves the process
depends on the order of a table. The size of a table is any number: the hash is scaled to it by a multiplication.
"""

from __future__ import annotations

import ctypes
import mmap
import secrets
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, fold, make_key, pair_hash
from superhosts.detectors.engines.base import Words
from superhosts.detectors.engines.bins import BLOCK, CHUNK, Portion, cache_shift, entry_width
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import number_at, set_number, word_at
from superhosts.jit.memory import new_memory

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class TableKey(NamedTuple):
    """The part of a key that hashes pairs. A loop takes it from Python: code that unpacks a whole key compiles long."""

    pair: tuple[int, ...]


TABLE_KEY = TableKey(
    make_key(secrets.token_bytes(32)).pair
)  # of all tables of this process, so that they can be merged
HOST_MULTIPLIER = TABLE_KEY.pair[0]  # distributes mangled hosts over small tables
LARGE = 1 << 16  # bytes of a table whose memory is mapped
# Large tables are filled at once, so Linux (from 5.14) maps their pages at once too: one by one takes three times as
# long. MAP_POPULATE would do so while Python runs no other thread.
MADV_POPULATE_WRITE = 23
_MADVISE = ctypes.CDLL(None).madvise
_MADVISE.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Tables(NamedTuple):
    """Where the tables of some bins are. The caller keeps their memory."""

    addresses: Numbers
    sizes: Numbers  # slots
    widths: Numbers  # words of a slot
    bins: Numbers

    @classmethod
    def of_bins(cls, bins: int) -> Tables:
        """Return places for the tables of all bins, of which none exists yet: they have no slots."""
        none = np.zeros((3, bins), np.int64)
        return cls(none[0], none[1], none[2], np.arange(bins))

    def put(self, tables: Tables) -> None:
        for mine, theirs in zip(self[:3], tables[:3], strict=True):
            mine[tables.bins] = theirs

    def at(self, bins: Numbers) -> Tables:
        return Tables(self.addresses[bins], self.sizes[bins], self.widths[bins], self.bins[bins])

    def copy(self) -> Tables:
        return self.at(self.bins)


def map_tables(bins: Numbers, sizes: Numbers, width: int) -> tuple[Words, Tables]:
    """Return zeros for tables, in one piece, and their places. They are empty slots, but not those of bin 0.

    Memory of large tables goes back to the system when it is freed, so that the cube can have it. The allocator of the
    C library would keep it, because the tables of all bins grow in turn.
    """
    words = int((sizes * width).sum())
    if 8 * words < LARGE:
        memory = np.zeros(words, np.uint64)
    else:
        memory = np.frombuffer(new_memory(8 * words, huge=True), np.uint64)
        _MADVISE(memory.ctypes.data, memory.nbytes, MADV_POPULATE_WRITE)
    return memory, _places_in(memory, bins, sizes, width)


def make_tables(bins: Numbers, sizes: Numbers, width: int) -> tuple[Words, Tables]:
    """Return memory for tables without content, in one piece, and their places.

    The C library keeps that memory for the next such tables: mapping it anew would take longer than filling it.
    """
    words = np.empty(int((sizes * width).sum()), np.uint64)
    return words, _places_in(words, bins, sizes, width)


def give_back(tables: Tables, bin_: int) -> None:
    """Give the pages of a table back to the system, before the memory that it shares with other tables is freed."""
    start, size = int(tables.addresses[bin_]), 8 * int(tables.sizes[bin_] * tables.widths[bin_])
    first, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < end:
        _MADVISE(first, end - first, mmap.MADV_DONTNEED)


def _places_in(memory: Words, bins: Numbers, sizes: Numbers, width: int) -> Tables:
    starts = memory.ctypes.data + 8 * (np.cumsum(sizes * width) - sizes * width)
    return Tables(starts, sizes, np.full_like(sizes, width), bins)


class Slots(NamedTuple):
    """Where one table is. It consists of numbers alone, so that passing it costs nothing."""

    address: int
    size: int  # slots
    width: int  # words of a slot
    empty: Any  # low word of the mangled host in an empty slot


@compiled
def slots_of(tables: Tables, number: int) -> Slots:
    empty = np.uint64(tables.bins[number] == 0)
    return Slots(tables.addresses[number], tables.sizes[number], tables.widths[number], empty)


@compiled
def low_in(table: Slots, slot: int) -> Any:
    if table.width == 1:
        return word_at(table.address + 8 * slot) >> np.uint64(32)
    return word_at(table.address + 8 * (table.width * slot + table.width - 2))


@compiled
def pair_in(table: Slots, slot: int) -> tuple[Any, Any, Any]:
    first = table.address + 8 * table.width * slot
    word = word_at(first)
    if table.width == 1:
        return np.uint64(0), word >> np.uint64(32), word & np.uint64(MASK32)
    high = word if table.width == 3 else np.uint64(0)
    return high, word_at(first + 8 * (table.width - 2)), word_at(first + 8 * (table.width - 1))


@compiled
def capacity(size: int) -> int:
    return size * 3 // 4


@compiled
def insert_narrow(start: int, portion: Portion, tables: Tables, counts: Numbers, key: TableKey) -> int:
    """Insert entries of one word, from chunk `start` on, into the tables of their bins, whose slots have one word.

    Return the chunk at which it stopped: the number of chunks, or earlier if a table is full. One call inserts into
    many tables: between calls threads wait for each other in Python.
    """
    chunks, owner = portion.chunks, portion.pool.owner
    while start < len(chunks):
        bin_, end = owner[chunks[start]], start
        while end < len(chunks) and owner[chunks[end]] == bin_:
            end += 1
        start = _insert_chunks(start, end, portion, tables, np.int64(bin_), counts, key)
        if start < end:
            break
    return start


@compiled
def _insert_chunks(
    start: int, end: int, portion: Portion, tables: Tables, bin_: int, counts: Numbers, key: TableKey
) -> int:
    """Insert the entries of chunks of one bin.

    Most entries are known pairs in one of the first two slots of their search. These are recognized first, without a
    branch, which would be mispredicted, and in a loop that writes to places which a core knows before it has read.
    """
    table, count = slots_of(tables, bin_), counts[bin_]
    entries, chunks, sizes = portion.pool.entries, portion.chunks, portion.sizes
    address, last, most = table.address, 8 * (table.size - 1), capacity(table.size)
    places, others, lacks = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint8)
    if (end - start) * CHUNK > table.size // 8:  # more entries than cache lines
        others[0] = _read_ahead(table)
    for number in range(start, end):
        first = chunks[number] * CHUNK
        pairs = entries[first : first + sizes[number]]
        find_places(pairs, np.uint32(table.size), places, key)
        left = np.uint64(0)
        for i in range(len(pairs)):
            pair, place = pairs[i], 8 * np.int64(places[i])
            following = address + (place + 8 if place < last else 0)
            lacks[i] = (word_at(address + place) != pair) & (word_at(following) != pair)
        for i in range(len(pairs)):
            others[left], places[left] = pairs[i], places[i]
            left += np.uint64(lacks[i])
        missing = _insert(others[:left], places, table, most - count, True)
        if missing > most - count:
            counts[bin_] = most
            return number
        count += missing
    counts[bin_] = count
    return end


@compiled
def _read_ahead(table: Slots) -> Any:
    """Read a word of each cache line: reading in order takes a fraction of the time of random misses later.

    The caller must store the result, or the compiler removes the loop.
    """
    bits = np.uint64(0)
    for address in range(table.address, table.address + 8 * table.size, 64):
        bits |= word_at(address)
    return bits


@compiled
def insert_wide(start: int, portion: Portion, tables: Tables, counts: Numbers, key: TableKey) -> int:
    """Insert entries of any width into tables of slots of several words; return the chunk at which it stopped."""
    entries, chunks, sizes = portion.pool.entries, portion.chunks, portion.sizes
    given = entry_width(portion.pool)
    for number in range(start, len(chunks)):
        bin_ = np.int64(portion.pool.owner[chunks[number]])
        table, count = slots_of(tables, bin_), counts[bin_]
        for i in range(sizes[number]):
            j = (chunks[number] * CHUNK + i) * given
            high = entries[j] if given == 3 else np.uint64(0)
            low = entries[j] >> np.uint64(32) if given == 1 else entries[j + given - 2]
            peer = entries[j] & np.uint64(MASK32) if given == 1 else entries[j + given - 1]
            if _lacks(table, high, low, peer, count < capacity(table.size), key):
                if count == capacity(table.size):
                    counts[bin_] = count
                    return number
                count += 1
        counts[bin_] = count
    return len(chunks)


@compiled
def _lacks(table: Slots, high: Any, low: Any, peer: Any, inserts: bool, key: TableKey) -> bool:
    """Return True if a table of slots of several words lacks a pair; insert it with `inserts`."""
    place = place_of(high, low, peer, table.size, key)
    while True:
        slot = table.address + 8 * table.width * place
        found = word_at(slot + 8 * (table.width - 2))
        if found == table.empty:
            if inserts:
                set_number(slot, np.int64(high))  # In a slot of two words, the low word replaces it.
                set_number(slot + 8 * (table.width - 2), np.int64(low))
                set_number(slot + 8 * (table.width - 1), np.int64(peer))
            return True
        is_same = found == low and word_at(slot + 8 * (table.width - 1)) == peer
        if is_same and (table.width == 2 or word_at(slot) == high):
            return False
        place = place + 1 if place + 1 < table.size else 0


@compiled
def _insert(pairs: Words, places: NDArray[np.uint32], table: Slots, room: int, inserts: bool) -> int:
    """Count the pairs of one word that a table lacks, and insert them with `inserts`; searches begin at `places`.

    If there are more than `room` of them, stop at the first for which there is none, and count it.
    """
    address, empty, last, missing = table.address, table.empty << np.uint64(32), 8 * (table.size - 1), 0
    for i in range(len(pairs)):
        pair, place = pairs[i], 8 * np.int64(places[i])
        found = word_at(address + place)
        while found != pair and found != empty:
            place = place + 8 if place < last else 0
            found = word_at(address + place)
        if found == empty:
            missing += 1
            if missing > room:
                break
            if inserts:
                set_number(address + place, np.int64(pair))
    return missing


@compiled
def find_places(pairs: Words, size: Any, places: NDArray[np.uint32], key: TableKey) -> None:
    """Write the slot at which the search for each pair of one word begins to `places`.

    It is a hash of the mangled host and the peer in 32-bit products, which vector registers have: three times as fast
    as `pair_hash`. The peers of one host have different hashes. A sum of two products alone would be the same for many
    pairs whose halves are multiples of a large power of two, whatever the key; so the host's is mixed before.
    """
    a, b = np.uint32(key.pair[1] & np.uint64(MASK32)), np.uint32(key.pair[2] & np.uint64(MASK32))
    c = np.uint32(key.pair[1] >> np.uint64(32)) | np.uint32(1)
    for i in range(len(pairs)):
        x = np.uint32(np.uint32(pairs[i] >> np.uint64(32)) * a)
        x = np.uint32(np.uint32(x ^ (x >> np.uint32(15))) + np.uint32(np.uint32(pairs[i] & np.uint64(MASK32)) * b))
        x = np.uint32(np.uint32(x ^ (x >> np.uint32(15))) * c)
        places[i] = np.uint32(x ^ (x >> np.uint32(15)))
    for i in range(len(pairs)):  # A loop of its own: its products have 64 bits.
        places[i] = np.uint32((np.uint64(places[i]) * np.uint64(size)) >> np.uint64(32))


@compiled
def place_of(high: Any, low: Any, peer: Any, size: int, key: Any) -> Any:
    """Return the slot at which the search for a pair begins. The host is mixed before, as in `find_places`."""
    zero: Any = np.uint64(0)
    hash_ = np.uint64(pair_hash(fold(fold(high, low, key), zero, key), peer, key))
    return np.int64(((hash_ >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))


@compiled
def compact(tables: Tables, bin_: int, out: Words) -> None:
    """Copy all pairs of a table to the start of `out`, which has room for one more.

    Empty slots are copied too, and the next pair overwrites them: a branch for each slot would be mispredicted.
    """
    table, place = slots_of(tables, bin_), 0
    for slot in range(table.size):
        for w in range(table.width):
            out[place + w] = word_at(table.address + 8 * (table.width * slot + w))
        place += table.width * (low_in(table, slot) != table.empty)


# Making and uniting tables. Most sets are small, and have a hundred tables: a call for each would take longer than the
# work. So one compiled call takes all tables, by their addresses. Two tables of a bin are both in the order of their
# hashes, so both are read in order: cores fetch what comes next, and hardly any access waits for memory.


@compiled
def count_missing(mine: Tables, theirs: Tables, span: tuple[int, int], key: TableKey, missing: Numbers) -> None:
    """Count the pairs of each of their tables that mine lacks, from one table up to another."""
    for number in range(span[0], span[1]):
        missing[number] = _unite(mine, theirs, number, key, False)


@compiled
def unite(mine: Tables, theirs: Tables, into: Tables, span: tuple[int, int], key: TableKey, added: Numbers) -> None:
    """Make tables with the pairs of mine and theirs; count what theirs added.

    They may be the tables of mine, or have no content yet. They are as wide as both, and have room for all pairs.
    """
    for number in range(span[0], span[1]):
        if into.addresses[number] != mine.addresses[number]:
            if into.sizes[number] == mine.sizes[number] and into.widths[number] == mine.widths[number]:
                _copy(into, mine, number)
            else:
                _clear(into, number)
                _unite(into, mine, number, key, True)
        added[number] = _unite(into, theirs, number, key, True)


@compiled
def _clear(tables: Tables, number: int) -> None:
    address, width = tables.addresses[number], tables.widths[number]
    empty = np.int64(tables.bins[number] == 0)
    for slot in range(address, address + 8 * width * tables.sizes[number], 8 * width):
        if width == 1:
            set_number(slot, empty << np.int64(32))
        else:
            set_number(slot, np.int64(0))
            set_number(slot + 8 * (width - 2), empty)
            set_number(slot + 8 * (width - 1), np.int64(0))


@compiled
def _copy(into: Tables, mine: Tables, number: int) -> None:
    address, source = into.addresses[number], mine.addresses[number]
    for offset in range(0, 8 * mine.widths[number] * mine.sizes[number], 8):
        set_number(address + offset, number_at(source + offset))


@compiled
def _unite(mine: Tables, theirs: Tables, number: int, key: TableKey, inserts: bool) -> int:
    """Count the pairs that one table of mine lacks; with `inserts`, insert them."""
    into, table, missing = slots_of(mine, number), slots_of(theirs, number), 0
    if into.width > 1:
        for slot in range(table.size):
            high, low, peer = pair_in(table, slot)
            if low != table.empty:
                missing += _lacks(into, high, low, peer, inserts, key)
        return missing
    pairs, places = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint32)
    for start in range(0, table.size, CHUNK):
        count = 0
        for slot in range(start, min(start + CHUNK, table.size)):
            pair = word_at(table.address + 8 * slot)
            pairs[count] = pair
            count += pair != table.empty << np.uint64(32)
        find_places(pairs[:count], np.uint32(into.size), places, key)
        missing += _insert(pairs[:count], places, into, count, inserts)
    return missing


# Counting the pairs of hosts. A window that slides asks for its super hosts every few seconds, mostly in two small sets
# of a hundred tables each. So one call goes through all tables.
LEAST_TALLY = 64  # slots
GROUP_BITS = 12  # log2 of the groups of hosts whose pairs are counted together before hosts are


class Tally(NamedTuple):
    """A small table of mangled hosts, at most half full, and their numbers of pairs; 0 in an empty slot."""

    hosts: Words  # (slots, 2): high and low word
    counts: Numbers


class Work(NamedTuple):
    """What a search for hosts works with. The caller makes it: in a loop, code that makes arrays compiles long."""

    groups: NDArray[np.int32]  # the number of pairs of each group
    heavy: Flags  # the groups that may have enough
    chosen: Numbers  # slots with hosts of such groups
    known: Flags  # which slots of the second table have a pair of the first, too
    tally: Tally


def _make_tally(slots: int) -> Tally:
    return Tally(np.empty((slots, 2), np.uint64), np.empty(slots, np.int64))


def heavy_hosts(
    mine: Tables, theirs: Tables | None, minimum: int, bin_bits: int, slots: list[int]
) -> tuple[Words, Numbers]:
    """Return the mangled hosts (high, low) with at least `minimum` pairs, and the number of pairs of each.

    These are hosts of the union of two sets, of each the tables of the same bins; a table may have no slots. The union
    need not be made: a group of hosts has at most the pairs of both tables, and hosts are counted only in groups that
    may have enough. There the pairs of one table are looked up in the other, so that those of both count once.

    The last of `slots` is the size of the tally. Calls for parts of a set share the list, to which they append.
    """
    work = Work(
        np.empty(1 << GROUP_BITS, np.int32),
        np.empty(1 << GROUP_BITS, np.bool_),
        np.empty(BLOCK, np.int64),
        np.empty(0 if theirs is None else theirs.sizes.max(initial=0), np.bool_),
        _make_tally(slots[-1]),
    )
    found = _make_tally(2 * slots[-1])
    number, parts = 0, [(found.hosts[:0], found.counts[:0])]
    while number < len(mine.bins):
        number, count, is_full = _heavy_hosts(number, mine, theirs, minimum, bin_bits, TABLE_KEY, work, found)
        parts.append((found.hosts[:count].copy(), found.counts[:count].copy()))
        if is_full:
            slots.append(max(2 * len(work.tally.counts), slots[-1]))
            work, found = work._replace(tally=_make_tally(slots[-1])), _make_tally(2 * slots[-1])
    return np.concatenate([hosts for hosts, _ in parts]), np.concatenate([peers for _, peers in parts])


@compiled
def _heavy_hosts(
    first: int,
    mine: Tables,
    theirs: Tables | None,
    minimum: int,
    bin_bits: int,
    key: TableKey,
    work: Work,
    found: Tally,
) -> tuple[int, int, bool]:
    """Write hosts of the tables from number `first` on. Return the table at which it stopped and the number of hosts.

    It stops where `found` may have no room, or where the tally is full; then it returns True, too.
    """
    groups, heavy, chosen, known, tally = work
    hosts, counts = tally
    count = 0
    for number in range(first, len(mine.bins)):
        if count + len(counts) > len(found.counts):
            return number, count, False
        table = slots_of(mine, number)
        groups[:] = 0
        _count_groups(table, bin_bits, groups)
        if theirs is not None:
            _count_groups(slots_of(theirs, number), bin_bits, groups)
        largest = np.int32(0)
        for group in range(len(groups)):
            largest = max(largest, groups[group])
        if largest < minimum:
            continue
        for group in range(len(groups)):
            heavy[group] = groups[group] >= minimum
        counts[:] = 0
        used = _count_table(table, heavy, bin_bits, known, False, np.int64(0), chosen, tally, key.pair[0])
        if theirs is not None:
            other = slots_of(theirs, number)
            is_common = table.size > 0 and other.size > 0
            if is_common:
                _mark_known(other, table, heavy, bin_bits, key, known)
            used = _count_table(other, heavy, bin_bits, known, is_common, used, chosen, tally, key.pair[0])
        if 2 * used >= len(counts):
            return number, count, True
        for place in range(len(counts)):
            found.hosts[count, 0], found.hosts[count, 1] = hosts[place, 0], hosts[place, 1]
            found.counts[count] = counts[place]
            count += counts[place] >= minimum
    return len(mine.bins), count, False


@compiled
def _count_table(
    table: Slots,
    heavy: Flags,
    bin_bits: int,
    known: Flags,
    skips: bool,
    used: int,
    chosen: Numbers,
    tally: Tally,
    multiplier: Any,
) -> int:
    """Count the pairs of the hosts of heavy groups, with `skips` but those that are known; return the slots in use."""
    for start in range(0, table.size, len(chosen)):
        if 2 * used < len(tally.counts):
            size = _choose(start, table, heavy, bin_bits, known, skips, chosen)
            used = _count_hosts(chosen[:size], table, used, tally, multiplier)
    return used


@compiled
def _mark_known(table: Slots, other: Slots, heavy: Flags, bin_bits: int, key: TableKey, known: Flags) -> None:
    """Mark the slots of a table with a pair of a heavy group that is in the other table, too."""
    shift, mask = np.uint64(bin_bits), np.uint64((1 << GROUP_BITS) - 1)
    known[: table.size] = False
    found, which = np.empty((CHUNK, 3), np.uint64), np.empty(CHUNK, np.int64)
    count = 0
    for slot in range(table.size):
        high, low, peer = pair_in(table, slot)
        which[count] = slot
        found[count, 0], found[count, 1], found[count, 2] = high, low, peer
        count += heavy[(low >> shift) & mask] & (low != table.empty)
        if count == CHUNK or slot + 1 == table.size:
            _find_pairs(found[:count], other, which, known, key)
            count = 0


@compiled
def _find_pairs(pairs: Words, table: Slots, which: Numbers, known: Flags, key: TableKey) -> None:
    """Mark the pairs (high, low, peer), at most a chunk of them, that a table has: known[which[i]] for pair i."""
    address, size, width, empty = table
    if width == 1:
        narrow, places = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint32)
        for i in range(len(pairs)):
            narrow[i] = (pairs[i, 1] << np.uint64(32)) | (pairs[i, 2] & np.uint64(MASK32))
        find_places(narrow[: len(pairs)], np.uint32(size), places, key)
        for i in range(len(pairs)):
            pair, place = narrow[i], np.int64(places[i])
            found = word_at(address + 8 * place)
            while found != pair and found != empty << np.uint64(32):
                place = place + 1 if place + 1 < size else 0
                found = word_at(address + 8 * place)
            known[which[i]] = found == pair and pairs[i, 2] <= np.uint64(MASK32)
        return
    for i in range(len(pairs)):
        known[which[i]] = not _lacks(table, pairs[i, 0], pairs[i, 1], pairs[i, 2], False, key)


@compiled
def _count_groups(table: Slots, bin_bits: int, counts: NDArray[np.int32]) -> None:
    """Count the pairs of each group of hosts. Some bits of a mangled host are its group."""
    shift, mask = np.uint64(bin_bits), np.uint64((1 << GROUP_BITS) - 1)
    for slot in range(table.size):
        low = low_in(table, slot)
        counts[(low >> shift) & mask] += low != table.empty


@compiled
def _choose(
    start: int, table: Slots, heavy: Flags, bin_bits: int, known: Flags, skips: bool, chosen: Numbers
) -> np.uint64:
    """List the slots of heavy groups among as many as there is room for, from slot `start` on; return their number.

    With `skips`, slots that are `known` are left out. A branch for each slot would be mispredicted.
    """
    shift, mask, size = np.uint64(bin_bits), np.uint64((1 << GROUP_BITS) - 1), np.uint64(0)
    for slot in range(start, min(start + len(chosen), table.size)):
        low = low_in(table, slot)
        chosen[size] = slot
        size += np.uint64(heavy[(low >> shift) & mask] & (low != table.empty) & (not skips or not known[slot]))
    return size


@compiled
def _count_hosts(chosen: Numbers, table: Slots, used: int, tally: Tally, multiplier: Any) -> int:
    """Count the hosts in chosen slots; return the number of hosts in the tally. Stop when it is half full."""
    hosts, counts = tally.hosts, tally.counts
    one, mask, shift = np.uint64(1), np.uint64(len(counts) - 1), cache_shift(len(counts))
    for slot in chosen:
        high, low, _ = pair_in(table, slot)
        place = (low * multiplier) >> shift  # Unsigned: a signed one is tested for negative values.
        while counts[place] and ((hosts[place, 1] ^ low) | (hosts[place, 0] ^ high)):
            place = (place + one) & mask
        counts[place] += 1
        if counts[place] == 1:
            hosts[place, 0], hosts[place, 1] = high, low
            used += 1
            if 2 * used >= len(counts):
                break
    return used


@compiled
def count_pairs(hosts: Words, tables: Tables, bin_: int, multiplier: Any) -> Numbers:
    """Return the number of pairs of each of some distinct mangled hosts (high, low) of a bin."""
    table, size = slots_of(tables, bin_), 2
    while size < 2 * len(hosts):
        size *= 2
    index = np.full(size, -1, np.int64)
    shift, mask = cache_shift(size), size - 1
    for i in range(len(hosts)):
        place = np.int64((hosts[i, 1] * multiplier) >> shift)
        while index[place] >= 0:
            place = (place + 1) & mask
        index[place] = i
    counts = np.zeros(len(hosts), np.int64)
    for slot in range(table.size):
        high, low, _ = pair_in(table, slot)
        place = np.int64((low * multiplier) >> shift)
        while index[place] >= 0:
            i = index[place]
            if hosts[i, 1] == low and hosts[i, 0] == high:
                counts[i] += 1  # Empty slots match no host of this bin.
                break
            place = (place + 1) & mask
    return counts
