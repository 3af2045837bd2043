"""Progress on standard error: lines every few seconds, and the bars of scan and batch."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from superhosts.cli._progress import ScanProgress, TaskProgress, packet_progress, with_progress

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Sized:
    """A source that knows its size, or does not."""

    def __init__(self, size: int | None) -> None:
        self._size = size

    def size(self) -> int | None:
        return self._size


def shown(console: Console) -> str:
    """Everything that was shown on a console since the last call, as plain text."""
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    console.file.seek(0)
    console.file.truncate()
    return ESCAPES.sub("", text)


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 2.5, 3.0, 5.0])
    assert list(with_progress("abcd", clock=lambda: next(times), show=True)) == list("abcd")
    assert capsys.readouterr().err.splitlines() == ["1 of 4 sketches …", "3 of 4 sketches …"]


def test_packets_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 2.5, 3.0, 5.0])
    progress = packet_progress(clock=lambda: next(times), show=True)
    for packets in (1000, 2000, 3000, 4000):
        progress(0, packets)
    assert capsys.readouterr().err.splitlines() == ["2,000 packets …", "4,000 packets …"]


def test_nothing_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter(range(0, 100, 10))
    list(with_progress("abcd", clock=lambda: next(times)))
    packet_progress(clock=lambda: next(times))(0, 1000)
    assert capsys.readouterr().err == ""


# Bars


def test_the_bar_of_a_scan_shows_bytes_and_rate(console: Console) -> None:
    now = 100.0
    progress = ScanProgress(show=True, console=console, clock=lambda: now)
    sources: Any = [Sized(3_000_000), Sized(1_000_000)]
    with progress.over(sources):
        now += 2
        progress.update(1_000_000, 5_000_000)
        progress.pause()  # which draws the bar a last time, and clears it
        text = shown(console)
        assert "1.0/4.0 MB" in text
        assert "2.5 M packets/s" in text
        progress.resume()
        progress.update(4_000_000, 20_000_000)
    assert "4.0/4.0 MB" in shown(console)


def test_the_bar_of_a_pipe_has_no_end(console: Console) -> None:
    sources: Any = [Sized(3_000_000), Sized(None)]
    progress = ScanProgress(show=True, console=console, clock=lambda: 0.0)
    with progress.over(sources):
        progress.update(1_000_000, 1)
    assert "1.0/? MB" in shown(console)


def test_the_bar_of_tasks_counts_those_known_so_far(console: Console) -> None:
    progress = TaskProgress(show=True, console=console)
    with progress.paused():  # before the bar is shown: nothing to clear
        pass
    assert shown(console) == ""
    with progress:
        progress.update(1, 3)
        with progress.paused():
            assert "1/3 tasks" in shown(console)
        progress.update(3, 5)
    assert "3/5 tasks" in shown(console)


def test_no_bar_where_none_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    scan, tasks = ScanProgress(show=False), TaskProgress(show=False)
    with scan.over([]), tasks, tasks.paused():
        scan.update(1, 1)
        scan.pause()
        scan.resume()
        tasks.update(1, 1)
    assert capsys.readouterr() == ("", "")
