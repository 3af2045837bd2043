"""The geometry of GSE: one array of bits, in which every host has a virtual vector, and a table of recent pairs."""

from __future__ import annotations

from typing import NamedTuple, Self

from superhosts.engines.geometry import ArrayShape
from superhosts.errors import GeometryError
from superhosts.planning import check_limits
from superhosts.units import format_size, parse_size

COLUMN_WORDS = 64  # in files and for counting, the array is cut into columns of 4,096 bits


class Geometry(NamedTuple):
    """Sizes of a GSE sketch. Plain integers only: kernels take it as it is."""

    array_bits: int = 30  # log2 m
    vector_bits: int = 12  # log2 s
    table_bits: int = 20  # log2 z

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry whose bits take at most `memory`; a table of a sixteenth of it, and hosts, come to it."""
        size = parse_size(memory)
        if size < 1 << 13:
            raise GeometryError(f"memory {format_size(size)} is too small for gse: take 8 KiB or more")
        array_bits = size.bit_length() + 2
        return cls(array_bits, min(12, array_bits - 4), array_bits - 10).check()

    def check(self) -> Self:
        """Return this geometry if it is legal; else name the rule that it breaks."""
        check_limits(self, {"array_bits": (12, 36), "vector_bits": (4, 20), "table_bits": (1, 28)})
        if self.vector_bits > self.array_bits:
            raise GeometryError(f"vector_bits={self.vector_bits}: at most array_bits={self.array_bits}")
        return self

    @property
    def key_bits(self) -> int:
        """Bits of a host."""
        return 32

    @property
    def vector(self) -> int:
        """Bits of one host's virtual vector."""  # s
        return 1 << self.vector_bits

    @property
    def words(self) -> int:
        """64-bit words of one column."""
        return COLUMN_WORDS

    @property
    def rows(self) -> int:
        """Bits of one column."""
        return 64 * COLUMN_WORDS

    @property
    def total_columns(self) -> int:
        """Columns of the array."""
        return 1 << (self.array_bits - 12)

    @property
    def slice_bits(self) -> int:
        """Engines on GPUs ask for it: the array is one slice."""
        return 0

    @property
    def arrays(self) -> int:
        """Engines on GPUs ask for it: the array is one."""
        return 1

    @property
    def memory(self) -> int:
        """Bytes of bits and table; the set of hosts comes to it."""
        return (1 << (self.array_bits - 3)) + (8 << self.table_bits)

    @property
    def edges(self) -> list[int]:
        """The array is one: where it begins and ends."""
        return [0, self.total_columns]

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shapes of the bits and of the list of hosts."""
        return {"bits": ArrayShape((self.total_columns, self.words)), "hosts": ArrayShape((None,), "<u4")}


class Search(NamedTuple):
    """What a host of at least the threshold must show: a first look at its vector, then the whole."""

    look: int  # bits of the first look
    look_zeros: int  # most zeros in it
    zeros: int  # most zeros in all
