"""A stand-in for CuPy: NumPy, made as strict as CuPy is about where an array lies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np


def is_plain(value: Any) -> bool:
    return type(value) is np.ndarray and value.ndim > 0


def plain(value: Any) -> Any:
    """Unwrap arrays of the stand-in and reject arrays in main memory, as CuPy does."""
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    if is_plain(value):
        raise TypeError("an array of the machine's memory among those of the GPU")
    return value.view(np.ndarray) if isinstance(value, OnGpu) else value


def on_gpu(value: Any) -> Any:
    return value.view(OnGpu) if isinstance(value, np.ndarray) else value


class OnGpu(np.ndarray):
    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}
    place: ClassVar[Any]  # the stand-in

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **named):
        if out:
            named["out"] = plain(out)
        result = on_gpu(getattr(ufunc, method)(*plain(inputs), **named))
        return out[0] if out else result

    def __array_function__(self, function, types, arguments, named):
        raise TypeError(f"NumPy's {function.__name__} on an array of the GPU")

    def __getitem__(self, key):
        return on_gpu(self.view(np.ndarray)[plain(key)])

    def __setitem__(self, key, value):
        self.view(np.ndarray)[plain(key)] = plain(value)

    def __deepcopy__(self, memo):
        return self.copy()

    def get(self):
        self.place.copied += self.size
        return np.array(self.view(np.ndarray))

    def sort(self, axis=-1):
        assert self.ndim == 1, "CuPy sorts one dimension in place, and several slowly"
        assert self.flags.c_contiguous, "CuPy sorts no views with gaps"
        self.view(np.ndarray).sort()


class Device:
    current: ClassVar[list[int]] = []

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        self.current.append(self.number)

    def __exit__(self, *_: object) -> None:
        self.current.pop()


class StandIn:
    """NumPy's functions for arrays on a GPU that is the current device."""

    ndarray = OnGpu
    cuda = SimpleNamespace(Device=Device, get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None))

    def __init__(self) -> None:
        self.copied = 0  # numbers copied back to main memory
        OnGpu.place = self

    def __getattr__(self, name):
        def call(*arguments, **named):
            assert Device.current, f"{name} outside of the detector's GPU"
            return on_gpu(getattr(np, name)(*plain(arguments), **named))

        return call

    def asarray(self, array):
        return array if isinstance(array, OnGpu) else np.array(array).view(OnGpu)

    def asnumpy(self, array):
        assert isinstance(array, OnGpu)
        return array.get()

    def lexsort(self, keys):
        assert isinstance(keys, OnGpu), "CuPy takes one array of keys"
        assert keys.ndim == 2
        return on_gpu(np.lexsort(plain(keys)))

    def ElementwiseKernel(self, takes, gives, operation, name):  # noqa: N802
        assert (takes, gives) == ("uint32 host, uint32 peer", "uint64 pair")

        def pack(hosts, peers):
            assert Device.current
            assert hosts.dtype == peers.dtype == np.uint32
            return on_gpu(plain(hosts).astype(np.uint64) << np.uint64(32) | plain(peers))

        return pack
