"""Any thread may call any method of a detector, sketch or scan: the result is that of some order of the calls.

`make test` runs a few rounds; `make threads`, or SUPERHOSTS_THREAD_ROUNDS=1000, runs the thousand that a release must
pass. Nothing here depends on timing: threads start together, and every wait ends with the event that it waits for.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_laws import SMALL, content, make

import superhosts as sh
from crowd import DEADLINE, Call, together, while_others_work
from superhosts.core import device
from superhosts.detectors.cbaa import Geometry as CbaaGeometry
from superhosts.detectors.detector import Detector
from superhosts.detectors.engines.base import GpuTuning, Tuning
from superhosts.detectors.registry import DETECTORS, MERGED
from superhosts.pipeline.scan import scan
from traffic import three_windows, write
from tuned import tuned

ROUNDS = int(os.environ.get("SUPERHOSTS_THREAD_ROUNDS", "5"))
WRITERS, READERS = 8, 2
BATCHES = 4  # batches per writer
IN_USE = "this Cube was in use by another thread when the process forked: only a part of it is here; "
IN_USE += "fork before threads use it, or make a new one in the child"
FOUR = sh.Part(4)
TINY: dict[str, Any] = {  # sizes for the simulator, in which every GPU thread is a Python thread
    "cube": sh.Geometry(32, 2, 3, 7, 5, 1, 1),
    "cbaa": CbaaGeometry(1, 8, 4, 0, 2, 6),
    "cbaa-paper": CbaaGeometry(1, 8, 4, 0, 2, 6, 1),
}
pytestmark = pytest.mark.filterwarnings("ignore:threshold")

Columns = tuple[np.ndarray, np.ndarray]


def batches(count: int, size: int, seed: int = 1) -> list[Columns]:
    """Return batches of pairs of few hosts, with many repeats."""
    rng = np.random.default_rng(seed)
    hosts = (rng.integers(0, 12, (count, size)) + (10 << 24)).astype(np.uint32)
    return list(zip(hosts, rng.integers(0, 1 << 11, (count, size), dtype=np.uint32), strict=True))


def growing(count: int, size: int) -> list[Columns]:
    """Return batches of new pairs of many hosts: each batch adds peers to every host."""
    rng = np.random.default_rng(2)
    some = rng.integers(0, 1 << 32, 300, dtype=np.uint32)
    return [(rng.choice(some, size), rng.integers(0, 1 << 32, size, dtype=np.uint32)) for _ in range(count)]


def digest(detector: Detector) -> str:
    """Return a digest of a detector's state."""
    return hashlib.sha256(b"".join(content(detector).values())).hexdigest()


def questions(detector: Detector) -> Call:
    """Return a function that makes the next of all queries on each call."""
    asked = cycle(
        [
            lambda: detector.super_hosts(50).to_dict(),
            lambda: list(detector.top(3)),
            lambda: detector.estimate("10.0.0.7"),
            lambda: detector.memory,
            detector.copy,
            detector.flush,
            detector.arrays,
        ]
    )
    return lambda: next(asked)()


def prefixes(name: str, given: list[Columns]) -> Iterator[Detector]:
    """Yield a detector that one thread fills, before the first batch and after each."""
    detector = make(name, device="cpu")
    yield detector
    for columns in given:
        detector.update(*columns)
        yield detector


def feeding(detector: Detector, given: list[Columns]) -> Call:
    def feed() -> None:
        for columns in given:
            detector.update(*columns)

    return feed


# Many writers and readers


def race(name: str, given: list[Columns], threads: int) -> tuple[Detector, list[int]]:
    """Write and read from many threads; return the detector and the order in which the batches were written."""
    order: list[int] = []
    number_of = {id(columns[0]): number for number, columns in enumerate(given)}

    class Noting(DETECTORS[name]):  # type: ignore[misc]
        def _update(self, hosts: np.ndarray, peers: np.ndarray) -> None:
            order.append(number_of[id(hosts)])
            super()._update(hosts, peers)

    detector = Noting(**SMALL[name], threads=threads, device="cpu")
    while_others_work(
        [questions(detector) for _ in range(READERS)],
        [feeding(detector, given[first::WRITERS]) for first in range(WRITERS)],
    )
    return detector, order


@pytest.mark.parametrize("name", DETECTORS)
def test_writers_and_readers_leave_what_one_thread_leaves(name: str) -> None:
    given = batches(WRITERS * BATCHES, 300)
    *_, alone = prefixes(name, given)
    for number in range(ROUNDS):
        detector, order = race(name, given, threads=1 + number % 2)
        assert sorted(order) == list(range(len(given)))
        if "order" in detector.broken_laws:
            *_, alone = prefixes(name, [given[place] for place in order])
        assert content(detector) == content(alone)
        assert detector.super_hosts(50).to_dict() == alone.super_hosts(50).to_dict()


@pytest.mark.skipif(device.cuda_problem() is not None, reason=f"no GPU: {device.cuda_problem()}")
@pytest.mark.parametrize("name", TINY)
def test_writers_and_readers_on_a_gpu_leave_what_one_thread_leaves(name: str) -> None:
    given = batches(6, 5)
    kind = tuned(DETECTORS[name], Tuning(gpu=GpuTuning(host_slots=64)))
    make_one: Any = partial(kind, geometry=TINY[name], threads=2)
    one, two, alone = make_one(device="cuda"), make_one(device="cuda"), make_one(device="cpu")
    together(
        feeding(one, given[::3]),
        feeding(one, given[1::3]),
        feeding(two, given[2::3]),
        lambda: [one.estimate("10.0.0.7"), one.memory, one.flush()],
        lambda: [one.merge(two), two.estimate("10.0.0.7")],
        lambda: [two.merge(one), one.copy()],
    )
    one.merge(two)
    feeding(alone, given)()
    assert content(one) == content(alone)


# One writer: every answer corresponds to some number of its batches


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTORS)
def test_what_is_saved_copied_and_taken_out_meanwhile_is_of_one_moment(name: str, tmp_path: Path) -> None:
    given = growing(30, 2000)
    known = [digest(detector) for detector in prefixes(name, given)]
    detector = make(name, device="cpu")

    def saved() -> str:
        detector.save(tmp_path / "a.cube")
        ((_, stored),) = sh.load(tmp_path / "a.cube")
        return digest(stored)

    takes: list[Call] = [
        saved,
        lambda: digest(detector.copy()),
        lambda: digest(copy.deepcopy(detector)),
        lambda: digest(copy.copy(detector)),
        lambda: digest(pickle.loads(pickle.dumps(detector))),
        lambda: digest(detector),
    ]
    for take in takes:
        detector.clear()
        seen = [known.index(taken) for taken in while_others_work([take], [feeding(detector, given)])]
        assert seen == sorted(seen)
        assert seen[-1] == known.index(known[-1])


def test_threads_may_save_to_one_file(tmp_path: Path) -> None:
    detectors = [make("cube", device="cpu") for _ in range(2)]
    for detector, columns in zip(detectors, batches(2, 200), strict=True):
        detector.update(*columns)

    def save(detector: Detector) -> None:
        for _ in range(10):
            detector.save(tmp_path / "a.cube")
            ((_, stored),) = sh.load(tmp_path / "a.cube")
            assert content(stored) in [content(each) for each in detectors]

    together(*[partial(save, each) for each in detectors * 2])
    assert [path.name for path in tmp_path.iterdir()] == ["a.cube"]


@pytest.mark.parametrize("name", DETECTORS)
def test_clearing_meanwhile_leaves_what_some_order_leaves(name: str) -> None:
    given = growing(12, 3000)
    known = [digest(detector) for detector in prefixes(name, given)]
    detector = make(name, device="cpu")

    def write() -> None:
        for _ in range(5):
            feeding(detector, given)()
            detector.clear()

    assert all(taken in known for taken in while_others_work([lambda: digest(detector)], [write]))
    together(feeding(detector, given), detector.clear)
    suffixes = [[*prefixes(name, given[start:])][-1] for start in range(len(given) + 1)]
    assert digest(detector) in map(digest, suffixes)


# Two at a time


def bundle(site: str, given: list[Columns], *parts: sh.Part) -> sh.Sketch:
    sketch = sh.Sketch(lambda _: make("cube", device="cpu"), window=sh.Window(0, 10), site=site)
    for part in parts:
        feeding(sketch.part(part), given)()
        sketch.entries.append({"site": site, "start": 0, "end": 10, **part._asdict(), "pairs": 1})
    return sketch


def test_sketches_that_take_each_other_in_meanwhile_both_have_all(tmp_path: Path) -> None:
    sides = [sh.Part(4, "inner", way) for way in ("any", "out", "in")]
    given = batches(6, 200)
    stored = bundle("c", given[4:], *sides)
    stored.save(tmp_path / "c.cube")
    for _ in range(max(2, ROUNDS // 4)):
        one, two = bundle("a", given[:2], *sides[:2]), bundle("b", given[2:4], *sides[1:])

        def merge_many(into: sh.Sketch, other: sh.Sketch) -> None:
            for _ in range(5):
                into.merge(other)
                into.merge(into)
                into.merge_file(tmp_path / "c.cube")

        def read_many(sketch: sh.Sketch) -> None:
            for _ in range(5):
                sketch.super_hosts(50)
                sketch.top(2)
                sketch.estimate("10.0.0.7")
                assert sketch.memory
                path = tmp_path / f"{threading.get_ident()}.cube"
                sketch.save(path)
                assert {part for part, _ in sh.load(path)} <= set(sides)
                assert len(list(copy.deepcopy(sketch))) >= 2
                assert sketch.kinds.keys() <= set(sides)

        together(
            lambda one=one, two=two: merge_many(one, two),
            lambda one=one, two=two: merge_many(two, one),
            lambda one=one: read_many(one),
            lambda two=two: read_many(two),
        )
        whole = bundle("a", given[:2], *sides[:2])
        for other in (bundle("b", given[2:4], *sides[1:]), stored):
            whole.merge(other)
        one.merge(two)
        two.merge(one)
        for sketch in (one, two):
            assert sketch.sites == {"a", "b", "c"}
            assert len(sketch.entries) == len(whole.entries) == 7
            for part in sides:
                assert content(sketch.parts[part]) == content(whole.parts[part])


def test_a_part_that_two_threads_ask_for_is_made_once() -> None:
    made: list[Detector] = []
    asking = threading.Barrier(4)

    def slowly(_: sh.Part) -> Detector:
        made.append(sh.Exact(device="cpu"))
        for _ in range(100):
            threading.Event().wait(1e-5)  # lets other threads run
        return made[-1]

    for _ in range(20):
        made.clear()
        sketch = sh.Sketch(slowly)
        got = together(*[lambda sketch=sketch: (asking.wait(DEADLINE), sketch.part(FOUR))[1]] * 4)
        assert len({id(each) for each in got}) == len(made) == 1


# Every public method takes the lock

HOSTS = np.full(3, 10 << 24 | 7, np.uint32), np.arange(3, dtype=np.uint32)
CALLS: dict[str, Callable[[Any, Path], Any]] = {
    "update": lambda d, _: d.update(*HOSTS),
    "update_many": lambda d, _: d.update_many([sh.PairBatch(*HOSTS)]),
    "merge": lambda d, _: d.merge(copy.copy(d.twin)),
    "super_hosts": lambda d, _: d.super_hosts(5),
    "top": lambda d, _: d.top(5),
    "estimate": lambda d, _: d.estimate("10.0.0.7"),
    "save": lambda d, path: d.save(path / "a.cube"),
    "load_arrays": lambda d, _: d.load_arrays(d.twin.arrays()),
    "estimate_many": lambda d, _: d.estimate_many(["10.0.0.7"]),
    "__deepcopy__": lambda d, _: copy.deepcopy(d),
    "search_for": lambda d, _: d.search_for(5),
    "columns_of": lambda d, _: d.columns_of("10.0.0.7"),
    "__or__": lambda d, _: d | copy.copy(d.twin),
    "__eq__": lambda d, _: d == d.twin,
    # Methods of sketches
    "part": lambda s, _: s.part(FOUR),
    "collect": lambda s, _: s.collect(lambda _, detector: detector.top(1)),
    "verdict": lambda s, _: s.verdict(sh.SuperHost("10.0.0.7", 5, 5, 5, True, False)),
    "merge_file": lambda s, path: (s.twin.save(path / "a.cube"), s.merge_file(path / "a.cube")),
}
# Names that need no lock, because they depend only on the constructor's arguments.
NO_LOCK = {
    *("key_bits", "kind", "check_alike", "mangle", "mangled", "geometry", "fingerprint"),
    *("name", "broken_laws", "widths", "cpu_engine", "tuning", "auto_gpu", "geometry_type", "slack", "check_device"),
    "check_memory",
    *("for_scan", "paper", "of", "load", "from_bytes"),  # constructors
}


class Taken(Exception):  # noqa: N818 (it is the expected outcome, not an error)
    """The lock was acquired."""


class Trap:
    """Replaces a lock and raises `Taken` when it is acquired."""

    def __enter__(self) -> None:
        raise Taken

    def __exit__(self, *_: object) -> None: ...


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and name not in NO_LOCK]


def takes_lock(guarded: Any, name: str, folder: Path) -> bool:
    """Return True if a public method or property of an object with a `Trap` acquires the lock."""
    try:
        if name in CALLS:
            CALLS[name](guarded, folder)
        elif isinstance(inspect.getattr_static(type(guarded), name), property):
            getattr(guarded, name)
        else:
            getattr(guarded, name)()  # A method that takes arguments belongs in CALLS.
    except Taken:
        return True
    return False


@pytest.mark.parametrize("name", DETECTORS)
def test_every_public_method_of_a_detector_takes_its_lock(name: str, tmp_path: Path) -> None:
    methods = public(DETECTORS[name])
    assert {"update", "merge", "super_hosts", "top", "clear", "copy", "memory", "arrays"} <= set(methods)
    for method in [*methods, "__copy__", "__deepcopy__", "__reduce__", "__or__", "__eq__"]:
        detector = make(name, device="cpu")
        detector.update(*HOSTS)
        detector.twin = make(name, device="cpu")  # type: ignore[attr-defined]
        detector.lock = Trap()  # type: ignore[assignment]
        assert takes_lock(detector, method, tmp_path), f"{name}.{method} runs without the lock: see Detector"


class Noted:
    """Replaces a lock and records when it is acquired."""

    def __init__(self, name: str, taken: list[str]) -> None:
        self.name, self.taken = name, taken

    def __enter__(self) -> None:
        self.taken.append(self.name)

    def __exit__(self, *_: object) -> None: ...


def test_who_needs_two_takes_their_locks_in_one_order() -> None:
    """Otherwise two threads that merge the same two detectors into each other would deadlock."""
    pairs: list[tuple[Any, Any]] = [(make(name, device="cpu"), make(name, device="cpu")) for name in MERGED]
    pairs.append((bundle("a", [HOSTS], FOUR), bundle("b", [HOSTS], FOUR)))
    for one, two in pairs:
        taken: list[str] = []
        for name, each in (("one", one), ("two", two)):
            each.lock = Noted(name, taken)
            for part in getattr(each, "parts", {}).values():
                part.lock = Noted(f"part of {name}", taken)
        orders = []
        for into, other in ((one, two), (two, one)):
            taken.clear()
            into.merge(other)
            orders.append(list(dict.fromkeys(taken)))
        assert orders[0] == orders[1]
        assert set(orders[0][:2]) == {"one", "two"}
        assert set(orders[0][2:]) in (set(), {"part of one", "part of two"})


def test_every_public_method_of_a_sketch_takes_its_lock_and_those_of_its_parts(tmp_path: Path) -> None:
    for method in [*public(sh.Sketch), "__copy__", "__reduce__", "__or__", "__eq__"]:
        for of_part in (False, True):
            if (method, of_part) in {("part", True), ("kinds", True), ("kinds", False)}:
                continue  # It only looks up parts in a dict that no thread changes.
            sketch = bundle("a", [HOSTS], FOUR)
            sketch.twin = bundle("b", [HOSTS], FOUR)  # type: ignore[attr-defined]
            guarded: Any = sketch.parts[FOUR] if of_part else sketch
            guarded.lock = Trap()
            whose = "its part" if of_part else "its own"
            assert takes_lock(sketch, method, tmp_path), f"Sketch.{method} runs without the lock of {whose}"


# Scans


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write(tmp_path / "a.pcap", three_windows())


SETTINGS: dict[str, Any] = {"inner": "10.0.0.0/8", "detector": "exact", "device": "cpu", "window": "1m"}


@pytest.mark.slow
def test_threads_that_iterate_over_one_scan_share_its_windows(capture: Path) -> None:
    alone = scan(capture, **SETTINGS)
    expected = [(each.window, each.packets, each.found) for each in alone]
    for _ in range(5):
        run = scan(capture, **SETTINGS)
        # All begin before the first comes to the end: a loop that begins later reads the capture again.
        begun = [iter(run) for _ in range(3)]
        got = together(*[lambda own=own: [(each.window, each.packets, each.found) for each in own] for own in begun])
        assert sorted(each for some in got for each in some) == expected
        assert run.counters == alone.counters
        assert [(each.window, each.packets, each.found) for each in run] == expected
        assert run.counters == alone.counters


def test_threads_may_share_one_iterator(capture: Path) -> None:
    expected = [each.window for each in scan(capture, **SETTINGS)]
    windows = iter(scan(capture, **SETTINGS))
    got = together(*[lambda: [each.window for each in windows]] * 3)
    assert sorted(each for some in got for each in some) == expected


def test_a_scan_that_was_left_goes_on_for_those_who_stay(capture: Path) -> None:
    run = scan(capture, **SETTINGS)
    first, second = iter(run), iter(run)
    seen = [next(first).window]
    del first
    seen += [each.window for each in second]
    assert seen == [each.window for each in scan(capture, **SETTINGS)]


def test_a_scan_answers_while_it_runs(capture: Path) -> None:
    run = scan(capture, **SETTINGS)

    def ask() -> int:
        opened = run.open_window()
        assert opened is None or opened.end - opened.start == 60_000_000_000
        return run.counters.packets

    seen = while_others_work([ask, ask], [lambda: [*run]])
    assert max(seen) == 8840


def test_a_scan_may_be_stopped_by_any_thread(capture: Path) -> None:
    run = scan(capture, **SETTINGS)
    results = iter(run)
    next(results)
    together(run.stop, run.stop, lambda: [*results])
    assert [*results] == []
    assert [each.window for each in run] == [each.window for each in scan(capture, **SETTINGS)]  # from the beginning


# The pool


def test_the_pool_may_be_used_by_its_own_threads() -> None:
    """It runs in a separate process, because deadlocked threads would keep this one from exiting."""
    program = """
from superhosts.core.device import run_parallel

def inner(number):
    return sum(run_parallel(pow, [(number, k) for k in range(4)], 2))

print(run_parallel(inner, [(number,) for number in range(1, 9)], 2))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE)
    assert ended.stdout.split() == str([sum(n**k for k in range(4)) for n in range(1, 9)]).split()


FORKING = """
import copy, faulthandler, os, sys, threading
import numpy as np
import superhosts as sh

used, idle = sh.Cube("64KiB", device="cpu"), sh.Cube("64KiB", device="cpu")
hosts = np.arange(100, dtype=np.uint32)
for cube in (used, idle):
    cube.update(hosts, hosts)
    cube.top(1)
may_end, holds = threading.Event(), threading.Event()

def stay():
    with used.lock:  # as in the middle of an update
        holds.set()
        may_end.wait()

thread = threading.Thread(target=stay)
thread.start()
holds.wait()
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(60, exit=True)  # of a child that waits for ever
    for use in (lambda: used.update(hosts, hosts), lambda: idle.merge(used), lambda: copy.copy(used)):
        try:
            use()
        except sh.UsageError as error:
            print(error)
    idle.update(hosts, hosts + np.uint32(1))
    print(repr(used))
    print(idle.estimate(5).peers, flush=True)
    os._exit(0)
ended = os.waitpid(child, 0)
may_end.set()
thread.join()
print(ended == (child, 0), used.estimate(5).peers)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_that_is_forked_while_another_thread_works_never_waits_for_it() -> None:
    """In a separate process: a child of this one would have what threads of other packages have left half done."""
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        FORKING,
    ]  # Python warns of forks beside threads
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    *refused, shown, peers, parent = ended.stdout.splitlines()
    assert refused == [IN_USE] * 3
    assert (shown[:6], peers) == ("<super", "2")
    assert parent == "True 1"  # It goes on.
