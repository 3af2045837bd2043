"""A column as it was given: integers, text or addresses, which rows are null, and how messages call it.

Producers of every kind (`readers.py`) make this of what they are given; consumers (`hosts.py`) make hosts and peers of
it. What a bad row is depends on the consumer, so a column checks nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn, Bytes, Rows, parse_spans, taken, widened
from superhosts.core.pairs import MAPPED
from superhosts.core.text import SURROGATES

# Arrow, pandas and memory maps give read-only memory. numba has a type of its own for read-only arrays and would
# compile every loop once more for it, seconds on the first call. Loops over columns only read them, so they get an
# array that does not say so.


class _Memory:
    """Memory of an owner, as NumPy takes it. The array keeps this object, and with it the owner."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


def array_at(address: int, count: int, dtype: Any, owner: Any) -> NDArray[Any]:
    """Return `count` values at an address in memory that is there as long as `owner`."""
    kind = np.dtype(dtype)
    return np.asarray(_Memory(address, (count,), kind, owner)) if count else np.empty(0, kind)


def readable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the values of an array in one piece of memory, copied only if they are scattered."""
    whole = np.ascontiguousarray(array)
    if not whole.size:
        return np.empty(whole.shape, whole.dtype)
    if whole.flags.writeable:
        return whole
    return np.asarray(_Memory(whole.ctypes.data, whole.shape, whole.dtype, whole))


Flags = NDArray[np.bool_]
SHOWN = 60  # characters of a value in a message
_NEW_LINE = 10


class Text(NamedTuple):
    """Text, in UTF-8, or bytes: row i is data[starts[i]:ends[i]]."""

    data: Bytes
    starts: Rows
    ends: Rows
    is_binary: bool = False  # a row of 4 or 16 bytes may be an address in network order

    def addresses(self, threads: int | None = None) -> AddressColumn:
        """Return the rows as addresses. Sixteen bytes that are an address as text are text: no others look like it."""
        kinds, words = parse_spans(self.data, self.starts, self.ends, threads)
        if self.is_binary:
            lengths = self.ends - self.starts
            for size in (4, 16):
                rows = np.flatnonzero((lengths == size) & ((kinds == 0) | (size == 4)))
                kinds[rows], words[rows] = from_packed(self.data[self.starts[rows, None] + np.arange(size)])
        return AddressColumn(kinds, words)

    def part(self, rows: Any) -> Text:
        return self._replace(starts=self.starts[rows], ends=self.ends[rows])


def in_a_row(data: NDArray[Any], sizes: Any) -> Text:
    """Return texts of these sizes, which follow each other."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return Text(data, ends - sizes, ends)


def text_of(values: Sequence[str | bytes]) -> Text:
    """Return strings, or strings and bytes, as a column. Strings are joined and encoded at once."""
    if all(issubclass(kind, str) for kind in set(map(type, values))):
        data = readable(np.frombuffer("\n".join(values).encode(errors=SURROGATES), np.uint8))  # type: ignore[arg-type]
        breaks = np.flatnonzero(data == _NEW_LINE)
        if len(breaks) + 1 == len(values):  # else a string has a line break itself
            return Text(data, np.concatenate(([0], breaks + 1)), np.append(breaks, len(data)))
    pieces = [each.encode(errors=SURROGATES) if isinstance(each, str) else bytes(each) for each in values]
    return in_a_row(readable(np.frombuffer(b"".join(pieces), np.uint8)), np.array(list(map(len, pieces)), np.int64))


Values = NDArray[Any] | Text | AddressColumn


@dataclass(frozen=True, slots=True)
class Column:
    """A column. If it has codes, row i is values[codes[i]]: a dictionary, or categories."""

    values: Values  # integers (n,) or (n, 2) high word first; text; addresses of both families
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
        values = self.values.part(rows) if isinstance(self.values, Text) else taken(self.values, rows)
        return replace(self, values=values, valid=valid, first=self.first + start)

    def error_at(self, row: int, reason: str) -> str:
        place = row if self.codes is None else int(self.codes[row])
        return f"{self.name}, row {self.first + row}: {_shown(self.values, place)} {reason}"


def count_of(values: Values) -> int:
    if isinstance(values, Text):
        return len(values.starts)
    return len(values.kinds if isinstance(values, AddressColumn) else values)


def both_valid(left: Flags | None, right: Flags | None) -> Flags | None:
    if left is None or right is None:
        return right if left is None else left
    return np.asarray(left & right)


def _shown(values: Values, row: int) -> str:
    if isinstance(values, Text):
        text = bytes(values.data[values.starts[row] : values.ends[row]]).decode(errors="replace")
        return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
    if isinstance(values, AddressColumn):
        number = int(values.words[row, 0]) << 64 | int(values.words[row, 1])
        form = {4: ipaddress.IPv4Address, 6: ipaddress.IPv6Address}.get(int(values.kinds[row]))
        return "the value" if form is None else str(form(number))
    return str(values[row])


def from_packed(packed: NDArray[Any]) -> AddressColumn:
    """Return rows of 4 or 16 bytes (n, 4) or (n, 16) as addresses. IPv4-mapped IPv6 is IPv4."""
    rows: Bytes = readable(packed)
    if rows.shape[1] == 4:
        return widened(rows.view(">u4")[:, 0].astype(np.uint32))
    words = rows.view(">u8").astype(np.uint64)
    kinds = np.full(len(words), 6, np.uint8)
    mapped = np.flatnonzero(words[:, 0] == 0)  # of IPv6 addresses proper, nearly none
    mapped = mapped[words[mapped, 1] >> np.uint64(32) == MAPPED]
    words[mapped, 1] &= np.uint64(0xFFFFFFFF)
    kinds[mapped] = 4
    return AddressColumn(kinds, words)
