"""CPU benchmarks: compare superhosts with other engines in speed, memory and accuracy, on the same input in one run.

    python benchmarks/cpu.py                     everything, about 15 minutes on two cores with 24 GiB
    python benchmarks/cpu.py --quick             ten times smaller inputs, to check that the benchmarks work
    python benchmarks/cpu.py --only restore scan

Requires the extra "bench" (pip install 'superhosts[bench]'). Use an idle machine: other load shows as a spread between
the smallest and the largest run. A Markdown table with machine, commit and command goes to benchmarks/results.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import time
import warnings
from pathlib import Path

from cases import warm_up
from harness import HERE, Report

SECTIONS = ("update", "steps", "memory", "restore", "scan", "compressed", "accuracy", "start")
HIGH_LOAD = 0.5


def main() -> None:
    """Run the selected sections, print the table, write the files."""
    parser = argparse.ArgumentParser(description="CPU benchmarks of superhosts")
    parser.add_argument("--quick", action="store_true", help="ten times smaller inputs")
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="NAME", help=" ".join(SECTIONS)
    )
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the Markdown file")
    options = parser.parse_args()
    report = Report(quick=options.quick)
    machine = report.machine
    print(f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['kernel']}")
    if report.load > HIGH_LOAD:
        print(f"load average {report.load:.2f}: other processes are running, the figures will be too low")
    warnings.filterwarnings("error", module="superhosts")  # A sketch warns if it is too small for its threshold.
    warm_up()
    sections = [section for section in SECTIONS if section in options.only]
    with tempfile.TemporaryDirectory(prefix="superhosts-bench-") as folder:
        for section in sections:
            print(f"{section} (load {os.getloadavg()[0]:.2f})", flush=True)
            start = time.perf_counter()
            importlib.import_module(f"cpu_{section}").run(report, Path(folder))
            report.seconds[section] = time.perf_counter() - start
    print()
    print(report.table())
    kind = "cpu-quick" if options.quick else "cpu"
    part = "" if len(sections) == len(SECTIONS) else "-" + "-".join(sections)
    for path in report.write(options.results, f"{kind}-{report.place}{part}"):
        print(path)


if __name__ == "__main__":
    main()
