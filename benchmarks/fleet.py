"""Measure one hub and many edges: `python benchmarks/fleet.py [--quick] [--sites 10 100] [--traffic own]`.

The benchmark uses real processes: `superhosts hub` with its embedded broker, and one process with the senders of all
edges, so that the processor time of each can be measured separately. The sketches are generated beforehand. A hub that
has to compile needs about 200 MiB more memory and some seconds longer. So a first run, which is discarded, fills a
compile cache that only these hubs use. If a later run compiles anything, its report says so. Every hub first gets a
window of nearly empty sketches. The time is measured from the start of the senders, before they connect, until the
window's rows are on disk at the hub, with no site missing.

Ten different contents are generated, and every tenth site has the same one, in a file of its own.

shared    every content is a random third of one network's flows: all sites see most super hosts
own       every content has different flows: the union is as full as possible, every tenth site sees a host

All processes share the cores of one machine: processor seconds apply to other machines, wall-clock seconds do not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from cases import THETA, Score, warm_up
from fleet_edges import Fleet, Sent, send
from harness import HERE, PUBLIC_KEY, Report, superhosts_command, timed
from superhosts.core.pairs import Part, Window
from superhosts.core.times import window_name
from superhosts.fleet.store import DATABASE, UNION, WindowStore, as_lines
from superhosts.output.report import make_rows
from superhosts.sketch.files import estimate_in_file, read_header
from superhosts.sketch.sketch import Sketch, load

CLEARLY_THERE = 256  # peers at a site from which a host's list of sites should contain the site
DEADLINE = 900.0


def main() -> None:
    """Generate the sketches, send them over every link, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 and 5 sites of 0.2 M flows")
    parser.add_argument("--sites", type=int, nargs="+", metavar="N", help="numbers of sites (default 10 100)")
    parser.add_argument("--flows", type=int, metavar="N", help="flows of a site's window (default 5,000,000)")
    parser.add_argument("--windows", type=int, default=1, metavar="N", help="windows to send (default 1)")
    parser.add_argument("--traffic", choices=("shared", "own"), default="shared", help="overlap of the sites' flows")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the Markdown file")
    options = parser.parse_args()
    counts = sorted(options.sites or ([2, 5] if options.quick else [10, 100]))
    flows = options.flows or (200_000 if options.quick else 5_000_000)
    report = Report(quick=options.quick)
    warm_up()
    with TemporaryDirectory(prefix="superhosts-fleet-") as name:
        start = time.perf_counter()
        fleet = Fleet(Path(name), counts, flows, options.windows, options.traffic)
        fleet.make()
        report.seconds["make"] = time.perf_counter() - start
        note = f"{fleet.truth.flows / 1e6:.1f} M distinct flows and {len(fleet.truth.supers)} super hosts in the union"
        report.add("fleet", f"sketch of {flows / 1e6:g} M flows", fleet.mean_size() / 1e6, "MB", note=note)
        for label, run in ways(fleet, counts):
            start = time.perf_counter()
            run(report)
            report.seconds[label] = time.perf_counter() - start
    print("\n" + report.table())
    part = "" if options.traffic == "shared" else f"-{options.traffic}"
    kind = "fleet-quick" if options.quick else "fleet"
    name = f"{kind}-{report.place}{part}"
    for path in report.write(options.results, name, title=f"A hub and its edges, {options.traffic} traffic"):
        print(path)


def ways(fleet: Fleet, counts: list[int]) -> Iterator[tuple[str, Callable[[Report], None]]]:
    """Yield the measurements: NATS for every number of sites, files for the largest, steps of the hub's work."""
    peaks: dict[int, float] = {}

    def over(link: str, sites: int) -> Callable[[Report], None]:
        def run(report: Report) -> None:
            peak = measure(report, fleet, link, sites)
            if link == "NATS":
                peaks[sites] = peak

        return run

    def memory(report: Report) -> None:
        least, most = min(peaks), max(peaks)
        note = f"{peaks[most]:.0f} MiB against {peaks[least]:.0f} MiB"
        report.add(
            "fleet", f"hub's memory, {most} sites / {least} sites", peaks[most] / peaks[least], "times", note=note
        )

    yield "first run", lambda _: rehearse(fleet, min(counts))
    for sites in counts:
        yield f"NATS {sites}", over("NATS", sites)
    if len(counts) > 1:
        yield "memory", memory
    yield f"files {max(counts)}", over("files", max(counts))
    yield "split", lambda report: split(report, fleet)


def rehearse(fleet: Fleet, sites: int) -> None:
    """Run once so that everything is compiled, and discard the figures."""
    measure(Report(quick=True), fleet, "NATS", sites)


class Usage(NamedTuple):
    """Processor seconds of a process, and its peak memory in MiB."""

    cpu: float
    peak: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        cpu = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        return cls(cpu, int(status["VmHWM"].split()[0]) / 1024)


class HubProcess:
    """A process of `superhosts hub` with default settings, which waits for all sites."""

    def __init__(self, folder: Path, cache: Path, link: str, sites: list[str]) -> None:
        self._cache = cache
        self.state, self.output, self._log = folder / "hub", folder / "found.jsonl", folder / "hub.log"
        self.way = folder / "link" if link == "files" else f"nats://127.0.0.1:{_free_port()}"
        way_in = ["--from", str(self.way)] if link == "files" else ["--listen", str(self.way).removeprefix("nats://")]
        names = ["--sites", ",".join(sites), "--grace", "1h", "--output", str(self.output)]
        command = [*superhosts_command(), "hub", "--state", str(self.state), *names, *way_in]
        self.known = self.compiled
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **PUBLIC_KEY, "NUMBA_CACHE_DIR": str(cache)},
            )

    @property
    def compiled(self) -> set[Path]:
        """Files of compiled functions in the cache."""
        return set(self._cache.rglob("*.nbc"))

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until a condition holds. Raise RuntimeError with the hub's log if the hub exits or takes too long."""
        until = time.monotonic() + DEADLINE
        while not condition():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the hub did not reach: {what}\n{self._log.read_text()[-3000:]}")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Return True if the hub waits for sketches."""
        return "hub ready" in self._log.read_text()

    def has_reported(self, window: Window) -> bool:
        """Return True if the hub has reported a window's rows."""
        asked = "SELECT content FROM ledgers WHERE window = ?"
        with closing(sqlite3.connect(self.state / DATABASE)) as database:
            found = database.execute(asked, (window_name(window),)).fetchone()
        return found is not None and bool(json.loads(found[0])["issued"])

    @property
    def broker(self) -> int | None:
        """The process id of the broker, if there is one."""
        path = self.state / "broker" / "nats.pid"
        return int(path.read_text()) if path.exists() else None

    def end(self) -> None:
        """Terminate the hub, or kill it if it does not exit."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_hub(folder: Path, cache: Path, link: str, sites: list[str]) -> Iterator[HubProcess]:
    hub = HubProcess(folder, cache, link, sites)
    try:
        hub.wait(hub.is_ready, "its start")
        yield hub
    finally:
        hub.end()


def send_all(fleet: Fleet, folder: Path, hub: HubProcess, windows: list[Window], sites: int) -> Sent:
    """Send windows of all sites from a separate process. Return when the hub has sent all receipts."""
    fleet.lend(folder, windows, sites)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=send, args=(there, folder, hub.way, sites * len(windows)), daemon=True)
    process.start()
    try:
        there.close()
        hub.wait(lambda: here.poll(0.02), "receipts for all sketches")
        sent: Sent = here.recv()
        process.join(60)
        return sent
    finally:
        if process.is_alive():
            process.kill()


def measure(report: Report, fleet: Fleet, link: str, count: int) -> float:
    """Send windows over a link and return the hub's peak memory in MiB."""
    sites, windows = fleet.sites[:count], fleet.windows
    label = f"{link}, {count} sites of {fleet.flows / 1e6:g} M flows"
    print(f"{label} (load {os.getloadavg()[0]:.2f})", flush=True)
    cache = fleet.folder / "compiled"
    with TemporaryDirectory(dir=fleet.folder) as name, running_hub(Path(name), cache, link, sites) as hub:
        send_all(fleet, Path(name) / "first", hub, [fleet.warming], count)
        hub.wait(lambda: hub.has_reported(fleet.warming), "the report of the first window")
        pids = {"hub": hub.process.pid, **({"broker": hub.broker} if hub.broker else {})}
        before = {part: Usage.of(pid) for part, pid in pids.items()}
        skip = hub.output.stat().st_size
        sent = send_all(fleet, Path(name) / "spools", hub, windows, count)
        hub.wait(lambda: all(hub.has_reported(window) for window in windows), "the report")
        after = {part: Usage.of(pid) for part, pid in pids.items()}
        seconds = hub.output.stat().st_mtime - sent.start
        size = sum(path.stat().st_size for window in windows for path in fleet.files(window, count))
        each = len(windows)
        report.add("fleet", f"{label}: a window", seconds / each, "s", note=f"{each} waiting, {size / 1e6:.0f} MB")
        way = sent.delivered - sent.start
        note = f"{way / each:.2f} s until all receipts are back, {sent.breaks} broken connections"
        report.add("fleet", f"{label}: link", size / 1e6 / way, "MB/s", note=note)
        for part, usage in after.items():
            report.add("fleet", f"{label}: processor, {part}", (usage.cpu - before[part].cpu) / each, "s a window")
        report.add("fleet", f"{label}: processor, senders", sent.cpu / each, "s a window")
        fresh = len(hub.compiled - hub.known)
        notes = {"hub": f"{fresh} functions were compiled during the run" if fresh else ""}
        for part, usage in after.items():
            report.add("fleet", f"{label}: largest memory, {part}", usage.peak, "MiB", note=notes.get(part, ""))
        check(report, label, fleet, hub, skip, count)
        return after["hub"].peak


def check(report: Report, label: str, fleet: Fleet, hub: HubProcess, skip: int, count: int) -> None:
    """Compare unions and rows with the contents."""
    with hub.output.open("rb") as file:
        file.seek(skip)
        rows = [json.loads(line) for line in file]
    wrong = [row for row in rows if row["missing"] or row["revision"] != 1]
    if wrong:
        raise RuntimeError(f"{label}: rows of an incomplete window, like {wrong[0]}")
    for window in fleet.windows:
        union = load(hub.state / "windows" / window_name(window) / UNION)
        arrays = union.parts[Part()].arrays()
        same = np.array_equal(arrays["bits"], fleet.truth.bits) and np.array_equal(arrays["labels"], fleet.truth.labels)
        if not same or union.sites != set(fleet.sites[:count]):
            raise RuntimeError(f"{label}: the union of {window_name(window)} is not that of its sites")
    _check_rows(report, label, fleet, rows, fleet.sites[:count])


def _check_rows(report: Report, label: str, fleet: Fleet, rows: list[dict[str, Any]], sites: list[str]) -> None:
    true, found = fleet.truth.supers, {int(ip_address(row["host"])) for row in rows}
    clear = named = absent = noise = inside = listed = 0
    for row in rows:
        host = int(ip_address(row["host"]))
        if host not in true:
            continue
        seen = {each["site"]: each for each in row["sites"]}
        for site in sites:
            peers = fleet.peers_at(site, host)
            clear += peers >= CLEARLY_THERE
            named += peers >= CLEARLY_THERE and site in seen
            absent += peers == 0
            noise += peers == 0 and site in seen
            if peers and site in seen:
                listed += 1
                high = seen[site]["peers_high"]
                inside += seen[site]["peers_low"] <= peers and (high is None or peers <= high)
    score = Score(len(true), len(true.keys() - found), len(found - true.keys()))
    note = f"{score}; interval holds the truth for {100 * inside / max(1, listed):.1f} % of the sites named"
    name = f"{label}: sites named where a host has {CLEARLY_THERE} peers"
    report.add("fleet", name, 100 * named / max(1, clear), "%", note=note)
    name = f"{label}: sites named where a host was not"
    report.add("fleet", name, 100 * noise / max(1, absent), "%", note=f"{absent:,} hosts and sites")


def split(report: Report, fleet: Fleet) -> None:
    """Time the steps of the hub's work on the same files, sequentially in this process."""
    files = fleet.files(fleet.windows[0], len(fleet.sites))
    with TemporaryDirectory(dir=fleet.folder) as name:
        folder = Path(name)
        steps = dict(_steps(files, folder))
    total = sum(steps.values())
    for step, seconds in steps.items():
        report.add("split", f"step, {len(files)} sites: {step}", seconds, "s", note=f"{100 * seconds / total:.0f} %")


def _steps(files: list[Path], folder: Path) -> Iterator[tuple[str, float]]:
    store = WindowStore(folder)
    for path in files:
        os.link(path, store.incoming / path.name)
    yield "verify (read_header)", timed(lambda: [read_header(path) for path in files])[0]
    yield "store (Store.add)", timed(lambda: [store.add(store.incoming / path.name, path.name) for path in files])[0]
    union = Sketch()
    yield "merge (merge_file)", timed(lambda: [union.merge_file(path) for path in files])[0]
    seconds, found = timed(lambda: union.super_hosts(THETA))
    yield "restore (super_hosts)", seconds
    asked = {Part(): [item.host for item in found]}
    seconds, answers = timed(lambda: [list(estimate_in_file(path, asked)[Part()]) for path in files])
    yield "sites (estimate_in_file)", seconds
    yield "save the union", timed(lambda: union.save(folder / UNION))[0]
    seen = [
        [{"site": f"site{number:03d}", **row._asdict()} for number, row in enumerate(column) if row.peers_low >= 1]
        for column in zip(*answers, strict=True)
    ]
    rows = [{**row, "sites": sites} for row, sites in zip(make_rows(union.window, found), seen, strict=True)]
    window = store.windows()[0]
    yield "keep the rows (Store.write)", timed(lambda: store.write(window, rows=as_lines(map(_plain, rows))))[0]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    sites = [{name: each[name] for name in ("site", "peers", "peers_low", "peers_high")} for each in row["sites"]]
    return {**row, "sites": sites}


if __name__ == "__main__":
    main()
