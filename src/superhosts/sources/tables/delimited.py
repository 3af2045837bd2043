"""Tables of delimited text: CSV, TSV, and logs that are such tables.

The delimiter is the one of tab, comma, semicolon and pipe that is most frequent in the first line; without any of them,
runs of blanks. The first line has the names of the columns, unless one of its fields is an address. Lines that begin
with # are comments; Zeek's `#fields` names the columns, anywhere in a file, so that logs can be concatenated, and the
character behind it is the delimiter, as `#separator` may be missing or spell it otherwise. A header that comes again is
no row. A byte order mark, carriage returns, blanks around fields and those before the lines of Zeek's head are dropped.

The compiled loop (`walk_delimited`) looks only for the wanted fields of each line. A field that begins with a quote
ends at the next one that is not doubled, and may contain delimiters and newlines. A quote that is not closed within
`LONGEST_QUOTED` bytes is a character like others, so that a stray one does not swallow the rest of a file.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import NamedTuple

import numpy as np

from superhosts.errors import InputError
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at, number_at, set_number
from superhosts.sources.tables import textrow
from superhosts.sources.tables.details import DetailRoles, bytes_table, numbers_table, read_details
from superhosts.sources.tables.knownlogs import Log
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.textreader import Layout
from superhosts.sources.tables.textrow import (
    Bytes,
    Roles,
    Rows,
    Tally,
    count_other,
    make_detail_roles,
    make_roles,
    read_row,
)
from superhosts.sources.tables.textscan import find, find_either, spread
from superhosts.sources.tables.wanted import check_ends, wanted_of

DELIMITERS = "\t,;|"
BLANK = " "  # as a delimiter: runs of blanks
BANNER_LINES = 3  # that may come before the names of the columns of a known log
_FIELDS = b"#fields"
LONGEST_QUOTED = 64 * 1024  # bytes of a field in quotes
_NEWLINE = np.uint64(0x0A0A0A0A0A0A0A0A)


@dataclass(frozen=True, eq=False)
class DelimitedLayout(Layout):
    grammar: DelimitedGrammar
    header: bytes = b""
    is_skipping: bool = False  # behind the last row, until a header comes

    def after(self, line: bytes) -> Layout:
        if is_fields(line):
            columns = self.grammar.fields_of(line)
            return self if columns == self.columns else self.grammar.layout(columns, b"")
        if self.grammar.log.footer and line.startswith(self.grammar.log.footer.encode()):
            return replace(self, is_skipping=True)
        return self

    def skip(self, data: Bytes, start: int, stop: int) -> int:
        if not self.is_skipping:
            return start
        found = data[start:stop].tobytes().find(self.header) if self.header else -1
        return stop if found < 0 else start + found

    def is_whole(self, line: bytes) -> bool:
        return len(split(line.decode("utf-8", "replace"), self.grammar.delimiter)) >= len(self.columns)


class DelimitedGrammar:
    def __init__(self, name: str, log: Log, options: TableOptions) -> None:
        self.name, self.log, self.options = name, log, options
        self.delimiter = log.delimiter

    def begin(self, head: bytes, ended: bool) -> tuple[int, Layout] | None:
        at = len(textrow.MARK) if head.startswith(textrow.MARK) else 0
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
        places = sorted((columns.index(name), slot) for slot, name in enumerate(wanted.names()))
        # One column that means two things is found once: the loop wants ascending numbers.
        assert len({place for place, _ in places}) == len(places)
        names = header.rstrip(b"\r\n")
        in_runs = self.delimiter == BLANK
        quote = 0 if in_runs or not self.log.quote else ord(self.log.quote)
        shape = Delimited(
            ord(self.delimiter),
            spread(ord(self.delimiter)),
            int(in_runs),
            quote,
            spread(quote),
            ord(self.log.footer[0]) if self.log.footer else -1,
            numbers_table(tuple(places)).ctypes.data,
            len(places),
            bytes_table(names).ctypes.data,
            len(names),
        )
        roles = make_roles(wanted), make_detail_roles(wanted)
        return DelimitedLayout(columns, bool(wanted.time), *roles, shape, walk_delimited, self, header)

    def fields_of(self, line: bytes) -> list[str]:
        return split(_decoded(line), self.delimiter)[1:]


def is_fields(line: bytes) -> bool:
    """Return True for a line of Zeek that names columns: the character behind its first word can be a delimiter."""
    mark = line[len(_FIELDS) : len(_FIELDS) + 1]
    return line.startswith(_FIELDS) and mark.isascii() and not mark.isalnum() and mark not in b'\0\r":._-'


def _decoded(line: bytes) -> str:
    return line.rstrip(b"\r").decode("utf-8", "replace")


def sniff(line: str) -> str:
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
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


class Delimited(NamedTuple):
    """How lines are divided, and which fields are wanted."""

    delimiter: int
    delimiters: np.uint64  # eight of them
    in_runs: int  # 1: several delimiters in a row are one, and those at the beginning of a line are none
    quote: int  # 0: quotes mean nothing
    quotes: np.uint64
    special: int  # lines that begin with this byte, or with #, are for the reader (-1: with # only)
    wanted: int  # address of two numbers for each wanted field: its number, from 0, ascending, and its slot
    wanted_count: int
    header: int  # address of the line with the names; where it comes again, it is not a row
    header_length: int


@compiled
def _end_of_quoted(at: int, stop: int, quotes: np.uint64) -> int:
    """Return the place of the quote that ends a field whose text begins at `at`; 0 if it is not there."""
    stop = min(stop, at + LONGEST_QUOTED)
    while at < stop:
        at = find(at, stop, quotes)
        if at == stop:
            return 0
        if at + 1 < stop and byte_at(at + 1) == byte_at(at):
            at += 2
        else:
            return at
    return 0


@compiled
def _is_header(begin: int, end: int, header: int, length: int) -> bool:
    if length == 0 or end - begin < length or end - begin > length + 1:  # one more: a carriage return
        return False
    i = 0
    while i < length and byte_at(begin + i) == byte_at(header + i):
        i += 1
    return i == length


@compiled
def _skip_line(at: int, stop: int, quotes: np.uint64) -> int:
    """Return the end of the line that goes on at `at`, behind a field; 0 if there are quotes before it."""
    if quotes == np.uint64(0):
        return find(at, stop, _NEWLINE)
    at = find_either(at, stop, _NEWLINE, quotes)
    return at if byte_at(at) == 10 else 0


@compiled
def _put_place(places: int, slot: int, begin: int, end: int) -> None:
    """Note where a field lies, without the blanks around it."""
    while end > begin and byte_at(end - 1) <= 32:
        end -= 1
    while begin < end and byte_at(begin) <= 32:
        begin += 1
    set_number(places + 16 * slot, begin)
    set_number(places + 16 * slot + 8, end)


@compiled
def _find_fields(at: int, stop: int, final: bool, layout: Delimited, places: int) -> tuple[int, int]:
    """Note the places of the wanted fields of the line at `at`; return how many there are and where the line ends.

    (-1, at) if a field in quotes may go on behind `stop`.
    """
    field, count, start = 0, 0, at
    wanted = number_at(layout.wanted)
    while True:
        while layout.in_runs and byte_at(at) == layout.delimiter:
            at += 1
        begin, end = at, 0
        if layout.quotes and byte_at(at) == layout.quote:
            end = _end_of_quoted(at + 1, stop, layout.quotes)
            if end:
                begin, at = at + 1, end + 1
            elif not final and stop - at < LONGEST_QUOTED:
                return -1, start
        at = find_either(at, stop, layout.delimiters, _NEWLINE)
        if field == wanted:
            _put_place(places, number_at(layout.wanted + 16 * count + 8), begin, end or at)
            count += 1
            if count < layout.wanted_count:
                wanted = number_at(layout.wanted + 16 * count)
            else:
                wanted = -1
                newline = _skip_line(at, stop, layout.quotes)
                if newline:
                    return count, newline
        if byte_at(at) == 10:
            return count, at
        at += 1
        field += 1


@compiled
def _lacks_details_only(places: int, layout: Delimited, found: int, first: int) -> bool:
    """Return True if the fields that a line does not have are slots of details, and note that they are missing."""
    for i in range(found, layout.wanted_count):
        slot = number_at(layout.wanted + 16 * i + 8)
        if slot < first:
            return False
        set_number(places + 16 * slot, 0)
    return True


@compiled
def walk_delimited(
    data: Bytes, final: bool, layout: Delimited, roles: Roles, details: DetailRoles | None, tally: Tally, rows: Rows
) -> int:
    """Read the lines from tally[POSITION] to tally[STOP], which lies behind a newline; return why it ends.

    `final`: no bytes come behind those.
    """
    base = data.ctypes.data
    at, stop = base + tally[textrow.POSITION], base + tally[textrow.STOP]
    row, limit, lines = tally[textrow.ROWS], tally[textrow.LIMIT], tally[textrow.LINES]
    places = tally.ctypes.data + 8 * textrow.PLACES
    reason = textrow.MORE
    while at < stop:
        byte = byte_at(at)
        if row >= limit:
            reason = textrow.FULL
            break
        if byte == 35 or byte == layout.special:  # #
            reason = textrow.DIRECTIVE
            break
        if byte == 10 or (byte == 13 and byte_at(at + 1) == 10):  # an empty line
            at += 1 + (byte == 13)
            lines += 1
            continue
        found, end = _find_fields(at, stop, final, layout, places)
        if found < 0:
            break
        is_whole = found == layout.wanted_count
        if details is not None:
            is_whole = is_whole or _lacks_details_only(places, layout, found, details.first)
        read = read_row(places, roles, is_whole)
        if read.status == textrow.GOOD:
            rows.kinds[row] = read.kind
            rows.src[row, 0] = read.src_high
            rows.src[row, 1] = read.src_low
            rows.dst[row, 0] = read.dst_high
            rows.dst[row, 1] = read.dst_low
            rows.time[row] = read.time
            if details is not None:
                rows.details[row] = read_details(places, details)
            tally[textrow.WIDE] += read.kind == 6
            row += 1
        elif read.status == textrow.SKIPPED or not _is_header(at, end, layout.header, layout.header_length):
            tally[textrow.LINES] = lines
            count_other(tally, read.status, at - base)
        lines += 1
        at = end + 1
    tally[textrow.POSITION] = at - base
    tally[textrow.ROWS], tally[textrow.LINES] = row, lines
    return reason
