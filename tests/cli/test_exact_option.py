"""`--exact`: which numbers are counted and which are estimated, and what stays the same either way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from commands import Run, parsed_commands, process
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import UsageError
from superhosts.pipeline.settings import Settings
from traffic import content, talk, write

COMMON = ["--memory", "1MiB", "--inner", "10.0.0.0/8", "--device", "cpu", "--detector", "cube"]
TRUTH = {"10.0.0.7": 3000, "10.0.0.9": 1200, "10.0.0.1": 20}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frames = [frame for host, peers in TRUTH.items() for frame in talk(host, peers)]
    return write(tmp_path_factory.mktemp("captures") / "a.pcap", frames)


def peers_of(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["host"]: row["peers"] for row in rows}


def test_a_scan_counts_exactly_by_default_whatever_the_threshold(run: Run, capture: Path) -> None:
    """No threshold is too low. (A warning would be an error here.)"""
    ended = run("scan", capture, *COMMON, "--json", "--threshold", 2)
    assert peers_of(ended.rows) == TRUTH
    assert all(row["exact"] and row["peers_low"] == row["peers"] == row["peers_high"] for row in ended.rows)
    assert ended.rows == run("scan", capture, *COMMON, "--json", "--threshold", 2, "--exact", "on").rows
    assert "host      peers (exact)" in run("scan", capture, *COMMON).out


def test_without_it_the_cube_estimates(run: Run, capture: Path) -> None:
    ended = process("scan", capture, *COMMON, "--json", "--threshold", 2, "--exact", "off")
    assert peers_of(ended.rows).keys() <= TRUTH.keys()
    assert all(not row["exact"] and row["peers_low"] < row["peers_high"] for row in ended.rows)
    assert "threshold 2 is low for this cube" in ended.err
    assert "95 % interval" in run("scan", capture, *COMMON, "--exact", "off").out


def test_a_window_that_outgrows_half_of_the_memory_is_estimated(run: Run, tmp_path: Path) -> None:
    many = write(tmp_path / "many.pcap", [*talk("10.0.0.7", 60_000), *talk("10.0.0.9", 2000)])
    rows = run("scan", many, *COMMON, "--json").rows
    assert rows
    assert not any(row["exact"] for row in rows)
    assert rows == run("scan", many, *COMMON, "--json", "--exact", "off").rows


def test_files_hold_the_same_bits_and_that_of_an_exact_window_answers_exactly(
    run: Run, capture: Path, tmp_path: Path
) -> None:
    answers = []
    for exact in ("on", "off"):
        folder = tmp_path / exact
        printed = run("scan", capture, *COMMON, "--json", "-t", 1024, "--exact", exact, "--save", folder).rows
        (path,) = folder.iterdir()
        asked = run("hosts", path, "--json").rows
        assert [row["exact"] for row in printed] == [exact == "on"] * 2
        assert [row["peers"] for row in asked] == [row["peers"] for row in printed]
        assert [row["exact"] for row in asked] == [exact == "on"] * 2
        (explained,) = run("explain", path, "10.0.0.7", "--json").rows
        assert explained["exact"] is (exact == "on")
        answers.append((content(sh.load(path)), explained["columns"]))
    assert answers[0] == answers[1]
    assert answers[0][1]


def test_it_is_no_part_of_the_fingerprint() -> None:
    assert Settings(exact=True).fingerprint == Settings(exact=False).fingerprint == Settings().fingerprint


def test_in_python(capture: Path) -> None:
    options: dict[str, Any] = {"memory": "1MiB", "inner": "10.0.0.0/8", "device": "cpu", "threshold": 1024}
    for exact, counted in ((True, True), (False, False), ("on", True), ("off", False)):
        (window,) = sh.scan(capture, exact=exact, **options)
        assert [item.exact for item in window] == [counted] * 2
        assert sh.Cube("1MiB", exact=exact, device="cpu").exact == counted


@pytest.mark.parametrize(("exact", "text"), [("on", "2 of 2 numbers as in the truth"), ("off", "the truth in ")])
def test_the_demo_shows_both(run: Run, tmp_path: Path, exact: str, text: str) -> None:
    ended = run("demo", tmp_path, "--flows", "5k", "--packets", "10k", "--super-hosts", 2, "--exact", exact)
    assert "2 of 2 super hosts found, 0 false" in ended.out
    assert text in ended.out
    assert {".pcap", ".jsonl"} <= {path.suffix for path in tmp_path.iterdir()}
    assert f"--exact {exact}" in ended.err


def test_calibrate_says_which_memories_count_exactly(run: Run, capture: Path) -> None:
    options = ["--inner", "10.0.0.0/8", "--memory", "256KiB", "--json", "--device", "cpu"]
    judged = json.loads(run("calibrate", capture, *options).out)["trials"]
    assert [trial["exact"] for trial in judged] == [False, True, True, True]  # 64 KiB have room for 3,072 pairs.
    facts = ("ftr", "error", "expected_ftr", "fill")
    assert [[trial[name] for name in facts] for trial in judged[1:]] == [[0.0, 0.0, None, None]] * 3
    assert "exact" in run("calibrate", capture, *options[:4]).out
    judged = json.loads(run("calibrate", capture, *options, "--exact", "off").out)["trials"]
    assert not any(trial["exact"] for trial in judged)
    assert all(trial["fill"] > 0 for trial in judged)


def test_other_detectors_refuse_it(run: Run, capture: Path) -> None:
    for name in DETECTORS:
        ended = run("scan", capture, "--detector", name, "--exact", "on", "-q")
        assert (ended.status == 0) == (name == "cube")
        if name != "cube":
            assert (ended.status, ended.err.count("\n")) == (2, 1)
            assert f"--exact: only with --detector cube, not with {name}" in ended.err
    with pytest.raises(UsageError, match=r'^exact: only with detector="cube", not with cbaa'):
        Settings(detector="cbaa", exact=False)


def test_commands_that_have_it() -> None:
    having = {name for name, each in parsed_commands().items() if any("--exact" in p.opts for p in each.params)}
    assert having == {"scan", "watch", "top", "edge", "batch", "calibrate", "demo", "rows"}
