"""The geometry of the filter: a bit array for pairs, rows of counters for hosts, and the threshold of its list."""

from __future__ import annotations

from typing import NamedTuple, Self

from superhosts.engines.geometry import ArrayShape
from superhosts.errors import GeometryError, UsageError
from superhosts.hashing import MAX_ARRAYS
from superhosts.planning import check_limits
from superhosts.units import format_size, parse_size

ROWS = 4
MOST = 1 << 32  # bits, or counters of a row: positions are drawn from 32 bits of a hash


class Geometry(NamedTuple):
    """Sizes of a filter, and the peers at which it lists a host."""

    words: int = 1 << 23  # of 64 bits, of the bit array that marks pairs
    rows: int = ROWS  # counters of one host
    counters: int = 1 << 22  # of one row
    threshold: int = 1024  # θ

    @classmethod
    def for_memory(cls, memory: str | int, threshold: float = 1024) -> Self:
        """Return the geometry that gives half of `memory` to the pairs and half to the counters."""
        if not 1 <= threshold < MOST:
            raise UsageError(f"threshold {threshold}: a number of peers of at least 1")
        size = parse_size(memory)
        half = size // 2
        if half < 64:
            raise GeometryError(f"memory {format_size(size)} is too small for filter: take 128 B or more")
        return cls(half // 8, ROWS, half // (4 * ROWS), int(threshold)).check()

    def check(self) -> Self:
        """Return this geometry if it is legal; else name the rule that it breaks."""
        limits = {"words": (1, MOST // 64), "rows": (1, MAX_ARRAYS), "counters": (2, MOST), "threshold": (1, MOST)}
        check_limits(self, limits)
        return self

    @property
    def key_bits(self) -> int:
        """Bits of a host."""
        return 32

    @property
    def memory(self) -> int:
        """Bytes of bits and counters; the list of hosts comes to it."""
        return 8 * self.words + 4 * self.rows * self.counters

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shapes of the bits, the counters and the list of hosts."""
        counters = ArrayShape((self.rows * self.counters,), "<u4")
        return {"bits": ArrayShape((self.words,)), "counters": counters, "hosts": ArrayShape((None,), "<u4")}
