"""What a hub finds in its state, and what the intake lets in, is used, or set aside and named: no hub ends of it."""

from __future__ import annotations

import contextlib
import errno
import functools
import operator
import os
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from faults import full_disk, system_call
from fleets import KEY, damage_database, forge_parcel, make_odd, make_sketch, window, write_parcel
from forging import take_apart
from hubs import SITES, FakeTime, Node, as_files, three, union_of
from superhosts.core import files
from superhosts.core.database import Database
from superhosts.core.results import Selection
from superhosts.cubefile import container as sketchfile
from superhosts.detectors.stored import Stored
from superhosts.errors import InputError
from superhosts.fleet.hub import LONGEST_REST, PAST
from superhosts.fleet.intake import Intake
from superhosts.fleet.link import MERGED, REFUSED
from superhosts.fleet.names import SketchId
from superhosts.fleet.store import DATABASE, FORMAT, UNION, Quarantine, WindowStore
from superhosts.sketch.sketch import Sketch
from traffic import content


# What the intake accepts is merged or set aside.
def settle(node: Node, accepted: list[str]) -> None:
    """Step until nothing is due, and check where all went that was accepted."""
    for _ in range(3):
        node.hub.step()
    in_union = {name for key in node.store.windows() for name in node.store.ledger(key).merged}
    stuck = node.hub.status()["stuck"]
    for name in accepted:
        aside = list(node.folder.glob(f"state/windows/*/.{name}.aside"))
        if name in in_union:
            assert not aside
            continue
        assert aside, f"{name} is nowhere: {stuck}"
        assert any("LEFT OUT" in line and name in line for line in node.said)
        assert any(name in path for path in node.hub.status()["aside"]["last"])


class TrustingIntake(Intake):
    """An intake that looks at nothing but the checksum, as one with a gap in its checks."""

    def check(self, stored: Stored, sketch_id: SketchId) -> None:
        pass


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("parts", 0, "geometry", "key_bits"), 32.0),
        (("parts", 0, "geometry", "column_bits"), 4.0),
        (("parts", 0, "format"), [4, 32.0, 32]),
        (("parts", 0, "side"), ["inner"]),
        (("parts", 0, "direction"), {"any": 1}),
        (("window",), [1, 2]),
        (("window",), None),
        (("counters",), [1, [2], "x"]),
    ],
    ids=str,
)
def test_a_stored_sketch_that_cannot_be_merged_is_set_aside_and_the_rest_is_reported(tmp_path, place, value):
    header, body = take_apart(write_parcel(make_sketch("ams"), tmp_path / "wire"))
    *path, last = place
    functools.reduce(operator.getitem, path, header)[last] = value
    node = Node(tmp_path, grace=0.0, intake=TrustingIntake)
    crafted = forge_parcel(tmp_path / "wire", header, body)
    accepted = [crafted.name] if node.arrive(crafted, "ams").verdict == MERGED else []
    for sketch in three()[1:]:
        accepted.append(write_parcel(sketch, tmp_path / "wire").name)
        node.send(sketch)
    settle(node, accepted)
    assert {"fra", "nyc"} <= set(node.reports[-1].sites)
    again = Node(tmp_path, grace=0.0)  # nor does it end the next start
    again.hub.step()
    assert again.hub.status()["stuck"] == {}


# What somebody has damaged in the state.
def test_a_hub_starts_on_a_full_disk_again_and_again(tmp_path: Path):
    with full_disk():
        for _ in range(2):
            Node(tmp_path).store.ledgers.close()
    assert len(Node(tmp_path, grace=0.0).step(*three()).reports) == 1


@pytest.mark.parametrize("left", ["nothing", "an empty file", "a database that was begun"])
def test_a_window_of_which_the_ledger_is_gone_is_not_reported_as_new(tmp_path: Path, left: str):
    node = Node(tmp_path, grace=0.0, late=-1.0).step(*three())
    node.hub.tidy()
    assert node.store.is_past(KEY)
    path = tmp_path / "state" / DATABASE
    damage_database(path)
    path.unlink()
    if left == "an empty file":
        path.touch()
    elif left != "nothing":
        Database(path, FORMAT).close()
    again = Node(tmp_path, grace=0.0).step(*three())
    assert [report.revision > 2 for report in again.reports] == [True]
    assert any(f"LEDGERS LOST: {path}: it is missing or empty" in line for line in again.said)
    assert not any("LOST" in line for line in Node(tmp_path).said)


def test_a_hub_that_never_got_a_sketch_has_lost_nothing(tmp_path: Path):
    for _ in range(2):
        node = Node(tmp_path)
        node.store.ledgers.close()
        assert not any("LOST" in line for line in node.said)


@pytest.mark.parametrize(
    "content", [b"\xff", "", "[]", "[" * 9999, '{"known": ["x"]}', '{"issued": {"revision": true}}', 7]
)
def test_a_ledger_that_makes_no_sense_is_made_again(tmp_path: Path, content: Any):
    Node(tmp_path, grace=0.0).step(*three())
    change(tmp_path, "UPDATE ledgers SET content = ?", content)
    again = Node(tmp_path, grace=0.0)
    again.hub.step()
    assert [(report.revision > 1, report.sites) for report in again.reports] == [(True, list(SITES))]
    assert any(f"DAMAGED: the ledger of {KEY}" in line for line in again.said)
    third = Node(tmp_path, grace=0.0)
    third.hub.step()
    assert third.reports == []


@pytest.mark.parametrize("content", ['"f8"\n', "{", b"\xff", 7])
def test_damaged_rows_of_an_earlier_report_are_left_out(tmp_path: Path, content: Any):
    node = Node(tmp_path, grace=0.0).step(*three()[:2])
    change(tmp_path, "UPDATE rows SET content = ?", content)
    node.step(three()[2])
    assert node.reports[-1].revision == 2
    assert {site["site"] for site in node.reports[-1].rows[0]["sites"]} == set(SITES)
    assert any(f"DAMAGED: the rows of the last report of {KEY}" in line for line in node.said)


def test_ledgers_of_long_ago_are_forgotten(tmp_path: Path):
    clock = FakeTime(window(0).end / 1e9)
    node = Node(tmp_path, grace=0.0, late=60.0, times=clock.source).step(*three())
    for seconds, is_past in ((61.0, True), (PAST, True), (70.0, False)):
        clock.now += seconds
        node.hub.tidy()
        assert (node.store.windows(), node.store.is_past(KEY)) == ([], is_past)


def change(folder: Path, statement: str, *values: Any) -> None:
    with contextlib.closing(sqlite3.connect(folder / "state" / DATABASE)) as database, database:
        database.execute(statement, values)


def test_a_database_of_a_later_release_is_refused_and_named(tmp_path: Path):
    Node(tmp_path)
    change(tmp_path, "PRAGMA user_version = 99")
    change(tmp_path, "UPDATE state SET value = '7.5' WHERE name = 'written_by'")
    with pytest.raises(InputError, match=rf"{DATABASE}: a later version of superhosts 7\.5 wrote it \(format 99"):
        Node(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "fifo"])
@pytest.mark.parametrize("name", [DATABASE, f"{DATABASE}-wal", UNION, "sketch"])
def test_a_folder_or_pipe_in_place_of_a_state_file_is_set_aside(tmp_path: Path, name: str, kind: str):
    node = Node(tmp_path, grace=0.0).step(*three()[:2])
    folder = node.store.folder(KEY)
    path = next(folder.glob("*-fra-*.cube")) if name == "sketch" else folder / name
    if name.startswith(DATABASE):
        damage_database(tmp_path / "state" / DATABASE)
        path = tmp_path / "state" / name
    make_odd(path, kind)
    again = Node(tmp_path, grace=0.0).step(three()[2])
    assert again.reports[-1].revision > 1
    assert content(again.union(0)) == content(union_of(*three()))
    assert os.path.lexists(path.with_name(f".{path.name}.aside"))
    assert again.hub.status()["stuck"] == {}


@pytest.mark.parametrize("damage", ["", "ledger.json", "rows.jsonl", "past"])
def test_a_state_of_release_0_1_is_taken_over(tmp_path: Path, damage: str):
    node = Node(tmp_path, grace=0.0, late=-1.0).step(*three(1)[:2])
    node.hub.tidy()
    node.step(*three()[:2])
    for path in node.store.sketches(KEY):
        path.unlink()  # which sites saw a host is in the rows alone
    state = tmp_path / "state"
    as_files(state)
    for path in state.rglob(f"{damage or 'nothing'}*"):
        (next(path.glob("*.json")) if path.is_dir() else path).write_text("{")
    for _ in range(2):
        again = Node(tmp_path, grace=0.0)
        assert {path.name for path in state.rglob("*.json*") if path.name[0] != "."} == set()
        assert len(list(state.rglob(".*.aside"))) == (damage in ("ledger.json", "past"))
    verdicts = [again.send(sketch).verdict for sketch in three(1)]
    assert verdicts == ([REFUSED] * 3 if damage == "past" else [MERGED, MERGED, REFUSED])
    again.step(three()[2])
    (report,) = again.reports
    assert report.revision > 2 if damage == "ledger.json" else report.revision == 2
    if damage in ("", "past"):
        assert {site["site"] for site in report.rows[0]["sites"]} == set(SITES)
    assert content(again.union(0)) == content(union_of(*three()))


def test_files_that_were_taken_over_do_not_come_back_in_a_power_failure(tmp_path: Path):
    Node(tmp_path, grace=0.0).step(*three()).store.ledgers.close()
    as_files(tmp_path / "state")
    synced: list[Path] = []
    (ledger,) = tmp_path.glob("state/windows/*/ledger.json")
    with system_call("sync_folder", synced.append, files):
        Node(tmp_path)
    assert not ledger.exists()
    assert ledger.parent in synced


@pytest.mark.parametrize("kind", ["folder", "fifo", "loop", "link"])
def test_something_else_in_place_of_a_sketch_that_was_not_merged_is_set_aside(tmp_path: Path, kind: str):
    node = Node(tmp_path, grace=3600.0).send_all(*three()[:2])
    path = next(node.store.folder(KEY).glob("*-fra-*.cube"))
    make_odd(path, kind)
    again = Node(tmp_path, grace=0.0)
    again.hub.step()
    assert again.reports[0].attendance == "1 of 3 sites: missing fra, nyc"
    assert any(path.name in line for line in again.said)
    assert again.send(three()[1]).verdict == MERGED  # it may come again
    again.hub.step()
    assert again.reports[1].attendance == "2 of 3 sites: missing nyc"


@pytest.mark.parametrize("kind", ["file", "fifo", "link"])
def test_something_named_like_a_window_is_set_aside(tmp_path: Path, kind: str):
    windows = tmp_path / "state" / "windows"
    windows.mkdir(parents=True)
    (windows / KEY).write_text("precious") if kind == "file" else make_odd(windows / KEY, kind)
    (windows / "notes").write_text("an operator's")
    for _ in range(2):  # also at the next start
        node = Node(tmp_path, grace=0.0)
        assert os.path.lexists(windows / f".{KEY}.aside")
        assert (windows / "notes").exists()
    assert [node.send(sketch).verdict for sketch in three()] == [MERGED] * 3
    node.hub.step()
    assert content(node.union(0)) == content(union_of(*three()))


@pytest.mark.parametrize("name", ["a-b-c.cube", "x.cube", "20261114T120500Z-5m-ams-1b11c6bf1cb6b8a8.cube"])
def test_a_foreign_file_in_a_windows_folder_is_set_aside(tmp_path: Path, name: str):
    node = Node(tmp_path, grace=0.0).send_all(*three())
    folder = node.store.folder(KEY)
    (folder / name).write_text("foreign")
    node.hub.step()  # while the hub runs nobody looks at it
    assert content(node.union(0)) == content(union_of(*three()))
    again = Node(tmp_path, grace=0.0)
    assert (folder / f".{name}.aside").read_text() == "foreign"
    assert again.hub.status()["aside"]["last"] == [str(folder / name)]


def test_a_folder_where_sketches_arrive_is_set_aside(tmp_path: Path):
    incoming = tmp_path / "state" / "incoming"
    (incoming / "deep" / "er").mkdir(parents=True)
    (incoming / "half.part").write_text("x")
    for _ in range(2):
        node = Node(tmp_path)
        assert [path.name for path in incoming.iterdir()] == [".deep.aside"]
    assert node.send(three()[0]).verdict == MERGED


def test_sketches_whose_ledger_is_lost_are_never_removed(tmp_path: Path):
    """A folder whose ledger is that of a past window: it was being restored from the archive."""
    node = Node(tmp_path, grace=0.0).step(*three()[:2])
    node.send(three()[2])
    node.store.ledgers.retire(KEY)
    again = Node(tmp_path, grace=0.0)
    again.hub.step()
    assert [report.revision for report in again.reports] == [2]
    assert content(again.union(0)) == content(union_of(*three()))


# One window never keeps the others.
def test_a_window_that_cannot_be_reported_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = FakeTime()
    node = Node(tmp_path, grace=0.0, times=clock.source).send_all(*(make_sketch("ams", number) for number in range(3)))
    save = Sketch.save

    def fail(sketch: Sketch, path: Path) -> None:
        if KEY in str(path):
            raise sketchfile.OutputError(f"{path}: cannot be written: its sites and counters take 65 MiB")
        save(sketch, path)

    with monkeypatch.context() as patch:
        patch.setattr(Sketch, "save", fail)
        for _ in range(5):
            node.hub.step()
        assert len(node.reports) == 2
        assert list(node.hub.status()["stuck"]) == [f"NOT REPORTED: {KEY}"]
        assert sum("NOT REPORTED" in line for line in node.said) == 1
        assert node.hub.counters.waits == 1  # it rests
    clock.now += LONGEST_REST
    node.hub.step()
    assert len(node.reports) == 3
    assert node.hub.status()["stuck"] == {}


@pytest.mark.parametrize(
    "error", [TypeError("odd"), MemoryError(), OSError(errno.EACCES, "Permission denied")], ids=repr
)
def test_whatever_goes_wrong_with_one_window_the_hub_goes_on(tmp_path: Path, error: Exception):
    class Failing(Selection):
        def search(self, searched: Any) -> Any:
            if searched.window == window(0):
                raise error
            return super().search(searched)

    node = Node(tmp_path, grace=0.0, selection=Failing(500.0)).send_all(
        *(make_sketch("ams", number) for number in range(2))
    )
    for _ in range(3):
        node.hub.step()
    assert [report.window for report in node.reports] == [window(1)]
    assert node.store.ledger(KEY).issuing is not None  # it is tried again


def test_one_window_that_cannot_be_tidied_does_not_keep_the_others(tmp_path: Path):
    class Stuck(WindowStore):
        def retire(self, window: str) -> None:
            if window == KEY:
                raise OSError(errno.EACCES, "Permission denied")
            super().retire(window)

    node = Node(tmp_path, grace=0.0, late=-1.0, store=Stuck).step(*(make_sketch("ams", number) for number in range(2)))
    node.hub.tidy()
    assert node.store.windows() == [KEY]
    assert list(node.hub.status()["stuck"]) == [f"NOT TIDIED: {KEY}"]


def test_files_may_be_set_aside_while_the_status_is_made(tmp_path: Path):
    """Receivers set files aside in threads of their own, while the hub lists them."""
    quarantine = Quarantine(lambda text: None)
    for number in range(3):
        quarantine.put(tmp_path / str(number), "damaged")
    names = []
    for name in quarantine.last:
        names.append(Path(name).name)
        quarantine.put(tmp_path / f"during {name}", "damaged")
    assert names == ["0", "1", "2"]
    assert quarantine.count == 6


def test_a_hub_of_addresses_refuses_text_keys(tmp_path: Path) -> None:
    cube = sh.Cube("1MiB", keys="text")
    cube.update(["größe"] * 2000, np.arange(2000))
    sketch = Sketch.of(cube)
    sketch.window, sketch.sites = window(0), {"ams"}
    receipt = Node(tmp_path).send(sketch)
    assert receipt.verdict == REFUSED
    assert "no part generic keys inner any" in receipt.reason
