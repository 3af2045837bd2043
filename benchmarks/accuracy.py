"""Measure the accuracy figures of docs/explanation/results.md: `python benchmarks/accuracy.py [--quick] [--only ...]`.

ftr       total false rate of cube (also dense and planned), cbaa, filter and pair sample at 5 M, 20 M and 50 M flows
low       total false rate at thresholds of 2, 5 and 10, with 100 k flows
flood     the same with a flood of spoofed sources, where every address is a host
memory    the smallest memory with a total false rate of at most 1 % at 5 M flows
giants    hosts with up to ten million peers
small     100 KB to 1 MB: the largest hosts by name, compared with rivals
loads     64 to 256 KiB: the same over four loads of two laws
little    total false rate at 5 M flows in 1 to 4 MiB
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

import accuracy_small
from cases import THETA, update_in_batches
from harness import HERE, Report
from superhosts.core.units import parse_count
from superhosts.detectors.cbaa import Cbaa
from superhosts.detectors.cube import Cube
from superhosts.detectors.detector import Detector
from superhosts.detectors.exact import Exact
from superhosts.errors import ThresholdWarning
from superhosts.lab.rivals.filter import Filter
from superhosts.lab.rivals.pairsample import PairSample
from superhosts.lab.scores import Estimates, Truth, ask_all, score
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_hosts

MIB = 1 << 20
Make = Callable[[], Detector]
SIZES = {5_000_000: 600, 20_000_000: 1400, 50_000_000: 3700}  # flows and super hosts of a window
WINDOWS = 12
FLOOD_WINDOWS = 3
SPOOFED = 50_000_000
FTR_DETECTORS = ("cube", "cbaa", "filter", "pairsample")
LOW_THRESHOLDS, LOW_FLOWS = (2, 5, 10), 100_000
MEMORIES = (64, 32, 16, 8, 6, 4, 3)


def main() -> None:
    """Run the selected sections."""
    sections: dict[str, Callable[[Report], None]] = {"low": low, "flood": flood, "memory": memory, "giants": giants}
    sections |= {"small": accuracy_small.run, "loads": accuracy_small.run_loads, "little": accuracy_small.run_little}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller windows")
    names = ["ftr", *sections]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--flows", nargs="+", default=list(SIZES), type=parse_count, help="sizes of section ftr")
    parser.add_argument("--detectors", nargs="+", default=FTR_DETECTORS, choices=FTR_DETECTORS, help="of section ftr")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    sections["ftr"] = partial(ftr, sizes=options.flows, detectors=options.detectors)
    warnings.simplefilter("ignore", ThresholdWarning)
    report = Report(quick=options.quick)
    for name in options.only:
        start = time.perf_counter()
        sections[name](report)
        report.seconds[name] = time.perf_counter() - start
    print("\n" + report.table())
    part = "" if len(options.only) == len(sections) else "-" + "-".join(options.only)
    if len(options.flows) < len(SIZES):
        part += "-" + "-".join(f"{flows // 1_000_000}M" for flows in options.flows)
    kind = "accuracy-quick" if options.quick else "accuracy"
    name = f"{kind}-{report.place}{part}"
    for path in report.write(options.results, name, title="Accuracy"):
        print(path)


def window(flows: int, supers: int, seed: int) -> tuple[Any, Any, Truth]:
    """Return the distinct pairs of a window, and the truth."""
    traffic = Traffic(flows=flows, packets=flows, super_hosts=supers, seed=seed)
    return *window_flows(traffic, 0), Truth(*window_hosts(traffic, 0))


class Tally:
    """The scores of one detector over all windows."""

    def __init__(self, make: Make) -> None:
        self.detector = make()
        self.rates: list[float] = []
        self.fnr: list[float] = []
        self.phantoms = 0
        self.estimates: list[Estimates] = []

    def add(self, hosts: Any, peers: Any, truth: Truth, *, ask: bool = False) -> None:
        """Feed one window and score it."""
        update_in_batches(self.detector, hosts, peers)
        result = score(self.detector.super_hosts(THETA), truth, THETA)
        self.rates.append(100 * result.ftr)
        self.fnr.append(100 * result.fnr)
        self.phantoms += result.phantoms
        if ask:
            self.estimates.append(ask_all(self.detector, truth, THETA))
        self.detector.clear()

    def report(self, report: Report, section: str, name: str) -> None:
        """Add the mean rate and its standard error to the report."""
        error = stdev(self.rates) / math.sqrt(len(self.rates)) if len(self.rates) > 1 else 0.0
        fnr, memory = fmean(self.fnr), self.detector.memory / MIB
        parts = f"FNR {fnr:.2f}, FPR {fmean(self.rates) - fnr:.2f}"
        note = f"± {error:.2f}; {parts}; {self.phantoms} phantoms; {memory:.3g} MiB"
        report.add(section, name, fmean(self.rates), "%", note=note, runs=self.rates)
        if self.estimates:
            together = Estimates(*map(np.concatenate, zip(*self.estimates, strict=True)))
            note = f"{len(together.true)} super hosts, {int(together.saturated.sum())} saturated"
            report.add(section, f"{name}, 95 % interval", 100 * together.coverage, "% hold", note=note)
            report.add(section, f"{name}, mean error", 100 * together.mean_error, "%")


def run(report: Report, section: str, makers: dict[str, Make], windows: Sequence[tuple[Any, Any, Truth]]) -> None:
    """Feed the same windows to several detectors, one window after the other."""
    tallies = {name: Tally(make) for name, make in makers.items()}
    for hosts, peers, truth in windows:
        for tally in tallies.values():
            tally.add(hosts, peers, truth, ask=section == "ftr")
    for name, tally in tallies.items():
        tally.report(report, section, name)


def ftr(report: Report, sizes: Sequence[int], detectors: Sequence[str]) -> None:
    """Measure total false rates by number of flows."""
    for full in sizes:
        supers = SIZES[full]
        flows, count = (full // 10, 2) if report.quick else (full, WINDOWS)
        makers: dict[str, list[Make]] = {
            "cube": [
                lambda: Cube(device="cpu"),
                lambda: Cube(device="cpu", exact=False),
                lambda flows=flows: Cube("128MiB", flows=flows, threshold=THETA, device="cpu", exact=False),
            ],
            "cbaa": [lambda: Cbaa(device="cpu")],
            "filter": [lambda: Filter(device="cpu")],
            "pairsample": [lambda: PairSample(device="cpu")],
        }
        titles = ("", ", dense", ", planned")
        chosen = {
            f"FTR, {full // 1_000_000} M flows: {name}{title}": make
            for name in detectors
            for title, make in zip(titles, makers[name], strict=False)
        }
        hosts = supers // 10 if report.quick else supers
        run(report, "ftr", chosen, _Windows(flows, hosts, count))


class _Windows(Sequence[tuple[Any, Any, Truth]]):
    """Windows that are generated on access, because a dozen of them would not fit into memory."""

    def __init__(self, flows: int, supers: int, count: int) -> None:
        self._traffic, self._count = (flows, supers), count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if number >= self._count:
            raise IndexError
        return window(*self._traffic, seed=number + 1)


def low(report: Report) -> None:
    """Measure low thresholds: planned and default geometries, dense."""
    windows = 2 if report.quick else WINDOWS
    for threshold in LOW_THRESHOLDS:
        rates: dict[str, list[float]] = {"planned": [], "default": []}
        for seed in range(1, windows + 1):
            hosts, peers, truth = window(LOW_FLOWS, LOW_FLOWS // 10_000, seed)
            cubes = {
                "planned": Cube("128MiB", flows=LOW_FLOWS, threshold=threshold, device="cpu", exact=False),
                "default": Cube(device="cpu", exact=False),
            }
            for name, cube in cubes.items():
                update_in_batches(cube, hosts, peers)
                rates[name].append(100 * score(cube.super_hosts(threshold), truth, threshold).ftr)
        for name, runs in rates.items():
            error = stdev(runs) / math.sqrt(len(runs))
            title = f"FTR, 100 k flows, threshold {threshold}: cube, {name}"
            report.add("low", title, fmean(runs), "%", note=f"± {error:.2f}", runs=runs)


def flood(report: Report) -> None:
    """Measure 5 M flows with a flood of spoofed sources on one victim, where both ends of every packet are hosts."""
    flows, spoofed, count = (500_000, 5_000_000, 1) if report.quick else (5_000_000, SPOOFED, FLOOD_WINDOWS)
    makers: dict[str, Make] = {
        "FTR, flood: cube": lambda: Cube(device="cpu", exact=False),
        "FTR, flood: cube, planned": lambda: Cube("128MiB", flows=2 * (flows + spoofed), device="cpu", exact=False),
    }
    tallies = {name: Tally(make) for name, make in makers.items()}
    for seed in range(1, count + 1):
        hosts, peers, _ = window(flows, flows // 8333, seed)
        random = np.random.default_rng(seed)
        sources = random.integers(0x20000000, 1 << 32, spoofed, dtype=np.uint32)
        victim = np.full(spoofed, hosts[0])
        left = np.concatenate([hosts, peers, sources, victim])
        right = np.concatenate([peers, hosts, victim, sources])
        exact = Exact(device="cpu")
        update_in_batches(exact, left, right)
        truth = Truth.of(exact)
        del exact
        for tally in tallies.values():
            tally.add(left, right, truth)
    for name, tally in tallies.items():
        tally.report(report, "flood", name)


def memory(report: Report) -> None:
    """Measure planned cubes of decreasing memory."""
    flows, supers, count = (500_000, 60, 2) if report.quick else (5_000_000, 600, 6)
    held = []
    makers: dict[str, Make] = {
        f"FTR, 5 M flows, {size} MiB": lambda size=size: Cube(
            size * MIB, flows=flows, threshold=THETA, device="cpu", exact=False
        )
        for size in MEMORIES
    }
    run(report, "memory", makers, _Windows(flows, supers, count))
    for size in MEMORIES:
        rate = next(figure.value for figure in report.figures if figure.name == f"FTR, 5 M flows, {size} MiB")
        if rate > 1:
            break
        held.append(size)
    if held:
        report.add("memory", "memory that holds 1 %, 5 M flows", held[-1], "MiB")


GIANTS = {  # peers of the hosts of a group
    "20 k to 200 k": np.geomspace(2e4, 2e5, 40),
    "100 k": [1e5] * 80,
    "130 k": [1.3e5] * 80,
    "150 k": [1.5e5] * 80,
    "1 M": [1e6] * 20,
    "2 M": [2e6] * 10,
    "10 M": [1e7] * 4,
}


def giants(report: Report) -> None:
    """Measure hosts with 20,000 to ten million peers, each group among 5 M flows, in a dense cube of the default."""
    hosts, peers, _ = window(500_000 if report.quick else 5_000_000, 60 if report.quick else 600, 1)
    random = np.random.default_rng(5)
    first = 0xC0000000
    for name, group in GIANTS.items():
        sizes = np.array(group[: 4 if report.quick else len(group)]).astype(np.int64)
        cube = Cube(device="cpu", exact=False)
        update_in_batches(cube, hosts, peers)
        for host, size in enumerate(sizes.tolist(), first):
            step, start = int(random.integers(1 << 31)) * 2 + 1, int(random.integers(1 << 32))
            numbers = np.arange(size, dtype=np.uint64) * np.uint64(step) + np.uint64(start)  # distinct modulo 2^32
            update_in_batches(cube, np.full(size, host, np.uint32), numbers.astype(np.uint32))
        rows = list(cube.estimate_many(np.arange(first, first + len(sizes), dtype=np.uint32)))
        held = [row.peers_low <= size <= (row.peers_high or size) for row, size in zip(rows, sizes, strict=True)]
        errors = np.array(
            [row.peers / size - 1 for row, size in zip(rows, sizes, strict=True) if row.peers is not None]
        )
        saturated = sum(row.saturated for row in rows)
        note = f"{len(rows)} hosts, {saturated} saturated; the truth in {sum(held)} intervals"
        report.add("giants", f"hosts of {name} peers: largest error", 100 * float(np.abs(errors).max()), "%", note=note)
        report.add("giants", f"hosts of {name} peers: rms error", 100 * float(np.sqrt((errors**2).mean())), "%")


if __name__ == "__main__":
    main()
