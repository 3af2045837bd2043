"""The exact detector, which stores and counts all distinct pairs.

New pairs are collected in blocks. When there are as many pending pairs as stored ones, they are sorted into the stored
ones and repeats are dropped. Memory therefore grows with the distinct pairs, not the packets, and every pair is sorted
a logarithmic number of times. On the CPU, a hash distributes hosts over buckets, which all threads sort in parallel. On
a GPU there is one bucket, because one sort keeps the whole GPU busy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import choose_device, gpus_of, run_parallel, simulated
from superhosts.core.hashing import fingerprint, make_key, secret_of
from superhosts.core.pairs import TEXT, Addresses, HostFormat, format_for
from superhosts.core.results import SuperHosts
from superhosts.core.text import counted
from superhosts.core.textkeys import bound, text_key
from superhosts.detectors.arguments import check_key_bits, check_keys, check_threads
from superhosts.detectors.base import Detector
from superhosts.detectors.engines.base import Arrays, ArrayShape
from superhosts.detectors.exact import cuda as exact_gpu
from superhosts.detectors.exact.cuda import on_own_gpu, to_host
from superhosts.detectors.exact.rows import (
    Counts,
    Rows,
    count_peers,
    distinct,
    group_by_bucket,
    hosts_of,
    pack,
    wide_rows,
    widen,
)
from superhosts.detectors.hostnames import UNLIMITED, HostNames
from superhosts.detectors.kinds import Kind
from superhosts.detectors.locking import locked
from superhosts.detectors.storing import Place

BUCKETS = 64
SCANNED_HOSTS = 4  # One pass over the pairs for each of so few hosts is faster than counting the peers of all hosts.
COPIES_WHILE_SORTING = 3  # copies of the pairs in memory during a sort


class Exact(Detector):
    """Stores every distinct pair, so every number of peers is exact. Its memory grows with the traffic.

    On a GPU, it uses the GPU's memory; of several GPUs it uses the first.
    """

    name = "exact"
    takes_ipv6 = True
    takes_keys = True
    grows_with_traffic = True

    def __init__(
        self,
        *,
        key_bits: int | None = None,
        key: bytes | str | None = None,  # only texts are hashed, which need it with generic keys
        device: str = "auto",
        threads: int | None = None,
        keys: str | None = None,
    ) -> None:
        generic = check_keys(keys, key_bits)
        key_bits = check_key_bits(key_bits) if generic is None else generic.key_bits
        self.format = format_for(key_bits)
        self.fingerprint: str | None = None
        if generic is not None:
            self._take_keys(generic, secret_of(key))
        self.device = choose_device(device)
        gpus = [] if simulated() else gpus_of(self.device)  # CuPy has no simulator, so the CPU does the work there.
        self.gpu = gpus[0] if gpus else None
        self.threads = check_threads(threads)
        self.host_words = 2 if key_bits == 128 else 1
        self._clear()

    @property
    def _xp(self) -> Any:
        """The array library. It is not an attribute, because an object that refers to a module cannot be copied."""
        return exact_gpu.array_module(self.gpu)

    def _take_keys(self, format: HostFormat, secret: bytes) -> None:
        """Take generic keys of this format as hosts, and keep all of their names."""
        self.fingerprint, self._text_key = fingerprint(secret), text_key(secret)
        self.format = bound(format, self._text_key)
        if format == TEXT:
            self._names = HostNames(UNLIMITED, make_key(secret), self._text_key)

    @property
    def kind(self) -> Kind:
        """The properties that two detectors must have in common to be merged."""
        return super().kind._replace(key=self.fingerprint)

    def _clear(self) -> None:
        self.width = 0
        self.buckets: list[Rows] = []  # sorted and distinct; never modified in place
        self.pending: list[Rows] = []  # owned by this detector, so they may be sorted in place
        self.pending_rows = self.kept = 0

    @on_own_gpu
    def _description(self) -> list[str]:
        self._compact()
        return [*super()._description(), "exact", counted(self.kept, "pair")]

    def _memory(self) -> int:
        """Return the bytes of the stored and pending pairs."""
        return 8 * self.width * (self.kept + self.pending_rows)

    @on_own_gpu
    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        narrow = hosts.dtype == np.uint32 and peers.dtype == np.uint32
        if not self.width:
            self._start(1 if narrow else self.host_words + 2)
        elif self.width == 1 and not narrow:
            self._widen()
        hosts, peers = self._to_own_device(hosts), self._to_own_device(peers)
        if self.width == 1:
            self._append(pack(hosts, peers, self._xp))
        else:
            self._append(wide_rows(hosts, peers, self.host_words, self._xp))

    def _to_own_device(self, array: Any) -> Any:
        """Return an array in the memory of this detector's device."""
        return to_host(array) if self.gpu is None else self._xp.asarray(array)

    def _start(self, width: int) -> None:
        self.width = width
        self.buckets = [self._xp.empty((0, width), np.uint64)] * (BUCKETS if self.gpu is None else 1)

    def _widen(self) -> None:
        """Convert the stored rows to the format for wide peers."""
        self._compact()
        self.buckets = [widen(rows, self._xp) for rows in self.buckets]
        self.width = self.host_words + 2

    def _append(self, rows: Rows) -> None:
        self.pending.append(rows)
        self.pending_rows += len(rows)
        if self.pending_rows > max(self.tuning.min_pending, self.kept):
            self._compact()

    def _compact(self) -> None:
        """Sort the pending rows into the stored ones."""
        if not self.pending_rows:
            return
        if self.gpu is None:
            self._compact_buckets()
        else:
            self.buckets = [distinct(self.buckets[0], self.pending, self._xp)]
        self.pending, self.pending_rows = [], 0
        self.kept = sum(len(rows) for rows in self.buckets)

    def _compact_buckets(self) -> None:
        grouped = [group_by_bucket(rows, self.host_words, BUCKETS) for rows in self.pending]
        self.pending = []  # The grouped copies replace these rows, whose memory is released for the sorts.

        def compact(b: int) -> None:
            parts = [rows[begins[b] : begins[b + 1]] for rows, begins in grouped]
            self.buckets[b] = distinct(self.buckets[b], parts, np)

        try:
            run_parallel(compact, [(b,) for b in range(BUCKETS)], self.threads)
        except BaseException:  # Some buckets already have their rows; adding them again changes nothing.
            self.pending = [rows for rows, _ in grouped]
            raise

    def _counts(self) -> list[Counts]:
        """Count the peers of all hosts, bucket by bucket, on the device of the rows."""
        self._compact()
        calls = [(rows, self.host_words, self._xp) for rows in self.buckets if len(rows)]
        return run_parallel(count_peers, calls, self.threads)

    def _columns(self, found: list[Counts]) -> tuple[Addresses, NDArray[np.int64]]:
        """Return counts as arrays in main memory."""
        none = Counts(np.empty((0, self.host_words), np.uint64), np.empty(0, np.int64))
        hosts = np.concatenate([to_host(part.hosts) for part in (none, *found)])
        peers = np.concatenate([to_host(part.peers) for part in (none, *found)])
        return hosts if self.key_bits == 128 else hosts[:, 0].astype(_DTYPES[self.key_bits]), peers

    @locked
    @on_own_gpu
    def counts(self) -> tuple[Addresses, NDArray[np.int64]]:
        """Return every host and its exact number of peers."""
        return self._columns(self._counts())

    @on_own_gpu
    def _merge(self, other: Self) -> None:
        """Add the pairs of another exact detector, on any device."""
        if other.gpu == self.gpu:
            other._compact()
            blocks = [rows for rows in other.buckets if len(rows)]
            if self.gpu is not None:
                # On a GPU, rows are sorted in place, while other threads may read those of the other detector.
                blocks = [rows.copy() for rows in blocks]
        else:
            pairs = other._arrays()["pairs"]
            blocks = [self._to_own_device(pairs)] if len(pairs) else []
        if not blocks:
            return
        if not self.width:
            self._start(other.width)
        if self.width == 1 and other.width > 1:
            self._widen()
        for rows in blocks:
            self._append(widen(rows, self._xp) if rows.shape[1] < self.width else rows)

    @on_own_gpu
    def _super_hosts(self, threshold: float) -> SuperHosts:
        return self._result([part.at_least(threshold) for part in self._counts()])

    def _result(self, found: list[Counts]) -> SuperHosts:
        return self._rows(*self._columns(found))

    def _rows(self, hosts: Addresses, peers: NDArray[np.int64]) -> SuperHosts:
        return SuperHosts.counted(hosts, peers, self.format)

    @on_own_gpu
    def _top(self, count: int) -> SuperHosts:
        found = self._counts()
        hosts = sum(len(part.peers) for part in found)
        if count < hosts:
            peers = self._xp.concatenate([part.peers for part in found])
            minimum = int(self._xp.partition(peers, hosts - count)[hosts - count])
            found = [part.at_least(minimum) for part in found]
        return self._result(found).select(slice(0, count))

    @on_own_gpu
    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        """Return exact numbers of peers. Every confidence interval is the number itself."""
        self._compact()
        words = hosts.reshape(len(hosts), self.host_words).astype(np.uint64)
        if len(hosts) <= SCANNED_HOSTS:
            peers = np.array([self._peers_of(host) for host in words], np.int64)
        else:
            known, counts = self._columns(self._counts())
            peers = _looked_up(words, known.reshape(len(known), self.host_words).astype(np.uint64), counts)
        return SuperHosts.counted(hosts, peers, self.format, sort=False)

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
        """Return the description of this detector in a file."""
        return {"detector": self.name, "key_bits": self.key_bits, "key": self.fingerprint, "format": self.format.fields}

    @classmethod
    def make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Self:
        """Return an empty exact detector."""
        keys, bits = kind.format.keys, kind.format.key_bits
        detector = cls(key_bits=bits, key=secret, device=place.device, threads=place.threads, keys=keys)
        if keys is None:
            detector.format = kind.format
        return detector

    @classmethod
    def array_shapes(cls, kind: Kind) -> dict[str, ArrayShape]:
        """Return the shape of the pairs. The words per row depend on the width of hosts and peers."""
        words = {32: (0, 1, 3), 64: (0, 3), 128: (0, 4)}[kind.format.key_bits]  # 0 if there are no pairs
        return {"pairs": ArrayShape((None, words))}

    @classmethod
    def loaded_memory(cls, kind: Kind, lengths: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes of the pairs and of their copies during a sort."""
        return COPIES_WHILE_SORTING * 8 * math.prod(lengths["pairs"])

    @classmethod
    def shown_hosts(cls, kind: Kind, secret: bytes, arrays: Mapping[str, NDArray[Any]]) -> Rows | None:
        """Return the last word of every pair's host."""
        pairs = arrays["pairs"]
        if not pairs.size:
            return None
        return pairs[:, 0] >> np.uint64(32) if pairs.shape[1] == 1 else pairs[:, -3]

    @on_own_gpu
    def _copy(self) -> Self:
        return super()._copy()

    @on_own_gpu
    def _arrays(self) -> Arrays:
        """Return all distinct pairs as one matrix in main memory."""
        self._compact()
        rows = [to_host(rows) for rows in self.buckets]
        return {"pairs": np.concatenate(rows) if rows else np.empty((0, 0), np.uint64)}

    @on_own_gpu
    def _load_arrays(self, arrays: Arrays) -> None:
        rows = arrays["pairs"]
        self._clear()
        if rows.dtype != np.uint64 or rows.ndim != 2:
            raise ValueError(f"pairs are {rows.dtype} {rows.shape}, not a matrix of uint64")
        if len(rows):
            allowed = (1, 3) if self.key_bits == 32 else (self.host_words + 2,)
            if rows.shape[1] not in allowed:
                raise ValueError(f"pairs have {rows.shape[1]} words, not {' or '.join(map(str, allowed))}")
            self._start(rows.shape[1])
            self._append(self._to_own_device(rows))


_DTYPES: dict[int, Any] = {32: np.uint32, 64: np.uint64, 128: np.uint64}


def _looked_up(asked: Rows, known: Rows, peers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the peers of hosts, given as rows of words, from those of all known hosts; 0 for others."""
    if not len(known):
        return np.zeros(len(asked), np.int64)
    # Rows of big-endian words compare as bytes do.
    left, right = (_as_bytes(rows) for rows in (asked, known))
    order = np.argsort(right)
    places = np.minimum(np.searchsorted(right, left, sorter=order), len(order) - 1)
    return np.where(right[order[places]] == left, peers[order[places]], 0)


def _as_bytes(rows: Rows) -> NDArray[Any]:
    if rows.shape[1] == 1:
        return rows[:, 0]
    swapped = np.ascontiguousarray(rows.astype(">u8"))
    return swapped.view(np.dtype((np.void, 8 * rows.shape[1]))).reshape(-1)
