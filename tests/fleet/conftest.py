"""What several files of tests use: lines that were said, brokers, intakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import KeepingIntake, make_broker
from superhosts.fleet.nats.broker import Broker
from superhosts.fleet.nats.enrolment import enroll


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with make_broker(tmp_path / "broker", []) as started:
        yield started


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Broker]:
    """A broker with two enrolled sites, of which ams may be hostile."""
    for site in ("ams", "fra"):
        enroll(tmp_path / "broker", site)
    with make_broker(tmp_path / "broker", []) as started:
        yield started


@pytest.fixture
def intake(tmp_path: Path) -> KeepingIntake:
    return KeepingIntake(tmp_path / "hub")
