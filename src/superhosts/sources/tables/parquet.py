"""Parquet files: the columns that are mapped, and no others, read ahead by threads.

Consecutive row groups of up to `PIECE_ROWS` rows are a piece, which one thread reads and converts. A group with more
rows is read in batches by one thread, and its batches are converted by the others. Both come in order. Memory is
bounded: a piece for each thread and one that waits.

A text column that is stored as a dictionary throughout is read as one, so that each address is parsed once for each row
group. pyarrow makes an Arrow array of every value first; for addresses as text that takes longer than to decompress and
parse them. So `PlainPages` reads the common case, columns of IPv4 addresses as text without nulls, plain or as a
dictionary, straight from the pages. For anything else, damage that it notices included, it returns None, and pyarrow
reads the same rows and says what is wrong with them.

The header of a page is a structure of Thrift's compact protocol (parquet.thrift of the Apache Parquet format): fields
with a number and a type, structures among them. Pages have no more than 20,000 rows by default, so a loop in Python
over the fields would take as long as reading the rows. How a page is compressed is told by its own bytes and checked by
its size: pyarrow ends the whole process when it is asked for a codec that does not exist.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import LONGEST, READABLE, Bytes, parse_address, parse_ipv4
from superhosts.core.columns.readers import import_arrow
from superhosts.core.device import thread_count
from superhosts.core.profile import measured
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import number_at, word_at
from superhosts.sources.input import Opens
from superhosts.sources.tables.arrow import (
    PlacedFile,
    Places,
    arrays_of,
    arrow_errors,
    block_of,
    columns_wanted,
    has_gaps,
    placed,
    times_of,
)
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import RowBlock, TableFormat

MAGIC = b"PAR1"
WHAT = "Parquet file"
PIECE_ROWS = 1 << 20  # a larger row group is read in batches
BATCH_ROWS = 1 << 17
AHEAD = 1  # pieces that wait, besides one for each thread
MOST_THREADS = 16
_DICTIONARY_BYTES = 6  # of a value, at most, in a column chunk that is a dictionary throughout
_BUFFER = 1 << 20  # bytes of a column chunk that are read at once, of a group that is read in batches
Pages = NDArray[np.int64]  # a row for each page: the fields of `Page`

DATA, DICTIONARY = 0, 2  # kinds of pages; those of version 2, which few programs write, are left to pyarrow
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY = 0, 2, 8  # encodings
_RUNS = 3  # the encoding of levels in pages of today
_AT_ONCE = 256  # pages
_FIELDS = 8  # numbers of fields that matter are below
_DEEPEST = 8  # structures within structures
_MISSING = -1
_STOP, _TRUE, _FALSE, _BINARY, _STRUCTURE = 0, 1, 2, 8, 12  # types of fields; 4, 5 and 6 are integers


class Group(NamedTuple):
    number: int
    rows: int
    begin: int  # rows before it


class UnreadFile(PlacedFile):
    """A file of which nothing is read."""

    was_asked = False

    def read(self, count: int = -1) -> bytes:
        self.was_asked = True
        raise OSError("nobody needs what is read here")


class ParquetReader:
    def __init__(self, source: Opens, options: TableOptions) -> None:
        self._name = source.name
        with measured("read"):
            import_arrow(f"{self._name}: reading Parquet and Arrow files")
            self._places = placed(source)
        try:
            with arrow_errors(self._name, WHAT):
                first = self._open_file()
                self._metadata = first.metadata
                columns = [self._metadata.schema.column(i) for i in range(len(self._metadata.schema))]
                self.columns: Sequence[str] = [column.path for column in columns if column.max_repetition_level == 0]
            self._wanted = columns_wanted(self.columns, options, self._name)
            ends = self._wanted.src[0].name, self._wanted.dst[0].name
            self._check_chunks()
            details = () if self._wanted.details is None else self._wanted.details.columns()
            may_be_text = *ends, *details
            self._texts = {
                column.path: i
                for i, column in enumerate(columns)
                if column.path in may_be_text and column.physical_type == "BYTE_ARRAY"
            }
            self._pages = PlainPages(self._places, first, ends)
        except BaseException:
            self._places.close()
            raise
        self.has_time = bool(self._wanted.time)
        self._rows_read = 0
        workers = min(thread_count(options.threads), MOST_THREADS)
        self._pool = ThreadPoolExecutor(workers, "read rows")
        self._ahead = AHEAD + workers
        self._tasks = self._start()
        self._waiting: deque[Future[list[RowBlock]]] = deque()
        self._blocks: deque[RowBlock] = deque()

    def read(self) -> RowBlock | None:
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
        self._tasks.close()
        self._pool.shutdown(cancel_futures=True)
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
        with arrow_errors(self._name, WHAT):
            try:
                opened = self._open_file(self._metadata, file=file, pre_buffer=True)
                opened.read_row_groups(groups, columns=self._wanted.names(), use_threads=False)
            except Exception:
                if not file.was_asked:  # which comes after all descriptions
                    raise

    def _start(self) -> Generator[Future[list[RowBlock]], None, None]:
        """Yield the tasks of threads, in the order of rows."""
        piece: list[Group] = []
        begin = 0
        for number in range(self._metadata.num_row_groups):
            group = Group(number, self._metadata.row_group(number).num_rows, begin)
            begin += group.rows
            if piece and sum(each.rows for each in piece) + group.rows > PIECE_ROWS:
                yield self._pool.submit(self._read_piece, piece)
                piece = []
            if group.rows > PIECE_ROWS:
                yield from self._in_batches(group)
            else:
                piece.append(group)
        if piece:
            yield self._pool.submit(self._read_piece, piece)

    def _read_piece(self, groups: list[Group]) -> list[RowBlock]:
        has_details = self._wanted.details is not None  # which pages do not give
        if not has_details and (blocks := self._read_pages(groups)):
            return blocks
        return self._convert(self._table(groups, self._wanted.names()).to_batches(), groups[0].begin)

    def _read_pages(self, groups: list[Group]) -> list[RowBlock]:
        """Return rows with addresses that need no Arrow arrays; none if they do, or if a row may be bad."""
        ends = self._pages.read([group.number for group in groups])
        if ends is None:
            return []
        src, dst = ends
        if not self._wanted.times():
            return [RowBlock(src, dst, None)]
        blocks, begin = [], 0
        for batch in self._table(groups, self._wanted.times()).to_batches():
            with measured("parse"), arrow_errors(self._name, WHAT):
                times = times_of(arrays_of(batch, self._wanted.times()), self._wanted)
            if has_gaps(times):
                return []
            end = begin + len(batch)
            blocks.append(RowBlock(src[begin:end], dst[begin:end], times))
            begin = end
        return blocks if begin == len(src) else []  # A damaged file may have fewer times than addresses.

    def _table(self, groups: list[Group], columns: list[str]) -> Any:
        with arrow_errors(self._name, WHAT), measured("read"):
            file = self._open_file(self._metadata, read_dictionary=self._dictionaries(groups))
            return file.read_row_groups([group.number for group in groups], columns=columns, use_threads=False)

    def _in_batches(self, group: Group) -> Generator[Future[list[RowBlock]], None, None]:
        with arrow_errors(self._name, WHAT):
            dictionaries = self._dictionaries([group])
            file = self._open_file(self._metadata, buffer_size=_BUFFER, read_dictionary=dictionaries)
            batches = file.iter_batches(BATCH_ROWS, [group.number], self._wanted.names(), use_threads=False)
        begin = group.begin
        while True:
            with arrow_errors(self._name, WHAT), measured("read"):
                batch = next(batches, None)
            if batch is None:
                return
            yield self._pool.submit(self._convert, [batch], begin)
            begin += len(batch)

    def _dictionaries(self, groups: list[Group]) -> tuple[str, ...]:
        """Return the columns of text that are dictionaries throughout in all of these row groups."""
        described = [self._metadata.row_group(group.number) for group in groups]
        return tuple(
            name for name, i in self._texts.items() if all(_is_dictionary(group.column(i)) for group in described)
        )

    def _convert(self, batches: Sequence[Any], begin: int) -> list[RowBlock]:
        blocks = []
        for batch in batches:
            with measured("parse"), arrow_errors(self._name, WHAT):
                blocks.append(block_of(batch, self._wanted, begin))
            begin += len(batch)
        return blocks


def _is_dictionary(chunk: Any) -> bool:
    return bool(chunk.has_dictionary_page) and chunk.total_uncompressed_size <= _DICTIONARY_BYTES * chunk.num_values


class UnsupportedPage(Exception):  # noqa: N818  no error: it is left to pyarrow
    """A page is damaged, or of a form that is not known here."""


class Page(NamedTuple):
    kind: int
    values: int
    encoding: int
    begin: int
    end: int
    size: int  # decompressed


def pages_of(chunk: Bytes) -> Iterator[Page]:
    rows = np.empty((_AT_ONCE, len(Page._fields)), np.int64)
    at = 0
    while at < len(chunk):
        count, at = list_pages(chunk, at, rows)
        if count == 0:
            raise UnsupportedPage
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
        kind, size = fields[0, 1], fields[0, 3]
        about = 5 if kind == DATA else 7
        # Levels that are not runs have no length, and would be read wrongly.
        is_known = kind == DICTIONARY or (kind == DATA and fields[5, 3] == _RUNS)
        if not (is_known and 0 <= size <= len(chunk) - begin and fields[0, 2] >= 0 and fields[about, 1] >= 0):
            return count, at
        at = begin + size
        pages[count, 0], pages[count, 1], pages[count, 2] = kind, fields[about, 1], fields[about, 2]
        pages[count, 3], pages[count, 4], pages[count, 5] = begin, at, fields[0, 2]
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
        elif 4 <= kind <= 6:
            value, at = read_integer(data, at)
            outer, inner = (0, numbers[0]) if depth == 0 else (numbers[0], numbers[depth])
            if depth <= 1 and 0 <= outer < _FIELDS and 0 <= inner < _FIELDS:
                fields[outer, inner] = value
        elif kind == _BINARY:
            value, at = read_varint(data, at)
            if at < 0 or value > len(data) - at:
                return -1
            at += value
        elif kind not in (_TRUE, _FALSE):
            return -1
        if at < 0:
            return -1
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

    They are one run: twice a length and a level, or twice a number of bytes plus one and these, a bit for each level.
    Several runs, which are rare where no row is null, are left to pyarrow.
    """
    head, at = read_varint(levels, 0)
    if head == count << 1:
        return levels[at : at + 1].tobytes() == b"\1"
    packed = levels[at : at + (head >> 1)]
    if at < 0 or not head & 1 or 8 * len(packed) < count:
        return False
    return bool(np.unpackbits(packed, count=count, bitorder="little").all())


Narrow = NDArray[np.uint32]

_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_LARGEST = 64 << 20  # bytes of a page: a damaged header may say anything
_WIDEST = 32  # bits of an index


class PlainColumn(NamedTuple):
    number: int  # among the columns of a row group
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
        except (UnsupportedPage, OSError, ValueError, OverflowError, MemoryError):  # Sizes and places may be anything.
            self._is_common = False
            return None

    def _read(self, groups: Sequence[int], column: PlainColumn) -> Narrow:
        rows = [self._metadata.row_group(group).num_rows for group in groups]
        addresses = np.empty(sum(rows), np.uint32)
        begin = 0
        for group, count in zip(groups, rows, strict=True):
            _read_chunk(self._fetch(group, column), column, addresses[begin : begin + count])
            begin += count
        return addresses

    def _fetch(self, group: int, column: PlainColumn) -> Bytes:
        about = self._metadata.row_group(group).column(column.number)
        begin, size = about.data_page_offset, about.total_compressed_size
        if about.has_dictionary_page:
            begin = min(begin, about.dictionary_page_offset)
        if about.file_path or not (begin >= 0 and 0 <= size <= self._places.size - begin):
            raise UnsupportedPage
        with measured("read"), closing(self._places.open()) as file:
            file.seek(begin)
            data = np.frombuffer(file.read(size), np.uint8)
        if len(data) < size:
            raise UnsupportedPage
        return data


def _values(data: Bytes, page: Page, column: PlainColumn) -> tuple[Bytes, int]:
    """Return the bytes of a page, and where its values begin. None of them is null."""
    if page.size > _LARGEST:
        raise UnsupportedPage
    with measured("read"):
        part = _plain(data[page.begin : page.end], page.size)
    if page.kind == DICTIONARY or not column.nullable:
        return part, 0
    length = int.from_bytes(part[:4].tobytes(), "little")
    if 4 + length > len(part) or not have_values(part[4 : 4 + length], page.values):
        raise UnsupportedPage
    return part, 4 + length


def _plain(data: Bytes, size: int) -> Bytes:
    """Return the bytes of a page, decompressed to exactly this size, by the codec that its first bytes show.

    Snappy and gzip say how much there is. If it were less than `size`, pyarrow would return what memory held before.
    """
    from pyarrow import ArrowException, Codec

    head = data[:4].tobytes()
    if head == _ZSTD:
        codec = "zstd"
    elif head.startswith(_GZIP) and int.from_bytes(data[-4:].tobytes(), "little") == size:
        codec = "gzip"
    elif read_varint(data, 0)[0] == size:
        codec = "snappy"
    elif len(data) == size:
        return data
    else:
        raise UnsupportedPage
    try:
        return np.frombuffer(Codec(codec).decompress(data, size), np.uint8)
    except (ArrowException, OSError):
        raise UnsupportedPage from None


def _column(file: Any, name: str) -> PlainColumn | None:
    """Return a column of a file by its name; None if its type is none of those that are read here."""
    from pyarrow import types

    schema = file.schema_arrow
    if schema.names.count(name) != 1:
        return None
    kind = schema.field(name).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(kind) or types.is_large_string(kind)):
        return None
    columns = [file.metadata.schema.column(i) for i in range(len(file.metadata.schema))]
    places = [i for i, column in enumerate(columns) if column.path == name]
    if len(places) != 1:  # A column within another may have the same path.
        return None
    column = columns[places[0]]
    is_flat = column.max_repetition_level == 0 and column.max_definition_level <= 1
    if not is_flat or column.physical_type != "BYTE_ARRAY":
        return None
    return PlainColumn(places[0], column.max_definition_level == 1)


def _read_chunk(chunk: Bytes, column: PlainColumn, addresses: Narrow) -> None:
    """Write the addresses of a chunk, exactly as many as there are rows, or raise UnsupportedPage."""
    known: Narrow = np.empty(0, np.uint32)
    seen = 0
    for page in pages_of(chunk):
        if page.values > len(addresses) - seen and page.kind != DICTIONARY:
            raise UnsupportedPage
        data, at = _values(chunk, page, column)
        with measured("parse"):
            if page.kind == DICTIONARY:
                if page.values > len(data):
                    raise UnsupportedPage
                part = known = np.empty(page.values, np.uint32)
            else:
                part = addresses[seen : seen + page.values]
                seen += page.values
            if page.kind == DICTIONARY or page.encoding == PLAIN:
                is_read = parse_lengths(data, at, part)
            else:
                is_read = page.encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY) and take_runs(data, at, known, part)
            if not is_read:
                raise UnsupportedPage
    if seen != len(addresses):
        raise UnsupportedPage


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
def take_runs(data: Bytes, at: int, known: Narrow, addresses: Narrow) -> bool:
    """Write the values that indices name, in runs of one index or of packed ones, behind their width; False: damaged.

    A run begins with a number: twice its length, or twice its groups of eight plus one if they are packed.
    """
    begin, size, count = data.ctypes.data, len(data), len(addresses)
    if count == 0:
        return True
    if at >= size or data[at] > _WIDEST or len(known) == 0:
        return False
    width = int(data[at])
    at += 1
    mask, known_values, worst = np.uint64((1 << width) - 1), np.uint64(len(known)), np.uint64(0)
    i = 0
    while i < count:
        head, at = read_varint(data, at)
        if at < 0:
            return False
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


PARQUET = TableFormat("parquet", lambda head: head.startswith(MAGIC), ParquetReader, one_thread=False)
