"""DCDS on CPU threads: writing pairs, and the search through all combinations of hot columns.

There are no slices that threads could own, but arrays are separate: every thread reads all pairs and writes its own
arrays. The search has no check bits for looking up matching columns. It combines every hot column of the first array
with every one of the next, which costs the square of the number of hot columns, and drops a combination as soon as its
AND leaves more zeros than a super host can; its first words reject most combinations after one or two cache lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel
from superhosts.core.hashing import Key
from superhosts.detectors.engines.base import STEPS_PER_HOST, Counts, Plan, Words
from superhosts.detectors.engines.bins import BATCH, BLOCK, Pool, Scratch, Task, entry_width, make_scratch, unpack
from superhosts.detectors.engines.cpu import CpuEngine, ones_of
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.dcds.addressing import column_of, garner_step, row_of
from superhosts.lab.rivals.dcds.geometry import ADDRESSES, Geometry, Search


class Store(NamedTuple):
    """The arrays of a DCDS sketch."""

    bits: Words  # (columns of all arrays, words)
    zeros: Counts  # (columns,): zero bits of each column
    edges: NDArray[np.int64]  # index of each array's first column, followed by the number of all columns


@compiled
def fill(task: Task, pool: Pool, share: tuple[int, int], store: Store, geometry: Geometry, key: Key) -> None:
    """Write the chunks of a task to the arrays share[0] to share[1] - 1."""
    scratch = make_scratch(BATCH, entry_width(pool))
    number = 0
    while number < len(task.chunks):
        number, count = unpack(number, len(task.chunks), 0, task, pool, scratch)
        _write(count, scratch, share, store, geometry, key)


@compiled
def _write(count: int, scratch: Scratch, share: tuple[int, int], store: Store, geometry: Geometry, key: Key) -> None:
    """Set the bits of a batch of pairs."""
    low, peers = scratch.low, scratch.peers
    rows, columns = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    bits, zeros = store.bits.reshape(-1), store.zeros
    for begin in range(0, count, BLOCK):
        size = min(BLOCK, count - begin)
        for i in range(size):
            rows[i] = row_of(low[begin + i], peers[begin + i], geometry.column_bits, key)
        for array in range(share[0], share[1]):
            first, modulus = store.edges[array], geometry.moduli[array]
            for i in range(size):
                columns[i] = first + np.int64(column_of(low[begin + i], modulus))
            for i in range(size):
                word = (columns[i] << (geometry.column_bits - 6)) + (rows[i] >> 6)
                bit = np.uint64(1) << np.uint64(rows[i] & 63)
                if bits[word] & bit == 0:
                    bits[word] |= bit
                    zeros[columns[i]] -= 1


@compiled
def hot_columns(store: Store, limit: int, reversible: int) -> tuple[Counts, NDArray[np.int64]]:
    """Return the hot columns of the reversible arrays, array by array, and the start of each array in this list."""
    columns = np.empty(store.edges[reversible], np.int32)
    begins = np.zeros(reversible + 1, np.int64)
    count = 0
    for array in range(reversible):
        for place in range(store.edges[array], store.edges[array + 1]):
            if store.zeros[place] <= limit:
                columns[count] = place - store.edges[array]
                count += 1
        begins[array + 1] = count
    return columns[:count], begins


Factors = tuple[tuple[int, ...], tuple[int, ...]]  # `before` and `inverse` of `garner_step` for each reversible array


@compiled
def combine(
    share: tuple[int, int],
    steps: NDArray[np.int64],
    max_steps: int,
    store: Store,
    search: Search,
    geometry: Geometry,
    factors: Factors,
) -> tuple[Words, Counts]:
    """Return the hosts, and their zero counts, that start in every share[1]-th hot column from share[0] on.

    Every call counts its steps (ANDs of whole columns) in its own element of `steps` and gives up if the total of all
    calls exceeds `max_steps`.
    """
    reversible, arrays = geometry.reversible, len(geometry.moduli)
    before, inverses = factors
    bits, words, rows = store.bits, store.bits.shape[1], 1 << geometry.column_bits
    columns, begins = hot_columns(store, search.zeros, reversible)
    ands = np.empty((arrays + 1, words), np.uint64)  # AND of the chosen columns in the arrays before each array
    ands[0, :] = ~np.uint64(0)
    numbers = np.zeros(arrays + 1, np.int64)  # the address modulo the product of the preceding moduli
    places = np.empty(arrays, np.int64)  # chosen column of each array, as an index into the whole sketch
    next_, stop = np.zeros(arrays, np.int64), np.zeros(arrays, np.int64)  # position in each array's list, and its end
    hosts = np.empty((16, 2), np.uint64)
    counts = np.empty((16, arrays + 1), np.int32)
    found, depth = 0, 0
    next_[0], stop[0] = share[0], begins[1]
    while depth >= 0 and steps[share[0]] <= max_steps:
        if next_[depth] >= stop[depth]:
            depth -= 1
            continue
        if depth < reversible:
            if depth == 0 and steps.sum() > max_steps:
                break
            column = np.int64(columns[next_[depth]])
            next_[depth] += share[1] if depth == 0 else 1
        else:
            column = np.int64(column_of(numbers[depth], geometry.moduli[depth]))
            next_[depth] += 1
        place = store.edges[depth] + column
        ones, start, end = np.uint64(0), 0, search.prefix_words
        while start < words:  # AND the first words, then the others only if these have enough ones.
            for w in range(start, end):
                common = ands[depth, w] & bits[place, w]
                ands[depth + 1, w] = common
                ones += ones_of(common)
            if start == 0 and depth > 0 and np.int64(ones) >= search.prefix_ones:
                steps[share[0]] += 1
            start, end = end if np.int64(ones) >= search.prefix_ones else words, words
        if rows - np.int64(ones) > search.zeros:
            continue
        number = numbers[depth]
        if depth < reversible:
            number = garner_step(number, column, geometry.moduli[depth], before[depth], inverses[depth])
            if number >= ADDRESSES:
                continue
        places[depth], numbers[depth + 1] = place, number
        if depth < arrays - 1:
            depth += 1
            if depth < reversible:
                next_[depth], stop[depth] = begins[depth], begins[depth + 1]
            else:
                next_[depth], stop[depth] = 0, 1  # A validating array has a single column per address.
            continue
        if found == len(hosts):
            hosts = np.concatenate((hosts, np.empty_like(hosts)))
            counts = np.concatenate((counts, np.empty_like(counts)))
        hosts[found, 0], hosts[found, 1] = 0, np.uint64(number)
        for array in range(arrays):
            counts[found, array] = store.zeros[places[array]]
        counts[found, arrays] = rows - np.int64(ones)
        found += 1
        steps[share[0]] += STEPS_PER_HOST
    return hosts[:found], counts[:found]


@compiled
def columns_of(hosts: Words, geometry: Geometry, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the columns of mangled hosts, one per array."""
    columns = np.empty((len(hosts), len(geometry.moduli)), np.int64)
    for i in range(len(hosts)):
        for array in range(columns.shape[1]):
            columns[i, array] = edges[array] + np.int64(column_of(hosts[i, 1], geometry.moduli[array]))
    return columns


class CpuDcds(CpuEngine):
    """A DCDS sketch in main memory."""

    geometry: Geometry

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.store = Store(self.bits, self.counts, np.array(self.geometry.edges, np.int64))

    @staticmethod
    def columns_of(mangled: Words, geometry: Geometry, key: Key) -> NDArray[np.int64]:
        """Return the columns of mangled hosts, one per array."""
        return columns_of(mangled, geometry, np.array(geometry.edges, np.int64))

    def write(self, task: Task) -> None:
        """Write all pending pairs."""
        self._write_by_array(fill, task, self.store)

    def search(self, search: Search) -> tuple[Words, Counts]:
        """Combine hot columns to addresses."""
        self.flush()
        shares = 4 * self.threads if self.threads > 1 else 1  # enough calls to keep every thread busy
        steps = np.zeros(shares, np.int64)
        common = steps, self.max_steps, self.store, search, self.geometry, self.geometry.steps
        calls = [((share, shares), *common) for share in range(shares)]
        hosts, counts = zip(*run_parallel(combine, calls, self.threads), strict=True)
        self._check_steps(int(steps.sum()))
        return np.concatenate(hosts), np.concatenate(counts)
