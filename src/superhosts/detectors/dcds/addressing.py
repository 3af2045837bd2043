"""Where a pair goes in DCDS, and how columns give the address back. Scalar functions, shared by CPU and CUDA.

A host's column in an array is its mangled address modulo the array's size. (Of plain addresses whole prefixes would
pile up in few columns.) The sizes are coprime, so columns of the reversible arrays belong to exactly one number below
the product of their sizes: the Chinese remainder theorem, solved array by array as Garner does.
"""

from __future__ import annotations

import numpy as np

from superhosts.compiled import compiled
from superhosts.hashing import Key, pair_hash


@compiled
def column_of(mangled: int, modulus: int) -> int:
    """Return the column of a mangled host in an array of `modulus` columns."""
    return np.uint32(mangled) % np.uint32(modulus)  # type: ignore[return-value]


@compiled
def row_of(mangled: int, peer: int, column_bits: int, key: Key) -> int:
    """Return the row of a pair."""
    return pair_hash(mangled, peer, key) & ((1 << column_bits) - 1)


@compiled
def one_more(number: int, column: int, modulus: int, before: int, inverse: int) -> int:
    """Return the number that agrees with `number` modulo `before` and leaves `column` modulo `modulus`.

    `inverse` is that of `before`. It is the smallest such number, never below `number`: once beyond 2^32 it stays so.
    """
    digit = (column - number % modulus + modulus) % modulus * inverse % modulus
    return number + before * digit
