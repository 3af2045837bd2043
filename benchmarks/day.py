"""A day of a fleet in minutes: `python benchmarks/day.py [--windows 288] [--pause 0.5]`.

A hub, three edges and three destinations (a file, a webhook, syslog) run as processes. Each edge follows a folder that
gets the captures of five minutes, one after the other, as fast as the hub reports them; 288 of them are a day. Windows
of 15 minutes slide by 5. Measured are the memory and the open files of every process after each window, the size of the
logs, and whether every row has arrived everywhere and is right.

Memory is flat if no process takes more than 5 % more, after any later window, than it took after the tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harness import HERE, PUBLIC_KEY, Report, superhosts_command
from superhosts.core.pairs import PacketBlock
from superhosts.pipeline.scan import scan
from superhosts.sources.open import open_inputs
from superhosts.sources.synthetic.capture import write_capture

SITES = ("ams", "fra", "nyc")
SECONDS, PANES = 300, 3
CUT = ("--window", f"{PANES * SECONDS}s", "--slide", f"{SECONDS}s")
COMMON = ("--memory", "1MiB")
THRESHOLD = 500
START = "2026-01-01"
WARM = 10  # windows after which nothing may grow
DEADLINE = 300.0


class Child:
    """One process, and what it takes."""

    def __init__(self, name: str, folder: Path, arguments: Sequence[str]) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*superhosts_command(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **PUBLIC_KEY},
            )
        self.memory: list[int] = []
        self.files: list[int] = []

    def measure(self) -> None:
        """Note the resident memory (KiB) and the open files."""
        place = Path("/proc") / str(self.process.pid)
        lines = (place / "status").read_text().splitlines()
        self.memory.append(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")))
        self.files.append(len(list((place / "fd").iterdir())))

    def end(self) -> int:
        """End the process in an orderly way."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)


class Webhook:
    """Receives batches of rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.rows += body["records"]
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Syslog:
    """Counts the lines that arrive over TCP."""

    def __init__(self) -> None:
        self.lines = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while size := stream.read(1):
                while not size.endswith(b" "):  # octet counting: a length, a space, the message
                    size += stream.read(1)
                stream.read(int(size))
                self.lines += 1


def write_captures(folder: Path, site: int, windows: int) -> list[Path]:
    """Write what a site sees of the traffic, a capture for each five minutes."""
    sizes = f"flows=24k,packets=30k,windows={windows},super_hosts=12,window={SECONDS}s,start={START}"
    (source,) = open_inputs([f"synth:{sizes},share=0.6,part={site}"])
    folder.mkdir(parents=True)
    blocks: dict[int, list[PacketBlock]] = {}
    for block in source.blocks():
        for batch in block:
            numbers = batch.time // (SECONDS * 10**9)
            for number in sorted(set(numbers.tolist())):
                blocks.setdefault(number, []).append((batch.take(numbers == number),))
    paths = []
    for number, own in sorted(blocks.items()):
        paths.append(folder / f"{number}.pcap")
        write_capture(paths[-1], iter(own))
    return paths


def reported(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of the hub's file."""
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def main() -> None:
    """Run the day."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=288, help="panes of five minutes (default 288: a day)")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two of them, at least")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the Markdown file")
    options = parser.parse_args()
    report = Report(quick=options.windows < 288)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        captures = {
            site: write_captures(folder / "ready" / site, number, options.windows + 1)
            for number, site in enumerate(SITES, 1)
        }
        webhook, syslog = Webhook(), Syslog()
        found = folder / "found.jsonl"
        link = folder / "link"
        outputs = (
            str(found),
            f"webhook+http://127.0.0.1:{webhook.server.server_port}/rows",
            f"syslog+tcp://127.0.0.1:{syslog.socket.getsockname()[1]}",
        )
        hub_options = ["--sites", ",".join(SITES), "--grace", "60s", "--threshold", str(THRESHOLD), *CUT, *COMMON]
        hub_options += [each for output in outputs for each in ("--output", output)]
        children = [Child("hub", folder, ["hub", "--state", str(folder / "hub"), "--from", str(link), *hub_options])]
        for site in SITES:
            (folder / "captures" / site).mkdir(parents=True)
            where = ["--site", site, "--spool", str(folder / "spool" / site), "--to", str(link), *CUT, *COMMON]
            traffic = [str(folder / "captures" / site), "--inner", "10.0.0.0/8"]
            children.append(Child(site, folder, ["edge", *traffic, *where]))
        for child in children:
            stack.callback(child.process.kill)
        begun, slowest = time.monotonic(), 0.0
        for number in range(options.windows + 1):
            moment = time.monotonic()
            for site in SITES:
                os.link(captures[site][number], folder / "captures" / site / captures[site][number].name)
            # The traffic that follows closes a pane, so the windows of the one before are due now.
            wait_for_windows(found, number, children)
            slowest = max(slowest, time.monotonic() - moment) if number > 1 else 0.0
            for child in children if number else ():
                child.measure()
            time.sleep(max(0.0, options.pause - (time.monotonic() - moment)))
        seconds = time.monotonic() - begun
        rows = list(reported(found))
        deadline = time.monotonic() + DEADLINE
        while (len(webhook.rows) < len(rows) or syslog.lines < len(rows)) and time.monotonic() < deadline:
            time.sleep(0.1)
        status = json.loads((folder / "hub" / "status.json").read_text())
        ended = [child.end() for child in children]
        tell(report, children, rows, webhook, syslog)
        report.add("day", "seconds for all windows", seconds, "s")
        report.add("day", "slowest window", slowest, "s", note="from its traffic to its rows")
        report.add("day", "reports that lacked a site or were revised", lacking(status), "reports")
        report.add("day", "rows that are wrong", wrong(rows, captures), "rows", note="against one scan of everything")
        report.add("day", "processes that ended with an error", sum(map(bool, ended)), "processes")
        print(f"{len(rows)} rows of {options.windows} windows")
    if options.windows >= 288:
        name = f"day-{report.place}"
        for made in report.write(options.results, name, "A day of a fleet"):
            print(made)


def wait_for_windows(found: Path, count: int, children: Sequence[Child]) -> None:
    """Wait until the hub has reported the windows that end with so many panes."""
    deadline = time.monotonic() + DEADLINE
    while len({row["window_end"] for row in reported(found)}) < count:
        if time.monotonic() > deadline or any(child.process.poll() is not None for child in children):
            words = "\n".join(f"{child.name}: {child.log.read_text()[-2000:]}" for child in children)
            raise SystemExit(f"window {count} did not come\n{words}")
        time.sleep(0.02)


def lacking(status: dict[str, Any]) -> int:
    """Return how many reports were incomplete or came again."""
    counters = status["hub"]
    return int(counters["incomplete"]) + int(counters["revisions"])


def tell(report: Report, children: Sequence[Child], rows: list[Any], webhook: Webhook, syslog: Syslog) -> None:
    """Add what the processes took, and what the destinations got."""
    for child in children:
        first = child.memory[min(WARM, len(child.memory)) - 1]
        later = child.memory[WARM:] or [first]
        report.add("day", f"memory of {child.name} after the tenth window", first / 1024, "MiB")
        report.add("day", f"memory of {child.name}, most later", 100 * (max(later) / first - 1), "% more")
        report.add("day", f"open files of {child.name}, most later", max(child.files[WARM:] or [0]), "files")
        report.add("day", f"log of {child.name}", child.log.stat().st_size / 1024, "KiB")
    report.add("day", "rows that the webhook lacks", len(rows) - len(webhook.rows), "rows")
    report.add("day", "rows that syslog lacks", len(rows) - syslog.lines, "rows")


def wrong(rows: list[dict[str, Any]], captures: dict[str, list[Path]]) -> int:
    """Return how many rows one scan of all captures does not have, or has in vain."""
    cut = {"window": f"{PANES * SECONDS}s", "slide": f"{SECONDS}s"}
    paths = [path for own in captures.values() for path in own[:-1]]
    common: dict[str, Any] = {"inner": "10.0.0.0/8", "threshold": THRESHOLD, "memory": "1MiB", "exact": False}
    expected = {}
    ends = {row["window_end"] for row in rows}
    for window in scan(paths, key=PUBLIC_KEY["SUPERHOSTS_KEY"], device="cpu", **cut, **common):
        for line in window.to_dict()["window_end"][:1]:
            if line in ends:
                expected |= {(line, str(row.host)): row.peers for row in window}
    found = {(row["window_end"], row["host"]): row["peers"] for row in rows}
    return sum(found.get(key) != expected.get(key) for key in found.keys() | expected.keys())


if __name__ == "__main__":
    main()
