"""Measure how fast columns become hosts and peers: `python benchmarks/columns.py [--quick] [--only ...]`.

text      address text to integers, one core: Arrow strings, lists, NumPy strings; every row compared with what it says
update    a cube from int64, text and data frames, against the same pairs as uint32 columns; the same bits
estimate  the numbers of peers of many hosts, given as integers and as text

Kinds of columns take turns, so that a change of the machine's speed meets all of them; the value is the best run.
"""

from __future__ import annotations

import argparse
import ipaddress
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from cases import SHUFFLED_5M, THETA, TRAINS_5M
from harness import HERE, Report, timed
from superhosts.core.columns.addresses import parse_spans
from superhosts.core.columns.hosts import hosts_of
from superhosts.core.columns.readers import column_of, text_of_arrow
from superhosts.core.pairs import HostFormat
from superhosts.detectors.cube import Cube

ROUNDS = 7
DISTINCT = 200_000  # texts that are made and compared; columns repeat them


def main() -> None:
    """Run the selected sections."""
    sections = {"text": text, "update": update, "estimate": estimate}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="ten times fewer rows")
    parser.add_argument("--only", nargs="+", choices=sections, default=list(sections))
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    report = Report(quick=options.quick)
    for name in options.only:
        start = time.perf_counter()
        sections[name](report)
        report.seconds[name] = time.perf_counter() - start
    print("\n" + report.table())
    part = "" if len(options.only) == len(sections) else "-" + "-".join(options.only)
    kind = "columns-quick" if options.quick else "columns"
    name = f"{kind}-{report.place}{part}"
    for path in report.write(options.results, name, title="Columns"):
        print(path)


def in_turns(calls: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return the seconds of every call, in rounds after one that is not counted."""
    runs: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            seconds = timed(call)[0]
            if turn:
                runs[name].append(seconds)
    return runs


def add_rates(report: Report, section: str, runs: dict[str, list[float]], rows: int, unit: str, note: str) -> None:
    """Add the best rate of each call, in millions of rows per second."""
    for name, seconds in runs.items():
        rates = [rows / each / 1e6 for each in seconds]
        report.add(section, f"{section}, {name}", max(rates), unit, note=note, runs=rates)


def text(report: Report) -> None:
    """Measure the parser on one core."""
    import polars as pl

    draw = np.random.default_rng(1)
    words = draw.integers(0, 1 << 64, (DISTINCT, 2), dtype=np.uint64)
    ipv4 = [ipaddress.IPv4Address(int(word) & 0xFFFFFFFF) for word in words[:, 0]]
    full = [ipaddress.IPv6Address(int(high) << 64 | int(low)) for high, low in words]
    short = [ipaddress.IPv6Address(0x20010DB8 << 96 | int(high) & 0xFFFF0000FFFF) for high, _ in words]
    repeats = 1 if report.quick else 10
    for label, addresses in (("IPv4", ipv4), ("IPv6 in full", full), ("IPv6 with ::", short)):
        texts = [str(each) for each in addresses] * repeats
        spans = text_of_arrow(pa.array(texts), "texts")[:3]
        kinds, found = parse_spans(*spans, threads=1)
        version = addresses[0].version
        wrong = sum(
            kind != version or int(high) << 64 | int(low) != int(address)
            for kind, (high, low), address in zip(kinds[:DISTINCT], found[:DISTINCT], addresses, strict=True)
        )
        note = f"one core; {wrong} wrong of {DISTINCT:,}"
        runs = in_turns({f"{label}, Arrow": lambda spans=spans: parse_spans(*spans, threads=1)})  # type: ignore[misc]
        add_rates(report, "text", runs, len(texts), "M rows/s", note)
        format = HostFormat() if version == 4 else HostFormat(6, 128)
        given = {
            f"{label}, list of str": texts,
            f"{label}, NumPy str": np.array(texts),
            f"{label}, Polars": pl.Series(texts),
        }
        calls = {
            name: lambda column=column, format=format: hosts_of(column_of(column, "hosts"), format)  # type: ignore[misc]
            for name, column in given.items()
        }
        add_rates(report, "text", in_turns(calls, 3), len(texts), "M rows/s", "all cores")


def update(report: Report) -> None:
    """Measure the update of a cube with each kind of column."""
    for full in (SHUFFLED_5M, TRAINS_5M):
        case = full.quick() if report.quick else full
        hosts, peers = case.make()
        count = len(hosts)
        wide = hosts.astype(np.int64), peers.astype(np.int64)
        texts = [pa.array(texts_of(column)) for column in (hosts, peers)]
        frame = pd.DataFrame({"src": wide[0], "dst": wide[1]})
        cube, other = Cube("128MiB", device="cpu", exact=False), Cube("128MiB", device="cpu", exact=False)
        cube.update(hosts, peers)
        other.update(*wide)
        other.update(*texts)
        same = all(np.array_equal(array, other.arrays()[name]) for name, array in cube.arrays().items())
        note = f"{'the same bits' if same else 'OTHER BITS'}; {case.score(other.super_hosts(THETA).hosts)}"

        def measured(call: Callable[[], None], cube: Cube = cube) -> Callable[[], None]:
            def run() -> None:
                cube.clear()
                call()
                cube.flush()

            return run

        calls = {
            "uint32": measured(lambda: cube.update(hosts, peers)),  # noqa: B023
            "int64": measured(lambda: cube.update(*wide)),  # noqa: B023
            "int64, data frame": measured(lambda: cube.update(frame, host="src", peer="dst")),  # noqa: B023
            "text, Arrow": measured(lambda: cube.update(*texts)),  # noqa: B023
        }
        runs = in_turns(calls)
        add_rates(
            report, "update", {f"{case.label}: {name}": each for name, each in runs.items()}, count, "M pairs/s", note
        )
        shares = [100 * a / b for a, b in zip(runs["uint32"], runs["int64"], strict=True)]
        value = 100 * min(runs["uint32"]) / min(runs["int64"])
        report.add("update", f"update, {case.label}: int64 / uint32", value, "%", note=note, runs=shares)


def texts_of(column: Any) -> list[str]:
    """Return IPv4 addresses as text."""
    parts = [(column >> shift & 255).astype(str).tolist() for shift in (24, 16, 8, 0)]
    return [".".join(each) for each in zip(*parts, strict=True)]


def estimate(report: Report) -> None:
    """Measure how long the questions of a million hosts take."""
    count = 100_000 if report.quick else 1_000_000
    case = SHUFFLED_5M.quick() if report.quick else SHUFFLED_5M
    cube = Cube("128MiB", device="cpu", exact=False)
    cube.update(*case.make())
    hosts = np.random.default_rng(2).integers(0, 1 << 32, count, dtype=np.uint32)
    given = {"uint32": hosts, "int64": hosts.astype(np.int64), "list of str": texts_of(hosts)}
    calls = {name: lambda column=column: cube.estimate_many(column) for name, column in given.items()}  # type: ignore[misc]
    for name, seconds in in_turns(calls, 3).items():
        report.add("estimate", f"estimate, {count:,} hosts: {name}", min(seconds), "s", runs=seconds)


if __name__ == "__main__":
    main()
