"""Hosts and peers that are no addresses: columns of integers and of text become the keys that detectors take.

`keys` says what hosts are: "int64" or "text". Peers are integers or text in both cases, whatever hosts are. Integers
are keys as they are, text is hashed (`textkeys.py`). A peer is the same only in the same form: 42 is not "42".
Pairs with a missing value on either side are dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.engines.arrays import Words, is_on_gpu
from superhosts.errors import UsageError
from superhosts.pairs import INT64, INT64_RULE, MASK64, TEXT, Addresses, HostFormat
from superhosts.text import counted, printable
from superhosts.textkeys import Text, TextFormat, TextKey, hash_texts, in_a_row, may_show_hash, number_in, text_column

FEW = 16  # hosts that are converted one by one
_LIMIT = np.uint64(1 << 63)


class KeyBatch(NamedTuple):
    """Pairs of generic keys, and the names of the hosts if these are text."""

    hosts: Addresses
    peers: Addresses
    names: Text | None
    dropped: int  # pairs with a missing value


class KeyColumn(NamedTuple):
    """A column of integers or of text, and where it has a value; None: everywhere."""

    values: NDArray[np.uint64] | Text
    present: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values.starts) if isinstance(self.values, Text) else len(self.values)

    def kept(self, rows: NDArray[np.bool_]) -> NDArray[np.uint64] | Text:
        """Return the values of some rows."""
        if not isinstance(self.values, Text):
            return self.values[rows]
        return Text(self.values.data, self.values.starts[rows], self.values.ends[rows])


def read_pairs(hosts: Any, peers: Any, format: HostFormat, key: TextKey, threads: int) -> KeyBatch:
    """Return pairs as keys. Raise UsageError, which names the column and the row, if a value is none."""
    left, right = read_column(hosts, "hosts"), read_column(peers, "peers")
    if len(left) != len(right):
        raise UsageError(f"update: {counted(len(left), 'host')} but {counted(len(right), 'peer')}")
    if isinstance(left.values, Text) != (format == TEXT) and len(left):
        given = "text" if isinstance(left.values, Text) else "integers"
        raise UsageError(f'update: hosts are {given}, but this detector has keys="{format.keys}"')
    values, others, dropped = left.values, right.values, 0
    if left.present is not None or right.present is not None:
        both = np.ones(len(left), bool)
        for column in (left, right):
            if column.present is not None:
                both &= column.present
        dropped = int(len(left) - np.count_nonzero(both))
        values, others = left.kept(both), right.kept(both)
    if not len(left):
        return KeyBatch(np.empty(0, np.uint64), np.empty(0, np.uint64), None, dropped)
    names = values if isinstance(values, Text) else None
    return KeyBatch(_keys(values, key, threads), _keys(others, key, threads), names, dropped)


def read_integers(hosts: Any) -> NDArray[np.uint64]:
    """Return integer hosts that a caller asks for as keys. They may be text, as on a command line."""
    if isinstance(hosts, list | tuple) and (len(hosts) <= FEW or not set(map(type, hosts)) <= {int}):
        return np.array([INT64.to_number(host) for host in hosts], np.uint64)
    column = read_column(hosts, "hosts")
    if isinstance(column.values, Text) or column.present is not None:
        raise UsageError(f"hosts must be integers: {INT64_RULE}")
    return column.values


def read_names(hosts: Any, format: TextFormat) -> tuple[Words, list[str | None]]:
    """Return the hashes of text hosts that a caller asks for, and their names: None where only a hash is given."""
    column = read_column(hosts, "hosts")
    if not isinstance(column.values, Text) or column.present is not None:
        raise UsageError('hosts must be text: keys="text" takes str or bytes')
    assert format.key is not None
    hashes = hash_texts(column.values, format.key)
    names: list[str | None] = [host if isinstance(host, str) else None for host in hosts]
    for row in np.flatnonzero(may_show_hash(column.values)):
        number = number_in(names[row] or "")
        if number is not None:
            hashes[row], names[row] = (number >> 64, number & MASK64), None
    return hashes, names


def _keys(values: NDArray[np.uint64] | Text, key: TextKey, threads: int) -> Words:
    return hash_texts(values, key, threads) if isinstance(values, Text) else values


def read_column(column: Any, what: str) -> KeyColumn:
    """Return a column of integers or text. Raise UsageError if it is something else."""
    if is_on_gpu(column):
        return KeyColumn(_whole(column, what))
    if isinstance(column, np.ma.MaskedArray):
        inner = read_column(column.filled(0) if column.dtype.kind in "iu" else column.data, what)
        return inner._replace(present=~np.ma.getmaskarray(column))
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        return KeyColumn(_whole(column, what))
    if isinstance(column, np.ndarray) and column.dtype.kind not in "USO":
        raise UsageError(f"{what}: {column.dtype} values are neither integers nor text")
    return _read_list(column.tolist() if isinstance(column, np.ndarray) else list(column), what)


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
    if kinds <= {str, bytes, np.str_, np.bytes_}:
        return KeyColumn(_from_list(values), present)
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise UsageError(f"{what}: row {row}: {printable(repr(value))} is neither an integer nor text")
        if not -(1 << 63) <= value < 1 << 63:
            raise UsageError(f"{what}: row {row}: {value} does not fit: {INT64_RULE}")
    return KeyColumn(np.array(values, np.int64).view(np.uint64), present)


def _from_list(values: list[Any]) -> Text:
    joined = "" if bytes in set(map(type, values)) else "".join(values)
    if not joined.isascii() or not joined:
        return text_column(values)
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    return in_a_row(np.frombuffer(joined.encode(), np.uint8), sizes)
