"""A wrong clock of one site never closes the windows of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleets import NOON, make_sketch, write_parcel
from hubs import SITES, FakeTime, Node
from superhosts.core.units import SECOND

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
