"""Bars, charts and columns: what is certain is solid, what is possible is shaded, and everything fits."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from superhosts.core.hosttable import peers_text
from superhosts.ui.answers import Point
from superhosts.ui.top.drawing import BRAILLE, bar, chart, cut, placed, sparkline
from superhosts.ui.top.feed import Snapshot
from superhosts.ui.top.hosts import MARK, filtered, header_line, host_line, host_rows, lay_out, ordered
from superhosts.ui.top.pages import Where, alert_items, host_page, list_table, site_items, status_line, title_line
from ui.top.scene import HOSTS, row


def drawn(low: int, most: int, *, exact: bool = False) -> str:
    return bar(low, most, is_exact=exact, largest=1000, width=10).plain


def test_a_bar_is_solid_to_the_lower_end_and_shaded_to_the_upper() -> None:
    assert drawn(500, 700) == "█████░░   "
    assert drawn(990, 1000) == "█████████░"
    assert drawn(1, 2) == "░         "
    assert drawn(501, 502) == "█████░    "  # an interval is never invisible
    assert drawn(500, 500, exact=True) == "█████     "
    assert drawn(550, 550, exact=True) == "█████▌    "
    assert drawn(1000, 1000, exact=True) == "██████████"
    assert drawn(1, 1, exact=True) == "▏         "
    assert bar(0, 0, is_exact=True, largest=0, width=3).plain == "   "


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 40), st.booleans())
def test_bars_are_as_wide_as_they_should(low: int, more: int, largest: int, width: int, exact: bool) -> None:
    assert cell_len(bar(low, low + more, is_exact=exact, largest=largest, width=width).plain) == width


def dots(lines: list[str]) -> list[list[bool]]:
    """A chart as rows of dots, by the layout of braille characters that Unicode defines."""
    places = ((0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (3, 1))
    grid = [[False] * (2 * len(line)) for line in lines for _ in range(4)]
    for number, line in enumerate(lines):
        for column, character in enumerate(line):
            for bit, (down, right) in enumerate(places):
                grid[4 * number + down][2 * column + right] = bool((ord(character) - BRAILLE) >> bit & 1)
    return grid


def point(start: float, end: float, low: int, high: int | None) -> Point:
    return {"start": start, "end": end, "low": low, "high": high}


def test_a_chart_draws_intervals_over_their_times() -> None:
    grid = dots(chart([point(0, 10, 0, 0), point(10, 20, 70, 110), point(30, 40, 40, None)], width=4, height=3))
    columns = ["".join("x" if line[place] else "." for line in grid) for place in range(8)]
    assert columns[0] == columns[1] == "...........x"  # zero is at the bottom
    assert columns[2] == columns[3] == "xxxxx......."  # from 110, the highest, down to 70
    assert columns[4] == columns[5] == "............"  # a window that is not known
    assert columns[6] == columns[7] == "xxxxxxxx...."  # saturated: 40 or more


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=50),
    st.integers(1, 60),
    st.integers(1, 12),
)
def test_every_window_is_in_the_chart(found: list[tuple[int, int, int]], width: int, height: int) -> None:
    points = [point(start, start + 1, low, low + more) for start, low, more in found]
    lines = chart(points, width, height)
    assert [len(line) for line in lines] == [width] * height
    first, last = min(each["start"] for each in points), max(each["end"] for each in points)
    grid, scale = dots(lines), 2 * width / (last - first)
    for each in points:  # Its ends are rounded to columns.
        columns = range(math.floor((each["start"] - first) * scale), math.ceil((each["end"] - first) * scale) + 1)
        assert any(line[column] for line in grid for column in columns if column < 2 * width)


def test_the_line_of_windows() -> None:
    line = sparkline([0, 50, 100], 1)
    assert line.plain == "▁▅█"
    assert [line.plain[span.start : span.end] for span in line.spans if "underline" in str(span.style)] == ["▅"]
    assert sparkline([0, 0], None).plain == "▁▁"


def test_lines_are_cut_by_cells_not_by_characters() -> None:
    assert cut("日本語ネット", 7) == "日本語…"
    assert cut("ab", 0) == ""


@given(st.text("ab日 ", max_size=30), st.text("ab日 ", max_size=30), st.integers(1, 40))
def test_two_texts_in_a_line_never_exceed_it(left: str, right: str, width: int) -> None:
    line = placed(Text(left), Text(right), width).plain
    assert cell_len(line) <= width
    if cell_len(left) + 1 + cell_len(right) <= width:
        assert line.startswith(left)
        assert line.endswith(right)


rows_of_hosts = st.lists(
    st.builds(
        row,
        st.ip_addresses().map(str),
        st.text(max_size=60),
        st.sampled_from(["", "server", "horizontal scan"]),
        st.integers(1, 10**9),
        st.floats(0.0, 0.5),
        st.lists(st.text(max_size=20), max_size=4).map(tuple),
    ),
    max_size=5,
)


@pytest.mark.slow
@given(rows_of_hosts, st.integers(MARK + 1, 200))
def test_lines_of_any_hosts_fit_into_any_width(rows: list[dict[str, Any]], width: int) -> None:
    found = host_rows(rows)
    layout = lay_out(found, width)
    for each in found:
        line = host_line(each, layout, is_chosen=False).plain
        assert cell_len(line) <= width
        assert "peers" not in layout.widths or peers_text(each.row) in line
        assert line.isprintable()
        assert cell_len(line) == cell_len(header_line(layout, "peers").plain)


def test_columns_go_one_by_one() -> None:
    rows = host_rows(row(*each) for each in HOSTS)
    seen = [set(lay_out(rows, width).widths) for width in (120, 90, 80, 72, 60, 44, 30)]
    assert seen[0] == {"host", "name", "peers", "interval", "bar", "pattern", "sites"}
    assert seen[1] == seen[0] - {"sites"}
    assert seen[2] == seen[0] - {"sites", "bar"}  # no name is cut for a bar beside its number
    for wider, narrower in itertools.pairwise(seen):
        assert narrower <= wider
    assert seen[-1] == {"host", "peers"}
    assert not lay_out(rows, 120).is_short
    assert lay_out(rows, 80).is_short


def test_a_saturated_host_and_an_exact_one() -> None:
    exact = {"peers": 20, "peers_low": 20, "peers_high": 20, "exact": True}
    saturated = {"peers": None, "peers_low": 5000, "peers_high": None}
    rows = host_rows([row("10.0.0.1", "", "", 1, 0.0, ()) | exact, row("10.0.0.2", "", "", 1, 0.0, ()) | saturated])
    layout = lay_out(rows, 80)
    lines = [host_line(each, layout, is_chosen=False).plain for each in ordered(rows, "peers")]
    assert "≥ 5,000" in lines[0]
    assert "saturated" in lines[0]
    assert "exact" in lines[1]
    assert "interval" not in lay_out(rows[:1], 80).widths


def test_what_is_live_and_what_is_old() -> None:
    newest = {"start": 1000.0, "end": 1300.0, "revision": 2, "title": "1 host", "rows": []}

    def lines(**summary: Any) -> list[str]:
        snapshot = Snapshot({"now": 1400.0, "newest": newest, **summary}, [newest], newest, None, time.monotonic())
        return [title_line(snapshot, "", Where(), 99).plain, status_line(snapshot, "", Where(), 0, 99).plain]

    assert lines(live=True, live_until=2200.0)[0].endswith("● live ")
    assert lines(live=True)[0].endswith("● live ")  # of an earlier release
    assert lines(live=True, live_until=1399.0)[0].endswith("● newest, 100 s ago ")  # it has become old meanwhile
    assert lines(live=False, live_until=0.0, now=1300.0 + 321 * 86400)[0].endswith("● newest, 321 d ago ")
    assert "(revision 2)" in lines(live=False)[1]


def test_evidence_of_another_window_says_so() -> None:
    answer, numbers = {"points": [], "rows": [row(*HOSTS[0])]}, ("peers", "peers_low", "peers_high")
    (newest,) = host_rows(answer["rows"])
    old = host_rows([{"host": HOSTS[0][0], "side": "inner", "direction": "any", **dict.fromkeys(numbers, 7)}])[0]
    assert "Evidence, newest window" in host_page(answer, old, 80).plain
    assert "newest window" not in host_page(answer, newest, 80).plain


def test_what_a_past_tells() -> None:
    (chosen,) = host_rows([row(*HOSTS[0])])
    point = {"side": "inner", "direction": "any", "start": 0.0, "end": 1.0, "low": 9, "high": 9}
    points = [point | {"reported": each} for each in (False, True)]
    assert "2 windows, super host in 1" in host_page({"points": points, "threshold": 1024.0}, chosen, 80).plain
    assert "2 windows, reported in 1" in host_page({"points": points, "threshold": None}, chosen, 80).plain
    notes = ["2 older windows were not asked: it would take too long.", "1 window cannot be read: a\x1b.cube."]
    page = host_page({"points": [], "notes": notes}, chosen, 80).plain
    assert "2 older windows were not asked: it would take too long.\n1 window cannot be read: a\\x1b.cube.\n" in page


def test_rows_that_differ_in_direction_say_so() -> None:
    both = [row("10.0.0.1", "", "", 900, 0.1, ()) | {"direction": way} for way in ("in", "out")]
    rows = host_rows(both)
    assert len({each.key for each in rows}) == 2
    assert "10.0.0.1 inner out" in host_line(rows[1], lay_out(rows, 80), is_chosen=True).plain


def test_prefixes_filter_hosts_and_prefixes() -> None:
    names = ("10.1.0.0/24", "10.1.2.3", "10.2.0.1", "2001:db8::1", "10.1.2.3:443", "#1a2b")
    rows = host_rows(row(name, "", "", 900, 0.1, ()) for name in names)
    assert [each.host for each in filtered(rows, "10.1.0.0/16")] == ["10.1.0.0/24", "10.1.2.3"]
    assert [each.host for each in filtered(rows, "10.1.0.0/25")] == []
    assert [each.host for each in filtered(rows, "#1a")] == ["#1a2b"]
    assert [each.host for each in filtered(rows, "nonsense/99")] == []


def test_sites_of_which_little_is_known() -> None:
    sites = [
        {"site": "ams", "in_window": True, "seen": float("nan"), "spool_sketches": 10**400, "spool_bytes": "many"},
        {"site": "fra", "in_window": None, "seen": 1000.0, "clock": -7.0, "mismatch": "too old"},
        {"site": "lon", "in_window": False, "spool_sketches": 2, "spool_bytes": "many"},
    ]
    items = site_items(sites, 1090.0)
    assert [(item.cells["site"], item.cells["newest window"], item.is_urgent) for item in items] == [
        ("lon", "missing", True),
        ("ams", "yes", False),
        ("fra", "no", True),
    ]
    assert (items[0].cells["heard"], items[0].cells["spool"]) == ("–", "2 (0 B)")
    assert (items[1].cells["heard"], items[1].cells["spool"]) == ("–", "–")
    assert (items[2].cells["heard"], items[2].cells["clock"]) == ("90 s ago", "-7.0 s")
    for width in (20, 40, 80, 200):
        table = list_table(items, width)
        assert all(cell_len(table.line(place, True).plain) <= width for place in range(3))


def test_open_alerts_with_the_most_peers_come_first() -> None:
    alerts = [{"host": str(peers), "peers": peers, "closed": closed} for closed in (0, 9) for peers in (5, None, 7)]
    assert [item.cells["host"] for item in alert_items({"alerts": alerts})] == ["7", "5", "None", "5", "None", "7"]


def test_alerts_without_fields() -> None:
    items = alert_items({"alerts": [{"id": "a", "closed": 0}, {"id": "b", "closed": 5.0}], "muted": [{"host": "x"}]})
    assert [item.cells["state"] for item in items] == ["open", "muted", "closed"]
    assert list_table([], 80).header().plain.strip() == ""
