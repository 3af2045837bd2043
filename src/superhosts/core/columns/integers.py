"""Integers of any width and byte order as uint32 or uint64 columns.

The usual case is the int64 of data frames. One pass copies the low halves and ORs all values, so that the range check
costs nothing beside the reading. Only if the OR says that a value does not fit is it looked for.

Long columns come block by block. A block is narrowed in memory that is used again and so stays in the cache: fresh
memory for all rows would take longer than the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.views import readable
from superhosts.core.device import run_parallel, split_evenly, thread_count
from superhosts.jit.compiled import compiled
from superhosts.jit.pool import Lender

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


def _runs(count: int) -> list[tuple[int, int]]:
    return split_evenly(count, min(thread_count(), max(1, count // ROWS_PER_THREAD)))


def narrowed(values: NDArray[np.uint64]) -> NDArray[np.uint32] | None:
    """Return values as uint32; None if one does not fit."""
    count = len(values)
    narrow = _lent(count) if count <= BLOCK else np.empty(count, np.uint32)
    runs = _runs(count)
    seen = run_parallel(narrow_into, [(values[slice(*run)], narrow[slice(*run)]) for run in runs], len(runs))
    return None if any(int(each) >> 32 for each in seen) else narrow


def _lent(count: int) -> NDArray[np.uint32]:
    """Return room for values, in memory that is used again if there are many."""
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
