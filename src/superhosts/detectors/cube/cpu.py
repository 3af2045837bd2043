"""The labelled cube on CPU threads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import Key
from superhosts.cubefile.coding import CodedBlock
from superhosts.detectors.cube.addressing import LINE_WORDS
from superhosts.detectors.cube.filling import MAX_CACHED_LINES, fetch, fill
from superhosts.detectors.cube.geometry import Geometry, Search
from superhosts.detectors.cube.hostrows import HostRows, Slice, write_labels, write_rows
from superhosts.detectors.cube.naming import Store, columns_of, common_zeros, name_hosts
from superhosts.detectors.engines.base import Arrays, Counts, Engine, Plan, Words
from superhosts.detectors.engines.bins import Bins, Pool, Task
from superhosts.detectors.engines.cpu import CpuEngine, by_rows, count_zeros
from superhosts.jit.cache import compiled
from superhosts.jit.pool import new_words


@compiled
def write_content(span: tuple[int, int], content: HostRows, store: Store, geometry: Geometry, key: Key) -> int:
    """Write hosts with their rows and labels to the slices in `span`, slice by slice.

    The result only keeps the compiler from dropping `fetch`.
    """
    columns, giants = geometry.arrays * geometry.columns, geometry.arrays * geometry.giants
    lines, fetched = columns * store.bits.shape[1] // LINE_WORDS, 0
    for number in range(span[0], span[1]):
        rows = 0
        for member in range(content.edges[number], content.edges[number + 1]):
            host = content.members[member]
            rows += content.starts[host + 1] - content.starts[host]
        if rows == 0:
            continue
        first, first_giant = number * columns, (columns << geometry.slice_bits) + number * giants
        if 2 * rows > lines and lines <= MAX_CACHED_LINES:
            fetched += fetch(store.bits, first, first + columns)
        bits = store.bits[first : first + columns], store.bits[first_giant : first_giant + giants]
        touched = write_rows(content, Slice(number, bits[0], bits[1]), geometry, key)
        write_labels(content, number, store.labels, geometry, key)
        for column in range(columns):
            if touched[column]:
                count_zeros(store.bits, store.zeros, first + column, first + column + 1)
        count_zeros(store.bits, store.zeros, first_giant, first_giant + giants)
    return fetched


def keep_larger(labels: Words, other: Words, into: Words) -> None:
    """Write the larger one of each two labels."""
    np.maximum(labels, other, out=into)


class CpuCube(CpuEngine):
    """A labelled cube in main memory."""

    def __init__(self, plan: Plan, bins: Bins | None = None, *, cleared: bool = True) -> None:
        super().__init__(plan, bins, cleared=cleared)
        geometry: Geometry = plan.geometry
        shape = geometry.plain_columns, geometry.labels, geometry.limbs
        self.labels: Words = new_words(shape, cleared=cleared)
        self.store = Store(self.bits, self.counts, self.labels)

    def _arrays(self) -> Arrays:
        return {"bits": self.bits, "labels": self.labels}

    common_zeros = staticmethod(common_zeros)

    @staticmethod
    def columns_of(mangled: Words, geometry: Geometry, key: Key) -> NDArray[np.int64]:
        """Return the plain columns of mangled hosts: one row per host, one column index per array."""
        return columns_of(mangled, False, geometry, key)

    @staticmethod
    def giant_columns_of(mangled: Words, geometry: Geometry, key: Key) -> NDArray[np.int64]:
        """Return the giant columns of mangled hosts: one row per host, one column index per array."""
        return columns_of(mangled, True, geometry, key)

    def write(self, task: Task) -> None:
        """Write the pairs of one thread's task."""
        self.write_from(task, self.bins.pool)

    def write_from(self, task: Task, pool: Pool) -> None:
        """Write the pairs of one thread's task, whose chunks are in any pool."""
        fill(task, pool, self.store, self.geometry, self.key)

    def merge(self, other: Engine) -> None:
        """OR the columns of another engine into these and keep the maximum of each label."""
        super().merge(other)
        self._unite_labels(self, other)

    def unite(self, one: Engine, other: Engine) -> None:
        """Become the union of two engines. This one must be new."""
        super().unite(one, other)
        self._unite_labels(one, other)

    def _unite_labels(self, one: Engine, other: Engine) -> None:
        by_rows(keep_larger, (one.arrays()["labels"], other.arrays()["labels"], self.labels), self.threads)

    def merge_block(self, name: str, start: int, stop: int, block: CodedBlock) -> None:
        """OR a stored block of columns into these, or keep the maximum of each label in a block of labels."""
        if block.is_empty:
            return
        if name == "labels":
            block.merge_max(self.labels.reshape(-1)[start:stop])
        else:
            super().merge_block(name, start, stop, block)

    def merge_rows(self, content: HostRows) -> None:
        """Set the bits and labels of hosts that a file lists with their rows."""
        self.flush()
        spans = split_evenly(1 << self.geometry.slice_bits, 4 * self.threads if self.threads > 1 else 1)
        calls = [(span, content, self.store, self.geometry, self.key) for span in spans]
        run_parallel(write_content, calls, self.threads)

    def search(self, search: Search) -> tuple[Words, Counts]:
        """Return the hosts that labels name and that pass the search, and their zero counts."""
        self.flush()
        spans = split_evenly(1 << self.geometry.slice_bits, 4 * self.threads if self.threads > 1 else 1)
        calls = [(span, self.store, search, self.geometry, self.key) for span in spans]
        hosts, counts = zip(*run_parallel(name_hosts, calls, self.threads), strict=True)
        return np.concatenate(hosts), np.concatenate(counts)
