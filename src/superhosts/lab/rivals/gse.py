"""GSE (Shin, Im, Yoon, 2014) on CSE (Yoon, Li, Chen, Peir, 2009): virtual vectors in one shared array of bits.

A host's vector of s bits is scattered over an array of m bits that all hosts share. The share of zeros in the vector,
V_s, and that of the whole array, V_m, give n = s·ln V_m − s·ln V_s. A table of recent pairs drops repeats first.
Nothing in the array names a host. A separate set therefore stores the hosts seen, which is sent with the array, and a
search tests every one of them. The first few hundred bits of a vector reject nearly all hosts.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import THRESHOLD
from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import Key, fold, mangle32, pair_hash
from superhosts.core.pairs import Addresses, Batches, as_words
from superhosts.core.text import setting
from superhosts.core.units import format_size
from superhosts.detectors.engines.base import Arrays, Counts, Engine, Plan, Sums, Words
from superhosts.detectors.engines.cpu import recount, unite_columns
from superhosts.detectors.estimate import Estimate, interval, saturate, saturation_of
from superhosts.detectors.formulas import check_limits
from superhosts.detectors.gpu.driver import Stream, is_out_of_memory
from superhosts.detectors.gpu.engine import CudaEngine, on_gpu
from superhosts.detectors.gpu.kernels import FOUND, U32, U64, WIDE, Kernel, Put, answer_shape
from superhosts.detectors.gpu.launch import Replay, cuda, device_function, kernel, to_device
from superhosts.errors import GeometryError, GpuMemoryError
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.base import EngineRival, parse_memory, plain_columns

COLUMN_WORDS = 64  # files and counting loops treat the array as columns of 4,096 bits


class Geometry(NamedTuple):
    array_bits: int = 30  # log2 m
    vector_bits: int = 12  # log2 s
    table_bits: int = 20  # log2 z

    @classmethod
    def for_memory(cls, memory: str | int, threshold: float = THRESHOLD) -> Self:
        """Return the geometry whose bits fit in `memory`, with vectors of at least four times the threshold.

        The table, a sixteenth of the bits, and the hosts are extra.
        """
        array_bits = parse_memory(memory, 1 << 13, "gse").bit_length() + 2
        vector_bits = max(4, math.ceil(math.log2(4 * threshold)))
        return cls(array_bits, min(vector_bits, array_bits - 4, 20), array_bits - 10).check()

    def check(self) -> Self:
        check_limits(self, {"array_bits": (12, 36), "vector_bits": (4, 20), "table_bits": (1, 28)})
        if self.vector_bits > self.array_bits:
            raise GeometryError(f"vector_bits={self.vector_bits}: must be at most array_bits={self.array_bits}")
        return self

    @property
    def key_bits(self) -> int:
        return 32

    @property
    def vector(self) -> int:
        """Bits of a host's virtual vector."""  # s
        return 1 << self.vector_bits

    @property
    def words(self) -> int:
        return COLUMN_WORDS

    @property
    def rows(self) -> int:
        return 64 * COLUMN_WORDS

    @property
    def total_columns(self) -> int:
        return 1 << (self.array_bits - 12)

    @property
    def slice_bits(self) -> int:
        return 0

    @property
    def arrays(self) -> int:
        return 1

    @property
    def memory(self) -> int:
        return (1 << (self.array_bits - 3)) + (8 << self.table_bits)

    @property
    def edges(self) -> list[int]:
        return [0, self.total_columns]


class Search(NamedTuple):
    """The limits that a host with at least `threshold` peers satisfies: for a prefix of its vector, then in full."""

    prefix_bits: int
    prefix_zeros: int  # maximum of zeros in the first `prefix_bits` bits
    zeros: int  # maximum of zeros in the whole vector


# Addressing, shared by the CPU loop and the CUDA kernel: the peer selects one of the s places of a host's vector, and
# host and place together select one of the m bits of the array.


@compiled
def place_of(peer: int, geometry: Geometry, key: Key) -> int:
    """Return the place of a (folded) peer in every host's vector."""
    return pair_hash(peer ^ peer, peer, key) & ((1 << geometry.vector_bits) - 1)  # peer ^ peer is an unsigned 0.


@compiled
def bit_of(mangled: int, place: int, geometry: Geometry, key: Key) -> int:
    """Return the index in the array of the bit at one place of a host's vector."""
    return pair_hash(mangled, place, key) & ((1 << geometry.array_bits) - 1)


@compiled
def slot_of(pair: int, geometry: Geometry) -> int:
    """Return the slot of a pair's hash in the table of recent pairs."""
    return pair & ((1 << geometry.table_bits) - 1)


# The hosts seen

Slots = NDArray[np.uint32]


@compiled
def insert(slots: Slots, host: np.uint32) -> bool:
    """Add a host to the set and return True if it was not in the set yet. At least one slot must be free."""
    capacity = len(slots) - 1
    if host == 0:
        if slots[capacity] != 0:
            return False
        slots[capacity] = 1
        return True
    place = np.int64(host) & (capacity - 1)
    while slots[place] != 0:
        if slots[place] == host:
            return False
        place = (place + 1) & (capacity - 1)
    slots[place] = host
    return True


@compiled
def is_crowded(slots: Slots, count: int) -> bool:
    """Return True if the set must grow before it can take another host."""
    return 2 * count >= len(slots) - 1


@compiled
def _insert_all(slots: Slots, hosts: Slots) -> int:
    added = 0
    for i in range(len(hosts)):
        added += insert(slots, hosts[i])
    return added


class HostSet:
    """A hash set of mangled hosts with open addressing.

    Mangled hosts are uniformly distributed, so their low bits select the slot. An empty slot is 0; an extra cell after
    the slots is non-zero if host 0 is in the set. The set doubles before more than half of the slots are in use.
    """

    def __init__(self, initial_slots: int) -> None:
        self.slots: Slots = np.zeros(initial_slots + 1, np.uint32)
        self.count = 0

    @property
    def memory(self) -> int:
        return self.slots.nbytes

    def hosts(self) -> Slots:
        return hosts_in(self.slots)

    def grow(self, hosts: int = 0) -> None:
        """Double the set at least once, until `hosts` more hosts fit."""
        capacity = 2 * (len(self.slots) - 1)
        while 2 * (self.count + hosts) >= capacity:
            capacity *= 2
        slots = np.zeros(capacity + 1, np.uint32)
        _insert_all(slots, self.hosts())
        self.slots = slots

    def add(self, hosts: Slots) -> None:
        if is_crowded(self.slots, self.count + len(hosts)):
            self.grow(len(hosts))
        self.count += int(_insert_all(self.slots, hosts))


def hosts_in(slots: Slots) -> Slots:
    """Return the hosts in the slots of a set, in ascending order."""
    hosts = slots[:-1][slots[:-1] != 0]
    hosts.sort()
    return np.concatenate([np.zeros(int(slots[-1] != 0), np.uint32), hosts])


class State(NamedTuple):
    bits: Words  # one-dimensional
    table: Words
    hosts: Slots  # a set of hosts
    tally: NDArray[np.int64]  # numbers of set bits and of hosts


@compiled
def write(
    hosts: NDArray[np.uint32], peers: Addresses, start: int, state: State, geometry: Geometry, key: Key
) -> np.int64:
    """Write pairs from index `start` on; return the index of the first one for which the set of hosts must grow."""
    bits, table, known, tally = state
    for i in range(start, len(hosts)):
        mangled, peer = np.uint64(mangle32(np.uint64(hosts[i]), key)), np.uint64(peers[i])
        pair = np.uint64(pair_hash(mangled, peer, key))
        slot = np.uint64(slot_of(pair, geometry))
        if table[slot] == pair:
            continue
        if is_crowded(known, tally[1]):
            return np.int64(i)
        table[slot] = pair
        place = np.uint64(bit_of(mangled, np.uint64(place_of(peer, geometry, key)), geometry, key))
        bit = np.uint64(1) << (place & np.uint64(63))
        if bits[place >> np.uint64(6)] & bit == 0:
            bits[place >> np.uint64(6)] |= bit
            tally[0] += 1
        if insert(known, np.uint32(mangled)):
            tally[1] += 1
    return np.int64(len(hosts))


@compiled
def measure(mangled: Slots, bits: Words, search: Search, geometry: Geometry, key: Key) -> Counts:
    """Return the number of zeros in each host's vector, or −1 for a host that does not pass the search."""
    out = np.empty(len(mangled), np.int32)
    for i in range(len(mangled)):
        host = np.uint64(mangled[i])
        zeros, start, stop, most = 0, 0, search.prefix_bits, search.prefix_zeros
        while start < stop:
            for place in range(start, stop):
                at = np.uint64(bit_of(host, np.uint64(place), geometry, key))
                zeros += np.int64(bits[at >> np.uint64(6)] >> (at & np.uint64(63)) & np.uint64(1) == 0)
            start, stop = stop, 1 << geometry.vector_bits
            if zeros > most:
                break
            most = search.zeros
        out[i] = zeros if zeros <= most else -1
    return out


def measure_all(engine: Engine, bits: Words, hosts: Slots, search: Search) -> Counts:
    """Return what `measure` returns, on all threads. Small parts balance the load: hosts that pass take longer."""
    calls = [
        (hosts[a:b], bits, search, engine.geometry, engine.key) for a, b in split_evenly(len(hosts), 8 * engine.threads)
    ]
    return np.concatenate(run_parallel(measure, calls, engine.threads))


def measure_vectors(engine: Engine, bits: Words, mangled: Words) -> Counts:
    size = engine.geometry.vector
    return measure_all(engine, bits, mangled[:, 1].astype(np.uint32), Search(size, size, size))[:, None]


class CpuGse(Engine):
    """The bit array, the table of recent pairs and the set of hosts, in main memory.

    Any host may set any bit, so the array cannot be divided among threads by host: one thread writes all pairs. Queries
    run on all threads.
    """

    geometry: Geometry

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        geometry = self.geometry
        self.bits: Words = np.zeros((geometry.total_columns, geometry.words), np.uint64)
        self.table: Words = np.zeros(1 << geometry.table_bits, np.uint64)
        self.known = HostSet(self.tuning.host_slots)
        self.ones = 0
        self._clear_recent()

    @property
    def host_memory(self) -> int:
        return self.known.memory

    def update_batches(self, batches: Batches) -> None:
        for hosts, peers in batches:
            self._write(*plain_columns(hosts, peers, self.key))

    def _write(self, mine: NDArray[np.uint32], theirs: Addresses) -> None:
        start = 0
        while start < len(mine):
            tally = np.array([self.ones, self.known.count])
            state = State(self.bits.reshape(-1), self.table, self.known.slots, tally)
            start = int(write(mine, theirs, start, state, self.geometry, self.key))
            self.ones, self.known.count = tally.tolist()
            if start < len(mine):
                self.known.grow()

    def flush(self) -> None:
        """Do nothing: no pairs are ever pending."""

    def clear(self) -> None:
        self.bits.fill(0)
        self._clear_recent()
        self.known = HostSet(self.tuning.host_slots)
        self.ones = 0

    def _clear_recent(self) -> None:
        """Empty the table. The value of an empty slot must not be a hash that maps to this slot."""
        self.table.fill(0)
        self.table[0] = 1

    def merge(self, other: Engine) -> None:
        arrays = other.arrays()
        zeros = np.empty(len(self.bits), np.int32)
        unite_columns(self.bits, self.bits, arrays["bits"], zeros, self.threads)
        self.ones = self.bits.size * 64 - int(zeros.sum(dtype=np.int64))
        self.known.add(arrays["hosts"])

    def search(self, search: Search) -> tuple[Words, Counts]:
        hosts = self.known.hosts()
        counts = measure_all(self, self.bits.reshape(-1), hosts, search)
        return as_words(hosts[counts >= 0]), counts[counts >= 0][:, None]

    def measure(self, mangled: Words) -> Counts:
        return measure_vectors(self, self.bits.reshape(-1), mangled)

    def zeros(self) -> Counts:
        zeros = np.empty(len(self.bits), np.int32)
        recount(self.bits, zeros, self.threads)
        return zeros

    def zero_sums(self) -> Sums:
        return np.array([[self.bits.size * 64 - self.ones]])

    def arrays(self) -> Arrays:
        return {"bits": self.bits, "hosts": self.known.hosts()}


DEVIATIONS = 6.0  # standard deviations of the prefix's zeros: it rejects one in 10^9 hosts that would pass in full


# On a GPU the set of hosts uses open addressing with compare-and-swap, in the same layout as on the CPU. It cannot grow
# while a kernel runs. A thread that finds it too full therefore sets a flag and does not enter its pair into the table
# of recent pairs. Then the CPU makes a larger set, as it does for merging, and the whole batch is written again, which
# changes nothing for pairs already written: no host is lost.

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


class CudaGse(CudaEngine):
    """The bit array, the table of recent pairs (its extra words) and the set of hosts on one GPU."""

    geometry: Geometry
    make_put, search_type = staticmethod(make_put), Search

    def __init__(self, plan: Plan, gpu: int) -> None:
        self.slots: Any = None
        super().__init__(plan, gpu)

    @on_gpu
    def _allocate(self) -> None:
        super()._allocate()
        self._send_hosts(HostSet(self.tuning.gpu.host_slots))
        self._clear_recent()

    def _send_hosts(self, known: HostSet) -> None:
        capacity = len(known.slots) - 1
        try:
            slots = to_device(known.slots)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            size = format_size(4 * capacity)
            way = f"use {setting('device', 'cpu')}"
            text = f"GPU {self.gpu} does not have {size} of free memory for the set of hosts; {way}"
            raise GpuMemoryError(text) from None
        self.slots, self.state = slots, to_device(np.array([known.count, 0], np.uint32))
        self.stream.synchronize()
        self._find = Replay(self.stream)  # The old recording would search the old set.

    @property
    def host_memory(self) -> int:
        return 4 * len(self.slots)

    def _clear_recent(self) -> None:
        """Empty the table. The value of an empty slot must not be a hash that maps to this slot."""
        self.extra.set_zero(self.stream.handle)
        self.stream.synchronize()
        self.extra[:1].copy_to_device(np.ones(1, np.uint64))

    def _extra_words(self) -> int:
        return 1 << self.geometry.table_bits

    # Updates

    def _write_directly(self, hosts: Any, peers: Any, stream: Stream) -> None:
        launch, update = self.launch, make_update(self.geometry, peers.ndim)
        blocks = min(4 * launch.multiprocessors, -(-len(hosts) // launch.threads))
        while True:
            arguments = hosts, peers, self.halves, self.extra, self.slots, self.state, self.key
            self._start(update, (blocks, launch.threads), stream, arguments, (hosts.dtype, peers.dtype))
            stream.synchronize()
            if not self.state.copy_to_host()[FAILED]:
                break
            self._keep_hosts(GROWTH * (len(self.slots) - 1))

    def _hosts(self) -> Slots:
        return hosts_in(self.slots.copy_to_host())

    def _keep_hosts(self, slots: int, *others: Slots) -> None:
        """Keep the hosts, with others, in a new set of at least this many slots, which is filled in main memory."""
        known = HostSet(slots)
        for hosts in (self._hosts(), *others):
            known.add(hosts)
        self._send_hosts(known)

    @on_gpu
    def clear(self) -> None:
        super().clear()
        self._clear_recent()
        self._send_hosts(HostSet(len(self.slots) - 1))

    # Merging, loading and saving

    @on_gpu
    def merge(self, other: Engine) -> None:
        self.flush()
        if isinstance(other, CudaGse) and other.gpu == self.gpu:
            other.flush()
            words, hosts = other.words, other._hosts()
        else:
            arrays = other.arrays()
            words, hosts = to_device(arrays["bits"].reshape(-1)), arrays["hosts"]
        self._merge_words(self.words, words)
        self._keep_hosts(len(self.slots) - 1, hosts)
        self._sums = None

    @on_gpu
    def arrays(self) -> Arrays:
        return {**super().arrays(), "hosts": self._hosts()}

    # Queries

    def _launch_search(self, stream: Stream) -> None:
        launch = self.launch
        blocks = min(8 * launch.multiprocessors, -(-len(self.slots) // launch.threads))
        arguments = self.words, self.slots, self.limits, self.answer, self.key
        self._start(make_search(self.geometry), (blocks, launch.threads), stream, arguments)

    @on_gpu
    def measure(self, mangled: Words) -> Counts:
        """Measure in main memory: only estimates of hosts that are named need it, no search."""
        self.flush()
        return measure_vectors(self, self.words.copy_to_host(), mangled)


class Gse(EngineRival):
    """GSE for 32-bit hosts, of 128 MiB by default.

    On the CPU, one thread writes pairs; on a GPU, all threads do.
    """

    name = "gse"
    geometry_type = Geometry
    cpu_engine, gpu_engine = CpuGse, CudaGse
    geometry: Geometry

    def _free(self) -> float:
        """Return the share of zeros in the array. A full array counts as if it had one zero."""  # V_m
        total = 1 << self.geometry.array_bits
        return max(1, int(self.engine.zero_sums().sum())) / total

    def search_for(self, threshold: float) -> Search:
        size, free = self.geometry.vector, self._free()
        share = free * math.exp(-threshold / size)
        spread, noise = math.sqrt(share * (1 - share)), math.sqrt(free * (1 - free))
        # Squared, it is the prefix that rejects small hosts.
        apart = (DEVIATIONS * spread + 2 * noise) / (free - share)
        prefix_bits = min(size, 64 * math.ceil(max(64.0, min(apart * apart, size)) / 64))
        prefix_zeros = math.ceil(prefix_bits * share + DEVIATIONS * spread * math.sqrt(prefix_bits))
        return Search(prefix_bits, prefix_zeros, math.floor(size * share) + 1)

    def _estimates(self, counts: Counts) -> Estimate:
        """Return estimates from the zeros of vectors. A host whose vector has no zero is saturated."""
        size, free = self.geometry.vector, self._free()
        zeros = counts[:, -1]
        peers = np.maximum(0.0, size * (math.log(free) - np.log(np.maximum(zeros, 1) / size)))
        load = peers / size
        variances = size * (np.exp(load) / free - load - 1)  # e^(N/m) is 1/V_m
        found = interval(peers, np.sqrt(np.maximum(0.0, variances)))
        return saturate(found, zeros == 0, saturation_of(size, free))

    def _top_threshold(self) -> float:
        return float(self.geometry.vector)
