"""Model the hosts of a window with a given number of flows, and the load that their pairs put on a column.

Numbers of peers have a heavy tail. The number of hosts with at least x peers follows a bounded Pareto distribution,
S·((x/θ0)^−a − q)/(1 − q), with a = 1.05, θ0 = 1024, q = (cap/θ0)^−a, cap = 200,000, and S one host per 10,000 flows.
The distribution extends down to the size at which nine tenths of the flows are used up. The rest of the flows belongs
to small hosts with 1 to 256 peers.

Thresholds below `FEW_PEERS` are about the small hosts, of which other networks have many more: most hosts then have one
or two peers. For these, the model is one Pareto distribution of all hosts from one peer on, which needs more labels.

If the hosts of a window have been counted, they replace the model (`counted_population`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.detectors.formulas import Floats, noise_ratio
from superhosts.errors import UsageError

EXPONENT = 1.05  # a
CORNER = 1024.0  # θ0: there is one host with at least this many peers per FLOWS_PER_HOST flows
FLOWS_PER_HOST = 10_000
CAP = 200_000.0  # cap: peers of the largest host
TAIL_SHARE = 0.9  # share of the flows that belongs to the tail
SMALL_CAP = 256  # peers of the largest small host
FEW_PEERS = 48.0  # thresholds below it are about small hosts
CLASSES = 256  # classes of hosts in the tail, evenly spaced by logarithm
PRIOR_HOSTS = 10  # counted hosts that weigh as much as the model
FLOOR = (CAP / CORNER) ** -EXPONENT  # q


@dataclass(frozen=True)
class Population(ABC):
    flows: int
    peers: Floats  # of a host of each class; ascending within the small hosts and within the tail
    hosts: Floats  # number of hosts of each class

    @abstractmethod
    def above(self, peers: Floats) -> Floats:
        """Return the number of hosts with at least this many peers, for each of several numbers."""

    @abstractmethod
    def density(self, peers: Floats) -> Floats:
        """Return the number of hosts per unit of peers."""

    def at_least(self, peers: float) -> float:
        return float(self.above(np.array([peers]))[0])

    def merged(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return the mean peers and the number of hosts between each two edges, without empty classes."""
        hosts = np.histogram(self.peers, edges, weights=self.hosts)[0]
        pairs = np.histogram(self.peers, edges, weights=self.hosts * self.peers)[0]
        full = hosts > 0
        return pairs[full] / hosts[full], hosts[full]


@dataclass(frozen=True)
class _Expected(Population):
    small: float  # number of small hosts
    supers: float  # hosts of the tail with at least CORNER peers
    low: float  # peers from which the tail begins

    def above(self, peers: Floats) -> Floats:
        tail = self.supers * _tail(np.clip(peers, self.low, CAP))
        hosts: Floats = tail + self.small * np.maximum(peers, 1.0) ** -EXPONENT * (peers <= SMALL_CAP)
        return hosts

    def density(self, peers: Floats) -> Floats:
        tail = self.supers * EXPONENT / CORNER / (1 - FLOOR) * (peers / CORNER) ** (-EXPONENT - 1)
        small = self.small * EXPONENT * peers ** (-EXPONENT - 1)
        density: Floats = tail * ((peers >= self.low) & (peers < CAP)) + small * (peers <= SMALL_CAP)
        return density


class _Counted(Population):
    def above(self, peers: Floats) -> Floats:
        smaller = np.append(0.0, np.cumsum(self.hosts))
        hosts: Floats = smaller[-1] - smaller[np.searchsorted(self.peers, peers)]
        return hosts

    def density(self, peers: Floats) -> Floats:
        """Return the number of hosts per unit of peers, from all hosts with half to twice as many peers.

        A few hosts are too small a sample for a density. So the density is that of a tail of exponent a, given the
        number of hosts with at least half the peers, times the ratio of the hosts counted in the range to those that
        this tail predicts there. `PRIOR_HOSTS` is added to both numbers: many counted hosts outweigh the model, few
        follow it.
        """
        larger = self.hosts.sum() - self._below(peers / 2)
        around = self._below(2 * peers) - self._below(peers / 2)
        expected = larger * (1 - 4**-EXPONENT)
        ratio = (around + PRIOR_HOSTS) / (expected + PRIOR_HOSTS)
        density: Floats = ratio * larger * EXPONENT * 2**-EXPONENT / peers
        return density

    @cached_property
    def _steps(self) -> tuple[Floats, Floats]:
        """Return the numbers of peers at which the slope of the cumulative count changes, and the count there."""
        ends = np.unique(np.concatenate([self.peers, self.peers + 1]))
        smaller = np.append(0.0, np.cumsum(self.hosts))
        return ends, smaller[np.searchsorted(self.peers, ends)]

    def _below(self, peers: Floats) -> Floats:
        """Return the number of hosts with fewer peers, with hosts of n peers spread evenly over [n, n + 1)."""
        below: Floats = np.interp(peers, *self._steps)
        return below


@dataclass(frozen=True)
class _Thinned(Population):
    """The hosts of another population with the mean of the peers that remain if one in `sample` pairs is written."""

    whole: Population
    sample: int

    def above(self, peers: Floats) -> Floats:
        return self.whole.above(peers * self.sample)

    def density(self, peers: Floats) -> Floats:
        return self.whole.density(peers * self.sample) * self.sample


def thinned(population: Population, sample: int) -> Population:
    if sample == 1:
        return population
    return _Thinned(population.flows, population.peers / sample, population.hosts, population, sample)


@lru_cache(maxsize=8)
def population_of(flows: int, threshold: float = CORNER) -> Population:
    if flows < 1:
        raise UsageError(f"flows {flows:,}: must be at least 1")
    return _small_hosts(flows) if threshold < FEW_PEERS else _tail_and_small_hosts(flows)


def _tail_and_small_hosts(flows: int) -> Population:
    supers = flows / FLOWS_PER_HOST
    low = _lowest()
    edges = np.geomspace(low, CAP, CLASSES + 1)
    hosts = supers * -np.diff(_tail(edges))
    peers = supers * np.diff(_tail_pairs(edges)) / hosts
    sizes = np.arange(1.0, SMALL_CAP + 1)
    shares = sizes**-EXPONENT - np.append(sizes[1:] ** -EXPONENT, 0.0)
    rest = flows - float(hosts @ peers)
    small = rest / float(shares @ sizes)
    classes = np.concatenate([sizes, peers]), np.concatenate([small * shares, hosts])
    return _Expected(flows, *classes, small, supers, low)


def _small_hosts(flows: int) -> Population:
    """Return one distribution for all hosts, whole numbers of peers from 1 on."""
    edges = np.unique(np.rint(np.concatenate([np.arange(1.0, SMALL_CAP), np.geomspace(SMALL_CAP, CAP, CLASSES + 1)])))
    hosts = -np.diff(_tail(edges))
    peers = np.sqrt(edges[:-1] * (edges[1:] - 1))
    supers = flows / float(hosts @ peers)
    return _Expected(flows, peers, supers * hosts, 0.0, supers, 1.0)


def counted_population(peers: NDArray[np.int64]) -> Population:
    """Return the population of a window from the counted number of peers of each host.

    Hosts with more than CAP peers count as hosts with CAP peers: either number fills the columns that they share.
    """
    if not len(peers):
        raise UsageError("a population needs at least one host")
    sizes, hosts = np.unique(np.minimum(peers, CAP), return_counts=True)
    return _Counted(int(peers.sum()), sizes.astype(np.float64), hosts.astype(np.float64))


def _tail(peers: Floats) -> Floats:
    """Return the number of hosts with at least this many peers, per host with at least CORNER peers."""
    hosts: Floats = ((peers / CORNER) ** -EXPONENT - FLOOR) / (1 - FLOOR)
    return hosts


def _tail_pairs(peers: Floats) -> Floats:
    """Return the pairs of hosts with fewer peers, up to a constant, per host with at least CORNER peers."""
    pairs: Floats = -EXPONENT / (EXPONENT - 1) * CORNER / (1 - FLOOR) * (peers / CORNER) ** (1 - EXPONENT)
    return pairs


@cache
def _lowest() -> float:
    """Return the number of peers from which the tail contains TAIL_SHARE of the flows."""
    top = float(_tail_pairs(np.array([CAP]))[0])
    wanted = TAIL_SHARE * FLOWS_PER_HOST - top
    scale = EXPONENT / (EXPONENT - 1) * CORNER / (1 - FLOOR)
    return float(CORNER * (wanted / scale) ** (1 / (1 - EXPONENT)))


def load_distribution(population: Population, places: float, step: float, points: int) -> Floats:
    """Return the probabilities that the hosts in one of `places` equal places have 0, 1, 2 … steps of pairs in total.

    Hosts fall into places independently, so the sum is compound Poisson and its Fourier transform is the exponential
    of that of the hosts. A host between two steps is split between them, which preserves the mean. A host larger than
    a third of the range counts as a third: its columns are full in either case. If the mean load exceeds a quarter of
    the range, every place counts as full.
    """
    steps = np.minimum(population.peers / step, points / 3)
    below = np.floor(steps).astype(np.int64)
    fraction = steps - below
    rates = population.hosts / places
    if (rates * steps).sum() > points / 4:
        return np.append(np.zeros(points - 1), 1.0)
    hits = np.bincount(below, rates * (1 - fraction), points) + np.bincount(below + 1, rates * fraction, points)
    chances = np.fft.irfft(np.exp(np.fft.rfft(hits) - rates.sum()), points)
    np.clip(chances, 0.0, None, out=chances)
    distribution: Floats = chances / chances.sum()
    return distribution


CROWDED = 1 / 16  # share of the columns, at the upper end of the distribution, that count as crowded


class Loads(NamedTuple):
    """Random draws of the load in the k columns of a host."""

    fills: Floats  # (draws, k): share of the rows that others fill
    weights: Floats  # probability of each draw
    noise: Floats  # P/D of each draw

    @property
    def median_noise(self) -> Floats:
        order = np.argsort(self.noise)
        middle: Floats = self.noise[order[np.searchsorted(np.cumsum(self.weights[order]), 0.5)]]
        return middle


def draw_loads(load: Floats, step: float, rows: int, arrays: int, draws: int) -> Loads:
    """Draw the fills of a host's k columns, in strata of 0 to k crowded columns.

    Loads are heavy-tailed: most columns are quiet, and few are shared with a big host. Errors come from the latter, so
    each stratum has columns from the upper end of the distribution and is weighted by its probability. The draws are
    the same for all geometries, so that differences between predictions are not due to chance.
    """
    below = np.cumsum(load)
    pairs, weights = [], []
    for stratum, orders in enumerate(_orders(arrays, draws)):
        ranks = np.empty((draws, arrays))
        ranks[:, :stratum] = 1 - CROWDED * (orders[:, :stratum] + 0.5) / draws
        ranks[:, stratum:] = (1 - CROWDED) * (orders[:, stratum:] + 0.5) / draws
        pairs.append(np.interp(ranks, below, np.arange(len(load)) * step))
        chance = math.comb(arrays, stratum) * CROWDED**stratum * (1 - CROWDED) ** (arrays - stratum)
        weights.append(np.full(draws, chance / draws))
    fills = -np.expm1(-np.concatenate(pairs) / rows)
    return Loads(fills, np.concatenate(weights), noise_ratio(fills.T))


@lru_cache(maxsize=32)
def _orders(arrays: int, draws: int) -> Floats:
    """Return permutations of the draws, one for each stratum and array. They are the same for all geometries."""
    random = np.random.Generator(np.random.PCG64(1))
    return np.array([[random.permutation(draws) for _ in range(arrays)] for _ in range(arrays + 1)], float).transpose(
        0, 2, 1
    )


def bands(values: Floats, weights: Floats, finest: float, each: float = 1.1) -> tuple[Floats, Floats]:
    """Reduce weighted values to their means in bands, each wider than the one before by the factor `each`."""
    numbers = (np.log1p(values / finest) / math.log(each)).astype(np.int64)
    sums = np.bincount(numbers, weights).astype(np.float64)
    full = sums > 0
    return np.bincount(numbers, weights * values)[full] / sums[full], sums[full]
