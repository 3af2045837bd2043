"""Clocks of machines and of captures that are wrong for a while: no union loses anything, no archive is swept away."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import chaos
from chaos import Fleet
from places import TESTS
from processes import Node, wait_for

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
    fleet.live("clocks", count, [shift_clock])


def recently(windows: int) -> int:
    """When traffic began that ends about now."""
    return int(time.time()) - (windows + 2) * chaos.SECONDS
