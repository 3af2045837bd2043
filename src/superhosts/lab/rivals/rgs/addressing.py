"""Addressing in RGS-Sketch: scalar functions of the pair's hash.

Five bits of the hash select one of the host's groups, three bits the register in it, and the leading zeros give the
rank with which the pair competes for the register. A second hash of the pair's hash is the random number that rounds
counts and decides about evictions, so that the same stream always gives the same sketch.
"""

from __future__ import annotations

from superhosts.core.hashing import Key, pair_hash
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.rgs.geometry import HOST_GROUPS, REGISTER_BITS, REGISTERS

MAX_RANK = (1 << REGISTER_BITS) - 1


@compiled
def group_of(mangled: int, number: int, groups: int, key: Key) -> int:
    """Return the group that is the host's group `number`, from 0 to groups - 1."""
    return ((pair_hash(mangled, number, key) >> 32) * groups) >> 32


@compiled
def group_number(pair: int) -> int:
    """Return which of its host's groups a pair goes to."""
    return pair & (HOST_GROUPS - 1)


@compiled
def register_of(pair: int) -> int:
    """Return the register of a pair in its group."""
    return (pair >> 5) & (REGISTERS - 1)


@compiled
def rank_of(pair: int) -> int:
    """Return the leading zeros of a pair's hash plus one, at most the largest value of a register."""
    rank = 1
    while rank < MAX_RANK and (pair >> (64 - rank)) & 1 == 0:
        rank += 1
    return rank


@compiled
def draw_of(pair: int, key: Key) -> int:
    """Return a random number of 32 bits that belongs to a pair and does not depend on its rank."""
    return pair_hash(pair, key.pair[1], key) >> 32
