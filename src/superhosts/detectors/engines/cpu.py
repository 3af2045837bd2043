"""Bit columns in main memory and the CPU threads that work on them.

A column is g bits in g/64 words; a sketch is a matrix of columns. The engine also keeps the zero counts of all columns,
which are correct whenever no thread is writing, so that a query need not read the whole sketch first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import Key
from superhosts.core.pairs import Batches
from superhosts.core.profile import timed
from superhosts.cubefile.container import CodedBlock, Take
from superhosts.detectors.engines.base import Arrays, Counts, Engine, Plan, Sums, Words, to_host
from superhosts.detectors.engines.bins import Bins, Portion
from superhosts.jit.cache import compiled
from superhosts.jit.memory import new_words

MEASURED_HOSTS = 1 << 14  # hosts that a thread measures at a time


@compiled
def ones_of(word: np.uint64) -> np.uint64:
    """Count the set bits of a 64-bit word. LLVM recognises this form and emits the CPU's popcount instruction."""
    x = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled
def count_zeros(columns: Words, zeros: Counts, start: int, stop: int) -> None:
    for c in range(start, stop):
        ones = np.uint64(0)
        for w in range(columns.shape[1]):
            ones += ones_of(columns[c, w])
        zeros[c] = columns.shape[1] * 64 - np.int64(ones)


@compiled
def or_columns(into: Words, one: Words, other: Words, zeros: Counts, start: int, stop: int) -> None:
    """Write the OR of columns start..stop of two sketches into a third, or into one of them, and count their zeros."""
    for c in range(start, stop):
        ones = np.uint64(0)
        for w in range(into.shape[1]):
            word = one[c, w] | other[c, w]
            into[c, w] = word
            ones += ones_of(word)
        zeros[c] = into.shape[1] * 64 - np.int64(ones)


@compiled
def common_zeros(columns: Words, chosen: NDArray[np.int64]) -> Counts:
    zeros = np.empty(len(chosen), np.int32)
    for i in range(len(chosen)):
        ones = np.uint64(0)
        for w in range(columns.shape[1]):
            word = columns[chosen[i, 0], w]
            for array in range(1, chosen.shape[1]):
                word &= columns[chosen[i, array], w]
            ones += ones_of(word)
        zeros[i] = columns.shape[1] * 64 - np.int64(ones)
    return zeros


def sum_arrays(zeros: Counts, geometry: Any) -> NDArray[np.int64]:
    edges = geometry.edges
    plain = zeros[: edges[-1] << geometry.slice_bits].reshape(-1, edges[-1])
    sums: NDArray[np.int64] = np.add.reduceat(plain, edges[:-1], axis=1, dtype=np.int64)
    return sums


def recount(columns: Words, zeros: Counts, threads: int) -> None:
    run_parallel(count_zeros, [(columns, zeros, a, b) for a, b in split_evenly(len(columns), threads)], threads)


def unite_columns(into: Words, one: Words, other: Words, zeros: Counts, threads: int) -> None:
    """Write the OR of the columns of two sketches on all threads, and count the zeros. `into` may be one of them."""
    run_parallel(or_columns, [(into, one, other, zeros, a, b) for a, b in split_evenly(len(into), threads)], threads)


def by_rows(work: Callable[..., Any], arrays: Sequence[NDArray[Any]], threads: int) -> None:
    """Call work(*arrays) for runs of rows of all arrays, on all threads: memory is faster with several."""
    spans = split_evenly(len(arrays[0]), threads)
    run_parallel(work, [tuple(array[start:stop] for array in arrays) for start, stop in spans], threads)


def make_bins(plan: Plan, *, grows: bool = False) -> Bins:
    """Return the bins of a sketch. They take a quarter of its memory; if `grows`, only with enough traffic."""
    return Bins(
        plan.key,
        key_bits=plan.geometry.key_bits,
        slice_bits=plan.geometry.slice_bits,
        memory=plan.geometry.memory // 4,
        threads=plan.threads,
        min_pairs_per_thread=plan.tuning.min_pairs_per_thread,
        grows=grows,
    )


class CpuEngine(Engine):
    """Bit columns, their zero counts and the bins of pending pairs. Subclasses implement writing and searching."""

    narrows = True

    def __init__(self, plan: Plan, bins: Bins | None = None, *, cleared: bool = True) -> None:
        """Make an empty engine. If not `cleared`, it has any content until the caller writes all of it."""
        super().__init__(plan)
        geometry = plan.geometry
        self.bits: Words = new_words((geometry.total_columns, geometry.words), cleared=cleared)
        self.counts: Counts = np.full(geometry.total_columns, geometry.rows, np.int32)
        self.bins = make_bins(plan) if bins is None else bins

    @abstractmethod
    def write(self, portion: Portion) -> None:
        """Write the pairs of one thread's portion."""

    @staticmethod
    @abstractmethod
    def columns_of(mangled: Words, geometry: Any, key: Key) -> NDArray[np.int64]:
        """Return the columns of mangled hosts: one row per host, one column index per array."""

    @staticmethod
    def giant_columns_of(mangled: Words, geometry: Any, key: Key) -> NDArray[np.int64]:
        raise NotImplementedError("this sketch has no giant columns")

    @staticmethod
    def common_zeros(mangled: Words, chosen: NDArray[np.int64], bits: Words, geometry: Any, key: Key) -> Counts:
        return common_zeros(bits, chosen)

    def _arrays(self) -> Arrays:
        return {"bits": self.bits}

    def update_batches(self, batches: Batches) -> None:
        self.bins.add([(to_host(hosts), to_host(peers)) for hosts, peers in batches], self.flush)

    def flush(self) -> None:
        if self.bins.pending:
            run_parallel(self._write, [(portion,) for portion in self.bins.take()], self.threads)
            self.bins.done()

    @timed("write", amount=lambda _, engine, portion: int(portion.sizes.sum()))
    def _write(self, portion: Portion) -> None:
        self.write(portion)

    def clear(self) -> None:
        self.bins.clear()
        for array in self._arrays().values():
            array.fill(0)
        self.counts.fill(self.geometry.rows)

    def merge(self, other: Engine) -> None:
        self.unite(self, other)

    def block_takers(self) -> dict[str, Take]:
        """Return a function per array that merges a block of a file. No pairs may be pending while they are in use."""
        return {name: partial(self.merge_block, name) for name in self.arrays()}

    def merge_block(self, name: str, start: int, stop: int, block: CodedBlock) -> None:
        """OR a stored block into the words start..stop of the columns. No pairs may be pending."""
        if block.is_empty:
            return
        words = self.geometry.words
        block.merge_or(self.bits.reshape(-1)[start:stop])
        count_zeros(self.bits, self.counts, start // words, stop // words)  # A block consists of whole columns.

    def measure(self, mangled: Words) -> Counts:
        self.flush()
        return self._measure(mangled, self.columns_of)

    def measure_giants(self, mangled: Words) -> Counts:
        self.flush()
        return self._measure(mangled, self.giant_columns_of)

    def _measure(self, mangled: Words, find: Callable[..., NDArray[np.int64]]) -> Counts:
        """Measure hosts in the columns that `find` returns, on all threads.

        Hosts go by their first column, because one column, and those of one slice, stay in a cache.
        """
        spans = split_evenly(len(mangled), max(1, len(mangled) // MEASURED_HOSTS))
        columns = np.empty((len(mangled), self.geometry.arrays), np.int64)
        counts = np.empty((len(mangled), self.geometry.arrays + 1), np.int32)

        def look_up(start: int, stop: int) -> None:
            columns[start:stop] = find(mangled[start:stop], self.geometry, self.key)
            counts[start:stop, :-1] = self.counts[columns[start:stop]]

        def measure(start: int, stop: int) -> None:
            hosts, chosen = mangled[order[start:stop]], columns[order[start:stop]]
            counts[order[start:stop], -1] = self.common_zeros(hosts, chosen, self.bits, self.geometry, self.key)

        run_parallel(look_up, spans, self.threads)
        # NumPy sorts short integers by counting.
        order = np.argsort(columns[:, 0].astype(np.uint16 if len(self.counts) < 1 << 16 else np.int64), kind="stable")
        run_parallel(measure, spans, self.threads)
        return counts

    def zeros(self) -> Counts:
        self.flush()
        return self.counts

    def zero_sums(self) -> Sums:
        return sum_arrays(self.zeros(), self.geometry)

    def arrays(self) -> Arrays:
        """Return the engine's own arrays, not copies."""
        self.flush()
        return self._arrays()

    def copy_from(self, other: Engine) -> None:
        if not isinstance(other, CpuEngine):
            self.load(other.arrays())
            return
        for name, array in other.arrays().items():
            by_rows(np.copyto, (self._arrays()[name], array), self.threads)
        self.counts[:] = other.counts

    def unite(self, one: Engine, other: Engine) -> None:
        """Become the union of two engines without copying one first. This one must be new, or one of them."""
        unite_columns(self.bits, one.arrays()["bits"], other.arrays()["bits"], self.counts, self.threads)

    def load(self, arrays: Arrays) -> None:
        """Replace the state by these arrays, which may be the engine's own, filled in place; recount the zeros."""
        self.bins.clear()
        for name, own in self._arrays().items():
            if arrays[name] is not own:
                np.copyto(own, arrays[name])
        recount(self.bits, self.counts, self.threads)
