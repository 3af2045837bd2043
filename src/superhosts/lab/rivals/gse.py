"""GSE (Shin, Im, Yoon, 2014) on CSE (Yoon, Li, Chen, Peir, 2009): virtual vectors in one shared array of bits.

A host's vector of s bits is scattered over an array of m bits that all hosts share. The share of zeros in the vector,
V_s, and that of the whole array, V_m, give n = s·ln V_m − s·ln V_s. A table of recent pairs drops repeats first.
Nothing in the array names a host. A separate set therefore stores the hosts seen, which is sent with the array, and a
search tests every one of them. The first few hundred bits of a vector reject nearly all hosts.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import Key, mangle32, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.core.units import format_size, parse_size
from superhosts.detectors.engines.base import Arrays, Counts, Engine, Plan, Sums, Words
from superhosts.detectors.engines.cpu import recount, unite_columns
from superhosts.detectors.estimate import Estimate, interval, saturate, saturation_of
from superhosts.detectors.plan import check_limits
from superhosts.errors import GeometryError
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.base import EngineRival, HostSet, Mangled, Slots, as_words, insert, is_crowded, plain_columns

COLUMN_WORDS = 64  # files and counting loops treat the array as columns of 4,096 bits


class Geometry(NamedTuple):
    """Sizes of a GSE sketch, as plain integers so that kernels accept it as an argument."""

    array_bits: int = 30  # log2 m
    vector_bits: int = 12  # log2 s
    table_bits: int = 20  # log2 z

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry whose bits fit in `memory`. The table, a sixteenth of it, and the hosts are extra."""
        size = parse_size(memory)
        if size < 1 << 13:
            raise GeometryError(f"memory {format_size(size)} is too small for gse: use 8 KiB or more")
        array_bits = size.bit_length() + 2
        return cls(array_bits, min(12, array_bits - 4), array_bits - 10).check()

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""
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
        """Bits per column."""
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


class State(NamedTuple):
    """The arrays that `write` modifies."""

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

    def update(self, hosts: Addresses, peers: Addresses) -> None:
        mine, theirs = plain_columns(hosts, peers, self.key)
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
        self.known.clear()
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
        counts = self._measure(hosts, search)
        return as_words(hosts[counts >= 0]), counts[counts >= 0][:, None]

    def measure(self, mangled: Words) -> Counts:
        size = self.geometry.vector
        return self._measure(mangled[:, 1].astype(np.uint32), Search(size, size, size))[:, None]

    def _measure(self, hosts: Slots, search: Search) -> Counts:
        common = self.bits.reshape(-1), search, self.geometry, self.key
        parts = split_evenly(len(hosts), 8 * self.threads)  # Small parts balance the load: hosts that pass take longer.
        counts = run_parallel(measure, [(hosts[a:b], *common) for a, b in parts], self.threads)
        return np.concatenate(counts)

    def zeros(self) -> Counts:
        zeros = np.empty(len(self.bits), np.int32)
        recount(self.bits, zeros, self.threads)
        return zeros

    def zero_sums(self) -> Sums:
        return np.array([[self.bits.size * 64 - self.ones]])

    def arrays(self) -> Arrays:
        return {"bits": self.bits, "hosts": self.known.hosts()}


DEVIATIONS = 6.0  # standard deviations of the prefix's zeros: it rejects one in 10^9 hosts that would pass in full


class Gse(EngineRival):
    """GSE for 32-bit hosts, of 128 MiB by default.

    On the CPU, one thread writes pairs; on a GPU, all threads do.
    """

    name = "gse"
    geometry: Geometry
    geometry_type = Geometry

    def _on_cpu(self, plan: Plan) -> Engine:
        return CpuGse(plan)

    def _on_gpu(self, plan: Plan, gpu: int) -> Engine:
        from superhosts.lab.rivals.gse_cuda import CudaGse

        return CudaGse(plan, gpu)

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

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        mangled, zeros = self.engine.search(self.search_for(threshold))
        return mangled[:, 1].astype(np.uint32), self._estimate(zeros)

    def _measure(self, mangled: Mangled) -> Estimate:
        return self._estimate(self.engine.measure(as_words(mangled)))

    def _estimate(self, zeros: Counts) -> Estimate:
        """Return estimates from the zeros of vectors. A host whose vector has no zero is saturated."""
        size, free = self.geometry.vector, self._free()
        zeros = zeros[:, -1]
        peers = np.maximum(0.0, size * (math.log(free) - np.log(np.maximum(zeros, 1) / size)))
        load = peers / size
        variances = size * (np.exp(load) / free - load - 1)  # e^(N/m) is 1/V_m
        found = interval(peers, np.sqrt(np.maximum(0.0, variances)))
        return saturate(found, zeros == 0, saturation_of(size, free))

    def _top_threshold(self) -> float:
        return float(self.geometry.vector)
