"""Arrays over memory that belongs to others, without a copy.

Arrow, pandas and memory maps give read-only memory. numba has a type of its own for read-only arrays and would compile
every loop once more for it, seconds on the first call. Loops over columns only read them, so they get an array that
does not say so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Memory:
    """Memory of an owner, as NumPy takes it. The array keeps this object, and with it the owner."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


def array_at(address: int, count: int, dtype: Any, owner: Any) -> NDArray[Any]:
    """Return `count` values at an address in memory that is there as long as `owner`."""
    kind = np.dtype(dtype)
    return np.asarray(_Memory(address, (count,), kind, owner)) if count else np.empty(0, kind)


def readable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the values of an array in one piece of memory, copied only if they are scattered."""
    whole = np.ascontiguousarray(array)
    if whole.flags.writeable or not whole.size:
        return whole
    return np.asarray(_Memory(whole.ctypes.data, whole.shape, whole.dtype, whole))
