"""A hub as a process: standard output that nobody reads, signals, and who may read what it writes."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fleets import make_sketch, window, write_parcel
from processes import COMMON, Node, ending, status_of, wait_for, windows_in
from superhosts.cli._signals import Interruption, sighup_held
from superhosts.core.files import copy_synced, hold_folder, make_folder, write_json
from superhosts.core.pairs import Part
from superhosts.fleet.archive import Archive
from superhosts.fleet.edge import STATE, Position
from superhosts.fleet.spool import Spool
from superhosts.output.destination import RunKind
from superhosts.output.files import AppendedFile, ParquetFolder
from superhosts.output.report import Report
from superhosts.output.streams import Log, Unbuffered
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch
from superhosts.ui.service import Status

SETTINGS = Settings(memory=COMMON[1], device="cpu", threads=1)
HOSTS = 300


def crowd(number: int) -> Sketch:
    """A sketch of a window with so many hosts that their rows fill a pipe."""
    sketch = Sketch(SETTINGS.make_detector, window=window(number), site="ams")
    hosts = np.repeat(np.arange(HOSTS, dtype=np.uint32) + 0x0A000000, 200)
    peers = np.arange(len(hosts), dtype=np.uint32)
    sketch.part(Part()).update(hosts, peers)
    return sketch


def make_node(tmp_path: Path, *options: str, prefix: tuple[str, ...] = ()) -> Node:
    arguments = ["hub", "--state", str(tmp_path / "hub"), "--from", str(tmp_path / "link"), "--sites", "ams"]
    keep = ["--output", str(tmp_path / "found.jsonl"), "--archive", str(tmp_path / "archive"), "--threshold", "50"]
    return Node(tmp_path / "hub.log", *arguments, *keep, *COMMON, *options, prefix=prefix)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="needs a small pipe, as Linux has them")
@pytest.mark.parametrize("format", ["--json", "table"])
def test_standard_output_that_nobody_reads_keeps_nothing_else(tmp_path: Path, format: str):
    hub = make_node(tmp_path, *([format] if format != "table" else []))
    for number in range(4):
        write_parcel(crowd(number), tmp_path / "link" / "ams")
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    with ending(hub), os.fdopen(read, "rb") as reader:
        with os.fdopen(write, "wb") as writer:
            hub.start(stdout=writer)
        wait_for(lambda: windows_in(tmp_path / "found.jsonl") == 4, "all windows are in the file")
        wait_for(lambda: len(list(tmp_path.glob("archive/*/*.cube"))) == 4, "and in the archive")
        wait_for(lambda: status_of(tmp_path / "hub")["standard_output"]["waiting"] > 0, "what waits is in the status")
        assert hub.end(signal.SIGTERM) == 0
        assert reader.read(1)
    assert "NOT READ" in hub.words
    assert "NOT DELIVERED" in hub.words


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_standard_output_on_a_full_disk_keeps_no_file_and_is_an_error_in_the_end(tmp_path: Path):
    hub = make_node(tmp_path, "--json")
    for number in range(4):
        write_parcel(crowd(number), tmp_path / "link" / "ams")
    with ending(hub), Path("/dev/full").open("wb") as full:
        hub.start(stdout=full)
        wait_for(lambda: windows_in(tmp_path / "found.jsonl") == 4, "all windows are in the file")
        assert hub.end(signal.SIGTERM) == 4
    assert "standard output does NOT TAKE reports" in hub.words
    assert "standard output: 4 reports NOT DELIVERED" in hub.words


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="needs a small pipe, as Linux has them")
def test_standard_error_that_nobody_reads_keeps_nothing(tmp_path: Path):
    hub = make_node(tmp_path)
    for number in range(60):  # a line for each
        (tmp_path / "link" / f"evil{number}").mkdir(parents=True)
        (tmp_path / "link" / f"evil{number}" / f"{'junk' * 20}{number}.cube").touch()
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    with ending(hub), os.fdopen(read, "rb") as reader:
        with os.fdopen(write, "wb") as writer:
            hub.start(stderr=writer)
        wait_for(lambda: (tmp_path / "hub" / "status.json").exists(), "it has started")
        wait_for(
            lambda: status_of(tmp_path / "hub")["standard_error"]["waiting"] > 0, "lines wait, as the status tells"
        )
        write_parcel(crowd(0), tmp_path / "link" / "ams")
        wait_for(lambda: windows_in(tmp_path / "found.jsonl") == 1, "a sketch is taken and reported")
        assert hub.end(signal.SIGTERM) == 0
        assert reader.read(1)


@pytest.mark.parametrize("kind", ["folder", "unwritable"])
def test_a_status_that_cannot_be_written_is_said(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "status.json"
    if kind == "folder":
        path.mkdir()
        Status(path, windows=lambda: 1).write(now=True)
        assert (tmp_path / ".status.json.aside").is_dir()
        assert "SET ASIDE as .status.json.aside" in capsys.readouterr().err
    else:
        hidden = Status(tmp_path / "gone" / "status.json", windows=lambda: 1)
        for _ in range(2):
            hidden.write(now=True)
        (tmp_path / "gone").mkdir()
        hidden.write(now=True)
        lines = capsys.readouterr().err.splitlines()
        assert ["NOT WRITTEN" in lines[0], "written again" in lines[1], len(lines)] == [True, True, 2]
        path = tmp_path / "gone" / "status.json"
    assert json.loads(path.read_text())["windows"] == 1


def test_a_sighup_while_a_service_starts_is_kept_for_its_reload(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("superhosts.cli._signals._has_terminal", lambda: False)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    reloads: list[int] = []
    try:
        with sighup_held():
            signal.raise_signal(signal.SIGHUP)
            for expected in ([1], [1]):  # once
                with Interruption(lambda: None, lambda: reloads.append(1)):
                    assert reloads == expected
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


ON_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.slow
def test_a_hub_whose_terminal_closes_ends_in_good_order(tmp_path: Path):
    hub = make_node(tmp_path, prefix=(sys.executable, "-c", ON_TERMINAL))
    (tmp_path / "link").mkdir()  # a hub without it may say that it is not ready
    master, slave = pty.openpty()
    with ending(hub):
        hub.start(stdin=slave)
        os.close(slave)
        hub.wait_ready()
        hub.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded" in hub.words, "as long as the terminal is there, it reloads")
        os.close(master)
        assert hub.process.wait(600) == 0


def modes(*folders: Path) -> dict[str, str]:
    """What is open to others, of all files and folders there. A process at work may remove one meanwhile."""
    found = {}
    for path in [path for folder in folders for path in (folder, *folder.rglob("*"))]:
        with suppress(FileNotFoundError):
            found[str(path)] = path.stat().st_mode
    return {name: stat.filemode(mode) for name, mode in found.items() if mode & 0o077}


@pytest.mark.slow
def test_nobody_else_may_read_what_a_hub_writes(tmp_path: Path):
    hub = make_node(tmp_path, "--archive-sites")
    link = tmp_path / "link" / "ams"
    write_parcel(crowd(0), link)
    with ending(hub):
        hub.start(umask=0)
        wait_for(lambda: windows_in(tmp_path / "found.jsonl") == 1, "it is reported")
        wait_for(lambda: list(link.glob("*.receipt")), "the edge has its receipt")
        assert hub.end() == 0
    assert modes(tmp_path / "hub", tmp_path / "archive", tmp_path / "found.jsonl") == {}
    (receipt,) = link.glob("*.receipt")
    assert receipt.stat().st_mode & 0o044 == 0o044  # another user's edge reads it


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_spools_and_outputs_belong_to_their_user(tmp_path: Path):
    spool = Spool(tmp_path / "spool", "ams", cap=1 << 30, say=print)
    spool.put(make_sketch("ams"))
    position = Position(spool.folder, [], {})
    position.set_open(window(0))
    with hold_folder(tmp_path / "state"):
        pass
    AppendedFile(tmp_path / "rows.csv").close()
    pytest.importorskip("pyarrow", reason="pip install 'superhosts[tables]'")
    tables = ParquetFolder(tmp_path / "tables", RunKind(("host",)))
    tables.write(Report(rows=[{"host": "a"}], window=window(0)))
    assert len(list((tmp_path / "tables").glob("*.parquet"))) == 1
    assert (spool.folder / f"{STATE}-wal").exists()
    assert modes(spool.folder, tmp_path / "state", tmp_path / "rows.csv", tmp_path / "tables") == {}
    position.close()  # not earlier: this removes the log of the database, whose mode is looked at, too


@pytest.mark.usefixtures("open_umask")
def test_a_folder_that_an_earlier_run_left_open_is_closed_and_a_users_own_is_not(tmp_path: Path):
    used, fresh = tmp_path / "used", tmp_path / "fresh"
    for folder in (used, fresh):
        folder.mkdir(0o755)
    (used / ".lock").touch()
    for folder in (used, fresh):
        hold_folder(folder).close()
    assert stat.S_IMODE(used.stat().st_mode) == 0o700
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o755
    said: list[str] = []
    Archive(fresh, keep=1.0, site="hub", with_sites=False, key=None, say=said.append)
    assert len(said) == 1
    assert "chmod 700" in said[0]


@pytest.mark.usefixtures("open_umask")
def test_what_is_shared_follows_the_umask(tmp_path: Path):
    source = tmp_path / "source"
    source.write_text("x")
    copy_synced(source, tmp_path / "copy", shared=True)
    write_json(tmp_path / "note.json", {}, shared=True)
    assert all((tmp_path / name).stat().st_mode & 0o066 == 0o066 for name in ("copy", "note.json"))
    make_folder(tmp_path / "a" / "b")
    assert modes(tmp_path / "a") == {}


# Standard error in a thread of its own.


class HeldStream(io.StringIO):
    """A stream that takes nothing until a test opens it."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.asked = threading.Event()

    def flush(self) -> None:
        self.asked.set()
        assert self.open.wait(600)


def test_lines_that_standard_error_never_got_are_counted_and_that_is_said():
    stream = HeldStream()
    log = Log(stream, most=3)
    log.write("line 0")
    assert stream.asked.wait(600)
    for number in range(1, 5):
        log.write(f"line {number}")
    assert log.status() == {"waiting": 3, "dropped": 2}
    assert not log.close(patience=0.0)
    stream.open.set()
    assert log.close(patience=600.0)
    log.write("the last")
    assert log.close(patience=600.0)
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if not line.startswith("superhosts: ")] == ["line 0", "line 1", "line 2", "the last"]
    assert [line for line in lines if line.startswith("superhosts: ")] == [
        "superhosts: log lines lost on standard error: 2"
    ]
    assert log.status() == {"waiting": 0, "dropped": 2}


def test_text_for_standard_output_is_written_whole_and_a_cut_line_is_ended(monkeypatch: pytest.MonkeyPatch):
    read, write = os.pipe()
    out = Unbuffered(write)
    real, left = os.write, [3]

    def short(handle: int, data: memoryview) -> int:
        if handle == write and left:
            if left[0] == 0:
                left.clear()
                raise OSError(28, "No space left on device")
            count = real(handle, data[: left[0]])
            left[0] -= count
            return count
        return real(handle, data)

    monkeypatch.setattr(os, "write", short)
    out.write("first\n")
    with pytest.raises(OSError, match="No space"):
        out.flush()
    out.write("first\n")
    out.write("second\n")
    out.flush()
    out.flush()
    monkeypatch.undo()
    os.close(write)
    with os.fdopen(read) as reader:
        assert reader.read() == "fir\nfirst\nsecond\n"
