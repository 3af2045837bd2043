"""Stand-ins for a machine's GPUs: NVIDIA's driver with any GPUs or without, and a GPU whose memory is full."""

from __future__ import annotations

import ctypes
import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from superhosts.core import device


class Driver:
    """Two GPUs, as libcuda.so.1 would tell of them: what each function writes into its first argument."""

    gpus = (("NVIDIA H200", 141 << 30, (9, 0)), ("Tesla T4", 15 << 30, (7, 5)))

    def __init__(self, status: int = 0) -> None:
        self.status = status  # what cuInit returns
        self._answers: dict[str, Callable[..., Any]] = {
            "cuDeviceGetCount": lambda: len(self.gpus),
            "cuDriverGetVersion": lambda: 12_040,
            "cuDeviceGet": lambda number: number + 10,  # a handle is not the number
            "cuDeviceGetName": lambda _, gpu: self.gpus[gpu - 10][0].encode(),
            "cuDeviceTotalMem_v2": lambda gpu: self.gpus[gpu - 10][1],
            "cuDeviceGetAttribute": lambda which, gpu: self.gpus[gpu - 10][2][{75: 0, 76: 1}[which]],
        }

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name == "cuInit":
            return lambda _: self.status
        if name not in self._answers:
            raise AttributeError(name)

        def function(into: Any, *arguments: int) -> int:
            getattr(into, "_obj", into).value = self._answers[name](*arguments)  # a number by reference, or a text
            return 0

        return function


@contextmanager
def machine_with(driver: Driver | None, cupy: Any = None) -> Iterator[None]:
    """Make this a machine with a driver, numba and this CuPy, or, with None, one without GPU, driver and packages."""
    library, version = ctypes.CDLL, importlib.metadata.version

    def load(name: str | None, *options: Any, **more: Any) -> Any:
        if name != "libcuda.so.1":
            return library(name, *options, **more)
        if driver is None:
            raise OSError(name)
        return driver

    def version_of(name: str) -> str:
        if "cu" in name and driver is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
        patch.setattr(ctypes, "CDLL", load)
        patch.setattr(importlib.metadata, "version", version_of)
        if driver is not None:
            module = cupy or ModuleType("cupy")
            module.__spec__ = ModuleSpec("cupy", None)
            patch.setitem(sys.modules, "cupy", module)
        for known in (device.cuda_problem, device.gpu_count):
            known.cache_clear()
        try:
            yield
        finally:
            for known in (device.cuda_problem, device.gpu_count):
                known.cache_clear()


@contextmanager
def full_gpu(allocations: int = 0) -> Iterator[None]:
    """Make a GPU, real or simulated, refuse memory after this many allocations."""
    from superhosts.detectors.gpu import driver

    allocate, left = driver.allocate, [None] * allocations

    def refuse(*arguments: Any, **named: Any) -> Any:
        if not left:
            raise RuntimeError("[CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc")
        left.pop()
        return allocate(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "allocate", refuse)
        yield


def to_gpu(array: Any) -> Any:
    """Return an array on a GPU as users have it; with the stand-in for the driver, one of ours."""
    from superhosts.detectors.gpu.launch import to_device

    return to_device(array) if device.simulated() else device.import_cuda().to_device(array)
