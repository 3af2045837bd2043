"""Where the time goes: stages on threads, measured with a clock that the tests set."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from superhosts.core.profile import STAGES, Profile, Spent, Stopwatch, measured, process_age, timed, timing


class Clock:
    """A clock that stands still until it is set forward."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def test_stages_add_up_and_an_inner_stage_interrupts_the_outer_one() -> None:
    wall, cpu = Clock(), Clock()
    watch = Stopwatch(wall, cpu)
    for _ in range(2):
        with watch.measured("walk") as work:
            wall.pass_(2)
            cpu.pass_(1)
            with watch.measured("read"):
                wall.pass_(5)
            wall.pass_(1)
            work.amount += 10
    wall.pass_(4)  # in no stage
    profile = watch.profile()
    assert profile.seconds == 20
    assert profile.stages() == {"read": Spent(10, 0, 0), "walk": Spent(6, 2, 20)}
    assert list(profile.stages()) == ["read", "walk"]  # in the order of the table
    assert profile.bottleneck() == "walk"  # reading waited for a disk
    assert profile.share("walk") == 1


def test_a_stage_that_fails_is_measured_and_closed() -> None:
    clock = Clock()
    watch = Stopwatch(clock, clock)

    def fail() -> None:
        with watch.measured("walk"):
            clock.pass_(3)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    clock.pass_(1)
    with watch.measured("read"):
        clock.pass_(1)
    assert {name: spent.seconds for name, spent in watch.profile().stages().items()} == {"read": 1, "walk": 3}


def test_every_thread_has_its_own_stages() -> None:
    watch = Stopwatch()

    def work(stage: str) -> None:
        with watch.measured(stage) as measured_work:
            measured_work.amount += 1

    for name, stage in (("a", "walk"), ("b", "bin"), ("b", "walk")):  # two threads of one name are added up
        thread = threading.Thread(target=work, args=(stage,), name=name)
        thread.start()
        thread.join()
    threads = watch.profile().threads
    assert {name: {stage: spent.amount for stage, spent in stages.items()} for name, stages in threads.items()} == {
        "a": {"walk": 1},
        "b": {"bin": 1, "walk": 1},
    }


def test_nothing_is_measured_unless_somebody_asks() -> None:
    @timed("bin", amount=lambda result, number: result + number)
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    with timing() as watch:
        assert double(5) == 10
        with measured("walk") as work:
            work.amount += 3
        with timing() as inner:
            double(1)
    assert double(6) == 12
    with measured("walk") as work:
        work.amount += 7
    amounts = {name: spent.amount for name, spent in watch.profile().stages().items()}
    assert amounts == {"walk": 3, "bin": 15}
    assert inner.profile().stages()["bin"].amount == 3


def test_the_start_counts_from_the_start_of_the_process() -> None:
    clock = Clock()
    watch = Stopwatch(clock, clock)
    clock.pass_(1)
    watch.add_start(4)  # the process began three seconds before the stopwatch
    clock.pass_(2)
    profile = watch.profile()
    assert profile.seconds == 6
    assert profile.stages() == {"start": Spent(4, 101)}  # the processor time of the thread until now


def test_the_age_of_a_process() -> None:
    before = time.monotonic()
    code = "from superhosts.core.profile import process_age; print(process_age())"
    age = float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert 0 <= age <= time.monotonic() - before + 0.1  # the system counts in hundredths
    assert process_age() > 0


def test_json_has_stages_threads_and_amounts() -> None:
    waiting = Profile(4.0, {"a": {"wait": Spent(3.0, 3.0), "walk": Spent(1.0, 1.0)}})
    assert (waiting.bottleneck(), Profile(4.0, {}).bottleneck()) == ("walk", None)
    profile = Profile(2.0, {"a": {"walk": Spent(1.0, 0.5, 30)}, "b": {"restore": Spent(0.25, 0.25)}})
    assert profile.as_json() == {
        "seconds": 2.0,
        "bottleneck": "walk",
        "stages": {
            "walk": {"seconds": 1.0, "cpu_seconds": 0.5, "share": 0.6667, "packets": 30},
            "restore": {"seconds": 0.25, "cpu_seconds": 0.25, "share": 0.3333},
        },
        "threads": {"a": {"walk": 1.0}, "b": {"restore": 0.25}},
    }
    assert set(STAGES) >= {"start", "read", "inflate", "walk", "pairs", "bin", "write", "restore", "report", "wait"}
