"""Arrow IPC: files (.arrow, .feather) and streams, as DuckDB, Polars, pandas and Spark write them.

Both are read as a stream, batch by batch, so that pipes work as well: a file is a stream between a magic number and a
description that a reader from beginning to end does not need. Only the columns that are mapped are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from superhosts.errors import InputError
from superhosts.sources.base import Stopped
from superhosts.sources.streams import Stream
from superhosts.sources.tables.arrowcolumns import import_arrow
from superhosts.sources.tables.base import Opens, RowBlock, TableFormat
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.parquet import Wanted, arrow_errors, block_of, wanted_of
from superhosts.stopwatch import measured

FILE_MAGIC = b"ARROW1\0\0"
STREAM_MAGIC = b"\xff\xff\xff\xff"
MOST_ROWS = 1 << 19  # of a block
WHAT = "Arrow file"


class StreamFile:
    """A stream as a file that pyarrow reads from its beginning to its end."""

    closed = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.stopped: Stopped | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, fewer only at the end."""
        if count < 0:
            raise OSError("it has no known length")
        parts, left = [], count
        buffer = bytearray(min(count, 1 << 22))
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
        return b"".join(parts)

    def close(self) -> None:
        """Leave it to the reader."""


class ArrowReader:
    """One pass over an Arrow file or stream."""

    def __init__(self, source: Opens, options: TableOptions) -> None:
        self._name = source.name
        self._arrow = import_arrow(self._name)
        self._stream = source.open()
        self._file = StreamFile(self._stream)
        self._rows = 0
        self._left: list[Any] = []  # batches that were read and not yet yielded
        self._wanted: Wanted
        try:
            head = self._file.read(len(FILE_MAGIC))
            begin = _Joined(b"" if head == FILE_MAGIC else head, self._file, remembers=True)
            schema = self._open(begin).schema
            self.columns: Sequence[str] = _leaves(self._arrow, schema)
            self._wanted = wanted_of(self.columns, options, self._name)
            # Opened again at the same place, now that the columns are known: others are not decompressed.
            tops = [i for i, name in enumerate(schema.names) if self._wanted.needs(name)]
            self._batches = self._open(_Joined(begin.taken(), self._file), tops)
        except BaseException:
            self._stream.close()
            raise
        self.has_time = self._wanted.times is not None

    def read(self) -> RowBlock | None:
        """Return the next rows, None at the end."""
        while not self._left:
            batch = self._next()
            if batch is None:
                if self._stream.ended_early:
                    raise InputError(self._stream.ended_early, file=self._name)
                return None
            self._left = [batch.slice(begin, MOST_ROWS) for begin in range(0, len(batch), MOST_ROWS)]
        batch, begin = self._left.pop(0), self._rows
        self._rows += len(batch)
        with measured("parse"), arrow_errors(self._name, WHAT):
            return block_of(batch, self._wanted, begin, self._name)

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""
        return self._stream.position()

    def close(self) -> None:
        """Close the input."""
        self._stream.close()

    def _open(self, file: _Joined, columns: list[int] | None = None) -> Any:
        from pyarrow import ipc

        with arrow_errors(self._name, WHAT):
            options = ipc.IpcReadOptions(included_fields=columns, use_threads=False)
            return ipc.open_stream(file, options=options)

    def _next(self) -> Any:
        """Return the next batch, None at the end."""
        with arrow_errors(self._name, WHAT), measured("read"):
            try:
                return self._batches.read_next_batch()
            except StopIteration:
                return None
            except Exception:
                if self._file.stopped is not None:
                    raise self._file.stopped from None
                raise


class _Joined:
    """Bytes that were read already, then the rest. With `remembers` it keeps them until it is asked for them."""

    closed = False

    def __init__(self, head: bytes, rest: StreamFile, *, remembers: bool = False) -> None:
        self._head, self._rest = head, rest
        self._taken: list[bytes] | None = [head] if remembers else None

    def taken(self) -> bytes:
        """Return what was read so far, for another reader from the beginning."""
        found, self._taken = b"".join(self._taken or []), None
        return found

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, fewer only at the end."""
        first, self._head = self._head[:count], self._head[count:]
        more = self._rest.read(count - len(first)) if count > len(first) else b""
        if self._taken is not None:
            self._taken.append(more)
        return first + more if first else more

    def close(self) -> None:
        """Leave it to the reader."""


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
