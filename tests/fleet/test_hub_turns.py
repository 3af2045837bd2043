"""The order of a hub's reports: sites take turns, whatever one of them sends, and nobody's windows are left out."""

from __future__ import annotations

import errno
import math
import time
from pathlib import Path
from typing import Any

import pytest

from fleets import make_sketch, window
from hubs import Node
from superhosts.errors import OutputError, UnreadableError
from superhosts.fleet import hub as hub_module
from superhosts.fleet.archive import Archive
from superhosts.fleet.hub import Hub
from superhosts.fleet.ledger import Ledger
from superhosts.fleet.report import HubReport
from superhosts.fleet.store import WindowStore
from superhosts.times import window_name

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


def test_sketches_for_many_windows_of_the_archive_do_not_keep_a_fresh_one_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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


def test_a_window_that_cannot_be_read_now_is_tried_once_in_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    node = Node(tmp_path, sites=("ams",), grace=0.0)
    for number in range(3):
        send(node, "ams", number)
    tried: list[str] = []
    issue = Hub._issue

    def fail(hub: Hub, key: str, ledger: Ledger) -> None:
        tried.append(key)
        if key == window_name(window(0)):
            raise UnreadableError("Input/output error", file="x.cube")
        issue(hub, key, ledger)

    monkeypatch.setattr(Hub, "_issue", fail)
    node.hub.step(on_turn=node.intake.arrived.set)  # something arrives all the time
    assert tried == [window_name(window(number)) for number in range(3)]


def test_a_report_that_waits_for_a_full_disk_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nobody has had a turn then: the same window is first again."""
    node = Node(tmp_path, sites=("ams", "fra"), grace=0.0)
    send(node, "ams", 0)
    send(node, "fra", 1)
    made: list[str] = []
    make = Hub._make

    def watch(hub: Hub, key: str, ledger: Ledger) -> Any:
        made.append(key)
        return make(hub, key, ledger)

    def full(_report: HubReport) -> None:
        raise OutputError("rows.jsonl: cannot be written") from OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Hub, "_make", watch)
    node.report = full
    for _ in range(3):
        node.hub.step()
    assert made == [window_name(window(0))]
    node.report = node.reports.append
    node.hub.step()
    assert numbers(node) == [0, 1]


def wait_in_windows(node: Node, count: int, since: float) -> None:
    """Have windows of one sketch each in the store, without the files."""
    for number in range(count):
        key = window_name(window(number))
        node.store._ledgers[key] = Ledger(since + number, since, [f"{key}-ams-{number:016x}.cube"])


def test_the_work_of_a_step_grows_with_the_windows_not_with_their_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without `--sites` the sites of the last windows are expected, and are looked up once for all."""
    looked = [0]
    ledger = WindowStore.ledger

    def count(store: WindowStore, key: str) -> Ledger:
        looked[0] += 1
        return ledger(store, key)

    monkeypatch.setattr(WindowStore, "ledger", count)
    monkeypatch.setattr(Hub, "_merge_ahead", lambda *_: None)
    monkeypatch.setattr(hub_module, "LOOK", math.inf)  # a step that takes long would look for sketches in between
    costs = []
    for size in (100, 200):
        node = Node(tmp_path / str(size), sites=(), grace=3600.0)
        wait_in_windows(node, size, time.time() - 60)
        looked[0] = 0
        node.hub.step()
        costs.append(looked[0])
    assert costs[1] < 2.5 * costs[0]
    assert costs[1] < 10 * 200


def test_reports_do_not_look_up_the_last_windows_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hub_module, "LOOK", math.inf)
    node = Node(tmp_path, sites=(), grace=0.0)
    for number in range(8):
        send(node, "ams", number)
    calls = [0]
    recent = Hub._recent

    def count(hub: Hub, *arguments: Any) -> list[str]:
        calls[0] += 1
        return recent(hub, *arguments)

    monkeypatch.setattr(Hub, "_recent", count)
    node.hub.step()
    assert numbers(node) == list(range(8))
    assert calls[0] == 1
