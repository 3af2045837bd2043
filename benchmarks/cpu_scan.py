"""Section "scan": the command line on a capture of small packets, from the start of the process to its exit."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

from captures import FRAME, first_packets, write_captures
from cases import truth_of
from harness import Report, run_command
from superhosts.sources.synthetic.traffic import Traffic

ROUNDS = 3
INNER = ("--inner", "10.0.0.0/8")
TINY = 1000  # packets of the capture whose scan measures the start-up time of the process
START = ", start"
MARGIN = 3  # a difference counts only if it is at least this many times the spread of start-up times


def run(report: Report, folder: Path) -> None:
    """Measure pcap and pcapng, with and without a monitored network."""
    scale = 10 if report.quick else 1
    traffic = Traffic(flows=1_000_000 // scale, packets=60_000_000 // scale, super_hosts=120 // scale)
    pcap, pcapng = write_captures(traffic, folder)
    jobs: dict[str, tuple[Path, tuple[str, ...]]] = {}
    for kind, path in (("pcap", pcap), ("pcapng", pcapng)):
        tiny = first_packets(path, TINY, folder / f"tiny.{kind}")
        for what, options in (("--inner", INNER), ("every address", ())):
            jobs[f"{kind}, {what}"] = path, options
            jobs[f"{kind}, {what}{START}"] = tiny, options  # The same options load the same code.
    runs: dict[str, list[float]] = {name: [] for name in jobs}
    notes: dict[str, str] = {}
    for turn in range(ROUNDS + 1):  # The first round warms the compile cache and the page cache.
        for name, (path, options) in jobs.items():
            seconds, output = run_command("scan", str(path), *options, "--json", "--quiet")
            if turn:
                runs[name].append(seconds)
            elif not name.endswith(START):
                notes[name] = _check(output, traffic)
    pcap.unlink()
    pcapng.unlink()
    millions = traffic.packets / 1e6
    net: dict[str, float] = {}
    for name, note in notes.items():
        rates = [millions / seconds for seconds in runs[name]]
        note = f"{traffic.packets:,} packets of {FRAME} bytes; {note}"
        report.add("scan", f"scan, {name}: whole process", max(rates), "M packets/s", note=note, runs=rates)
        starts = runs[name + START]
        work = min(runs[name]) - min(starts)
        if work < MARGIN * (max(starts) - min(starts)) or work < min(starts) / 4:
            print(f"  scan, {name}: {work:.3f} s beyond a start of {min(starts):.2f} s are too few to compute a rate")
            continue
        net[name] = millions / work
        note = f"start {min(starts):.2f} to {max(starts):.2f} s, the same scan of {TINY:,} packets; best minus best"
        report.add("scan", f"scan, {name}: without the start", net[name], "M packets/s", note=note)
    for what in ("--inner", "every address"):
        if f"pcap, {what}" in net and f"pcapng, {what}" in net:
            ratio = net[f"pcapng, {what}"] / net[f"pcap, {what}"]
            report.add("scan", f"scan, {what}: pcapng / pcap, without the start", ratio, "times")


def _check(output: str, traffic: Traffic) -> str:
    """Check that the scan found most inner super hosts, so that an incomplete scan does not count as fast."""
    inner = ipaddress.ip_network(INNER[1])
    hosts = {ipaddress.ip_address(json.loads(line)["host"]) for line in output.splitlines()}
    found, true = {int(host) for host in hosts if host in inner}, truth_of(traffic)
    if len(true & found) < 0.9 * len(true):
        raise RuntimeError(f"scan found {len(true & found)} of {len(true)} super hosts")
    return f"{len(true)} true, {len(true - found)} missed, {len(found - true)} false"
