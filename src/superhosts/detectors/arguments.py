"""The arguments of detectors: checks of numbers and switches, and columns of hosts and peers as arrays of integers.

Errors name the argument, its value and the valid values; of a column, also the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import compress
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn
from superhosts.core.columns.column import Column, Text, both_valid, count_of, readable, text_of
from superhosts.core.columns.hosts import Pairs, blocks_of, hosts_of, integers_of, unmapped_hosts
from superhosts.core.columns.readers import ColumnData, column_of, filled, not_null
from superhosts.core.device import thread_count
from superhosts.core.pairs import (
    INT64,
    INT64_RULE,
    KEY_FORMATS,
    MASK64,
    TEXT,
    Addresses,
    Host,
    HostFormat,
    HostKeys,
    format_for,
    numbers_to_array,
)
from superhosts.core.results import SuperHosts
from superhosts.core.text import SURROGATES, counted, printable
from superhosts.core.textkeys import TextFormat, TextKey, hash_texts, may_show_hash, number_in, shown_name
from superhosts.core.units import SWITCH, whole_number
from superhosts.detectors.engines.base import Words, is_on_gpu
from superhosts.errors import UsageError

Hosts = SuperHosts | HostKeys | ColumnData  # hosts that a caller asks about
Sized = TypeVar("Sized", bound=Any)
FEW = 16  # hosts that are converted one by one, which takes less than to start the compiled way
PREFIXES = IPv4Network, IPv6Network
SINGLE = str, int, np.integer, IPv4Address, IPv6Address, *PREFIXES
_NARROW = np.dtype(np.uint32)
_WORDS = _NARROW, np.dtype(np.uint64)
_LIMIT = np.uint64(1 << 63)
MOST_PEERS = 1 << 63  # above any threshold: counts of peers are signed
_TEXT = {str, bytes, np.str_, np.bytes_}


def check_threshold(threshold: Any, name: str = "threshold") -> float:
    number: Any = threshold
    if not isinstance(threshold, Real) or not 1 <= number < MOST_PEERS:
        shown = f"{threshold:g}" if isinstance(threshold, float) else threshold
        raise UsageError(f"{name} {shown!s}: must be a number of peers, at least 1 and below 2^63")
    return float(threshold)


def check_count(count: int, name: str = "top") -> int:
    number = whole_number(count)
    if number is None or number < 1:
        raise UsageError(f"{name} {count!s}: must be a number of hosts, at least 1")
    return number


def check_threads(threads: int | None) -> int:
    """Return the number of threads to use. None selects the default; raise UsageError if it is invalid."""
    number = thread_count() if threads is None else whole_number(threads)
    if number is None or number < 1:
        raise UsageError(f"threads={threads}: must be at least 1")
    return number


def check_exact(exact: bool | str | None) -> bool | None:
    if exact is None or isinstance(exact, bool):
        return exact
    if isinstance(exact, str) and exact in SWITCH:
        return SWITCH[exact]
    raise UsageError(f"exact={exact!r}: must be True (on), False (off) or None")


def starts_exact(exact: bool | str | None, device: str) -> bool:
    """Return True if pairs are to be kept exactly while they fit: as asked for, else unless `device` names a GPU."""
    asked = check_exact(exact)
    return not device.startswith("cuda") if asked is None else asked


def check_key_bits(key_bits: int | None) -> int:
    """Return the bits of the integer that represents a host. None selects 32 (IPv4)."""
    number = 32 if key_bits is None else whole_number(key_bits) or key_bits
    return format_for(number).key_bits


def check_keys(keys: str | None, key_bits: int | None) -> HostFormat | None:
    """Return the format of generic keys; None if hosts are addresses. Raise UsageError if `key_bits` contradicts it."""
    if keys is None:
        return None
    if keys not in KEY_FORMATS:
        raise UsageError(f'keys={keys!r}: must be "int64", "text" or None, for addresses')
    format = KEY_FORMATS[keys]
    if key_bits is not None and whole_number(key_bits) != format.key_bits:
        raise UsageError(f'key_bits={key_bits} cannot be combined with keys="{keys}", which has {format.key_bits} bits')
    return format


def check_no_conflict(geometry: Sized, **others: Any) -> Sized:
    """Return a checked geometry, which determines all sizes. Raise UsageError if another argument contradicts it."""
    checked: Sized = geometry.check()
    for name, value in others.items():
        own = getattr(checked, name, None)
        if value is not None and value != own:
            detail = f" with {name}={own}" if isinstance(own, int) else ""
            raise UsageError(f"{name}={value} cannot be combined with a geometry{detail}; pass one or the other")
    return checked


# Columns of addresses


def as_pairs(hosts: Any, peers: Any, format: HostFormat, detector: str, *, narrows: bool = False) -> Iterable[Pairs]:
    """Return two columns as pairs, in blocks; raise UsageError if they are not what a detector takes.

    If a row is not, that is raised when its block is asked for. If the detector `narrows`, integers of 64 bits are one
    block as they are.
    """
    if format.key_bits == 32 and _is_narrow(hosts) and _is_narrow(peers):
        _check_lengths(len(hosts), len(peers))
        return [Pairs(hosts, peers)]
    if is_on_gpu(hosts) or is_on_gpu(peers):
        pairs = Pairs(_words(hosts, "hosts"), _words(peers, "peers"))
        _check_lengths(len(pairs.hosts), len(pairs.peers))
        _check_bits(pairs.hosts, format, detector)
        return [pairs]
    left, right = _column(hosts, "hosts"), _column(peers, "peers")
    _check_lengths(len(left), len(right))
    left = unmapped_hosts(left, format)
    if isinstance(left.values, np.ndarray) and left.values.ndim == 2:
        _check_bits(left.values, format, detector)
    whole = integers_of(left, right, format) if narrows else None
    return blocks_of(left, right, format) if whole is None else [whole]


def _is_narrow(column: Any) -> bool:
    """Return True for the usual column, which needs no conversion. Every batch is checked, even a small one."""
    return type(column) is np.ndarray and column.dtype == _NARROW and column.ndim == 1 and column.flags.carray


def _one_by_one(hosts: list[Any] | tuple[Any, ...]) -> bool:
    if len(hosts) <= FEW:
        return all(isinstance(host, SINGLE) for host in hosts)
    return any(isinstance(host, PREFIXES) or (type(host) is str and "/" in host) for host in hosts)


def _column(column: Any, name: str) -> Column:
    return column if isinstance(column, Column) else column_of(column, name)


def _words(column: Any, name: str) -> Addresses:
    array = column if is_on_gpu(column) else np.asarray(column)
    if array.ndim == 1 and array.dtype in _WORDS:
        return array
    if array.ndim == 2 and array.shape[1] == 2 and array.dtype == np.uint64:
        return array
    raise UsageError(f"{name}: {array.dtype} {array.shape} is not uint32 (n,), uint64 (n,) or uint64 (n, 2)")


def _check_lengths(hosts: int, peers: int) -> None:
    if hosts != peers:
        raise UsageError(f"update: {counted(hosts, 'host')} but {counted(peers, 'peer')}")


def _check_bits(hosts: Addresses, format: HostFormat, detector: str) -> None:
    bits = bits_of(hosts)
    if bits != format.key_bits:
        raise UsageError(f"update: hosts have {bits} bits, but this {detector} takes {format.key_bits}-bit hosts")


def bits_of(column: Addresses) -> int:
    return 128 if column.ndim == 2 else column.dtype.itemsize * 8


# Hosts that a caller asks about


def named_column(hosts: Hosts, format: HostFormat) -> tuple[Addresses, Sequence[str | None]]:
    """Return hosts as an array of integers of this format, and their names if the caller gave some."""
    if isinstance(format, TextFormat) and not isinstance(hosts, SuperHosts | HostKeys):
        return read_names(hosts, format)
    return host_column(hosts, format), ()


def is_one_host(host: Any) -> bool:
    return isinstance(host, str | bytes | Real | Host | None) or (isinstance(host, np.ndarray) and host.ndim == 0)


def host_column(hosts: Hosts, format: HostFormat) -> Addresses:
    if isinstance(hosts, SuperHosts):
        if hosts.format != format:
            raise UsageError(f"hosts are {hosts.format.words}, but those of the sketch are {format.words}")
        return hosts.hosts
    if isinstance(hosts, HostKeys):
        return hosts.column
    if format.keys == "int64":
        return read_integers(hosts)
    if is_on_gpu(hosts):
        column = _words(hosts, "hosts")
    elif isinstance(hosts, list | tuple) and _one_by_one(hosts):
        return numbers_to_array([format.to_number(host) for host in hosts], format.key_bits)
    else:
        column = hosts_of(unmapped_hosts(_column(hosts, "hosts"), format), format)
    if bits_of(column) != format.key_bits:
        raise UsageError(f"hosts have {bits_of(column)} bits, but those of the sketch have {format.key_bits}")
    return column


# Generic keys: `keys` says what hosts are, "int64" or "text". Peers are integers or text in both cases, whatever hosts
# are. Integers are keys as they are, text is hashed (`textkeys.py`). A peer is the same only in the same form: 42 is
# not "42". Bytes are text. Pairs with a missing value on either side are dropped.


def _keys(column: Column, key: TextKey, threads: int) -> Words:
    """Return the keys of all rows of integers or text, of missing ones any."""
    if not isinstance(column.values, Text):
        return cast(Words, column.values)
    found = hash_texts(column.values, key, threads)
    return found if column.codes is None else found[column.codes]


def _texts(column: Column) -> Text | None:
    """Return the texts of all rows; None if they are integers."""
    text, rows = column.values, column.codes
    if not isinstance(text, Text) or rows is None:
        return text if isinstance(text, Text) else None
    return text.part(rows)


def read_pairs(hosts: Any, peers: Any, format: HostFormat, key: TextKey, threads: int) -> Pairs:
    """Return pairs as keys. Raise UsageError, which names the column and the row, if a value is none."""
    left, right = read_column(hosts, "hosts"), read_column(peers, "peers")
    _check_lengths(len(left), len(right))
    valid = both_valid(left.valid, right.valid)
    dropped = 0 if valid is None else len(left) - int(np.count_nonzero(valid))
    if dropped == len(left):
        return Pairs(np.empty(0, np.uint64), np.empty(0, np.uint64), dropped)
    text = _texts(left)
    if (text is not None) != (format == TEXT):
        given = "integers" if text is None else "text"
        raise UsageError(f'update: hosts are {given}, but this detector has keys="{format.keys}"')
    ours, theirs = _keys(left, key, threads), _keys(right, key, threads)
    if dropped:
        ours, theirs = ours[valid], theirs[valid]
        text = None if text is None else text.part(valid)
    return Pairs(ours, theirs, dropped, names=text)


def read_integers(hosts: Any) -> NDArray[np.uint64]:
    """Return integer hosts that a caller asks for as keys. They may be text, as on a command line."""
    if isinstance(hosts, list | tuple) and (len(hosts) <= FEW or not set(map(type, hosts)) <= {int}):
        return np.array([INT64.to_number(host) for host in hosts], np.uint64)
    column = read_column(hosts, "hosts")
    if isinstance(column.values, Text) or column.valid is not None:
        raise UsageError(f"hosts must be integers: {INT64_RULE}")
    return cast(Words, column.values)


def read_names(hosts: Any, format: TextFormat) -> tuple[Words, list[str | None]]:
    """Return the hashes of text hosts that a caller asks for, and their names: None where only a hash is given."""
    column = read_column(hosts, "hosts")
    text = _texts(column)
    if text is None or column.valid is not None:
        raise UsageError('hosts must be text: keys="text" takes str or bytes')
    assert format.key is not None
    hashes = _keys(column, format.key, 1)
    given = hosts
    if not isinstance(hosts, list | tuple):
        pieces = zip(text.starts.tolist(), text.ends.tolist(), strict=True)
        given = [_decoded(text.data[a:b].tobytes()) for a, b in pieces]
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


def _decoded(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


def read_column(column: Any, name: str) -> Column:
    """Return a column of integers, as their two's complement of 64 bits, or of text, which may have codes."""
    if is_on_gpu(column):
        return Column(_whole(column, name), name)
    if isinstance(column, list | tuple):
        return _read_list(column, name)
    # Byte strings of NumPy are text, also those as long as an address.
    if isinstance(column, np.ndarray) and column.dtype.kind in "OS" and not isinstance(column, np.ma.MaskedArray):
        return _read_list(column.tolist(), name)
    read = column if isinstance(column, Column) else column_of(column, name)
    values = read.values
    if read.codes is not None and not count_of(values):  # All rows are null.
        return replace(read, values=np.zeros(len(read.codes), np.uint64), codes=None)
    if isinstance(values, AddressColumn):
        raise UsageError(f"{read.name}: addresses are neither integers nor text")
    if isinstance(values, Text):
        return replace(read, values=values._replace(data=readable(values.data)))
    numbers = _whole(values, read.name, read.first)
    return replace(read, values=numbers if read.codes is None else numbers[read.codes], codes=None)


def _whole(column: Any, name: str, first: int = 0) -> NDArray[np.uint64]:
    """Return integers as their two's complement of 64 bits."""
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise UsageError(f"{name}: {column.dtype} {tuple(column.shape)} is not one column of integers")
    if column.dtype.kind == "u" and column.dtype.itemsize == 8 and (column >= _LIMIT).any():
        row = int((column >= _LIMIT).argmax())
        raise UsageError(f"{name}, row {first + row}: {int(column[row])} does not fit: {INT64_RULE}")
    keys: NDArray[np.uint64] = column.astype(np.int64, copy=False).view(np.uint64)
    return keys


def _read_list(values: Sequence[Any], name: str) -> Column:
    """Return the integers or texts of a list, in which None and NaN are missing values."""
    valid = not_null(values)
    kinds = set(map(type, values if valid is None else compress(values, valid)))
    if kinds and kinds <= _TEXT:
        return Column(text_of(filled(values, valid, "")), name, valid)
    if kinds & _TEXT:
        row = next(row for row, each in enumerate(values) if type(each) not in _TEXT and (valid is None or valid[row]))
        shown = printable(repr(values[row]))
        raise UsageError(
            f"{name}, row {row}: {shown} is not text, but other rows are; make all of them text or integers"
        )
    numbers = filled(values, valid, 0)
    is_wide = kinds <= {int} and bool(numbers) and not -(1 << 63) <= min(numbers) <= max(numbers) < 1 << 63
    for row, value in enumerate(numbers if not kinds <= {int} or is_wide else ()):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise UsageError(f"{name}, row {row}: {printable(repr(value))} is neither an integer nor text")
        if not -(1 << 63) <= value < 1 << 63:
            raise UsageError(f"{name}, row {row}: {value} does not fit: {INT64_RULE}")
    return Column(np.array(numbers, np.int64).view(np.uint64), name, valid)
