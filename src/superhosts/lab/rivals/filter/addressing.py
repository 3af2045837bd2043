"""Addressing in the filter. `hashing.column_hash` selects a host's counters, as it selects columns elsewhere."""

from __future__ import annotations

from superhosts.jit.cache import compiled
from superhosts.lab.rivals.filter.geometry import Geometry


@compiled
def bit_of(pair: int, geometry: Geometry) -> int:
    """Return the index of the bit that marks a pair as seen, from the high half of the pair's hash."""
    return ((pair >> 32) * (64 * geometry.words)) >> 32
