"""Threads: the pool survives interrupts and forks, and counts what this process may use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from crowd import DEADLINE
from superhosts.core.device import run_parallel, split_evenly, start_parallel, thread_count


def test_results_come_in_the_order_of_the_calls():
    assert run_parallel(lambda a, b: a * b, [(i, 10) for i in range(7)], 3) == [0, 10, 20, 30, 40, 50, 60]
    assert run_parallel(lambda: 1, [], 3) == []


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


def test_even_splits_cover_everything_once():
    for count in (0, 1, 5, 1000):
        for parts in (1, 2, 7):
            runs = split_evenly(count, parts)
            assert [i for a, b in runs for i in range(a, b)] == list(range(count))


def test_as_many_threads_as_this_process_may_use(monkeypatch):
    monkeypatch.delenv("SUPERHOSTS_THREADS", raising=False)
    assert thread_count() >= 1
    monkeypatch.setenv("SUPERHOSTS_THREADS", "3")
    assert thread_count() == 3


def test_it_works_with_numba_switched_off():
    pairs = "np.zeros(3, np.uint32), np.arange(3, dtype=np.uint32)"
    code = f"import numpy as np, superhosts as sh; e = sh.Exact(); e.update({pairs}); print(e.top(1).peers)"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("[3]\n", 0), ended.stderr
