"""Where the work is done: the threads of this machine's CPU, or a CUDA device.

Threads are one plain pool over functions that run without the GIL; numba's own parallel layer is not safe to enter
from several threads, and a scan updates, reads and writes at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

from superhosts.errors import UsageError

Result = TypeVar("Result")
DEVICES = ("cpu", "auto")


def choose_device(device: str) -> str:
    """Return the device to use: "cpu", or what "auto" finds. An unknown name is refused."""
    if device not in DEVICES:
        raise UsageError(f"device {device!r} is not known; use one of {', '.join(DEVICES)}")
    return "cpu"


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


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="superhosts")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


def run_parallel(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], threads: int) -> list[Result]:
    """Call `function` with each tuple of arguments, on up to `threads` threads; results in the order of the calls."""
    work = list(calls)
    if threads == 1 or len(work) < 2:
        return [function(*arguments) for arguments in work]
    pool = _pool(threads)
    futures: list[Future[Result]] = [pool.submit(function, *arguments) for arguments in work[1:]]
    try:
        first = function(*work[0])  # the caller works too, so that small jobs wake as few threads as possible
    finally:
        wait(futures)  # also when interrupted: nobody may go on writing behind the caller's back
    return [first, *(future.result() for future in futures)]


def split_evenly(count: int, parts: int) -> list[tuple[int, int]]:
    """Cut range(count) into `parts` runs (start, stop) of nearly equal length, without empty ones."""
    edges = [count * part // parts for part in range(parts + 1)]
    return [(a, b) for a, b in pairwise(edges) if b > a] or [(0, 0)]
