"""Clocks of machines and of captures that are wrong for a while: no union loses anything, no archive is swept away."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import chaos
from chaos import SITES, Fleet
from places import TESTS
from processes import DEADLINE, Node, ending, packets_in, wait_for

WRONG_CLOCK = TESTS / "wrong_clock.py"
DAY = 86_400


def set_clock(node: Node, seconds: float) -> dict[str, Any]:
    """Have a process run with a wrong clock from its next start on; return what that start needs."""
    node.runner = (str(WRONG_CLOCK),)
    return {"env": {**os.environ, "SUPERHOSTS_TEST_CLOCK": str(seconds)}}


@contextmanager
def shift_clock(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """One process is started with a clock that is days off, and set right when it is started again."""
    node = fleet.hub if chance.random() < 0.5 else chance.choice(list(fleet.edges.values()))
    node.wait_ready()
    assert node.end() == 0
    node.start(**set_clock(node, DAY * chance.choice([-3650, -100, -1, 1, 100, 3650])))
    node.runner = ("-m", "superhosts")
    node.wait_ready()
    yield
    wait_for(fleet.is_exact, "the unions are exact with a clock that is wrong")
    assert node.end() == 0


def test_clocks_of_machines_that_are_wrong_change_no_union(tmp_path: Path):
    count = chaos.share(4)
    fleet = Fleet(tmp_path, count, by_files=True, start=recently(count))
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.play("clocks", count, [shift_clock])
        fleet.finish()


def test_a_hub_whose_clock_is_100_days_ahead_keeps_its_archive(tmp_path: Path):
    fleet = Fleet(tmp_path, 2, by_files=True, start=recently(2))
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.feed(1, SITES)
        fleet.ended = 1
        fleet.check()
        assert fleet.hub.end() == 0
        fleet.hub.start(**set_clock(fleet.hub, 100 * DAY))
        fleet.feed(2, SITES)
        fleet.ended = 2
        fleet.check()
        fleet.finish()


def jumps(usual: int) -> pytest.MarkDecorator:
    """How far a clock is ahead: one distance in the usual run, both in a long one (tests/windows has both always)."""
    return pytest.mark.parametrize("ahead", [3600, 90 * DAY] if chaos.LONG else [usual])


@jumps(usual=90 * DAY)
def test_a_pipe_stamped_ahead_for_two_windows_loses_nothing_that_follows(tmp_path: Path, ahead: int):
    fleet = Fleet(tmp_path, 5, by_files=True, start=recently(5))
    fleet.stamp_ahead("ams", (1, 2), ahead)
    last = fleet.edges["ams"]
    folder = last.arguments.index(str(tmp_path / "captures" / "ams"))
    last.arguments = (*last.arguments[:folder], "-", *last.arguments[folder + 1 :], "--grace", "1h")
    with ending(*fleet.nodes.values()):
        fleet.hub.start()
        for site in SITES[1:]:
            fleet.edges[site].start()
        last.start(stdin=subprocess.PIPE)
        for number in range(6):
            fleet.feed(number, SITES[1:])
        assert last.process is not None
        assert last.process.stdin is not None
        for number, path in enumerate(fleet.captures["ams"]):
            last.process.stdin.write(path.read_bytes()[24 if number else 0 :])
        last.process.stdin.close()
        assert last.process.wait(DEADLINE) == 0
        last.arguments = last.arguments[: last.arguments.index("-")]  # without input it sends what waits
        assert last.start().process is not None
        assert last.process.wait(DEADLINE) == 0
        fleet.ended = 5
        fleet.check()


@jumps(usual=3600)
def test_a_folder_stamped_ahead_for_two_windows_loses_nothing_that_follows(tmp_path: Path, ahead: int):
    """The clock is set right while the edge is down."""
    fleet = Fleet(tmp_path, 5, by_files=True, start=recently(5))
    fleet.stamp_ahead("ams", (1, 2), ahead)
    edge, read = fleet.edges["ams"], sum(packets_in(path.read_bytes()) for path in fleet.captures["ams"][:3])
    with ending(*fleet.nodes.values()):
        fleet.start()
        for number in (1, 2):
            fleet.feed(number, SITES)
        wait_for(lambda: fleet.packets_read("ams") >= read, "what is stamped ahead is read")
        edge.wait_ready()
        assert edge.end() == 0
        for number in (3, 4, 5):
            fleet.feed(number, SITES)
        edge.start()
        fleet.ended = 5
        fleet.check()
        fleet.finish()


def recently(windows: int) -> int:
    """When traffic began that ends about now."""
    return int(time.time()) - (windows + 2) * chaos.SECONDS
