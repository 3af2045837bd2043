"""The verbs that every detector has, and the result that every detector gives.

    update(hosts, peers) · merge(other) · super_hosts(threshold) · top(count) · estimate(host) · clear() · save(path)

Laws (tests hold every detector to them): order and repetition of pairs do not matter; merging equals having seen both
streams; merging is commutative and idempotent. A detector that cannot keep a law names it in `broken_laws`.

Any thread may call any verb at any time, and gets the result of some order of the calls. The verbs stand here: each
takes the detector's lock once and calls the private method of the same name. A detector implements those, and marks
what it has beside the verbs as `locked`.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray

from superhosts.detectors.estimate import UNBOUNDED
from superhosts.detectors.kinds import Kind, check_alike
from superhosts.detectors.locking import Guarded, holding
from superhosts.device import thread_count
from superhosts.errors import MergeError, UsageError
from superhosts.pairs import Addresses, Host, HostFormat, PairBatch, array_to_numbers, format_for
from superhosts.units import whole_number

Arrays = dict[str, NDArray[Any]]
_WORDS = np.dtype(np.uint32), np.dtype(np.uint64)  # made once: small batches are checked as often as large ones


class SuperHost(NamedTuple):
    """One host with its number of distinct peers and the 95 % interval of that number."""

    host: Host
    peers: int
    peers_low: int
    peers_high: int | None  # None: saturated, no upper bound
    saturated: bool


class SuperHosts:
    """Hosts as columns, most peers first. Iterating gives `SuperHost` rows."""

    def __init__(
        self,
        hosts: Addresses,
        peers: NDArray[np.int64],
        peers_low: NDArray[np.int64],
        peers_high: NDArray[np.int64],
        saturated: NDArray[np.bool_],
    ) -> None:
        keys = [hosts[:, 1], hosts[:, 0]] if hosts.ndim == 2 else [hosts]
        self._order = order = np.lexsort((*keys, -peers))
        self.hosts = hosts[order]
        self.peers = peers[order]
        self.peers_low = peers_low[order]
        self.peers_high = peers_high[order]  # the largest int64 where there is no upper bound
        self.saturated = saturated[order]
        self.format = format_for(128 if hosts.ndim == 2 else hosts.dtype.itemsize * 8)

    def __len__(self) -> int:
        return len(self.peers)

    def __iter__(self) -> Iterator[SuperHost]:
        columns = (self.peers.tolist(), self.peers_low.tolist(), self.peers_high.tolist(), self.saturated.tolist())
        for number, peers, low, high, saturated in zip(array_to_numbers(self.hosts), *columns, strict=True):
            host = self.format.to_host(number)
            yield SuperHost(host, peers, low, None if high == UNBOUNDED else high, saturated)

    def __repr__(self) -> str:
        return f"<SuperHosts: {len(self)} hosts>"

    def select(self, keep: NDArray[Any] | slice) -> SuperHosts:
        """Return the rows that `keep` (a mask, indexes or a slice) picks."""
        columns = (self.hosts, self.peers, self.peers_low, self.peers_high, self.saturated)
        chosen = SuperHosts(*(column[keep] for column in columns))  # type: ignore[arg-type]
        chosen.format = self.format
        return chosen

    def as_asked(self) -> SuperHosts:
        """Return the rows in the order in which hosts were asked for, not by peers."""
        rows = copy.copy(self)
        back = np.argsort(self._order)
        rows.hosts, rows.peers, rows.saturated = self.hosts[back], self.peers[back], self.saturated[back]
        rows.peers_low, rows.peers_high = self.peers_low[back], self.peers_high[back]
        rows._order = np.arange(len(back))
        return rows

    def to_dict(self) -> dict[str, list[Any]]:
        """Return plain columns with readable hosts; no upper bound is None."""
        rows = list(self)
        return {
            name: [str(row[i]) if name == "host" else row[i] for row in rows]
            for i, name in enumerate(SuperHost._fields)
        }

    def to_arrow(self) -> Any:
        """Return a pyarrow Table."""
        from superhosts.detectors.tables import to_arrow

        return to_arrow(self.to_dict())

    def to_polars(self) -> Any:
        """Return a Polars DataFrame."""
        from superhosts.detectors.tables import to_polars

        return to_polars(self.to_dict())

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame."""
        from superhosts.detectors.tables import to_pandas

        return to_pandas(self.to_dict())


class Detector(Guarded, ABC):
    """A detector of super hosts over one set of pairs. It uses threads by itself, and any thread may call it."""

    name: ClassVar[str]
    broken_laws: ClassVar[frozenset[str]] = frozenset()
    takes_ipv6: ClassVar[bool] = False  # hosts of 64 and 128 bits
    runs_on_gpu: ClassVar[bool] = True
    format: HostFormat  # how this detector's numbers read as hosts

    # What never changes, and needs no lock.

    @property
    def key_bits(self) -> int:
        """Bits of a host's number."""
        return self.format.key_bits

    @property
    def kind(self) -> Kind:
        """What another detector must have in common with this one to be merged."""
        return Kind(self.name, None, None, self.format, "merge" not in self.broken_laws)

    def check_alike(self, other: Detector) -> None:
        """Refuse what must not be merged into this one, naming both values."""
        check_detector(other, self.name)
        check_alike(self.kind, other.kind)

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """Describe this detector for a file: what is needed to build an empty one like it."""

    # The verbs.

    @final
    def update(self, hosts: Addresses | PairBatch, peers: Addresses | None = None) -> None:
        """Take a batch of pairs: two columns, or one PairBatch."""
        if isinstance(hosts, PairBatch):
            return self.update(hosts.hosts, hosts.peers)
        if peers is None:
            raise UsageError("update takes hosts and peers, or one PairBatch")
        left, right = as_column(hosts, "hosts"), as_column(peers, "peers")
        if len(left) != len(right):
            raise UsageError(f"update: {len(left)} hosts but {len(right)} peers")
        if _bits(left) != self.key_bits:
            raise UsageError(f"update: hosts have {_bits(left)} bits, this {self.name} takes {self.key_bits}-bit keys")
        if len(left):
            with self._lock:
                self._update(left, right)
        return None

    @final
    def merge(self, other: Self) -> None:
        """Take in all that another detector of the same kind has seen."""
        self.check_alike(other)
        with holding(self, other):
            self._merge(other)

    @final
    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts of at least `threshold` peers, most peers first."""
        least = check_threshold(threshold)
        with self._lock:
            return self._super_hosts(least)

    @final
    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with most peers; some detectors look no further down than a few peers."""
        most = check_count(count)
        with self._lock:
            return self._top(most)

    @final
    def estimate(self, host: str | int | Host) -> SuperHost:
        """Return the number of peers of any host, with its interval."""
        with self._lock:
            return self._estimate_host(host)

    @final
    def flush(self) -> None:
        """Write the pairs that wait. Every question does this by itself."""
        with self._lock:
            self._flush()

    @final
    def clear(self) -> None:
        """Forget all pairs."""
        with self._lock:
            self._clear()

    @final
    @property
    def memory(self) -> int:
        """Bytes that the detector's data takes, on all of its devices together."""
        with self._lock:
            return self._memory()

    @final
    def arrays(self) -> Arrays:
        """Return copies of the arrays that hold all it has seen."""
        with self._lock:
            return {name: array.copy() for name, array in self._arrays().items()}

    @final
    def copy(self) -> Self:
        """Return a detector of its own with the same content, on the same device."""
        return self.__copy__()

    @final
    def save(self, path: str | Path) -> None:
        """Write a .cube file that holds this detector alone."""
        from superhosts.sketches.bundle import Sketch

        Sketch.of(self).save(path)

    # What a detector brings. All of it runs under the lock.

    @abstractmethod
    def _update(self, hosts: Addresses, peers: Addresses) -> None: ...

    @abstractmethod
    def _merge(self, other: Self) -> None:
        """Take in a detector of the same kind, which is locked, too."""

    @abstractmethod
    def _super_hosts(self, threshold: float) -> SuperHosts: ...

    @abstractmethod
    def _top(self, count: int) -> SuperHosts: ...

    @abstractmethod
    def _estimate_host(self, host: str | int | Host) -> SuperHost: ...

    def _flush(self) -> None:
        """Write the pairs that wait; most detectors have none."""

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _memory(self) -> int: ...

    @abstractmethod
    def _arrays(self) -> Arrays:
        """Return the arrays themselves where they lie in the machine's memory, copies where they do not."""


def is_on_gpu(column: Any) -> bool:
    """Say whether an array lies in a GPU's memory (CuPy's, numba's, or any other with the CUDA array interface)."""
    return hasattr(column, "__cuda_array_interface__") or getattr(column, "__cuda_ndarray__", False)


def to_host(column: Any) -> Any:
    """Return an array in the machine's memory, copied from the GPU if it lies there."""
    if not is_on_gpu(column):
        return column
    from superhosts.engines.gpu.launch import as_device_array

    return as_device_array(column).copy_to_host()


def as_column(column: Any, what: str) -> Addresses:
    """Check that a column has one of the shapes that detectors take."""
    array = column if type(column) is np.ndarray or is_on_gpu(column) else np.asarray(column)
    if array.ndim == 1 and array.dtype in _WORDS:
        return array
    if array.ndim == 2 and array.shape[1] == 2 and array.dtype == np.uint64:
        return array
    raise UsageError(f"{what}: {array.dtype} {array.shape} is not uint32 (n,), uint64 (n,) or uint64 (n, 2)")


def _bits(column: Addresses) -> int:
    return 128 if column.ndim == 2 else column.dtype.itemsize * 8


def check_threshold(threshold: Any) -> float:
    """Return the threshold if it is one."""
    if not isinstance(threshold, Real) or not 1 <= float(threshold) < math.inf:
        raise UsageError(f"threshold {threshold!s}: a number of peers of at least 1")
    return float(threshold)


def check_count(count: int) -> int:
    """Return a number of hosts to be listed if it is one."""
    number = whole_number(count)
    if number is None or number < 1:
        raise UsageError(f"top {count!s}: a number of hosts of at least 1")
    return number


def check_threads(threads: int | None) -> int:
    """Return the number of threads to use: the one given, or as many as there are."""
    number = thread_count() if threads is None else whole_number(threads)
    if number is None or number < 1:
        raise UsageError(f"threads={threads}: at least one")
    return number


def check_key_bits(key_bits: int | None) -> int:
    """Return the bits of a host's number: those given, or the 32 of IPv4."""
    number = 32 if key_bits is None else whole_number(key_bits) or key_bits
    return format_for(number).key_bits


def check_detector(other: Any, name: str) -> None:
    """Refuse to merge something that is no detector into one of this name."""
    if isinstance(other, Detector):
        return
    if hasattr(other, "parts"):
        way = f"take one of its parts, like {name}.merge(sketch.part(sh.Part(4)))"
        raise MergeError(f"cannot merge a whole sketch into one {name}; {way}")
    raise MergeError(f"cannot merge {type(other).__name__} into {name}: not a detector")
