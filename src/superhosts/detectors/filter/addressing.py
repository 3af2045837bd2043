"""Where a pair goes in the filter. (A host's counters are drawn as columns are: `hashing.column_hash`.)"""

from __future__ import annotations

from superhosts.compiled import compiled
from superhosts.detectors.filter.geometry import Geometry


@compiled
def bit_of(pair: int, geometry: Geometry) -> int:
    """Return the bit that marks a pair as seen, from the high half of its hash."""
    return ((pair >> 32) * (64 * geometry.words)) >> 32
