"""Text in memory, in compiled functions: where a byte is, and what number or TCP flags a field has.

A loop over single bytes mispredicts at the end of every field. So the text is read eight bytes at a time into integers;
a byte that equals the one looked for becomes zero by an exclusive or, and a subtraction marks the lowest zero byte.

Texts are given by addresses (jit/intrinsics.py). Buffers have `PADDING` bytes of any content behind the text: an
integer may be read there, and what it holds is never used. `end` always lies within the text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at, word_at

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]  # (n, 2): where each text begins and ends; one that is missing begins before 0

PADDING = 64  # bytes of a buffer behind its text
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_FLAG_OF = np.full(256, -1, np.int64)  # the TCP flag of a letter, -1 if it has none
for _letters in ("fsrpauec", "FSRPAUEC"):
    _FLAG_OF[list(_letters.encode())] = 1 << np.arange(8)
_ZEROS, _HIGH_HALVES, _SIX = 0x3030303030303030, 0xF0F0F0F0F0F0F0F0, 0x0606060606060606


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


@compiled
def _digit(byte: int) -> int:
    """Return the value of a hexadecimal digit, -1 if it is none."""
    if 48 <= byte <= 57:
        return byte - 48
    letter = byte | 32
    return letter - 87 if 97 <= letter <= 102 else -1


@compiled
def read_hex(begin: int, end: int) -> int:
    if end <= begin or end - begin > 8:
        return -1
    value = 0
    for at in range(begin, end):
        digit = _digit(byte_at(at))
        if digit < 0:
            return -1
        value = value * 16 + digit
    return value


@compiled
def read_digits(begin: int, end: int) -> int:
    """Return the number of decimal digits. Up to eight are read at once: a loop would mispredict where it ends."""
    length = end - begin
    if length <= 0 or length > 18:
        return -1
    if length <= 8:
        return _read_eight(begin, length)
    value = 0
    for at in range(begin, end):
        digit = byte_at(at) - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@compiled
def _read_eight(begin: int, length: int) -> int:
    word = word_at(begin)
    if length < 8:  # Zeros come before them.
        free = np.uint64(64 - 8 * length)
        word = word << free | np.uint64(_ZEROS) & ((np.uint64(1) << free) - np.uint64(1))
    are_digits = word & np.uint64(_HIGH_HALVES) == np.uint64(_ZEROS)
    if not are_digits or (word + np.uint64(_SIX)) & np.uint64(_HIGH_HALVES) != np.uint64(_ZEROS):
        return -1
    pairs = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(10 * 2**8 + 1) >> np.uint64(8)
    fours = (pairs & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(100 * 2**16 + 1) >> np.uint64(16)
    value: int = np.int64((fours & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(10000 * 2**32 + 1) >> np.uint64(32))  # type: ignore[assignment]
    return value


@compiled
def _has_prefix(begin: int, end: int) -> bool:
    return end - begin > 2 and byte_at(begin) == 48 and byte_at(begin + 1) | 32 == 120


@compiled
def find_point(begin: int, end: int) -> int:
    """Return the place of the first point of a short text, `end` if there is none."""
    for at in range(begin, min(end, begin + 20)):
        if byte_at(at) == 46:
            return at
    return end


@compiled
def read_number(begin: int, end: int) -> int:
    """Return a whole number, also 0x1f, and 80.0 as programs write it that have missing numbers."""
    value = read_digits(begin, end)
    if value >= 0:
        return value
    if _has_prefix(begin, end):
        return read_hex(begin + 2, end)
    point = find_point(begin, end)
    for at in range(point + 1, end):
        if byte_at(at) != 48:
            return -1
    return read_digits(begin, point)


@compiled
def read_letters(begin: int, end: int) -> int:
    """Return the flags of letters between points: .AP.SF; -1 if another character is there."""
    if end - begin > 16:
        return -1
    flags = 0
    for at in range(begin, end):
        byte = byte_at(at)
        if byte != 46 and byte != 32:
            if _FLAG_OF[byte] < 0:
                return -1
            flags |= _FLAG_OF[byte]
    return flags


@compiled
def read_flags(begin: int, end: int, is_hex: bool) -> int:
    """Return TCP flags: a number, or letters. Of the 12 bits of a header the lower 8 count."""
    first = byte_at(begin)
    if is_hex and not _has_prefix(begin, end):
        value = read_hex(begin, end)
    elif 48 <= first <= 57:
        value = read_number(begin, end)
    else:
        return read_letters(begin, end)
    return value & 0xFF if 0 <= value < 65536 else -1
