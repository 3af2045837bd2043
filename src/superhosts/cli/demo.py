"""`superhosts demo`: synthetic traffic, a scan, and the result beside the truth."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from superhosts.cli._declaration import check_no_conflict
from superhosts.cli._settings import make_settings
from superhosts.cli.scan import ScanRun, run_scan
from superhosts.cli.synth import synth
from superhosts.cli.usage.lab import Demo, Synth
from superhosts.core import defaults
from superhosts.core.files import os_errors
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.core.hosttable import interval_text, peers_text
from superhosts.core.keys import PUBLIC
from superhosts.core.pairs import Window
from superhosts.core.text import counted
from superhosts.errors import MissingExtraError, SuperhostsError
from superhosts.output.console import ReportedErrors, say
from superhosts.output.registry import OutputOptions, open_destinations
from superhosts.output.report import known_peers
from superhosts.output.table import print_table
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import load
from superhosts.sources.open import open_inputs

# The fleet: a hub and three edges on one machine, and the proof that their union is exact (--fleet)


SITES = ("ams", "fra", "nyc")
WINDOWS = 3
COMMON = ["--memory", "32MiB", "--key-file", PUBLIC]  # the same result everywhere
INNER = ["--inner", "10.0.0.0/8"]
PATIENCE = 120.0  # seconds for the whole demo; it takes up to a minute if nothing is compiled yet


def show_fleet(folder: Path, traffic: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # edges that find the state of an earlier demo would have nothing to do
    folder.mkdir()
    inputs = {site: f"synth:{traffic},windows={WINDOWS},share=0.6,part={part}" for part, site in enumerate(SITES, 1)}
    say(f"three places see overlapping traffic: each a random 60 % of the packets of {WINDOWS} windows")
    say("first one process over all packets, to compare with …")
    settings = Settings(inner=INNER[1:], memory=COMMON[1], key=DEFAULT_KEY, device="cpu")
    expected = {each.window: each.sketch for each in Scan(open_inputs([*inputs.values()], follow=True), settings)}
    with _processes() as start:
        link, sending = choose_link(folder)
        found, archive = folder / "found.jsonl", folder / "archive"
        sites = ["--sites", ",".join(SITES), "--grace", "60s", "--threshold", str(defaults.THRESHOLD)]
        keep = ["--output", str(found), "--archive", str(archive)]
        hub = start(["hub", "--state", str(folder / "hub"), *link, *sites, *keep, *COMMON], folder / "hub.log")
        edges = [
            start(
                ["edge", text, "--site", site, *sending, "--spool", str(folder / f"spool-{site}"), *INNER, *COMMON],
                folder / f"{site}.log",
            )
            for site, text in inputs.items()
        ]
        _wait(hub, edges, archive, folder)
        hub.send_signal(signal.SIGTERM)
        hub.wait(20)
    _show(_read_rows(found))
    _compare(expected, archive)


def _broker_port() -> int:
    """Return a free port for the embedded broker. Raises MissingExtraError if that is not installed."""
    from superhosts.fleet.nats.broker import find_server, free_port  # an optional package

    find_server()
    return free_port("127.0.0.1")


def choose_link(folder: Path, find_port: Callable[[], int] = _broker_port) -> tuple[list[str], list[str]]:
    """Return the options of hub and edges: the embedded broker, or plain files if its packages are missing."""
    try:
        place = f"127.0.0.1:{find_port()}"
    except MissingExtraError as error:
        say(f"{error}; using files instead")
        return ["--from", str(folder / "link")], ["--to", str(folder / "link")]
    return ["--listen", place], ["--nats", f"nats://{place}"]


@contextmanager
def _processes() -> Iterator[Any]:
    running: list[subprocess.Popen[bytes]] = []

    def start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        say(f"$ superhosts {' '.join(arguments)}")
        with log.open("wb") as file:
            command = [sys.executable, "-m", "superhosts", *arguments]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, stdin=subprocess.DEVNULL)
        running.append(process)
        return process

    try:
        yield start
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
        for process in running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(hub: Any, edges: list[Any], archive: Path, folder: Path) -> None:
    until = time.monotonic() + PATIENCE
    while any(edge.poll() is None for edge in edges) or len(list(archive.glob("*/*.cube"))) < WINDOWS:
        failed = [edge for edge in edges if edge.poll()]
        if hub.poll() is not None or failed or time.monotonic() > until:
            raise SuperhostsError(f"the fleet failed; its logs are in {folder}/*.log")
        time.sleep(0.1)


def _show(rows: list[dict[str, Any]]) -> None:
    """Print the hosts of the last window, with the number of peers that each site alone sees."""
    last = max((row["window_start"] for row in rows), default="")
    title = f"super hosts of the whole network, {last}, and what each site alone sees of them"
    cells = []
    for row in [row for row in rows if row["window_start"] == last][:12]:
        seen = {site["site"]: peers_text(site) for site in row["sites"]}
        cells.append((row["host"], *(seen.get(site, "–") for site in SITES), peers_text(row), interval_text(row)))
    print_table(("host", *SITES, "union", "95 % interval"), cells, title=title)
    only = sum(all(known_peers(site) < defaults.THRESHOLD for site in row["sites"]) for row in rows)
    print(f"{counted(len(rows), 'super host')} in {WINDOWS} windows; {only} of them no single site would have found")


def _compare(expected: dict[Window, Any], archive: Path) -> None:
    unions = {
        sketch.window: sketch for sketch in (load(path, key=DEFAULT_KEY) for path in sorted(archive.glob("*/*.cube")))
    }
    for window, sketch in expected.items():
        union = unions.get(window)
        if union is None or union.parts.keys() != sketch.parts.keys():
            raise SuperhostsError(f"the hub's windows or parts differ from those of one process: {window}")
        for part, detector in sketch.parts.items():
            if detector != union.parts[part]:
                raise SuperhostsError("the union differs from the result of one process: please report this")
    same = "every bit and label of the hub's unions equals that of one process over all packets"
    print(f"{counted(len(expected), 'window')}: {same}")


def demo(options: Demo) -> None:
    folder, super_hosts = options.folder, options.super_hosts
    if options.fleet:
        check_no_conflict(options, ["exact"], "not with --fleet, whose sketches hold no pairs")
    with os_errors(f"{folder}: cannot be created"):
        folder.mkdir(parents=True, exist_ok=True)
    if options.fleet:
        size = f"flows={options.flows or '200k'},packets={options.packets or '1M'},super_hosts={super_hosts}"
        show_fleet(folder / "fleet", size)
        return
    flows, packets = options.flows or "500k", options.packets or "5M"
    capture, found = folder / "demo.pcap", folder / "found.jsonl"
    say(f"$ superhosts synth {capture} --flows {flows} --packets {packets} --super-hosts {super_hosts}")
    synth(Synth(out=capture, flows=flows, packets=packets, super_hosts=super_hosts))
    more = "" if options.exact is None else f" --exact {options.exact}"
    say(f"$ superhosts scan {capture} --inner 10.0.0.0/8 --threshold {defaults.THRESHOLD} --output {found}{more}")
    outputs = open_destinations(OutputOptions(outputs=[str(found)]), table=False)
    settings = make_settings(options, inner=["10.0.0.0/8"], threshold=defaults.THRESHOLD)
    run_scan(open_inputs([str(capture)]), settings, outputs, ReportedErrors(), ScanRun())
    truth_rows = _read_rows(capture.with_suffix(".truth.jsonl"))
    truth = {row["host"]: row["peers"] for row in truth_rows if row["side"] == "inner"}
    _demo_compare(_read_rows(found), truth)


def _read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _demo_compare(rows: list[dict[str, Any]], truth: dict[str, int]) -> None:
    cells = []
    for row in rows:
        true = truth.get(row["host"], 0)
        error = "not seen" if not true else "–" if row["peers"] is None else f"{row['peers'] / true - 1:+.1%}"
        cells.append((row["host"], peers_text(row), interval_text(row), f"{true:,}", error))
    print_table(("host", "peers", "95 % interval", "truth", "error"), cells, title="found beside the truth")
    wanted = {host for host, peers in truth.items() if peers >= defaults.THRESHOLD}
    got = {row["host"] for row in rows}
    inside = sum(row["peers_low"] <= truth.get(row["host"], 0) <= (row["peers_high"] or 1 << 62) for row in rows)
    score = f"{len(wanted & got)} of {counted(len(wanted), 'super host')} found, {len(got - wanted)} false"
    if rows and all(row["exact"] for row in rows):
        same = sum(row["peers"] == truth.get(row["host"]) for row in rows)
        right = f"{same} of {counted(len(rows), 'number')} as in the truth"
        print(f"{score}; {right} (with --exact off: estimates and their intervals)")
    else:
        print(f"{score}; the truth in {inside} of {counted(len(rows), 'interval')}")
