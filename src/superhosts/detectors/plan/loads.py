"""Draw the loads that other hosts put on the columns of a host.

Loads are heavy-tailed: most columns are quiet, and few are shared with a big host. Errors come from the latter, so the
loads are drawn in strata: with 0, 1, … k columns from the upper end of the distribution, each stratum weighted by its
probability. The draws are the same for all geometries, so that differences between predictions are not due to chance.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from superhosts.detectors.plan.population import Floats

CROWDED = 1 / 16  # share of the columns, at the upper end of the distribution, that count as crowded


class Loads(NamedTuple):
    """Random draws of the load in the k columns of a host."""

    fills: Floats  # (draws, k): share of the rows that others fill
    weights: Floats  # probability of each draw
    noise: Floats  # P/D of each draw

    @property
    def median_noise(self) -> Floats:
        """The median noise of all hosts."""
        order = np.argsort(self.noise)
        middle: Floats = self.noise[order[np.searchsorted(np.cumsum(self.weights[order]), 0.5)]]
        return middle


def draw_loads(load: Floats, step: float, rows: int, arrays: int, draws: int) -> Loads:
    """Draw the fills of a host's k columns, in strata of 0 to k crowded columns."""
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
    return Loads(fills, np.concatenate(weights), noise_ratio(fills))


@lru_cache(maxsize=32)
def _orders(arrays: int, draws: int) -> Floats:
    """Return permutations of the draws, one for each stratum and array. They are the same for all geometries."""
    random = np.random.Generator(np.random.PCG64(1))
    return np.array([[random.permutation(draws) for _ in range(arrays)] for _ in range(arrays + 1)], float).transpose(
        0, 2, 1
    )


def noise_ratio(fills: Floats) -> Floats:
    """Return P/D for rows of k fills. It is huge where the estimator's equations have no solution."""
    together, all_but_one = np.ones(len(fills)), np.zeros(len(fills))  # Π p_i and Σ (1 − p_i)·Π_{j≠i} p_j
    for fill in fills.T:
        all_but_one = all_but_one * fill + together * (1 - fill)
        together = together * fill
    ratio: Floats = together / np.maximum(1 - together - all_but_one, 1e-9)
    return ratio


def bands(values: Floats, weights: Floats, finest: float, each: float = 1.1) -> tuple[Floats, Floats]:
    """Reduce weighted values to their means in bands, each wider than the one before by the factor `each`."""
    numbers = (np.log1p(values / finest) / math.log(each)).astype(np.int64)
    sums = np.bincount(numbers, weights).astype(np.float64)
    full = sums > 0
    return np.bincount(numbers, weights * values)[full] / sums[full], sums[full]
