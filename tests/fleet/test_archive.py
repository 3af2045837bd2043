"""The archive outlives the hub's state: what it holds is taken back and merged, never replaced by less."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from faults import system_call
from fleets import KEY, LARGER, damage, damage_database, make_odd, make_sketch, write_parcel
from hubs import Node, make_archive, three, union_of
from superhosts.fleet.archive import Archive
from superhosts.fleet.link import MERGED, REFUSED
from superhosts.fleet.store import DATABASE, UNION, WindowStore
from traffic import content


def make_node(tmp_path: Path, **options: Any) -> Node:
    return Node(tmp_path, archive=make_archive(tmp_path), **{"grace": 0.0, **options})


def report_two(tmp_path: Path, **options: Any) -> Node:
    """A hub that has reported ams, then ams and fra: two revisions, and the sites' sketches are gone."""
    node = make_node(tmp_path, **options)
    for sketch in three()[:2]:
        node.step(sketch)
    for path in node.store.sketches(KEY):  # as they go when a window is not among the last any more
        path.unlink()
    assert [report.revision for report in node.reports] == [1, 2]
    return node


def lose_state(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "state")


def lose_windows(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "state" / "windows")


def lose_database(tmp_path: Path) -> None:
    damage_database(tmp_path / "state" / DATABASE)


def cut_union(tmp_path: Path) -> None:
    os.truncate(tmp_path / "state" / "windows" / KEY / UNION, 100)


def lose_database_and_cut_union(tmp_path: Path) -> None:
    lose_database(tmp_path)
    cut_union(tmp_path)


LOSSES = [lose_state, lose_windows, lose_database, cut_union, lose_database_and_cut_union]


@pytest.mark.parametrize("lose", LOSSES)
def test_what_the_archive_holds_is_in_the_next_union_whatever_the_state_has_lost(tmp_path, lose):
    report_two(tmp_path)
    lose(tmp_path)
    node = make_node(tmp_path)
    sketches = three()
    assert node.send(sketches[2]).verdict == MERGED
    node.hub.step()
    whole = content(union_of(*sketches))
    assert content(sh.load(node.archive.union(KEY))) == whole
    assert content(node.union(0)) == whole
    (report,) = node.reports
    assert report.revision == 3
    assert report.attendance == "3 of 3 sites"
    assert report.rows[0]["peers_low"] <= 1400 <= report.rows[0]["peers_high"]


def test_a_lost_database_loses_nothing_of_past_windows_and_no_revision_comes_again(tmp_path: Path):
    node = report_two(tmp_path, late=-1.0)
    node.hub.tidy()
    assert node.store.windows() == []
    lose_database(tmp_path)
    again = make_node(tmp_path)
    sketches = three()
    assert again.send(sketches[2]).verdict == MERGED
    again.hub.step()
    assert [report.revision for report in again.reports] == [3]
    assert content(sh.load(again.archive.union(KEY))) == content(union_of(*sketches))
    assert again.hub.status()["aside"]["count"] == 1
    assert any("SET ASIDE" in line and DATABASE in line for line in again.said)


@pytest.mark.parametrize("damaged", [False, True], ids=["an older release", "damaged"])
def test_an_archive_without_a_note_gives_its_content_and_a_higher_revision(tmp_path: Path, damaged: bool):
    report_two(tmp_path)
    lose_state(tmp_path)
    note = tmp_path / "archive" / KEY[:8] / f"{KEY}-hub.json"
    note.write_text('{"revision": [], "members": 7}') if damaged else note.unlink()
    node = make_node(tmp_path).step(three()[2])
    (report,) = node.reports
    assert report.revision > 2
    assert report.attendance == "3 of 3 sites"  # the union tells its sites
    assert content(node.union(0)) == content(union_of(*three()))
    assert node.hub.status()["aside"]["count"] == damaged
    node.step(make_sketch("lon"))
    assert node.reports[1].revision == report.revision + 1
    assert node.reports[1].sites == ["ams", "fra", "lon", "nyc"]


@pytest.mark.parametrize("retired", [False, True])
def test_a_ledger_that_is_made_again_never_goes_back_in_revisions(tmp_path: Path, retired: bool):
    node = Node(tmp_path, grace=0.0, late=-1.0)  # no archive
    for sketch in three()[:2]:
        node.step(sketch)
    if retired:
        node.hub.tidy()
    lose_database(tmp_path)
    again = Node(tmp_path, grace=0.0).step(three()[2])
    (report,) = again.reports
    assert report.revision > 2
    assert retired or content(again.union(0)) == content(union_of(*three()))
    assert Node(tmp_path).store.ledger(KEY).issued.revision == report.revision


def test_an_older_state_that_was_restored_does_not_shrink_the_archive(tmp_path: Path):
    node = make_node(tmp_path).step(three()[0])
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    node.step(three()[1])
    lose_state(tmp_path)
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    again = make_node(tmp_path).step(three()[2])
    assert [(report.revision, report.attendance) for report in again.reports] == [(3, "3 of 3 sites")]
    assert content(sh.load(again.archive.union(KEY))) == content(union_of(*three()))


def spoil(union: Path, way: str) -> None:
    if way == "flipped":
        damage(union)
    elif way == "cut":
        os.truncate(union, 100)
    elif way == "empty":
        os.truncate(union, 0)
    elif way == "another window":
        make_sketch("ams", 5).save(union)
    elif way == "another kind":
        make_sketch("ams", settings=LARGER).save(union)
    else:
        make_odd(union, way)


WAYS = ["cut", "empty", "folder", "fifo", "another window", "another kind"]


@pytest.mark.parametrize(("way", "lost"), [*((way, lost) for lost in (False, True) for way in WAYS), ("flipped", True)])
def test_an_archived_union_that_cannot_be_used_is_set_aside_not_replaced(tmp_path: Path, way: str, lost: bool):
    report_two(tmp_path)
    if lost:
        lose_state(tmp_path)
    union = make_archive(tmp_path).union(KEY)
    spoil(union, way)
    before = union.read_bytes() if union.is_file() else None
    node = make_node(tmp_path)
    receipt = node.send(three()[2])
    if lost and way == "another kind":  # it may be right, and the hub wrong
        assert (receipt.verdict, "geometry differs" in receipt.reason) == (REFUSED, True)
        assert union.read_bytes() == before
        return
    assert receipt.verdict == MERGED
    node.hub.step()
    assert content(sh.load(union)) == content(three()[2] if lost else union_of(*three()))  # the store has them all
    assert all(line.count(str(union)) == 1 for line in node.said if "LEFT OUT" in line)
    (aside,) = union.parent.glob(".*.aside")
    assert before is None or aside.read_bytes() == before
    assert node.hub.status()["aside"] == {"count": 1, "last": [str(union)]}
    assert node.reports[0].revision == 3


@pytest.mark.parametrize("lost", [UNION, None])
def test_a_reported_window_of_another_kind_is_kept_and_sketches_for_it_are_refused(tmp_path: Path, lost: str | None):
    before = report_two(tmp_path)
    if lost is not None:
        (before.store.folder(KEY) / lost).unlink()
    node = make_node(tmp_path, kind=LARGER)
    for _ in range(2):
        receipt = node.send(make_sketch("nyc", settings=LARGER))
        assert receipt.verdict == REFUSED
        assert "the union of its window has other settings: " in receipt.reason
    node.hub.step()
    assert node.reports == []
    assert node.hub.status()["aside"]["count"] == 0
    assert content(sh.load(make_archive(tmp_path).union(KEY))) == content(union_of(*three()[:2]))
    again = make_node(tmp_path)
    assert again.send(three()[2]).verdict == MERGED
    again.hub.step()
    assert content(again.union(0)) == content(union_of(*three()))


def test_a_damaged_sketch_of_a_site_in_the_archive_is_set_aside(tmp_path: Path):
    archive = make_archive(tmp_path, with_sites=True)
    archive.add_site(write_parcel(make_sketch("ams"), tmp_path / "wire"))
    own = archive.folder / KEY[:8] / f"{KEY}-ams.cube"
    damage(own)
    second = make_sketch("ams", base=5000)
    archive.add_site(write_parcel(second, tmp_path / "wire"))
    assert content(sh.load(own)) == content(second)
    assert archive.quarantine.count == len(list(own.parent.glob(".*.aside"))) == 1


@pytest.mark.parametrize("grace", [0.0, 600.0], ids=["at once", "merged ahead"])
def test_a_sketch_that_the_archive_knows_makes_no_new_report(tmp_path: Path, grace: float):
    report_two(tmp_path)
    lose_state(tmp_path)
    node = make_node(tmp_path, grace=grace, late_pause=grace)
    assert node.send(three()[0]).verdict == MERGED
    node.hub.step()
    assert node.reports == []
    assert not node.store.ledger(KEY).is_due
    assert not WindowStore(tmp_path / "state").ledger(KEY).is_due  # nor for a hub that starts again


def put_old(archive: Archive, day: int, name: str = "hub.cube") -> Path:
    """A file of the archive's own, from long ago."""
    path = archive.folder / f"202601{day:02}" / f"202601{day:02}T000000Z-5m-{name}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (0, 0))
    return path


def test_a_day_that_cannot_be_swept_is_said_once_and_the_next_ones_go(tmp_path: Path):
    said: list[str] = []
    archive = make_archive(tmp_path, keep=1e6, with_sites=True, say=said.append)
    stuck = [put_old(archive, 1), put_old(archive, 1, "ams.cube")]
    later = [put_old(archive, day) for day in (2, 3)]

    def fail(path: Path) -> None:
        if path in stuck:
            raise PermissionError(errno.EACCES, "Permission denied")

    with system_call("unlink", fail):
        assert [archive.sweep(time.time() + 1e8) for _ in range(3)] == [1, 1, 0]
    assert [path for path in later if path.exists()] == []
    (words,) = [line for line in said if "NOT REMOVED" in line]
    assert "2 files of 20260101" in words
    assert "Permission denied" in words


def test_another_union_in_the_archive_takes_no_site_out_of_the_report(tmp_path: Path):
    """Sites that only the union tells of stay, also when a backup of the archive brings another union."""
    report_two(tmp_path)
    lose_state(tmp_path)
    note = tmp_path / "archive" / KEY[:8] / f"{KEY}-hub.json"
    note.unlink()
    node = make_node(tmp_path).step(three()[2])
    assert node.reports[0].sites == ["ams", "fra", "nyc"]
    make_node(tmp_path / "other").step(make_sketch("lon"))
    for path in (tmp_path / "other" / "archive" / KEY[:8]).iterdir():
        shutil.copy(path, note.with_name(path.name))
    node.step(make_sketch("par"))
    assert node.reports[1].sites == ["ams", "fra", "lon", "nyc", "par"]
    assert node.reports[1].missing == []
