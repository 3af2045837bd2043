"""Tables of delimited text: CSV, TSV, and logs that are such tables.

The delimiter is the one of tab, comma, semicolon and pipe that is most frequent in the first line; without any of them,
runs of blanks. The first line has the names of the columns, unless one of its fields is an address. Lines that begin
with # are comments; Zeek's `#fields` names the columns, anywhere in a file, so that logs can be concatenated, and the
character behind it is the delimiter, as `#separator` may be missing or spell it otherwise. A header that comes again is
no row. A byte order mark, carriage returns, blanks around fields and those before the lines of Zeek's head are dropped.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from superhosts.errors import InputError
from superhosts.sources.tables.delimitedloop import Bytes, walk_delimited
from superhosts.sources.tables.log import Log
from superhosts.sources.tables.logfields import check_ends, wanted_of
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.textlayout import BLANK, make_delimited, make_detail_roles, make_roles
from superhosts.sources.tables.textreader import Layout

MARK = b"\xef\xbb\xbf"  # byte order mark of UTF-8
DELIMITERS = "\t,;|"
BANNER_LINES = 3  # that may come before the names of the columns of a known log
_FIELDS = b"#fields"


@dataclass(frozen=True, eq=False)
class DelimitedLayout(Layout):
    """The columns of delimited text, and what is wanted of them."""

    grammar: DelimitedGrammar
    header: bytes = b""
    is_skipping: bool = False  # behind the last row, until a header comes

    def after(self, line: bytes) -> Layout:
        """Return what holds behind a comment, or behind the last row."""
        if is_fields(line):
            return self._renamed(line)
        if self.grammar.log.footer and line.startswith(self.grammar.log.footer.encode()):
            return replace(self, is_skipping=True)
        return self

    def _renamed(self, line: bytes) -> Layout:
        columns = self.grammar.fields_of(line)
        return self if columns == self.columns else self.grammar.layout(columns, b"")

    def skip(self, data: Bytes, start: int, stop: int) -> int:
        """Return where the next line begins that counts."""
        if not self.is_skipping:
            return start
        found = data[start:stop].tobytes().find(self.header) if self.header else -1
        return stop if found < 0 else start + found

    def is_whole(self, line: bytes) -> bool:
        """Return True if a line has all fields."""
        return len(split(line.decode("utf-8", "replace"), self.grammar.delimiter)) >= len(self.columns)


class DelimitedGrammar:
    """How a delimited text begins, and which of its columns are wanted."""

    def __init__(self, name: str, log: Log, options: TableOptions) -> None:
        self.name, self.log, self.options = name, log, options
        self.delimiter = log.delimiter

    def begin(self, head: bytes, *, ended: bool) -> tuple[int, Layout] | None:
        """Return the bytes before the first row, and its layout."""
        at = len(MARK) if head.startswith(MARK) else 0
        columns: list[str] = []
        while at < len(head):
            end = head.find(b"\n", at)
            if end < 0 and not ended:
                return None
            end = len(head) if end < 0 else end
            line = head[at:end].rstrip(b"\r")
            text = line.lstrip(b" \t")
            if is_fields(text):
                self.delimiter = chr(text[len(_FIELDS)])
                columns = self.fields_of(text)
            elif columns and text and not text.startswith(b"#"):
                is_indented = line.startswith(self.delimiter.encode()) and self.delimiter != BLANK
                return at, self.layout([""] * is_indented + columns, b"")
            elif text and not text.startswith(b"#") and not self._is_banner(line, head[end + 1 :]):
                return self._begin_at(at, min(end + 1, len(head)), line)
            at = end + 1
        if not ended:
            return None
        if columns:
            return len(head), self.layout(columns, b"")
        raise InputError("it has no line that names columns, and no row", file=self.name)

    def _is_banner(self, line: bytes, rest: bytes) -> bool:
        """Return True for a line before the one with the names, which comes soon."""
        lines = [line, *rest.split(b"\n")[:BANNER_LINES]]
        marked = [self.log.is_marked(split(text, self.delimiter or sniff(text))) for text in map(_decoded, lines)]
        return any(marked[1:]) and not marked[0]

    def _begin_at(self, start: int, end: int, line: bytes) -> tuple[int, Layout]:
        text = _decoded(line)
        self.delimiter = self.delimiter or sniff(text)
        fields = split(text, self.delimiter)
        if self.log.is_marked(fields) or (not self.log.columns and is_header(fields)):
            return end, self.layout(fields, line)
        return start, self.layout(self._unnamed(fields), b"")

    def _unnamed(self, fields: Sequence[str]) -> list[str]:
        """Return the columns of a table without a header: those that such a log has, else numbers."""
        lists = [columns.split() for columns in self.log.columns]
        columns = next((each for each in lists if len(each) == len(fields)), lists[0] if lists else [])[: len(fields)]
        return columns + [str(number) for number in range(len(columns) + 1, len(fields) + 1)]

    def layout(self, columns: Sequence[str], header: bytes) -> DelimitedLayout:
        """Return the layout of a table with these columns; InputError if it lacks what is needed."""
        check_ends(self.log, columns, self.options, self.name)
        wanted = wanted_of(self.log, columns, self.options, self.name)
        marks = "#" + self.log.footer[:1]
        shape = make_delimited(wanted, columns, self.delimiter, marks=marks, quote=self.log.quote, header=header)
        roles = make_roles(wanted), make_detail_roles(wanted)
        return DelimitedLayout(columns, bool(wanted.time), *roles, shape, walk_delimited, self, header)

    def fields_of(self, line: bytes) -> list[str]:
        """Return the names of a `#fields` line."""
        return split(_decoded(line), self.delimiter)[1:]


def is_fields(line: bytes) -> bool:
    """Return True for a line of Zeek that names columns: the character behind its first word can be a delimiter."""
    mark = line[len(_FIELDS) : len(_FIELDS) + 1]
    return line.startswith(_FIELDS) and mark.isascii() and not mark.isalnum() and mark not in b'\0\r":._-'


def _decoded(line: bytes) -> str:
    return line.rstrip(b"\r").decode("utf-8", "replace")


def sniff(line: str) -> str:
    """Return the delimiter of a line."""
    best = max(DELIMITERS, key=line.count)
    return best if best in line else BLANK


def split(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line, without the blanks around them."""
    if delimiter == BLANK:
        return line.split()
    try:
        fields: list[str] = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        fields = line.split(delimiter)
    return [each.strip() for each in fields]


def is_header(fields: Sequence[str]) -> bool:
    """Return True if a line has names of columns: letters, and no address."""
    return not any(map(is_address, fields)) and any(letter.isalpha() for each in fields for letter in each)


def is_address(text: str) -> bool:
    """Return True if a field is an address."""
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
