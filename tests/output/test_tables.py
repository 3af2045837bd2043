"""Tables for people: which columns they have, how they fit, and how windows appear in them."""

from __future__ import annotations

import io
from ipaddress import ip_address
from typing import Any

import pytest
from rich.console import Console

from packets import SECOND
from superhosts.core.pairs import Window
from superhosts.core.results import Selection, SuperHost
from superhosts.core.times import iso_time, local_times, shown_time, window_cell
from superhosts.output.destination import RunKind
from superhosts.output.report import Report, Row, make_rows, words_of
from superhosts.output.table import OutputConsole, Terminal, print_timeline

NOON = 1_794_657_600 * SECOND  # 2026-11-14T12:00:00Z
MINUTE = 60 * SECOND
FIRST, SECOND_WINDOW = (Window(NOON + n * 5 * MINUTE, NOON + (n + 1) * 5 * MINUTE) for n in range(2))
LONG = "2001:db8:1111:2222:3333:4444:5555:6666"  # 38 characters
LONGEST = "2001:0db8:1111:2222:3333:4444:5555:6666"  # as wide as an address can be


def row(host: str = "10.1.2.3", peers: int | None = 15, low: int = 15, high: int | None = 15, **fields: Any) -> Row:
    found = SuperHost(ip_address("::1"), peers, low, high, low == high, peers is None, detector="cube")
    (made,) = make_rows(FIRST, [found])
    return {**made, "host": host, **fields}


ESTIMATED = row(peers=4120, low=4043, high=4197)
SATURATED = row(peers=None, low=4043, high=None)


class Screen:
    def __init__(self, width: int | None = None, **run: Any) -> None:
        self._stream = io.StringIO()
        console: Console = OutputConsole(self._stream)
        if width is not None:
            terminal = {"force_terminal": True, "color_system": None, "width": width}
            console = Console(file=self._stream, soft_wrap=True, highlight=False, **terminal)
        self.table = Terminal(console, RunKind(**run))

    def write(self, *rows: Row, window: Window | None = FIRST, **fields: Any) -> None:
        self.table.write(Report(rows=rows, window=window, **{"title": "title", **fields}))

    @property
    def lines(self) -> list[str]:
        return self._stream.getvalue().splitlines()


def shown(*rows: Row, **run: Any) -> list[str]:
    """Return the lines of a table of one window, below its heading, each with single spaces."""
    screen = Screen(**run)
    screen.write(*rows)
    screen.table.close()
    heading, *lines, last = screen.lines
    assert (heading, last) == ("2026-11-14T12:00:00Z to 2026-11-14T12:05:00Z: title", "")
    return [" ".join(line.split()) for line in lines]


# Columns


def test_an_interval_only_where_the_number_is_an_estimate() -> None:
    assert shown(ESTIMATED, SATURATED) == [
        "host peers 95 % interval",
        "10.1.2.3 4,120 4,043 – 4,197",
        "10.1.2.3 ≥ 4,043 saturated",
    ]
    assert shown(ESTIMATED, row())[-1] == "10.1.2.3 15 exact"
    assert shown(row()) == ["host peers (exact)", "10.1.2.3 15"]


def test_sides_directions_and_sites_only_where_they_vary() -> None:
    assert shown(row(), row())[0] == "host peers (exact)"
    assert shown(row(), row(side="outer"))[0] == "host side peers (exact)"
    assert shown(row(), row(direction="in"))[0] == "host direction peers (exact)"
    assert shown(row(), row(side="outer", direction="in"))[0] == "host side direction peers (exact)"
    assert shown(row(), varying=frozenset({"side"}))[0] == "host side peers (exact)"  # or where that was asked for
    assert shown(row(site="ams"), row(site="ams"))[0] == "host peers (exact)"
    assert shown(row(site="ams"), row(site="fra")) == ["site host peers (exact)", "ams 10.1.2.3 15", "fra 10.1.2.3 15"]


def test_columns_are_aligned() -> None:
    screen = Screen()
    screen.write(row("10.0.0.1", 7, 7, 7), row(LONG, 1234567, 1234567, 1234567))
    screen.table.close()
    assert screen.lines[1:4] == [
        "host                                    peers (exact)",
        "10.0.0.1                                            7",
        "2001:db8:1111:2222:3333:4444:5555:6666      1,234,567",
    ]


# Widths


@pytest.mark.parametrize("width", [20, 60, 80, 120])
@pytest.mark.parametrize("many", [True, False, None])
def test_addresses_are_never_cut(width: int, many: bool | None) -> None:
    screen = Screen(width, many_windows=many, varying=frozenset({"side", "direction", "site"}))
    for window in (FIRST, SECOND_WINDOW):
        screen.write(row(LONGEST, 4120, 4043, 4197, site="ams"), window=window)
    screen.table.close()
    assert sum(LONGEST in line for line in screen.lines) == 2
    if width >= 80:
        assert max(map(len, screen.lines)) <= width


def test_a_long_address_and_a_window_fit_into_80_columns_where_numbers_are_exact() -> None:
    screen = Screen(80, many_windows=True)
    screen.write(row(LONGEST))
    assert screen.lines[-1] == f"2026-11-14 12:00–12:05  {LONGEST}             15"


def test_windows_get_tables_of_their_own_where_their_column_does_not_fit() -> None:
    screen = Screen(80, many_windows=True)
    screen.write(ESTIMATED)
    screen.write(row(LONGEST, 4120, 4043, 4197), window=SECOND_WINDOW)
    assert screen.lines == [
        "window (UTC)            host               peers      95 % interval",
        "2026-11-14 12:00–12:05  10.1.2.3           4,120      4,043 – 4,197",
        "2026-11-14T12:05:00Z to 2026-11-14T12:10:00Z: title",
        "host                                     peers  95 % interval",
        f"{LONGEST}  4,120  4,043 – 4,197",
        "",
    ]


def test_the_interval_is_left_out_first() -> None:
    assert shown(row(LONGEST, 4120, 4043, 4197), row(LONG, 4043), SATURATED, width=50) == [
        "host peers",
        f"{LONGEST} ≈ 4,120",
        f"{LONG} 4,043",
        "10.1.2.3 ≥ 4,043",
    ]


def site(name: str, peers: int | None = 640) -> Row:
    return {"site": name, "peers": peers, "peers_low": 4043, "peers_high": None}


def test_the_sites_of_a_hub_are_wrapped() -> None:
    sites = [site("ams", None), site("fra"), *(site(f"site-{number}") for number in range(8))]
    assert shown(row(sites=sites[:2])) == ["host peers (exact) seen by", "10.1.2.3 15 ams ≥ 4,043, fra 640"]
    assert shown(row(sites=sites), width=55)[1:] == [
        "10.1.2.3 15 ams ≥ 4,043, fra 640,",
        "site-0 640,",
        "site-1 640 and 6 more",
    ]
    assert shown(row(LONGEST, sites=sites[:2]), width=60)[1:] == [f"{LONGEST} 15", "seen by ams ≥ 4,043, fra 640"]


# Many windows


def test_many_windows_are_one_table() -> None:
    screen = Screen()
    screen.write(row(), row("10.1.2.4", 9, 9, 9))
    assert screen.lines == []  # it may be the only one
    screen.write(row(LONG), window=SECOND_WINDOW)
    screen.write(row(), window=FIRST)
    assert screen.lines == [
        "window (UTC)            host             peers (exact)",
        "2026-11-14 12:00–12:05  10.1.2.3                    15",
        "2026-11-14 12:00–12:05  10.1.2.4                     9",
        "2026-11-14 12:05–12:10  2001:db8:1111:2222:3333:4444:5555:6666             15",
        "2026-11-14 12:00–12:05  10.1.2.3                                           15",
    ]


@pytest.mark.parametrize("run", [{"endless": True}, {"many_windows": True}])
def test_rows_appear_at_once_where_windows_come_one_by_one_and_a_new_column_has_a_new_header(run) -> None:
    screen = Screen(**run)
    screen.write(row())
    assert len(screen.lines) == 2
    screen.write(ESTIMATED, window=SECOND_WINDOW)
    screen.write(row())
    assert screen.lines[2:] == [
        "",
        "window (UTC)            host               peers      95 % interval",
        "2026-11-14 12:05–12:10  10.1.2.3           4,120      4,043 – 4,197",
        "2026-11-14 12:00–12:05  10.1.2.3              15              exact",
    ]


def test_what_rows_do_not_say_has_a_line() -> None:
    screen = Screen(many_windows=True)
    screen.write(row(), notes=["revision 2"])
    screen.write(row(), is_incomplete=True, title="1 of 4 hosts with at least 9 peers")
    screen.write(title="none with 9 peers or more", notes=["partial: interrupted"])
    assert [line.removeprefix("2026-11-14 12:00–12:05  ") for line in screen.lines[1::2]] == [
        "(revision 2)",
        "1 of 4 hosts with at least 9 peers",
        "none with 9 peers or more (partial: interrupted)",
    ]
    assert screen.lines[-1].endswith("  none with 9 peers or more (partial: interrupted)")


def test_a_window_without_hosts_is_one_line() -> None:
    screen = Screen()
    screen.write(title="none with 1,024 peers or more")
    screen.table.close()
    assert screen.lines == ["2026-11-14T12:00:00Z to 2026-11-14T12:05:00Z: none with 1,024 peers or more"]


def test_titles() -> None:
    for selection, count, left_out, words in (
        (Selection(500), 92, 0, "92 hosts with at least 500 peers"),
        (Selection(500, 5), 5, 87, "5 of 92 hosts with at least 500 peers"),
        (Selection(500, 5), 5, 0, "5 hosts with at least 500 peers"),
        (Selection(1), 1, 0, "1 host with at least 1 peer"),
        (Selection(1024), 0, 0, "none with 1,024 peers or more"),
    ):
        found = words_of(selection, count, left_out=left_out)
        assert (found["title"], found["is_incomplete"]) == (words, left_out > 0)


# Times


def test_windows_in_cells() -> None:
    for start, length, text in (
        (0, 5 * MINUTE, "2026-11-14 12:00–12:05"),
        (0, 30 * SECOND, "2026-11-14 12:00:00–12:00:30"),
        (11 * 60 * MINUTE, 60 * MINUTE, "2026-11-14 23:00–00:00"),
        (0, 24 * 60 * MINUTE, "2026-11-14 12:00–2026-11-15 12:00"),
        (1, SECOND, "2026-11-14T12:00:00.000000001Z to 2026-11-14T12:00:01.000000001Z"),
        (2**60 * SECOND, SECOND, "1152921506401504512.000 to 1152921506401504512.000"),
    ):
        assert window_cell(Window(NOON + start, NOON + start + length)) == text
    assert window_cell(None) == "no window"  # of a sketch


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Any:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    with local_times(True):
        yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_local_times() -> None:
    assert shown_time(NOON + SECOND // 2) == "2026-11-14T13:00:00.5+01:00"
    assert iso_time(NOON) == "2026-11-14T12:00:00Z"
    assert shown_time(2**60 * SECOND) == "1152921504606846976.000"
    assert window_cell(FIRST) == "2026-11-14 13:00–13:05"
    screen = Screen()
    screen.write(row())
    screen.write(row(), window=SECOND_WINDOW)
    assert screen.lines[0].split()[:3] == ["window", "(local", "time)"]
    assert screen.lines[1].startswith("2026-11-14 13:00–13:05  10.1.2.3")
    assert Report(rows=[], window=FIRST).heading.startswith("2026-11-14T13:00:00+01:00 to 2026-11-14T13:05:00+01:00: ")
    stream = io.StringIO()
    print_timeline(OutputConsole(stream), [row(site="ams")], [])
    assert stream.getvalue().startswith("2026-11-14T13:00:00+01:00  ams")


# Bars


def timeline(width: int, rows: list[Row], unions: list[Row]) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system=None, soft_wrap=True, width=width)
    print_timeline(console, rows, unions)
    return stream.getvalue().splitlines()


def test_bars_fit_the_width_or_are_left_out() -> None:
    for width in (65, 80, 120, 200):
        lines = timeline(width, [{**ESTIMATED, "site": "amsterdam"}, {**SATURATED, "site": "fra"}], [ESTIMATED])
        assert max(map(len, lines)) <= width
        room = width - len("2026-11-14T12:00:00Z  amsterdam    4,120  4,043 – 4,197  ")
        assert lines[0].endswith("A" * min(40, room))
        assert lines[1].count("B") == round(min(40, room) * 4043 / 4120)  # as long as its lower bound
    assert timeline(53, [{**ESTIMATED, "site": "ams"}], []) == ["2026-11-14T12:00:00Z  ams  4,120  4,043 – 4,197"]
