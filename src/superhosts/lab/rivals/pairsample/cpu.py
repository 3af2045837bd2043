"""The loops of a pair sample. The kept hashes are sorted; new ones wait in a buffer until they are merged in place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import Key, mangle32
from superhosts.core.pairs import Addresses
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.pairsample.addressing import host_of, sample_hash

Hashes = NDArray[np.uint64]


@compiled
def collect(
    columns: tuple[NDArray[np.uint32], Addresses], start: int, waiting: Hashes, used: int, limit: np.uint64, key: Key
) -> tuple[int, int]:
    """Append the hashes up to `limit` of the pairs from `start` on to `waiting`, of which `used` are in use.

    Return the index of the first pair for which there was no room, and the hashes now in use.
    """
    hosts, peers = columns
    for i in range(start, len(hosts)):
        mangled = np.uint64(mangle32(np.uint64(hosts[i]), key))
        hashed = np.uint64(sample_hash(mangled, np.uint64(peers[i]), key))
        if hashed > limit or (used > 0 and waiting[used - 1] == hashed):  # Packets of a flow often follow each other.
            continue
        if used == len(waiting):
            return i, used
        waiting[used] = hashed
        used += 1
    return len(hosts), used


@compiled
def absorb(kept: Hashes, count: int, fresh: Hashes) -> int:
    """Merge sorted hashes into the `count` sorted ones of `kept`, without repeats; return how many it has then.

    Only the smallest hashes that fit into `kept` remain. `fresh` is overwritten.
    """
    new = 0
    place = 0
    for i in range(len(fresh)):
        if i > 0 and fresh[i] == fresh[i - 1]:
            continue
        while place < count and kept[place] < fresh[i]:
            place += 1
        if place == count or kept[place] != fresh[i]:
            fresh[new] = fresh[i]  # new <= i, so the next hash is still compared with this one
            new += 1
    while count + new > len(kept):
        if count > 0 and (new == 0 or kept[count - 1] > fresh[new - 1]):
            count -= 1
        else:
            new -= 1
    total = count + new
    place = total
    while new > 0:  # from the back, so that no hash is overwritten before it has moved
        place -= 1
        if count > 0 and kept[count - 1] > fresh[new - 1]:
            count -= 1
            kept[place] = kept[count]
        else:
            new -= 1
            kept[place] = fresh[new]
    return total


@compiled
def hosts_of(kept: Hashes, out: NDArray[np.uint32], key: Key) -> None:
    """Write the mangled host of every kept pair to `out`."""
    for i in range(len(kept)):
        out[i] = np.uint32(host_of(kept[i], key))
