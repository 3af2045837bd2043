"""The examples run, and their answers are right."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from places import ROOT

EXAMPLES = ROOT / "examples"


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def write_flows(path: Path) -> Path:
    import polars as pl

    src = ["192.0.2.1"] * 6000 + ["192.0.2.2"] * 10
    dst = [f"10.{i // 250}.{i % 250}.1" for i in range(6000)] + ["10.0.0.1"] * 10
    pl.DataFrame({"src": src, "dst": dst}).write_parquet(path)
    return path


@pytest.mark.slow
@pytest.mark.skipif(find_spec("duckdb") is None, reason="duckdb is not installed: pip install duckdb")
def test_duckdb(tmp_path: Path) -> None:
    estimated, counted = run("duckdb_rows.py").split("┌")[1:]
    assert [line.split("│")[1:3] for line in estimated.splitlines() if "10.66.6.6" in line] == [
        line.split("│")[1:3] for line in counted.splitlines() if "10.66.6.6" in line
    ]
    found = run("duckdb_rows.py", write_flows(tmp_path / "flows.parquet"))
    assert found.count("192.0.2.1") == 2
    assert found.count("6000") == 2
    assert "192.0.2.2" not in found


@pytest.mark.slow
def test_polars(tmp_path: Path) -> None:
    assert "20000" in run("polars_rows.py")
    found = run("polars_rows.py", write_flows(tmp_path / "flows.parquet"))
    assert "192.0.2.1" in found
    assert "6000" in found
    assert "192.0.2.2" not in found
