"""`superhosts rows`: rows on standard input, rows of super hosts on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO

import numpy as np
import typer

from superhosts.cli._keys import key_for_sketches
from superhosts.cli._settings import make_settings
from superhosts.cli._signals import ENDING, Interruption
from superhosts.cli._summary import RunTotals, tell_end
from superhosts.cli.usage.traffic import RowOptions, Rows
from superhosts.core.columns.addresses import AddressColumn, packets_of, widened
from superhosts.core.columns.hosts import ends_of
from superhosts.core.notices import as_warning
from superhosts.core.pairs import PacketBlock, Window
from superhosts.core.text import counted
from superhosts.errors import InputError, OutputError, UsageError
from superhosts.output.console import tell
from superhosts.output.formats import FORMATS, RowWriter, check_columns, encode_length, encode_value
from superhosts.output.report import make_rows
from superhosts.output.streams import ClosedOutput, silence_stdout, stdout_error
from superhosts.pipeline.builder import WindowBuilder
from superhosts.pipeline.scan import Scan, scan_options
from superhosts.pipeline.settings import Settings
from superhosts.sources.base import Source
from superhosts.sources.input import STANDARD_INPUT, FileSource, Input, Opens
from superhosts.sources.stream import Stream
from superhosts.sources.tables.delimited import is_header, sniff, split
from superhosts.sources.tables.formats import is_text, table_format
from superhosts.sources.tables.mapping import resolve
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.rowbinary import (
    TEXT_WIDTH,
    Field,
    RowBinaryReader,
    RowBytes,
    parse_schema,
    read_length,
    walk,
)
from superhosts.sources.tables.source import TableFormat, TableReader, table_files
from superhosts.sources.tables.textrow import MARK
from superhosts.sources.tables.textscan import Places

# What is read: a format, its columns, and the source that yields the rows


BINARY, NAMED_BINARY = "RowBinary", "RowBinaryWithNamesAndTypes"
OTHERS = {  # formats of ClickHouse, and those of tables that read them
    "JSONEachRow": "jsonl",
    "CSV": "csv",
    "CSVWithNames": "csv",
    "TabSeparated": "csv",  # its reader finds out what separates values
    "TabSeparatedWithNames": "csv",
    "ArrowStream": "arrow",
}
ARROW = b"\xff\xff\xff\xff"  # before the first message of a stream
HEADLESS = ("CSV", "TabSeparated")  # without a line of names


class RowInput:
    def __init__(self, format: str | None, schema: str, options: TableOptions) -> None:
        self.options = replace(options, format=None)
        self._input: Input | None = None  # whose first bytes were looked at
        self.format = format or (BINARY if schema else self._recognise())
        if self.format not in (BINARY, NAMED_BINARY, *OTHERS):
            known = ", ".join((BINARY, NAMED_BINARY, *OTHERS))
            raise UsageError(f"--format {self.format}: no such format; use {known}")
        if self.format == BINARY and not schema:
            way = f"--schema 'src IPv4, dst IPv4', or send {NAMED_BINARY}"
            raise UsageError(f"--format {BINARY}: it does not say what its columns are: {way}")
        if schema and self.format not in (BINARY, *HEADLESS):
            raise UsageError(f"--schema: not with --format {self.format}, which has names")
        if self.format in HEADLESS and not schema:
            raise UsageError(f"--format {self.format}: give the names of its columns with --schema 'src, dst'")
        self.fields = parse_schema(schema, typed=self.format == BINARY) if schema else []
        self.has_time = False  # known once the source is read
        self.grouped = any(field.array for field in self.fields)
        if self.grouped and self.format != BINARY:
            raise UsageError(f"--schema: arrays only with --format {BINARY}")

    def open(self) -> Source:
        if self.format in (BINARY, NAMED_BINARY):
            binary = TableFormat(BINARY, "RowBinary", lambda _head: False, self._open_binary)
            return self._source(self.plain(), binary)
        found = table_format(OTHERS[self.format], b"")
        assert found is not None
        file = self._input or Input(STANDARD_INPUT)
        if self.format in HEADLESS:
            comma = "," if self.format == "CSV" else "\t"
            file = HeadedInput(f"{comma.join(field.name for field in self.fields)}\n".encode())
        return self._source(file, found)

    def plain(self) -> Input:
        """Return standard input as it is: RowBinary may happen to begin like compressed data."""
        return self._input or Input(STANDARD_INPUT, plain=True)

    def _recognise(self) -> str:
        """Return the format by the first bytes; waits for them."""
        self._input = Input(STANDARD_INPUT, plain=True)
        head = self._input.head()
        if head.startswith(ARROW):
            return "ArrowStream"
        if head.startswith(b"{"):
            return "JSONEachRow"
        return _named_text(head) or NAMED_BINARY

    def _open_binary(self, file: Opens, options: TableOptions) -> TableReader:
        return RowBinaryReader(file, options, self.fields)

    def _source(self, file: Input, format: TableFormat) -> Source:
        """Return the source of a table, which notes whether its rows have a time."""

        def open(file: Opens, options: TableOptions) -> TableReader:
            reader = format.open(file, options)
            self.has_time = reader.has_time
            return reader

        return FileSource(file, lambda _: table_files(replace(format, open=open), self.options))


def _named_text(head: bytes) -> str | None:
    """Return the format of text whose first line has names of columns; None if it is no such text.

    RowBinary begins with a number of columns and lengths of names: control characters, but for wide tables.
    """
    line, end, _ = head.removeprefix(MARK).partition(b"\n")
    if not end or not line.strip() or line[:1].isspace() or not is_text(head):
        return None
    text = line.rstrip(b"\r").decode("utf-8", "replace")
    delimiter = sniff(text)
    fields = split(text, delimiter)
    if len(fields) < 2 or not is_header(fields):
        return None
    return "TabSeparatedWithNames" if delimiter == "\t" else "CSVWithNames"


class HeadedInput(Input):
    """Standard input with a line of names before it."""

    def __init__(self, header: bytes) -> None:
        super().__init__(STANDARD_INPUT)
        self._header = header

    def open(self) -> Stream:
        stream = super().open()
        stream.unread(self._header)
        return stream


# Groups: every row is one, its ends are arrays, and its answer is one value, an array of tuples of the columns that are
# asked for. ClickHouse calls an executable function with blocks of such rows, and wants as many values back, in order.
# With chunks, a line with the number of rows is before each block, so that one process answers many blocks.


def answer_groups(
    given: RowInput, settings: Settings, columns: Sequence[str], stream: BinaryIO, *, chunks: bool
) -> None:
    """Write an array of super hosts for every row, until the input ends."""
    builder = WindowBuilder(settings)
    groups = Groups(given)
    for count in groups.chunks() if chunks else [None]:
        for block in groups.rows(count):
            for batch in block:
                builder.update(0, batch)
            found = make_rows(None, builder.close(0, Window(0, 0)).found)
            values = (encode_value(name, row[name]) for row in found for name in columns)
            stream.write(encode_length(len(found)) + b"".join(values))
        stream.flush()
    if groups.dropped:
        rows = counted(groups.dropped, "pair was", "pairs were")
        tell(as_warning(f"{rows} not counted: an end is no address, or the ends are of different families"))


class Groups:
    """Rows of RowBinary in which source and destination are arrays of the same length."""

    def __init__(self, given: RowInput) -> None:
        self._input = given.plain()
        self._stream = self._input.open()
        self._bytes = RowBytes(self._stream)
        self._fields = given.fields
        self._row = 0
        self.dropped = 0  # pairs that are none
        names = [field.name for field in self._fields]
        mapping = resolve(given.options.map, names, self._input.name)
        self._ends = []
        for column in (mapping.src, mapping.dst):
            assert column is not None
            field = self._fields[names.index(column.name)]
            if not field.array or not field.is_address:
                raise InputError(f"column {field.name} is no array of addresses", file=self._input.name)
            self._ends.append(names.index(column.name))

    def chunks(self) -> Iterator[int]:
        """Yield the number of rows of each chunk, once its line is there."""
        while self._bytes.has(1):  # waits for it
            line = bytearray()
            while not line.endswith(b"\n"):
                line += self._take(1)
                if len(line) > 20 or not line.strip().isdigit():
                    raise self._error(f"begins with {bytes(line)!r}, where a line with a number of rows is expected")
            yield int(line)

    def rows(self, count: int | None) -> Iterator[PacketBlock]:
        while self._bytes.has(1) if count is None else count > 0:
            self._row += 1
            ends = [self._value(field, number in self._ends) for number, field in enumerate(self._fields)]
            src, dst = (ends[number] for number in self._ends)
            assert src is not None and dst is not None  # noqa: PT018
            if len(src.kinds) != len(dst.kinds):
                raise self._error(
                    f"has {len(src.kinds):,} sources and {len(dst.kinds):,} destinations: one for each pair"
                )
            block, dropped = packets_of(src, dst, np.zeros(len(src.kinds), np.int64))
            self.dropped += len(dropped)
            yield block
            count = None if count is None else count - 1

    def _value(self, field: Field, wanted: bool) -> AddressColumn | None:
        """Read a value of a row, and return its addresses if they are wanted."""
        count = read_length(self._bytes, self._input.name) if field.array else 1
        if field.nullable and self._take(1) == b"\1":
            return None
        if field.width == TEXT_WIDTH:
            data, places = self._texts(count)
        else:
            data = np.frombuffer(bytearray(self._take(count * field.width)), np.uint8)
            begins = np.arange(0, count * field.width, field.width)
            places = np.stack([begins, begins + field.width], axis=1)
        return widened(ends_of(field.column(data, places))) if wanted else None

    def _texts(self, count: int) -> tuple[np.ndarray, Places]:
        places = np.empty((1, count, 2), np.int64)
        zero = np.zeros(1, np.int64)
        while True:
            data = self._bytes.data()
            found, used, _ = walk(data, zero, np.zeros(1, np.bool_), zero, places).tolist()
            if found == count:
                taken = np.frombuffer(bytearray(self._take(used)), np.uint8)
                return taken, places[0]
            if not self._bytes.more():
                raise self._error("is cut off by the end of the input")

    def _take(self, count: int) -> bytes:
        if not self._bytes.has(count):
            raise self._error("is cut off by the end of the input")
        taken = self._bytes.data()[:count].tobytes()
        self._bytes.take(count)
        return taken

    def _error(self, why: str) -> InputError:
        return InputError(f"row {max(self._row, 1):,} {why}", file=self._input.name, offset=self._bytes.taken)


PIPE_BYTES = 1 << 20  # that a pipe should hold: the default of 64 KiB makes sixteen times as many small reads


def rows(options: Rows) -> None:
    settings = make_settings(options)
    columns = check_columns(options.columns)
    given = RowInput(options.format, options.schema, options.tables)
    out = _written(options, given)
    if isinstance(sys.stdout, ClosedOutput):
        raise OutputError("standard output is closed")
    settings = replace(settings, key=key_for_sketches(options.key_file, saves=False))
    _widen_pipe()
    stream = sys.stdout.buffer
    with suppress(BrokenPipeError):  # the reader wants no more
        try:
            if given.grouped:
                answer_groups(given, settings, columns, stream, chunks=options.chunks)
            else:
                _answer(given, settings, RowWriter(out, columns, stream))
        except BrokenPipeError:
            silence_stdout()
            raise
        except OSError as error:
            silence_stdout()
            raise stdout_error(error) from error


def _written(options: RowOptions, given: RowInput) -> str:
    if options.chunks and not given.grouped:
        raise UsageError("--chunks: only with arrays in --schema: other rows have one answer, at their end")
    if given.grouped and options.out not in (None, given.format):
        raise UsageError(f"--out {options.out}: arrays are answered in {given.format}")
    out = options.out or ("JSONEachRow" if given.format == "ArrowStream" else given.format)
    if out == "ArrowStream":
        raise UsageError("--out ArrowStream: rows are not written in it; use RowBinary or JSONEachRow")
    if out not in FORMATS:
        raise UsageError(f"--out {out}: no such format; use {', '.join(FORMATS)}")
    return out


def _answer(given: RowInput, settings: Settings, writer: RowWriter) -> None:
    source = given.open()
    run = Scan([source], settings, replace(scan_options([source], settings, joins_short=False), leaves_open=False))
    with Interruption(run.stop, numbers=ENDING) as interruption:
        for result in run:
            if interruption.number is None:  # else some of the rows are missing
                writer.write(make_rows(result.window if given.has_time else None, result.found))
            del result  # frees its cubes
        if interruption.number is None:
            writer.write([])  # the header, if no window came
    tell_end(RunTotals(run.counters, 0.0, 0, ""), quiet=True)
    if interruption.number is not None:
        raise typer.Exit(128 + interruption.number)


def _widen_pipe() -> None:
    """Let a pipe on standard input hold more, where the system allows it."""
    with suppress(ImportError, OSError, AttributeError, ValueError):
        import fcntl

        fcntl.fcntl(sys.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
