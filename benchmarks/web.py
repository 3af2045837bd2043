"""Measure the dashboard: `python benchmarks/web.py [--rounds 5] [--viewers 100] [--hosts 10000] [--quick]`.

The page: a window with many hosts, and a day of windows, shown by headless Chromium on this machine, first without
other viewers, then with many event streams open. Its own clock says when the first content was painted, and when the
table was there.

Detection: `superhosts watch` reads a capture from standard input, with `--web`, and in turn nobody and many viewers look
at it; each viewer asks for everything again when a window closes, as pages do. Printed are the seconds from the first
packet to the end, and the processor seconds of the watch. Viewers take processors, too: on a machine with few cores,
compare processor seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness import HERE, PUBLIC_KEY, Report

sys.path.insert(0, str(HERE.parent / "tests"))

SUPERHOSTS = [sys.executable, "-m", "superhosts"]
DAY = 288  # windows of five minutes


class Run(NamedTuple):
    """One run of a watch."""

    seconds: float
    processor: float
    told: str  # what the viewers have seen


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--hosts", type=int, default=10_000, help="hosts in each window")
    parser.add_argument("--packets", default="20M", help="in each window of the capture")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="two rounds with fewer packets; the bars do not apply")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.packets = 2, "2M"
    report = Report(quick=options.quick)
    with tempfile.TemporaryDirectory() as folder:
        measure_page(report, Path(folder), options)
        measure_detection(report, Path(folder), options)
    print("\n" + report.table())
    name = f"web{'-quick' if options.quick else ''}-{report.machine['arch']}-{report.started:%Y-%m-%d}"
    for written in report.write(options.results, name, title="The dashboard"):
        print(written)


@contextlib.contextmanager
def viewers(url: str, count: int) -> Iterator[list[str]]:
    """Look at a dashboard with many viewers, in a process of their own; the list has what they say in the end."""
    said: list[str] = []
    if count == 0:
        yield said
        return
    command = [sys.executable, str(HERE / "web_viewers.py"), url, str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield said
    finally:
        process.stdin.close()
        said.append(process.stdout.read().strip())
        process.wait()


def measure_page(report: Report, folder: Path, options: argparse.Namespace) -> None:
    """Show the page, again and again, with an empty cache."""
    if shutil.which("chromium") is None:
        print("chromium is not installed: the page is not measured")
        return
    from browsing import Visit, chromium
    from dashboards import report as window_of
    from dashboards import row, serving
    from superhosts.selection import Selection
    from superhosts.views.board import Board
    from superhosts.views.view import View

    view = View("benchmark", Board(), lambda: Selection(1024.0), is_live=True)
    for number in range(DAY):
        hosts = options.hosts if number == DAY - 1 else 1000
        rows = [row(f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}", 1024 + (hosts - at), number) for at in range(hosts)]
        view.board.write(window_of(number, rows))
    with serving(view) as web, chromium(folder / "profile") as context:
        for count in (0, options.viewers):
            painted, shown = [], []
            with viewers(web.url, count):
                for _ in range(options.rounds + 1):
                    context.clear_cookies()
                    visit = Visit(context, web.url)
                    page = visit.open()
                    page.wait_for_selector(".hosts tbody a")
                    paints = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
                    painted.append(page.evaluate(paints) / 1000)
                    shown.append(page.evaluate("() => performance.getEntriesByName('shown')[0].startTime") / 1000)
                    visit.close()
            who = f"{count} viewers"
            best, times = statistics.median(painted[1:]), painted[1:]
            report.add("page", f"page, {options.hosts:,} hosts, {who}: first paint", best, "s", runs=times)
            best, times = statistics.median(shown[1:]), shown[1:]
            report.add("page", f"page, {options.hosts:,} hosts, {who}: table shown", best, "s", runs=times)


def measure_detection(report: Report, folder: Path, options: argparse.Namespace) -> None:
    """Let a watch read the capture with and without viewers, in turn."""
    path = folder / "capture.pcap"
    flows = 40 * options.hosts
    sizes = ["--packets", options.packets, "--flows", str(flows), "--windows", str(options.windows), "--window", "60s"]
    subprocess.run([*SUPERHOSTS, "synth", str(path), *sizes], check=True, stderr=subprocess.DEVNULL)
    found: dict[int, list[Run]] = {0: [], options.viewers: []}
    watch(path, 0, options.hosts)  # compiles
    for _ in range(options.rounds):
        for count, runs in found.items():
            runs.append(watch(path, count, options.hosts))
    for name, unit in (("seconds", "s"), ("processor", "CPU s")):
        for count, runs in found.items():
            values = [float(getattr(run, name)) for run in runs]
            figure = f"watch, {count} viewers: {'' if name == 'seconds' else 'processor '}time"
            report.add("detection", figure, statistics.median(values), unit, runs=values, note=runs[-1].told)
        ratios = [
            float(getattr(watched, name) / getattr(alone, name))
            for alone, watched in zip(found[0], found[options.viewers], strict=True)
        ]
        what = "time" if name == "seconds" else "processor time"
        figure = f"watch, {options.viewers} viewers / none: {what}"
        report.add("detection", figure, statistics.median(ratios), "", runs=ratios)


def watch(path: Path, count: int, hosts: int) -> Run:
    """Run one watch over the capture, which it gets when all viewers are there."""
    command = [*SUPERHOSTS, "watch", "-", "--window", "60s", "--inner", "10.0.0.0/8", "--top", str(hosts), "--quiet"]
    command += ["--web", ":0", "--device", "cpu", "--json"]
    environment = {**os.environ, **PUBLIC_KEY}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=False,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    with path.open("rb") as capture:
        process.stdin.write(capture.read(24))  # the head: a watch opens its inputs before its dashboard
        process.stdin.flush()
        url = ""
        for line in process.stderr:
            if found := re.search(rb"dashboard at (http://[^ \"]+)", line):
                url = found[1].decode()
                break
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        with viewers(url, count) as said:
            started = time.perf_counter()
            shutil.copyfileobj(capture, process.stdin, 1 << 20)
            process.stdin.close()
            usage = os.wait4(process.pid, 0)[2]
            seconds = time.perf_counter() - started
    process.returncode = 0
    return Run(seconds, usage.ru_utime + usage.ru_stime, "; ".join(said))


if __name__ == "__main__":
    main()
