"""NVIDIA's driver, called directly: contexts, memory, streams, recorded launches and loaded kernels.

The packages that offer the same (numba.cuda, CuPy) take longer to import than a GPU takes to start. They are needed to
compile kernels and for arrays with gaps; what runs every time is here. All work is in a GPU's primary context, which
those packages and CUDA's runtime use too, so memory and streams are shared with them.

Tests without a GPU put a driver in its place whose memory is main memory (`tests/hostgpu.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import cuda_driver

OUT_OF_MEMORY = 2
MULTIPROCESSORS, CAPABILITY_MAJOR, CAPABILITY_MINOR = 16, 75, 76  # numbers of attributes of a GPU
MEMORY_TYPE, GPU_OF_MEMORY = 2, 9  # numbers of attributes of an address
HOST_MEMORY = 1  # memory type of pinned memory
PORTABLE = 1  # pinned memory that every context can use
CU_STREAM_NON_BLOCKING = 1  # a stream that is not ordered with the default stream
RELAXED = 2  # Other threads may allocate memory while launches are recorded.
WORD = ctypes.c_uint64


class DriverError(RuntimeError):
    def __init__(self, name: str, status: int) -> None:
        said = ctypes.c_char_p()
        with contextlib.suppress(OSError, AttributeError):
            cuda_driver().cuGetErrorName(status, ctypes.byref(said))
        error = f"{(said.value or b'an unknown error').decode()} ({status})"
        super().__init__(f"the GPU driver failed: {name} returned {error}")
        self.status = status


def is_out_of_memory(error: Exception) -> bool:
    return "OUT_OF_MEMORY" in str(error) or type(error).__name__ == "OutOfMemoryError"


@cache
def words_call(name: str, count: int) -> Any:
    """Return a function of the driver. Its arguments are words or smaller numbers, which the ABI passes as words."""
    function = getattr(cuda_driver(), name)
    function.argtypes, function.restype = count * [WORD], ctypes.c_int
    return function


def call(name: str, *words: int) -> None:
    """Call a function of the driver whose arguments are words or fit into one. Raise DriverError if it fails."""
    status = words_call(name, len(words))(*words)
    if status:
        raise DriverError(name, status)


def ask(name: str, *words: int) -> int:
    """Return the word that a function of the driver stores at the address given by its first argument."""
    answer = WORD(0)
    call(name, ctypes.addressof(answer), *words)
    return answer.value


# Contexts

_this_thread = threading.local()


@cache
def context_of(gpu: int) -> int:
    """Return the primary context of a GPU, which this creates unless something in this process has done so."""
    call("cuInit", 0)
    return ask("cuDevicePrimaryCtxRetain", ask("cuDeviceGet", gpu))


os.register_at_fork(after_in_child=context_of.cache_clear)  # CUDA does not survive a fork.


def enter(gpu: int) -> None:
    """Make a GPU the current one of this thread. This takes less time than `inside`, where there is only one."""
    if getattr(_this_thread, "gpu", None) != gpu:
        call("cuCtxSetCurrent", context_of(gpu))
        _this_thread.gpu = gpu


@contextlib.contextmanager
def inside(gpu: int) -> Iterator[None]:
    call("cuCtxPushCurrent_v2", context_of(gpu))
    try:
        yield
    finally:
        ask("cuCtxPopCurrent_v2")


@cache
def attribute(gpu: int, which: int) -> int:
    return ask("cuDeviceGetAttribute", which, ask("cuDeviceGet", gpu)) & 0xFFFFFFFF


def capability(gpu: int) -> tuple[int, int]:
    return attribute(gpu, CAPABILITY_MAJOR), attribute(gpu, CAPABILITY_MINOR)


def free_memory() -> int:
    total = WORD(0)
    return ask("cuMemGetInfo_v2", ctypes.addressof(total))


def _release_with(owner: Any, name: str, handle: int) -> None:
    """Give something of the current context back when `owner` is gone, in any thread; not at the end of the process."""
    enter_context, give_back = words_call("cuCtxPushCurrent_v2", 1), words_call(name, 1)
    context, leave_context, left = ask("cuCtxGetCurrent"), words_call("cuCtxPopCurrent_v2", 1), WORD(0)

    def release() -> None:
        if not enter_context(context):  # A forked process has no context, and the driver refuses its calls.
            give_back(handle)
            leave_context(ctypes.addressof(left))

    weakref.finalize(owner, release).atexit = False


# Streams and recorded launches


class Stream:
    def __init__(self, *, waits_for_default: bool = True) -> None:
        """Create a stream that is ordered with the default stream unless `waits_for_default` is False."""
        self.handle = ask("cuStreamCreate", 0 if waits_for_default else CU_STREAM_NON_BLOCKING)
        _release_with(self, "cuStreamDestroy_v2", self.handle)

    def synchronize(self) -> None:
        call("cuStreamSynchronize", self.handle)

    def start_recording(self) -> None:
        """Record what is started on this stream from now on instead of running it."""
        call("cuStreamBeginCapture_v2", self.handle, RELAXED)

    def stop_recording(self) -> Recording:
        graph = WORD(0)
        call("cuStreamEndCapture", self.handle, ctypes.addressof(graph))
        return Recording(graph.value)


class Recording:
    """A CUDA graph: launches and copies that one call starts."""

    def __init__(self, graph: int) -> None:
        _release_with(self, "cuGraphDestroy", graph)
        self._runnable = ask("cuGraphInstantiateWithFlags", graph, 0)
        _release_with(self, "cuGraphExecDestroy", self._runnable)

    def launch(self, stream: Stream) -> None:
        call("cuGraphLaunch", self._runnable, stream.handle)


# Memory


class Allocation:
    def __init__(self, size: int) -> None:
        self.address = ask("cuMemAlloc_v2", max(1, size))
        _release_with(self, "cuMemFree_v2", self.address)


class DeviceArray:
    """An array without gaps in a GPU's memory: a view of an allocation or of somebody else's array.

    It has the methods of numba's arrays that are used here. `launch_words` is what a kernel receives: numba's array
    structure, which is two references that kernels do not use, number of items, bytes per item, address, shape and
    strides.
    """

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], dtype: Any) -> None:
        self._owner = owner  # keeps the memory
        self.address, self.shape, self.dtype = address, shape, np.dtype(dtype)
        width = self.dtype.itemsize
        strides: tuple[int, ...] = ()
        for length in reversed(shape):
            strides, width = (width, *strides), width * length
        self.strides, self.nbytes, self.ndim = strides, width, len(shape)
        self.size = width // self.dtype.itemsize
        self.launch_words = (0, 0, self.size, self.dtype.itemsize, address, *shape, *strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = self.address, False
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3, "stream": None}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> DeviceArray:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("views of a GPU's arrays have no gaps")
        shape = max(0, stop - start), *self.shape[1:]
        return DeviceArray(self._owner, self.address + start * self.strides[0], shape, self.dtype)

    def view(self, dtype: Any) -> DeviceArray:
        return DeviceArray(self._owner, self.address, (self.nbytes // np.dtype(dtype).itemsize,), dtype)

    def reshape(self, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(self._owner, self.address, shape, self.dtype)

    def copy_to_device(self, source: NDArray[Any], stream: int = 0) -> None:
        """Fill the array with one in main memory; with a stream, from pinned memory and without waiting."""
        source = np.ascontiguousarray(source, self.dtype)
        if source.nbytes != self.nbytes:
            raise ValueError(f"{source.nbytes} bytes do not fill an array of {self.nbytes}")
        words = self.address, source.ctypes.data, self.nbytes
        if stream:
            call("cuMemcpyHtoDAsync_v2", *words, stream)
        elif self.nbytes:
            call("cuMemcpyHtoD_v2", *words)

    def copy_to_host(self, target: NDArray[Any] | None = None, stream: int = 0) -> NDArray[Any]:
        """Return a copy in main memory, or fill `target`; with a stream, pinned memory and without waiting."""
        array = np.empty(self.shape, self.dtype) if target is None else target
        words = array.ctypes.data, self.address, self.nbytes
        if stream:
            call("cuMemcpyDtoHAsync_v2", *words, stream)
        elif self.nbytes:
            call("cuMemcpyDtoH_v2", *words)
        return array

    def set_zero(self, stream: int) -> None:
        if self.nbytes:
            call("cuMemsetD8Async", self.address, 0, self.nbytes, stream)


def allocate(shape: int | tuple[int, ...], dtype: Any) -> DeviceArray:
    shape = (shape,) if isinstance(shape, int) else shape
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = Allocation(size)
    return DeviceArray(memory, memory.address, shape, dtype)


def borrow(column: Any) -> DeviceArray | None:
    """Return a view of somebody else's array on a GPU; None if it has gaps."""
    interface = column.__cuda_array_interface__
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    array = DeviceArray(column, interface["data"][0] or 0, shape, dtype)
    return array if interface.get("strides") in (None, array.strides) or not array.size else None


class _Pinned:
    def __init__(self, count: int, dtype: Any) -> None:
        kind = np.dtype(dtype)
        self.address = ask("cuMemHostAlloc", max(1, count * kind.itemsize), PORTABLE)
        self.__array_interface__ = {"shape": (count,), "typestr": kind.str, "data": (self.address, False), "version": 3}
        _release_with(self, "cuMemFreeHost", self.address)


def pinned(count: int, dtype: Any) -> NDArray[Any]:
    return np.asarray(_Pinned(count, dtype))


def is_pinned(address: int) -> bool:
    answer = ctypes.c_uint(0)
    return not words_call("cuPointerGetAttribute", 3)(ctypes.addressof(answer), MEMORY_TYPE, address) and (
        answer.value == HOST_MEMORY
    )


def gpu_at(address: int) -> int:
    return ask("cuPointerGetAttribute", GPU_OF_MEMORY, address) & 0xFFFFFFFF


# Kernels


class Function:
    def __init__(self, code: bytes, name: str) -> None:
        """Load machine code for this kind of GPU. Raise DriverError if the driver does not take it."""
        image, text = (ctypes.create_string_buffer(data) for data in (code, name.encode()))
        module = ask("cuModuleLoadData", ctypes.addressof(image))
        self.handle = ask("cuModuleGetFunction", module, ctypes.addressof(text))
