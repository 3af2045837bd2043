"""The compiled loop over lines of delimited text, which looks only for the wanted fields of each line.

Why an own loop: general parsers make a column of every field and reach a tenth of its rate.

Fields are apart by one byte (comma, tab, semicolon, pipe) or by runs of blanks. A field that begins with a quote ends
at the next one that is not doubled, and may contain delimiters and newlines. A quote that is not closed within
`LONGEST_QUOTED` bytes is a character like others, so that a stray one does not swallow the rest of a file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at, number_at, set_number
from superhosts.sources.tables.textdetails import DetailRoles, read_details
from superhosts.sources.tables.textrow import (
    GOOD,
    LIMIT,
    LINES,
    PLACES,
    POSITION,
    ROWS,
    SKIPPED,
    STOP,
    WIDE,
    Roles,
    Rows,
    Tally,
    count_other,
    read_row,
)
from superhosts.sources.tables.textscan import find, find_either, spread

Bytes = NDArray[np.uint8]

LONGEST_QUOTED = 64 * 1024  # bytes of a field in quotes
MORE, FULL, DIRECTIVE = 0, 1, 2  # why a walk ends: no whole line is left, no room is left, or a line for the reader
_NEWLINE = np.uint64(0x0A0A0A0A0A0A0A0A)


class Delimited(NamedTuple):
    """How lines are divided, and which fields are wanted."""

    delimiter: int
    in_runs: int  # 1: several delimiters in a row are one, and those at the beginning of a line are none
    quote: int  # 0: quotes mean nothing
    comment: int  # lines that begin with this byte are for the reader (-1: none)
    special: int  # and with this one
    wanted: NDArray[np.int64]  # numbers of the fields, from 0, ascending
    slots: NDArray[np.int64]  # where each of them goes
    header: NDArray[np.uint8]  # the line with the names; where it comes again, it is no row


class Divided(NamedTuple):
    """The same as numbers, some of them addresses."""

    delimiter: int
    delimiters: np.uint64  # eight of them
    in_runs: int
    quote: int
    quotes: np.uint64
    wanted: int
    slots: int
    wanted_count: int


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
    """Return True if a line is the one with the names."""
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
def _find_fields(at: int, stop: int, final: bool, layout: Divided, places: int) -> tuple[int, int]:
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
            _put_place(places, number_at(layout.slots + 8 * count), begin, end or at)
            count += 1
            if count < layout.wanted_count:
                wanted = number_at(layout.wanted + 8 * count)
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
def _lacks_details_only(places: int, layout: Divided, found: int, first: int) -> bool:
    """Return True if the fields that a line does not have are slots of details, and note that they are missing."""
    for i in range(found, layout.wanted_count):
        slot = number_at(layout.slots + 8 * i)
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
    at, stop = base + tally[POSITION], base + tally[STOP]
    row, limit, lines = tally[ROWS], tally[LIMIT], tally[LINES]
    places, header = tally.ctypes.data + 8 * PLACES, layout.header.ctypes.data
    divided = Divided(
        layout.delimiter,
        spread(layout.delimiter),
        layout.in_runs,
        layout.quote,
        spread(layout.quote),
        layout.wanted.ctypes.data,
        layout.slots.ctypes.data,
        len(layout.wanted),
    )
    reason = MORE
    while at < stop:
        byte = byte_at(at)
        if row >= limit:
            reason = FULL
            break
        if byte == layout.comment or byte == layout.special:
            reason = DIRECTIVE
            break
        if byte == 10 or (byte == 13 and byte_at(at + 1) == 10):  # an empty line
            at += 1 + (byte == 13)
            lines += 1
            continue
        found, end = _find_fields(at, stop, final, divided, places)
        if found < 0:
            break
        is_whole = found == divided.wanted_count
        if details is not None:
            is_whole = is_whole or _lacks_details_only(places, divided, found, details.first)
        read = read_row(places, roles, is_whole)
        if read.status == GOOD:
            rows.kinds[row] = read.kind
            rows.src[row, 0] = read.src_high
            rows.src[row, 1] = read.src_low
            rows.dst[row, 0] = read.dst_high
            rows.dst[row, 1] = read.dst_low
            rows.time[row] = read.time
            if details is not None:
                rows.details[row] = read_details(places, details)
            tally[WIDE] += read.kind == 6
            row += 1
        elif read.status == SKIPPED or not _is_header(at, end, header, len(layout.header)):
            tally[LINES] = lines
            count_other(tally, read.status, at - base)
        lines += 1
        at = end + 1
    tally[POSITION] = at - base
    tally[ROWS], tally[LINES] = row, lines
    return reason
