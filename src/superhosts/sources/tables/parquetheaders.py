"""Headers of the pages of Parquet files, as far as `parquetpages.py` needs them.

pyarrow reads pages and shows none. A header is a structure of Thrift's compact protocol: fields with a number and a
type, structures among them, of which unknown ones are skipped. See parquet.thrift of the Apache Parquet format. Pages
have no more than 20,000 rows by default, so a loop in Python over the fields would take as long as reading the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled

Bytes = NDArray[np.uint8]
Pages = NDArray[np.int64]  # a row for each page: the fields of `Page`

DATA, DICTIONARY, DATA_2 = 0, 2, 3  # kinds of pages
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY = 0, 2, 8  # encodings
_RUNS = 3  # the encoding of levels in pages of today
_AT_ONCE = 256  # pages
_FIELDS = 9  # numbers of fields that matter are below
_DEEPEST = 8  # structures within structures
_MISSING = -1
_STOP, _TRUE, _FALSE, _BINARY, _STRUCTURE = 0, 1, 2, 8, 12  # types of fields; 4, 5 and 6 are integers


class OddPage(Exception):  # noqa: N818  no error: it is left to pyarrow
    """A page is damaged, or of a form that is not known here."""


class Page(NamedTuple):
    """A page within the bytes of a column chunk."""

    kind: int
    values: int
    encoding: int
    begin: int
    end: int
    size: int  # decompressed
    levels: int  # bytes of levels before the values that are not compressed; 0 of old pages, which have them inside
    is_compressed: int


def pages_of(chunk: Bytes) -> Iterator[Page]:
    """Yield the pages of a column chunk; raise OddPage."""
    rows = np.empty((_AT_ONCE, len(Page._fields)), np.int64)
    at = 0
    while at < len(chunk):
        count, at = list_pages(chunk, at, rows)
        if count == 0:
            raise OddPage
        yield from (Page(*row) for row in rows[:count].tolist())


@compiled
def list_pages(chunk: Bytes, at: int, pages: Pages) -> tuple[int, int]:
    """List the pages from a place on, as many as there is room for; return their number and the place behind them.

    Pages that come before a damaged one are listed.
    """
    fields = np.empty((_FIELDS, _FIELDS), np.int64)
    count = 0
    while at < len(chunk) and count < len(pages):
        begin = read_fields(chunk, at, fields)
        if begin < 0:
            return count, at
        kind = fields[0, 1]
        about = 5 if kind == DATA else 7 if kind == DICTIONARY else 8
        size, values, levels = fields[0, 2], fields[about, 1], 0
        if kind == DATA_2:
            if fields[8, 5] < 0 or fields[8, 6] < 0:
                return count, at
            levels = fields[8, 5] + fields[8, 6]
        # Levels of an old page that are not runs have no length, and would be read wrongly.
        known = kind in (DICTIONARY, DATA_2) or (kind == DATA and fields[5, 3] == _RUNS)
        inside = 0 <= fields[0, 3] <= len(chunk) - begin and levels <= fields[0, 3] and levels <= size
        if not (known and inside and values >= 0):
            return count, at
        pages[count, 0], pages[count, 1] = kind, values
        pages[count, 2] = fields[about, 4 if kind == DATA_2 else 2]
        pages[count, 3], pages[count, 4], pages[count, 5] = begin, begin + fields[0, 3], size
        pages[count, 6], pages[count, 7] = levels, fields[8, 7] != 0
        at = begin + fields[0, 3]
        count += 1
    return count, at


@compiled
def read_fields(data: Bytes, at: int, fields: Pages) -> int:
    """Read a structure: its own integers to fields[0], those of its structure k to fields[k]; return where it ends.

    Deeper ones are skipped. Returns -1 if it is damaged.
    """
    fields[:] = _MISSING
    numbers = np.zeros(_DEEPEST + 1, np.int64)
    depth = 0
    while at < len(data):
        head = int(data[at])
        at += 1
        if head == _STOP:
            if depth == 0:
                return at
            depth -= 1
            continue
        value, kind = 0, head & 15
        if head >> 4:
            numbers[depth] += head >> 4
        else:
            numbers[depth], at = read_integer(data, at)
            if at < 0:
                return -1
        if kind == _STRUCTURE:
            depth += 1
            if depth > _DEEPEST:
                return -1
            numbers[depth] = 0
            continue
        if kind in (_TRUE, _FALSE):
            value = int(kind == _TRUE)
        elif 4 <= kind <= 6:
            value, at = read_integer(data, at)
        elif kind == _BINARY:
            value, at = read_varint(data, at)
            if at < 0 or value > len(data) - at:
                return -1
            at += value
        else:
            return -1
        if at < 0:
            return -1
        outer, inner = (0, numbers[0]) if depth == 0 else (numbers[0], numbers[depth])
        if depth <= 1 and 0 <= outer < _FIELDS and 0 <= inner < _FIELDS:
            fields[outer, inner] = value
    return -1


@compiled
def read_varint(data: Bytes, at: int) -> tuple[int, int]:
    """Return a number of up to 35 bits, seven in each byte, and where it ends; -1 if it does not."""
    value, shift = 0, 0
    while 0 <= at < len(data) and shift < 35:
        byte = int(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    return 0, -1


@compiled
def read_integer(data: Bytes, at: int) -> tuple[int, int]:
    """Return a number that may be negative: its lowest bit says so. And where it ends, as `read_varint` does."""
    value, at = read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def have_values(levels: Bytes, count: int) -> bool:
    """Return True if the definition levels of a column, 0 or 1 for each row, are 1 throughout: no row is null.

    Levels are runs: twice a length and a level, or twice a number of bytes plus one and these, a bit for each level.
    """
    data = levels.tobytes()
    at = seen = 0
    while seen < count:
        head, at = read_varint(levels, at)
        packed = data[at : at + (head >> 1 if head & 1 else 1)]
        if at < 0 or head < 2 or len(packed) < (head >> 1 if head & 1 else 1):
            raise OddPage
        at += len(packed)
        if head & 1:
            wanted = (1 << min(8 * len(packed), count - seen)) - 1
            if int.from_bytes(packed, "little") & wanted != wanted:
                return False
            seen += 8 * len(packed)
        else:
            if packed != b"\1":
                return False
            seen += head >> 1
    return True
