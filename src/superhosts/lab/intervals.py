"""Confidence intervals of means, shares and counts, by formulas that need no statistics package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

LEVEL = 0.95


def student_quantile(freedom: int, level: float = LEVEL) -> float:
    """Return the t for which Student's distribution lies within -t and t with probability `level`.

    The distribution function of a whole number of degrees of freedom has a closed form (Abramowitz and Stegun, 26.7.3
    and 26.7.4); bisection inverts it.
    """
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_within(middle, freedom) < level else (low, middle)
    return high


def _student_within(t: float, freedom: int) -> float:
    """Return the probability that Student's distribution lies within -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + (math.sin(angle) * total if freedom > 1 else 0.0))


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of the mean of independent values by Student's distribution; None for less than two."""
    if len(values) < 2:
        return None
    reach = student_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


def wilson_interval(hits: int, cases: int) -> tuple[float, float]:
    """Return Wilson's score interval of a share."""
    if not cases:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    share, spread = hits / cases, z * z / cases
    centre = (share + spread / 2) / (1 + spread)
    reach = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def count_interval(count: int) -> tuple[float, float]:
    """Return the interval of the mean of a Poisson distribution, of which one count is known (Byar's approximation)."""
    z, above = NormalDist().inv_cdf((1 + LEVEL) / 2), count + 1
    low = count * (1 - 1 / (9 * count) - z / (3 * math.sqrt(count))) ** 3 if count else 0.0
    return low, above * (1 - 1 / (9 * above) + z / (3 * math.sqrt(above))) ** 3


def most_unseen(cases: int) -> float:
    """Return the highest rate at which no event in so many cases is still to be expected once in twenty times."""
    return -math.log(1 - LEVEL) / cases
