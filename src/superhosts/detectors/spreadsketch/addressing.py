"""Where a pair goes in SpreadSketch: scalar functions over the pair's hash.

The leading ones of the hash choose the component of the bitmap, six bits in the middle the bit in it, and the trailing
ones are the level with which its host competes for the bucket's label. So a host's chance for the label grows with
its number of distinct peers, and all three draws are independent.
"""

from __future__ import annotations

from superhosts.compiled import compiled
from superhosts.detectors.spreadsketch.geometry import COMPONENT_BITS, COMPONENTS, LAST_BITS, MAP_WORDS


@compiled
def component_of(pair: int) -> int:
    """Return the component of the bitmap that takes a pair: i for 2^-(i+1) of them, the last for the rest."""
    component = 0
    while component < COMPONENTS and (pair >> (63 - component)) & 1 == 1:
        component += 1
    return component


@compiled
def place_of(pair: int) -> int:
    """Return the bit of a bucket that a pair sets."""
    component = component_of(pair)
    if component == COMPONENTS:
        return 64 * (MAP_WORDS - 1) + int((pair >> 40) & (LAST_BITS - 1))
    return COMPONENT_BITS * component + int((pair >> 40) & (COMPONENT_BITS - 1))


@compiled
def level_of(pair: int) -> int:
    """Return the trailing ones of the pair's hash."""
    level = 0
    while level < 32 and (pair >> level) & 1 == 1:
        level += 1
    return level


@compiled
def label_of(mangled: int, pair: int) -> int:
    """Return the label with which a host competes: higher levels win, then the larger host; never 0, an empty label."""
    return (level_of(pair) + 1) << 32 | mangled
