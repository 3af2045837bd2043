"""The base of the cube and CBAA: bit columns in slices, merged by OR and measured by zero counts.

The two differ in only two respects: where a pair is written (addressing) and how hosts are recovered. The columns of
some hosts are enough to estimate these from a file (`StoredColumns`).
"""

from __future__ import annotations

import math
import sys
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from superhosts.core.device import choose_device
from superhosts.core.hashing import Key, fingerprint, make_key, mangle_column, secret_of
from superhosts.core.pairs import Addresses, Batches, Host, HostKeys, format_for, numbers_to_array, words_to_column
from superhosts.core.results import SuperHosts
from superhosts.core.text import counted, either
from superhosts.cubefile.container import CodedBlock, Take
from superhosts.detectors.arguments import check_threads
from superhosts.detectors.detector import Detector
from superhosts.detectors.engines.base import (
    NOT_COMPILED,
    Arrays,
    ArrayShape,
    Counts,
    CrowdedError,
    Engine,
    Plan,
    Sums,
    Words,
    make_engine,
    say_once,
)
from superhosts.detectors.engines.cpu import count_zeros, sum_arrays
from superhosts.detectors.estimate import Estimate, Evidence, Floats, estimate
from superhosts.detectors.formulas import SLACK, noise_ratio, saturation_point
from superhosts.detectors.lock import locked, state_of
from superhosts.detectors.stored import Kind
from superhosts.errors import GpuMemoryError, ThresholdWarning

# Of hosts that are found with fewer peers than this many standard deviations of the noise, a tenth or more is false.
MIN_DEVIATIONS = 4
MAX_UNNAMED = 0.01  # share of hosts at the threshold that may stay unnamed without a warning
MIN_TOP_PEERS = 16  # lowest threshold that `top` searches; below it, labels and columns are mostly noise


def warn_caller(text: str) -> None:
    """Warn about a line of the caller, the first outside this package."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").startswith("superhosts."):
        level += 1
    warnings.warn(text, ThresholdWarning, stacklevel=level + 1)


class Fill(NamedTuple):
    mean: float  # share of set bits
    fullest: float  # share of set bits of the fullest column
    saturated: int  # columns without a zero bit
    pairs: int  # estimated number of distinct pairs


class EngineDetector(Detector):
    """A detector whose bits an engine stores: on the CPU, on a GPU, or on several GPUs."""

    cpu_engine: ClassVar[type[Any]]
    engine: Engine
    key: Key
    device: str

    @abstractmethod
    def _on_gpu(self, plan: Plan, gpu: int) -> Engine: ...

    @abstractmethod
    def search_for(self, threshold: float) -> Any:
        """Return the limits that a host with at least `threshold` peers satisfies, as `engine.search` takes them."""

    @property
    def _engine_geometry(self) -> Any:
        return self.geometry

    def _make_engine(self) -> Engine:
        plan = Plan(self._engine_geometry, self.key, self.threads, self.tuning)
        return make_engine(plan, self.device, self.cpu_engine, self._on_gpu)

    def _memory(self) -> int:
        return self.engine.size

    def _least_listed(self) -> float:
        return MIN_TOP_PEERS

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self._update_many([(hosts, peers)])

    def _update_many(self, batches: Batches) -> None:
        self.engine.update_batches(batches)

    def _flush(self) -> None:
        self.engine.flush()

    def _clear(self) -> None:
        self.engine.clear()

    def _merge(self, other: Self) -> None:
        self.engine.merge(other.engine)

    def _arrays(self) -> Arrays:
        return self.engine.arrays()

    def _copy(self) -> Self:
        engine = self._make_engine()
        engine.copy_from(self.engine)
        return self._with_state({**state_of(self), "engine": engine})


class ColumnSketch(EngineDetector):
    """A sketch of bit columns in an engine. Subclasses define where a pair is written and how hosts are found."""

    _ways_out: ClassVar[str] = "a higher threshold, more memory or shorter windows"  # of a sketch that is too full
    slack: ClassVar[float] = SLACK  # Estimates up to this much below a threshold count as reaching it.

    def __init__(self, geometry: Any, *, key: bytes | str | None, device: str, threads: int | None) -> None:
        self._describe(geometry.check(), secret_of(key), check_threads(threads))
        self.device = self._choose_device(device)
        try:
            self.engine = self._make_engine()
        except GpuMemoryError:
            if device != "auto":
                raise
            self._use_cpu()
        if device == "auto" and not self.engine.is_compiled():
            say_once(f"the GPU is not used: {NOT_COMPILED}")
            self._use_cpu()

    def _describe(self, geometry: Any, secret: bytes, threads: int) -> None:
        self.geometry, self.threads, self.format = geometry, threads, format_for(geometry.key_bits)
        self.fingerprint, self.key = fingerprint(secret), make_key(secret)

    def _use_cpu(self) -> None:
        self.device = "cpu"
        self.engine = self._make_engine()

    def _choose_device(self, device: str) -> str:
        return choose_device(device)

    def _narrows(self) -> bool:
        return self.engine.narrows

    # Files

    @classmethod
    def _file_shapes(cls, kind: Kind) -> tuple[dict[str, ArrayShape], ...]:
        return (kind.geometry.array_shapes(),)

    @classmethod
    def _loaded_memory(cls, kind: Kind, sides: Mapping[str, Sequence[int]]) -> int:
        return int(kind.geometry.memory)

    @classmethod
    def _stored_hosts(
        cls, kind: Kind, secret: bytes, hosts: Addresses, sides: Mapping[str, Sequence[int]]
    ) -> StoredColumns | None:
        return StoredColumns(cls, kind, secret, hosts)

    def _buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        return self._arrays()  # They are filled in place.

    def _load_arrays(self, arrays: Arrays) -> None:
        self.engine.load(arrays)

    def _block_takers(self) -> dict[str, Take] | None:
        return self.engine.block_takers()

    # Estimates

    def _unnamed(self, threshold: float, pairs: float) -> float:
        """Return the share of hosts with `threshold` peers that cannot be named in a sketch of `pairs` pairs."""
        return 0.0

    def _estimate(self, evidence: Evidence) -> Estimate:
        return estimate(evidence, self.geometry.rows)

    def _estimates(self, mangled: Words, counts: Counts) -> Estimate:
        return self._estimate(self._evidence(mangled, counts))

    @property
    def _most_peers(self) -> int:
        return saturation_point(self.geometry.rows)

    def _super_hosts(self, threshold: float) -> SuperHosts:
        found = self._find(threshold)
        self._warn(threshold)
        self._warn_if_overfull(found)
        return found

    def _warn(self, threshold: float) -> None:
        rows, total = self.geometry.rows, self.geometry.edges[-1] << self.geometry.slice_bits
        mean = max(self._zero_share() * rows, 1.0) / rows
        pairs = -rows * math.log(mean) * total / self.geometry.arrays  # a lower bound
        unnamed = self._unnamed(threshold, pairs)
        if unnamed > MAX_UNNAMED and pairs:
            remedy = "use more memory or a higher threshold"
            if self._unnamed(threshold, 0.0) > MAX_UNNAMED:  # Too few pairs compete, even when the sketch is empty.
                plan = f"superhosts plan --flows COUNT --threshold {threshold:g} prints a geometry for this threshold"
                python = f"plan the geometry for this threshold with Cube(memory, flows=…, threshold={threshold:g})"
                remedy = either(plan, python)
            text = f"about {unnamed:.0%} of hosts with this many peers cannot be named; {remedy}"
            warn_caller(f"threshold {threshold:g} is low for this {self.name}; {text}")
        if threshold > self._most_peers:
            text = f"hosts with more than {self._most_peers:,} peers cannot be measured; all are reported"
            warn_caller(f"threshold {threshold:g} is high for this {self.name}: {text}")

    def _zero_share(self) -> float:
        columns = self.geometry.edges[-1] << self.geometry.slice_bits
        return float(self.engine.zero_sums().sum() / columns / self.geometry.rows)

    def _warn_if_overfull(self, found: SuperHosts) -> None:
        """Warn if so many bits are set that hosts with few peers look like the smallest of those found."""
        if not len(found):
            return
        smallest = int(found.peers.min())
        fills = self._mean_fills()
        quick = fills.max(axis=0)  # The fullest columns bound the noise, and take less time than all.
        # Every host that was seen has a peer.
        if smallest != 1 and all(smallest < MIN_DEVIATIONS * self._noise(some) for some in (quick, fills)):
            state = f"({math.floor(100 * (1 - self._zero_share()))} % of its bits are set)"
            effect = f"for hosts with {smallest:,} peers: many of them may be false"
            if smallest == 0:  # the lower bound of a saturated host
                effect = "to measure hosts: saturated ones may have any number of peers"
            text = f"this {self.name} is too full {state} {effect}"
            warn_caller(f"{text}; use {self._ways_out}")

    def _noise(self, fills: Floats) -> float:
        """Return the standard deviation, in peers, of the estimate for a small host in columns so full on average."""
        # With a single array the estimator takes the mean fill for the noise.
        ratios = noise_ratio(fills.T) if self.geometry.arrays > 1 else fills.T[0] / np.maximum(1 - fills.T[0], 1e-9)
        return math.sqrt(self.geometry.rows * float(ratios.mean()))

    def _find(self, threshold: float) -> SuperHosts:
        mangled, counts = search_columns(self, threshold)
        found = self._estimates(mangled, counts)
        # Only a lower bound is known of saturated hosts.
        keep = np.flatnonzero((found.peers >= threshold - self.slack) | found.saturated)
        return self._result(mangled.take(keep, 0), found.select(keep))

    def _result(self, mangled: Words, found: Estimate) -> SuperHosts:
        hosts = mangle_column(mangled, self.key_bits, True, self.key)
        return self._rows(words_to_column(hosts, self.key_bits), found)

    def _rows(self, hosts: Addresses, found: Estimate, *, sort: bool = True) -> SuperHosts:
        peers = np.rint(found.peers).astype(np.int64)
        result = SuperHosts(hosts, peers, found.low, found.high, found.saturated, sort=sort)
        result.format = self.format
        return result

    def _evidence(self, mangled: Words, counts: Counts) -> Evidence:
        slices = mangled[:, 1] & np.uint64((1 << self.geometry.slice_bits) - 1)
        return Evidence(counts[:, :-1], counts[:, -1], self._mean_fills().take(slices.view(np.int64), 0))

    def _mean_fills(self) -> Floats:
        """Return the share of set bits of every array (second axis) in every slice (first axis)."""
        fills: Floats = 1.0 - self.engine.zero_sums() / bits_of_arrays(tuple(self.geometry.edges), self.geometry.rows)
        return fills

    def _top(self, count: int) -> SuperHosts:
        found = self._largest(count)
        self._warn_if_overfull(found)
        return found

    def _largest(self, count: int) -> SuperHosts:
        plain = self.geometry.edges[-1] << self.geometry.slice_bits
        fullest = max(1, int(self.engine.zeros()[:plain].min()))
        threshold = max(MIN_TOP_PEERS, self.geometry.rows * math.log(self.geometry.rows / fullest) / 4)
        found = self._find(threshold)
        while len(found) < count and threshold > MIN_TOP_PEERS:
            threshold = max(MIN_TOP_PEERS, threshold / 4)
            found = self._find(threshold)
        return found.select(slice(0, count))

    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        mangled = self.mangle(hosts)
        return self._rows(hosts, self._estimates(mangled, self.engine.measure(mangled)), sort=False)

    def _columns_of(self, host: str | int | Host) -> list[dict[str, Any]]:
        """Return the fill of each column of a host and the mean fill of its array; last, the fill of their AND."""
        mangled = self.mangled(host)
        evidence = self._evidence(mangled, self.engine.measure(mangled))
        fills = 1 - evidence.zeros[0] / self.geometry.rows
        columns: list[dict[str, Any]] = [
            {"array": array, "fill": float(fill), "mean_fill": float(mean)}
            for array, (fill, mean) in enumerate(zip(fills, evidence.fills[0], strict=True))
        ]
        union = 1 - float(evidence.common[0]) / self.geometry.rows
        return [*columns, {"array": "all (AND)", "fill": union, "mean_fill": None}]

    def mangled(self, host: str | int | Host) -> Words:
        return self.mangle(numbers_to_array([self.format.to_number(host)], self.key_bits))

    def mangle(self, hosts: Addresses) -> Words:
        rows = np.zeros((len(hosts), 2), np.uint64)
        rows[:, -hosts.ndim :] = hosts if hosts.ndim == 2 else hosts[:, None]
        return mangle_column(rows, self.key_bits, False, self.key)

    @locked
    def fill(self) -> Fill:
        """Return how full the sketch is."""
        rows, plain = self.geometry.rows, self.geometry.edges[-1] << self.geometry.slice_bits
        zeros = self.engine.zeros()[:plain]
        pairs = -rows * float(np.log(np.maximum(zeros, 1) / rows).sum()) / self.geometry.arrays
        fullest, saturated = int(zeros.min()), int((zeros == 0).sum())
        return Fill(1 - float(zeros.mean()) / rows, 1 - fullest / rows, saturated, round(pairs))

    def _description(self) -> list[str]:
        fill = self.fill()
        return [*super()._description(), f"about {counted(fill.pairs, 'pair')}", f"{fill.mean:.1%} of bits set"]

    @property
    @locked
    def bits(self) -> Words:
        """Copy of the columns of all arrays and slices."""
        return self._arrays()["bits"].copy()

    @property
    @locked
    def zeros(self) -> Counts:
        """Copy of the zero counts of all columns."""
        return self.engine.zeros().copy()


def search_columns(sketch: Any, threshold: float) -> tuple[Words, Counts]:
    """Return mangled hosts that may have `threshold` peers (larger ones only in a full sketch), and zeros."""
    lowest, rows = threshold, sketch.geometry.rows
    found: tuple[Words, Counts] = np.empty((0, 2), np.uint64), np.empty((0, sketch.geometry.arrays + 1), np.int32)
    effect = "no host can be distinguished from the others"
    while lowest <= max(threshold, rows * math.log(2 * rows)):
        try:
            found = sketch.engine.search(sketch.search_for(lowest))
        except CrowdedError:
            lowest *= 2
            continue
        if lowest == threshold:
            return found
        effect = f"the search was limited to hosts with about {lowest:g} or more peers"
        break
    too_full = f"this {sketch.name} is too full for threshold {threshold:g}"
    warn_caller(f"{too_full}: {effect}; use more memory or shorter windows")
    return found


@cache
def bits_of_arrays(edges: tuple[int, ...], rows: int) -> Floats:
    return np.diff(np.array(edges, np.float64)) * rows


class StoredColumns:
    """Estimates some hosts of a column sketch in a file; loads only their columns and the zero counts of all.

    It is the part of an engine that estimates need.
    """

    def __init__(self, detector: type[ColumnSketch], kind: Kind, secret: bytes, hosts: Addresses) -> None:
        self.geometry: Any = kind.geometry
        # The constructor of the sketch is not called, because its engine would allocate all columns.
        make: Any = detector.__new__
        self._sketch = make(detector)
        self._sketch._describe(kind.geometry, secret, 1)
        self._sketch.device, self._sketch.format, self._sketch.engine = "cpu", kind.format, self
        self.key, self._engine, self._hosts = self._sketch.key, detector.cpu_engine, hosts
        self._mangled = self._sketch.mangle(hosts)
        columns = [self._engine.columns_of(self._mangled, self.geometry, self.key)]
        if self.geometry.total_columns > self.geometry.edges[-1] << self.geometry.slice_bits:
            columns.append(self._engine.giant_columns_of(self._mangled, self.geometry, self.key))
        self._columns = np.array(columns)  # (plain and giant, hosts, arrays)
        self._kept, rows = np.unique(self._columns, return_inverse=True)
        self._rows = rows.reshape(self._columns.shape)
        self._bits: Words = np.zeros((len(self._kept), self.geometry.words), np.uint64)
        self._zeros: Counts = np.full(self.geometry.total_columns, self.geometry.rows, np.int32)
        self.takers: Mapping[str, Take] = {"bits": self._take_block}

    def _take_block(self, start: int, stop: int, block: CodedBlock) -> None:
        words = self.geometry.words
        columns = np.empty((stop - start) // words * words, np.uint64)  # A block consists of whole columns.
        block.put(columns)
        self.take_columns(start // words, columns.reshape(-1, words))

    def take_columns(self, first: int, matrix: Words) -> None:
        """Count the zeros of the columns from `first` on and keep those of the requested hosts."""
        last = first + len(matrix)
        count_zeros(matrix, self._zeros[first:last], 0, len(matrix))
        a, b = np.searchsorted(self._kept, (first, last))
        np.take(matrix, self._kept[a:b] - first, axis=0, out=self._bits[a:b], mode="clip")  # copies once

    def measure(self, mangled: Words) -> Counts:
        return self._measure(mangled, 0)

    def measure_giants(self, mangled: Words) -> Counts:
        return self._measure(mangled, 1)

    def _measure(self, mangled: Words, which: int) -> Counts:
        """Measure all hosts or some, in plain (0) or giant columns (1)."""
        some: Any = slice(None)
        if len(mangled) < len(self._mangled):
            number = {host: i for i, host in enumerate(map(tuple, self._mangled.tolist()))}
            some = [number[host] for host in map(tuple, mangled.tolist())]
        common = self._engine.common_zeros(mangled, self._rows[which][some], self._bits, self.geometry, self.key)
        return np.column_stack((self._zeros[self._columns[which][some]], common))

    def zero_sums(self) -> Sums:
        return sum_arrays(self._zeros, self.geometry)

    def answer(self) -> SuperHosts:
        """Return the numbers of peers, in the order in which the caller named the hosts."""
        found: SuperHosts = self._sketch.estimate_many(HostKeys(self._hosts))
        return found
