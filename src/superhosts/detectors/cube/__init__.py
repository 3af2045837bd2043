"""The labelled cube, the default detector: a cube of bit columns whose labels name the hosts.

Restoring needs no join and makes no phantoms: only a host that was really seen can be named. The cost is linear in
the hot columns, and every key width works the same.
"""

from __future__ import annotations

import numpy as np

from superhosts.detectors.base import Arrays
from superhosts.detectors.columns import Counts, Words
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.cube.addressing import lowest_priority
from superhosts.detectors.cube.cpu import Search, Store, fill, measure, name_hosts
from superhosts.detectors.cube.geometry import Geometry
from superhosts.detectors.pending import Task
from superhosts.device import run_parallel, split_evenly
from superhosts.planning import prefix_test, unnamed_probability, zero_limit

__all__ = ["Cube", "Geometry"]

MISS = 24  # a host whose best pair has a lower priority than 1 − 24/θ is missed once in e^24


class Cube(ColumnSketch):
    """A labelled cube for 32-, 64- or 128-bit hosts. See `Geometry` for its sizes."""

    name = "cube"
    geometry: Geometry

    def __init__(
        self,
        memory: str | int = "128MiB",
        *,
        key_bits: int = 32,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        geometry = Geometry.for_memory(memory, key_bits) if geometry is None else geometry.check()
        super().__init__(geometry, key=key, device=device, threads=threads)
        self.labels: Words = np.zeros((geometry.total_columns, geometry.labels, geometry.limbs), np.uint64)

    @property
    def _store(self) -> Store:
        return Store(self.bits, self.zeros, self.labels)

    def _write(self, task: Task) -> None:
        fill(task, self.pending.pool, self._store, self.geometry, self.key)

    def _search(self, threshold: float) -> tuple[Words, Counts]:
        geometry = self.geometry
        prefix = prefix_test(geometry.column_bits, threshold)
        priority = max(lowest_priority(geometry.share_bits), int((1 - MISS / threshold) * (1 << 32)))
        search = Search(zero_limit(geometry.column_bits, threshold), priority, prefix.words, prefix.ones)
        spans = split_evenly(geometry.total_columns, 4 * self.threads if self.threads > 1 else 1)
        calls = [(span, self._store, search, geometry, self.key) for span in spans]
        hosts, counts = zip(*run_parallel(name_hosts, calls, self.threads), strict=True)
        return np.concatenate(hosts), np.concatenate(counts)

    def _measure(self, mangled: Words) -> Counts:
        return measure(mangled, self._store, self.geometry, self.key)

    def _array_edges(self) -> list[int]:
        return [array * self.geometry.columns for array in range(self.geometry.arrays + 1)]

    def _unnamed(self, threshold: float, pairs: float) -> float:
        labels = self.geometry.columns << (self.geometry.slice_bits + self.geometry.label_bits)
        return unnamed_probability(pairs / labels, threshold, self.geometry.arrays, 2.0**-self.geometry.share_bits)

    def merge(self, other: Cube) -> None:
        """OR the columns and take the larger of each label."""
        super().merge(other)
        np.maximum(self.labels, other.labels, out=self.labels)

    def arrays(self) -> Arrays:
        """Return columns and labels."""
        return {**super().arrays(), "labels": self.labels}
