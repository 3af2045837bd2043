"""Rows without times are in one window, which has neither a beginning nor an end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import superhosts as sh
from commands import Run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("src,dst\n192.0.2.1,198.51.100.1\n192.0.2.1,198.51.100.2\n")
    return path


def test_results_have_no_times(table: Path, tmp_path: Path) -> None:
    (window,) = sh.scan(table, window="all", top=1, memory="1MiB", keep_sketch=True)
    assert repr(window).startswith("<WindowResult: 1 host>\n")
    assert window.window_start is window.window_end is window[0].window_start is window[0].window_end is None
    assert window.to_dict()["window_start"] == window.to_arrow()["window_end"].to_pylist() == [None]
    assert repr(window.sketch).startswith("<Sketch: 1 part>\n")
    window.sketch.save(tmp_path / "t.cube")
    assert repr(sh.load(tmp_path / "t.cube")).startswith("<Sketch: 1 part>\n")


def test_commands_show_no_times(run: Run, table: Path, tmp_path: Path) -> None:
    shown = run("scan", table, "--window", "all", "--memory", "1MiB").out
    assert shown.startswith("rows without times: top 3 hosts")
    (row,) = map(json.loads, run("scan", table, "--window", "all", "--top", "1", "--json").out.splitlines())
    assert (row["window_start"], row["window_end"], row["host"], row["peers"]) == (None, None, "192.0.2.1", 2)
    assert run("scan", table, "--window", "all", "--top", "1", "--csv").out.splitlines()[1].startswith(",,192.0.2.1,")
    run("scan", table, "--window", "all", "--save", tmp_path / "saved")
    (saved,) = (tmp_path / "saved").glob("*.cube")
    assert run("hosts", saved).out.startswith("rows without times: ")
