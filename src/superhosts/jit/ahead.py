"""Compiles on all cores what a run is expected to need, when the first of its loops is not on disk.

numba compiles one loop at a time in a process, and a run asks for one loop after the other. So `recorded.json` tells
which loops, with which types, the kinds of runs need that the tests know (`make record` writes it). A run tells what it
is (`begin_run`); once a loop has to be compiled, other processes compile it together with all others that the
recorded runs most like this one have used (`compile_expected`). A wheel with machine code has all loops of the record.

The record only saves time: a loop that it lacks is compiled when it is called. Every command imports this module, most
of them to compile nothing: so it imports neither numba nor what starts processes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from superhosts.jit.compilation import compiling, has_parent, is_forbidden, is_ready, tell_progress

RECORD = Path(__file__).with_name("recorded.json")
MIN_SECONDS = 2.0  # of compiling for which processes are started: one takes a second before it compiles
MEMORY_PER_PROCESS = 1 << 30  # of the machine; one takes a third of that
MOST_PROCESSES = 16
WORKER = "from superhosts.jit.cache import work; work()"


class Loop(NamedTuple):
    """A compiled function, as the attribute of a module, and the types of its arguments as JSON."""

    name: str  # MODULE:ATTRIBUTE
    types: str


class Record(NamedTuple):
    seconds: dict[Loop, float]  # that compiling takes
    runs: list[tuple[frozenset[str], frozenset[Loop]]]  # the words of each, and what it used


@functools.cache
def record() -> Record:
    known = json.loads(RECORD.read_text("utf-8"))
    loops = [Loop(name, types) for name, types, _ in known["loops"]]
    runs = [(frozenset(words), frozenset(loops[each] for each in used)) for words, used in known["runs"]]
    return Record(dict(zip(loops, (seconds for *_, seconds in known["loops"]), strict=True)), runs)


class Run:
    """What this process does."""

    def __init__(self) -> None:
        self.command = ""
        self.words: set[str] = set()
        self.used: list[Callable[[], Loop | None]] = []
        self.is_alone = False  # may not start processes
        self.is_compiling = False  # ahead, which uses nothing


_run = Run()


def set_command(name: str) -> None:
    _run.command = name


def begin_run(*words: str) -> None:
    """Say what this process does from now on: words for the settings that decide which loops it uses."""
    _run.words, _run.used = {_run.command, *words}, []


def note_use(describe: Callable[[], Loop | None]) -> None:
    """Note that a loop is used; what `describe` returns is asked only if something has to be compiled."""
    if not _run.is_compiling:
        _run.used.append(describe)


def used() -> set[Loop]:
    """Return what this run has used so far, without loops that have no name."""
    return {loop for describe in list(_run.used) if (loop := describe()) is not None}


def words() -> set[str]:
    return _run.words or {_run.command}


def use_one_process() -> None:
    """Start no process to compile in: this is one of several."""
    _run.is_alone = True


def expected() -> set[Loop]:
    """Return what all recorded runs have used, besides what this one has, that are most like it."""
    done, mine = used(), words()
    alike: dict[tuple[int, int], list[frozenset[Loop]]] = {}
    for theirs, loops in record().runs:
        alike.setdefault((len(done - loops), len(theirs ^ mine)), []).append(loops)
    return set(frozenset.intersection(*alike[min(alike)]) - done) if alike else set()


def compile_expected(wanted: Loop, is_missing: Callable[[Loop], bool], compile_one: Callable[[Loop], None]) -> bool:
    """Compile a loop on all cores together with what is expected after it; return whether that was worth it.

    The caller holds numba's lock, and so do all that use this module besides.
    """
    if _run.is_alone or _run.is_compiling or is_forbidden() or is_ready() or has_parent() or _cores() < 2:
        return False
    if wanted not in record().seconds:
        return False
    loops = [wanted, *(each for each in expected() if is_missing(each))]
    if _seconds_of(loops) < MIN_SECONDS or len({_module_of(each) for each in loops}) < 2:
        return False
    compile_all(loops, compile_one)
    return True


def compile_all(loops: Iterable[Loop], compile_one: Callable[[Loop], None]) -> None:
    """Compile loops of the record in this process and others: one for each core, as far as memory allows."""
    from superhosts.jit.memory import memory_of_machine

    groups: dict[str, list[Loop]] = {}  # by module, so that callees of several loops are compiled in one process
    for loop in loops:
        groups.setdefault(_module_of(loop), []).append(loop)
    waiting = sorted(groups.values(), key=_seconds_of)  # What takes longest is taken first, from the end.
    if not waiting:
        return
    can_start = sys.executable and not getattr(sys, "frozen", False)  # A frozen program would start itself.
    most = min(_cores(), MOST_PROCESSES, memory_of_machine() // MEMORY_PER_PROCESS or 1) if can_start else 1
    processes = min(most, len(waiting))
    seconds = max(_seconds_of(waiting[-1]), sum(map(_seconds_of, waiting)) / processes) + 1
    cores = f"{processes} core{'s' * (processes > 1)}"

    def taken() -> Iterator[list[Loop]]:
        while waiting:
            left = max(_seconds_of(waiting[-1]), sum(map(_seconds_of, waiting)) / processes) + 1
            tell_progress(f"compiling on {cores}: {sum(map(len, waiting)):,} to go, about {left:.0f} s")
            with contextlib.suppress(IndexError):  # Another thread was quicker.
                yield waiting.pop()

    with contextlib.ExitStack() as stack:
        stack.callback(setattr, _run, "is_compiling", False)
        _run.is_compiling = True
        what = f"{sum(map(len, waiting)):,} loops on {cores}, about {seconds:.0f} s"
        stack.enter_context(compiling("all that is expected", what))
        stack.callback(tell_progress, "")
        for _ in range(processes - 1):
            # Where no more processes or threads may be started, this one compiles what is left.
            with contextlib.suppress(OSError, RuntimeError):
                stack.enter_context(_worker(taken(), patience=60 + 5 * seconds))
        for group in taken():
            for loop in group:
                compile_one(loop)


def _module_of(loop: Loop) -> str:
    return loop.name.partition(":")[0]


def _seconds_of(loops: Iterable[Loop]) -> float:
    return sum(record().seconds[each] for each in loops)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _worker(groups: Iterator[list[Loop]], patience: float) -> Iterator[None]:
    """Compile in another process meanwhile, and wait for it at the end. What it cannot compile is left to the run."""
    import subprocess

    path = os.pathsep.join(each for each in sys.path if isinstance(each, str))
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        process_group=0,  # Ctrl-C is for this process, which ends the other one
        text=True,
    )

    def feed(given: IO[str], answers: IO[str]) -> None:
        with contextlib.suppress(OSError):
            for group in groups:
                print(json.dumps(group), file=given, flush=True)
                if not answers.readline():
                    return

    feeder = threading.Thread(target=feed, args=(process.stdin, process.stdout), daemon=True)
    try:
        feeder.start()
        yield
        feeder.join(patience)
    finally:
        process.kill()
        if feeder.ident is not None:
            feeder.join()
        with contextlib.suppress(OSError):
            process.communicate()
