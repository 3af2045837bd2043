"""A sensor's run: live inputs, windows that close by a clock, stops, and going on where another run ended."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import packets as p
import superhosts as sh
from livescans import (
    EXACT,
    LENGTH,
    NO_CLOCK,
    QUICK,
    SMALL,
    SOON,
    YEARS,
    Clock,
    Live,
    Pipes,
    Start,
    batch_at,
    folder,
    some,
)
from superhosts.core.pairs import PacketBlock, Window
from superhosts.errors import InputError, SuperhostsError, UsageError
from superhosts.jit.compilation import compiling, is_compiling
from superhosts.pipeline.scan import GRACE, RunOptions, Scan, scan_options
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.windows import Limits
from superhosts.sources import readers
from superhosts.sources.base import Pace, Source, SourceCounters
from superhosts.sources.capture import CAPTURES, open_capture
from superhosts.sources.input import FileSource, Input
from superhosts.sources.open import open_inputs
from superhosts.sources.readers import EventClock, Following
from traffic import MINUTES, NOON, everything, packet, talk, three_windows, write

# The clock


@pytest.mark.parametrize("now", [0.0, NOON / 1e9 - 3600, 4e9])
def test_a_window_closes_by_the_clock_when_traffic_stops(pipe: Pipes, live: Start, now: float) -> None:
    """Whatever this machine's clock says: only differences matter."""
    clock, end = Clock(now), pipe()
    run = live(open_capture(end.path), clock=clock)
    end.send(some(5, seconds=100))
    run.read(5)
    clock.now = now + 229.9  # 29.9 seconds beyond the end
    run.gives()
    clock.now = now + 230.1
    run.gives((0, 5))
    assert run.results[0].window == Window(NOON, NOON + LENGTH)
    assert [(str(found.host), found.peers) for found in run.results[0]] == [("10.0.0.1", 5)]
    end.send(some(2, seconds=299))
    end.send(some(1, window=1, seconds=50))
    run.read(8)
    assert run.scan.counters.late == 2


@pytest.mark.slow
def test_a_window_closes_by_the_clock_in_slow_traffic_that_never_rests(pipe: Pipes, live: Start) -> None:
    clock, end = Clock(), pipe()
    pace = QUICK._replace(caught_up=0.3, held_up=SOON)  # however long this machine lets a thread wait
    run = live(open_capture(end.path), clock=clock, pace=pace)
    for number, second in enumerate(range(0, 1400, 50)):  # more often than everything must have been read for
        clock.now = 1000.0 + second
        end.send(some(1, seconds=second))
        run.read(number + 1)
        run.rest()
    assert run.seen[:3] == [(0, 6), (1, 6), (2, 6)]  # 1,000 packets would settle none of them
    assert run.scan.counters.late == 0


def test_packets_read_long_after_they_were_sent_do_not_hold_the_clock_back(tmp_path, live, pipe) -> None:
    """A backlog of slow traffic over three hours comes at once: the clock is near its end, not in its middle."""
    clock, end = Clock(), pipe()
    run = live(open_capture(end.path), clock=clock)
    end.send(talk("10.0.0.1", 900, NOON, step=12 * p.SECOND))
    run.read(900)
    for number in range(100):  # then live, at the same rate
        clock.now += 12
        end.send([packet(NOON + (900 + number) * 12 * p.SECOND, "10.0.0.1", f"172.17.0.{number}")])
        run.read(901 + number)
    clock.now += 12
    run.until(lambda: len(run.seen) >= 38)  # 1,000 packets are 40 windows of 25: all but the last, whose grace runs
    assert run.seen[38:] in ([], [(38, 25)])


def test_the_clock_forgets_packets_of_before_it_was_set_back() -> None:
    clock = Clock()
    event = EventClock(clock)

    def note(time: int) -> None:
        event.note(clock.now, (batch_at(time),))

    assert event.now() is None
    for minute in range(100):
        clock.now = 60.0 * minute
        note(NOON + minute * MINUTES)
    assert event.now() == pytest.approx(NOON + 99 * MINUTES, abs=1000)
    for minute in range(100, 175):  # an hour back
        clock.now = 60.0 * minute
        note(NOON + (minute - 60) * MINUTES)
    assert event.now() == pytest.approx(NOON + 114 * MINUTES, abs=1000)


def test_times_ahead_of_all_clocks_do_not_set_the_clock() -> None:
    """More than a tenth of the last packets, which else would run it ahead."""
    clock = Clock(0.0)
    event = EventClock(clock)
    for second in range(100):
        clock.now = float(second)
        event.note(clock.now, (batch_at(NOON + second * p.SECOND + (YEARS if second % 3 == 0 else 0)),))
    assert event.now(NOON + 400 * p.SECOND) == pytest.approx(NOON + 99 * p.SECOND, abs=1000)
    assert event.now() == pytest.approx(NOON + YEARS + 99 * p.SECOND, abs=1000)
    event.forget()
    for second in range(100, 108):
        clock.now = float(second)
        event.note(clock.now, (batch_at(NOON + YEARS + second * p.SECOND),))
    event.forget()
    assert event.now(NOON) == pytest.approx(NOON + YEARS + 107 * p.SECOND, abs=1000)  # there are no others


def test_a_pipe_whose_clock_is_ahead_for_some_windows_loses_nothing(pipe: Pipes, live: Start) -> None:
    end, clock, jumps = pipe(), Clock(), []
    run = live(open_capture(end.path), clock=clock, grace=1e9, wall=lambda: NOON)
    run.scan.on_jump = jumps.append
    for window, ahead in ((0, 0), (1, 0), (2, 12), (3, 12), (4, 0), (5, 0)):
        end.send(some(1500, window=window + ahead))
        run.read(end.sent)
    end.close()
    run.ends()
    assert [seen for seen in run.seen if seen[1]] == [(w, 1500) for w in (0, 1, 14, 15, 4, 5)]
    assert [(jump.by // LENGTH, jump.window.start) for jump in jumps] == [
        (13, NOON + 14 * LENGTH),
        (-11, NOON + 4 * LENGTH),
    ]
    assert (run.scan.counters.late, run.scan.counters.stray) == (0, 0)


def test_the_clock_follows_slow_traffic_that_has_jumped_back(pipe: Pipes, live: Start) -> None:
    """The event clock is set, too: the window that was opened again closes when its own end has passed."""
    end, clock = pipe(), Clock()
    run = live(open_capture(end.path), clock=clock, wall=lambda: NOON + YEARS)
    for number in range(20):
        clock.now += 10
        end.send(some(1, window=20, seconds=10 * number))
        run.read(end.sent)
    clock.now += 200
    run.until(lambda: (20, 20) in run.seen)
    for number in range(12):
        end.send(some(1, seconds=number))
        run.read(end.sent)
    assert run.scan.counters.late == 12
    run.rest()
    clock.now += 301
    run.until(lambda: run.scan.counters.late == 0)
    seen = len(run.seen)
    clock.now += 10  # 310 and some seconds past noon, less the grace
    run.rest()
    assert (0, 12) not in run.seen[seen:]
    clock.now += 30
    run.until(lambda: (0, 12) in run.seen[seen:])


def test_a_file_beside_a_grace_opens_its_windows_again(tmp_path: Path) -> None:
    late = some(1500, window=1) + some(1500, window=2) + some(40)
    path = write(tmp_path / "a.pcap", late)
    run = Scan([open_capture(path, block_bytes=4096)], Settings(**EXACT), RunOptions(grace=10.0, find=False))
    assert [(result.window.start - NOON) // LENGTH for result in run] == [1, 0, 2]
    assert run.counters.late == 0


def test_a_backlog_never_closes_by_the_clock(tmp_path: Path, live: Start) -> None:
    """The clock runs by hours, and packets lie minutes out of order: results are those of the files alone."""
    frames = three_windows()
    early, rest = frames[:60], frames[60:]
    middle = next(i for i, frame in enumerate(rest) if frame[0] >= NOON + LENGTH) + 700
    frames = rest[:middle] + early + rest[middle:]
    source = write(tmp_path / "whole.pcap", frames)
    wanted = everything(Scan([open_capture(source, block_bytes=4096)], Settings(**SMALL)))
    captures = tmp_path / "captures"
    captures.mkdir()
    for number, (a, b) in enumerate(pairwise([0, 1000, 1500, 3000, 4444, len(frames)])):
        write(captures / f"dump{number}", frames[a:b])
    clock = Clock()

    def leaping() -> float:
        clock.now += 3600
        return clock.now

    run = live(folder(captures), settings=SMALL, clock=leaping)
    run.until(lambda: len([r for r in run.results if r.packets]) == 3)
    run.stop()
    assert everything(result for result in run.results if result.packets) == wanted
    assert run.scan.counters.late == 0


class OnePacket(Source):
    """A live input that gives one packet, and then waits until it is stopped."""

    name, live = "one packet", True

    def __init__(self) -> None:
        self.counters = SourceCounters()
        self._stopped = threading.Event()

    def blocks(self) -> Iterator[PacketBlock]:
        yield (batch_at(NOON),)
        assert self._stopped.wait(SOON)

    def waits(self) -> bool:
        return True

    def stop(self) -> None:
        self._stopped.set()


def test_a_process_that_was_held_up_looks_before_it_closes() -> None:
    """Nobody has looked at the inputs for long: what the clock says then is not yet to be believed."""
    clock, pace = Clock(50.0), QUICK._replace(caught_up=0.5)
    following = Following(
        [OnePacket()],
        grace=1.0,
        clock=clock,
        attempt=lambda call: call(),
        stopped=lambda: False,
        pace=pace,
        steady=clock,
    )
    steps = iter(following)
    next(step for step in steps if step.block)
    answers = []
    for passed in (0.1, 0.25, 0.25, 0.25, 600.0, 0.25, 0.25):
        clock.now += passed
        answers.append(next(steps).clock is not None)
    steps.close()
    assert answers == [False, False, True, True, False, False, True]


# Windows in which nothing came


def test_files_and_scans_without_grace_have_no_empty_windows(tmp_path: Path, pipe: Pipes) -> None:
    path = write(tmp_path / "a.pcap", some(1500) + some(1500, window=5))
    for grace in (None, 30.0):
        scan = Scan([open_capture(path)], Settings(**EXACT), RunOptions(grace=grace))
        assert [result.packets for result in scan] == [1500, 1500]
    end = pipe()
    run = Live([open_capture(end.path)], grace=None)
    end.send(some(5) + some(5, window=5))
    run.read(10)
    end.close()
    run.ends()
    assert [result.packets for result in run.results] == [5, 5]


# Several inputs


@pytest.mark.slow
def test_a_quiet_input_holds_the_others_up_for_the_grace_and_no_longer(pipe: Pipes, live: Start) -> None:
    clock, quiet, busy = Clock(), pipe(), pipe()
    run = live(open_capture(quiet.path), open_capture(busy.path), clock=clock, pace=NO_CLOCK)
    quiet.send(some(1, seconds=298))
    busy.send(some(1500, seconds=297))
    run.read(1501)
    clock.now += 4
    busy.send(some(1500, window=1, seconds=2))
    run.read(3001)
    run.gives()  # the quiet one may still have something for the first window
    quiet.send(some(2, seconds=299, host="10.0.0.2"))
    run.read(3003)
    clock.now += 24
    busy.send(some(5, window=1, seconds=26))
    run.read(3008)
    run.gives()
    clock.now += 8
    run.gives((0, 1503))
    assert run.scan.counters.late == 0


def test_inputs_without_any_packet_hold_up_the_others_no_longer_either(pipe, live, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # nobody opens it to write
    silent, busy, clock = pipe(), pipe(), Clock()
    captures = [open_capture(end) for end in (silent.path, busy.path, fifo)]
    run = live(folder(tmp_path / "empty"), *captures, clock=clock, pace=NO_CLOCK)
    busy.send(some(1500) + some(1500, window=1))
    run.read(3000)
    run.gives()  # the silent ones may still have something for the first window
    clock.now += 40
    run.gives((0, 1500))
    with fifo.open("wb"):  # so that the thread that waits for a writer ends
        pass


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 3])
def test_live_inputs_together_give_what_one_gives(pipe: Pipes, live: Start, tmp_path: Path, parts: int) -> None:
    """Files, a folder and a pipe that each see a share of the packets: the bits of one file."""
    frames = three_windows()
    wanted = everything(Scan([open_capture(write(tmp_path / "whole.pcap", frames))], Settings(**SMALL)))
    rng, split = random.Random(5), [[] for _ in range(parts)]
    for frame in frames:
        rng.choice(split).append(frame)
    captures, end, clock = tmp_path / "captures", pipe(), Clock()
    captures.mkdir()
    for number, (a, b) in enumerate(pairwise([0, 300, 700, len(split[0])])):
        write(captures / f"dump{number}", split[0][a:b])
    files = [write(tmp_path / f"{n}.pcap", s) for n, s in enumerate(split[2:])]
    sources = [folder(captures), open_capture(end.path), *(open_capture(path, block_bytes=4096) for path in files)]
    run = live(*sources, settings=SMALL, clock=clock, grace=1e9)  # nothing closes while the pipe is being filled
    end.send(split[1])
    run.read(len(frames))
    clock.now += 2e9
    run.until(lambda: len(run.results) >= 3)
    run.stop()
    assert everything(run.results[:3]) == wanted
    assert run.scan.counters.late == 0


def test_an_input_that_fails_does_not_end_the_others(pipe: Pipes, live: Start) -> None:
    errors: list[SuperhostsError] = []
    bad, good, clock = pipe(), pipe(), Clock()
    run = live(open_capture(bad.path), open_capture(good.path), clock=clock, on_error=errors.append)
    bad.write(p.record(NOON, b"x" * 60, captured=1 << 31))
    good.send(some(5))
    run.read(5)
    run.until(lambda: len(errors) == 1)
    clock.now += 400
    run.until(lambda: len(run.seen) >= 1)
    run.go_on(5)
    assert run.seen == [(0, 5)]
    lone = pipe()
    alone = live(open_capture(lone.path))
    lone.write(p.record(NOON, b"x" * 60, captured=1 << 31))
    with pytest.raises(AssertionError):
        alone.until(lambda: False)
    assert isinstance(alone.error, InputError)
    alone.error = None


# Scans of pipes: the clock closes windows, and inputs are read in the order of time


def test_a_pipe_that_stalls_for_less_than_the_grace_loses_nothing(pipe: Pipes, live: Start) -> None:
    """Another one, as fast as a file, has come some windows further meanwhile."""
    clock, slow, fast = Clock(), pipe(), pipe()
    run = live(open_capture(slow.path), open_capture(fast.path), clock=clock, grace=10.0, clock_only=True)
    slow.send(some(5))
    for window in range(4):
        fast.send(some(900, window=window, host="10.0.0.2"))
        run.read(5 + 900 * (window + 1))
    run.rest()
    clock.now += 9.9
    run.gives()
    slow.send(some(5, seconds=200, host="10.0.0.3"))
    run.read(3610)
    run.rest()
    clock.now += 9.9
    run.gives()
    clock.now += 0.2  # silent for longer than the grace now
    run.until(lambda: run.seen[:1] == [(0, 910)])
    assert run.scan.counters.late == 0
    run.stop()


def test_an_input_that_is_far_ahead_waits_if_memory_would_end(pipe: Pipes, live: Start) -> None:
    clock, slow, fast = Clock(), pipe(), pipe()
    limits = Limits(packets=400)  # beyond them windows close early
    sources = [open_capture(slow.path), open_capture(fast.path)]
    run = live(*sources, clock=clock, grace=10.0, clock_only=True, limits=limits)
    slow.send(some(5))
    run.read(5)
    fast.send(some(300, window=1, host="10.0.0.2"))
    run.read(305)
    fast.send(some(300, window=4, host="10.0.0.2"))
    run.go_on(5)
    assert (run.scan.pending(), run.seen) == (305, [])
    slow.send(some(5, seconds=200))
    slow.close()
    fast.close()
    run.ends()
    assert run.seen == [(0, 10), (1, 300), (4, 300)]  # none is empty
    assert run.scan.counters.late == 0


def test_only_pipes_have_a_clock(pipe: Pipes) -> None:
    live, files = [open_capture(pipe().path)], sh.scan("synth:flows=50k").sources
    assert scan_options(live, Settings(), joins_short=True).grace == GRACE == 10
    assert scan_options(files, Settings(), joins_short=True).grace is None
    assert scan_options(live, Settings(window="all"), joins_short=True).grace is None
    assert scan_options(files, Settings(), joins_short=True).joins_short
    assert not scan_options(live, Settings(), joins_short=True).joins_short
    assert not scan_options(files, Settings(memory_total="1GiB"), joins_short=True).joins_short


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


def test_after_a_restart_empty_windows_go_on(tmp_path: Path, live: Start) -> None:
    clock = Clock()
    (tmp_path / "captures").mkdir()
    write(tmp_path / "captures" / "a", some(5, seconds=100))
    run = live(folder(tmp_path / "captures"), clock=clock, resume_from=NOON + 2 * LENGTH)
    run.read(5)
    assert run.scan.counters.repeated == 5
    clock.now += 900
    run.gives((2, 0))
    (empty,) = run.results
    empty.sketch.save(tmp_path / "empty.cube")
    again = sh.load(tmp_path / "empty.cube")
    assert (again.window, again.sites, again.parts, again.entries) == (empty.window, {"ams"}, {}, [])


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
    pace = QUICK._replace(drain=SOON)  # the end of the reader is waited for, however slow this machine is
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
    pace = QUICK._replace(drain=SOON, linger=SOON)
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


def test_a_stop_of_files_may_report_the_open_window_and_says_what_was_read_in_vain(tmp_path: Path) -> None:
    frames = three_windows()
    path = write(tmp_path / "a.pcap", frames)
    run = Scan([open_capture(path, block_bytes=2048)], Settings(**SMALL), RunOptions(leaves_open=False))
    windows = iter(run)
    reported = [next(windows)]
    assert run.counters.unused == 0
    run.stop()
    reported += list(windows)
    assert [result.partial for result in reported[:2]] == [False, True]
    counters = run.counters
    assert sum(result.packets for result in reported) + counters.unused == counters.ipv4 + counters.ipv6
    assert sum(result.packets for result in reported) < len(frames)


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
