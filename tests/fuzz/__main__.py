"""The driver: `python -m fuzz --minutes 5 --seed 1`. See the package's own words for how to use it."""

from __future__ import annotations

import argparse
import ast
import hashlib
import marshal
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz.campaign import CURRENT, GREW, TITLE
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
        "--cases", type=int, default=0, help="so many of each target, the same on every machine, instead of minutes"
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
    seconds = 60 * options.minutes / len(chosen)
    print(TITLE, flush=True)
    passed = [run_process(name, options.seed, options.cases, seconds) for name in chosen]
    if not all(passed):
        print("replay: cd tests && python -m fuzz --replay FILE")
    return int(not all(passed))


def run_process(name: str, seed: int, cases: int, seconds: float) -> bool:
    """Run one target in a process of its own, with its files in memory where the machine has such a place.

    Return True if all cases pass. Save the case that ended the process.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # most checks sync files
    with tempfile.TemporaryDirectory(prefix="superhosts-fuzz-", dir=memory) as folder:
        environment = {**os.environ, "TMPDIR": folder, **BOUNDS_CHECKS}
        command = [sys.executable, "-m", "fuzz.campaign", name, folder, str(seed), str(cases), str(seconds)]
        ended = subprocess.run(command, env=environment, cwd=ROOT / "tests", stderr=subprocess.PIPE, check=False)
        current = Path(folder, CURRENT)
        case = current.read_bytes() if current.exists() else b""
    if ended.returncode not in (0, GREW):
        text = ended.stderr.decode(errors="backslashreplace")
        where = save(name, case, text, FAILURES) if case else "no case could be made"
        said = re.findall(r"^(?:Timeout|Fatal|[\w.]+(?:Error|Exception)).*", text, re.MULTILINE)
        why = said[-1] if said else f"ends with status {ended.returncode}"
        print(f"  {where}: {why[:200]}", flush=True)
    return ended.returncode == 0


def save(target: str, case: bytes, text: str, folder: Path) -> Path:
    """Write a failing case down: the literal first, then what happened, as comments."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{hashlib.blake2b(case, digest_size=4).hexdigest()}.txt"
    comments = "".join(f"# {line}\n" for line in text.splitlines())
    path.write_text(f"{marshal.loads(case)!r}\n{comments}", encoding="utf-8", errors="backslashreplace")
    return path


if __name__ == "__main__":
    sys.exit(main())
