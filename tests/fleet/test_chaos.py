"""Faults of many kinds at random points: nothing is lost, and what is repeated is identical.

`make chaos` runs 200 rounds; the usual run makes a few.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

import chaos
from chaos import FILES_OR_BOTH, LINKS, SEED, Fleet, need_link
from processes import (
    DEADLINE,
    SITES,
    broker_pid,
    ending,
    kill_pid,
    make_edge,
    make_hub,
    one_process,
    rows,
    sites_traffic,
    unions,
    wait_for,
    write_captures,
)

pytestmark = pytest.mark.slow


def complete(path: Path) -> set[str]:
    """The windows that were reported with no site missing."""
    return {row["window_start"] for row in rows(path) if not row["missing"]}


def test_killed_at_random_points_the_unions_are_those_of_one_process(tmp_path: Path):
    pytest.importorskip("nats", reason="pip install 'superhosts[fleet]'")
    count = chaos.share(20, least=3)
    chance = random.Random(SEED)
    windows = max(4, count // 2)
    captures = {
        site: write_captures(tmp_path / "ready" / site, batches, 700)
        for site, batches in sites_traffic(windows + 1).items()
    }
    truth = one_process([path for paths in captures.values() for path in paths], "1m")
    last = sorted(truth)[-1]  # nothing follows it, so an edge on a folder leaves it open
    hub, link = make_hub(tmp_path, "--grace", "3s", "--threshold", "500")
    folders = {site: tmp_path / "captures" / site for site in SITES}
    for folder in folders.values():
        folder.mkdir(parents=True)
    cut = ["--window", "1m"]
    files = [str(path) for path in captures["nyc"]]
    edges = {site: make_edge(tmp_path, site, link, str(folders[site]), *cut) for site in SITES[:2]}
    edges["nyc"] = make_edge(tmp_path, "nyc", link, *files, *cut)
    kills = dict.fromkeys(("hub", "broker", *SITES), 0)
    with ending(hub, *edges.values()), chaos.with_note(f"SUPERHOSTS_CHAOS_SEED={SEED}, {count} kills"):
        hub.start()
        for edge in edges.values():
            edge.start()
        for number in range(count):
            for site, folder in folders.items():  # a capture program goes on meanwhile
                share = slice(len(captures[site]) * number // count, len(captures[site]) * (number + 1) // count)
                for path in captures[site][share]:
                    shutil.copy(path, folder / f".{path.name}.tmp")
                    (folder / f".{path.name}.tmp").rename(folder / path.name)
            time.sleep(chance.uniform(0.0, 2.0 if edges["nyc"].running else 3.0))
            alive = [name for name in kills if name not in edges or edges[name].running]  # nyc ends when all is sent
            # An edge on files is soon done, so that it comes first as long as it lives.
            victim = "nyc" if "nyc" in alive and number % 2 == 0 else chance.choice(alive)
            kills[victim] += 1
            if victim == "broker":
                kill_pid(broker_pid(tmp_path))
            else:
                node = hub if victim == "hub" else edges[victim]
                node.kill()
                node.start()
        wanted = {window: found for window, found in truth.items() if window != last}
        archive = tmp_path / "archive"
        wait_for(
            lambda: {window: found for window, found in unions(archive).items() if window != last} == wanted,
            "all unions are those of one process",
        )
        found = tmp_path / "found.jsonl"
        wait_for(lambda: len(complete(found)) >= windows, "all windows are reported with all sites")
        assert edges["nyc"].process is not None
        assert edges["nyc"].process.wait(DEADLINE) == 0  # when the hub has acknowledged everything
        for node in (hub, *edges.values()):
            node.wait_ready()
        assert hub.end() == 0
        for site in SITES[:2]:
            assert edges[site].end() == 0
    print(f"killed: {kills}")
    issued: dict[tuple[object, ...], dict[str, object]] = {}
    for row in rows(found):
        name = (row["window_start"], row["revision"], row["host"])
        assert issued.setdefault(name, row) == row


@LINKS
def test_faults_of_processes_and_links_leave_every_union_exact(tmp_path: Path, by_files: bool):
    need_link(by_files=by_files)
    count = chaos.share(15, least=4)
    fleet = Fleet(tmp_path, count, by_files=by_files)
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.play("processes", count, [chaos.kill, chaos.pause, chaos.replay, chaos.restart])
        fleet.finish()


@FILES_OR_BOTH
def test_faults_at_system_calls_leave_every_union_exact(tmp_path: Path, by_files: bool):
    need_link(by_files=by_files)
    chaos.need_strace()
    count = chaos.share(12)
    fleet = Fleet(tmp_path, count, by_files=by_files)
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.play("calls", count, [chaos.kill_at_call, chaos.fail_disk])
        fleet.finish()
    assert fleet.killed_at_calls > 0


@FILES_OR_BOTH
def test_faults_leave_the_rows_of_windows_that_slide_exact(tmp_path: Path, by_files: bool):
    need_link(by_files=by_files)
    count = chaos.share(15, least=4)
    fleet = Fleet(tmp_path, count, by_files=by_files, slides=True)
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.play("sliding", count, [chaos.kill, chaos.pause, chaos.replay, chaos.restart])
        fleet.finish()
