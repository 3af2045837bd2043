"""Threads: the pool survives interrupts and forks, and counts what this process may use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowd import DEADLINE
from superhosts.core.device import choose_device, run_parallel, split_evenly, start_parallel, thread_count
from superhosts.errors import UsageError


def test_an_interrupted_caller_waits_for_its_threads():
    """Otherwise they would go on writing to a sketch that the caller believes to be at rest."""
    working, may_end = threading.Barrier(2), threading.Event()

    def work(number: int) -> None:
        working.wait(DEADLINE)
        if number == 0:
            raise KeyboardInterrupt
        assert may_end.wait(DEADLINE)

    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(run_parallel, work, [(0,), (1,)], 2)
        still_waits = not wait([calling], 0.05).done
        may_end.set()
        assert still_waits
        with pytest.raises(KeyboardInterrupt):
            calling.result(DEADLINE)


def test_a_caller_does_not_wait_for_threads_that_have_other_work():
    may_end = threading.Event()
    others = start_parallel(may_end.wait, [(DEADLINE,)] * 2, 2)
    try:
        assert run_parallel(abs, [(-1,), (-2,), (-3,)], 2) == [1, 2, 3]
        assert not any(other.done() for other in others)
    finally:
        may_end.set()
        wait(others)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_threads_of_its_own():
    run_parallel(abs, [(1,), (2,)], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads: that is the test
        child = os.fork()
    if child == 0:
        os._exit(0 if run_parallel(abs, [(-3,), (-4,)], 2) == [3, 4] else 1)
    reaper = ThreadPoolExecutor(1).submit(os.waitpid, child, 0)
    if not wait([reaper], 240).done:
        os.kill(child, 9)
    assert reaper.result() == (child, 0)


def test_it_works_with_numba_switched_off():
    pairs = "np.zeros(3, np.uint32), np.arange(3, dtype=np.uint32)"
    code = f"import numpy as np, superhosts as sh; e = sh.Exact(); e.update({pairs}); print(e.top(1).peers)"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("[3]\n", 0), ended.stderr


def test_devices() -> None:
    assert choose_device("auto") == choose_device("cpu") == "cpu"


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_THREADS", "3")
    assert thread_count() == 3
    monkeypatch.setenv("SUPERHOSTS_THREADS", "")
    assert thread_count() >= 1
    for value in ("0", "-1", "two", "1.5", "²"):
        monkeypatch.setenv("SUPERHOSTS_THREADS", value)
        with pytest.raises(UsageError, match=f"SUPERHOSTS_THREADS='{value}'"):
            thread_count()


def test_results_come_in_the_order_of_the_calls() -> None:
    for threads in (1, 2, 5):
        for calls in (0, 1, 2, 40):
            answers = run_parallel(lambda a, b: a * b, [(i, 2) for i in range(calls)], threads)
            assert answers == [2 * i for i in range(calls)]


def test_calls_run_side_by_side() -> None:
    barrier = threading.Barrier(2, timeout=240)
    assert len(run_parallel(barrier.wait, [(), ()], 2)) == 2


def test_an_error_in_any_thread_reaches_the_caller() -> None:
    for bad in (0, 3):
        with pytest.raises(ZeroDivisionError):
            run_parallel(lambda i, bad: 1 // (i - bad), [(i, bad) for i in range(4)], 2)


@given(st.integers(0, 1000), st.integers(1, 40))
def test_even_splits(count: int, parts: int) -> None:
    runs = split_evenly(count, parts)
    assert [i for a, b in runs for i in range(a, b)] == list(range(count))
    sizes = [b - a for a, b in runs]
    assert len(runs) <= parts
    assert not count or (min(sizes) >= 1 and max(sizes) - min(sizes) <= 1)
