"""`--slide`: rows of windows that overlap, and the panes that are saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from commands import Run
from traffic import MINUTES, NOON, talk, write

COMMON = ["-q", "--json", "--inner", "10.0.0.0/8", "-t", 20, "--memory", "1MiB", "--device", "cpu"]
SLIDING = ["--window", "5m", "--slide", "1m"]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Return a capture of a host with 300 peers at 0:00, 200 others at 4:00, and 100 of both at 7:00."""
    frames = talk("10.0.0.7", 300) + talk("10.0.0.7", 200, NOON + 4 * MINUTES, base="172.17.0.0")
    return write(tmp_path / "a.pcap", frames + talk("10.0.0.7", 100, NOON + 7 * MINUTES))


def peers(text: str) -> list[tuple[str, int]]:
    found: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    return [(row["window_end"][11:16], row["peers"]) for row in found]


def test_rows_and_the_summary(run: Run, capture: Path) -> None:
    ended = run("scan", capture, *COMMON[1:], *SLIDING)
    assert peers(ended.out) == [("22:16", 300), ("22:20", 500), ("22:21", 200), ("22:23", 300)]
    skipped = "(4 others with the packets of the window before skipped)"
    assert f"4 windows of 5m, one every 1m {skipped}" in ended.err


def test_panes_are_saved_and_merge_into_any_window(run: Run, capture: Path, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    first = run("scan", capture, *COMMON, *SLIDING, "--save", folder)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"20231114T22{minute}00Z-1m-local.cube" for minute in (15, 19, 22)]
    found = sh.load(folder / names[0], key=None).super_hosts(20)
    assert abs(found[0].known_peers - 300) < 60
    united = run("hosts", folder, "--union", "-t", 20, "--json")
    assert abs(json.loads(united.out)["peers"] - 500) < 60
    again = run("scan", capture, *COMMON, *SLIDING, "--save", folder)  # merged into what is there; rows stay exact
    assert (again.status, again.out) == (0, first.out)
