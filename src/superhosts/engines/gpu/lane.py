"""Transfer from pageable host memory to the GPU by one thread, which copies parts into pinned memory and sends them.

A thread transfers all of its parts in one compiled call without the GIL. In Python, every step of every part would wait
for the GIL, and with many threads that takes longer than the copies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core.types import int32, int64
from numba.core.types.containers import UniTuple
from numba.core.typing import signature
from numba.extending import intrinsic

from superhosts.compiled import compiled
from superhosts.device import cuda_driver, simulated
from superhosts.engines.gpu import driver
from superhosts.engines.gpu.launch import make_stream, pinned
from superhosts.pairs import Addresses

Columns = tuple[Addresses, Addresses]


class Calls(NamedTuple):
    """Addresses of functions of the driver and the C library. All but `copy` return a status."""

    enter: int  # (context)
    wait: int  # (stream)
    send: int  # (target, source, bytes, stream)
    copy: int  # (target, source, bytes)


@cache
def _calls() -> Calls:
    names = "cuCtxSetCurrent", "cuStreamSynchronize", "cuMemcpyHtoDAsync_v2"
    functions = [*(getattr(cuda_driver(), name) for name in names), ctypes.CDLL(None).memcpy]
    return Calls(*(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions))


@intrinsic  # type: ignore[untyped-decorator]
def call(_context: Any, _address: Any, words: Any) -> Any:
    """Call the function at an address with 64-bit words; return a 32-bit status."""

    def generate(_target: Any, builder: Any, _signature: Any, values: Any) -> Any:
        address, arguments = values
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [word] * len(words))
        unpacked = [builder.extract_value(arguments, number) for number in range(len(words))]
        return builder.call(builder.inttoptr(address, kind.as_pointer()), unpacked)

    return signature(int32, int64, UniTuple(int64, len(words))), generate


class Parts(NamedTuple):
    """Batches that are sent one behind the other: addresses of their two columns, and pairs of each of them."""

    sources: Any
    rows: Any
    targets: Any  # addresses on the GPU where the two columns of the first batch go
    widths: Any  # bytes per row of each of the two columns


class Buffer(NamedTuple):
    """Pinned memory in two halves, each with its own stream."""

    address: int
    half_size: int
    streams: Any


@compiled
def transfer(calls: Calls, context: int, parts: Parts, buffer: Buffer, first: int, step: int) -> int:
    """Send every `step`-th part of some batches, starting with part `first`; return the driver's status, 0 for success.

    A part is as many pairs of one batch as fit into half of the buffer.
    """
    size = buffer.half_size // (parts.widths[0] + parts.widths[1])
    status, half, number, before = call(calls.enter, (context,)), 0, 0, 0
    for batch in range(len(parts.rows)):
        rows = parts.rows[batch]
        for start in range(0, rows, size):
            if number % step == first:
                status = status or call(calls.wait, (buffer.streams[half],))  # The part before must have been sent.
                place = buffer.address + half * buffer.half_size
                for column in range(2):
                    width = parts.widths[column]
                    part = min(size, rows - start) * width
                    call(calls.copy, (place, parts.sources[batch, column] + start * width, part))
                    target = parts.targets[column] + (before + start) * width
                    status = status or call(calls.send, (target, place, part, buffer.streams[half]))
                    place += part
                half = 1 - half
            number += 1
        before += rows
    for stream in buffer.streams:
        last_status = call(calls.wait, (stream,))
        status = status or last_status
    return int(status)


class Lane:
    """The pinned memory and the streams of one thread, which fills one half while the GPU copies the other."""

    def __init__(self, gpu: int, part_bytes: int) -> None:
        self._gpu, self._part_bytes = gpu, part_bytes
        self._buffer = pinned(2 * part_bytes, np.uint8)
        self._streams = [make_stream(waits_for_default=False) for _ in range(2)]

    def transfer(self, batches: Sequence[Columns], targets: tuple[Any, Any], first: int, step: int) -> None:
        """Copy every `step`-th part of some batches, starting with part `first`, and wait until all have arrived."""
        if simulated():
            self._transfer_simulated(batches, targets, first, step)
            return
        handles = np.array([stream.handle for stream in self._streams], np.int64)
        addresses = np.array([target.address for target in targets], np.int64)
        buffer = Buffer(self._buffer.ctypes.data, self._part_bytes, handles)
        status = transfer(_calls(), driver.context_of(self._gpu), parts_of(batches, addresses), buffer, first, step)
        if status:
            raise driver.DriverError("a copy", status)

    def _transfer_simulated(self, batches: Sequence[Columns], targets: tuple[Any, Any], first: int, step: int) -> None:
        """Copy the same parts in the simulator."""
        number = before = 0
        for columns in batches:
            rows, size = len(columns[0]), part_rows(columns, self._part_bytes)
            for start in range(0, rows, size):
                if number % step == first:
                    for column, target in zip(columns, targets, strict=True):
                        part = column[start : start + size]
                        target[before + start : before + start + len(part)].copy_to_device(part)
                number += 1
            before += rows


def parts_of(batches: Sequence[Columns], targets: Any) -> Parts:
    """Return what `transfer` needs to know of batches whose columns have the same types."""
    sources = np.array([[column.ctypes.data for column in columns] for columns in batches], np.int64)
    rows = np.array([len(columns[0]) for columns in batches], np.int64)
    return Parts(sources, rows, targets, np.array([_width(column) for column in batches[0]], np.int64))


def count_parts(batches: Sequence[Columns], part_bytes: int) -> int:
    """Return the number of parts of some batches."""
    return sum(-(-len(columns[0]) // part_rows(columns, part_bytes)) for columns in batches)


def _width(column: Addresses) -> int:
    """Return the bytes per row."""
    return column.dtype.itemsize * (column.shape[1] if column.ndim > 1 else 1)


def part_rows(columns: Columns, part_bytes: int) -> int:
    """Return the number of pairs per part of `part_bytes` bytes."""
    return part_bytes // sum(map(_width, columns))
