"""The geometry of GSE: one bit array, in which every host has a virtual vector, and a table of recent pairs."""

from __future__ import annotations

from typing import NamedTuple, Self

from superhosts.core.units import format_size, parse_size
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.plan import check_limits
from superhosts.errors import GeometryError

COLUMN_WORDS = 64  # files and counting loops treat the array as columns of 4,096 bits


class Geometry(NamedTuple):
    """Sizes of a GSE sketch, as plain integers so that kernels accept it as an argument."""

    array_bits: int = 30  # log2 m
    vector_bits: int = 12  # log2 s
    table_bits: int = 20  # log2 z

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry whose bits fit in `memory`. The table, a sixteenth of it, and the hosts are extra."""
        size = parse_size(memory)
        if size < 1 << 13:
            raise GeometryError(f"memory {format_size(size)} is too small for gse: use 8 KiB or more")
        array_bits = size.bit_length() + 2
        return cls(array_bits, min(12, array_bits - 4), array_bits - 10).check()

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""
        check_limits(self, {"array_bits": (12, 36), "vector_bits": (4, 20), "table_bits": (1, 28)})
        if self.vector_bits > self.array_bits:
            raise GeometryError(f"vector_bits={self.vector_bits}: must be at most array_bits={self.array_bits}")
        return self

    @property
    def key_bits(self) -> int:
        """Bits of a host."""
        return 32

    @property
    def vector(self) -> int:
        """Bits of a host's virtual vector."""  # s
        return 1 << self.vector_bits

    @property
    def words(self) -> int:
        """64-bit words per column."""
        return COLUMN_WORDS

    @property
    def rows(self) -> int:
        """Bits per column."""
        return 64 * COLUMN_WORDS

    @property
    def total_columns(self) -> int:
        """Columns of the array."""
        return 1 << (self.array_bits - 12)

    @property
    def slice_bits(self) -> int:
        """log2 of the number of slices, for GPU engines: there is a single one."""
        return 0

    @property
    def arrays(self) -> int:
        """Number of arrays, for GPU engines."""
        return 1

    @property
    def memory(self) -> int:
        """Bytes of bits and table, without the set of hosts."""
        return (1 << (self.array_bits - 3)) + (8 << self.table_bits)

    @property
    def edges(self) -> list[int]:
        """Start and end of the only array, in columns."""
        return [0, self.total_columns]

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shapes of the bits and of the list of hosts."""
        return {"bits": ArrayShape((self.total_columns, self.words)), "hosts": ArrayShape((None,), "<u4")}


class Search(NamedTuple):
    """The limits that a host with at least `threshold` peers satisfies: for a prefix of its vector, then in full."""

    prefix_bits: int
    prefix_zeros: int  # maximum of zeros in the first `prefix_bits` bits
    zeros: int  # maximum of zeros in the whole vector
