"""One thread's way from ordinary host memory to the GPU: parts are copied into pinned memory and sent off from there.

All parts of a thread are one compiled call without the GIL. From Python, every step of every part would wait for
the GIL, and with many threads that takes longer than the copies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from superhosts.device import simulated
from superhosts.engines.gpu.launch import Stream, current_context, driver_call, pinned
from superhosts.pairs import Addresses

PART = 1 << 22  # bytes that are copied at a time; with fewer, threads wait for each other in the driver
Columns = tuple[Addresses, Addresses]


class Calls(NamedTuple):
    """Functions of the driver and of the C library, with addresses as numbers. All but `copy` return a status."""

    enter: Any  # (context)
    wait: Any  # (queue)
    send: Any  # (target, source, bytes, queue)
    copy: Any  # (target, source, bytes)


@cache
def _carry() -> Callable[..., int]:
    word = ctypes.c_uint64
    calls = Calls(
        enter=driver_call("cuCtxSetCurrent", word),
        wait=driver_call("cuStreamSynchronize", word),
        send=driver_call("cuMemcpyHtoDAsync_v2", word, word, word, word),
        copy=ctypes.CFUNCTYPE(word, word, word, word)(("memcpy", ctypes.CDLL(None))),
    )
    return make_carry(calls)


def make_carry(calls: Calls) -> Callable[..., int]:
    """Compile the way of one thread through a piece; it returns a status of the driver, 0 if all is well."""
    enter, wait, send, copy = calls

    def carry(
        context: int,
        sources: Any,
        targets: Any,
        widths: Any,
        rows: int,
        room: int,
        half_room: int,
        queues: Any,
        first: int,
        step: int,
    ) -> int:
        size = half_room // (widths[0] + widths[1])
        status, half = enter(context), 0
        for start in range(first * size, rows, step * size):
            status = status or wait(queues[half])  # what this half held has been sent
            place = room + half * half_room
            for column in range(2):
                part = min(size, rows - start) * widths[column]
                copy(place, sources[column] + start * widths[column], part)
                status = status or send(targets[column] + start * widths[column], place, part, queues[half])
                place += part
            half = 1 - half
        for queue in queues:
            ended = wait(queue)
            status = status or ended
        return int(status)

    compiled: Callable[..., int] = numba.njit(nogil=True)(carry)  # not kept on disk: it has addresses of this process
    return compiled


class Lane:
    """The pinned memory and the queues of one thread: one half is filled while the other travels."""

    def __init__(self) -> None:
        self._room = pinned(2 * PART, np.uint8)
        self._streams = [Stream(waits_for_default=False) for _ in range(2)]

    def carry(self, columns: Columns, targets: tuple[Any, Any], first: int, step: int) -> None:
        """Copy every `step`-th part of a piece from the part `first` on; they have arrived on return."""
        if simulated():
            self._carry_slowly(columns, targets, first, step)
            return
        status = _carry()(
            current_context(),
            np.array([column.ctypes.data for column in columns], np.int64),
            np.array([target.device_ctypes_pointer.value for target in targets], np.int64),
            np.array([_width(column) for column in columns], np.int64),
            len(columns[0]),
            self._room.ctypes.data,
            len(self._room) // 2,
            np.array([stream.cupy.ptr for stream in self._streams], np.int64),
            first,
            step,
        )
        if status:
            raise RuntimeError(f"the GPU refused a copy: status {status}")

    @staticmethod
    def _carry_slowly(columns: Columns, targets: tuple[Any, Any], first: int, step: int) -> None:
        """Do the same where there is no GPU."""
        rows, size = len(columns[0]), part_rows(columns)
        for start in range(first * size, rows, step * size):
            for column, target in zip(columns, targets, strict=True):
                target[start : start + size].copy_to_device(column[start : start + size])


def _width(column: Addresses) -> int:
    """Return the bytes of one row."""
    return column.dtype.itemsize * (column.shape[1] if column.ndim > 1 else 1)


def part_rows(columns: Columns) -> int:
    """Return the pairs of a part."""
    return PART // sum(map(_width, columns))
