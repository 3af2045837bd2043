"""A column as it was given: integers, text or addresses, which rows are null, and how messages call it.

Producers of every kind (`reading.py`) make this of what they are given; consumers (`hosts.py`) make hosts and peers of
it. What a bad row is depends on the consumer, so a column checks nothing.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import Bytes, Rows, Words, parse_spans
from superhosts.core.columns.split import AddressColumn

Flags = NDArray[np.bool_]
SHOWN = 60  # characters of a value in a message


class Text(NamedTuple):
    """Text, in UTF-8: row i is data[starts[i]:ends[i]]."""

    data: Bytes
    starts: Rows
    ends: Rows

    def addresses(self) -> AddressColumn:
        """Return the addresses that the text says."""
        return AddressColumn(*parse_spans(*self))


class Binary(NamedTuple):
    """Bytes, which may be text or addresses (`binary.py`): row i is data[starts[i]:ends[i]]."""

    data: Bytes
    starts: Rows
    ends: Rows


Values = NDArray[Any] | Text | Binary | AddressColumn


@dataclass(frozen=True, slots=True)
class Column:
    """A column. If it has codes, row i is values[codes[i]]: a dictionary, or categories."""

    values: Values  # integers (n,) or (n, 2) high word first; text; bytes; addresses of both families
    name: str  # as messages call it
    valid: Flags | None = None  # False for null rows; None: there are none. Their values mean nothing
    codes: Rows | None = None
    first: int = 0  # the number of the first row, as messages count them

    def __len__(self) -> int:
        return len(self.codes) if self.codes is not None else count_of(self.values)

    def part(self, start: int, stop: int) -> Column:
        """Return the rows start..stop, which keep their numbers; the column itself if these are all."""
        if start == 0 and stop >= len(self):
            return self
        rows = slice(start, stop)
        valid = None if self.valid is None else self.valid[rows]
        if self.codes is not None:
            return replace(self, valid=valid, codes=self.codes[rows], first=self.first + start)
        return replace(self, values=_some(self.values, rows), valid=valid, first=self.first + start)

    def error_at(self, row: int, reason: str) -> str:
        """Return the message for a bad row."""
        place = row if self.codes is None else int(self.codes[row])
        return f"{self.name}, row {self.first + row}: {_shown(self.values, place)} {reason}"


def _some(values: Values, rows: slice) -> Values:
    """Return some of the values."""
    if isinstance(values, Text | Binary):
        return values._replace(starts=values.starts[rows], ends=values.ends[rows])
    if isinstance(values, AddressColumn):
        return AddressColumn(values.kinds[rows], values.words[rows])
    return values[rows]


def count_of(values: Values) -> int:
    """Return the number of values."""
    if isinstance(values, Text | Binary):
        return len(values.starts)
    return len(values.kinds if isinstance(values, AddressColumn) else values)


def in_one_piece(data: Bytes, starts: Rows, ends: Rows) -> tuple[Bytes, Rows]:
    """Return rows of text without gaps: their bytes, and where each begins and the last ends."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    if len(starts) and (starts[1:] == ends[:-1]).all():
        offsets[0], offsets[1:] = starts[0], ends
        return data, offsets
    sizes = ends - starts
    np.cumsum(sizes, out=offsets[1:])
    return data[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)], offsets


def both_valid(left: Flags | None, right: Flags | None) -> Flags | None:
    """Return which rows are null in neither column; None: all are not."""
    if left is None or right is None:
        return right if left is None else left
    return np.asarray(left & right)


def starting_at(column: Column, first: int) -> Column:
    """Return a column whose rows are counted from another number."""
    return replace(column, first=first)


def text_of(words: Words, kind: int) -> str:
    """Return an address as text."""
    number = int(words[0]) << 64 | int(words[1])
    return str(ipaddress.IPv4Address(number) if kind == 4 else ipaddress.IPv6Address(number))


def _shown(values: Values, row: int) -> str:
    """Return a value as messages show it."""
    if isinstance(values, Text | Binary):
        text = bytes(values.data[values.starts[row] : values.ends[row]]).decode(errors="replace")
        return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
    if isinstance(values, AddressColumn):
        return text_of(values.words[row], int(values.kinds[row])) if values.kinds[row] else "the value"
    return str(values[row])
