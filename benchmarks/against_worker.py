"""The worker process of against.py: runs the cases named on standard input with the package of one source tree.

It uses only public names of the package, so that it can run older trees.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import superhosts

BATCH = 4_000_000
SMALL = 1_000
SMALL_PAIRS = 5_000_000  # pairs of the case with small batches
RESTORES = 20
THETA = 1024


def main() -> None:
    """Run the case named on each line, and print its wall-clock and processor seconds."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    found = Path(superhosts.__file__).resolve()
    if not found.is_relative_to(source.resolve()):
        sys.exit(f"superhosts comes from {found}, not from {source}")
    warnings.simplefilter("ignore", UserWarning)  # A crowded cube warns about thresholds that are too low for it.
    worker = Worker(folder, int(sys.argv[3]) if sys.argv[3] else None, sys.argv[4])
    for line in sys.stdin:
        print(json.dumps(worker.run(line.strip())), flush=True)


class Worker:
    """Runs all cases with one cube."""

    def __init__(self, folder: Path, threads: int | None, device: str) -> None:
        self.cube = superhosts.Cube("128MiB", device=device, threads=threads)
        self.folder, self.device = folder, device

    def run(self, case: str) -> tuple[float, float]:
        """Prepare a case, then time it."""
        work = self._prepare(case)
        gc.collect()
        before = time.perf_counter(), _processor()
        work()
        return time.perf_counter() - before[0], _processor() - before[1]

    def _prepare(self, case: str) -> Callable[[], object]:
        kind, _, what = case.partition(" ")
        if kind == "scan":
            name, _, every = what.partition(",")
            inner = [] if every else ["--inner", "10.0.0.0/8"]
            command = ["scan", str(self.folder / f"scan.{name}"), *inner, "--json", "--quiet", "--device", self.device]
            return lambda: subprocess.run(
                [sys.executable, "-m", "superhosts", *command], check=True, capture_output=True
            )
        self.cube.clear()
        if kind == "restore":
            self._update(*self._pairs("flows"), BATCH)
            return lambda: [self.cube.super_hosts(THETA) for _ in range(RESTORES)]
        if what == "batches of 1,000":
            hosts, peers = (column[:SMALL_PAIRS] for column in self._pairs("shuffled"))
            return lambda: self._update(hosts, peers, SMALL)
        hosts, peers = self._pairs(what)
        return lambda: self._update(hosts, peers, BATCH)

    @cache  # noqa: B019 (the only worker lives as long as its process)
    def _pairs(self, name: str) -> tuple[Any, Any]:
        return np.load(self.folder / name / "hosts.npy"), np.load(self.folder / name / "peers.npy")

    def _update(self, hosts: Any, peers: Any, size: int) -> None:
        for start in range(0, len(hosts), size):
            self.cube.update(hosts[start : start + size], peers[start : start + size])
        self.cube.flush()


def _processor() -> float:
    """Return the processor seconds of this process and of its child processes that have exited."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
