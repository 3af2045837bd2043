"""Arrow IPC: files (.arrow, .feather) and streams, as DuckDB, Polars, pandas and Spark write them.

A stream is read batch by batch, so that pipes work as well. A file says at its end where its batches are, and what is
before them need not be a stream: Polars writes it without the length of its first message. So files are read as pyarrow
does, by their ends, and copied first if they come through a pipe. Only the columns that are mapped are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from superhosts.core.profile import measured
from superhosts.errors import InputError
from superhosts.sources.base import Stopped
from superhosts.sources.input import Input, Stream
from superhosts.sources.tables.arrowcolumns import import_arrow
from superhosts.sources.tables.base import Opens, RowBlock, TableFormat
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.parquet import Wanted, arrow_errors, block_of, wanted_of
from superhosts.sources.tables.placed import placed

FILE_MAGIC = b"ARROW1\0\0"
STREAM_MAGIC = b"\xff\xff\xff\xff"
MOST_ROWS = 1 << 19  # of a block
WHAT = "Arrow file"


class StreamFile:
    """A stream as a file that pyarrow reads from its beginning to its end."""

    closed = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._taken: bytearray | None = bytearray()  # None: it was rewound
        self._again = b""  # read before it was rewound
        self.stopped: Stopped | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def rewind(self) -> None:
        """Go back to the beginning, once."""
        if self._taken is not None:
            self._again, self._taken = bytes(self._taken), None

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, fewer only at the end."""
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
        """Return the next batch, None at the end."""
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
        """Bytes of the input (compressed, if it is) read so far."""
        return self._stream.position()

    def close(self) -> None:
        """Close the input."""
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
        """Return the next batch, None at the end."""
        if self._done >= self._reader.num_record_batches:
            return None
        self._done += 1
        return self._reader.get_batch(self._done - 1)

    def position(self) -> int:
        """Bytes of the file, in proportion to the batches."""
        return int(self._places.size * self._done // max(1, self._reader.num_record_batches))

    def close(self) -> None:
        """Close the file."""
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
        """Return the next rows, None at the end."""
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
        """Bytes of the input (compressed, if it is) read so far."""
        return self._batches.position()

    def close(self) -> None:
        """Close the input."""
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
