"""Settings for all tests, and a fixture that runs the command line."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from isolation import isolate
from warming import concerns_a_rival, warm_up

if TYPE_CHECKING:
    from commands import Run
    from livescans import Pipes, Start


# A shell that runs tests in the background (`nohup`, `&`) ignores these signals, and child processes inherit that.
for _number, _usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

# Tests start hundreds of processes: without bytecode on disk, each of them would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tables fit the width that is given here, and what starts the tests (pytest-xdist) gives its own terminal's.
os.environ.pop("COLUMNS", None)
if os.environ.get("TERM") in ("dumb", "unknown"):  # on which nothing is drawn
    del os.environ["TERM"]

# Workers and processes share the cores, so a thread of linear algebra for every core would only get in their way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

isolate()  # Tests of the user's own key take `own_file`.

# GPU kernels run under numba's simulator, even on a machine with a GPU; `make test-gpu` uses the real one. numba reads
# this variable when it is first imported.
if "SUPERHOSTS_TEST_GPU" not in os.environ:
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    import simulator

    simulator.mend()

SPREAD = ("test_chaos", "test_fleet", "test_hub_process")  # files whose tests mostly start processes and wait for them

# The first call of a compiled function may compile for seconds, so no test has a deadline. A machine with other work
# makes inputs slowly: that is not a failure. Nor is a folder that several cases of a test share. `make test-all` takes
# the thorough profile.
for _profile, _examples in (("quick", 15), ("thorough", 100)):
    settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
settings.load_profile("quick")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers: more than there are cores, because many tests mostly wait for processes."""
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file in one worker of a parallel run: they share fixtures and what is cached in memory.

    Files of long tests that share nothing are spread over all workers, test by test.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return nodeid if Path(path).name.startswith(SPREAD) else path

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by `-m`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of all detectors are slow ones for rivals. Begin with tests that are spread over workers.

    So no long one begins when the rest is done.
    """
    for item in items:
        if hasattr(item, "callspec") and concerns_a_rival(item.callspec.params.values()):
            item.add_marker("slow")
    items.sort(key=lambda item: not item.path.name.startswith(SPREAD))


# Modules and collected tests are not garbage, but there are so many of them that examining them takes seconds.
gc.disable()


def pytest_collection_finish() -> None:
    """Hide what is loaded and collected from the garbage collector, then let it work."""
    gc.freeze()
    gc.enable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile before the workers of a parallel run start, only in the process that starts them."""
    if session.config.getoption("numprocesses", None) and not hasattr(session.config, "workerinput"):
        warm_up()


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    from faults import FakeStdin

    return lambda data: monkeypatch.setattr(sys, "stdin", FakeStdin(data))


@pytest.fixture
def pipe() -> Iterator[Pipes]:
    from livescans import pipes

    with pipes() as make:
        yield make


@pytest.fixture
def live() -> Iterator[Start]:
    from livescans import live_scans

    with live_scans() as start:
        yield start


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of the user's own key, of a user who has no key yet, neither in a file nor in the environment."""
    monkeypatch.delenv("SUPERHOSTS_KEY")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    return tmp_path / "configuration" / "superhosts" / "key"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    from commands import Ended
    from superhosts import cli

    def call(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["superhosts", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call
