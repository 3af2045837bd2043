"""Numbers and TCP flags in the text of fields, in compiled functions. A number is -1 where the text is none.

Texts are given by addresses (rawmemory.py); eight bytes behind them can be read.
"""

from __future__ import annotations

import numpy as np

from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at, word_at

_ZEROS, _HIGH_HALVES, _SIX = 0x3030303030303030, 0xF0F0F0F0F0F0F0F0, 0x0606060606060606


@compiled
def _digit(byte: int) -> int:
    """Return the value of a hexadecimal digit, -1 if it is none."""
    if 48 <= byte <= 57:
        return byte - 48
    letter = byte | 32
    return letter - 87 if 97 <= letter <= 102 else -1


@compiled
def _read_hex(begin: int, end: int) -> int:
    """Return the number of hexadecimal digits."""
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
    """Return the number of up to eight digits."""
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
    """Return True if a text begins with 0x."""
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
        return _read_hex(begin + 2, end)
    point = find_point(begin, end)
    for at in range(point + 1, end):
        if byte_at(at) != 48:
            return -1
    return read_digits(begin, point)


@compiled
def _flag(letter: int) -> int:
    """Return the TCP flag of a letter, -1 if it has none."""
    letter |= 32
    if letter == 115:  # s
        return 0x02
    if letter == 97:  # a
        return 0x10
    if letter == 102:  # f
        return 0x01
    if letter == 112:  # p
        return 0x08
    if letter == 114:  # r
        return 0x04
    if letter == 117:  # u
        return 0x20
    if letter == 101:  # e
        return 0x40
    return 0x80 if letter == 99 else -1  # c


@compiled
def read_letters(begin: int, end: int) -> int:
    """Return the flags of letters between points: .AP.SF; -1 if another character is there."""
    if end - begin > 16:
        return -1
    flags = 0
    for at in range(begin, end):
        byte = byte_at(at)
        if byte != 46 and byte != 32:
            flag = _flag(byte)
            if flag < 0:
                return -1
            flags |= flag
    return flags


@compiled
def read_flags(begin: int, end: int, is_hex: bool) -> int:
    """Return TCP flags: a number, or letters. Of the 12 bits of a header the lower 8 count."""
    first = byte_at(begin)
    if is_hex and not _has_prefix(begin, end):
        value = _read_hex(begin, end)
    elif 48 <= first <= 57:
        value = read_number(begin, end)
    else:
        return read_letters(begin, end)
    return value & 0xFF if 0 <= value < 65536 else -1
