"""Transfer of pairs from host memory to the GPU: several pieces in flight, each on its own stream.

The GPU copies pinned memory directly, at the full rate of the bus. A copy from pageable (ordinary) memory runs at a
sixth of that rate, so several threads copy it, each through its own `Lane`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from superhosts.core.device import cuda_driver, start_parallel, thread_count
from superhosts.core.pairs import Addresses, Batches
from superhosts.core.profile import timed
from superhosts.detectors.engines.base import TransferSizes, pieces_of
from superhosts.detectors.gpu import driver
from superhosts.detectors.gpu.driver import Stream
from superhosts.detectors.gpu.launch import is_pinned
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import call_address

# A thread transfers all of its parts in one compiled call without the GIL. In Python, every step of every part waits
# for the GIL, and with many threads that takes longer than the copies.
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


class Parts(NamedTuple):
    """Batches that are sent one behind the other, and so arrive as one. A part is some pairs of one or several."""

    sources: Any  # addresses of the two columns of each batch
    rows: Any  # pairs of each batch
    targets: Any  # addresses on the GPU where the two columns go
    widths: Any  # bytes per row of each of the two columns
    size: int  # pairs of a part


class Buffer(NamedTuple):
    address: int
    half_size: int
    streams: Any


@compiled
def transfer(calls: Calls, context: int, parts: Parts, buffer: Buffer, first: int, step: int) -> int:
    """Send every `step`-th part, each at most half of the buffer, from `first` on; return the driver's status."""
    size, total = parts.size, parts.rows.sum()
    status, half, first_batch, begin = call_address(calls.enter, (context,)), 0, 0, 0
    for start in range(first * size, total, step * size):
        stop = min(total, start + size)
        while begin + parts.rows[first_batch] <= start:  # `begin` is the number of pairs before that batch
            begin += parts.rows[first_batch]
            first_batch += 1
        status = status or call_address(
            calls.wait, (buffer.streams[half],)
        )  # The previous part in this half must be sent.
        place = buffer.address + half * buffer.half_size
        for column in range(2):
            width, whole = parts.widths[column], place
            batch, before = first_batch, begin
            while before < stop:
                skipped = max(0, start - before)
                taken = (min(parts.rows[batch], stop - before) - skipped) * width
                call_address(calls.copy, (place, parts.sources[batch, column] + skipped * width, taken))
                place += taken
                before += parts.rows[batch]
                batch += 1
            target = parts.targets[column] + start * width
            status = status or call_address(calls.send, (target, whole, place - whole, buffer.streams[half]))
        half = 1 - half
    for stream in buffer.streams:
        last_status = call_address(calls.wait, (stream,))
        status = status or last_status
    return int(status)


class Piece:
    """Batches on their way to the GPU, and where they go. Threads share the work on its parts."""

    def __init__(self, batches: Sequence[Columns], targets: tuple[Any, Any], part_bytes: int, threads: int) -> None:
        """Divide the batches into parts: one for each thread, but of MIN_PART to `part_bytes` bytes."""
        self.batches = batches
        widths, rows = list(map(_width, batches[0])), [len(columns[0]) for columns in batches]
        size = min(part_bytes // sum(widths), max(MIN_PART // sum(widths), -(-sum(rows) // threads)))
        sources = [[column.ctypes.data for column in columns] for columns in batches]
        # Addresses are looked up once, not by every thread. The columns of all batches have the same types.
        addresses = [target.address for target in targets]
        self.parts = Parts(_numbers(sources), _numbers(rows), _numbers(addresses), _numbers(widths), size)
        self.count = -(-sum(rows) // size)


class Lane:
    """The pinned memory and the streams of one thread, which fills one half while the GPU copies the other."""

    def __init__(self, gpu: int, part_bytes: int) -> None:
        self._gpu, self._part_bytes = gpu, part_bytes
        self._buffer = driver.pinned(2 * part_bytes, np.uint8)
        self._streams = [Stream(waits_for_default=False) for _ in range(2)]

    def transfer(self, piece: Piece, first: int, step: int) -> None:
        """Copy every `step`-th part of a piece, starting with part `first`, and wait until all have arrived."""
        handles = np.array([stream.handle for stream in self._streams], np.int64)
        buffer = Buffer(self._buffer.ctypes.data, self._part_bytes, handles)
        status = transfer(_calls(), driver.context_of(self._gpu), piece.parts, buffer, first, step)
        if status:
            raise driver.DriverError("a copy", status)


def _numbers(values: list[Any]) -> Any:
    return np.array(values, np.int64)


def _width(column: Addresses) -> int:
    return column.dtype.itemsize * (column.shape[1] if column.ndim > 1 else 1)


SLOTS = 3  # pieces in flight on the GPU
PINNED_PIECE = 1 << 22  # pairs per piece of pinned memory: small, so that little work is left after the last transfer
MAX_THREADS = 8  # more threads copy no faster
Process = Callable[[Any, Any, Stream], None]  # works on a piece: hosts, peers, stream


class Slot:
    def __init__(self) -> None:
        self.stream = Stream()
        self._buffers: dict[int, Any] = {}

    def buffers(self, piece: Batches) -> tuple[Any, Any]:
        rows = sum(len(columns[0]) for columns in piece)
        hosts, peers = (self._buffer(number, column, rows) for number, column in enumerate(piece[0]))
        return hosts, peers

    def _buffer(self, number: int, like: Addresses, rows: int) -> Any:
        shape = rows, *like.shape[1:]
        size = int(np.prod(shape)) * like.dtype.itemsize
        if len(self._buffers.get(number, ())) < size:
            # More than needed, so that batches that grow or change their width rarely need a new buffer.
            self._buffers[number] = driver.allocate(max(1 << 20, 1 << (size - 1).bit_length()), np.uint8)
        return driver.DeviceArray(self._buffers[number], self._buffers[number].address, shape, like.dtype)


class Staging:
    """Sends batches piece by piece. All sketches of a GPU share one, because pinned memory is slow to create."""

    def __init__(
        self, gpu: int, threads: int, sizes: TransferSizes, make_lane: Callable[[int, int], Lane] = Lane
    ) -> None:
        self._gpu, self._threads, self._sizes = gpu, min(threads, MAX_THREADS), sizes
        self._make_lane = make_lane
        self._idle: list[Lane] = []
        self._slots = [Slot() for _ in range(SLOTS)]
        self._turn = 0
        self._busy = False
        self._lock = threading.Lock()  # Several threads, each with its own sketch, may send at the same time.

    @timed("write", amount=lambda _, staging, batches, process: sum(len(hosts) for hosts, _ in batches))
    def send(self, batches: Batches, process: Process) -> None:
        """Copy batches and call `process` with each piece (part of one batch, or several small ones) and its stream."""
        with self._lock, driver.inside(self._gpu):
            self._busy = True
            if all(is_pinned(column) for columns in batches for column in columns):
                self._send_pinned(batches, process)
            else:
                self._send_pageable(batches, process)

    def _send_pinned(self, batches: Batches, process: Process) -> None:
        for columns in batches:
            for (piece,) in pieces_of([columns], PINNED_PIECE):
                slot = self._next_slot()
                buffers = slot.buffers([piece])
                for column, buffer in zip(piece, buffers, strict=True):
                    buffer.copy_to_device(column, stream=slot.stream.handle)
                process(*buffers, slot.stream)
        self._wait()  # The GPU reads the caller's own arrays.

    def _send_pageable(self, batches: Batches, process: Process) -> None:
        copies: list[Future[None]] = []
        previous: tuple[Slot, tuple[Any, Any], int] | None = None
        try:
            for piece in pieces_of(batches, self._sizes.piece):
                slot = self._next_slot()
                buffers = slot.buffers(piece)
                copies += self._start_copying(piece, buffers)
                if previous is not None:  # The GPU processes the previous piece while threads copy this one.
                    _finish(copies, *previous, process)
                previous = slot, buffers, len(copies)
            if previous is not None:
                _finish(copies, *previous, process)
        finally:
            wait(copies)  # Even when interrupted: no thread may still be reading the caller's arrays.

    def _start_copying(self, batches: Batches, buffers: tuple[Any, Any]) -> list[Future[None]]:
        """Start to copy a piece. With n threads, each copies every n-th part of it."""
        contiguous: Any = [(np.ascontiguousarray(hosts), np.ascontiguousarray(peers)) for hosts, peers in batches]
        piece = Piece(contiguous, buffers, self._sizes.part_bytes, self._threads)
        threads = min(self._threads, piece.count)
        if threads == 1:
            self._transfer(piece, 0, 1)
            return []
        return start_parallel(self._transfer, [(piece, first, threads) for first in range(threads)], self._threads)

    def _transfer(self, piece: Piece, first: int, step: int) -> None:
        with driver.inside(self._gpu):
            try:
                lane = self._idle.pop()
            except IndexError:
                lane = self._make_lane(self._gpu, self._sizes.part_bytes)
            lane.transfer(piece, first, step)
            self._idle.append(lane)  # A lane whose transfer failed is not reused.

    def _next_slot(self) -> Slot:
        """Return the slots in turn, each when the GPU has read its previous piece."""
        slot = self._slots[self._turn]
        self._turn = (self._turn + 1) % SLOTS
        slot.stream.synchronize()
        return slot

    def synchronize(self) -> None:
        with self._lock:
            self._wait()

    def _wait(self) -> None:
        if self._busy:
            for slot in self._slots:
                slot.stream.synchronize()
            self._busy = False


def _finish(copies: list[Future[None]], slot: Slot, buffers: tuple[Any, Any], count: int, process: Process) -> None:
    """Wait for the first `count` copies, which include all copies of a piece, then process the piece."""
    for copy in copies[:count]:
        copy.result()
    process(*buffers, slot.stream)


@cache
def staging_of(gpu: int, sizes: TransferSizes) -> Staging:
    return Staging(gpu, thread_count(), sizes)
