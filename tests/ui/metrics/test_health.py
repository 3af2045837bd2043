"""A program lives while its main loop moves, and is ready when nothing says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import superhosts as sh
from processes import free_port
from superhosts.core.pairs import Window
from superhosts.core.profile import BOUNDS, Durations
from superhosts.errors import OutputError
from superhosts.output.delivery import DeliveryOptions
from superhosts.output.destination import ENDLESS
from superhosts.output.registry import open_destination
from superhosts.output.report import Report
from superhosts.pipeline.network import REASONS
from superhosts.pipeline.scan import Counters
from superhosts.ui.endpoint import STARTING, Health
from superhosts.ui.folder import PartState, state_of
from superhosts.ui.monitor import MOST_SITES, PREFIX, LastWindow, of_destinations, of_scan, of_sites, why_no_link
from waiting import wait_for


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
    last.note(Window(300 * 10**9, 600 * 10**9), 3, reporting=["ams", "fra"], missing=["nyc"])
    now[0] = 2000.0
    last.note(Window(0, 300 * 10**9), 9, reporting=["nyc"], missing=["ams", "fra"])
    assert (last.closed, last.hosts, last.at, last.end, last.seconds) == (2, 3, 1000.0, 600.0, 300.0)
    assert (last.reporting, last.missing) == (("ams", "fra"), ("nyc",))
    last.note(Window(300 * 10**9, 600 * 10**9), 4, is_new=False)
    assert (last.closed, last.hosts, last.at) == (2, 4, 2000.0)


# Readings that no command of the other tests brings about: losses of flow exports, queues, very many sites.


def by_name(reading: Iterator[Any]) -> dict[str, Any]:
    return {metric.name.removeprefix(PREFIX): metric for metric in reading}


def values(metric: Any) -> dict[Any, float]:
    return {next(iter(sample.labels.values()), None): sample.value for sample in metric.samples}


def test_losses_are_told_apart_by_where_they_happened() -> None:
    exports = [
        {"kernel_drops": 5, "lost_records": 7, "lost_datagrams": 0},
        {"kernel_drops": 1, "lost_records": None, "lost_datagrams": 2},
    ]
    full = [SimpleNamespace(fullness=lambda share=share: share) for share in (None, 0.25, 0.5)]
    scan: Any = SimpleNamespace(counters=Counters(drops=3, late=4, exports=exports), sources=full)
    found = by_name(of_scan(scan))
    assert values(found["dropped"]) == {"capture": 3, "receiver": 6}
    assert values(found["exports_lost"]) == {"records": 7, "datagrams": 2}
    assert values(found["packets_not_counted"])["late"] == 4
    assert set(values(found["packets_not_counted"])) == set(REASONS)
    assert values(found["ring_fullness_ratio"]) == {None: 0.5}


def test_a_destination_that_is_away_shows_its_queue_and_never_its_address() -> None:
    """The address may hold a secret."""
    address = f"webhook+http://127.0.0.1:{free_port()}/hooks/T0KEN"
    destination = open_destination(address, ENDLESS, DeliveryOptions(wait=0.01))
    for number in range(2):
        destination.write(Report(rows=[{"host": "10.0.0.7"}], window=Window(number, number + 1)))
    wait_for(lambda: destination.status()["failures"], "an attempt fails")
    found = by_name(of_destinations(rows=[destination]))
    with pytest.raises(OutputError, match="2 reports NOT DELIVERED"):
        destination.close()
    names = ("queued", "queued_bytes", "failed", "sent", "dropped")
    queued, size, failed, sent, dropped = (values(found[f"destination_{name}"])["rows"] for name in names)
    assert (queued, sent, dropped) == (2, 0, 0)
    assert size > 0 < failed
    assert {"purpose": "rows", "kind": "webhook+http", "number": "1"} in [
        sample.labels for sample in found["destination_queued"].samples
    ]
    assert "T0KEN" not in repr([metric.samples for metric in found.values()])


def test_the_sites_of_a_hub_that_anybody_may_send_to_are_bounded() -> None:
    names = [f"site{number:05d}" for number in range(MOST_SITES + 500)]
    heard = {name: float(number) for number, name in enumerate(names)}
    last = LastWindow()
    last.note(Window(0, 300), 0, reporting=names[1:], missing=names[:1])
    found = by_name(of_sites(last, heard))
    assert values(found["sites_reporting"]) == {None: len(names) - 1}
    assert len(found["site_reporting"].samples) == len(found["site_last_seen_timestamp_seconds"].samples) == MOST_SITES
    assert values(found["site_reporting"])[names[0]] == 0  # The missing ones come first.
    assert names[-1] in values(found["site_last_seen_timestamp_seconds"])  # Those heard last, too.


def test_a_link_is_up_when_it_has_connected_and_nothing_is_wrong() -> None:
    assert why_no_link(SimpleNamespace(connects=0, down="")) == "the link is not connected yet"
    assert why_no_link(SimpleNamespace(connects=3, down="refused")) == "the link does not work: refused"
    assert why_no_link(SimpleNamespace(connects=3, down="")) == ""
    assert why_no_link(SimpleNamespace(down="")) == ""  # of files


def test_the_state_of_a_part_is_that_of_its_detector() -> None:
    cube = sh.Cube("256KiB", device="cpu", threads=1)
    cube.update([1, 1, 1, 2], [5, 6, 6, 5])
    assert state_of(cube) == PartState(True, 3, 3 / cube.geometry.exact_pairs)
    dense = sh.Cube("256KiB", device="cpu", threads=1, exact=False)
    assert state_of(dense) == PartState(True, 0, None, 0.0, 0)  # It is empty.
    dense.update([1, 1, 1, 2], [5, 6, 6, 5])
    assert state_of(dense) == PartState(False, dense.fill().pairs, None, dense.fill().mean, 0)
    assert dense.fill().mean > 0
    read = sh.Cube.from_bytes(cube.to_bytes())
    assert state_of(read) == PartState(True, 3, None, read.fill().mean, 0)
    assert state_of(sh.Exact()) == PartState(exact=True)
