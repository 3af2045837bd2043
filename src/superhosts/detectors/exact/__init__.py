"""The truth: distinct pairs, kept and counted exactly.

Pairs wait in blocks; once as many wait as are kept, they are sorted in and repeats drop out. So memory follows the
distinct pairs, not the packets, and every pair is sorted a logarithmic number of times. On the CPU hosts are dealt into
buckets by a hash, and buckets are sorted on all threads. On a GPU there is one bucket: one sort keeps all of it busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.detectors.arguments import check_key_bits, check_threads
from superhosts.detectors.base import Detector, Place, check_detector
from superhosts.detectors.exact import cuda as exact_gpu
from superhosts.detectors.exact.cuda import at_home, to_host
from superhosts.detectors.exact.rows import Counts, Rows, count_peers, deal, distinct, hosts_of, pack, spread, widened
from superhosts.detectors.kinds import Kind
from superhosts.detectors.locking import locked
from superhosts.device import choose_device, gpus_of, run_parallel, simulated
from superhosts.engines.arrays import Arrays
from superhosts.engines.geometry import ArrayShape
from superhosts.errors import MergeError
from superhosts.pairs import Addresses, format_for
from superhosts.results import SuperHosts

BUCKETS = 64
SORTING = 3  # times that pairs are in memory while they are sorted in
LEAST_WAIT = 1 << 20  # pairs: sorting fewer at a time is not worth the calls


class Exact(Detector):
    """Every distinct pair, so every number of peers is exact. Memory, the GPU's on a GPU, grows with the traffic.

    Of several GPUs it uses the first.
    """

    name = "exact"
    takes_ipv6 = True
    grows_with_traffic = True

    def __init__(
        self,
        *,
        key_bits: int | None = None,
        key: bytes | str | None = None,  # as others take one; nothing is hashed here
        device: str = "auto",
        threads: int | None = None,
    ) -> None:
        key_bits = check_key_bits(key_bits)
        self.format = format_for(key_bits)
        self.device = choose_device(device)
        gpus = [] if simulated() else gpus_of(self.device)  # CuPy has no simulator: the CPU does the work there
        self.gpu = gpus[0] if gpus else None
        self.threads = check_threads(threads)
        self.host_words = 2 if key_bits == 128 else 1
        self._clear()

    @property
    def _xp(self) -> Any:  # asked for each time: a detector that holds a module cannot be copied
        return exact_gpu.array_module(self.gpu)

    def _clear(self) -> None:
        self.width = 0
        self.buckets: list[Rows] = []  # sorted and distinct; never written to
        self.waiting: list[Rows] = []  # this detector's own; may be sorted in place
        self.waits = self.kept = 0

    def _memory(self) -> int:
        """Return the bytes of the pairs that are kept and that wait."""
        return 8 * self.width * (self.kept + self.waits)

    @at_home
    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        narrow = hosts.dtype == np.uint32 and peers.dtype == np.uint32
        if not self.width:
            self._start(1 if narrow else self.host_words + 2)
        elif self.width == 1 and not narrow:
            self._widen()
        hosts, peers = self._here(hosts), self._here(peers)
        if self.width == 1:
            self._wait(pack(hosts, peers, self._xp))
        else:
            self._wait(spread(hosts, peers, self.host_words, self._xp))

    def _here(self, array: Any) -> Any:
        """Return an array in the memory where this detector works."""
        return to_host(array) if self.gpu is None else self._xp.asarray(array)

    def _start(self, width: int) -> None:
        self.width = width
        self.buckets = [self._xp.empty((0, width), np.uint64)] * (BUCKETS if self.gpu is None else 1)

    def _widen(self) -> None:
        """Give the rows kept so far room for wide peers."""
        self._compact()
        self.buckets = [widened(rows, self._xp) for rows in self.buckets]
        self.width = self.host_words + 2

    def _wait(self, rows: Rows) -> None:
        self.waiting.append(rows)
        self.waits += len(rows)
        if self.waits > max(LEAST_WAIT, self.kept):
            self._compact()

    def _compact(self) -> None:
        """Sort the waiting rows in."""
        if not self.waits:
            return
        if self.gpu is None:
            self._compact_buckets()
        else:
            self.buckets = [distinct(self.buckets[0], self.waiting, self._xp)]
        self.waiting, self.waits = [], 0
        self.kept = sum(len(rows) for rows in self.buckets)

    def _compact_buckets(self) -> None:
        dealt = [deal(rows, self.host_words, BUCKETS) for rows in self.waiting]
        self.waiting = []  # as its rows have been dealt, their memory is free for the sorts

        def compact(b: int) -> None:
            parts = [rows[begins[b] : begins[b + 1]] for rows, begins in dealt]
            self.buckets[b] = distinct(self.buckets[b], parts, np)

        try:
            run_parallel(compact, [(b,) for b in range(BUCKETS)], self.threads)
        except BaseException:  # interrupted: some buckets have their rows, and may get them again
            self.waiting = [rows for rows, _ in dealt]
            raise

    def _counts(self) -> list[Counts]:
        """Count the peers of all hosts, bucket by bucket, where the rows are."""
        self._compact()
        calls = [(rows, self.host_words, self._xp) for rows in self.buckets if len(rows)]
        return run_parallel(count_peers, calls, self.threads)

    def _columns(self, found: list[Counts]) -> tuple[Addresses, NDArray[np.int64]]:
        """Return counts as columns in the machine's memory."""
        none = Counts(np.empty((0, self.host_words), np.uint64), np.empty(0, np.int64))
        hosts = np.concatenate([to_host(part.hosts) for part in (none, *found)])
        peers = np.concatenate([to_host(part.peers) for part in (none, *found)])
        return hosts if self.key_bits == 128 else hosts[:, 0].astype(_DTYPES[self.key_bits]), peers

    @locked
    @at_home
    def counts(self) -> tuple[Addresses, NDArray[np.int64]]:
        """Return every host and its exact number of peers."""
        return self._columns(self._counts())

    def check_alike(self, other: Detector) -> None:
        """Refuse what is not exact, and hosts that read otherwise."""
        check_detector(other, self.name)
        if not isinstance(other, Exact) or other.format != self.format:
            raise MergeError(f"cannot merge {other.name} of {other.format} into {self.name} of {self.format}")

    @at_home
    def _merge(self, other: Self) -> None:
        """Take in the pairs of another exact detector, on whatever device."""
        if other.gpu == self.gpu:
            other._compact()
            blocks = [rows for rows in other.buckets if len(rows)]
            if self.gpu is not None:
                blocks = [rows.copy() for rows in blocks]  # sorted in place there, while others read the other's own
        else:
            pairs = other._arrays()["pairs"]
            blocks = [self._here(pairs)] if len(pairs) else []
        if not blocks:
            return
        if not self.width:
            self._start(other.width)
        if self.width == 1 and other.width > 1:
            self._widen()
        for rows in blocks:
            self._wait(widened(rows, self._xp) if rows.shape[1] < self.width else rows)

    @at_home
    def _super_hosts(self, threshold: float) -> SuperHosts:
        return self._result([part.at_least(threshold) for part in self._counts()])

    def _result(self, found: list[Counts]) -> SuperHosts:
        return self._rows(*self._columns(found))

    def _rows(self, hosts: Addresses, peers: NDArray[np.int64]) -> SuperHosts:
        result = SuperHosts(hosts, peers, peers, peers, np.zeros(len(peers), bool))
        result.format = self.format
        return result

    @at_home
    def _top(self, count: int) -> SuperHosts:
        found = self._counts()
        hosts = sum(len(part.peers) for part in found)
        if count < hosts:
            peers = self._xp.concatenate([part.peers for part in found])
            least = int(self._xp.partition(peers, hosts - count)[hosts - count])
            found = [part.at_least(least) for part in found]
        return self._result(found).select(slice(0, count))

    @at_home
    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        """Return exact numbers of peers; every interval is the number itself."""
        self._compact()
        words = hosts.reshape(len(hosts), self.host_words).astype(np.uint64)
        peers = np.array([self._peers_of(host) for host in words], np.int64)
        return self._rows(hosts, peers)

    def _peers_of(self, words: NDArray[np.uint64]) -> int:
        """Count the pairs of the host with these words."""
        peers = 0
        for rows in self.buckets:
            same = self._xp.ones(len(rows), bool)
            for column, word in zip(hosts_of(rows, self.host_words).T, words, strict=True):
                same &= column == word
            peers += int(same.sum())
        return peers

    def header(self) -> dict[str, Any]:
        """Describe this detector for a file."""
        return {"detector": self.name, "key_bits": self.key_bits, "key": None, "format": list(self.format)}

    @classmethod
    def make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Self:
        """Return an exact detector that has seen nothing."""
        detector = cls(key_bits=kind.format.key_bits, device=place.device, threads=place.threads)
        detector.format = kind.format
        return detector

    @classmethod
    def array_shapes(cls, kind: Kind) -> dict[str, ArrayShape]:
        """Return the shape of the pairs: rows of as many words as the width of hosts and peers takes."""
        words = {32: (0, 1, 3), 64: (0, 3), 128: (0, 4)}[kind.format.key_bits]  # none where there are no pairs
        return {"pairs": ArrayShape((None, words))}

    @classmethod
    def loaded_memory(cls, kind: Kind, lengths: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes of the pairs while they are sorted in."""
        return SORTING * 8 * math.prod(lengths["pairs"])

    @classmethod
    def shown_hosts(cls, kind: Kind, secret: bytes, read: Callable[[str], NDArray[Any]]) -> Rows | None:
        """Return the last word of every pair's host."""
        pairs = read("pairs")
        return pairs[:, -3] if pairs.size else None

    @at_home
    def _copy(self) -> Self:
        return super()._copy()

    @at_home
    def _arrays(self) -> Arrays:
        """Return all distinct pairs as one matrix, in the machine's memory."""
        self._compact()
        rows = [to_host(rows) for rows in self.buckets]
        return {"pairs": np.concatenate(rows) if rows else np.empty((0, 0), np.uint64)}

    @at_home
    def _load_arrays(self, arrays: Arrays) -> None:
        rows = arrays["pairs"]
        self._clear()
        if rows.dtype != np.uint64 or rows.ndim != 2:
            raise ValueError(f"pairs are {rows.dtype} {rows.shape}")
        if len(rows):
            if rows.shape[1] not in ((1, 3) if self.key_bits == 32 else (self.host_words + 2,)):
                raise ValueError(f"pairs have {rows.shape[1]} words")
            self._start(rows.shape[1])
            self._wait(self._here(rows))


_DTYPES: dict[int, Any] = {32: np.uint32, 64: np.uint64, 128: np.uint64}
