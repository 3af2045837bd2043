"""Transfer from pageable host memory to the GPU by one thread, which copies parts into pinned memory and sends them.

A thread transfers all of its parts in one compiled call without the GIL. In Python, every step of every part would wait
for the GIL, and with many threads that takes longer than the copies.
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

Columns = tuple[Addresses, Addresses]


class Calls(NamedTuple):
    """Functions of the driver and the C library that take addresses as integers. All but `copy` return a status."""

    enter: Any  # (context)
    wait: Any  # (stream)
    send: Any  # (target, source, bytes, stream)
    copy: Any  # (target, source, bytes)


@cache
def _transfer() -> Callable[..., int]:
    word = ctypes.c_uint64
    calls = Calls(
        enter=driver_call("cuCtxSetCurrent", word),
        wait=driver_call("cuStreamSynchronize", word),
        send=driver_call("cuMemcpyHtoDAsync_v2", word, word, word, word),
        copy=ctypes.CFUNCTYPE(word, word, word, word)(("memcpy", ctypes.CDLL(None))),
    )
    return make_transfer(calls)


def make_transfer(calls: Calls) -> Callable[..., int]:
    """Return the compiled transfer of one thread's parts of a piece. It returns the driver's status: 0 for success.

    `sources`, `targets` and `widths` have an address or the bytes per row of each of the two columns; `buffer` is the
    address of two halves of pinned memory, each with its own stream.
    """
    enter, wait, send, copy = calls

    def transfer(
        context: int,
        sources: Any,
        targets: Any,
        widths: Any,
        rows: int,
        buffer: int,
        half_size: int,
        streams: Any,
        first: int,
        step: int,
    ) -> int:
        size = half_size // (widths[0] + widths[1])
        status, half = enter(context), 0
        for start in range(first * size, rows, step * size):
            status = status or wait(streams[half])  # The previous part in this half must have been sent.
            place = buffer + half * half_size
            for column in range(2):
                part = min(size, rows - start) * widths[column]
                copy(place, sources[column] + start * widths[column], part)
                status = status or send(targets[column] + start * widths[column], place, part, streams[half])
                place += part
            half = 1 - half
        for stream in streams:
            last_status = wait(stream)
            status = status or last_status
        return int(status)

    # The code is not cached on disk, because it contains addresses of this process.
    compiled: Callable[..., int] = numba.njit(nogil=True)(transfer)
    return compiled


class Lane:
    """The pinned memory and the streams of one thread, which fills one half while the GPU copies the other."""

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._buffer = pinned(2 * part_bytes, np.uint8)
        self._streams = [Stream(waits_for_default=False) for _ in range(2)]

    def transfer(self, columns: Columns, targets: tuple[Any, Any], first: int, step: int) -> None:
        """Copy every `step`-th part of a piece, starting with part `first`, and wait until all have arrived."""
        if simulated():
            self._transfer_simulated(columns, targets, first, step)
            return
        status = _transfer()(
            current_context(),
            np.array([column.ctypes.data for column in columns], np.int64),
            np.array([target.device_ctypes_pointer.value for target in targets], np.int64),
            np.array([_width(column) for column in columns], np.int64),
            len(columns[0]),
            self._buffer.ctypes.data,
            self._part_bytes,
            np.array([stream.cupy.ptr for stream in self._streams], np.int64),
            first,
            step,
        )
        if status:
            raise RuntimeError(f"the GPU driver refused a copy: status {status}")

    def _transfer_simulated(self, columns: Columns, targets: tuple[Any, Any], first: int, step: int) -> None:
        """Copy the same parts in the simulator."""
        rows, size = len(columns[0]), part_rows(columns, self._part_bytes)
        for start in range(first * size, rows, step * size):
            for column, target in zip(columns, targets, strict=True):
                target[start : start + size].copy_to_device(column[start : start + size])


def _width(column: Addresses) -> int:
    """Return the bytes per row."""
    return column.dtype.itemsize * (column.shape[1] if column.ndim > 1 else 1)


def part_rows(columns: Columns, part_bytes: int) -> int:
    """Return the number of pairs per part of `part_bytes` bytes."""
    return part_bytes // sum(map(_width, columns))
