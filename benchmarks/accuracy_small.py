"""Section "small" of accuracy.py: the largest hosts of 0.9 M pairs, found by name in 100 KB to 1 MB."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from harness import Report
from superhosts.detectors.cube import Cube
from superhosts.detectors.detector import Detector
from superhosts.lab.rivals.filter import Filter
from superhosts.lab.rivals.pairsample import PairSample
from superhosts.lab.rivals.rgs import Rgs
from superhosts.lab.rivals.spreadsketch import SpreadSketch

HOSTS, PAIRS = 60_000, 900_000
TOPS = (50, 100, 150)  # hosts; the last of them has about 500 peers
KILOBYTES = (100, 250, 500, 1000)
WINDOWS, SEED = 24, 2
MAKERS: dict[str, Callable[[int], Detector]] = {
    "cube": lambda size: Cube(size, flows=PAIRS, threshold=500, device="cpu", exact=False),
    "rgs": lambda size: Rgs(size, device="cpu"),
    "spreadsketch": lambda size: SpreadSketch(size, device="cpu"),
    "pairsample": lambda size: PairSample(size, device="cpu"),
    "filter": lambda size: Filter(size, threshold=300, device="cpu"),  # low enough to list the largest 150
}


class Window(NamedTuple):
    """Distinct pairs in random order, and the hosts by falling number of peers."""

    hosts: Any
    peers: Any
    largest: Any


@dataclass
class Tally:
    """The results of one detector of one memory over all windows."""

    scores: list[list[float]] = field(default_factory=list)  # by window and TOPS
    speeds: list[float] = field(default_factory=list)  # million pairs a second, of one update

    def add(self, detector: Detector, window: Window) -> None:
        """Feed one window, and compare its largest hosts with the truth."""
        start = time.perf_counter()
        detector.update(window.hosts, window.peers)
        detector.flush()
        self.speeds.append(len(window.hosts) / (time.perf_counter() - start) / 1e6)
        self.scores.append([f1(detector.top(k).hosts, window.largest[:k]) for k in TOPS])
        detector.clear()

    def column(self, place: int) -> tuple[list[float], float, float]:
        """Return the scores for one of TOPS, their mean and its standard error."""
        values = [row[place] for row in self.scores]
        return values, fmean(values), stdev(values) / math.sqrt(len(values))


def run(report: Report) -> None:
    """Measure F1 of the largest hosts: every detector with every memory on the same windows."""
    random = np.random.default_rng(SEED)
    windows = [make_window(random) for _ in range(2 if report.quick else WINDOWS)]
    tallies: dict[tuple[int, str], Tally] = {}
    for kilobytes in KILOBYTES:
        for name, make in MAKERS.items():
            tally = tallies[kilobytes, name] = Tally()
            detector = make(1000 * kilobytes)
            Tally().add(detector, windows[0])  # compiles what is timed below
            for window in windows:
                tally.add(detector, window)
            for place, k in enumerate(TOPS):
                values, mean, error = tally.column(place)
                note = f"± {error:.3f}; {detector.memory / 1000:.0f} KB, {max(tally.speeds):.0f} M pairs/s"
                report.add("small", f"F1 of the top {k} at {kilobytes} KB: {name}", mean, "", note=note, runs=values)
    print("\n" + table(tallies))


def table(tallies: dict[tuple[int, str], Tally]) -> str:
    """Return the means and their standard errors as a Markdown table, one row for each detector."""
    tops = " / ".join(map(str, TOPS))
    lines = [
        f"F1 of the largest {tops} hosts, ± the largest standard error of the three",
        "",
        "| | " + " | ".join(f"{kilobytes} KB" for kilobytes in KILOBYTES) + " |",
        "|---" * (1 + len(KILOBYTES)) + "|",
    ]
    for name in MAKERS:
        cells = []
        for kilobytes in KILOBYTES:
            columns = [tallies[kilobytes, name].column(place) for place in range(len(TOPS))]
            means = " / ".join(f"{mean:.3f}" for _, mean, _ in columns)
            cells.append(f"{means} ± {max(error for *_, error in columns):.3f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def make_window(random: np.random.Generator) -> Window:
    """Draw a window: sizes with a Pareto tail, random addresses."""
    sizes = np.minimum(random.pareto(1.05, HOSTS) + 1, HOSTS)
    sizes = np.maximum(1, sizes * PAIRS / sizes.sum()).astype(np.int64)
    names = np.unique(random.integers(0, 1 << 32, 2 * HOSTS, dtype=np.uint32))
    names = random.permutation(names)[:HOSTS]
    hosts = np.repeat(names, sizes)
    peers = random.integers(0, 1 << 32, len(hosts), dtype=np.uint32)
    return Window(random.permutation(hosts), peers, names[np.argsort(-sizes)])


def f1(found: Any, true: Any) -> float:
    """Return the harmonic mean of precision and recall."""
    right = len(set(found.tolist()) & set(true.tolist()))
    return 2 * right / max(1, len(found) + len(true))
