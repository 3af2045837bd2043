"""Compare the speed of this source tree with another commit, alternating on the same input.

    python benchmarks/against.py HEAD~20
    python benchmarks/against.py v0.1.0 --rounds 15 --only update scan
    python benchmarks/against.py HEAD~20 --device cuda

The other commit is checked out into a temporary folder, without installing it. Each tree has one process, which runs
for the whole benchmark. They take turns, so that other load on the machine affects both. The figure of a case is the
median over all rounds of (seconds there / seconds here): above 1 this tree is faster. Processor time is reported, too,
because other load affects it less. A Markdown table goes to benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from captures import write_captures
from cases import FLOWS_5M, SHUFFLED_5M, TRAINS_5M
from harness import HERE, Report
from superhosts.sources.synthetic.traffic import Traffic

CASES = {
    "update": ("update shuffled", "update trains", "update batches of 1,000"),
    "restore": ("restore",),
    "scan": ("scan pcap", "scan pcapng", "scan pcap, every address"),
}


class Spent(NamedTuple):
    """Seconds of one run."""

    wall: float
    processor: float


class Tree:
    """A source tree, and the process that runs cases with it."""

    def __init__(self, source: Path, folder: Path, threads: int | None, device: str) -> None:
        path = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
        env = {**os.environ, "PYTHONPATH": path}
        worker = [sys.executable, str(HERE / "against_worker.py")]
        command = [*worker, str(source), str(folder), str(threads or ""), device]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def run(self, case: str) -> Spent:
        """Run one case."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(case, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{case}: the process has exited with status {self._process.wait()}")
        return Spent(*json.loads(line))

    def end(self) -> None:
        """Close the input of the process and wait for it to exit."""
        self._process.communicate()


def check_out(revision: str, folder: Path) -> tuple[Path, str]:
    """Write a commit's sources to a folder. Return the folder that contains its package, and the commit.

    `revision` may also be a folder that contains the package, for machines without the repository.
    """
    if Path(revision).is_dir():
        return Path(revision).resolve(), revision

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", "-C", str(HERE.parent), *arguments], stdout=subprocess.PIPE, check=True).stdout

    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}").decode().strip()
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=git("archive", f"{commit}:src"), check=True)
    return folder, commit


def main() -> None:
    """Measure, print the table, write the files."""
    parser = argparse.ArgumentParser(description="compare the speed of this source tree with another commit")
    parser.add_argument("revision", help="the commit to compare with, like HEAD~3, or a folder like its src")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each case (default 9)")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help=" ".join(CASES))
    parser.add_argument("--threads", type=int, help="threads of the detectors (default: one per core)")
    parser.add_argument("--device", default="cpu", help="device of the detectors: cpu (default) or cuda")
    parser.add_argument("--quick", action="store_true", help="ten times smaller inputs")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the Markdown file")
    options = parser.parse_args()
    report = Report(quick=options.quick)
    with tempfile.TemporaryDirectory(prefix="superhosts-against-") as name:
        folder = Path(name)
        there, commit = check_out(options.revision, folder / "src")
        make_inputs(folder, quick=options.quick)
        sources = (HERE.parent / "src", there)
        trees = [Tree(source, folder, options.threads, options.device) for source in sources]
        for section in options.only:
            for case in CASES[section]:
                measure(report, section, case, trees, options.rounds)
        for tree in trees:
            tree.end()
    print()
    print(report.table())
    title = f"Against {commit[:12]}, device {options.device}"
    name = f"against-{report.place}-{options.device}"
    for path in report.write(options.results, name, title):
        print(path)


def make_inputs(folder: Path, *, quick: bool) -> None:
    """Write the pairs and captures that all runs read."""
    for name, case in (("shuffled", SHUFFLED_5M), ("trains", TRAINS_5M), ("flows", FLOWS_5M)):
        (case.quick() if quick else case).save(folder).rename(folder / name)
    scale = 10 if quick else 1
    traffic = Traffic(flows=1_000_000 // scale, packets=20_000_000 // scale, super_hosts=120 // scale)
    pcap, pcapng = write_captures(traffic, folder)
    pcap.rename(folder / "scan.pcap")
    pcapng.rename(folder / "scan.pcapng")


def measure(report: Report, section: str, case: str, trees: list[Tree], rounds: int) -> None:
    """Run a case alternately in both trees, after one round that compiles and warms caches.

    The trees take turns in going first.
    """
    here, there = trees
    for tree in trees:
        tree.run(case)
    pairs: list[tuple[Spent, Spent]] = []
    for number in range(rounds):
        if number % 2:
            other = there.run(case)
            pairs.append((here.run(case), other))
        else:
            pairs.append((here.run(case), there.run(case)))
    for what in Spent._fields:
        ratios = [getattr(theirs, what) / getattr(ours, what) for ours, theirs in pairs]
        seconds = statistics.median(getattr(ours, what) for ours, _ in pairs)
        note = f"{seconds:.3f} s here (median)"
        report.add(section, f"{case}, {what}: there / here", statistics.median(ratios), "times", note=note, runs=ratios)


if __name__ == "__main__":
    main()
