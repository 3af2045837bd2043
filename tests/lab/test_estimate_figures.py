"""Estimates against the truth, and coverage by size of host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superhosts.lab import drawing
from superhosts.lab.estimatefigures import (
    MOST_DRAWN,
    coverage_by_size,
    drawn_hosts,
    plot_coverage,
    plot_estimates,
)
from superhosts.lab.intervals import wilson_interval
from superhosts.lab.scores import Estimates


def estimates(true: list[int], *, off: list[int] | None = None, saturated: list[bool] | None = None) -> Estimates:
    """Estimates that are off by so much, with intervals of ± 50."""
    numbers = np.array(true)
    found = numbers + np.array(off or [0] * len(true))
    marks = np.array(saturated or [False] * len(true))
    return Estimates(numbers, found, found - 50, np.where(marks, np.inf, found + 50.0), marks)


@pytest.fixture
def axes() -> Any:
    pytest.importorskip("matplotlib")
    return drawing.new_figure(3).subplots()


def test_groups_begin_at_the_threshold_and_double() -> None:
    some = estimates([1000, 1999, 2000, 3999, 8000], off=[0, 60, 0, 0, -60])
    found = coverage_by_size(some, 1000)
    assert [(each.held, each.hosts) for each in found] == [(1, 2), (2, 2), (0, 1)]
    assert [each.size for each in found] == pytest.approx([(1000 * 1999) ** 0.5, (2000 * 3999) ** 0.5, 8000])


def test_coverage_is_drawn_with_wilsons_interval_and_the_nominal_line(axes: Any) -> None:
    plot_coverage(axes, estimates([1500] * 10, off=[0] * 9 + [60]), 1000)
    (drawn,) = axes.containers
    assert drawn[0].get_ydata().tolist() == [0.9]
    ((start, end),) = drawn[2][0].get_segments()
    assert (start[1], end[1]) == pytest.approx(wilson_interval(9, 10))
    nominal = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in nominal] == [0.95]


def test_without_intervals_there_is_no_coverage(axes: Any) -> None:
    none = estimates([1500, 3000])._replace(low=np.full(2, np.nan), high=np.full(2, np.nan))
    assert plot_coverage(axes, none, 1000) == []
    assert [text.get_text() for text in axes.texts] == ["no intervals"]
    assert axes.containers == []
    plot_estimates(axes, none, 1000)
    assert axes.containers == []  # dots without error bars
    assert [len(line.get_xdata()) for line in axes.lines if line.get_label() == "estimate, no interval"] == [2]


def test_saturated_hosts_are_lower_bounds(axes: Any) -> None:
    plot_estimates(axes, estimates([1500, 90_000], saturated=[False, True]), 1000)
    (drawn,) = axes.containers
    assert drawn[0].get_xdata().tolist() == [1500]
    (bounds,) = [line for line in axes.lines if line.get_label() == "saturated: lower bound"]
    assert (bounds.get_xdata().tolist(), bounds.get_ydata().tolist()) == ([90_000], [90_000 - 50])
    (diagonal,) = [line for line in axes.lines if line.get_label() == "estimate = truth"]
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [1000, 90_000]


def test_of_many_hosts_some_of_all_sizes_are_drawn() -> None:
    true = np.random.default_rng(3).permutation(np.arange(1000, 9000))
    drawn = true[drawn_hosts(true)]
    assert len(drawn) == MOST_DRAWN
    assert (drawn[0], drawn[-1]) == (8999, 1000)
    assert np.abs(np.diff(drawn) + 8000 / MOST_DRAWN).max() < 2
    assert sorted(drawn_hosts(true[:20])) == list(range(20))
