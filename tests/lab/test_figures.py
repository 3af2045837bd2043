"""Figures of comparisons and calibrations: what they show, that nothing hides anything else, and their intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superhosts.core.hashing import DEFAULT_KEY, fingerprint
from superhosts.lab import figures, sheet
from superhosts.lab.experiment import Row
from superhosts.lab.hostfigures import MOST_HOSTS, Columns, draw_hosts, plot_columns, plot_history, plot_hosts
from superhosts.lab.lineup import ENTRANTS
from superhosts.lab.scores import Estimates
from superhosts.lab.sheet import OKABE_ITO, Note, caption, key_words
from superhosts.sketch.evidence.summary import Share

Text = pytest.importorskip("matplotlib.text").Text
MIB = 1 << 20


USUAL = Row(
    *("1", "cube", 600, 0, 0, None, None, None, 0, 0.01, 0.95, 0),
    update_rate=1e7,
    restore_ms=3.0,
    memory=128 * MIB,
    wire=1,
    flows=5_000_000,
)


def row(detector: str, rate: float | None, window: int = 1, *, phantoms: int = 0, **more: Any) -> Row:
    rates = dict.fromkeys(("fnr", "fpr", "ftr"), rate)
    return replace(USUAL, detector=detector, window=str(window), false=phantoms, phantoms=phantoms, **rates, **more)


@pytest.fixture
def axes() -> Any:
    with pytest.importorskip("matplotlib").rc_context(sheet.STYLE):
        yield sheet.new_figure(3.0).subplots()


def tick_names(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def means_drawn(axes: Any) -> dict[str, float]:
    """The means by detector: the marks at whole places, which faint windows do not have."""
    marks = [line for line in axes.lines if line.get_marker() not in (".", "|", "None", "_", 0, 1)]
    return {tick_names(axes)[round(float(line.get_ydata()[0]))]: float(line.get_xdata()[0]) for line in marks}


@pytest.mark.parametrize("rate", [0.0, 1.5])
def test_names_do_not_cover_each_other(axes: Any, rate: float) -> None:
    rows = [row(name, 0.0 if number < 4 else rate) for number, name in enumerate(ENTRANTS)]
    figures.plot_memory(axes, rows)
    axes.figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the line to its mark
    assert len(boxes) == len(ENTRANTS)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    whole = axes.figure.bbox
    assert all(whole.y0 <= box.y0 and box.y1 <= whole.y1 and box.x1 <= whole.x1 for box in boxes)


def test_detectors_stand_in_the_order_of_their_means_with_their_windows(axes: Any) -> None:
    rates = {"gse": [0.02, 0.04], "cube": [0.0, 0.002], "filter": [0.3, 0.1]}
    rows = [row(name, rate, window) for name, some in rates.items() for window, rate in enumerate(some)]
    figures.plot_dots(axes, rows, "ftr")
    assert tick_names(axes) == ["cube", "gse", "filter"]
    assert means_drawn(axes) == pytest.approx({"cube": 0.001, "gse": 0.03, "filter": 0.2})
    faint = [line for line in axes.lines if line.get_marker() == "."]
    assert [line.get_xdata().tolist() for line in faint] == [rates["cube"], rates["gse"], rates["filter"]]
    assert all(line.get_linestyle() == "None" for line in faint)  # Windows are independent: no line joins them.


def test_intervals_are_those_of_the_mean_over_windows() -> None:
    (spot,) = figures.spots([row("gse", rate, window) for window, rate in enumerate([0.01, 0.02, 0.03])], "ftr")
    reach = 4.3027 * 0.01 / 3**0.5
    assert (spot.mean, spot.low, spot.high) == pytest.approx((0.02, 0.02 - reach, 0.02 + reach), abs=1e-5)
    assert spot.bars == [[pytest.approx(0.02)], [pytest.approx(reach, abs=1e-5)]]  # not below 0
    (spot,) = figures.spots([row("cube", 0.0, window) for window in range(12)], "ftr")
    assert (spot.mean, spot.low) == (0, 0)
    assert spot.high == pytest.approx(3 / 7200, rel=0.01)  # the rule of three


def test_phantoms_are_marked_among_false_positives(axes: Any) -> None:
    rows = [row("gse", 0.02), row("dcds", 0.05, phantoms=15)]
    said = figures.plot_dots(axes, rows, "fpr")
    assert "phantoms" in str(said)
    (mark,) = [line for line in axes.lines if line.get_marker() == "|" and line.get_color() == "black"]
    assert tick_names(axes)[int(mark.get_ydata()[0])] == "dcds"
    assert mark.get_xdata()[0] == pytest.approx(15 / 600)
    assert figures.plot_dots(axes, [row("cube", 0.0)], "fpr") == "no detector reported a phantom"


def test_restore_times_are_medians(axes: Any) -> None:
    times = [4.0, 5.0, 600.0]
    rows = [row("cbaa", 0.0, window, restore_ms=time) for window, time in enumerate(times)]
    figures.plot_dots(axes, rows, "restore_ms")
    assert means_drawn(axes) == {"cbaa": 5.0}


def test_curves_over_memory(axes: Any) -> None:
    rows = [
        row(name, rate / size * MIB, window, memory_given=size)
        for name, rate in (("cube", 0.01), ("gse", 0.2))
        for size in (MIB, 16 * MIB, 512 * MIB)
        for window in (1, 2)
    ]
    rows = [each for each in rows if (each.detector, each.memory_given) != ("gse", MIB)]  # cannot be so small
    figures.plot_curves(axes, rows, "ftr")
    lines = {each.get_label(): each[0] for each in axes.containers}
    curves = {name: (line.get_xdata().tolist(), line.get_ydata().tolist()) for name, line in lines.items()}
    places, rates = curves["cube"]
    assert places == pytest.approx([1, 16, 512], rel=0.02)
    assert rates == pytest.approx([0.01, 0.01 / 16, 0.01 / 512])
    others, rates = curves["gse"]
    assert others == pytest.approx([16, 512], rel=0.02)
    assert rates == pytest.approx([0.2 / 16, 0.2 / 512])
    assert not set(places) & set(others)  # side by side: none hides another


def test_each_detector_has_a_panel_with_a_cube_beside_it() -> None:
    names = ["gse", "cube-planned", "my:Own", "cube-dense", "cube"]
    rows = [row(name, 0.1, memory_given=MIB << size) for size in range(10) for name in names]
    figure = sheet.new_figure(3)
    figures.plot_panels(figure, rows, "ftr")
    figure.draw_without_rendering()
    panels = {axes.get_title(): [each.get_label() for each in axes.containers] for axes in figure.get_axes()}
    cubes = ["cube-planned", "cube-dense", "cube"]
    assert panels == {"cubes": cubes, "gse": ["gse", "cube-dense"], "my:Own": ["my:Own", "cube-dense"]}
    assert figures.panel_lines(names) == 1
    first = figure.get_axes()[0]
    assert [label.get_text() for label in first.get_xticklabels()] == ["1", "8", "64", "512"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == cubes
    figures.plot_panels(figure := sheet.new_figure(3), [each for each in rows if "cube" not in each.detector], "fpr")
    assert [len(axes.containers) for axes in figure.get_axes()] == [1, 1]


def test_every_detector_over_its_memory() -> None:
    figure = sheet.new_figure(0.95 + 0.95 * figures.panel_lines(ENTRANTS))
    figures.plot_panels(
        figure, [row(name, 0.1, memory_given=MIB << size) for size in range(10) for name in ENTRANTS], "ftr"
    )
    figure.draw_without_rendering()
    titles = [axes.get_title() for axes in figure.get_axes()]
    assert titles == ["cubes", *[name for name in ENTRANTS if not name.startswith("cube")]]
    for axes in figure.get_axes()[1:]:
        assert len({figures.look_of(each.get_label()).colour for each in axes.containers}) == 2


def test_every_detector_has_a_look_of_its_own_in_safe_colours() -> None:
    assert len(set(figures.LOOKS.values())) == len(ENTRANTS)
    assert {look.colour for look in figures.LOOKS.values()} <= set(OKABE_ITO.values()) - {OKABE_ITO["yellow"]}
    by_shape = {(look.marker, look.is_open) for look in figures.LOOKS.values()}
    assert len(by_shape) == len(ENTRANTS)  # Without colours they can be told apart, too.


@pytest.mark.slow
def test_the_same_rows_give_the_same_files(tmp_path: Path) -> None:
    rows = [row(name, 0.01 * window, window) for window in (1, 2) for name in ("cube", "gse")]
    some = np.array([1100, 2000, 9000])
    estimates = Estimates(some, some + 5, some - 20, some + 30.0, np.zeros(3, np.bool_))
    facts = figures.Facts(1024, "public key", "superhosts compare", {"cube": estimates, "gse": estimates})
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files = figures.draw_comparison(rows, tmp_path / name, facts)
        made.append({path.name: path.read_bytes() for path in files})
    assert made[0] == made[1]
    stems = {"fnr", "fpr", "ftr", "restore", "memory", "estimates", "coverage"}
    assert set(made[0]) == {stem + kind for stem in stems for kind in (".pdf", ".svg")}
    for stem in stems:
        text = made[0][f"{stem}.svg"].decode().replace("\N{NO-BREAK SPACE}", " ")
        for fact in ("θ = 1,024", "2 windows of 5,000,000 flows", "default memory of each", "public key"):
            assert fact in text, (stem, fact)
        assert "superhosts compare" in text  # in the metadata
        assert 'width="244.8pt"' in text  # 3.4 inches


def test_small_figures_draw_some_of_many_hosts() -> None:
    for hosts in (figures.MOST_IN_SMALL, 5 * figures.MOST_IN_SMALL):
        some = np.geomspace(2000, 60_000, hosts).astype(np.int64)
        estimates = Estimates(some, some + 5, some - 20, some + 30.0, np.zeros(hosts, np.bool_))
        facts = figures.Facts(1024, "public key", "superhosts compare", {"cube": estimates})
        figure = sheet.new_figure(3)
        figures.plot_each(figure, facts, partial(figures.plot_errors, most=figures.MOST_IN_SMALL))
        assert len(figure.get_axes()[0].lines[0].get_xdata()) == figures.MOST_IN_SMALL
        assert figures._how_many(facts) == ("drawn, evenly by rank: 60 of 300 hosts" if hosts == 300 else "")


@pytest.mark.parametrize("column", ["fpr", "restore_ms"])
def test_no_text_leaves_the_sheet(axes: Any, column: str) -> None:
    """With the longest names that there are, phantoms, and the caption under them."""
    rows = [row(name, 0.3 * number, phantoms=number) for number, name in enumerate(ENTRANTS)]
    axes.set_title(figures.plot_dots(axes, rows, column) or "", fontsize=7, loc="left")
    inside(axes.figure)


def inside(figure: Any) -> None:
    figure.draw_without_rendering()
    (axes,) = figure.get_axes()
    # Some ticks lie outside and are not drawn.
    ticks = {*axes.get_xticklabels(which="both"), *axes.get_yticklabels(which="minor")}
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text not in ticks]
    assert len(texts) > 5
    for text in texts:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0 + 1, text
        assert box.x1 <= figure.bbox.x1 + 1, text


# Estimates


def estimates(true: list[int], *, off: list[int] | None = None, saturated: list[bool] | None = None) -> Estimates:
    """Estimates that are off by so much, with intervals of ± 50."""
    numbers = np.array(true)
    found = numbers + np.array(off or [0] * len(true))
    marks = np.array(saturated or [False] * len(true))
    return Estimates(numbers, found, found - 50, np.where(marks, np.inf, found + 50.0), marks)


def test_groups_begin_at_the_threshold_and_double() -> None:
    some = estimates([1000, 1999, 2000, 3999, 8000], off=[0, 60, 0, 0, -60])
    found = figures.coverage_by_size(some, 1000)
    assert [each.held for each in found] == [(1, 2), (2, 2), (0, 1)]
    assert [each.size for each in found] == pytest.approx([(1000 * 1999) ** 0.5, (2000 * 3999) ** 0.5, 8000])


def test_coverage_is_drawn_with_wilsons_interval_and_the_nominal_line(axes: Any) -> None:
    figures.plot_coverage(axes, estimates([1500] * 10, off=[0] * 9 + [60]), 1000)
    (drawn,) = axes.containers
    assert drawn[0].get_ydata().tolist() == [0.9]
    ((start, end),) = drawn[2][0].get_segments()
    assert (start[1], end[1]) == pytest.approx((Share(9, 10).low, Share(9, 10).high))
    nominal = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in nominal] == [0.95]


def test_without_intervals_there_is_no_coverage(axes: Any) -> None:
    none = estimates([1500, 3000])._replace(low=np.full(2, np.nan), high=np.full(2, np.nan))
    assert figures.plot_coverage(axes, none, 1000) == []
    assert [text.get_text() for text in axes.texts] == ["no intervals"]
    assert axes.containers == []
    figures.plot_errors(axes, none, 1000)
    assert axes.containers == []  # dots without error bars
    assert [len(line.get_xdata()) for line in axes.lines if line.get_label() == "estimate, no interval"] == [2]


def test_saturated_hosts_are_lower_bounds(axes: Any) -> None:
    figures.plot_errors(axes, estimates([1500, 90_000], saturated=[False, True]), 1000)
    (drawn,) = axes.containers
    assert drawn[0].get_xdata().tolist() == [1500]
    (bounds,) = [line for line in axes.lines if line.get_label() == "saturated: lower bound"]
    assert bounds.get_xdata().tolist() == [90_000]
    assert bounds.get_ydata().tolist() == pytest.approx([-50 / 90_000])


def test_errors_are_relative(axes: Any) -> None:
    figures.plot_errors(axes, estimates([1000, 2000], off=[100, -10]), 1000)
    (drawn,) = axes.containers
    assert drawn[0].get_ydata().tolist() == pytest.approx([-0.005, 0.1])  # the largest host first
    bars = [(start[1], end[1]) for start, end in drawn[2][0].get_segments()]
    assert bars == [pytest.approx((-0.03, 0.02)), pytest.approx((0.05, 0.15))]
    (truth,) = [line for line in axes.lines if line.get_label() == "truth"]
    assert list(truth.get_ydata()) == [0, 0]


def test_of_many_hosts_some_of_all_sizes_are_drawn() -> None:
    true = np.random.default_rng(3).permutation(np.arange(1000, 9000))
    drawn = true[figures.drawn_hosts(true)]
    assert len(drawn) == figures.MOST_DRAWN
    assert (drawn[0], drawn[-1]) == (8999, 1000)
    assert np.abs(np.diff(drawn) + 8000 / figures.MOST_DRAWN).max() < 2
    assert sorted(figures.drawn_hosts(true[:20])) == list(range(20))


# Intervals


def test_intervals() -> None:
    # Quantiles for 97.5 %, as any table of Student's distribution has them
    for freedom, quantile in ((1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (11, 2.201), (30, 2.042), (1000, 1.962)):
        assert figures.student_quantile(freedom) == pytest.approx(quantile, abs=6e-4)
    assert figures.mean_interval([3.0]) is None
    assert figures.mean_interval([2.0, 2.0]) == (2.0, 2.0)
    reach = 4.3027 / math.sqrt(3)
    assert figures.mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - reach, 2 + reach), abs=1e-3)
    for count, exact in ((0, (0, 3.689)), (1, (0.025, 5.572)), (10, (4.795, 18.39))):  # of a Poisson count
        assert figures.count_interval(count) == pytest.approx(exact, abs=0.05)
    assert math.exp(-100 * figures.most_unseen(100)) == pytest.approx(0.05)  # the rule of three


# Figures of rows: hosts in order, one host over time, the columns of a host.


def host_row(host: str, peers: int | None, *, reach: int = 30, **others: Any) -> dict[str, Any]:
    low = 50_000 if peers is None else peers - reach
    high = None if peers is None else peers + reach
    facts = {"window_start": "2026-01-01T00:00:00Z", "window_end": "2026-01-01T00:05:00Z", "side": "inner"}
    numbers = {"peers": peers, "peers_low": low, "peers_high": high, "exact": reach == 0, "saturated": peers is None}
    return {"host": host, "family": 4, "direction": "any", "detector": "cube", **facts, **numbers, **others}


def test_hosts_with_intervals_bounds_and_counts(axes: Any) -> None:
    rows = [host_row("10.0.0.1", None), host_row("10.0.0.2", 2000), host_row("10.0.0.3", 1500, reach=0)]
    plot_hosts(axes, rows)
    assert tick_names(axes) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    drawn = {each.get_label(): each for each in axes.containers}
    assert set(drawn) == {"saturated: lower bound", "estimate, 95 % interval", "counted"}
    ((start, end),) = drawn["estimate, 95 % interval"][2][0].get_segments()
    assert (start[0], end[0]) == (1970, 2030)
    assert drawn["saturated: lower bound"][2] == ()  # no bar
    assert axes.get_xscale() == "log"
    top, bottom = sorted(axes.get_ylim())
    assert (top, bottom) == (-0.6, 2.6)


def test_what_tells_rows_apart_stands_in_their_names(axes: Any) -> None:
    later = {"window_start": "2026-01-01T00:05:00Z", "window_end": "2026-01-01T00:10:00Z"}
    plot_hosts(axes, [host_row("10.0.0.1", 2000, site="ams"), host_row("10.0.0.1", 1900, site="fra", **later)])
    assert tick_names(axes) == ["10.0.0.1 01-01 00:00 ams", "10.0.0.1 01-01 00:05 fra"]
    assert axes.get_xlim()[0] == 0  # Numbers that are near each other begin at 0.


@pytest.mark.slow
def test_of_many_hosts_the_largest_are_drawn(tmp_path: Path) -> None:
    rows = [host_row(f"10.0.0.{number}", 2000 + number) for number in range(100)]
    (path,) = draw_hosts(rows, tmp_path / "hosts.svg", Note(caption("θ = 1,024"), "superhosts hosts"))
    text = path.read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert f"the {MOST_HOSTS} largest of 100 rows" in text
    shown = [number for number in range(100) if f">10.0.0.{number}<" in text]
    assert shown == list(range(100 - MOST_HOSTS, 100))


def test_one_host_over_time_has_a_series_for_each_site(axes: Any) -> None:
    def window(minute: int) -> dict[str, str]:
        return {name: f"2026-01-01T00:{minute + plus:02}:00Z" for name, plus in zip(ENDS, (0, 5), strict=True)}

    rows = [host_row("10.0.0.1", peers, site=site, **window(minute)) for minute, peers, site in VISITS]
    plot_history(axes, rows)
    drawn = {each.get_label(): each[0].get_ydata().tolist() for each in axes.containers}
    assert drawn == {"ams": [2000, 2500], "fra": [1200, 50_000]}  # the bound of the saturated one
    bound = [line for line in axes.lines if line.get_marker() == "^" and len(line.get_xdata())]
    assert [line.get_ydata().tolist() for line in bound if line.get_markersize() == 7] == [[50_000]]
    assert "2026-01-01" in axes.get_xlabel()


ENDS = ("window_start", "window_end")
VISITS = [(0, 2000, "ams"), (0, 1200, "fra"), (5, 2500, "ams"), (5, None, "fra")]


def test_windows_without_a_time_stand_side_by_side(axes: Any) -> None:
    none = {"window_start": None, "window_end": None}
    plot_history(axes, [host_row("10.0.0.1", 2000, **none), host_row("10.0.0.1", 2100, **none)])
    assert axes.containers[0][0].get_xdata().tolist() == [0, 1]


def test_columns_show_how_a_number_comes_about(axes: Any) -> None:
    columns: list[dict[str, Any]] = [
        {"array": 0, "fill": 0.4, "mean_fill": 0.1},
        {"array": 1, "fill": 0.3, "mean_fill": 0.2},
        {"array": "all (AND)", "fill": 0.25, "mean_fill": None},
    ]
    plot_columns(axes, Columns(host_row("10.0.0.1", 2000), columns))
    assert tick_names(axes) == ["column 0", "column 1", "AND of all"]
    assert [bar.get_width() for bar in axes.patches] == [0.4, 0.3, 0.25]
    ticks = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "|"]
    assert ticks == [0.1, 0.2]
    assert axes.get_title(loc="left") == "estimated: 2,000 peers (1,970 to 2,030)"


def test_keys_and_captions() -> None:
    public = fingerprint(DEFAULT_KEY)
    assert key_words([public]) == "public key"
    assert key_words(["0123456789abcdef", public, public]).startswith("key 01234567")
    assert caption("a b", "", "c") == "a\N{NO-BREAK SPACE}b · c"
