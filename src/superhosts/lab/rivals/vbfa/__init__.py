"""VBFA, the vector Bloom filter (Liu, Qu, Gong and others, 2016).

VBFA has five arrays of bit columns. With b1 b2 b3 b4 the bytes of an address, four arrays use h1 = b1 and the high half
of b2, h2 = b2 and the high half of b3, h3 = b3 and the high half of b4, h4 = b4 and the high half of b1; the fifth uses
a hash of the address. So h1 to h4 are windows of 12 bits of the address as a ring, 8 bits apart, each with 4 bits of
the next: exactly CBAA's restoring arrays for one slice. CBAA's windows start at bits 0, 8, 16 and 24, those of h3, h2,
h1 and h4 at bits 4, 12, 20 and 28. Rotating an address right by 4 bits makes the two equal. VBFA therefore uses CBAA's
engines and kernels, with its own limits and estimates.

Addresses are mangled first, because otherwise all hosts of a network share h1. The rotation does not matter for mangled
addresses. Without mangling (`mangled=False`), windows are as published: each address is replaced by the host whose
mangled form is the rotated address. This happens in main memory, so pairs on a GPU are copied back for it.

The noise of other hosts is estimated from the fifth array alone: with v5 its mean share of zeros and m rows,
δ = −m·ln(v5·(2 − v5)), and n = m·ln(m/Z) − δ from the zeros Z of the AND. v5·(2 − v5) = 1 − (1 − v5)², so this is
the noise of two arrays although five are ANDed: hosts with full columns are underestimated. `noise="five"` uses
δ = −m·ln(1 − (1 − v5)^5). The confidence interval is that of linear counting with δ as the exact noise: it ignores the
error of δ itself, and that some columns are fuller than others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from superhosts.core.hashing import MASK32, mangle_column
from superhosts.core.pairs import Addresses, Batches
from superhosts.core.results import SuperHosts
from superhosts.detectors.arguments import check_no_conflict
from superhosts.detectors.cbaa.addressing import Search
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.engines.base import Engine, Plan, Words, to_host
from superhosts.detectors.estimate import Estimate, Evidence, estimate_by_mean
from superhosts.detectors.plan import prefix_test
from superhosts.lab.rivals.vbfa.cpu import CpuVbfa
from superhosts.lab.rivals.vbfa.geometry import Geometry, Noise, Reading

__all__ = ["Geometry", "Vbfa"]


class Vbfa(ColumnSketch):
    """The vector Bloom filter for 32-bit hosts.

    `reading` is one of three interpretations of the published setting (see `Geometry.reading`); `memory` makes its
    columns shorter or longer. The module's docstring explains `noise` and `mangled`. A `geometry` replaces all four.
    """

    name = "vbfa"
    geometry: Geometry
    geometry_type = Geometry
    cpu_engine = CpuVbfa

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        reading: Reading | None = None,
        noise: Noise | None = None,
        mangled: bool | None = None,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        if geometry is None:
            geometry = Geometry.reading(
                "published" if reading is None else reading,
                noise="two" if noise is None else noise,
                mangled=mangled is None or mangled,
            )
            geometry = geometry if memory is None else geometry.resized(memory)
        else:
            geometry = check_no_conflict(geometry, memory=memory, reading=reading, noise=noise, mangled=mangled)
        super().__init__(geometry, key=key, device=device, threads=threads)

    @property
    def engine_geometry(self) -> Any:
        """CBAA's geometry, because VBFA uses CBAA's engines."""
        return self.geometry.cube

    def _on_gpu(self, plan: Plan, gpu: int) -> Engine:
        from superhosts.detectors.cbaa.cuda import CudaCbaa

        return CudaCbaa(plan._replace(geometry=self.engine_geometry), gpu)

    def _noise(self) -> float:
        """Return the share of rows that other hosts set in the AND according to δ, which is −m·ln(1 − share)."""
        return min(1 - 1e-12, float(self._mean_fills()[0, -1]) ** self.geometry.noise_arrays)

    def _search_for(self, threshold: float) -> Search:
        rows, bits = self.geometry.rows, self.geometry.column_bits
        most = math.floor(rows * math.exp(-threshold / rows) * (1 - self._noise()))  # Zthr = m·e^(−(θ+δ)/m)
        return Search(np.array([most], np.int64), *prefix_test(bits, threshold))

    def _estimate(self, evidence: Evidence) -> Estimate:
        fills = np.full((len(evidence.common), 1), self._noise())
        return estimate_by_mean(evidence._replace(fills=fills), self.geometry.rows)

    # Support for addresses that are not mangled

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self._update_many([(hosts, peers)])

    def _update_many(self, batches: Batches) -> None:
        if not self.geometry.mangled:
            batches = [(self._unmangled(self._rotated(_as_rows(to_host(hosts)))), peers) for hosts, peers in batches]
        super()._update_many(batches)

    def mangle(self, hosts: Addresses) -> Words:
        """Return addresses in the engine's form: mangled, or rotated if this sketch does not mangle."""
        return super().mangle(hosts) if self.geometry.mangled else self._rotated(_as_rows(hosts))

    def _result(self, mangled: Words, found: Estimate) -> SuperHosts:
        if not self.geometry.mangled:
            mangled = mangle_column(self._rotated(mangled, back=True), 32, False, self.key)
        return super()._result(mangled, found)

    def _rotated(self, rows: Words, *, back: bool = False) -> Words:
        """Return 32-bit addresses rotated right, or with `back`, rotated left to undo this."""
        rotation = np.uint64((32 - self.geometry.rotation if back else self.geometry.rotation) % 32)
        return (rows >> rotation | rows << np.uint64(32) - rotation) & np.uint64(MASK32)

    def _unmangled(self, rows: Words) -> Addresses:
        """Return the hosts that have these mangled forms."""
        return mangle_column(rows, 32, True, self.key)[:, 1].astype(np.uint32)


def _as_rows(hosts: Addresses) -> Words:
    """Return 32-bit addresses as rows (high word, low word)."""
    return np.stack([np.zeros(len(hosts), np.uint64), hosts.astype(np.uint64)], axis=1)
