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
    """Batches that are sent one behind the other, and so arrive as one."""

    sources: Any  # addresses of the two columns of each batch
    rows: Any  # pairs of each batch
    targets: Any  # addresses on the GPU where the two columns go
    widths: Any  # bytes per row of each of the two columns


class Buffer(NamedTuple):
    """Pinned memory in two halves, each with its own stream."""

    address: int
    half_size: int
    streams: Any


@compiled
def transfer(calls: Calls, context: int, parts: Parts, buffer: Buffer, first: int, step: int) -> int:
    """Send every `step`-th part of some batches, starting with part `first`; return the driver's status, 0 for success.

    A part is as many pairs as fit into half of the buffer, of one batch or of several.
    """
    size, total = buffer.half_size // (parts.widths[0] + parts.widths[1]), parts.rows.sum()
    status, half, first_batch, begin = call(calls.enter, (context,)), 0, 0, 0
    for start in range(first * size, total, step * size):
        stop = min(total, start + size)
        while begin + parts.rows[first_batch] <= start:  # `begin` is the number of pairs before that batch
            begin += parts.rows[first_batch]
            first_batch += 1
        status = status or call(calls.wait, (buffer.streams[half],))  # The previous part in this half must be sent.
        place = buffer.address + half * buffer.half_size
        for column in range(2):
            width, whole = parts.widths[column], place
            batch, before = first_batch, begin
            while before < stop:
                skipped = max(0, start - before)
                taken = (min(parts.rows[batch], stop - before) - skipped) * width
                call(calls.copy, (place, parts.sources[batch, column] + skipped * width, taken))
                place += taken
                before += parts.rows[batch]
                batch += 1
            target = parts.targets[column] + start * width
            status = status or call(calls.send, (target, whole, place - whole, buffer.streams[half]))
        half = 1 - half
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
        size = part_rows(batches[0], self._part_bytes)
        for column, target in zip(
            (np.concatenate(parts) for parts in zip(*batches, strict=True)), targets, strict=True
        ):
            for start in range(first * size, len(column), step * size):
                target[start : start + size].copy_to_device(column[start : start + size])


def parts_of(batches: Sequence[Columns], targets: Any) -> Parts:
    """Return what `transfer` needs to know of batches whose columns have the same types."""
    sources = np.array([[column.ctypes.data for column in columns] for columns in batches], np.int64)
    rows = np.array([len(columns[0]) for columns in batches], np.int64)
    return Parts(sources, rows, targets, np.array([_width(column) for column in batches[0]], np.int64))


def count_parts(batches: Sequence[Columns], part_bytes: int) -> int:
    """Return the number of parts of some batches."""
    return -(-sum(len(columns[0]) for columns in batches) // part_rows(batches[0], part_bytes))


def _width(column: Addresses) -> int:
    """Return the bytes per row."""
    return column.dtype.itemsize * (column.shape[1] if column.ndim > 1 else 1)


def part_rows(columns: Columns, part_bytes: int) -> int:
    """Return the number of pairs per part of `part_bytes` bytes."""
    return part_bytes // sum(map(_width, columns))
