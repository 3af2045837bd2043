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

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Addresses
from superhosts.core.results import SuperHosts
from superhosts.detectors.engines.base import Arrays
from superhosts.detectors.estimate import CONFIDENCE, Estimate
from superhosts.detectors.hostlist import CpuHostListSketch, Mangled, plain_columns
from superhosts.detectors.kinds import Kind
from superhosts.lab.rivals.pairsample import cpu
from superhosts.lab.rivals.pairsample.geometry import PAIR_BYTES, Geometry

__all__ = ["Geometry", "PairSample"]

ALL_HASHES = 2**64
MOST_PEERS = 2**32  # of a host, because peers are folded into 32 bits
WAITING_SHARE = 8  # the sample is at least this many times as large as the buffer of new pairs


class PairSample(CpuHostListSketch):
    """A pair sample for 32-bit hosts, on one CPU thread, of 128 MiB by default: 16.8 M pairs.

    All of the memory given holds pairs of the sample. New pairs wait in a buffer of at most an eighth of it, and of 8
    MiB, which is not counted, like the bins of a cube. The 95 % confidence interval of a host follows from the binomial
    distribution of its sampled pairs (Wilson's score interval, solved for the number of peers). No host saturates.
    Until the sample is full, rows are marked as exact, unless peers had more than 32 bits or came from a file.
    """

    name = "pairsample"
    geometry: Geometry
    geometry_type = Geometry

    def _allocate(self) -> None:
        pairs = self.geometry.pairs
        self.kept: cpu.Hashes = np.empty(pairs, np.uint64)  # The system provides pages as they are written.
        waiting = max(1, min(pairs // WAITING_SHARE, self.tuning.min_pending))
        self.waiting: cpu.Hashes = np.empty(waiting, np.uint64)
        self._clear()

    def _clear(self) -> None:
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
            start, self.used = cpu.collect(columns, start, self.waiting, self.used, limit, self.key)
            if start == len(columns[0]):
                return
            self._flush()

    def _flush(self) -> None:
        """Merge the hashes that wait into the sample."""
        fresh, self.used = self.waiting[: self.used], 0
        fresh.sort()
        self._absorb(fresh)

    def _absorb(self, fresh: cpu.Hashes) -> None:
        self.count = int(cpu.absorb(self.kept, self.count, fresh))

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

    def _counts(self, hashes: cpu.Hashes) -> tuple[Mangled, NDArray[np.int64]]:
        """Return the mangled hosts of some pairs in ascending order, and the number of pairs of each."""
        hosts = np.empty(len(hashes), np.uint32)
        cpu.hosts_of(hashes, hosts, self.key)
        hosts.sort()
        begins = np.flatnonzero(np.concatenate([[True], hosts[1:] != hosts[:-1]])[: len(hosts)])
        return hosts[begins], np.diff(begins, append=len(hosts))

    def _top(self, count: int) -> SuperHosts:
        """Return the top hosts among those in the sample."""
        return self._super_hosts(1).select(slice(0, count))

    @classmethod
    def loaded_memory(cls, kind: Kind, lengths: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes of a full sample and of the pairs that a file brings."""
        assert kind.geometry is not None
        return kind.geometry.memory + PAIR_BYTES * lengths["pairs"][0]

    def _arrays(self) -> Arrays:
        """Return the kept hashes in ascending order."""
        self._flush()
        return {"pairs": self.kept[: self.count]}

    def _load_arrays(self, arrays: Arrays) -> None:
        """Replace the sample by that of any hashes: in a file from elsewhere they may be unsorted or too many."""
        self._clear()
        self.may_have_folded = True  # Files do not say.
        self._absorb(np.sort(arrays["pairs"]))


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
