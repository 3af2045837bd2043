"""Faults of many kinds at random points: nothing is lost, and what is repeated is identical.

`make chaos` runs 200 rounds; the usual run makes a few.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import chaos
from chaos import FILES_OR_BOTH, LINKS, Fault, Fleet
from hostile import EVIL, put_evil, speak_evil
from processes import wait_for
from superhosts.core.files import read_json

pytestmark = pytest.mark.slow

OF_PROCESSES = [chaos.kill, chaos.pause, chaos.replay, chaos.restart]


@LINKS
def test_faults_of_processes_and_links_leave_every_union_exact(tmp_path: Path, by_files: bool):
    count = chaos.share(25, least=4)
    Fleet(tmp_path, count, by_files=by_files).live("processes", count, OF_PROCESSES)


@FILES_OR_BOTH
def test_faults_at_system_calls_leave_every_union_exact(tmp_path: Path, by_files: bool):
    chaos.need_strace()
    count = chaos.share(12)
    fleet = Fleet(tmp_path, count, by_files=by_files)
    fleet.live("calls", count, [chaos.kill_at_call, chaos.fail_disk])
    assert fleet.killed_at_calls > 0


@FILES_OR_BOTH
def test_faults_leave_the_rows_of_windows_that_slide_exact(tmp_path: Path, by_files: bool):
    count = chaos.share(15, least=4)
    Fleet(tmp_path, count, by_files=by_files, slides=True).live("sliding", count, OF_PROCESSES)


# Clocks that are wrong for a while


def test_clocks_of_machines_that_are_wrong_change_no_union_and_no_archive(tmp_path: Path):
    count = chaos.share(4)
    fleet = Fleet(tmp_path, count, by_files=True, start=recently(count))
    fleet.live("clocks", count, [chaos.shift_clock])


def recently(windows: int) -> int:
    """When traffic began that ends about now."""
    return int(time.time()) - (windows + 2) * chaos.SECONDS


# One site sends everything but what it should


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
