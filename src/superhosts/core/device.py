"""Choice of the device that does the work: the threads of this machine's CPU, or CUDA GPUs.

CPU work runs on one ordinary thread pool, in functions that release the GIL. numba's own parallel layer is not safe to
enter from several threads, and a scan updates, reads and writes at the same time.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from superhosts.core.profile import measured
from superhosts.errors import UsageError

Result = TypeVar("Result")
DEVICES = "cpu, auto, cuda, cuda:all, or GPUs by number as in cuda:0,1"
INSTALL = "pip install 'superhosts[gpu]' (CUDA 12) or 'superhosts[gpu13]' (CUDA 13, driver 580 or later)"
_GPUS = re.compile(r"cuda(?::(all|\d+(?:,\d+)*))?")


def choose_device(device: str) -> str:
    """Return the device to use: "cpu", or "cuda:" followed by the numbers of the GPUs.

    "auto" selects the first GPU if a GPU is usable, else the CPU. Raise UsageError, which says what is missing, if the
    caller names a GPU that is not usable.
    """
    if device in ("cpu", "auto"):
        return "cuda:0" if device == "auto" and cuda_problem() is None and not simulated() else "cpu"
    match = _GPUS.fullmatch(device)
    if match is None:
        raise UsageError(f"unknown device {device!r}; use one of {DEVICES}")
    problem = cuda_problem()
    if problem is not None:
        raise UsageError(f"device {device!r} cannot be used: {problem}")
    count = gpu_count()
    wanted = list(range(count)) if match[1] == "all" else [int(number) for number in (match[1] or "0").split(",")]
    if max(wanted) >= count:
        raise UsageError(f"device {device!r}: there is no GPU {max(wanted)}; the GPUs are 0 to {count - 1}")
    return "cuda:" + ",".join(map(str, wanted))


def check_device(device: str) -> None:
    if device not in ("cpu", "auto"):
        choose_device(device)


def check_cpu_only(name: str, device: str) -> None:
    """Raise UsageError if `device` names a GPU, or is unknown: the detector of this name has no GPU kernels."""
    if device.startswith("cuda"):
        raise UsageError(f"device {device!r}: {name} runs on the CPU only; use cpu or auto")
    check_device(device)


def gpus_of(device: str) -> list[int]:
    return [int(number) for number in device[5:].split(",")] if device.startswith("cuda:") else []


def simulated() -> bool:
    """Return True if numba simulates the GPU, as in tests. "auto" never selects a simulated GPU."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") == "1"


def cuda_driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@cache
def cuda_problem() -> str | None:
    """Return the reason why no GPU is usable, or None if one is. It asks the driver and imports no CUDA package."""
    if simulated():
        return None
    driver = cuda_driver()
    if driver is None:
        return f"no NVIDIA driver was found (libcuda.so.1); install the GPU's driver, then {INSTALL}"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        return f"the NVIDIA driver sees no GPU (status {status})"
    missing = [name for name in ("numba_cuda", "cupy") if find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: {INSTALL}" if missing else None


@cache
def gpu_count() -> int:
    if simulated():
        return len(import_cuda().gpus)
    count, driver = ctypes.c_int(0), cuda_driver()
    return 0 if driver is None or driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) else count.value


for _known in (cuda_problem, gpu_count):
    os.register_at_fork(after_in_child=_known.cache_clear)  # CUDA does not survive a fork.


@cache
def import_cuda() -> Any:
    import numba
    import numpy as np

    if not hasattr(np, "row_stack"):  # NumPy 2.5 removed the name, but numba-cuda 0.30 still uses it.
        np.row_stack = np.vstack  # type: ignore[attr-defined,unused-ignore]
    numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # Small batches are launched on small grids on purpose.
    from numba import cuda

    return cuda


def is_cupy(column: Any) -> bool:
    return isinstance(column, getattr(sys.modules.get("cupy"), "ndarray", ()))


def thread_count(asked: int | None = None) -> int:
    """Return the number of threads to use: as asked for, else SUPERHOSTS_THREADS, else the CPUs of this process."""
    if asked is not None:
        return asked
    wanted = os.environ.get("SUPERHOSTS_THREADS", "")
    if wanted:
        if not wanted.isdecimal() or int(wanted) < 1:
            raise UsageError(f"SUPERHOSTS_THREADS={wanted!r}: must be a positive number of threads")
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_this_thread = threading.local()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    mark = partial(setattr, _this_thread, "is_pool_thread", True)
    return ThreadPoolExecutor(threads, thread_name_prefix="superhosts", initializer=mark)


@cache
def _helpers(threads: int) -> SimpleQueue[Callable[[], None]]:
    """Return what helpers of run_parallel call. To wake one of a pool takes five times as long, in which none works."""
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def serve() -> None:
        _this_thread.is_pool_thread = True
        while True:
            calls.get()()

    for number in range(threads - 1):
        threading.Thread(target=serve, name=f"superhosts_{number}", daemon=True).start()
    return calls


for _threads in (_pool, _helpers):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # A forked child has none of its parent's threads.


def start_parallel(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], threads: int
) -> list[Future[Result]]:
    pool = _pool(threads)
    return [pool.submit(function, *arguments) for arguments in calls]


class _SharedWork(Generic[Result]):
    """Calls that the calling thread and helpers from the pool take in turn until none is left.

    The caller waits only for helpers that are inside a call: one that wakes late finds nothing to do. Closures that
    call each other would keep the results until the garbage collector runs, so it is a class.
    """

    def __init__(self, function: Callable[..., Result], calls: list[tuple[Any, ...]], threads: int) -> None:
        self.results: list[Result | None] = [None] * len(calls)
        self._function, self._helpers = function, _helpers(threads)
        self._left = deque(enumerate(calls))
        self._errors: list[BaseException] = []  # of helpers
        self._helping = 0
        self._changed = threading.Condition(threading.Lock())

    def take(self) -> None:
        while self._left:
            try:
                number, arguments = self._left.popleft()
            except IndexError:  # Another thread has taken the last one.
                return
            self.results[number] = self._function(*arguments)

    def wake(self, helpers: int) -> None:
        for _ in range(helpers):
            self._helpers.put(self._help)

    def _help(self) -> None:
        with self._changed:
            self._helping += 1  # before a call is taken: from now on the caller waits
        try:
            while self._left:
                try:
                    self.take()
                except BaseException as error:
                    self._errors.append(error)
        finally:
            with self._changed:
                self._helping -= 1
                self._changed.notify()

    def end(self) -> None:
        """Drop the calls that nobody has begun, and wait until no helper is inside one."""
        self._left.clear()
        with measured("wait"), self._changed:
            self._changed.wait_for(lambda: not self._helping)

    def answers(self) -> list[Result]:
        """Return the results, or raise the first error of a helper."""
        if self._errors:
            raise self._errors.pop(0)
        return self.results  # type: ignore[return-value]


def run_parallel(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], threads: int) -> list[Result]:
    """Call `function` with each tuple of arguments, on up to `threads` threads; return results in the order of calls.

    A pool thread makes all calls itself: if all waited for others of the pool, none would be left to do the work.
    """
    work = list(calls)
    if threads == 1 or len(work) < 2 or hasattr(_this_thread, "is_pool_thread"):
        return [function(*arguments) for arguments in work]
    shared = _SharedWork(function, work, threads)
    try:
        shared.wake(min(threads, len(work)) - 1)
        shared.take()
    finally:
        shared.end()  # Even when interrupted: no thread may still be writing after this function returns.
    return shared.answers()


def split_evenly(count: int, parts: int) -> list[tuple[int, int]]:
    """Split range(count) into up to `parts` runs (start, stop) of similar length; none is empty unless count is 0."""
    edges = [count * part // parts for part in range(parts + 1)]
    return [(a, b) for a, b in pairwise(edges) if b > a] or [(0, 0)]
