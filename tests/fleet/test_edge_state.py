"""What others leave in a spool: whatever it is, the edge starts, names what it sets aside, and loses nothing."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_edge import Packets

import superhosts as sh
from fleets import LENGTH, NOON, SETTINGS, make_sketch, window
from places import REPRO
from processes import (
    DEADLINE,
    ending,
    make_hub_on_files,
    one_process,
    sites_traffic,
    unions,
    wait_for,
    write_captures,
)
from processes import make_edge as make_node
from superhosts.core.files import hold_folder
from superhosts.errors import OutputError
from superhosts.fleet.edge import Edge, Position
from superhosts.fleet.link import MERGED, REFUSED, RESEND, Receipt
from superhosts.fleet.spool import Spool
from superhosts.pipeline.scan import RunOptions, Scan
from traffic import content

WINDOWS = 3
SKETCH = "20261114T120000Z-5m-ams-0123456789abcdef.cube"  # a name like those of the site's own sketches


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_filled_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("mine")


def make_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


ODD = [make_fifo, make_filled_folder, make_link, make_broken_link]


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


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", [SKETCH, "a-b-c.cube", SKETCH.replace("ams", "fra")])
def test_what_is_no_file_does_not_stay_among_the_sketches(
    tmp_path: Path, said: list[str], make: Callable[[Path], None], name: str
):
    tmp_path.chmod(0o700)
    make(tmp_path / name)
    spool = make_spool(tmp_path, said)
    assert spool.waiting() == []
    assert os.path.lexists(tmp_path / f".{name}.aside")
    assert spool.aside() == [f".{name}.aside"]
    assert len(said) == 1
    assert name in said[0]
    assert f".{name}.aside" in said[0]
    make(tmp_path / name)  # and again while it runs
    good = spool.put(make_sketch("ams"))
    assert spool.waiting() == [good]
    assert os.path.lexists(tmp_path / f".{name}.aside.1")
    assert len(said) == 2


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("verdict", [MERGED, REFUSED, RESEND])
def test_a_receipt_for_what_is_no_file_changes_nothing(
    tmp_path: Path, said: list[str], make: Callable[[Path], None], verdict: str
):
    spool = make_spool(tmp_path, said)
    make(tmp_path / SKETCH)
    spool.settle(Receipt(SKETCH, verdict))
    assert os.path.lexists(tmp_path / SKETCH)
    assert spool.counters.delivered == spool.counters.refused == spool.counters.damaged == 0


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", ["position.json", "open.json", "status.json", ".fresh.tmp", "refused", "damaged"])
def test_the_edges_own_names_are_free_at_the_start(
    tmp_path: Path, said: list[str], truth: dict[str, Any], make: Callable[[Path], None], name: str
):
    if name in ("refused", "damaged") and make is make_filled_folder:
        pytest.skip("these are folders")
    make(tmp_path / name)
    edge = make_edge(tmp_path, said)
    edge.run()
    assert spooled(tmp_path) == truth
    assert (tmp_path / "position.json").is_file()
    assert all((tmp_path / folder).is_dir() for folder in ("refused", "damaged"))
    if name != ".fresh.tmp" or make is make_filled_folder:  # what a killed run has left is removed
        assert any(f"{name}.aside" in line for line in said)
    again = make_edge(tmp_path, said)
    again.run()
    assert again.counters.windows == 0


@pytest.mark.parametrize("make", ODD[:1])
def test_a_lock_that_is_no_file_is_refused_in_one_line(tmp_path: Path, make: Callable[[Path], None]):
    make(tmp_path / ".lock")
    with pytest.raises(OutputError, match=r"\.lock"):
        hold_folder(tmp_path)


@pytest.mark.parametrize("make", ODD)
def test_what_stands_in_the_way_of_a_refused_sketch_is_set_aside(
    tmp_path: Path, said: list[str], make: Callable[[Path], None]
):
    spool = make_spool(tmp_path, said)
    path = spool.put(make_sketch("ams"))
    make(tmp_path / "refused" / path.name)
    spool.settle(Receipt(path.name, REFUSED, "no"))
    assert spool.waiting() == []
    assert content(sh.load(tmp_path / "refused" / path.name)) == content(make_sketch("ams"))
    assert spool.counters.refused == 1


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("folder", ["refused", "damaged"])
def test_the_cap_holds_whatever_lies_in_the_folders_beside(
    tmp_path: Path, said: list[str], make: Callable[[Path], None], folder: str
):
    size = make_spool(tmp_path / "probe", said).put(make_sketch("ams")).stat().st_size
    spool = Spool(tmp_path / "spool", "ams", cap=2 * size + size // 2, say=said.append)
    make(tmp_path / "spool" / folder / "a-b-c.cube")
    paths = [spool.put(make_sketch("ams", number)) for number in range(3)]
    assert spool.waiting() == paths[1:]
    assert os.path.lexists(tmp_path / "spool" / folder / "a-b-c.cube")


def test_foreign_files_that_come_while_the_edge_runs_are_never_sent(tmp_path: Path, said: list[str]):
    spool = make_spool(tmp_path, said)
    good = spool.put(make_sketch("ams"))
    for name in ("a-b-c.cube", SKETCH.replace("ams", "fra"), "x\x1b[31m\n.cube"):
        (tmp_path / name).write_bytes(b"something")
    assert spool.waiting() == [good]
    assert spool.counters.damaged == len(said) == 3
    assert all(line.isprintable() for line in said)
    assert sorted(spool.aside()) == sorted(
        f"damaged/{name}" for name in ("a-b-c.cube", SKETCH.replace("ams", "fra"), "x\\x1b[31m\\n.cube")
    )


# Wrong content

small = st.integers(-(2**70), 2**70) | st.integers(NOON - LENGTH, NOON + 4 * LENGTH)
scalars = st.none() | st.booleans() | small | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=6), each, max_size=3)
)
spans = st.dictionaries(st.text(max_size=300), st.lists(small, min_size=1, max_size=3) | values, max_size=2)
entries = st.fixed_dictionaries({}, optional={"frontier": small | values, "files": spans | values, "x": values})
positions = values | st.dictionaries(st.just("mine") | st.text(max_size=6), entries | values, max_size=3)
notes = values | st.fixed_dictionaries({}, optional={"start": small | values, "end": small | values})


def is_time(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def frontier_of(content: Any) -> int | None:
    """The frontier that a position holds for the test's edge, if it is a position."""
    entry = content.get("mine") if isinstance(content, dict) else None
    if not isinstance(entry, dict) or not is_time(entry.get("frontier")) or not isinstance(entry.get("files"), dict):
        return None
    spans = entry["files"].values()
    right = all(isinstance(span, list) and len(span) == 2 and all(map(is_time, span)) for span in spans)
    return entry["frontier"] if right else None


@pytest.fixture(scope="module")
def name_of_mine(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("named")
    make_edge(folder, []).run()
    (name,) = json.loads((folder / "position.json").read_text())
    return str(name)


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in range(10**9))


@pytest.mark.slow
@settings(max_examples=40)  # each runs two edges
@given(positions)
@example({"mine": {"frontier": "(2,)u8", "files": {"a@1": "V8"}}})
@example({"mine": {"frontier": True, "files": {}}})
@example({"mine": {"frontier": 10**400, "files": {}}})
@example({"mine": {"frontier": NOON + LENGTH, "files": {}}, "other": 5})
@example({"mine": {"frontier": NOON - LENGTH, "files": {"/" + "x" * 5000 + "@1": [1, 2], "\ud800@1": [1, 2]}}})
def test_any_position_is_taken_or_set_aside_and_nothing_is_lost(
    folders: Iterator[Path], truth: dict[str, Any], name_of_mine: str, held: Any
):
    folder, said = next(folders), []
    folder.mkdir(parents=True)
    frontier = frontier_of(held)
    if isinstance(held, dict):
        held = {name_of_mine if name == "mine" else name: entry for name, entry in held.items()}
    (folder / "position.json").write_text(json.dumps(held))
    make_edge(folder, said).run()
    wanted = [number for number in range(WINDOWS) if frontier is None or window(number).end > frontier]
    assert spooled(folder) == {str(window(number)): truth[str(window(number))] for number in wanted}
    assert not any("NOT WRITABLE" in line for line in said)
    again = make_edge(folder, said)
    again.run()
    assert again.counters.windows == 0


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


@pytest.mark.slow
@settings(max_examples=40)
@given(notes)
@example({"start": 10**400, "end": 6})
@example({"start": 6, "end": 5})
@example({"start": True, "end": False})
def test_any_note_of_an_open_window_is_told_or_set_aside(folders: Iterator[Path], truth: dict[str, Any], held: Any):
    folder, said = next(folders), []
    folder.mkdir(parents=True)
    (folder / "open.json").write_text(json.dumps(held))
    edge = make_edge(folder, said, replays=False)
    edge.run()
    right = isinstance(held, dict) and is_time(held.get("start")) and is_time(held.get("end"))
    right = right and held["start"] < held["end"]
    assert edge.counters.interrupted == right
    assert (folder / ".open.json.aside").exists() == (not right)
    assert len(said) == 1
    assert ("LOST" if right else ".open.json.aside") in said[0]
    assert spooled(folder) == truth
    assert not (folder / "open.json").exists()


@pytest.mark.parametrize("name", ["position.json", "open.json"])
@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[" * 100_000, b'{"a": ', b"1" * 5000, b"\0" * 64])
def test_what_is_no_json_is_set_aside(tmp_path: Path, said: list[str], truth: dict[str, Any], name: str, data: bytes):
    (tmp_path / name).write_bytes(data)
    make_edge(tmp_path, said).run()
    assert spooled(tmp_path) == truth
    assert (tmp_path / f".{name}.aside").read_bytes() == data
    assert len(said) == 1
    assert f"{name}.aside" in said[0]


@pytest.mark.parametrize("pattern", ["state_position_*.json", "state_open_*.json"])
def test_files_that_broke_an_edge_once(tmp_path: Path, said: list[str], truth: dict[str, Any], pattern: str):
    found = sorted(REPRO.glob(pattern))
    if not found:
        pytest.skip("the inputs that broke the product once are not here")
    for path in found:
        name = f"{path.name.split('_')[1]}.json"
        folder = tmp_path / path.stem
        folder.mkdir()
        (folder / name).write_bytes(path.read_bytes())
        make_edge(folder, said, replays=name == "position.json").run()
        assert spooled(folder) == truth
        assert f".{name}.aside" in make_spool(folder, said).aside()


# The whole command


@pytest.mark.slow
def test_an_edge_in_a_spool_full_of_other_things_sends_its_own(tmp_path: Path):
    (capture,) = write_captures(tmp_path / "ams", sites_traffic(2)["ams"], 10**9)
    hub, link = make_hub_on_files(tmp_path, sites=("ams",))
    edge = make_node(tmp_path, "ams", link, str(capture), "--window", "1m")
    spool = tmp_path / "spool-ams"
    spool.mkdir()
    for number, make in enumerate(ODD):
        make(spool / f"{number}.cube")
    make_fifo(spool / "position.json")
    make_filled_folder(spool / "status.json")
    (spool / "open.json").write_text('{"start": "noon"}')
    with ending(hub, edge):
        hub.start()
        edge.start()
        assert edge.process is not None
        assert edge.process.wait(DEADLINE) == 0
        wait_for(lambda: unions(tmp_path / "archive") == one_process([capture], "1m"), "the unions are exact")
        hub.end()
    assert "Traceback" not in edge.words
    aside = json.loads((spool / "status.json").read_text())["aside"]
    states = [f".{name}.json.aside" for name in ("open", "position", "status")]
    assert sorted(aside) == sorted([*(f".{number}.cube.aside" for number in range(4)), *states])
    assert all(name in edge.words for name in aside)


@pytest.mark.slow
def test_a_spool_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path):
    (capture,) = write_captures(tmp_path / "ams", sites_traffic(2)["ams"], 10**9)
    edge = make_node(tmp_path, "ams", ["--to", str(tmp_path / "link")], str(capture), "--window", "1m")
    spool = tmp_path / "spool-ams"
    with ending(edge):
        edge.start(umask=0)
        wait_for(lambda: len(list(spool.glob("*.cube"))) == 2 and (spool / "status.json").exists(), "both are spooled")
        edge.wait_ready()
        assert edge.end() == 0
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode for path in (spool, *spool.rglob("*"))}
    wrong = {
        name: oct(mode) for name, mode in modes.items() if mode & 0o777 != (0o700 if stat.S_ISDIR(mode) else 0o600)
    }
    assert len(modes) >= 7
    assert wrong == {}


@pytest.mark.slow
def test_an_edge_whose_windows_were_refused_ends_with_status_5(tmp_path: Path):
    (capture,) = write_captures(tmp_path / "ams", sites_traffic(2)["ams"], 10**9)
    key = tmp_path / "other.key"
    key.write_text("another key of enough bytes")
    hub, link = make_hub_on_files(tmp_path, sites=("ams",))
    edge = make_node(tmp_path, "ams", link, str(capture), "--window", "1m", "--key-file", str(key))
    with ending(hub, edge):
        hub.start()
        edge.start()
        assert edge.process is not None
        assert edge.process.wait(DEADLINE) == 5
        last = edge.words.splitlines()[-1]
        assert "2 spooled, 0 acknowledged by the hub, 2 REFUSED by the hub, 0 in the spool" in last
        assert last.endswith(f"are kept in {tmp_path / 'spool-ams' / 'refused'}: 2")
        edge.start()  # nothing new to refuse, but it is said that the hub lacks windows of this site
        assert edge.process.wait(DEADLINE) == 0
        hub.end()
    assert hub.words.splitlines()[-1].endswith("0 sketches, 2 REFUSED, 0 reports (0 of them revisions)")
    assert "everything before is in the spool, sent or refused (" in edge.words
    last = edge.words.splitlines()[-1]
    assert "0 spooled, 0 acknowledged by the hub, 0 in the spool; refused windows" in last
    assert last.endswith(": 2")
