"""Counting the pairs of hosts in tables of distinct pairs (`pairtable.py`).

A window that slides asks for its super hosts every few seconds, mostly in two small sets of a hundred tables each. So
one call goes through all tables, which are given by their addresses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, Key
from superhosts.detectors.engines.arrays import Words
from superhosts.detectors.engines.bins import BLOCK, CHUNK, cache_shift
from superhosts.detectors.engines.pairmerging import Slots, Tables, low_in, pair_in, slots_of
from superhosts.detectors.engines.pairtable import Table, find_places, place_of
from superhosts.jit.compiled import compiled
from superhosts.jit.rawmemory import word_at

GROUP_BITS = 12  # log2 of the groups of hosts whose pairs are counted together before hosts are


@compiled
def heavy_hosts(mine: Tables, theirs: Tables, minimum: int, bin_bits: int, key: Key) -> tuple[Words, NDArray[np.int64]]:
    """Return the mangled hosts (high, low) with at least `minimum` pairs, and the number of pairs of each.

    These are hosts of the union of two sets, of each the tables of the same bins; a table may have no slots. The union
    need not be made: a group of hosts has at most the pairs of both tables, and hosts are counted only in groups that
    may have enough. There the pairs of one table are looked up in the other, so that those of both count once.
    """
    hosts, peers = np.empty((0, 2), np.uint64), np.empty(0, np.int64)
    groups, block = np.empty(1 << GROUP_BITS, np.int32), np.empty((BLOCK, 2), np.uint64)
    for number in range(len(mine.bins)):
        table, other = slots_of(mine, number), slots_of(theirs, number)
        groups[:] = 0
        _count_groups(table, bin_bits, groups)
        _count_groups(other, bin_bits, groups)
        heavy = groups >= minimum
        if not heavy.any():
            continue
        tally, known = Tally(np.empty((64, 2), np.uint64), np.zeros(64, np.int64)), np.zeros(0, np.bool_)
        tally, used = _count_table(table, heavy, bin_bits, known, np.int64(0), block, tally, key.pair[0])
        if table.size and other.size:
            known = _known_pairs(other, table, heavy, bin_bits, key)
        tally, used = _count_table(other, heavy, bin_bits, known, used, block, tally, key.pair[0])
        enough = tally.counts >= minimum
        hosts = np.concatenate((hosts, tally.hosts[enough]))
        peers = np.concatenate((peers, tally.counts[enough]))
    return hosts, peers


@compiled
def _count_table(
    table: Slots,
    heavy: NDArray[np.bool_],
    bin_bits: int,
    known: NDArray[np.bool_],
    used: int,
    block: Words,
    tally: Tally,
    multiplier: Any,
) -> tuple[Tally, int]:
    """Count the pairs of the hosts of heavy groups, but those that are marked as known, if any are."""
    start = np.int64(0)  # numba would compile callees for a literal 0, too.
    while start < table.size:
        start, size = _gather(start, table, heavy, bin_bits, known, block)
        done = np.int64(0)
        while done < size:
            done, used = _count_hosts(done, size, used, block, tally, multiplier)
            if 2 * used >= len(tally.counts):
                tally = _twice(tally, multiplier)
    return tally, used


@compiled
def _known_pairs(table: Slots, other: Slots, heavy: NDArray[np.bool_], bin_bits: int, key: Key) -> NDArray[np.bool_]:
    """Return which slots of a table have a pair of a heavy group that is in the other table, too."""
    shift, mask = np.uint64(bin_bits), np.uint64((1 << GROUP_BITS) - 1)
    known = np.zeros(table.size, np.bool_)
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
    return known


@compiled
def _find_pairs(pairs: Words, table: Slots, which: NDArray[np.int64], known: NDArray[np.bool_], key: Key) -> None:
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
        high, low, peer = pairs[i, 0], pairs[i, 1], pairs[i, 2]
        place = place_of(high, low, peer, size, key)
        while True:
            other_high, other_low, other_peer = pair_in(table, place)
            if other_low == empty:
                break
            if other_low == low and other_peer == peer and other_high == high:
                known[which[i]] = True
                break
            place = place + 1 if place + 1 < size else 0


class Tally(NamedTuple):
    """A small table of mangled hosts, at most half full, and their numbers of pairs; 0 in an empty slot."""

    hosts: Words  # (slots, 2): high and low word
    counts: NDArray[np.int64]


@compiled
def _count_groups(table: Slots, bin_bits: int, counts: NDArray[np.int32]) -> None:
    """Count the pairs of each group of hosts. Some bits of a mangled host are its group."""
    shift, mask = np.uint64(bin_bits), np.uint64((1 << GROUP_BITS) - 1)
    for slot in range(table.size):
        low = low_in(table, slot)
        counts[(low >> shift) & mask] += low != table.empty


@compiled
def _gather(
    start: int, table: Slots, heavy: NDArray[np.bool_], bin_bits: int, known: NDArray[np.bool_], block: Words
) -> tuple[int, int]:
    """Copy the mangled hosts of heavy groups from the slots of a table, from slot `start` on, until a block is full.

    Slots that are `known` are left out. Return the slot at which it stopped and the number of hosts. A branch for each
    slot would be mispredicted.
    """
    shift, mask = np.uint64(bin_bits), np.uint64((1 << GROUP_BITS) - 1)
    size = 0
    for slot in range(start, table.size):
        if size == len(block):
            return slot, size
        low = low_in(table, slot)
        block[size, 0] = word_at(table.address + 24 * slot) if table.width == 3 else np.uint64(0)
        block[size, 1] = low
        size += heavy[(low >> shift) & mask] & (low != table.empty) & (len(known) == 0 or not known[slot])
    return table.size, size


@compiled
def _count_hosts(start: int, stop: int, used: int, block: Words, tally: Tally, multiplier: Any) -> tuple[int, int]:
    """Count hosts start..stop of a block; return the index of the next one and the number of hosts in the tally.

    Stop when the tally is half full. Only the caller replaces the tally: a loop that did would count references.
    """
    hosts, counts = tally.hosts, tally.counts
    mask, shift = len(counts) - 1, cache_shift(len(counts))
    for i in range(start, stop):
        high, low = block[i, 0], block[i, 1]
        place = np.int64((low * multiplier) >> shift)
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
def _twice(tally: Tally, multiplier: Any) -> Tally:
    """Return a tally twice as large with the same content."""
    hosts, counts = tally
    larger = Tally(np.empty((2 * len(counts), 2), np.uint64), np.zeros(2 * len(counts), np.int64))
    shift, mask = cache_shift(len(larger.counts)), len(larger.counts) - 1
    for i in range(len(counts)):
        if counts[i]:
            place = np.int64((hosts[i, 1] * multiplier) >> shift)
            while larger.counts[place]:
                place = (place + 1) & mask
            larger.hosts[place, 0], larger.hosts[place, 1] = hosts[i, 0], hosts[i, 1]
            larger.counts[place] = counts[i]
    return larger


@compiled
def count_pairs(hosts: Words, table: Table, multiplier: Any) -> NDArray[np.int64]:
    """Return the number of pairs of each of some mangled hosts (high, low), which must be distinct.

    The multiplier distributes them over a small table.
    """
    slots, width = table.slots, table.width
    size = 2
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
    for j in range(0, len(slots), width):
        low = slots[j] >> np.uint64(32) if width == 1 else slots[j + width - 2]
        place = np.int64((low * multiplier) >> shift)
        while index[place] >= 0:
            i = index[place]
            if hosts[i, 1] == low and (width < 3 or hosts[i, 0] == slots[j]):
                counts[i] += 1  # Empty slots match no host of this bin.
                break
            place = (place + 1) & mask
    return counts
