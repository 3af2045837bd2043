"""What the rivals share: the verbs of a detector, keyed hashing of 32-bit hosts, and bit columns on an engine.

Rivals are detectors for comparisons. They take IPv4 hosts, have no files, and store only mangled addresses: without the
key, nobody can read addresses from them. One that breaks a law of detectors names it in `broken_laws`;
one without `_merge` does not merge.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import THRESHOLD
from superhosts.core.device import check_cpu_only, check_device, choose_device
from superhosts.core.hashing import Key, fingerprint, fold, make_key, mangle32, secret_of, unmangle32
from superhosts.core.pairs import IPV4, Addresses, Part, as_words
from superhosts.core.results import SuperHosts
from superhosts.core.units import format_size, parse_size
from superhosts.detectors.arguments import check_no_conflict, check_threads
from superhosts.detectors.columnsketch import EngineDetector, search_columns
from superhosts.detectors.detector import Detector
from superhosts.detectors.engines.base import Counts, Plan, to_host
from superhosts.detectors.estimate import Estimate, Evidence, estimate_by_mean
from superhosts.detectors.formulas import SLACK
from superhosts.detectors.gpu.engine import CudaEngine
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import GeometryError, MergeError, UsageError
from superhosts.jit.cache import compiled

Mangled = NDArray[np.uint32]
REACH = 3  # a rival that is set for a threshold counts to this many times the threshold


def parse_memory(memory: str | int, minimum: int, name: str) -> int:
    """Return a memory in bytes. Raise GeometryError if it is below the minimum of a rival."""
    size = parse_size(memory)
    if size < minimum:
        least = format_size(minimum)
        raise GeometryError(f"memory {format_size(size)} is too small for {name}: use {least} or more")
    return size


class Rival(Detector):
    """A published detector, for comparisons. Subclasses write pairs, find the hosts that may be large and measure.

    Without a memory its sizes are the published ones. Of a given memory, `for_memory` of its geometry sets them for the
    threshold, as its authors would.
    """

    geometry_type: ClassVar[type[Any]]
    runs_on_gpu: ClassVar[bool] = False
    slack: ClassVar[float] = 0.0  # estimates up to this much below a threshold count as reaching it

    def __init_subclass__(cls) -> None:
        if cls._merge is Rival._merge:
            cls.broken_laws |= {"merge"}

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        threshold: float | None = None,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Any = None,
    ) -> None:
        if geometry is None:
            self.geometry = self._sizes(memory, THRESHOLD if threshold is None else threshold)
        else:
            self.geometry = check_no_conflict(geometry, memory=memory, threshold=threshold)
        self.threads, self.format = check_threads(threads), IPV4
        secret = secret_of(key)
        self.key, self.fingerprint = make_key(secret), fingerprint(secret)
        self.check_device(device)
        self.device = choose_device(device) if self.runs_on_gpu else "cpu"
        self._allocate()

    @classmethod
    def for_scan(cls, threshold: float, /, **arguments: Any) -> Self:
        return cls(threshold=threshold, **arguments)

    def _sizes(self, memory: str | int | None, threshold: float) -> Any:
        """Return the published geometry or, of a given memory, one for this threshold."""
        return self.geometry_type() if memory is None else self.geometry_type.for_memory(memory, threshold)

    @classmethod
    def check_memory(cls, memory: str | int, threshold: float) -> None:
        cls.geometry_type.for_memory(memory, threshold)

    @classmethod
    def check_device(cls, device: str) -> None:
        check_device(device) if cls.runs_on_gpu else check_cpu_only(cls.name, device)

    @abstractmethod
    def _allocate(self) -> None:
        """Make the arrays of an empty rival."""

    def _clear(self) -> None:
        self._allocate()

    @abstractmethod
    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        """Return the mangled hosts that may have `threshold` peers, and their estimates."""

    @abstractmethod
    def _measure(self, mangled: Mangled) -> Estimate: ...

    def _super_hosts(self, threshold: float) -> SuperHosts:
        mangled, found = self._find(threshold)
        # Only a lower bound is known of saturated hosts.
        keep = np.flatnonzero((found.peers >= threshold - self.slack) | found.saturated)
        return self._result(mangled[keep], found.select(keep))

    def _top(self, count: int) -> SuperHosts:
        least = self._least_listed()
        threshold = max(least, self._top_threshold())
        found = self._super_hosts(threshold)
        while len(found) < count and threshold > least:
            threshold = max(least, threshold / 4)
            found = self._super_hosts(threshold)
        return found.select(slice(0, count))

    def _top_threshold(self) -> float:
        """Return a threshold that few hosts reach, at which `top` begins."""
        return self._least_listed()

    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        mangled = self._mangle(hosts.astype(np.uint32, copy=False))
        return self._result(mangled, self._measure(mangled))

    def _merge(self, other: Self) -> None:
        raise MergeError(f"cannot merge {self.name} sketches: a pair that both have seen would count twice")

    def _is_exact(self) -> bool:
        """Return True if numbers of peers are counted, not estimated."""
        return False

    def _mangle(self, hosts: NDArray[np.uint32]) -> Mangled:
        return mangled_of(hosts, self.key, False)

    def _unmangle(self, mangled: Mangled) -> NDArray[np.uint32]:
        return mangled_of(mangled, self.key, True)

    def _result(self, mangled: Mangled, found: Estimate) -> SuperHosts:
        peers = np.rint(found.peers).astype(np.int64)
        rows = SuperHosts(self._unmangle(mangled), peers, found.low, found.high, found.saturated, self._is_exact())
        rows.format = self.format  # Hosts may be prefixes.
        return rows

    def _written(self, part: Part, *, pairs: bool = False) -> NoReturn:
        raise UsageError(f"{self.name} has no files: only {', '.join(DETECTORS)} can be saved")


def reaching(threshold: float) -> int:
    """Return log2 of the fewest rows of a column (at least 64) that REACH times the threshold does not fill."""
    bits = 6
    while (bits * math.log(2)) * (1 << bits) < REACH * threshold:
        bits += 1
    return bits


class EngineRival(EngineDetector, Rival):
    runs_on_gpu = True
    gpu_engine: ClassVar[type[CudaEngine]]

    def _allocate(self) -> None:
        self.engine = self._make_engine()

    def _on_gpu(self, plan: Plan, gpu: int) -> CudaEngine:
        return self.gpu_engine(plan, gpu)

    @abstractmethod
    def _estimates(self, counts: Counts) -> Estimate:
        """Return estimates from the zeros that the engine has counted for hosts."""

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        mangled, counts = search_columns(self, threshold)
        return mangled[:, 1].astype(np.uint32), self._estimates(counts)

    def _measure(self, mangled: Mangled) -> Estimate:
        return self._estimates(self.engine.measure(as_words(mangled)))


class ColumnRival(EngineRival):
    """A rival of bit columns, from which hosts are restored: an estimate follows from the zeros of the columns' AND."""

    slack = SLACK

    @abstractmethod
    def _noise(self) -> float:
        """Return the share of rows that other hosts are assumed to set in the AND."""

    def _estimates(self, counts: Counts) -> Estimate:
        noise = np.full((len(counts), 1), self._noise())
        return estimate_by_mean(Evidence(counts[:, :-1], counts[:, -1], noise), self.geometry.rows)

    def _top_threshold(self) -> float:
        rows, fullest = self.geometry.rows, max(1, int(self.engine.zeros().min()))
        return float(rows * math.log(rows / fullest) / 4)


def plain_columns(hosts: Any, peers: Any, key: Key) -> tuple[NDArray[np.uint32], Addresses]:
    """Return two contiguous arrays in main memory. Peers of two words are folded."""
    hosts, peers = np.ascontiguousarray(to_host(hosts)), np.ascontiguousarray(to_host(peers))
    return hosts, fold_column(peers, key) if peers.ndim == 2 else peers


@compiled
def fold_column(peers: NDArray[np.uint64], key: Key) -> NDArray[np.uint64]:
    """Fold each peer of two words into one."""
    out = np.empty(len(peers), np.uint64)
    for i in range(len(peers)):
        out[i] = fold(peers[i, 0], peers[i, 1], key)
    return out


@compiled
def mangled_of(hosts: NDArray[np.uint32], key: Key, inverse: bool) -> Mangled:
    out = np.empty(len(hosts), np.uint32)
    for i in range(len(hosts)):
        out[i] = unmangle32(np.uint64(hosts[i]), key) if inverse else mangle32(np.uint64(hosts[i]), key)
    return out
