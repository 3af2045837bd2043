"""Queries for some hosts of a column sketch in a file, with memory for the columns of these hosts only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import Key
from superhosts.cubefile.coding import CodedBlock
from superhosts.detectors.engines.base import ColumnGeometry, Counts, Sums, Words
from superhosts.detectors.engines.cpu import CpuEngine, count_zeros, sum_arrays


class SomeColumns:
    """The columns of some hosts and the zero counts of all columns: the part of an engine that estimates need."""

    def __init__(self, engine: type[CpuEngine], mangled: Words, geometry: ColumnGeometry, key: Key) -> None:
        self._engine, self._geometry, self._key = engine, geometry, key
        columns = [engine.columns_of(mangled, geometry, key)]
        if geometry.total_columns > geometry.edges[-1] << geometry.slice_bits:
            columns.append(engine.giant_columns_of(mangled, geometry, key))
        self._columns = np.array(columns)  # (plain and giant, hosts, arrays)
        self._kept, rows = np.unique(self._columns, return_inverse=True)
        self._rows = rows.reshape(self._columns.shape)
        self._mangled = mangled
        self._bits: Words = np.zeros((len(self._kept), geometry.words), np.uint64)
        self._zeros: Counts = np.full(geometry.total_columns, geometry.rows, np.int32)

    def take_block(self, start: int, stop: int, block: CodedBlock) -> None:
        """Count the zeros of a block's columns and keep the columns of the requested hosts."""
        words = self._geometry.words
        columns = np.empty((stop - start) // words * words, np.uint64)  # A block consists of whole columns.
        block.put(columns)
        self.take_columns(start // words, columns.reshape(-1, words))

    def take_columns(self, first: int, matrix: Words) -> None:
        """Count the zeros of the columns from `first` on and keep those of the requested hosts."""
        last = first + len(matrix)
        count_zeros(matrix, self._zeros[first:last], 0, len(matrix))
        a, b = np.searchsorted(self._kept, (first, last))
        np.take(matrix, self._kept[a:b] - first, axis=0, out=self._bits[a:b], mode="clip")  # copies once

    def measure(self, mangled: Words) -> Counts:
        """Return the zero counts of the hosts passed to the constructor: of each column, then of their AND."""
        return self._measure(mangled, self._columns[0], self._rows[0])

    def measure_giants(self, mangled: Words) -> Counts:
        """Return the zero counts of some of these hosts in their giant columns: of each, then of their AND."""
        number = {host: i for i, host in enumerate(map(tuple, self._mangled.tolist()))}
        some = [number[host] for host in map(tuple, mangled.tolist())]
        return self._measure(mangled, self._columns[1][some], self._rows[1][some])

    def _measure(self, mangled: Words, columns: NDArray[np.int64], rows: NDArray[np.int64]) -> Counts:
        common = self._engine.common_zeros(mangled, rows, self._bits, self._geometry, self._key)
        return np.column_stack((self._zeros[columns], common))

    def zero_sums(self) -> Sums:
        """Return the zero bits of every array in every slice."""
        return sum_arrays(self._zeros, self._geometry)
