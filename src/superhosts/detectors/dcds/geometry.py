"""The geometry of DCDS: arrays of bit columns whose sizes are coprime moduli."""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple, Self

from superhosts.engines.geometry import ArrayShape
from superhosts.errors import GeometryError
from superhosts.hashing import MAX_ARRAYS
from superhosts.planning import check_limits
from superhosts.units import format_size, parse_size

ADDRESSES = 1 << 32
PRIMES = (65537, 65539, 65543)  # just above 2^16: two of them tell all addresses apart
MAX_COLUMNS = 1 << 20  # of one array


class Geometry(NamedTuple):
    """Sizes of a DCDS sketch. Plain integers only: kernels take it as it is."""

    reversible: int = 2  # H: the first arrays, which give addresses back; the others validate (H+)
    moduli: tuple[int, ...] = PRIMES  # m_i: columns of each array
    column_bits: int = 14  # log2 v

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry of `memory`, in which columns are as long as possible.

        The number of columns is fixed: smaller moduli could not tell all addresses apart. 3·2^16 columns count as the
        published 384 MiB for 2^14 rows; the eleven columns that primes take beyond them (0.006 %) are not counted.
        """
        size = parse_size(memory)
        least = (3 << 16) * 64 // 8
        if size < least:
            raise GeometryError(f"memory {format_size(size)} is too small for dcds: at least {format_size(least)}")
        return cls(column_bits=min(20, (size // least).bit_length() - 1 + 6)).check()

    def check(self) -> Self:
        """Return this geometry if it is legal; else name the rule that it breaks."""
        check_limits(self, {"reversible": (2, MAX_ARRAYS), "column_bits": (6, 20)})
        moduli = tuple(self.moduli) if isinstance(self.moduli, list | tuple) else ()  # files bring a list
        if not all(type(modulus) is int and 2 <= modulus <= MAX_COLUMNS for modulus in moduli):
            raise GeometryError(f"moduli={self.moduli}: must be whole numbers from 2 to {MAX_COLUMNS}")
        if not self.reversible <= len(moduli) <= MAX_ARRAYS:
            rule = f"one for each of the {self.reversible} reversible arrays, and at most {MAX_ARRAYS} in all"
            raise GeometryError(f"moduli={self.moduli}: {rule}")
        for one, other in combinations(moduli, 2):
            if math.gcd(one, other) > 1:
                raise GeometryError(f"moduli={moduli}: {one} and {other} are not coprime")
        product = math.prod(moduli[: self.reversible])
        if product < ADDRESSES:
            rule = f"the {self.reversible} reversible ones must multiply to 2^32 or more to tell all addresses apart"
            raise GeometryError(f"moduli={moduli}: {rule}")
        if product >= 1 << 62:
            raise GeometryError(f"moduli={moduli}: the reversible ones must multiply to less than 2^62")
        return self._replace(moduli=moduli)

    @property
    def key_bits(self) -> int:
        """Bits of a host; wider keys would need moduli, and with them arrays, of as many bits in all."""
        return 32

    @property
    def slice_bits(self) -> int:
        """DCDS has no slices."""
        return 0

    @property
    def arrays(self) -> int:
        """Columns of one host."""  # H + H+
        return len(self.moduli)

    @property
    def rows(self) -> int:
        """Bits of one column."""  # v
        return 1 << self.column_bits

    @property
    def words(self) -> int:
        """64-bit words of one column."""
        return 1 << (self.column_bits - 6)

    @property
    def edges(self) -> list[int]:
        """Where the columns of each array begin, and all columns at the end."""
        return [sum(self.moduli[:array]) for array in range(self.arrays + 1)]

    @property
    def total_columns(self) -> int:
        """Columns of the whole sketch."""
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
        """For each reversible array: the product of the moduli before it, and that product's inverse in its own."""
        before = tuple(math.prod(self.moduli[:array]) for array in range(self.reversible))
        return before, tuple(pow(product, -1, m) for product, m in zip(before, self.moduli, strict=False))


class Search(NamedTuple):
    """What a host of at least the threshold must show."""

    zeros: int  # most zeros in a column, and in the AND
    prefix_words: int
    prefix_ones: int  # fewest ones in the first words of the AND
