"""Addressing in SpreadSketch: scalar functions of the pair's hash.

The number of leading ones of the hash selects the component of the bitmap, six bits in the middle select the bit within
it, and the number of trailing ones is the level with which the host competes for the bucket's label. A host's chance to
win the label therefore grows with its number of distinct peers, and the three choices are independent.
"""

from __future__ import annotations

from superhosts.jit.cache import compiled
from superhosts.lab.rivals.spreadsketch.geometry import COMPONENT_BITS, COMPONENTS, LAST_BITS, MAP_WORDS


@compiled
def component_of(pair: int) -> int:
    """Return the component of the bitmap for a pair: i for 2^-(i+1) of all pairs, the last one for the rest."""
    component = 0
    while component < COMPONENTS and (pair >> (63 - component)) & 1 == 1:
        component += 1
    return component


@compiled
def place_of(pair: int) -> int:
    """Return the index of the bit that a pair sets in its buckets."""
    component = component_of(pair)
    if component == COMPONENTS:
        return 64 * (MAP_WORDS - 1) + int((pair >> 40) & (LAST_BITS - 1))
    return COMPONENT_BITS * component + int((pair >> 40) & (COMPONENT_BITS - 1))


@compiled
def level_of(pair: int) -> int:
    """Return the number of trailing ones of the pair's hash, at most 32."""
    level = 0
    while level < 32 and (pair >> level) & 1 == 1:
        level += 1
    return level


@compiled
def label_of(mangled: int, pair: int) -> int:
    """Return the label with which a host competes: the higher level wins, then the larger host. 0 is an empty label."""
    return (level_of(pair) + 1) << 32 | mangled
