"""The traffic of the benchmarks: generated once and stored as .npy files in a temporary folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_hosts, window_packets

THETA = 1024
BATCH = 4_000_000  # pairs of one update

Column = NDArray[np.uint32]


class Score(NamedTuple):
    """Numbers of true, missed and false super hosts. Rates are percentages of the true ones."""

    true: int
    missed: int
    false: int

    @property
    def fnr(self) -> float:
        """False negative rate."""
        return 100 * self.missed / max(1, self.true)

    @property
    def fpr(self) -> float:
        """False positive rate."""
        return 100 * self.false / max(1, self.true)

    def __str__(self) -> str:
        return (
            f"{self.true} true, {self.missed} missed (FNR {self.fnr:.2f} %), {self.false} false (FPR {self.fpr:.2f} %)"
        )


@dataclass(frozen=True)
class Case:
    """One input: the pairs of packets in some order, or ("flows") each distinct pair once."""

    label: str
    traffic: Traffic
    order: Literal["shuffled", "trains", "flows"]

    @property
    def pairs(self) -> int:
        """Number of pairs of the input, including repeats."""
        return self.traffic.flows if self.order == "flows" else self.traffic.packets

    def quick(self) -> Case:
        """Return the same case, ten times smaller. The label stays the same, so that figures keep their names."""
        traffic = self.traffic
        smaller = {name: max(1, getattr(traffic, name) // 10) for name in ("flows", "packets", "super_hosts")}
        return replace(self, traffic=replace(traffic, **smaller))

    def make(self) -> tuple[Column, Column]:
        """Generate hosts and peers."""
        hosts, peers = window_flows(self.traffic, 0)
        if self.order == "flows":
            return hosts, peers
        picks = window_packets(self.traffic, 0, order=self.order)
        return hosts[picks], peers[picks]

    def save(self, folder: Path) -> Path:
        """Write the pairs to a folder unless they exist, and return the folder of this case."""
        traffic = self.traffic
        place = folder / f"{self.order}-{traffic.flows}-{traffic.packets}-{traffic.super_hosts}"
        if not place.exists():
            hosts, peers = self.make()
            part = place.with_suffix(".part")
            part.mkdir()
            np.save(part / "hosts.npy", hosts)
            np.save(part / "peers.npy", peers)
            part.rename(place)
        return place

    def load(self, folder: Path) -> tuple[Column, Column]:
        """Return hosts and peers as arrays in memory."""
        place = self.save(folder)
        return load_pairs(place)

    def truth(self) -> set[int]:
        """Return the hosts with at least THETA peers."""
        return truth_of(self.traffic)

    def score(self, found: Any) -> Score:
        """Compare the hosts that were found with the truth."""
        true, got = self.truth(), {int(host) for host in found}
        return Score(len(true), len(true - got), len(got - true))


@cache
def truth_of(traffic: Traffic, window: int = 0) -> set[int]:
    """Return the hosts with at least THETA peers in a window."""
    hosts, sizes = window_hosts(traffic, window)
    return set(hosts[sizes >= THETA].tolist())


def load_pairs(place: Path) -> tuple[Column, Column]:
    """Load the hosts and peers of a saved case into memory."""
    return np.load(place / "hosts.npy"), np.load(place / "peers.npy")


def update_in_batches(detector: Any, hosts: Column, peers: Column) -> None:
    """Update a detector batch by batch, as a user would, and flush its bins."""
    for start in range(0, len(hosts), BATCH):
        detector.update(hosts[start : start + BATCH], peers[start : start + BATCH])
    detector.flush()


def warm_up() -> None:
    """Compile, or load from the cache, every function that the benchmarks time, by using small detectors."""
    from superhosts.detectors.cbaa import Cbaa
    from superhosts.detectors.cube import Cube

    hosts, peers = window_flows(Traffic(flows=100_000, packets=100_000, super_hosts=20), 0)
    for detector in (Cube("8MiB", device="cpu"), Cbaa(device="cpu"), Cbaa.paper(device="cpu")):
        update_in_batches(detector, hosts, peers)
        found = detector.super_hosts(THETA)
        detector.estimate(int(found.hosts[0]) if len(found) else 1)


SHUFFLED_5M = Case("5 M flows shuffled", Traffic(flows=5_000_000, packets=50_000_000, super_hosts=600), "shuffled")
TRAINS_5M = Case("5 M flows in trains", SHUFFLED_5M.traffic, "trains")
SHUFFLED_48M = Case("48 M flows shuffled", Traffic(flows=48_000_000, packets=100_000_000, super_hosts=3700), "shuffled")
FLOWS_5M = Case("5 M flows", Traffic(flows=5_000_000, packets=5_000_000, super_hosts=600), "flows")
FLOWS_50M = Case("50 M flows", Traffic(flows=50_000_000, packets=50_000_000, super_hosts=3700), "flows")
