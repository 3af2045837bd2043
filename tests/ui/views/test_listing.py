"""Which sketches a folder holds: found again when it changes, read once while it does not."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from cli.test_hosts import NOON, save
from superhosts.ui.folder import Listing

HOUR = 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "one" / "a.cube", "ams", NOON)
    save(tmp_path / "two" / "deep" / "b.cube", "ams", NOON)
    save(tmp_path / "two" / ".set-aside" / "c.cube", "ams", NOON)
    return tmp_path


def names(listed: Listing) -> list[str]:
    return [each.sketch.path.name for each in listed.look()]


def make_old(folder: Path) -> None:
    old = time.time() - HOUR
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (old, old))


def test_all_folders_but_hidden_ones_are_looked_at(folder: Path) -> None:
    assert names(Listing(folder)) == ["a.cube", "b.cube"]
    assert names(Listing(folder / "none")) == []


def test_what_has_not_changed_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_old(folder)
    listed = Listing(folder)
    first = listed.look()
    monkeypatch.setattr("superhosts.ui.folder.os.scandir", None)
    assert listed.look() == first


def test_new_files_and_removed_ones_are_seen(folder: Path) -> None:
    make_old(folder)
    listed = Listing(folder)
    listed.look()
    save(folder / "one" / "d.cube", "ams", NOON)
    assert names(listed) == ["a.cube", "d.cube", "b.cube"]
    shutil.rmtree(folder / "two" / "deep")
    assert names(listed) == ["a.cube", "d.cube"]


def test_a_file_that_is_still_being_written_is_read_again(folder: Path) -> None:
    whole = (folder / "one" / "a.cube").read_bytes()
    path = folder / "one" / "a.cube"
    path.write_bytes(whole[:10])
    listed = Listing(folder)
    assert not listed.look()[0].sketch.is_readable
    with path.open("ab") as file:
        file.write(whole[10:])
    assert listed.look()[0].sketch.is_readable


def test_a_folder_that_vanishes_meanwhile_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def vanish(path: Path | int) -> object:
        if path == folder / "one":
            shutil.rmtree(folder / "one")
        return scan(path)

    monkeypatch.setattr("superhosts.ui.folder.os.scandir", vanish)
    assert names(Listing(folder)) == ["b.cube"]
