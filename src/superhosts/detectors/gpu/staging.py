"""The road of pairs from host memory to the GPU: several slots in flight, each with a queue of its own.

Pinned memory is copied by the GPU as it stands, at the full rate of the bus. Ordinary memory is not: a copy from there
runs at a sixth of that rate. So threads copy it into pinned slots first, the next slot while the last one travels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import wait
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.detectors.gpu.launch import Stream, cuda, pinned
from superhosts.device import simulated, split_evenly, start_parallel
from superhosts.pairs import Addresses

SLOTS = 3
SLOT_PAIRS = 1 << 22  # 32 MiB of IPv4 pairs: what one slot costs in Python is little beside its copy
LEAST_PART = 1 << 17  # pairs that are worth a thread
MOST_THREADS = 6  # waking more costs more than they copy
Send = Callable[[Any, Any, Stream], None]


class Slot:
    """Room for one piece of a batch, pinned on the host and on the GPU."""

    def __init__(self) -> None:
        self.stream = Stream()
        self._rooms: dict[tuple[str, Any, int], tuple[NDArray[Any], Any]] = {}

    def room(self, name: str, like: Addresses) -> tuple[NDArray[Any], Any]:
        """Return pinned and device memory for a piece of a column, in its shape."""
        words = 1 if like.ndim == 1 else like.shape[1]
        key = (name, like.dtype, words)
        count = len(like) * words
        if key not in self._rooms or len(self._rooms[key][0]) < count:
            self._rooms = {other: room for other, room in self._rooms.items() if other[0] != name}
            self._rooms[key] = pinned(count, like.dtype), cuda.device_array(count, like.dtype)
        host, device = (array[:count] for array in self._rooms[key])
        return (host, device) if like.ndim == 1 else (host.reshape(like.shape), device.reshape(like.shape))


class Staging:
    """Sends batches of host memory piece by piece; the caller's arrays are free when `send` returns.

    All sketches of a GPU share one, since pinned memory is dear: 96 MiB for IPv4, and slow to come by.
    """

    def __init__(self, threads: int) -> None:
        self.threads = min(threads, MOST_THREADS)
        self.slots = [Slot() for _ in range(SLOTS)]
        self._turn = 0
        self._busy = False
        self._lock = threading.Lock()  # sketches of several threads may send at the same time

    def send(self, hosts: Addresses, peers: Addresses, then: Send) -> None:
        """Copy a batch to the GPU; `then` is called with each piece there and the queue to work in."""
        with self._lock:
            self._send(hosts, peers, then)

    def _send(self, hosts: Addresses, peers: Addresses, then: Send) -> None:
        direct = is_pinned(hosts) and is_pinned(peers)
        self._busy = True
        started: tuple[Slot, list[Any], list[tuple[NDArray[Any], Any]]] | None = None
        for start in range(0, len(hosts), SLOT_PAIRS):
            slot = self.slots[self._turn]
            self._turn = (self._turn + 1) % SLOTS
            slot.stream.synchronize()  # what it held has been read
            columns = {"hosts": hosts[start : start + SLOT_PAIRS], "peers": peers[start : start + SLOT_PAIRS]}
            rooms = [slot.room(name, column) for name, column in columns.items()]
            if direct:
                rooms = [(column, room[1]) for column, room in zip(columns.values(), rooms, strict=True)]
                self._ship(slot, [], rooms, then)
                continue
            count = len(columns["hosts"])
            runs = split_evenly(count, max(1, min(self.threads, count // LEAST_PART)))
            targets, sources = [room for room, _ in rooms], list(columns.values())
            copies = start_parallel(_copy, [(targets, sources, run) for run in runs], self.threads)
            if started is not None:
                self._ship(*started, then)
            started = slot, copies, rooms
        if started is not None:
            self._ship(*started, then)
        if direct:
            self._wait()

    @staticmethod
    def _ship(slot: Slot, copies: list[Any], rooms: list[tuple[NDArray[Any], Any]], then: Send) -> None:
        wait(copies)
        for copy in copies:
            copy.result()
        for host, device in rooms:
            device.copy_to_device(host, stream=slot.stream.numba)
        then(rooms[0][1], rooms[1][1], slot.stream)

    def synchronize(self) -> None:
        """Wait until every slot's work is done."""
        with self._lock:
            self._wait()

    def _wait(self) -> None:
        if self._busy:
            for slot in self.slots:
                slot.stream.synchronize()
            self._busy = False


@cache
def staging_of(gpu: int, threads: int) -> Staging:
    """Return the staging of a GPU, which must be the current one."""
    return Staging(threads)


def _copy(targets: list[NDArray[Any]], sources: list[Addresses], run: tuple[int, int]) -> None:
    """Copy a run of several columns. NumPy does this without the GIL."""
    for target, source in zip(targets, sources, strict=True):
        np.copyto(target[run[0] : run[1]], source[run[0] : run[1]])


def is_pinned(array: Addresses) -> bool:
    """Say whether the GPU can copy an array of the host without help."""
    if simulated() or not len(array) or not array.flags.c_contiguous:
        return False
    import cupy

    return int(cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data).type) == 1  # cudaMemoryTypeHost
