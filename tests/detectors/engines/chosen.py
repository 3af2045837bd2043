"""Pairs chosen by somebody who knows the key of a sketch: by that key, all of their searches begin at one slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, Key, fold, mangle32, mangle64


def unshifted(values: list[int], shift: int, bits: int) -> list[int]:
    """Invert x ^ (x >> shift)."""
    found = list(values)
    for _ in range(bits // shift):
        found = [value ^ (x >> shift) for value, x in zip(values, found, strict=True)]
    return found


def narrow_peers(host: int, count: int, key: Key) -> NDArray[np.uint32]:
    """Return peers of an IPv4 host whose hashes in `find_places` are 0, 1, 2 and so on."""
    words = [int(word) for word in key.pair]
    a, b, c = words[1] & MASK32, words[2] & MASK32, words[1] >> 32 | 1
    mixed = unshifted(list(range(count)), 15, 32)
    mixed = unshifted([x * pow(c, -1, 1 << 32) & MASK32 for x in mixed], 15, 32)
    begin = int(mangle32(np.uint64(host), key)) * a
    return np.array([(x - begin) * pow(b, -1, 1 << 32) & MASK32 for x in mixed], np.uint32)


def wide_peers(host: int, count: int, key: Key) -> NDArray[np.uint64]:
    """Return peers of a 64-bit host whose hashes in `place_of` are 0, 1, 2 and so on."""
    words, mask = [int(word) for word in key.pair], (1 << 64) - 1
    mixed = unshifted(list(range(count)), 32, 64)
    mixed = unshifted([x * pow(words[2], -1, 1 << 64) & mask for x in mixed], 29, 64)
    mixed = unshifted([x * pow(words[1], -1, 1 << 64) & mask for x in mixed], 32, 64)
    mangled = int(fold(np.uint64(0), np.uint64(mangle64(np.uint64(host), key)), key))
    return np.array([(x - mangled * words[0]) & mask for x in mixed], np.uint64)
