"""The limit of a sample: it falls while pairs come, and none of the `size` smallest hashes is ever above it.

A hash table has the distinct hashes up to the limit, and buckets count them by their leading bits. As soon as the
buckets below the highest one hold enough of them for the sample, that bucket is given up: the limit falls to its lower
edge. So a hash costs one place of the table, nothing is sorted, and the limit is at most one bucket above the largest
hash of the sample.

Hashes may be missing in the table: then the limit is higher than it could be, and no pair is turned away wrongly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.compiled import compiled

ALL = (1 << 64) - 1  # the limit while every pair is in the sample
BUCKET_BITS = 11
LEAST_PLACES = 64
BLOCK = 128  # hashes whose places are fetched before they are looked at

# The slots of `Reach.state`
LIMIT, LIVE, TAKEN, SHIFT, SIZE = range(5)

_U = np.uint64
_ZERO, _ONE = _U(0), _U(1)


class Reach(NamedTuple):
    """The distinct hashes up to a limit."""

    places: NDArray[np.uint64]  # an open hash table, twice as large as it may be full; 0: free
    buckets: NDArray[np.uint64]  # distinct hashes up to the limit, by their leading bits
    state: NDArray[
        np.uint64
    ]  # limit, hashes up to it, places taken, bits of a hash within a bucket, size of the sample


def places_of(size: int) -> int:
    """Return the places of the table for a sample of this size."""
    return max(4 << (size - 1).bit_length(), LEAST_PLACES)


def new_reach(size: int) -> Reach:
    """Return that of an empty sample, which reaches over all hashes."""
    state = np.array([ALL, 0, 0, 64 - BUCKET_BITS, size], np.uint64)
    return Reach(np.zeros(places_of(size), np.uint64), np.zeros(1 << BUCKET_BITS, np.uint64), state)


@compiled
def _clean(places: NDArray[np.uint64], buckets: NDArray[np.uint64], limit: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Remove hashes above the limit, divide the others among all buckets; return their number and the new shift."""
    last = _U(len(places) - 1)
    kept = places[(places != _ZERO) & (places <= limit)]
    places[:] = _ZERO
    buckets[:] = _ZERO
    shift = _ZERO
    while limit >> shift >= _U(len(buckets)):
        shift += _ONE
    for hashed in kept:
        place = hashed & last
        while places[place] != _ZERO:
            place = (place + _ONE) & last
        places[place] = hashed
        buckets[hashed >> shift] += _ONE
    return _U(len(kept)), shift


@compiled
def admit(rows: NDArray[np.uint64], first: int, used: int, counts: NDArray[np.uint8], reach: Reach) -> np.int64:
    """Lower the limit by the hashes in the first column, from row `first` on; return how many rows are left.

    Rows that do not count, and those above the limit, are removed.
    """
    places, buckets, state = reach
    limit, live, taken, shift, size = state[LIMIT], state[LIVE], state[TAKEN], state[SHIFT], state[SIZE]
    last, most = _U(len(places) - 1), _U(len(places) // 2)
    kept, touched = _U(first), _ZERO
    for start in range(first, used, BLOCK):
        block = range(_U(start), _U(min(start + BLOCK, used)))
        for number in block:  # so that the memory fetches several places at a time
            touched |= places[rows[number, 0] & last]
        for number in block:
            hashed = rows[number, 0]
            if counts[number - _U(first)] == 0 or hashed > limit:
                continue
            if kept < number:
                for word in range(rows.shape[1]):
                    rows[kept, word] = rows[number, word]
            kept += _ONE
            place = hashed & last
            while places[place] != hashed and places[place] != _ZERO:
                place = (place + _ONE) & last
            if places[place] == hashed:  # also the hash 0, which is never noted
                continue
            if taken == most:
                taken, shift = _clean(places, buckets, limit)
                if taken == most:
                    continue
                place = hashed & last
                while places[place] != _ZERO:
                    place = (place + _ONE) & last
            places[place] = hashed
            taken += _ONE
            live += _ONE
            buckets[hashed >> shift] += _ONE
            while live >= size + buckets[limit >> shift]:
                live -= buckets[limit >> shift]
                limit = (limit >> shift << shift) - _ONE
    state[LIMIT], state[LIVE], state[TAKEN], state[SHIFT] = limit, live, taken, shift
    return np.int64(kept) if touched | _ONE else np.int64(0)  # what was touched must seem to matter
