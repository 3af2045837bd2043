"""The order of a hub's reports: sites take turns, whatever one of them sends, and nobody's windows are left out."""

from __future__ import annotations

import errno
import math
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from fleets import make_sketch, window
from hubs import Node
from superhosts.core.files import write_json
from superhosts.core.pairs import Window
from superhosts.core.times import window_name
from superhosts.errors import OutputError, UnreadableError
from superhosts.fleet.archive import Archive
from superhosts.fleet.report import HubReport
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import LEDGER, Ledger, WindowStore

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
    archive = Archive(tmp_path / "archive", keep=1e9, site="hub", with_sites=False, key=None, say=print)
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


def test_a_site_that_always_has_one_more_window_takes_every_other_turn(tmp_path: Path):
    node = Node(tmp_path, sites=("ams", "fra"), grace=0.0)
    for number in range(6):  # an edge that was away
        send(node, "ams", number)
    send(node, "fra", FRESH)
    following = iter(range(FRESH + 1, FRESH + 9))

    def report(made: HubReport) -> None:
        node.reports.append(made)
        if "fra" in made.sites and (number := next(following, None)) is not None:
            send(node, "fra", number)

    node.report = report
    node.hub.step()
    assert [number for number in numbers(node)[:12] if number < FRESH] == list(range(6))
    assert len(node.reports) == 6 + 9


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


def test_a_report_that_waits_for_a_full_disk_is_made_once(tmp_path: Path):
    """Nobody has had a turn then: the same window is first again."""
    upstream = Spool(tmp_path / "up", "eu", cap=1 << 30, say=print)
    node = Node(tmp_path, sites=("ams", "fra"), grace=0.0, upstream=upstream)
    send(node, "ams", 0)
    send(node, "fra", 1)

    def full(_report: HubReport) -> None:
        raise OutputError("rows.jsonl: cannot be written") from OSError(errno.ENOSPC, "No space left on device")

    node.report = full
    for _ in range(3):
        node.hub.step()
    assert upstream.counters.spooled == 1  # the union goes there whenever a report is made
    node.report = node.reports.append
    node.hub.step()
    assert numbers(node) == [0, 1]


class CountingStore(WindowStore):
    """Counts how often ledgers are looked up."""

    looked = 0

    def ledger(self, window: str) -> Ledger:
        self.looked += 1
        return super().ledger(window)


def cost_of_a_step(node: Node) -> int:
    """Return how often a step looks up ledgers."""
    assert isinstance(node.store, CountingStore)
    before = node.store.looked
    node.hub.step()
    return node.store.looked - before


def write_ledgers(state: Path, count: int) -> None:
    """Put windows of one sketch each into a hub's state, without the sketches."""
    since = time.time() - 60
    for number in range(count):
        name = window_name(window(number))
        (state / "windows" / name).mkdir(parents=True)
        ledger = Ledger(since + number, since, [f"{name}-ams-{number:016x}.cube"])
        write_json(state / "windows" / name / LEDGER, asdict(ledger), durable=False)


@pytest.mark.slow
def test_the_work_of_a_step_grows_with_the_windows_not_with_their_square(tmp_path: Path):
    """Without `--sites` the sites of the last windows are expected, and are looked up once for all."""
    costs = []
    for size in (100, 200):
        write_ledgers(tmp_path / str(size) / "state", size)
        node = Node(tmp_path / str(size), sites=(), grace=3600.0, look_every=math.inf, store=CountingStore)
        assert len(node.store.windows()) == size
        costs.append(cost_of_a_step(node))
    assert costs[1] < 2.5 * costs[0]
    assert costs[1] < 10 * 200


def test_reports_do_not_look_up_the_last_windows_again(tmp_path: Path):
    costs = []
    for size in (6, 12):
        node = Node(tmp_path / str(size), sites=(), grace=0.0, look_every=math.inf, store=CountingStore)
        for number in range(size):
            send(node, "ams", number)
        costs.append(cost_of_a_step(node))
        assert numbers(node) == list(range(size))
    assert costs[1] < 2.5 * costs[0]
