"""SpreadSketch (Tang, Huang, Lee, 2020): rows of buckets, each with a distinct counter and its most likely host.

A bucket's counter is a multiresolution bitmap of 448 bits (the published 438, rounded up to whole words): 12 components
of 32 bits, of which component i receives 2^-(i+1) of the pairs, and a last one of 64 bits for the rest. It counts up to
a million peers; a bucket with more is saturated.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import MAX_ARRAYS, Key, column_draw, column_hash, mangle32, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.detectors.engines.base import Arrays, Tuning
from superhosts.detectors.engines.cpu import ones_of
from superhosts.detectors.estimate import Estimate, Floats, interval, saturate, saturation_of
from superhosts.detectors.formulas import check_limits
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.base import Mangled, Rival, parse_memory, plain_columns

ROWS = 4
COMPONENTS = 12  # components of the bitmap before the last one; component i receives 2^-(i+1) of the pairs
COMPONENT_BITS = 32
LAST_BITS = 64  # bits of the last component, which receives the remaining 2^-12 of the pairs
MAP_WORDS = 7  # 12 · 32 + 64 = 448 bits: the published 438, rounded up to whole words
BUCKET_WORDS = MAP_WORDS + 1  # bitmap and label: one cache line
MAX_SET_BITS = 30  # a component with more set bits is too full to be measured
SATURATION = (LAST_BITS * math.log(LAST_BITS)) * (1 << COMPONENTS)  # about 1.09 million peers


class Geometry(NamedTuple):
    rows: int = ROWS  # d
    buckets: int = 1 << 19  # w: buckets per row

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        row = 8 * BUCKET_WORDS * ROWS
        return cls(buckets=parse_memory(memory, 2 * row, "spreadsketch") // row).check()

    def check(self) -> Self:
        check_limits(self, {"rows": (1, MAX_ARRAYS), "buckets": (2, 1 << 31)})
        return self

    @property
    def memory(self) -> int:
        return self.rows * self.buckets * BUCKET_WORDS * 8


# Addressing: the number of leading ones of the pair's hash selects the component of the bitmap, six bits in the
# middle select the bit within it, and the number of trailing ones is the level with which the host competes for the
# bucket's label. A host's chance to win the label therefore grows with its number of distinct peers, and the three
# choices are independent.


@compiled
def component_of(pair: int) -> int:
    """Return the component of the bitmap for a pair: i for 2^-(i+1) of all pairs, the last one for the rest."""
    component = 0
    while component < COMPONENTS and (pair >> (63 - component)) & 1 == 1:
        component += 1
    return component


@compiled
def place_of(pair: int) -> int:
    """Return the index of the bit that a pair sets in its buckets."""
    component = component_of(pair)
    if component == COMPONENTS:
        return 64 * (MAP_WORDS - 1) + int((pair >> 40) & (LAST_BITS - 1))
    return COMPONENT_BITS * component + int((pair >> 40) & (COMPONENT_BITS - 1))


@compiled
def level_of(pair: int) -> int:
    """Return the number of trailing ones of the pair's hash, at most 32."""
    level = 0
    while level < 32 and (pair >> level) & 1 == 1:
        level += 1
    return level


Buckets = NDArray[np.uint64]


@compiled
def write(
    hosts: NDArray[np.uint32], peers: Addresses, rows: tuple[int, int], buckets: Buckets, geometry: Geometry, key: Key
) -> None:
    """Write pairs to the rows first, first + step, first + 2·step and so on, where `rows` is (first, step)."""
    first, step = rows
    for i in range(len(hosts)):
        mangled = np.uint64(mangle32(np.uint64(hosts[i]), key))
        pair = np.uint64(pair_hash(mangled, np.uint64(peers[i]), key))
        place = np.uint64(place_of(pair))
        word, bit = place >> np.uint64(6), np.uint64(1) << (place & np.uint64(63))
        # The higher level wins, then the larger host. 0 is an empty label.
        label = np.uint64(level_of(pair) + 1) << np.uint64(32) | mangled
        for row in range(first, geometry.rows, step):
            drawn = column_hash(mangled, column_draw(row, key), geometry.buckets)
            bucket = row * geometry.buckets + np.int64(drawn)
            buckets[bucket, word] |= bit
            if buckets[bucket, MAP_WORDS] < label:
                buckets[bucket, MAP_WORDS] = label


@compiled
def component_zeros(buckets: Buckets, bucket: int, component: int) -> int:
    """Count the zero bits of one component of a bucket's bitmap."""
    if component == COMPONENTS:
        return LAST_BITS - np.int64(ones_of(buckets[bucket, MAP_WORDS - 1]))
    half = (buckets[bucket, component >> 1] >> np.uint64(32 * (component & 1))) & np.uint64(0xFFFFFFFF)
    return COMPONENT_BITS - np.int64(ones_of(half))


@compiled
def count_bucket(buckets: Buckets, bucket: int) -> tuple[float, int]:
    """Return the number of distinct pairs of a bucket and the first component used for it, or −1 if it is saturated.

    Components that are too full are left out. The others together are a uniform sample of all pairs, and linear
    counting gives the number of pairs in each.
    """
    base = COMPONENTS
    while base > 0 and COMPONENT_BITS - component_zeros(buckets, bucket, base - 1) <= MAX_SET_BITS:
        base -= 1
    last = component_zeros(buckets, bucket, COMPONENTS)
    if last == 0:
        return SATURATION, -1
    pairs = LAST_BITS * math.log(LAST_BITS / last)
    for component in range(base, COMPONENTS):
        pairs += COMPONENT_BITS * math.log(COMPONENT_BITS / component_zeros(buckets, bucket, component))
    return pairs * 2.0**base, base


@compiled
def variance_of(pairs: float, base: int) -> float:
    """Return the variance of a count: that of sampling with rate 2^-base plus linear counting in each component."""
    linear = 0.0
    for component in range(base, COMPONENTS + 1):
        bits = COMPONENT_BITS if component < COMPONENTS else LAST_BITS
        load = pairs / 2.0 ** min(component + 1, COMPONENTS) / bits
        linear += bits * (math.exp(load) - load - 1.0)
    return pairs * (2.0**base - 1.0) + linear * 4.0**base


@compiled
def count_all(buckets: Buckets, counts: Floats, start: int, stop: int) -> None:
    """Count the distinct pairs of buckets start..stop; the count of a saturated bucket is infinity."""
    for bucket in range(start, stop):
        pairs, base = count_bucket(buckets, bucket)
        counts[bucket] = pairs if base >= 0 else np.inf


@compiled
def measure(
    mangled: NDArray[np.uint32], buckets: Buckets, geometry: Geometry, key: Key, out: Floats, deviations: Floats
) -> None:
    """Write the smallest count of each host's buckets (infinity if all are saturated) and its standard deviation."""
    for i in range(len(mangled)):
        out[i], deviations[i] = np.inf, 0.0
        for row in range(geometry.rows):
            drawn = column_hash(np.uint64(mangled[i]), column_draw(row, key), geometry.buckets)
            pairs, base = count_bucket(buckets, row * geometry.buckets + np.int64(drawn))
            if base >= 0 and pairs < out[i]:
                out[i], deviations[i] = pairs, math.sqrt(variance_of(pairs, base))


@compiled
def merge_buckets(into: Buckets, other: Buckets, start: int, stop: int) -> None:
    """OR the bitmaps of buckets start..stop and keep the maximum of each label."""
    for bucket in range(start, stop):
        for word in range(MAP_WORDS):
            into[bucket, word] |= other[bucket, word]
        into[bucket, MAP_WORDS] = max(into[bucket, MAP_WORDS], other[bucket, MAP_WORDS])


class SpreadSketch(Rival):
    """SpreadSketch for 32-bit hosts, on the CPU, of 128 MiB by default.

    The confidence interval accounts for the error of the bitmap; its lower bound also accounts for what other hosts may
    have added: by Markov's inequality, all d buckets of a host exceed e times the mean count with probability at most
    e^-d.
    """

    name = "spreadsketch"
    tuning = Tuning(min_pairs_per_thread=4096)
    geometry_type = Geometry
    geometry: Geometry

    def _allocate(self) -> None:
        self.buckets: Buckets = np.zeros((self.geometry.rows * self.geometry.buckets, BUCKET_WORDS), np.uint64)
        self._crowd: float | None = None  # peers that others may have added to a host; None after a change

    def _memory(self) -> int:
        return self.buckets.nbytes

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self._crowd = None
        columns = plain_columns(hosts, peers, self.key)
        threads = min(self.threads, self.geometry.rows) if len(hosts) > self.tuning.min_pairs_per_thread else 1
        calls = [(*columns, (row, threads), self.buckets, self.geometry, self.key) for row in range(threads)]
        run_parallel(write, calls, threads)

    def _merge(self, other: Self) -> None:
        self._crowd = None
        calls = [(self.buckets, other.buckets, a, b) for a, b in split_evenly(len(self.buckets), self.threads)]
        run_parallel(merge_buckets, calls, self.threads)

    def _counts(self) -> Floats:
        """Return the number of distinct pairs of every bucket, infinity if it is saturated."""
        counts = np.empty(len(self.buckets))
        calls = [(self.buckets, counts, a, b) for a, b in split_evenly(len(counts), self.threads)]
        run_parallel(count_all, calls, self.threads)
        self._crowd = math.e * float(np.minimum(counts, SATURATION).mean())
        return counts

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        counts = self._counts()
        labels = self.buckets[counts >= threshold, MAP_WORDS]
        mangled = np.unique(labels[labels != 0].astype(np.uint32))  # The low half of a label is the host.
        return mangled, self._measure(mangled)

    def _measure(self, mangled: Mangled) -> Estimate:
        if self._crowd is None:
            self._counts()
        assert self._crowd is not None
        peers, deviations = np.empty(len(mangled)), np.empty(len(mangled))
        measure(mangled, self.buckets, self.geometry, self.key, peers, deviations)
        full = np.isinf(peers)
        found = interval(np.where(full, 0.0, peers), deviations, self._crowd)
        return saturate(found, full, saturation_of(LAST_BITS, sample=1 << COMPONENTS), self._crowd)

    def _arrays(self) -> Arrays:
        return {"buckets": self.buckets}
