"""Columns as hosts and peers of a detector, and as ends of packets (`ends_of`).

An integer is the number of the host itself and must fit the width of the detector's hosts. A host that is an address
(text, bytes, `ipaddress` objects) must be of the family of the detector, and becomes the prefix that the detector
counts. An IPv6 host in a detector of IPv4 hosts, or the reverse, is an error and not a dropped row: a result that
leaves out half of the traffic would look right.

Peers stay whole and may be of either family. Their numbers mean the same in any width (`hashing.fold`), so the same
peer counts once, whatever its form. IPv4-mapped IPv6 is IPv4 in every form, also as an integer.

A row of which either end is null is not a pair: it is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import (
    READABLE,
    AddressColumn,
    Bytes,
    Ends,
    Rows,
    parse_address,
    parse_at,
    taken,
    widened,
)
from superhosts.core.columns.column import Column, Flags, Text, both_valid, count_of, readable
from superhosts.core.device import run_parallel, split_evenly, thread_count
from superhosts.core.pairs import MAPPED, Addresses, HostFormat, as_words, numbers_to_array
from superhosts.errors import UsageError
from superhosts.jit.cache import compiled
from superhosts.jit.memory import Lender

# Integers are mostly the int64 of data frames. One pass copies the low halves and ORs all values, so that the range
# check costs nothing beside the reading. Only if the OR says that a value does not fit is it looked for. Long columns
# come block by block. A block is narrowed in memory that is used again and so stays in the cache: fresh memory for all
# rows would take longer than the rest.
ROWS_PER_THREAD = 1 << 16
BLOCK = 1 << 18  # rows
_lender = Lender(4 * BLOCK)


@compiled
def narrow_into(values: NDArray[np.uint64], narrow: NDArray[np.uint32]) -> np.uint64:
    """Copy the low halves of values; return the OR of the values."""
    seen = np.uint64(0)
    for i in range(len(values)):
        seen |= values[i]
        narrow[i] = np.uint32(values[i])
    return seen


def narrowed(values: NDArray[np.uint64]) -> NDArray[np.uint32] | None:
    """Return values as uint32; None if one does not fit."""
    count = len(values)
    narrow = _lent(count) if count <= BLOCK else np.empty(count, np.uint32)
    runs = split_evenly(count, min(thread_count(), max(1, count // ROWS_PER_THREAD)))
    seen = run_parallel(narrow_into, [(values[slice(*run)], narrow[slice(*run)]) for run in runs], len(runs))
    return None if any(int(each) >> 32 for each in seen) else narrow


def _lent(count: int) -> NDArray[np.uint32]:
    if count <= BLOCK // 4:
        return np.empty(count, np.uint32)
    narrow: NDArray[np.uint32] = _lender.borrow().view(np.uint32)[:count]
    return narrow


def unsigned(values: NDArray[Any]) -> NDArray[Any]:
    """Return integers as uint32 or uint64, without a copy where possible. Negative ones become larger than any int64.

    The result has 32 bits only if every value of the type fits: those of int64 and uint64 stay 64 bits wide.
    """
    kind = values.dtype
    if kind.itemsize == 8:
        native = values if kind.isnative else values.astype(kind.newbyteorder("="))
        return readable(native).view(np.uint64)
    if kind.kind == "u":
        return readable(values.astype(np.uint32, copy=False))
    if kind == np.int32 and kind.isnative and (not len(values) or int(values.min()) >= 0):
        return readable(values).view(np.uint32)
    return values.astype(np.int64).view(np.uint64)


MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1


class Pairs(NamedTuple):
    hosts: Addresses
    peers: Addresses
    dropped: int = 0  # rows with a null
    checked: Callable[[], Iterator[Pairs]] | None = None  # of integers that nobody has looked at: the same, looked at
    names: Any = None  # of hosts that are text: a Text


def blocks_of(hosts: Column, peers: Column, format: HostFormat) -> Iterator[Pairs]:
    """Yield the rows of two columns of the same length as pairs, in blocks that stay in a cache.

    Raise UsageError if a row is bad; the blocks before it have been used by then.
    """
    size = BLOCK * max(1, thread_count() // 4)
    for start in range(0, len(hosts), size):
        stop = start + size
        yield pairs_of(hosts.part(start, stop), peers.part(start, stop), format)


def integers_of(hosts: Column, peers: Column, format: HostFormat) -> Pairs | None:
    """Return two columns of 64-bit integers without nulls as they are, for those who narrow them; None for others."""
    if not (_is_integers(hosts) and _is_integers(peers) and format.key_bits == 32):
        return None
    wide = [unsigned(cast(NDArray[Any], column.values)) for column in (hosts, peers)]
    return Pairs(wide[0], wide[1], 0, partial(blocks_of, hosts, peers, format))


def _is_integers(column: Column) -> bool:
    values = column.values
    if not isinstance(values, np.ndarray) or column.codes is not None or column.valid is not None:
        return False
    return values.ndim == 1 and values.dtype in (np.int64, np.uint64) and values.flags.carray


def pairs_of(hosts: Column, peers: Column, format: HostFormat) -> Pairs:
    """Return the rows of two columns of the same length as pairs; raise UsageError if a row is bad."""
    valid = both_valid(hosts.valid, peers.valid)
    left, right = _numbers(hosts, format, valid, peers=False), _numbers(peers, format, valid, peers=True)
    if valid is None or valid.all():
        return Pairs(left, right, 0)
    return Pairs(left[valid], right[valid], len(valid) - int(np.count_nonzero(valid)))


def unmapped_hosts(column: Column, format: HostFormat) -> Column:
    """Return IPv6 addresses to which IPv4 is mapped, in words, as hosts of 32 bits if these are asked for."""
    values = column.values
    if not isinstance(values, np.ndarray) or values.ndim != 2 or format.key_bits != 32:
        return column
    is_mapped = (values[:, 0] == 0) & (values[:, 1] >> np.uint64(32) == MAPPED)
    return replace(column, values=values[:, 1].astype(np.uint32)) if is_mapped.all() else column


def hosts_of(column: Column, format: HostFormat) -> Addresses:
    """Return a column as hosts; raise UsageError if a row is bad or null."""
    if column.valid is not None and not column.valid.all():
        row = int(np.argmin(column.valid))
        raise UsageError(f"{column.name}, row {column.first + row}: null is not a host")
    return _numbers(column, format, None, peers=False)


def _numbers(column: Column, format: HostFormat, valid: Flags | None, *, peers: bool) -> Addresses:
    """Return the numbers of all rows; rows that are not valid may have any number."""
    values: Any = column.values.addresses() if isinstance(column.values, Text) else column.values
    if isinstance(values, AddressColumn):
        numbers, bad = _from_addresses(values, format, peers)
    else:
        numbers, bad = (_peer_integers if peers else _host_integers)(values, format)
    if column.codes is not None:
        if not len(numbers):  # All rows are null.
            return np.zeros((len(column), *numbers.shape[1:]), numbers.dtype)
        numbers, bad = numbers[column.codes], None if bad is None else bad[column.codes]
    if bad is not None:
        bad = bad if valid is None else bad & valid
        if bad.any():
            row = int(np.argmax(bad))
            place = row if column.codes is None else int(column.codes[row])
            raise UsageError(column.error_at(row, _reason(values, place, format, peers)))
    return numbers


def _from_addresses(addresses: AddressColumn, format: HostFormat, peers: bool) -> tuple[Addresses, Flags | None]:
    """Return addresses as numbers: hosts without the bits behind their prefix, peers whole; and which are bad."""
    kinds, words = addresses
    if peers:
        is_narrow = format.family == 4 and not (kinds == 6).any()
        return words[:, 1].astype(np.uint32) if is_narrow else words, kinds == 0
    bad = kinds != format.family
    if format.family == 4:
        numbers = words[:, 1].astype(np.uint32)
        if format.prefix < 32:
            numbers &= np.uint32((1 << 32) - (1 << 32 - format.prefix))
        return numbers, bad
    mask = (1 << 128) - (1 << 128 - format.prefix)
    if format.key_bits == 64:
        return words[:, 0] & np.uint64(mask >> 64), bad
    if format.prefix < 128:
        words = words & np.array([mask >> 64, mask & MASK64], np.uint64)
    return words, bad


def _host_integers(values: NDArray[Any], format: HostFormat) -> tuple[Addresses, Flags | None]:
    bits = format.key_bits
    if values.dtype == object:
        return _large_integers(values, bits)
    if values.ndim == 2:  # Whether the detector takes 128 bits is for the caller to say.
        return readable(values), None
    numbers = unsigned(values)
    if bits == 32:
        narrow = numbers if numbers.dtype == np.uint32 else narrowed(numbers)
        if narrow is not None:
            return narrow, None
        high = numbers >> np.uint64(32)
        return numbers.astype(np.uint32), (high != 0) & (high != MAPPED)
    bad = values < 0 if values.dtype.kind == "i" and len(values) and values.min() < 0 else None
    if bits == 64:
        return numbers.astype(np.uint64, copy=False), bad
    return as_words(numbers), bad


def _peer_integers(values: NDArray[Any], format: HostFormat) -> tuple[Addresses, Flags | None]:
    """Return integers as peers, of 32 bits if all of them fit, and which of them are bad."""
    if values.dtype == object:
        large, bad = _large_integers(values, 128)
        return _unmapped(large), bad
    if values.ndim == 2:
        return _unmapped(readable(values)), None
    numbers = unsigned(values)
    if numbers.dtype == np.uint32:
        return numbers, None
    narrow = narrowed(numbers) if format.key_bits == 32 else None
    if narrow is not None:
        return narrow, None
    return _unmapped(numbers), values < 0 if values.dtype.kind == "i" else None


def _unmapped(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return numbers of 64 or 128 bits with IPv4 addresses in place of IPv6 addresses that they are mapped to."""
    low = numbers if numbers.ndim == 1 else numbers[:, 1]
    if numbers.ndim == 2 and numbers[:, 0].all():  # as nearly all IPv6 addresses are
        return numbers
    is_mapped = low >> np.uint64(32) == MAPPED
    if numbers.ndim == 2:
        is_mapped = (is_mapped & (numbers[:, 0] == 0))[:, None]
    return np.where(is_mapped, numbers & np.uint64(MASK32), numbers) if is_mapped.any() else numbers


def _large_integers(values: NDArray[Any], bits: int) -> tuple[Addresses, Flags]:
    """Return Python integers of any size as numbers of this width, and which do not fit."""
    bad = np.fromiter((not 0 <= each < 1 << bits for each in values), bool, len(values))
    return numbers_to_array([0 if is_bad else int(each) for each, is_bad in zip(values, bad, strict=True)], bits), bad


def _reason(values: NDArray[Any] | AddressColumn, row: int, format: HostFormat, peers: bool) -> str:
    if not isinstance(values, AddressColumn):
        return "is negative" if values[row] < 0 else f"does not fit in {128 if peers else format.key_bits} bits"
    kind = int(values.kinds[row])
    if kind == 0:
        return "is not an address"
    fitting = 32 if kind == 4 else 128
    return f"is IPv{kind}, but hosts here are IPv{format.family}; a detector with key_bits={fitting} takes it"


def ends_of(column: Column) -> Ends:
    """Return a column as addresses, of uint32 if all are IPv4; what is none, a null too, has kind 0."""
    values = column.values
    if isinstance(values, AddressColumn):
        ends: Ends = values
    elif isinstance(values, Text):
        narrow = np.empty(len(values.starts), np.uint32)
        is_narrow = not values.is_binary and parse_narrow(values.data, values.starts, values.ends, narrow)
        ends = narrow if is_narrow else values.addresses(threads=1)
    else:
        if values.dtype == object:
            values = np.array([each if 0 <= each < 1 << 32 else -1 for each in values], np.int64)
        ends = _integer_ends(unsigned(values))
    if column.codes is not None:
        ends = taken(ends, column.codes) if count_of(column.values) else np.zeros(len(column), np.uint32)
    if column.valid is not None:
        ends = widened(ends)
        ends.kinds[~column.valid] = 0
    if isinstance(ends, AddressColumn) and (ends.kinds == 4).all():
        return ends.words[:, 1].astype(np.uint32)
    return ends


def _integer_ends(numbers: NDArray[Any]) -> Ends:
    """Return numbers of uint32 or uint64 as IPv4 addresses; larger ones are none."""
    if numbers.dtype == np.uint32:
        return numbers
    narrow = np.empty(len(numbers), np.uint32)
    if not int(narrow_into(numbers, narrow)) >> 32:
        return narrow
    found = widened(narrow)
    found.kinds[numbers >> np.uint64(32) != 0] = 0
    return found


@compiled
def parse_narrow(data: Bytes, starts: Rows, ends: Rows, narrow: NDArray[np.uint32]) -> bool:
    """Parse IPv4 addresses; return False at the first row that is none. Most tables have no other rows."""
    begin, safe = np.uint64(data.ctypes.data), len(data) - READABLE
    for i in range(len(narrow)):
        at, end = starts[i], ends[i]
        if at <= safe:
            kind, _, low = parse_at(begin + np.uint64(at), np.uint64(end - at))
        else:
            kind, _, low = parse_address(data, at, end)
        if kind != 4:
            return False
        narrow[i] = low
    return True
