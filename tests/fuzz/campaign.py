"""One target, fuzzed for some time in this process. `python -m fuzz` starts it as a child.

The case that is running lies in a file, so that it is known even when it ends this process: by a crash, or because
faulthandler ends it after `HANG` seconds and writes where all threads were.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import hashlib
import marshal
import os
import resource
import sys
import time
import traceback
from dataclasses import dataclass
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
TITLE = f"{'target':14} {'executions':>11} {'per second':>11} {'grown':>9}  failures"
CURRENT, STACKS = "current", "stacks"
FOUND = 9  # status of a campaign with failures; one that hangs ends with 1


@dataclass
class Failure:
    case: bytes  # marshalled
    text: str

    @property
    def name(self) -> str:
        return hashlib.blake2b(self.case, digest_size=4).hexdigest()


class Guard(event.Listener):
    """Knows the case that runs, whatever becomes of this process, and ends one that hangs."""

    def __init__(self, folder: Path, *, hang: float = HANG) -> None:
        self._hang = hang
        self._compiling = 0  # compiling one function compiles those that it calls
        self._current = os.open(folder / CURRENT, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._stacks = (folder / STACKS).open("w")
        faulthandler.enable(self._stacks)
        event.register("numba:compile", self)

    def begin(self, case: bytes) -> None:
        os.pwrite(self._current, case, 0)
        os.ftruncate(self._current, len(case))
        self._watch()

    def end(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def on_start(self, event: Any) -> None:
        """Leave numba the time that it needs to compile."""
        self._compiling += 1
        faulthandler.cancel_dump_traceback_later()

    def on_end(self, event: Any) -> None:
        self._compiling -= 1
        if not self._compiling:
            self._watch()

    def _watch(self) -> None:
        faulthandler.dump_traceback_later(self._hang, exit=True, file=self._stacks)


class Campaign:
    """Runs cases of one target, counts them, and keeps the smallest case of every kind of failure."""

    def __init__(self, target: Target, guard: Guard | None = None) -> None:
        self.target = target
        self.executions, self.began = 0, time.monotonic()
        self.failures: dict[tuple[str, ...], Failure] = {}
        self._guard = guard

    def run_case(self, case: Any) -> None:
        packed = marshal.dumps(case)
        if self._guard:
            self._guard.begin(packed)
        try:
            self.target.check(case)
        except Exception as error:
            kind, failure = _kind_of(error), Failure(packed, "".join(traceback.format_exception(error)))
            if kind not in self.failures or len(packed) <= len(self.failures[kind].case):
                self.failures[kind] = failure
            raise
        finally:
            if self._guard:
                self._guard.end()
            self.executions += 1

    def run_round(self, number: int, examples: int) -> None:
        """Let hypothesis make so many cases, and shrink those that fail."""
        phases = (Phase.generate, Phase.target, Phase.shrink)
        wide = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        run = settings(wide, phases=phases)(given(case=self.target.cases)(lambda case: self.run_case(case)))
        try:
            seed(number)(run)()
        except Exception as error:
            if not self.failures:  # of hypothesis itself, or of a strategy
                raise SystemExit(f"{self.target.name}: no case could be made: {error!r}"[:1000]) from None

    def run_for(self, seconds: float, number: int) -> int:
        """Run rounds until the time is over. Return the bytes by which memory grew after the warm-up."""
        self.run_round(number, COMPILING)
        self.executions, self.began, spent, warm = 0, time.monotonic(), 0.0, 0
        while spent < seconds:
            number += 1
            rate = self.executions / spent if spent else 0.0
            self.run_round(number, int(min(max(rate * SHORT, 20), ROUND)))
            spent = time.monotonic() - self.began
            if not warm and spent > WARM_UP * seconds:
                warm = _memory()
        return max(0, _memory() - warm)

    def run_cases(self, cases: int, number: int) -> int:
        for left in range(cases, 0, -ROUND):
            self.run_round(number, min(left, ROUND))
            number += 1
        return 0


def _kind_of(error: BaseException) -> tuple[str, ...]:
    """Return what tells one defect from another: the type of error and the place that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return type(error).__name__, last.filename, str(last.lineno)


def _memory() -> int:
    gc.collect()
    with contextlib.suppress(AttributeError):  # what the C library keeps for later is no leak
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def save(target: str, failure: Failure, folder: Path) -> Path:
    """Write a failing case down: the literal first, then what happened, as comments."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{failure.name}.txt"
    comments = "".join(f"# {line}\n" for line in failure.text.splitlines())
    path.write_text(f"{marshal.loads(failure.case)!r}\n{comments}", encoding="utf-8", errors="backslashreplace")
    return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--cases", type=int, help="so many, however long they take")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--failures", type=Path, required=True)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    guard = Guard(options.folder)

    campaign, number = Campaign(load(options.target), guard), options.seed * 1_000
    if options.cases:
        grown = campaign.run_cases(options.cases, number)
    else:
        grown = campaign.run_for(options.seconds, number)
    rate = campaign.executions / (time.monotonic() - campaign.began)
    problems = [f"memory grew by {grown >> 20} MiB after the warm-up"] if grown > LEAK else []
    for failure in campaign.failures.values():
        path = save(options.target, failure, options.failures)
        problems.append(f"{path}: {failure.text.strip().splitlines()[-1][:200]}")
    size = f"{grown / 2**20:.1f} MiB"
    print(f"{options.target:14} {campaign.executions:11,} {rate:11.0f} {size:>9}  {len(problems)}")
    print("".join(f"  {problem}\n" for problem in problems), end="")
    sys.exit(FOUND if problems else 0)


if __name__ == "__main__":
    main()
