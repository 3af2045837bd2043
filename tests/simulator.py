"""Patches for numba's GPU simulator, where it is wrong or slow.

Every simulated thread is a Python thread. numba's block manager polls all threads to find out whether they have
arrived at a barrier, which takes most of the time of a simulated kernel. Here the last thread that arrives wakes the
others, and the manager sleeps.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.cuda.np import numpy_support
from numba.cuda.simulator import kernel
from numba.cuda.simulator.kernelapi import FakeCUDAModule, FakeCUDAShared

from hostgpu import TINY, simulate


class Thread(kernel.BlockThread):  # type: ignore[misc]
    """A simulated thread, which waits for the other threads of its block at barriers."""

    def run(self) -> None:
        super().run()
        self._manager.leave(failed=self.exception is not None)

    def syncthreads(self) -> None:
        self._manager.meet()


class Manager(kernel.BlockManager):  # type: ignore[misc]
    def run(self, grid_point: tuple[int, ...], *args: Any) -> None:
        self._arrivals = threading.Condition()
        self._waiting, self._meetings, self._failed = 0, 0, False
        self.values: dict[int, Any] = {}
        threads = [
            Thread(lambda: self._f(*args), self, grid_point, point, self._debug)
            for point in np.ndindex(*self._block_dim)
        ]
        self._running = len(threads)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        failures = [thread.exception for thread in threads if thread.exception is not None]
        for error, trace in failures:
            if not isinstance(error, _AbandonedError):
                raise error.with_traceback(trace)

    def meet(self) -> None:
        """Wait until all threads that are still running have arrived."""
        with self._arrivals:
            number = self._meetings
            self._waiting += 1
            self._open_if_all_are_here()
            while self._meetings == number and not self._failed:
                self._arrivals.wait()
            if self._failed:
                raise _AbandonedError("another thread of this block has failed")

    def leave(self, *, failed: bool) -> None:
        """Remove a finished thread from the block, so that no other thread waits for it."""
        with self._arrivals:
            self._running -= 1
            self._failed = self._failed or failed
            self._open_if_all_are_here()
            if self._failed:
                self._arrivals.notify_all()

    def _open_if_all_are_here(self) -> None:
        if self._waiting == self._running and self._waiting:
            self._meetings += 1
            self._waiting = 0
            self._arrivals.notify_all()


class _AbandonedError(Exception):
    pass


_lock = threading.Lock()


def _shared_array(self: Any, shape: Any, dtype: Any) -> Any:
    """Return the shared array of a block, the same for all of its threads.

    numba creates it on first use, without a lock: two threads that arrive at once get separate arrays, and the writes
    of one are lost.
    """
    kind = numpy_support.as_dtype(dtype) if isinstance(dtype, types.Type) else dtype
    caller = sys._getframe(1)
    with _lock:
        return self._allocations.setdefault((caller.f_code.co_filename, caller.f_lineno), np.empty(shape, kind))


def _exchanged(value: Any, other: Callable[[int], int]) -> Any:
    """Return the value of another thread of the block: numba simulates no warps."""
    thread: Any = threading.current_thread()
    values, me = thread._manager.values, thread.threadIdx.x
    values[me] = value
    thread.syncthreads()
    found = values.get(other(me), value)
    thread.syncthreads()
    return found


def _ballot(value: bool) -> int:
    """Return a bit for each thread of the team: set if its value is true."""
    me = threading.current_thread().threadIdx.x  # type: ignore[attr-defined]
    first = me - me % TINY.team
    return sum(bool(_exchanged(value, lambda _, lane=lane: first + lane)) << lane for lane in range(TINY.team))


def mend() -> None:
    FakeCUDAModule.shfl_up_sync = lambda _, _mask, value, step: _exchanged(value, lambda me: me - step)
    FakeCUDAModule.shfl_xor_sync = lambda _, _mask, value, lanes: _exchanged(value, lambda me: me ^ lanes)
    FakeCUDAModule.ballot_sync = lambda _, _mask, value: _ballot(value)
    FakeCUDAModule.syncwarp = lambda module: module.syncthreads()
    FakeCUDAShared.array = _shared_array
    kernel.BlockManager = Manager
    simulate()
