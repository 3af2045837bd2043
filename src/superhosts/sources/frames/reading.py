"""Numbers in a block of bytes.

Bytes are read through an unsigned index, because a signed one makes numba test for negative values, and then LLVM no
longer merges four byte loads into one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled

Bytes = NDArray[np.uint8]


@compiled
def byte(block: Bytes, at: int) -> int:
    """One byte, as a wide integer."""
    return np.int64(block[np.uint64(at)])  # type: ignore[return-value]


@compiled
def little(block: Bytes, at: int) -> int:
    """Four bytes as an unsigned number, least significant first."""
    return byte(block, at) | byte(block, at + 1) << 8 | byte(block, at + 2) << 16 | byte(block, at + 3) << 24


@compiled
def big(block: Bytes, at: int) -> int:
    """Four bytes in network order."""
    return byte(block, at) << 24 | byte(block, at + 1) << 16 | byte(block, at + 2) << 8 | byte(block, at + 3)


@compiled
def swapped(value: int) -> int:
    """Four bytes in the other order."""
    return (value & 0xFF) << 24 | (value & 0xFF00) << 8 | value >> 8 & 0xFF00 | value >> 24


@compiled
def half(block: Bytes, at: int) -> int:
    """Two bytes in network order."""
    return byte(block, at) << 8 | byte(block, at + 1)


@compiled
def little_half(block: Bytes, at: int) -> int:
    """Two bytes, least significant first."""
    return byte(block, at) | byte(block, at + 1) << 8
