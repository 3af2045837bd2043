"""Copies of arrays from a GPU's memory to main memory.

`gpu/launch.py` loads the CUDA packages, which are optional and slow to load, so it is imported when the first such
array comes.
"""

from __future__ import annotations

from typing import Any

from superhosts.detectors.engines.arrays import is_on_gpu


def to_host(column: Any) -> Any:
    """Return an array in main memory, copied from the GPU if necessary."""
    if not is_on_gpu(column):
        return column
    from superhosts.detectors.gpu.launch import as_device_array, is_cupy

    array = as_device_array(column)
    return array.get() if is_cupy(array) else array.copy_to_host()
