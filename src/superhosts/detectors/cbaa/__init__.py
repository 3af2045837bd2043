"""CBAA, the paper's detector: a cube of bit arrays whose column numbers encode the hosts' addresses.

`Cbaa` is the paper's algorithm with its errata corrected, with two half-size validating arrays instead of one, and with
the estimator of `detectors.estimate`. `Cbaa.paper()` keeps the paper's own choices, which
docs/explanation/paper.md lists.

The join recovers addresses from bits alone. It walks through the restoring arrays of one slice. The hot columns of each
array are bucketed by the bits that they must share with the previous array, so matching columns are looked up, not
enumerated. Every step ANDs one more column and drops the tuple as soon as it leaves more zeros than a super host can;
the first words of the AND reject most tuples after one or two cache lines. VBFA and DCDS (`lab/rivals`) are other
layouts of the same engines.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import MEMORY
from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import Key, column_draw, column_hash
from superhosts.detectors.arguments import check_no_conflict
from superhosts.detectors.cbaa.addressing import (
    ADDRESSES,
    Geometry,
    Layout,
    Search,
    garner_step,
    remainder,
    row_of,
    window_column,
)
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.engines.base import STEPS_PER_HOST, Counts, Engine, Plan, Words
from superhosts.detectors.engines.bins import BATCH, BLOCK, Portion, Scratch, entry_width, make_scratch, unpack
from superhosts.detectors.engines.cpu import CpuEngine, ones_of
from superhosts.detectors.estimate import Estimate, Evidence, estimate_by_mean
from superhosts.detectors.formulas import prefix_test, zero_limit
from superhosts.detectors.lock import locked
from superhosts.jit.cache import compiled

__all__ = ["Cbaa", "Geometry", "PaperCbaa"]


class Store(NamedTuple):
    bits: Words  # (columns of all slices and arrays, words)
    zeros: Counts  # (columns,): zero bits of each column


@compiled
def fill(portion: Portion, share: tuple[int, int], store: Store, layout: Layout, key: Key) -> None:
    """Write the chunks of one thread's portion to the arrays share[0] to share[1] - 1."""
    scratch = make_scratch(BATCH, entry_width(portion.pool))
    number = 0
    while number < len(portion.chunks):
        number, count = unpack(number, len(portion.chunks), 0, portion, scratch)
        _write(count, scratch, share, store, layout, key)


@compiled
def _write(count: int, scratch: Scratch, share: tuple[int, int], store: Store, layout: Layout, key: Key) -> None:
    low, peers = scratch.low, scratch.peers
    rows, columns = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    bits, zeros = store.bits.reshape(-1), store.zeros
    slices, per_slice = np.uint64((1 << layout.slice_bits) - 1), layout.edges[-1]
    for begin in range(0, count, BLOCK):
        size = min(BLOCK, count - begin)
        for i in range(size):
            rows[i] = row_of(low[begin + i], peers[begin + i], layout.rows_by_peer, layout.column_bits, key)
        for array in range(share[0], share[1]):
            first, width = layout.edges[array], layout.edges[array + 1] - layout.edges[array]
            start, modulus, draw = layout.offsets[array], layout.moduli[array], column_draw(array, key)
            if modulus > 0:  # There is a single slice.
                for i in range(size):
                    columns[i] = first + np.int64(remainder(low[begin + i], modulus))
            for i in range(size if modulus == 0 else 0):
                left = low[begin + i] >> np.uint64(layout.slice_bits)
                column = first + np.int64(low[begin + i] & slices) * per_slice
                if start >= 0:
                    columns[i] = column + np.int64(window_column(left, start, width, layout.slice_bits))
                else:
                    columns[i] = column + np.int64(column_hash(left, draw, width))
            for i in range(size):
                word = (columns[i] << (layout.column_bits - 6)) + (rows[i] >> 6)
                bit = np.uint64(1) << np.uint64(rows[i] & 63)
                if bits[word] & bit == 0:
                    bits[word] |= bit
                    zeros[columns[i]] -= 1


@compiled
def column_in(left: np.uint64, array: int, layout: Layout, key: Key) -> np.int64:
    """Return the column of an address, without its slice bits, in one array."""
    size = layout.edges[array + 1] - layout.edges[array]
    if layout.moduli[array] > 0:
        return np.int64(remainder(left, layout.moduli[array]))
    if layout.offsets[array] >= 0:
        return np.int64(window_column(left, layout.offsets[array], size, layout.slice_bits))
    return np.int64(column_hash(left, column_draw(array, key), size))


@compiled
def hot_columns(first: int, limit: int, store: Store, layout: Layout) -> tuple[Counts, Counts]:
    """Bucket the hot columns of every restoring array by the low bits that the previous array repeats.

    Return each array's columns in bucket order and the start of each bucket. `first` is the slice's first column. The
    first array has a single bucket, because no lookup uses it.
    """
    sizes, restoring = np.diff(layout.edges), len(layout.owns)
    buckets = np.ones(restoring, np.int64)
    for array in range(1, restoring):
        buckets[array] = max(1, sizes[array - 1] >> layout.owns[array - 1])
    columns = np.empty((restoring, sizes[:restoring].max()), np.int32)
    begins = np.zeros((restoring, buckets.max() + 1), np.int32)
    for array in range(restoring):
        zeros = store.zeros[first + layout.edges[array] : first + layout.edges[array + 1]]
        for column in range(len(zeros)):
            if zeros[column] <= limit:
                begins[array, (column & (buckets[array] - 1)) + 1] += 1
        for bucket in range(buckets[array]):
            begins[array, bucket + 1] += begins[array, bucket]
        cursors = begins[array].copy()
        for column in range(len(zeros)):
            if zeros[column] <= limit:
                bucket = column & (buckets[array] - 1)
                columns[array, cursors[bucket]] = column
                cursors[bucket] += 1
    return columns, begins


@compiled
def join(
    slice_: int,
    share: tuple[int, int],
    steps: NDArray[np.int64],
    max_steps: int,
    store: Store,
    search: Search,
    layout: Layout,
    key: Key,
) -> tuple[Words, Counts]:
    """Return hosts of one slice, and their zero counts, that start in every share[1]-th hot column from share[0] on.

    Every call counts its steps (ANDs of whole columns) in its own element of `steps` and gives up if the total of all
    calls exceeds `max_steps`.
    """
    piece, base = slice_ * share[1] + share[0], slice_ * layout.edges[-1]
    restoring, arrays = len(layout.owns), len(layout.moduli)
    bits, words, rows = store.bits, store.bits.shape[1], 1 << layout.column_bits
    limit, last = search.zeros[slice_], restoring - 1
    columns, begins = hot_columns(base, limit, store, layout)
    closing = max(1, (layout.edges[restoring] - layout.edges[last]) >> layout.owns[last]) - 1
    ands = np.empty((arrays + 1, words), np.uint64)  # AND of the tuple's columns in the arrays before each array
    ands[0, :] = ~np.uint64(0)
    places = np.empty(arrays, np.int64)  # chosen column of each array, as an index into the whole sketch
    numbers = np.zeros(arrays + 1, np.int64)  # what the columns before each array say about the address
    next_, stop = np.zeros(arrays, np.int64), np.zeros(arrays, np.int64)  # position in each array's list, and its end
    hosts = np.empty((16, 2), np.uint64)
    counts = np.empty((16, arrays + 1), np.int32)
    found, depth = 0, 0
    next_[0], stop[0] = share[0], begins[0, 1]
    while depth >= 0 and steps[piece] <= max_steps:
        if next_[depth] >= stop[depth]:
            depth -= 1
            continue
        number = numbers[depth]
        if depth < restoring:
            if depth == 0 and steps.sum() > max_steps:
                break
            column = np.int64(columns[depth, next_[depth]])
            next_[depth] += share[1] if depth == 0 else 1
            if depth == last and column >> layout.owns[depth] != (places[0] - base) & closing:
                continue
        else:
            column = column_in(np.uint64(number), depth, layout, key)
            next_[depth] += 1
        place = base + layout.edges[depth] + column
        if store.zeros[place] > limit:  # A super host would leave fewer zeros.
            continue
        ones, start, end = np.uint64(0), 0, search.prefix_words
        while start < words:  # AND the first words, then the others only if these have enough ones.
            for w in range(start, end):
                common = ands[depth, w] & bits[place, w]
                ands[depth + 1, w] = common
                ones += ones_of(common)
            if start == 0 and depth > 0 and np.int64(ones) >= search.prefix_ones:
                steps[piece] += 1
            start, end = end if np.int64(ones) >= search.prefix_ones else words, words
        if rows - np.int64(ones) > limit:
            continue
        if depth < restoring:
            modulus = layout.moduli[depth]
            if modulus > 0:
                before, inverse = layout.factors[0, depth], layout.factors[1, depth]
                number = garner_step(number, column, modulus, before, inverse)
                if number >= ADDRESSES:
                    continue
            else:
                number |= (column & ((1 << layout.owns[depth]) - 1)) << layout.offsets[depth]
        places[depth], numbers[depth + 1] = place, number
        if depth < arrays - 1:
            depth += 1
            if depth < restoring:
                bucket = column >> layout.owns[depth - 1]
                next_[depth], stop[depth] = begins[depth, bucket], begins[depth, bucket + 1]
            else:
                next_[depth], stop[depth] = 0, 1  # A validating array has a single column per address.
            continue
        if found == len(hosts):
            hosts = np.concatenate((hosts, np.empty_like(hosts)))
            counts = np.concatenate((counts, np.empty_like(counts)))
        hosts[found, 0] = 0
        hosts[found, 1] = np.uint64(number) << np.uint64(layout.slice_bits) | np.uint64(slice_)
        for array in range(arrays):
            counts[found, array] = store.zeros[places[array]]
        counts[found, arrays] = rows - np.int64(ones)
        found += 1
        steps[piece] += STEPS_PER_HOST
    return hosts[:found], counts[:found]


@compiled
def columns_of(hosts: Words, layout: Layout, key: Key) -> NDArray[np.int64]:
    columns = np.empty((len(hosts), len(layout.moduli)), np.int64)
    for i in range(len(hosts)):
        first = np.int64(hosts[i, 1] & np.uint64((1 << layout.slice_bits) - 1)) * layout.edges[-1]
        left = hosts[i, 1] >> np.uint64(layout.slice_bits)
        for array in range(columns.shape[1]):
            columns[i, array] = first + layout.edges[array] + column_in(left, array, layout, key)
    return columns


class CpuCbaa(CpuEngine):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.store, self.layout = Store(self.bits, self.counts), plan.geometry.layout()

    @staticmethod
    def columns_of(mangled: Words, geometry: Any, key: Key) -> NDArray[np.int64]:
        return columns_of(mangled, geometry.layout(), key)

    def write(self, portion: Portion) -> None:
        """Write a portion. If there is a single slice, each thread reads all pairs and writes its own arrays."""
        arrays, common = self.geometry.arrays, (self.store, self.layout, self.key)
        if self.geometry.slice_bits:
            fill(portion, (0, arrays), *common)
            return
        calls = [  # A thread's cache holds the pairs written to its own arrays.
            (portion._replace(seen=self.bins.seen[thread]), share, *common)
            for thread, share in enumerate(split_evenly(arrays, min(self.threads, arrays)))
        ]
        run_parallel(fill, calls, self.threads)

    def search(self, search: Search) -> tuple[Words, Counts]:
        self.flush()
        slices = 1 << self.geometry.slice_bits
        shares = -(-2 * self.threads // slices) if self.threads > 1 else 1  # enough calls to keep every thread busy
        pieces = [(slice_, (share, shares)) for slice_ in range(slices) for share in range(shares)]
        steps = np.zeros(len(pieces), np.int64)
        calls = [(*piece, steps, self.max_steps, self.store, search, self.layout, self.key) for piece in pieces]
        hosts, counts = zip(*run_parallel(join, calls, self.threads), strict=True)
        self._check_steps(int(steps.sum()))
        return np.concatenate(hosts), np.concatenate(counts)


class Cbaa(ColumnSketch):
    """The paper's cube of bit arrays for 32-bit hosts, of 128 MiB by default."""

    name = "cbaa"
    geometry: Geometry
    geometry_type = Geometry
    cpu_engine = CpuCbaa

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        if geometry is None:
            geometry = self._geometry_for(MEMORY if memory is None else memory)
        else:
            geometry = check_no_conflict(geometry, memory=memory)
        super().__init__(geometry.check(), key=key, device=device, threads=threads)

    @classmethod
    def _geometry_for(cls, memory: str | int) -> Geometry:
        return Geometry.for_memory(memory)

    @staticmethod
    def paper(*, key: bytes | str | None = None, device: str = "auto", threads: int | None = None) -> PaperCbaa:
        """Return the detector exactly as in the paper: its geometry, rows by peer, its noise and its threshold."""
        return PaperCbaa(geometry=Geometry.paper(), key=key, device=device, threads=threads)

    def _on_gpu(self, plan: Plan, gpu: int) -> Engine:
        from superhosts.detectors.cbaa.cuda import CudaCbaa  # needs the CUDA packages, which are optional

        return CudaCbaa(plan, gpu)

    def _limits(self, threshold: float) -> list[int]:
        """Return the maximum number of zeros that a super host leaves, for each slice."""
        return [zero_limit(self.geometry.column_bits, threshold)] * (1 << self.geometry.slice_bits)

    @locked
    def search_for(self, threshold: float) -> Search:
        return Search(np.array(self._limits(threshold), np.int64), *prefix_test(self.geometry.column_bits, threshold))


class PaperCbaa(Cbaa):
    """CBAA exactly as in the paper, except for what cannot run as printed."""

    name = "cbaa-paper"
    slack = 0.0

    @classmethod
    def _geometry_for(cls, memory: str | int) -> Geometry:
        return Geometry.for_memory(memory)._replace(validating=1, validating_bits=12, rows_by_peer=1)

    def _limits(self, threshold: float) -> list[int]:
        """Return θ_bn as printed in the paper: g(1+ε)e^(−θ/g) − gε, with ε the product of the arrays' mean fills."""
        noise = self._mean_fills().prod(axis=1)
        free = math.exp(-threshold / self.geometry.rows)
        return [math.floor(self.geometry.rows * ((1 + e) * free - e)) for e in noise]

    def _estimate(self, evidence: Evidence) -> Estimate:
        return estimate_by_mean(evidence, self.geometry.rows)
