"""`superhosts rows`: rows on standard input, rows of super hosts on standard output."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, BinaryIO

import click
import numpy as np

from superhosts.cli._keys import key_for_sketches
from superhosts.cli._settings import make_settings
from superhosts.cli._signals import ENDING, Interruption
from superhosts.cli._summary import RunTotals, tell_end
from superhosts.cli.usage.traffic import Rows
from superhosts.core.columns.addresses import AddressColumn, packets_of, widened
from superhosts.core.notices import as_warning
from superhosts.core.pairs import Window
from superhosts.core.text import counted, setting
from superhosts.errors import InputError, OutputError, UsageError, import_extra
from superhosts.output.console import tell
from superhosts.output.formats import RowWriter, arrow_groups, check_columns
from superhosts.output.report import make_rows
from superhosts.output.streams import ClosedOutput, silence_stdout, stdout_error
from superhosts.pipeline.builder import WindowBuilder
from superhosts.pipeline.scan import Scan, scan_options
from superhosts.pipeline.settings import Settings
from superhosts.sources.base import Source
from superhosts.sources.input import STANDARD_INPUT, FileSource, Input
from superhosts.sources.stream import Stream
from superhosts.sources.tables.arrow import StreamFile, addresses_of, arrow_errors
from superhosts.sources.tables.delimited import is_header, sniff, split
from superhosts.sources.tables.formats import is_text, table_format
from superhosts.sources.tables.mapping import resolve
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import table_files
from superhosts.sources.tables.textrow import MARK

# What is read: a format, its columns, and the source that yields the rows

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
# A name, perhaps in quotes, and perhaps a type behind it
_COLUMN = re.compile(r"""(?:`([^`]+)`|"([^"]+)"|([^\s:,]+))[\s:]*((?:[^,()]|\([^()]*\))*)(?:,|$)""")


def row_source(format: str | None, schema: str, options: TableOptions) -> tuple[str, Source]:
    """Return the format of the rows on standard input and their source. Without a format the first bytes say it."""
    if schema and format is None:
        raise UsageError(f"{setting('schema', schema)}: of which format? choose --format {' or '.join(HEADLESS)}")
    file = Input(STANDARD_INPUT)
    format = format or _recognised(file)
    if schema and format not in HEADLESS:
        raise UsageError(f"--schema: not with --format {format}, which has names")
    if format in HEADLESS:
        if not schema:
            raise UsageError(f"--format {format}: give the names of its columns with --schema 'src, dst'")
        comma = "," if format == "CSV" else "\t"
        file = HeadedInput(f"{comma.join(names_in(schema))}\n".encode())
    found = table_format(OTHERS[format], b"")
    assert found is not None
    return format, FileSource(file, lambda _: table_files(found, replace(options, format=None)))


def _recognised(file: Input) -> str:
    """Return the format by the first bytes; waits for them."""
    head = file.head()
    if head.startswith(ARROW):
        return "ArrowStream"
    if head.startswith(b"{"):
        return "JSONEachRow"
    found = _named_text(head)
    if found is None:
        what = "its rows are in no format that is recognised" if head else "is empty"
        raise InputError(f"{what}; --format says which it is: {', '.join(OTHERS)}", file=file.name)
    return found


def names_in(schema: str) -> list[str]:
    """Return the names of columns in a text like `src, dst` or `src IPv4, dst IPv4`: the types do not matter."""
    found = [match[1] or match[2] or match[3] for match in _COLUMN.finditer(schema)]
    if schema and not found:
        raise UsageError(f"{setting('schema', schema)}: no column; write it like 'src, dst, time'")
    for name in found:
        if found.count(name) > 1:
            raise UsageError(f"{setting('schema', schema)}: two columns {name!r}; give them different names")
    return found


def _named_text(head: bytes) -> str | None:
    """Return the format of text whose first line has names of columns; None if it is no such text."""
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
# A line with the number of rows is before each block (a whole Arrow stream), so that one process answers many blocks.


def answer_groups(settings: Settings, options: TableOptions, columns: Sequence[str], out: BinaryIO) -> None:
    """Write an array of super hosts for every row, block by block, until the input ends."""
    builder = WindowBuilder(settings)
    given = Input(STANDARD_INPUT, plain=True)
    with closing(given.open()) as stream:
        file, row, dropped = StreamFile(stream), 0, 0
        file.rewind()  # nothing is read twice
        while line := _chunk_line(file, given.name):
            groups = []
            for src, dst in _groups(file, options, given.name, row):
                block, others = packets_of(src, dst, np.zeros(len(src.kinds), np.int64))
                dropped += len(others)
                for batch in block:
                    builder.update(0, batch)
                groups.append(make_rows(None, builder.close(0, Window(0, 0)).found))
            if len(groups) != int(line):
                raise InputError(
                    f"a chunk has {counted(len(groups), 'row')}, and its first line says {int(line):,}", file=given.name
                )
            row += len(groups)
            out.write(arrow_groups(groups, columns))
            out.flush()
    if dropped:
        rows = counted(dropped, "pair was", "pairs were")
        tell(as_warning(f"{rows} not counted: an end is not an address, or the ends are of different families"))


def _chunk_line(file: StreamFile, name: str) -> bytes:
    """Return the line before a chunk, which is the number of its rows; b"" at the end of the input. Waits for it."""
    line = b""
    while not line.endswith(b"\n") and (byte := file.read(1)):
        line += byte
        if len(line) > 20 or not line.strip().isdigit():
            raise InputError(f"expected the number of rows, found {line!r}", file=name)
    return line


def _groups(
    file: StreamFile, options: TableOptions, name: str, first: int
) -> Iterator[tuple[AddressColumn, AddressColumn]]:
    """Yield the sources and the destinations of each row of an Arrow stream, of which `first` rows come before."""
    arrow = import_extra("ArrowStream", "tables", "pyarrow")
    with arrow_errors(name, "Arrow stream"):
        reader = arrow.ipc.open_stream(file)
        mapping = resolve(options.map, reader.schema.names, name)
        for batch in reader:
            batch.validate(full=True)
            src, dst = (_lists(batch, column.name, name) for column in (mapping.src, mapping.dst) if column is not None)
            for i, (sources, destinations) in enumerate(zip(src, dst, strict=True)):
                counts = len(sources.kinds), len(destinations.kinds)
                if counts[0] != counts[1]:
                    found = f"{counts[0]:,} sources and {counts[1]:,} destinations: one for each pair"
                    raise InputError(f"row {first + i + 1:,} has {found}", file=name)
                yield sources, destinations
            first += len(batch)


def _lists(batch: Any, column: str, name: str) -> Iterator[AddressColumn]:
    """Yield the addresses of each row of a column of lists."""
    array = batch.column(column)
    if not str(array.type).startswith(("list<", "large_list<")):
        raise InputError(f"column {column} is {array.type}, which is not an array of addresses", file=name)
    ends = widened(addresses_of(array.flatten(), column))
    at = 0
    for count in array.value_lengths().fill_null(0).to_pylist():
        yield AddressColumn(ends.kinds[at : at + count], ends.words[at : at + count])
        at += count


PIPE_BYTES = 1 << 20  # that a pipe should hold: the default of 64 KiB makes sixteen times as many small reads


def rows(options: Rows) -> None:
    settings = make_settings(options)
    columns = check_columns(options.columns)
    if options.chunks and (options.schema or not {options.format, options.out} <= {None, "ArrowStream"}):
        raise UsageError("--chunks: only with --format and --out ArrowStream, and without --schema")
    if not options.chunks:
        given, source = row_source(options.format, options.schema, options.tables)
        out = options.out or ("JSONEachRow" if given == "ArrowStream" else given)
    if isinstance(sys.stdout, ClosedOutput):
        raise OutputError("standard output is closed")
    settings = replace(settings, key=key_for_sketches(options.key_file, saves=False))
    _widen_pipe()
    stream = sys.stdout.buffer
    with suppress(BrokenPipeError):  # the reader wants no more
        try:
            if options.chunks:
                answer_groups(settings, options.tables, columns, stream)
            else:
                _answer(source, settings, RowWriter(out, columns, stream))
        except BrokenPipeError:
            silence_stdout()
            raise
        except OSError as error:
            silence_stdout()
            raise stdout_error(error) from error


def _answer(source: Source, settings: Settings, writer: RowWriter) -> None:
    run = Scan([source], settings, scan_options([source], settings, joins_short=False)._replace(leaves_open=False))
    with Interruption(run.stop, numbers=ENDING) as interruption:
        for result in run:
            if interruption.number is None:  # else some of the rows are missing
                writer.write(make_rows(result.window, result.found))
            del result  # frees its cubes
        if interruption.number is None:
            writer.write([])  # the header, if no window came
    tell_end(RunTotals(run.counters, 0.0, 0, ""), quiet=True)
    if interruption.number is not None:
        raise click.exceptions.Exit(128 + interruption.number)


def _widen_pipe() -> None:
    """Let a pipe on standard input hold more, where the system allows it."""
    with suppress(ImportError, OSError, AttributeError, ValueError):
        import fcntl

        fcntl.fcntl(sys.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
