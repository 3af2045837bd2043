"""A fleet of real processes on one machine: edges, hub, broker; what they lose is nothing, or is said."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from pathlib import Path

import pytest

from commands import Run
from processes import (
    DEADLINE,
    SITES,
    ending,
    make_edge,
    make_hub,
    make_hub_on_files,
    one_process,
    packets_in,
    rows,
    sites_traffic,
    status_of,
    unions,
    wait_for,
    write_captures,
)
from superhosts.core.database import Database
from superhosts.core.files import hold_folder
from superhosts.fleet.edge import FORMAT, STATE

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


def opened(spool: Path) -> int | None:
    """When the window began that an edge has noted as open."""
    if not (spool / STATE).exists():
        return None
    note = json.loads(Database(spool / STATE, FORMAT).state().get("open", "null"))
    return None if note is None else note["start"]


def status_is(spool: Path, part: str, name: str, value: int) -> bool:
    return bool(status_of(spool).get(part, {}).get(name) == value)


def record_behind(data: bytes, time: int) -> int:
    """The offset of the first record of a capture at or behind a time."""
    seconds, rest = divmod(time, 10**9)
    place = 24
    while place < len(data):
        when = int.from_bytes(data[place : place + 4], "little"), int.from_bytes(data[place + 4 : place + 8], "little")
        if when >= (seconds, rest):
            return place
        place += 16 + int.from_bytes(data[place + 8 : place + 12], "little")
    return len(data)


@pytest.mark.slow
def test_a_stopped_live_edge_keeps_what_it_has_seen(tmp_path: Path):
    """SIGTERM within a window: its sketch so far is spooled, and the next run adds to it."""
    batches = sites_traffic(1)["ams"]
    (path,) = write_captures(tmp_path / "ams", batches, 10**9)
    data = path.read_bytes()
    middle = record_behind(data, int(batches[0].time[0]) + 30 * 10**9)
    spool = tmp_path / "spool-ams"
    hub, link = make_hub_on_files(tmp_path, "--grace", "0s", sites=("ams",))
    edge = make_edge(tmp_path, "ams", link, "-", "--window", "1m", "--grace", "1h")
    rest = make_edge(tmp_path, "ams", link)
    with ending(hub, edge, rest):
        for piece in (data[:middle], data[:24] + data[middle:]):
            count = packets_in(piece)
            (spool / "status.json").unlink(missing_ok=True)
            edge.start(stdin=subprocess.PIPE)
            edge.process.stdin.write(piece)
            edge.process.stdin.flush()
            wait_for(lambda count=count: status_is(spool, "scan", "packets", count), "all is read")
            wait_for(lambda: opened(spool), "the open window is noted")
            assert edge.end(signal.SIGTERM) == 0
            edge.process.stdin.close()
        hub.start()
        rest.start()
        wait_for(lambda: unions(tmp_path / "archive") == one_process([path], "1m"), "the union is exact")
        rest.end()
        hub.end()
    assert "LOST" not in edge.words


def test_two_processes_do_not_share_a_folder(run: Run, tmp_path: Path):
    for words in ("hub --from link --state place", "edge --site ams --to link --spool place"):
        with hold_folder(tmp_path / "place"), contextlib.chdir(tmp_path):
            ended = run(*words.split())
        assert (ended.status, "another process is using this folder" in ended.err) == (2, True)
