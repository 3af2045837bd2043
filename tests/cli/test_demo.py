"""`superhosts demo --fleet`: a hub and three edges, whose union is that of one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Run
from superhosts.cli.demo import choose_link
from superhosts.errors import MissingExtraError


@pytest.mark.slow
def test_the_fleet_of_the_demo_is_exact(run: Run, tmp_path: Path) -> None:
    ended = run("demo", tmp_path, "--fleet", "--flows", "5k", "--packets", "10k", "--super-hosts", 2)
    assert ended.status == 0, ended.err
    assert "3 windows: every bit and label of the hub's unions equals that of one process over all packets" in ended.out
    assert "super hosts of the whole network" in ended.out
    rows = [json.loads(line) for line in (tmp_path / "fleet" / "found.jsonl").read_text().splitlines()]
    assert len({row["window_start"] for row in rows}) == 3
    assert {site["site"] for row in rows for site in row["sites"]} <= {"ams", "fra", "nyc"}
    assert len(list((tmp_path / "fleet" / "archive").glob("*/*.cube"))) == 3


def test_without_a_broker_the_fleet_of_the_demo_uses_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def find() -> None:
        raise MissingExtraError("the embedded broker", "fleet")

    hub, edges = choose_link(tmp_path, find)
    assert (hub, edges) == (["--from", str(tmp_path / "link")], ["--to", str(tmp_path / "link")])
    assert "superhosts[fleet]" in capsys.readouterr().err
