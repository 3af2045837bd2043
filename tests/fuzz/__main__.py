"""The driver: `python -m fuzz --minutes 5 --seed 1`. See the package's own words for how to use it."""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz.campaign import CURRENT, FOUND, STACKS, TITLE, Failure, save
from fuzz.targets import NAMES, load
from isolation import isolate

ROOT = Path(__file__).parents[2]
FAILURES = ROOT / "fuzz-failures"
# Code with bounds checks must not get into the caches of normal runs.
BOUNDS_CHECKS = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(ROOT / ".fuzz-cache")}


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
        name = options.replay.name.rpartition("-")[0]
        load(name).check(ast.literal_eval(options.replay.read_text(encoding="utf-8")))
        print(f"{options.replay}: passes")
        return 0
    chosen = options.target or NAMES
    if unknown := set(chosen) - set(NAMES):
        parser.error(f"--target {', '.join(sorted(unknown))}: one of {', '.join(NAMES)}")
    limits = (
        ["--cases", str(options.cases)] if options.cases else ["--seconds", str(60 * options.minutes / len(chosen))]
    )
    print(TITLE, flush=True)
    passed = [run_process(name, options.seed, *limits) for name in chosen]
    if not all(passed):
        print("replay: cd tests && python -m fuzz --replay FILE")
    return int(not all(passed))


def run_process(name: str, seed: int, *limits: str) -> bool:
    """Run one target in a process of its own, with its files in memory where the machine has such a place.

    Return True if all cases pass. If a case ends the process, save it.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # most checks sync files
    with tempfile.TemporaryDirectory(prefix="superhosts-fuzz-", dir=memory) as folder:
        environment = {**os.environ, "TMPDIR": folder, **BOUNDS_CHECKS}
        command = [sys.executable, "-m", "fuzz.campaign", name, "--folder", folder, "--failures", str(FAILURES)]
        command += ["--seed", str(seed), *limits]
        status = subprocess.run(command, env=environment, cwd=ROOT / "tests", check=False).returncode
        current, stacks = Path(folder, CURRENT), Path(folder, STACKS)
        if status not in (0, FOUND):
            case = current.read_bytes() if current.exists() else b""
            why = "hangs" if case and "Timeout" in stacks.read_text() else f"ends with status {status}"
            where = save(name, Failure(case, f"{why}\n{stacks.read_text()}"), FAILURES) if case else "no case ran"
            print(f"  {name} {why}: {where}", flush=True)
        return status == 0


if __name__ == "__main__":
    sys.exit(main())
