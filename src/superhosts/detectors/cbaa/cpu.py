"""CBAA on CPU threads: writing pairs, and the join that finds addresses in bits alone.

The join walks the restoring arrays of one slice. Hot columns of each array are bucketed by the bits that they must
share with the array before, so partners are looked up, never enumerated. Every step ANDs one more column and drops
the tuple as soon as more zeros are left than a super host can leave; the first words of the AND reject most tuples
after a cache line or two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.detectors.cbaa.addressing import (
    check_bits,
    first_column,
    offset,
    own_bits,
    restoring_column,
    row_of,
    validating_column,
)
from superhosts.detectors.cbaa.geometry import Geometry
from superhosts.detectors.columns import Counts, Words, and_ones, ones_of
from superhosts.detectors.hashing import Key, column_draw
from superhosts.detectors.pending import CHUNK, Pool, Scratch, Task, make_scratch, unpack


class Store(NamedTuple):
    """The arrays of a CBAA sketch."""

    bits: Words  # (columns of all slices and arrays, words)
    zeros: Counts  # (columns,): zero bits of each


class Search(NamedTuple):
    """What a host of at least the threshold must show."""

    zeros: NDArray[np.int64]  # (slices,): most zeros in a column, and in the AND
    prefix_words: int
    prefix_ones: int  # fewest ones in the first words of the AND


@compiled
def fill(task: Task, pool: Pool, store: Store, geometry: Geometry, key: Key) -> None:
    """Write the chunks of one thread's task."""
    scratch = make_scratch()
    have = 0
    for c in range(len(task.chunks)):
        have = unpack(task.chunks[c], task.sizes[c], pool, task.seen, scratch, have)
        if have >= CHUNK or c == len(task.chunks) - 1:
            _write(have, scratch, store, geometry, key)
            have = 0


@compiled
def _write(count: int, scratch: Scratch, store: Store, geometry: Geometry, key: Key) -> None:
    """Set the bits of some pairs."""
    low, peers = scratch.low, scratch.peers
    rows, columns = np.empty(2 * CHUNK, np.int64), np.empty(2 * CHUNK, np.int64)
    bits, zeros = store.bits.reshape(-1), store.zeros
    slices = np.uint64((1 << geometry.slice_bits) - 1)
    for j in range(count):
        rows[j] = row_of(low[j], peers[j], geometry, key)
    for array in range(geometry.restoring + geometry.validating):
        start = offset(array, geometry)
        draw = column_draw(array, key)
        for j in range(count):
            left = low[j] >> np.uint64(geometry.slice_bits)
            first = first_column(np.int64(low[j] & slices), array, geometry)
            if array < geometry.restoring:
                columns[j] = first + np.int64(restoring_column(left, start, geometry))
            else:
                columns[j] = first + np.int64(validating_column(left, draw, geometry))
        for j in range(count):
            word = (columns[j] << (geometry.column_bits - 6)) + (rows[j] >> 6)
            bit = np.uint64(1) << np.uint64(rows[j] & 63)
            if bits[word] & bit == 0:
                bits[word] |= bit
                zeros[columns[j]] -= 1


@compiled
def _hot_columns(slice_: int, array: int, limit: int, store: Store, geometry: Geometry) -> tuple[Counts, Counts]:
    """Bucket the hot columns of a restoring array by the low bits that the array before it repeats.

    Returns the columns in bucket order and where each bucket begins. The first array is not looked up: one bucket.
    """
    shared = check_bits(array - 1, geometry) if array > 0 else 0
    first = first_column(slice_, array, geometry)
    begins = np.zeros((1 << shared) + 1, np.int32)
    for column in range(1 << geometry.index_bits):
        if store.zeros[first + column] <= limit:
            begins[(column & ((1 << shared) - 1)) + 1] += 1
    begins = np.cumsum(begins).astype(np.int32)
    columns = np.empty(begins[-1], np.int32)
    cursors = begins.copy()
    for column in range(1 << geometry.index_bits):
        if store.zeros[first + column] <= limit:
            bucket = column & ((1 << shared) - 1)
            columns[cursors[bucket]] = column
            cursors[bucket] += 1
    return columns, begins


@compiled
def _and_into(store: Store, column: int, before: Words, after: Words, search: Search) -> int:
    """AND a column to an accumulator; return the ones, or −1 as soon as the first words show too few."""
    bits = store.bits
    ones = np.int64(0)
    for w in range(search.prefix_words):
        after[w] = before[w] & bits[column, w]
        ones += np.int64(ones_of(after[w]))
    if ones < search.prefix_ones:
        return -1
    for w in range(search.prefix_words, bits.shape[1]):
        after[w] = before[w] & bits[column, w]
        ones += np.int64(ones_of(after[w]))
    return ones


@compiled
def join(
    slice_: int, share: tuple[int, int], store: Store, search: Search, geometry: Geometry, key: Key
) -> tuple[Words, Counts]:
    """Find the addresses of one slice that begin in every share[1]-th hot column; return hosts and zero counts."""
    restoring, arrays = geometry.restoring, geometry.restoring + geometry.validating
    limit = search.zeros[slice_]
    rows = 1 << geometry.column_bits
    hot = [_hot_columns(slice_, array, limit, store, geometry) for array in range(restoring)]
    ands = np.empty((arrays + 1, store.bits.shape[1]), np.uint64)
    tuple_ = np.empty(arrays, np.int64)  # the chosen column of each array
    next_ = np.zeros(restoring, np.int64)  # where the walk goes on in each array's list
    stop = np.zeros(restoring, np.int64)
    found = 0
    hosts = np.empty((16, 2), np.uint64)
    counts = np.empty((16, arrays + 1), np.int32)
    ands[0, :] = ~np.uint64(0)
    depth = 0
    next_[0], stop[0] = share[0], len(hot[0][0])
    while depth >= 0:
        if next_[depth] >= stop[depth]:
            depth -= 1
            continue
        column = np.int64(hot[depth][0][next_[depth]])
        next_[depth] += share[1] if depth == 0 else 1
        if depth == restoring - 1:
            closing = (1 << check_bits(depth, geometry)) - 1
            if column >> own_bits(depth, geometry) != tuple_[0] & closing:
                continue
        ones = _and_into(store, first_column(slice_, depth, geometry) + column, ands[depth], ands[depth + 1], search)
        if rows - ones > limit or ones < 0:
            continue
        tuple_[depth] = column
        if depth + 1 < restoring:
            bucket = column >> own_bits(depth, geometry)
            depth += 1
            next_[depth], stop[depth] = hot[depth][1][bucket], hot[depth][1][bucket + 1]
            continue
        left = np.uint64(0)
        for array in range(restoring):
            own = tuple_[array] & ((1 << own_bits(array, geometry)) - 1)
            left |= np.uint64(own) << np.uint64(offset(array, geometry))
        for array in range(restoring, arrays):
            tuple_[array] = validating_column(left, column_draw(array, key), geometry)
            column = first_column(slice_, array, geometry) + tuple_[array]
            ones = _and_into(store, column, ands[array], ands[array + 1], search) if ones >= rows - limit else -1
        if ones < 0 or rows - ones > limit:
            continue
        if found == len(hosts):
            hosts = np.concatenate((hosts, np.empty_like(hosts)))
            counts = np.concatenate((counts, np.empty_like(counts)))
        hosts[found, 0] = 0
        hosts[found, 1] = left << np.uint64(geometry.slice_bits) | np.uint64(slice_)
        for array in range(arrays):
            counts[found, array] = store.zeros[first_column(slice_, array, geometry) + tuple_[array]]
        counts[found, arrays] = rows - ones
        found += 1
    return hosts[:found], counts[:found]


@compiled
def measure(hosts: Words, store: Store, geometry: Geometry, key: Key) -> Counts:
    """Return the zero counts of given mangled hosts: their columns, and the AND."""
    arrays = geometry.restoring + geometry.validating
    counts = np.empty((len(hosts), arrays + 1), np.int32)
    columns = np.empty(arrays, np.int64)
    for i in range(len(hosts)):
        slice_ = np.int64(hosts[i, 1] & np.uint64((1 << geometry.slice_bits) - 1))
        left = hosts[i, 1] >> np.uint64(geometry.slice_bits)
        for array in range(arrays):
            columns[array] = first_column(slice_, array, geometry)
            if array < geometry.restoring:
                columns[array] += np.int64(restoring_column(left, offset(array, geometry), geometry))
            else:
                columns[array] += np.int64(validating_column(left, column_draw(array, key), geometry))
            counts[i, array] = store.zeros[columns[array]]
        counts[i, arrays] = (1 << geometry.column_bits) - and_ones(store.bits, columns, 0, store.bits.shape[1])
    return counts
