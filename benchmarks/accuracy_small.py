"""Sections of accuracy.py about little memory: "small", "loads" and "little".

small     the largest hosts of 0.9 M pairs, found by name in 100 KB to 1 MB
loads     the largest 100 of 0.5 to 4 M pairs of two laws in 64 KiB to 256 KiB; every window has a key of its own
little    total false rate of 5 M flows in 1 to 4 MiB, packets in trains; every window has a key of its own
"""

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
from superhosts.detectors.stream import Stream
from superhosts.lab.rivals.filter import Filter
from superhosts.lab.rivals.pairsample import PairSample
from superhosts.lab.rivals.rgs import Rgs
from superhosts.lab.rivals.spreadsketch import SpreadSketch
from superhosts.lab.scores import Estimates, Truth, ask_all, score
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_hosts, window_packets

HOSTS, PAIRS = 60_000, 900_000
TOPS = (50, 100, 150)  # hosts; the last of them has about 500 peers
KILOBYTES = (100, 250, 500, 1000)
WINDOWS, SEED = 24, 2
MAKERS: dict[str, Callable[[int], Detector]] = {
    "stream": Stream,
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


LAWS: dict[str, Callable[[np.random.Generator, int], Any]] = {  # sizes of hosts, to be scaled
    "pareto": lambda random, hosts: np.minimum(random.pareto(1.05, hosts) + 1, hosts),
    "lognormal": lambda random, hosts: np.exp(random.normal(0, 2.2, hosts)),
}


def make_window(random: np.random.Generator, pairs: int = PAIRS, law: str = "pareto") -> Window:
    """Draw a window: sizes by a law, random addresses."""
    count = pairs * HOSTS // PAIRS
    sizes = LAWS[law](random, count)
    sizes = np.maximum(1, sizes * pairs / sizes.sum()).astype(np.int64)
    names = np.unique(random.integers(0, 1 << 32, 2 * count, dtype=np.uint32))
    names = random.permutation(names)[:count]
    hosts = np.repeat(names, sizes)
    peers = random.integers(0, 1 << 32, len(hosts), dtype=np.uint32)
    return Window(random.permutation(hosts), peers, names[np.argsort(-sizes)])


def f1(found: Any, true: Any) -> float:
    """Return the harmonic mean of precision and recall."""
    right = len(set(found.tolist()) & set(true.tolist()))
    return 2 * right / max(1, len(found) + len(true))


LOADS = (500_000, 1_000_000, 2_000_000, 4_000_000)
LITTLE = {"64 KiB": 1 << 16, "100 KB": 100_000, "256 KiB": 1 << 18}
OF_LOADS: dict[str, Callable[[int, bytes], Detector]] = {  # of a memory and a key
    "stream": lambda size, key: Stream(size, key=key),
    "cube, default": lambda size, key: Cube(size, key=key, device="cpu", exact=False),
    "rgs": lambda size, key: Rgs(size, key=key, device="cpu"),
    "filter": lambda size, key: Filter(size, key=key, threshold=200, device="cpu"),
}
LOAD_WINDOWS = 12


def key_of(number: int) -> bytes:
    return b"key of window %d" % number


def run_loads(report: Report) -> None:
    """Measure F1 of the largest 100 hosts over loads and laws."""
    for law in LAWS:
        for load in LOADS[:1] if report.quick else LOADS:
            scores: dict[tuple[str, str], list[float]] = {}
            for number in range(2 if report.quick else LOAD_WINDOWS):
                window = make_window(np.random.default_rng((load, number)), load, law)
                for memory, size in LITTLE.items():
                    for name, make in OF_LOADS.items():
                        detector = make(size, key_of(number))
                        detector.update(window.hosts, window.peers)
                        found = f1(detector.top(100).hosts, window.largest[:100])
                        scores.setdefault((memory, name), []).append(found)
            for (memory, name), values in scores.items():
                note = f"± {stdev(values) / math.sqrt(len(values)):.3f}"
                title = f"F1 of the top 100, {load / 1e6:g} M pairs, {law}, {memory}: {name}"
                report.add("loads", title, fmean(values), "", note=note, runs=values)


def run_little(report: Report) -> None:
    """Measure the total false rate and the intervals of what scans take with 1 to 4 MiB, and of a cube."""
    flows, supers, count = (500_000, 60, 2) if report.quick else (5_000_000, 600, 12)
    rates: dict[str, list[float]] = {}
    estimates: dict[str, list[Estimates]] = {}
    for number in range(count):
        traffic = Traffic(flows=flows, packets=2 * flows, super_hosts=supers, seed=100 + number)
        hosts, peers = window_flows(traffic, 0)
        picks, truth = window_packets(traffic, 0), Truth(*window_hosts(traffic, 0))
        for mebibytes in (1, 2, 4):
            for name in ("stream", "cube, default"):
                detector = OF_LOADS[name](mebibytes << 20, key_of(number))
                for start in range(0, len(picks), 1 << 20):
                    some = picks[start : start + (1 << 20)]
                    detector.update(hosts[some], peers[some])
                title = f"{mebibytes} MiB: {name}"
                rates.setdefault(title, []).append(100 * score(detector.super_hosts(1024), truth, 1024).ftr)
                estimates.setdefault(title, []).append(ask_all(detector, truth, 1024))
    for title, values in rates.items():
        note = f"± {stdev(values) / math.sqrt(count):.2f}"
        report.add("little", f"FTR, 5 M flows, {title}", fmean(values), "%", note=note, runs=values)
        together = Estimates(*map(np.concatenate, zip(*estimates[title], strict=True)))
        report.add("little", f"95 % intervals, 5 M flows, {title}", 100 * together.coverage, "% hold")
        report.add("little", f"mean error, 5 M flows, {title}", 100 * together.mean_error, "%")
