"""Compiled loops over RowBinary: where the values of each row are, and what they are.

`walk` finds the values that are wanted; the other loops read them from there. A value that is missing (NULL) has the
place -1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import Bytes, Kinds, Words, parse_address
from superhosts.jit.cache import compiled

Places = NDArray[np.int64]
LITTLE, BIG = 1, 2  # as in rowbinary_schema.py
MISSING = -1
LONGEST = 1 << 30  # bytes of one text; more is taken for a wrong schema
FEWER, DAMAGED = 0, 1  # why a walk ended: the bytes, or rows, are used up; a length makes no sense


@compiled
def walk(data: Bytes, widths: Places, nullable: NDArray[np.bool_], slots: Places, places: NDArray[np.int64]) -> Places:
    """Find values in rows one behind the other; return the number of rows, the bytes they take and why it ended.

    Column c has `widths[c]` bytes, 0 for text. If `slots[c]` is not negative, `places[slots[c], row]` gets where its
    value begins and ends. Only whole rows count.
    """
    size, most = len(data), places.shape[1]
    at, row = 0, 0
    while row < most:
        begin = at
        for c in range(len(widths)):
            start = at
            if nullable[c]:
                if at >= size:
                    return np.array([row, begin, FEWER])
                start = MISSING if data[at] == 1 else at + 1
                if data[at] > 1:
                    return np.array([row, begin, DAMAGED])
                at += 1
            if start != MISSING:
                length, at = widths[c], start
                if length == 0:
                    shift = 0
                    while True:
                        if at >= size:
                            return np.array([row, begin, FEWER])
                        byte = np.int64(data[at])
                        at += 1
                        length |= (byte & 127) << shift
                        shift += 7
                        if byte < 128:
                            break
                        if shift > 28:
                            return np.array([row, begin, DAMAGED])
                    if length > LONGEST:
                        return np.array([row, begin, DAMAGED])
                    start = at
                at += length
                if at > size:
                    return np.array([row, begin, FEWER])
            if slots[c] >= 0:
                places[slots[c], row, 0] = start
                places[slots[c], row, 1] = at
        row += 1
    return np.array([row, at, FEWER])


@compiled
def _little(data: Bytes, start: int, end: int) -> np.uint64:
    """Return up to eight bytes as a number, the first one lowest."""
    value = np.uint64(0)
    for i in range(end - start):
        value |= np.uint64(data[start + i]) << np.uint64(8 * i)
    return value


@compiled
def _big(data: Bytes, start: int, end: int) -> np.uint64:
    """Return up to eight bytes as a number, the first one highest."""
    value = np.uint64(0)
    for i in range(start, end):
        value = value << np.uint64(8) | np.uint64(data[i])
    return value


@compiled
def read_addresses(data: Bytes, places: Places, reading: int, signed: bool, kinds: Kinds, words: Words) -> None:
    """Read a column of addresses: numbers in either byte order, or text.

    A number of 16 bytes is IPv6, unless IPv4 is mapped to it; a shorter one is IPv4, and no address from 2^32 on.
    """
    zero = np.uint64(0)
    for i in range(len(places)):
        start, end = places[i, 0], places[i, 1]
        kind, high, low = 0, zero, zero
        if start >= 0:
            if reading == LITTLE:
                low = _little(data, start, min(end, start + 8))
                if end - start == 16:
                    high, kind = _little(data, start + 8, end), 6
                elif low >> np.uint64(32) == zero and not (signed and data[end - 1] > 127):
                    kind = 4
            elif reading == BIG:
                if end - start == 16:
                    high, low, kind = _big(data, start, start + 8), _big(data, start + 8, end), 6
                else:
                    low, kind = _big(data, start, end), 4
            else:
                kind, high, low = parse_address(data, start, end)
            if kind == 6 and high == zero and low >> np.uint64(32) == np.uint64(0xFFFF):
                kind, low = 4, low & np.uint64(0xFFFFFFFF)
        kinds[i] = kind
        words[i, 0] = high
        words[i, 1] = low


@compiled
def read_integers(data: Bytes, places: Places, signed: bool, numbers: NDArray[np.int64]) -> None:
    """Read whole numbers of at most eight bytes; -1 for a missing one and for those from 2^63 on."""
    for i in range(len(places)):
        start, end = places[i, 0], places[i, 1]
        numbers[i] = -1
        if start >= 0:
            value = np.int64(_little(data, start, end))
            if value >= 0 and not (signed and data[end - 1] > 127):
                numbers[i] = value
