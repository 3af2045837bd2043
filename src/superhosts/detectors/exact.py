"""The truth: distinct pairs, kept and counted exactly.

Pairs wait in blocks; once as many wait as are kept, they are sorted in and repeats drop out. So memory follows the
distinct pairs, not the packets, and every pair is sorted a logarithmic number of times. Hosts are dealt into
buckets by a hash, and buckets are sorted on all threads.

A row is one word for two 32-bit numbers, else the host in one or two words and the peer in two.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.detectors.base import Arrays, Detector, SuperHost, SuperHosts, check_threshold
from superhosts.device import run_parallel, thread_count
from superhosts.errors import MergeError
from superhosts.pairs import Addresses, Host, format_for

Rows = NDArray[np.uint64]
BUCKETS = 64
LEAST_WAIT = 1 << 20  # pairs: sorting fewer at a time is not worth the calls


class Counts(NamedTuple):
    """Hosts of one bucket and how many distinct peers each has."""

    hosts: Rows
    peers: NDArray[np.int64]


@compiled
def deal(rows: Rows, host_words: int, buckets: int) -> tuple[Rows, NDArray[np.int64]]:
    """Arrange rows by bucket of their host; returns them and where each bucket begins."""
    bucket = np.empty(len(rows), np.uint8)
    begins = np.zeros(buckets + 1, np.int64)
    for i in range(len(rows)):
        if rows.shape[1] == 1:
            x = rows[i, 0] >> np.uint64(32)
        else:
            x = rows[i, 0] ^ (rows[i, host_words - 1] * np.uint64(3))
        bucket[i] = (x * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58)
        begins[np.int64(bucket[i]) + 1] += 1
    for b in range(buckets):
        begins[b + 1] += begins[b]
    cursors = begins.copy()
    out = np.empty_like(rows)
    for i in range(len(rows)):
        slot = cursors[bucket[i]]
        cursors[bucket[i]] += 1
        for w in range(rows.shape[1]):
            out[slot, w] = rows[i, w]
    return out, begins


def _distinct(parts: list[Rows]) -> Rows:
    """Return the distinct rows of several arrays, sorted."""
    rows = np.concatenate(parts)
    if rows.shape[1] == 1:
        rows = np.sort(rows, axis=0)
    else:
        rows = rows[np.lexsort(rows.T[::-1])]
    keep = np.ones(len(rows), bool)
    keep[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return rows[keep]


def _count(rows: Rows, host_words: int) -> Counts:
    """Count the rows of each host in sorted distinct rows."""
    hosts = rows >> np.uint64(32) if rows.shape[1] == 1 else rows[:, :host_words]
    starts = np.ones(len(rows), bool)
    starts[1:] = (hosts[1:] != hosts[:-1]).any(axis=1)
    begins = np.flatnonzero(starts)
    return Counts(hosts[begins], np.diff(begins, append=len(rows)))


class Exact(Detector):
    """Every distinct pair, so every number of peers is exact. Memory grows with the traffic."""

    name = "exact"

    def __init__(self, *, key_bits: int = 32, threads: int | None = None, **_ignored: Any) -> None:
        self.format = format_for(key_bits)
        self.threads = thread_count() if threads is None else threads
        self.host_words = 2 if key_bits == 128 else 1
        self.clear()

    def clear(self) -> None:
        """Forget all pairs."""
        self.width = 0
        self.buckets: list[Rows] = []
        self.waiting: list[Rows] = []
        self.waits = self.kept = 0

    @property
    def memory(self) -> int:
        """Bytes of the pairs that are kept and that wait."""
        return 8 * self.width * (self.kept + self.waits)

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        narrow = hosts.dtype == np.uint32 and peers.dtype == np.uint32
        if not self.width:
            self._start(1 if narrow else self.host_words + 2)
        elif self.width == 1 and not narrow:
            self._widen()
        if self.width == 1:
            rows = (hosts.astype(np.uint64) << np.uint64(32) | peers)[:, None]
        else:
            rows = np.zeros((len(hosts), self.width), np.uint64)
            rows[:, : self.host_words] = hosts.reshape(len(hosts), -1)
            peer = peers.reshape(len(peers), -1)
            rows[:, self.width - peer.shape[1] :] = peer
        self._wait(rows)

    def _start(self, width: int) -> None:
        self.width = width
        self.buckets = [np.empty((0, width), np.uint64)] * BUCKETS

    def _widen(self) -> None:
        """Give the rows kept so far room for wide peers."""
        self._compact()
        old, self.buckets, self.waiting, self.waits, self.kept = self.buckets, [], [], 0, 0
        self._start(self.host_words + 2)
        for rows in old:
            wide = np.zeros((len(rows), self.width), np.uint64)
            wide[:, 0], wide[:, 2] = rows[:, 0] >> np.uint64(32), rows[:, 0] & np.uint64(0xFFFFFFFF)
            self._wait(wide)

    def _wait(self, rows: Rows) -> None:
        self.waiting.append(rows)
        self.waits += len(rows)
        if self.waits > max(LEAST_WAIT, self.kept):
            self._compact()

    def _compact(self) -> None:
        """Sort the waiting rows in, bucket by bucket on all threads."""
        if not self.waits:
            return
        dealt = [deal(rows, self.host_words, BUCKETS) for rows in self.waiting]
        self.waiting, self.waits = [], 0

        def compact(b: int) -> None:
            parts = [rows[begins[b] : begins[b + 1]] for rows, begins in dealt]
            self.buckets[b] = _distinct([self.buckets[b], *parts])

        run_parallel(compact, [(b,) for b in range(BUCKETS)], self.threads)
        self.kept = sum(len(rows) for rows in self.buckets)

    def counts(self) -> tuple[Addresses, NDArray[np.int64]]:
        """Return every host and its exact number of peers."""
        self._compact()
        found = run_parallel(
            _count, [(rows, self.host_words) for rows in self.buckets if len(rows)] or [], self.threads
        )
        if not found:
            return np.empty((0, 2) if self.key_bits == 128 else 0, _DTYPES[self.key_bits]), np.empty(0, np.int64)
        hosts = np.concatenate([part.hosts for part in found])
        column = hosts if self.key_bits == 128 else hosts[:, 0].astype(_DTYPES[self.key_bits])
        return column, np.concatenate([part.peers for part in found])

    def merge(self, other: Self) -> None:
        """Take in the pairs of another exact detector."""
        if not isinstance(other, Exact) or other.format != self.format:
            raise MergeError(f"cannot merge {other.name} of {other.format} into {self.name} of {self.format}")
        other._compact()
        if not other.kept:
            return
        if not self.width:
            self._start(other.width)
        if self.width == 1 and other.width > 1:
            self._widen()
        for rows in list(other.buckets):
            if self.width > 1 and other.width == 1:
                self._update((rows[:, 0] >> np.uint64(32)).astype(np.uint32), rows[:, 0] & np.uint64(0xFFFFFFFF))
            else:
                self._wait(rows)

    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts of at least `threshold` peers, most peers first."""
        threshold = check_threshold(threshold)
        hosts, peers = self.counts()
        return self._result(hosts[peers >= threshold], peers[peers >= threshold])

    def _result(self, hosts: Addresses, peers: NDArray[np.int64]) -> SuperHosts:
        result = SuperHosts(hosts, peers, peers, peers, np.zeros(len(peers), bool))
        result.format = self.format
        return result

    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with most peers."""
        hosts, peers = self.counts()
        if len(peers) > count:
            least = np.partition(peers, len(peers) - count)[len(peers) - count]
            hosts, peers = hosts[peers >= least], peers[peers >= least]
        return self._result(hosts, peers).select(slice(0, count))

    def estimate(self, host: str | int | Host) -> SuperHost:
        """Return the exact number of peers of any host; the interval is that number."""
        number = self.format.to_number(host)
        self._compact()
        words = np.array([number >> 64, number & (1 << 64) - 1][-self.host_words :], np.uint64)
        peers = 0
        for rows in self.buckets:
            hosts = rows >> np.uint64(32) if self.width == 1 else rows[:, : self.host_words]
            peers += int((hosts == words).all(axis=1).sum())
        return SuperHost(self.format.to_host(number), peers, peers, peers, False)

    def header(self) -> dict[str, Any]:
        """Describe this detector for a file."""
        return {"detector": self.name, "key_bits": self.key_bits, "key": None, "format": list(self.format)}

    def arrays(self) -> Arrays:
        """Return all distinct pairs as one matrix."""
        self._compact()
        return {"pairs": np.concatenate(self.buckets) if self.buckets else np.empty((0, 0), np.uint64)}

    def restore_arrays(self, arrays: Arrays) -> None:
        """Take the pairs back from a file."""
        rows = arrays["pairs"]
        self.clear()
        if rows.dtype != np.uint64 or rows.ndim != 2:
            raise ValueError(f"pairs are {rows.dtype} {rows.shape}")
        if len(rows):
            if rows.shape[1] not in ((1, 3) if self.key_bits == 32 else (self.host_words + 2,)):
                raise ValueError(f"pairs have {rows.shape[1]} words")
            self._start(rows.shape[1])
            self._wait(rows)


_DTYPES: dict[int, Any] = {32: np.uint32, 64: np.uint64, 128: np.uint64}
