"""The geometry of VBFA, the vector Bloom filter: five arrays, four of them by windows of the address."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

from superhosts.detectors.cbaa.geometry import Geometry as CubeGeometry
from superhosts.engines.geometry import ArrayShape
from superhosts.errors import GeometryError, UsageError
from superhosts.planning import check_limits
from superhosts.units import format_size, parse_size

Reading = Literal["published", "long", "wide"]
Noise = Literal["two", "five"]
SHAPES = {"published": (12, 13), "long": (12, 16), "wide": (15, 13)}  # bits of a window, log2 of the rows
NOISES = {"two": 2, "five": 5}


class Geometry(NamedTuple):
    """Sizes of a VBFA sketch, and how it reads addresses and noise. Plain integers only."""

    index_bits: int = 12  # bits of a window
    validating_bits: int = 12  # log2 of the columns of the hashed array, A5
    column_bits: int = 13  # log2 m
    mangled: int = 1  # 0: windows of the plain address, as published
    noise_arrays: int = 2  # how many arrays the noise δ is taken for: 2 as published, or all 5

    @classmethod
    def reading(cls, name: Reading, *, noise: Noise = "two", mangled: bool = True) -> Self:
        """Return one of three readings of the published setting, "m = 2^13, 160 MB", which contradicts itself.

        "published" keeps all other numbers (20 MiB), "long" has columns of 2^16 rows and "wide" has windows of 15
        bits: both take 160 MiB.
        """
        if name not in SHAPES:
            raise UsageError(f"reading {name!r}: one of {', '.join(SHAPES)}")
        if noise not in NOISES:
            raise UsageError(f"noise {noise!r}: one of {', '.join(NOISES)}")
        window, column_bits = SHAPES[name]
        return cls(window, window, column_bits, int(mangled), NOISES[noise]).check()

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry of at most `memory`: the published windows, and columns as long as possible."""
        return cls().resized(memory)

    def resized(self, memory: str | int) -> Self:
        """Return this geometry with columns as long as `memory` allows."""
        size = parse_size(memory)
        least = self._replace(column_bits=6).memory
        if size < least:
            raise GeometryError(f"memory {format_size(size)} is too small for vbfa: at least {format_size(least)}")
        return self._replace(column_bits=min(20, (size // least).bit_length() - 1 + 6)).check()

    def check(self) -> Self:
        """Return this geometry if it is legal; else name the rule that it breaks."""
        # A window begins at each byte: with fewer bits it would miss some, with more it would reach beyond the next.
        check_limits(self, {"index_bits": (8, 16), "mangled": (0, 1), "noise_arrays": (2, 5)})
        if self.noise_arrays not in NOISES.values():
            raise GeometryError(f"noise_arrays={self.noise_arrays}: 2 or 5")
        self.cube.check()
        return self

    @property
    def cube(self) -> CubeGeometry:
        """The CBAA cube that this is: one slice, four windows of the ring of 32 bits, one validating array."""
        return CubeGeometry(
            slice_bits=0,
            restoring=4,
            index_bits=self.index_bits,
            validating=1,
            validating_bits=self.validating_bits,
            column_bits=self.column_bits,
        )

    @property
    def turn(self) -> int:
        """By how many bits an address is turned right, so that CBAA's windows are h3, h2, h1 and h4."""
        return 16 - self.index_bits

    @property
    def key_bits(self) -> int:
        """Bits of a host."""
        return 32

    @property
    def slice_bits(self) -> int:
        """VBFA has no slices."""
        return 0

    @property
    def arrays(self) -> int:
        """Columns of one host."""
        return self.cube.arrays

    @property
    def rows(self) -> int:
        """Bits of one column."""  # m
        return self.cube.rows

    @property
    def words(self) -> int:
        """64-bit words of one column."""
        return self.cube.words

    @property
    def total_columns(self) -> int:
        """Columns of the whole sketch."""
        return self.cube.total_columns

    @property
    def edges(self) -> list[int]:
        """Where the columns of each array begin, and all columns at the end."""
        return self.cube.edges

    @property
    def memory(self) -> int:
        """Bytes of the columns."""
        return self.cube.memory

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shape of the columns."""
        return self.cube.array_shapes()
