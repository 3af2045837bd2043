"""The hosts that a window of so many flows is expected to have, and how their pairs crowd a column.

Numbers of peers have a heavy tail. The number of hosts with at least x peers follows a bounded Pareto law,
S·((x/θ0)^−a − q)/(1 − q), with a = 1.05, θ0 = 1024, q = (cap/θ0)^−a, cap = 200,000, and S one host in 10,000 flows.
The law goes down until nine tenths of the flows are spent; the rest belongs to small hosts of 1 to 256 peers.

Where the hosts of a window have been counted, they take the place of the law (`counted_population`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from superhosts.errors import UsageError

EXPONENT = 1.05  # a
CORNER = 1024.0  # θ0: the peers from which one host in FLOWS_PER_HOST flows is counted
FLOWS_PER_HOST = 10_000
CAP = 200_000.0  # peers of the largest host
TAIL_SHARE = 0.9  # of the flows
SMALL_CAP = 256
CLASSES = 256  # of hosts in the tail, evenly spaced by logarithm
TRUST = 10  # counted hosts that weigh as much as the law
FLOOR = (CAP / CORNER) ** -EXPONENT  # q

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Population(ABC):
    """Classes of hosts: peers of a host of each class, in ascending order within each part, and how many there are."""

    flows: int
    peers: Floats
    hosts: Floats

    @abstractmethod
    def at_least(self, peers: float) -> float:
        """Hosts with at least so many peers."""

    @abstractmethod
    def density(self, peers: Floats) -> Floats:
        """Hosts per unit of peers."""

    def merged(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return mean peers and number of the hosts between the edges, empty classes left out."""
        hosts = np.histogram(self.peers, edges, weights=self.hosts)[0]
        pairs = np.histogram(self.peers, edges, weights=self.hosts * self.peers)[0]
        full = hosts > 0
        return pairs[full] / hosts[full], hosts[full]


@dataclass(frozen=True)
class _Expected(Population):
    """The hosts of the law."""

    small: float  # number of small hosts

    def at_least(self, peers: float) -> float:
        """Hosts with at least so many peers."""
        tail = self.flows / FLOWS_PER_HOST * float(_tail(np.array(min(max(peers, _lowest()), CAP))))
        return tail + (self.small * peers**-EXPONENT if peers <= SMALL_CAP else 0.0)

    def density(self, peers: Floats) -> Floats:
        """Hosts per unit of peers."""
        tail = self.flows / FLOWS_PER_HOST * EXPONENT / CORNER / (1 - FLOOR) * (peers / CORNER) ** (-EXPONENT - 1)
        small = self.small * EXPONENT * peers ** (-EXPONENT - 1)
        density: Floats = tail * ((peers >= _lowest()) & (peers < CAP)) + small * (peers <= SMALL_CAP)
        return density


class _Counted(Population):
    """Hosts that were counted, one class for each number of peers."""

    def at_least(self, peers: float) -> float:
        """Hosts with at least so many peers."""
        return float(self.hosts[np.searchsorted(self.peers, peers) :].sum())

    def density(self, peers: Floats) -> Floats:
        """Hosts per unit of peers, from all hosts of half to twice as many.

        A few hosts do not tell how dense others of their kind are. So the hosts around are held against those that a
        tail of exponent a puts there, given the hosts of at least half the peers, with `TRUST` added to both
        numbers: many hosts speak for themselves, few follow the law.
        """
        larger = self.hosts.sum() - self._below(peers / 2)
        around = self._below(2 * peers) - self._below(peers / 2)
        expected = larger * (1 - 4**-EXPONENT)
        density: Floats = (around + TRUST) / (expected + TRUST) * larger * EXPONENT * 2**-EXPONENT / peers
        return density

    @cached_property
    def _steps(self) -> tuple[Floats, Floats]:
        """Numbers of peers at which the number of smaller hosts changes its slope, and this number."""
        ends = np.unique(np.concatenate([self.peers, self.peers + 1]))
        smaller = np.append(0.0, np.cumsum(self.hosts))
        return ends, smaller[np.searchsorted(self.peers, ends)]

    def _below(self, peers: Floats) -> Floats:
        """Hosts of fewer peers, where those of n peers are spread evenly over [n, n + 1)."""
        below: Floats = np.interp(peers, *self._steps)
        return below


@lru_cache(maxsize=8)
def population_of(flows: int) -> Population:
    """Return the hosts expected in a window of so many distinct pairs."""
    if flows < 1:
        raise UsageError(f"flows {flows:,}: at least 1 is needed")
    supers = flows / FLOWS_PER_HOST
    low = _lowest()
    edges = np.geomspace(low, CAP, CLASSES + 1)
    hosts = supers * -np.diff(_tail(edges))
    peers = supers * np.diff(_tail_pairs(edges)) / hosts
    sizes = np.arange(1.0, SMALL_CAP + 1)
    shares = sizes**-EXPONENT - np.append(sizes[1:] ** -EXPONENT, 0.0)
    rest = flows - float(hosts @ peers)
    small = rest / float(shares @ sizes)
    return _Expected(flows, np.concatenate([sizes, peers]), np.concatenate([small * shares, hosts]), small)


def counted_population(peers: NDArray[np.int64]) -> Population:
    """Return the hosts of a window whose numbers of peers are known.

    Hosts of more than CAP peers count as such: they fill what they share either way.
    """
    if not len(peers):
        raise UsageError("a population has at least one host")
    sizes, hosts = np.unique(np.minimum(peers, CAP), return_counts=True)
    return _Counted(int(peers.sum()), sizes.astype(np.float64), hosts.astype(np.float64))


def _tail(peers: Floats) -> Floats:
    """Hosts with at least so many peers for each host of CORNER."""
    hosts: Floats = ((peers / CORNER) ** -EXPONENT - FLOOR) / (1 - FLOOR)
    return hosts


def _tail_pairs(peers: Floats) -> Floats:
    """Pairs of hosts below so many peers, up to a constant, for each host of CORNER."""
    pairs: Floats = -EXPONENT / (EXPONENT - 1) * CORNER / (1 - FLOOR) * (peers / CORNER) ** (1 - EXPONENT)
    return pairs


@cache
def _lowest() -> float:
    """Peers at which the tail has TAIL_SHARE of the flows."""
    top = float(_tail_pairs(np.array([CAP]))[0])
    wanted = TAIL_SHARE * FLOWS_PER_HOST - top
    scale = EXPONENT / (EXPONENT - 1) * CORNER / (1 - FLOOR)
    return float(CORNER * (wanted / scale) ** (1 / (1 - EXPONENT)))


def load_distribution(population: Population, places: float, step: float, points: int) -> Floats:
    """Probabilities that the hosts in one of `places` equal places have 0, 1, 2 … steps of pairs together.

    Hosts fall into places independently, so the sum is compound Poisson and its transform is the exponential of
    that of the hosts. A host is split between the two steps around it, which keeps the mean. One larger than a third of
    the range counts as that: what it shares is full either way. So is every place where the mean is a quarter of it.
    """
    place = np.minimum(population.peers / step, points / 3)
    below = np.floor(place).astype(np.int64)
    part = place - below
    rates = population.hosts / places
    if (rates * place).sum() > points / 4:
        return np.append(np.zeros(points - 1), 1.0)
    hits = np.bincount(below, rates * (1 - part), points) + np.bincount(below + 1, rates * part, points)
    chances = np.fft.irfft(np.exp(np.fft.rfft(hits) - rates.sum()), points)
    np.clip(chances, 0.0, None, out=chances)
    distribution: Floats = chances / chances.sum()
    return distribution
