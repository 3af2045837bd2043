"""The labelled cube on CPU threads: writing pending pairs to the slices and naming super hosts.

`fill` first computes the addresses of a block in loops that the compiler vectorizes, then writes. It compares the label
for every pair of high priority, even if all bits were already set: another pair may have set them, and skipping the
label would make the result depend on the order of pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.cubefile.coding import CodedBlock
from superhosts.detectors.cube.addressing import (
    column_of,
    holds_limb,
    label_of,
    label_word,
    limb_in,
    limb_of,
    lowest_priority,
    names_host,
    priority_in,
    priority_of,
    rotated_back,
    rotation_of,
    row_of,
    ticket_of,
)
from superhosts.detectors.cube.geometry import Geometry, Search
from superhosts.device import run_parallel, split_evenly
from superhosts.engines.arrays import Arrays, Counts, Words
from superhosts.engines.base import Engine, Plan
from superhosts.engines.bins import BLOCK, PADDING, Pool, Scratch, Task, make_scratch, unpack
from superhosts.engines.cpu import CpuEngine, count_zeros, ones_of
from superhosts.hashing import Key, column_draw, fold, pair_hash

MAX_CACHED_LINES = (16 << 20) // 64  # cache lines of the largest slice that stays in a shared cache during a fill


class Store(NamedTuple):
    """The arrays of a cube."""

    bits: Words  # (columns of all slices and arrays, words)
    zeros: Counts  # (columns,): zero bits of each column
    labels: Words  # (columns, labels, limbs)


@compiled
def fill(task: Task, pool: Pool, store: Store, geometry: Geometry, key: Key) -> int:
    """Write the chunks of one thread's task, slice by slice. The result only keeps the compiler from dropping `_fetch`.

    If many pairs belong to one slice, `fill` first reads the slice sequentially, then sets bits without testing them,
    and counts the zeros afterwards, while the slice is still in the cache.
    """
    scratch = make_scratch()
    slices = (1 << geometry.slice_bits) - 1
    whole = pool.cursors.shape[1] - PADDING > slices  # False if a bin has pairs of several slices
    columns = geometry.arrays * geometry.columns
    lines = columns * store.bits.shape[1] // 8
    number, fetched = 0, 0
    while number < len(task.chunks):
        slice_ = pool.owner[task.chunks[number]] & slices
        end, entries = number, 0
        while end < len(task.chunks) and pool.owner[task.chunks[end]] & slices == slice_:
            entries += task.sizes[end]
            end += 1
        many = whole and 2 * entries > lines and lines <= MAX_CACHED_LINES
        if many:
            fetched += _fetch(store.bits, slice_ * columns, (slice_ + 1) * columns)
        while number < end:
            number, count = unpack(number, task, pool, scratch)
            _write(count, many, scratch, store, geometry, key)
        if many:
            count_zeros(store.bits, store.zeros, slice_ * columns, (slice_ + 1) * columns)
    return fetched


@compiled
def _fetch(bits: Words, start: int, stop: int) -> int:
    """Read a word of every cache line of some columns: sequential reads are several times faster than random misses."""
    fetched = 0
    for column in range(start, stop):
        for word in range(0, bits.shape[1], 8):
            fetched ^= np.int64(bits[column, word])
    return fetched


@compiled
def _write(count: int, blindly: bool, scratch: Scratch, store: Store, geometry: Geometry, key: Key) -> None:
    """Set the bits of a batch of pairs and let them compete for labels. If `blindly`, the caller counts zeros later."""
    # Arrays are local names and indexed in full: creating a view in an inner loop costs two atomic reference counts.
    high, low, folded, peers, pairs = scratch
    bits, zeros, labels = store.bits.reshape(-1), store.zeros, store.labels
    columns, words, chosen = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    masks = np.empty(BLOCK, np.uint64)
    lowest = np.uint64(lowest_priority(geometry.share_bits))
    for j in range(count):
        folded[j] = low[j] if geometry.key_bits < 128 else fold(high[j], low[j], key)
    for j in range(count):
        pairs[j] = pair_hash(folded[j], peers[j], key)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        for array in range(geometry.arrays):
            draw = column_draw(array, key)
            for i in range(size):
                j = start + i
                columns[i] = column_of(folded[j], low[j], array, draw, geometry)
                words[i] = (columns[i] << (geometry.column_bits - 6)) + (row_of(pairs[j], geometry) >> 6)
                masks[i] = np.uint64(1) << ((pairs[j] + rotation_of(folded[j], draw)) & np.uint64(63))
            if blindly:
                for i in range(size):
                    bits[words[i]] |= masks[i]
            else:
                for i in range(size):
                    if bits[words[i]] & masks[i] == 0:
                        bits[words[i]] |= masks[i]
                        zeros[columns[i]] -= 1
            contenders = 0
            for i in range(size):
                ticket = ticket_of(pairs[start + i], array, key)
                chosen[contenders] = i
                contenders += np.uint64(priority_of(ticket, array)) >= lowest
            for i in range(contenders):
                column, j = columns[chosen[i]], start + chosen[i]
                priority = np.uint64(priority_of(ticket_of(pairs[j], array, key), array))
                label = np.int64(label_of(low[j], geometry))
                for limb in range(labels.shape[2]):
                    word = np.uint64(label_word(priority, np.uint64(limb_of(high[j], low[j], limb))))
                    if word > labels[column, label, limb]:
                        labels[column, label, limb] = word


class Places(NamedTuple):
    """The columns and rotations of one host, and memory for the AND of its columns."""

    columns: NDArray[np.int64]  # one per array
    rotations: Words  # one per array
    common: Words  # words of the AND


@compiled
def make_places(geometry: Geometry) -> Places:
    """Allocate memory for the places of one host."""
    arrays, words = geometry.arrays, 1 << (geometry.column_bits - 6)
    return Places(np.empty(arrays, np.int64), np.empty(arrays, np.uint64), np.empty(words, np.uint64))


@compiled
def find_places(high: int, low: int, places: Places, geometry: Geometry, key: Key) -> None:
    """Compute the columns and rotations of a mangled host in all arrays."""
    folded = fold(high, low, key)
    for array in range(geometry.arrays):
        draw = column_draw(array, key)
        places.columns[array] = column_of(folded, low, array, draw, geometry)
        places.rotations[array] = rotation_of(folded, draw)


@compiled
def and_ones(bits: Words, places: Places, start: int, stop: int) -> np.int64:
    """Count the ones of the AND of a host's columns, in words start..stop. Array by array, the loops are vectorized."""
    columns, rotations, common = places
    column, rotation = columns[0], rotations[0]
    for w in range(start, stop):
        common[w] = rotated_back(bits[column, w], rotation)
    for array in range(1, len(columns)):
        column, rotation = columns[array], rotations[array]
        for w in range(start, stop):
            common[w] &= rotated_back(bits[column, w], rotation)
    ones = np.uint64(0)
    for w in range(start, stop):
        ones += ones_of(common[w])
    return np.int64(ones)


@compiled
def list_candidates(span: tuple[int, int], store: Store, search: Search, geometry: Geometry, key: Key) -> Words:
    """Return the mangled hosts (high, low) that labels of hot columns in `span` name and whose columns are all hot.

    A host that several arrays name is listed once, by the first of them.
    """
    zeros, labels, limbs = store.zeros, store.labels, store.labels.shape[2]
    lowest = np.uint64(max(1, search.priority))
    columns = np.empty(geometry.arrays, np.int64)
    hosts = np.empty((64, 2), np.uint64)
    found = 0
    for column in range(span[0], span[1]):
        if zeros[column] > search.zeros:
            continue
        own = column // geometry.columns % geometry.arrays
        for label in range(labels.shape[1]):
            priority = np.uint64(priority_in(labels[column, label, 0]))
            if priority < lowest:
                continue
            low, high, hot = np.uint64(0), np.uint64(0), True
            for limb in range(limbs):
                word = labels[column, label, limb]
                hot = hot and np.uint64(priority_in(word)) == priority
                part = np.uint64(limb_in(word)) << np.uint64(32 * (limb & 1))
                low, high = (low | part, high) if limb < 2 else (low, high | part)
            folded = fold(high, low, key)
            for array in range(geometry.arrays):
                columns[array] = column_of(folded, low, array, column_draw(array, key), geometry)
                hot = hot and zeros[columns[array]] <= search.zeros
            if not hot or not names_host(low, np.uint64(label), column, columns[own], geometry):
                continue
            for array in range(own):
                other = np.uint64(priority_in(labels[columns[array], label, 0]))
                named = other >= lowest
                for limb in range(limbs):
                    word = labels[columns[array], label, limb]
                    named = named and holds_limb(word, other, np.uint64(limb_of(high, low, limb)))
                hot = hot and not named
            if not hot:
                continue
            if found == len(hosts):
                hosts = np.concatenate((hosts, np.empty_like(hosts)))
            hosts[found, 0], hosts[found, 1] = high, low
            found += 1
    return hosts[:found]


@compiled
def labelled_hosts(labels: Words) -> Words:
    """Return the mangled hosts (high, low) of all labels whose words have the same priority."""
    columns, kinds, limbs = labels.shape
    hosts = np.zeros((columns * kinds, 2), np.uint64)
    found = 0
    for place in range(columns * kinds):
        column, label = place // kinds, place % kinds
        priority = np.uint64(priority_in(labels[column, label, 0]))
        whole = priority > 0
        for limb in range(limbs):
            word = labels[column, label, limb]
            whole = whole and np.uint64(priority_in(word)) == priority
            half = 1 if limb < 2 else 0
            if limb & 1 == 0:
                hosts[found, half] = 0  # A previous label that was skipped may have written here.
            hosts[found, half] |= np.uint64(limb_in(word)) << np.uint64(32 * (limb & 1))
        found += whole
    return hosts[:found]


@compiled
def name_hosts(
    span: tuple[int, int], store: Store, search: Search, geometry: Geometry, key: Key
) -> tuple[Words, Counts]:
    """Return the mangled hosts that the labels of columns in `span` name and that pass, and their zero counts."""
    bits, zeros, arrays, words = store.bits, store.zeros, geometry.arrays, store.bits.shape[1]
    hosts = list_candidates(span, store, search, geometry, key)
    counts = np.empty((len(hosts), arrays + 1), np.int32)
    places = make_places(geometry)
    found = 0
    for i in range(len(hosts)):
        find_places(hosts[i, 0], hosts[i, 1], places, geometry, key)
        ones, start = 0, 0
        for stage in range(3):  # Each stage ANDs more words, but only if the previous one found enough ones.
            stop, minimum = words, 0
            if stage == 0:
                stop, minimum = search.first_words, search.first_ones
            elif stage == 1:
                stop, minimum = search.second_words, search.second_ones
            ones += and_ones(bits, places, start, stop)
            if ones < minimum:
                break
            start = stop
        if (1 << geometry.column_bits) - ones > search.zeros:
            continue
        hosts[found, 0], hosts[found, 1] = hosts[i, 0], hosts[i, 1]
        for array in range(arrays):
            counts[found, array] = zeros[places.columns[array]]
        counts[found, arrays] = (1 << geometry.column_bits) - ones
        found += 1
    return hosts[:found], counts[:found]


@compiled
def columns_of(hosts: Words, geometry: Geometry, key: Key) -> NDArray[np.int64]:
    """Return the columns of mangled hosts, one per array."""
    columns = np.empty((len(hosts), geometry.arrays), np.int64)
    places = make_places(geometry)
    for i in range(len(hosts)):
        find_places(hosts[i, 0], hosts[i, 1], places, geometry, key)
        columns[i, :] = places.columns
    return columns


@compiled
def common_zeros(hosts: Words, chosen: NDArray[np.int64], bits: Words, geometry: Geometry, key: Key) -> Counts:
    """Return the zeros of the AND of each mangled host's columns; `chosen` has their row indexes in `bits`."""
    zeros = np.empty(len(hosts), np.int32)
    places = make_places(geometry)
    for i in range(len(hosts)):
        find_places(hosts[i, 0], hosts[i, 1], places, geometry, key)
        places.columns[:] = chosen[i]
        zeros[i] = (1 << geometry.column_bits) - and_ones(bits, places, 0, bits.shape[1])
    return zeros


class CpuCube(CpuEngine):
    """A labelled cube in main memory."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        geometry: Geometry = plan.geometry
        self.labels: Words = np.zeros((geometry.total_columns, geometry.labels, geometry.limbs), np.uint64)
        self.store = Store(self.bits, self.counts, self.labels)

    def _arrays(self) -> Arrays:
        return {"bits": self.bits, "labels": self.labels}

    columns_of = staticmethod(columns_of)
    common_zeros = staticmethod(common_zeros)

    def write(self, task: Task) -> None:
        """Write the pairs of one thread's task."""
        fill(task, self.bins.pool, self.store, self.geometry, self.key)

    def merge(self, other: Engine) -> None:
        """OR the columns of another engine into these and keep the maximum of each label."""
        super().merge(other)
        np.maximum(self.labels, other.arrays()["labels"], out=self.labels)

    def merge_block(self, name: str, start: int, stop: int, block: CodedBlock) -> None:
        """OR a stored block of columns into these, or keep the maximum of each label in a block of labels."""
        if block.is_empty:
            return
        if name == "labels":
            block.merge_max(self.labels.reshape(-1)[start:stop])
        else:
            super().merge_block(name, start, stop, block)

    def search(self, search: Search) -> tuple[Words, Counts]:
        """Return the hosts that labels name and that pass the search, and their zero counts."""
        self.flush()
        spans = split_evenly(self.geometry.total_columns, 4 * self.threads if self.threads > 1 else 1)
        calls = [(span, self.store, search, self.geometry, self.key) for span in spans]
        hosts, counts = zip(*run_parallel(name_hosts, calls, self.threads), strict=True)
        return np.concatenate(hosts), np.concatenate(counts)
