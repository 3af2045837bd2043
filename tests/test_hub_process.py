"""A hub as a process: signals, and who may read what it writes."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fleets import make_sketch, window, write_parcel
from processes import COMMON, Node, ending, make_hub, rows, wait_for
from superhosts.detectors.sketch import Sketch
from superhosts.fleet.archive import Archive
from superhosts.fleet.durable import copy_synced, hold_folder, make_folder, write_json
from superhosts.fleet.spool import Spool
from superhosts.pairs import Part
from superhosts.reports.running import LinesFile, ParquetFolder
from superhosts.settings import Settings

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


def status(tmp_path: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads((tmp_path / "hub" / "status.json").read_text())
    return found


def windows_in(path: Path) -> int:
    return len({row["window_start"] for row in rows(path)})


def test_sighup_reloads_and_the_hub_goes_on(tmp_path: Path):
    hub, found = make_node(tmp_path), tmp_path / "found.jsonl"
    with ending(hub):
        hub.start()
        write_parcel(crowd(0), tmp_path / "link" / "ams")
        wait_for(lambda: windows_in(found) == 1, "the first window is reported")
        found.rename(tmp_path / "found.1")  # as logrotate does it
        assert hub.process is not None
        hub.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded: --output" in hub.words, "it reloads")
        write_parcel(crowd(1), tmp_path / "link" / "ams")
        wait_for(lambda: windows_in(found) == 1, "the second is in a new file")
        assert hub.running
        assert hub.end(signal.SIGTERM) == 0
    assert windows_in(tmp_path / "found.1") == 1


def test_sighup_reloads_the_broker(tmp_path: Path):
    pytest.importorskip("nats", reason="pip install 'superhosts[fleet]'")
    hub, _ = make_hub(tmp_path)
    with ending(hub):
        hub.start()
        hub.wait_ready()
        assert hub.process is not None
        hub.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "sites and certificates" in hub.words, "it reloads")
        wait_for(lambda: status(tmp_path)["broker"]["reloads"] == 1, "so does the broker")
        assert hub.end(signal.SIGTERM) == 0


ON_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_hub_whose_terminal_closes_ends_in_good_order(tmp_path: Path):
    hub = make_node(tmp_path, prefix=(sys.executable, "-c", ON_TERMINAL))
    master, slave = pty.openpty()
    with ending(hub):
        hub.start(stdin=slave)
        os.close(slave)
        hub.wait_ready()
        assert hub.process is not None
        hub.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded" in hub.words, "as long as the terminal is there, it reloads")
        os.close(master)
        assert hub.process.wait(600) == 0


def modes(*folders: Path) -> dict[str, str]:
    """What is open to others, of all files and folders there."""
    found = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return {str(path): stat.filemode(path.stat().st_mode) for path in found if path.stat().st_mode & 0o077}


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
    write_json(spool.folder / "position.json", {})
    with hold_folder(tmp_path / "state"):
        pass
    LinesFile(tmp_path / "rows.csv").close()
    pytest.importorskip("pyarrow", reason="pip install 'superhosts[tables]'")
    ParquetFolder(tmp_path / "tables", ("host",)).write("w", [{"host": "a"}])
    assert (tmp_path / "tables" / "w.parquet").exists()
    assert modes(spool.folder, tmp_path / "state", tmp_path / "rows.csv", tmp_path / "tables") == {}


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
