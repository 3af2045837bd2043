"""A stand-in for NVIDIA's driver whose GPU memory is main memory. It logs its calls and runs no kernels."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpus import machine_with
from superhosts.detectors.gpu import driver

CONTEXT, STREAM = 77, 5000
INVALID_IMAGE = 200


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

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        body = getattr(type(self), "_" + name.removesuffix("_v2"), None)

        def function(*words: Any) -> int:
            self.log.append((name, words))
            return body(self, *words) or 0 if body is not None else 0

        return function

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

    def _cuMemcpyHtoD(self, target: int, source: int, size: int, stream: int = 0) -> None:  # noqa: N802
        ctypes.memmove(target, source, size)

    _cuMemcpyDtoH = _cuMemcpyHtoDAsync = _cuMemcpyDtoHAsync = _cuMemcpyHtoD  # noqa: N815

    def _cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> None:  # noqa: N802
        ctypes.memset(address, value, size)

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


@contextmanager
def host_gpu(**settings: Any) -> Iterator[HostGpu]:
    """Make the driver this one, for code that calls it directly. Kernels are still the simulator's."""
    stand_in = HostGpu(**settings)
    known = driver.words_call, driver.context_of, driver.attribute
    with machine_with(stand_in):
        for each in known:
            each.cache_clear()
        driver.enter(0)
        try:
            yield stand_in
        finally:
            vars(driver._this_thread).clear()
            for each in known:
                each.cache_clear()
