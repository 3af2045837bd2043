"""Figures of rows: hosts in order, one host over time, the columns of a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from superhosts.core.hashing import DEFAULT_KEY, fingerprint
from superhosts.lab import sheet
from superhosts.lab.hostfigures import MOST_HOSTS, Columns, draw_hosts, plot_columns, plot_history, plot_hosts
from superhosts.lab.sheet import Note, caption, key_words


def row(host: str, peers: int | None, *, reach: int = 30, **others: Any) -> dict[str, Any]:
    low = 50_000 if peers is None else peers - reach
    high = None if peers is None else peers + reach
    facts = {"window_start": "2026-01-01T00:00:00Z", "window_end": "2026-01-01T00:05:00Z", "side": "inner"}
    numbers = {"peers": peers, "peers_low": low, "peers_high": high, "exact": reach == 0, "saturated": peers is None}
    return {"host": host, "family": 4, "direction": "any", "detector": "cube", **facts, **numbers, **others}


@pytest.fixture
def axes() -> Any:
    with pytest.importorskip("matplotlib").rc_context(sheet.STYLE):
        yield sheet.new_figure(3).subplots()


def names(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_hosts_with_intervals_bounds_and_counts(axes: Any) -> None:
    rows = [row("10.0.0.1", None), row("10.0.0.2", 2000), row("10.0.0.3", 1500, reach=0)]
    plot_hosts(axes, rows)
    assert names(axes) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
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
    plot_hosts(axes, [row("10.0.0.1", 2000, site="ams"), row("10.0.0.1", 1900, site="fra", **later)])
    assert names(axes) == ["10.0.0.1 01-01 00:00 ams", "10.0.0.1 01-01 00:05 fra"]
    assert axes.get_xlim()[0] == 0  # Numbers that are near each other begin at 0.


@pytest.mark.slow
def test_of_many_hosts_the_largest_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [row(f"10.0.0.{number}", 2000 + number) for number in range(100)]
    (path,) = draw_hosts(rows, tmp_path / "hosts.svg", Note(caption("θ = 1,024"), "superhosts hosts"))
    text = path.read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert f"the {MOST_HOSTS} largest of 100 rows" in text
    shown = [number for number in range(100) if f">10.0.0.{number}<" in text]
    assert shown == list(range(100 - MOST_HOSTS, 100))


def test_one_host_over_time_has_a_series_for_each_site(axes: Any) -> None:
    def window(minute: int) -> dict[str, str]:
        return {name: f"2026-01-01T00:{minute + plus:02}:00Z" for name, plus in zip(ENDS, (0, 5), strict=True)}

    rows = [row("10.0.0.1", peers, site=site, **window(minute)) for minute, peers, site in VISITS]
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
    plot_history(axes, [row("10.0.0.1", 2000, **none), row("10.0.0.1", 2100, **none)])
    assert axes.containers[0][0].get_xdata().tolist() == [0, 1]


def test_columns_show_how_a_number_comes_about(axes: Any) -> None:
    columns: list[dict[str, Any]] = [
        {"array": 0, "fill": 0.4, "mean_fill": 0.1},
        {"array": 1, "fill": 0.3, "mean_fill": 0.2},
        {"array": "all (AND)", "fill": 0.25, "mean_fill": None},
    ]
    plot_columns(axes, Columns(row("10.0.0.1", 2000), columns))
    assert names(axes) == ["column 0", "column 1", "AND of all"]
    assert [bar.get_width() for bar in axes.patches] == [0.4, 0.3, 0.25]
    ticks = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "|"]
    assert ticks == [0.1, 0.2]
    assert axes.get_title(loc="left") == "estimated: 2,000 peers (1,970 to 2,030)"


def test_keys_and_captions() -> None:
    public = fingerprint(DEFAULT_KEY)
    assert key_words([public]) == "public key"
    assert key_words(["0123456789abcdef", public, public]).startswith("key 01234567")
    assert caption("a b", "", "c") == "a\N{NO-BREAK SPACE}b · c"
