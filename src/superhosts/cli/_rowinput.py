"""What `superhosts rows` reads: a format, its columns, and the source that yields the rows."""

from __future__ import annotations

from dataclasses import replace

from superhosts.errors import UsageError
from superhosts.sources.base import Source
from superhosts.sources.input import STANDARD_INPUT, Input, PeekedStream, Stream
from superhosts.sources.tables.delimited import is_header, sniff, split
from superhosts.sources.tables.formats import is_text, table_format
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.rowbinary import RowBinaryReader, parse_schema
from superhosts.sources.tables.source import Opens, TableFormat, TableReader, TableSource
from superhosts.sources.tables.textrow import MARK

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
    """Rows on standard input."""

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
        """Return the source of its rows."""
        if self.format in (BINARY, NAMED_BINARY):
            binary = TableFormat(BINARY, "RowBinary", lambda _head: False, self._open_binary)
            return TableSource(self.plain(), self._noting_time(binary), self.options)
        found = table_format(OTHERS[self.format], b"")
        assert found is not None
        file = self._input or Input(STANDARD_INPUT)
        if self.format in HEADLESS:
            comma = "," if self.format == "CSV" else "\t"
            file = HeadedInput(f"{comma.join(field.name for field in self.fields)}\n".encode())
        return TableSource(file, self._noting_time(found), self.options)

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

    def _noting_time(self, format: TableFormat) -> TableFormat:
        """Return a format that notes whether its rows have a time."""

        def open(file: Opens, options: TableOptions) -> TableReader:
            reader = format.open(file, options)
            self.has_time = reader.has_time
            return reader

        return replace(format, open=open)


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
        """Return the line, and the bytes behind it."""
        return PeekedStream(self._header, super().open())
