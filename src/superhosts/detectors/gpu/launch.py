"""Launching kernels: block sizes, kernels bound to their argument types, launches recorded once and replayed.

A launch through numba costs about fifty microseconds, half the time of a whole search on the GPU. `BoundKernel`
therefore launches machine code (`code.py`) through the driver, and `Replay` records a fixed sequence of launches and
copies as a CUDA graph, which one call starts.

Under numba's simulator, which tests use, a kernel's threads are Python threads. Blocks are tiny there, arrays are
numba's, streams do nothing, and `Replay` runs its sequence again instead of recording it.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import gpu_count, import_cuda, simulated
from superhosts.core.hashing import Key
from superhosts.detectors.gpu import driver
from superhosts.detectors.gpu.code import Kernel


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
    return ON_GPU._replace(multiprocessors=driver.attribute(gpu, driver.MULTIPROCESSORS))


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


class SimulatedStream:
    """A stream of the simulator, which does everything at once."""

    handle = 0

    def separate(self) -> SimulatedStream:
        """Return another stream."""
        return SimulatedStream()

    def synchronize(self) -> None:
        """Do nothing."""


Stream = driver.Stream | SimulatedStream


def make_stream(*, waits_for_default: bool = True) -> Stream:
    """Return a stream of the current GPU, ordered with the default stream unless `waits_for_default` is False."""
    return SimulatedStream() if simulated() else driver.Stream(waits_for_default=waits_for_default)


class BoundKernel:
    """A kernel for the types of its arguments, launched through the driver.

    numba inspects every argument before each launch, which takes several times as long as the launch. All arguments,
    and the parts of numba's array structure, are 64-bit words.
    """

    def __init__(self, kernel: Kernel, gpu: int, arguments: tuple[Any, ...]) -> None:
        """Load the kernel for the types of these arguments."""
        self._function = kernel.load(gpu, arguments).handle
        count = len(_argument_words(arguments))
        self._words = (ctypes.c_uint64 * count)()
        first = ctypes.addressof(self._words)
        self._addresses = (ctypes.c_uint64 * count)(*range(first, first + 8 * count, 8))

    def __call__(self, shape: tuple[int, int], stream: Stream, arguments: tuple[Any, ...]) -> None:
        """Launch the kernel with `shape` = (blocks, threads per block)."""
        words: Any = _argument_words(arguments)
        self._words[:] = words
        status = driver.launch_call()(
            self._function, shape[0], 1, 1, shape[1], 1, 1, 0, stream.handle, ctypes.addressof(self._addresses), 0
        )
        if status:
            raise driver.DriverError("cuLaunchKernel", status)


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
    """Return numba's array structure, which our own arrays keep: see `driver.DeviceArray`."""
    if is_cupy(array):
        return (0, 0, array.size, array.itemsize, array.data.ptr, *array.shape, *array.strides)
    words: tuple[int, ...] = array.launch_words
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
        if isinstance(self._stream, SimulatedStream) or not self._ran:
            sequence(self._stream)
            self._stream.synchronize()
            self._ran = True
            return
        if self._graph is None:
            self._graph = self._record(sequence)
        self._graph.launch(self._stream)
        self._stream.synchronize()

    def _record(self, sequence: Callable[[Stream], None]) -> Any:
        # A stream ordered with the default one would make the default stream unusable for other threads meanwhile.
        stream: Any = self._stream.separate()
        stream.start_recording()
        try:
            sequence(stream)
        except BaseException:  # The recording ends even when interrupted, and is then discarded.
            with contextlib.suppress(driver.DriverError):  # It is broken already; the first error says why.
                stream.stop_recording()
            raise
        return stream.stop_recording()


def device_array(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Return an array on the current GPU, with any content."""
    return import_cuda().device_array(shape, dtype) if simulated() else driver.allocate(shape, dtype)


def to_device(array: NDArray[Any]) -> Any:
    """Return a copy of an array on the current GPU."""
    copy = device_array(array.shape, array.dtype)
    copy.copy_to_device(array)
    return copy


def device_zeros(count: int, dtype: Any, stream: Stream) -> Any:
    """Return an array of zeros on the current GPU."""
    array = device_array(count, dtype)
    set_zero(array, stream)
    return array


def set_zero(array: Any, stream: Stream) -> None:
    """Fill an array with zeros."""
    if simulated():
        array.copy_to_device(np.zeros(array.shape, array.dtype))
    else:
        array.set_zero(stream.handle)


def pinned(count: int, dtype: Any) -> NDArray[Any]:
    """Return an array in pinned host memory, which the GPU can copy directly."""
    return np.empty(count, dtype) if simulated() else driver.pinned(count, dtype)


def is_pinned(array: NDArray[Any]) -> bool:
    """Return True if an array is in pinned host memory, which the GPU can copy directly."""
    if simulated() or not len(array) or not array.flags.c_contiguous:
        return False
    return driver.is_pinned(array.ctypes.data)


def free_memory() -> int:
    """Return the free bytes of the current GPU."""
    return sys.maxsize if simulated() else driver.free_memory()


def has_own_stream(column: Any) -> bool:
    """Return True if an array belongs to a stream other than the default one, with which our streams are ordered."""
    return getattr(column, "__cuda_array_interface__", {}).get("stream") not in (None, 1)


def gpu_of(column: Any) -> int:
    """Return the number of the GPU whose memory has the array."""
    if simulated() or gpu_count() == 1:
        return 0
    return driver.gpu_at(column.__cuda_array_interface__["data"][0])


def is_cupy(column: Any) -> bool:
    """Return True if an array is one of CuPy."""
    return isinstance(column, getattr(sys.modules.get("cupy"), "ndarray", ()))


def as_device_array(column: Any) -> Any:
    """Return an array on a GPU without gaps, ready to be read: one of CuPy, ours, or the simulator's.

    An array of CuPy stays what it is, because to describe it takes longer than to launch a kernel.
    """
    if simulated():
        return column if column.is_c_contiguous() else to_device(np.ascontiguousarray(column.copy_to_host()))
    waits = has_own_stream(column)
    if is_cupy(column) and not waits and column.flags.c_contiguous:
        return column
    if waits:
        driver.wait_for(column.__cuda_array_interface__["stream"])
    array = driver.borrow(column)
    if array is not None:
        return array
    import cupy

    return cupy.ascontiguousarray(cupy.asarray(column))
