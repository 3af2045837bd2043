"""Making and uniting the tables of small sets of pairs (`pairtable.py`), in one compiled call for all of them.

Most sets are small, and have a hundred tables: a call for each would take longer than the work. So the tables are given
by their addresses. Two tables of a bin are both in the order of their hashes, so both are read in order: cores fetch
what comes next, and hardly any access waits for memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, Key
from superhosts.detectors.engines.arrays import Words
from superhosts.detectors.engines.bins import CHUNK
from superhosts.detectors.engines.pairtable import Portion, Table, find_places, place_of
from superhosts.jit.compiled import compiled
from superhosts.jit.rawmemory import number_at, set_number, word_at

Numbers = NDArray[np.int64]


class Tables(NamedTuple):
    """Where the tables of some bins are. The caller keeps the tables."""

    addresses: Numbers
    sizes: Numbers  # slots
    widths: Numbers  # words of a slot
    bins: Numbers

    @classmethod
    def of_bins(cls, bins: int) -> Tables:
        """Return places for the tables of all bins, of which none is known yet."""
        none = np.zeros((3, bins), np.int64)
        return cls(none[0], none[1], none[2], np.arange(bins))

    def put(self, table: Table) -> None:
        """Note the place of a table, among those of all bins."""
        self.addresses[table.bin], self.sizes[table.bin], self.widths[table.bin] = (
            table.address,
            table.size,
            table.width,
        )

    def put_all(self, tables: Tables) -> None:
        """Note the places of several tables, among those of all bins."""
        for mine, theirs in zip(self[:3], tables[:3], strict=True):
            mine[tables.bins] = theirs

    def at(self, bins: Numbers) -> Tables:
        """Return the places of some bins' tables."""
        return Tables(self.addresses[bins], self.sizes[bins], self.widths[bins], self.bins[bins])

    def copy(self) -> Tables:
        """Return independent places, of the same tables."""
        return self.at(self.bins)


class Slots(NamedTuple):
    """Where one table is. It consists of numbers alone, so that passing it costs nothing."""

    address: int
    size: int  # slots
    width: int  # words of a slot
    empty: Any  # low word of the mangled host in an empty slot


@compiled
def slots_of(tables: Tables, number: int) -> Slots:
    """Return where one of some tables is."""
    empty = np.uint64(tables.bins[number] == 0)
    return Slots(tables.addresses[number], tables.sizes[number], tables.widths[number], empty)


@compiled
def low_in(table: Slots, slot: int) -> Any:
    """Return the low word of the mangled host in a slot."""
    if table.width == 1:
        return word_at(table.address + 8 * slot) >> np.uint64(32)
    return word_at(table.address + 8 * (table.width * slot + table.width - 2))


@compiled
def pair_in(table: Slots, slot: int) -> tuple[Any, Any, Any]:
    """Return the pair in a slot: the mangled host (high, low) and the peer."""
    first = table.address + 8 * table.width * slot
    word = word_at(first)
    if table.width == 1:
        return np.uint64(0), word >> np.uint64(32), word & np.uint64(MASK32)
    high = word if table.width == 3 else np.uint64(0)
    return high, word_at(first + 8 * (table.width - 2)), word_at(first + 8 * (table.width - 1))


@compiled
def count_missing(mine: Tables, theirs: Tables, span: tuple[int, int], key: Key, missing: Numbers) -> None:
    """Count the pairs of each of their tables that mine lacks, from one table up to another."""
    for number in range(span[0], span[1]):
        missing[number] = _unite(mine, theirs, number, key, False)


@compiled
def unite(mine: Tables, theirs: Tables, into: Tables, span: tuple[int, int], key: Key, added: Numbers) -> None:
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
def fill(tables: Tables, edges: Numbers, portion: Portion, key: Key, counts: Numbers) -> None:
    """Insert entries of one word into tables without content, which have room for all of them.

    The chunks of table i are those from edges[i] up to edges[i + 1]. `counts` has the pairs of each bin.
    """
    entries, chunks, sizes = portion.pool.entries, portion.chunks, portion.sizes
    places = np.empty(CHUNK, np.uint32)
    for number in range(len(tables.addresses)):
        _clear(tables, number)
        address, size = tables.addresses[number], tables.sizes[number]
        empty = np.uint64(tables.bins[number] == 0) << np.uint64(32)
        for chunk in range(edges[number], edges[number + 1]):
            first = np.int64(chunks[chunk]) * CHUNK
            pairs = entries[first : first + sizes[chunk]]
            counts[tables.bins[number]] += _insert(pairs, address, size, empty, key, True, places)


@compiled
def _clear(tables: Tables, number: int) -> None:
    """Make all slots of a table empty."""
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
    """Copy a table to one of the same size and width."""
    address, source = into.addresses[number], mine.addresses[number]
    for offset in range(0, 8 * mine.widths[number] * mine.sizes[number], 8):
        set_number(address + offset, number_at(source + offset))


@compiled
def _unite(mine: Tables, theirs: Tables, number: int, key: Key, inserts: bool) -> int:
    """Count the pairs that one table of mine lacks; with `inserts`, insert them."""
    into, size, wide = mine.addresses[number], mine.sizes[number], mine.widths[number]
    source, slots, width = theirs.addresses[number], theirs.sizes[number], theirs.widths[number]
    empty = np.uint64(mine.bins[number] == 0)  # the low word of the host in an empty slot
    if wide == 1:
        return _unite_narrow(into, size, source, slots, empty << np.uint64(32), key, inserts)
    missing = 0
    for entry in range(source, source + 8 * width * slots, 8 * width):
        first = word_at(entry)
        low = first >> np.uint64(32) if width == 1 else word_at(entry + 8 * (width - 2))
        if low == empty:
            continue
        high = first if width == 3 else np.uint64(0)
        peer = first & np.uint64(MASK32) if width == 1 else word_at(entry + 8 * (width - 1))
        place = place_of(high, low, peer, size, key)
        while True:
            slot = into + 8 * wide * place
            found = word_at(slot + 8 * (wide - 2))
            if found == empty:
                missing += 1
                if inserts:
                    set_number(slot, np.int64(high))  # In a slot of two words, the low word replaces it.
                    set_number(slot + 8 * (wide - 2), np.int64(low))
                    set_number(slot + 8 * (wide - 1), np.int64(peer))
                break
            if found == low and word_at(slot + 8 * (wide - 1)) == peer and (wide == 2 or word_at(slot) == high):
                break
            place = place + 1 if place + 1 < size else 0
    return missing


@compiled
def _unite_narrow(into: int, size: int, source: int, slots: int, empty: Any, key: Key, inserts: bool) -> int:
    """Do the same for tables of slots of one word."""
    pairs, places = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint32)
    missing = 0
    for start in range(0, slots, CHUNK):
        count = 0
        for j in range(start, min(start + CHUNK, slots)):
            pair = word_at(source + 8 * j)
            pairs[count] = pair
            count += pair != empty
        missing += _insert(pairs[:count], into, size, empty, key, inserts, places)
    return missing


@compiled
def _insert(pairs: Words, into: int, size: int, empty: Any, key: Key, inserts: bool, places: Any) -> int:
    """Count the pairs of one word that a table lacks, and insert them with `inserts`."""
    find_places(pairs, np.uint32(size), places, key)
    last, missing = 8 * (size - 1), 0
    for i in range(len(pairs)):
        pair, place = pairs[i], 8 * np.int64(places[i])
        found = word_at(into + place)
        while found != pair and found != empty:
            place = place + 8 if place < last else 0
            found = word_at(into + place)
        if found == empty:
            missing += 1
            if inserts:
                set_number(into + place, np.int64(pair))
    return missing
