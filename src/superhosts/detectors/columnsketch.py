"""What the cube and CBAA have in common: bit columns in slices, merged by OR, measured by zero counts.

Only two things are left to each: where a pair goes (addressing) and how hosts are found again.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np

from superhosts.detectors import columns
from superhosts.detectors.base import Arrays, Detector, SuperHost, SuperHosts, check_threshold
from superhosts.detectors.columns import Counts, Words
from superhosts.detectors.estimate import Estimate, Evidence, Floats, estimate, saturation_point
from superhosts.detectors.hashing import fingerprint, make_key, mangle_column, secret_of
from superhosts.detectors.pending import Pending, Task
from superhosts.device import choose_device, run_parallel, thread_count
from superhosts.errors import MergeError, UsageError
from superhosts.pairs import Addresses, Host, HostFormat, format_for

MAX_UNNAMED = 0.01  # a threshold at which more hosts than this go unnamed earns a warning
LEAST_TOP = 16  # `top` does not look for hosts of fewer peers: labels and columns are mostly noise there


class ThresholdWarning(UserWarning):
    """The threshold is below or above what the sketch's geometry and fill support."""


class Fill(NamedTuple):
    """How full a sketch is."""

    mean: float  # share of set bits
    fullest: float  # share of set bits of the fullest column
    saturated: int  # columns without a zero bit
    pairs: int  # distinct pairs, about


class ColumnSketch(Detector):
    """A sketch of bit columns. Subclasses say where a pair goes and how hosts are found."""

    geometry: Any

    def __init__(self, geometry: Any, *, key: bytes | str | None, device: str, threads: int | None) -> None:
        self.geometry = geometry
        self.device = choose_device(device)
        self.threads = thread_count() if threads is None else threads
        if self.threads < 1:
            raise UsageError(f"threads={threads}: at least one")
        self.format: HostFormat = format_for(geometry.key_bits)
        secret = secret_of(key)
        self.fingerprint = fingerprint(secret)
        self.key = make_key(secret)
        self.bits: Words = np.zeros((geometry.total_columns, geometry.words), np.uint64)
        self.zeros: Counts = np.full(geometry.total_columns, geometry.rows, np.int32)
        self.pending = Pending(
            self.key,
            key_bits=geometry.key_bits,
            slice_bits=geometry.slice_bits,
            memory=geometry.memory // 2,
            threads=self.threads,
        )

    @abstractmethod
    def _write(self, task: Task) -> None:
        """Write the pairs of one thread's task."""

    @abstractmethod
    def _search(self, threshold: float) -> tuple[Words, Counts]:
        """Return mangled hosts, (high, low) words, that may have `threshold` peers, and their zero counts."""

    @abstractmethod
    def _measure(self, mangled: Words) -> Counts:
        """Return the zero counts of mangled hosts: of each column, then of their AND."""

    @abstractmethod
    def _array_edges(self) -> list[int]:
        """Return where the columns of each array begin within a slice, and the columns of a slice at the end."""

    def _unnamed(self, threshold: float, pairs: float) -> float:
        """Return the share of hosts with `threshold` peers that cannot be named, for so many pairs in all."""
        return 0.0

    def _estimate(self, evidence: Evidence) -> Estimate:
        return estimate(evidence, self.geometry.rows)

    @property
    def memory(self) -> int:
        """Bytes of columns and labels."""
        return int(self.geometry.memory)

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self.pending.add(hosts, peers, self.flush)

    def flush(self) -> None:
        """Write the pairs that wait. Every question does this by itself."""
        if self.pending.waiting:
            run_parallel(self._write, [(task,) for task in self.pending.take()], self.threads)
            self.pending.done()

    def clear(self) -> None:
        """Forget all pairs; the memory stays."""
        self.pending.clear()
        for array in self.arrays().values():
            array.fill(0)
        self.zeros.fill(self.geometry.rows)

    def check_alike(self, other: Detector) -> None:
        """Refuse a sketch that must not be merged into this one, naming both values."""
        if type(other) is not type(self) or not isinstance(other, ColumnSketch):
            raise MergeError(f"cannot merge {other.name} into {self.name}: another detector")
        if self.fingerprint != other.fingerprint:
            raise MergeError(
                f"cannot merge: key {other.fingerprint} into key {self.fingerprint}; all sites need one key"
            )
        for name in self.geometry._fields:
            mine, theirs = getattr(self.geometry, name), getattr(other.geometry, name)
            if mine != theirs:
                raise MergeError(f"cannot merge: geometry differs, {name} {theirs} into {name} {mine}")
        if self.format != other.format:
            raise MergeError(f"cannot merge: hosts /{other.format.prefix} into hosts /{self.format.prefix}")

    def merge(self, other: Self) -> None:
        """OR another sketch of the same geometry and key into this one."""
        self.check_alike(other)
        self.flush()
        other.flush()
        columns.merge(self.bits, other.bits, self.zeros, self.threads)

    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts of at least `threshold` peers, most peers first."""
        threshold = check_threshold(threshold)
        self.flush()
        mean = max(float(self.zeros.mean()), 1.0) / self.geometry.rows
        pairs = -self.geometry.rows * math.log(mean) * len(self.zeros) / self.geometry.arrays  # a lower bound
        unnamed = self._unnamed(threshold, pairs)
        if unnamed > MAX_UNNAMED and pairs:
            text = f"about {unnamed:.0%} of hosts with so many peers cannot be named; take more memory or a higher one"
            warnings.warn(
                f"threshold {threshold:g} is low for this {self.name}; {text}", ThresholdWarning, stacklevel=2
            )
        if threshold > saturation_point(self.geometry.rows):
            text = f"hosts beyond {saturation_point(self.geometry.rows):,} peers cannot be measured; all are reported"
            warnings.warn(
                f"threshold {threshold:g} is high for this {self.name}: {text}", ThresholdWarning, stacklevel=2
            )
        return self._find(threshold)

    def _find(self, threshold: float) -> SuperHosts:
        mangled, counts = self._search(threshold)
        found = self._estimate(self._evidence(mangled, counts))
        keep = (found.peers >= threshold) | found.saturated  # of these only a lower bound is known
        return self._result(mangled[keep], found.select(keep))

    def _result(self, mangled: Words, found: Estimate) -> SuperHosts:
        hosts = mangle_column(mangled, self.key_bits, True, self.key)
        column: Addresses = hosts if self.key_bits == 128 else hosts[:, 1].copy()
        if self.key_bits == 32:
            column = column.astype(np.uint32)
        result = SuperHosts(column, np.rint(found.peers).astype(np.int64), found.low, found.high, found.saturated)
        result.format = self.format
        return result

    def _evidence(self, mangled: Words, counts: Counts) -> Evidence:
        slices = mangled[:, 1].astype(np.int64) & ((1 << self.geometry.slice_bits) - 1)
        return Evidence(counts[:, :-1], counts[:, -1], self._mean_fills()[slices])

    def _mean_fills(self) -> Floats:
        """Return the share of set bits of every array (second axis) in every slice (first axis)."""
        edges = self._array_edges()
        zeros = np.add.reduceat(self.zeros.reshape(-1, edges[-1]), edges[:-1], axis=1, dtype=np.int64)
        fills: Floats = 1.0 - zeros / np.diff(edges) / self.geometry.rows
        return fills

    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with most peers, of those above `LEAST_TOP`."""
        self.flush()
        fullest = max(1, int(self.zeros.min()))
        threshold = max(LEAST_TOP, self.geometry.rows * math.log(self.geometry.rows / fullest) / 4)
        found = self._find(threshold)
        while len(found) < count and threshold > LEAST_TOP:
            threshold = max(LEAST_TOP, threshold / 4)
            found = self._find(threshold)
        return found.select(slice(0, count))

    def estimate(self, host: str | int | Host) -> SuperHost:
        """Return the number of peers of any host, with its interval."""
        self.flush()
        mangled = self.mangled(host)
        found = self._estimate(self._evidence(mangled, self._measure(mangled)))
        return next(iter(self._result(mangled, found)))

    def columns_of(self, host: str | int | Host) -> list[dict[str, Any]]:
        """Return how full the columns of a host are, beside the mean of their arrays; last, the AND of the columns."""
        self.flush()
        mangled = self.mangled(host)
        evidence = self._evidence(mangled, self._measure(mangled))
        fills = 1 - evidence.zeros[0] / self.geometry.rows
        columns: list[dict[str, Any]] = [
            {"array": array, "fill": float(fill), "mean_fill": float(mean)}
            for array, (fill, mean) in enumerate(zip(fills, evidence.fills[0], strict=True))
        ]
        union = 1 - float(evidence.common[0]) / self.geometry.rows
        return [*columns, {"array": "all (AND)", "fill": union, "mean_fill": None}]

    def mangled(self, host: str | int | Host) -> Words:
        """Return a host's mangled address as one row (high word, low word)."""
        number = self.format.to_number(host)
        words = np.array([[number >> 64, number & (1 << 64) - 1]], np.uint64)
        return mangle_column(words, self.key_bits, False, self.key)

    def fill(self) -> Fill:
        """Say how full the sketch is."""
        self.flush()
        rows = self.geometry.rows
        pairs = -rows * float(np.log(np.maximum(self.zeros, 1) / rows).sum()) / self.geometry.arrays
        fullest, saturated = int(self.zeros.min()), int((self.zeros == 0).sum())
        return Fill(1 - float(self.zeros.mean()) / rows, 1 - fullest / rows, saturated, round(pairs))

    def recount(self) -> None:
        """Count all zeros anew, after the columns came from elsewhere."""
        columns.recount(self.bits, self.zeros, self.threads)

    def header(self) -> dict[str, Any]:
        """Describe this sketch for a file."""
        return {
            "detector": self.name,
            "geometry": dict(self.geometry._asdict()),
            "key": self.fingerprint,
            "format": list(self.format),
        }

    def arrays(self) -> Arrays:
        """Return the arrays that hold all it has seen."""
        self.flush()
        return {"bits": self.bits}
