"""Checks of the arguments of detectors. Errors name the argument, its value and the valid values."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from superhosts.device import thread_count
from superhosts.engines.arrays import is_on_gpu
from superhosts.errors import UsageError
from superhosts.pairs import KEY_FORMATS, Addresses, HostFormat, format_for
from superhosts.units import SWITCH, whole_number

Sized = TypeVar("Sized", bound=Any)
_WORDS = np.dtype(np.uint32), np.dtype(np.uint64)  # created once, because every batch is checked, even a small one


def as_column(column: Any, what: str) -> Addresses:
    """Return hosts or peers as an array; raise UsageError if its type or shape is not one that detectors take."""
    array = column if type(column) is np.ndarray or is_on_gpu(column) else np.asarray(column)
    if array.ndim == 1 and array.dtype in _WORDS:
        return array
    if array.ndim == 2 and array.shape[1] == 2 and array.dtype == np.uint64:
        return array
    raise UsageError(f"{what}: {array.dtype} {array.shape} is not uint32 (n,), uint64 (n,) or uint64 (n, 2)")


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
