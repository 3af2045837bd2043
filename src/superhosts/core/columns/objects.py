"""Python objects as columns: lists and object arrays of integers, text, bytes and `ipaddress` objects.

Text that is joined and encoded once is parsed by the compiled parser; so is a list of a million addresses in a few
tenths of a second. Nulls are None, NaN, NaT and whatever else is not equal to itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.column import SHOWN, Binary, Column, Flags, Text
from superhosts.core.columns.split import AddressColumn
from superhosts.core.text import SURROGATES
from superhosts.errors import UsageError

NEW_LINE = 10
MASK64 = (1 << 64) - 1
ADDRESS_TYPES = ipaddress.IPv4Address, ipaddress.IPv6Address
TAKEN = "integers alone, or address text, bytes and ipaddress objects"


def from_objects(values: Sequence[Any], name: str) -> Column:
    """Return a sequence of Python objects as a column."""
    valid = _not_null(values)
    present = values if valid is None else [each for each, is_valid in zip(values, valid, strict=True) if is_valid]
    kinds = set(map(type, present))
    if all(issubclass(kind, str) for kind in kinds):
        return Column(_spread_any(text_of_strings(present), valid), name, valid)
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return Column(_spread(_integers(present), valid), name, valid)
    if all(issubclass(kind, bytes) for kind in kinds):
        return Column(_spread_any(Binary(*text_of_bytes(present)), valid), name, valid)
    addresses = _addresses(present, name, np.arange(len(values)) if valid is None else np.flatnonzero(valid))
    return Column(_spread_any(addresses, valid), name, valid)


def text_of_strings(strings: Sequence[str]) -> Text:
    """Return strings as text in one piece of memory."""
    data = np.frombuffer("\n".join(strings).encode(errors=SURROGATES), np.uint8)
    breaks = np.flatnonzero(data == NEW_LINE)
    if len(breaks) != max(0, len(strings) - 1):  # A string has a line break itself.
        return text_of_bytes([each.encode(errors=SURROGATES) for each in strings])
    if not len(strings):
        return Text(data, breaks, breaks)
    return Text(data, np.concatenate(([0], breaks + 1)), np.append(breaks, len(data)))


def text_of_bytes(pieces: Sequence[bytes]) -> Text:
    """Return byte strings as text in one piece of memory."""
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    return Text(np.frombuffer(b"".join(pieces), np.uint8), ends[:-1], ends[1:])


def _not_null(values: Sequence[Any]) -> Flags | None:
    """Return False for each null; None if there is none."""
    kinds = set(map(type, values))
    if all(issubclass(kind, str | int | bytes | np.integer | ipaddress._IPAddressBase) for kind in kinds):
        return None
    flags = np.fromiter((not is_null(each) for each in values), bool, len(values))
    return None if flags.all() else flags


def is_null(value: Any) -> bool:
    """Return True for None, NaN, NaT and pandas' NA."""
    if value is None or value is np.ma.masked:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor unequal; arrays are many answers.
        return type(value).__name__ == "NAType"


def _spread(values: NDArray[Any], valid: Flags | None) -> NDArray[Any]:
    """Return the values of rows that are not null with zeros for the others between them."""
    if valid is None:
        return values
    result = np.zeros((len(valid), *values.shape[1:]), values.dtype)
    result[valid] = values
    return result


def _spread_any(values: Text | Binary | AddressColumn, valid: Flags | None) -> Text | Binary | AddressColumn:
    if isinstance(values, Text | Binary):
        return values._replace(starts=_spread(values.starts, valid), ends=_spread(values.ends, valid))
    return AddressColumn(_spread(values.kinds, valid), _spread(values.words, valid))


def _integers(values: Sequence[Any]) -> NDArray[Any]:
    """Return Python integers as a column, of objects if they do not fit in 64 bits."""
    if not len(values):
        return np.empty(0, np.int64)
    lowest, highest = min(values), max(values)
    if highest < 1 << 63 and lowest >= -(1 << 63):
        return np.array(values, np.int64)
    if lowest >= 0 and highest < 1 << 64:
        return np.array(values, np.uint64)
    return np.array(values, object)


def _addresses(values: Sequence[Any], name: str, rows: NDArray[np.int64]) -> AddressColumn:
    """Return a mixture of text, bytes and `ipaddress` objects as addresses; raise UsageError if a row is none."""
    kinds, words = np.empty(len(values), np.uint8), np.empty((len(values), 2), np.uint64)
    if _is_integer(values[0]):
        i = next(i for i, value in enumerate(values) if not _is_integer(value))
        raise UsageError(f"{name}, row {rows[i]}: {values[i]!r} is not an integer, but row {rows[0]} is")
    for i, value in enumerate(values):
        try:
            address = value if isinstance(value, ADDRESS_TYPES) else ipaddress.ip_address(_decoded(value))
        except (TypeError, ValueError):
            shown = repr(value) if len(repr(value)) <= SHOWN else f"{type(value).__name__} object"
            raise UsageError(f"{name}, row {rows[i]}: {shown} is not an address; use {TAKEN}") from None
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        number = int(mapped or address)
        kinds[i], words[i, 0], words[i, 1] = 4 if mapped else address.version, number >> 64, number & MASK64
    return AddressColumn(kinds, words)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _decoded(value: Any) -> str | bytes:
    """Return text or packed bytes of an address; raise TypeError for other things."""
    if isinstance(value, bytes):
        return value if len(value) in (4, 16) else value.decode()
    if isinstance(value, str):
        return str(value)
    raise TypeError
