"""Where the work is done: the threads of this machine's CPU, or a CUDA device.

Threads are one plain pool over functions that run without the GIL; numba's own parallel layer is not safe to enter
from several threads, and a scan updates, reads and writes at the same time.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, TypeVar

from superhosts.errors import UsageError

Result = TypeVar("Result")
DEVICES = "cpu, auto, cuda, cuda:all, or GPUs by number as in cuda:0,1"
INSTALL = "pip install 'superhosts[gpu]' (CUDA 12) or 'superhosts[gpu13]' (CUDA 13, driver 580 or later)"
_GPUS = re.compile(r"cuda(?::(all|\d+(?:,\d+)*))?")


def choose_device(device: str) -> str:
    """Return the device to use: "cpu", or "cuda:" and the numbers of the GPUs.

    "auto" takes the first GPU where one can be used, else the CPU. A GPU that is asked for by name and cannot be used
    is an error that says what is missing.
    """
    if device in ("cpu", "auto"):
        return "cuda:0" if device == "auto" and cuda_problem() is None and not simulated() else "cpu"
    named = _GPUS.fullmatch(device)
    if named is None:
        raise UsageError(f"device {device!r} is not known; use one of {DEVICES}")
    problem = cuda_problem()
    if problem is not None:
        raise UsageError(f"device {device!r} cannot be used: {problem}")
    count = len(import_cuda().gpus)
    wanted = list(range(count)) if named[1] == "all" else [int(number) for number in (named[1] or "0").split(",")]
    if max(wanted) >= count:
        raise UsageError(f"device {device!r}: GPU {max(wanted)} is not there; GPUs are numbered 0 to {count - 1}")
    return "cuda:" + ",".join(map(str, wanted))


def gpus_of(device: str) -> list[int]:
    """Return the numbers of the GPUs that a chosen device names; none for the CPU."""
    return [int(number) for number in device[5:].split(",")] if device.startswith("cuda:") else []


def simulated() -> bool:
    """Say whether numba simulates its GPU (for tests). "auto" does not choose that one."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") == "1"


def cuda_driver() -> Any:
    """Return NVIDIA's driver, or None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@cache
def cuda_problem() -> str | None:
    """Say why no GPU can be used, or None if one can. No CUDA package is imported to find out, the driver is asked."""
    if simulated():
        return None
    driver = cuda_driver()
    if driver is None:
        return f"no NVIDIA driver was found (libcuda.so.1); with a GPU and its driver: {INSTALL}"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        return f"the NVIDIA driver sees no GPU (status {status})"
    missing = [name for name in ("numba_cuda", "cupy") if find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: {INSTALL}" if missing else None


os.register_at_fork(after_in_child=cuda_problem.cache_clear)  # CUDA does not survive a fork: ask again


@cache
def import_cuda() -> Any:
    """Import numba.cuda, once, and make it fit."""
    import numba
    import numpy as np

    if not hasattr(np, "row_stack"):  # NumPy 2.5 dropped the name, numba-cuda 0.30 still asks for it
        np.row_stack = np.vstack  # type: ignore[attr-defined,unused-ignore]
    numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small batches are small on purpose
    from numba import cuda

    return cuda


def thread_count() -> int:
    """Threads to use: SUPERHOSTS_THREADS, else as many as this process may run on."""
    wanted = os.environ.get("SUPERHOSTS_THREADS", "")
    if wanted:
        if not wanted.isdecimal() or int(wanted) < 1:
            raise UsageError(f"SUPERHOSTS_THREADS={wanted!r} is not a number of threads above zero")
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_this_thread = threading.local()


def _enter_pool() -> None:
    _this_thread.is_of_pool = True


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="superhosts", initializer=_enter_pool)


os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


def start_parallel(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], threads: int
) -> list[Future[Result]]:
    """Begin to call `function` with each tuple of arguments, on up to `threads` threads."""
    pool = _pool(threads)
    return [pool.submit(function, *arguments) for arguments in calls]


def run_parallel(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], threads: int) -> list[Result]:
    """Call `function` with each tuple of arguments, on up to `threads` threads; results in the order of the calls.

    Any thread may call it. One of the pool does all the work by itself: were all of them to wait for others of the
    pool, none would be left to do it.
    """
    work = list(calls)
    if threads == 1 or len(work) < 2 or hasattr(_this_thread, "is_of_pool"):
        return [function(*arguments) for arguments in work]
    futures = start_parallel(function, work[1:], threads)
    try:
        first = function(*work[0])  # the caller works too, so that small jobs wake as few threads as possible
    finally:
        wait(futures)  # also when interrupted: nobody may go on writing behind the caller's back
    return [first, *(future.result() for future in futures)]


def split_evenly(count: int, parts: int) -> list[tuple[int, int]]:
    """Cut range(count) into `parts` runs (start, stop) of nearly equal length, without empty ones."""
    edges = [count * part // parts for part in range(parts + 1)]
    return [(a, b) for a, b in pairwise(edges) if b > a] or [(0, 0)]
