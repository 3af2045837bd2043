"""Scans of pipes: a clock closes windows when traffic stops, and inputs are read in the order of time."""

from __future__ import annotations

import superhosts as sh
from livescans import Clock, Pipes, Start, some
from superhosts.pipeline.scan import GRACE, scan_options
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.windows import Limits
from superhosts.sources.capture import open_capture


def test_a_window_closes_by_the_clock_when_traffic_stops_and_none_is_empty(pipe: Pipes, live: Start) -> None:
    clock, end = Clock(), pipe()
    run = live(open_capture(end.path), clock=clock, grace=10.0, clock_only=True)
    end.send(some(5, seconds=100))
    run.read(5)
    clock.now += 209.9  # 9.9 seconds beyond the end
    run.gives()
    clock.now += 0.2
    run.gives((0, 5))
    clock.now += 1000
    run.gives((0, 5))
    end.send(some(3, window=4))
    run.read(8)
    end.close()
    run.ends()
    assert run.seen == [(0, 5), (4, 3)]


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
    fast.send(some(300, window=2, host="10.0.0.2"))
    run.go_on(5)
    assert (run.scan.pending(), run.seen) == (305, [])
    slow.send(some(5, seconds=200))
    slow.close()
    fast.close()
    run.ends()
    assert run.seen == [(0, 10), (1, 300), (2, 300)]
    assert run.scan.counters.late == 0


def test_only_pipes_have_a_clock(pipe: Pipes) -> None:
    live, files = [open_capture(pipe().path)], sh.scan("synth:flows=50k").sources
    assert scan_options(live, Settings(), joins_short=True).grace == GRACE == 10
    assert scan_options(files, Settings(), joins_short=True).grace is None
    assert scan_options(live, Settings(window="all"), joins_short=True).grace is None
    assert scan_options(files, Settings(), joins_short=True).joins_short
    assert not scan_options(live, Settings(), joins_short=True).joins_short
    assert not scan_options(files, Settings(memory_total="1GiB"), joins_short=True).joins_short
