"""Run published programs of rivals beside ours: `python benchmarks/published.py --program NAME=PATH ...`.

F1 of the largest hosts of 0.9 M pairs and speed on one core, in 100 KB to 1 MB. No program is part of this project;
docs/explanation/results.md says which were run. Each is called as `PATH PAIRS BYTES`: PAIRS is a file of little-endian
words of 64 bits, of which the low half is the host and the high half the peer, and BYTES the memory as the program's
authors count it. It writes the processor seconds of its updates, and then lines of a host and its number of peers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from accuracy_small import HOSTS, KILOBYTES, MAKERS, PAIRS, TOPS, Window, f1, make_window
from harness import HERE, Report

WINDOWS, SEED = 12, 3
LARGEST = 12_524  # peers, as the program of RGS-Sketch names for its CAIDA trace of 2016
REPEATS = 3  # packets of a pair, on average
Answer = tuple[Any, float]  # hosts by falling number of peers, processor seconds of the updates


def main() -> None:
    """Measure every program and detector on the same windows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--detectors", nargs="*", default=list(MAKERS), choices=MAKERS)
    parser.add_argument("--quick", action="store_true", help="two windows")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    report = Report(quick=options.quick)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start = time.perf_counter()
    for law, make in LAWS.items():
        random = np.random.default_rng(SEED)
        windows = [make(random) for _ in range(2 if options.quick else WINDOWS)]
        for kilobytes in KILOBYTES:
            size = 1000 * kilobytes
            for name in options.detectors:
                measure(report, f"{law}, {kilobytes} KB: {name}", windows, ours(name, size))
            for each in options.program:
                name, _, path = each.partition("=")
                measure(report, f"{law}, {kilobytes} KB: program {name}", windows, theirs(Path(path), size))
    report.seconds["published"] = time.perf_counter() - start
    print("\n" + report.table())
    kind = "published-quick" if options.quick else "published"
    for path in report.write(options.results, f"{kind}-{report.place}", title="Published programs"):
        print(path)


def measure(report: Report, title: str, windows: list[Window], answer: Callable[[Window], Answer]) -> None:
    """Add the means of F1 for each of TOPS, and the highest speed."""
    found = [(window, *answer(window)) for window in windows]
    speed = max(len(window.hosts) / max(seconds, 1e-9) / 1e6 for window, _, seconds in found)
    for k in TOPS:
        scores = [f1(hosts[:k], window.largest[:k]) for window, hosts, _ in found]
        error = stdev(scores) / len(scores) ** 0.5
        note = f"± {error:.3f}; {speed:.1f} M packets/s"
        report.add("published", f"F1 of the top {k}, {title}", fmean(scores), "", note=note, runs=scores)


def ours(name: str, size: int) -> Callable[[Window], Answer]:
    """Return what asks one of our detectors, which is empty before each window."""
    detector = MAKERS[name](size)
    detector.update(np.zeros(4096, np.uint32), np.arange(4096, dtype=np.uint32))  # compiles
    detector.flush()

    def ask(window: Window) -> Answer:
        detector.clear()
        start = time.process_time()
        detector.update(window.hosts, window.peers)
        detector.flush()
        seconds = time.process_time() - start
        return detector.top(max(TOPS)).hosts, seconds

    return ask


def theirs(program: Path, size: int) -> Callable[[Window], Answer]:
    """Return what asks a program."""

    def ask(window: Window) -> Answer:
        with tempfile.NamedTemporaryFile(suffix=".dat") as file:
            (window.peers.astype("<u8") << np.uint64(32) | window.hosts).astype("<u8").tofile(file.name)
            command = [program, file.name, str(size)]
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
        rows = np.array([line.split() for line in lines[1:] if line], float).reshape(-1, 2)
        order = np.argsort(-rows[:, 1], kind="stable")
        return rows[order, 0].astype(np.uint32), float(lines[0])

    return ask


def make_packets(random: np.random.Generator) -> Window:
    """Draw a window whose hosts have at most LARGEST peers, and whose pairs have REPEATS packets on average."""
    sizes = random.pareto(1.05, HOSTS) + 1
    scale = PAIRS / sizes.sum()
    for _ in range(20):
        scale *= PAIRS / np.minimum(sizes * scale, LARGEST).sum()
    counts = np.maximum(1, np.minimum(sizes * scale, LARGEST)).astype(np.int64)
    names = random.permutation(np.unique(random.integers(0, 1 << 32, 2 * HOSTS, dtype=np.uint32)))[:HOSTS]
    hosts = np.repeat(names, counts)
    peers = random.integers(0, 1 << 32, len(hosts), dtype=np.uint32)
    again = random.integers(0, len(hosts), (REPEATS - 1) * len(hosts))
    order = random.permutation(np.concatenate([np.arange(len(hosts)), again]))
    return Window(hosts[order], peers[order], names[np.argsort(-counts)])


LAWS: dict[str, Callable[[np.random.Generator], Window]] = {"pairs": make_window, "packets": make_packets}

if __name__ == "__main__":
    main()
