"""GSE on a GPU: writing pairs, the set of hosts, and the search through all hosts.

The set uses open addressing with compare-and-swap, in the same layout as on the CPU. It cannot grow while a kernel
runs. A thread that finds it too full therefore sets a flag and does not enter its pair into the table of recent pairs.
Then the set grows and the whole batch is written again, which changes nothing for pairs already written: no host is
lost.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from superhosts.core.hashing import fold, mangle32, pair_hash
from superhosts.core.text import setting
from superhosts.core.units import format_size
from superhosts.detectors.engines.base import Arrays, Counts, Engine, Plan, Words
from superhosts.detectors.gpu.driver import is_out_of_memory
from superhosts.detectors.gpu.engine import CudaEngine, on_gpu
from superhosts.detectors.gpu.kernels import FOUND, U32, U64, WIDE, Kernel, Put, answer_shape
from superhosts.detectors.gpu.launch import (
    Replay,
    Stream,
    cuda,
    device_array,
    device_function,
    device_zeros,
    kernel,
    set_zero,
    to_device,
)
from superhosts.errors import GpuMemoryError
from superhosts.lab.rivals.base import Slots, hosts_in
from superhosts.lab.rivals.gse import Geometry, Search, bit_of, place_of, slot_of

MAX_PROBES = 256  # slots that a thread examines before it reports that the set is too full
GROWTH = 4  # factor by which the set grows
HOSTS, FAILED = 0, 1  # indexes of the set's state: number of hosts, and whether a host found no slot
PREFIX_BITS, PREFIX_ZEROS, ZEROS = range(3)  # indexes of the limits of a search


@device_function
def add_host(host: Any, slots: Any, state: Any) -> bool:
    """Add a mangled host to the set; return False if the set is too full for it."""
    capacity = np.int64(slots.shape[0] - 1)
    if host == U32(0):
        slots[capacity] = U32(1)
        return True
    place = np.int64(host) & (capacity - 1)
    for _ in range(MAX_PROBES):
        seen = slots[place]
        if seen == U32(0):
            if 2 * np.int64(state[HOSTS]) >= capacity:
                break
            seen = cuda.atomic.cas(slots, place, U32(0), host)
            if seen == U32(0):
                cuda.atomic.add(state, HOSTS, U32(1))
                return True
        if seen == host:
            return True
        place = (place + 1) & (capacity - 1)
    state[FAILED] = U32(1)
    return False


@kernel
def add_cells(cells: Any, slots: Any, state: Any) -> None:
    """Add the hosts of one set to another."""
    last = cells.shape[0] - 1
    for i in range(cuda.grid(1), last + 1, cuda.gridsize(1)):
        if cells[i] != U32(0):
            add_host(cells[i] if i < last else U32(0), slots, state)


@cache
def make_put(geometry: Geometry) -> Put:
    """Return the device function that sets the bit of one pair. It reads the bit before it writes."""

    def put(high: Any, low: Any, peer: Any, bits: Any, extra: Any, key: Any) -> None:
        at = U64(bit_of(low, U64(place_of(peer, geometry, key)), geometry, key))
        word, bit = U32(at >> U64(5)), U32(U32(1) << U32(at & U64(31)))
        if bits[word] & bit == 0:
            cuda.atomic.or_(bits, word, bit)

    return device_function(put)


@cache
def make_update(geometry: Geometry, peer_dimensions: int) -> Kernel:
    """Return the kernel that writes the pairs whose hash is not in the table of recent pairs."""
    put = make_put(geometry)

    def update(hosts: Any, peers: Any, bits: Any, table: Any, slots: Any, state: Any, key: Any) -> None:
        i, step, count = U32(cuda.grid(1)), U32(cuda.gridsize(1)), U32(hosts.shape[0])
        while i < count:
            low = U64(mangle32(U64(hosts[i]), key))
            if peer_dimensions == WIDE:
                peer = U64(fold(peers[i, U32(0)], peers[i, U32(1)], key))
            else:
                peer = U64(peers[i])
            pair = U64(pair_hash(low, peer, key))
            slot = U32(slot_of(pair, geometry))
            if table[slot] != pair:
                put(U64(0), low, peer, bits, table, key)
                if add_host(U32(low), slots, state):
                    table[slot] = pair
            i = U32(i + step)

    return kernel(update)


@cache
def make_zeros_of(geometry: Geometry) -> Any:
    """Return the device function that counts the zeros in places start..stop of a host's vector."""

    def zeros_of(host: Any, start: int, stop: int, bits: Any, key: Any) -> int:
        zeros = 0
        for place in range(start, stop):
            at = U64(bit_of(host, U64(place), geometry, key))
            if (bits[U32(at >> U64(6))] >> (at & U64(63))) & U64(1) == U64(0):
                zeros += 1
        return zeros

    return device_function(zeros_of)


@cache
def make_search(geometry: Geometry) -> Kernel:
    """Return the kernel that tests every host of the set, one thread each, and appends those that pass."""
    zeros_of, size, (head, width) = make_zeros_of(geometry), geometry.vector, answer_shape(geometry)

    def search(bits: Any, slots: Any, limits: Any, answer: Any, key: Any) -> None:
        last = slots.shape[0] - 1
        for i in range(cuda.grid(1), last + 1, cuda.gridsize(1)):
            if slots[i] == U32(0):
                continue
            host = U64(slots[i]) if i < last else U64(0)
            zeros = zeros_of(host, 0, limits[PREFIX_BITS], bits, key)
            if zeros <= limits[PREFIX_ZEROS]:
                zeros += zeros_of(host, limits[PREFIX_BITS], size, bits, key)
                if zeros <= limits[ZEROS]:
                    place = head + np.int64(cuda.atomic.add(answer, FOUND, U64(1))) * width
                    if place + width <= answer.shape[0]:
                        answer[place], answer[place + 1] = U64(0), host
                        answer[place + 2], answer[place + 3] = U64(zeros), U64(zeros)

    return kernel(search)


@cache
def make_measure(geometry: Geometry) -> Kernel:
    """Return the kernel that counts the zeros in the vectors of given hosts."""
    zeros_of, size = make_zeros_of(geometry), geometry.vector

    def measure(hosts: Any, bits: Any, out: Any, key: Any) -> None:
        for i in range(cuda.grid(1), hosts.shape[0], cuda.gridsize(1)):
            out[i, 0] = zeros_of(hosts[i, 1], 0, size, bits, key)

    return kernel(measure)


class CudaGse(CudaEngine):
    """The bit array, the table of recent pairs (its extra words) and the set of hosts on one GPU."""

    geometry: Geometry

    def __init__(self, plan: Plan, gpu: int) -> None:
        self.slots: Any = None
        super().__init__(plan, gpu)

    @on_gpu
    def _allocate(self) -> None:
        super()._allocate()
        self._make_slots(self.tuning.gpu.host_slots)
        self._clear_recent()

    def _make_slots(self, capacity: int) -> None:
        """Allocate an empty set with `capacity` slots."""
        try:
            slots = device_zeros(capacity + 1, np.uint32, self.stream)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            size = format_size(4 * capacity)
            way = f"use {setting('device', 'cpu')}"
            text = f"GPU {self.gpu} does not have {size} of free memory for the set of hosts; {way}"
            raise GpuMemoryError(text) from None
        self.slots, self.state = slots, to_device(np.zeros(2, np.uint32))
        self.stream.synchronize()
        self._find = Replay(self.stream)  # The old recording would search the old set.

    @property
    def host_memory(self) -> int:
        return 4 * len(self.slots)

    def _clear_recent(self) -> None:
        """Empty the table. The value of an empty slot must not be a hash that maps to this slot."""
        set_zero(self.extra, self.stream)
        self.stream.synchronize()
        self.extra[:1].copy_to_device(np.ones(1, np.uint64))

    def _make_put(self) -> Put:
        return make_put(self.geometry)

    def _extra_words(self) -> int:
        return 1 << self.geometry.table_bits

    def _candidate_words(self) -> int:
        return 1  # The list of candidates is unused, because the search tests every host.

    def _limit_words(self) -> int:
        return len(Search._fields)

    def _limits_of(self, search: Search) -> Search:
        return search

    def _make_column_of(self) -> Any:
        raise AssertionError("GSE overrides measure, because a host has a vector and no columns")

    # Updates

    def _write_directly(self, hosts: Any, peers: Any, stream: Stream) -> None:
        launch, update = self.launch, make_update(self.geometry, peers.ndim)
        blocks = min(4 * launch.multiprocessors, -(-len(hosts) // launch.threads))
        while True:
            arguments = hosts, peers, self.halves, self.extra, self.slots, self.state, self.update_key
            self._start(update, (blocks, launch.threads), stream, arguments, (hosts.dtype, peers.dtype))
            if not self._has_failed(stream):
                break
            self._grow()

    def _has_failed(self, stream: Stream) -> bool:
        """Wait for the kernel and return True if a host found no slot."""
        stream.synchronize()
        return bool(self.state.copy_to_host()[FAILED])

    def _grow(self) -> None:
        """Move all hosts to a larger set."""
        cells, capacity, failed = self.slots, len(self.slots) - 1, True
        while failed:
            capacity *= GROWTH
            self._make_slots(capacity)
            failed = self._add_once(cells)

    def _add_once(self, cells: Any) -> bool:
        """Add the hosts of another set; return True if a host found no slot."""
        launch = self.launch
        blocks = min(4 * launch.multiprocessors, -(-len(cells) // launch.threads))
        self._start(add_cells, (blocks, launch.threads), self.stream, (cells, self.slots, self.state))
        return self._has_failed(self.stream)

    def _add(self, cells: Any) -> None:
        while self._add_once(cells):
            self._grow()

    @on_gpu
    def clear(self) -> None:
        super().clear()
        self._clear_recent()
        self._make_slots(len(self.slots) - 1)

    # Merging, loading and saving

    @on_gpu
    def merge(self, other: Engine) -> None:
        self.flush()
        if isinstance(other, CudaGse) and other.gpu == self.gpu:
            other.flush()
            words, cells = other.words, other.slots
        else:
            arrays = other.arrays()
            words, cells = to_device(arrays["bits"].reshape(-1)), to_device(cells_of(arrays["hosts"]))
        self._merge_words(self.words, words)
        self._add(cells)
        self._sums = None

    @on_gpu
    def arrays(self) -> Arrays:
        return {**super().arrays(), "hosts": hosts_in(self.slots.copy_to_host())}

    # Queries

    def _launch_search(self, stream: Stream) -> None:
        launch = self.launch
        blocks = min(8 * launch.multiprocessors, -(-len(self.slots) // launch.threads))
        arguments = self.words, self.slots, self.limits, self.answer, self.update_key
        self._start(make_search(self.geometry), (blocks, launch.threads), stream, arguments)

    @on_gpu
    def measure(self, mangled: Words) -> Counts:
        if not len(mangled):
            return np.empty((0, 1), np.int32)
        self.flush()
        out = device_array((len(mangled), 1), np.int32)
        team = self.launch.team
        arguments = to_device(np.ascontiguousarray(mangled)), self.words, out, self.update_key
        self._start(make_measure(self.geometry), (-(-len(mangled) // team), team), self.stream, arguments)
        self.stream.synchronize()
        counts: Counts = out.copy_to_host()
        return counts


def cells_of(hosts: Slots) -> Slots:
    """Return hosts in the layout of a set's slots, in which the last cell is 1 if host 0 is in the set."""
    others = hosts[hosts != 0]
    return np.append(others, np.uint32(len(others) < len(hosts))).astype(np.uint32)
