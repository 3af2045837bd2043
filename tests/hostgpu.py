"""A stand-in for NVIDIA's driver whose GPU memory is main memory. It logs its calls.

Under numba's simulator it runs kernels, as Python (`simulate`); without it, launches do nothing. Streams do everything
at once, but for what is recorded on them.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from gpus import machine_with
from superhosts.detectors.gpu import driver, engine, launch, transfer

CONTEXT, STREAM = 77, 5000
CALLED_BY_C = {"cuCtxSetCurrent": 1, "cuStreamSynchronize": 1, "cuMemcpyHtoDAsync_v2": 4}  # the numbers of their words
INVALID_IMAGE = 200
TINY = launch.ON_GPU._replace(
    multiprocessors=2, threads=8, items=3, tile_recent_bits=3, fill_recent_bits=3, team=2, lanes=2
)
KERNELS = itertools.count(9000)
SIMULATED: dict[int, Simulated] = {}  # kernels by their handles
CURRENT: list[HostGpu] = []  # the last one counts
Reader = Callable[[Iterator[int]], Any]
_one_kernel = threading.Lock()


class HostGpu:
    """One GPU, or several. `cuName` is the function `_name`, wrapped so that it can have types of arguments."""

    def __init__(self, gpus: int = 1, capability: tuple[int, int] = (9, 0)) -> None:
        self.gpus, self.capability = gpus, capability
        self.log: list[tuple[str, tuple[int, ...]]] = []
        self.memory: dict[int, Any] = {}
        self.images: list[bytes] = []
        self.refuses_code = False
        self.all_pinned = False  # whether all main memory is pinned: only then can pairs be sent
        self._handles = itertools.count(STREAM)
        self._recorded: dict[int, list[Callable[[], Any]]] = {}  # by the handle of the stream, or of what it recorded

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        body = getattr(type(self), "_" + name.removesuffix("_v2"), None)

        def function(*words: Any) -> int:
            self.log.append((name, words))
            return body(self, *words) or 0 if body is not None else 0

        if name not in CALLED_BY_C:
            return function
        found = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * CALLED_BY_C[name])(function)
        setattr(self, name, found)  # Machine code has its address.
        return found

    def _do(self, stream: int, work: Callable[[], Any]) -> None:
        """Do work on a stream, or record it."""
        if stream in self._recorded:
            self._recorded[stream].append(work)
        else:
            work()

    def names(self) -> list[str]:
        return [name for name, _ in self.log]

    def calls(self, name: str) -> list[tuple[int, ...]]:
        return [words for called, words in self.log if called == name]

    def _cuDeviceGetCount(self, count: Any) -> None:  # noqa: N802
        count._obj.value = self.gpus

    def _cuDeviceGet(self, answer: int, number: int) -> None:  # noqa: N802
        _store(answer, number)

    def _cuDeviceGetAttribute(self, answer: int, which: int, gpu: int) -> None:  # noqa: N802
        numbers = {driver.CAPABILITY_MAJOR: self.capability[0], driver.CAPABILITY_MINOR: self.capability[1]}
        _store(answer, numbers.get(which, 132))

    def _cuDevicePrimaryCtxRetain(self, answer: int, gpu: int) -> None:  # noqa: N802
        _store(answer, CONTEXT + gpu)

    def _cuCtxGetCurrent(self, answer: int) -> None:  # noqa: N802
        _store(answer, CONTEXT)

    def _cuDriverGetVersion(self, answer: int) -> None:  # noqa: N802
        _store(answer, 13_000)

    def _cuStreamCreate(self, answer: int, flags: int) -> None:  # noqa: N802
        _store(answer, next(self._handles))

    def _cuMemAlloc(self, answer: int, size: int) -> None:  # noqa: N802
        buffer = ctypes.create_string_buffer(b"\xff" * size, size)
        self.memory[ctypes.addressof(buffer)] = buffer
        _store(answer, ctypes.addressof(buffer))

    def _cuMemHostAlloc(self, answer: int, size: int, flags: int) -> None:  # noqa: N802
        self._cuMemAlloc(answer, size)

    def _cuMemFree(self, address: int) -> None:  # noqa: N802
        del self.memory[address]

    _cuMemFreeHost = _cuMemFree  # noqa: N815

    def _cuMemGetInfo(self, answer: int, total: int) -> None:  # noqa: N802
        _store(answer, 1 << 40)

    def _cuMemcpyHtoD(self, target: int, source: int, size: int, stream: int = 0) -> None:  # noqa: N802
        self._do(stream, lambda: ctypes.memmove(target, source, size))

    _cuMemcpyDtoH = _cuMemcpyHtoDAsync = _cuMemcpyDtoHAsync = _cuMemcpyHtoD  # noqa: N815

    def _cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> None:  # noqa: N802
        self._do(stream, lambda: ctypes.memset(address, value, size))

    def _cuStreamBeginCapture(self, stream: int, mode: int) -> None:  # noqa: N802
        self._recorded[stream] = []

    def _cuStreamEndCapture(self, stream: int, answer: int) -> None:  # noqa: N802
        graph = next(self._handles)
        self._recorded[graph] = self._recorded.pop(stream)
        _store(answer, graph)

    def _cuGraphInstantiateWithFlags(self, answer: int, graph: int, flags: int) -> None:  # noqa: N802
        _store(answer, graph)

    def _cuGraphExecDestroy(self, graph: int) -> None:  # noqa: N802
        del self._recorded[graph]

    def _cuGraphLaunch(self, graph: int, stream: int) -> None:  # noqa: N802
        for work in self._recorded[graph]:
            work()

    def _cuLaunchKernel(self, kernel: int, *words: int) -> None:  # noqa: N802
        blocks, threads, stream, addresses = words[0], words[3], words[7], words[8]
        if kernel in SIMULATED:
            self._do(stream, SIMULATED[kernel].bind(addresses, blocks, threads))

    def _cuPointerGetAttribute(self, answer: int, which: int, address: int) -> None:  # noqa: N802
        if which == driver.MEMORY_TYPE and self.all_pinned:
            ctypes.c_uint.from_address(answer).value = driver.HOST_MEMORY

    def _cuModuleLoadData(self, answer: int, image: int) -> int:  # noqa: N802
        self.images.append(ctypes.string_at(image))  # up to the first zero
        _store(answer, image)
        return INVALID_IMAGE if self.refuses_code else 0

    def _cuModuleGetFunction(self, answer: int, module: int, name: int) -> None:  # noqa: N802
        _store(answer, next(self._handles))


def _store(address: int, word: int) -> None:
    ctypes.c_uint64.from_address(address).value = word


class SimulatedKernel(launch.Kernel):
    """A kernel that numba's simulator runs, unless a test compiles it."""

    def load(self, gpu: int, arguments: tuple[Any, ...]) -> Any:
        if self._compiler is not launch.compile_for_gpu:
            return super().load(gpu, arguments)
        loaded = Simulated(next(KERNELS), self.function, tuple(map(reader_of, arguments)))
        SIMULATED[loaded.handle] = loaded
        return loaded

    def is_on_disk(self, gpu: int, arguments: tuple[Any, ...]) -> bool:
        return self._compiler is launch.compile_for_gpu or super().is_on_disk(gpu, arguments)


class Simulated(NamedTuple):
    handle: int
    function: Any
    readers: tuple[Reader, ...]

    def bind(self, addresses: int, blocks: int, threads: int) -> Callable[[], None]:
        """Return a function that runs the kernel with arguments at these addresses, as they are now."""
        places = (ctypes.c_uint64.from_address(addresses + 8 * number).value for number in itertools.count())
        words = (ctypes.c_uint64.from_address(place).value for place in places)
        arguments = [read(words) for read in self.readers]

        def run() -> None:
            from numba.cuda.simulator.kernel import FakeCUDAKernel

            with _one_kernel:  # The simulator runs one at a time.
                FakeCUDAKernel(self.function, device=False)[blocks, threads](*arguments)

        return run


def reader_of(example: Any) -> Reader:
    """Return a function that makes an argument like this one of the words that a kernel gets."""
    if isinstance(example, tuple):
        readers, make = tuple(map(reader_of, example)), getattr(example, "_make", type(example))
        return lambda words: make([read(words) for read in readers])
    if not getattr(example, "shape", ()):
        kind = type(example)
        return lambda words: kind(next(words))
    dtype, sides = example.dtype, example.ndim

    def array(words: Iterator[int]) -> Any:
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

        _, _, size, width, address = itertools.islice(words, 5)
        shape, _strides = (list(itertools.islice(words, sides)) for _ in range(2))
        memory = (ctypes.c_uint8 * (size * width)).from_address(address) if size else bytearray()
        return FakeCUDAArray(np.frombuffer(memory, dtype).reshape(shape))

    return array


class InKernels(ModuleType):
    """What kernels call `cuda`: the simulator's module of the launch that runs now."""

    def __getattr__(self, name: str) -> Any:
        from numba.cuda.simulator import kernel

        return getattr(kernel._kernel_context, name)


def simulate() -> None:
    """Let this driver be that of the process, and numba's simulator run its kernels in tiny blocks."""
    gpu = HostGpu()
    gpu.log = deque(maxlen=1)  # type: ignore[assignment]
    CURRENT.append(gpu)
    for module in (driver, transfer):
        module.cuda_driver = lambda: CURRENT[-1]  # type: ignore[attr-defined]
    launch.Kernel = SimulatedKernel  # type: ignore[misc]
    launch.cuda.__class__ = InKernels
    engine.COUNT_BLOCKS, engine.launch_of = 1, lambda _: TINY  # type: ignore[assignment]


@contextmanager
def host_gpu(**settings: Any) -> Iterator[HostGpu]:
    """Make the driver this one, for code that calls it directly. Kernels are still the simulator's."""
    stand_in = HostGpu(**settings)
    known = driver.words_call, driver.context_of, driver.attribute, transfer._calls
    CURRENT.append(stand_in)
    with machine_with(stand_in):
        for each in known:
            each.cache_clear()
        driver.enter(0)
        try:
            yield stand_in
        finally:
            CURRENT.pop()
            vars(driver._this_thread).clear()
            for each in known:
                each.cache_clear()
