"""Searches for a byte in text, eight bytes at a time, in compiled loops.

A loop over single bytes mispredicts at the end of every field. So the text is read eight bytes at a time into integers;
a byte that equals the one looked for becomes zero by an exclusive or, and a subtraction marks the lowest zero byte.

Texts are given by addresses (rawmemory.py). Buffers have `PADDING` bytes of any content behind the text: an integer may
be read there, and what it holds is never used. `end` always lies within the text.
"""

from __future__ import annotations

import numpy as np

from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import word_at

PADDING = 64  # bytes of a buffer behind its text
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)


@compiled
def spread(byte: int) -> np.uint64:
    """Return an integer of eight such bytes."""
    return np.uint64(byte) * _ONES


@compiled
def _marks(word: np.uint64, bytes8: np.uint64) -> np.uint64:
    """Return a mark in the lowest byte that equals those of `bytes8`; marks above it may be wrong."""
    distance = word ^ bytes8
    return (distance - _ONES) & ~distance & _HIGH_BITS


@compiled
def _lowest(marks: np.uint64) -> int:
    """Return the number of the lowest byte that has a mark."""
    below = (marks & (~marks + np.uint64(1))) - np.uint64(1)
    count: int = np.int64(((below & _ONES) * _ONES) >> np.uint64(56))  # type: ignore[assignment]
    return count - 1


@compiled
def find(at: int, end: int, wanted: np.uint64) -> int:
    """Return the place of a byte, `end` if it is not there. `wanted` has the byte eight times (`spread`)."""
    while at < end:
        marks = _marks(word_at(at), wanted)
        if marks:
            return min(at + _lowest(marks), end)
        at += 8
    return end


@compiled
def find_either(at: int, end: int, first: np.uint64, second: np.uint64) -> int:
    """Return the place of the first of two bytes, `end` if neither is there."""
    while at < end:
        word = word_at(at)
        marks = _marks(word, first) | _marks(word, second)
        if marks:
            return min(at + _lowest(marks), end)
        at += 8
    return end


@compiled
def find_bracket(at: int, end: int) -> int:
    """Return the place of the first quote, brace or bracket of JSON, `end` if there is none."""
    while at < end:
        word = word_at(at)
        lower = word | np.uint64(0x2020202020202020)  # [ and ] become { and }
        marks = _marks(word, np.uint64(0x2222222222222222))
        marks |= _marks(lower, np.uint64(0x7B7B7B7B7B7B7B7B)) | _marks(lower, np.uint64(0x7D7D7D7D7D7D7D7D))
        if marks:
            return min(at + _lowest(marks), end)
        at += 8
    return end


@compiled
def short_word(begin: int, end: int) -> np.uint64:
    """Return the first bytes of a text, up to eight, with zeros behind them."""
    length = end - begin
    if length <= 0:
        return np.uint64(0)
    word: np.uint64 = word_at(begin)
    if length >= 8:
        return word
    return word & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))
