"""The geometry of VBFA, the vector Bloom filter: five arrays, four of which use windows of the address."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

from superhosts.core.units import format_size, parse_size
from superhosts.detectors.cbaa.addressing import Geometry as CubeGeometry
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.plan import check_limits
from superhosts.errors import GeometryError, UsageError

Reading = Literal["published", "long", "wide"]
Noise = Literal["two", "five"]
SHAPES = {"published": (12, 13), "long": (12, 16), "wide": (15, 13)}  # bits per window, log2 of the rows
NOISES = {"two": 2, "five": 5}


class Geometry(NamedTuple):
    """Sizes of a VBFA sketch and its treatment of addresses and noise, as plain integers."""

    index_bits: int = 12  # bits per window
    validating_bits: int = 12  # log2 of the columns of the hashed array, A5
    column_bits: int = 13  # log2 m
    mangled: int = 1  # 0 if windows are of the plain address, as published
    noise_arrays: int = 2  # number of arrays for which δ is computed: 2 as published, or all 5

    @classmethod
    def reading(cls, name: Reading, *, noise: Noise = "two", mangled: bool = True) -> Self:
        """Return one of three interpretations of the published setting, "m = 2^13, 160 MB", which contradicts itself.

        "published" keeps all other numbers (20 MiB), "long" has columns of 2^16 rows, and "wide" has windows of 15
        bits; the last two take 160 MiB.
        """
        if name not in SHAPES:
            raise UsageError(f"reading {name!r}: must be one of {', '.join(SHAPES)}")
        if noise not in NOISES:
            raise UsageError(f"noise {noise!r}: must be one of {', '.join(NOISES)}")
        window, column_bits = SHAPES[name]
        return cls(window, window, column_bits, int(mangled), NOISES[noise]).check()

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry with the published windows and the longest columns that `memory` allows."""
        return cls().resized(memory)

    def resized(self, memory: str | int) -> Self:
        """Return this geometry with the longest columns that `memory` allows."""
        size = parse_size(memory)
        minimum = self._replace(column_bits=6).memory
        if size < minimum:
            raise GeometryError(f"memory {format_size(size)} is too small for vbfa: at least {format_size(minimum)}")
        return self._replace(column_bits=min(20, (size // minimum).bit_length() - 1 + 6)).check()

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""
        # A window starts at each byte. With fewer than 8 bits it would miss some, with more than 16 it would extend
        # beyond the next window's byte.
        check_limits(self, {"index_bits": (8, 16), "mangled": (0, 1), "noise_arrays": (2, 5)})
        if self.noise_arrays not in NOISES.values():
            raise GeometryError(f"noise_arrays={self.noise_arrays}: must be 2 or 5")
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
    def rotation(self) -> int:
        """Bits by which an address is rotated right, so that CBAA's windows are h3, h2, h1 and h4."""
        return 16 - self.index_bits

    @property
    def key_bits(self) -> int:
        """Bits of a host."""
        return 32

    @property
    def slice_bits(self) -> int:
        """log2 of the number of slices: VBFA has a single one."""
        return 0

    @property
    def arrays(self) -> int:
        """Columns per host."""
        return self.cube.arrays

    @property
    def rows(self) -> int:
        """Bits per column."""  # m
        return self.cube.rows

    @property
    def words(self) -> int:
        """64-bit words per column."""
        return self.cube.words

    @property
    def total_columns(self) -> int:
        """Columns in the whole sketch."""
        return self.cube.total_columns

    @property
    def edges(self) -> list[int]:
        """Index of each array's first column, followed by the number of all columns."""
        return self.cube.edges

    @property
    def memory(self) -> int:
        """Bytes of the columns."""
        return self.cube.memory

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shape of the columns."""
        return self.cube.array_shapes()
