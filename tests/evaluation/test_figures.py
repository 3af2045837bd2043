"""Figures of a comparison: no error is shown as such, no name covers another, no line hides another."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from superhosts.evaluation import figures
from superhosts.evaluation.experiment import Row, averages
from superhosts.evaluation.lineup import ENTRANTS

Text = pytest.importorskip("matplotlib.text").Text


def row(detector: str, ftr: float | None, window: int = 1, memory: int = 128 << 20) -> Row:
    return Row(
        window=str(window),
        detector=detector,
        true=600,
        missed=0,
        false=0,
        fnr=ftr,
        fpr=ftr,
        ftr=ftr,
        phantoms=0,
        error=0.01,
        coverage=0.95,
        saturated=0,
        update_rate=1e7,
        restore_ms=3.0,
        memory=memory,
        wire=1,
    )


@pytest.fixture
def axes() -> Any:
    plt = figures.pyplot()
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    yield axes
    plt.close(figure)


@pytest.mark.parametrize("rate", [0.0, 0.002, 1.5])
def test_names_do_not_cover_each_other(axes, rate):
    rows = [row(name, 0.0 if number < 4 else rate) for number, name in enumerate(ENTRANTS)]
    figures.plot_memory(axes, averages(rows))
    axes.figure.canvas.draw()
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the line to its mark
    assert len(boxes) == len(ENTRANTS)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    whole = axes.figure.bbox
    assert all(whole.y0 <= box.y0 and box.y1 <= whole.y1 and box.x1 <= whole.x1 for box in boxes)


def test_no_error_is_an_open_mark_at_nought(axes):
    figures.plot_memory(axes, averages([row("cube", 0.0), row("gse", 0.004), row("filter", None)]))
    assert [text.get_text() for text in axes.texts] == ["cube: 0", "gse"]
    marks = {float(line.get_ydata()[0]): line for line in axes.lines if line.get_marker() in figures.MARKERS.values()}
    assert sorted(marks) == [0.0, 0.004]
    assert marks[0.0].get_markerfacecolor() == "white"
    assert marks[0.004].get_markerfacecolor() != "white"
    assert axes.get_ylim()[0] == 0


def test_every_line_of_equal_rates_is_seen(axes):
    rows = [row(name, 0.0, window) for window in range(3) for name in ENTRANTS]
    figures.plot_by_window(axes, rows, "ftr", "FTR")
    places = [tuple(line.get_xdata()) for line in axes.lines]
    assert len(set(places)) == len(ENTRANTS)
    assert all(abs(x - number) < 0.5 for place in places for number, x in enumerate(place, 1))
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == len(ENTRANTS)


def test_windows_without_super_hosts_are_gaps(axes):
    figures.plot_by_window(axes, [row("cube", 0.1, 1), row("cube", None, 2), row("cube", 0.2, 3)], "ftr", "FTR")
    values = axes.lines[0].get_ydata()
    assert np.isnan(values).tolist() == [False, True, False]
    assert axes.get_xlim() == (0.5, 3.5)


def test_names_are_spread_near_their_places():
    apart = figures.LABEL_HEIGHT
    assert figures.spread_labels([]) == []
    assert figures.spread_labels([0.2, 0.5]) == [0.2, 0.5]
    assert figures.spread_labels([0.0, 0.0, 0.5]) == pytest.approx([0.0, apart, 0.5])
    assert figures.spread_labels([0.9, 1.0, 1.0]) == pytest.approx([1 - 2 * apart, 1 - apart, 1.0])
    high = figures.spread_labels([1.0] * 5)
    assert np.diff(high) == pytest.approx([apart] * 4)
    assert high[-1] == 1.0
