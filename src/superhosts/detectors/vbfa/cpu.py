"""VBFA on CPU threads: CBAA's engine, with its arrays dealt out to the threads.

CBAA's threads own slices. VBFA has a single one, but its arrays lie apart: every thread reads all pairs and writes
its own arrays.
"""

from __future__ import annotations

import numpy as np

from superhosts.compiled import compiled
from superhosts.detectors.cbaa.addressing import first_column, offset, restoring_column, row_of, validating_column
from superhosts.detectors.cbaa.cpu import CpuCbaa, Store
from superhosts.detectors.cbaa.geometry import Geometry
from superhosts.detectors.hashing import Key, column_draw
from superhosts.detectors.pending import BLOCK, Pool, Scratch, Task, make_scratch, unpack
from superhosts.device import run_parallel, split_evenly


@compiled
def fill(task: Task, pool: Pool, share: tuple[int, int], store: Store, geometry: Geometry, key: Key) -> None:
    """Write the chunks of a task to the arrays from share[0] up to share[1]."""
    scratch = make_scratch()
    number = 0
    while number < len(task.chunks):
        number, count = unpack(number, task, pool, scratch)
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
            rows[i] = row_of(low[begin + i], peers[begin + i], geometry, key)
        for array in range(share[0], share[1]):
            first, start, draw = first_column(0, array, geometry), offset(array, geometry), column_draw(array, key)
            for i in range(size):
                if array < geometry.restoring:
                    columns[i] = first + np.int64(restoring_column(low[begin + i], start, geometry))
                else:
                    columns[i] = first + np.int64(validating_column(low[begin + i], draw, geometry))
            for i in range(size):
                word = (columns[i] << (geometry.column_bits - 6)) + (rows[i] >> 6)
                bit = np.uint64(1) << np.uint64(rows[i] & 63)
                if bits[word] & bit == 0:
                    bits[word] |= bit
                    zeros[columns[i]] -= 1


class CpuVbfa(CpuCbaa):
    """A VBFA sketch in the machine's memory."""

    geometry: Geometry

    def write(self, task: Task) -> None:
        """Write all pairs that wait, each thread to arrays of its own."""
        pool, seen = self.pending.pool, self.pending.seen  # a thread's cache knows what its own arrays have
        shares = split_evenly(self.geometry.arrays, min(self.threads, self.geometry.arrays))
        calls = [
            (task._replace(seen=seen[thread]), pool, share, self.store, self.geometry, self.key)
            for thread, share in enumerate(shares)
        ]
        run_parallel(fill, calls, self.threads)
