"""A fleet of real processes on one machine: edges, hub, broker; what they lose is nothing, or is said."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from commands import Run
from processes import (
    DEADLINE,
    SITES,
    ending,
    make_edge,
    make_hub,
    one_process,
    rows,
    sites_traffic,
    status_of,
    unions,
    wait_for,
    write_captures,
)
from superhosts.core.files import hold_folder

NEEDS_NATS = "pip install 'superhosts[fleet]'"


def test_three_edges_and_a_hub_answer_as_one_process(tmp_path: Path):
    pytest.importorskip("nats", reason=NEEDS_NATS)
    captures = {site: write_captures(tmp_path / site, batches, 2000) for site, batches in sites_traffic(3).items()}
    truth = one_process([path for paths in captures.values() for path in paths], "1m")
    hub, link = make_hub(tmp_path, "--grace", "1h")  # however far apart this machine lets the edges be
    edges = [make_edge(tmp_path, site, link, *map(str, captures[site]), "--window", "1m") for site in SITES]
    with ending(hub, *edges):
        hub.start()
        for edge in edges:
            edge.start()
        for edge in edges:
            assert edge.process.wait(DEADLINE) == 0
        wait_for(lambda: unions(tmp_path / "archive") == truth, "the unions are exact")
        assert hub.end() == 0
    found = rows(tmp_path / "found.jsonl")
    assert {row["window_start"] for row in found if not row["missing"]} == {row["window_start"] for row in found}
    assert all({site["site"] for site in row["sites"]} == set(SITES) for row in found)
    for site in SITES:
        spool = tmp_path / f"spool-{site}"
        assert list(spool.glob("*.cube")) == []
        assert status_of(spool)["spool"] == {"spooled": 3, "delivered": 3, "refused": 0, "damaged": 0, "dropped": 0}
    assert status_of(tmp_path / "hub")["desk"]["accepted"] == 9


def test_two_processes_do_not_share_a_folder(run: Run, tmp_path: Path):
    for words in ("hub --from link --state place", "edge --site ams --to link --spool place"):
        with hold_folder(tmp_path / "place"), contextlib.chdir(tmp_path):
            ended = run(*words.split())
        assert (ended.status, "another process is using this folder" in ended.err) == (2, True)
