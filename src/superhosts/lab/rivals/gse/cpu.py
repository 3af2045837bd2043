"""GSE in main memory.

Any host may set any bit, so the array cannot be divided among threads by host: one thread writes all pairs. Queries run
on all threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import Key, mangle32, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.detectors.engines.base import Arrays, Counts, Engine, Plan, Sums, Words
from superhosts.detectors.engines.cpu import recount, unite_columns
from superhosts.detectors.hostlist import as_words, plain_columns
from superhosts.detectors.hostset import HostSet, Slots, insert, is_crowded
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.gse.addressing import bit_of, place_of, slot_of
from superhosts.lab.rivals.gse.geometry import Geometry, Search


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
    """The bit array, the table of recent pairs and the set of hosts."""

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
        """Bytes of the set of hosts."""
        return self.known.memory

    def update(self, hosts: Addresses, peers: Addresses) -> None:
        """Write a batch of pairs."""
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
        """Discard all pairs."""
        self.bits.fill(0)
        self._clear_recent()
        self.known.clear()
        self.ones = 0

    def _clear_recent(self) -> None:
        """Empty the table. The value of an empty slot must not be a hash that maps to this slot."""
        self.table.fill(0)
        self.table[0] = 1

    def merge(self, other: Engine) -> None:
        """OR another engine's bits into these and add its hosts to the set."""
        arrays = other.arrays()
        zeros = np.empty(len(self.bits), np.int32)
        unite_columns(self.bits, self.bits, arrays["bits"], zeros, self.threads)
        self.ones = self.bits.size * 64 - int(zeros.sum(dtype=np.int64))
        self.known.add(arrays["hosts"])

    def search(self, search: Search) -> tuple[Words, Counts]:
        """Return the mangled hosts that pass, as (high, low) words, and the zeros of their vectors."""
        hosts = self.known.hosts()
        counts = self._measure(hosts, search)
        return as_words(hosts[counts >= 0]), counts[counts >= 0][:, None]

    def measure(self, mangled: Words) -> Counts:
        """Return the zeros of the vectors of mangled hosts."""
        size = self.geometry.vector
        return self._measure(mangled[:, 1].astype(np.uint32), Search(size, size, size))[:, None]

    def _measure(self, hosts: Slots, search: Search) -> Counts:
        common = self.bits.reshape(-1), search, self.geometry, self.key
        parts = split_evenly(len(hosts), 8 * self.threads)  # Small parts balance the load: hosts that pass take longer.
        counts = run_parallel(measure, [(hosts[a:b], *common) for a, b in parts], self.threads)
        return np.concatenate(counts)

    def zeros(self) -> Counts:
        """Return the zero bits of every column."""
        zeros = np.empty(len(self.bits), np.int32)
        recount(self.bits, zeros, self.threads)
        return zeros

    def zero_sums(self) -> Sums:
        """Return the zero bits of the array."""
        return np.array([[self.bits.size * 64 - self.ones]])

    def arrays(self) -> Arrays:
        """Return the engine's own bits, not a copy, and the mangled hosts in ascending order."""
        return {"bits": self.bits, "hosts": self.known.hosts()}

    def load(self, arrays: Arrays) -> None:
        """Replace the state by these arrays. The bits may be the engine's own, filled in place."""
        if arrays["bits"] is not self.bits:
            np.copyto(self.bits, arrays["bits"])
        self.ones = self.bits.size * 64 - int(self.zeros().sum(dtype=np.int64))
        self._clear_recent()
        self.known.clear()
        self.known.add(arrays["hosts"])
