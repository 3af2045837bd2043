"""One site sends everything but what it should; the unions of the others are those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

import chaos
from chaos import Fault, Fleet
from hostile import EVIL, put_evil, speak_evil
from processes import wait_for
from superhosts.core.files import read_json

pytestmark = pytest.mark.slow


def suffer(fleet: Fleet, count: int, fault: Fault) -> None:
    def is_refused() -> bool:
        status = read_json(fleet.folder / "hub" / "status.json")
        return status is not None and int(status["desk"]["refused"]) > 0

    fleet.live("hostile", count, [fault], lambda: wait_for(is_refused, "the hub tells what it has refused"))


def test_a_hostile_site_changes_no_union_over_nats(tmp_path: Path):
    count = chaos.share(6)
    fleet = Fleet(tmp_path, count, by_files=False, keys=True)
    fleet.enroll(EVIL)
    suffer(fleet, count, speak_evil)


def test_a_hostile_site_changes_no_union_over_files(tmp_path: Path):
    count = chaos.share(6)
    suffer(Fleet(tmp_path, count, by_files=True), count, put_evil)
