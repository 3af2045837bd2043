"""DCDS (Wang, Guan and others, 2011): columns by coprime moduli, addresses by the Chinese remainder theorem.

The number of bit columns of an array is its modulus. A pair sets one bit, in the same row of the host's column in each
array. The search combines hot columns of the reversible arrays; each combination is at most one address, and the
validating arrays and the number of ones in the AND of all columns decide. As published, the AND is attributed entirely
to the host: the noise of other hosts is not removed. The confidence interval is that of linear counting and ignores the
noise too, so it is too high if columns are crowded.

The published setting is H = 2 reversible arrays and one validating array of 2^16 columns of 2^14 rows, 384 MiB. Here
the moduli are the primes just above 2^16: the product of two exceeds 2^32, so a pair of columns is at most one address.
"""

from __future__ import annotations

import numpy as np

from superhosts.detectors.arguments import check_no_conflict
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.engines.base import Engine, Plan
from superhosts.detectors.estimate import Estimate, Evidence, estimate_by_mean
from superhosts.detectors.plan import prefix_test, zero_limit
from superhosts.lab.rivals.dcds.cpu import CpuDcds
from superhosts.lab.rivals.dcds.geometry import Geometry, Search

__all__ = ["Dcds", "Geometry"]


class Dcds(ColumnSketch):
    """Columns by coprime moduli for 32-bit hosts, of the published 384 MiB by default."""

    name = "dcds"
    geometry: Geometry
    geometry_type = Geometry
    cpu_engine = CpuDcds

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
            geometry = Geometry() if memory is None else Geometry.for_memory(memory)
        else:
            geometry = check_no_conflict(geometry, memory=memory)
        super().__init__(geometry, key=key, device=device, threads=threads)

    def _on_gpu(self, plan: Plan, gpu: int) -> Engine:
        from superhosts.lab.rivals.dcds.cuda import CudaDcds

        return CudaDcds(plan, gpu)

    def _search_for(self, threshold: float) -> Search:
        bits = self.geometry.column_bits
        return Search(zero_limit(bits, threshold), *prefix_test(bits, threshold))

    def _estimate(self, evidence: Evidence) -> Estimate:
        """Return n = v·ln(v/Z), without noise, as if no other host shared a column."""
        return estimate_by_mean(evidence._replace(fills=np.zeros_like(evidence.fills)), self.geometry.rows)
