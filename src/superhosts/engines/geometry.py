"""What every geometry answers: the sizes of a sketch, from which the shapes of its arrays follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

Side = int | tuple[int, ...] | None  # one size, one of several, or any


class ArrayShape(NamedTuple):
    """The type and the sides of one of a sketch's arrays."""

    sides: tuple[Side, ...]
    dtype: str = "<u8"

    @property
    def follows_traffic(self) -> bool:
        """Whether the array grows with the traffic: its length does not follow from the geometry."""
        return None in self.sides

    def fits(self, sides: Sequence[int]) -> bool:
        """Return True if an array may have these sides."""
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
    """Sizes of a sketch: a NamedTuple of integers, or of lists of them, so that kernels take it as it is."""

    @property
    def key_bits(self) -> int:
        """Bits of a host's number: 32, 64 or 128."""

    @property
    def memory(self) -> int:
        """Bytes of all arrays that do not follow the traffic."""

    @property
    def _fields(self) -> tuple[str, ...]: ...

    def _asdict(self) -> dict[str, Any]: ...

    def check(self) -> Self:
        """Return this geometry if it is legal; else raise GeometryError naming the rule that it breaks."""

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the arrays of a sketch of this geometry."""


class ColumnGeometry(Geometry, Protocol):
    """Sizes of a sketch of bit columns: slices of arrays of columns of rows."""

    @property
    def slice_bits(self) -> int:
        """log2 of the number of slices."""

    @property
    def arrays(self) -> int:
        """Arrays of one slice; every host has one column in each."""

    @property
    def rows(self) -> int:
        """Bits of one column."""

    @property
    def words(self) -> int:
        """64-bit words of one column."""

    @property
    def total_columns(self) -> int:
        """Columns of the whole sketch."""

    @property
    def edges(self) -> list[int]:
        """Where the columns of each array begin within a slice, and the columns of a slice at the end."""
