"""The loops of the filter. One thread writes, because what a pair adds depends on all pairs before it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import Key, column_draw, column_hash, mangle32, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.detectors.engines.cpu import ones_of
from superhosts.detectors.estimate import Floats
from superhosts.detectors.hostset import Slots, insert, is_crowded
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.filter.addressing import bit_of
from superhosts.lab.rivals.filter.geometry import Geometry

Words = NDArray[np.uint64]
Counters = NDArray[np.float32]
ONES, LISTED = 0, 1  # indexes of `State.tally`


class State(NamedTuple):
    """The whole state of a filter."""

    bits: Words
    counters: Counters
    listed: Slots  # a set of hosts
    tally: NDArray[np.int64]  # numbers of set bits and of listed hosts


@compiled
def write(
    hosts: NDArray[np.uint32], peers: Addresses, start: int, state: State, geometry: Geometry, key: Key
) -> np.int64:
    """Write pairs from index `start` on; return the index of the first one for which the list must grow."""
    bits, counters, listed, tally = state
    total = 64 * geometry.words
    for i in range(start, len(hosts)):
        mangled = np.uint64(mangle32(np.uint64(hosts[i]), key))
        place = np.uint64(bit_of(np.uint64(pair_hash(mangled, np.uint64(peers[i]), key)), geometry))
        bit = np.uint64(1) << (place & np.uint64(63))
        if bits[place >> np.uint64(6)] & bit:
            continue
        if is_crowded(listed, tally[LISTED]):
            return np.int64(i)
        weight = total / (total - tally[ONES])  # new pairs for each one that finds its bit clear, on average
        bits[place >> np.uint64(6)] |= bit
        tally[ONES] += 1
        least = np.inf
        for row in range(geometry.rows):
            drawn = column_hash(mangled, column_draw(row, key), geometry.counters)
            counter = row * geometry.counters + np.int64(drawn)
            counters[counter] = np.float32(counters[counter] + weight)
            least = min(least, counters[counter])
        if least >= geometry.threshold and insert(listed, np.uint32(mangled)):
            tally[LISTED] += 1
    return np.int64(len(hosts))


@compiled
def measure(mangled: NDArray[np.uint32], counters: Counters, geometry: Geometry, key: Key, out: Floats) -> None:
    """Write the smallest counter of each host to `out`."""
    for i in range(len(mangled)):
        out[i] = np.inf
        for row in range(geometry.rows):
            drawn = column_hash(np.uint64(mangled[i]), column_draw(row, key), geometry.counters)
            out[i] = min(out[i], counters[row * geometry.counters + np.int64(drawn)])


@compiled
def count_ones(bits: Words) -> np.int64:
    """Count the set bits."""
    ones = np.int64(0)
    for word in bits:
        ones += np.int64(ones_of(word))
    return ones
