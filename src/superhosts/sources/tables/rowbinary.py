"""Rows of ClickHouse's RowBinary, and of RowBinaryWithNamesAndTypes, which says itself what its columns are.

Where every value has a fixed width, a column is a view of the bytes with strides, and IPv4 columns become those of
packets in one copy. Rows with text or NULLs are walked by a compiled loop (`rowbinary_loops.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn, Ends
from superhosts.core.pairs import Details, Times
from superhosts.core.text import either
from superhosts.errors import InputError, UsageError
from superhosts.sources.input import Stream
from superhosts.sources.tables.base import NO_TIME, BadRow, Opens, RowBlock
from superhosts.sources.tables.detailcolumns import Numbers, details_of_columns, of_integers, of_places
from superhosts.sources.tables.detailfields import details_of
from superhosts.sources.tables.mapping import UNITS, Column, Mapping, resolve, row_times
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.rowbinary_loops import DAMAGED, Places, read_addresses, read_integers, walk
from superhosts.sources.tables.rowbinary_schema import LITTLE, OPAQUE, TEXT, Field, field_of, row_width
from superhosts.sources.tables.times import factor_of, parse_time, scale_floats, scale_integers

BUFFER = 1 << 20  # bytes that are read before their rows are returned; a row may be larger
LARGEST = 1 << 28  # bytes of one row
LARGEST_HEADER = 1 << 24  # bytes of the names and types of all columns
MOST_ROWS = 1 << 17  # of a block
_DAY = 86400 * 10**9


class RowBytes:
    """The bytes of an input, as far as they were read and are not part of a row that was returned."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = bytearray(BUFFER)
        self._begin = self._end = 0
        self.taken = 0  # bytes of all rows that were returned

    def data(self) -> NDArray[np.uint8]:
        """Return the bytes that wait, without a copy: they are good until `more`."""
        return np.frombuffer(self._buffer, np.uint8, self._end - self._begin, self._begin)

    def take(self, count: int) -> None:
        """Count bytes as returned."""
        self._begin += count
        self.taken += count

    def more(self) -> bool:
        """Read more, at least a byte; False at the end of the input."""
        if self._end == len(self._buffer):  # Only a full buffer is moved: a pipe gives few bytes at a time.
            waiting = self._buffer[self._begin : self._end]
            if 2 * len(waiting) > len(self._buffer):
                self._buffer = bytearray(2 * len(self._buffer))
            self._buffer[: len(waiting)] = waiting
            self._begin, self._end = 0, len(waiting)
        with memoryview(self._buffer) as view:
            got = self._stream.readinto(view[self._end :])
        self._end += got
        return got > 0

    def __len__(self) -> int:
        return self._end - self._begin


class RowBinaryReader:
    """One pass over rows. Without fields, the input begins with their names and types."""

    def __init__(self, input: Opens, options: TableOptions, fields: Sequence[Field] = ()) -> None:
        self._name = input.name
        self._stream = input.open()
        self._bytes = RowBytes(self._stream)
        self._rows = 0
        try:
            self.fields = list(fields) or read_header(self._bytes, self._name)
            self.columns: Sequence[str] = [field.name for field in self.fields]
            self._mapping = resolve(options.map, self.columns, self._name)
            self._time = _chosen_time(self._mapping, options.row_time, self.columns, self._name)
            self._check_types()
            names = [column.name for column in (self._mapping.src, self._mapping.dst, self._time) if column is not None]
            self._details = details_of(None, self.columns, options, names, self._name)
        except BaseException:
            self._stream.close()
            raise
        self.has_time = self._time is not None
        self._width = row_width(self.fields)
        if self._details is not None:
            names += self._details.columns()
        self._wanted = [self.columns.index(name) for name in dict.fromkeys(names)]

    def read(self) -> RowBlock | None:
        """Return the next rows, None at the end."""
        while True:
            block = self._next() if len(self._bytes) else None
            if block is not None:
                return block
            if len(self._bytes) >= LARGEST:
                raise self._damaged("is longer than 256 MiB")
            if not self._bytes.more():
                if len(self._bytes):
                    raise self._damaged("is cut off by the end of the input")
                return None

    def position(self) -> int:
        """Bytes of the input read so far."""
        return self._stream.position()

    def close(self) -> None:
        """Close the input."""
        self._stream.close()

    def _check_types(self) -> None:
        assert self._mapping.src is not None
        assert self._mapping.dst is not None
        for role, column in (("src", self._mapping.src), ("dst", self._mapping.dst), ("time", self._time)):
            field = None if column is None else self._field(column)
            if field is not None and (field.array or not (field.is_time if role == "time" else field.is_address)):
                what = "a time" if role == "time" else "an address"
                raise InputError(f"column {field.name} ({role}) is {field.type}, which is not {what}", file=self._name)

    def _field(self, column: Column) -> Field:
        return self.fields[self.columns.index(column.name)]

    def _next(self) -> RowBlock | None:
        """Return the whole rows that wait; None if there is none."""
        data = self._bytes.data()
        found = self._places_of_fixed(data) if self._width else self._places_of_walk(data)
        if found is None:
            return None
        places, used = found
        first = self._rows
        count = len(next(iter(places.values())))
        mapping, time = self._mapping, self._time
        assert mapping.src is not None
        assert mapping.dst is not None
        block = RowBlock(
            self._addresses(data, self._field(mapping.src), places),
            self._addresses(data, self._field(mapping.dst), places),
            None if time is None else self._times(data, time, places),
            lambda index: BadRow(first + index + 1, self._text(data, places, index)),
            details=self._read_details(data, places, count),
        )
        self._rows += count
        self._bytes.take(used)
        return block

    def _places_of_fixed(self, data: NDArray[np.uint8]) -> tuple[dict[int, Places], int] | None:
        assert self._width is not None
        count = min(len(data) // self._width, MOST_ROWS)
        if not count:
            return None
        begins = np.arange(0, count * self._width, self._width)
        places = {}
        for number in self._wanted:
            offset = sum(field.width for field in self.fields[:number])
            places[number] = np.stack([begins + offset, begins + offset + self.fields[number].width], axis=1)
        return places, count * self._width

    def _places_of_walk(self, data: NDArray[np.uint8]) -> tuple[dict[int, Places], int] | None:
        widths = np.array([field.width for field in self.fields], np.int64)
        nullable = np.array([field.nullable for field in self.fields])
        slots = np.full(len(self.fields), -1)
        slots[self._wanted] = np.arange(len(self._wanted))
        places = np.empty((len(self._wanted), min(MOST_ROWS, len(data)), 2), np.int64)
        count, used, why = walk(data, widths, nullable, slots, places).tolist()
        if not count:
            if why == DAMAGED:
                raise self._damaged("has a length or a mark of NULL that makes no sense")
            return None
        return {number: places[slot, :count] for slot, number in enumerate(self._wanted)}, used

    def _addresses(self, data: NDArray[np.uint8], field: Field, places: dict[int, Places]) -> Ends:
        number = self.fields.index(field)
        where = places[number]
        if self._width and field.reading == LITTLE and field.width == 4 and not field.is_signed:
            start = int(where[0, 0])
            strided: NDArray[np.uint32] = np.ndarray((len(where),), "<u4", data.data, start, (self._width,))
            return strided.astype(np.uint32)  # a copy: the buffer is filled again
        kinds, words = np.empty(len(where), np.uint8), np.empty((len(where), 2), np.uint64)
        read_addresses(data, where, field.reading, field.is_signed, kinds, words)
        return AddressColumn(kinds, words)

    def _times(self, data: NDArray[np.uint8], column: Column, places: dict[int, Places]) -> Times:
        field = self._field(column)
        where = places[self.fields.index(field)]
        if field.reading == TEXT:
            texts = (None if start < 0 else data[start:end].tobytes() for start, end in where.tolist())
            factor = factor_of(column.unit)
            found = (NO_TIME if text is None else parse_time(text.decode("utf-8", "replace"), factor) for text in texts)
            return np.fromiter(found, np.int64, len(where))
        if field.is_float:
            raw = b"".join(data[start:end].tobytes() if start >= 0 else b"" for start, end in where.tolist())
            floats = np.full(len(where), -1.0)
            floats[where[:, 0] >= 0] = np.frombuffer(raw, f"<f{field.width}")
            return scale_floats(floats, factor_of(column.unit))
        numbers = np.empty(len(where), np.int64)
        read_integers(data, where, field.is_signed, numbers)
        return scale_integers(numbers, _factor(field, column))

    def _read_details(self, data: NDArray[np.uint8], places: dict[int, Places], count: int) -> Details | None:
        fields = self._details
        if fields is None:
            return None

        def read(name: str, what: int) -> Numbers:
            number = self.columns.index(name)
            field, where = self.fields[number], places[number]
            if field.array or field.reading == OPAQUE or (field.reading == LITTLE and field.width > 8):
                return np.full(count, -1, np.int64)
            if field.reading == LITTLE:
                numbers = np.empty(count, np.int64)
                read_integers(data, where, field.is_signed, numbers)
                return of_integers(numbers, what)
            return of_places(data, where, what, fields.codes)  # Zeros fill up a FixedString, and are blanks.

        return details_of_columns(fields, count, read)

    def _text(self, data: NDArray[np.uint8], places: dict[int, Places], index: int) -> str:
        """Return the values of a row that were read, for messages."""
        shown = []
        for number, where in sorted(places.items()):
            start, end = where[index].tolist()
            field = self.fields[number]
            raw = b"" if start < 0 else data[start:end].tobytes()
            if start < 0:
                value = "NULL"
            elif field.reading == TEXT:
                value = repr(raw.decode("utf-8", "replace"))
            elif field.reading == LITTLE:
                value = str(int.from_bytes(raw, "little", signed=field.is_signed))
            else:
                value = f"0x{raw.hex()}"
            shown.append(f"{field.name} {value}")
        return ", ".join(shown)

    def _damaged(self, why: str) -> InputError:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.fields)
        way = f"are its columns {columns}?"
        return InputError(f"row {self._rows + 1:,} {why}; {way}", file=self._name, offset=self._bytes.taken)


def read_header(data: RowBytes, name: str) -> list[Field]:
    """Return the columns that the beginning of RowBinaryWithNamesAndTypes lists: a count, all names, all types."""
    if not data.more():
        raise InputError("is empty: not even names and types of columns are there", file=name)
    count = read_length(data, name)
    texts = []
    for _ in range(2 * count):
        length = read_length(data, name)
        if data.taken + length > LARGEST_HEADER:
            raise _bad_header(name)
        while len(data) < length:
            if not data.more():
                raise _bad_header(name)
        texts.append(data.data()[:length].tobytes().decode("utf-8", "replace"))
        data.take(length)
    try:
        return [field_of(*pair) for pair in zip(texts[:count], texts[count:], strict=True)]
    except UsageError as error:
        raise InputError(str(error), file=name) from None


def read_length(data: RowBytes, name: str) -> int:
    """Return a number in LEB128."""
    value = shift = 0
    while True:
        while not len(data):
            if not data.more():
                raise _bad_header(name)
        byte = int(data.data()[0])
        data.take(1)
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
        if shift > 28:
            raise _bad_header(name)
    if value > BUFFER:
        raise _bad_header(name)
    return value


def _bad_header(name: str) -> InputError:
    schema = either("--schema 'src IPv4, dst IPv4'; --help lists other formats", 'schema="src IPv4, dst IPv4"')
    way = f"of RowBinary say which they are: {schema}"
    return InputError(f"does not begin with names and types of columns; {way}", file=name)


def _chosen_time(mapping: Mapping, which: str, columns: Sequence[str], name: str) -> Column | None:
    """Return the column of times. A duration is not added: whoever writes rows can write the time that counts."""
    times = row_times(replace(mapping, duration=None), which, columns, name)
    return None if times is None else times.column


def _factor(field: Field, column: Column) -> int:
    """Return the nanoseconds of a number of this column; 0: by its magnitude."""
    if column.unit:
        return UNITS[column.unit]
    if field.type.startswith("DateTime64"):
        return int(10 ** (9 - field.precision))
    if field.type.startswith("DateTime"):
        return UNITS["s"]
    return _DAY if field.type.startswith("Date") else 0
