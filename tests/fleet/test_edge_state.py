"""What others leave in a spool: whatever it is, the edge starts, names what it sets aside, and loses nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from test_edge import Packets

import superhosts as sh
from fleets import SETTINGS, make_odd, make_sketch, window
from superhosts.fleet.edge import Edge, Position
from superhosts.fleet.link import REFUSED, Receipt
from superhosts.fleet.spool import Spool
from superhosts.pipeline.scan import RunOptions, Scan
from traffic import content

WINDOWS = 3
SKETCH = "20261114T120000Z-5m-ams-0123456789abcdef.cube"  # a name like those of the site's own sketches


ODD = ["fifo", "folder", "device", "link"]


def make_spool(folder: Path, said: list[str]) -> Spool:
    return Spool(folder, "ams", cap=1 << 30, say=said.append)


def make_edge(folder: Path, said: list[str], *, replays: bool = True) -> Edge:
    spool = make_spool(folder, said)
    position = Position(folder, ["packets"], SETTINGS.fingerprint, say=said.append)
    scan = Scan([Packets(WINDOWS, replays=replays)], SETTINGS, RunOptions(resume_from=position.frontier, find=False))
    return Edge(scan, spool, position, said.append)


def spooled(folder: Path) -> dict[str, Any]:
    """The content of the sketches that wait, by window."""
    return {str(sketch.window): content(sketch) for sketch in map(sh.load, sorted(folder.glob("*.cube")))}


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("truth")
    make_edge(folder, []).run()
    found = spooled(folder)
    assert len(found) == WINDOWS
    return found


@pytest.fixture
def said() -> list[str]:
    return []


# What is not a plain file


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", [SKETCH, "a-b-c.cube", SKETCH.replace("ams", "fra")])
def test_what_is_no_file_does_not_stay_among_the_sketches(tmp_path: Path, said: list[str], kind: str, name: str):
    tmp_path.chmod(0o700)
    make_odd(tmp_path / name, kind)
    spool = make_spool(tmp_path, said)
    assert spool.waiting() == []
    assert os.path.lexists(tmp_path / f".{name}.aside")
    assert spool.aside() == [f".{name}.aside"]
    assert len(said) == 1
    assert name in said[0]
    assert f".{name}.aside" in said[0]
    make_odd(tmp_path / name, kind)  # and again while it runs
    good = spool.put(make_sketch("ams"))
    assert spool.waiting() == [good]
    assert os.path.lexists(tmp_path / f".{name}.aside.1")
    assert len(said) == 2


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ["position.json", "open.json", "status.json", ".fresh.tmp", "refused", "damaged"])
def test_the_edges_own_names_are_free_at_the_start(
    tmp_path: Path, said: list[str], truth: dict[str, Any], kind: str, name: str
):
    if name in ("refused", "damaged") and kind == "folder":
        pytest.skip("these are folders")
    make_odd(tmp_path / name, kind)
    edge = make_edge(tmp_path, said)
    edge.run()
    assert spooled(tmp_path) == truth
    assert (tmp_path / "position.json").is_file()
    assert all((tmp_path / folder).is_dir() for folder in ("refused", "damaged"))
    if name != ".fresh.tmp" or kind == "folder":  # what a killed run has left is removed
        assert any(f"{name}.aside" in line for line in said)
    again = make_edge(tmp_path, said)
    again.run()
    assert again.counters.windows == 0


@pytest.mark.parametrize("kind", ODD)
def test_what_stands_in_the_way_of_a_refused_sketch_is_set_aside(tmp_path: Path, said: list[str], kind: str):
    spool = make_spool(tmp_path, said)
    path = spool.put(make_sketch("ams"))
    make_odd(tmp_path / "refused" / path.name, kind)
    spool.settle(Receipt(path.name, REFUSED, "no"))
    assert spool.waiting() == []
    assert content(sh.load(tmp_path / "refused" / path.name)) == content(make_sketch("ams"))
    assert spool.counters.refused == 1


# Wrong content


@pytest.fixture(scope="module")
def name_of_mine(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("named")
    make_edge(folder, []).run()
    (name,) = json.loads((folder / "position.json").read_text())
    return str(name)


def test_a_position_that_cannot_be_used_is_kept_aside_and_the_right_entries_of_it_hold(
    tmp_path: Path, said: list[str], name_of_mine: str
):
    other = Position(tmp_path, ["other"], {})
    other.advance(77, {})
    path = tmp_path / "position.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name_of_mine: {"frontier": "(2,)u8", "files": []}}))
    before = path.read_text()
    edge = make_edge(tmp_path, said)
    assert (tmp_path / ".position.json.aside").read_text() == before
    assert len(said) == 1
    assert "position.json" in said[0]
    assert ".position.json.aside" in said[0]
    assert Position(tmp_path, ["other"], {}).frontier == 77
    edge.run()
    assert Position(tmp_path, ["other"], {}).frontier == 77
    assert Position(tmp_path, ["packets"], SETTINGS.fingerprint).frontier == window(WINDOWS - 1).end


@pytest.mark.parametrize("name", ["position.json", "open.json"])
@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[" * 100_000, b'{"a": ', b'{"start": "noon"}'], ids=len)
def test_a_state_that_makes_no_sense_is_set_aside_and_nothing_is_lost(
    tmp_path: Path, said: list[str], truth: dict[str, Any], name: str, data: bytes
):
    (tmp_path / name).write_bytes(data)
    make_edge(tmp_path, said).run()
    assert spooled(tmp_path) == truth
    assert (tmp_path / f".{name}.aside").read_bytes() == data
    assert [f"{name}.aside" in line for line in said] == [True]


def test_foreign_files_that_come_while_the_edge_runs_are_never_sent(tmp_path: Path, said: list[str]):
    spool = make_spool(tmp_path, said)
    good = spool.put(make_sketch("ams"))
    names = ("a-b-c.cube", SKETCH.replace("ams", "fra"), "x\x1b[31m\n.cube")
    for name in names:
        (tmp_path / name).write_bytes(b"something")
    assert spool.waiting() == [good]
    assert spool.counters.damaged == len(said) == 3
    assert all(line.isprintable() for line in said)
    assert {path.name for path in (tmp_path / "damaged").iterdir()} == set(names)
