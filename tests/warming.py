"""Compile what most tests use before a parallel run, so that not every worker compiles it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

# The detectors that each process compiles. Both shares take about the same time.
SHARES = (["cube"], ["cbaa", "vbfa", "dcds", "exact", "gse", "filter", "spreadsketch", "pairsample", "rgs"])


def warm_up() -> None:
    """Compile in one process per share, unless an earlier run has."""
    from superhosts.compiled import is_cold
    from superhosts.detectors.cube.filling import fill

    if is_cold(fill):
        paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        environment = {**os.environ, "PYTHONPATH": paths}
        commands = [[__file__, *share] for share in SHARES]
        commands.append(["-m", "pytest", "--collect-only", "-qq", str(Path(__file__).parent)])  # bytecode of all tests
        silent = {"env": environment, "stdout": subprocess.DEVNULL}
        started = [subprocess.Popen([sys.executable, *command], **silent) for command in commands]
        assert [process.wait() for process in started] == [0] * len(started)


def use(name: str, folder: Path, exact: bool | None = None) -> None:
    """Scan a small capture with a detector, then save, load, merge and query its sketches."""
    import superhosts as sh
    from traffic import three_windows, write

    union, capture = sh.Sketch(), write(folder / "a.pcap", three_windows())
    for result in sh.scan(capture, detector=name, inner="10.0.0.0/8", device="cpu", exact=exact):
        result.sketch.save(folder / "a.cube")
        sh.load(folder / "a.cube").estimate("10.0.0.7")
        with contextlib.suppress(sh.MergeError):  # Some detectors cannot be merged.
            union.merge_file(folder / "a.cube")
    union.super_hosts(1024)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        for each in sys.argv[1:]:
            use(each, Path(made))
        if "cube" in sys.argv:
            use("cube", Path(made), exact=False)
