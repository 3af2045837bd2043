"""Transfer of pairs from host memory to the GPU: several pieces in flight, each on its own stream.

The GPU copies pinned memory directly, at the full rate of the bus. A copy from pageable (ordinary) memory runs at a
sixth of that rate, so several threads copy it, each through its own `Lane`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np

from superhosts.core.device import simulated, start_parallel, thread_count
from superhosts.core.pairs import Addresses, Batches
from superhosts.core.stopwatch import timed
from superhosts.detectors.engines.tuning import TransferSizes
from superhosts.detectors.gpu import driver
from superhosts.detectors.gpu.lane import Columns, Lane, Piece
from superhosts.detectors.gpu.launch import Stream, device_array, is_pinned, make_stream

SLOTS = 3  # pieces in flight on the GPU
PINNED_PIECE = 1 << 22  # pairs per piece of pinned memory: small, so that little work is left after the last transfer
MAX_THREADS = 8  # more threads copy no faster
MAX_VIEWS = 16  # shapes of pieces that a slot remembers
Process = Callable[[Any, Any, Stream], None]  # works on a piece: hosts, peers, stream


def _buffer_size(size: int) -> int:
    """Return more bytes than needed, so that batches that grow or change their width rarely need a new buffer."""
    return max(1 << 20, 1 << (size - 1).bit_length())


class Slot:
    """Buffers on the GPU for one piece, and the stream that processes it."""

    def __init__(self) -> None:
        self.stream = make_stream()
        self._buffers: dict[int, Any] = {}
        self._views: dict[Any, Any] = {}  # kept because to make one takes as long as to launch a kernel

    def buffers(self, piece: Batches) -> tuple[Any, Any]:
        """Return GPU memory for all batches of a piece, as two columns."""
        rows = sum(len(columns[0]) for columns in piece)
        hosts, peers = (self._buffer(number, column, rows) for number, column in enumerate(piece[0]))
        return hosts, peers

    def _buffer(self, number: int, like: Addresses, rows: int) -> Any:
        shape = rows, *like.shape[1:]
        view = number, like.dtype, shape
        if view not in self._views:
            size = int(np.prod(shape)) * like.dtype.itemsize
            if len(self._buffers.get(number, ())) < size:
                self._buffers[number] = device_array(_buffer_size(size), np.uint8)
                self._views.clear()
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            self._views[view] = self._buffers[number][:size].view(like.dtype).reshape(shape)
        return self._views[view]


class Staging:
    """Sends batches from host memory piece by piece. The caller may reuse its arrays when `send` returns.

    All sketches of a GPU share one object, because pinned memory and streams are slow to create.
    """

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
        """Copy batches to the GPU and call `process` with each copied piece and the stream to use.

        A piece has one large batch or part of it, or several small ones one behind the other.
        """
        with self._lock, self._inside():
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
        contiguous = [(_contiguous(hosts), _contiguous(peers)) for hosts, peers in batches]
        piece = Piece(contiguous, buffers, self._sizes.part_bytes, self._threads)
        threads = min(self._threads, piece.count)
        if threads == 1:
            self._transfer(piece, 0, 1)
            return []
        piece.prepare()
        return start_parallel(self._transfer, [(piece, first, threads) for first in range(threads)], self._threads)

    def _transfer(self, piece: Piece, first: int, step: int) -> None:
        with self._inside():
            try:
                lane = self._idle.pop()
            except IndexError:
                lane = self._make_lane(self._gpu, self._sizes.part_bytes)
            lane.transfer(piece, first, step)
            self._idle.append(lane)  # A lane whose transfer failed is not reused.

    def _inside(self) -> AbstractContextManager[None]:
        """Make the GPU the current one of this thread meanwhile."""
        return nullcontext() if simulated() else driver.inside(self._gpu)

    def _next_slot(self) -> Slot:
        """Return the slots in turn, each when the GPU has read its previous piece."""
        slot = self._slots[self._turn]
        self._turn = (self._turn + 1) % SLOTS
        slot.stream.synchronize()
        return slot

    def synchronize(self) -> None:
        """Wait until the GPU has processed everything that was sent."""
        with self._lock:
            self._wait()

    def _wait(self) -> None:
        if self._busy:
            for slot in self._slots:
                slot.stream.synchronize()
            self._busy = False


def pieces_of(batches: Batches, size: int) -> Iterator[list[Columns]]:
    """Split large batches and gather small ones of the same types, so that pieces have about `size` pairs, or fewer."""
    piece: list[Columns] = []
    rows = 0
    for hosts, peers in batches:
        for start in range(0, len(hosts), size):
            part = hosts[start : start + size], peers[start : start + size]
            if piece and (rows + len(part[0]) > size or _kinds(part) != _kinds(piece[0])):
                yield piece
                piece, rows = [], 0
            piece.append(part)
            rows += len(part[0])
    if piece:
        yield piece


def _kinds(columns: Columns) -> list[Any]:
    return [(column.dtype, column.shape[1:]) for column in columns]


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
