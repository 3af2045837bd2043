"""Open-addressing tables of distinct pairs: one table for each bin, filled to three quarters, with linear probing.

A slot is one entry of the bins (`bins.py`): one word for a 32-bit host and peer, otherwise the mangled host in one or
two words and the folded peer. No flag marks an empty slot. The low bits of a mangled host are the number of its bin, so
a host word with other low bits never belongs to an entry: 0 in all tables but that of bin 0, which has 1.

A hash of the pair says where its search begins. Its key is not that of the sketch, which may be public, but TABLE_KEY,
which is random and never leaves the process: nobody can choose pairs that collide. Nothing that leaves the process
depends on the order of a table. The size of a table is any number: the hash is scaled to it by a multiplication.
"""

from __future__ import annotations

import mmap
import secrets
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, Key, fold, make_key, pair_hash
from superhosts.detectors.engines.base import Words
from superhosts.detectors.engines.bins import CHUNK, Indexes, Pool, entry_width
from superhosts.jit.cache import compiled

TABLE_KEY = make_key(secrets.token_bytes(32))  # of all tables of this process, so that they can be merged
HOST_MULTIPLIER = TABLE_KEY.pair[0]  # distributes mangled hosts over small tables
LARGE = 1 << 16  # bytes of a table whose memory is mapped
# A large table is filled at once with the pairs of a smaller one, so Linux maps its pages at once too: one by one takes
# three times as long.
MAPPING = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)


class Table(NamedTuple):
    """The distinct pairs of one bin."""

    slots: Words  # length: slots · width
    width: int  # words of a slot
    empty: np.uint64  # low word of the mangled host in an empty slot
    bin: int
    counts: NDArray[np.int64]  # pairs in the table of each bin, for all bins
    address: int  # of the slots, which takes a while to find out

    @property
    def size(self) -> int:
        """The number of slots."""
        return len(self.slots) // self.width

    @property
    def room(self) -> int:
        """The most pairs that it takes, as `capacity` says, in plain Python."""
        return self.size * 3 // 4


class Portion(NamedTuple):
    """Some entries of one bin, or of several in ascending order, as chunks of a pool."""

    chunks: Indexes
    sizes: Indexes  # entries of each chunk
    pool: Pool

    @property
    def width(self) -> int:
        """Words of an entry."""
        # As plain Python: a compiled call that takes a moment costs another one, in which other threads get the lock.
        return len(self.pool.entries) // (len(self.pool.owner) * CHUNK)


def _zeros(words: int) -> Words:
    """Return zeros. Memory of a large table goes back to the system when it is freed, so that the cube can have it.

    The allocator of the C library would keep it, because the tables of all bins grow in turn.
    """
    if 8 * words < LARGE:
        return np.zeros(words, np.uint64)
    try:
        return np.frombuffer(mmap.mmap(-1, 8 * words, flags=MAPPING), np.uint64)
    except OSError as error:
        raise MemoryError(f"{8 * words:,} bytes for a table of pairs") from error


def make_table(size: int, width: int, bin_: int, counts: NDArray[np.int64]) -> Table:
    """Return an empty table."""
    slots = _zeros(size * width)
    if bin_ == 0:
        slots[max(0, width - 2) :: width] = 1 << 32 if width == 1 else 1
    return Table(slots, width, np.uint64(bin_ == 0), bin_, counts, slots.ctypes.data)


def copy_table(table: Table) -> Table:
    """Return a table with the same pairs in other memory."""
    slots = _zeros(len(table.slots))
    slots[:] = table.slots
    return table._replace(slots=slots, address=slots.ctypes.data)


def make_tables(sizes: NDArray[np.int64], width: int) -> tuple[Words, NDArray[np.int64]]:
    """Return memory for tables of these sizes, without content, in one piece, and the address of each.

    The C library keeps that memory for the next such tables: mapping it anew would take longer than filling it.
    """
    ends = np.cumsum(sizes * width)
    words = np.empty(int(ends[-1]), np.uint64)
    return words, words.ctypes.data + 8 * (ends - sizes * width)


@compiled
def capacity(size: int) -> int:
    """Return the most pairs of a table with this many slots."""
    return size * 3 // 4


@compiled
def insert_narrow(start: tuple[int, int], portion: Portion, table: Table, key: Key) -> tuple[int, int]:
    """Insert entries of one word, from chunk and entry `start` on, into a table of slots of one word.

    Return the chunk and entry at which it stopped: the number of chunks, or earlier if the table is full.

    Most entries are known pairs in one of the first two slots of their search. These are recognized first, without a
    branch, which would be mispredicted.
    """
    slots, empty, counts = table.slots, table.empty << np.uint64(32), table.counts
    entries, chunks, sizes = portion.pool.entries, portion.chunks, portion.sizes
    size, last, most = np.uint32(len(slots)), len(slots) - 1, capacity(len(slots))
    count = counts[table.bin]
    places, others = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.int64)
    if (len(chunks) - start[0]) * CHUNK > len(slots) // 8:  # more entries than cache lines
        others[0] = _read_ahead(slots)
    offset = start[1]
    for number in range(start[0], len(chunks)):
        first = chunks[number] * CHUNK
        pairs = entries[first : first + sizes[number]]
        find_places(pairs, size, places, key)
        left = 0
        for i in range(offset, len(pairs)):
            pair, place = pairs[i], int(places[i])
            others[left] = i
            left += (slots[place] != pair) & (slots[place + 1 if place < last else 0] != pair)
        for j in range(left):
            i = others[j]
            pair, place = pairs[i], int(places[i])
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
def _read_ahead(slots: Words) -> Any:
    """Read a word of each cache line: reading in order takes a fraction of the time of random misses later.

    The caller must store the result, or the compiler removes the loop.
    """
    bits = np.uint64(0)
    for j in range(0, len(slots), 8):
        bits |= slots[j]
    return np.int64(bits)


@compiled
def insert_wide(start: tuple[int, int], portion: Portion, table: Table, key: Key) -> tuple[int, int]:
    """Insert entries of any width into a table of slots of several words; return where it stopped."""
    slots, empty, counts, width = table.slots, table.empty, table.counts, table.width
    entries, chunks, sizes = portion.pool.entries, portion.chunks, portion.sizes
    given = entry_width(portion.pool)
    size = len(slots) // width
    most, count = capacity(size), counts[table.bin]
    offset = start[1]
    for number in range(start[0], len(chunks)):
        for i in range(offset, sizes[number]):
            j = (chunks[number] * CHUNK + i) * given
            high = entries[j] if given == 3 else np.uint64(0)
            low = entries[j] >> np.uint64(32) if given == 1 else entries[j + given - 2]
            peer = entries[j] & np.uint64(MASK32) if given == 1 else entries[j + given - 1]
            place = place_of(high, low, peer, size, key) * width
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
def find_places(pairs: Words, size: Any, places: NDArray[np.uint32], key: Key) -> None:
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
def place_of(high: Any, low: Any, peer: Any, size: int, key: Key) -> Any:
    """Return the slot at which the search for a pair begins. The host is mixed before, as in `find_places`."""
    zero: Any = np.uint64(0)
    hash_ = np.uint64(pair_hash(fold(fold(high, low, key), zero, key), peer, key))
    return np.int64(((hash_ >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))


@compiled
def rehash(old: Table, new: Table, key: Key) -> None:
    """Copy all pairs into an empty table of at least the same width that has room for them."""
    if new.width == 1:
        _rehash_narrow(old, new, key)
        return
    slots, width, wide = old.slots, old.width, new.width
    others, empty = new.slots, new.empty
    size = len(others) // wide
    for j in range(0, len(slots), width):
        high = slots[j] if width == 3 else np.uint64(0)
        low = slots[j] >> np.uint64(32) if width == 1 else slots[j + width - 2]
        if low == empty:
            continue
        peer = slots[j] & np.uint64(MASK32) if width == 1 else slots[j + width - 1]
        place = place_of(high, low, peer, size, key) * wide
        while others[place + wide - 2] != empty:
            place += wide
            if place == len(others):
                place = 0
        others[place] = high
        others[place + wide - 2] = low
        others[place + wide - 1] = peer


@compiled
def _rehash_narrow(old: Table, new: Table, key: Key) -> None:
    """Copy all pairs between tables of slots of one word.

    Both tables are in about the same order, because places are scaled hashes. So a pair usually goes to its place or
    directly behind the pair before it, which takes no search: slots `run` to `behind` are full. The first pairs of a
    table may belong to its end, so copying begins after an empty slot.
    """
    slots, others, empty = old.slots, new.slots, old.empty << np.uint64(32)
    size, last = np.uint32(len(others)), len(others) - 1
    pairs, places = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint32)
    first = 0
    while slots[first] != empty:
        first += 1
    run, behind = 0, 0
    for begin, end in ((first, len(slots)), (0, first)):
        for start in range(begin, end, CHUNK):
            count = 0
            for j in range(start, min(start + CHUNK, end)):
                pairs[count] = slots[j]
                count += slots[j] != empty
            find_places(pairs[:count], size, places, key)
            for i in range(count):
                place = int(places[i])
                if place >= run and max(place, behind) <= last and others[max(place, behind)] == empty:
                    run = place if place > behind else run
                    place = max(place, behind)
                    behind = place + 1
                else:
                    while others[place] != empty:
                        place = place + 1 if place < last else 0
                others[place] = pairs[i]


@compiled
def compact(table: Table, out: Words) -> int:
    """Copy all pairs to the start of `out`, which has room for one more; return their number.

    Empty slots are copied too, and the next pair overwrites them: a branch for each slot would be mispredicted.
    """
    slots, width = table.slots, table.width
    count = 0
    for j in range(0, len(slots), width):
        low = slots[j] >> np.uint64(32) if width == 1 else slots[j + width - 2]
        for w in range(width):
            out[count * width + w] = slots[j + w]
        count += low != table.empty
    return count


@compiled
def unpack_portion(portion: Portion) -> tuple[Words, Words]:
    """Return the mangled hosts (high, low) and the folded peers of all entries."""
    entries, chunks, sizes = portion.pool.entries, portion.chunks, portion.sizes
    width = entry_width(portion.pool)
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
