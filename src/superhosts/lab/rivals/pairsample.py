"""A sample of the distinct pairs: those with the smallest hashes (bottom-k), as in Apache DataSketches' theta sketch.

The hash is a keyed bijection of the pair, so a kept hash is the pair: 8 bytes each. While fewer than k distinct pairs
were seen, all of them are kept and every number is exact. From then on the largest kept hash h is the limit of the
sample: it holds every pair with a hash below h, and so each pair with probability p = h / 2^64. A host with s pairs in
the sample has about s/p peers.

The sample depends only on the set of pairs, and the k smallest hashes of a union are among those of its members.
Merging is therefore exact, commutative and idempotent.

A sample shows who talked to whom. Files hold the hashes: without the key no address can be computed from them, but
whoever has the key can list the pairs. The bits and labels of a cube give nobody such a list.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import THRESHOLD
from superhosts.core.hashing import MASK64, Key, mangle32, mangle64, unmangle64
from superhosts.core.pairs import Addresses
from superhosts.detectors.engines.base import Arrays
from superhosts.detectors.estimate import CONFIDENCE, Estimate
from superhosts.detectors.formulas import check_limits
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.base import Mangled, Rival, parse_memory, plain_columns

PAIR_BYTES = 8
LEAST_PAIRS = 16


class Geometry(NamedTuple):
    pairs: int = 1 << 24  # k: pairs with the smallest hashes that are kept

    @classmethod
    def for_memory(cls, memory: str | int, _threshold: float = THRESHOLD) -> Self:
        return cls(parse_memory(memory, LEAST_PAIRS * PAIR_BYTES, "pairsample") // PAIR_BYTES).check()

    def check(self) -> Self:
        check_limits(self, {"pairs": (LEAST_PAIRS, 1 << 40)})
        return self

    @property
    def memory(self) -> int:
        return PAIR_BYTES * self.pairs


# The hash: a keyed bijection, so that the pair can be computed from what is kept. The pair is one word of 64 bits,
# mangled host above peer. Peers have 32 bits. A wider peer is first folded into 32 bits with the key: two wide peers
# of a host are taken for one with probability 2^-32.


@compiled
def narrow(peer: int, key: Key) -> int:
    """Fold a peer of 64 bits into 32. A value below 2^32 is unchanged, so it folds alike in any width."""
    words = key.pair
    high = ((peer >> 32) * words[3]) & MASK64
    high = ((high ^ (high >> 29)) * words[4]) & MASK64
    return (high >> 32) ^ (((peer << 32) & MASK64) >> 32)  # unsigned, which `peer & MASK32` would not be


@compiled
def sample_hash(mangled: int, peer: int, key: Key) -> int:
    """Hash a pair, given as mangled host and (folded) peer, to 64 bits."""
    return mangle64(((mangled << 32) & MASK64) | narrow(peer, key), key)


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
        out[i] = np.uint32(unmangle64(kept[i], key) >> np.uint64(32))


ALL_HASHES = 2**64
MOST_PEERS = 2**32  # of a host, because peers are folded into 32 bits
WAITING_SHARE = 8  # the sample is at least this many times as large as the buffer of new pairs


class PairSample(Rival):
    """A pair sample for 32-bit hosts, on one CPU thread, of 128 MiB by default: 16.8 M pairs.

    All of the memory given holds pairs of the sample. New pairs wait in a buffer of at most an eighth of it, and of 8
    MiB, which is not counted, like the bins of a cube. The 95 % confidence interval of a host follows from the binomial
    distribution of its sampled pairs (Wilson's score interval, solved for the number of peers). No host saturates.
    Until the sample is full, rows are marked as exact, unless peers had more than 32 bits.
    """

    name = "pairsample"
    geometry_type = Geometry
    geometry: Geometry

    def _allocate(self) -> None:
        pairs = self.geometry.pairs
        self.kept: Hashes = np.empty(pairs, np.uint64)  # The system provides pages as they are written.
        waiting = max(1, min(pairs // WAITING_SHARE, self.tuning.min_pending))
        self.waiting: Hashes = np.empty(waiting, np.uint64)
        self.count = self.used = 0  # hashes in `kept` and in `waiting`
        self.may_have_folded = False  # True if peers of more than 32 bits may have come, of which two may be one

    def _memory(self) -> int:
        return self.kept.nbytes

    @property
    def _is_full(self) -> bool:
        return self.count == len(self.kept)

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self.may_have_folded |= peers.dtype != np.uint32
        columns = plain_columns(hosts, peers, self.key)
        start = 0
        while True:
            limit = self.kept[-1] if self._is_full else np.uint64(ALL_HASHES - 1)
            start, self.used = collect(columns, start, self.waiting, self.used, limit, self.key)
            if start == len(columns[0]):
                return
            self._flush()

    def _flush(self) -> None:
        fresh, self.used = self.waiting[: self.used], 0
        fresh.sort()
        self._absorb(fresh)

    def _absorb(self, fresh: Hashes) -> None:
        self.count = int(absorb(self.kept, self.count, fresh))

    def _merge(self, other: Self) -> None:
        if other is self:
            return
        other._flush()
        self.may_have_folded |= other.may_have_folded
        self._flush()
        self._absorb(other.kept[: other.count].copy())

    def _sampled(self) -> tuple[NDArray[np.uint64], float]:
        """Return the hashes of the sample, and the probability with which a pair is in it."""
        self._flush()
        if not self._is_full:
            return self.kept[: self.count], 1.0
        return self.kept[:-1], int(self.kept[-1]) / ALL_HASHES

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        hashes, share = self._sampled()
        mangled, sampled = self._counts(hashes)
        found = sampled >= threshold * share
        return mangled[found], estimates(sampled[found], share)

    def _measure(self, mangled: Mangled) -> Estimate:
        hashes, share = self._sampled()
        known, sampled = self._counts(hashes)
        places = np.searchsorted(known, mangled)
        hits = np.zeros(len(mangled), np.int64)
        seen = places < len(known)
        seen[seen] = known[places[seen]] == mangled[seen]
        hits[seen] = sampled[places[seen]]
        return estimates(hits, share)

    def _is_exact(self) -> bool:
        return not self._is_full and not self.may_have_folded

    def _counts(self, hashes: Hashes) -> tuple[Mangled, NDArray[np.int64]]:
        """Return the mangled hosts of some pairs in ascending order, and the number of pairs of each."""
        hosts = np.empty(len(hashes), np.uint32)
        hosts_of(hashes, hosts, self.key)
        hosts.sort()
        begins = np.flatnonzero(np.concatenate([[True], hosts[1:] != hosts[:-1]])[: len(hosts)])
        return hosts[begins], np.diff(begins, append=len(hosts))

    def _arrays(self) -> Arrays:
        self._flush()
        return {"pairs": self.kept[: self.count]}


def estimates(sampled: NDArray[np.int64], share: float) -> Estimate:
    """Return the estimates of hosts with these numbers of pairs in a sample that has each pair with probability share.

    The bounds solve (s − n·p)² = z²·n·p·(1 − p) for n. They hold for few and for no sampled pairs, and they are the
    number itself if every pair is in the sample.
    """
    peers = np.minimum(sampled / share, MOST_PEERS)
    half = CONFIDENCE**2 * (1 - share) / 2
    width = CONFIDENCE * np.sqrt((1 - share) * (sampled + half / 2))
    low = np.clip(np.floor((sampled + half - width) / share), sampled, np.floor(peers)).astype(np.int64)
    high = np.minimum(np.ceil((sampled + half + width) / share), MOST_PEERS).astype(np.int64)
    return Estimate(peers, low, high, np.zeros(len(sampled), np.bool_))
