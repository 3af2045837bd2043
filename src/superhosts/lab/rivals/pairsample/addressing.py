"""The hash of a pair sample: a keyed bijection, so that the pair can be computed from what is kept.

The pair is one word of 64 bits, mangled host above peer. Peers have 32 bits. A wider peer is first folded into 32 bits
with the key: two wide peers of a host are taken for one with probability 2^-32.
"""

from __future__ import annotations

from superhosts.core.hashing import MASK64, Key, mangle64, unmangle64
from superhosts.jit.cache import compiled


@compiled
def narrow(peer: int, key: Key) -> int:
    """Fold a peer of 64 bits into 32. A value below 2^32 is unchanged, so it folds alike in any width."""
    words = key.pair
    high = ((peer >> 32) * words[3]) & MASK64
    high = ((high ^ (high >> 29)) * words[4]) & MASK64
    return (high >> 32) ^ (((peer << 32) & MASK64) >> 32)  # unsigned, which `peer & MASK32` would not be


@compiled
def sample_hash(mangled: int, peer: int, key: Key) -> int:
    """Hash a pair, given as mangled host and (folded) peer, to 64 bits."""
    return mangle64(((mangled << 32) & MASK64) | narrow(peer, key), key)


@compiled
def host_of(hashed: int, key: Key) -> int:
    """Return the mangled host of a pair from its hash."""
    return unmangle64(hashed, key) >> 32
