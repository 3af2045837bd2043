"""Section "start": start-up time of the command line."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from harness import Report, run_command
from superhosts.sources.synthetic.capture import write_capture
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks

INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}  # pip compiles what it installs to bytecode; here the first run does


def run(report: Report, folder: Path) -> None:
    """Measure --help, a scan of a tiny capture, and a first scan with an empty compile cache."""
    tiny = folder / "start.pcap"
    write_capture(tiny, packet_blocks(Traffic(flows=1000, packets=5000, super_hosts=0)))
    scan = ("scan", str(tiny), "--inner", "10.0.0.0/8", "--json", "--quiet")
    run_command("--help", env=INSTALLED)
    run_command(*scan, env=INSTALLED)
    helps = [run_command("--help", env=INSTALLED)[0] for _ in range(5)]
    warm = [run_command(*scan, env=INSTALLED)[0] for _ in range(5 if report.quick else 20)]
    cold = []
    for _ in range(1 if report.quick else 3):
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            cold.append(run_command(*scan, env={**INSTALLED, "NUMBA_CACHE_DIR": empty})[0])
    report.add("start", "start: superhosts --help", min(helps), "s", runs=helps)
    report.add("start", "start: scan of a tiny capture, warm caches", statistics.median(warm), "s", runs=warm)
    report.add("start", "start: very first scan, empty compile cache", min(cold), "s", runs=cold)
