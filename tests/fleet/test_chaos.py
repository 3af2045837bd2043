"""Faults of many kinds at random points: nothing is lost, and what is repeated is identical.

`make chaos` runs 200 rounds; the usual run makes a few.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import chaos
from chaos import FILES_OR_BOTH, LINKS, Fleet

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
