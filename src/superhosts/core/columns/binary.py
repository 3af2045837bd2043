"""Bytes as addresses: text, or the 4 or 16 bytes of the address in network order.

A column of bytes does not say which it is. It is text if every row is an address as text. Otherwise it is binary if
every row has 4 or 16 bytes. A column of binary addresses that all look like text ("1::2" is 49.58.58.50) does not occur
by chance; whoever has a single one can pass it as an `ipaddress` object.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import Bytes, Words, parse_spans
from superhosts.core.columns.column import Binary, Flags, Text
from superhosts.core.columns.split import AddressColumn
from superhosts.core.columns.views import readable
from superhosts.core.pairs import MAPPED


def from_bytes(given: Binary, valid: Flags | None = None) -> Text | AddressColumn:
    """Return bytes as text, or as addresses if they are binary. Rows that are not valid do not matter."""
    column = Text(*given)
    lengths = column.ends - column.starts
    if not len(lengths) or not np.isin(lengths if valid is None else lengths[valid], (4, 16)).all():
        return column
    first = 0 if valid is None else int(np.argmax(valid))
    if _is_text(column, slice(first, first + 1)) and _is_text(column, slice(None), valid):
        return column
    size = 16 if (lengths == 16).any() else 4
    places = column.starts[:, None] + np.arange(size)
    last = max(0, len(column.data) - 1)
    packed = column.data[np.minimum(places, last)]
    if size == 4 or (lengths == 16).all():
        return from_packed(packed)
    narrow, wide = from_packed(np.ascontiguousarray(packed[:, :4])), from_packed(packed)
    is_narrow = lengths == 4
    return AddressColumn(
        np.where(is_narrow, narrow.kinds, wide.kinds), np.where(is_narrow[:, None], narrow.words, wide.words)
    )


def from_packed(packed: NDArray[Any]) -> AddressColumn:
    """Return rows of 4 or 16 bytes (n, 4) or (n, 16) as addresses. IPv4-mapped IPv6 is IPv4."""
    rows: Bytes = readable(packed)
    count = len(rows)
    words: Words = np.zeros((count, 2), np.uint64)
    if rows.shape[1] == 4:
        words[:, 1] = rows.view(">u4")[:, 0]
        return AddressColumn(np.full(count, 4, np.uint8), words)
    words[:] = rows.view(">u8")
    return from_words(words)


def from_words(words: Words) -> AddressColumn:
    """Return IPv6 addresses as such, in the same memory. IPv4-mapped ones are IPv4."""
    is_mapped = (words[:, 0] == 0) & (words[:, 1] >> np.uint64(32) == MAPPED)
    words[is_mapped, 1] &= np.uint64(0xFFFFFFFF)
    return AddressColumn(np.where(is_mapped, 4, 6).astype(np.uint8), words)


def _is_text(column: Text, rows: slice, valid: Flags | None = None) -> bool:
    """Return True if some rows, unless they are null, are addresses as text."""
    kinds, _ = parse_spans(readable(column.data), column.starts[rows], column.ends[rows])
    return bool((kinds != 0 if valid is None else (kinds != 0) | ~valid).all())
