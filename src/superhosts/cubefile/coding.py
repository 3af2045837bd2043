"""The two codings of a block of numbers: gaps if few bits are set, otherwise byte planes.

A gap is the number of zeros between two set bits, stored in one byte; 255 means that the gap continues in the next
byte. Byte planes store the first bytes of all numbers, then the second bytes, and so on, which puts similar bytes (the
high bits of labels) next to each other. Both are then compressed. A coded block can be merged into an array directly,
without decoding it first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled

GAPS, PLANES = 0, 1


@compiled
def _encode_gaps(words: NDArray[np.uint64], out: NDArray[np.uint8]) -> int:
    """Write the gaps between set bits to `out`. Return the bytes used, or −1 if `out` is too small."""
    used = 0
    gap = 0
    for word in words:
        if word == 0:
            gap += 64
            continue
        rest = word
        last = 0
        while rest != 0:
            bit = 0
            lowest = rest & (~rest + np.uint64(1))
            for step in (32, 16, 8, 4, 2, 1):  # Find the position of the lowest set bit by bisection.
                if lowest >> np.uint64(bit + step - 1) > 1:
                    bit += step
            gap += bit - last
            if used + gap // 255 + 1 > len(out):
                return -1
            while gap >= 255:
                out[used] = 255
                used += 1
                gap -= 255
            out[used] = gap
            used += 1
            gap = 0
            last = bit + 1
            rest &= rest - np.uint64(1)
        gap = 64 - last
    return used


@compiled
def _check_gaps(data: NDArray[np.uint8], bits: int) -> int:
    """Return the number of bytes up to the last set bit, or −1 if a bit is past the end."""
    total, last = np.int64(0), len(data)
    while last > 0 and data[last - 1] == 255:  # No set bit follows trailing bytes of 255.
        last -= 1
    for i in range(last):
        total += np.int64(data[i]) + np.int64(data[i] != 255)
    return last if total <= bits else -1


@compiled
def _or_gaps(data: NDArray[np.uint8], words: NDArray[np.uint64]) -> None:
    """Set the bits that the gaps encode. `_check_gaps` must have accepted them.

    The loop has no branches, because gaps are unpredictable.
    """
    position = np.int64(0)
    for byte in data:
        position += np.int64(byte)
        mark = np.uint64(byte != 255)
        words[position >> 6] |= mark << np.uint64(position & 63)
        position += np.int64(mark)


@compiled
def _or_planes(data: NDArray[np.uint8], words: NDArray[np.uint64]) -> None:
    """OR words stored as byte planes into `words`."""
    count = len(words)
    for plane in range(8):
        shift = np.uint64(8 * plane)
        for i in range(count):
            words[i] |= np.uint64(data[plane * count + i]) << shift


@compiled
def _max_words(other: NDArray[np.uint64], words: NDArray[np.uint64]) -> None:
    for i in range(len(words)):
        words[i] = max(words[i], other[i])


class CodedBlock(NamedTuple):
    """A valid coded block: it decodes to exactly the items of its part of the array."""

    coding: int
    data: NDArray[np.uint8]

    @property
    def is_empty(self) -> bool:
        """Return True if no bit is set. Always False for byte planes, which are not inspected."""
        return self.coding == GAPS and not len(self.data)

    def put(self, into: NDArray[Any]) -> None:
        """Overwrite `into` with the block."""
        if self.coding == PLANES:
            for place, plane in enumerate(self.data.reshape(into.dtype.itemsize, -1)):
                into.view(np.uint8)[place :: into.dtype.itemsize] = plane
        else:
            into.fill(0)
            _or_gaps(self.data, into)

    def merge_or(self, into: NDArray[np.uint64]) -> None:
        """OR the block into `into`. Gaps access only the words with set bits."""
        (_or_planes if self.coding == PLANES else _or_gaps)(self.data, into)

    def merge_max(self, into: NDArray[np.uint64]) -> None:
        """Replace each word of `into` by the maximum of itself and the block's word."""
        words = np.zeros(len(into), np.uint64)
        self.merge_or(words)
        _max_words(words, into)


def encode(items: NDArray[Any]) -> CodedBlock:
    """Encode a block of an array as gaps if that takes at most half its size, else as byte planes."""
    if items.dtype == np.uint64:
        out = np.empty(items.nbytes // 2, np.uint8)
        used = _encode_gaps(items, out)
        if used >= 0:
            return CodedBlock(GAPS, out[:used])
    size = items.dtype.itemsize
    return CodedBlock(PLANES, np.concatenate([items.view(np.uint8)[place::size] for place in range(size)]))


def read_block(coding: int, data: NDArray[np.uint8], dtype: np.dtype[Any], count: int) -> CodedBlock | None:
    """Return the data as a coded block of `count` items, or None if it is invalid."""
    if coding == GAPS and dtype == np.uint64:
        used = _check_gaps(data, 64 * count)
    else:
        used = len(data) if coding == PLANES and len(data) == count * dtype.itemsize else -1
    return None if used < 0 else CodedBlock(coding, data[:used])
