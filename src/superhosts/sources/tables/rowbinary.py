"""Rows of ClickHouse's RowBinary, and of RowBinaryWithNamesAndTypes, which says itself what its columns are.

RowBinary has neither names nor types: the caller gives a schema, `src IPv4, dst IPv4, time DateTime64(3)`; colons will
do for blanks. A row is its values one behind the other, numbers in little-endian order, text behind its length
(LEB128). A Nullable value has a byte before it that is 1 if the value is missing. LowCardinality changes nothing here.

A compiled loop finds the values (`walk`), and others read them. Where every value has a fixed width, IPv4 columns
become those of packets in one copy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import Bytes, Ends, Rows, Words
from superhosts.core.columns.column import Column as TableColumn
from superhosts.core.columns.column import Text, from_words
from superhosts.core.columns.hosts import ends_of
from superhosts.core.pairs import Details, Times
from superhosts.core.text import either, setting
from superhosts.errors import InputError, UsageError
from superhosts.jit.cache import compiled
from superhosts.sources.input import Opens
from superhosts.sources.stream import Stream
from superhosts.sources.tables.details import details_of_columns
from superhosts.sources.tables.knownlogs import CSV
from superhosts.sources.tables.mapping import UNITS, Column
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import BadRow, RowBlock
from superhosts.sources.tables.textscan import Places
from superhosts.sources.tables.times import parse_times, scale_floats, scale_integers
from superhosts.sources.tables.wanted import wanted_of

BUFFER = 1 << 20  # bytes that are read before their rows are returned; a row may be larger
LARGEST = 1 << 28  # bytes of one row
LARGEST_HEADER = 1 << 24  # bytes of the names and types of all columns
MOST_ROWS = 1 << 17  # of a block
_DAY = 86400 * 10**9
MISSING = -1  # the place of a NULL
LONGEST = 1 << 30  # bytes of one text; more is taken for a wrong schema
FEWER, DAMAGED = 0, 1  # why a walk ended: the bytes, or rows, are used up; a length makes no sense
LITTLE, BIG, TEXT, OPAQUE = 1, 2, 3, 0  # how the bytes of a value are read: as what kind of number, as text, not at all
TEXT_WIDTH = 0  # in place of the bytes of a value: its length is before it
EXAMPLE = "src IPv4, dst IPv4, time DateTime"

_NUMBERS = {"Bool": 1, "Date": 2, "Date32": 4, "DateTime": 4, "DateTime64": 8, "IPv4": 4} | {
    f"{sign}Int{bits}": bits // 8 for sign in ("U", "") for bits in (8, 16, 32, 64, 128, 256)
}
_OTHERS = {"Float32": 4, "Float64": 8, "BFloat16": 2, "UUID": 16, "Enum8": 1, "Enum16": 2}
_DECIMALS = {"Decimal32": 4, "Decimal64": 8, "Decimal128": 16, "Decimal256": 32}
_FIXED = {  # bytes of a value, and how they are read
    "String": (TEXT_WIDTH, TEXT),
    "IPv6": (16, BIG),
    **{name: (width, LITTLE) for name, width in _NUMBERS.items()},
    **{name: (width, OPAQUE) for name, width in (_OTHERS | _DECIMALS).items()},
}
_WRAPPERS = ("LowCardinality", "SimpleAggregateFunction")


@dataclass(frozen=True)
class Field:
    name: str
    type: str  # without Nullable and LowCardinality
    width: int  # bytes of a value; TEXT_WIDTH for text
    reading: int  # LITTLE, BIG, TEXT or OPAQUE
    nullable: bool = False
    array: bool = False  # a value is a count (LEB128) and that many such values

    @property
    def is_signed(self) -> bool:
        return self.type.startswith(("Int", "DateTime64", "Date32"))

    @property
    def is_float(self) -> bool:
        return self.type in ("Float32", "Float64")

    @property
    def is_address(self) -> bool:
        if self.reading == TEXT:
            return True
        integer = re.fullmatch(r"U?Int(8|16|32|64|128)", self.type) is not None
        return self.type in ("IPv4", "IPv6") or integer or (self.reading == BIG and self.width in (4, 16))

    @property
    def is_time(self) -> bool:
        if self.reading == TEXT or self.is_float:
            return True
        return self.reading == LITTLE and self.width <= 8 and self.type not in ("IPv4", "Bool")

    @property
    def factor(self) -> int:
        """Nanoseconds of a number that is a time; 0: by its magnitude."""
        if match := re.match(r"DateTime64\((\d)", self.type):
            return int(10 ** (9 - int(match[1])))
        if self.type.startswith("DateTime"):
            return UNITS["s"]
        return _DAY if self.type.startswith("Date") else 0

    def column(self, data: Bytes, places: Places) -> TableColumn:
        """Return values, given where they begin and end."""
        starts, ends = np.ascontiguousarray(places.T)
        valid = starts >= 0 if self.nullable and len(starts) and int(starts.min()) < 0 else None
        if self.reading == TEXT:
            return TableColumn(Text(data, np.maximum(starts, 0), np.where(starts < 0, 0, ends)), self.name, valid)
        words = np.empty((len(starts), 2 if self.width == 16 else 1), np.uint64)
        read_words(data, starts, self.width, self.reading == BIG, words)
        if self.width == 16:
            return TableColumn(from_words(words), self.name, valid)
        numbers: NDArray[Any] = words[:, 0]
        if self.is_float:
            numbers = numbers.view(np.float64) if self.width == 8 else numbers.astype(np.uint32).view(np.float32)
        elif self.is_signed:
            free = 64 - 8 * self.width
            numbers = (numbers << np.uint64(free)).view(np.int64) >> np.int64(free)
        return TableColumn(numbers, self.name, valid)


def parse_schema(text: str, *, typed: bool = True) -> list[Field]:
    """Return the columns that a text like `src IPv4, dst IPv4` lists. Without `typed` a name alone is text."""
    fields: list[Field] = []
    for item in _items(text):
        name, type = _name_and_type(item)
        if not type and typed:
            raise UsageError(f"{setting('schema', text)}: {item!r}: write a name and a type, like {EXAMPLE}")
        if any(field.name == name for field in fields):
            raise UsageError(f"{setting('schema', text)}: two columns {name!r}; give them different names")
        try:
            fields.append(field_of(name, type or "String"))
        except UsageError as error:
            raise UsageError(f"{setting('schema', text)}: {error}") from None
    if not fields:
        raise UsageError(f"{setting('schema', text)}: no column; write it like {EXAMPLE!r}")
    return fields


def field_of(name: str, type: str) -> Field:
    """Return a column by its name and ClickHouse's name of its type; UsageError if such values cannot be read."""
    inner, nullable, array = type.strip(), False, False
    while match := re.fullmatch(r"(\w+)\((.*)\)", inner, re.DOTALL):
        wrapper, rest = match[1], match[2].strip()
        if wrapper == "Nullable" and not nullable:
            nullable, inner = True, rest
        elif wrapper == "Array" and not array and not nullable:
            array, inner = True, rest
        elif wrapper in _WRAPPERS:
            inner = _items(rest)[-1]
        else:
            break
    plain = re.sub(r"\(.*", "", inner, flags=re.DOTALL)
    width, reading = _FIXED.get(plain, (-1, OPAQUE))
    if match := re.fullmatch(r"FixedString\(([1-9]\d{0,5})\)", inner):
        width, reading = int(match[1]), BIG
    elif match := re.match(r"Decimal\((\d+)", inner):
        digits = int(match[1])
        width = 4 if digits < 10 else 8 if digits < 19 else 16 if digits < 39 else 32
    if width < 0 or (array and nullable):
        way = "write a type like IPv4, IPv6, UInt32 or String, or leave the column out of the query"
        raise UsageError(f"column {name}: values of type {type} cannot be read; {way}")
    return Field(name, inner, width, reading, nullable, array)


def row_width(fields: Sequence[Field]) -> int | None:
    """Return the bytes of a row; None if rows differ."""
    if any(field.width == TEXT_WIDTH or field.nullable or field.array for field in fields):
        return None
    return sum(field.width for field in fields)


def _name_and_type(item: str) -> tuple[str, str]:
    quoted = re.match(r"`([^`]+)`[\s:]*(.*)", item, re.DOTALL) or re.match(r'"([^"]+)"[\s:]*(.*)', item, re.DOTALL)
    if quoted:
        return quoted[1], quoted[2]
    name = re.split(r"[\s:]", item, maxsplit=1)[0]
    return name, item[len(name) :].strip(" \t\n:")


def _items(text: str) -> list[str]:
    """Split at commas that are not in parentheses."""
    items, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        if letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


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

    def has(self, count: int) -> bool:
        """Read until this many bytes wait; False if the input ends before."""
        while len(self) < count:
            if not self.more():
                return False
        return True

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
            # A duration is not added: whoever writes rows can write the time that counts.
            wanted = wanted_of(CSV, self.columns, options, self._name, durations=False)
            self._time = wanted.time[0] if wanted.time else None
            self._roles = {
                role: self._number(role, fields[0])
                for role, fields in (("src", wanted.src), ("dst", wanted.dst), ("time", wanted.time))
                if fields
            }
        except BaseException:
            self._stream.close()
            raise
        self.has_time = self._time is not None
        self._width = row_width(self.fields)
        self._details = wanted.details
        details = [] if wanted.details is None else [self.columns.index(name) for name in wanted.details.columns()]
        self._wanted = list(dict.fromkeys([*self._roles.values(), *details]))

    def read(self) -> RowBlock | None:
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
        return self._stream.position()

    def close(self) -> None:
        self._stream.close()

    def _number(self, role: str, column: Column) -> int:
        """Return the number of a column; InputError if its type has no such values."""
        number = self.columns.index(column.name)
        field = self.fields[number]
        if field.array or not (field.is_time if role == "time" else field.is_address):
            what = "a time" if role == "time" else "an address"
            raise InputError(f"column {field.name} ({role}) is {field.type}, which is not {what}", file=self._name)
        return number

    def _next(self) -> RowBlock | None:
        """Return the whole rows that wait; None if there is none."""
        data = self._bytes.data()
        widths = np.array([field.width for field in self.fields], np.int64)
        nullable = np.array([field.nullable for field in self.fields])
        slots = np.full(len(self.fields), -1)
        slots[self._wanted] = np.arange(len(self._wanted))
        found = np.empty((len(self._wanted), min(MOST_ROWS, len(data)), 2), np.int64)
        count, used, why = walk(data, widths, nullable, slots, found).tolist()
        if not count:
            if why == DAMAGED:
                raise self._damaged("has a length or a mark of NULL that makes no sense")
            return None
        places = {number: found[slot, :count] for slot, number in enumerate(self._wanted)}
        first = self._rows
        block = RowBlock(
            self._addresses(data, "src", places),
            self._addresses(data, "dst", places),
            self._times(data, places),
            lambda index: BadRow(first + index + 1, self._text(data, places, index)),
            details=self._read_details(data, places, count),
        )
        self._rows += count
        self._bytes.take(used)
        return block

    def _addresses(self, data: Bytes, role: str, places: dict[int, Places]) -> Ends:
        number = self._roles[role]
        field, where = self.fields[number], places[number]
        if self._width and field.reading == LITTLE and field.width == 4 and not field.is_signed:
            start = int(where[0, 0])
            strided: NDArray[np.uint32] = np.ndarray((len(where),), "<u4", data.data, start, (self._width,))
            return strided.astype(np.uint32)  # a copy: the buffer is filled again
        return ends_of(field.column(data, where))

    def _times(self, data: Bytes, places: dict[int, Places]) -> Times | None:
        if self._time is None:
            return None
        field, where, unit = self.fields[self._roles["time"]], places[self._roles["time"]], self._time.unit
        column = field.column(data, where)
        values: Any = column.values
        if field.reading == TEXT:
            return parse_times(values, unit)
        numbers = values.astype(np.float64 if field.is_float else np.int64)
        if column.valid is not None:
            numbers[~column.valid] = -1
        if field.is_float:
            return scale_floats(numbers, UNITS.get(unit, 0))
        return scale_integers(numbers, UNITS[unit] if unit else field.factor)

    def _read_details(self, data: Bytes, places: dict[int, Places], count: int) -> Details | None:
        if self._details is None:
            return None

        def read(name: str) -> TableColumn | None:
            number = self.columns.index(name)
            field = self.fields[number]
            if field.array or field.reading == OPAQUE or (field.reading == LITTLE and field.width > 8):
                return None
            if field.reading == BIG:  # Zeros fill up a FixedString, and are blanks.
                field = replace(field, reading=TEXT)
            return field.column(data, places[number])

        return details_of_columns(self._details, count, read)

    def _text(self, data: Bytes, places: dict[int, Places], index: int) -> str:
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
        if data.taken + length > LARGEST_HEADER or not data.has(length):
            raise _bad_header(name)
        texts.append(data.data()[:length].tobytes().decode("utf-8", "replace"))
        data.take(length)
    try:
        return [field_of(*pair) for pair in zip(texts[:count], texts[count:], strict=True)]
    except UsageError as error:
        raise InputError(str(error), file=name) from None


def read_length(data: RowBytes, name: str) -> int:
    value = shift = 0
    byte = 128
    while byte >= 128:
        if shift > 28 or not data.has(1):
            raise _bad_header(name)
        byte = int(data.data()[0])
        data.take(1)
        value |= (byte & 127) << shift
        shift += 7
    if value > BUFFER:
        raise _bad_header(name)
    return value


def _bad_header(name: str) -> InputError:
    schema = either("--schema 'src IPv4, dst IPv4'; --help lists other formats", 'schema="src IPv4, dst IPv4"')
    way = f"of RowBinary say which they are: {schema}"
    return InputError(f"does not begin with names and types of columns; {way}", file=name)


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
def read_words(data: Bytes, starts: Rows, width: int, is_big: bool, words: Words) -> None:
    """Read numbers of up to 16 bytes, in either byte order, as rows: high word, low word, or this alone. Missing: 0."""
    for i in range(len(starts)):
        high, low = np.uint64(0), np.uint64(0)
        if starts[i] >= 0:
            at, step = (starts[i] + width - 1, -1) if is_big else (starts[i], 1)
            for j in range(min(width, 8)):
                low |= np.uint64(data[np.uint64(at + step * j)]) << np.uint64(8 * j)
            for j in range(8, width):
                high |= np.uint64(data[np.uint64(at + step * j)]) << np.uint64(8 * j - 64)
        words[i, 0] = high
        words[i, words.shape[1] - 1] = low
