"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_archive_cli import save

from livescans import Clock
from superhosts.cli._progress import Progress, ScanProgress
from superhosts.output.console import say, use_log
from superhosts.output.streams import ERASE, Log, raw_stream
from superhosts.sources.synthetic.capture import write_capture
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks
from terminals import COMMAND, OnTerminal, run_on_terminal


class Sized:
    """A source that knows its size, or does not."""

    def __init__(self, size: int | None) -> None:
        self._size = size

    def size(self) -> int | None:
        return self._size


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal(clock: Clock) -> dict[str, Any]:
    return {"on_terminal": True, "width": 80, "clock": clock}


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the last line of the terminal was, one after the other."""
    return capsys.readouterr().err.split(ERASE)[1:]


# Bars


def test_the_bar_of_a_scan_shows_share_bytes_rate_and_time_left(clock, terminal, capsys) -> None:
    run: Any = SimpleNamespace(sources=[Sized(3_000_000), Sized(1_000_000)])
    with ScanProgress(**terminal).of(run) as progress:
        clock.now += 2
        progress.step(1_000_000, 5_000_000)
        progress.step(1_500_000, 5_000_000)  # too soon to be drawn again
        clock.now += 2
        progress.step(4_000_000, 20_000_000)
    assert shown(capsys) == [
        "[=====>                  ]   25 %  1.0 of 4.0 MB  2.5 M packets/s  0:00:06 left",
        "[=======================>]  100 %  4.0 of 4.0 MB  5.0 M packets/s  0:00:00 left",
        "",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 300])
def test_a_bar_fits_the_width(clock, terminal, width, capsys) -> None:
    run: Any = SimpleNamespace(sources=[Sized(4_000_000)])
    with ScanProgress(**{**terminal, "width": width}).of(run) as progress:
        clock.now += 2
        progress.step(1_000_000, 5_000_000)
        progress.busy("x" * 1000)
    assert all(len(line) < width for line in shown(capsys))


def test_a_pipe_has_no_end(clock: Clock, terminal: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run: Any = SimpleNamespace(sources=[Sized(3_000_000), Sized(None)])
    with ScanProgress(**terminal).of(run) as progress:
        clock.now += 70
        progress.step(1_000_000, 7_000)
    assert shown(capsys) == ["1.0 MB  7,000 packets  100 packets/s  0:01:10", ""]


def test_items_are_counted(clock: Clock, terminal: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    def slow() -> Iterator[str]:
        with Progress("sketches", **terminal) as progress:
            for item in progress.over("abc"):
                yield item
                clock.now += 1

    assert list(slow()) == ["a", "b", "c"]
    assert [line.partition("]")[2] for line in shown(capsys)] == [
        "    0 %  0 of 3 sketches",
        "   33 %  1 of 3 sketches  0:00:02 left",
        "   67 %  2 of 3 sketches  0:00:01 left",
        "",
    ]


def test_the_number_of_tasks_may_grow(clock, terminal, capsys) -> None:
    with Progress("tasks", **terminal) as progress:
        progress.update(1, 3)
        clock.now += 1
        progress.update(3, 5)
        progress.update(4, 5)  # too soon
        progress.update(5, 5)  # the end is shown at once
    assert [line.partition("%  ")[2] for line in shown(capsys)] == [
        "1 of 3 tasks",
        "3 of 5 tasks  0:00:01 left",
        "5 of 5 tasks  0:00:00 left",
        "",
    ]


def test_results_and_messages_do_not_mix_with_a_bar(clock, terminal, capsys) -> None:
    with Progress("tasks", 4, **terminal) as progress:
        with progress.paused():
            pass
        assert capsys.readouterr().err == ""  # nothing was shown
        progress.update(1)
        (bar,) = shown(capsys)
        with progress.paused():
            say("hello")
        assert capsys.readouterr().err == f"{ERASE}hello\n{ERASE}{bar}"
        say("hello again")
        assert capsys.readouterr().err == f"{ERASE}hello again\n{bar}"
    assert capsys.readouterr().err == ERASE
    say("the end")
    assert capsys.readouterr().err == "the end\n"


def test_a_log_in_the_background_keeps_the_bar_below_its_lines(clock, terminal, tmp_path) -> None:
    with (tmp_path / "log").open("w", newline="") as file:
        stream = raw_stream(file)  # as services write to standard error
        log = Log(stream)
        use_log(log)
        try:
            with Progress("tasks", 4, **terminal) as progress:
                progress.update(1)
                assert log.close()
                say("hello")
                assert log.close()
            assert log.close()
        finally:
            use_log(None)
    text = (tmp_path / "log").read_bytes().decode()
    assert re.fullmatch(rf"{re.escape(ERASE)}(.*1 of 4 tasks){re.escape(ERASE)}hello\n(\1){re.escape(ERASE)}", text)


# Where there is no terminal


def test_a_line_once_a_minute(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    run: Any = SimpleNamespace(sources=[Sized(4_000_000)])
    with ScanProgress(on_terminal=False, clock=clock).of(run) as progress:
        for _ in range(13):
            clock.now += 10
            progress.step(1_000_000, 6_000_000)
            progress.busy("nothing")
    assert capsys.readouterr().err.splitlines() == [
        "25 %, 1.0 of 4.0 MB, 100 k packets/s, 0:03:00 left",
        "25 %, 1.0 of 4.0 MB, 50 k packets/s, 0:06:00 left",
    ]


@pytest.mark.parametrize("on_terminal", [True, False])
def test_nothing_where_none_is_wanted(clock: Clock, on_terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("tasks", wanted=False, on_terminal=on_terminal, clock=clock) as progress:
        clock.now += 1000
        progress.update(1, 2)
        progress.busy("work")
        with progress.paused():
            pass
    assert capsys.readouterr() == ("", "")


# Commands


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("progress")
    write_capture(folder / "a.pcap", packet_blocks(Traffic(flows=2000, packets=4000, super_hosts=1)))
    for window in range(2):
        save(folder / "archive" / f"{window}.cube", "ams", window)
    return folder


@pytest.mark.slow
def test_an_edge_shows_a_bar_below_its_messages(files: Path, tmp_path: Path) -> None:
    """It waits for the hub when it has read everything, so it is stopped then.

    The log draws a bar that is still there when its thread comes to it, so reading has to take a moment.
    """
    large = tmp_path / "large.pcap"
    write_capture(large, packet_blocks(Traffic(flows=200_000, packets=1_000_000, super_hosts=1)))
    arguments = ["edge", large, "--site", "ams", "--to", tmp_path / "fleet", "--spool", tmp_path / "spool"]
    with OnTerminal(*COMMAND, *arguments, streams=("stderr",)) as terminal:
        terminal.until("the input has ended")
        terminal.process.terminate()
        terminal.ends()
        lines = terminal.text.split("\r\n")
    assert [line for line in lines if line.startswith(ERASE)]
    assert any(" % " in text for line in lines for text in line.split(ERASE))
    assert not [line for line in lines if line.endswith("packets/s")]  # no bar has a line of its own


COMMANDS: dict[str, tuple[list[str], str]] = {
    "scan": (["scan", "a.pcap"], "%"),
    "hosts": (["hosts", "archive", "-t", "100"], "0 of 2 sketches"),
    "merge": (["merge", "archive", "-o", "all.cube"], "0 of 2 sketches"),
    "explain": (["explain", "archive", "10.0.0.7"], "0 of 2 "),
    "calibrate": (["calibrate", "a.pcap", "-m", "256KiB"], "%"),
    "compare": (["compare", "--quick", "--flows", "20k", "--super-hosts", "2", "--detector", "cube"], "0 of 2 windows"),
    "synth": (["synth", "b.pcap", "--flows", "2k", "--packets", "4k", "--super-hosts", "1"], "0 of 4,000 packets"),
    "bench": (["bench", "--flows", "20k", "--packets", "40k", "--memory", "1MiB"], "0 of 8 measurements"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "text"), COMMANDS.values(), ids=COMMANDS.keys())
def test_commands_show_a_bar_on_a_terminal(files, monkeypatch, arguments, text) -> None:
    monkeypatch.chdir(files)
    seen = run_on_terminal(*arguments)[1]
    assert any(text in line for line in seen.split(ERASE)[1:])
