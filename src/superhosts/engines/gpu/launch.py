"""How kernels are launched: the size of blocks, kernels bound to their types, launches recorded once and replayed.

Starting a kernel through numba costs some fifty microseconds, half as long as a whole search needs on the GPU. So
a kernel is bound to the types of its arguments once and then started by the driver; and a fixed sequence of launches
and copies is recorded as a CUDA graph, which starts with one call.

Under numba's simulator, which tests use, a kernel's threads are Python threads: blocks are tiny there, and a recorded
sequence is simply run again.
"""

from __future__ import annotations

import ctypes
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

    def __init__(self, *, waits_for_default: bool = True) -> None:
        """Make a queue that keeps its place beside work on the default stream, unless told not to."""
        self.cupy: Any = None  # in the simulator
        if simulated():
            self.numba = cuda.stream()
        else:
            import cupy

            self.cupy = cupy.cuda.Stream(non_blocking=not waits_for_default)
            self.numba = cuda.external_stream(self.cupy.ptr)

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        if self.cupy is not None:
            self.cupy.synchronize()  # in a third of the time that numba takes to ask


class Bound:
    """A kernel compiled for the types of its arguments, and started by the driver.

    numba looks at every argument before each launch, which takes several times as long as the launch. An array reaches
    a kernel as numba's array structure: two references that kernels do not use, items, bytes of an item, address,
    shape and strides. All of it, and all other arguments here, are words of 64 bits.
    """

    def __init__(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        """Compile the kernel for such arguments."""
        compiled = kernel.specialize(*arguments)
        (overload,) = compiled.overloads.values()
        self._function = int(overload._codelibrary.get_cufunc().handle)
        count = len(_argument_words(arguments))
        self._words = (ctypes.c_uint64 * count)()
        first = ctypes.addressof(self._words)
        self._places = (ctypes.c_uint64 * count)(*range(first, first + 8 * count, 8))
        self._kernel = compiled  # keeps the code loaded

    def __call__(self, shape: tuple[int, int], stream: Stream, arguments: tuple[Any, ...]) -> None:
        """Start it: blocks, threads of each."""
        for place, word in enumerate(_argument_words(arguments)):
            self._words[place] = word
        status = _launch_call()(
            self._function, shape[0], 1, 1, shape[1], 1, 1, 0, stream.cupy.ptr, ctypes.addressof(self._places), 0
        )
        if status:
            raise RuntimeError(f"the GPU refused a launch: status {status}")


def driver_call(name: str, *arguments: Any) -> Any:
    """Return a function of the driver: its status is the result."""
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)((name, cuda_driver()))


@cache
def _launch_call() -> Any:
    return driver_call("cuLaunchKernel", ctypes.c_uint64, *7 * [ctypes.c_uint], *3 * [ctypes.c_uint64])


_attached = threading.local()


def attach() -> None:
    """Make sure that this thread has a context of the GPU, which numba gives it when it is first asked."""
    if not hasattr(_attached, "done"):
        cuda.current_context()
        _attached.done = True


def current_context() -> int:
    """Return the context of the current GPU, as the driver knows it."""
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
            address = argument.device_ctypes_pointer.value or 0
            words += (0, 0, argument.size, argument.dtype.itemsize, address, *argument.shape, *argument.strides)
    return words


@cache
def _tuple_words(numbers: tuple[Any, ...]) -> list[int]:
    """Return the numbers of nested tuples: keys."""
    return [word for item in numbers for word in (_tuple_words(item) if isinstance(item, tuple) else [int(item)])]


class Replay:
    """A sequence of launches and copies on a stream: run as it is at first, recorded when it is wanted again.

    It is given anew with every call, and must be the same: a recording that kept it would keep the whole sketch alive.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._graph: Any = None
        self._ran = False

    def __call__(self, sequence: Callable[[Stream], None]) -> None:
        """Start the sequence and wait for its end."""
        if simulated() or not self._ran:  # the first run compiles and loads what it launches: that cannot be recorded
            sequence(self._stream)
            self._stream.synchronize()
            self._ran = True
            return
        if self._graph is None:
            self._graph = self._record(sequence)
        self._graph.launch(self._stream.cupy)
        self._stream.synchronize()

    @staticmethod
    def _record(sequence: Callable[[Stream], None]) -> Any:
        stream = Stream(waits_for_default=False)  # else nobody could use the default stream meanwhile
        stream.cupy.begin_capture()
        try:
            sequence(stream)
        finally:
            graph = stream.cupy.end_capture()  # also when interrupted; half a recording is not kept
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
    if simulated():
        array.copy_to_device(np.zeros(array.shape, array.dtype))
        return
    import cupy

    address, size = array.device_ctypes_pointer.value, array.size * array.dtype.itemsize
    if size:
        cupy.cuda.runtime.memsetAsync(address, 0, size, stream.cupy.ptr)


def pinned(count: int, dtype: Any) -> NDArray[Any]:
    """Return an array in host memory that the GPU copies without help."""
    array: NDArray[Any] = cuda.pinned_array(count, dtype)
    return array


def use_gpu(gpu: int) -> None:
    """Make a GPU the current one of this thread."""
    if not simulated():
        import cupy

        cupy.cuda.runtime.setDevice(gpu)


def send_rows(source: NDArray[Any], target: Any, stream: Stream) -> None:
    """Begin to copy pinned memory into an array on the GPU. numba takes ten times as long for it."""
    if simulated():
        target.copy_to_device(source)
        return
    import cupy

    address = target.device_ctypes_pointer.value
    cupy.cuda.runtime.memcpyAsync(address, source.ctypes.data, source.nbytes, 1, stream.cupy.ptr)  # 1: host to GPU


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
