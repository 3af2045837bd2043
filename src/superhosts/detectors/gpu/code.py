"""Machine code of kernels: compiled by numba once, then kept on disk and loaded through the driver.

To compile the kernels of a cube takes seconds, and to import what compiles them takes one more. So machine code is kept
as that of the CPU is (`superhosts.jit.cache`), in files with a stamp of everything that a kernel is made from. With
code on disk, neither numba.cuda nor CuPy is imported.

Kernels are therefore plain functions until they are compiled: `cuda` in them is a name without content, and functions
that they call are marked by `device_function`. The compiler gets copies in which these names have their meaning.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

from superhosts.core.device import import_cuda, simulated
from superhosts.detectors.gpu import driver
from superhosts.jit.cache import cache_folder, compiled, digest_of, load_stamped, save_stamped, stamp_of
from superhosts.jit.compilation import compiling

MOST_FILES = 64  # files of one kernel that are kept, for geometries and types of arguments
NAME_END = b"\0"  # between the name of a kernel and its machine code in a file
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
Compiler = Callable[[FunctionType, tuple[Any, ...]], tuple[str, bytes]]

# What kernels call `cuda`. In the simulator they run as Python, so there it is numba's module from the start.
cuda: Any = import_cuda() if simulated() else ModuleType("numba.cuda")
_device_functions: set[Any] = set()
_lock = threading.RLock()


def kernel(function: Callable[..., None]) -> Any:
    """Return a kernel, which `Kernel` explains. In the simulator it is numba's own."""
    return cuda.jit(function) if simulated() else Kernel(function)


def device_function(function: AnyFunction) -> AnyFunction:
    """Mark a function that kernels can call, which is compiled with them."""
    if simulated():
        return cast(AnyFunction, cuda.jit(device=True)(function))
    _device_functions.add(function)
    return function


class Kernel:
    """A kernel that is read from disk, or compiled, for the types of its arguments when it is first launched."""

    def __init__(
        self, function: Callable[..., None], compiler: Compiler | None = None, folder: Path | None = None
    ) -> None:
        self.function = cast(FunctionType, function)
        self._compiler = compiler or compile_for_gpu
        self._folder = folder  # None: the folder where numba keeps machine code of the CPU, if it can write anywhere
        self._loaded: dict[Any, driver.Function] = {}

    def load(self, gpu: int, arguments: tuple[Any, ...]) -> driver.Function:
        """Return the kernel for arguments of these types, loaded into the context of the current GPU."""
        kinds = tuple(map(kind_of, arguments))
        with _lock:
            if (gpu, kinds) not in self._loaded:
                stamp = self._stamp(gpu, kinds)
                self._loaded[gpu, kinds] = self._from_disk(stamp) or self._compiled(stamp, arguments)
            return self._loaded[gpu, kinds]

    def is_on_disk(self, gpu: int, arguments: tuple[Any, ...]) -> bool:
        """Return True if the kernel need not be compiled for arguments of these types."""
        return self._payload(self._stamp(gpu, tuple(map(kind_of, arguments)))) is not None

    def _stamp(self, gpu: int, kinds: Any) -> bytes | None:
        """Return a digest of what the machine code is made from and for; None if something is unknown."""
        made_for = driver.capability(gpu), driver.driver_version(), kinds
        # The function refers to something of which no stamp can be made, or nobody knows the compiler's version.
        with contextlib.suppress(TypeError, PackageNotFoundError):
            return digest_of(repr((version("numba-cuda"), made_for, stamp_of(self.function))).encode())
        return None

    def _path(self, stamp: bytes | None) -> Path | None:
        folder = self._folder or cache_folder(_anything)
        if stamp is None or folder is None:
            return None
        return Path(folder) / f"{self._name()}-{stamp.hex()[:16]}.cubin"

    def _name(self) -> str:
        module = Path(self.function.__code__.co_filename)
        return f"{module.parent.name}.{module.stem}.{self.function.__name__}.{sys.implementation.cache_tag}"

    def _payload(self, stamp: bytes | None) -> bytes | None:
        path = self._path(stamp)
        return None if stamp is None or path is None else load_stamped(path, stamp)

    def _from_disk(self, stamp: bytes | None) -> driver.Function | None:
        path, payload = self._path(stamp), self._payload(stamp)
        if path is None or payload is None:
            return None
        with contextlib.suppress(OSError):  # Another user's folder cannot be written.
            os.utime(path)  # `_remove_oldest` looks at the time.
        name, _, code = payload.partition(NAME_END)
        try:
            return driver.Function(code, name.decode())
        except driver.DriverError:  # for example, the code was made for a newer driver
            return None

    def _compiled(self, stamp: bytes | None, arguments: tuple[Any, ...]) -> driver.Function:
        with compiling(self.function.__name__):
            name, code = self._compiler(self.function, arguments)
        path = self._path(stamp)
        if stamp is not None and path is not None:
            save_stamped(path, stamp, name.encode() + NAME_END + code)
            _remove_oldest(path.parent.glob(f"{self._name()}-*.cubin"))
        return driver.Function(code, name)


@compiled
def _anything(number: int) -> int:
    """Do nothing: the machine code of kernels is kept in the folder of this function's."""
    return number


def _remove_oldest(paths: Any) -> None:
    """Remove files of earlier versions and of geometries that were not used for long."""
    with contextlib.suppress(OSError):
        for path in sorted(paths, key=lambda path: path.stat().st_mtime)[:-MOST_FILES]:
            path.unlink()


def kind_of(argument: Any) -> Any:
    """Describe the type of an argument: of an array, of a number, or of nested tuples of numbers."""
    if isinstance(argument, tuple):
        kind = type(argument)
        return kind.__module__, kind.__qualname__, getattr(kind, "_fields", ()), tuple(map(kind_of, argument))
    if getattr(argument, "shape", ()):
        return argument.dtype.str, argument.ndim
    return type(argument).__name__


def compile_for_gpu(function: FunctionType, arguments: tuple[Any, ...]) -> tuple[str, bytes]:
    """Compile a kernel for the current GPU and the types of these arguments; return its name and machine code."""
    numba_cuda = import_cuda()

    def known(each: Any) -> Any:
        return each if isinstance(each, tuple | int) else numba_cuda.as_cuda_array(each, sync=False)

    dispatcher = numba_cuda.jit(with_meaning(function)).specialize(*map(known, arguments))
    (overload,) = dispatcher.overloads.values()
    library = overload._codelibrary
    code = library.get_cubin()
    return library._entry_name, bytes(getattr(code, "code", code))


def with_meaning(function: FunctionType) -> FunctionType:
    """Return a copy of a function in which `cuda` is numba's module and marked functions are numba's."""
    names = function.__globals__
    known = {name: _meaning_of(names[name]) for name in function.__code__.co_names if name in names}
    cells = tuple(CellType(_meaning_of(cell.cell_contents)) for cell in function.__closure__ or ())
    copy = FunctionType(function.__code__, {**names, **known}, function.__name__, function.__defaults__, cells)
    copy.__qualname__, copy.__kwdefaults__ = function.__qualname__, function.__kwdefaults__
    return copy


def _meaning_of(value: Any) -> Any:
    if value is cuda:
        return import_cuda()
    return _device_dispatcher(value) if isinstance(value, FunctionType) and value in _device_functions else value


@cache
def _device_dispatcher(function: FunctionType) -> Any:
    return import_cuda().jit(device=True)(with_meaning(function))
