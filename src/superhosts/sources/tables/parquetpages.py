"""Pages of Parquet files straight to IPv4 addresses.

pyarrow makes an Arrow array of every value first. For addresses as text that takes longer than to decompress and parse
them; here each is parsed where it was decompressed. Only the common case is read: columns without nulls of numbers or
text, all of them IPv4, as plain values or as a dictionary. `PlainPages.read` returns None for anything else, damage
that it notices included, and pyarrow reads the same rows and says what is wrong with them.

How a page is compressed is told by its own bytes and checked by its size. The description of the file says it, too, but
pyarrow ends the whole process when it is asked for a codec that does not exist.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import LONGEST, READABLE, Bytes, parse_address, parse_ipv4
from superhosts.core.profile import measured
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import number_at, word_at
from superhosts.sources.tables.parquetheaders import (
    DATA_2,
    DICTIONARY,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    OddPage,
    Page,
    have_values,
    pages_of,
    read_varint,
)
from superhosts.sources.tables.placed import Places

Narrow = NDArray[np.uint32]

_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_LARGEST = 64 << 20  # bytes of a page: a damaged header may say anything
_WIDEST = 32  # bits of an index


class PlainColumn(NamedTuple):
    """A column whose pages may be read here."""

    number: int  # among the columns of a row group
    physical: str  # INT32, INT64 or BYTE_ARRAY
    signed: bool
    nullable: bool


class PlainPages:
    """The columns of addresses of a file.

    Once some row group was none of the common case, all later ones are left to pyarrow: a file is alike throughout, and
    to try each in vain costs as much as to read it.
    """

    def __init__(self, places: Places, file: Any, names: Sequence[str]) -> None:
        self._places = places
        self._metadata = file.metadata
        found = [_column(file, name) for name in names]
        self._columns = [column for column in found if column is not None]
        self._is_common = len(self._columns) == len(names)

    def read(self, groups: Sequence[int]) -> list[Narrow] | None:
        """Return the columns over some row groups; None if pyarrow has to read them."""
        if not self._is_common:
            return None
        try:
            return [self._read(groups, column) for column in self._columns]
        except (OddPage, OSError, ValueError, OverflowError, MemoryError):  # Sizes and places may be any numbers.
            self._is_common = False
            return None

    def _read(self, groups: Sequence[int], column: PlainColumn) -> Narrow:
        rows = [self._metadata.row_group(group).num_rows for group in groups]
        addresses = np.empty(sum(rows), np.uint32)
        begin = 0
        for group, count in zip(groups, rows, strict=True):
            _read_chunk(self._fetch(group, column), addresses[begin : begin + count])
            begin += count
        return addresses

    def _fetch(self, group: int, column: PlainColumn) -> Chunk:
        about = self._metadata.row_group(group).column(column.number)
        begin, size = about.data_page_offset, about.total_compressed_size
        if about.has_dictionary_page:
            begin = min(begin, about.dictionary_page_offset)
        if about.file_path or not (begin >= 0 and 0 <= size <= self._places.size - begin):
            raise OddPage
        with measured("read"):
            file = self._places.open()
            try:
                file.seek(begin)
                data = np.frombuffer(file.read(size), np.uint8)
            finally:
                file.close()
        if len(data) < size:
            raise OddPage
        return Chunk(data, column)


class Chunk(NamedTuple):
    """The bytes of a column in one row group."""

    data: Bytes
    column: PlainColumn

    def values(self, page: Page) -> tuple[Bytes, int]:
        """Return the bytes of a page, and where its values begin. None of them is null."""
        if page.size > _LARGEST:
            raise OddPage
        begin = page.begin + page.levels
        with measured("read"):
            part = _plain(self.data[begin : page.end], page.size - page.levels, bool(page.is_compressed))
        if page.kind == DICTIONARY or not self.column.nullable:
            return part, 0
        if page.kind == DATA_2:
            levels, at = self.data[page.begin : begin], 0
        else:
            length = int.from_bytes(part[:4].tobytes(), "little")
            levels, at = part[4 : 4 + length], 4 + length
        if at > len(part) or not have_values(levels, page.values):
            raise OddPage
        return part, at


def _plain(data: Bytes, size: int, may_be_compressed: bool) -> Bytes:
    """Return the bytes of a page, decompressed to exactly this size."""
    from pyarrow import ArrowException

    codec = _codec_of(data, size) if may_be_compressed else ""
    if not codec:
        if len(data) != size:
            raise OddPage
        return data
    try:
        return np.frombuffer(_codec(codec).decompress(data, size), np.uint8)
    except (ArrowException, OSError):
        raise OddPage from None


def _codec_of(data: Bytes, size: int) -> str:
    """Return the codec of a page by its bytes, "" if there is none of those known here.

    Snappy and gzip say how much there is. If it were less than `size`, pyarrow would return what memory held before.
    """
    head = data[:4].tobytes()
    if head == _ZSTD:
        return "zstd"
    if head.startswith(_GZIP):
        return "gzip" if int.from_bytes(data[-4:].tobytes(), "little") == size else ""
    return "snappy" if read_varint(data, 0)[0] == size else ""


@functools.cache
def _codec(name: str) -> Any:
    from pyarrow import Codec

    return Codec(name)


def _column(file: Any, name: str) -> PlainColumn | None:
    """Return a column of a file by its name; None if its type is none of those that are read here."""
    from pyarrow import types

    schema, names = file.schema_arrow, file.schema_arrow.names
    if names.count(name) != 1:
        return None
    kind = schema.field(name).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    numbers = types.is_integer(kind)
    if not (numbers or types.is_string(kind) or types.is_large_string(kind)):
        return None
    columns = [file.metadata.schema.column(i) for i in range(len(file.metadata.schema))]
    places = [i for i, column in enumerate(columns) if column.path == name]
    if len(places) != 1:  # A column within another may have the same path.
        return None
    column = columns[places[0]]
    is_flat = column.max_repetition_level == 0 and column.max_definition_level <= 1
    if not is_flat or column.physical_type not in (("INT32", "INT64") if numbers else ("BYTE_ARRAY",)):
        return None
    signed = numbers and types.is_signed_integer(kind)
    return PlainColumn(places[0], column.physical_type, signed, column.max_definition_level == 1)


def _read_chunk(chunk: Chunk, addresses: Narrow) -> None:
    """Write the addresses of a chunk, exactly as many as there are rows; raise OddPage if they are not that many."""
    known: Narrow = np.empty(0, np.uint32)
    seen = 0
    for page in pages_of(chunk.data):
        if page.values > len(addresses) - seen and page.kind != DICTIONARY:
            raise OddPage
        data, at = chunk.values(page)
        with measured("parse"):
            if page.kind == DICTIONARY:
                if page.values > len(data):
                    raise OddPage
                known = np.empty(page.values, np.uint32)
                _read_plain(data, at, chunk.column, known)
                continue
            part = addresses[seen : seen + page.values]
            seen += page.values
            if page.encoding == PLAIN:
                _read_plain(data, at, chunk.column, part)
            elif page.encoding not in (PLAIN_DICTIONARY, RLE_DICTIONARY) or not _take(data, at, known, part):
                raise OddPage
    if seen != len(addresses):
        raise OddPage


def _read_plain(data: Bytes, at: int, column: PlainColumn, addresses: Narrow) -> None:
    if column.physical == "BYTE_ARRAY":
        if not parse_lengths(data, at, addresses):
            raise OddPage
        return
    dtype = np.dtype("<i4" if column.physical == "INT32" else "<i8")
    if len(data) - at < len(addresses) * dtype.itemsize:
        raise OddPage
    numbers = np.frombuffer(data, dtype, len(addresses), at)
    may_be_others = len(numbers) > 0 and (column.signed or dtype.itemsize == 8)
    if may_be_others and not (int(numbers.min()) >= 0 and int(numbers.max()) <= 0xFFFFFFFF):
        raise OddPage
    addresses[:] = numbers.view(np.uint32) if dtype.itemsize == 4 else numbers


def _take(data: Bytes, at: int, known: Narrow, addresses: Narrow) -> bool:
    """Write the values of a dictionary that a page names; return False if the page is damaged."""
    if len(addresses) == 0:
        return True
    if at >= len(data) or data[at] > _WIDEST:
        return False
    return bool(take_runs(data, at + 1, int(data[at]), known, addresses))


@compiled
def parse_lengths(data: Bytes, at: int, addresses: Narrow) -> bool:
    """Parse IPv4 addresses, each of which comes after its length; return False at the first that is none."""
    begin, size = data.ctypes.data, len(data)
    for i in range(len(addresses)):
        if size - at >= 4 + READABLE:
            length = int(number_at(begin + at)) & 0xFFFFFFFF
            if length > LONGEST:
                return False
            low, wrong = parse_ipv4(np.uint64(begin + at + 4), np.uint64(length))
            at += 4
            if not wrong:
                addresses[i] = low
                at += length
                continue
        else:
            if size - at < 4:
                return False
            length = 0
            for j in range(4):
                length |= int(data[at + j]) << (8 * j)
            at += 4
            if length > size - at:
                return False
        kind, _, low = parse_address(data, at, at + length)
        if kind != 4:
            return False
        addresses[i] = low
        at += length
    return True


@compiled
def take_runs(data: Bytes, at: int, width: int, known: Narrow, addresses: Narrow) -> bool:
    """Write the values that indices of `width` bits name, in runs of one index or of packed ones; False: damaged.

    A run begins with a number: twice its length, or twice its groups of eight plus one if they are packed.
    """
    begin, size, count = data.ctypes.data, len(data), len(addresses)
    mask, known_values, worst = np.uint64((1 << width) - 1), np.uint64(len(known)), np.uint64(0)
    if len(known) == 0:
        return count == 0
    i = 0
    while i < count:
        head, shift = 0, 0
        while True:
            if at >= size or shift > 28:
                return False
            byte = int(data[at])
            at += 1
            head |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if head & 1:
            many = min(8 * (head >> 1), count - i)
            if many == 0 or (head >> 1) * width > size - at:
                return False
            # Words are read up to seven bytes behind the last index; where these are missing, byte by byte.
            quick = many if (head >> 1) * width + 8 <= size - at else 0
            for j in range(quick):
                bit = j * width
                index = (np.uint64(word_at(begin + at + (bit >> 3))) >> np.uint64(bit & 7)) & mask
                worst = max(worst, index)  # tested once, behind the loop
                addresses[i + j] = known[min(index, known_values - np.uint64(1))]
            for j in range(quick, many):
                word, place = np.uint64(0), at + (j * width >> 3)
                for k in range(min(8, size - place)):
                    word |= np.uint64(data[place + k]) << np.uint64(8 * k)
                index = (word >> np.uint64(j * width & 7)) & mask
                worst = max(worst, index)
                addresses[i + j] = known[min(index, known_values - np.uint64(1))]
            at += (head >> 1) * width
        else:
            many = min(head >> 1, count - i)
            if many == 0 or (width + 7) >> 3 > size - at:
                return False
            named = np.uint64(0)
            for k in range((width + 7) >> 3):
                named |= np.uint64(data[at + k]) << np.uint64(8 * k)
            at += (width + 7) >> 3
            worst = max(worst, named)
            addresses[i : i + many] = known[min(named, known_values - np.uint64(1))]
        i += many
    return bool(worst < known_values)
