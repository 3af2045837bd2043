"""The base of the detectors that store 32-bit hosts explicitly: GSE, the filter, SpreadSketch and other rivals.

They store mangled addresses and write only these to files, as the cube does: without the key, no address can be read.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import MEMORY
from superhosts.core.device import check_device
from superhosts.core.hashing import Key, fold, mangle_column
from superhosts.core.pairs import Addresses
from superhosts.core.results import SuperHosts
from superhosts.detectors.arguments import check_no_conflict
from superhosts.detectors.engines.base import to_host
from superhosts.detectors.estimate import Estimate
from superhosts.detectors.keyed import KeyedSketch
from superhosts.errors import UsageError
from superhosts.jit.cache import compiled

Mangled = NDArray[np.uint32]


class DeviceError(UsageError):
    """The detector does not run on the requested device."""


class HostListSketch(KeyedSketch):
    """A sketch for 32-bit hosts. Subclasses write pairs, list the hosts that may be large and measure hosts."""

    @abstractmethod
    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        """Return the mangled hosts that may have `threshold` peers, and their estimates."""

    @abstractmethod
    def _measure(self, mangled: Mangled) -> Estimate:
        """Return the estimates of any mangled hosts."""

    def _super_hosts(self, threshold: float) -> SuperHosts:
        mangled, found = self._find(threshold)
        keep = (found.peers >= threshold) | found.saturated  # Only a lower bound is known of saturated hosts.
        return self._result(mangled[keep], found.select(np.flatnonzero(keep)))

    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        mangled = mangled_of(hosts.astype(np.uint32, copy=False), self.key)
        return self._result(mangled, self._measure(mangled))

    def _is_exact(self) -> bool:
        """Return True if numbers of peers are counted, not estimated."""
        return False

    def _result(self, mangled: Mangled, found: Estimate) -> SuperHosts:
        hosts = mangled_of(mangled, self.key, inverse=True)
        result = SuperHosts(hosts, np.rint(found.peers).astype(np.int64), found.low, found.high, found.saturated)
        result.exact = np.full(len(hosts), self._is_exact())
        result.format = self.format
        return result


class CpuHostListSketch(HostListSketch):
    """A sketch of hosts that only the CPU has loops for, of 128 MiB by default."""

    runs_on_gpu = False

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Any = None,
    ) -> None:
        if geometry is None:
            assert self.geometry_type is not None
            geometry = self.geometry_type.for_memory(MEMORY if memory is None else memory)
        else:
            geometry = check_no_conflict(geometry, memory=memory)
        super().__init__(geometry.check(), key=key, threads=threads)
        self.device = on_cpu_only(self.name, device)
        self._allocate()

    @abstractmethod
    def _allocate(self) -> None:
        """Make the arrays of an empty sketch."""


def on_cpu_only(name: str, device: str) -> str:
    """Return "cpu", the device of a detector without GPU kernels. Raise DeviceError if `device` names a GPU."""
    if device.startswith("cuda"):
        raise DeviceError(f"device {device!r}: {name} runs on the CPU only; use cpu or auto")
    check_device(device)
    return "cpu"


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


def as_words(hosts: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return hosts as rows (high word, low word)."""
    words = np.zeros((len(hosts), 2), np.uint64)
    words[:, 1] = hosts
    return words


def mangled_of(hosts: NDArray[np.uint32], key: Key, *, inverse: bool = False) -> Mangled:
    """Mangle (or with `inverse`, unmangle) an array of hosts."""
    return mangle_column(as_words(hosts), 32, inverse, key)[:, 1].astype(np.uint32)
