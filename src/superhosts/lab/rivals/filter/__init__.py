"""The line-speed filter (Cheng, Tang, 2013): a bit array marks the pairs already seen, counters count first packets.

A new pair finds its bit clear only with probability 1 − fill, so each pair that does counts 1/(1 − fill). A host's
estimate is its smallest counter. The filter lists a host when this estimate first reaches the threshold, which must
therefore be known in advance.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np

from superhosts.core.defaults import MEMORY, THRESHOLD
from superhosts.core.pairs import Addresses
from superhosts.core.results import UNBOUNDED, SuperHosts
from superhosts.core.text import counted
from superhosts.detectors.arguments import check_no_conflict
from superhosts.detectors.engines.base import Arrays
from superhosts.detectors.estimate import Estimate, interval
from superhosts.detectors.hostlist import HostListSketch, Mangled, on_cpu_only, plain_columns
from superhosts.detectors.hostset import HostSet
from superhosts.errors import UsageError
from superhosts.lab.rivals.filter import cpu
from superhosts.lab.rivals.filter.geometry import Geometry

__all__ = ["Filter", "Geometry"]

MAX_COUNT = 2.0**60  # limit of a counter: no traffic reaches it, and int64 can represent it


class Filter(HostListSketch):
    """The filter for 32-bit hosts, on one CPU thread, with 128 MiB and threshold 1024 by default.

    The order of pairs matters, because the weight of a pair depends on the pairs before it. Two filters cannot be
    merged, because a pair that both have seen would count twice. The confidence interval accounts for the pairs that
    found their bit set; its lower bound also accounts for what other hosts may have added: by Markov's inequality, all
    d counters of a host exceed e times the mean with probability at most e^-d.
    """

    name = "filter"
    runs_on_gpu = False
    wants_threshold = True  # because it lists hosts as their packets arrive
    broken_laws = frozenset({"order", "merge"})
    geometry: Geometry
    geometry_type = Geometry

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        threshold: float | None = None,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        if geometry is None:
            peers = THRESHOLD if threshold is None else threshold
            geometry = Geometry.for_memory(MEMORY if memory is None else memory, peers)
        else:
            geometry = check_no_conflict(geometry, memory=memory, threshold=threshold)
        super().__init__(geometry.check(), key=key, threads=threads)
        self.device = on_cpu_only(self.name, device)
        self.bits = np.zeros(geometry.words, np.uint64)
        self.counters = np.zeros(geometry.rows * geometry.counters, np.float32)
        self.listed = HostSet(self.tuning.host_slots)
        self.ones = 0
        self._crowd: float | None = None  # peers that others may have added to a host; None after a change

    def _memory(self) -> int:
        return self.bits.nbytes + self.counters.nbytes + self.listed.memory

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self._crowd = None
        hosts, peers = plain_columns(hosts, peers, self.key)
        start = 0
        while start < len(hosts):
            tally = np.array([self.ones, self.listed.count])
            state = cpu.State(self.bits, self.counters, self.listed.slots, tally)
            start = int(cpu.write(hosts, peers, start, state, self.geometry, self.key))
            self.ones, self.listed.count = int(tally[cpu.ONES]), int(tally[cpu.LISTED])
            if start < len(hosts):
                self.listed.grow()

    def _clear(self) -> None:
        self.bits.fill(0)
        self.counters.fill(0)
        self.listed.clear()
        self.ones = 0
        self._crowd = None

    def _merge(self, other: Self) -> None:
        raise AssertionError("check_alike rejects all merges of filters")

    def _super_hosts(self, threshold: float) -> SuperHosts:
        """Return listed hosts. Raise UsageError if `threshold` is below that of the list."""
        minimum = self.geometry.threshold
        if threshold < minimum:
            least = counted(minimum, "peer")
            raise UsageError(f"threshold {threshold:g}: this filter lists only hosts with at least {least}")
        return super()._super_hosts(threshold)

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        mangled = self.listed.hosts()
        return mangled, self._measure(mangled)

    def _measure(self, mangled: Mangled) -> Estimate:
        geometry = self.geometry
        peers = np.empty(len(mangled))
        cpu.measure(mangled, self.counters, geometry, self.key, peers)
        bits = 64 * geometry.words
        full = self.ones == bits  # A full array counts no more pairs, so the counters are lower bounds.
        fill = min(self.ones, bits - 1) / bits
        deviations = np.sqrt(peers * (fill / (1 - fill)))
        if self._crowd is None:
            self._crowd = math.e * float(self.counters.mean(dtype=np.float64))
        found = interval(peers, deviations, self._crowd)
        if full:
            return found._replace(high=np.full_like(found.high, UNBOUNDED), saturated=~found.saturated)
        return found

    def _top(self, count: int) -> SuperHosts:
        """Return the top hosts of the list."""
        return self._super_hosts(self.geometry.threshold).select(slice(0, count))

    def _least_listed(self) -> float:
        return self.geometry.threshold

    def _arrays(self) -> Arrays:
        """Return bits, counters (32-bit floats viewed as integers) and the listed mangled hosts in ascending order."""
        return {"bits": self.bits, "counters": self.counters.view(np.uint32), "hosts": self.listed.hosts()}

    def _load_arrays(self, arrays: Arrays) -> None:
        counters = arrays["counters"].view(np.float32)
        if not ((counters >= 0) & (counters < MAX_COUNT)).all():
            raise ValueError("counters are negative, too large or not numbers")
        if arrays["bits"] is not self.bits:
            np.copyto(self.bits, arrays["bits"])
        np.copyto(self.counters, counters)
        self._crowd = None
        self.ones = int(cpu.count_ones(self.bits))
        self.listed.clear()
        self.listed.add(arrays["hosts"])
