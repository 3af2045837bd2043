"""Measure live captures: `python benchmarks/live.py [--rates 1e6 2e6] [--rounds 3] [--packets 2M] [--quick]`, as root.

In a network namespace of its own a synthetic capture arrives at one end of a veth pair (live_sender.py), at each rate;
a rate of 0 is as fast as the sender can. The real command captures it (`superhosts scan live:near0`), and in the same
round tcpdump does (`-w /dev/null`), so that both meet the same neighbours on this machine. Printed are the rate that
was reached, the share of packets that were dropped, the CPU time of the capture, whether the rows are those of a scan
of the file, and the share of the CPUs that the hypervisor took away ("steal"): on a machine with few cores a rate that
the sender does not reach says nothing about the capture.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from harness import HERE, PUBLIC_KEY, Report

OPTIONS = ["--window", "all", "--threshold", "500", "--json", "--device", "cpu"]
SUPERHOSTS = [sys.executable, "-m", "superhosts"]
INSIDE = "SUPERHOSTS_BENCH_INSIDE"  # set in the namespace
PATIENCE = 300.0  # seconds


class Outcome(NamedTuple):
    """What a capture has seen."""

    packets: int
    drops: int
    rows: list[tuple[str, int]]  # of tcpdump none
    rate: float  # packets/s that were sent
    steal: float  # share of the CPUs' time
    cpu: float  # seconds


def main() -> None:
    """Run all rounds, in a namespace."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", nargs="+", type=float, default=[1e6, 2e6, 0.0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--packets", default="2M", help="in the capture, which is sent twice")
    parser.add_argument("--quick", action="store_true", help="one round with fewer packets")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        command = ["unshare", "-n", sys.executable, *sys.argv]
        sys.exit(subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode)
    if options.quick:
        options.rounds, options.packets = 1, "500k"
    make_pair()
    report = Report(quick=options.quick)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sent.pcap"
        run([*SUPERHOSTS, "synth", str(path), "--packets", options.packets, "--flows", "200k"])
        truth = rows_of(run([*SUPERHOSTS, "scan", str(path), *OPTIONS]))
        capture(Path(folder), path, 1e5)  # compiles
        for rate in options.rates:
            measure(report, Path(folder), path, rate, options.rounds, truth)
    print("\n" + report.table())
    name = f"live{'-quick' if options.quick else ''}-{report.place}"
    for written in report.write(options.results, name, title="Live captures"):
        print(written)


def make_pair() -> None:
    """Make the pair of interfaces, which send nothing of their own."""
    run(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"])
    run(["ip", "link", "add", "near0", "type", "veth", "peer", "name", "far0"])
    for name in ("near0", "far0"):
        run(["ip", "link", "set", name, "up"])


def measure(report: Report, folder: Path, path: Path, rate: float, rounds: int, truth: list[tuple[str, int]]) -> None:
    """Let both capture in turn, round after round."""
    kinds = {"superhosts": capture, **({"tcpdump": dump} if shutil.which("tcpdump") else {})}
    seen: dict[str, list[Outcome]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, kind in kinds.items():
            seen[name].append(kind(folder, path, rate))
    wanted = f"{rate / 1e6:g} M/s" if rate else "full speed"
    for name, outcomes in seen.items():
        reached = [each.rate / 1e6 for each in outcomes]
        steal = statistics.median(each.steal for each in outcomes)
        note = f"asked for {wanted}; steal {steal:.0%}"
        if name == "superhosts":
            same = sum(each.rows == truth for each in outcomes)
            note += f"; rows as from the file in {same} of {rounds} rounds"
        report.add("live", f"{name} {wanted}: sent", statistics.median(reached), "M packets/s", note=note, runs=reached)
        drops = [100 * each.drops / (each.packets + each.drops) for each in outcomes]
        report.add("live", f"{name} {wanted}: dropped", statistics.median(drops), "%", runs=drops)
        cpu = [1e9 * each.cpu / each.packets for each in outcomes]
        report.add("live", f"{name} {wanted}: CPU", statistics.median(cpu), "ns/packet", runs=cpu)


def capture(folder: Path, path: Path, rate: float) -> Outcome:
    """Capture with superhosts."""
    counters, rows = folder / "counters.json", folder / "rows.jsonl"
    command = [*SUPERHOSTS, "scan", "live:near0", *OPTIONS, "--counters", str(counters)]
    with rows.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env={**os.environ, **PUBLIC_KEY})
    sent, steal, cpu = watch(process, path, rate)
    seen: dict[str, Any] = json.loads(counters.read_text())
    return Outcome(seen["packets"], seen["drops"], rows_of(rows.read_text()), sent, steal, cpu)


def dump(_: Path, path: Path, rate: float) -> Outcome:
    """Capture with tcpdump, which writes nowhere."""
    command = ["tcpdump", "-i", "near0", "-n", "-s", "128", "-B", str(64 << 10), "-w", "/dev/null"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    sent, steal, cpu = watch(process, path, rate)
    assert process.stderr is not None
    seen = {line.split(maxsplit=1)[1].strip(): int(line.split()[0]) for line in process.stderr if line[0].isdigit()}
    return Outcome(seen["packets captured"], seen["packets dropped by kernel"], [], sent, steal, cpu)


def watch(process: subprocess.Popen[Any], path: Path, rate: float) -> tuple[float, float, float]:
    """Send once a process captures, and stop it; return the rate, the steal and the CPU time of the process."""
    sender = subprocess.Popen(
        [sys.executable, str(HERE / "live_sender.py"), "near0", str(path), str(rate), "2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sender.stdout is not None
    sender.stdout.readline()
    until = time.monotonic() + PATIENCE
    while "socket:" not in Path(f"/proc/{process.pid}/maps").read_text():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{process.args!r} does not capture")
        time.sleep(0.05)
    before, used = steal_and_all(), cpu_of(process.pid)
    said, _ = sender.communicate("go\n")
    sent = json.loads(said)
    time.sleep(0.5)  # the last block of the ring comes a moment later
    after, cpu = steal_and_all(), cpu_of(process.pid) - used
    process.send_signal(signal.SIGINT)
    process.wait()
    return sent["sent"] / sent["seconds"], (after[0] - before[0]) / max(after[1] - before[1], 1), cpu


def cpu_of(number: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def steal_and_all() -> tuple[int, int]:
    """Return the ticks that the hypervisor took away, and all ticks, of all CPUs."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def rows_of(text: str) -> list[tuple[str, int]]:
    """Return hosts and peers of rows, without their times, which differ."""
    return sorted((row["host"], row["peers"]) for row in map(json.loads, text.splitlines()))


def run(command: list[str]) -> str:
    """Run a command to its end and return what it prints."""
    environment = {**os.environ, **PUBLIC_KEY}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


if __name__ == "__main__":
    main()
