"""The geometry of the filter: a bit array for pairs, rows of counters for hosts and the threshold of the list."""

from __future__ import annotations

from typing import NamedTuple, Self

from superhosts.core.hashing import MAX_ARRAYS
from superhosts.core.units import format_size, parse_size
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.plan import check_limits
from superhosts.errors import GeometryError, UsageError

ROWS = 4
UINT32_RANGE = 1 << 32  # limit of bits, and of counters per row: 32 bits of a hash select them


class Geometry(NamedTuple):
    """Sizes of a filter and the number of peers at which it lists a host."""

    words: int = 1 << 23  # 64-bit words of the bit array that marks pairs
    rows: int = ROWS  # counters per host
    counters: int = 1 << 22  # counters per row
    threshold: int = 1024  # θ

    @classmethod
    def for_memory(cls, memory: str | int, threshold: float = 1024) -> Self:
        """Return the geometry that uses half of `memory` for the bits of pairs and half for the counters."""
        if not 1 <= threshold < UINT32_RANGE:
            raise UsageError(f"threshold {threshold}: must be a number of peers, at least 1 and below 2^32")
        size = parse_size(memory)
        half = size // 2
        if half < 64:
            raise GeometryError(f"memory {format_size(size)} is too small for filter: use 128 B or more")
        return cls(half // 8, ROWS, half // (4 * ROWS), int(threshold)).check()

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""
        limits = {
            "words": (1, UINT32_RANGE // 64),
            "rows": (1, MAX_ARRAYS),
            "counters": (2, UINT32_RANGE),
            "threshold": (1, UINT32_RANGE),
        }
        check_limits(self, limits)
        return self

    @property
    def key_bits(self) -> int:
        """Bits of a host."""
        return 32

    @property
    def memory(self) -> int:
        """Bytes of bits and counters, without the list of hosts."""
        return 8 * self.words + 4 * self.rows * self.counters

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shapes of the bits, the counters and the list of hosts."""
        counters = ArrayShape((self.rows * self.counters,), "<u4")
        return {"bits": ArrayShape((self.words,)), "counters": counters, "hosts": ArrayShape((None,), "<u4")}
