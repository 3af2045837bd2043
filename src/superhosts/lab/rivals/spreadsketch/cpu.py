"""The loops of SpreadSketch. Each thread owns rows, so no other thread writes to its buckets."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import Key, column_draw, column_hash, mangle32, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.detectors.engines.cpu import ones_of
from superhosts.detectors.estimate import Floats
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.spreadsketch.addressing import label_of, place_of
from superhosts.lab.rivals.spreadsketch.geometry import (
    COMPONENT_BITS,
    COMPONENTS,
    LAST_BITS,
    MAP_WORDS,
    MAX_SET_BITS,
    SATURATION,
    Geometry,
)

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
        label = np.uint64(label_of(mangled, pair))
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
def merge(into: Buckets, other: Buckets, start: int, stop: int) -> None:
    """OR the bitmaps of buckets start..stop and keep the maximum of each label."""
    for bucket in range(start, stop):
        for word in range(MAP_WORDS):
            into[bucket, word] |= other[bucket, word]
        into[bucket, MAP_WORDS] = max(into[bucket, MAP_WORDS], other[bucket, MAP_WORDS])
