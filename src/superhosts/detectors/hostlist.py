"""What GSE, the filter and SpreadSketch have in common: 32-bit hosts, kept by name.

Only mangled addresses are kept and written to files, as in the cube: without the key nobody reads an address there.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.detectors.base import KeyedSketch
from superhosts.detectors.estimate import Estimate
from superhosts.device import choose_device
from superhosts.engines.arrays import to_host
from superhosts.errors import UsageError
from superhosts.hashing import Key, fold, mangle_column
from superhosts.pairs import Addresses
from superhosts.results import SuperHosts

Mangled = NDArray[np.uint32]


class DeviceError(UsageError):
    """A device on which this detector does not run."""


class HostListSketch(KeyedSketch):
    """A sketch for 32-bit hosts. Subclasses write pairs, and say which hosts may be large and how large a host is."""

    @abstractmethod
    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        """Return the mangled hosts that may have `threshold` peers, and their numbers."""

    @abstractmethod
    def _measure(self, mangled: Mangled) -> Estimate:
        """Return the numbers of any mangled hosts."""

    def _super_hosts(self, threshold: float) -> SuperHosts:
        mangled, found = self._find(threshold)
        keep = (found.peers >= threshold) | found.saturated  # of these only a lower bound is known
        return self._result(mangled[keep], found.select(keep))

    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        mangled = mangled_of(hosts.astype(np.uint32, copy=False), self.key)
        return self._result(mangled, self._measure(mangled))

    def _result(self, mangled: Mangled, found: Estimate) -> SuperHosts:
        hosts = mangled_of(mangled, self.key, inverse=True)
        result = SuperHosts(hosts, np.rint(found.peers).astype(np.int64), found.low, found.high, found.saturated)
        result.format = self.format
        return result


def on_cpu_only(name: str, device: str) -> str:
    """Return the device of a detector that has no kernels for GPUs: the CPU, unless a GPU is asked for by name."""
    if device.startswith("cuda"):
        raise DeviceError(f"device {device!r}: {name} runs on the CPU only; take cpu or auto")
    choose_device(device)
    return "cpu"


def plain_columns(hosts: Any, peers: Any, key: Key) -> tuple[NDArray[np.uint32], Addresses]:
    """Return two columns in the machine's memory, without gaps; peers of two words are folded."""
    hosts, peers = np.ascontiguousarray(to_host(hosts)), np.ascontiguousarray(to_host(peers))
    return hosts, fold_column(peers, key) if peers.ndim == 2 else peers


@compiled
def fold_column(peers: NDArray[np.uint64], key: Key) -> NDArray[np.uint64]:
    """Fold peers of two words into one."""
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
    """Mangle (or unmangle) a column of hosts."""
    return mangle_column(as_words(hosts), 32, inverse, key)[:, 1].astype(np.uint32)
