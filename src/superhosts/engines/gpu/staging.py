"""Transfer of pairs from host memory to the GPU: several pieces in flight, each on its own stream.

The GPU copies pinned memory directly, at the full rate of the bus. A copy from pageable (ordinary) memory runs at a
sixth of that rate, so several threads copy it, each through its own `Lane`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import cache
from typing import Any

import numpy as np

from superhosts.device import simulated, start_parallel, thread_count
from superhosts.engines.gpu.lane import Columns, Lane, part_rows
from superhosts.engines.gpu.launch import Stream, cuda, send_rows, use_gpu
from superhosts.engines.tuning import TransferSizes
from superhosts.pairs import Addresses

SLOTS = 3  # pieces in flight on the GPU
PINNED_PIECE = 1 << 22  # pairs per piece of pinned memory: small, so that little work is left after the last transfer
MAX_THREADS = 8  # more threads copy no faster
MAX_VIEWS = 16  # shapes of pieces that a slot remembers
Process = Callable[[Any, Any, Stream], None]  # works on a piece: hosts, peers, stream


def _buffer_size(size: int) -> int:
    """Return more bytes than needed, so that batches that grow or change their width rarely need a new buffer."""
    return max(1 << 20, 1 << (size - 1).bit_length())


class Slot:
    """Buffers on the GPU for one piece of a batch, and the stream that processes it."""

    def __init__(self) -> None:
        self.stream = Stream()
        self._buffers: dict[int, Any] = {}
        self._views: dict[Any, Any] = {}  # kept because numba takes as long to make one as to launch a kernel

    def buffers(self, columns: Columns) -> tuple[Any, Any]:
        """Return GPU memory for a piece of two columns, in their shapes."""
        hosts, peers = (self._buffer(number, column) for number, column in enumerate(columns))
        return hosts, peers

    def _buffer(self, number: int, like: Addresses) -> Any:
        view = number, like.dtype, like.shape
        if view not in self._views:
            if len(self._buffers.get(number, ())) < like.nbytes:
                self._buffers[number] = cuda.device_array(_buffer_size(like.nbytes), np.uint8)
                self._views.clear()
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            self._views[view] = self._buffers[number][: like.nbytes].view(like.dtype).reshape(like.shape)
        return self._views[view]


class Staging:
    """Sends batches from host memory piece by piece. The caller may reuse its arrays when `send` returns.

    All sketches of a GPU share one object, because pinned memory and streams are slow to create.
    """

    def __init__(self, gpu: int, threads: int, sizes: TransferSizes, make_lane: Callable[[int], Lane] = Lane) -> None:
        self._gpu, self._threads, self._sizes = gpu, min(threads, MAX_THREADS), sizes
        self._make_lane = make_lane
        self._idle: list[Lane] = []
        self._slots = [Slot() for _ in range(SLOTS)]
        self._turn = 0
        self._busy = False
        self._lock = threading.Lock()  # Several threads, each with its own sketch, may send at the same time.

    def send(self, hosts: Addresses, peers: Addresses, process: Process) -> None:
        """Copy a batch to the GPU and call `process` with each copied piece and the stream to use."""
        with self._lock:
            self._busy = True
            if is_pinned(hosts) and is_pinned(peers):
                self._send_pinned((hosts, peers), process)
            else:
                self._send_pageable((hosts, peers), process)

    def _send_pinned(self, columns: Columns, process: Process) -> None:
        for slot, piece in self._pieces(columns, PINNED_PIECE):
            buffers = slot.buffers(piece)
            for column, buffer in zip(piece, buffers, strict=True):
                send_rows(column, buffer, slot.stream)
            process(*buffers, slot.stream)
        self._wait()  # The GPU reads the caller's own arrays.

    def _send_pageable(self, columns: Columns, process: Process) -> None:
        copies: list[Future[None]] = []
        previous: tuple[Slot, tuple[Any, Any], int] | None = None
        try:
            for slot, piece in self._pieces(columns, self._sizes.piece):
                buffers = slot.buffers(piece)
                copies += self._start_copying(piece, buffers)
                if previous is not None:  # The GPU processes the previous piece while threads copy this one.
                    _finish(copies, *previous, process)
                previous = slot, buffers, len(copies)
            if previous is not None:
                _finish(copies, *previous, process)
        finally:
            wait(copies)  # Even when interrupted: no thread may still be reading the caller's arrays.

    def _start_copying(self, piece: Columns, buffers: tuple[Any, Any]) -> list[Future[None]]:
        """Start to copy a piece. With n threads, each copies every n-th part of it."""
        contiguous = _contiguous(piece[0]), _contiguous(piece[1])
        threads = max(1, min(self._threads, len(contiguous[0]) // part_rows(contiguous, self._sizes.part_bytes)))
        if threads == 1:
            self._transfer(contiguous, buffers, 0, 1)
            return []
        calls = [(contiguous, buffers, first, threads) for first in range(threads)]
        return start_parallel(self._transfer, calls, self._threads)

    def _transfer(self, piece: Columns, buffers: tuple[Any, Any], first: int, step: int) -> None:
        use_gpu(self._gpu)
        try:
            lane = self._idle.pop()
        except IndexError:
            lane = self._make_lane(self._sizes.part_bytes)
        lane.transfer(piece, buffers, first, step)
        self._idle.append(lane)  # A lane whose transfer failed is not reused.

    def _pieces(self, columns: Columns, size: int) -> Iterator[tuple[Slot, Columns]]:
        """Split a batch into pieces and assign each to the next slot in turn."""
        hosts, peers = columns
        for start in range(0, len(hosts), size):
            slot = self._slots[self._turn]
            self._turn = (self._turn + 1) % SLOTS
            slot.stream.synchronize()  # The GPU must have read the slot's previous piece.
            yield slot, (hosts[start : start + size], peers[start : start + size])

    def synchronize(self) -> None:
        """Wait until the GPU has processed everything that was sent."""
        with self._lock:
            self._wait()

    def _wait(self) -> None:
        if self._busy:
            for slot in self._slots:
                slot.stream.synchronize()
            self._busy = False


def _contiguous(column: Addresses) -> Addresses:
    return column if column.flags.c_contiguous else column.copy()


def _finish(copies: list[Future[None]], slot: Slot, buffers: tuple[Any, Any], count: int, process: Process) -> None:
    """Wait for the first `count` copies, which include all copies of a piece, then process the piece."""
    for copy in copies[:count]:
        copy.result()
    process(*buffers, slot.stream)


@cache
def staging_of(gpu: int, sizes: TransferSizes) -> Staging:
    """Return the staging object of a GPU, which must be the current device."""
    return Staging(gpu, thread_count(), sizes)


def is_pinned(array: Addresses) -> bool:
    """Return True if an array is in pinned host memory, which the GPU can copy directly."""
    if simulated() or not len(array) or not array.flags.c_contiguous:
        return False
    import cupy

    return int(cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data).type) == 1  # cudaMemoryTypeHost
