"""`superhosts demo --fleet`: a hub and three edges on one machine, and the proof that their union is exact."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from superhosts.cli._console import say
from superhosts.core import defaults
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.core.keys import PUBLIC
from superhosts.core.pairs import Window
from superhosts.core.text import counted
from superhosts.detectors.base import Detector
from superhosts.errors import MissingExtraError, SuperhostsError
from superhosts.output.report import known_peers
from superhosts.output.table import OutputConsole, interval, peers_text
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import load
from superhosts.sources.open import open_inputs

SITES = ("ams", "fra", "nyc")
WINDOWS = 3
COMMON = ["--memory", "32MiB", "--key-file", PUBLIC]  # the same result everywhere
INNER = ["--inner", "10.0.0.0/8"]
PATIENCE = 120.0  # seconds for the whole demo; it takes up to a minute if nothing is compiled yet


def show_fleet(folder: Path, traffic: str) -> None:
    """Run the fleet and one process over the same packets, and show both answers."""
    shutil.rmtree(folder, ignore_errors=True)  # edges that find the state of an earlier demo would have nothing to do
    folder.mkdir()
    inputs = {site: f"synth:{traffic},windows={WINDOWS},share=0.6,part={part}" for part, site in enumerate(SITES, 1)}
    say(f"three places see overlapping traffic: each a random 60 % of the packets of {WINDOWS} windows")
    say("first one process over all packets, to compare with …")
    expected = _one_process(list(inputs.values()))
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
    rows = [json.loads(line) for line in found.read_text().splitlines()]
    _show(rows)
    _compare(expected, archive)


def _one_process(inputs: list[str]) -> dict[Window, Any]:
    settings = Settings(inner=INNER[1:], memory=COMMON[1], key=DEFAULT_KEY, device="cpu")
    return {result.window: result.sketch for result in Scan(open_inputs(inputs, follow=True), settings)}


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
    """Start processes that end together with this one."""
    running: list[subprocess.Popen[bytes]] = []

    def start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        say(f"$ superhosts {' '.join(arguments)}")
        with log.open("wb") as file:
            command = [sys.executable, "-m", "superhosts", *arguments]
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=file, stdin=subprocess.DEVNULL, env=os.environ
            )
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
    """Wait until all edges have ended and every window is in the archive."""
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
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    table.add_column("host", no_wrap=True)
    for name in (*SITES, "union", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in [row for row in rows if row["window_start"] == last][:12]:
        seen = {site["site"]: peers_text(site) for site in row["sites"]}
        table.add_row(row["host"], *(seen.get(site, "–") for site in SITES), peers_text(row), interval(row))
    OutputConsole().print(table)
    only = sum(all(known_peers(site) < defaults.THRESHOLD for site in row["sites"]) for row in rows)
    print(f"{counted(len(rows), 'super host')} in {WINDOWS} windows; {only} of them no single site would have found")


def _compare(expected: dict[Window, Any], archive: Path) -> None:
    """Compare the hub's unions with one process, bit by bit."""
    unions = {
        sketch.window: sketch for sketch in (load(path, key=DEFAULT_KEY) for path in sorted(archive.glob("*/*.cube")))
    }
    for window, sketch in expected.items():
        union = unions.get(window)
        if union is None or union.parts.keys() != sketch.parts.keys():
            raise SuperhostsError(f"the hub's windows or parts differ from those of one process: {window}")
        if not all(_same_content(sketch.parts[part], union.parts[part]) for part in sketch.parts):
            raise SuperhostsError("the union differs from the result of one process: please report this")
    same = "every bit and label of the hub's unions equals that of one process over all packets"
    print(f"{counted(len(expected), 'window')}: {same}")


def _same_content(left: Detector, right: Detector) -> bool:
    mine, others = left.arrays(), right.arrays()
    return mine.keys() == others.keys() and all(np.array_equal(mine[name], others[name]) for name in mine)
