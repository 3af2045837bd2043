"""The tables of a dictionary of names: names in the order of their arrival, and an open hash table of their numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import Key, fold, pair_hash
from superhosts.core.textkeys import MOST_BYTES, SHORTENED, Bytes, TextColumn
from superhosts.detectors.engines.base import Words
from superhosts.jit.cache import compiled


class NameTable(NamedTuple):
    """Names in the order of their arrival, and an open hash table of their numbers."""

    hashes: Words
    ranks: Words
    starts: NDArray[np.int64]
    sizes: NDArray[np.uint16]
    shortened: NDArray[np.uint8]
    slots: NDArray[np.int32]  # number of a name, or -1
    letters: Bytes
    used: NDArray[np.int64]  # names, and bytes of them


def empty_table(names: int, letters: int) -> NameTable:
    """Return a table with room for this many names and bytes of them."""
    slots = 2 << (names - 1).bit_length()
    return NameTable(
        np.empty((names, 2), np.uint64),
        np.empty(names, np.uint64),
        np.empty(names, np.int64),
        np.empty(names, np.uint16),
        np.empty(names, np.uint8),
        np.full(slots, -1, np.int32),
        np.empty(letters, np.uint8),
        np.zeros(2, np.int64),
    )


@compiled
def _place_of(high: int, low: int, hashes: Words, slots: NDArray[np.int32]) -> int:
    """Return the slot of a hash, or the free slot where it belongs."""
    last = np.uint64(len(slots) - 1)
    place = low & last
    while True:
        number = slots[place]
        if number < 0 or (hashes[number, 1] == low and hashes[number, 0] == high):
            return place
        place = (place + np.uint64(1)) & last


@compiled
def _append(table: NameTable, place: int, high: int, low: int, rank: int) -> int:
    """Add a name without its letters; return its number."""
    number: int = table.used[0]
    table.hashes[number, 0], table.hashes[number, 1] = high, low
    table.ranks[number] = rank
    table.slots[place] = number
    table.used[0] = number + 1
    return number


@compiled
def _spell(table: NameTable, number: int, data: Bytes, start: int, size: int) -> None:
    """Write the letters of a name behind the others."""
    used = table.used[1]
    for i in range(size):
        table.letters[used + i] = data[start + i]
    table.starts[number] = used
    table.sizes[number] = size
    table.used[1] = used + size


@compiled
def admit(table: NameTable, pairs: tuple[Words, Words], text: TextColumn, first: int, cut: int, key: Key) -> int:
    """Add the hosts of pairs whose rank is not above `cut`, from pair `first` on.

    Return the number of pairs done: all of them, unless the table is full.
    """
    hosts, peers = pairs
    hashes, ranks, slots = table.hashes, table.ranks, table.slots
    data, starts, ends = text
    for i in range(first, len(hosts)):
        high, low = hosts[i, 0], hosts[i, 1]
        peer = peers[i, 0] if peers.shape[1] == 1 else fold(peers[i, 0], peers[i, 1], key)
        rank = pair_hash(fold(high, low, key), peer, key)
        if rank > cut:
            continue
        place = _place_of(high, low, hashes, slots)
        number = slots[place]
        if number >= 0:
            ranks[number] = min(ranks[number], rank)
            continue
        if table.used[0] == len(ranks) or table.used[1] + MOST_BYTES > len(table.letters):
            return i
        number = _append(table, place, high, low, rank)
        start, size = starts[i], ends[i] - starts[i]
        table.shortened[number] = size > MOST_BYTES
        if size > MOST_BYTES:
            size = SHORTENED
            while size > 0 and data[start + size] & 0xC0 == 0x80:  # within a character
                size -= 1
        _spell(table, number, data, start, size)
    return len(hosts)


@compiled
def _is_better(table: NameTable, mine: int, other: NameTable, theirs: int) -> bool:
    """Return True if another spelling of a host replaces the one here: whole ones first, then by their letters."""
    if table.shortened[mine] != other.shortened[theirs]:
        return bool(table.shortened[mine])
    a, b = table.starts[mine], other.starts[theirs]
    length = min(table.sizes[mine], other.sizes[theirs])
    for i in range(length):
        if table.letters[a + i] != other.letters[b + i]:
            return bool(other.letters[b + i] < table.letters[a + i])
    return bool(other.sizes[theirs] < table.sizes[mine])


@compiled
def absorb(table: NameTable, other: NameTable, numbers: NDArray[np.int64]) -> None:
    """Add some names of another table, for which there is room."""
    for theirs in numbers:
        high, low = other.hashes[theirs, 0], other.hashes[theirs, 1]
        place = _place_of(high, low, table.hashes, table.slots)
        number = np.int64(table.slots[place])
        if number < 0:
            number = _append(table, place, high, low, other.ranks[theirs])
        else:
            table.ranks[number] = min(table.ranks[number], other.ranks[theirs])
            if not _is_better(table, number, other, theirs):
                continue
        table.shortened[number] = other.shortened[theirs]
        _spell(table, number, other.letters, other.starts[theirs], np.int64(other.sizes[theirs]))


@compiled
def find(table: NameTable, hosts: Words) -> NDArray[np.int64]:
    """Return the number of each host's name; -1 if it is not known."""
    found = np.empty(len(hosts), np.int64)
    for i in range(len(hosts)):
        found[i] = table.slots[_place_of(hosts[i, 0], hosts[i, 1], table.hashes, table.slots)]
    return found
