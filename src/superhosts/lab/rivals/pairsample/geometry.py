"""The geometry of a pair sample: the number of pairs that it keeps."""

from __future__ import annotations

from typing import NamedTuple, Self

from superhosts.core.units import format_size, parse_size
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.plan import check_limits
from superhosts.errors import GeometryError

PAIR_BYTES = 8
LEAST_PAIRS = 16


class Geometry(NamedTuple):
    """The size of a pair sample."""

    pairs: int = 1 << 24  # k: pairs with the smallest hashes that are kept

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry that fills `memory` with pairs."""
        size = parse_size(memory)
        if size < LEAST_PAIRS * PAIR_BYTES:
            rule = f"{LEAST_PAIRS} pairs take {format_size(LEAST_PAIRS * PAIR_BYTES)}"
            raise GeometryError(f"memory {format_size(size)} is too small for pairsample: {rule}")
        return cls(size // PAIR_BYTES).check()

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""
        check_limits(self, {"pairs": (LEAST_PAIRS, 1 << 40)})
        return self

    @property
    def key_bits(self) -> int:
        """Bits of a host."""
        return 32

    @property
    def memory(self) -> int:
        """Bytes of a full sample."""
        return PAIR_BYTES * self.pairs

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shape of the sample, which grows with the traffic until it is full."""
        return {"pairs": ArrayShape((None,))}
