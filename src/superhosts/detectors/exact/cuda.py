"""GPU support of the exact detector: the array library of its rows, and operations on rows in a GPU's memory.

CuPy is imported when a GPU is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar, cast

import numpy as np

from superhosts.core.device import simulated
from superhosts.detectors.engines.base import is_on_gpu

Method = TypeVar("Method", bound=Callable[..., Any])


def array_module(gpu: int | None) -> Any:
    """Return the array library of a GPU, or of the CPU if `gpu` is None. Tests without a GPU replace this function."""
    if gpu is None:
        return np
    import cupy

    return cupy


def on_own_gpu(method: Method) -> Method:
    """Decorate a method to run with the detector's GPU as the current device and to wait for the work it started there.

    Callers may therefore reuse their arrays on return and make the next call on another stream.
    """

    @wraps(method)
    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        if self.gpu is None:
            return method(self, *arguments, **named)
        cuda = array_module(self.gpu).cuda
        with cuda.Device(self.gpu):
            result = method(self, *arguments, **named)
            cuda.get_current_stream().synchronize()
        return result

    return cast(Method, run)


def to_host(array: Any) -> Any:
    """Return an array in main memory, copied only if it is on a GPU."""
    if not is_on_gpu(array):
        return array
    if simulated():  # CuPy does not support the arrays of numba's simulator.
        return array.copy_to_host()
    cupy = array_module(0)
    return cupy.asnumpy(cupy.asarray(array))


@cache
def _pack_kernel(cupy: Any) -> Any:
    operation = "pair = (unsigned long long)host << 32 | peer"
    return cupy.ElementwiseKernel("uint32 host, uint32 peer", "uint64 pair", operation, "superhosts_pack")


def pack(hosts: Any, peers: Any, cupy: Any) -> Any:
    """Pack two 32-bit numbers into one word, in one pass and without intermediate arrays."""
    return _pack_kernel(cupy)(hosts, peers)
