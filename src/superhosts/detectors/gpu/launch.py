"""How kernels are launched: the size of blocks, and launches recorded once and replayed.

Starting a kernel from Python costs tens of microseconds, as long as a whole search needs on the GPU. So a fixed
sequence of launches and copies is recorded as a CUDA graph and then started with one call.

Under numba's simulator, which tests use, a kernel's threads are Python threads: blocks are tiny there, and a recorded
sequence is simply run again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from superhosts.detectors.hashing import Key
from superhosts.device import import_cuda, simulated

cuda = import_cuda()
Function = TypeVar("Function", bound=Callable[..., Any])


class Launch(NamedTuple):
    """Sizes of blocks."""

    multiprocessors: int
    threads: int  # of a block that streams pairs
    items: int  # pairs of each thread in a tile that is sorted by group
    tile_recent_bits: int  # log2 of the pairs that such a block remembers; with the tile they must fit 48 KiB
    fill_recent_bits: int  # log2 of the pairs that a block remembers while it fills one group
    team: int  # threads that read one column together


# Measured on an H200. 512 · 7 pairs and 2^11 remembered ones take 44 KiB of the 48 that a block has at once.
ON_GPU = Launch(0, threads=512, items=7, tile_recent_bits=11, fill_recent_bits=12, team=32)
IN_SIMULATOR = Launch(2, threads=8, items=3, tile_recent_bits=3, fill_recent_bits=3, team=4)


@cache
def launch_of(gpu: int) -> Launch:
    """Return the sizes for a GPU."""
    if simulated():
        return IN_SIMULATOR
    return ON_GPU._replace(multiprocessors=cuda.gpus[gpu].MULTIPROCESSOR_COUNT)


def kernel(function: Callable[..., None]) -> Any:
    """Compile a kernel when it is first launched: kernel[blocks, threads, stream](...)."""
    return cuda.jit(function)


def device_function(function: Function) -> Function:
    """Compile a function that kernels call."""
    compiled: Function = cuda.jit(device=True)(function)
    return compiled


def short_key(key: Key, key_bits: int, arrays: int) -> Key:
    """Return the words of a key for mangling (`key_bits`, or 0) and for columns (`arrays`, or 0) alone.

    Every word that a launch passes costs a microsecond or two.
    """
    return Key(
        mangle32=key.mangle32[:4] if key_bits == 32 else (),
        mangle64=key.mangle64[:3] if key_bits > 32 else (),
        feistel=key.feistel if key_bits == 128 else (),
        pair=() if not arrays else key.pair[:3] if key_bits == 0 else key.pair,
        columns=key.columns[: 2 * arrays],
    )


class Stream:
    """A queue of work on one GPU, known to numba and to CuPy."""

    def __init__(self) -> None:
        if simulated():
            self.numba = cuda.stream()
        else:
            import cupy

            self.cupy = cupy.cuda.Stream()  # a blocking one: it keeps its place beside work on the default stream
            self.numba = cuda.external_stream(self.cupy.ptr)

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        self.numba.synchronize()


class Replay:
    """A sequence of launches and copies on a stream: run as it is at first, recorded when it is wanted again.

    It is given anew with every call, and must be the same: a recording that kept it would keep the whole sketch alive.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._graph: Any = None
        self._ran = False

    def __call__(self, sequence: Callable[[], None]) -> None:
        """Start the sequence and wait for its end."""
        if simulated() or not self._ran:  # the first run compiles and loads what it launches: that cannot be recorded
            sequence()
            self._stream.synchronize()
            self._ran = True
            return
        if self._graph is None:
            self._graph = self._record(sequence)
        self._graph.launch(self._stream.cupy)
        self._stream.synchronize()

    def _record(self, sequence: Callable[[], None]) -> Any:
        self._stream.cupy.begin_capture()
        try:
            sequence()
        finally:
            graph = self._stream.cupy.end_capture()  # also when interrupted; half a recording is not kept
        return graph


def device_zeros(count: int, dtype: Any, stream: Stream) -> Any:
    """Return an array of zeros on the current GPU."""
    if simulated():
        return cuda.to_device(np.zeros(count, dtype))
    array = cuda.device_array(count, dtype)
    set_zero(array, stream)
    return array


def set_zero(array: Any, stream: Stream) -> None:
    """Fill an array with zeros."""
    blocks = max(1, min(4096, len(array) // 1024)) if not simulated() else 2
    _set_zero[blocks, 256 if not simulated() else 4, stream.numba](array)


@kernel
def _set_zero(array: NDArray[Any]) -> None:
    for i in range(cuda.grid(1), len(array), cuda.gridsize(1)):
        array[i] = 0


def pinned(count: int, dtype: Any) -> NDArray[Any]:
    """Return an array in host memory that the GPU copies without help."""
    array: NDArray[Any] = cuda.pinned_array(count, dtype)
    return array


def is_foreign(column: Any) -> bool:
    """Say whether an array belongs to a stream of its own. Work on the default stream keeps its place by itself."""
    return getattr(column, "__cuda_array_interface__", {}).get("stream") not in (None, 1)


def gpu_of(column: Any) -> int:
    """Return the number of the GPU on which an array lies."""
    if simulated() or len(cuda.gpus) == 1:
        return 0
    import cupy

    return int(cupy.cuda.runtime.pointerGetAttributes(column.__cuda_array_interface__["data"][0]).device)


def as_device_array(column: Any) -> Any:
    """Return numba's view of an array that lies on a GPU, in memory without gaps."""
    if getattr(column, "__cuda_ndarray__", False):
        array = column
        if is_foreign(column):
            column.stream.synchronize()
    else:
        array = cuda.as_cuda_array(column, sync=is_foreign(column))
    if array.is_c_contiguous():
        return array
    if simulated():
        return cuda.to_device(np.ascontiguousarray(array.copy_to_host()))
    import cupy

    return cuda.as_cuda_array(cupy.ascontiguousarray(cupy.asarray(array)))
