"""RGS-Sketch (Zhang, Huang, Sun, Gao, PVLDB 18(4), 2025): hosts share groups of registers, and cells name hosts.

A pair goes to one of its host's 32 groups of 8 registers. There it raises one register to its rank, as in HyperLogLog.
From the values of a group follows the probability q that a new pair raises one of them, so each pair that does counts
as 1/q new pairs of its host ("register group sharing"). Counts are in cells: every host has a bucket of 8 cells, each
with a host and a count. If all are taken, a further host takes over the smallest count c with probability 1/(c + 1).
If it does not, its pair does not raise the register either, so that small hosts leave the registers to large ones
("limited register update").

This is written from the paper's abstract and from the structure and sizes of its authors' published program: 5-bit
registers, 8 per group, 32 groups per host, 8 cells per bucket, 35 % of the memory for cells. It differs in three
points. Hash functions are keyed and have 64 bits, so ranks go up to 31 instead of 25. Random numbers come from the
pair's hash, so that the same stream gives the same sketch. Intervals are ours; the authors give none.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from superhosts.core.pairs import Addresses
from superhosts.core.results import UNBOUNDED, SuperHosts
from superhosts.detectors.engines.base import Arrays
from superhosts.detectors.estimate import CONFIDENCE, FILLED, Estimate
from superhosts.detectors.hostlist import CpuHostListSketch, Mangled, plain_columns
from superhosts.lab.rivals.rgs import cpu
from superhosts.lab.rivals.rgs.geometry import CELLS, GROUP_BYTES, Geometry

__all__ = ["Geometry", "Rgs"]

MOST_PEERS = 2**62  # an upper bound above it says nothing


class Rgs(CpuHostListSketch):
    """RGS-Sketch for 32-bit hosts, on one CPU thread, of 128 MiB by default. It was made for 100 KB to 500 KB.

    What a pair counts depends on the pairs before it, so the order of pairs matters, and so does a repetition of a pair
    that came before its host had a cell. The authors merge registers by maximum and estimate the hosts that cells name
    from the merged registers: the result is a list of hosts, not a sketch of both streams. So it cannot be merged here.

    The confidence interval accounts for the pairs that raised no register, as if all had come last, when each counted
    most. It also accounts for what a host inherited with its cell, and for its pairs before it had one.
    """

    name = "rgs"
    broken_laws = frozenset({"order", "repetition", "merge"})
    geometry: Geometry
    geometry_type = Geometry

    def _allocate(self) -> None:
        groups = np.zeros((self.geometry.groups, GROUP_BYTES), np.uint8)
        self.state = cpu.State(groups, np.zeros((CELLS * self.geometry.buckets, 2), np.uint32))

    def _memory(self) -> int:
        return sum(array.nbytes for array in self.state)

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        cpu.write(*plain_columns(hosts, peers, self.key), self.state, self.geometry, self.key)

    def _clear(self) -> None:
        for array in self.state:
            array.fill(0)

    def _merge(self, other: Self) -> None:
        raise AssertionError("check_alike rejects all merges of rgs")

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        cells = self.state.cells
        mangled = np.unique(cells[cells[:, 1] >= max(1.0, threshold), 0])
        return mangled, self._measure(mangled)

    def _measure(self, mangled: Mangled) -> Estimate:
        peers, crowds, weights = np.empty((3, len(mangled)))
        cpu.measure(mangled, self.state, self.geometry, self.key, peers, crowds, weights)
        deviations = CONFIDENCE * np.sqrt(peers * (weights - 1))
        # A host inherits at most the smallest count c. It waits for a cell until one of its pairs that raise a register
        # wins, each with probability 1/(c + 1): for at most 3.69·c of them in 39 of 40 cases.
        low = np.maximum(0, np.floor(peers - crowds - deviations)).astype(np.int64)
        high = np.ceil(peers + crowds * (FILLED * weights - 1) + deviations)
        full = peers == cpu.MAX_COUNT
        bounded = np.where(full | (high > MOST_PEERS), UNBOUNDED, np.minimum(high, MOST_PEERS).astype(np.int64))
        return Estimate(peers, low, bounded, full)

    def _top(self, count: int) -> SuperHosts:
        """Return the top hosts among those in cells."""
        return self._super_hosts(1).select(slice(0, count))

    def _arrays(self) -> Arrays:
        return {"groups": self.state.groups, "cells": self.state.cells}

    def _load_arrays(self, arrays: Arrays) -> None:
        for name, array in self._arrays().items():
            if arrays[name] is not array:
                np.copyto(array, arrays[name])
