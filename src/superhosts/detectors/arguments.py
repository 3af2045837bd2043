"""Checks of the arguments of detectors. Errors name the argument, its value and the valid values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from superhosts.core.columns.column import Column
from superhosts.core.columns.hosts import Pairs, blocks_of, hosts_of, integers_of, unmapped_hosts
from superhosts.core.columns.readers import column_of
from superhosts.core.device import thread_count
from superhosts.core.pairs import KEY_FORMATS, Addresses, HostFormat, format_for, numbers_to_array
from superhosts.core.text import counted
from superhosts.core.units import SWITCH, whole_number
from superhosts.detectors.engines.base import is_on_gpu
from superhosts.errors import UsageError

Sized = TypeVar("Sized", bound=Any)
FEW = 16  # hosts that are converted one by one, which takes less than to start the compiled way
PREFIXES = IPv4Network, IPv6Network
SINGLE = str, int, np.integer, IPv4Address, IPv6Address, *PREFIXES
_NARROW = np.dtype(np.uint32)
_WORDS = _NARROW, np.dtype(np.uint64)


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


def as_hosts(hosts: Any, format: HostFormat) -> Addresses:
    """Return a column as hosts; raise UsageError if it, or a row, is not what a detector takes."""
    if is_on_gpu(hosts):
        column = _words(hosts, "hosts")
    elif isinstance(hosts, list | tuple) and _one_by_one(hosts):
        return numbers_to_array([format.to_number(host) for host in hosts], format.key_bits)
    else:
        column = hosts_of(unmapped_hosts(_column(hosts, "hosts"), format), format)
    if bits_of(column) != format.key_bits:
        raise UsageError(f"hosts have {bits_of(column)} bits, but those of the sketch have {format.key_bits}")
    return column


def _is_narrow(column: Any) -> bool:
    """Return True for the usual column, which needs no conversion. Every batch is checked, even a small one."""
    return type(column) is np.ndarray and column.dtype == _NARROW and column.ndim == 1 and column.flags.carray


def _one_by_one(hosts: list[Any] | tuple[Any, ...]) -> bool:
    """Return True for a few hosts, or if some are prefixes."""
    if len(hosts) <= FEW:
        return all(isinstance(host, SINGLE) for host in hosts)
    return any(isinstance(host, PREFIXES) or (type(host) is str and "/" in host) for host in hosts)


def _column(column: Any, name: str) -> Column:
    return column if isinstance(column, Column) else column_of(column, name)


def _words(column: Any, name: str) -> Addresses:
    """Return a column as an array of words in main memory or in that of a GPU."""
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
    """Return the bits of each address in an array."""
    return 128 if column.ndim == 2 else column.dtype.itemsize * 8


def check_threshold(threshold: Any, name: str = "threshold") -> float:
    """Return the threshold as a float; raise UsageError, which names the argument or option, if it is invalid."""
    if not isinstance(threshold, Real) or not 1 <= float(threshold) < math.inf:
        shown = f"{threshold:g}" if isinstance(threshold, float) else threshold
        raise UsageError(f"{name} {shown!s}: must be a number of peers, at least 1")
    return float(threshold)


def check_count(count: int, name: str = "top") -> int:
    """Return the number of hosts to list as an integer; raise UsageError, which names it, if it is invalid."""
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
    """Return whether pairs are to be kept exactly while they fit; None if the device decides."""
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
    """Return a checked geometry. Raise UsageError if another argument contradicts it.

    A geometry determines all sizes, so a caller who also passes a different size is mistaken about one of them.
    """
    checked: Sized = geometry.check()
    for name, value in others.items():
        own = getattr(checked, name, None)
        if value is not None and value != own:
            detail = f" with {name}={own}" if isinstance(own, int) else ""
            raise UsageError(f"{name}={value} cannot be combined with a geometry{detail}; pass one or the other")
    return checked
