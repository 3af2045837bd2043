"""An edge with `--output` also writes its own super hosts; a destination that fails never holds up the spool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import superhosts as sh
from commands import Run
from superhosts.core.pairs import Window
from superhosts.core.results import SuperHosts
from superhosts.errors import OutputError
from superhosts.fleet.edge import Edge, LocalRows, Position
from superhosts.fleet.spool import Spool
from superhosts.output.destination import Destination, Destinations, RunKind
from superhosts.output.registry import open_destination
from superhosts.output.report import Report
from superhosts.pipeline.builder import WindowResult
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch
from superhosts.sources.open import open_inputs
from traffic import three_windows, write


def test_an_edge_writes_its_own_rows_and_spools_its_sketches(run: Run, tmp_path: Path) -> None:
    capture = write(tmp_path / "three.pcap", three_windows())
    settings = Settings(memory="1MiB", inner=["10.0.0.0/8"], device="cpu", threads=1, site="ams", threshold=1000)
    scan = Scan(open_inputs([capture]), settings, RunOptions())
    position, spool = (
        Position(tmp_path, ["three"], settings.fingerprint, print),
        Spool(tmp_path, "ams", cap=1 << 30, say=print),
    )
    destination = open_destination(str(tmp_path / "rows.jsonl"), RunKind(endless=True))
    with Destinations([destination]) as destinations:
        Edge(scan, spool, position, print, rows=LocalRows(destinations, print)).run()
    written = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    scanned = run("scan", capture, "--memory", "1MiB", "--inner", "10.0.0.0/8", "--device", "cpu", "--json", "-t", "1k")
    assert written == scanned.rows != []
    assert spool.counters.spooled == 3


@pytest.mark.parametrize("with_rows", [True, False])
def test_of_windows_that_overlap_panes_are_spooled(tmp_path: Path, run: Run, with_rows: bool) -> None:
    """Every packet is in one sketch; the rows are those of the windows."""
    capture = write(tmp_path / "three.pcap", three_windows())
    common = {"memory": "1MiB", "inner": ["10.0.0.0/8"], "device": "cpu", "threads": 1, "threshold": 1000}
    settings = Settings(window="5m", slide="1m", site="ams", **common)  # type: ignore[arg-type]
    scan = Scan(open_inputs([capture]), settings, RunOptions(find=with_rows))
    position = Position(tmp_path, ["three"], settings.fingerprint, print)
    spool = Spool(tmp_path, "ams", cap=1 << 30, say=print)
    destination = open_destination(str(tmp_path / "rows.jsonl"), RunKind(endless=True))
    with Destinations([destination]) as destinations:
        Edge(scan, spool, position, print, rows=LocalRows(destinations, print) if with_rows else None).run()
    plain = {each.window: each.sketch.entries for each in Scan(open_inputs([capture]), settings.of_panes)}
    spooled = [sh.load(tmp_path / name) for name in spool.waiting()]
    assert {each.window: each.entries for each in spooled} == plain
    assert position.frontier == max(window.end for window in plain)
    if with_rows:
        written = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
        options = ["--memory", "1MiB", "--inner", "10.0.0.0/8", "--device", "cpu", "--json", "-t", "1k"]
        assert written == run("scan", capture, *options, "--window", "5m", "--slide", "1m").rows != []


class Flaky(Destination):
    """Fails as long as it is told to."""

    def __init__(self) -> None:
        super().__init__("flaky")
        self.broken = True
        self.windows: list[Window | None] = []

    def _write(self, report: Report) -> None:
        if self.broken:
            raise OutputError("flaky: no space left")
        self.windows.append(report.window)


def results(count: int) -> list[WindowResult]:
    return [WindowResult(Window(start, start + 1), SuperHosts.none(), Sketch(), 0) for start in range(count)]


def test_reports_that_failed_are_written_in_order_with_a_later_window() -> None:
    destination, said = Flaky(), []
    rows = LocalRows(Destinations([destination]), said.append)
    first, second, third = results(3)
    rows.add(first)
    rows.add(second)
    assert rows.status() == {"waiting": 2, "lost": 0, "reopened": 0}
    assert len(said) == 1
    assert "ROWS NOT WRITTEN: flaky: no space left" in said[0]
    destination.broken = False
    rows.add(third)
    assert destination.windows == [first.window, second.window, third.window]
    assert said[1:] == ["rows are written again"]


def test_the_oldest_reports_are_lost_when_too_many_wait() -> None:
    destination, said = Flaky(), []
    rows = LocalRows(Destinations([destination]), said.append, max_waiting=2)
    made = results(4)
    for result in made[:3]:
        rows.add(result)
    assert rows.status() == {"waiting": 2, "lost": 1, "reopened": 0}
    destination.broken = False
    rows.add(made[3])
    assert destination.windows == [result.window for result in made[1:]]
    assert said[-1] == "rows are written again; reports lost: 1"


def test_reports_that_wait_at_the_end_are_an_error() -> None:
    rows, errors = LocalRows(Destinations([Flaky()]), print), []
    for result in results(2):
        rows.add(result)
    rows.finish(errors.append)
    assert [str(error) for error in errors] == ["reports that --output never got: 2"]
    assert errors[0].exit_status == 4
    assert rows.status() == {"waiting": 0, "lost": 2, "reopened": 0}


def test_a_reopened_window_keeps_its_first_rows() -> None:
    destination, said = Flaky(), []
    destination.broken = False
    rows = LocalRows(Destinations([destination]), said.append)
    (first,) = results(1)
    for _ in range(3):
        rows.add(first)
    assert destination.windows == [first.window]
    assert rows.status()["reopened"] == 2
    assert len(said) == 1
