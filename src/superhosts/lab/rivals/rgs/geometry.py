"""The geometry of RGS-Sketch: groups of registers that hosts share, and buckets of cells that name hosts."""

from __future__ import annotations

from typing import NamedTuple, Self

from superhosts.core.units import format_size, parse_size
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.plan import check_limits
from superhosts.errors import GeometryError

REGISTERS = 8  # of a group
REGISTER_BITS = 5
GROUP_BYTES = REGISTERS * REGISTER_BITS // 8
HOST_GROUPS = 32  # groups of a host: 256 registers, shared with other hosts
CELLS = 8  # of a bucket
CELL_BYTES = 8  # host and count
BUCKET_SHARE = 0.35  # of the memory
UINT32_RANGE = 1 << 32


class Geometry(NamedTuple):
    """Sizes of an RGS-Sketch."""

    groups: int = 17_448_307
    buckets: int = 734_003

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry that fills `memory`, with the published share of buckets."""
        size = parse_size(memory)
        buckets = int(BUCKET_SHARE * size) // (CELLS * CELL_BYTES)
        groups = (size - buckets * CELLS * CELL_BYTES) // GROUP_BYTES
        if buckets < 2:
            raise GeometryError(f"memory {format_size(size)} is too small for rgs: use 366 B or more")
        return cls(groups, buckets).check()

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""
        check_limits(self, {"groups": (2, UINT32_RANGE), "buckets": (2, UINT32_RANGE)})
        return self

    @property
    def key_bits(self) -> int:
        """Bits of a host."""
        return 32

    @property
    def memory(self) -> int:
        """Bytes of registers and cells."""
        return GROUP_BYTES * self.groups + CELLS * CELL_BYTES * self.buckets

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shapes of the register groups and of the cells."""
        cells = ArrayShape((CELLS * self.buckets, 2), "<u4")
        return {"groups": ArrayShape((self.groups, GROUP_BYTES), "|u1"), "cells": cells}
