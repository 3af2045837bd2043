"""How many distinct things were seen, in 64 bits that are combined by OR.

Each thing has a hash and sets one bit of eight levels of eight bits. Half of all things belong to the first level, a
quarter to the second, and so on, so that one of the levels is neither empty nor full, whatever the number. It is found
by maximum likelihood. One thing reads as 1; hundreds have an error of about a third, which is enough for a mean over
several pairs.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.compiled import compiled

LEVELS, BITS = 8, 8
MOST = 2000  # distinct things; beyond it nearly all bits are set

_U = np.uint64
_STEPS = 30  # halvings of the logarithm of the number


@compiled
def mark_of(hashed: np.uint64) -> np.uint64:
    """Return the bit that a thing with this hash sets."""
    low = hashed | _U(1 << LEVELS - 1)
    lowest = low & (~low + _U(1))  # the bit whose number is the level; found without branches, which nobody predicts
    level = _U(lowest & _U(0xAA) != _U(0)) | _U(lowest & _U(0xCC) != _U(0)) << _U(1)
    level |= _U(lowest & _U(0xF0) != _U(0)) << _U(2)
    return _U(1) << (level * _U(BITS) + (hashed >> _U(60)) % _U(BITS))


@cache
def _shares() -> NDArray[np.float64]:
    """Return the share of things that set bits of each level."""
    return np.array([2.0 ** -(level + 1) for level in range(LEVELS - 1)] + [2.0 ** -(LEVELS - 1)])


def distinct(marks: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return for each word of marks how many distinct things have set them."""
    bits = (marks[:, None] >> np.arange(LEVELS * BITS, dtype=np.uint64)) & np.uint64(1)
    filled = bits.reshape(len(marks), LEVELS, BITS).sum(axis=2, dtype=np.float64)
    rate = _shares() / BITS  # with which a bit of each level is chosen
    low, high = np.zeros(len(marks)), np.full(len(marks), np.log(2 * MOST))
    for _ in range(
        _STEPS
    ):  # The derivative of the likelihood falls with the number, and is zero at the most likely one.
        middle = (low + high) / 2
        chance = np.exp(middle)[:, None] * rate
        slope = (filled * rate / np.expm1(chance) - (BITS - filled) * rate).sum(axis=1)
        low, high = np.where(slope > 0, middle, low), np.where(slope > 0, high, middle)
    found = np.minimum(np.exp((low + high) / 2), MOST)
    found = np.where(filled.sum(axis=1) == 1, 1.0, found)
    return np.where(marks == 0, 0.0, found)
