"""The labelled cube, the default detector: a cube of bit columns with labels that name hosts.

Recovering hosts needs no join and yields no phantoms, because labels name only hosts that were really seen. The cost is
linear in the number of hot columns, and the method is the same for hosts of any width.
"""

from __future__ import annotations

from collections.abc import Callable

from superhosts.defaults import MEMORY
from superhosts.detectors.arguments import check_key_bits, check_no_conflict
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.cube.addressing import lowest_priority
from superhosts.detectors.cube.cpu import CpuCube, fill, labelled_hosts
from superhosts.detectors.cube.geometry import Geometry, Search
from superhosts.detectors.kinds import Kind
from superhosts.detectors.locking import locked
from superhosts.engines.arrays import Words
from superhosts.engines.base import Engine, Plan
from superhosts.hashing import make_key, mangle_column
from superhosts.planning import MISS_EXPONENT, prefix_test, unnamed_probability, zero_limit

__all__ = ["Cube", "Geometry"]


class Cube(ColumnSketch):
    """A labelled cube for 32-, 64- or 128-bit hosts, of 128 MiB by default. `Geometry` describes its sizes.

    If `flows` (distinct pairs per window) or `threshold` is given, the geometry is planned for it.
    """

    name = "cube"
    takes_ipv6 = True
    geometry: Geometry
    geometry_type = Geometry
    compiled_update = fill
    takes_geometry = True
    cpu_engine = CpuCube

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        key_bits: int | None = None,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Geometry | None = None,
        flows: str | int | None = None,
        threshold: float | None = None,
    ) -> None:
        if geometry is not None:
            check_no_conflict(geometry, memory=memory, key_bits=key_bits, flows=flows, threshold=threshold)
        else:
            size, bits = MEMORY if memory is None else memory, check_key_bits(key_bits)
            if flows is None and threshold is None:
                geometry = Geometry.for_memory(size, bits)
            else:
                geometry = Geometry.for_traffic(size, bits, flows=flows, threshold=threshold)
        super().__init__(geometry, key=key, device=device, threads=threads)

    def _on_gpu(self, plan: Plan, gpu: int) -> Engine:
        from superhosts.detectors.cube.cuda import CudaCube

        return CudaCube(plan, gpu)

    def _search_for(self, threshold: float) -> Search:
        geometry = self.geometry
        first = prefix_test(geometry.column_bits, threshold)
        second = prefix_test(geometry.column_bits, threshold, 4 * 60)
        priority = max(lowest_priority(geometry.share_bits), int((1 - MISS_EXPONENT / threshold) * (1 << 32)))
        return Search(zero_limit(geometry.column_bits, threshold), priority, *first, *second)

    def _unnamed(self, threshold: float, pairs: float) -> float:
        labels = self.geometry.columns << (self.geometry.slice_bits + self.geometry.label_bits)
        return unnamed_probability(pairs / labels, threshold, self.geometry.arrays, 2.0**-self.geometry.share_bits)

    @classmethod
    def shown_hosts(cls, kind: Kind, secret: bytes, read: Callable[[str], Words]) -> Words | None:
        """Return the last words of the hosts that labels name."""
        mangled = labelled_hosts(read("labels"))
        return mangle_column(mangled, kind.format.key_bits, True, make_key(secret))[:, 1] if len(mangled) else None

    @property
    @locked
    def labels(self) -> Words:
        """Copy of the labels of all columns."""
        return self._arrays()["labels"].copy()
