"""The interface of geometries: the sizes of a sketch, which determine the shapes of its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

Side = int | tuple[int, ...] | None  # one size, several allowed sizes, or any size


class ArrayShape(NamedTuple):
    """The shape and type of one array of a sketch."""

    sides: tuple[Side, ...]
    dtype: str = "<u8"

    @property
    def follows_traffic(self) -> bool:
        """True if the array grows with the traffic, so that the geometry does not determine its length."""
        return None in self.sides

    def fits(self, sides: Sequence[int]) -> bool:
        """Return True if an array with these sides has this shape."""
        return len(sides) == len(self.sides) and all(map(_fits, sides, self.sides))

    def __str__(self) -> str:
        return " by ".join(map(_spell, self.sides))


def _fits(side: int, wanted: Side) -> bool:
    return wanted is None or (side in wanted if isinstance(wanted, tuple) else side == wanted)


def _spell(side: Side) -> str:
    if side is None:
        return "any"
    return " or ".join(map(str, side)) if isinstance(side, tuple) else f"{side}"


class Geometry(Protocol):
    """Sizes of a sketch: a NamedTuple of integers or lists of integers, which kernels accept as an argument."""

    @property
    def key_bits(self) -> int:
        """Bits of the integer that represents a host: 32, 64 or 128."""

    @property
    def memory(self) -> int:
        """Bytes of all arrays that do not grow with the traffic."""

    @property
    def _fields(self) -> tuple[str, ...]: ...

    def _asdict(self) -> dict[str, Any]: ...

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the name and shape of each array of a sketch."""


class ColumnGeometry(Geometry, Protocol):
    """Sizes of a sketch of bit columns: slices consist of arrays, arrays of columns, columns of rows (bits)."""

    @property
    def slice_bits(self) -> int:
        """log2 of the number of slices."""

    @property
    def arrays(self) -> int:
        """Arrays per slice; every host has one column in each."""

    @property
    def rows(self) -> int:
        """Bits per column."""

    @property
    def words(self) -> int:
        """64-bit words per column."""

    @property
    def total_columns(self) -> int:
        """Columns in the whole sketch. Giant columns, if there are some, follow the others."""

    @property
    def edges(self) -> list[int]:
        """Index of each array's first column within a slice, followed by the number of columns of a slice."""
