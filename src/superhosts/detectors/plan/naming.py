"""Predict whether labels name a host."""

from __future__ import annotations

import numpy as np

from superhosts.detectors.plan.formulas import MISS_EXPONENT, losing_probability
from superhosts.detectors.plan.loads import bands
from superhosts.detectors.plan.population import Floats, Population, load_distribution
from superhosts.detectors.plan.sizes import CubeSizes

POINTS = 1 << 13  # points of the distribution of a label's pairs


class Naming:
    """The probability that one of its labels names a host. All numbers of pairs are of written ones."""

    def __init__(self, sizes: CubeSizes, population: Population, threshold: float) -> None:
        self._arrays, self._high = sizes.arrays, MISS_EXPONENT / threshold
        self._share = min(2.0**-sizes.share_bits, self._high)
        step = max(threshold / 128, 1 / 8)
        labels = float(sizes.columns << (sizes.slice_bits + sizes.label_bits))
        chances = load_distribution(population, labels, step, POINTS)
        self._loads, self._chances = bands(np.arange(float(POINTS)) * step, chances, step)

    def chance(self, peers: Floats) -> Floats:
        """Return the probability that hosts with these peers win in at least one array with a pair of high priority."""
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
