"""Windows that slide, at the hub: the rows of one scan over all sites' traffic, whatever the order and the crashes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from chaos import LONG
from faults import DeadError, at_commit, at_rename, at_sync, die
from fleets import damage, damage_database
from hubs import FakeTime, Node, make_archive
from processes import INNER, SITES, sites_traffic, write_captures
from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.core.times import window_name
from superhosts.core.units import SECOND
from superhosts.errors import OutputError
from superhosts.fleet.link import MERGED, REFUSED
from superhosts.fleet.report import HubReport
from superhosts.fleet.slidingwindows import Grid
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import DATABASE, SLIDING, UNION
from superhosts.output.report import make_rows
from superhosts.pipeline.scan import scan
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.sliding import PaneQueue
from superhosts.sketch.sketch import Sketch

PANES, SLIDE = 4, 10 * SECOND
COUNT = 9  # panes of all traffic
GRID = Grid(PANES * SLIDE, SLIDE)
SIZES = "slices=1,arrays=4,columns=112,rows=1024,labels=2,share=8,giants=1"  # 64 KiB
SETTINGS = Settings(geometry=SIZES, device="cpu", threads=1)
COMMON: dict[str, Any] = {"inner": INNER[1], "geometry": SIZES, "device": "cpu", "threads": 1}
THRESHOLD = 12  # many hosts in some windows and not in others
Rows = list[dict[str, Any]]


@functools.cache
def captures() -> dict[str, list[Path]]:
    folder = Path(tempfile.mkdtemp(prefix="superhosts-panes-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    traffic = sites_traffic(COUNT, seconds=SLIDE // SECOND, packets=3000)
    return {site: write_captures(folder / site, batches, 10**9) for site, batches in traffic.items()}


@functools.cache
def panes() -> dict[tuple[int, str], Sketch]:
    """The sketches of each pane and site, as edges make them."""
    found: dict[tuple[int, str], Sketch] = {}
    for site in SITES:
        run = scan(captures()[site], window="10s", site=site, keep_sketch=True, **COMMON)
        found |= {(number, site): result.sketch for number, result in enumerate(run)}
    return found


@functools.cache
def truth(sites: tuple[str, ...] = SITES) -> dict[Window, Rows]:
    """The rows of each window by one scan over the traffic of all sites."""
    paths = [path for site in sites for path in captures()[site]]
    run = scan(paths, window="40s", slide="10s", exact=False, threshold=THRESHOLD, **COMMON)
    return {result.window: make_rows(result.window, result) for result in run}


def window(number: int) -> Window:
    """The window that ends with a pane."""
    return sorted(truth())[number]


def plain(rows: Iterable[dict[str, Any]]) -> Rows:
    """Rows without what only a hub knows."""
    return [
        {name: value for name, value in row.items() if name not in ("sites", "missing", "revision")} for row in rows
    ]


def last(reports: Iterable[HubReport]) -> dict[Window, Rows]:
    """The rows of the last report of each window, after a check that reports of one number are equal."""
    by_number: dict[tuple[Window, int], Rows] = {}
    for report in reports:
        rows = list(report.rows)
        assert by_number.setdefault((report.window, report.revision), rows) == rows
        assert all(row["revision"] == report.revision for row in rows)
    return {window: plain(by_number[window, revision]) for window, revision in sorted(by_number)}


def make_node(folder: Path, **options: Any) -> Node:
    settings = {"kind": SETTINGS, "grid": GRID, "selection": Selection(THRESHOLD), **options}
    return Node(folder, **settings)


def send(node: Node, number: int, sites: Iterable[str] = SITES) -> None:
    for site in sites:
        assert node.send(panes()[number, site]).verdict == MERGED


def test_the_traffic_is_worth_the_tests():
    assert len(truth()) == COUNT
    hosts = [{row["host"] for row in rows} for rows in truth().values()]
    assert all(len(each) >= 4 for each in hosts)
    assert all(before != after for before, after in itertools.pairwise(hosts))


def test_a_pane_that_fails_halfway_changes_no_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The queue has the pane when it fails, and the next attempt must not count on that."""
    clock = FakeTime()
    node = make_node(tmp_path, times=clock.source)
    real, calls = PaneQueue.push, itertools.count()

    def fail(queue: PaneQueue, sketch: Sketch) -> None:
        real(queue, sketch)
        if next(calls) == 3:
            raise TypeError("no number")

    monkeypatch.setattr(PaneQueue, "push", fail)
    for number in range(COUNT):
        send(node, number)
        node.hub.step()
    clock.now += 600
    node.hub.step()
    assert last(node.reports) == truth()
    assert [line for line in node.said if "NOT REPORTED" in line and "TypeError: no number" in line]


@pytest.mark.slow
def test_the_sites_of_a_row_are_those_of_all_panes_of_its_window(tmp_path: Path):
    node = make_node(tmp_path)
    for number in range(COUNT):
        send(node, number)
        node.hub.step()

    @functools.cache
    def alone(number: int, site: str) -> Sketch:
        """Merge what one site has seen of a window."""
        whole = Sketch()
        for pane in range(max(0, number + 1 - PANES), number + 1):
            path = node.folder / "alone.cube"
            panes()[pane, site].save(path)
            whole.merge_file(path)
        return whole

    checked = 0
    for number, report in enumerate(node.reports):
        for row in report.rows:
            for seen in row["sites"]:
                (estimate,) = alone(number, seen["site"]).estimate(row["host"])
                assert (seen["peers"], seen["peers_low"], seen["peers_high"]) == estimate[1:4]
                checked += 1
    assert checked > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20 if LONG else 2))
def test_any_order_ends_with_the_same_rows(tmp_path: Path, seed: int):
    """Every window is reported as soon as it has any sketch: there are many revisions, and the last is whole."""
    draw = random.Random(seed)
    order = list(itertools.product(range(COUNT), SITES))
    draw.shuffle(order)
    node = make_node(tmp_path, grace=0.0)
    for place, (number, site) in enumerate(order):
        send(node, number, [site])
        if draw.random() < 0.4 or place == len(order) - 1:
            node.hub.step()
        if draw.random() < 0.1:  # a restart
            reports, node = node.reports, make_node(tmp_path, grace=0.0)
            node.reports += reports
    node.hub.step()
    assert last(node.reports) == truth()
    assert len({(report.window, report.revision) for report in node.reports}) == len(node.reports)
    finals = {report.window: report for report in node.reports}
    assert {report.attendance for report in finals.values()} == {"3 of 3 sites"}


@pytest.mark.slow
def test_a_late_sketch_revises_the_windows_of_its_pane_once_each(tmp_path: Path):
    node = make_node(tmp_path, grace=0.0)
    for number in range(COUNT):
        send(node, number, SITES if number != 3 else SITES[:2])
        node.hub.step()
    late = range(3, 3 + PANES)
    assert len(node.reports) == COUNT
    assert [report.missing for report in node.reports] == [["nyc"] if each in late else [] for each in range(COUNT)]
    assert [report.sites for report in node.reports][3] == ["ams", "fra"]
    assert all(row["missing"] == report.missing for report in node.reports for row in report.rows)
    send(node, 3, ["nyc"])
    node.hub.step()
    again = node.reports[COUNT:]
    assert [(report.window, report.revision, report.missing) for report in again] == [(window(n), 2, []) for n in late]
    assert last(node.reports) == truth()
    node.hub.step()
    assert len(node.reports) == COUNT + PANES
    assert node.hub.counters.revisions == PANES


def test_a_window_waits_for_its_panes_no_longer_than_the_grace_period(tmp_path: Path):
    clock = FakeTime()
    node = make_node(tmp_path, grace=60.0, times=clock.source)
    send(node, 0, SITES[:2])
    clock.now += 30
    send(node, 1)
    node.hub.step()
    assert node.reports == []  # pane 1 is whole, but the window has pane 0, too
    assert node.hub.counters.panes == 1
    clock.now += 30
    node.hub.step()
    assert {report.window: report.missing for report in node.reports} == {window(0): ["nyc"], window(1): ["nyc"]}


def test_a_pane_that_nobody_sent_is_missing_between_others(tmp_path: Path):
    node = make_node(tmp_path)
    for number in (1, 2, 4, 7):
        send(node, number)
        node.hub.step()
    found = [(report.window, report.missing) for report in node.reports]
    assert found == [(window(1), []), (window(2), []), (window(4), list(SITES)), (window(7), list(SITES))]
    send(node, 3)
    node.hub.step()
    again = {report.window: (report.revision, report.missing) for report in node.reports[4:]}
    assert again == {window(3): (1, []), window(4): (2, [])}


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "sync", "commit", "report"])
def test_killed_at_any_moment_no_row_is_lost_or_changes(tmp_path: Path, call: str):
    """Three panes come, then a late sketch. The hub is killed before the first call that matters, the second, …"""
    sites = SITES[:2]

    def play(folder: Path, report: Callable[[HubReport], None], *, late: bool) -> None:
        node = make_node(folder, grace=0.0, sites=sites)
        node.report = report
        for number, site in itertools.product(range(3), sites):
            if (number, site) != (0, "fra") or late:
                node.send(panes()[number, site])
        node.hub.step()
        node.hub.tidy()

    step = 1 if LONG else {"rename": 3, "sync": 7, "commit": 5, "report": 1}[call]
    for moment in itertools.count(0, step):
        folder, reports, killed = tmp_path / str(moment), list[HubReport](), False
        for late in (False, True):
            calls = itertools.count()

            def count(*_: Any, calls: Any = calls, moment: int = moment, **__: Any) -> None:
                if next(calls) == moment:
                    die()

            def taken(report: HubReport, count: Any = count, reports: Any = reports) -> None:
                """Stand for a destination: the hub is killed before it has the report, or after."""
                count()
                reports.append(report)
                count()

            faults = {"rename": at_rename("*", count), "sync": at_sync(count), "commit": at_commit(count)}
            try:
                with faults.get(call, contextlib.nullcontext()):
                    play(folder, taken if call == "report" else reports.append, late=late)
            except DeadError:
                killed = True
            play(folder, reports.append, late=late)
        assert last(reports) == dict(sorted(truth(sites).items())[:3]), moment
        assert {tuple(report.missing) for report in {each.window: each for each in reports}.values()} == {()}
        if not killed:
            break
    assert moment > 3


def test_a_destination_that_fails_gets_the_same_rows_later(tmp_path: Path):
    """Meanwhile a pane has changed: the rows in progress are those on disk."""
    node = make_node(tmp_path, grace=0.0)

    def fail(report: HubReport) -> None:
        tried.append(list(report.rows))
        raise OutputError("the pipe is closed")

    tried: list[Rows] = []
    node.report = fail
    send(node, 0, SITES[:1])
    node.hub.step()
    assert len(tried) == 1
    send(node, 0, SITES[1:])
    node = make_node(tmp_path, grace=0.0)
    node.report = fail
    node.hub.step()
    assert node.hub.counters.panes == 1  # the pane is whole now, and its window still fails
    node = make_node(tmp_path, grace=0.0)
    node.hub.step()
    assert tried[0] == tried[-1] == list(node.reports[0].rows)
    assert node.reports[0].missing == ["fra", "nyc"]
    assert [report.revision for report in node.reports] == [1, 2]
    assert plain(node.reports[1].rows) == truth()[window(0)]


def test_what_is_no_pane_of_the_grid_is_refused(tmp_path: Path):
    node = make_node(tmp_path)
    sketch = Sketch(window=Window(0, 300 * SECOND), site="ams")
    receipt = node.send(sketch)
    assert receipt.verdict == REFUSED
    assert receipt.reason == (
        "a window of 5m, and this hub takes panes of 10s (--window 40s --slide 10s): start its edge with --slide 10s"
    )
    receipt = node.send(Sketch(window=Window(5 * SECOND, 15 * SECOND), site="ams"))
    assert (receipt.verdict, "does not begin at a multiple of 10s" in receipt.reason) == (REFUSED, True)
    alone = make_node(tmp_path / "alone", grid=Grid(SLIDE, SLIDE))
    assert "takes windows of 10s (--window): start its edge with --window 10s" in alone.send(sketch).reason
    send(alone, 0)
    alone.hub.step()
    (report,) = alone.reports  # a window of one pane does not slide
    assert report.window.end - report.window.start == SLIDE


def in_time(clock: FakeTime, number: int) -> None:
    """Set a clock to the moment in which a pane ends."""
    clock.now = window(number).end / SECOND


@pytest.mark.slow
def test_panes_are_kept_while_windows_need_them(tmp_path: Path):
    """Although sketches are late after a second: a window is reported when its last pane comes."""
    clock = FakeTime()
    in_time(clock, 0)
    node = make_node(tmp_path, late=1.0, times=clock.source)
    for number in range(COUNT):
        in_time(clock, number)
        node.hub.tidy()  # the last pane came as long ago as a slide lasts
        send(node, number)
        node.hub.step()
        node.hub.tidy()
    assert last(node.reports) == truth()
    assert COUNT > node.hub.counters.retired > 0
    assert len(node.store.windows()) == COUNT - node.hub.counters.retired
    old = node.send(panes()[2, "ams"])  # known
    assert old.verdict == MERGED
    clock.now += 1000
    node.hub.tidy()
    assert node.store.windows() == []
    assert not any(node.store.ledgers.rows(window_name(window(number)), SLIDING) for number in range(COUNT))
    node = make_node(tmp_path, late=1.0, times=clock.source)
    node.hub.step()
    assert node.reports == []
    late = Sketch(SETTINGS.make_detector, window=window(3)._replace(start=window(3).end - SLIDE), site="lon")
    assert node.send(late).reason == "its windows are past --late, and no archive has their other panes"
    number = window(0).end // SLIDE
    early = Sketch(SETTINGS.make_detector, window=Window((number - 2) * SLIDE, (number - 1) * SLIDE), site="lon")
    assert node.send(early).reason == "its windows are past --late, and no archive has their other panes"


@pytest.mark.slow
def test_panes_are_kept_as_long_as_a_neighbour_may_change(tmp_path: Path):
    """A late sketch of pane 3 is followed by another one: the windows of pane 3 have panes that are older."""
    clock = FakeTime()
    in_time(clock, 0)
    node = make_node(tmp_path, late=1.0, grace=0.0, times=clock.source)
    for number in range(7):
        in_time(clock, number)
        send(node, number, SITES if number != 3 else SITES[:1])
        node.hub.step()
    for site in SITES[1:]:
        send(node, 3, [site])
        node.hub.step()
        clock.now += GRID.length / SECOND
        node.hub.tidy()
    assert last(node.reports) == {window(number): truth()[window(number)] for number in range(7)}
    clock.now += 2.0
    node.hub.tidy()
    assert node.store.windows() == []


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True], ids=["retired", "state lost"])
def test_a_late_sketch_brings_panes_back_from_the_archive(tmp_path: Path, lost: bool):
    clock = FakeTime()

    def start(folder: Path) -> Node:
        return make_node(folder, late=1.0, grace=0.0, times=clock.source, archive=make_archive(tmp_path))

    node = start(tmp_path)
    for number in range(COUNT):
        in_time(clock, number)
        send(node, number, SITES if number != 3 else SITES[:2])
        node.hub.step()
    clock.now += 1000
    node.hub.tidy()
    assert node.store.windows() == []
    first, node = node.reports, start(tmp_path / "new" if lost else tmp_path)
    send(node, 3, ["nyc"])
    node.hub.step()
    assert [report.window for report in node.reports] == [window(number) for number in range(3, 3 + PANES)]
    assert all(report.revision > 1 if lost else report.revision == 2 for report in node.reports)
    assert last([*first, *node.reports]) == truth()
    assert {report.attendance for report in node.reports} == {"3 of 3 sites"}


@pytest.mark.parametrize("what", ["database", "rows", "union"])
def test_damaged_state_is_named_and_made_again(tmp_path: Path, what: str):
    node = make_node(tmp_path, grace=0.0)
    for number in range(5):
        send(node, number, SITES if number != 3 else SITES[:2])
        node.hub.step()
    state = tmp_path / "state"
    if what == "union":
        damage(sorted((state / "windows").glob(f"*/{UNION}"))[2])
    elif what == "database":
        damage_database(state / DATABASE)
    else:
        with contextlib.closing(sqlite3.connect(state / DATABASE)) as database, database:
            database.execute("UPDATE rows SET content = '[]' WHERE kind = ?", (SLIDING,))
    first, node = node.reports, make_node(tmp_path, grace=0.0)
    node.hub.step()
    send(node, 3, ["nyc"])
    node.hub.step()
    assert any(line.startswith(("SET ASIDE", "LEFT OUT", "DAMAGED: the rows")) for line in node.said)
    found = last([*first, *node.reports])
    assert found == {window(number): truth()[window(number)] for number in range(5)}


def test_windows_from_before_are_reported_as_they_were_sent(tmp_path: Path):
    """A hub that got windows of 40 seconds is started again with panes."""
    node = make_node(tmp_path, grid=None, grace=60.0)
    tumbling = Window(GRID.window(GRID.number_of_window("20261114T120000Z-40s")).start, 0)
    whole = Window(tumbling.start, tumbling.start + GRID.length)
    sketch = Sketch(SETTINGS.make_detector, window=whole, site="ams")
    node.send(sketch)
    node = make_node(tmp_path, grace=0.0)
    for number in range(PANES):
        pane = Window(whole.start + number * SLIDE, whole.start + (number + 1) * SLIDE)
        node.send(Sketch(SETTINGS.make_detector, window=pane, site="ams"))
    node.hub.step()
    assert [report.window for report in node.reports].count(whole) == 1
    assert len(node.reports) == PANES


@pytest.mark.slow
def test_an_upstream_hub_gets_panes_and_makes_the_same_windows(tmp_path: Path):
    spool = Spool(tmp_path / "up", "west", cap=1 << 30, say=print)
    west = make_node(tmp_path / "west", upstream=spool)
    top = make_node(tmp_path / "top", sites=("west",))
    for number in range(COUNT):
        send(west, number)
        west.hub.step()
        for path in sorted((tmp_path / "up").glob("*.cube")):
            assert top.arrive(path, "west").verdict == MERGED
        top.hub.step()
    assert last(top.reports) == last(west.reports) == truth()
