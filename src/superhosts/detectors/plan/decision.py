"""How likely labels name a host, and the estimator decides that it reaches the threshold, for hosts of every size.

All numbers of peers are in written pairs: with one in s pairs written, a host of n peers has n/s on average.

There are two laws. From `FEWEST_NORMAL` written pairs on, estimates are normal, with the variance of
`detectors/estimate.py`, Var(n) = g·(e^t·(1 + P/D) − t − 1), and n·(1 − 1/s) more if pairs are sampled. Below it, counts
are small integers, for which this is far too optimistic: a host of m written pairs sets m − C rows, where C, the pairs
in rows that another of its pairs has set, is Poisson of mean m²/2g, and other hosts add a Poisson number of ones to
the AND, of mean g·e^(−t)·Π p_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from superhosts.detectors.formulas import MISS_EXPONENT, SLACK, Floats, Sizes, losing_probability
from superhosts.detectors.plan.population import Loads, Population, bands, load_distribution

LABEL_POINTS = 1 << 13  # points of the distribution of a label's pairs


FEWEST_NORMAL = 48  # written pairs
MOST_NOISE = 40.0  # ones of other hosts in the AND beyond which their number is normal

CDF_STEPS = 512  # entries of the table of the normal distribution for one standard deviation


def variance(rows: int, peers: Floats, noise: Floats) -> Floats:
    load = np.minimum(peers / rows, 30.0)
    result: Floats = rows * (np.exp(load) * (1 + noise) - load - 1)
    return np.maximum(result, 1e-9)


class Fill(NamedTuple):
    """The share of rows that others fill, the same in this many columns of a host."""

    share: Floats
    columns: int = 1


class Decision(NamedTuple):
    """The decision in columns of `rows` rows; one in `sample` pairs is written, `threshold` of a host at it."""

    rows: int
    threshold: float
    sample: int = 1

    @property
    def least(self) -> float:
        return self.threshold - SLACK / self.sample

    @property
    def thinning(self) -> float:
        """The variance that sampling adds for each written pair."""
        return 1 - 1 / self.sample

    def deviation(self, noise: Floats) -> Floats:
        measured = variance(self.rows, np.array(self.threshold), noise)
        deviation: Floats = np.sqrt(measured + self.threshold * self.thinning)
        return deviation

    @property
    def quiet_error(self) -> float:
        """The standard deviation of the estimate at the threshold without noise, in peers."""
        return float(self.deviation(np.array(0.0))) * self.sample

    def passes(self, peers: Floats, fills: Sequence[Fill], *common: Floats) -> list[Floats]:
        """Return the probability that hosts pass, for each given share of rows that others fill in all columns.

        `fills` contains the share that others fill in each of the columns. The estimate reaches θ where
        u0·(1 − Π(1 − z_i/u0)) ≥ z with u0 = e^(−θ/g): the estimator computes the noise for a host with θ peers,
        p_i' = 1 − z_i/u0. In crowded columns that is far less than the noise of a small host.
        """
        ratio = np.exp(np.minimum((self.least - peers) / self.rows, 30.0))  # u/u0
        product, spread, cold = self._noise_at_threshold(ratio, fills, float(self.deviation(np.array(0.0))))
        measured = variance(self.rows, np.array(self.threshold), product / spread)
        scale = self.rows / spread / np.sqrt(measured + peers * self.thinning)
        free = 1 - product
        return [np.where(cold, 0.0, _normal(scale * (free - ratio * (1 - shared)))) for shared in common]

    def decide(self, loads: Loads, peers: Floats) -> Floats:
        """Return the probability that hosts pass for every draw. `peers` has a row for each draw, or one for all."""
        fills = [Fill(share[:, np.newaxis]) for share in loads.fills.T]
        return self.passes(peers, fills, loads.fills.prod(axis=1)[:, np.newaxis])[0]

    def decide_few(self, loads: Loads) -> Floats:
        """Return the probability that hosts of 0, 1, 2 … written pairs pass. Hosts of more pairs than that do."""
        top = math.ceil(self.threshold + 6 * math.sqrt(self.threshold) + 6)
        own = np.arange(top + 1.0)
        peers = -self.rows * np.log1p(-np.minimum(own, self.rows - 1) / self.rows)  # that set this many rows
        ratio = np.exp((self.least - peers) / self.rows)
        fills = [Fill(share[:, np.newaxis]) for share in loads.fills.T]
        quiet = math.sqrt(float(variance(self.rows, np.array(self.threshold), np.array(0.0))))
        noise, _, cold = self._noise_at_threshold(ratio, fills, quiet)
        free = math.exp(-self.least / self.rows)
        wanted = np.ceil(self.rows * (1 - free * (1 - noise)) - own - 1e-6)
        added = self.rows * math.exp(-self.threshold / self.rows) * loads.fills.prod(axis=1)
        more = _poisson_at_least(np.minimum(added, MOST_NOISE), top + 1)
        index = np.clip(wanted, 0, top + 1).astype(np.int64)
        passed = np.take_along_axis(more, index, axis=1)
        crowded = added > MOST_NOISE
        if crowded.any():
            some = Loads(loads.fills[crowded], loads.weights[crowded], loads.noise[crowded])
            passed[crowded] = self._replace(sample=1).decide(some, peers[np.newaxis, :])
        alone = loads.weights @ np.where(cold, 0.0, passed)
        # Of m pairs, C fall into rows that are already set.
        repeats = own * (own - 1) / 2 / self.rows
        result: Floats = np.zeros(top + 1)
        chance = np.exp(-repeats)
        for lost in range(top + 1):
            result[lost:] += chance[lost:] * alone[: top + 1 - lost]
            chance = chance * repeats / (lost + 1)
        return result

    def _noise_at_threshold(
        self, ratio: Floats, fills: Sequence[Fill], deviation: float
    ) -> tuple[Floats, Floats, Floats]:
        """Return Π p_i' and D' as the estimator computes them for a host at the threshold, and where it is ruled out.

        A host is ruled out if some column has fewer ones, by three deviations, than θ peers would set.
        """
        least = -3 * deviation / self.rows
        product, inverses, cold = np.ones(1), np.zeros(1), np.zeros(1, bool)
        for share, columns in fills:
            seen = 1 - ratio * (1 - share)
            cold = cold | (seen < least)
            seen = np.maximum(seen, 1e-9)
            product = product * seen**columns
            inverses = inverses + columns * (1 / seen - 1)
        return product, np.maximum(1 - product - inverses * product, 1e-9), cold


class Naming:
    def __init__(self, sizes: Sizes, population: Population, threshold: float) -> None:
        self._arrays, self._high = sizes.arrays, MISS_EXPONENT / threshold
        self._share = min(2.0**-sizes.share_bits, self._high)
        step = max(threshold / 128, 1 / 8)
        labels = float(sizes.columns << (sizes.slice_bits + sizes.label_bits))
        chances = load_distribution(population, labels, step, LABEL_POINTS)
        self._loads, self._chances = bands(np.arange(float(LABEL_POINTS)) * step, chances, step)

    def chance(self, peers: Floats) -> Floats:
        lost = losing_probability(peers[:, np.newaxis], self._loads, self._share)
        chance: Floats = 1 - (lost @ self._chances) ** self._arrays
        return chance

    def candidate_chance(self, peers: Floats) -> Floats:
        """Return the probability that hosts are named and that the labels of all their arrays have a high priority.

        A restore requires the latter, whoever the other labels name, unless too few pairs compete for labels.
        """
        if self._share < self._high:
            return self.chance(peers)
        together = peers[:, np.newaxis] + self._loads
        high = -np.expm1(-np.minimum(self._high * together, 30.0)) @ self._chances
        chance: Floats = self.chance(peers) * high ** (self._arrays - 1)
        return chance


def written_chances(peers: Floats, sample: int, top: int) -> Floats:
    """Return the binomial chances of hosts (first axis) of 0, 1, … top written pairs (second axis)."""
    chances = np.zeros((len(peers), top + 1))
    odds = 1 / (sample - 1) if sample > 1 else 0.0
    if not odds:
        whole = np.minimum(np.rint(peers).astype(np.int64), top + 1)
        inside = np.flatnonzero(whole <= top)
        chances[inside, whole[inside]] = 1.0
        return chances
    chance = np.exp(peers * math.log1p(-1 / sample))
    for written in range(top + 1):
        chances[:, written] = chance
        chance = chance * np.maximum(peers - written, 0.0) / (written + 1) * odds
    return chances


def _poisson_at_least(means: Floats, most: int) -> Floats:
    """Return the probabilities that Poisson variables (first axis) are at least 0, 1, … most (second axis)."""
    at_least = np.empty((len(means), most + 1))
    chance, left = np.exp(-means), np.ones(len(means))
    for number in range(most + 1):
        at_least[:, number] = left
        left = np.maximum(left - chance, 0.0)
        chance = chance * means / (number + 1)
    return at_least


def _normal(x: Floats) -> Floats:
    below: Floats = _cdf()[(np.clip(x, -8.0, 8.0) * CDF_STEPS + (8 * CDF_STEPS + 0.5)).astype(np.int64)]
    return below


@cache
def _cdf() -> Floats:
    """Return the normal distribution from -8 to 8; made when first needed, so that a scan does not wait for it."""
    return np.array([0.5 * math.erfc(-x / CDF_STEPS / math.sqrt(2)) for x in range(-8 * CDF_STEPS, 8 * CDF_STEPS + 1)])
