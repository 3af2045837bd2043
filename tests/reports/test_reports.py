"""Rows, and the places where they go."""

from __future__ import annotations

import io
import json
import os
from ipaddress import ip_address
from pathlib import Path

import pytest

from faults import full_disk
from packets import SECOND
from superhosts.errors import OutputError, UsageError
from superhosts.pairs import Part, Window
from superhosts.reports.base import Report, RunKind
from superhosts.reports.files import ReplacedFile
from superhosts.reports.formats import Csv, JsonLines
from superhosts.reports.opening import open_destination
from superhosts.reports.rows import COLUMNS, make_rows
from superhosts.reports.terminal import interval
from superhosts.results import Found, SuperHost
from superhosts.times import iso_time

NOON = 1_794_657_600 * SECOND  # 2026-11-14T12:00:00Z


def found(peers: int = 4120, high: int | None = 4197) -> Found:
    row = SuperHost(ip_address("10.1.2.3"), peers, 4043, high, high is None)
    return Found(Part(4, "inner", "any"), row, "cube")


ROWS = make_rows(Window(NOON, NOON + 300 * SECOND), [found(), found(high=None)])


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (NOON, "2026-11-14T12:00:00Z"),
        (NOON + SECOND // 2, "2026-11-14T12:00:00.5Z"),
        (NOON + 1, "2026-11-14T12:00:00.000000001Z"),
        (NOON + 10 * SECOND, "2026-11-14T12:00:10Z"),
        (-1 * SECOND, "1969-12-31T23:59:59Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (2**60 * SECOND, "1152921504606846976.000"),
    ],
)
def test_times(time: int, text: str) -> None:
    assert iso_time(time) == text


def test_the_row_of_the_contract() -> None:
    assert json.dumps(ROWS[0]) == (
        '{"window_start": "2026-11-14T12:00:00Z", "window_end": "2026-11-14T12:05:00Z", "host": "10.1.2.3", '
        '"family": 4, "side": "inner", "direction": "any", "peers": 4120, "peers_low": 4043, "peers_high": 4197, '
        '"saturated": false, "detector": "cube"}'
    )
    assert tuple(ROWS[0]) == COLUMNS
    assert (ROWS[1]["peers_high"], ROWS[1]["saturated"]) == (None, True)
    assert [row["window_start"] for row in make_rows(None, [found()])] == [None]


def test_lines_and_records() -> None:
    stream = io.StringIO()
    JsonLines(stream).write(ROWS)
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == ROWS
    stream = io.StringIO()
    Csv(stream).write(ROWS)
    lines = stream.getvalue().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert lines[1].endswith("10.1.2.3,4,inner,any,4120,4043,4197,false,cube")
    assert lines[2].endswith("4120,4043,,true,cube")


def test_intervals() -> None:
    assert interval(ROWS[0]) == "4,043 – 4,197"
    assert interval(ROWS[1]) == "≥ 4,043 (saturated)"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "CSV"])
def test_a_file_appears_whole_at_the_end(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    target = tmp_path / f"a.{kind}"
    target.write_text("old")
    file = ReplacedFile(target)
    file.write(Report(rows=ROWS[:1]))
    file.write(Report(rows=ROWS[1:]))
    assert target.read_text() == "old"
    file.close()
    assert target.read_bytes() != b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_abandoned_file_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "a.jsonl"
    target.write_text("old")
    file = ReplacedFile(target)
    file.write(Report(rows=ROWS))
    file.abandon()
    file.abandon()
    assert [(path, path.read_text()) for path in tmp_path.iterdir()] == [(target, "old")]


@pytest.mark.parametrize("name", ["a", "a.txt", "a.json", ".csv"])
def test_names_that_tell_no_kind(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"must end in \.jsonl, \.csv or \.parquet"):
        open_destination(str(tmp_path / name), RunKind())


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_full_disk_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A file system may take bytes that it cannot keep, and say so only when they are flushed."""

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    if kind == "parquet":
        pytest.importorskip("pyarrow")
    file = ReplacedFile(tmp_path / f"a.{kind}")
    file.write(Report(rows=ROWS))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=rf"a\.{kind}: cannot be written: No space left on device"):
        file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_in_the_middle(tmp_path: Path) -> None:
    file = ReplacedFile(tmp_path / "a.jsonl")
    with full_disk():
        with pytest.raises(OutputError, match="File too large"):
            file.write(Report(rows=ROWS * 10_000))
        with pytest.raises(OutputError, match="File too large"):
            file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(OutputError, match="it is a folder"):
        ReplacedFile(tmp_path / "a.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
