"""Columns in the machine's memory, worked on by the threads of the CPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.cubefile.coding import Block
from superhosts.detectors.base import to_host
from superhosts.device import run_parallel, split_evenly
from superhosts.engines import columns
from superhosts.engines.base import Arrays, Engine, Plan, Sums
from superhosts.engines.bins import Pending, Task
from superhosts.engines.columns import Counts, Words
from superhosts.hashing import Key
from superhosts.pairs import Addresses


class CpuEngine(Engine):
    """Bit columns, their zero counts, and the pairs that wait to be written. Subclasses write and search."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        geometry = plan.geometry
        self.bits: Words = np.zeros((geometry.total_columns, geometry.words), np.uint64)
        self.counts: Counts = np.full(geometry.total_columns, geometry.rows, np.int32)
        self.pending = Pending(
            plan.key,
            key_bits=geometry.key_bits,
            slice_bits=geometry.slice_bits,
            memory=geometry.memory // 2,
            threads=plan.threads,
        )

    @abstractmethod
    def write(self, task: Task) -> None:
        """Write the pairs of one thread's task."""

    @staticmethod
    @abstractmethod
    def columns_of(mangled: Words, geometry: Any, key: Key) -> NDArray[np.int64]:
        """Return the columns of mangled hosts (first axis), one of each array."""

    @staticmethod
    def common_zeros(mangled: Words, chosen: NDArray[np.int64], bits: Words, geometry: Any, key: Key) -> Counts:
        """Return the zeros of the AND of every host's columns, which stand in the chosen rows of `bits`."""
        return columns.common_zeros(bits, chosen)

    def _write_by_array(self, fill: Callable[..., None], task: Task, store: Any) -> None:
        """Write a task on all threads, for sketches of a single slice: each reads all pairs and writes its own arrays.

        `fill` takes the task, the pool, the arrays from and up to which it writes, the store, the geometry and the key.
        """
        pool, seen = self.pending.pool, self.pending.seen  # a thread's cache knows what its own arrays have
        shares = split_evenly(self.geometry.arrays, min(self.threads, self.geometry.arrays))
        calls = [
            (task._replace(seen=seen[thread]), pool, share, store, self.geometry, self.key)
            for thread, share in enumerate(shares)
        ]
        run_parallel(fill, calls, self.threads)

    def _arrays(self) -> Arrays:
        return {"bits": self.bits}

    def update(self, hosts: Addresses, peers: Addresses) -> None:
        """Bin a batch of pairs."""
        self.pending.add(to_host(hosts), to_host(peers), self.flush)

    def flush(self) -> None:
        """Write the pairs that wait."""
        if self.pending.waiting:
            run_parallel(self.write, [(task,) for task in self.pending.take()], self.threads)
            self.pending.done()

    def clear(self) -> None:
        """Forget all pairs; the memory stays."""
        self.pending.clear()
        for array in self._arrays().values():
            array.fill(0)
        self.counts.fill(self.geometry.rows)

    def merge(self, other: Engine) -> None:
        """OR another engine's columns into these."""
        self.flush()
        columns.merge(self.bits, other.arrays()["bits"], self.counts, self.threads)

    def merge_block(self, name: str, start: int, stop: int, block: Block) -> None:
        """OR a stored block into the words start..stop of the columns; nothing may wait to be written."""
        if block.is_empty:
            return
        words = self.geometry.words
        block.merge_or(self.bits.reshape(-1)[start:stop])
        columns.count_zeros(self.bits, self.counts, start // words, stop // words)  # a block holds whole columns

    def measure(self, mangled: Words) -> Counts:
        """Return the zero counts of mangled hosts: of each column, then of their AND."""
        self.flush()
        chosen = self.columns_of(mangled, self.geometry, self.key)
        common = self.common_zeros(mangled, chosen, self.bits, self.geometry, self.key)
        return np.column_stack((self.counts[chosen], common))

    def zeros(self) -> Counts:
        """Return the zero bits of every column."""
        self.flush()
        return self.counts

    def zero_sums(self) -> Sums:
        """Return the zero bits of every array in every slice."""
        return columns.sum_arrays(self.zeros(), self.edges)

    def arrays(self) -> Arrays:
        """Return the arrays themselves."""
        self.flush()
        return self._arrays()

    def load(self, arrays: Arrays) -> None:
        """Take arrays (its own, when they were filled in place) and count anew."""
        self.pending.clear()
        for name, mine in self._arrays().items():
            if arrays[name] is not mine:
                np.copyto(mine, arrays[name])
        columns.recount(self.bits, self.counts, self.threads)
