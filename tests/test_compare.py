"""`superhosts compare` end to end, its files and figures read back."""

from __future__ import annotations

import csv
import html
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from superhosts.cli import app
from superhosts.evaluation.entrants import ENTRANTS
from superhosts.evaluation.experiment import COLUMNS
from superhosts.sources.capture_writer import write_capture
from superhosts.sources.synth import SyntheticSource, Traffic

SMALL = ["--windows", "2", "--flows", "20000", "--super-hosts", "4"]


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["compare", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout


def test_every_detector_takes_part(tmp_path: Path) -> None:
    lines = run("--windows", "1", "--flows", "20000", "--super-hosts", "4", "--json").splitlines()
    rows = {row["detector"]: row for row in map(json.loads, lines)}
    assert set(rows) == set(ENTRANTS)
    for name, row in rows.items():
        assert row["true"] == 4, name
        assert row["fnr"] == 0, name  # so few flows are easy for all
        assert row["update_rate"] > 0
        assert row["restore_ms"] > 0
        assert row["wire"] > 0
    assert rows["dcds"]["memory"] > 384 << 20
    assert rows["gse"]["memory"] > 128 << 20  # with its list of hosts


def test_any_threshold_suits_every_detector() -> None:
    few = ["--windows", "1", "--flows", "20000", "--super-hosts", "4", "-m", "4MiB"]
    chosen = [word for name in ("filter", "cube", "spreadsketch") for word in ("--detector", name)]
    for threshold in ("300", "2500"):
        rows = [json.loads(line) for line in run(*few, *chosen, "--threshold", threshold, "--json").splitlines()]
        assert len(rows) == 3
        assert all(row["fnr"] < 0.5 for row in rows)


def test_quick_is_two_small_windows() -> None:
    rows = [json.loads(line) for line in run("--quick", "--detector", "cube-planned", "--json").splitlines()]
    assert [row["true"] for row in rows] == [60, 60]
    assert all(row["ftr"] < 0.1 for row in rows)


def test_rows_go_to_a_file_and_means_to_the_terminal(tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    text = run(*SMALL, "--detector", "cube", "--detector", "cbaa", "-m", "16MiB", "-o", str(output))
    assert "means of 2 windows" in text
    assert "cbaa" in text
    with output.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["detector"] for row in rows] == ["cube", "cbaa"] * 2
    assert tuple(rows[0]) == COLUMNS


def test_the_same_seed_gives_the_same_scores(tmp_path: Path) -> None:
    def scores(*more: str) -> list[tuple[float, ...]]:
        lines = run(*SMALL, "--detector", "cube", "-m", "1MiB", "--json", *more).splitlines()
        return [(row["fnr"], row["fpr"], row["error"]) for row in map(json.loads, lines)]

    assert scores() == scores()
    assert scores() != scores("--seed", "2")


def test_figures_are_drawn_with_the_command_under_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("matplotlib.image")
    monkeypatch.setattr("sys.argv", ["superhosts", "compare", "--figures", "a folder"])
    folder = tmp_path / "figures"
    run(*SMALL, "--detector", "cube", "--detector", "spreadsketch", "-m", "1MiB", "--figures", str(folder))
    names = {"fnr", "fpr", "ftr", "restore", "memory"}
    assert {path.name for path in folder.iterdir()} == {name + kind for name in names for kind in (".png", ".svg")}
    for name in names:
        pixels = image.imread(folder / f"{name}.png")[:, :, :3]
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20, name  # not an empty sheet
        text = html.unescape((folder / f"{name}.svg").read_text())
        assert "superhosts compare --figures 'a folder'" in text
        for detector in ("cube", "spreadsketch"):
            assert f">{detector}</text>" in text, name


def test_a_capture_is_cut_into_windows(tmp_path: Path) -> None:
    path = tmp_path / "trace.pcap"
    write_capture(path, SyntheticSource(Traffic(flows=20_000, packets=40_000, super_hosts=4, windows=2)).blocks())
    lines = run(str(path), "--inner", "10.0.0.0/8", "--detector", "cube", "-m", "4MiB", "--json").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["window"] for row in rows] == ["2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"]
    assert [row["true"] for row in rows] == [4, 4]
    assert all(row["ftr"] < 1 for row in rows)


def test_figures_that_cannot_be_written_are_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for command in (["compare", "--figures"], ["calibrate", str(tmp_path / "none.pcap"), "--figure"]):
        place = tmp_path / "file" / "sub" / "plot.png"
        result = CliRunner().invoke(app, [*command, str(place)])
        assert result.exit_code != 0
        assert "figures cannot be written there" in str(result.exception)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    for arguments in (["--detector", "crystal-ball"], ["--json", "--csv"], ["--threshold", "0"]):
        result = CliRunner().invoke(app, ["compare", *arguments])
        assert result.exit_code != 0
    missing = CliRunner().invoke(app, ["compare", str(tmp_path / "none.pcap"), "--detector", "cube"])
    assert missing.exit_code == 3
