"""Compare the planner's predictions with measurements: total false rate by flows, threshold and memory.

    python benchmarks/plan.py                    0.5 M to 50 M flows, some minutes on two cores, 4 GiB
    python benchmarks/plan.py --quick            0.5 M and 2 M flows, about a minute
    python benchmarks/plan.py --flows 5M 20M
    python benchmarks/plan.py --quick --only tails
    python benchmarks/plan.py --quick --only wrong
    python benchmarks/plan.py --only alone       six loads, five memories

Every point is measured with the geometry that the planner chooses for it, and with the default geometry of its memory.
Most windows have one host with 1024 or more peers per 10,000 flows, and several windows are pooled. Each window has
different hosts, peers and addresses. A prediction agrees ("yes") if it is within a factor of two of the measured rate,
or both are under 0.5 %, or both above 20 %. With few true hosts the measurement is imprecise: if the prediction only
agrees with some rate inside the 95 % interval of the measurement (Poisson), the table says "in band". All others say
"NO".

The planner assumes the distribution of peers that the generator of those windows has, so these points test its formulas
and not its assumption. Other windows have other tails: a plain Pareto distribution from one peer on, of exponent 0.9,
1.05 or 1.3, a lognormal one, and Zipf's law. There, the prediction by flows alone is compared with the measurement
("planned"), and the prediction for the hosts of the first window ("counted"), which knows the tail.

A planned cube is told how many flows come. With --only wrong, cubes are planned for a quarter and for four times as
many as come, and compared with those that are told the truth and with the default geometry. With --only alone, cubes
get a threshold and no flows ("threshold alone"), which must never be worse than no hint at all ("default"), and are
compared with a plan for as few flows as fill the memory like 5 M fill 128 MiB ("planned for few").

The sweep leaves out a threshold of exactly 256, where synthetic traffic has more hosts than its distribution says (the
upper limit of small hosts). JSON, a Markdown table and a figure go to benchmarks/results.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cases import update_in_batches
from harness import HERE, Report
from superhosts.core.units import format_size, parse_count
from superhosts.detectors.cube import Cube, Geometry
from superhosts.detectors.plan.choice import best_sizes
from superhosts.detectors.plan.population import counted_population
from superhosts.detectors.plan.prediction import Prediction, predict
from superhosts.errors import ThresholdWarning
from superhosts.lab.sheet import Note, caption, draw, series_look
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_hosts

MIB = 1 << 20
MEMORIES = (8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB)
THRESHOLDS = (128, 1024, 4096, 16384)
WINDOWS = {500_000: 10, 5_000_000: 4, 20_000_000: 2, 50_000_000: 1}
QUICK_WINDOWS = {500_000: 8, 2_000_000: 4}
TAIL_MEMORIES = (MIB, 8 * MIB, 128 * MIB)
TAIL_THRESHOLDS = (5, 128, 1024)
TAIL_WINDOWS = {500_000: 4, 5_000_000: 2}
QUICK_TAIL_WINDOWS = {500_000: 4}
TOLD = (0.25, 1, 4)  # flows that a cube is planned for, of those that come
WRONG_MEMORIES, WRONG_THRESHOLDS = (MIB, 8 * MIB, 32 * MIB), (128, 1024)
ALONE_MEMORIES, ALONE_THRESHOLD = (MIB // 16, MIB // 4, MIB, 16 * MIB, 128 * MIB), 1024
ALONE_LOADS = (  # the tail, empty for synthetic traffic, and the flows of a window
    *(("", 200_000), ("", 720_000), ("", 5_000_000), ("", 13_000_000)),
    *(("Pareto 0.9", 720_000), ("Zipf", 720_000)),
)
LARGEST = 200_000  # peers of a host in them
LOW, HIGH = 0.005, 0.2  # all rates below LOW count as equal, and all rates above HIGH
SEED = 1000


def pareto(exponent: float) -> Callable[[Any, int], Any]:
    """Return a function that draws the peers of hosts from a Pareto distribution that begins at one peer."""
    return lambda random, flows: random.random(flows) ** (-1 / exponent)


def lognormal(random: Any, flows: int) -> Any:
    """Draw the peers of hosts from a lognormal distribution: one in 500 has a thousand peers, where the median is 3."""
    return np.maximum(random.lognormal(np.log(3), 2.0, flows), 1)


def zipf(random: Any, flows: int) -> Any:
    """Return the peers of hosts by Zipf's law, in random order: the host of rank r has 1/r of those of the first."""
    ranks = np.arange(1, max(2, flows // 5))
    return random.permutation(np.maximum(flows / np.log(len(ranks)) / ranks, 1))


TAILS = {  # how many peers the hosts of a window have; more are drawn than the flows need
    "Pareto 0.9": pareto(0.9),
    "Pareto 1.05": pareto(1.05),
    "Pareto 1.3": pareto(1.3),
    "lognormal": lognormal,
    "Zipf": zipf,
}


@dataclass
class Point:
    """One cube at one threshold: the prediction, and the measurements of several windows."""

    kind: str
    memory: int
    geometry: Geometry
    expected: Prediction
    tail: str = ""  # a name of TAILS; empty: synthetic traffic
    true: int = 0
    missed: int = 0
    false: int = 0
    runs: list[float] = field(default_factory=list)

    def add(self, cube: Cube, hosts: Any, sizes: Any) -> None:
        """Query a filled cube and score its result."""
        true = set(hosts[sizes >= self.expected.threshold].tolist())
        found = set(cube.super_hosts(self.expected.threshold).hosts.tolist())
        missed, false = len(true - found), len(found - true)
        self.true, self.missed, self.false = self.true + len(true), self.missed + missed, self.false + false
        if true:
            self.runs.append(100 * (missed + false) / len(true))

    @property
    def measured(self) -> float:
        """Total false rate over all windows."""
        return (self.missed + self.false) / max(1, self.true)

    @property
    def band(self) -> tuple[float, float]:
        """95 % interval of the measured rate, from the Poisson distribution of errors (Byar's approximation)."""
        low, high = self.missed + self.false, self.missed + self.false + 1
        least = low * (1 - 1 / (9 * low) - 1.96 / (3 * low**0.5)) ** 3 if low else 0.0
        most = high * (1 - 1 / (9 * high) + 1.96 / (3 * high**0.5)) ** 3
        return least / max(1, self.true), most / max(1, self.true)

    @property
    def verdict(self) -> str:
        """Whether prediction and measurement agree: "yes", "in band" or "NO"."""
        if agree(self.expected.total, self.measured, self.measured):
            return "yes"
        return "in band" if agree(self.expected.total, *self.band) else "NO"

    @property
    def name(self) -> str:
        """The name of the figure: flows, threshold, memory and kind of geometry."""
        expected = self.expected
        memory, tail = format_size(self.memory), f"{self.tail}, " if self.tail else ""
        return f"{tail}{expected.flows / 1e6:.3g} M flows, threshold {expected.threshold:,g}, {memory}, {self.kind}"


def agree(predicted: float, low: float, high: float) -> bool:
    """Return True if a prediction agrees with some measured rate between two limits."""
    if predicted < LOW:
        return low < LOW or low <= 2 * predicted
    if predicted > HIGH and high > HIGH:
        return True
    return low / 2 <= predicted <= 2 * high


def planned(memory: int, flows: int, threshold: float) -> Geometry:
    """Return the best geometry, even if most of its answers would be wrong."""
    return Geometry(*best_sizes(memory, flows, threshold))


def points_of(flows: int) -> list[Point]:
    """Return all points for a number of flows."""
    points = []
    for memory in MEMORIES:
        for threshold in THRESHOLDS:
            for kind in ("planned", "default"):
                if kind == "planned":
                    geometry = planned(memory, flows, threshold)
                else:
                    geometry = Geometry.for_memory(memory)
                points.append(Point(kind, memory, geometry, predict(geometry, flows, threshold)))
    return points


def wrong_points(flows: int) -> list[Point]:
    """Return points of cubes that are told the right and the wrong number of flows, or none (the default geometry)."""
    points = []
    for memory in WRONG_MEMORIES:
        for threshold in WRONG_THRESHOLDS:
            made = {f"planned for {told:g} times": planned(memory, round(flows * told), threshold) for told in TOLD}
            made["default"] = Geometry.for_memory(memory)
            for kind, geometry in made.items():
                points.append(Point(kind, memory, geometry, predict(geometry, flows, threshold)))
    return points


def alone_points(tail: str, flows: int) -> list[Point]:
    """Return points of cubes that are told a threshold alone, nothing, or too few flows."""
    points = []
    for memory in ALONE_MEMORIES:
        few = max(1000, 5_000_000 * memory // (128 * MIB))
        made = {
            "threshold alone": Cube(memory, threshold=ALONE_THRESHOLD, device="cpu").geometry,
            "default": Geometry.for_memory(memory),
            "planned for few": planned(memory, few, ALONE_THRESHOLD),
        }
        for kind, geometry in made.items():
            points.append(Point(kind, memory, geometry, predict(geometry, flows, ALONE_THRESHOLD), tail))
    return points


def measure(points: list[Point], flows: int, windows: int) -> None:
    """Feed every window to one cube for each geometry, and query it at all of its thresholds."""
    for seed in range(SEED, SEED + windows):
        traffic = Traffic(flows=flows, packets=flows, super_hosts=flows // 10_000, seed=seed)
        hosts, peers = window_flows(traffic, 0)
        names, sizes = window_hosts(traffic, 0)
        for geometry in dict.fromkeys(point.geometry for point in points):
            cube = Cube(geometry=geometry, device="cpu", exact=False)
            update_in_batches(cube, hosts, peers)
            for point in points:
                if point.geometry == geometry:
                    point.add(cube, names, sizes)


def tail_window(tail: str, flows: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """Return the distinct pairs of a window with another tail, and the hosts with their numbers of peers."""
    random = np.random.default_rng(seed)
    sizes = np.minimum(TAILS[tail](random, flows), LARGEST).astype(np.int64)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), flows) + 1]
    names = random.permutation(np.unique(random.integers(0, 1 << 32, 3 * len(sizes) + 100, dtype=np.uint32)))
    names = names[: len(sizes)]
    hosts = np.repeat(names, sizes)
    peers = random.permutation(len(hosts)).astype(np.uint32) * np.uint32(2654435761)  # odd: a bijection of 32 bits
    return hosts, peers, names, sizes


def tail_points(tail: str, flows: int) -> list[Point]:
    """Return the points of windows with another tail."""
    hosts = counted_population(tail_window(tail, flows, SEED)[3])
    points = []
    for memory in TAIL_MEMORIES:
        for threshold in TAIL_THRESHOLDS:
            geometry = planned(memory, flows, threshold)
            points.append(Point("planned", memory, geometry, predict(geometry, flows, threshold), tail))
            points.append(Point("counted", memory, geometry, predict(geometry, hosts, threshold), tail))
    return points


def measure_tail(points: list[Point], tail: str, flows: int, windows: int) -> None:
    """Feed windows with another tail to one cube for each geometry."""
    for seed in range(SEED, SEED + windows):
        hosts, peers, names, sizes = tail_window(tail, flows, seed)
        for geometry in dict.fromkeys(point.geometry for point in points):
            cube = Cube(geometry=geometry, device="cpu", exact=False)
            update_in_batches(cube, hosts, peers)
            for point in points:
                if point.geometry == geometry:
                    point.add(cube, names, sizes)


def show(report: Report, point: Point) -> None:
    """Add a point to the report and print its verdict."""
    expected, (low, high) = point.expected, point.band
    note = (
        f"predicted {expected.total:.2%} (FNR {expected.fnr:.2%}, FPR {expected.fpr:.2%}); measured "
        f"{low:.2%} to {high:.2%}, {point.missed} missed, {point.false} false of {point.true:,}; "
        f"r, k, log g, c, labels {tuple(point.geometry[1:6])}"
    )
    figure = report.add("plan", point.name, 100 * point.measured, "%", note=note, runs=point.runs)
    figure.reached = point.verdict
    print(f"    {point.verdict}", flush=True)


def draw_points(points: list[Point], path: Path) -> list[Path]:
    """Plot predicted against measured rates, with the band of a factor of two."""
    windows = {round(point.expected.flows, -5): len(point.runs) for point in points}
    seen = ", ".join(f"{count} of {flows / 1e6:g} M flows" for flows, count in sorted(windows.items()))
    memories = [point.memory for point in points]
    words = (f"{format_size(min(memories))} to {format_size(max(memories))}", f"windows: {seen}", "public key")
    note = Note(caption(*words, "open: default geometry, or the tail is known"), "python benchmarks/plan.py")
    return draw([path.with_suffix(kind) for kind in (".pdf", ".svg")], 3.9, note, lambda figure: plot(figure, points))


def plot(figure: Any, points: list[Point]) -> None:
    """Draw a mark for each point: shape by threshold, colour by the hosts, open where the geometry is the default."""
    axes = figure.subplots()
    least, most = 0.03, 300.0
    axes.fill_between([least, most], [least / 2, most / 2], [2 * least, 2 * most], color="0.9", lw=0)
    axes.fill_between([least, LOW * 100], least, LOW * 100, color="0.82", lw=0)
    axes.fill_between([HIGH * 100, most], HIGH * 100, most, color="0.82", lw=0)
    axes.plot([least, most], [least, most], color="0.4", lw=0.6)
    tails = list(dict.fromkeys(point.tail for point in points))
    thresholds = sorted({point.expected.threshold for point in points})
    for point in points:
        look = series_look(tails.index(point.tail))._replace(is_open=point.kind in ("default", "counted"))
        look = look._replace(marker=series_look(thresholds.index(point.expected.threshold)).marker)
        low, high = (max(100 * limit, least) for limit in point.band)
        x, y = max(100 * point.measured, least), max(100 * point.expected.total, least)
        axes.errorbar(x, y, xerr=[[x - low], [max(high - x, 0)]], elinewidth=0.4, ms=3, **look.options)
    for number, tail in enumerate(tails):
        axes.plot([], [], "-", lw=3, color=series_look(number).colour, label=tail or "own generator")
    for number, threshold in enumerate(thresholds):
        axes.plot([], [], series_look(number).marker, ms=3, color="0.3", label=f"θ = {threshold:,g}")
    axes.set(xscale="log", yscale="log", xlim=(least, most), ylim=(least, most))
    axes.set(xlabel="measured total false rate, % (95 % interval)", ylabel="predicted total false rate, %")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    figure.legend(loc="outside upper center", ncols=3, fontsize=7, handletextpad=0.4, columnspacing=1.0)


def main() -> None:
    """Predict, measure, print the table, write the files."""
    parser = argparse.ArgumentParser(description="Predicted against measured false rates")
    parser.add_argument("--quick", action="store_true", help="few flows and windows")
    parser.add_argument("--flows", nargs="+", default=None, metavar="N", help="only these numbers of flows")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the files")
    parser.add_argument("--only", choices=("tails", "wrong", "alone"), help="other tails, wrong flows, none")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ThresholdWarning)  # Some points are too small for their threshold on purpose.
    windows = QUICK_WINDOWS if options.quick else WINDOWS
    chosen = [parse_count(text) for text in options.flows] if options.flows else list(windows)
    report = Report(quick=options.quick)
    points: list[Point] = []
    for tail, flows in ALONE_LOADS if options.only == "alone" else []:
        start = time.perf_counter()
        some = alone_points(tail, flows)
        (partial(measure_tail, tail=tail) if tail else measure)(some, flows=flows, windows=1)
        for point in some:
            show(report, point)
        points += some
        report.seconds[f"{tail} {flows / 1e6:g} M flows".strip()] = time.perf_counter() - start
    for flows in chosen if options.only in (None, "wrong") else []:
        start = time.perf_counter()
        some = wrong_points(flows) if options.only == "wrong" else points_of(flows)
        measure(some, flows, windows.get(flows, 2))
        for point in some:
            show(report, point)
        points += some
        report.seconds[f"{flows / 1e6:g} M flows"] = time.perf_counter() - start
    tails = QUICK_TAIL_WINDOWS if options.quick else TAIL_WINDOWS
    for flows, count in tails.items() if not options.flows and options.only in (None, "tails") else []:
        start = time.perf_counter()
        for tail in TAILS:
            some = tail_points(tail, flows)
            measure_tail(some, tail, flows, count)
            for point in some:
                show(report, point)
            points += some
        report.seconds[f"tails, {flows / 1e6:g} M flows"] = time.perf_counter() - start
    print()
    print(report.table())
    counts = {verdict: sum(point.verdict == verdict for point in points) for verdict in ("yes", "in band", "NO")}
    print(f"{len(points)} points: " + ", ".join(f"{verdict} {count}" for verdict, count in counts.items()))
    kind = "plan" + ("-quick" if options.quick else "") + (f"-{options.only}" if options.only else "")
    name = f"{kind}-{report.place}"
    for path in report.write(options.results, name, "Predicted against measured false rates"):
        print(path)
    for path in draw_points(points, options.results / name):
        print(path)


if __name__ == "__main__":
    main()
