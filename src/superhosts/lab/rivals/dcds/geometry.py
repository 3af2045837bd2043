"""The geometry of DCDS: arrays of bit columns whose sizes are coprime moduli."""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple, Self

from superhosts.core.hashing import MAX_ARRAYS
from superhosts.core.units import format_size, parse_size
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.plan import check_limits
from superhosts.errors import GeometryError

ADDRESSES = 1 << 32
PRIMES = (65537, 65539, 65543)  # just above 2^16: two of them distinguish all addresses
MAX_COLUMNS = 1 << 20  # columns per array


class Geometry(NamedTuple):
    """Sizes of a DCDS sketch, as plain integers so that kernels accept it as an argument."""

    reversible: int = 2  # H: the first arrays, which determine addresses; the others validate (H+)
    moduli: tuple[int, ...] = PRIMES  # m_i: columns of each array
    column_bits: int = 14  # log2 v

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry with the longest columns that `memory` allows.

        The number of columns is fixed, because smaller moduli could not distinguish all addresses. Sizes are computed
        for 3·2^16 columns, which take the published 384 MiB with 2^14 rows; the eleven additional columns of the primes
        (0.006 %) are not counted.
        """
        size = parse_size(memory)
        minimum = (3 << 16) * 64 // 8
        if size < minimum:
            raise GeometryError(f"memory {format_size(size)} is too small for dcds: at least {format_size(minimum)}")
        return cls(column_bits=min(20, (size // minimum).bit_length() - 1 + 6)).check()

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""
        check_limits(self, {"reversible": (2, MAX_ARRAYS), "column_bits": (6, 20)})
        moduli = tuple(self.moduli) if isinstance(self.moduli, list | tuple) else ()  # JSON files have a list.
        if not all(type(modulus) is int and 2 <= modulus <= MAX_COLUMNS for modulus in moduli):
            raise GeometryError(f"moduli={self.moduli}: must be whole numbers from 2 to {MAX_COLUMNS}")
        if not self.reversible <= len(moduli) <= MAX_ARRAYS:
            rule = f"one for each of the {self.reversible} reversible arrays, and at most {MAX_ARRAYS} in total"
            raise GeometryError(f"moduli={self.moduli}: {rule}")
        for one, other in combinations(moduli, 2):
            if math.gcd(one, other) > 1:
                raise GeometryError(f"moduli={moduli}: {one} and {other} are not coprime")
        product = math.prod(moduli[: self.reversible])
        if product < ADDRESSES:
            rule = f"the product of the {self.reversible} reversible ones must be 2^32 or more to cover all addresses"
            raise GeometryError(f"moduli={moduli}: {rule}")
        if product >= 1 << 62:
            raise GeometryError(f"moduli={moduli}: the product of the reversible ones must be less than 2^62")
        return self._replace(moduli=moduli)

    @property
    def key_bits(self) -> int:
        """Bits of a host. Wider hosts would need moduli, and thus arrays, with as many bits in total."""
        return 32

    @property
    def slice_bits(self) -> int:
        """log2 of the number of slices: DCDS has a single one."""
        return 0

    @property
    def arrays(self) -> int:
        """Columns per host."""  # H + H+
        return len(self.moduli)

    @property
    def rows(self) -> int:
        """Bits per column."""  # v
        return 1 << self.column_bits

    @property
    def words(self) -> int:
        """64-bit words per column."""
        return 1 << (self.column_bits - 6)

    @property
    def edges(self) -> list[int]:
        """Index of each array's first column, followed by the number of all columns."""
        return [sum(self.moduli[:array]) for array in range(self.arrays + 1)]

    @property
    def total_columns(self) -> int:
        """Columns in the whole sketch."""
        return sum(self.moduli)

    @property
    def memory(self) -> int:
        """Bytes of the columns."""
        return self.total_columns * self.rows // 8

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shape of the columns."""
        return {"bits": ArrayShape((self.total_columns, self.words))}

    @property
    def steps(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """For each reversible array: the product of the preceding moduli, and its inverse modulo the array's own."""
        before = tuple(math.prod(self.moduli[:array]) for array in range(self.reversible))
        return before, tuple(pow(product, -1, m) for product, m in zip(before, self.moduli, strict=False))


class Search(NamedTuple):
    """The limits that a host with at least `threshold` peers satisfies."""

    zeros: int  # maximum of zeros in a column and in the AND
    prefix_words: int
    prefix_ones: int  # minimum of ones in the first `prefix_words` words of the AND
