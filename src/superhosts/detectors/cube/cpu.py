"""The labelled cube on CPU threads: writing pairs that wait into the slices, and naming super hosts.

`fill` first computes the addresses of a whole chunk, in loops that the compiler turns into vector code, then writes.
A bit is read first and written only when it is clear. A label is compared for every pair of high priority, never
skipped because the bits were set already: another pair may have set them, and the result would depend on the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.detectors.columns import Counts, Words, and_ones
from superhosts.detectors.cube.addressing import (
    TICKET_ARRAYS,
    column_of,
    label_of,
    limb_of,
    lowest_priority,
    next_ticket,
    priority_of,
    row_of,
)
from superhosts.detectors.cube.geometry import Geometry
from superhosts.detectors.hashing import MASK32, Key, column_draw, fold, pair_hash
from superhosts.detectors.pending import CHUNK, Pool, Scratch, Task, make_scratch, unpack

FETCH_LINES = (2 << 20) // 64  # cache lines of a slice that is worth fetching: more would not stay in the cache


class Store(NamedTuple):
    """The arrays of a cube."""

    bits: Words  # (columns of all slices and arrays, words)
    zeros: Counts  # (columns,): zero bits of each
    labels: Words  # (columns, labels, limbs)


class Search(NamedTuple):
    """What a host of at least the threshold must show."""

    zeros: int  # most zeros in a column, and in the AND
    priority: int  # lowest priority of a label that it may have left
    prefix_words: int
    prefix_ones: int  # fewest ones in the first words of the AND


@compiled
def fill(task: Task, pool: Pool, store: Store, geometry: Geometry, key: Key) -> int:
    """Write the chunks of one thread's task. (Returns what `_fetch` read, which means nothing.)"""
    scratch = make_scratch()
    have, fetched, bin_ = 0, 0, -1
    for c in range(len(task.chunks)):
        if pool.owner[task.chunks[c]] != bin_:
            bin_ = pool.owner[task.chunks[c]]
            fetched += _fetch(bin_, c, task, pool, store, geometry)
        have = unpack(task.chunks[c], task.sizes[c], pool, task.seen, scratch, have)
        if have >= CHUNK or c == len(task.chunks) - 1:
            _write(have, scratch, store, geometry, key)
            have = 0
    return fetched


@compiled
def _fetch(bin_: int, start: int, task: Task, pool: Pool, store: Store, geometry: Geometry) -> int:
    """Read a bin's slice from end to end if many pairs are about to be written there.

    One stream through memory is several times faster than as many cache misses at random.
    """
    slice_columns = geometry.arrays * geometry.columns
    words = store.bits.shape[1]
    entries = 0
    for c in range(start, len(task.chunks)):
        if pool.owner[task.chunks[c]] != bin_:
            break
        entries += task.sizes[c]
    lines = slice_columns * words // 8
    fetched = 0
    if pool.cursors.shape[1] - 1 == 1 << geometry.slice_bits and 2 * entries > lines and lines <= FETCH_LINES:
        for column in range(bin_ * slice_columns, (bin_ + 1) * slice_columns):
            for word in range(0, words, 8):
                fetched ^= np.int64(store.bits[column, word])
    return fetched


@compiled
def _write(count: int, scratch: Scratch, store: Store, geometry: Geometry, key: Key) -> None:
    """Set the bits of some pairs and let them compete for labels."""
    # Bound to plain names and indexed in full: a view made in an inner loop would cost two atomic reference counts.
    high, low, folded, peers, pairs = scratch
    bits, zeros, labels = store.bits.reshape(-1), store.zeros, store.labels
    columns, words, chosen = np.empty(2 * CHUNK, np.int64), np.empty(2 * CHUNK, np.int64), np.empty(2 * CHUNK, np.int64)
    lowest = np.uint64(lowest_priority(geometry.share_bits))
    for j in range(count):
        folded[j] = low[j] if geometry.key_bits < 128 else fold(high[j], low[j], key)
    for j in range(count):
        pairs[j] = pair_hash(folded[j], peers[j], key)
    tickets = pairs
    for array in range(geometry.arrays):
        draw = column_draw(array, key)
        for j in range(count):
            columns[j] = column_of(folded[j], low[j], array, draw, geometry)
            words[j] = (columns[j] << (geometry.column_bits - 6)) + (row_of(pairs[j], geometry) >> 6)
        for j in range(count):
            bit = np.uint64(1) << (pairs[j] & np.uint64(63))
            if bits[words[j]] & bit == 0:
                bits[words[j]] |= bit
                zeros[columns[j]] -= 1
        if array > 0 and array % TICKET_ARRAYS == 0:
            tickets = np.array([next_ticket(ticket, key) for ticket in tickets])
        contenders = 0
        for j in range(count):
            chosen[contenders] = j
            contenders += np.uint64(priority_of(tickets[j], array)) >= lowest
        for i in range(contenders):
            j = chosen[i]
            priority = np.uint64(priority_of(tickets[j], array)) << np.uint64(32)
            label = np.int64(label_of(low[j], geometry))
            for limb in range(labels.shape[2]):
                word = priority | np.uint64(limb_of(high[j], low[j], limb))
                if word > labels[columns[j], label, limb]:
                    labels[columns[j], label, limb] = word


@compiled
def columns_of(high: int, low: int, out: NDArray[np.int64], geometry: Geometry, key: Key) -> None:
    """Write the columns of a mangled host in all arrays."""
    folded = fold(high, low, key)
    for array in range(geometry.arrays):
        out[array] = column_of(folded, low, array, column_draw(array, key), geometry)


@compiled
def read_label(labels: Words, column: int, label: int) -> tuple[int, int, int]:
    """Return priority, high and low word of the host that a label names; priority 0 if it names none.

    Words of unlike priority come from two pairs: such a label names nobody.
    """
    priority = labels[column, label, 0] >> np.uint64(32)
    high = np.uint64(0)
    low = np.uint64(0)
    for limb in range(labels.shape[2]):
        if labels[column, label, limb] >> np.uint64(32) != priority:
            return np.uint64(0), high, low
        word = (labels[column, label, limb] & np.uint64(MASK32)) << np.uint64(32 * (limb & 1))
        if limb < 2:
            low |= word
        else:
            high |= word
    return priority, high, low


@compiled
def _is_new(
    host: tuple[int, int], array: int, columns: NDArray[np.int64], store: Store, search: Search, label: int
) -> bool:
    """Say whether a host's columns are all hot and no earlier array names it (it is evaluated there)."""
    for other in range(len(columns)):
        if store.zeros[columns[other]] > search.zeros:
            return False
    for other in range(array):
        priority, high, low = read_label(store.labels, columns[other], label)
        if priority >= np.uint64(search.priority) and high == host[0] and low == host[1]:
            return False
    return True


@compiled
def name_hosts(
    span: tuple[int, int], store: Store, search: Search, geometry: Geometry, key: Key
) -> tuple[Words, Counts]:
    """Follow the labels of hot columns start..stop; return the mangled hosts that pass, and their zero counts."""
    found = 0
    hosts = np.empty((16, 2), np.uint64)
    counts = np.empty((16, geometry.arrays + 1), np.int32)
    columns = np.empty(geometry.arrays, np.int64)
    for column in range(span[0], span[1]):
        if store.zeros[column] > search.zeros:
            continue
        array = column // geometry.columns % geometry.arrays
        for label in range(store.labels.shape[1]):
            priority, high, low = read_label(store.labels, column, label)
            if priority == 0 or priority < np.uint64(search.priority):
                continue
            columns_of(high, low, columns, geometry, key)
            if columns[array] != column or np.int64(label_of(low, geometry)) != label:
                continue  # limbs of two pairs of equal priority, mixed
            if not _is_new((high, low), array, columns, store, search, label):
                continue
            if and_ones(store.bits, columns, 0, search.prefix_words) < search.prefix_ones:
                continue
            zeros = geometry_rows(geometry) - and_ones(store.bits, columns, 0, store.bits.shape[1])
            if zeros > search.zeros:
                continue
            if found == len(hosts):
                hosts = np.concatenate((hosts, np.empty_like(hosts)))
                counts = np.concatenate((counts, np.empty_like(counts)))
            hosts[found, 0] = high
            hosts[found, 1] = low
            for other in range(geometry.arrays):
                counts[found, other] = store.zeros[columns[other]]
            counts[found, geometry.arrays] = zeros
            found += 1
    return hosts[:found], counts[:found]


@compiled
def geometry_rows(geometry: Geometry) -> int:
    """Return the rows of a column."""
    return 1 << geometry.column_bits


@compiled
def measure(hosts: Words, store: Store, geometry: Geometry, key: Key) -> Counts:
    """Return the zero counts of given mangled hosts: their columns, and the AND."""
    counts = np.empty((len(hosts), geometry.arrays + 1), np.int32)
    columns = np.empty(geometry.arrays, np.int64)
    for i in range(len(hosts)):
        columns_of(hosts[i, 0], hosts[i, 1], columns, geometry, key)
        for array in range(geometry.arrays):
            counts[i, array] = store.zeros[columns[array]]
        counts[i, geometry.arrays] = geometry_rows(geometry) - and_ones(store.bits, columns, 0, store.bits.shape[1])
    return counts
