"""Details of whole columns: of Arrow arrays, of values in RowBinary and of messages.

Each column becomes a column of numbers (-1: unknown), by the same functions that read lines of text, and one loop
combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Details
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at
from superhosts.sources.tables.detailfields import DetailFields
from superhosts.sources.tables.detailvalues import (
    DIRECTION,
    DPORT,
    FLAGS,
    ICMP_TYPE,
    PROTO,
    REPLIES,
    REPLY_FLAGS,
    SPORT,
    STATE,
    VALUES,
    Codes,
    Values,
    combine,
    read_value,
)
from superhosts.sources.tables.textscan import PADDING

Numbers = NDArray[np.int64]
_MOST = {PROTO: 255, SPORT: 65535, DPORT: 65535, FLAGS: 65535, ICMP_TYPE: 255, REPLY_FLAGS: 65535, REPLIES: 2**63 - 1}
_FLAG_BITS = 0xFF


def details_of_columns(fields: DetailFields, count: int, read: Callable[[str, int], Numbers]) -> Details:
    """Return the details of rows. `read` returns the numbers of a column, given its name and what it is."""
    values = np.full((VALUES, count), -1, np.int64)
    for what, names in enumerate(fields.names):
        for name in names:
            found = read(name, what)
            values[what] = np.where(values[what] < (what == REPLIES), found, values[what])  # no 0 of replies
    details = np.empty(count, np.uint64)
    combine_columns(values, fields.codes, details)
    return details


@compiled
def combine_columns(values: NDArray[np.int64], codes: Codes, details: Details) -> None:
    """Write the details of rows, given a row of numbers for each value."""
    for i in range(len(details)):
        row = Values(
            values[PROTO, i],
            values[SPORT, i],
            values[DPORT, i],
            values[FLAGS, i],
            values[ICMP_TYPE, i],
            values[DIRECTION, i],
            values[STATE, i],
            values[REPLY_FLAGS, i],
            values[REPLIES, i],
        )
        details[i] = combine(row, codes)


def of_integers(numbers: Numbers, what: int) -> Numbers:
    """Return whole numbers as values of a field: those that cannot be are unknown."""
    most = _MOST.get(what, -1)  # A direction and a state are words.
    kept = np.where((numbers >= 0) & (numbers <= most), numbers, -1)
    return np.where(kept >= 0, kept & _FLAG_BITS, -1) if what in (FLAGS, REPLY_FLAGS) else kept


def of_floats(numbers: NDArray[np.float64], what: int) -> Numbers:
    """Return floating-point numbers as values: whole ones count."""
    whole = (numbers >= 0) & (numbers < 2.0**53) & (np.floor(numbers) == numbers)
    return of_integers(np.where(whole, numbers, -1).astype(np.int64), what)


def of_places(data: NDArray[np.uint8], places: NDArray[np.int64], what: int, codes: Codes) -> Numbers:
    """Return texts as values: text i is data[places[i, 0]:places[i, 1]], and missing if that begins before 0."""
    padded = np.zeros(len(data) + PADDING, np.uint8)  # The functions read whole words.
    padded[: len(data)] = data
    numbers = np.empty(len(places), np.int64)
    read_places(padded, places, what, codes, numbers)
    return numbers


def of_texts(texts: Sequence[bytes | None], what: int, codes: Codes) -> Numbers:
    """Return texts as values; None is missing."""
    lengths = [len(text or b"") for text in texts]
    ends = np.cumsum(lengths, dtype=np.int64)
    begins = np.where([text is None for text in texts], -1, ends - lengths) if texts else ends
    data = np.frombuffer(b"".join(filter(None, texts)), np.uint8)
    return of_places(data, np.stack([begins, ends], axis=1), what, codes)


@compiled
def read_places(data: NDArray[np.uint8], places: NDArray[np.int64], what: int, codes: Codes, numbers: Numbers) -> None:
    """Read the values of texts, without the blanks around them. Texts lie inside, with `PADDING` bytes behind them."""
    base = data.ctypes.data
    for i in range(len(numbers)):
        begin, end = base + places[i, 0], base + places[i, 1]
        if begin < base:
            numbers[i] = -1
            continue
        while end > begin and byte_at(end - 1) <= 32:
            end -= 1
        while begin < end and byte_at(begin) <= 32:
            begin += 1
        numbers[i] = read_value(begin, end, what, codes)
