"""SpreadSketch (Tang, Huang, Lee, 2020): rows of buckets, each with a distinct counter and its most likely host.

A bucket's counter is a multiresolution bitmap of 448 bits (the published 438, rounded up to whole words). Component i
receives 2^-(i+1) of the pairs, and the last one the rest. More components count further, less accurately: the published
two of 79 bits and a last one reach 6,600 peers. A bucket with more is saturated. As in the authors' program, a host's
estimate is that of the AND of its buckets' bitmaps.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import THRESHOLD
from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import MAX_ARRAYS, Key, column_draw, column_hash, mangle32, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.detectors.engines.base import Arrays, Tuning
from superhosts.detectors.engines.cpu import ones_of
from superhosts.detectors.estimate import Estimate, Floats, interval, saturate, saturation_of
from superhosts.detectors.formulas import check_limits
from superhosts.errors import GeometryError
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.base import REACH, Mangled, Rival, parse_memory, plain_columns

ROWS = 4
MAP_WORDS = 7
MAP_BITS = 64 * MAP_WORDS
BUCKET_WORDS = MAP_WORDS + 1  # bitmap and label: one cache line
MAX_COMPONENTS = 16
MOST_FILLED = 0.93105  # a component with a larger share of set bits is too full to be measured


class Geometry(NamedTuple):
    rows: int = ROWS  # d
    buckets: int = 1 << 19  # w: buckets per row
    components: int = 3  # c
    component_bits: int = 79  # b: of all components but the last one, which has the rest

    @classmethod
    def for_memory(cls, memory: str | int, threshold: float = THRESHOLD) -> Self:
        """Return the most buckets, with more components than published if several times the threshold need them."""
        row = 8 * BUCKET_WORDS * ROWS
        usual = cls(buckets=parse_memory(memory, 2 * row, "spreadsketch") // row)
        counts = range(usual.components + 1, MAX_COMPONENTS + 1)
        sizes = [usual, *(usual._replace(components=c, component_bits=MAP_BITS // (c + 1)) for c in counts)]
        return next((each for each in sizes if each.most >= REACH * threshold), sizes[-1]).check()

    def check(self) -> Self:
        limits = {
            "rows": (1, MAX_ARRAYS),
            "buckets": (2, 1 << 31),
            "components": (2, MAX_COMPONENTS),
            "component_bits": (1, 224),
        }
        check_limits(self, limits)
        if self.last_bits < 2:
            raise GeometryError(f"component_bits={self.component_bits}: {self.components} components do not fit")
        return self

    @property
    def last_bits(self) -> int:
        return MAP_BITS - self.component_bits * (self.components - 1)

    @property
    def most(self) -> float:
        """The number of peers at which a bucket is saturated."""
        return self.last_bits * math.log(self.last_bits) * (1 << (self.components - 1))

    @property
    def memory(self) -> int:
        return self.rows * self.buckets * BUCKET_WORDS * 8


# Addressing: the number of leading ones of the pair's hash selects the component of the bitmap, 16 bits in the
# middle select the bit within it, and the number of trailing ones is the level with which the host competes for the
# bucket's label. A host's chance to win the label therefore grows with its number of distinct peers, and the three
# choices are independent.


@compiled
def place_of(pair: int, geometry: Geometry) -> int:
    """Return the index of the bit that a pair sets in its buckets."""
    component, last = 0, geometry.components - 1
    while component < last and (pair >> (63 - component)) & 1 == 1:
        component += 1
    bits = geometry.component_bits
    first, size = bits * component, bits if component < last else MAP_BITS - bits * last
    return int(first + ((((pair >> 32) & 0xFFFF) * size) >> 16))


@compiled
def level_of(pair: int) -> int:
    """Return the number of trailing ones of the pair's hash, at most 32."""
    level = 0
    while level < 32 and (pair >> level) & 1 == 1:
        level += 1
    return level


Buckets = NDArray[np.uint64]
Bucket = NDArray[np.uint64]  # a row of these: bitmap and label


@compiled
def write(
    hosts: NDArray[np.uint32], peers: Addresses, rows: tuple[int, int], buckets: Buckets, geometry: Geometry, key: Key
) -> None:
    """Write pairs to the rows first, first + step, first + 2·step and so on, where `rows` is (first, step)."""
    first, step = rows
    for i in range(len(hosts)):
        mangled = np.uint64(mangle32(np.uint64(hosts[i]), key))
        pair = np.uint64(pair_hash(mangled, np.uint64(peers[i]), key))
        place = np.uint64(place_of(pair, geometry))
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
def zeros_in(bucket: Bucket, start: int, stop: int) -> int:
    """Count the zero bits of a bitmap from bit `start` to before bit `stop`."""
    ones = 0
    for word in range(start >> 6, (stop + 63) >> 6):
        some = bucket[word]
        if 64 * word < start:
            some = (some >> np.uint64(start & 63)) << np.uint64(start & 63)
        if 64 * (word + 1) > stop:
            some &= (np.uint64(1) << np.uint64(stop & 63)) - np.uint64(1)
        ones += np.int64(ones_of(some))
    return stop - start - ones


@compiled
def count_bucket(bucket: Bucket, geometry: Geometry) -> tuple[float, int]:
    """Return the number of distinct pairs of a bitmap and the first component used for it, or −1 if it is saturated.

    Components that are too full are left out. The others together are a uniform sample of all pairs, and linear
    counting gives the number of pairs in each.
    """
    bits, base = geometry.component_bits, geometry.components - 1
    last = MAP_BITS - bits * base
    zeros = zeros_in(bucket, MAP_BITS - last, MAP_BITS)
    if zeros == 0:
        return np.inf, -1
    pairs = last * math.log(last / zeros)
    while base > 0:
        zeros = zeros_in(bucket, bits * (base - 1), bits * base)
        if bits - zeros > MOST_FILLED * bits:
            break
        pairs += bits * math.log(bits / zeros)
        base -= 1
    return pairs * 2.0**base, base


@compiled
def variance_of(pairs: float, base: int, geometry: Geometry) -> float:
    """Return the variance of a count: that of sampling with rate 2^-base plus linear counting in each component."""
    linear, last = 0.0, geometry.components - 1
    for component in range(base, last + 1):
        bits = geometry.component_bits if component < last else MAP_BITS - geometry.component_bits * last
        load = pairs / 2.0 ** min(component + 1, last) / bits
        linear += bits * (math.exp(load) - load - 1.0)
    return pairs * (2.0**base - 1.0) + linear * 4.0**base


@compiled
def count_all(buckets: Buckets, counts: Floats, geometry: Geometry, start: int, stop: int) -> None:
    """Count the distinct pairs of buckets start..stop; the count of a saturated bucket is infinity."""
    for bucket in range(start, stop):
        counts[bucket] = count_bucket(buckets[bucket], geometry)[0]


@compiled
def measure(
    mangled: NDArray[np.uint32], buckets: Buckets, geometry: Geometry, key: Key, out: Floats, deviations: Floats
) -> None:
    """Write the count of the AND of each host's buckets (infinity if saturated) and its standard deviation."""
    common = np.empty(MAP_WORDS, np.uint64)
    for i in range(len(mangled)):
        common[:] = ~np.uint64(0)
        for row in range(geometry.rows):
            drawn = column_hash(np.uint64(mangled[i]), column_draw(row, key), geometry.buckets)
            for word in range(MAP_WORDS):
                common[word] &= buckets[row * geometry.buckets + np.int64(drawn), word]
        out[i], base = count_bucket(common, geometry)
        deviations[i] = math.sqrt(variance_of(out[i], base, geometry)) if base >= 0 else 0.0


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
        calls = [(self.buckets, counts, self.geometry, a, b) for a, b in split_evenly(len(counts), self.threads)]
        run_parallel(count_all, calls, self.threads)
        self._crowd = math.e * float(np.minimum(counts, self.geometry.most).mean())
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
        sample = 1 << (self.geometry.components - 1)
        return saturate(found, full, saturation_of(self.geometry.last_bits, sample=sample), self._crowd)

    def _arrays(self) -> Arrays:
        return {"buckets": self.buckets}
