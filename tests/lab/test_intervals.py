"""Intervals against published tables, and against simulated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from superhosts.lab.intervals import (
    count_interval,
    mean_interval,
    most_unseen,
    student_quantile,
    wilson_interval,
)


@pytest.mark.parametrize(  # quantiles for 97.5 %, as any table of Student's distribution has them
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (11, 2.201), (30, 2.042), (1000, 1.962)],
)
def test_students_distribution(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=6e-4)


def test_the_mean_of_a_few_values() -> None:
    assert mean_interval([3.0]) is None
    assert mean_interval([2.0, 2.0]) == (2.0, 2.0)
    low, high = mean_interval([1.0, 2.0, 3.0]) or (0.0, 0.0)
    assert (low, high) == pytest.approx((2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)), abs=1e-3)


def test_shares() -> None:
    """Wilson's interval of 8 of 10 is that of his formula; none and all of them stay within 0 and 1."""
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson_interval(10, 10) == pytest.approx((0.7225, 1), abs=1e-4)
    assert wilson_interval(0, 0) == (0, 1)


@pytest.mark.parametrize(("count", "exact"), [(0, (0, 3.689)), (1, (0.025, 5.572)), (10, (4.795, 18.39))])
def test_counts(count: int, exact: tuple[float, float]) -> None:
    """Byar's approximation is near the exact interval of a Poisson count."""
    assert count_interval(count) == pytest.approx(exact, abs=0.05)


def test_what_is_consistent_with_nothing() -> None:
    assert most_unseen(100) == pytest.approx(0.03, abs=1e-4)  # the rule of three
    assert math.exp(-100 * most_unseen(100)) == pytest.approx(0.05)


def test_intervals_hold_as_often_as_they_say() -> None:
    """Of 2,000 simulated shares and means, 95 % are held; 5 standard errors are 2.4 %."""
    random = np.random.default_rng(4)
    hits = random.binomial(40, 0.9, 2000)
    held = [low <= 0.9 <= high for low, high in (wilson_interval(int(each), 40) for each in hits)]
    assert abs(np.mean(held) - 0.95) < 0.024
    means = [mean_interval(random.normal(7, 2, 4).tolist()) or (0, 0) for _ in range(2000)]
    assert abs(np.mean([low <= 7 <= high for low, high in means]) - 0.95) < 0.024
