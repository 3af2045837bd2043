"""A sensor's run that is stopped, and one that goes on where another ended."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import packets as p
from livescans import (
    EXACT,
    LENGTH,
    QUICK,
    SMALL,
    SOON,
    Clock,
    Live,
    Pipes,
    Start,
    folder,
    some,
)
from superhosts.core.pairs import Window
from superhosts.errors import UsageError
from superhosts.jit.compilation import compiling, is_compiling
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources import readers
from superhosts.sources.base import Pace, Source, SourceCounters
from superhosts.sources.capture import CAPTURES, open_capture
from superhosts.sources.input import FileSource, Input
from superhosts.sources.open import open_inputs
from traffic import NOON, everything, three_windows, write

# Going on where another run ended


@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("split", [1, 4])
def test_a_run_that_is_resumed_gives_the_rest(tmp_path: Path, after: int, split: int) -> None:
    frames = three_windows()
    paths = [write(tmp_path / f"{i}.pcap", frames[i::split]) for i in range(split)]

    def run(resume_from: int | None = None) -> Scan:
        way = RunOptions(resume_from=resume_from)
        return Scan([open_capture(q, block_bytes=4096) for q in paths], Settings(**SMALL), way)

    wanted = everything(run())
    frontier = NOON if after == 0 else wanted[after - 1][0].end
    resumed = run(frontier)
    assert everything(resumed) == wanted[after:]
    done = sum(window[1] for window in wanted[:after])
    counters = resumed.counters
    assert (counters.repeated, counters.late, counters.stray, counters.packets) == (done, 0, 0, len(frames))


@pytest.mark.slow
def test_a_folder_that_is_stopped_and_followed_again(tmp_path: Path) -> None:
    """Stopped again and again, at any place, while a capture program writes: together the bits of one run."""
    frames, captures = three_windows(), tmp_path / "captures"
    wanted = everything(Scan([open_capture(write(tmp_path / "whole.pcap", frames))], Settings(**SMALL)))
    captures.mkdir()
    rng, clock = random.Random(6), Clock()
    edges = sorted(rng.sample(range(1, len(frames)), 9))
    written, frontier = 0, None
    got: list[Any] = []
    done: set[str] = set()

    def read_some(run: Live) -> None:
        """Wait until it has read anything from the first packets to all that are there."""
        enough = rng.randrange(len(frames))
        run.until(lambda: run.scan.counters.packets >= enough or run.scan.sources[0].waits())

    for number, edge in enumerate([*edges, len(frames)]):
        run = Live([folder(captures, done=frozenset(done))], SMALL, clock=clock, resume_from=frontier, grace=1e9)
        with (captures / f"dump{number // 2}").open("ab") as file:  # each file over two runs
            data = p.pcap(frames[written:edge]) if number % 2 == 0 else p.pcap(frames[written:edge])[24:]
            file.write(data[: len(data) // 2])
            file.flush()
            read_some(run)
            file.write(data[len(data) // 2 :])
        written = edge
        read_some(run)
        if number == 7:  # however slow this machine is, by now two windows are done, and so are three files
            run.until(lambda: len(got) + len(run.results) >= 2)  # noqa: B023
        run.stop()
        assert not any(result.partial for result in run.results)
        assert run.scan.counters.late == 0
        got += everything(run.results)
        frontier = got[-1][0].end if got else None
        spans = run.scan.sources[0].finished()
        done |= {name for name, (_, last) in spans.items() if frontier is not None and last < frontier}
    last = Live([folder(captures, done=frozenset(done))], SMALL, clock=clock, resume_from=frontier)
    last.rest()
    assert last.scan.open_window() is not None
    clock.now += 1000
    last.until(lambda: len(got) + len([r for r in last.results if r.packets]) >= 3)
    last.stop()
    got += everything(result for result in last.results if result.packets)
    assert got == wanted
    assert 0 < last.scan.counters.packets < len(frames) - last.scan.counters.repeated  # some files were left out


def test_after_a_restart_empty_windows_go_on(tmp_path: Path, live: Start) -> None:
    clock = Clock()
    write(tmp_path / "a", some(5, seconds=100))
    run = live(folder(tmp_path), clock=clock, resume_from=NOON + 2 * LENGTH)
    run.read(5)
    assert run.scan.counters.repeated == 5
    clock.now += 900
    run.gives((2, 0))


# The stop


def test_a_stop_yields_what_a_pipe_has_given(pipe: Pipes, live: Start) -> None:
    end = pipe()
    run = live(open_capture(end.path))
    end.send(some(1500) + some(1200, window=1) + some(40, window=2))
    run.read(2740)
    run.stop()
    assert run.seen == [(0, 1500), (1, 1200), (2, 40)]
    assert [result.partial for result in run.results] == [False, True, True]


class Flood(FileSource):
    """A pipe that never waits: a flood that this machine holds up is one all the same."""

    def waits(self) -> bool:
        return False


def test_a_stop_in_the_middle_of_a_flood_ends(pipe: Pipes, live: Start) -> None:
    end = pipe()
    pace = replace(QUICK, drain=SOON)  # the end of the reader is waited for, however slow this machine is
    run = live(Flood(Input(end.path), lambda _: CAPTURES), pace=pace)
    stopped, frames = threading.Event(), some(400)

    def flood() -> None:
        with contextlib.suppress(OSError, AssertionError):  # a pipe that nobody reads takes nothing, or a part
            while not stopped.is_set():
                end.send(frames)

    writer = threading.Thread(target=flood, daemon=True)
    writer.start()
    run.until(lambda: run.scan.counters.packets > 5000)
    run.stop()
    packets = run.scan.counters.packets
    stopped.set()
    end.deafen()
    writer.join(SOON)
    assert [result.partial for result in run.results] == [True]
    assert run.results[0].packets == packets  # whatever was taken from the pipe is in


def test_a_stop_leaves_what_can_be_read_again(tmp_path: Path, live: Start) -> None:
    path = write(tmp_path / "a.pcap", some(1500) + some(1500, window=1))
    run = live(folder(tmp_path))
    run.until(lambda: len(run.results) == 1)
    run.stop()
    assert run.seen == [(0, 1500)]
    assert run.scan.open_window() == Window(NOON + LENGTH, NOON + 2 * LENGTH)
    again = Scan([open_capture(path, block_bytes=4096)], Settings(**EXACT))
    for result in again:
        assert not result.partial
        again.stop()
        last = result
    assert last.packets == 1500
    assert last.window.start == NOON


def test_a_stop_takes_what_a_capture_program_writes_as_it_ends(pipe: Pipes) -> None:
    """Ctrl-C goes to tcpdump, too, which then writes what it has in its buffer."""
    pace = replace(QUICK, drain=SOON, linger=SOON)
    for grace in (None, 30.0):
        for before in (0, 7):  # packets that have come when it is stopped; without any it waits for the first
            end = pipe()
            run = Live([open_capture(Input(end.path, pace))], grace=grace, pace=pace)
            end.send(some(before))
            run.read(before)
            run.until(run.scan.sources[0].waits)
            run.scan.stop()
            for part in (1, 2):
                end.send(some(10, seconds=part))
                run.until(lambda: run.scan.counters.packets == before + 10 * part)  # noqa: B023
            end.close()
            run.ends()
            assert [(result.packets, result.partial) for result in run.results] == [(before + 20, True)]


def test_a_stop_of_files_may_report_the_open_window(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", some(1500) + some(1500, window=1) + some(20, window=2))
    run = Scan([open_capture(path, block_bytes=4096)], Settings(**EXACT), RunOptions(leaves_open=False))
    seen = []
    for result in run:
        run.stop()
        seen.append((result.window.start, result.partial))
    assert seen[:2] == [(NOON, False), (NOON + LENGTH, True)]


def test_a_stop_says_how_many_packets_were_read_in_vain(tmp_path: Path) -> None:
    frames = three_windows()
    path = write(tmp_path / "a.pcap", frames)
    run = Scan([open_capture(path, block_bytes=2048)], Settings(**SMALL), RunOptions(leaves_open=False))
    windows = iter(run)
    reported = [next(windows)]
    assert run.counters.unused == 0
    run.stop()
    reported += list(windows)
    counters = run.counters
    assert sum(result.packets for result in reported) + counters.unused == counters.ipv4 + counters.ipv6
    assert sum(result.packets for result in reported) < len(frames)


def test_a_scan_of_a_pipe_that_nobody_opens_can_be_stopped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    run = Live([open_capture(tmp_path / "fifo")], grace=None)
    run.until(lambda: run.scan.sources[0].waits())
    run.stop()
    assert run.results == []


def test_the_waits_of_a_stop_are_less_than_a_second() -> None:
    """A slow machine makes a stop as slow as it likes: what counts is how long it waits of its own will."""
    assert 2 * Pace().wake + Pace().linger < 1.0  # of the reader and of the thread that takes its blocks


def test_a_signal_handler_may_stop(pipe: Pipes) -> None:
    end = pipe()
    end.send(some(3))
    read: list[int] = []

    def on_progress(*_: int) -> None:
        if scan.pending() == 3 and not read:  # the signal comes while the scan waits for more
            read.append(3)
            signal.setitimer(signal.ITIMER_REAL, 0.1)

    scan = Scan([open_capture(end.path)], Settings(**EXACT), RunOptions(grace=30.0), on_progress=on_progress)
    before = signal.signal(signal.SIGALRM, lambda *_: scan.stop())
    try:
        results = list(scan)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [(result.packets, result.partial) for result in results] == [(3, True)]


@pytest.mark.slow
def test_a_process_that_reads_standard_input_ends_without_a_crash() -> None:
    program = (
        "import threading; from superhosts.pipeline.scan import *; from superhosts.sources.open import open_inputs\n"
        "def seen(*_):\n"
        "    if run.pending() == 3 and run.sources[0].waits(): threading.Timer(0, run.stop).start()\n"
        "settings, way = Settings(detector='exact', threshold=1), RunOptions(grace=30.0)\n"
        "run = Scan(open_inputs(['-']), settings, way, on_progress=seen)\n"
        "print([(r.packets, r.partial) for r in run])\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, stderr=-1)
    assert child.stdin is not None
    child.stdin.write(p.pcap(some(3)))
    child.stdin.flush()
    assert child.wait(SOON) == 0  # stdin stays open all the while
    out, err = child.communicate()
    assert (out.decode().strip(), err) == ("[(3, True)]", b"")


def test_at_each_window_the_next_one_is_open_already(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", three_windows())
    scan = Scan([open_capture(path, block_bytes=4096)], Settings(**SMALL), RunOptions(find=False))
    nexts = [(result.window.end, scan.open_window(), result.found) for result in scan]
    assert [(window and window.start) for _, window, _ in nexts] == [nexts[0][0], nexts[1][0], None]
    assert all(len(found) == 0 for _, _, found in nexts)


def test_one_window_over_everything_cannot_close_by_a_clock(tmp_path: Path) -> None:
    for options in ({"grace": 3.0}, {"resume_from": NOON}):
        with pytest.raises(UsageError, match='window="all"'):
            Scan(open_inputs([tmp_path], follow=True), Settings(window="all"), RunOptions(**options))


class Compiles(Source):
    """A pipe whose reader compiles its loops before it reads anything."""

    name, live, replays = "pipe", True, False

    def __init__(self, path: Path) -> None:
        self.counters = SourceCounters()
        self.began, self.done = threading.Event(), threading.Event()
        self._path = path

    def blocks(self) -> Any:
        with compiling("a loop"):
            self.began.set()
            self.done.wait()
        yield from open_capture(self._path).blocks()


def test_a_stop_waits_for_a_reader_that_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours pass while it compiles, and no time afterwards."""
    source, hours = Compiles(write(tmp_path / "a.pcap", three_windows())), [0]

    def sleep(seconds: float) -> None:
        if is_compiling():
            hours[0] += 1
            if hours[0] == 3:
                source.done.set()
        time.sleep(seconds)

    monkeypatch.setattr(readers, "time", SimpleNamespace(monotonic=lambda: hours[0] * 3600.0, sleep=sleep))
    reader = readers.Ahead(source, 0, stopped=lambda: True, clock=time.monotonic)
    source.began.wait()
    blocks = list(readers.drain([reader], lambda call: call(), seconds=5.0))
    source.done.set()
    assert sum(len(batch) for block in blocks for batch in block) == len(three_windows())
