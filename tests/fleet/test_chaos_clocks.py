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
from chaos import Fleet
from places import TESTS
from processes import DEADLINE, Node, ending, packets_in, wait_for

pytestmark = pytest.mark.slow

WRONG_CLOCK = TESTS / "wrong_clock.py"
DAY = 86_400


def set_clock(node: Node, seconds: float) -> dict[str, Any]:
    """Have a process run with a wrong clock from its next start on; return what that start needs."""
    node.runner = (str(WRONG_CLOCK),)
    return {"env": {**os.environ, "SUPERHOSTS_TEST_CLOCK": str(seconds)}}


@contextmanager
def shift_clock(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """One process is started with a clock that is days off, and set right when it is started again.

    In the second round the hub is 100 days ahead, and by that clock its archive is too old to be kept.
    """
    node = fleet.hub if chaos.LONG and chance.random() < 0.5 else chance.choice(list(fleet.edges.values()))
    days = chance.choice([-3650, -100, -1, 1, 100, 3650])
    if fleet.ended == 2:
        node, days = fleet.hub, 100
    node.wait_ready()
    assert node.end() == 0
    node.start(**set_clock(node, DAY * days))
    node.runner = ()
    node.wait_ready()
    yield
    wait_for(fleet.is_exact, "the unions are exact with a clock that is wrong")
    assert node.end() == 0


def test_clocks_of_machines_that_are_wrong_change_no_union_and_no_archive(tmp_path: Path):
    count = chaos.share(4)
    fleet = Fleet(tmp_path, count, by_files=True, start=recently(count))
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.play("clocks", count, [shift_clock])
        fleet.finish()


@pytest.mark.parametrize(
    ("of_pipe", "of_folder"), [(90 * DAY, 3600), (3600, 90 * DAY)][: 2 if chaos.LONG else 1]
)  # tests/pipeline/test_jumps.py has both distances always
def test_inputs_stamped_ahead_for_two_windows_lose_nothing_that_follows(tmp_path: Path, of_pipe: int, of_folder: int):
    """One edge reads a pipe; the other follows a folder, and is down while the clock of its packets is set right."""
    fleet = Fleet(tmp_path, 6, by_files=True, start=recently(6))
    fleet.stamp_ahead("ams", (1, 2), of_pipe)
    fleet.stamp_ahead("fra", (3, 4), of_folder)  # other windows, so that each has traffic of one site
    pipe, follower = fleet.edges["ams"], fleet.edges["fra"]
    folder = pipe.arguments.index(str(tmp_path / "captures" / "ams"))
    pipe.arguments = (*pipe.arguments[:folder], "-", *pipe.arguments[folder + 1 :], "--grace", "1h")
    read = sum(packets_in(path.read_bytes()) for path in fleet.captures["fra"][:5])
    with ending(*fleet.nodes.values()):
        fleet.hub.start()
        follower.start()
        for site in chaos.SITES[2:]:  # of a long run: their clocks are right
            fleet.edges[site].start()
            for number in range(7):
                fleet.feed(number, [site])
        pipe.start(stdin=subprocess.PIPE)
        for number in range(5):
            fleet.feed(number, ["fra"])
        write_into(pipe, fleet.captures["ams"])
        wait_for(lambda: fleet.packets_read("fra") >= read, "what is stamped ahead is read")
        follower.wait_ready()
        assert follower.end() == 0
        for number in (5, 6):
            fleet.feed(number, ["fra"])
        follower.start()
        pipe.arguments = pipe.arguments[: pipe.arguments.index("-")]  # without input it sends what waits
        assert pipe.start().process is not None
        assert pipe.process.wait(DEADLINE) == 0
        fleet.ended = 6
        fleet.check()
        fleet.finish()


def write_into(edge: Node, captures: list[Path]) -> None:
    """Write captures to an edge's standard input as one, and wait until it has ended."""
    assert edge.process is not None
    assert edge.process.stdin is not None
    for number, path in enumerate(captures):
        edge.process.stdin.write(path.read_bytes()[24 if number else 0 :])
    edge.process.stdin.close()
    assert edge.process.wait(DEADLINE) == 0


def recently(windows: int) -> int:
    """When traffic began that ends about now."""
    return int(time.time()) - (windows + 2) * chaos.SECONDS
