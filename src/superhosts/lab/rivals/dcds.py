"""DCDS (Wang, Guan and others, 2011): columns by coprime moduli, addresses by the Chinese remainder theorem.

The number of bit columns of an array is its modulus. A pair sets one bit, in the same row of the host's column in each
array. The search combines hot columns of the reversible arrays; each combination is at most one address, and the
validating arrays and the number of ones in the AND of all columns decide. As published, the AND is attributed entirely
to the host: the noise of other hosts is not removed. The confidence interval is that of linear counting and ignores the
noise too, so it is too high if columns are crowded.

The published setting is H = 2 reversible arrays and one validating array of 2^16 columns of 2^14 rows, 384 MiB. Here
the moduli are the primes just above 2^16: the product of two exceeds 2^32, so a pair of columns is at most one address.

A host's column in an array is its mangled address modulo the array's size. With plain addresses, whole prefixes would
fall into few columns. The sizes are coprime, so by the Chinese remainder theorem one column of each reversible array
determines exactly one number below the product of their sizes. It is computed array by array with Garner's algorithm.
In all else DCDS is CBAA with one slice, and uses its engines. Its search has no bits for looking up matching columns:
it combines every hot column of the first array with every one of the next, which costs the square of their number.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple, Self

import numpy as np

from superhosts.core.defaults import THRESHOLD
from superhosts.core.hashing import MAX_ARRAYS
from superhosts.detectors.cbaa import CpuCbaa
from superhosts.detectors.cbaa.addressing import ADDRESSES, Layout, Search
from superhosts.detectors.cbaa.cuda import CudaCbaa
from superhosts.detectors.formulas import check_limits, prefix_test, zero_limit
from superhosts.errors import GeometryError
from superhosts.lab.rivals.base import ColumnRival, parse_memory, reaching

PRIMES = (65537, 65539, 65543)  # just above 2^16: two of them distinguish all addresses
MORE_PRIMES = (*PRIMES, 65551)
MAX_COLUMNS = 1 << 20  # columns per array


class Geometry(NamedTuple):
    reversible: int = 2  # H: the first arrays, which determine addresses; the others validate (H+)
    moduli: tuple[int, ...] = PRIMES  # m_i: columns of each array
    column_bits: int = 14  # log2 v

    @classmethod
    def for_memory(cls, memory: str | int, threshold: float = THRESHOLD) -> Self:
        """Return the longest columns that `memory` allows, with a second validating array, which most phantoms fail.

        Smaller moduli could not distinguish all addresses. With three reversible arrays they could, but then the search
        combines so many columns that it gives up. Sizes are computed for 2^16 columns; the additional ones of the
        primes (0.008 %) are not counted.
        """
        minimum = ((len(MORE_PRIMES) << 16) << reaching(threshold)) // 8
        times = parse_memory(memory, minimum, "dcds") // minimum
        column_bits = min(20, times.bit_length() - 1 + reaching(threshold))
        return cls(moduli=MORE_PRIMES, column_bits=column_bits).check()

    def check(self) -> Self:
        check_limits(self, {"reversible": (2, MAX_ARRAYS), "column_bits": (6, 20)})
        moduli = self.moduli
        if not all(type(modulus) is int and 2 <= modulus <= MAX_COLUMNS for modulus in moduli):
            raise GeometryError(f"moduli={moduli}: must be whole numbers from 2 to {MAX_COLUMNS}")
        if not self.reversible <= len(moduli) <= MAX_ARRAYS:
            rule = f"one for each of the {self.reversible} reversible arrays, and at most {MAX_ARRAYS} in total"
            raise GeometryError(f"moduli={moduli}: {rule}")
        for one, other in combinations(moduli, 2):
            if math.gcd(one, other) > 1:
                raise GeometryError(f"moduli={moduli}: {one} and {other} are not coprime")
        product = math.prod(moduli[: self.reversible])
        if product < ADDRESSES:
            rule = f"the product of the {self.reversible} reversible ones must be 2^32 or more to cover all addresses"
            raise GeometryError(f"moduli={moduli}: {rule}")
        if product >= 1 << 62:
            raise GeometryError(f"moduli={moduli}: the product of the reversible ones must be less than 2^62")
        return self

    @property
    def key_bits(self) -> int:
        return 32

    @property
    def slice_bits(self) -> int:
        return 0

    @property
    def arrays(self) -> int:
        return len(self.moduli)

    @property
    def rows(self) -> int:
        return 1 << self.column_bits

    @property
    def words(self) -> int:
        return 1 << (self.column_bits - 6)

    @property
    def edges(self) -> list[int]:
        return [sum(self.moduli[:array]) for array in range(self.arrays + 1)]

    @property
    def total_columns(self) -> int:
        return sum(self.moduli)

    @property
    def memory(self) -> int:
        return self.total_columns * self.rows // 8

    def layout(self) -> Layout:
        """For each reversible array, `factors` has the product of the preceding moduli and its inverse."""
        before = [math.prod(self.moduli[:array]) for array in range(self.reversible)]
        inverses = [pow(product, -1, modulus) for product, modulus in zip(before, self.moduli, strict=False)]
        return Layout(
            0,
            self.column_bits,
            0,
            np.array(self.edges, np.int64),
            np.full(self.arrays, -1, np.int64),
            np.array(self.moduli, np.int64),
            np.full(self.reversible, 63, np.int64),
            np.array([before, inverses], np.int64),
        )


class Dcds(ColumnRival):
    """Columns by coprime moduli for 32-bit hosts, of the published 384 MiB by default."""

    name = "dcds"
    geometry_type = Geometry
    cpu_engine, gpu_engine = CpuCbaa, CudaCbaa
    geometry: Geometry

    def search_for(self, threshold: float) -> Search:
        bits = self.geometry.column_bits
        return Search(np.array([zero_limit(bits, threshold)]), *prefix_test(bits, threshold))

    def _noise(self) -> float:
        return 0.0  # n = v·ln(v/Z), as if no other host shared a column
