"""Hosts and peers that are no addresses: columns of integers and of text become the keys that detectors take.

`keys` says what hosts are: "int64" or "text". Peers are integers or text in both cases, whatever hosts are. Integers
are keys as they are, text is hashed (`textkeys.py`). A peer is the same only in the same form: 42 is not "42".
Bytes are text. Pairs with a missing value on either side are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn
from superhosts.core.columns.column import Binary, Column, Text, both_valid, count_of, readable
from superhosts.core.columns.readers import column_of, is_null
from superhosts.core.pairs import INT64, INT64_RULE, MASK64, TEXT, Addresses, HostFormat
from superhosts.core.text import SURROGATES, counted, printable
from superhosts.core.textkeys import (
    TextColumn,
    TextFormat,
    TextKey,
    hash_texts,
    in_a_row,
    may_show_hash,
    number_in,
    shown_name,
    text_column,
)
from superhosts.detectors.engines.base import Words, is_on_gpu
from superhosts.errors import UsageError

FEW = 16  # hosts that are converted one by one
_LIMIT = np.uint64(1 << 63)
_TEXT = {str, bytes, np.str_, np.bytes_}


class KeyBatch(NamedTuple):
    """Pairs of generic keys, and the names of the hosts if these are text."""

    hosts: Addresses
    peers: Addresses
    names: TextColumn | None
    dropped: int  # pairs with a missing value


class KeyColumn(NamedTuple):
    """A column of integers or of text. If it has codes, row i is values[codes[i]]."""

    values: NDArray[np.uint64] | TextColumn
    valid: NDArray[np.bool_] | None = None  # where it has a value; None: everywhere
    codes: NDArray[np.int64] | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        if self.codes is not None:
            return len(self.codes)
        return len(self.values.starts if isinstance(self.values, TextColumn) else self.values)

    @property
    def is_text(self) -> bool:
        """True if the values are text."""
        return isinstance(self.values, TextColumn)

    def keys(self, key: TextKey, threads: int) -> Words:
        """Return the keys of all rows, of missing ones any."""
        values = self.values
        found = hash_texts(values, key, threads) if isinstance(values, TextColumn) else values
        return found if self.codes is None else found[self.codes]

    def texts(self, chosen: NDArray[np.bool_] | None) -> TextColumn | None:
        """Return the texts of some rows, or of all; None if they are integers."""
        if not isinstance(self.values, TextColumn):
            return None
        data, starts, ends = self.values
        if self.codes is not None:
            starts, ends = starts[self.codes], ends[self.codes]
        return TextColumn(data, starts, ends) if chosen is None else TextColumn(data, starts[chosen], ends[chosen])


def read_pairs(hosts: Any, peers: Any, format: HostFormat, key: TextKey, threads: int) -> KeyBatch:
    """Return pairs as keys. Raise UsageError, which names the column and the row, if a value is none."""
    left, right = read_column(hosts, "hosts"), read_column(peers, "peers")
    if left.rows != right.rows:
        raise UsageError(f"update: {counted(left.rows, 'host')} but {counted(right.rows, 'peer')}")
    valid = both_valid(left.valid, right.valid)
    dropped = 0 if valid is None else left.rows - int(np.count_nonzero(valid))
    if dropped == left.rows:
        return KeyBatch(np.empty(0, np.uint64), np.empty(0, np.uint64), None, dropped)
    if left.is_text != (format == TEXT):
        given = "text" if left.is_text else "integers"
        raise UsageError(f'update: hosts are {given}, but this detector has keys="{format.keys}"')
    ours, theirs, chosen = left.keys(key, threads), right.keys(key, threads), valid if dropped else None
    if chosen is not None:
        ours, theirs = ours[chosen], theirs[chosen]
    return KeyBatch(ours, theirs, left.texts(chosen), dropped)


def read_integers(hosts: Any) -> NDArray[np.uint64]:
    """Return integer hosts that a caller asks for as keys. They may be text, as on a command line."""
    if isinstance(hosts, list | tuple) and (len(hosts) <= FEW or not set(map(type, hosts)) <= {int}):
        return np.array([INT64.to_number(host) for host in hosts], np.uint64)
    column = read_column(hosts, "hosts")
    if isinstance(column.values, TextColumn) or column.valid is not None:
        raise UsageError(f"hosts must be integers: {INT64_RULE}")
    return column.values


def read_names(hosts: Any, format: TextFormat) -> tuple[Words, list[str | None]]:
    """Return the hashes of text hosts that a caller asks for, and their names: None where only a hash is given."""
    column = read_column(hosts, "hosts")
    text = column.texts(None)
    if text is None or column.valid is not None:
        raise UsageError('hosts must be text: keys="text" takes str or bytes')
    assert format.key is not None
    hashes = column.keys(format.key, 1)
    given = hosts if isinstance(hosts, list | tuple) else _strings(text)
    names: list[str | None] = [host if isinstance(host, str) else None for host in given]
    for row in np.flatnonzero(may_show_hash(text)):
        number = number_in(names[row] or "")
        if number is not None:
            hashes[row], names[row] = (number >> 64, number & MASK64), None
    if not _is_utf8("".join(filter(None, names))):
        for place, each in enumerate(names):
            if each is not None and not _is_utf8(each):
                words = hashes[place].tolist()
                names[place] = shown_name(each.encode(errors=SURROGATES), False, words[0] << 64 | words[1])
    return hashes, names


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # It has lone surrogates.
        return False
    return True


def _strings(text: TextColumn) -> list[str | None]:
    """Return texts as strings, None where they are not UTF-8."""
    pieces = [text.data[a:b].tobytes() for a, b in zip(text.starts.tolist(), text.ends.tolist(), strict=True)]
    return [_decoded(piece) for piece in pieces]


def _decoded(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


def read_column(column: Any, name: str) -> KeyColumn:
    """Return a column of integers or text. Raise UsageError if it is something else."""
    if is_on_gpu(column):
        return KeyColumn(_whole(column, name))
    if isinstance(column, list | tuple):
        return _read_list(column, name)
    # Byte strings of NumPy are text, also those as long as an address.
    if isinstance(column, np.ndarray) and column.dtype.kind in "OS" and not isinstance(column, np.ma.MaskedArray):
        return _read_list(column.tolist(), name)
    read = column if isinstance(column, Column) else column_of(column, name)
    values = read.values
    if read.codes is not None and not count_of(values):  # All rows are null.
        return KeyColumn(np.zeros(len(read.codes), np.uint64), read.valid)
    if isinstance(values, AddressColumn):
        raise UsageError(f"{read.name}: addresses are neither integers nor text")
    if isinstance(values, Text | Binary):
        return KeyColumn(TextColumn(readable(values.data), values.starts, values.ends), read.valid, read.codes)
    return KeyColumn(_whole(values, read.name, read.first), read.valid, read.codes)


def _whole(column: Any, name: str, first: int = 0) -> NDArray[np.uint64]:
    """Return integers as their two's complement of 64 bits."""
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise UsageError(f"{name}: {column.dtype} {tuple(column.shape)} is not one column of integers")
    if column.dtype.kind == "u" and column.dtype.itemsize == 8 and (column >= _LIMIT).any():
        row = int((column >= _LIMIT).argmax())
        raise UsageError(f"{name}, row {first + row}: {int(column[row])} does not fit: {INT64_RULE}")
    keys: NDArray[np.uint64] = column.astype(np.int64, copy=False).view(np.uint64)
    return keys


def _read_list(values: Sequence[Any], name: str) -> KeyColumn:
    """Return the integers or texts of a list, in which None and NaN are missing values."""
    valid, kinds = None, set(map(type, values))
    if not kinds <= {*_TEXT, int}:
        flags = np.fromiter((not is_null(each) for each in values), bool, len(values))
        valid = None if flags.all() else flags
        kinds = {type(each) for each, is_valid in zip(values, flags, strict=True) if is_valid}
    if kinds and kinds <= _TEXT:
        return KeyColumn(
            _text_of(values if valid is None else ["" if is_null(each) else each for each in values]), valid
        )
    if valid is not None:
        values = [0 if is_null(each) else each for each in values]
    if kinds & _TEXT:
        row = next(row for row, each in enumerate(values) if type(each) not in _TEXT and (valid is None or valid[row]))
        shown = printable(repr(values[row]))
        raise UsageError(
            f"{name}, row {row}: {shown} is not text, but other rows are; make all of them text or integers"
        )
    for row, value in enumerate(values if not kinds <= {int} or _is_wide(values) else ()):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise UsageError(f"{name}, row {row}: {printable(repr(value))} is neither an integer nor text")
        if not -(1 << 63) <= value < 1 << 63:
            raise UsageError(f"{name}, row {row}: {value} does not fit: {INT64_RULE}")
    return KeyColumn(np.array(values, np.int64).view(np.uint64), valid)


def _is_wide(values: Sequence[int]) -> bool:
    return bool(values) and not -(1 << 63) <= min(values) <= max(values) < 1 << 63


def _text_of(values: Sequence[Any]) -> TextColumn:
    """Return strings and bytes as a column."""
    joined = "" if bytes in set(map(type, values)) else "".join(values)
    if joined and joined.isascii():
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        return in_a_row(readable(np.frombuffer(joined.encode(), np.uint8)), sizes)
    return text_column(values)
