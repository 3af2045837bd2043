"""Addressing in GSE: scalar functions shared by the CPU loop and the CUDA kernel.

The peer selects one of the s places of a host's vector, and host and place together select one of the m bits of the
array.
"""

from __future__ import annotations

from superhosts.core.hashing import Key, pair_hash
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.gse.geometry import Geometry


@compiled
def place_of(peer: int, geometry: Geometry, key: Key) -> int:
    """Return the place of a (folded) peer in every host's vector."""
    return pair_hash(peer ^ peer, peer, key) & ((1 << geometry.vector_bits) - 1)  # peer ^ peer is an unsigned 0.


@compiled
def bit_of(mangled: int, place: int, geometry: Geometry, key: Key) -> int:
    """Return the index in the array of the bit at one place of a host's vector."""
    return pair_hash(mangled, place, key) & ((1 << geometry.array_bits) - 1)


@compiled
def slot_of(pair: int, geometry: Geometry) -> int:
    """Return the slot of a pair's hash in the table of recent pairs."""
    return pair & ((1 << geometry.table_bits) - 1)
