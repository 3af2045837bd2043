"""The line-speed filter (Cheng, Tang, 2013): a bit array marks the pairs already seen, counters count first packets.

A new pair finds its bit clear only with probability 1 − fill, so each pair that does counts 1/(1 − fill). A host's
estimate is its smallest counter. The filter lists a host when this estimate first reaches the threshold, which must
therefore be known in advance.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import THRESHOLD
from superhosts.core.hashing import MAX_ARRAYS, Key, column_draw, column_hash, mangle32, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.core.results import UNBOUNDED
from superhosts.core.text import counted
from superhosts.detectors.engines.base import Arrays
from superhosts.detectors.estimate import Estimate, Floats, interval
from superhosts.detectors.formulas import check_limits
from superhosts.errors import UsageError
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.base import Mangled, Rival, parse_memory, plain_columns

ROWS = 4
UINT32_RANGE = 1 << 32  # limit of bits, and of counters per row: 32 bits of a hash select them


class Geometry(NamedTuple):
    words: int = 1 << 23  # 64-bit words of the bit array that marks pairs
    rows: int = ROWS  # counters per host
    counters: int = 1 << 22  # counters per row
    threshold: int = 1024  # θ

    @classmethod
    def for_memory(cls, memory: str | int, threshold: float = THRESHOLD) -> Self:
        half = parse_memory(memory, 128, "filter") // 2
        return cls(half // 8, ROWS, half // (4 * ROWS)).listing(threshold)

    def listing(self, threshold: float) -> Self:
        if not 1 <= threshold < UINT32_RANGE:
            raise UsageError(f"threshold {threshold}: must be a number of peers, at least 1 and below 2^32")
        return self._replace(threshold=int(threshold)).check()

    def check(self) -> Self:
        limits = {
            "words": (1, UINT32_RANGE // 64),
            "rows": (1, MAX_ARRAYS),
            "counters": (2, UINT32_RANGE),
            "threshold": (1, UINT32_RANGE),
        }
        check_limits(self, limits)
        return self

    @property
    def memory(self) -> int:
        return 8 * self.words + 4 * self.rows * self.counters


Words = NDArray[np.uint64]
Counters = NDArray[np.float32]


class State(NamedTuple):
    bits: Words
    counters: Counters


@compiled
def write(
    hosts: NDArray[np.uint32], peers: Addresses, state: State, ones: int, geometry: Geometry, key: Key
) -> tuple[int, Mangled]:
    """Write pairs; return the set bits, `ones` before, and the host of every new pair that reached the threshold."""
    bits, counters = state
    total, listed, reached = 64 * geometry.words, np.empty(len(hosts), np.uint32), 0
    for i in range(len(hosts)):
        mangled = np.uint64(mangle32(np.uint64(hosts[i]), key))
        pair = np.uint64(pair_hash(mangled, np.uint64(peers[i]), key))
        place = ((pair >> np.uint64(32)) * np.uint64(total)) >> np.uint64(32)  # of the bit that marks a pair as seen
        bit = np.uint64(1) << (place & np.uint64(63))
        if bits[place >> np.uint64(6)] & bit:
            continue
        weight = total / (total - ones)  # new pairs for each one that finds its bit clear, on average
        bits[place >> np.uint64(6)] |= bit
        ones += 1
        least = np.inf
        for row in range(geometry.rows):
            drawn = column_hash(mangled, column_draw(row, key), geometry.counters)
            counter = row * geometry.counters + np.int64(drawn)
            counters[counter] = np.float32(counters[counter] + weight)
            least = min(least, counters[counter])
        if least >= geometry.threshold:
            listed[reached] = np.uint32(mangled)
            reached += 1
    return ones, listed[:reached]


@compiled
def measure(mangled: NDArray[np.uint32], counters: Counters, geometry: Geometry, key: Key, out: Floats) -> None:
    """Write the smallest counter of each host to `out`."""
    for i in range(len(mangled)):
        out[i] = np.inf
        for row in range(geometry.rows):
            drawn = column_hash(np.uint64(mangled[i]), column_draw(row, key), geometry.counters)
            out[i] = min(out[i], counters[row * geometry.counters + np.int64(drawn)])


class Filter(Rival):
    """The filter for 32-bit hosts, on one CPU thread, with 128 MiB and threshold 1024 by default.

    The order of pairs matters, because the weight of a pair depends on the pairs before it. Two filters cannot be
    merged, because a pair that both have seen would count twice. The confidence interval accounts for the pairs that
    found their bit set; its lower bound also accounts for what other hosts may have added: by Markov's inequality, all
    d counters of a host exceed e times the mean with probability at most e^-d.
    """

    name = "filter"
    broken_laws = frozenset({"order"})
    geometry_type = Geometry
    geometry: Geometry

    def _sizes(self, memory: str | int | None, threshold: float) -> Geometry:
        return Geometry().listing(threshold) if memory is None else Geometry.for_memory(memory, threshold)

    def _allocate(self) -> None:
        self.bits = np.zeros(self.geometry.words, np.uint64)
        self.counters = np.zeros(self.geometry.rows * self.geometry.counters, np.float32)
        self.listed: Mangled = np.empty(0, np.uint32)  # in ascending order
        self.ones = 0
        self._crowd: float | None = None  # peers that others may have added to a host; None after a change

    def _memory(self) -> int:
        return self.bits.nbytes + self.counters.nbytes + self.listed.nbytes

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self._crowd = None
        state = State(self.bits, self.counters)
        columns = plain_columns(hosts, peers, self.key)
        self.ones, reached = write(*columns, state, self.ones, self.geometry, self.key)
        if len(reached):
            self.listed = np.union1d(self.listed, reached)

    def _least_listed(self) -> float:
        return self.geometry.threshold

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        minimum = self.geometry.threshold
        if threshold < minimum:
            least = counted(minimum, "peer")
            raise UsageError(f"threshold {threshold:g}: this filter lists only hosts with at least {least}")
        return self.listed, self._measure(self.listed)

    def _measure(self, mangled: Mangled) -> Estimate:
        geometry = self.geometry
        peers = np.empty(len(mangled))
        measure(mangled, self.counters, geometry, self.key, peers)
        bits = 64 * geometry.words
        full = self.ones == bits  # A full array counts no more pairs, so the counters are lower bounds.
        fill = min(self.ones, bits - 1) / bits
        deviations = np.sqrt(peers * (fill / (1 - fill)))
        if self._crowd is None:
            self._crowd = math.e * float(self.counters.mean(dtype=np.float64))
        found = interval(peers, deviations, self._crowd)
        if full:
            return found._replace(high=np.full_like(found.high, UNBOUNDED), saturated=~found.saturated)
        return found

    def _arrays(self) -> Arrays:
        return {"bits": self.bits, "counters": self.counters.view(np.uint32), "hosts": self.listed}
