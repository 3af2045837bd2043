"""What a run is expected to use is compiled on all cores, and loops in a wheel are used where they fit."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import types

from superhosts.jit import ahead, cache, compilation
from superhosts.jit.ahead import Loop, Record
from superhosts.jit.compilation import MODE, NEVER

INT = '["int64"]'
LOOPS = """
from superhosts.jit.cache import compiled

@compiled
def first(x):
    return x + {step}

@compiled
def second(x):
    return x + {step} * 10
"""


def loop(name: str) -> Loop:
    return Loop(f"toys.{name}", INT)


ONE, TWO, THREE, FOUR = map(loop, ("one:first", "one:second", "two:first", "two:second"))


class Toys:
    """A package of two modules with loops, and a record of runs that use them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "toys"
        self.folder.mkdir()
        (self.folder / "__init__.py").touch()
        for step, name in enumerate(("one", "two")):
            (self.folder / f"{name}.py").write_text(LOOPS.format(step=step + 1))
        self.forget()

    def forget(self) -> None:
        """Be as in a new process."""
        ahead._run = ahead.Run()
        for name in [name for name in sys.modules if name.partition(".")[0] == "toys"]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def call(self, each: Loop) -> int:
        module, _, name = each.name.partition(":")
        return getattr(importlib.import_module(module), name)(5)  # type: ignore[no-any-return]

    @property
    def kept(self) -> set[str]:
        names = (path.name.split(".")[1:3] for path in self.folder.rglob("*.code"))
        return {":".join(each) for each in names}


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toys]:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")  # keep the machine code next to the source
    monkeypatch.setattr(ahead, "_run", ahead.Run())
    monkeypatch.setattr(ahead, "_cores", lambda: 2)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(MODE, "kept")
    runs = [(frozenset({"scan"}), frozenset({ONE, TWO, THREE})), (frozenset({"merge"}), frozenset({ONE, FOUR}))]
    known = Record(dict.fromkeys((ONE, TWO, THREE, FOUR), ahead.MIN_SECONDS), runs)
    monkeypatch.setattr(ahead, "record", lambda: known)
    made = Toys(tmp_path)
    yield made
    made.forget()


def use(*loops: Loop) -> None:
    for each in loops:
        ahead.note_use(lambda each=each: each)  # type: ignore[misc]


def test_what_the_runs_that_are_most_alike_have_used_is_expected(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.begin_run("scan")
    assert ahead.expected() == {ONE, TWO, THREE}
    use(ONE, TWO)
    assert ahead.expected() == {THREE}
    use(FOUR)  # no run has used all of these
    assert ahead.expected() == {THREE}
    ahead.begin_run()
    use(ONE)  # both runs have, and no word tells which it is
    assert ahead.expected() == set()
    monkeypatch.setattr(ahead, "record", lambda: Record({}, []))
    assert ahead.expected() == set()


def test_the_first_loop_of_a_run_is_compiled_with_the_others(toys: Toys) -> None:
    ahead.begin_run("scan")
    assert toys.call(ONE) == 6
    assert toys.kept == {"one:first", "one:second", "two:first"}
    assert (toys.call(TWO), toys.call(THREE)) == (15, 7)


def test_what_is_on_disk_is_not_compiled_again(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ahead, "_cores", lambda: 1)
        toys.call(ONE)
    assert toys.kept == {"one:first"}
    (before,) = (path.stat().st_mtime_ns for path in toys.folder.rglob("*.code"))
    toys.forget()
    ahead.begin_run("scan")
    toys.call(TWO)
    assert toys.kept == {"one:first", "one:second", "two:first"}
    (after,) = (path.stat().st_mtime_ns for path in toys.folder.rglob("toys.one.first*.code"))
    assert after == before


@pytest.mark.parametrize("obstacle", ["one core", "quick", "one module", "not recorded", "never", "a worker", "ready"])
def test_no_process_is_started_where_that_is_of_no_use(
    toys: Toys, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    ahead.begin_run("scan")
    known = ahead.record()
    if obstacle == "one core":
        monkeypatch.setattr(ahead, "_cores", lambda: 1)
    elif obstacle == "quick":
        monkeypatch.setattr(ahead, "record", lambda: known._replace(seconds=dict.fromkeys(known.seconds, 0.1)))
    elif obstacle == "not recorded":
        monkeypatch.setattr(ahead, "record", lambda: known._replace(seconds={}))
    elif obstacle == "one module":
        monkeypatch.setattr(ahead, "record", lambda: known._replace(runs=[(frozenset(), frozenset({ONE, TWO}))]))
    elif obstacle == "a worker":
        ahead.use_one_process()
    elif obstacle == "ready":
        monkeypatch.setattr(compilation._work, "late", lambda *_: None)
    else:
        monkeypatch.setenv(MODE, NEVER)
        with pytest.raises(RuntimeError, match=r"first has to be compiled, although"):
            toys.call(ONE)
        assert toys.kept == set()
        return
    assert toys.call(ONE) == 6
    assert toys.kept == {"one:first"}


@pytest.mark.parametrize("worker", ["raise SystemExit", "import time; time.sleep(0.2); raise SystemExit(1)"])
def test_what_a_worker_does_not_compile_is_left_to_the_run(
    toys: Toys, monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    monkeypatch.setattr(ahead, "WORKER", worker)
    ahead.begin_run("scan")
    assert (toys.call(ONE), toys.call(TWO), toys.call(THREE)) == (6, 15, 7)
    assert toys.kept == {"one:first", "one:second", "two:first"}


@pytest.mark.parametrize("python", ["/nowhere/python", None])
def test_where_no_process_can_be_started_this_one_compiles(
    toys: Toys, monkeypatch: pytest.MonkeyPatch, python: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr(sys, "path", [Path("ignored"), *sys.path])
    ahead.begin_run("scan")
    assert toys.call(ONE) == 6
    assert toys.kept == {"one:first", "one:second", "two:first"}


def test_people_are_told_how_much_is_compiled_and_what_is_left(toys: Toys) -> None:
    said: list[str] = []
    compilation.before_compiling(said.append, None, said.append)
    ahead.begin_run("scan")
    try:
        toys.call(ONE)
    finally:
        compilation.before_compiling(lambda _: None)
    assert said[0] == "3 loops on 2 cores, about 5 s"
    assert said[1] == "compiling on 2 cores: 3 to go, about 5 s"
    assert said[-1] == ""


def test_all_loops_of_the_record_are_compiled_for_a_wheel(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = Loop("toys.of_an_extra:loop", INT)
    known = ahead.record()
    monkeypatch.setattr(ahead, "record", lambda: known._replace(seconds={**known.seconds, lacking: 1.0}))
    assert len(cache.missing_loops()) == 4
    assert cache.compile_all() == []
    assert toys.kept == {"one:first", "one:second", "two:first", "two:second"}


def test_a_wheel_lacks_nothing_because_a_worker_has_ended(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "WORKER", "input()")
    assert cache.compile_all() == []
    assert toys.kept == {"one:first", "one:second", "two:first", "two:second"}


def test_loops_are_looked_for_while_other_threads_import(toys: Toys) -> None:
    toys.call(ONE)
    first, over = sys.modules["toys.one"].first, threading.Event()

    def change() -> None:
        while not over.is_set():
            for number in range(500):
                sys.modules[f"toys.made{number}"] = sys
            for number in range(500):
                del sys.modules[f"toys.made{number}"]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(2000):
            assert cache._loop_of(first, (types.int64,)) == ONE
    finally:
        over.set()
        thread.join()


def test_threads_that_use_a_loop_at_once_load_it_once(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.call(ONE)
    toys.forget()
    loads: list[object] = []
    find = cache._Cache.find
    monkeypatch.setattr(cache._Cache, "find", lambda *given: (loads.append(1), find(*given))[1])
    first = importlib.import_module("toys.one").first
    barrier = threading.Barrier(8)
    threads = [threading.Thread(target=lambda: (barrier.wait(), first(5))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(loads) == 1


def test_a_child_that_is_forked_while_a_thread_compiles_can_load(toys: Toys) -> None:
    toys.call(ONE)
    toys.forget()
    first, holds, may_end = importlib.import_module("toys.one").first, threading.Event(), threading.Event()

    def hold() -> None:
        with cache.global_compiler_lock:
            holds.set()
            may_end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(first(5))
    may_end.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6


def test_code_of_the_package_is_used_at_the_best_level_of_the_processor(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "SHIPPED", shipped := tmp_path / "code")
    monkeypatch.setattr(cache, "LEVELS", {})  # as on an architecture with one level
    cache.shipped_levels.cache_clear()
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import toys.one; toys.one.first(5)"
    made = tmp_path / "made"
    environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(made)}
    os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-c", program], {**os.environ, **environment})
    (shipped / "generic").mkdir(parents=True)
    (code,) = made.rglob("*.code")
    shutil.copy(code, shipped / "generic")
    (shipped / "generic" / code.name).chmod(0o666)  # as trusted as the modules of the package beside it
    try:
        monkeypatch.setenv(MODE, NEVER)
        assert toys.call(ONE) == 6
        first = sys.modules["toys.one"].first
        assert first.stats.cache_hits
        (toys.folder / "one.py").write_text(LOOPS.format(step=2))
        toys.forget()
        with pytest.raises(RuntimeError, match="first has to be compiled"):  # That code is of another function.
            toys.call(ONE)
    finally:
        cache.shipped_levels.cache_clear()


@pytest.mark.parametrize(
    ("features", "best"),
    [
        ("sse3 ssse3 sse4.1 sse4.2 popcnt cx16 sahf", "x86-64-v2"),
        ("sse3 ssse3 sse4.1 sse4.2 popcnt cx16 sahf avx avx2 bmi bmi2 f16c fma lzcnt movbe", "x86-64-v3"),
        ("sse3", None),
        ("avx avx2 bmi bmi2 f16c fma lzcnt movbe", None),
    ],
)
def test_levels_of_processors(features: str, best: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in cache.LEVELS["x86_64"]:
        (tmp_path / level).mkdir()
    monkeypatch.setattr(cache, "SHIPPED", tmp_path)
    monkeypatch.setattr(cache.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(cache.llvm, "get_host_cpu_features", lambda: dict.fromkeys(features.split(), True))
    cache.shipped_levels.cache_clear()
    try:
        assert (cache.shipped_levels() or (None,))[0] == best
    finally:
        cache.shipped_levels.cache_clear()


class Shape(NamedTuple):
    width: Any
    height: Any


def test_types_are_those_that_were_described() -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    values = (
        *(1, 2.5, True, None, np.uint8(1), np.uint64(1), np.int32(1)),
        *(np.zeros(3), frozen, np.zeros((3, 4), np.uint32), np.zeros((3, 4))[:, ::2], np.zeros(3, bool)),
        *((), (1, 2), (1, 2.5), (np.zeros(3), (1, True)), Shape(1, 2), Shape(1, np.zeros(3)), (Shape(1, 2), 3)),
    )
    signature = (*map(numba.typeof, values), types.Omitted(5), types.Omitted(None), types.Omitted(False))
    described = cache._describe_types(signature)
    assert cache._types_of(described) == signature
    assert len({json.dumps(each) for each in json.loads(described)}) == len(set(signature))


@pytest.mark.parametrize("each", [types.unicode_type, types.List(types.int64), types.Omitted((1, 2))])
def test_types_that_cannot_be_described(each: Any) -> None:
    assert cache._describe_types((types.int64, each)) is None
    assert cache._describe_types((types.Tuple((types.int64, each)),)) is None


def test_the_record_names_loops_that_exist() -> None:
    known = ahead.record()
    assert known.seconds
    assert all(used <= known.seconds.keys() for _, used in known.runs)
    for each in known.seconds:
        signature = cache._types_of(each.types)
        assert cache._describe_types(signature) == each.types
        inspect.signature(cache._object_named(each.name).py_func).bind(*signature)
