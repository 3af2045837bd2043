"""Transfer from pageable host memory to the GPU by one thread, which copies parts into pinned memory and sends them.

A thread transfers all of its parts in one compiled call without the GIL. In Python, every step of every part would wait
for the GIL, and with many threads that takes longer than the copies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core.types import int32, int64
from numba.core.types.containers import UniTuple
from numba.core.typing import signature
from numba.extending import intrinsic

from superhosts.core.device import cuda_driver, simulated
from superhosts.core.pairs import Addresses
from superhosts.detectors.gpu import driver
from superhosts.detectors.gpu.launch import make_stream, pinned
from superhosts.jit.compiled import compiled

MIN_PART = 1 << 20  # bytes; to start a thread for fewer does not pay
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
    """Batches that are sent one behind the other, and so arrive as one. A part is some pairs of one or several."""

    sources: Any  # addresses of the two columns of each batch
    rows: Any  # pairs of each batch
    targets: Any  # addresses on the GPU where the two columns go
    widths: Any  # bytes per row of each of the two columns
    size: int  # pairs of a part


class Buffer(NamedTuple):
    """Pinned memory in two halves, each with its own stream."""

    address: int
    half_size: int
    streams: Any


@compiled
def transfer(calls: Calls, context: int, parts: Parts, buffer: Buffer, first: int, step: int) -> int:
    """Send every `step`-th part of some batches, starting with part `first`; return the driver's status, 0 for success.

    A part must fit into half of the buffer.
    """
    size, total = parts.size, parts.rows.sum()
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


class Piece:
    """Batches on their way to the GPU, and where they go. Threads share the work on its parts."""

    def __init__(self, batches: Sequence[Columns], targets: tuple[Any, Any], part_bytes: int, threads: int) -> None:
        """Divide the batches into parts: one for each thread, but of MIN_PART to `part_bytes` bytes."""
        self.batches, self.targets = batches, targets
        width, total = sum(map(_width, batches[0])), sum(len(columns[0]) for columns in batches)
        self.size = min(part_bytes // width, max(MIN_PART // width, -(-total // threads)))
        self.count = -(-total // self.size)

    def prepare(self) -> None:
        """Look up all addresses now, so that not every thread does it."""
        if not simulated():
            self.parts  # noqa: B018

    @cached_property
    def parts(self) -> Parts:
        """What `transfer` needs to know. The columns of all batches have the same types."""
        sources = np.array([[column.ctypes.data for column in columns] for columns in self.batches], np.int64)
        rows = np.array([len(columns[0]) for columns in self.batches], np.int64)
        targets = np.array([target.address for target in self.targets], np.int64)
        return Parts(sources, rows, targets, np.array(list(map(_width, self.batches[0])), np.int64), self.size)


class Lane:
    """The pinned memory and the streams of one thread, which fills one half while the GPU copies the other."""

    def __init__(self, gpu: int, part_bytes: int) -> None:
        self._gpu, self._part_bytes = gpu, part_bytes
        self._buffer = pinned(2 * part_bytes, np.uint8)
        self._streams = [make_stream(waits_for_default=False) for _ in range(2)]

    def transfer(self, piece: Piece, first: int, step: int) -> None:
        """Copy every `step`-th part of a piece, starting with part `first`, and wait until all have arrived."""
        if simulated():
            self._transfer_simulated(piece, first, step)
            return
        handles = np.array([stream.handle for stream in self._streams], np.int64)
        buffer = Buffer(self._buffer.ctypes.data, self._part_bytes, handles)
        status = transfer(_calls(), driver.context_of(self._gpu), piece.parts, buffer, first, step)
        if status:
            raise driver.DriverError("a copy", status)

    def _transfer_simulated(self, piece: Piece, first: int, step: int) -> None:
        """Copy the same parts in the simulator."""
        size = piece.size
        columns = [np.concatenate(parts) for parts in zip(*piece.batches, strict=True)]
        for column, target in zip(columns, piece.targets, strict=True):
            for start in range(first * size, len(column), step * size):
                target[start : start + size].copy_to_device(column[start : start + size])


def _width(column: Addresses) -> int:
    """Return the bytes per row."""
    return column.dtype.itemsize * (column.shape[1] if column.ndim > 1 else 1)
