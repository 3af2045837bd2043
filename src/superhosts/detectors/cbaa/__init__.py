"""CBAA, the paper's detector: a cube of bit arrays whose column numbers encode the hosts' addresses.

`Cbaa` is the paper's algorithm with its errata corrected, with two half-size validating arrays instead of one, and with
the estimator of `detectors.estimate`. `Cbaa.paper()` keeps the paper's own choices, which
docs/explanation/paper.md lists.
"""

from __future__ import annotations

import math

import numpy as np

from superhosts.core.defaults import MEMORY
from superhosts.detectors.arguments import check_no_conflict
from superhosts.detectors.cbaa.cpu import CpuCbaa
from superhosts.detectors.cbaa.geometry import Geometry, Search
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.engines.base import Engine, Plan
from superhosts.detectors.estimate import Estimate, Evidence, estimate_by_mean
from superhosts.detectors.plan import prefix_test, zero_limit

__all__ = ["Cbaa", "Geometry", "PaperCbaa"]


class Cbaa(ColumnSketch):
    """The paper's cube of bit arrays for 32-bit hosts, of 128 MiB by default."""

    name = "cbaa"
    geometry: Geometry
    geometry_type = Geometry
    cpu_engine = CpuCbaa

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
            geometry = self._geometry_for(MEMORY if memory is None else memory)
        else:
            geometry = check_no_conflict(geometry, memory=memory)
        super().__init__(geometry.check(), key=key, device=device, threads=threads)

    @classmethod
    def _geometry_for(cls, memory: str | int) -> Geometry:
        return Geometry.for_memory(memory)

    @staticmethod
    def paper(*, key: bytes | str | None = None, device: str = "auto", threads: int | None = None) -> PaperCbaa:
        """Return the detector exactly as in the paper: its geometry, rows by peer, its noise and its threshold."""
        return PaperCbaa(geometry=Geometry.paper(), key=key, device=device, threads=threads)

    def _on_gpu(self, plan: Plan, gpu: int) -> Engine:
        from superhosts.detectors.cbaa.cuda import CudaCbaa

        return CudaCbaa(plan, gpu)

    def _limits(self, threshold: float) -> list[int]:
        """Return the maximum number of zeros that a super host leaves, for each slice."""
        return [zero_limit(self.geometry.column_bits, threshold)] * (1 << self.geometry.slice_bits)

    def _search_for(self, threshold: float) -> Search:
        prefix = prefix_test(self.geometry.column_bits, threshold)
        return Search(np.array(self._limits(threshold), np.int64), prefix.words, prefix.ones)


class PaperCbaa(Cbaa):
    """CBAA exactly as in the paper, except for what cannot run as printed."""

    name = "cbaa-paper"
    slack = 0.0

    @classmethod
    def _geometry_for(cls, memory: str | int) -> Geometry:
        return Geometry.for_memory(memory)._replace(validating=1, validating_bits=12, rows_by_peer=1)

    def _limits(self, threshold: float) -> list[int]:
        """Return θ_bn as printed in the paper: g(1+ε)e^(−θ/g) − gε, with ε the product of the arrays' mean fills."""
        noise = self._mean_fills().prod(axis=1)
        free = math.exp(-threshold / self.geometry.rows)
        return [math.floor(self.geometry.rows * ((1 + e) * free - e)) for e in noise]

    def _estimate(self, evidence: Evidence) -> Estimate:
        return estimate_by_mean(evidence, self.geometry.rows)
