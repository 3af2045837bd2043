"""When a hub reports a window, and in which order: clocks of sites that are wrong, turns of sites."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fleets import NOON, make_sketch, window, write_parcel
from hubs import SITES, FakeTime, Node, make_archive
from superhosts.core.pairs import Window
from superhosts.core.units import SECOND
from superhosts.errors import UnreadableError
from superhosts.fleet.report import HubReport
from superhosts.fleet.store import Ledger, WindowStore

MINUTE = 60.0
FIRST = NOON / SECOND  # when window 0 begins


class Fleet:
    """A hub whose clock a test sets, in seconds after the beginning of window 0."""

    def __init__(self, folder: Path, sites: tuple[str, ...] = SITES) -> None:
        self.clock = FakeTime(FIRST)
        self.node = Node(folder, times=self.clock.source, sites=sites, grace=MINUTE, late_pause=10.0, tidy_every=1e9)

    def at(self, seconds: float, *sketches: tuple[str, int]) -> list[tuple[list[str], int]]:
        """Let sketches arrive at a time, and return the sites and the revision of each report that follows."""
        self.clock.now = FIRST + seconds
        before = len(self.node.reports)
        for site, number in sketches:
            path = write_parcel(make_sketch(site, number), self.node.folder / "wire")
            self.node.intake.accept(path, path.name, site)
        self.node.hub.step()
        return [(report.sites, report.revision) for report in self.node.reports[before:]]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_a_sketch_that_comes_before_its_window_ends_does_not_close_it(fleet: Fleet) -> None:
    """The clock of fra is three minutes ahead."""
    assert fleet.at(120, ("fra", 0)) == []
    assert fleet.at(240) == []  # the grace period since that sketch has passed twice
    assert fleet.at(305, ("ams", 0)) == []
    assert fleet.at(315, ("nyc", 0)) == [(["ams", "fra", "nyc"], 1)]


def test_the_wait_for_the_others_begins_when_their_window_ends(fleet: Fleet) -> None:
    assert fleet.at(120, ("fra", 0)) == []
    assert fleet.at(310, ("ams", 0)) == []
    assert fleet.at(359) == []
    assert fleet.at(361) == [(["ams", "fra"], 1)]
    assert fleet.at(365, ("nyc", 0)) == []
    assert fleet.at(376) == [(["ams", "fra", "nyc"], 2)]


def test_all_sites_are_there_before_the_end(fleet: Fleet) -> None:
    """It is the clock of the hub that is behind."""
    assert fleet.at(100, ("ams", 0), ("fra", 0), ("nyc", 0)) == [(["ams", "fra", "nyc"], 1)]


def test_a_window_far_ahead_is_reported_and_closes_nothing_when_its_time_comes(fleet: Fleet) -> None:
    """The clock of fra is two hours ahead."""
    assert fleet.at(10, ("fra", 24)) == []
    assert fleet.at(80) == [(["fra"], 1)]
    hours = 25 * 300
    assert fleet.at(hours + 1, ("ams", 24)) == []
    assert fleet.at(hours + 30) == []  # not after ten seconds, as a late sketch
    assert fleet.at(hours + 31, ("nyc", 24)) == [(["ams", "fra", "nyc"], 2)]


def test_a_clock_that_is_set_back_does_not_keep_a_window(fleet: Fleet) -> None:
    assert fleet.at(120, ("fra", 0)) == []
    assert fleet.at(-86_400) == [(["fra"], 1)]


@pytest.mark.slow
def test_made_up_windows_are_no_reason_to_expect_less_of_the_others(tmp_path: Path) -> None:
    """Without --sites, the sites of the last windows are expected; fra fills all of these with times of its own."""
    fleet = Fleet(tmp_path, sites=())
    assert fleet.at(301, ("ams", 0), ("fra", 0), ("nyc", 0)) == []  # nothing is known of the first window
    assert fleet.at(361) == [(["ams", "fra", "nyc"], 1)]
    fleet.at(400, *(("fra", number) for number in range(100, 114)), *(("fra", -number) for number in range(100, 114)))
    fleet.at(500)
    assert fleet.at(601, ("ams", 1), ("fra", 1)) == []  # nyc is expected
    assert fleet.at(602, ("nyc", 1)) == [(["ams", "fra", "nyc"], 1)]


def test_windows_of_old_captures_tell_which_sites_there_are(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, sites=())
    year = 365 * 86_400
    fleet.at(year, ("ams", 0), ("fra", 0))
    fleet.at(year + 61)
    assert fleet.at(year + 100, ("ams", 1)) == []
    assert fleet.at(year + 101, ("fra", 1)) == [(["ams", "fra"], 1)]


FRESH = 100  # the number of a window that lies after all others


def send(node: Node, site: str, number: int) -> None:
    """A small sketch arrives, with a peer of its own."""
    node.send(make_sketch(site, number, peers=5, base=10 * number))


def numbers(node: Node) -> list[int]:
    """The windows that were reported, in order."""
    first = window(0)
    return [(report.window.start - first.start) // (first.end - first.start) for report in node.reports]


def test_a_window_of_several_sites_does_not_wait_for_all_that_one_site_has_sent(tmp_path: Path):
    node = Node(tmp_path, sites=("ams", "fra"), grace=0.0)
    for number in range(12):
        send(node, "ams", number)
    for site in ("ams", "fra"):
        send(node, site, FRESH)
    node.hub.step()
    assert numbers(node).index(FRESH) <= 1
    assert sorted(numbers(node)) == [*range(12), FRESH]


def test_a_window_that_comes_while_others_are_reported_is_next_but_one_at_most(tmp_path: Path):
    node = Node(tmp_path, sites=("ams", "fra"), grace=0.0)
    for number in range(12):
        send(node, "ams", number)

    def report(made: HubReport) -> None:
        node.reports.append(made)
        if len(node.reports) == 3:
            for site in ("ams", "fra"):
                send(node, site, FRESH)

    node.report = report
    node.hub.step()
    assert numbers(node).index(FRESH) in (3, 4)
    assert sorted(numbers(node)) == [*range(12), FRESH]


def test_sketches_for_many_windows_of_the_archive_do_not_keep_a_fresh_one_waiting(tmp_path: Path):
    """Windows that are reported again have many sites, too; what counts is whose sketches are new."""
    archive = make_archive(tmp_path)
    node = Node(tmp_path, sites=("ams", "fra"), grace=0.0, late=-1.0, archive=archive)
    for number in range(6):
        for site in ("ams", "fra"):
            send(node, site, number)
    node.hub.step()
    node.hub.tidy()
    assert node.store.windows() == []
    node.reports.clear()
    for number in range(6):
        send(node, "evil", number)
    for site in ("ams", "fra"):
        send(node, site, FRESH)
    node.hub.step()
    assert numbers(node).index(FRESH) <= 1
    assert sorted(numbers(node)) == [*range(6), FRESH]


def test_a_window_that_cannot_be_read_now_is_tried_once_in_a_step(tmp_path: Path):
    node = Node(tmp_path, sites=("ams",), grace=0.0)
    for number in range(3):
        send(node, "ams", number)
    tried: list[Window | None] = []

    def fail(made: HubReport) -> None:
        tried.append(made.window)
        if made.window == window(0):
            raise UnreadableError("Input/output error", file="x.cube")

    node.report = fail
    node.hub.step(on_turn=node.intake.arrived.set)  # something arrives all the time
    assert tried == [window(number) for number in range(3)]


class CountingStore(WindowStore):
    """Counts how often ledgers are looked up."""

    looked = 0

    def ledger(self, window: str) -> Ledger:
        self.looked += 1
        return super().ledger(window)


def test_the_work_of_a_step_grows_with_the_windows_not_with_their_square(tmp_path: Path):
    """Without `--sites` the sites of the last windows are expected, and are looked up once for all."""
    costs = []
    for size in (6, 12):
        node = Node(tmp_path / str(size), sites=(), grace=0.0, look_every=math.inf, store=CountingStore)
        for number in range(size):
            send(node, "ams", number)
        node.store.looked = 0
        node.hub.step()
        costs.append(node.store.looked)
        assert numbers(node) == list(range(size))
    assert costs[1] < 2.5 * costs[0]
