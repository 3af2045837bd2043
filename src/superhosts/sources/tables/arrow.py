"""Arrow: columns of Arrow arrays as addresses, times and details, and the readers of Arrow files and streams.

Parquet has the columns in common (parquet.py). Addresses are IPv4 numbers (integers of any width), text, or binary
values of 4 or 16 bytes, in any of these also as a dictionary. A column of uint32 without nulls is not copied. What is
no address becomes kind 0, and what is no time NO_TIME: the rows are dropped and counted later. Nothing that a file says
is trusted: offsets and indices are checked before compiled loops follow them.

A stream is read batch by batch, so that pipes work as well. A file (.arrow, .feather) says at its end where its batches
are, and what is before them need not be a stream: Polars writes it without the length of its first message. So files
are read as pyarrow does, by their ends (`placed`): plain files and URLs at any place, and a pipe or a compressed file
as a copy, a temporary file without a name that is gone when it is closed, even if the process is killed. Only the
columns that are mapped are decoded.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import (
    READABLE,
    AddressColumn,
    Bytes,
    Ends,
    Kinds,
    Words,
    are_inside,
    parse_address,
    parse_at,
    parse_text,
    widened,
)
from superhosts.core.columns.column import from_words
from superhosts.core.columns.hosts import narrow_into
from superhosts.core.pairs import Details, Times
from superhosts.core.profile import measured
from superhosts.core.text import printable
from superhosts.errors import InputError, OutputError
from superhosts.jit.cache import compiled
from superhosts.sources.base import Stopped
from superhosts.sources.files import file_system, is_url
from superhosts.sources.input import Input, Opens
from superhosts.sources.stream import Stream
from superhosts.sources.tables.details import (
    Codes,
    DetailFields,
    Numbers,
    details_of,
    details_of_columns,
    of_floats,
    of_integers,
    of_places,
)
from superhosts.sources.tables.mapping import UNITS, RowTimes, resolve, row_times
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import BadRow, RowBlock, TableFormat
from superhosts.sources.tables.times import NO_TIME, factor_of, parse_times, scale_floats, scale_integers

FILE_MAGIC = b"ARROW1\0\0"
STREAM_MAGIC = b"\xff\xff\xff\xff"
MOST_ROWS = 1 << 19  # of a block
WHAT = "Arrow file"
_CHUNK = 1 << 20  # bytes of a copy
_SHOWN = 40  # characters of a value in a message
Offsets = NDArray[Any]  # int32 or int64
_DAY = 86400 * 10**9
_ADDRESSES = "addresses are text, integers (IPv4), or 4 or 16 bytes"
_TIMES = "times are TIMESTAMP, numbers (s, ms, us or ns) or text (ISO 8601)"


def import_arrow(file: str) -> Any:
    """Import pyarrow; MissingExtraError if it is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        from superhosts.errors import MissingExtraError

        raise MissingExtraError(f"{file}: reading Parquet and Arrow files", "tables") from error
    return pyarrow


class Wanted(NamedTuple):
    """What is read of a table."""

    src: str
    dst: str
    times: RowTimes | None
    details: DetailFields | None = None  # None: not wanted

    @property
    def time_columns(self) -> list[str]:
        times = () if self.times is None else (self.times.column, self.times.duration)
        return [column.name for column in times if column is not None]

    @property
    def columns(self) -> list[str]:
        more = [] if self.details is None else self.details.columns()
        return list(dict.fromkeys([self.src, self.dst, *self.time_columns, *more]))

    def needs(self, top: str) -> bool:
        """Return True if a column, which may have others inside, is or has one that is read."""
        return any(name == top or name.startswith(f"{top}.") for name in self.columns)


def wanted_of(columns: Sequence[str], options: TableOptions, file: str) -> Wanted:
    found = resolve(options.map, columns, file)
    assert found.src is not None
    assert found.dst is not None
    wanted = Wanted(found.src.name, found.dst.name, row_times(found, options.row_time, columns, file))
    return wanted._replace(details=details_of(None, columns, options, wanted.columns, file))


def block_of(batch: Any, wanted: Wanted, begin: int, file: str) -> RowBlock:
    """Return the rows of a batch, of which `begin` others come before."""
    batch.validate()  # that arrays have the length that they claim; what is in them is checked where it is read
    arrays = arrays_of(batch, wanted.columns, file)

    def describe(index: int) -> BadRow:
        values = ((name, value_at(array, index, file)) for name, array in arrays.items())
        shown = (f"{name}={'null' if value is None else printable(value, _SHOWN)}" for name, value in values)
        return BadRow(begin + index + 1, ", ".join(shown))

    times = column_times(arrays, wanted, file)
    src = narrowed(addresses_of(arrays[wanted.src], wanted.src, file))
    dst = narrowed(addresses_of(arrays[wanted.dst], wanted.dst, file))
    details = None if wanted.details is None else _details(arrays, wanted.details, len(batch), file)
    if isinstance(src, AddressColumn) or isinstance(dst, AddressColumn) or has_gaps(times):
        return RowBlock(src, dst, times, describe, details=details)
    return RowBlock(src, dst, times, details=details)  # No row is bad: the arrays are not held any longer.


def arrays_of(batch: Any, columns: Sequence[str], file: str) -> dict[str, Any]:
    return {name: _column(batch, name, file) for name in columns}


def column_times(arrays: dict[str, Any], wanted: Wanted, file: str) -> Times | None:
    if wanted.times is None:
        return None
    duration = wanted.times.duration
    lengths = None if duration is None else arrays[duration.name]
    return times_of((arrays[wanted.times.column.name], lengths), wanted.times, file)


def _details(arrays: dict[str, Any], fields: DetailFields, count: int, file: str) -> Details:
    return details_of_columns(fields, count, lambda name, what: values_of(arrays[name], name, what, fields.codes, file))


def has_gaps(times: Times | None) -> bool:
    return times is not None and len(times) > 0 and int(times.min()) < 0


def _column(batch: Any, name: str, file: str) -> Any:
    """Return a column by its name; of nested ones the name is the path (flow.start)."""
    names = batch.schema.names
    if name in names:
        return batch.column(names.index(name))
    for i, top in enumerate(names):
        if name.startswith(f"{top}."):
            return _field(batch.column(i), name.removeprefix(f"{top}."), name, file)
    raise InputError(f"column {printable(name)!r} is missing in some of its rows", file=file)


def _field(array: Any, path: str, name: str, file: str) -> Any:
    arrow = import_arrow(file)
    if not arrow.types.is_struct(array.type):
        raise InputError(
            f"column {printable(name)!r} is inside {array.type}; only one value for each row can be read", file=file
        )
    fields = [array.type.field(i).name for i in range(array.type.num_fields)]
    if path in fields:
        return array.flatten()[fields.index(path)]  # with the nulls of the struct
    for i, field in enumerate(fields):
        if path.startswith(f"{field}."):
            return _field(array.flatten()[i], path.removeprefix(f"{field}."), name, file)
    raise InputError(f"column {printable(name)!r} is missing in some of its rows", file=file)


@contextmanager
def arrow_errors(file: str, what: str) -> Iterator[None]:
    """Turn what pyarrow says about damaged files into an InputError of one line."""
    arrow = import_arrow(file)
    try:
        yield
    except (arrow.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        if isinstance(error, arrow.lib.ArrowMemoryError):
            raise InputError(f"{what} needs more memory than there is to be read", file=file) from None
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise InputError(f"damaged {what}: {printable(first)}", file=file) from None


def addresses_of(array: Any, column: str, file: str) -> Ends:
    """Return an Arrow array as addresses; InputError, which names the column, if its type has none."""
    types = import_arrow(file).types
    kind = array.type
    if types.is_dictionary(kind):
        return _by_dictionary(array, column, file)
    if types.is_integer(kind):
        found = _numbers(array, kind.bit_width, types.is_signed_integer(kind))
    elif types.is_floating(kind):
        found = _narrow_floats(_filled(array, float("nan")).astype(np.float64))
    elif types.is_fixed_size_binary(kind) and kind.byte_width in (4, 16):
        found = _fixed(array, kind.byte_width)
    elif _is_text(types, kind):
        data, offsets = _text(array, file, column)
        narrow = np.empty(len(array), np.uint32)
        found = narrow
        if not parse_narrow(data, offsets, narrow):
            found = AddressColumn(*parse_text(data, offsets.astype(np.int64, copy=False), threads=1))
    elif _is_binary(types, kind):
        data, offsets = _text(array, file, column)
        found = _binary(data, offsets)
    elif types.is_null(kind):
        found = AddressColumn(np.zeros(len(array), np.uint8), np.zeros((len(array), 2), np.uint64))
    else:
        raise InputError(f"column {column!r} has the type {kind}; {_ADDRESSES}", file=file)
    if array.null_count:
        found = widened(found)
        found.kinds[_nulls(array)] = 0
    return found


def narrowed(ends: Ends) -> Ends:
    """Return addresses as a plain column if all of them are IPv4."""
    if not isinstance(ends, AddressColumn) or not bool((ends.kinds == 4).all()):
        return ends
    return ends.words[:, 1].astype(np.uint32)


def times_of(arrays: tuple[Any, Any | None], how: RowTimes, file: str) -> Times:
    """Return the times of rows, given the array of times and, if one is needed, that of durations."""
    times = _times(arrays[0], how.column.name, how.column.unit, file)
    if how.duration is None or arrays[1] is None:
        return times
    lengths = _durations(arrays[1], how.duration.name, UNITS[how.duration.unit or "s"], file)
    return _moved(times, lengths, how.sign)


def values_of(array: Any, column: str, what: int, codes: Codes, file: str) -> Numbers:
    """Return an Arrow array as values of a field of details (details.py); those of other types are unknown."""
    types, kind = import_arrow(file).types, array.type
    if types.is_dictionary(kind):
        return _looked_up(array, values_of(array.dictionary, column, what, codes, file), -1)
    if types.is_integer(kind):  # numbers of uint64 beyond int64 become negative, and are none
        found = of_integers(_filled_numbers(array).astype(np.int64), what)
    elif types.is_floating(kind):
        found = of_floats(_filled(array, float("nan")).astype(np.float64), what)
    elif _is_text(types, kind) or _is_binary(types, kind):
        data, offsets = _text(array, file, column)
        places = np.stack([offsets[:-1], offsets[1:]], axis=1).astype(np.int64)
        found = of_places(data, places, what, codes)
    else:
        return np.full(len(array), -1, np.int64)
    return np.where(_nulls(array), -1, found) if array.null_count else found


def value_at(array: Any, index: int, file: str) -> Any:
    """Return one value for people; "?" if it cannot be read. pyarrow crashes where a damaged array is not checked."""
    pyarrow, one = import_arrow(file), array.slice(index, 1)
    try:
        if pyarrow.types.is_dictionary(array.type):
            place = value_at(array.indices, index, file)
            return place if place is None or place == "?" else value_at(array.dictionary.slice(place), 0, file)
        found = _as_bytes(one, pyarrow)[0].as_py()
        if not _is_text(pyarrow.types, array.type) or found is None:
            return found
        with suppress(UnicodeDecodeError):
            return found.decode("utf-8")
    except Exception:  # also of a value that Python cannot hold, such as a time in the year 99999
        return "?"
    return found


def _times(array: Any, column: str, unit: str, file: str) -> Times:
    pyarrow, factor = import_arrow(file), factor_of(unit)
    types, kind = pyarrow.types, array.type
    if types.is_dictionary(kind):
        return _looked_up(array, _times(array.dictionary, column, unit, file), NO_TIME)
    if types.is_timestamp(kind):
        return _scaled(array.view(pyarrow.int64()), UNITS[kind.unit])
    if types.is_date32(kind):
        return _scaled(array.view(pyarrow.int32()), _DAY)
    if types.is_date64(kind):
        return _scaled(array.view(pyarrow.int64()), UNITS["ms"])
    if types.is_uint64(kind):
        return scale_floats(_filled(array, 0).astype(np.float64), factor) if _is_huge(array) else _scaled(array, factor)
    if types.is_integer(kind):
        return _scaled(array, factor)
    if types.is_floating(kind) or types.is_decimal(kind):
        floats = array.cast(pyarrow.float64())
        return scale_floats(_filled(floats, float("nan")), factor)
    if _is_text(types, kind):
        return _parsed_times(array, unit, pyarrow)
    if types.is_null(kind):
        return np.full(len(array), NO_TIME)
    raise InputError(f"column {column!r} has the type {kind}; {_TIMES}", file=file)


def _scaled(array: Any, factor: int) -> Times:
    """Return whole numbers as times; those in nanoseconds are not copied."""
    numbers = _filled_numbers(array).astype(np.int64, copy=False)
    return numbers if factor == 1 else scale_integers(numbers, factor)


def _filled_numbers(array: Any) -> NDArray[Any]:
    """Return whole numbers, with -1 in place of nulls; unsigned ones have no -1, and are made wider."""
    if not array.null_count:
        return _filled(array, 0)
    numbers = _filled(array, 0).astype(np.int64)
    numbers[_nulls(array)] = -1
    return numbers


def _looked_up(array: Any, known: NDArray[np.int64], missing: int) -> NDArray[np.int64]:
    """Return the values of a dictionary array, given those of its dictionary; `missing` where an index names none."""
    indices = _filled_numbers(array.indices).astype(np.int64, copy=False)
    is_inside = (indices >= 0) & (indices < len(known))
    found = np.full(len(array), missing, np.int64)
    found[is_inside] = known[indices[is_inside]]
    return found


def _is_huge(array: Any) -> bool:
    numbers = _filled(array, 0)
    return bool(len(numbers)) and int(numbers.max()) >= 1 << 63


def _parsed_times(array: Any, unit: str, pyarrow: Any) -> Times:
    """Return text as times: by pyarrow if it is ISO 8601 throughout."""
    raw = _as_bytes(array, pyarrow)
    for kind in (pyarrow.timestamp("ns"), pyarrow.timestamp("ns", "UTC")):
        try:
            return _scaled(array.cast(kind).cast(pyarrow.int64()), 1)
        except pyarrow.ArrowException:
            continue
    return parse_times(raw.to_pylist(), unit)


def _durations(array: Any, column: str, factor: int, file: str) -> Times:
    """Return durations in nanoseconds, NO_TIME for what is none."""
    pyarrow = import_arrow(file)
    types, kind = pyarrow.types, array.type
    if types.is_duration(kind):
        return _scaled(array.view(pyarrow.int64()), UNITS[kind.unit])
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return scale_floats(_filled(array.cast(pyarrow.float64()), float("nan")), factor)
    raise InputError(f"column {column!r} has the type {kind}; durations are numbers or DURATION", file=file)


def _nulls(array: Any) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _filled(array: Any, value: float) -> NDArray[Any]:
    """Return a column of numbers, with a value in place of nulls. Without nulls it is not copied."""
    full = array.fill_null(value) if array.null_count else array
    dtype = np.dtype(full.type.to_pandas_dtype())
    data = full.buffers()[1]
    begin, count = full.offset * dtype.itemsize, len(full)
    if data is None or begin + count * dtype.itemsize > len(data):  # a damaged file
        return np.full(count, value).astype(dtype)
    return np.frombuffer(data, dtype, count, begin)  # `to_numpy` would load pandas, which takes longer than the rest


def _numbers(array: Any, bits: int, signed: bool) -> Ends:
    numbers = _filled(array, 0)
    if bits == 32 and (not signed or not len(numbers) or int(numbers.min()) >= 0):
        found: NDArray[np.uint32] = numbers.view(np.uint32)
        return found
    if bits < 32 and not signed:
        return numbers.astype(np.uint32)
    wide = numbers.astype(np.int64, copy=False)  # numbers of uint64 beyond int64 become negative, and are none
    narrow = np.empty(len(wide), np.uint32)
    if not int(narrow_into(wide.view(np.uint64), narrow)) >> 32:
        return narrow
    return _checked(wide)


def _checked(numbers: NDArray[np.int64]) -> AddressColumn:
    kinds = np.where((numbers >= 0) & (numbers <= 0xFFFFFFFF), 4, 0).astype(np.uint8)
    words = np.zeros((len(numbers), 2), np.uint64)
    words[:, 1] = numbers & 0xFFFFFFFF
    return AddressColumn(kinds, words)


def _narrow_floats(numbers: NDArray[np.float64]) -> Ends:
    """Return IPv4 numbers that something with nulls has made floats: whole ones count."""
    good = (numbers >= 0) & (numbers <= 0xFFFFFFFF) & (np.floor(numbers) == numbers)
    if good.all():
        return numbers.astype(np.uint32)
    return _checked(np.where(good, numbers, -1).astype(np.int64))


def _fixed(array: Any, width: int) -> Ends:
    """Return addresses of 4 or 16 bytes, most significant first."""
    data = array.buffers()[1]
    begin, count = array.offset * width, len(array)
    held = 0 if data is None else len(data)
    if begin + count * width > held:  # a damaged file, or all are null
        return AddressColumn(np.zeros(count, np.uint8), np.zeros((count, 2), np.uint64))
    if width == 4:
        return np.frombuffer(data, ">u4", count, begin).astype(np.uint32)
    words = np.frombuffer(data, ">u8", 2 * count, begin).astype(np.uint64).reshape(count, 2)
    return from_words(words)


@compiled
def parse_narrow(data: Bytes, offsets: Offsets, narrow: NDArray[np.uint32]) -> bool:
    """Parse IPv4 addresses; return False at the first row that is none. Most tables have no other rows."""
    begin, safe = np.uint64(data.ctypes.data), len(data) - READABLE
    for i in range(len(narrow)):
        at, end = int(offsets[i]), int(offsets[i + 1])
        if at <= safe:
            kind, _, low = parse_at(begin + np.uint64(at), np.uint64(end - at))
        else:
            kind, _, low = parse_address(data, at, end)
        if kind != 4:
            return False
        narrow[i] = low
    return True


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(types: Any, kind: Any) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _text(array: Any, file: str, column: str) -> tuple[Bytes, Offsets]:
    """Return the bytes of a text or binary column, and where each value begins and ends; all are inside."""
    types = import_arrow(file).types
    if types.is_string_view(array.type) or types.is_binary_view(array.type):
        array = _as_bytes(array, import_arrow(file)).cast(import_arrow(file).large_binary())
    large = types.is_large_string(array.type) or types.is_large_binary(array.type)
    _, places, values = array.buffers()
    data = np.empty(0, np.uint8) if values is None else np.frombuffer(values, np.uint8)
    size, count = (8 if large else 4), len(array)
    if not count or places is None:
        return data, np.zeros(count + 1, np.int64)
    if (array.offset + count + 1) * size > len(places):
        raise InputError(f"it is damaged: column {column!r} ends early", file=file)
    offsets = np.frombuffer(places, np.int64 if large else np.int32, count + 1, array.offset * size)
    if not are_inside(offsets, len(data)):
        raise InputError(f"it is damaged: values of column {column!r} lie outside of its data", file=file)
    return data, offsets


def _as_bytes(array: Any, pyarrow: Any) -> Any:
    """Return text as binary values. All of them lie inside their data, which pyarrow does not check when it reads them;
    they need not be UTF-8.
    """
    kinds = {"string": pyarrow.binary(), "large_string": pyarrow.large_binary(), "string_view": pyarrow.binary_view()}
    found = array.view(kinds.get(str(array.type), array.type))
    found.validate(full=True)
    return found


def _binary(data: Bytes, offsets: Offsets) -> AddressColumn:
    """Return the addresses of a binary column: 4 or 16 bytes, or else text, as programs write it without its type."""
    count = len(offsets) - 1
    kinds, words = np.empty(count, np.uint8), np.empty((count, 2), np.uint64)
    read_binary(data, offsets, kinds, words)
    return AddressColumn(kinds, words)


@compiled
def read_binary(data: Bytes, offsets: Offsets, kinds: Kinds, words: Words) -> None:
    """Read values of 4 or 16 bytes as addresses, others as text.

    Sixteen characters that are an address in text are text: as bytes of an address they are most unlikely.
    """
    for i in range(len(kinds)):
        begin, end = offsets[i], offsets[i + 1]
        kind, high, low = 0, np.uint64(0), np.uint64(0)
        if end - begin != 4:
            kind, high, low = parse_address(data, begin, end)
        if kind == 0 and (end - begin == 4 or end - begin == 16):
            for j in range(begin, end):
                high = (high << np.uint64(8)) | (low >> np.uint64(56))
                low = (low << np.uint64(8)) | np.uint64(data[j])
            kind = 4 if end - begin == 4 else 6
            if kind == 6 and high == np.uint64(0) and low >> np.uint64(32) == np.uint64(0xFFFF):
                kind, low = 4, low & np.uint64(0xFFFFFFFF)
        kinds[i] = kind
        words[i, 0], words[i, 1] = high, low


def _by_dictionary(array: Any, column: str, file: str) -> Ends:
    """Return the addresses of a dictionary array: each value is converted once."""
    values = addresses_of(array.dictionary, column, file)
    indices = _filled_numbers(array.indices).astype(np.int64, copy=False)
    known = widened(values)
    if not array.null_count and (known.kinds == 4).all():
        narrow = np.empty(len(indices), np.uint32)
        low = known.words[:, 1].astype(np.uint32)
        if take_narrow(indices, low, narrow):
            return narrow
    kinds, words = np.empty(len(indices), np.uint8), np.empty((len(indices), 2), np.uint64)
    take_rows(indices, known.kinds, known.words, kinds, words)
    return AddressColumn(kinds, words)


@compiled
def take_narrow(indices: Offsets, values: NDArray[np.uint32], taken: NDArray[np.uint32]) -> bool:
    """Write the values that indices name; return False if one names none."""
    count = np.uint64(len(values))
    for i in range(len(indices)):
        at = np.uint64(indices[i])
        if at >= count:
            return False
        taken[i] = values[at]
    return True


@compiled
def take_rows(indices: Offsets, kinds: Kinds, words: Words, out_kinds: Kinds, out_words: Words) -> None:
    """Write the addresses that indices name; an index that names none is no address."""
    for i in range(len(indices)):
        at = indices[i]
        if at < 0 or at >= len(kinds):
            out_kinds[i] = 0
            out_words[i, 0], out_words[i, 1] = 0, 0
        else:
            out_kinds[i] = kinds[at]
            out_words[i, 0], out_words[i, 1] = words[at, 0], words[at, 1]


@compiled
def _moved(times: Times, lengths: Times, sign: int) -> Times:
    """Return times moved by durations; NO_TIME where one of them is none."""
    moved = np.empty(len(times), np.int64)
    for i in range(len(times)):
        moved[i] = NO_TIME if times[i] < 0 or lengths[i] < 0 else times[i] + sign * lengths[i]
    return moved


class PlacedFile:
    """An open file with a position of its own, so that several threads can read it. Python's way to say `pread`."""

    closed = False

    def __init__(self, file: int, size: int) -> None:
        self._file, self._size, self._at = file, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (self._at if whence == os.SEEK_CUR else self._size if whence == os.SEEK_END else 0)
        return self._at

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._size - self._at)  # A damaged file may ask for terabytes.
        wanted = left if count < 0 else min(count, left)
        parts = []
        while wanted > 0 and (part := os.pread(self._file, wanted, self._at)):
            parts.append(part)
            self._at += len(part)
            wanted -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Leave the file open: others read it."""


class Places:
    """An input whose bytes can be read anywhere. `open` returns something that pyarrow reads, for one thread."""

    def __init__(self, size: int, open: Callable[[], Any], close: Callable[[], None] = lambda: None) -> None:
        self.size, self.open, self.close = size, open, close


def placed(source: Opens) -> Places:
    """Return an input to be read anywhere: a plain file as it is, what is behind a URL by parts, the rest as a copy."""
    if isinstance(source, Input) and source.reopens and not source.compression:
        if is_url(source.path):
            return _of_url(source.name) if source.size is not None else _copied(source)
        file = source.open_file()
        if file is not None:
            return _of_file(file, lambda: os.close(file))
    return _copied(source)


def _of_file(file: int, close: Callable[[], None]) -> Places:
    size = os.fstat(file).st_size
    return Places(size, lambda: PlacedFile(file, size), close)


def _of_url(url: str) -> Places:
    system, path = file_system(url)
    size = int(system.info(path)["size"])
    return Places(size, lambda: system.open(path, "rb", cache_type="none"))


def _copied(source: Opens) -> Places:
    """Return all bytes of an input, decompressed, in a temporary file."""
    stream, chunk = source.open(), bytearray(_CHUNK)
    file = tempfile.TemporaryFile(prefix="superhosts-")  # noqa: SIM115  closed by whoever reads it
    try:
        while got := stream.readinto(memoryview(chunk)):
            try:
                file.write(memoryview(chunk)[:got])
                file.flush()  # A full disk shows here.
            except OSError as error:
                way = f"{error.strerror or error}; TMPDIR names another folder"
                raise OutputError(f"{tempfile.gettempdir()}: a temporary file cannot be written: {way}") from None
        if stream.ended_early:
            raise InputError(stream.ended_early, file=source.name)
    except BaseException:
        file.close()
        raise
    finally:
        stream.close()
    return _of_file(file.fileno(), file.close)


class StreamFile:
    """A stream as a file that pyarrow reads from its beginning to its end."""

    closed = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._taken: bytearray | None = bytearray()  # None: it was rewound
        self._again = b""  # read before it was rewound
        self.stopped: Stopped | None = None

    def readable(self) -> bool:
        return True

    def rewind(self) -> None:
        """Go back to the beginning, once."""
        if self._taken is not None:
            self._again, self._taken = bytes(self._taken), None

    def read(self, count: int = -1) -> bytes:
        if count < 0:
            raise OSError("it has no known length")
        first, self._again = self._again[:count], self._again[count:]
        parts, left = [first], count - len(first)
        buffer = bytearray(min(left, 1 << 22))
        while left:
            try:
                got = self._stream.readinto(memoryview(buffer)[:left])
            except Stopped as stopped:
                self.stopped = stopped
                raise
            if not got:
                break
            parts.append(bytes(buffer[:got]))
            left -= got
        if self._taken is not None:
            self._taken += b"".join(parts)
        return b"".join(parts)

    def close(self) -> None:
        """Leave it to the reader."""


class StreamBatches:
    """The batches of an Arrow stream."""

    def __init__(self, source: Opens) -> None:
        self._name = source.name
        self._stream = source.open()
        self._file = StreamFile(self._stream)

    def open(self, options: Any) -> Any:
        """Open it with pyarrow's options, the second time from its beginning again; return its schema."""
        from pyarrow import ipc

        self._reader = ipc.open_stream(self._file, options=options)
        self._file.rewind()
        return self._reader.schema

    def next(self) -> Any:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            if self._stream.ended_early:
                raise InputError(self._stream.ended_early, file=self._name) from None
            return None
        except Exception:
            if self._file.stopped is not None:
                raise self._file.stopped from None
            raise

    def position(self) -> int:
        return self._stream.position()

    def close(self) -> None:
        self._stream.close()


class FileBatches:
    """The batches of an Arrow file."""

    def __init__(self, source: Opens) -> None:
        self._places = placed(source)
        self._done = 0

    def open(self, options: Any) -> Any:
        """Open it with pyarrow's options; return its schema."""
        from pyarrow import ipc

        self._reader = ipc.open_file(self._places.open(), options=options)
        return self._reader.schema

    def next(self) -> Any:
        if self._done >= self._reader.num_record_batches:
            return None
        self._done += 1
        return self._reader.get_batch(self._done - 1)

    def position(self) -> int:
        """Bytes of the file, in proportion to the batches."""
        return int(self._places.size * self._done // max(1, self._reader.num_record_batches))

    def close(self) -> None:
        self._places.close()


class ArrowReader:
    """One pass over an Arrow file or stream."""

    def __init__(self, source: Opens, options: TableOptions) -> None:
        self._name = source.name
        self._arrow = import_arrow(self._name)
        self._rows = 0
        self._left: list[Any] = []  # batches that were read and not yet yielded
        self._wanted: Wanted
        is_file = isinstance(source, Input) and source.head().startswith(FILE_MAGIC)
        self._batches = (FileBatches if is_file else StreamBatches)(source)
        try:
            schema = self._open()
            with arrow_errors(self._name, WHAT):
                self.columns: Sequence[str] = _leaves(self._arrow, schema)
            self._wanted = wanted_of(self.columns, options, self._name)
            # Opened again, now that the columns are known: others are not decompressed.
            self._open([i for i, name in enumerate(schema.names) if self._wanted.needs(name)])
        except BaseException:
            self._batches.close()
            raise
        self.has_time = self._wanted.times is not None

    def read(self) -> RowBlock | None:
        while not self._left:
            with arrow_errors(self._name, WHAT), measured("read"):
                batch = self._batches.next()
            if batch is None:
                return None
            self._left = [batch.slice(begin, MOST_ROWS) for begin in range(0, len(batch), MOST_ROWS)]
        batch, begin = self._left.pop(0), self._rows
        self._rows += len(batch)
        with measured("parse"), arrow_errors(self._name, WHAT):
            return block_of(batch, self._wanted, begin, self._name)

    def position(self) -> int:
        return self._batches.position()

    def close(self) -> None:
        self._batches.close()

    def _open(self, columns: list[int] | None = None) -> Any:
        from pyarrow import ipc

        with arrow_errors(self._name, WHAT):
            return self._batches.open(ipc.IpcReadOptions(included_fields=columns, use_threads=False))


def _leaves(arrow: Any, schema: Any) -> list[str]:
    """Return the columns with one value for each row, by their paths."""
    found: list[str] = []

    def add(field: Any, path: str) -> None:
        if arrow.types.is_struct(field.type):
            for i in range(field.type.num_fields):
                inner = field.type.field(i)
                add(inner, f"{path}.{inner.name}")
        elif not arrow.types.is_nested(field.type):
            found.append(path)

    for field in schema:
        add(field, field.name)
    return found


ARROW = TableFormat(
    "arrow",
    "an Arrow file",
    lambda head: head.startswith((FILE_MAGIC, STREAM_MAGIC)),
    ArrowReader,
)
