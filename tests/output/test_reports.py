"""Rows, and the places where they go."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from ipaddress import ip_address
from pathlib import Path

import pyarrow.parquet
import pytest

from faults import full_disk
from superhosts.cli import hub
from superhosts.core.pairs import Window
from superhosts.core.results import SuperHost
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND
from superhosts.errors import OutputError
from superhosts.output.destination import RunKind
from superhosts.output.files import AppendedFile, ParquetFolder, ReplacedFile
from superhosts.output.formats import Csv, JsonLines
from superhosts.output.report import COLUMNS, HUB_COLUMNS, Report, Row, make_rows
from superhosts.output.stdout import StandardOutput

NOON = 1_794_657_600 * SECOND  # 2026-11-14T12:00:00Z


def found(peers: int | None = 4120, low: int = 4043, high: int | None = 4197) -> SuperHost:
    return SuperHost(ip_address("10.1.2.3"), peers, low, high, low == high, peers is None, detector="cube")


ESTIMATED, SATURATED, EXACT = ROWS = make_rows(
    Window(NOON, NOON + 300 * SECOND), [found(), found(None, high=None), found(4043, high=4043)]
)


def test_times() -> None:
    times = {
        0: "1970-01-01T00:00:00Z",
        NOON: "2026-11-14T12:00:00Z",
        NOON + SECOND // 2: "2026-11-14T12:00:00.5Z",
        NOON + 1: "2026-11-14T12:00:00.000000001Z",
        NOON + 10 * SECOND: "2026-11-14T12:00:10Z",
        -1 * SECOND: "1969-12-31T23:59:59Z",
        -1: "1969-12-31T23:59:59.999999999Z",
        2**60 * SECOND: "1152921504606846976.000",
    }
    assert {time: iso_time(time) for time in times} == times


def test_the_row_of_the_contract() -> None:
    assert json.dumps(ROWS[0]) == (
        '{"window_start": "2026-11-14T12:00:00Z", "window_end": "2026-11-14T12:05:00Z", "host": "10.1.2.3", '
        '"family": 4, "side": "inner", "direction": "any", "peers": 4120, "peers_low": 4043, "peers_high": 4197, '
        '"exact": false, "saturated": false, "detector": "cube"}'
    )
    assert tuple(ROWS[0]) == COLUMNS
    numbers = ("peers", "peers_low", "peers_high", "exact", "saturated")
    assert [SATURATED[name] for name in numbers] == [None, 4043, None, False, True]
    assert [EXACT[name] for name in numbers] == [4043, 4043, 4043, True, False]
    assert [row["window_start"] for row in make_rows(None, [found()])] == [None]


def test_lines_and_records() -> None:
    stream = io.StringIO()
    JsonLines(stream).write(ROWS)
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == ROWS
    stream = io.StringIO()
    Csv(stream).write(ROWS)
    lines = stream.getvalue().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert lines[1].endswith("10.1.2.3,4,inner,any,4120,4043,4197,false,false,cube")
    assert lines[2].endswith("any,,4043,,false,true,cube")
    assert lines[3].endswith("any,4043,4043,4043,true,false,cube")


def test_sites_at_which_a_host_is_saturated() -> None:
    sites = [
        {"site": "ams", "peers": None, "peers_low": 4043, "peers_high": None},
        {"site": "fra", "peers": 640, "peers_low": 600, "peers_high": 680},
    ]
    row = {**ESTIMATED, "sites": sites, "missing": [], "revision": 1}
    stream = io.StringIO()
    Csv(stream, HUB_COLUMNS).write([row])
    assert stream.getvalue().splitlines()[-1].endswith(",ams ≥4043; fra 640,,1")


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "CSV"])
def test_a_file_appears_whole_at_the_end_or_leaves_the_old_one(tmp_path, kind, monkeypatch) -> None:
    """A file system may take bytes that it cannot keep, and say so only when they are flushed."""

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    target = tmp_path / f"a.{kind}"
    target.write_text("old")
    for ending in ("abandoned", "full", "closed"):
        file = ReplacedFile(target)
        file.write(Report(rows=ROWS[:1]))
        file.write(Report(rows=ROWS[1:]))
        assert target.read_text() == "old"
        if ending == "abandoned":
            file.abandon()
            file.abandon()
        elif ending == "closed":
            file.close()
        else:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", full)
                with pytest.raises(OutputError, match=rf"a\.{kind}: cannot be written: No space left on device"):
                    file.close()
        assert list(tmp_path.iterdir()) == [target]
    assert target.read_bytes() != b"old"
    assert kind != "parquet" or pyarrow.parquet.read_table(target).to_pylist() == ROWS


def test_a_full_disk_in_the_middle(tmp_path: Path) -> None:
    file = ReplacedFile(tmp_path / "a.jsonl")
    with full_disk():
        with pytest.raises(OutputError, match="File too large"):
            file.write(Report(rows=ROWS * 10_000))
        with pytest.raises(OutputError, match="File too large"):
            file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_growing_csv_file_keeps_the_columns_of_its_header(tmp_path: Path) -> None:
    """An earlier version had fewer columns; after a rotation the file has all."""
    path, older = tmp_path / "a.csv", [name for name in COLUMNS if name != "exact"]
    path.write_text(",".join(older) + "\n")
    file = AppendedFile(path, RunKind(endless=True))
    file.write(Report(rows=[EXACT]))
    header, row = csv.reader(io.StringIO(path.read_text()))
    assert (header, row[-5:]) == (older, ["4043", "4043", "4043", "false", "cube"])
    path.rename(tmp_path / "b.csv")
    file.reopen()
    file.write(Report(rows=[EXACT]))
    file.close()
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)


JUDGED = {**EXACT, "pattern": "web server", "sites": [], "missing": [], "revision": 1}


@pytest.mark.parametrize("first", [JUDGED, {name: JUDGED[name] for name in HUB_COLUMNS}], ids=["evidence", "none"])
def test_rows_of_a_hub_have_patterns_if_the_first_of_a_file_has_one(tmp_path: Path, first: Row) -> None:
    """Whether sites keep evidence is seen when their sketches come; a window without hosts does not tell."""
    names = list(HUB_COLUMNS) + ["pattern"] * ("pattern" in first)
    out = io.StringIO()
    for place in (AppendedFile(tmp_path / "a.csv", hub.KIND), StandardOutput("csv", hub.KIND, stream=out)):
        for rows in ([], [first], [JUDGED], [EXACT]):
            place.write(Report(rows=rows))
        place.close()
    for text in ((tmp_path / "a.csv").read_text(), out.getvalue()):
        header, *written = csv.DictReader(io.StringIO(text)).fieldnames, *csv.DictReader(io.StringIO(text))
        assert header == names
        assert [row.get("pattern") for row in written[1:]] == (["web server", ""] if "pattern" in first else [None] * 2)
    folder = ParquetFolder(tmp_path / "tables", hub.KIND)
    folder.write(Report(rows=[first], window=Window(NOON, NOON + SECOND)))
    (file,) = (tmp_path / "tables").iterdir()
    assert pyarrow.parquet.read_table(file).column_names == names


def test_a_growing_csv_file_goes_on_without_the_names_of_its_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",".join((*COLUMNS, "pattern", "label")) + "\n")
    file = AppendedFile(path, RunKind(endless=True))
    file.write(Report(rows=[EXACT]))
    file.close()
    assert path.read_text().splitlines()[1].endswith(",cube,,")
    for other in ("label,name\n", "name,age\n"):
        path.write_text(other)
        with pytest.raises(OutputError, match=r"a\.csv: its first line is not a header of result rows"):
            AppendedFile(path, RunKind(endless=True))
        assert path.read_text() == other


# Files that another program rotates while a run without an end appends to them.

ENDLESS = RunKind(endless=True)


def report(number: int) -> Report:
    host = SuperHost(ip_address(f"10.0.0.{number}"), 2000, 1990, 2010, False, False, detector="cube")
    window = Window(number * SECOND, (number + 1) * SECOND)
    return Report(rows=make_rows(window, [host]), window=window)


def hosts(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    if path.name.startswith("rows.csv"):
        assert lines[0].startswith("window_start,")
        return [line.split(",")[2] for line in lines[1:]]
    return [json.loads(line)["host"] for line in lines]


@pytest.fixture(params=["jsonl", "csv"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"rows.{request.param}"


def test_a_file_that_is_moved_away_is_left_alone(path: Path) -> None:
    """Without any signal, as a program without one expects it."""
    file, old = AppendedFile(path, ENDLESS), path.with_name(f"{path.name}.1")
    file.write(report(1))
    path.rename(old)
    file.write(report(2))
    file.write(report(3))
    assert (hosts(old), hosts(path)) == (["10.0.0.1"], ["10.0.0.2", "10.0.0.3"])
    path.rename(old)
    path.touch()  # `create` of logrotate
    file.write(report(4))
    assert hosts(path) == ["10.0.0.4"]
    assert path.stat().st_mode & 0o777 != 0
    file.close()


def test_a_file_that_is_copied_and_emptied_begins_again(path: Path) -> None:
    file = AppendedFile(path, ENDLESS)
    for number in (1, 2):
        file.write(report(number))
    shutil.copy(path, path.with_name(f"{path.name}.1"))
    with path.open("r+b") as other:
        other.truncate(0)
    file.write(report(3))
    assert hosts(path.with_name(f"{path.name}.1")) == ["10.0.0.1", "10.0.0.2"]
    assert hosts(path) == ["10.0.0.3"]
    assert b"\0" not in path.read_bytes()
    file.close()


def test_a_folder_that_is_gone_is_an_error_and_the_report_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "rows.jsonl"
    path.parent.mkdir()
    file = AppendedFile(path, ENDLESS)
    file.write(report(1))
    path.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match=r"rows\.jsonl: cannot be written: No such file or directory"):
        file.write(report(2))
    assert file.counters.failures == 1
    path.parent.mkdir()
    file.write(report(2))
    assert (hosts(tmp_path / "elsewhere" / "rows.jsonl"), hosts(path)) == (["10.0.0.1"], ["10.0.0.2"])
    file.close()


def test_a_disk_that_is_full_after_a_file_was_emptied_leaves_no_hole(path, monkeypatch) -> None:
    file = AppendedFile(path, ENDLESS)
    file.write(report(1))

    def full(_: int) -> None:
        with path.open("r+b") as other:
            other.truncate(0)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            file.write(report(2))
    assert path.read_bytes() == b""
    file.write(report(2))
    assert hosts(path) == ["10.0.0.2"]
    file.close()
