"""`superhosts watch`: a screen on a terminal, and windows one by one elsewhere."""

from __future__ import annotations

import os
import signal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from commands import Run
from netns import namespace
from superhosts.pipeline.builder import report_of
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.open import open_inputs
from superhosts.ui.live import LiveView
from terminals import COMMAND, OnTerminal
from traffic import MINUTES, NOON, talk, three_windows, write
from waiting import wait_for

OPTIONS = ("--window", "5m", "--threshold", "1000")


def test_without_a_terminal_it_is_a_scan(run: Run, tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.pcap", three_windows()))
    watched, scanned = run("watch", path, *OPTIONS, "--json"), run("scan", path, *OPTIONS, "--json")
    assert watched.status == 0
    assert watched.rows == scanned.rows
    assert len(watched.rows) == 5
    assert run("watch", path, *OPTIONS).out.count("10.0.0.7") == 3


def test_results_are_appended_and_saved(run: Run, tmp_path: Path) -> None:
    path, rows = str(write(tmp_path / "a.pcap", three_windows())), tmp_path / "rows.jsonl"
    for _ in range(2):
        assert run("watch", path, *OPTIONS, "--output", rows, "--save", tmp_path / "saved").status == 0
    assert len(rows.read_text().splitlines()) == 10
    assert len(list((tmp_path / "saved").rglob("*.cube"))) == 3


def test_old_sketches_are_removed_while_it_runs(run: Run, tmp_path: Path) -> None:
    path, saved = str(write(tmp_path / "a.pcap", three_windows())), tmp_path / "saved"
    assert run("watch", path, *OPTIONS, "--save", saved).status == 0
    old = saved / "20200101T000000Z-5m-local.cube"
    old.touch()
    os.utime(old, (1577836800, 1577836800))
    ended = run("watch", path, *OPTIONS, "--save", saved, "--keep", "1h")
    assert (ended.status, old.exists(), len(list(saved.glob("*.cube")))) == (0, False, 3)
    assert f"--save {saved}: 1 sketch of 20200101 removed: older than 0.0417 days" in ended.err
    assert "--keep: only with --save" in run("watch", path, "--keep", "1h").err


def test_asking_for_the_open_window_changes_nothing(tmp_path: Path) -> None:
    """Of every step, and with a memory that the pairs outgrow."""
    path = write(tmp_path / "a.pcap", three_windows())
    settings = Settings(window="5m", threshold=100, memory="256KiB", key="a key of this test")
    seen: list[dict[str, Any]] = []

    def ask(*_: int) -> None:
        result = run.peek()
        if result is not None:
            seen.append({str(row.host): row.peers for row in result})

    run = Scan(open_inputs([path]), settings, RunOptions(), on_progress=ask)
    asked = [(result.window, result.to_dict()) for result in run]
    plain = [(result.window, result.to_dict()) for result in Scan(open_inputs([path]), settings, RunOptions())]
    assert asked == plain
    assert any("10.0.0.7" in hosts for hosts in seen)


def test_the_screen(tmp_path: Path) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=40, markup=False, emoji=False)
    now = [0.0]
    view = LiveView(1.0, console=console, clock=lambda: now[0], wall=lambda: NOON + 290 * 10**9)

    def step(position: int, packets: int) -> None:
        now[0] += 2.0
        view.step(position, packets)

    path = write(tmp_path / "a.pcap", talk("10.0.0.7", 2500))
    run = Scan(
        open_inputs([path]),
        Settings(window="5m", threshold=100, key="a key of this test"),
        RunOptions(),
        on_progress=step,
    )
    with view.of(run):
        for _ in run:
            pass
    shown = out.getvalue()
    assert "2,500 packets" in shown
    assert "packets/s" in shown
    assert "memory" in shown
    assert "22:15:00Z to 2023-11-14T22:20:00Z: 1 host with at least 100 peers, 0:10 left" in shown
    assert "dropped" not in shown  # a file loses nothing


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_everything_fits_the_screen_and_findings_stay(tmp_path: Path, size: tuple[int, int]) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=size[0], height=size[1], markup=False, emoji=False)
    events = [
        {"host": f"10.0.0.{number}", "peers": 5000 - number, "rule": "many-peers", "since": "2023-11-14T22:15:00Z"}
        for number in range(5)
    ]
    view = LiveView(0.0, alerts=lambda: events, console=console, clock=iter(range(0, 10**6, 9)).__next__)
    seen: list[list[str]] = []

    def step(position: int, packets: int) -> None:
        view.step(position, packets)
        lines = [*view._lines(run, packets)]
        assert view._height(lines) < size[1]
        seen.append([text for text, _ in lines])

    starts = [NOON + number * 5 * MINUTES for number in range(5)]
    packets = [packet for start in starts for number in range(30) for packet in talk(f"10.0.1.{number}", 40, start)]
    path = write(tmp_path / "a.pcap", packets)
    run = Scan(
        open_inputs([path]),
        Settings(window="5m", threshold=35, key="a key of this test"),
        RunOptions(),
        on_progress=step,
    )
    with view.of(run):
        for result in run:
            with view.reporting(report_of(result)):
                pass
            step(0, 0)
    last = seen[-1]
    assert "5 alerts open" in last
    assert "  10.0.0.0   5,000 peers   many-peers   since 2023-11-14T22:15:00Z" in last
    assert "  … and 2 more" in last
    closed = [line for line in last if line.endswith("30 hosts with at least 35 peers")]
    assert len(closed) == (1 if size[1] == 24 else 3)
    stays = out.getvalue().rpartition("\x1b[2K")[2]  # after the screen was cleared
    assert stays.count("10.0.1.7 ") == 3  # the last three windows
    assert "5 alerts open" in stays


@pytest.mark.slow
def test_a_terminal_shows_the_open_window_and_ctrl_c_reports_it(tmp_path: Path) -> None:
    with namespace(tmp_path) as net:
        options = ("--threshold", "100", "--refresh", "1s", "--window", "1h", "--key-file", "public")
        with OnTerminal(*net.inside, *COMMAND, "watch", "live:near0", *options, lines=40, columns=120) as watch:
            maps = Path(f"/proc/{watch.process.pid}/maps")
            watch.until("packets/s")
            wait_for(lambda: "socket:" in maps.read_text(), lambda: watch.text)
            net.send(talk("10.0.0.7", 1500))
            watch.until("10.0.0.7", "1,500", "dropped 0", "ring 0 % full")
            assert "partial" not in watch.text
            watch.process.send_signal(signal.SIGINT)
            assert watch.ends() == 130
            watch.until("partial: interrupted", "the last window is partial")


def test_it_says_why_it_cannot_capture(run: Run) -> None:
    ended = run("watch", "live:no-such-interface")
    assert ended.status == 3
    assert ended.err.count("\n") == 1
