"""A program lives while its main loop moves, and is ready when nothing says otherwise."""

from __future__ import annotations

from superhosts.core.pairs import Window
from superhosts.core.profile import BOUNDS, Durations
from superhosts.ui.endpoint import STARTING, Health
from superhosts.ui.monitor import LastWindow, Sites


def test_a_loop_that_stands_still_is_dead_until_it_moves_again() -> None:
    now = [0.0]
    health = Health(lambda: now[0], stalled=60)
    assert health.why_not_ready() == ["starting"]
    assert not health.why_dead()
    health.beat()
    assert health.why_not_ready() == []
    now[0] = 60.0
    assert not health.why_dead()
    now[0] = 61.0
    assert health.why_dead() == "the main loop has not moved for 61 s"
    assert health.why_not_ready() == [health.why_dead()]
    health.beat()
    assert not health.why_dead()


def test_a_program_that_never_began_is_dead_in_the_end() -> None:
    now = [0.0]
    health = Health(lambda: now[0], stalled=60)
    now[0] = STARTING
    assert not health.why_dead()  # it may have to compile
    now[0] = STARTING + 1
    assert health.why_dead()


def test_it_is_ready_when_all_conditions_hold() -> None:
    health, reasons = Health(), ["the link does not work", ""]
    health.beat()
    health.look_at(lambda: reasons[0])
    health.look_at(lambda: reasons[1])
    assert health.why_not_ready() == ["the link does not work"]
    reasons[:] = ["", ""]
    assert health.why_not_ready() == []


def test_durations_fall_into_the_first_bound_that_they_do_not_exceed() -> None:
    durations = Durations()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] + 1e-9, 1e9):
        durations.add(seconds)
    with durations.measured():
        pass
    cumulated = durations.cumulated()
    assert cumulated[:2] == [(str(BOUNDS[0]), 3.0), (str(BOUNDS[1]), 4.0)]
    assert cumulated[-2:] == [(str(BOUNDS[-1]), 4.0), ("+Inf", 5.0)]
    assert durations.count == 5
    assert durations.seconds > 1e9


def test_a_window_that_is_reported_again_counts_once_and_an_older_one_is_not_the_last() -> None:
    now = [1000.0]
    last = LastWindow(lambda: now[0])
    last.note(Window(300 * 10**9, 600 * 10**9), 3)
    now[0] = 2000.0
    last.note(Window(0, 300 * 10**9), 9)
    assert (last.closed, last.hosts, last.at, last.end, last.seconds) == (2, 3, 1000.0, 600.0, 300.0)
    last.note(Window(300 * 10**9, 600 * 10**9), 4, is_new=False)
    assert (last.closed, last.hosts, last.at) == (2, 4, 2000.0)


def test_a_late_report_of_an_earlier_window_says_nothing_about_the_sites_of_now() -> None:
    heard = {"ams": 5.0, "fra": 9.0}
    sites = Sites(lambda: heard, ("ams", "fra", "nyc"))
    assert sites.present() == [("ams", False), ("fra", False), ("nyc", False)]
    sites.note(Window(300, 600), ["ams", "fra"], ["nyc"])
    sites.note(Window(0, 300), ["nyc"], ["ams", "fra"])
    assert sites.present() == [("nyc", False), ("ams", True), ("fra", True)]
    assert sites.seen() == [("fra", 9.0), ("ams", 5.0)]
