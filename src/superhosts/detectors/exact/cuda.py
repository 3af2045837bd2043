"""Where the exact detector's rows lie: the library of their arrays, and what only rows on a GPU need.

CuPy is imported when a GPU is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar, cast

import numpy as np

from superhosts.device import simulated
from superhosts.engines.arrays import is_on_gpu

Method = TypeVar("Method", bound=Callable[..., Any])


def array_module(gpu: int | None) -> Any:
    """Return the library of arrays of a GPU, or of the CPU (None). Tests without a GPU put a stand-in here."""
    if gpu is None:
        return np
    import cupy

    return cupy


def at_home(method: Method) -> Method:
    """Make the detector's GPU the current one while the method runs, and wait in the end for what it started there.

    So callers may reuse their arrays at once, and make the next call on another stream.
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
    """Return an array in the machine's memory, copied only if it lies on a GPU."""
    if not is_on_gpu(array):
        return array
    if simulated():  # numba's simulator: CuPy does not know its arrays
        return array.copy_to_host()
    cupy = array_module(0)
    return cupy.asnumpy(cupy.asarray(array))


@cache
def _pack_kernel(cupy: Any) -> Any:
    operation = "pair = (unsigned long long)host << 32 | peer"
    return cupy.ElementwiseKernel("uint32 host, uint32 peer", "uint64 pair", operation, "superhosts_pack")


def pack(hosts: Any, peers: Any, cupy: Any) -> Any:
    """Put two 32-bit numbers into one word, in one pass and without arrays in between."""
    return _pack_kernel(cupy)(hosts, peers)
