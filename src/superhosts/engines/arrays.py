"""Columns of numbers, in the machine's memory or in a GPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Words = NDArray[np.uint64]  # bits of columns, labels, rows (high word, low word) of hosts
Counts = NDArray[np.int32]


def is_on_gpu(column: Any) -> bool:
    """Say whether an array lies in a GPU's memory (CuPy's, numba's, or any other with the CUDA array interface)."""
    return hasattr(column, "__cuda_array_interface__") or getattr(column, "__cuda_ndarray__", False)


def to_host(column: Any) -> Any:
    """Return an array in the machine's memory, copied from the GPU if it lies there."""
    if not is_on_gpu(column):
        return column
    from superhosts.engines.gpu.launch import as_device_array

    return as_device_array(column).copy_to_host()
