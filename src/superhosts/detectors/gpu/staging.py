"""The road of pairs from host memory to the GPU: several slots in flight, each with a queue of its own.

Pinned memory is copied by the GPU as it stands, at the full rate of the bus. Ordinary memory is not: a copy from there
runs at a sixth of that rate. So threads copy it into pinned slots first, the next slot while the last one travels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.detectors.gpu.launch import Stream, cuda, pinned
from superhosts.device import simulated, split_evenly, start_parallel, thread_count
from superhosts.pairs import Addresses

SLOTS = 3
SLOT_PAIRS = 1 << 22  # 32 MiB of IPv4 pairs: what one slot costs in Python is little beside its copy
LEAST_PART = 1 << 17  # pairs that are worth a thread
MOST_THREADS = 6  # waking more costs more than they copy
MOST_VIEWS = 16  # shapes of pieces that a slot remembers
Send = Callable[[Any, Any, Stream], None]


class Slot:
    """Room for one piece of a batch, pinned on the host and on the GPU."""

    def __init__(self) -> None:
        self.stream = Stream()
        self._pinned: dict[str, NDArray[Any]] = {}
        self._device: dict[str, Any] = {}
        self._views: dict[Any, Any] = {}  # of the GPU's rooms: numba takes as long for one as for a launch

    def pinned_room(self, name: str, like: Addresses) -> NDArray[Any]:
        """Return pinned memory for a piece of a column, in its shape."""
        if len(self._pinned.get(name, ())) < like.nbytes:
            self._pinned[name] = pinned(_roomy(like.nbytes), np.uint8)
        return self._pinned[name][: like.nbytes].view(like.dtype).reshape(like.shape)

    def device_room(self, name: str, like: Addresses) -> Any:
        """Return memory of the GPU for a piece of a column, in its shape."""
        key = name, like.dtype, like.shape
        if key not in self._views:
            if len(self._device.get(name, ())) < like.nbytes:
                self._device[name] = cuda.device_array(_roomy(like.nbytes), np.uint8)
                self._views.clear()
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            self._views[key] = self._device[name][: like.nbytes].view(like.dtype).reshape(like.shape)
        return self._views[key]


def _roomy(size: int) -> int:
    """Return more bytes than needed, so that batches that grow, or change their width, do not need new rooms."""
    return max(1 << 20, 1 << (size - 1).bit_length())


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
        self._busy = True
        if is_pinned(hosts) and is_pinned(peers):
            for slot, (left, right) in self._pieces(hosts, peers):
                self._ship(slot, left, right, then)
            self._wait()  # the GPU reads the caller's own arrays
            return
        copies: list[Future[None]] = []
        try:
            ready: tuple[Slot, Addresses, Addresses, int] | None = None
            for slot, (left, right) in self._pieces(hosts, peers):
                rooms = slot.pinned_room("hosts", left), slot.pinned_room("peers", right)
                runs = split_evenly(len(left), max(1, min(self.threads, len(left) // LEAST_PART)))
                copies += start_parallel(_copy, [(rooms, (left, right), run) for run in runs], self.threads)
                if ready is not None:  # the last piece travels while this one is copied
                    self._ship_copied(copies, *ready, then)
                ready = slot, *rooms, len(copies)
            if ready is not None:
                self._ship_copied(copies, *ready, then)
        finally:
            wait(copies)  # also when interrupted: nobody may go on reading the caller's arrays

    def _pieces(self, hosts: Addresses, peers: Addresses) -> Iterator[tuple[Slot, tuple[Addresses, Addresses]]]:
        """Cut a batch into pieces, each with the slot whose turn it is."""
        for start in range(0, len(hosts), SLOT_PAIRS):
            slot = self.slots[self._turn]
            self._turn = (self._turn + 1) % SLOTS
            slot.stream.synchronize()  # what it held has been read
            yield slot, (hosts[start : start + SLOT_PAIRS], peers[start : start + SLOT_PAIRS])

    def _ship_copied(
        self, copies: list[Future[None]], slot: Slot, hosts: Addresses, peers: Addresses, last: int, then: Send
    ) -> None:
        """Ship a piece once the copies up to its last one have ended."""
        for copy in copies[:last]:
            copy.result()
        self._ship(slot, hosts, peers, then)

    @staticmethod
    def _ship(slot: Slot, hosts: Addresses, peers: Addresses, then: Send) -> None:
        rooms = slot.device_room("hosts", hosts), slot.device_room("peers", peers)
        for room, column in zip(rooms, (hosts, peers), strict=True):
            room.copy_to_device(column, stream=slot.stream.numba)
        then(*rooms, slot.stream)

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
def staging_of(gpu: int) -> Staging:
    """Return the staging of a GPU, which must be the current one."""
    return Staging(thread_count())


def _copy(targets: tuple[Addresses, Addresses], sources: tuple[Addresses, Addresses], run: tuple[int, int]) -> None:
    """Copy a run of several columns. NumPy does this without the GIL."""
    for target, source in zip(targets, sources, strict=True):
        np.copyto(target[run[0] : run[1]], source[run[0] : run[1]])


def is_pinned(array: Addresses) -> bool:
    """Say whether the GPU can copy an array of the host without help."""
    if simulated() or not len(array) or not array.flags.c_contiguous:
        return False
    import cupy

    return int(cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data).type) == 1  # cudaMemoryTypeHost
