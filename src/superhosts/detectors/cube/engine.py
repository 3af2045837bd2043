"""The engines of a cube: the dense one on CPU threads (`CpuCube`), and the two states of a cube (`Stages`).

The two states are a set of distinct pairs as long as they fit, then bit columns with labels ("Exact while it fits" in
docs/explanation/decisions.md). While the pairs are a set, the dense form is made temporarily where its arrays are asked
for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import Key, mangle_column
from superhosts.core.pairs import Addresses, Batches, words_to_column
from superhosts.cubefile.container import CodedBlock, Take
from superhosts.detectors.cube.addressing import LINE_WORDS
from superhosts.detectors.cube.fill import MAX_CACHED_LINES, fetch, fill
from superhosts.detectors.cube.geometry import Geometry, Search
from superhosts.detectors.cube.rowform import HostRows, Slice, write_labels, write_rows
from superhosts.detectors.cube.search import Store, columns_of, common_zeros, name_hosts
from superhosts.detectors.engines.base import (
    Arrays,
    AutoGpu,
    Counts,
    Engine,
    Front,
    Plan,
    Words,
    make_engine,
    pieces_of,
    say_once,
    to_host,
)
from superhosts.detectors.engines.bins import UNSEEN, Bins, Portion, narrow_batches, unpack_all
from superhosts.detectors.engines.cpu import CpuEngine, by_rows, count_zeros, make_bins
from superhosts.detectors.engines.pairset import PairSet
from superhosts.jit.cache import compiled
from superhosts.jit.memory import new_words


@compiled
def write_content(span: tuple[int, int], content: HostRows, store: Store, geometry: Geometry, key: Key) -> int:
    """Write hosts with their rows and labels, slice by slice. The result keeps the compiler from dropping `fetch`."""
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


class CpuCube(CpuEngine):
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
        return columns_of(mangled, False, geometry, key)

    @staticmethod
    def giant_columns_of(mangled: Words, geometry: Geometry, key: Key) -> NDArray[np.int64]:
        return columns_of(mangled, True, geometry, key)

    def write(self, portion: Portion) -> None:
        fill(portion, self.store, self.geometry, self.key)

    def unite(self, one: Engine, other: Engine) -> None:
        super().unite(one, other)
        labels = one.arrays()["labels"], other.arrays()["labels"], self.labels
        by_rows(lambda one, other, into: np.maximum(one, other, out=into), labels, self.threads)

    def merge_block(self, name: str, start: int, stop: int, block: CodedBlock) -> None:
        if block.is_empty:
            return
        if name == "labels":
            block.merge_max(self.labels.reshape(-1)[start:stop])
        else:
            super().merge_block(name, start, stop, block)

    def merge_rows(self, content: HostRows) -> None:
        self.flush()
        spans = split_evenly(1 << self.geometry.slice_bits, 4 * self.threads if self.threads > 1 else 1)
        calls = [(span, content, self.store, self.geometry, self.key) for span in spans]
        run_parallel(write_content, calls, self.threads)

    def search(self, search: Search) -> tuple[Words, Counts]:
        self.flush()
        spans = split_evenly(1 << self.geometry.slice_bits, 4 * self.threads if self.threads > 1 else 1)
        calls = [(span, self.store, search, self.geometry, self.key) for span in spans]
        hosts, counts = zip(*run_parallel(name_hosts, calls, self.threads), strict=True)
        return np.concatenate(hosts), np.concatenate(counts)


PIECE = 1 << 22  # pairs that are added at once: when the set overflows, the others go to the GPU directly


class Stages(Front):
    """A set of pairs, or the dense engine that replaced it."""

    geometry: Geometry

    def __init__(self, plan: Plan, device: str, auto: AutoGpu) -> None:
        """Start as an empty set. With device "auto", a dense engine is on the CPU until `auto` has the GPU ready."""
        super().__init__(plan)
        self.plan, self._asked, self.auto = plan, device, auto
        self._start()

    def _start(self) -> None:
        self.device = "cpu" if self._asked == "auto" else self._asked  # where the dense engine is, or will be
        self.dense: Engine | None = None
        self.bins: Bins | None = make_bins(self.plan, grows=True)
        self.pairs: PairSet | None = PairSet(self.bins, self.geometry.exact_pairs)

    @property
    def narrows(self) -> bool:  # type: ignore[override]
        """Return True unless the dense engine is, or may soon be, on a GPU."""
        return self.dense is None or self._asked == "cpu"

    def settle(self) -> PairSet | None:
        """Write all pending pairs. Return the set if the cube is exact, else None."""
        pairs = self._drained()
        if pairs is None:
            self._finish()
        return pairs

    def _drained(self) -> PairSet | None:
        """Insert the pairs in the bins. Return the set, or None if it has too many pairs or is dense."""
        if self.pairs is None or self.dense is not None:
            return None
        self.pairs.drain()
        return None if self.pairs.is_over else self.pairs

    def densify(self) -> None:
        self.settle()
        self._finish()

    def _finish(self) -> None:
        if self.bins is not None:
            self._become_dense()
            self.bins = None

    def _become_dense(self) -> Engine:
        """Write all pairs of the set and of the bins to the dense engine. A call after an interrupted one continues."""
        dense = self._on_auto_gpu(self._write_all) if self.dense is None else None
        if dense is None:
            if self.dense is None:
                self.dense = make_dense(self.plan, self.device, self.bins)
            dense = self.dense
            self._write_all(dense)
        self.dense, self.pairs = dense, None
        if self.bins is not None and self.bins.pending:
            self.bins.done()
        return dense

    def _write_all(self, dense: Engine) -> None:
        """Write all pairs to a dense engine. If it is on a GPU, the set and the bins keep them."""
        if self.pairs is not None:
            write_pairs(self.pairs, dense, release=True)
        if isinstance(dense, CpuCube):
            dense.flush()  # The bins are its own.
        elif self.bins is not None and self.bins.pending:
            dense.update_batches([pair_columns(portion, dense) for portion in self.bins.take()])

    def _on_auto_gpu(self, fill: Callable[[Engine], None]) -> Engine | None:
        """Return a filled dense engine on the GPU of "auto"; None if it is not ready, or fails: the pairs are kept."""
        made = self.auto.engine(self.plan) if self._asked == "auto" else None
        if made is None:
            return None
        engine, device = made
        try:
            fill(engine)
            engine.flush()
        except Exception as error:
            self.auto.give_up(self.plan, error)
            return None
        say_once(f"a cube has more distinct pairs than it counts exactly: it goes on on the GPU ({device})")
        self.device = device
        return engine

    def _add_on_auto_gpu(self, batches: Batches) -> bool:
        """Move from the CPU to the GPU, with these batches, if that has become ready for "auto". Return True if so."""
        dense = self.dense
        if self._asked != "auto" or not isinstance(dense, CpuCube):
            return False

        def fill(engine: Engine) -> None:
            engine.load(dense.arrays())
            engine.update_batches(batches)  # They need memory too.

        moved = self._on_auto_gpu(fill)
        if moved is not None:
            self.dense = moved
        return moved is not None

    def _answering(self) -> Engine:
        """Return the dense engine; if the cube is exact, a temporary one."""
        pairs = self.settle()
        if pairs is None:
            assert self.dense is not None
            return self.dense
        temporary = CpuCube(self.plan)
        write_pairs(pairs, temporary)
        return temporary

    @property
    def size(self) -> int:
        return self.pairs.memory if self.pairs is not None else self._answering().size

    def update_batches(self, batches: Batches) -> None:
        for piece in pieces_of(batches, PIECE):
            if self.dense is not None:
                self._finish()
                narrow = piece if self.narrows else narrow_batches(piece, self.geometry.key_bits)  # for a GPU
                if not self._add_on_auto_gpu(narrow):
                    self.dense.update_batches(narrow)
                continue
            assert self.bins is not None
            self.bins.add([(to_host(hosts), to_host(peers)) for hosts, peers in piece], self._drain)
            if self.pairs is None:
                self._finish()  # The set overflowed, and the rest of the piece is in the bins.

    def _drain(self) -> None:
        if self._drained() is None:
            self._become_dense()

    def flush(self) -> None:
        if self.settle() is None and self.dense is not None:
            self.dense.flush()

    def clear(self) -> None:
        if self.pairs is not None and self.dense is None:
            self.pairs.clear()
        else:
            self._start()

    def copy(self) -> Stages:
        """Return an independent engine in the same state; with "auto", a dense one is on the GPU if that is ready."""
        pairs = self.settle()
        twin = Stages(self.plan, self._asked, self.auto)
        if pairs is None:
            assert self.dense is not None
            twin.copy_from(self.dense)
        else:
            assert twin.bins is not None
            twin.pairs = pairs.copy(twin.bins)
        return twin

    def merge(self, other: Engine) -> None:
        theirs = other.settle() if isinstance(other, Stages) else None
        mine = self.settle()
        if mine is not None and theirs is not None:
            mine.merge(theirs)
            if self.settle() is not None:
                return
        merge_dense(self._become_dense(), other)
        self.bins = None

    def united(self, other: Engine) -> Stages:
        """Return the union with another engine as a new one. Of two dense ones neither is copied first."""
        if self.settle() is not None or not isinstance(other, Stages) or other.settle() is not None:
            whole = self.copy()
            whole.merge(other)
            return whole
        mine, theirs = self._answering(), other._answering()
        whole = Stages(self.plan, self._asked, self.auto)
        whole.unite(mine, theirs)
        return whole

    def block_takers(self) -> dict[str, Take] | None:
        """Return functions that merge blocks of a file; None if the cube is exact, because what files hold is dense."""
        return None if self.settle() is not None else self._answering().block_takers()

    def load(self, arrays: Arrays) -> None:
        self._replace(lambda engine: engine.load(arrays))

    def copy_from(self, other: Engine) -> None:
        self._replace(lambda engine: engine.copy_from(other))

    def unite(self, one: Engine, other: Engine) -> None:
        self._replace(lambda engine: engine.unite(one, other))

    def _replace(self, fill: Callable[[Engine], None]) -> None:
        dense = self._on_auto_gpu(fill) if self.dense is None else None
        if dense is None:
            dense = self.dense or make_dense(self.plan, self.device, cleared=False)
            fill(dense)
        self.dense, self.pairs, self.bins = dense, None, None


def make_dense(plan: Plan, device: str, bins: Bins | None = None, *, cleared: bool = True) -> Engine:
    """Return an empty dense engine on a device. On the CPU it uses the given bins, and is `cleared` if need be."""
    return make_engine(plan, device, lambda plan: CpuCube(plan, bins, cleared=cleared), make_on_gpu)


def make_on_gpu(plan: Plan, gpu: int) -> Engine:
    """Return an empty dense engine on one GPU. CUDA is slow to load, so it is imported when it is needed."""
    from superhosts.detectors.cube.cuda import CudaCube

    return CudaCube(plan, gpu)


def merge_dense(dense: Engine, other: Engine) -> None:
    if not isinstance(other, Stages):
        dense.merge(other)
        return
    pairs = other.settle()
    if pairs is not None:
        write_pairs(pairs, dense)
    elif other.dense is not None:
        dense.merge(other.dense)


def write_pairs(pairs: PairSet, dense: Engine, *, release: bool = False) -> None:
    """Write a set of pairs to a dense engine. With `release`, a CPU engine frees the set's memory meanwhile."""
    if not isinstance(dense, CpuCube):
        batches: list[tuple[Addresses, Addresses]] = []
        pairs.pass_to(lambda portion: batches.append(pair_columns(portion, dense)), dense.threads)
        dense.update_batches(batches)
        return
    pairs.pass_to(dense.write, dense.threads, release=release)


def pair_columns(portion: Portion, dense: Engine) -> tuple[Addresses, Addresses]:
    """Return pairs as columns for an engine on a GPU, which mangles hosts itself."""
    mangled, peers = unpack_all(portion._replace(seen=UNSEEN))  # What a GPU that failed has taken comes again.
    hosts = words_to_column(mangle_column(mangled, dense.geometry.key_bits, True, dense.key), dense.geometry.key_bits)
    return hosts, peers.astype(np.uint32) if portion.width == 1 else peers
