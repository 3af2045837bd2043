"""Arrow: columns of Arrow arrays as addresses, times and details, and the reader of Arrow files and streams.

Parquet has the columns in common (parquet.py). Addresses are what `core.columns` takes, and floats. A column of uint32
without nulls is not copied. What is not an address becomes kind 0, and what is not a time NO_TIME: the rows are dropped
and counted later. Nothing that a file says is trusted: offsets and indices are checked before loops follow them.

A stream is read batch by batch, so that pipes work as well. A file (.arrow, .feather) says at its end where its batches
are, and what is before them need not be a stream. So files are read by their ends (`placed`): plain files and URLs at
any place, and a pipe or a compressed file as a copy, a temporary file without a name that is gone when it is closed,
even if the process is killed. Only the columns that are mapped are decoded.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn, Ends
from superhosts.core.columns.column import Column, Text
from superhosts.core.columns.hosts import ends_of
from superhosts.core.columns.readers import as_bytes, from_arrow, import_arrow, is_text, values_of
from superhosts.core.pairs import Times
from superhosts.core.profile import measured
from superhosts.core.text import printable
from superhosts.errors import InputError, OutputError, UsageError
from superhosts.sources.base import Stopped
from superhosts.sources.files import file_system, is_url
from superhosts.sources.input import Input, Opens
from superhosts.sources.stream import Stream
from superhosts.sources.tables.details import details_of_columns
from superhosts.sources.tables.knownlogs import CSV
from superhosts.sources.tables.mapping import UNITS
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import BadRow, RowBlock, TableFormat
from superhosts.sources.tables.times import NO_TIME, parse_times, scale_floats, scale_integers
from superhosts.sources.tables.wanted import Wanted, wanted_of

FILE_MAGIC = b"ARROW1\0\0"
STREAM_MAGIC = b"\xff\xff\xff\xff"
MOST_ROWS = 1 << 19  # of a block
WHAT = "Arrow file"
_CHUNK = 1 << 20  # bytes of a copy
_SHOWN = 40  # characters of a value in a message
_DAY = 86400 * 10**9
_TIMES = "times are TIMESTAMP, numbers (s, ms, us or ns) or text (ISO 8601)"


def columns_wanted(columns: Sequence[str], options: TableOptions, file: str) -> Wanted:
    """Return what is wanted of a table in columns: they hold for all rows, so no other column stands in for a time."""
    wanted = wanted_of(CSV, columns, options, file)
    return replace(wanted, time=wanted.time[:1])


def block_of(batch: Any, wanted: Wanted, begin: int) -> RowBlock:
    """Return the rows of a batch, of which `begin` others come before."""
    batch.validate()  # that arrays have the length that they claim; what is in them is checked where it is read
    arrays = arrays_of(batch, wanted.names())

    def describe(index: int) -> BadRow:
        values = ((name, value_at(array, index)) for name, array in arrays.items())
        shown = (f"{name}={'null' if value is None else printable(value, _SHOWN)}" for name, value in values)
        return BadRow(begin + index + 1, ", ".join(shown))

    times = times_of(arrays, wanted)
    src, dst = (addresses_of(arrays[ends[0].name], ends[0].name) for ends in (wanted.src, wanted.dst))
    details = None
    if wanted.details is not None:
        details = details_of_columns(wanted.details, len(batch), lambda name: _detail_column(arrays[name]))
    may_be_bad = isinstance(src, AddressColumn) or isinstance(dst, AddressColumn) or has_gaps(times)
    return RowBlock(src, dst, times, describe if may_be_bad else None, details=details)  # `describe` holds the arrays.


def arrays_of(batch: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return columns by their names; of nested ones the name is the path (flow.start)."""
    return {name: _field(batch.schema, batch.columns, name, name) for name in columns}


def _field(fields: Any, arrays: Sequence[Any], path: str, column: str) -> Any:
    from pyarrow import types

    for field, array in zip(fields, arrays, strict=True):
        if field.name == path:
            return array
    for field, array in zip(fields, arrays, strict=True):
        if path.startswith(f"{field.name}."):
            if types.is_struct(field.type):  # flattened with the nulls of the struct
                return _field(field.type, array.flatten(), path.removeprefix(f"{field.name}."), column)
            raise UsageError(
                f"column {printable(column)!r} is inside {field.type}; only one value for each row can be read"
            )
    raise UsageError(f"column {printable(column)!r} is missing in some of its rows")


def has_gaps(times: Times | None) -> bool:
    return times is not None and len(times) > 0 and int(times.min()) < 0


@contextmanager
def arrow_errors(file: str, what: str) -> Iterator[None]:
    """Turn what pyarrow says about damaged files, and what is said about a column, into an InputError of one line."""
    arrow = import_arrow(f"{file}: reading Parquet and Arrow files")
    try:
        yield
    except UsageError as error:
        raise InputError(str(error), file=file) from None
    except (arrow.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        if isinstance(error, arrow.lib.ArrowMemoryError):
            raise InputError(f"{what}: too little memory to read it", file=file) from None
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise InputError(f"damaged {what}: {printable(first)}", file=file) from None


def addresses_of(array: Any, column: str) -> Ends:
    """Return an Arrow array as addresses; UsageError, which names the column, if its type has none."""
    from pyarrow import types

    if not types.is_floating(array.type):
        return ends_of(from_arrow(array, f"column {column!r}"))
    # IPv4 numbers that something with nulls has made floats: whole ones count
    numbers = _filled(array, float("nan"))
    good = (numbers >= 0) & (numbers <= 0xFFFFFFFF) & (np.floor(numbers) == numbers)
    return ends_of(Column(np.where(good, numbers, -1).astype(np.int64), column))


def _detail_column(array: Any) -> Column | None:
    from pyarrow import types

    if types.is_floating(array.type):
        return Column(_filled(array, float("nan")).astype(np.float64), "details")
    with suppress(UsageError):
        return from_arrow(array, "details")
    return None


def value_at(array: Any, index: int) -> Any:
    """Return one value for people; "?" if it cannot be read. pyarrow crashes where a damaged array is not checked."""
    from pyarrow import types

    try:
        if types.is_dictionary(array.type):
            place = value_at(array.indices, index)
            return place if place is None or place == "?" else value_at(array.dictionary.slice(place), 0)
        found = as_bytes(array.slice(index, 1))[0].as_py()
        if not is_text(array.type) or found is None:
            return found
        with suppress(UnicodeDecodeError):
            return found.decode("utf-8")
    except Exception:  # also of a value that Python cannot hold, such as a time in the year 99999
        return "?"
    return found


def times_of(arrays: dict[str, Any], wanted: Wanted) -> Times | None:
    """Return the times of rows, moved by their durations where that is wanted; None if they have none."""
    if not wanted.time:
        return None
    (column,) = wanted.time
    times = _times(arrays[column.name], column.name, column.unit)
    for each in wanted.duration:
        lengths = _durations(arrays[each.name], each.name, UNITS[each.unit or "s"])
        times = np.where((times < 0) | (lengths < 0), NO_TIME, times + wanted.sign * lengths)
    return times


def _times(array: Any, column: str, unit: str) -> Times:
    import pyarrow
    from pyarrow import types

    kind, factor = array.type, UNITS.get(unit, 0)
    if types.is_dictionary(kind):
        known, indices = _times(array.dictionary, column, unit), _filled_numbers(array.indices)
        is_inside = (indices >= 0) & (indices < len(known))
        found = np.full(len(array), NO_TIME)
        found[is_inside] = known[indices[is_inside]]
        return found
    if types.is_timestamp(kind):
        return _scaled(array.view(pyarrow.int64()), UNITS[kind.unit])
    if types.is_date32(kind):
        return _scaled(array.view(pyarrow.int32()), _DAY)
    if types.is_date64(kind):
        return _scaled(array.view(pyarrow.int64()), UNITS["ms"])
    if types.is_integer(kind):  # Those beyond int64 become negative, and are none.
        return _scaled(array, factor)
    if types.is_floating(kind) or types.is_decimal(kind):
        return scale_floats(_filled(array.cast(pyarrow.float64(), safe=False), float("nan")), factor)
    if is_text(kind):
        as_bytes(array)  # A damaged array is an error here.
        for iso in (pyarrow.timestamp("ns"), pyarrow.timestamp("ns", "UTC")):
            with suppress(pyarrow.ArrowException):  # It is not ISO 8601 throughout.
                return _scaled(array.cast(iso).cast(pyarrow.int64()), 1)
        texts = from_arrow(array, column)
        assert isinstance(texts.values, Text)
        times = parse_times(texts.values, unit)
        return times if texts.valid is None else np.where(texts.valid, times, NO_TIME)
    if types.is_null(kind):
        return np.full(len(array), NO_TIME)
    raise UsageError(f"column {column!r} has the type {kind}; {_TIMES}")


def _scaled(array: Any, factor: int) -> Times:
    """Return whole numbers as times; those in nanoseconds are not copied."""
    numbers = _filled_numbers(array)
    return numbers if factor == 1 else scale_integers(numbers, factor)


def _durations(array: Any, column: str, factor: int) -> Times:
    """Return durations in nanoseconds, NO_TIME for what is none."""
    import pyarrow
    from pyarrow import types

    kind = array.type
    if types.is_duration(kind):
        return _scaled(array.view(pyarrow.int64()), UNITS[kind.unit])
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return scale_floats(_filled(array.cast(pyarrow.float64()), float("nan")), factor)
    raise UsageError(f"column {column!r} has the type {kind}; durations are numbers or DURATION")


def _filled_numbers(array: Any) -> NDArray[np.int64]:
    """Return whole numbers, with -1 in place of nulls."""
    numbers: NDArray[np.int64] = _filled(array, 0).astype(np.int64, copy=bool(array.null_count))
    if array.null_count:
        numbers[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return numbers


def _filled(array: Any, value: float) -> NDArray[Any]:
    """Return a column of numbers, with a value in place of nulls. Without nulls it is not copied."""
    full = array.fill_null(value) if array.null_count else array
    return values_of(
        full, full.type.to_pandas_dtype()
    )  # `to_numpy` would load pandas, which takes longer than the rest


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
        if is_url(source.path) and source.size is not None:
            system, path = file_system(source.name)
            size = int(system.info(path)["size"])
            return Places(size, lambda: system.open(path, "rb", cache_type="none"))
        file = source.open_file()
        if file is not None:
            return _of_file(file, lambda: os.close(file))
    return _copied(source)


def _of_file(file: int, close: Callable[[], None]) -> Places:
    size = os.fstat(file).st_size
    return Places(size, lambda: PlacedFile(file, size), close)


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
        self.stream = stream
        self._taken: bytes | None = b""  # what was read; None: it was rewound
        self.stopped: Stopped | None = None

    def readable(self) -> bool:
        return True

    def rewind(self) -> None:
        """Go back to the beginning, once."""
        if self._taken is not None:
            self.stream.unread(self._taken)
            self._taken = None

    def read(self, count: int = -1) -> bytes:
        if count < 0:
            raise OSError("it has no known length")
        parts, left = [], count
        buffer = bytearray(min(left, 1 << 22))
        while left:
            try:
                got = self.stream.readinto(memoryview(buffer)[:left])
            except Stopped as stopped:
                self.stopped = stopped
                raise
            if not got:
                break
            parts.append(bytes(buffer[:got]))
            left -= got
        data = b"".join(parts)
        if self._taken is not None:
            self._taken += data
        return data

    def close(self) -> None:
        """Leave it to the reader."""


class ArrowReader:
    def __init__(self, source: Opens, options: TableOptions) -> None:
        self._name = source.name
        self._rows = self._batches_read = 0
        self._left: list[Any] = []  # batches that were read and not yet yielded
        is_file = isinstance(source, Input) and source.head().startswith(FILE_MAGIC)
        self._file = placed(source) if is_file else StreamFile(source.open())
        try:
            schema = self._open()
            with arrow_errors(self._name, WHAT):
                self.columns: Sequence[str] = _leaves(schema)
            self._wanted = columns_wanted(self.columns, options, self._name)
            # Opened again, now that the columns are known: others are not decompressed.
            needed = self._wanted.names()
            self._open(
                [i for i, top in enumerate(schema.names) if any(f"{name}.".startswith(f"{top}.") for name in needed)]
            )
        except BaseException:
            self.close()
            raise
        self.has_time = bool(self._wanted.time)

    def _open(self, columns: list[int] | None = None) -> Any:
        from pyarrow import ipc

        with arrow_errors(self._name, WHAT):
            options = ipc.IpcReadOptions(included_fields=columns, use_threads=False)
            if isinstance(self._file, StreamFile):
                reader = ipc.open_stream(self._file, options=options)
                self._file.rewind()
                self._batches = iter(reader)
            else:
                reader = ipc.open_file(self._file.open(), options=options)
                self._batch_count = reader.num_record_batches
                self._batches = map(reader.get_batch, range(self._batch_count))
            return reader.schema

    def read(self) -> RowBlock | None:
        while not self._left:
            batch = self._next()
            if batch is None:
                return None
            self._left = [batch.slice(begin, MOST_ROWS) for begin in range(0, len(batch), MOST_ROWS)]
        batch, begin = self._left.pop(0), self._rows
        self._rows += len(batch)
        with measured("parse"), arrow_errors(self._name, WHAT):
            return block_of(batch, self._wanted, begin)

    def _next(self) -> Any:
        """Return the next batch, None at the end."""
        file = self._file
        try:
            with arrow_errors(self._name, WHAT), measured("read"):
                batch = next(self._batches, None)
        except Exception:
            if isinstance(file, StreamFile) and file.stopped is not None:
                raise file.stopped from None
            raise
        self._batches_read += 1
        if batch is None and isinstance(file, StreamFile) and file.stream.ended_early:
            raise InputError(file.stream.ended_early, file=self._name)
        return batch

    def position(self) -> int:
        """Bytes of a stream; those of a file in proportion to the batches."""
        if isinstance(self._file, StreamFile):
            return self._file.stream.position()
        return int(self._file.size * min(self._batches_read, self._batch_count) // max(1, self._batch_count))

    def close(self) -> None:
        (self._file.stream if isinstance(self._file, StreamFile) else self._file).close()


def _leaves(fields: Any, prefix: str = "") -> list[str]:
    """Return the columns with one value for each row, by their paths."""
    from pyarrow import types

    found: list[str] = []
    for field in fields:
        if types.is_struct(field.type):
            found += _leaves(field.type, f"{prefix}{field.name}.")
        elif not types.is_nested(field.type):
            found.append(f"{prefix}{field.name}")
    return found


ARROW = TableFormat("arrow", lambda head: head.startswith((FILE_MAGIC, STREAM_MAGIC)), ArrowReader)
