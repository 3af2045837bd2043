"""Tables as inputs of every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import Run
from tables import SECOND, Line, answer, make_rows
from traffic import talk, write

ROWS = make_rows(600)
EXACT = ("--json", "--detector", "exact", "--threshold", 1)


def table(path: Path, rows: list[Line], names: tuple[str, str, str] = ("src", "dst", "ts")) -> Path:
    columns = [[row.src for row in rows], [row.dst for row in rows], [row.time // SECOND for row in rows]]
    pq.write_table(pa.table(dict(zip(names, map(pa.array, columns), strict=True))), path)
    return path


def peers(rows: list[dict[str, Any]]) -> list[dict[str, int]]:
    """Return the hosts of each window, in order."""
    windows: dict[str, dict[str, int]] = {}
    for row in rows:
        windows.setdefault(row["window_start"], {})[row["host"]] = row["peers"]
    return [windows[start] for start in sorted(windows)]


def test_a_scan_speaks_of_rows(run: Run, tmp_path: Path) -> None:
    ended = run("scan", table(tmp_path / "a.parquet", ROWS), *EXACT, "--window", "5m")
    assert (ended.status, peers(ended.rows)) == (0, list(answer(ROWS).values()))
    assert ended.err.splitlines()[-1].startswith("600 rows in ")
    assert " rows/s), 2 windows of 5m" in ended.err.splitlines()[-1]


def test_rows_and_packets_together(run: Run, tmp_path: Path) -> None:
    capture = write(tmp_path / "a.pcap", talk("10.0.0.9", 5))
    ended = run("scan", table(tmp_path / "b.parquet", ROWS), capture, *EXACT, "--window", "all")
    assert ended.err.splitlines()[-1].startswith("605 records in ")


def test_bad_rows_are_counted_and_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [*ROWS[:100], Line("x", "10.0.0.1"), *ROWS[100:]]
    path, counters = table(tmp_path / "a.parquet", rows), tmp_path / "counters.json"
    monkeypatch.setenv("SUPERHOSTS_SCAN_COUNTERS", str(counters))
    ended = run("scan", path, *EXACT, "--window", "all")
    assert (ended.status, peers(ended.rows)) == (0, list(answer(ROWS, None).values()))
    lines = ended.err.splitlines()
    assert lines[0].startswith(f"warning: {path}: row 101 does not count: src=x, dst=10.0.0.1, ts=")
    assert lines[-1].endswith("; not counted: 1 without two addresses or a time")
    found = json.loads(counters.read_text())
    assert (found["rows"], found["not_counted"]["bad_rows"], found["packets"]) == (601, 1, 601)
    ended = run("scan", path, *EXACT, "--window", "all", "--quiet")
    assert ended.err.splitlines()[-1] == (
        "superhosts: warning: 1 row was not counted: 1 without two addresses or a time"
    )


def test_calibrate_reads_tables(run: Run, tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", ROWS, ("a", "b", "c"))
    ended = run("calibrate", path, "--map", "src=a,dst=b,time=c", "--json", "-t", 64, "-m", "1MiB")
    assert (ended.status, ended.rows[0]["windows"]) == (0, 2)
