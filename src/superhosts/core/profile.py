"""Where the time of a run goes: seconds by stage, on each thread; and histograms of one kind of work (`Durations`).

    @timed("walk", amount=lambda packets, *_: packets)  # anywhere; or, around some lines: with measured("walk"):
    def walk(block): ...

    with timing() as watch:
        ...  # calls `walk` on any number of threads
    profile = watch.profile()

Nothing is measured unless a `timing` is open. Then a stage reads two clocks as it begins and ends: measure blocks of
packets, never packets. A stage inside another one interrupts it, so that the seconds of a thread are never counted
twice. Every thread writes to a record of its own, and nothing is locked.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds


class Durations:
    """Seconds of one kind of work."""

    def __init__(self) -> None:
        self.seconds = 0.0  # in all
        self.counts = [0] * (len(BOUNDS) + 1)  # by bound; the last is for what takes longer

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    @contextmanager
    def measured(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.add(time.perf_counter() - begun)

    def cumulated(self) -> list[tuple[str, float]]:
        """Return how often the work took at most each bound, the last for any time: as Prometheus counts."""
        return list(zip((*map(str, BOUNDS), "+Inf"), map(float, accumulate(self.counts)), strict=True))


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

STAGES = {  # in the order of the table, with the unit of the amount
    "start": "",  # from the start of the process to the first input
    "read": "bytes",
    "inflate": "bytes",  # decompressed
    "read and walk": "packets",  # of pieces of a file, in one compiled loop
    "walk": "packets",
    "parse": "rows",  # of tables
    "contacts": "packets",  # who opened
    "evidence": "packets",  # the sample of pairs
    "pairs": "packets",
    "bin": "pairs",
    "write": "pairs",  # into the set of exact pairs, or into columns
    "restore": "",
    "report": "",
    "wait": "",  # for another thread
}
WAITING = "wait"

_imported = time.perf_counter()


@dataclass(slots=True)
class Spent:
    seconds: float = 0.0
    cpu: float = 0.0  # seconds in which the thread ran
    amount: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.cpu + other.cpu, self.amount + other.amount)


class Profile(NamedTuple):
    seconds: float
    threads: dict[str, dict[str, Spent]]

    def stages(self) -> dict[str, Spent]:
        each = {name: [spent[name] for spent in self.threads.values() if name in spent] for name in STAGES}
        return {name: sum(parts, Spent()) for name, parts in each.items() if parts}

    def share(self, stage: str) -> float:
        """Return the share of a stage in the processor time of all threads: waiting, also for a disk, is not work."""
        stages = self.stages()
        work = sum(spent.cpu for name, spent in stages.items() if name != WAITING)
        return stages[stage].cpu / work if work else 0.0

    def bottleneck(self) -> str | None:
        stages = {name: spent.cpu for name, spent in self.stages().items() if name != WAITING}
        return max(stages, key=lambda name: stages[name], default=None)

    def as_json(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 6),
            "bottleneck": self.bottleneck(),
            "stages": {
                name: {
                    "seconds": round(spent.seconds, 6),
                    "cpu_seconds": round(spent.cpu, 6),
                    **({"share": round(self.share(name), 4)} if name != WAITING else {}),
                    **({STAGES[name]: spent.amount} if spent.amount else {}),
                }
                for name, spent in self.stages().items()
            },
            "threads": {
                thread: {name: round(stages[name].seconds, 6) for name in STAGES if name in stages}
                for thread, stages in self.threads.items()
            },
        }


@dataclass(slots=True)
class _Record:
    thread: str
    stages: dict[str, Spent] = field(default_factory=dict)
    open: list[Spent] = field(default_factory=list)  # the stage it is in, and around it those that are interrupted
    seconds: float = 0.0  # the clocks when the thread last began or ended a stage
    cpu: float = 0.0


class Stopwatch:
    """Collects what threads spend on stages."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, cpu_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._began = clock()
        self._before = 0.0  # seconds before this stopwatch began
        self._records: list[_Record] = []
        self._mine = threading.local()

    @contextmanager
    def measured(self, stage: str) -> Iterator[Spent]:
        """Add the time of the context to a stage of the calling thread; the caller adds to the amount."""
        record = self._record()
        spent = record.stages.setdefault(stage, Spent())
        self._advance(record)
        record.open.append(spent)
        try:
            yield spent
        finally:
            self._advance(record)
            record.open.pop()

    def add_start(self, seconds: float) -> None:
        """Add the seconds from the start of the process until now as the stage `start` of the calling thread."""
        self._before = seconds - (self._clock() - self._began)
        started = self._record().stages.setdefault("start", Spent())
        started.seconds, started.cpu = started.seconds + seconds, started.cpu + self._cpu_clock()

    def profile(self) -> Profile:
        """Return what was spent so far. Threads that have the same name are added up."""
        threads: dict[str, dict[str, Spent]] = {}
        for record in list(self._records):
            stages = threads.setdefault(record.thread, {})
            for name, spent in list(record.stages.items()):
                stages[name] = stages.get(name, Spent()) + spent
        return Profile(self._before + self._clock() - self._began, threads)

    def _record(self) -> _Record:
        record: _Record | None = getattr(self._mine, "record", None)
        if record is None:
            record = self._mine.record = _Record(threading.current_thread().name)
            self._records.append(record)
        return record

    def _advance(self, record: _Record) -> None:
        """Add the time since the last call to the stage in which the calling thread is."""
        seconds, cpu = self._clock(), self._cpu_clock()
        if record.open:
            record.open[-1].seconds += seconds - record.seconds
            record.open[-1].cpu += cpu - record.cpu
        record.seconds, record.cpu = seconds, cpu


_IDLE = nullcontext(Spent())
_running: Stopwatch | None = None


def measured(stage: str) -> AbstractContextManager[Spent]:
    """Return a context that adds its time to a stage, if anybody measures."""
    watch = _running  # read once: another thread may end the measurement
    return _IDLE if watch is None else watch.measured(stage)


def timed(
    stage: str, amount: Callable[..., int] | None = None
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Make the calls of a function a stage. `amount` gets what it returned, then its arguments."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
            watch = _running
            if watch is None:
                return function(*arguments, **options)
            with watch.measured(stage) as work:
                result = function(*arguments, **options)
                if amount is not None:
                    work.amount += amount(result, *arguments)
                return result

        return call

    return decorate


@contextmanager
def timing() -> Iterator[Stopwatch]:
    global _running
    before, _running = _running, Stopwatch()
    try:
        yield _running
    finally:
        _running = before


def process_age() -> float:
    """Return the seconds since this process began; where the system does not tell, since this module was loaded."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return time.perf_counter() - _imported
