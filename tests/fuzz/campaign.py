"""One target, fuzzed in this process until a case fails. `python -m fuzz` starts it as a child.

The case that runs lies in a file, so that it is known whatever ends this process: an error (hypothesis runs the
smallest case that fails last), a crash, or faulthandler, which ends a case after `HANG` seconds and writes where all
threads were.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import marshal
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from numba.core import event

from fuzz.targets import Target, load

HANG = 60.0  # seconds that one case may take
ADDRESS_SPACE = 16 << 30  # bytes
LARGEST_FILE = 1 << 30
ROUND = 500  # cases that hypothesis makes in one go; it remembers all of them
COMPILING = 20  # cases after which everything should be compiled
SHORT = 10.0  # seconds of a round, where that is fewer
WARM_UP = 0.3  # share of the time after which memory should no longer grow
LEAK = 64 << 20  # bytes by which memory may grow after the warm-up
TITLE = f"{'target':14} {'executions':>11} {'per second':>11} {'grown':>9}"
CURRENT = "current"
GREW = 9  # status of a campaign whose memory grew; one that failed or hung ends with 1


class Campaign(event.Listener):
    def __init__(self, target: Target, folder: Path, *, hang: float = HANG) -> None:
        self.target, self.executions, self.began = target, 0, time.monotonic()
        self._hang = hang
        self._compiling = 0  # compiling one function compiles those that it calls
        self._current = os.open(folder / CURRENT, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def guard(self) -> None:
        """Write where all threads are when this process crashes, and do not count compiling as a part of a case."""
        faulthandler.enable(sys.__stderr__)
        event.register("numba:compile", self)

    def on_start(self, event: Any) -> None:
        """Leave numba the time that it needs to compile."""
        self._compiling += 1
        faulthandler.cancel_dump_traceback_later()

    def on_end(self, event: Any) -> None:
        self._compiling -= 1
        if not self._compiling:
            self._watch()

    def _watch(self) -> None:
        faulthandler.dump_traceback_later(self._hang, exit=True, file=sys.__stderr__)

    def run_case(self, case: Any) -> None:
        packed = marshal.dumps(case)
        os.pwrite(self._current, packed, 0)
        os.ftruncate(self._current, len(packed))
        self._watch()
        try:
            self.target.check(case)
        finally:
            faulthandler.cancel_dump_traceback_later()
            self.executions += 1

    def run_round(self, number: int, examples: int) -> None:
        """Let hypothesis make so many cases, and shrink one that fails."""
        phases = (Phase.generate, Phase.target, Phase.shrink)
        wide = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        run = settings(wide, phases=phases)(given(case=self.target.cases)(lambda case: self.run_case(case)))
        seed(number)(run)()

    def run(self, number: int, cases: int, seconds: float) -> int:
        """Run so many cases, or if 0 for some time. Return the bytes by which memory grew after the warm-up."""
        if not cases:
            self.run_round(number, COMPILING)
            number += 1
        self.executions, self.began, warm = 0, time.monotonic(), 0
        for examples in self._rounds(cases, seconds):
            self.run_round(number, examples)
            number += 1
            if not cases and not warm and self.spent > WARM_UP * seconds:
                warm = _memory()
        return max(0, _memory() - warm) if warm else 0

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    def _rounds(self, cases: int, seconds: float) -> Iterator[int]:
        """Yield how many cases each round has."""
        yield from (min(ROUND, cases - done) for done in range(0, cases, ROUND))
        while not cases and self.spent < seconds:
            yield int(min(max(self.executions / self.spent * SHORT, 20), ROUND))


def _memory() -> int:
    gc.collect()
    with contextlib.suppress(AttributeError):  # what the C library keeps for later is not a leak
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(name: str, folder: str, number: str, cases: str, seconds: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    campaign, grown = Campaign(load(name), Path(folder)), 0
    campaign.guard()
    try:
        grown = campaign.run(int(number) * 1000, int(cases), float(seconds))
    finally:
        size, rate = f"{grown / 2**20:.1f} MiB", campaign.executions / campaign.spent
        print(f"{name:14} {campaign.executions:11,} {rate:11.0f} {size:>9}")
    if grown > LEAK:
        print(f"  memory grew by {grown >> 20} MiB after the warm-up")
        sys.exit(GREW)


if __name__ == "__main__":
    main(*sys.argv[1:])
