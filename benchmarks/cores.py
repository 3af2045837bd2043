"""How the rates of updates and scans grow with the number of cores, beside the limits of the machine.

    python benchmarks/cores.py                       1, 2, 4, … cores, up to all
    python benchmarks/cores.py --cores 1 2 --quick
    python benchmarks/cores.py --only scan --devices cpu cuda

Each measurement is a process of its own that may use only the first so many cores. Rounds are interleaved, and the best
one counts. The limits: copying memory, reading a capture, walking one whose bytes are in a core's cache, and both
together ("columns": nothing is done with the packets).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

from captures import first_packets, write_captures
from cases import SHUFFLED_5M, SHUFFLED_48M
from harness import HERE, PUBLIC_KEY, Report, superhosts_command
from superhosts.sources.synthetic.traffic import Traffic

TINY = 1000  # packets of the capture whose scan measures the start
INNER = "10.0.0.0/8"


def main() -> None:
    """Measure, print the table, write the files."""
    parser = argparse.ArgumentParser(description="rates of superhosts by number of cores")
    everything = len(os.sched_getaffinity(0))
    doubled = [n for n in (1 << bits for bits in range(10)) if n < everything]
    parser.add_argument("--cores", type=int, nargs="+", default=[*doubled, everything])
    parser.add_argument("--devices", nargs="+", default=["cpu"], help="of the scans; on a GPU, cores only feed it")
    parser.add_argument("--formats", nargs="+", choices=("pcap", "pcapng"), default=["pcap", "pcapng"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=("limits", "update", "scan"), default=["limits", "update", "scan"])
    parser.add_argument("--quick", action="store_true", help="ten times smaller inputs")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the Markdown file")
    options = parser.parse_args()
    report = Report(quick=options.quick)
    with tempfile.TemporaryDirectory(prefix="superhosts-bench-") as name:
        folder = Path(name)
        if "update" in options.only:
            _updates(report, folder, options)
        if {"scan", "limits"} & set(options.only):
            _scans(report, folder, options)
    print(report.table())
    for path in report.write(options.results, f"cores-{report.place}-{'-'.join(options.only)}", "Cores"):
        print(path)


def _updates(report: Report, folder: Path, options: Any) -> None:
    numbers = options.cores
    for case in (SHUFFLED_5M, SHUFFLED_48M):
        used = case.quick() if report.quick else case
        place = str(used.save(folder))
        runs: dict[int, list[float]] = {cores: [] for cores in numbers}
        for _ in range(options.rounds):
            for cores in numbers:
                runs[cores].append(used.pairs / 1e6 / _worker(cores, "update", place))
        for cores, rates in runs.items():
            report.add("update", f"update, {used.label}: {_cores(cores)}", max(rates), "M pairs/s", runs=rates)


def _scans(report: Report, folder: Path, options: Any) -> None:
    scale = 10 if report.quick else 1
    traffic = Traffic(flows=1_000_000 // scale, packets=60_000_000 // scale, super_hosts=120 // scale)
    captures = [path for path in write_captures(traffic, folder) if path.suffix[1:] in options.formats]
    millions = traffic.packets / 1e6
    if "limits" in options.only:
        for cores in options.cores:
            rates = [_worker(cores, "copy", "") for _ in range(options.rounds)]
            report.add("limits", f"copy memory: {_cores(cores)}", max(rates), "GB/s", runs=rates)
        for path, what, cores in product(captures, ("read", "walk", "columns"), options.cores):
            rates = [millions / _worker(cores, what, str(path)) for _ in range(options.rounds)]
            title = f"{what}, {path.suffix[1:]}: {_cores(cores)}"
            report.add("limits", title, max(rates), "M packets/s", runs=rates)
    if "scan" not in options.only:
        return
    for path in captures:
        tiny = first_packets(path, TINY, folder / f"tiny{path.suffix}")
        places = list(product(options.devices, options.cores))
        times: dict[Any, list[float]] = {(*place, each): [] for place in places for each in (path, tiny)}
        for turn in range(options.rounds + 1):  # the first round warms the caches
            for (device, cores, each), seconds in times.items():
                taken = _scan(cores, each, device)
                if turn:
                    seconds.append(taken)
        for device, cores in places:
            whole, start = times[device, cores, path], times[device, cores, tiny]
            work = min(whole) - min(start)
            note = f"whole {min(whole):.2f} s, start {min(start):.2f} s; best minus best"
            report.add(
                "scan", f"scan, {path.suffix[1:]}, {device}: {_cores(cores)}", millions / work, "M packets/s", note=note
            )


def _worker(cores: int, *arguments: str) -> float:
    """Run a measurement of `cores_worker.py` on the first cores and return its figure."""
    command = [sys.executable, str(HERE / "cores_worker.py"), *arguments]
    return float(json.loads(_run(cores, command)))


def _scan(cores: int, path: Path, device: str) -> float:
    command = [*superhosts_command(), "scan", str(path), "--inner", INNER, "--json", "--quiet", "--device", device]
    start = time.perf_counter()
    _run(cores, command)
    return time.perf_counter() - start


def _run(cores: int, command: list[str]) -> str:
    first = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **PUBLIC_KEY},
        preexec_fn=lambda: os.sched_setaffinity(0, first),
    )
    if done.returncode:
        raise RuntimeError(f"{command}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def _cores(number: int) -> str:
    return "1 core" if number == 1 else f"{number} cores"


if __name__ == "__main__":
    main()
