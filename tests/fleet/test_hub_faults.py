"""A hub in trouble: kills between two steps, disks that fail for a while, crafted files, options that have changed."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from faults import DeadError, at_commit, at_rename, at_sync, die, fill_database, fill_disk, system_call
from fleets import KEY, LARGER, make_sketch, window, write_parcel
from hubs import SITES, Node, make_archive, three, union_of
from superhosts.core.files import write_json
from superhosts.core.notices import Notice
from superhosts.cubefile import container as sketchfile
from superhosts.detectors.stored import Stored
from superhosts.errors import OutputError, UnreadableError, UsageError
from superhosts.fleet.archive import Archive
from superhosts.fleet.filelink import FileReceiver, FileSender
from superhosts.fleet.hub import HubCounters, Retries
from superhosts.fleet.intake import Intake
from superhosts.fleet.link import MERGED, REFUSED
from superhosts.fleet.names import SketchId
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import UNION, WindowStore
from superhosts.output.destination import Destination, Destinations, RunKind
from superhosts.output.files import AppendedFile, ParquetFolder, ReplacedFile
from superhosts.output.report import Report
from superhosts.output.stdout import StandardOutput
from traffic import content

# Kills between two steps.


def test_a_sketch_that_could_not_be_placed_leaves_its_window_open(tmp_path: Path):
    node = Node(tmp_path)
    sketch = write_parcel(three()[0], tmp_path / "wire")
    with at_rename("*-ams-*.cube", fill_disk), pytest.raises(OSError, match="No space"):
        node.arrive(sketch, "ams")
    assert node.store.folder(KEY).is_dir()
    for again in (node, Node(tmp_path)):  # the second start removes the empty folder
        assert again.store.windows() == []
        again.hub.tidy()
    assert not again.store.folder(KEY).exists()
    assert [again.send(sketch).verdict for sketch in three()] == [MERGED] * 3


def test_a_window_whose_sketches_were_all_left_out_is_not_past(tmp_path: Path):
    node = Node(tmp_path, grace=0.0, late=-1.0)
    node.send(three()[0])
    next(node.store.folder(KEY).glob("*-ams-*.cube")).write_bytes(b"rot")
    node.store.fresh.clear()
    node.hub.step()
    assert node.reports == []
    node.hub.tidy()
    assert node.store.windows() == []
    assert node.send(three()[0]).verdict == MERGED


def test_a_window_that_was_being_retired_is_not_reported_as_new(tmp_path: Path):
    def half(folder: Path, **_: Any) -> None:
        if folder.exists():
            for path in folder.glob("*-ams-*.cube"):
                path.unlink()
            die()

    node = Node(tmp_path, late=-1.0).step(*three())
    with system_call("rmtree", half, shutil), pytest.raises(DeadError):
        node.hub.tidy()
    again = Node(tmp_path, grace=0.0)
    again.hub.step()
    assert again.reports == []
    assert again.store.windows() == []
    assert list((tmp_path / "state" / "windows").iterdir()) == []
    assert [again.send(sketch).verdict for sketch in three()] == [MERGED] * 3  # it knows them


def test_a_window_that_was_being_taken_back_is_taken_back_again(tmp_path: Path):
    archive = make_archive(tmp_path)
    node = Node(tmp_path, sites=("ams",), late=-1.0, archive=archive)
    first, second, _ = three()
    node.step(first)
    node.hub.tidy()
    with at_commit(die), pytest.raises(DeadError):
        node.send(second)
    again = Node(tmp_path, sites=("ams", "fra"), archive=archive)
    assert again.send(second).verdict == MERGED
    again.hub.step()
    assert [report.revision for report in again.reports] == [2]
    assert content(again.union(0)) == content(union_of(first, second))


# Disks that fail for a while.


@pytest.mark.parametrize("what", [stat.S_ISREG, stat.S_ISDIR])
def test_no_receipt_is_given_when_the_disk_has_not_taken_it(tmp_path: Path, what: Callable[[int], bool]):
    node = Node(tmp_path, sites=("ams",))
    path = write_parcel(make_sketch("ams"), tmp_path / "link" / "ams")
    receiver = FileReceiver(tmp_path / "link", node.said.append)
    synced: list[int] = []

    def break_disk(handle: int) -> None:
        if what(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "Input/output error")

    with at_sync(break_disk), pytest.raises(OSError, match="Input/output"):
        receiver.step(node.intake, threading.Event())
    assert path.exists()
    assert list(path.parent.glob("*.receipt")) == []
    with at_sync(lambda handle: synced.append(os.fstat(handle).st_ino)):
        receiver.step(node.intake, threading.Event())
    assert not path.exists()
    folder = node.store.folder(KEY)
    assert {folder.stat().st_ino, folder.parent.stat().st_ino} <= set(synced)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_that_cannot_sync_is_taken_as_it_is(tmp_path: Path, code: int):
    def fail(_handle: int) -> None:
        raise OSError(code, os.strerror(code))

    node = Node(tmp_path, sites=("ams",))
    path = write_parcel(make_sketch("ams"), tmp_path / "link" / "ams")
    with at_sync(fail):
        FileReceiver(tmp_path / "link", node.said.append).step(node.intake, threading.Event())
    assert not path.exists()


def unreadable(patch: pytest.MonkeyPatch, way: str, part: str) -> None:
    """Let reading files with this in their names fail: when opened, at once, or within the blocks."""
    if way == "open":
        open_ = Path.open

        def fail_open(self: Path, *arguments: Any, **options: Any) -> Any:
            if part in self.name and self.name.endswith(".cube"):
                raise OSError(errno.EMFILE, "Too many open files")
            return open_(self, *arguments, **options)

        patch.setattr(Path, "open", fail_open)
        return
    name = "_read_at" if way == "read" else "_read_block"
    real = getattr(sketchfile.CubeReader, name)

    def fail(self: sketchfile.CubeReader, *arguments: Any) -> Any:
        with system_call("pread", broken) if part in self.name else contextlib.nullcontext():
            return real(self, *arguments)

    def broken(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    patch.setattr(sketchfile.CubeReader, name, fail)


@pytest.mark.parametrize("way", ["open", "read", "blocks"])
@pytest.mark.parametrize("part", [f"{KEY}-fra-", UNION])
def test_a_file_that_cannot_be_read_now_is_waited_for(tmp_path, monkeypatch, way, part):
    first = Node(tmp_path, grace=0.0)
    sketches = [make_sketch(site, peers=1500, base=5000 * place) for place, site in enumerate(SITES)]
    if part == UNION:  # of which the sketches are gone, as those of older windows are
        for path in first.step(make_sketch("lon")).store.sketches(KEY):
            path.unlink()
        sketches.append(make_sketch("lon"))
    first.send_all(*(*sketches[:3], *three(1)))
    node = Node(tmp_path, grace=0.0)
    with monkeypatch.context() as patch:
        unreadable(patch, way, part)
        node.hub.step()
        node.hub.step()
    assert [report.window for report in node.reports] == [window(1)]  # only its own window waits
    assert node.hub.counters.damaged == 0
    assert node.hub.counters.waits == 2
    assert sum("NOT REPORTED" in line and KEY in line for line in node.said) == 1
    node.hub.step()
    assert node.reports[1].sites == sorted(min(sketch.sites) for sketch in sketches)
    assert content(node.union(0)) == content(union_of(*sketches))
    assert any("works again" in line for line in node.said)


def test_what_the_intake_cannot_read_now_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    node = Node(tmp_path)
    with monkeypatch.context() as patch:
        unreadable(patch, "read", ".part")
        with pytest.raises(OSError, match="Input/output"):
            node.send(three()[0])
    assert node.intake.counters.refused == 0
    assert node.send(three()[0]).verdict == MERGED


def test_an_archived_sketch_that_cannot_be_read_now_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive = make_archive(tmp_path, with_sites=True)
    first, second = make_sketch("ams"), make_sketch("ams", base=10_000)
    archive.add_site(write_parcel(first, tmp_path / "wire"))
    with monkeypatch.context() as patch:
        unreadable(patch, "read", "-ams.cube")
        with pytest.raises(UnreadableError):
            archive.add_site(write_parcel(second, tmp_path / "wire"))
    assert content(sh.load(archive.folder / KEY[:8] / f"{KEY}-ams.cube")) == content(first)


def test_a_report_that_went_out_is_counted_and_not_handed_out_twice(tmp_path: Path):
    node = Node(tmp_path, sites=("ams",))
    node.send(make_sketch("ams"))
    with at_commit(fill_database, after=2):
        node.hub.step()
        assert node.hub.counters.reports == len(node.reports) == 1
        node.hub.step()
    assert Node(tmp_path, sites=("ams",)).store.ledger(KEY).issuing is not None
    node.hub.step()
    assert node.hub.counters.reports == len(node.reports) == 1
    assert Node(tmp_path, sites=("ams",)).store.ledger(KEY).issuing is None


# Destinations that fail.


class Fake(Destination):
    """A destination that takes nothing while it is full."""

    def __init__(self, *, full: bool = False) -> None:
        super().__init__("fake")
        self.full = full
        self.rows: list[Any] = []

    def _write(self, report: Report) -> None:
        if self.full:
            raise OutputError("fake: cannot be written") from OSError(errno.ENOSPC, "No space left on device")
        self.rows += report.rows


class FullStream(io.StringIO):
    """A standard output on a full disk."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_each_destination_gets_a_report_once_however_often_another_fails(tmp_path: Path):
    spool = Spool(tmp_path / "up", "eu", cap=1 << 30, say=print)
    node = Node(tmp_path, sites=("ams",), upstream=spool)
    stream = Fake(full=True)
    outputs = Destinations([AppendedFile(tmp_path / "out.jsonl"), stream])
    node.report = outputs.write
    node.send(make_sketch("ams"))
    for _ in range(3):
        node.hub.step()
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1
    assert node.store.ledgers.rows(KEY)  # what the state needs does not wait for others
    assert node.hub.counters.reports == 0
    stream.full = False
    node.hub.step()
    node.hub.step()
    assert stream.rows == [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(stream.rows) == 1
    assert node.hub.counters.reports == 1
    assert spool.counters.spooled == 1
    node.step(make_sketch("fra", base=9000))
    assert [row["revision"] for row in stream.rows] == [1, 2]
    with outputs:
        pass


@pytest.mark.parametrize("way", ["file", "lines", "parquet", "standard output", "spool"])
def test_a_full_disk_behind_any_output_is_known_as_everyones_trouble(tmp_path: Path, way: str):
    spool = Spool(tmp_path / "up", "eu", cap=1 << 30, say=print)
    report = Report(rows=[], window=window(0))

    def write() -> None:
        if way == "file":
            file = ReplacedFile(tmp_path / "out.jsonl")
            file.write(report)
            file.close()
        elif way == "lines":
            with contextlib.closing(AppendedFile(tmp_path / "out.jsonl")) as lines:
                lines.write(report)
        elif way == "parquet":
            ParquetFolder(tmp_path / "rows").write(report)
        elif way == "spool":
            spool.put(make_sketch("ams"))
        else:
            StandardOutput("json", RunKind(endless=True), stream=FullStream()).write(report)

    troubles = Retries(print, HubCounters())
    with at_sync(fill_disk):
        assert not troubles.attempt(Notice(f"NOT REPORTED: {KEY}", "not-reported"), write, KEY)
    assert not troubles.is_resting(KEY)


def test_a_report_ends_all_trouble_with_its_window(tmp_path: Path):
    said: list[str] = []
    troubles = Retries(said.append, HubCounters())

    def fail() -> None:
        raise ValueError("no")

    other = "20261114T120500Z-5m"
    for key in (KEY, other):
        troubles.attempt(Notice(f"NOT MERGED YET: {key}", "not-merged-yet"), fail, key)
    assert troubles.attempt(Notice(f"NOT REPORTED: {KEY}", "not-reported"), lambda: None, KEY)
    assert list(troubles.open) == [f"NOT MERGED YET: {other}"]
    assert said[2:] == [f"NOT MERGED YET: {KEY}: works again"]


# Crafted files.


def test_a_sketch_that_breaks_the_reader_is_refused_and_one_without_memory_waits(tmp_path: Path):
    errors: list[Exception] = [MemoryError("no room"), IndexError("list index out of range")]

    class Breaking(Intake):
        def check(self, stored: Stored, sketch_id: SketchId) -> None:
            raise errors.pop(0)

    node = Node(tmp_path, intake=Breaking)
    with pytest.raises(MemoryError):
        node.send(three()[0])
    receipt = node.send(three()[0])
    assert (receipt.verdict, node.intake.counters.refused) == (REFUSED, 1)
    assert "list index out of range" in receipt.reason
    assert "IndexError" in node.said[-1]


# Options that have changed, and names that are used twice.


def test_after_a_change_of_geometry_the_old_sketches_go_aside(tmp_path: Path):
    old = Node(tmp_path, sites=("ams", "fra"))
    old.send(make_sketch("ams"))  # and is not reported yet
    node = Node(tmp_path, sites=("ams", "fra"), kind=LARGER, grace=0.0)
    new = make_sketch("fra", settings=LARGER)
    assert node.send(new).verdict == MERGED
    node.hub.step()
    (report,) = node.reports
    assert (report.attendance, report.revision) == ("1 of 2 sites: missing ams", 1)
    assert report.rows[0]["missing"] == ["ams"]
    assert content(node.union(0)) == content(new)
    assert any("LEFT OUT" in line and "geometry differs" in line for line in node.said)
    aside = sorted(path.name for path in node.store.folder(KEY).glob(".*.aside"))
    assert [name.split("-")[-2] for name in aside] == ["ams"]


def test_a_second_sketch_of_a_site_is_said_once(tmp_path: Path):
    node = Node(tmp_path).send_all(*(make_sketch("ams", base=base) for base in (0, 5000, 10_000)), make_sketch("fra"))
    words = [line for line in node.said if "a second sketch of ams" in line]
    assert len(words) == 1
    assert KEY in words[0]
    assert node.intake.counters.doubled == 1


def test_a_site_with_the_hubs_own_name_keeps_its_sketch_beside_the_union(tmp_path: Path):
    archive = make_archive(tmp_path, with_sites=True, site="ams")
    node = Node(tmp_path, archive=archive)
    sketches = three()
    node.step(*sketches)
    names = sorted(path.name for path in archive.folder.glob("*/*.cube"))
    assert names == [f"{KEY}-{name}.cube" for name in ("ams", "ams_site", "fra", "nyc")]
    assert content(sh.load(archive.union(KEY))) == content(union_of(*sketches))
    assert content(sh.load(archive.folder / KEY[:8] / names[1])) == content(sketches[0])


# The archive and the link's folder.


def test_a_sweep_leaves_files_that_the_archive_did_not_make(tmp_path: Path):
    said: list[str] = []
    archive = Archive(tmp_path, keep=100.0, site="hub", with_sites=False, key=None, say=said.append)
    mine = write_parcel(make_sketch("ams"), tmp_path / "wire")
    archive.add_union(mine, KEY)
    own = archive.union(KEY)
    left = [own.with_name(f".{own.name}.tmp"), own.with_name(f".{own.name}.123.tmp")]
    others = [
        *(
            tmp_path / KEY[:8] / name
            for name in ("notes.cube", f"{KEY}.cube", "20261115T120000Z-5m-ams.cube", ".a.tmp")
        ),
        tmp_path / "results" / own.name,
        mine,
    ]
    for path in (*left, *others):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for path in (*left, *others, own):
        os.utime(path, (0, 0))
    assert archive.sweep(1e9) == 1
    assert [path for path in (*left, own) if path.exists()] == []
    assert [path for path in others if not path.exists()] == []


def test_a_folder_that_is_not_there_is_said_and_waited_for(tmp_path: Path):
    node = Node(tmp_path, sites=("ams",))
    receiver = FileReceiver(tmp_path / "mount", node.said.append)
    for _ in range(2):
        receiver.look(node.intake, threading.Event())
    (line,) = node.said
    assert ("No such file" in line, str(tmp_path / "mount") in line, receiver.counters.failures) == (True, True, 2)
    write_parcel(make_sketch("ams"), tmp_path / "mount" / "ams")
    receiver.look(node.intake, threading.Event())
    assert (node.intake.counters.accepted, "works again" in node.said[-1]) == (1, True)


def test_a_sketch_that_an_edge_cannot_read_now_does_not_keep_the_others(tmp_path: Path):
    spool = Spool(tmp_path / "spool", "ams", cap=1 << 30, say=print)
    first, second = (spool.put(make_sketch("ams", number)) for number in range(2))

    def fail(path: Any, *_: Any) -> None:
        if path == first:
            raise OSError(errno.EIO, "Input/output error", str(path))

    sender = FileSender(tmp_path / "link", "ams", print)
    with system_call("open", fail), pytest.raises(OSError, match="Input/output"):
        sender.step(spool)
    assert [path.name for path in (tmp_path / "link" / "ams").iterdir()] == [second.name]
    sender.step(spool)
    assert len(list((tmp_path / "link" / "ams").iterdir())) == 2


def test_a_file_is_not_a_folder_of_sketches(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--from .*: is a file"):
        FileReceiver(tmp_path / "file", print)
    with pytest.raises(UsageError, match=r"--to .*: is a file"):
        FileSender(tmp_path / "file", "ams", print)


def test_names_of_new_folders_and_merged_sketches_are_synced(tmp_path: Path):
    synced: list[int] = []  # inodes
    with at_sync(lambda handle: synced.append(os.fstat(handle).st_ino)):
        WindowStore(tmp_path / "new" / "state")
        assert {path.stat().st_ino for path in (tmp_path, tmp_path / "new", tmp_path / "new" / "state")} <= set(synced)
        archive = make_archive(tmp_path, with_sites=True)
        synced.clear()
        archive.add_site(write_parcel(make_sketch("ams"), tmp_path / "wire"))
        day = archive.folder / KEY[:8]
        assert {archive.folder.stat().st_ino, day.stat().st_ino} <= set(synced)
        archive.add_site(write_parcel(make_sketch("ams", base=5000), tmp_path / "wire"))
        assert synced[-1] == day.stat().st_ino


@pytest.mark.parametrize("durable", [True, False])
def test_a_state_file_is_synced_before_it_has_its_name(tmp_path: Path, durable: bool):
    path = tmp_path / "state.json"
    write_json(path, "old")
    synced: list[tuple[int, bool]] = []  # inode, and whether the name still stands for the file of before
    before = path.stat().st_ino

    def watch(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, path.stat().st_ino == before))

    with at_sync(watch):
        write_json(path, "new", durable=durable)
        expected = [(path.stat().st_ino, True), (tmp_path.stat().st_ino, False)]
    assert synced == (expected if durable else [])
