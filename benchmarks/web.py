"""Measure the dashboard: `python benchmarks/web.py [--rounds 5] [--viewers 100] [--hosts 10000] [--quick]`.

The page: a window with many hosts, and a day of windows, shown by headless Chromium on this machine, first without
other viewers, then with many event streams open. Its own clock says when the first content was painted, and when the
table was there.

Detection: `superhosts watch` with `--web` follows a folder into which a capture is moved, and in turn nobody and many
viewers look at it; each viewer asks for the newest window when it hears of one, as pages do. Printed are the seconds
until the last window is reported, and the processor seconds of the watch. It reads as fast as it can, so windows come
after a second or so, where they usually take minutes. Viewers take processors, too: on a machine with few cores,
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
    """One run of a watch: until the last window was reported, and its processor time in all."""

    seconds: float
    processor: float
    told: str  # what the viewers have seen


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--hosts", type=int, default=10_000, help="hosts in each window")
    parser.add_argument("--packets", default="10M", help="in each window of the capture")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="two rounds with fewer packets; the bars do not apply")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.packets = 2, "3M"
    report = Report(quick=options.quick)
    with tempfile.TemporaryDirectory() as folder:
        measure_page(report, Path(folder), options)
        measure_detection(report, Path(folder), options)
    print("\n" + report.table())
    name = f"web{'-quick' if options.quick else ''}-{report.place}"
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
    from superhosts.core.results import Selection
    from superhosts.ui.board import Board
    from superhosts.ui.view import View

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
    watch(path, 0, options)  # compiles
    for _ in range(options.rounds):
        for count, runs in found.items():
            runs.append(watch(path, count, options))
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


def watch(path: Path, count: int, options: argparse.Namespace) -> Run:
    """Run one watch over the capture, which it gets when all viewers are there."""
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        folder, rows = Path(name) / "in", Path(name) / "rows.jsonl"
        folder.mkdir()
        command = [*SUPERHOSTS, "watch", str(folder), "--window", "60s", "--inner", "10.0.0.0/8", "--quiet"]
        command += ["--top", str(options.hosts), "--device", "cpu", "--web", ":0", "--output", str(rows)]
        out = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, env={**os.environ, **PUBLIC_KEY}, **out)  # type: ignore[call-overload]
        url = next(found[1].decode() for line in process.stderr if (found := re.search(rb"at (http://[^ \"]+)", line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        with viewers(url, count) as said:
            started = time.perf_counter()
            (folder / path.name).hardlink_to(path)
            # The last window stays open: a folder may get more files.
            wanted = options.hosts * (options.windows - 1)
            while not rows.exists() or sum(piece.count(b"\n") for piece in _pieces(rows)) < wanted:
                time.sleep(0.02)
            seconds = time.perf_counter() - started
            time.sleep(2.0)  # Viewers take the last window.
            process.terminate()
            usage = os.wait4(process.pid, 0)[2]
        process.returncode = 0
    return Run(seconds, usage.ru_utime + usage.ru_stime, "; ".join(said))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece


if __name__ == "__main__":
    main()
