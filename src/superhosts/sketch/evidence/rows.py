"""The rows of a sample, one for each pair: words that are combined when the same pair comes from two samples.

| word | content | combined by |
|---|---|---|
| 0 | the keyed hash of the pair; of IPv4 the pair itself follows from it | |
| 1 | what both ends have sent (`sightings.py`) | OR |
| 2 | one of its services (`sightings.py`) | the smaller |
| 3 | marks of its packets (`marks.py`) | OR |
| 4, 5 | marks of the services of the lower end, and of the higher end | OR |
| 6 to 9 | of IPv6: the lower address and the higher one, two words each | |
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.compiled import compiled

Rows = NDArray[np.uint64]

HASH, DEEDS, SERVICE, PACKETS, LOWER_PORTS, HIGHER_PORTS, LOWER, HIGHER = 0, 1, 2, 3, 4, 5, 6, 8
NARROW, WIDE = 6, 10  # words of a row of IPv4, and of IPv6


def smallest(hashes: NDArray[np.uint64], count: int) -> int:
    """Return the largest of the `count` smallest hashes."""
    return int(np.partition(hashes, count - 1)[count - 1])


def sorted_rows(rows: Rows, size: int) -> Rows:
    """Return the rows with the smallest hashes, at most `size`, in their order."""
    return np.ascontiguousarray(rows[np.argsort(rows[:, HASH])[:size]])


@compiled
def united(first: Rows, second: Rows, size: int) -> Rows:
    """Return the rows with the smallest hashes of two samples, each in order and without repeats."""
    found = np.empty((min(len(first) + len(second), size), first.shape[1]), np.uint64)
    here = there = count = 0
    while count < size and (here < len(first) or there < len(second)):
        takes_first = there == len(second) or (here < len(first) and first[here, HASH] <= second[there, HASH])
        is_both = takes_first and there < len(second) and here < len(first) and first[here, HASH] == second[there, HASH]
        for word in range(first.shape[1]):
            found[count, word] = first[here, word] if takes_first else second[there, word]
        if is_both:
            for word in (DEEDS, PACKETS, LOWER_PORTS, HIGHER_PORTS):
                found[count, word] |= second[there, word]
            found[count, SERVICE] = min(found[count, SERVICE], second[there, SERVICE])
        here += takes_first
        there += is_both or not takes_first
        count += 1
    return found[:count].copy()
