"""`scan --save` into a folder that holds something already."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from commands import Ended, Run
from faults import full_disk
from traffic import MINUTES, NOON, talk, write

COMMON = ["-q", "--json", "--detector", "exact", "--inner", "10.0.0.0/8", "-t", 20]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write(tmp_path / "a.pcap", [*talk("10.0.0.7", 1500), *talk("10.0.0.7", 1500, NOON + 5 * MINUTES)])


def scan(run: Run, capture: Path, *options: Any) -> Ended:
    return run("scan", capture, *COMMON, "--save", capture.parent / "s", *options)


def junk(path: Path) -> None:
    path.write_text("junk")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(("spoil", "reason"), [(junk, "not a .cube file"), (fifo, "not a plain file")])
def test_an_old_file_that_cannot_be_merged_stays_and_the_scan_goes_on(run, capture, spoil, reason) -> None:
    whole = scan(run, capture)
    first, second = sorted((capture.parent / "s").iterdir())
    second.unlink()
    spoil(first)
    old = first.read_bytes() if first.is_file() else b""
    ended = scan(run, capture, "--output", capture.parent / "a.jsonl")
    assert ended.status == 4
    assert ended.rows == whole.rows
    assert len((capture.parent / "a.jsonl").read_text().splitlines()) == 2
    assert ended.err.startswith(f"superhosts: NOT SAVED: {first}: {reason}")
    assert ended.err.endswith("; move this file away, or save to another folder\n")
    assert ended.err.count("\n") == 1
    assert old == (first.read_bytes() if first.is_file() else b"")
    assert sh.load(second).estimate("10.0.0.7")[0].peers == 1500


@pytest.mark.parametrize(
    ("first", "second", "there", "here"),
    [
        ("--watch inner,outer", "", "--watch outer --direction any", "--watch inner --direction any"),
        ("--direction in,out", "--direction out", "--watch inner --direction in", "--watch inner --direction out"),
    ],
)
def test_a_sketch_of_other_sides_or_directions_is_not_merged(run, tmp_path, first, second, there, here) -> None:
    traffic = [*talk("10.0.0.7", 30), *talk("10.0.0.7", 30, inbound=True)]
    path = write(tmp_path / "a.pcap", traffic)
    common = ["scan", path, "-q", "--json", "-t", 20, "--inner", "10.0.0.0/8", "--save", tmp_path / "s"]
    assert run(*common, *first.split()).status == 0
    (saved,) = (tmp_path / "s").iterdir()
    before = saved.read_bytes()
    ended = run(*common, *second.split())
    words = f"cannot be merged into this run: it was made with {there}, this run with {here}"
    assert (ended.status, ended.err.split("; ")[0]) == (4, f"superhosts: NOT SAVED: {saved}: {words}")
    assert saved.read_bytes() == before


def test_a_disk_that_takes_no_sketch_ends_no_scan(run: Run, capture: Path) -> None:
    (capture.parent / "s").mkdir()
    with full_disk(500):
        ended = scan(run, capture)
    assert list((capture.parent / "s").iterdir()) == []
    assert (ended.status, len(ended.rows), ended.err.count("NOT SAVED")) == (4, 2, 2)
