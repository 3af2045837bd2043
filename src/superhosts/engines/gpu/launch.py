"""Launching kernels: block sizes, kernels bound to their argument types, launches recorded once and replayed.

A launch through numba costs about fifty microseconds, half the time of a whole search on the GPU. `BoundKernel`
therefore compiles a kernel for its argument types once and then launches it through the driver, and `Replay` records a
fixed sequence of launches and copies as a CUDA graph, which one call starts.

Under numba's simulator, which tests use, a kernel's threads are Python threads. Blocks are tiny there, and `Replay`
runs its sequence again instead of recording it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from superhosts.device import cuda_driver, import_cuda, simulated
from superhosts.hashing import Key

cuda = import_cuda()
Function = TypeVar("Function", bound=Callable[..., Any])


class Launch(NamedTuple):
    """Sizes of blocks."""

    multiprocessors: int
    threads: int  # threads of a block that processes pairs
    items: int  # pairs per thread in a tile that is sorted by group
    tile_recent_bits: int  # log2 of the pairs that a sorting block remembers; with the tile they must fit 48 KiB
    fill_recent_bits: int  # log2 of the pairs that are remembered as written
    team: int  # threads that read one column together: a warp
    lanes: int  # threads that test the first words of a host's columns together


# Measured on an H200. A tile of 512 · 7 pairs and 2^11 remembered pairs take 44 of the 48 KiB of shared memory that a
# block has by default.
ON_GPU = Launch(0, threads=512, items=7, tile_recent_bits=11, fill_recent_bits=21, team=32, lanes=8)
IN_SIMULATOR = Launch(2, threads=8, items=3, tile_recent_bits=3, fill_recent_bits=3, team=4, lanes=2)


@cache
def launch_of(gpu: int) -> Launch:
    """Return the block sizes for a GPU."""
    if simulated():
        return IN_SIMULATOR
    return ON_GPU._replace(multiprocessors=cuda.gpus[gpu].MULTIPROCESSOR_COUNT)


def kernel(function: Callable[..., None]) -> Any:
    """Return a kernel that is compiled on its first launch: kernel[blocks, threads, stream](...)."""
    return cuda.jit(function)


def device_function(function: Function) -> Function:
    """Return a function that kernels can call, compiled with them."""
    compiled: Function = cuda.jit(device=True)(function)
    return compiled


def short_key(key: Key, key_bits: int, arrays: int) -> Key:
    """Return a key with only the words for mangling hosts of `key_bits` bits and for the columns of `arrays` arrays.

    Either may be 0 to leave its words out. Every word that a launch passes costs a microsecond or two.
    """
    return Key(
        mangle32=key.mangle32[:4] if key_bits == 32 else (),
        mangle64=key.mangle64[:3] if key_bits > 32 else (),
        feistel=key.feistel if key_bits == 128 else (),
        pair=() if not arrays else key.pair[:3] if key_bits == 0 else key.pair,
        columns=key.columns[: 2 * arrays],
    )


class Stream:
    """A CUDA stream of one GPU, usable from both numba and CuPy."""

    def __init__(self, *, waits_for_default: bool = True) -> None:
        """Create a stream that is ordered with the default stream unless `waits_for_default` is False."""
        self.cupy: Any = None  # stays None in the simulator
        if simulated():
            self.numba = cuda.stream()
        else:
            import cupy

            self.cupy = cupy.cuda.Stream(non_blocking=not waits_for_default)
            self.numba = cuda.external_stream(self.cupy.ptr)

    def separate(self) -> Stream:
        """Return another stream, which is not ordered with the default stream."""
        return Stream(waits_for_default=False)

    def synchronize(self) -> None:
        """Wait until all work of the stream is done."""
        if self.cupy is not None:
            self.cupy.synchronize()  # CuPy's call takes a third of the time of numba's.


class BoundKernel:
    """A kernel compiled for the types of its arguments and launched through the driver.

    numba inspects every argument before each launch, which takes several times as long as the launch. A kernel receives
    an array as numba's array structure: two references that kernels do not use, number of items, bytes per item,
    address, shape and strides. All of these, and all other arguments here, are 64-bit words.
    """

    def __init__(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        """Compile the kernel for the types of these arguments."""
        arrays = (cuda.as_cuda_array(each, sync=False) if is_cupy(each) else each for each in arguments)
        compiled = kernel.specialize(*arrays)
        (overload,) = compiled.overloads.values()
        self._function = int(overload._codelibrary.get_cufunc().handle)
        count = len(_argument_words(arguments))
        self._words = (ctypes.c_uint64 * count)()
        first = ctypes.addressof(self._words)
        self._addresses = (ctypes.c_uint64 * count)(*range(first, first + 8 * count, 8))
        self._kernel = compiled  # This reference keeps the code loaded.

    def __call__(self, shape: tuple[int, int], stream: Stream, arguments: tuple[Any, ...]) -> None:
        """Launch the kernel with `shape` = (blocks, threads per block)."""
        words: Any = _argument_words(arguments)
        self._words[:] = words
        status = _launch_call()(
            self._function, shape[0], 1, 1, shape[1], 1, 1, 0, stream.cupy.ptr, ctypes.addressof(self._addresses), 0
        )
        if status:
            raise RuntimeError(f"the GPU driver refused to launch a kernel: status {status}")


def driver_call(name: str, *arguments: Any) -> Any:
    """Return a function of the CUDA driver that returns a status."""
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)((name, cuda_driver()))


@cache
def _launch_call() -> Any:
    return driver_call("cuLaunchKernel", ctypes.c_uint64, *7 * [ctypes.c_uint], *3 * [ctypes.c_uint64])


_attached = threading.local()


def attach() -> None:
    """Ensure that this thread has a CUDA context. numba creates it on the first request."""
    if not hasattr(_attached, "done"):
        cuda.current_context()
        _attached.done = True


def current_context() -> int:
    """Return the driver's handle of the current GPU context."""
    attach()
    context = ctypes.c_uint64()
    _context_call()(ctypes.addressof(context))
    return context.value


@cache
def _context_call() -> Any:
    return driver_call("cuCtxGetCurrent", ctypes.c_uint64)


def _argument_words(arguments: tuple[Any, ...]) -> list[int]:
    words: list[int] = []
    for argument in arguments:
        if isinstance(argument, tuple):
            words += _tuple_words(argument)
        elif isinstance(argument, int):
            words.append(argument)
        else:
            words += _array_words(argument)
    return words


def _array_words(array: Any) -> tuple[int, ...]:
    """Return numba's array structure. An array of numba keeps it, because to look it up takes as long as a launch."""
    if is_cupy(array):
        return (0, 0, array.size, array.itemsize, array.data.ptr, *array.shape, *array.strides)
    words: tuple[int, ...] | None = getattr(array, "launch_words", None)
    if words is None:
        address = array.device_ctypes_pointer.value or 0
        words = array.launch_words = 0, 0, array.size, array.dtype.itemsize, address, *array.shape, *array.strides
    return words


@cache
def _tuple_words(numbers: tuple[Any, ...]) -> list[int]:
    """Return the numbers in nested tuples, such as keys, as a flat list."""
    return [word for item in numbers for word in (_tuple_words(item) if isinstance(item, tuple) else [int(item)])]


class Replay:
    """A sequence of launches and copies that the first call runs directly and the second one records as a CUDA graph.

    The caller passes the same sequence to every call. The object keeps no reference to it, which would keep the whole
    sketch alive.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._graph: Any = None
        self._ran = False

    def __call__(self, sequence: Callable[[Stream], None]) -> None:
        """Run the sequence and wait until it is done."""
        # The first run compiles and loads the kernels, which cannot be recorded; the simulator records nothing.
        if self._stream.cupy is None or not self._ran:
            sequence(self._stream)
            self._stream.synchronize()
            self._ran = True
            return
        if self._graph is None:
            self._graph = self._record(sequence)
        self._graph.launch(self._stream.cupy)
        self._stream.synchronize()

    def _record(self, sequence: Callable[[Stream], None]) -> Any:
        # A stream ordered with the default one would make the default stream unusable for other threads meanwhile.
        stream = self._stream.separate()
        stream.cupy.begin_capture()
        try:
            sequence(stream)
        finally:
            graph = stream.cupy.end_capture()  # Ends even when interrupted; a partial recording is then discarded.
        return graph


def device_zeros(count: int, dtype: Any, stream: Stream) -> Any:
    """Return an array of zeros on the current GPU."""
    array = cuda.device_array(count, dtype)
    set_zero(array, stream)
    return array


def set_zero(array: Any, stream: Stream) -> None:
    """Fill an array with zeros."""
    if simulated():
        array.copy_to_device(np.zeros(array.shape, array.dtype))
        return
    import cupy

    address, size = array.device_ctypes_pointer.value, array.size * array.dtype.itemsize
    if size:
        cupy.cuda.runtime.memsetAsync(address, 0, size, stream.cupy.ptr)


def pinned(count: int, dtype: Any) -> NDArray[Any]:
    """Return an array in pinned host memory, which the GPU can copy directly."""
    array: NDArray[Any] = cuda.pinned_array(count, dtype)
    return array


def use_gpu(gpu: int) -> None:
    """Make a GPU the current device of this thread."""
    if not simulated():
        import cupy

        cupy.cuda.runtime.setDevice(gpu)


def send_rows(source: NDArray[Any], target: Any, stream: Stream) -> None:
    """Start an asynchronous copy of pinned memory to an array on the GPU. numba's copy takes ten times as long."""
    if simulated():
        target.copy_to_device(source)
        return
    import cupy

    address = target.device_ctypes_pointer.value
    cupy.cuda.runtime.memcpyAsync(address, source.ctypes.data, source.nbytes, 1, stream.cupy.ptr)  # 1: host to GPU


def has_own_stream(column: Any) -> bool:
    """Return True if an array belongs to a stream other than the default one, with which our streams are ordered."""
    return getattr(column, "__cuda_array_interface__", {}).get("stream") not in (None, 1)


def gpu_of(column: Any) -> int:
    """Return the number of the GPU whose memory has the array."""
    if simulated() or len(cuda.gpus) == 1:
        return 0
    import cupy

    return int(cupy.cuda.runtime.pointerGetAttributes(column.__cuda_array_interface__["data"][0]).device)


def is_cupy(column: Any) -> bool:
    """Return True if an array is one of CuPy."""
    return isinstance(column, getattr(sys.modules.get("cupy"), "ndarray", ()))


def as_device_array(column: Any) -> Any:
    """Return an array on a GPU as one of CuPy or numba, contiguous and ready to be read.

    An array of CuPy stays what it is, because to make one of numba takes longer than to launch a kernel.
    """
    waits = has_own_stream(column)
    if is_cupy(column) and not waits:
        import cupy

        return column if column.flags.c_contiguous else cupy.ascontiguousarray(column)
    if getattr(column, "__cuda_ndarray__", False):
        array = column
        if waits:
            column.stream.synchronize()
    else:
        array = cuda.as_cuda_array(column, sync=waits)
    if array.is_c_contiguous():
        return array
    if simulated():
        return cuda.to_device(np.ascontiguousarray(array.copy_to_host()))
    import cupy

    return cuda.as_cuda_array(cupy.ascontiguousarray(cupy.asarray(array)))
