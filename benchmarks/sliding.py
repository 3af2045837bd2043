"""Scans with windows that overlap against plain ones: `python benchmarks/sliding.py [--rounds N] [--device cuda]`.

Captures of synthetic traffic are scanned as a user does it, from the start of a process to its exit, with the file in
the page cache: with windows of 5 minutes, and with ones of which one ends every 30 seconds. Both take turns. The figure
is the time of the second as a multiple of the first, from the fastest runs and from processor seconds, which other load
affects less. Ten times as many windows also have ten times as many rows, which are written as JSON Lines.

The captures differ in the pairs of a window: few, many, and more than are counted exactly.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from harness import HERE, Report, superhosts_command
from tables import Spent, spend

CASES = {  # distinct pairs and packets of five minutes, number of such windows
    "100 k pairs, 1 M packets": (100_000, 1_000_000, 12),
    "1 M pairs, 10 M packets": (1_000_000, 10_000_000, 4),
    "10 M pairs, 20 M packets": (10_000_000, 20_000_000, 5),
    "10 M pairs, 50 M packets": (10_000_000, 50_000_000, 2),
}
WAYS = {"tumbling": (), "sliding": ("--slide", "30s")}


def make_capture(path: Path, flows: int, packets: int, windows: int) -> None:
    """Write synthetic traffic with some super hosts."""
    sizes = ["--flows", str(flows), "--packets", str(packets), "--windows", str(windows)]
    spend([*superhosts_command(), "synth", str(path), *sizes], len)


def scan(path: Path, device: str, options: tuple[str, ...]) -> Spent:
    """Scan as a user does it."""
    fixed = ["--inner", "10.0.0.0/8", "--window", "5m", "--json", "-q", "--device", device]
    return spend([*superhosts_command(), "scan", str(path), *fixed, *options], lambda output: len(output.splitlines()))


def main() -> None:
    """Make the captures, measure, write the results."""
    parser = argparse.ArgumentParser(description="Windows that overlap against plain ones")
    parser.add_argument("--quick", action="store_true", help="ten times fewer packets and pairs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; may be repeated")
    parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the Markdown file")
    options = parser.parse_args()
    report = Report(quick=options.quick)
    for case in options.case or CASES:
        flows, packets, windows = CASES[case]
        less = 10 if options.quick else 1
        with tempfile.TemporaryDirectory() as made:
            path = Path(made, "traffic.pcap")
            make_capture(path, flows // less, packets // less, windows)
            spent: dict[str, list[Spent]] = {way: [] for way in WAYS}
            for turn in range(options.rounds + 1):  # The first round compiles, and reads the file into the page cache.
                for way, arguments in WAYS.items():
                    found = scan(path, options.device, arguments)
                    if turn:
                        spent[way].append(found)
        for way, each in spent.items():
            least = min(one.processor for one in each)
            walls = [one.wall for one in each]
            report.add("sliding", f"scan, {case}: {way}", min(walls), "s", note=f"{least:.2f} processor s", runs=walls)
        wall, processor = (
            min(getattr(one, name) for one in spent["sliding"]) / min(getattr(one, name) for one in spent["tumbling"])
            for name in ("wall", "processor")
        )
        note = f"of processor seconds {processor:.2f} times"
        report.add("sliding", f"scan, {case}: sliding / tumbling", wall, "times", note=note)
    if not options.quick:
        where = report.place if options.device == "cpu" else f"{report.place}-{options.device}"
        name = f"sliding-{where}"
        for made_file in report.write(options.results, name, "Windows that overlap"):
            print(made_file)


if __name__ == "__main__":
    main()
