"""Hosts and peers that are no addresses: columns of integers and of text become the keys that detectors take.

`keys` says what hosts are: "int64" or "text". Peers are integers or text in both cases, whatever hosts are. Integers
are keys as they are, text is hashed (`textkeys.py`). A peer is the same only in the same form: 42 is not "42".
Pairs with a missing value on either side are dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.columns.column import Binary, Column, Text, count_of, in_one_piece
from superhosts.columns.reading import column_of
from superhosts.columns.split import AddressColumn
from superhosts.detectors.nametable import Texts
from superhosts.engines.arrays import Words, is_on_gpu
from superhosts.errors import UsageError
from superhosts.pairs import INT64, INT64_RULE, MASK64, TEXT, Addresses, HostFormat
from superhosts.text import counted, printable
from superhosts.textkeys import TextFormat, TextKey, encoded, hash_texts, may_show_hash, number_in

_LIMIT = np.uint64(1 << 63)


class KeyBatch(NamedTuple):
    """Pairs of generic keys, and the names of the hosts if these are text."""

    hosts: Addresses
    peers: Addresses
    names: Texts | None
    dropped: int  # pairs with a missing value


class KeyColumn(NamedTuple):
    """A column of integers or of text, and where it has a value; None: everywhere."""

    values: NDArray[np.uint64] | Texts
    present: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values.offsets) - 1 if isinstance(self.values, Texts) else len(self.values)

    def kept(self, rows: NDArray[np.bool_]) -> NDArray[np.uint64] | Texts:
        """Return the values of some rows."""
        if not isinstance(self.values, Texts):
            return self.values[rows]
        data, offsets = self.values
        sizes = np.diff(offsets)
        if sizes[~rows].any():
            data = data[np.repeat(rows, sizes)]
        return Texts(data, offsets_of(sizes[rows]))


def read_pairs(hosts: Any, peers: Any, format: HostFormat, key: TextKey, threads: int) -> KeyBatch:
    """Return pairs as keys. Raise UsageError, which names the column and the row, if a value is none."""
    left, right = read_column(hosts, "hosts"), read_column(peers, "peers")
    if len(left) != len(right):
        raise UsageError(f"update: {counted(len(left), 'host')} but {counted(len(right), 'peer')}")
    if isinstance(left.values, Texts) != (format == TEXT):
        given = "text" if isinstance(left.values, Texts) else "integers"
        raise UsageError(f'update: hosts are {given}, but this detector has keys="{format.keys}"')
    values, others, dropped = left.values, right.values, 0
    if left.present is not None or right.present is not None:
        both = np.ones(len(left), bool)
        for column in (left, right):
            if column.present is not None:
                both &= column.present
        dropped = int(len(left) - np.count_nonzero(both))
        values, others = left.kept(both), right.kept(both)
    names = values if isinstance(values, Texts) else None
    return KeyBatch(_keys(values, key, threads), _keys(others, key, threads), names, dropped)


def is_key_column(hosts: Any) -> bool:
    """Return True if hosts are hashes of texts already: an array of rows (high word, low word)."""
    return getattr(hosts, "ndim", 0) == 2


def read_integers(hosts: Any) -> NDArray[np.uint64]:
    """Return integer hosts that a caller asks for as keys. They may be text, as on a command line."""
    if not isinstance(hosts, np.ndarray) and any(isinstance(host, str) for host in hosts):
        return np.array([INT64.to_number(host) for host in hosts], np.uint64)
    column = read_column(hosts, "hosts")
    if isinstance(column.values, Texts) or column.present is not None:
        raise UsageError(f"hosts must be integers: {INT64_RULE}")
    return column.values


def read_names(hosts: Any, format: TextFormat) -> tuple[Words, list[str | None]]:
    """Return the hashes of text hosts that a caller asks for, and their names: None where only a hash is given."""
    column = read_column(hosts, "hosts")
    if not isinstance(column.values, Texts) or column.present is not None:
        raise UsageError('hosts must be text: keys="text" takes str or bytes')
    assert format.key is not None
    hashes = hash_texts(*column.values, format.key)
    data, offsets = column.values
    names: list[str | None] = [host if isinstance(host, str) else None for host in hosts]
    for row in np.flatnonzero(may_show_hash(data, offsets)):
        number = number_in(names[row] or "")
        if number is not None:
            hashes[row], names[row] = (number >> 64, number & MASK64), None
    return hashes, names


def _keys(values: NDArray[np.uint64] | Texts, key: TextKey, threads: int) -> Words:
    return hash_texts(*values, key, threads) if isinstance(values, Texts) else values


def read_column(column: Any, what: str) -> KeyColumn:
    """Return a column of integers or text. Raise UsageError if it is something else."""
    if is_on_gpu(column):
        return KeyColumn(_whole(column, what))
    if not isinstance(column, np.ndarray | list | tuple) or getattr(column, "dtype", None) == "T":
        return _from_column(column if isinstance(column, Column) else column_of(column, what))
    if isinstance(column, np.ma.MaskedArray):
        inner = read_column(column.filled(0) if column.dtype.kind in "iu" else column.data, what)
        return inner._replace(present=~np.ma.getmaskarray(column))
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        return KeyColumn(_whole(column, what))
    if isinstance(column, np.ndarray) and column.dtype.kind not in "USO":
        raise UsageError(f"{what}: {column.dtype} values are neither integers nor text")
    return _read_list(column.tolist() if isinstance(column, np.ndarray) else list(column), what)


def _from_column(column: Column) -> KeyColumn:
    """Return a column of a table or of a data frame."""
    values, codes = column.values, column.codes
    if codes is not None and not count_of(values):  # All rows are null.
        return KeyColumn(np.zeros(len(codes), np.uint64), column.valid)
    if isinstance(values, AddressColumn):
        raise UsageError(f"{column.name}: addresses are neither integers nor text")
    if isinstance(values, Text | Binary):
        starts, ends = (values.starts, values.ends) if codes is None else (values.starts[codes], values.ends[codes])
        return KeyColumn(Texts(*in_one_piece(values.data, starts, ends)), column.valid)
    return KeyColumn(_whole(values if codes is None else values[codes], column.name), column.valid)


def _whole(column: Any, what: str) -> NDArray[np.uint64]:
    """Return integers as their two's complement of 64 bits."""
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise UsageError(f"{what}: {column.dtype} {tuple(column.shape)} is not one column of integers")
    if column.dtype.kind == "u" and column.dtype.itemsize == 8 and (column >= _LIMIT).any():
        row = int((column >= _LIMIT).argmax())
        raise UsageError(f"{what}: row {row}: {int(column[row])} does not fit: {INT64_RULE}")
    wide = column.astype(np.int64, copy=False)
    keys: NDArray[np.uint64] = wide.view(np.uint64)
    return keys


def _read_list(values: list[Any], what: str) -> KeyColumn:
    """Return the integers or texts of a list, in which None is a missing value."""
    present = None
    if None in values:
        present = np.array([value is not None for value in values])
        filling: Any = 0 if any(isinstance(value, int | np.integer) for value in values) else ""
        values = [filling if value is None else value for value in values]
    kinds = set(map(type, values))
    if kinds <= {str}:
        return KeyColumn(_from_text(values), present)
    if kinds <= {str, bytes, np.str_, np.bytes_}:
        return KeyColumn(_from_bytes([encoded(value) for value in values]), present)
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise UsageError(f"{what}: row {row}: {printable(repr(value))} is neither an integer nor text")
        if not -(1 << 63) <= value < 1 << 63:
            raise UsageError(f"{what}: row {row}: {value} does not fit: {INT64_RULE}")
    return KeyColumn(np.array(values, np.int64).view(np.uint64), present)


def _from_text(values: list[str]) -> Texts:
    joined = "".join(values)
    if not joined.isascii():
        return _from_bytes([encoded(value) for value in values])
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    return Texts(np.frombuffer(joined.encode(), np.uint8), offsets_of(sizes))


def _from_bytes(values: list[bytes]) -> Texts:
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    return Texts(np.frombuffer(b"".join(values), np.uint8), offsets_of(sizes))


def offsets_of(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Return where texts of these sizes begin, and where the last ends."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
