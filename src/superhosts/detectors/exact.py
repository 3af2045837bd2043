"""The exact detector, which stores and counts all distinct pairs.

New pairs are collected in blocks. When there are as many pending pairs as stored ones, they are sorted into the stored
ones and repeats are dropped. Memory therefore grows with the distinct pairs, not the packets, and every pair is sorted
a logarithmic number of times. On the CPU, a hash distributes hosts over buckets, which all threads sort in parallel. On
a GPU there is one bucket, because one sort keeps the whole GPU busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, wraps
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import choose_device, gpus_of, run_parallel, simulated
from superhosts.core.hashing import secret_of
from superhosts.core.pairs import Addresses, format_for
from superhosts.core.results import SuperHosts
from superhosts.core.text import counted
from superhosts.detectors.arguments import check_key_bits, check_keys, check_threads
from superhosts.detectors.detector import Detector
from superhosts.detectors.engines.base import Arrays, ArrayShape, to_host
from superhosts.detectors.hostnames import UNLIMITED
from superhosts.detectors.lock import locked
from superhosts.detectors.stored import Kind, Read
from superhosts.jit.cache import compiled

Rows = NDArray[np.uint64]
Method = TypeVar("Method", bound=Callable[..., Any])
HALF, LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
BUCKETS = 64
SCANNED_HOSTS = 4  # One pass over the pairs for each of so few hosts is faster than counting the peers of all hosts.
COPIES_WHILE_SORTING = 3  # copies of the pairs in memory during a sort


def array_module(gpu: int | None) -> Any:
    """Return the array library of a GPU, or of the CPU if `gpu` is None. Tests without a GPU replace this function."""
    if gpu is None:
        return np
    import cupy

    return cupy


def on_own_gpu(method: Method) -> Method:
    """Decorate a method to run on the detector's GPU and wait for it, so that callers may reuse their arrays."""

    @wraps(method)
    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        if self.gpu is None:
            return method(self, *arguments, **named)
        cuda = array_module(self.gpu).cuda
        with cuda.Device(self.gpu):
            result = method(self, *arguments, **named)
            cuda.get_current_stream().synchronize()
        return result

    return cast(Method, run)


@cache
def _pack_kernel(cupy: Any) -> Any:
    """Return the kernel that packs two 32-bit numbers into one word, in one pass and without intermediate arrays."""
    operation = "pair = (unsigned long long)host << 32 | peer"
    return cupy.ElementwiseKernel("uint32 host, uint32 peer", "uint64 pair", operation, "superhosts_pack")


class Counts(NamedTuple):
    hosts: Rows
    peers: NDArray[np.int64]

    def at_least(self, minimum: float) -> Counts:
        enough = self.peers >= minimum
        return Counts(self.hosts[enough], self.peers[enough])


class Exact(Detector):
    """Stores every distinct pair, so every number of peers is exact. Its memory grows with the traffic.

    On a GPU, it uses the GPU's memory; of several GPUs it uses the first.
    """

    name = "exact"
    widths = (32, 64, 128)

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
        if generic is not None:
            self._take_keys(generic, secret_of(key), UNLIMITED)
        self.device = choose_device(device)
        gpus = [] if simulated() else gpus_of(self.device)  # CuPy has no simulator, so the CPU does the work there.
        self.gpu = gpus[0] if gpus else None
        self.threads = check_threads(threads)
        self.host_words = 2 if key_bits == 128 else 1
        self._clear()

    @property
    def _xp(self) -> Any:
        """The array library. It is not an attribute, because an object that refers to a module cannot be copied."""
        return array_module(self.gpu)

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
        return to_host(array) if self.gpu is None else self._xp.asarray(array)

    def _start(self, width: int) -> None:
        self.width = width
        self.buckets = [self._xp.empty((0, width), np.uint64)] * (BUCKETS if self.gpu is None else 1)

    def _widen(self) -> None:
        self._compact()
        self.buckets = [widen(rows, self._xp) for rows in self.buckets]
        self.width = self.host_words + 2

    def _append(self, rows: Rows) -> None:
        self.pending.append(rows)
        self.pending_rows += len(rows)
        if self.pending_rows > max(self.tuning.min_pending, self.kept):
            self._compact()

    def _compact(self) -> None:
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
        self._compact()
        calls = [(rows, self.host_words, self._xp) for rows in self.buckets if len(rows)]
        return run_parallel(count_peers, calls, self.threads)

    def _columns(self, found: list[Counts]) -> tuple[Addresses, NDArray[np.int64]]:
        none = Counts(np.empty((0, self.host_words), np.uint64), np.empty(0, np.int64))
        hosts = np.concatenate([to_host(part.hosts) for part in (none, *found)])
        peers = np.concatenate([to_host(part.peers) for part in (none, *found)])
        dtype: Any = np.uint32 if self.key_bits == 32 else np.uint64
        return hosts if self.key_bits == 128 else hosts[:, 0].astype(dtype), peers

    @locked
    @on_own_gpu
    def counts(self) -> tuple[Addresses, NDArray[np.int64]]:
        """Return every host and its exact number of peers."""
        return self._columns(self._counts())

    @on_own_gpu
    def _merge(self, other: Self) -> None:
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
        return SuperHosts.counted(*self._columns(found), self.format)

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
        self._compact()
        words = hosts.reshape(len(hosts), self.host_words).astype(np.uint64)
        if len(hosts) <= SCANNED_HOSTS:
            peers = np.array([self._peers_of(host) for host in words], np.int64)
        else:
            peers = HostTable(*self._columns(self._counts())).peers_of(hosts)
        return SuperHosts.counted(hosts, peers, self.format, sort=False)

    def _peers_of(self, words: NDArray[np.uint64]) -> int:
        peers = 0
        for rows in self.buckets:
            same = self._xp.ones(len(rows), bool)
            for column, word in zip(hosts_of(rows, self.host_words).T, words, strict=True):
                same &= column == word
            peers += int(same.sum())
        return peers

    @classmethod
    def _arguments_for(cls, kind: Kind) -> dict[str, Any]:
        return {"key_bits": kind.format.key_bits, "keys": kind.format.keys}

    @classmethod
    def _file_shapes(cls, kind: Kind) -> tuple[dict[str, ArrayShape], ...]:
        """Return the shape of the pairs. The words per row depend on the width of hosts and peers."""
        words = {32: (0, 1, 3), 64: (0, 3), 128: (0, 4)}[kind.format.key_bits]  # 0 if there are no pairs
        return ({"pairs": ArrayShape((None, words))},)

    @classmethod
    def _loaded_memory(cls, kind: Kind, sides: Mapping[str, Sequence[int]]) -> int:
        return COPIES_WHILE_SORTING * 8 * math.prod(sides["pairs"])

    @classmethod
    def _shown_hosts(cls, kind: Kind, secret: bytes, names: Collection[str], read: Read) -> Rows | None:
        pairs = read("pairs")
        if not pairs.size:
            return None
        return pairs[:, 0] >> np.uint64(32) if pairs.shape[1] == 1 else pairs[:, -3]

    @on_own_gpu
    def _copy(self) -> Self:
        return super()._copy()

    @on_own_gpu
    def _arrays(self) -> Arrays:
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


class HostTable:
    """Hosts of any width with their numbers of peers, to be looked up."""

    def __init__(self, hosts: Addresses, peers: NDArray[np.int64]) -> None:
        order = np.argsort(_sortable(hosts))
        self._hosts, self._peers = hosts[order], peers[order]

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def pairs(self) -> int:
        return int(self._peers.sum())

    def peers_of(self, hosts: Addresses) -> NDArray[np.int64]:
        """Return the peers of given hosts; 0 for one that was never seen."""
        if not len(self):
            return np.zeros(len(hosts), np.int64)
        known, wanted = _sortable(self._hosts), _sortable(hosts)
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(known[place] == wanted, self._peers[place], 0)

    def at_least(self, threshold: float) -> tuple[Addresses, NDArray[np.int64]]:
        chosen = self._peers >= threshold
        return self._hosts[chosen], self._peers[chosen]


def _sortable(hosts: Addresses) -> NDArray[np.generic]:
    """Return hosts as one value each: numbers, or for 128 bits the words as bytes in the order of the numbers."""
    if hosts.ndim == 1:
        return hosts
    return np.ascontiguousarray(hosts.astype(">u8")).view("V16").reshape(-1)


# Operations on rows of pairs: pack, group into buckets by host, sort and count.
# A row is one word if host and peer have 32 bits; otherwise it is the host in one or two words and the peer in two.
# Functions of rows take the array library `xp`: NumPy, or CuPy for rows in a GPU's memory.


@compiled
def group_by_bucket(rows: Rows, host_words: int, buckets: int) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows in the order of their host's bucket, and the start of each bucket."""
    bucket = np.empty(len(rows), np.uint8)
    begins = np.zeros(buckets + 1, np.int64)
    for i in range(len(rows)):
        x = rows[i, 0]
        if rows.shape[1] == 1:
            x >>= np.uint64(32)  # The host must have the same bucket as in a wider row.
        if host_words == 2:
            x ^= rows[i, 1] * np.uint64(3)
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


def pack(hosts: Addresses, peers: Addresses, xp: Any) -> Rows:
    if xp is not np:
        rows: Rows = _pack_kernel(xp)(hosts, peers)[:, None]
        return rows
    words = hosts.astype(np.uint64)
    words <<= HALF
    words |= peers
    return words[:, None]


def wide_rows(hosts: Addresses, peers: Addresses, host_words: int, xp: Any) -> Rows:
    rows: Rows = xp.zeros((len(hosts), host_words + 2), np.uint64)
    rows[:, :host_words] = hosts if hosts.ndim == 2 else hosts[:, None]
    rows[:, -peers.ndim :] = peers if peers.ndim == 2 else peers[:, None]  # A peer has as many words as dimensions.
    return rows


def widen(rows: Rows, xp: Any) -> Rows:
    """Convert rows of one word to the format for wide peers. Their order and buckets do not change."""
    return wide_rows(rows[:, 0] >> HALF, rows[:, 0] & LOW_HALF, 1, xp)


def _changes(rows: Rows, xp: Any) -> NDArray[np.bool_]:
    """Mark the rows that differ from the previous one. The first row is always marked."""
    marks: NDArray[np.bool_] = xp.zeros(len(rows), bool)
    marks[:1] = True
    later = marks[1:]
    for column in rows.T:  # Word by word, this is faster than a reduction over such a short axis.
        later |= column[1:] != column[:-1]
    return marks


def distinct(kept: Rows, new: list[Rows], xp: Any) -> Rows:
    """Sort new rows into the kept ones and drop repeats. Only new rows may be sorted in place."""
    new = [rows for rows in new if len(rows)]
    if not new:
        return kept
    parts = [kept, *new] if len(kept) else new
    rows: Rows = parts[0] if len(parts) == 1 else xp.concatenate(parts)
    if rows.shape[1] == 1:
        words = rows.reshape(-1)  # In one dimension, CuPy sorts in place, and masks cost half.
        words.sort()
        return words[_changes(words[:, None], xp)][:, None]
    rows = rows[xp.lexsort(rows.T[::-1])]
    return rows[_changes(rows, xp)]


def hosts_of(rows: Rows, host_words: int) -> Rows:
    return rows >> HALF if rows.shape[1] == 1 else rows[:, :host_words]


def count_peers(rows: Rows, host_words: int, xp: Any) -> Counts:
    """Return the number of rows of each host. Rows must be sorted and distinct."""
    hosts = hosts_of(rows, host_words)
    begins = xp.flatnonzero(_changes(hosts, xp))
    return Counts(hosts[begins], xp.diff(begins, append=len(rows)))
