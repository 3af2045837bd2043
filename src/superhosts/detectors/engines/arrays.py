"""Types of the arrays that engines and detectors exchange, in main memory or in a GPU's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Words = NDArray[np.uint64]  # bits of columns, labels, or hosts as rows (high word, low word)
Counts = NDArray[np.int32]


def is_on_gpu(column: Any) -> bool:
    """Return True if an array is in a GPU's memory: an array of CuPy, numba or any CUDA array interface."""
    return hasattr(column, "__cuda_array_interface__") or getattr(column, "__cuda_ndarray__", False)
