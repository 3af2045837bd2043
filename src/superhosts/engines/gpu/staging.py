"""The road of pairs from host memory to the GPU: several pieces in flight, each with a queue of its own.

Pinned memory is copied by the GPU as it stands, at the full rate of the bus. Ordinary memory is not: a copy from there
runs at a sixth of that rate. So several threads take it there, each by a lane of its own.
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
from superhosts.pairs import Addresses

PLACES = 3  # pieces on the GPU at a time
PIECE = 1 << 22  # pairs of pinned memory sent at a time: what is left at the end, when all has been sent, is little
COPIED_PIECE = 1 << 24  # of ordinary memory: threads are started for each piece
MOST_THREADS = 8  # more come to no more
MOST_VIEWS = 16  # shapes of pieces that a place remembers
Send = Callable[[Any, Any, Stream], None]


def _roomy(size: int) -> int:
    """Return more bytes than needed, so that batches that grow, or change their width, do not need new rooms."""
    return max(1 << 20, 1 << (size - 1).bit_length())


class Place:
    """Room on the GPU for one piece of a batch, and the queue in which it is worked on."""

    def __init__(self) -> None:
        self.stream = Stream()
        self._rooms: dict[int, Any] = {}
        self._views: dict[Any, Any] = {}  # numba takes as long for one as for a launch

    def rooms(self, columns: Columns) -> tuple[Any, Any]:
        """Return memory for a piece of two columns, in their shape."""
        hosts, peers = (self._room(name, column) for name, column in enumerate(columns))
        return hosts, peers

    def _room(self, name: int, like: Addresses) -> Any:
        key = name, like.dtype, like.shape
        if key not in self._views:
            if len(self._rooms.get(name, ())) < like.nbytes:
                self._rooms[name] = cuda.device_array(_roomy(like.nbytes), np.uint8)
                self._views.clear()
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            self._views[key] = self._rooms[name][: like.nbytes].view(like.dtype).reshape(like.shape)
        return self._views[key]


class Staging:
    """Sends batches of host memory piece by piece; the caller's arrays are free when `send` returns.

    All sketches of a GPU share one, since pinned memory and queues are slow to come by.
    """

    def __init__(self, gpu: int, threads: int) -> None:
        self._gpu, self._threads = gpu, min(threads, MOST_THREADS)
        self._idle: list[Lane] = []
        self._places = [Place() for _ in range(PLACES)]
        self._turn = 0
        self._busy = False
        self._lock = threading.Lock()  # sketches of several threads may send at the same time

    def send(self, hosts: Addresses, peers: Addresses, then: Send) -> None:
        """Copy a batch to the GPU; `then` is called with each piece there and the queue to work in."""
        with self._lock:
            self._busy = True
            if is_pinned(hosts) and is_pinned(peers):
                self._send_pinned((hosts, peers), then)
            else:
                self._send_copied((hosts, peers), then)

    def _send_pinned(self, columns: Columns, then: Send) -> None:
        for place, piece in self._pieces(columns, PIECE):
            rooms = place.rooms(piece)
            for column, room in zip(piece, rooms, strict=True):
                send_rows(column, room, place.stream)
            then(*rooms, place.stream)
        self._wait()  # the GPU reads the caller's own arrays

    def _send_copied(self, columns: Columns, then: Send) -> None:
        copies: list[Future[None]] = []
        last: tuple[Place, tuple[Any, Any], int] | None = None
        try:
            for place, piece in self._pieces(columns, COPIED_PIECE):
                rooms = place.rooms(piece)
                copies += self._begin(piece, rooms)
                if last is not None:  # the last piece is worked on while this one is copied
                    _finish(copies, *last, then)
                last = place, rooms, len(copies)
            if last is not None:
                _finish(copies, *last, then)
        finally:
            wait(copies)  # also when interrupted: nobody may go on reading the caller's arrays

    def _begin(self, piece: Columns, rooms: tuple[Any, Any]) -> list[Future[None]]:
        """Begin to copy a piece; each thread takes every so many-th part of it."""
        solid = _without_gaps(piece[0]), _without_gaps(piece[1])
        threads = max(1, min(self._threads, len(solid[0]) // part_rows(solid)))
        if threads == 1:
            self._carry(solid, rooms, 0, 1)
            return []
        calls = [(solid, rooms, first, threads) for first in range(threads)]
        return start_parallel(self._carry, calls, self._threads)

    def _carry(self, piece: Columns, rooms: tuple[Any, Any], first: int, step: int) -> None:
        use_gpu(self._gpu)
        try:
            lane = self._idle.pop()
        except IndexError:
            lane = Lane()
        lane.carry(piece, rooms, first, step)
        self._idle.append(lane)  # unless it failed

    def _pieces(self, columns: Columns, size: int) -> Iterator[tuple[Place, Columns]]:
        """Cut a batch into pieces, each with the place whose turn it is."""
        hosts, peers = columns
        for start in range(0, len(hosts), size):
            place = self._places[self._turn]
            self._turn = (self._turn + 1) % PLACES
            place.stream.synchronize()  # what it held has been read
            yield place, (hosts[start : start + size], peers[start : start + size])

    def synchronize(self) -> None:
        """Wait until all that was sent has been worked on."""
        with self._lock:
            self._wait()

    def _wait(self) -> None:
        if self._busy:
            for place in self._places:
                place.stream.synchronize()
            self._busy = False


def _without_gaps(column: Addresses) -> Addresses:
    return column if column.flags.c_contiguous else column.copy()


def _finish(copies: list[Future[None]], place: Place, rooms: tuple[Any, Any], last: int, then: Send) -> None:
    """Go on with a piece once the copies up to its last one have ended."""
    for copy in copies[:last]:
        copy.result()
    then(*rooms, place.stream)


@cache
def staging_of(gpu: int) -> Staging:
    """Return the staging of a GPU, which must be the current one."""
    return Staging(gpu, thread_count())


def is_pinned(array: Addresses) -> bool:
    """Say whether the GPU can copy an array of the host without help."""
    if simulated() or not len(array) or not array.flags.c_contiguous:
        return False
    import cupy

    return int(cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data).type) == 1  # cudaMemoryTypeHost
