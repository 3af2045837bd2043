"""One site sends everything but what it should; the unions of the others are those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

import chaos
from chaos import Fleet, need_link
from hostile import EVIL, put_evil, speak_evil
from processes import ending, wait_for
from superhosts.core.files import read_json

pytestmark = pytest.mark.slow


def refused(state: Path) -> int:
    status = read_json(state / "status.json")
    return 0 if status is None else int(status["desk"]["refused"])


def test_a_hostile_site_changes_no_union_over_nats(tmp_path: Path):
    need_link(by_files=False)
    count = chaos.share(6)
    fleet = Fleet(tmp_path, count, by_files=False, keys=True)
    fleet.enroll(EVIL)
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.play("hostile", count, [speak_evil])
        wait_for(lambda: refused(tmp_path / "hub") > 0, "the hub tells what it has refused")
        fleet.finish()


def test_a_hostile_site_changes_no_union_over_files(tmp_path: Path):
    count = chaos.share(6)
    fleet = Fleet(tmp_path, count, by_files=True)
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.play("hostile", count, [put_evil])
        wait_for(lambda: refused(tmp_path / "hub") > 0, "the hub tells what it has refused")
        fleet.finish()
