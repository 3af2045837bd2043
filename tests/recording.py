"""Writes which compiled loops runs use: `make record`, after a change of loops, of their arguments or of the steps.

    python tests/recording.py                   # write src/superhosts/jit/recorded.json
    python tests/recording.py captures tables   # of these shares, show what the record lacks

Every step of tests/warming.py is run in a process of its own, which tells what it used. Then each loop is compiled once
more, to know how long that takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

from isolation import isolate
from superhosts.jit import ahead
from superhosts.jit.ahead import Loop
from warming import SHARES, Step

RECORDED = ("captures", "tables", "detectors", "rivals")
Run = tuple[list[str], list[Loop]]


def observed(step: Step) -> Run:
    """Run a step in a child of this process; return what it is and what it used."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            step()
            nameless = [describe for describe in ahead._run.used if describe() is None]
            assert not nameless, f"loops that no module has: {nameless}"
            with os.fdopen(writing, "w") as pipe:
                json.dump((sorted(ahead.words()), sorted(ahead.used())), pipe)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    _, status = os.waitpid(child, 0)
    assert not status, f"{step} failed"
    words, used = json.loads(found)
    return words, [Loop(*each) for each in used]


def runs(shares: Iterable[str]) -> Iterator[Run]:
    nothing = ahead.Record({}, [])
    with patch.object(ahead, "record", lambda: nothing):  # What is compiled ahead of a step would not be seen there.
        yield from _runs(shares)


def _runs(shares: Iterable[str]) -> Iterator[Run]:
    for share in shares:
        with tempfile.TemporaryDirectory() as made:
            for step in SHARES[share](Path(made)):
                assert not ahead.used(), "between two steps, a loop was used"
                yield observed(step)


def seconds_of(loops: list[Loop]) -> dict[Loop, float]:
    """Compile loops in one process with an empty cache."""
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "NUMBA_CACHE_DIR": empty, "PYTHONPATH": os.pathsep.join(sys.path)}
        command, pipe = [sys.executable, "-c", ahead.WORKER], subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            found = {}
            process.stdin.write("[]\n")  # It starts.
            process.stdin.flush()
            assert process.stdout.readline()
            for each in loops:
                began = time.monotonic()
                process.stdin.write(f"{json.dumps([each])}\n")
                process.stdin.flush()
                assert process.stdout.readline()
                found[each] = round(time.monotonic() - began, 2)
            return found


def main() -> None:
    warnings.simplefilter("ignore")
    isolate()
    if sys.argv[1:]:
        known = ahead.record().seconds
        lacking = {loop for _, used in runs(sys.argv[1:]) for loop in used} - known.keys()
        sys.exit("\n".join(["the record lacks these loops: make record", *map(str, lacking)]) if lacking else 0)
    write()


def write() -> None:
    observed = [(words, used) for words, used in runs(RECORDED) if used]
    loops = sorted({loop for _, used in observed for loop in used})
    seconds = seconds_of(loops)
    number = {loop: index for index, loop in enumerate(loops)}
    alike = sorted({(tuple(words), tuple(number[each] for each in used)) for words, used in observed})
    parts = {"loops": [[*each, seconds[each]] for each in loops], "runs": alike}
    rows = [f'"{name}": [\n' + ",\n".join(map(json.dumps, each)) + "\n]" for name, each in parts.items()]
    ahead.RECORD.write_text("{" + ",\n".join(rows) + "}\n", "utf-8")
    print(f"{len(loops)} loops, {len(alike)} runs, {sum(seconds.values()):.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
