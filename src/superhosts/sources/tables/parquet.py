"""Parquet files: the columns that are mapped, and no others, read ahead by threads.

A file consists of row groups. Consecutive ones of up to `PIECE_ROWS` rows are a piece, which one thread reads and
converts. A group with more rows is read in batches by one thread, and its batches are converted by the others. Both
come in order. Memory is bounded: a piece for each thread and one that waits, of which only addresses and times are
kept once it is converted.

A text column that is stored as a dictionary is read as one, so that each address is parsed once for each row group.
Where only its beginning is a dictionary, which its size tells, that would be slow.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from superhosts.core.columns.addresses import AddressColumn
from superhosts.core.device import thread_count
from superhosts.core.pairs import Details, Times
from superhosts.core.profile import measured
from superhosts.core.text import printable
from superhosts.errors import InputError
from superhosts.sources.tables.arrowcolumns import addresses_of, import_arrow, narrowed, times_of, value_at, values_of
from superhosts.sources.tables.base import BadRow, Opens, RowBlock, TableFormat
from superhosts.sources.tables.detailcolumns import details_of_columns
from superhosts.sources.tables.detailfields import DetailFields, details_of
from superhosts.sources.tables.mapping import Mapping, RowTimes, resolve, row_times
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.parquetpages import PlainPages
from superhosts.sources.tables.placed import PlacedFile, placed

MAGIC = b"PAR1"
PIECE_ROWS = 1 << 20  # a larger row group is read in batches
BATCH_ROWS = 1 << 17
AHEAD = 1  # pieces that wait, besides one for each thread
MOST_THREADS = 16
_DICTIONARY_BYTES = 6  # of a value, at most, in a column chunk that is a dictionary throughout
_BUFFER = 1 << 20  # bytes of a column chunk that are read at once, of a group that is read in batches
_SHOWN = 40  # characters of a value in a message


class Group(NamedTuple):
    """A row group."""

    number: int
    rows: int
    begin: int  # rows before it


class Wanted(NamedTuple):
    """What is read of a table."""

    src: str
    dst: str
    times: RowTimes | None
    details: DetailFields | None = None  # None: not wanted

    @property
    def time_columns(self) -> list[str]:
        """The names of the columns that make times."""
        times = () if self.times is None else (self.times.column, self.times.duration)
        return [column.name for column in times if column is not None]

    @property
    def columns(self) -> list[str]:
        """The names of the columns, each once."""
        more = [] if self.details is None else self.details.columns()
        return list(dict.fromkeys([self.src, self.dst, *self.time_columns, *more]))

    def needs(self, top: str) -> bool:
        """Return True if a column, which may have others inside, is or has one that is read."""
        return any(name == top or name.startswith(f"{top}.") for name in self.columns)


def wanted_of(columns: Sequence[str], options: TableOptions, file: str) -> Wanted:
    """Return what is read of a table with these columns."""
    found: Mapping = resolve(options.map, columns, file)
    assert found.src is not None
    assert found.dst is not None
    wanted = Wanted(found.src.name, found.dst.name, row_times(found, options.row_time, columns, file))
    return wanted._replace(details=details_of(None, columns, options, wanted.columns, file))


def block_of(batch: Any, wanted: Wanted, begin: int, file: str) -> RowBlock:
    """Return the rows of a batch, of which `begin` others come before."""
    batch.validate()  # that arrays have the length that they claim; what is in them is checked where it is read
    arrays = _arrays(batch, wanted.columns, file)

    def describe(index: int) -> BadRow:
        values = ((name, value_at(array, index, file)) for name, array in arrays.items())
        shown = (f"{name}={'null' if value is None else printable(value, _SHOWN)}" for name, value in values)
        return BadRow(begin + index + 1, ", ".join(shown))

    times = _times(arrays, wanted, file)
    src = narrowed(addresses_of(arrays[wanted.src], wanted.src, file))
    dst = narrowed(addresses_of(arrays[wanted.dst], wanted.dst, file))
    is_clean = not isinstance(src, AddressColumn) and not isinstance(dst, AddressColumn) and not _has_gaps(times)
    details = None if wanted.details is None else _details(arrays, wanted.details, len(batch), file)
    # Where no row is bad, the arrays are not held any longer.
    return RowBlock(src, dst, times, _no_row if is_clean else describe, details=details)


def _arrays(batch: Any, columns: Sequence[str], file: str) -> dict[str, Any]:
    return {name: _column(batch, name, file) for name in columns}


def _times(arrays: dict[str, Any], wanted: Wanted, file: str) -> Times | None:
    if wanted.times is None:
        return None
    duration = wanted.times.duration
    lengths = None if duration is None else arrays[duration.name]
    return times_of((arrays[wanted.times.column.name], lengths), wanted.times, file)


def _details(arrays: dict[str, Any], fields: DetailFields, count: int, file: str) -> Details:
    return details_of_columns(fields, count, lambda name, what: values_of(arrays[name], name, what, fields.codes, file))


def _no_row(_index: int) -> BadRow:
    raise AssertionError("no row of this block is bad")


def _has_gaps(times: Times | None) -> bool:
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


class UnreadFile(PlacedFile):
    """A file of which nothing is read."""

    was_asked = False

    def read(self, count: int = -1) -> bytes:
        """Note that somebody asked."""
        self.was_asked = True
        raise OSError("nobody needs what is read here")


class ParquetReader:
    """One pass over a Parquet file."""

    def __init__(self, source: Opens, options: TableOptions) -> None:
        self._name = source.name
        with measured("read"):
            import_arrow(self._name)
            self._places = placed(source)
        try:
            with arrow_errors(self._name, "Parquet file"):
                first = self._open_file()
                self._metadata = first.metadata
                self.columns: Sequence[str] = _columns(self._metadata.schema)
            self._wanted = wanted_of(self.columns, options, self._name)
            self._check_chunks()
            schema = self._metadata.schema
            self._texts = [i for i in range(len(schema)) if _is_text(schema.column(i), self._wanted)]
            self._text_names = {schema.column(i).path for i in self._texts}
            self._pages = PlainPages(self._places, first, (self._wanted.src, self._wanted.dst))
        except BaseException:
            self._places.close()
            raise
        self.has_time = self._wanted.times is not None
        self._files: dict[tuple[str, ...], list[Any]] = {(): [first]}  # that no thread reads, by their dictionaries
        self._lock = threading.Lock()
        self._rows_read = 0
        workers = min(thread_count(options.threads), MOST_THREADS)
        self._pool = ThreadPoolExecutor(workers, "read rows")
        self._ahead = AHEAD + workers
        self._tasks = self._start()
        self._waiting: deque[Future[list[RowBlock]]] = deque()
        self._blocks: deque[RowBlock] = deque()

    def read(self) -> RowBlock | None:
        """Return the next rows, None at the end."""
        while not self._blocks:
            while len(self._waiting) < self._ahead and (task := next(self._tasks, None)) is not None:
                self._waiting.append(task)
            if not self._waiting:
                return None
            with measured("wait"):
                self._blocks.extend(self._waiting.popleft().result())
        block = self._blocks.popleft()
        self._rows_read += len(block)
        return block

    def position(self) -> int:
        """Bytes of the file, in proportion to the rows."""
        rows = self._metadata.num_rows
        return self._places.size * min(self._rows_read, rows) // rows if rows > 0 else self._places.size

    def close(self) -> None:
        """End the threads and close the file."""
        self._tasks.close()
        self._pool.shutdown(cancel_futures=True)
        self._files.clear()
        self._places.close()

    def _open_file(self, metadata: Any = None, file: Any = None, **options: Any) -> Any:
        from pyarrow.parquet import ParquetFile

        return ParquetFile(file or self._places.open(), metadata=metadata, **options)

    def _check_chunks(self) -> None:
        """Raise InputError if the description of a column in a row group is damaged.

        pyarrow ends the process when Python asks for such a description; when it reads rows, it raises an error.
        """
        file = UnreadFile(-1, self._places.size)
        groups = range(self._metadata.num_row_groups)
        with arrow_errors(self._name, "Parquet file"):
            try:
                opened = self._open_file(self._metadata, file=file, pre_buffer=True)
                opened.read_row_groups(groups, columns=self._wanted.columns, use_threads=False)
            except Exception:
                if not file.was_asked:  # which comes after all descriptions
                    raise

    def _start(self) -> Generator[Future[list[RowBlock]], None, None]:
        """Yield the tasks of threads, in the order of rows."""
        piece: list[Group] = []
        for group in self._groups():
            if piece and sum(each.rows for each in piece) + group.rows > PIECE_ROWS:
                yield self._pool.submit(self._read_piece, piece)
                piece = []
            if group.rows > PIECE_ROWS:
                yield from self._in_batches(group)
            else:
                piece.append(group)
        if piece:
            yield self._pool.submit(self._read_piece, piece)

    def _groups(self) -> Iterator[Group]:
        begin = 0
        for number in range(self._metadata.num_row_groups):
            rows = self._metadata.row_group(number).num_rows
            yield Group(number, rows, begin)
            begin += rows

    def _read_piece(self, groups: list[Group]) -> list[RowBlock]:
        """Read row groups as a whole and convert them."""
        has_details = self._wanted.details is not None  # which pages do not give
        return (not has_details and self._read_pages(groups)) or self._read_tables(groups)

    def _read_pages(self, groups: list[Group]) -> list[RowBlock]:
        """Return rows with addresses that need no Arrow arrays; none if they do, or if a row may be bad."""
        ends = self._pages.read([group.number for group in groups])
        if ends is None:
            return []
        src, dst = ends
        if not self._wanted.time_columns:
            return [RowBlock(src, dst, None, _no_row)]
        blocks, begin = [], 0
        for batch in self._table(groups, self._wanted.time_columns).to_batches():
            with measured("parse"), arrow_errors(self._name, "Parquet file"):
                times = _times(_arrays(batch, self._wanted.time_columns, self._name), self._wanted, self._name)
            if _has_gaps(times):
                return []
            end = begin + len(batch)
            blocks.append(RowBlock(src[begin:end], dst[begin:end], times, _no_row))
            begin = end
        return blocks if begin == len(src) else []  # A damaged file may have fewer times than addresses.

    def _read_tables(self, groups: list[Group]) -> list[RowBlock]:
        """Return rows by way of Arrow arrays."""
        blocks, begin = [], groups[0].begin
        for batch in self._table(groups, self._wanted.columns).to_batches():
            blocks.append(self._convert(batch, begin))
            begin += len(batch)
        return blocks

    def _table(self, groups: list[Group], columns: list[str]) -> Any:
        with arrow_errors(self._name, "Parquet file"), measured("read"):
            numbers = [group.number for group in groups]
            dictionaries = self._dictionaries(numbers)
            with self._lock:
                unused = self._files.setdefault(dictionaries, [])
                file = unused.pop() if unused else None
            file = file or self._open_file(self._metadata, read_dictionary=dictionaries)
            table = file.read_row_groups(numbers, columns=columns, use_threads=False)
            with self._lock:
                unused.append(file)
        return table

    def _in_batches(self, group: Group) -> Generator[Future[list[RowBlock]], None, None]:
        """Read a large row group batch by batch."""
        with arrow_errors(self._name, "Parquet file"):
            dictionaries = self._dictionaries([group.number])
            file = self._open_file(self._metadata, buffer_size=_BUFFER, read_dictionary=dictionaries)
            batches = file.iter_batches(BATCH_ROWS, [group.number], self._wanted.columns, use_threads=False)
        begin = group.begin
        while (batch := self._next(batches)) is not None:
            yield self._pool.submit(self._convert_one, batch, begin)
            begin += len(batch)

    def _dictionaries(self, groups: list[int]) -> tuple[str, ...]:
        """Return the columns of text that are dictionaries throughout in all of these row groups."""
        chunks = [self._metadata.row_group(group).column(i) for group in groups for i in self._texts]
        others = {chunk.path_in_schema for chunk in chunks if not _is_dictionary(chunk)}
        return tuple(name for name in self._wanted.columns if name in self._text_names and name not in others)

    def _next(self, batches: Iterator[Any]) -> Any:
        with arrow_errors(self._name, "Parquet file"), measured("read"):
            return next(batches, None)

    def _convert_one(self, batch: Any, begin: int) -> list[RowBlock]:
        return [self._convert(batch, begin)]

    def _convert(self, batch: Any, begin: int) -> RowBlock:
        with measured("parse"), arrow_errors(self._name, "Parquet file"):
            return block_of(batch, self._wanted, begin, self._name)


def _is_text(column: Any, wanted: Wanted) -> bool:
    names = () if wanted.details is None else wanted.details.columns()
    return column.path in (wanted.src, wanted.dst, *names) and column.physical_type == "BYTE_ARRAY"


def _is_dictionary(chunk: Any) -> bool:
    return bool(chunk.has_dictionary_page) and chunk.total_uncompressed_size <= _DICTIONARY_BYTES * chunk.num_values


def _columns(schema: Any) -> list[str]:
    """Return the columns with one value for each row, by their paths."""
    columns = (schema.column(i) for i in range(len(schema)))
    return [column.path for column in columns if column.max_repetition_level == 0]


PARQUET = TableFormat(
    "parquet",
    "a Parquet file",
    lambda head: head.startswith(MAGIC),
    ParquetReader,
    one_thread=False,
)
