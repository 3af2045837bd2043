"""The labelled cube on CPU threads: writing pending pairs to the slices.

`fill` first computes the addresses of a block in loops that the compiler vectorizes, then writes. It compares the label
for every pair of high priority, even if all bits were already set: another pair may have set them, and skipping the
label would make the result depend on the order of pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.cubefile.coding import CodedBlock
from superhosts.detectors.cube.addressing import (
    LINE_WORDS,
    column_of,
    giant_column_of,
    is_for_giants,
    is_sampled,
    label_of,
    label_word,
    limb_of,
    line_turn_of,
    lowest_priority,
    priority_of,
    rotation_of,
    row_of,
    ticket_of,
)
from superhosts.detectors.cube.geometry import Geometry, Search
from superhosts.detectors.cube.hostrows import HostRows, Slice, write_labels, write_rows
from superhosts.detectors.cube.naming import Store, columns_of, common_zeros, name_hosts
from superhosts.device import run_parallel, split_evenly
from superhosts.engines.arrays import Arrays, Counts, Words
from superhosts.engines.base import Engine, Plan
from superhosts.engines.bins import BLOCK, PADDING, Bins, Pool, Scratch, Task, make_scratch, unpack
from superhosts.engines.cpu import CpuEngine, count_zeros
from superhosts.hashing import Key, column_draw, fold, pair_hash

MAX_CACHED_LINES = (16 << 20) // 64  # cache lines of the largest slice that stays in a shared cache during a fill


@compiled
def fill(task: Task, pool: Pool, store: Store, geometry: Geometry, key: Key) -> int:
    """Write the chunks of one thread's task, slice by slice. The result only keeps the compiler from dropping `_fetch`.

    If many pairs belong to one slice, `fill` first reads the slice sequentially, then sets bits without testing them,
    and counts the zeros afterwards, while the slice is still in the cache.
    """
    scratch = make_scratch()
    slices = (1 << geometry.slice_bits) - 1
    whole = pool.cursors.shape[1] - PADDING > slices  # False if a bin has pairs of several slices
    columns, giants = geometry.arrays * geometry.columns, geometry.arrays * geometry.giants
    first_giant = columns << geometry.slice_bits
    lines = columns * store.bits.shape[1] // LINE_WORDS
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
            start = first_giant + slice_ * giants
            count_zeros(store.bits, store.zeros, start, start + giants)
    return fetched


@compiled
def _fetch(bits: Words, start: int, stop: int) -> int:
    """Read a word of every cache line of some columns: sequential reads are several times faster than random misses."""
    fetched = 0
    for column in range(start, stop):
        for word in range(0, bits.shape[1], LINE_WORDS):
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
    if geometry.sample_bits:
        count = _keep_sampled(count, scratch, geometry)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        for array in range(geometry.arrays):
            draw = column_draw(array, key)
            for i in range(size):
                j = start + i
                columns[i] = column_of(folded[j], low[j], array, draw, geometry)
                word = np.int64(row_of(pairs[j], geometry) >> np.uint64(6))
                word ^= np.int64(line_turn_of(folded[j], draw, geometry)) * LINE_WORDS
                words[i] = (columns[i] << (geometry.column_bits - 6)) + word
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
                ticket = ticket_of(pairs[start + i], array, geometry, key)
                chosen[contenders] = i
                contenders += np.uint64(priority_of(ticket, array, geometry)) >= lowest
            for i in range(contenders):
                column, j = columns[chosen[i]], start + chosen[i]
                priority = np.uint64(priority_of(ticket_of(pairs[j], array, geometry, key), array, geometry))
                label = np.int64(label_of(low[j], geometry))
                for limb in range(labels.shape[2]):
                    name = np.uint64(label_word(priority, np.uint64(limb_of(high[j], low[j], limb))))
                    if name > labels[column, label, limb]:
                        labels[column, label, limb] = name
            if array == 0 and geometry.giants:
                taken = 0
                for i in range(contenders):
                    chosen[taken] = start + chosen[i]
                    taken += is_for_giants(pairs[chosen[taken]])
                _write_giants(chosen[:taken], blindly, scratch, store, geometry, key)


@compiled
def _keep_sampled(count: int, scratch: Scratch, geometry: Geometry) -> int:
    """Move the pairs that are written at all to the front of the batch and return their number."""
    high, low, folded, _peers, pairs = scratch
    kept = 0
    for j in range(count):
        high[kept], low[kept], folded[kept], pairs[kept] = high[j], low[j], folded[j], pairs[j]
        kept += is_sampled(pairs[j], geometry)
    return kept


@compiled
def _write_giants(
    chosen: NDArray[np.int64], blindly: bool, scratch: Scratch, store: Store, geometry: Geometry, key: Key
) -> None:
    """Set the bits of the chosen pairs of a batch in giant columns."""
    _high, low, folded, _peers, pairs = scratch
    bits, zeros = store.bits, store.zeros
    for j in chosen:
        for array in range(geometry.arrays):
            draw = column_draw(array, key)
            column = np.int64(giant_column_of(folded[j], low[j], array, draw, geometry))
            word = np.int64(row_of(pairs[j], geometry) >> np.uint64(6))
            word ^= np.int64(line_turn_of(folded[j], draw, geometry)) * LINE_WORDS
            mask = np.uint64(1) << ((pairs[j] + rotation_of(folded[j], draw)) & np.uint64(63))
            if bits[column, word] & mask == 0:
                bits[column, word] |= mask
                if not blindly:
                    zeros[column] -= 1


@compiled
def write_content(span: tuple[int, int], content: HostRows, store: Store, geometry: Geometry, key: Key) -> int:
    """Write hosts with their rows and labels to the slices in `span`, slice by slice.

    The result only keeps the compiler from dropping `_fetch`.
    """
    columns, giants = geometry.arrays * geometry.columns, geometry.arrays * geometry.giants
    lines, fetched = columns * store.bits.shape[1] // LINE_WORDS, 0
    for number in range(span[0], span[1]):
        rows = 0
        for member in range(content.edges[number], content.edges[number + 1]):
            host = content.members[member]
            rows += content.starts[host + 1] - content.starts[host]
        if rows == 0:
            continue
        first, first_giant = number * columns, (columns << geometry.slice_bits) + number * giants
        if 2 * rows > lines and lines <= MAX_CACHED_LINES:
            fetched += _fetch(store.bits, first, first + columns)
        bits = store.bits[first : first + columns], store.bits[first_giant : first_giant + giants]
        touched = write_rows(content, Slice(number, bits[0], bits[1]), geometry, key)
        write_labels(content, number, store.labels, geometry, key)
        for column in range(columns):
            if touched[column]:
                count_zeros(store.bits, store.zeros, first + column, first + column + 1)
        count_zeros(store.bits, store.zeros, first_giant, first_giant + giants)
    return fetched


class CpuCube(CpuEngine):
    """A labelled cube in main memory."""

    def __init__(self, plan: Plan, bins: Bins | None = None) -> None:
        super().__init__(plan, bins)
        geometry: Geometry = plan.geometry
        self.labels: Words = np.zeros((geometry.plain_columns, geometry.labels, geometry.limbs), np.uint64)
        self.store = Store(self.bits, self.counts, self.labels)

    def _arrays(self) -> Arrays:
        return {"bits": self.bits, "labels": self.labels}

    common_zeros = staticmethod(common_zeros)

    @staticmethod
    def columns_of(mangled: Words, geometry: Geometry, key: Key) -> NDArray[np.int64]:
        """Return the plain columns of mangled hosts: one row per host, one column index per array."""
        return columns_of(mangled, False, geometry, key)

    @staticmethod
    def giant_columns_of(mangled: Words, geometry: Geometry, key: Key) -> NDArray[np.int64]:
        """Return the giant columns of mangled hosts: one row per host, one column index per array."""
        return columns_of(mangled, True, geometry, key)

    def write(self, task: Task) -> None:
        """Write the pairs of one thread's task."""
        self.write_from(task, self.bins.pool)

    def write_from(self, task: Task, pool: Pool) -> None:
        """Write the pairs of one thread's task, whose chunks are in any pool."""
        fill(task, pool, self.store, self.geometry, self.key)

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

    def merge_rows(self, content: HostRows) -> None:
        """Set the bits and labels of hosts that a file lists with their rows."""
        self.flush()
        spans = split_evenly(1 << self.geometry.slice_bits, 4 * self.threads if self.threads > 1 else 1)
        calls = [(span, content, self.store, self.geometry, self.key) for span in spans]
        run_parallel(write_content, calls, self.threads)

    def search(self, search: Search) -> tuple[Words, Counts]:
        """Return the hosts that labels name and that pass the search, and their zero counts."""
        self.flush()
        spans = split_evenly(1 << self.geometry.slice_bits, 4 * self.threads if self.threads > 1 else 1)
        calls = [(span, self.store, search, self.geometry, self.key) for span in spans]
        hosts, counts = zip(*run_parallel(name_hosts, calls, self.threads), strict=True)
        return np.concatenate(hosts), np.concatenate(counts)
