"""SpreadSketch (Tang, Huang, Lee, 2020): rows of buckets, each with a distinct counter and its most likely host.

A bucket's counter is a multiresolution bitmap of 448 bits (the published 438, rounded up to whole words): 12 components
of 32 bits, of which component i receives 2^-(i+1) of the pairs, and a last one of 64 bits for the rest. It counts up to
a million peers; a bucket with more is saturated.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.pairs import Addresses
from superhosts.core.results import SuperHosts
from superhosts.detectors.engines.base import Arrays, Tuning
from superhosts.detectors.estimate import Estimate, Floats, interval, saturate, saturation_of
from superhosts.detectors.hostlist import CpuHostListSketch, Mangled, plain_columns
from superhosts.lab.rivals.spreadsketch import cpu
from superhosts.lab.rivals.spreadsketch.geometry import (
    BUCKET_WORDS,
    COMPONENTS,
    LAST_BITS,
    MAP_WORDS,
    SATURATION,
    Geometry,
)

__all__ = ["Geometry", "SpreadSketch"]


class SpreadSketch(CpuHostListSketch):
    """SpreadSketch for 32-bit hosts, on the CPU, of 128 MiB by default.

    The confidence interval accounts for the error of the bitmap; its lower bound also accounts for what other hosts may
    have added: by Markov's inequality, all d buckets of a host exceed e times the mean count with probability at most
    e^-d.
    """

    name = "spreadsketch"
    tuning = Tuning(min_pairs_per_thread=4096)
    geometry: Geometry
    geometry_type = Geometry

    def _allocate(self) -> None:
        self.buckets: cpu.Buckets = np.zeros((self.geometry.rows * self.geometry.buckets, BUCKET_WORDS), np.uint64)
        self._crowd: float | None = None  # peers that others may have added to a host; None after a change

    def _memory(self) -> int:
        return self.buckets.nbytes

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self._crowd = None
        columns = plain_columns(hosts, peers, self.key)
        threads = min(self.threads, self.geometry.rows) if len(hosts) > self.tuning.min_pairs_per_thread else 1
        calls = [(*columns, (row, threads), self.buckets, self.geometry, self.key) for row in range(threads)]
        run_parallel(cpu.write, calls, threads)

    def _clear(self) -> None:
        self.buckets.fill(0)
        self._crowd = None

    def _merge(self, other: Self) -> None:
        self._crowd = None
        calls = [(self.buckets, other.buckets, a, b) for a, b in split_evenly(len(self.buckets), self.threads)]
        run_parallel(cpu.merge, calls, self.threads)

    def _counts(self) -> Floats:
        """Return the number of distinct pairs of every bucket, infinity if it is saturated."""
        counts = np.empty(len(self.buckets))
        calls = [(self.buckets, counts, a, b) for a, b in split_evenly(len(counts), self.threads)]
        run_parallel(cpu.count_all, calls, self.threads)
        self._crowd = math.e * float(np.minimum(counts, SATURATION).mean())
        return counts

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        counts = self._counts()
        labels = self.buckets[counts >= threshold, MAP_WORDS]
        mangled = np.unique(labels[labels != 0].astype(np.uint32))  # The low half of a label is the host.
        return mangled, self._measure(mangled)

    def _measure(self, mangled: Mangled) -> Estimate:
        if self._crowd is None:
            self._counts()
        assert self._crowd is not None
        peers, deviations = np.empty(len(mangled)), np.empty(len(mangled))
        cpu.measure(mangled, self.buckets, self.geometry, self.key, peers, deviations)
        full = np.isinf(peers)
        found = interval(np.where(full, 0.0, peers), deviations, self._crowd)
        return saturate(found, full, saturation_of(LAST_BITS, sample=1 << COMPONENTS), self._crowd)

    def _top(self, count: int) -> SuperHosts:
        """Return the top hosts among those that a bucket names."""
        return self._super_hosts(1).select(slice(0, count))

    def _arrays(self) -> Arrays:
        return {"buckets": self.buckets}

    def _load_arrays(self, arrays: Arrays) -> None:
        self._crowd = None
        if arrays["buckets"] is not self.buckets:
            np.copyto(self.buckets, arrays["buckets"])
