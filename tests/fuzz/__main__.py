"""The driver: `python -m fuzz --minutes 5 --seed 1`. See the package's own words for how to use it."""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuzz.campaign import CURRENT, OUTCOME, STACKS, Failure, Outcome, save
from fuzz.targets import NAMES, load
from isolation import isolate

ROOT = Path(__file__).parents[2]
FAILURES = ROOT / "fuzz-failures"
# Code with bounds checks must not get into the caches of normal runs.
BOUNDS_CHECKS = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(ROOT / ".fuzz-cache")}
LEAK = 64 << 20  # bytes by which memory may grow after the warm-up


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets together; compiling comes on top")
    parser.add_argument(
        "--cases", type=int, help="so many of each target, the same on every machine, instead of minutes"
    )
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other cases")
    parser.add_argument("--target", action="append", help="only this one; repeatable")
    parser.add_argument("--replay", type=Path, help="check the case of this file again")
    options = parser.parse_args()
    isolate()
    if options.replay:
        return replay(options.replay)
    chosen = options.target or NAMES
    if unknown := set(chosen) - set(NAMES):
        parser.error(f"--target {', '.join(sorted(unknown))}: one of {', '.join(NAMES)}")
    print(f"{'target':14} {'executions':>11} {'per second':>11} {'grown':>9}  failures", flush=True)
    failed = False
    for name in chosen:
        if options.cases:
            outcome = run_process(name, options.seed, "--cases", str(options.cases))
        else:
            outcome = run(name, 60 * options.minutes / len(chosen), options.seed)
        tell(name, outcome)
        failed |= bool(outcome.failures)
    if failed:
        print("replay: cd tests && python -m fuzz --replay FILE")
    return int(failed)


def tell(name: str, outcome: Outcome) -> None:
    if outcome.grown > LEAK:
        outcome.failures[name] = f"memory grew by {outcome.grown >> 20} MiB after the warm-up"
    rate, grown = outcome.executions / (outcome.seconds or 1.0), f"{outcome.grown / 2**20:.1f} MiB"
    counts = f"{outcome.executions:11,} {rate:11.0f} {grown:>9}  {len(outcome.failures)}"
    print(f"{name:14} {counts}", flush=True)
    for path, text in outcome.failures.items():
        print(f"  {path}: {text}", flush=True)


def run(name: str, seconds: float, seed: int) -> Outcome:
    """Run one target; where a case ends its process, save that case and start another process for the rest."""
    whole = Outcome()
    while whole.seconds < seconds:
        began = time.monotonic()
        outcome = run_process(name, seed, "--seconds", str(seconds - whole.seconds))
        whole.executions += outcome.executions
        whole.grown = max(whole.grown, outcome.grown)
        whole.failures |= outcome.failures
        whole.seconds += outcome.seconds or time.monotonic() - began
        seed += 1_000_000
    return whole


def run_process(name: str, seed: int, *limits: str) -> Outcome:
    """Run one target in a process of its own, with its files in memory where the machine has such a place."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # most checks sync files
    with tempfile.TemporaryDirectory(prefix="superhosts-fuzz-", dir=memory) as folder:
        environment = {**os.environ, "TMPDIR": folder, **BOUNDS_CHECKS}
        command = [sys.executable, "-m", "fuzz.campaign", name, "--folder", folder, "--failures", str(FAILURES)]
        command += ["--seed", str(seed), *limits]
        ended = subprocess.run(command, env=environment, cwd=ROOT / "tests", check=False)
        outcome, current = Path(folder, OUTCOME), Path(folder, CURRENT)
        if outcome.exists():
            return Outcome(**json.loads(outcome.read_text()))
        if not current.exists() or not current.stat().st_size:
            return Outcome(seconds=math.inf, failures={name: f"no case ran; status {ended.returncode}"})
        stacks = Path(folder, STACKS).read_text()
        path = save(name, Failure(current.read_bytes(), f"status {ended.returncode}\n{stacks}"), FAILURES)
        why = "hangs" if "Timeout" in stacks else f"ends the process with status {ended.returncode}"
        return Outcome(failures={str(path): why})


def replay(path: Path) -> int:
    name = path.name.rpartition("-")[0]
    load(name).check(ast.literal_eval(path.read_text(encoding="utf-8")))
    print(f"{path}: passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
