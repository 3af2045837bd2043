"""VBFA, the vector Bloom filter (Liu, Qu, Gong and others, 2016).

VBFA has five arrays of bit columns. With b1 b2 b3 b4 the bytes of an address, four arrays use h1 = b1 and the high half
of b2, h2 = b2 and the high half of b3, h3 = b3 and the high half of b4, h4 = b4 and the high half of b1; the fifth uses
a hash of the address. So h1 to h4 are windows of 12 bits of the address as a ring, 8 bits apart, each with 4 bits of
the next: exactly CBAA's restoring arrays for one slice. CBAA's windows start at bits 0, 8, 16 and 24, those of h3, h2,
h1 and h4 at bits 4, 12, 20 and 28. Rotating an address right by 4 bits makes the two equal. VBFA therefore uses CBAA's
engines and kernels, with its own limits and estimates.

Addresses are mangled first, because otherwise all hosts of a network share h1. The rotation does not matter for mangled
addresses.

The noise of other hosts is estimated from the fifth array alone: with v5 its mean share of zeros and m rows,
δ = −m·ln(v5·(2 − v5)), and n = m·ln(m/Z) − δ from the zeros Z of the AND. v5·(2 − v5) = 1 − (1 − v5)², so this is
the noise of two arrays although five are ANDed: hosts with full columns are underestimated. The confidence interval is
that of linear counting with δ as the exact noise: it ignores the error of δ itself, and that some columns are fuller
than others.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from superhosts.core.defaults import THRESHOLD
from superhosts.detectors.arguments import check_no_conflict
from superhosts.detectors.cbaa import CpuCbaa
from superhosts.detectors.cbaa.addressing import Geometry as CubeGeometry
from superhosts.detectors.cbaa.addressing import Search
from superhosts.detectors.cbaa.cuda import CudaCbaa
from superhosts.detectors.formulas import check_limits, prefix_test
from superhosts.errors import UsageError
from superhosts.lab.rivals.base import ColumnRival, parse_memory, reaching

Reading = Literal["published", "long", "wide"]
SHAPES = {"published": (12, 13), "long": (12, 16), "wide": (15, 13)}  # bits per window, log2 of the rows
MAX_WINDOW = 15  # of a given memory
NOISE_ARRAYS = 2  # for which δ is computed


class Geometry(NamedTuple):
    index_bits: int = 12  # bits per window
    validating_bits: int = 12  # log2 of the columns of the hashed array, A5
    column_bits: int = 13  # log2 m

    @classmethod
    def reading(cls, name: Reading) -> Self:
        """Return one of three interpretations of the published setting, "m = 2^13, 160 MB", which contradicts itself.

        "published" keeps all other numbers (20 MiB), "long" has columns of 2^16 rows, and "wide" has windows of 15
        bits; the last two take 160 MiB.
        """
        if name not in SHAPES:
            raise UsageError(f"reading {name!r}: must be one of {', '.join(SHAPES)}")
        window, column_bits = SHAPES[name]
        return cls(window, window, column_bits).check()

    @classmethod
    def for_memory(cls, memory: str | int, threshold: float = THRESHOLD) -> Self:
        """Return windows of up to MAX_WINDOW bits, then longer columns; half of the memory is the hashed array's."""
        rows = reaching(threshold)
        size = parse_memory(memory, 1 << (8 + rows), "vbfa").bit_length() - 1  # of 2^3 windows' arrays, in bytes
        window = min(MAX_WINDOW, size - rows)
        return cls(window, window + 2, min(20, size - window)).check()

    def check(self) -> Self:
        # A window starts at each byte. With fewer than 8 bits it would miss some, with more than 16 it would extend
        # beyond the next window's byte.
        check_limits(self, {"index_bits": (8, 16)})
        self.cube.check()
        return self

    @property
    def cube(self) -> CubeGeometry:
        """The equivalent CBAA geometry: one slice, four windows of the ring of 32 bits, one validating array."""
        return CubeGeometry(
            slice_bits=0,
            restoring=4,
            index_bits=self.index_bits,
            validating=1,
            validating_bits=self.validating_bits,
            column_bits=self.column_bits,
        )

    @property
    def arrays(self) -> int:
        return self.cube.arrays

    @property
    def rows(self) -> int:
        return self.cube.rows

    @property
    def memory(self) -> int:
        return self.cube.memory


class Vbfa(ColumnRival):
    """The vector Bloom filter for 32-bit hosts.

    `reading` is one of three interpretations of the published setting (see `Geometry.reading`), without a memory.
    """

    name = "vbfa"
    geometry_type = Geometry
    cpu_engine, gpu_engine = CpuCbaa, CudaCbaa
    geometry: Geometry

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        reading: Reading | None = None,
        geometry: Geometry | None = None,
        **options: Any,  # those of every rival
    ) -> None:
        if geometry is not None:
            check_no_conflict(geometry, reading=reading)
        self._reading = reading
        super().__init__(memory, geometry=geometry, **options)

    def _sizes(self, memory: str | int | None, threshold: float) -> Geometry:
        if self._reading is None:
            return Geometry() if memory is None else Geometry.for_memory(memory, threshold)
        if memory is not None:
            raise UsageError(f"reading={self._reading} cannot be combined with a memory; pass one or the other")
        return Geometry.reading(self._reading)

    @property
    def _engine_geometry(self) -> CubeGeometry:
        return self.geometry.cube

    def _noise(self) -> float:
        """Return the share of rows that other hosts set in the AND according to δ, which is −m·ln(1 − share)."""
        fill = 1.0 - int(self.engine.zero_sums()[0, -1]) / (self.geometry.rows << self.geometry.validating_bits)
        return min(1 - 1e-12, fill**NOISE_ARRAYS)

    def search_for(self, threshold: float) -> Search:
        rows, bits = self.geometry.rows, self.geometry.column_bits
        most = math.floor(rows * math.exp(-threshold / rows) * (1 - self._noise()))  # Zthr = m·e^(−(θ+δ)/m)
        return Search(np.array([most], np.int64), *prefix_test(bits, threshold))
