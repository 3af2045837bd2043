"""The geometry of SpreadSketch: rows of buckets, each with a multiresolution bitmap and a label."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from superhosts.core.hashing import MAX_ARRAYS
from superhosts.core.units import format_size, parse_size
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.plan import check_limits
from superhosts.errors import GeometryError

ROWS = 4
COMPONENTS = 12  # components of the bitmap before the last one; component i receives 2^-(i+1) of the pairs
COMPONENT_BITS = 32
LAST_BITS = 64  # bits of the last component, which receives the remaining 2^-12 of the pairs
MAP_WORDS = 7  # 12 · 32 + 64 = 448 bits: the published 438, rounded up to whole words
BUCKET_WORDS = MAP_WORDS + 1  # bitmap and label: one cache line
MAX_SET_BITS = 30  # a component with more set bits is too full to be measured
SATURATION = (LAST_BITS * math.log(LAST_BITS)) * (1 << COMPONENTS)  # about 1.09 million peers


class Geometry(NamedTuple):
    """Sizes of a SpreadSketch."""

    rows: int = ROWS  # d
    buckets: int = 1 << 19  # w: buckets per row

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry that fills `memory` with buckets."""
        size = parse_size(memory)
        row = 8 * BUCKET_WORDS * ROWS
        if size < 2 * row:
            rule = f"two buckets in each of {ROWS} rows take {format_size(2 * row)}"
            raise GeometryError(f"memory {format_size(size)} is too small for spreadsketch: {rule}")
        return cls(buckets=size // row).check()

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""
        check_limits(self, {"rows": (1, MAX_ARRAYS), "buckets": (2, 1 << 31)})
        return self

    @property
    def key_bits(self) -> int:
        """Bits of a host."""
        return 32

    @property
    def memory(self) -> int:
        """Bytes of all buckets."""
        return self.rows * self.buckets * BUCKET_WORDS * 8

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shape of the buckets."""
        return {"buckets": ArrayShape((self.rows * self.buckets, BUCKET_WORDS))}
