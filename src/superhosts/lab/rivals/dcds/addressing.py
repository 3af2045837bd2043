"""Addressing in DCDS and the way back from columns to addresses: scalar functions shared by CPU and CUDA.

A host's column in an array is its mangled address modulo the array's size. With plain addresses, whole prefixes would
fall into few columns. The sizes are coprime, so by the Chinese remainder theorem one column of each reversible array
determines exactly one number below the product of their sizes. It is computed array by array with Garner's algorithm.
"""

from __future__ import annotations

import numpy as np

from superhosts.core.hashing import Key, pair_hash
from superhosts.jit.cache import compiled


@compiled
def column_of(mangled: int, modulus: int) -> int:
    """Return the column of a mangled host in an array of `modulus` columns."""
    return np.uint32(mangled) % np.uint32(modulus)  # type: ignore[return-value]


@compiled
def row_of(mangled: int, peer: int, column_bits: int, key: Key) -> int:
    """Return the row of a pair."""
    return pair_hash(mangled, peer, key) & ((1 << column_bits) - 1)


@compiled
def garner_step(number: int, column: int, modulus: int, before: int, inverse: int) -> int:
    """Return the smallest number that is `number` modulo `before` and `column` modulo `modulus`.

    `inverse` is the inverse of `before` modulo `modulus`. The result is never less than `number`: once it exceeds 2^32,
    it stays above.
    """
    digit = (column - number % modulus + modulus) % modulus * inverse % modulus
    return number + before * digit
