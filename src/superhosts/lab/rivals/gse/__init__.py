"""GSE (Shin, Im, Yoon, 2014) on CSE (Yoon, Li, Chen, Peir, 2009): virtual vectors in one shared array of bits.

A host's vector of s bits is scattered over an array of m bits that all hosts share. The share of zeros in the vector,
V_s, and that of the whole array, V_m, give n = s·ln V_m − s·ln V_s. A table of recent pairs drops repeats first.
Nothing in the array names a host. A separate set therefore stores the hosts seen, which files must contain too, and a
search tests every one of them. The first few hundred bits of a vector reject nearly all hosts.
"""

from __future__ import annotations

import math

import numpy as np

from superhosts.core.defaults import MEMORY
from superhosts.core.results import SuperHosts
from superhosts.detectors.arguments import check_no_conflict
from superhosts.detectors.columnsketch import EngineSketch
from superhosts.detectors.engines.base import Counts, Engine, Plan
from superhosts.detectors.estimate import Estimate, interval, saturate, saturation_of
from superhosts.detectors.hostlist import HostListSketch, Mangled, as_words
from superhosts.lab.rivals.gse.cpu import CpuGse
from superhosts.lab.rivals.gse.geometry import Geometry, Search

__all__ = ["Geometry", "Gse"]

MIN_TOP_PEERS = 16  # lowest threshold that `top` searches
DEVIATIONS = 6.0  # standard deviations of the prefix's zeros: it rejects one in 10^9 hosts that would pass in full


class Gse(EngineSketch, HostListSketch):
    """GSE for 32-bit hosts, of 128 MiB by default.

    On the CPU, one thread writes pairs; on a GPU, all threads do.
    """

    name = "gse"
    geometry: Geometry
    geometry_type = Geometry

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        if geometry is None:
            geometry = Geometry.for_memory(MEMORY if memory is None else memory)
        else:
            geometry = check_no_conflict(geometry, memory=memory)
        super().__init__(geometry, key=key, device=device, threads=threads)

    def _on_cpu(self, plan: Plan) -> Engine:
        return CpuGse(plan)

    def _on_gpu(self, plan: Plan, gpu: int) -> Engine:
        from superhosts.lab.rivals.gse.cuda import CudaGse

        return CudaGse(plan, gpu)

    def _free(self) -> float:
        """Return the share of zeros in the array. A full array counts as if it had one zero."""  # V_m
        total = 1 << self.geometry.array_bits
        return max(1, int(self.engine.zero_sums().sum())) / total

    def _search_for(self, threshold: float) -> Search:
        """Return the limits for a host with an estimate of `threshold`, which has V_s = V_m·e^(−θ/s)."""
        size, free = self.geometry.vector, self._free()
        share = free * math.exp(-threshold / size)
        spread, noise = math.sqrt(share * (1 - share)), math.sqrt(free * (1 - free))
        apart = (DEVIATIONS * spread + 2 * noise) / (
            free - share
        )  # Squared, it is the prefix that rejects small hosts.
        prefix_bits = min(size, 64 * math.ceil(max(64.0, min(apart * apart, size)) / 64))
        prefix_zeros = math.ceil(prefix_bits * share + DEVIATIONS * spread * math.sqrt(prefix_bits))
        return Search(prefix_bits, prefix_zeros, math.floor(size * share) + 1)

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        mangled, zeros = self.engine.search(self._search_for(threshold))
        return mangled[:, 1].astype(np.uint32), self._estimate(zeros)

    def _measure(self, mangled: Mangled) -> Estimate:
        return self._estimate(self.engine.measure(as_words(mangled)))

    def _estimate(self, zeros: Counts) -> Estimate:
        """Return estimates from the zeros of vectors. A host whose vector has no zero is saturated."""
        size, free = self.geometry.vector, self._free()
        zeros = zeros[:, -1]
        peers = np.maximum(0.0, size * (math.log(free) - np.log(np.maximum(zeros, 1) / size)))
        load = peers / size
        variances = size * (np.exp(load) / free - load - 1)  # e^(N/m) is 1/V_m
        found = interval(peers, np.sqrt(np.maximum(0.0, variances)))
        return saturate(found, zeros == 0, saturation_of(size, free))

    def _top(self, count: int) -> SuperHosts:
        """Return the top hosts among those with at least `MIN_TOP_PEERS` peers."""
        threshold = float(self.geometry.vector)
        found = self._super_hosts(threshold)
        while len(found) < count and threshold > MIN_TOP_PEERS:
            threshold = max(MIN_TOP_PEERS, threshold / 4)
            found = self._super_hosts(threshold)
        return found.select(slice(0, count))

    def _least_listed(self) -> float:
        return MIN_TOP_PEERS
