"""Commands whose standard output or standard error was closed by who started them (`>&-`, `2>&-`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from commands import Ended, command
from traffic import talk, write

CLOSED = "superhosts: standard output is closed"


def run(redirection: str, *arguments: object) -> Ended:
    """Run a command in a shell that closes streams."""
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command(*arguments)]
    ended = subprocess.run(shell, capture_output=True, text=True, timeout=600, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def scan(tmp_path: Path) -> list[object]:
    return ["scan", write(tmp_path / "a.pcap", talk("10.0.0.7", 50)), "-q", "--detector", "exact", "-t", 20]


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--json"], ["--csv"]])
def test_results_need_an_output_that_is_open(scan: list[object], tmp_path: Path, options: list[object]) -> None:
    ended = run(">&-", *scan, *options)
    assert ended == Ended(4, "", f"{CLOSED}; write results to a file with --output\n")
    assert run(">&-", *scan, *options, "--output", tmp_path / "a.jsonl") == Ended(0, "", "")
    assert json.loads((tmp_path / "a.jsonl").read_text())["host"] == "10.0.0.7"


@pytest.mark.slow
def test_other_commands_say_it_too(tmp_path: Path) -> None:
    assert run(">&-", "--version") == Ended(4, "", f"{CLOSED}\n")
    ended = run(">&-", "hub", "--state", tmp_path / "state", "--from", tmp_path)
    assert (ended.status, ended.err.startswith(CLOSED)) == (4, True)


@pytest.mark.slow
def test_all_goes_on_without_standard_error(scan: list[object], tmp_path: Path) -> None:
    ended = run("2>&-", *scan, "--json", "--save", tmp_path / "s")
    assert (ended.status, [row["host"] for row in ended.rows]) == (0, ["10.0.0.7"])
    scan.remove("-q")
    assert run("2>&-", *scan, "--json").rows == ended.rows
    assert run("2>&-", *scan, tmp_path / "none.pcap").status == 3
    saved = next((tmp_path / "s").iterdir())
    assert run(">&- 2>&- <&-", "merge", saved, "-o", tmp_path / "b.cube") == Ended(0, "", "")
    assert (tmp_path / "b.cube").stat().st_size > 100
