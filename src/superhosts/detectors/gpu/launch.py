"""Kernels: compiled by numba once, kept on disk, and launched through the driver.

To compile the kernels of a cube takes seconds, and to import what compiles them takes one more. So machine code is kept
as that of the CPU is (`superhosts.jit.cache`), in files with a stamp of everything that a kernel is made from. With
code on disk, neither numba.cuda nor CuPy is imported. Kernels are therefore plain functions until they are compiled:
`cuda` in them is a name without content, and functions that they call are marked by `device_function`. The compiler
gets copies in which these names have their meaning.

`BoundKernel` launches machine code through the driver, because a launch through numba costs half the time of a whole
search. `Replay` records a fixed sequence of launches and copies as a CUDA graph, which one call starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar, cast

from numpy.typing import NDArray

from superhosts.core.device import gpu_count, import_cuda, is_cupy
from superhosts.detectors.gpu import driver
from superhosts.detectors.gpu.driver import Stream
from superhosts.jit.cache import SHIPPED, cache_folder, compiled, digest_of, load_stamped, save_stamped, stamp_of
from superhosts.jit.compilation import compiling

FOR_GPUS = "gpu"  # the folder of the package with PTX, of which the driver makes machine code for any GPU
MOST_FILES = 64  # files of one kernel that are kept, for geometries and types of arguments
NAME_END = b"\0"  # between the name of a kernel and its machine code in a file
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
Place = tuple[Path, bytes]  # a file and the stamp that it must have
Compiler = Callable[[FunctionType, tuple[Any, ...]], tuple[str, bytes]]

cuda: Any = ModuleType("numba.cuda")  # what kernels call `cuda`
_device_functions: set[Any] = set()
_lock = threading.RLock()


def kernel(function: Callable[..., None]) -> Any:
    return Kernel(function)


def device_function(function: AnyFunction) -> AnyFunction:
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
        kinds = tuple(map(kind_of, arguments))
        with _lock:
            if (gpu, kinds) not in self._loaded:
                kept, shipped = self._places(gpu, kinds)
                found = _from_disk(kept) or _from_disk(shipped)
                self._loaded[gpu, kinds] = found or self._compiled(kept, arguments)
            return self._loaded[gpu, kinds]

    def is_on_disk(self, gpu: int, arguments: tuple[Any, ...]) -> bool:
        places = self._places(gpu, tuple(map(kind_of, arguments)))
        return any(load_stamped(*place) is not None for place in places if place is not None)

    def _places(self, gpu: int, kinds: Any) -> tuple[Place | None, Place | None]:
        """Return where code for this GPU and driver is kept, and where the package has code for any; None if nowhere.

        Either code is used only if it was made from what would be compiled now.
        """
        try:
            source = kinds, stamp_of(self.function)
        except TypeError:  # The function refers to something of which no stamp can be made.
            return None, None
        folder, kept = self._folder or cache_folder(_anything), None
        with contextlib.suppress(PackageNotFoundError):  # Nobody knows the compiler's version.
            made_for = version("numba-cuda"), driver.capability(gpu), driver.ask("cuDriverGetVersion")
            kept = self._place(Path(folder), (*made_for, source), "cubin") if folder is not None else None
        return kept, self._place(SHIPPED / FOR_GPUS, source, "ptx")

    def _place(self, folder: Path, made_from: Any, kind: str) -> Place:
        stamp = digest_of(repr(made_from).encode())
        return folder / f"{self._name()}-{stamp.hex()[:16]}.{kind}", stamp

    def _name(self) -> str:
        module = Path(self.function.__code__.co_filename)
        return f"{module.parent.name}.{module.stem}.{self.function.__name__}.{sys.implementation.cache_tag}"

    def _compiled(self, kept: Place | None, arguments: tuple[Any, ...]) -> driver.Function:
        with compiling(self.function.__name__):
            name, code = self._compiler(self.function, arguments)
        if kept is not None:
            save_stamped(*kept, name.encode() + NAME_END + code)
            _remove_oldest(kept[0].parent.glob(f"{self._name()}-*.cubin"))
        return driver.Function(code, name)

    def ship(self, folder: Path, arguments: tuple[Any, ...], compiler: Compiler) -> None:
        """Write code for the package, as `_places` looks for it."""
        name, code = compiler(self.function, arguments)
        place = self._place(folder, (tuple(map(kind_of, arguments)), stamp_of(self.function)), "ptx")
        save_stamped(*place, name.encode() + NAME_END + code)


def _from_disk(place: Place | None) -> driver.Function | None:
    if place is None or (payload := load_stamped(*place)) is None:
        return None
    with contextlib.suppress(OSError):  # Another user's folder cannot be written.
        os.utime(place[0])  # `_remove_oldest` looks at the time.
    name, _, code = payload.partition(NAME_END)
    try:
        return driver.Function(code, name.decode())
    except driver.DriverError:  # for example, the code was made for a newer driver
        return None


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
    if isinstance(argument, tuple):
        kind = type(argument)
        return kind.__module__, kind.__qualname__, getattr(kind, "_fields", ()), tuple(map(kind_of, argument))
    if getattr(argument, "shape", ()):
        return argument.dtype.str, argument.ndim
    return type(argument).__name__


def compile_for_gpu(function: FunctionType, arguments: tuple[Any, ...]) -> tuple[str, bytes]:
    numba_cuda = import_cuda()

    def known(each: Any) -> Any:
        return each if isinstance(each, tuple | int) else numba_cuda.as_cuda_array(each, sync=False)

    dispatcher = numba_cuda.jit(bind_cuda_names(function)).specialize(*map(known, arguments))
    (overload,) = dispatcher.overloads.values()
    library = overload._codelibrary
    code = library.get_cubin()
    return library._entry_name, bytes(getattr(code, "code", code))


def bind_cuda_names(function: FunctionType) -> FunctionType:
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
    return import_cuda().jit(device=True)(bind_cuda_names(function))


class Launch(NamedTuple):
    multiprocessors: int
    threads: int  # threads of a block that processes pairs
    items: int  # pairs per thread in a tile that is sorted by group
    tile_recent_bits: int  # log2 of the pairs that a sorting block remembers; with the tile they must fit 48 KiB
    fill_recent_bits: int  # log2 of the pairs that are remembered as written
    team: int  # threads that read one column together: a warp
    lanes: int  # threads that test the first words of a host's columns together


# Measured on an H200. A tile of 512 · 7 pairs and 2^11 remembered pairs take 44 of the 48 KiB of shared memory that a
# block has by default.
ON_GPU = Launch(0, threads=512, items=7, tile_recent_bits=11, fill_recent_bits=22, team=32, lanes=8)


@cache
def launch_of(gpu: int) -> Launch:
    return ON_GPU._replace(multiprocessors=driver.attribute(gpu, driver.MULTIPROCESSORS))


class BoundKernel:
    """A kernel for the types of its arguments, launched by the driver: numba would inspect every argument each time."""

    def __init__(self, kernel: Kernel, gpu: int, arguments: tuple[Any, ...]) -> None:
        self._function = kernel.load(gpu, arguments).handle
        count = len(_argument_words(arguments))
        self._words = (ctypes.c_uint64 * count)()
        first = ctypes.addressof(self._words)
        self._addresses = (ctypes.c_uint64 * count)(*range(first, first + 8 * count, 8))

    def __call__(self, shape: tuple[int, int], stream: Stream, arguments: tuple[Any, ...]) -> None:
        """Launch the kernel with `shape` = (blocks, threads per block)."""
        words: Any = _argument_words(arguments)
        self._words[:] = words
        addresses = ctypes.addressof(self._addresses)
        driver.call("cuLaunchKernel", self._function, shape[0], 1, 1, shape[1], 1, 1, 0, stream.handle, addresses, 0)


def _argument_words(arguments: tuple[Any, ...]) -> list[int]:
    words: list[int] = []
    for argument in arguments:
        if isinstance(argument, tuple):
            words += _tuple_words(argument)
        elif isinstance(argument, int):
            words.append(argument)
        elif isinstance(argument, driver.DeviceArray):
            words += argument.launch_words
        else:  # CuPy's
            words += (0, 0, argument.size, argument.itemsize, argument.data.ptr, *argument.shape, *argument.strides)
    return words


@cache
def _tuple_words(numbers: tuple[Any, ...]) -> list[int]:
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
        if not self._ran:  # The first run compiles and loads the kernels, which cannot be recorded.
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
        stream = driver.Stream(waits_for_default=False)
        stream.start_recording()
        try:
            sequence(stream)
        except BaseException:  # The recording ends even when interrupted, and is then discarded.
            with contextlib.suppress(driver.DriverError):  # It is broken already; the first error says why.
                stream.stop_recording()
            raise
        return stream.stop_recording()


def to_device(array: NDArray[Any]) -> driver.DeviceArray:
    copy = driver.allocate(array.shape, array.dtype)
    copy.copy_to_device(array)
    return copy


def device_zeros(count: int, dtype: Any, stream: Stream) -> driver.DeviceArray:
    array = driver.allocate(count, dtype)
    array.set_zero(stream.handle)
    return array


def is_pinned(array: NDArray[Any]) -> bool:
    return len(array) > 0 and array.flags.c_contiguous and driver.is_pinned(array.ctypes.data)


def has_own_stream(column: Any) -> bool:
    """Return True if an array belongs to a stream other than the default one, with which our streams are ordered."""
    return getattr(column, "__cuda_array_interface__", {}).get("stream") not in (None, 1)


def gpu_of(column: Any) -> int:
    if gpu_count() == 1:
        return 0
    return driver.gpu_at(column.__cuda_array_interface__["data"][0])


def as_device_array(column: Any) -> Any:
    """Return an array on a GPU without gaps: ours, or CuPy's as it is, because describing it takes long."""
    waits = has_own_stream(column)
    if is_cupy(column) and not waits and column.flags.c_contiguous:
        return column
    if waits:
        driver.call("cuStreamSynchronize", column.__cuda_array_interface__["stream"])
    array = driver.borrow(column)
    if array is not None:
        return array
    import cupy

    return cupy.ascontiguousarray(cupy.asarray(column))
