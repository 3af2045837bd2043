"""Run real processes of the command line, read their logs, and write captures of traffic that several sites see."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import forking
from superhosts.core.pairs import PacketBatch
from superhosts.pipeline.scan import scan
from superhosts.sketch.sketch import Sketch, load
from superhosts.sources.synthetic.capture import write_capture
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks
from traffic import content
from waiting import DEADLINE as DEADLINE
from waiting import wait_for as wait_for

COMMON = ["--memory", "256KiB"]
INNER = ["--inner", "10.0.0.0/8"]
SITES = ("ams", "fra", "nyc")


class Node:
    """One process of `superhosts` that can be killed and restarted. The log covers all starts."""

    def __init__(self, log: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        self.log = log
        self.arguments = arguments
        self.prefix = prefix
        self.runner: tuple[str, ...] = ()  # arguments of an interpreter that runs a changed command
        self.process: subprocess.Popen[bytes] | None = None
        self._since = 0  # length of the log at the last start

    def start(self, **options: Any) -> Node:
        self._since = len(self.words)
        with self.log.open("ab") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": log, **options}
            if self.prefix or self.runner:
                command = [*self.prefix, sys.executable, *(self.runner or ("-m", "superhosts")), *self.arguments]
                self.process = subprocess.Popen(command, **options)
            else:
                self.process = forking.start([*self.arguments], **options)
        return self

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def words(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait_ready(self) -> None:
        """Wait for the first output since the last start. From then on the process handles signals."""
        first = "hub ready" if self.arguments[0] == "hub" else "windows of earlier runs that wait"
        wait_for(lambda: first in self.words[self._since :] or not self.running, f"{first!r} is said")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.running:
            self.process.send_signal(number)
        return self.process.wait(DEADLINE)


@contextlib.contextmanager
def ending(*nodes: Node) -> Iterator[None]:
    """Terminate processes at the end of the block. If the test fails, print their logs."""
    try:
        yield
    except BaseException:
        for node in nodes:
            print(f"--- {node.log.name}\n{node.words[-3000:]}")
        raise
    finally:
        for node in nodes:
            if node.running:
                node.kill()


def free_port() -> int:
    """Return a port without a listener, outside the range from which the system assigns ephemeral ports."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)  # independent of seeds that a test sets
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def make_hub(
    folder: Path, *options: str, sites: tuple[str, ...] = SITES, by_files: bool = False
) -> tuple[Node, list[str]]:
    """Return a hub with an embedded broker, or one that reads a folder, and the options that connect an edge to it."""
    place, link = f"127.0.0.1:{free_port()}", str(folder / "link")
    keep = ["--output", str(folder / "found.jsonl"), "--archive", str(folder / "archive")]
    keep += ["--from", link] if by_files else ["--listen", place]
    arguments = ["hub", "--state", str(folder / "hub"), "--sites", ",".join(sites), *keep, *COMMON, *options]
    return Node(folder / "hub.log", *arguments), ["--to", link] if by_files else ["--nats", f"nats://{place}"]


make_hub_on_files = partial(make_hub, by_files=True)


def make_edge(folder: Path, site: str, link: list[str], *options: str) -> Node:
    arguments = ["edge", "--site", site, "--spool", str(folder / f"spool-{site}"), *link, *INNER, *COMMON, *options]
    return Node(folder / f"{site}.log", *arguments)


def sites_traffic(
    windows: int, *, seconds: int = 60, packets: int = 3000, seed: int = 5, start: int = Traffic.start
) -> dict[str, list[PacketBatch]]:
    """Return one stream of traffic as three sites see it: each sees 60 % of the packets, in order of time."""
    traffic = Traffic(
        flows=packets // 2,
        packets=packets,
        windows=windows,
        super_hosts=1,
        seed=seed,
        window_seconds=seconds,
        start=start,
    )
    batches = [batch for block in packet_blocks(traffic) for batch in block]
    generators = {site: np.random.default_rng([seed, number]) for number, site in enumerate(SITES)}
    return {
        site: [_select(batch, rng.random(len(batch)) < 0.6) for batch in batches] for site, rng in generators.items()
    }


def _select(batch: PacketBatch, keep: Any) -> PacketBatch:
    return PacketBatch(batch.family, batch.src[keep], batch.dst[keep], batch.time[keep])


def joined(batches: list[PacketBatch]) -> PacketBatch:
    return PacketBatch(
        4, *(np.concatenate([getattr(each, name) for each in batches]) for name in ("src", "dst", "time"))
    )


def write_captures(folder: Path, batches: list[PacketBatch], packets: int) -> list[Path]:
    """Write a site's traffic as captures of `packets` packets each, as a capture program rotates them."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = joined(batches)
    paths = []
    for number, start in enumerate(range(0, len(whole), packets)):
        path = folder / f"dump{number:04d}.pcap"
        write_capture(path, [(_select(whole, slice(start, start + packets)),)])
        paths.append(path)
    return paths


def packets_in(data: bytes) -> int:
    place, count = 24, 0
    while place < len(data):
        place += 16 + int.from_bytes(data[place + 8 : place + 12], "little")
        count += 1
    return count


def one_process(paths: list[Path], window: str) -> dict[str, Any]:
    """Return the content of every window's sketch from one scan over all captures."""
    run = scan(sorted(paths), inner="10.0.0.0/8", window=window, memory=COMMON[1], device="cpu", threads=1)
    return {str(result.window): content(result.sketch) for result in run}


def unions(archive: Path) -> dict[str, Any]:
    sketches: list[Sketch] = [load(path) for path in sorted(archive.glob("*/*-hub.cube"))]
    return {str(sketch.window): content(sketch) for sketch in sketches}


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file that may still be written to: complete lines only."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def windows_in(path: Path) -> int:
    return len({row["window_start"] for row in rows(path)})


def status_of(folder: Path) -> dict[str, Any]:
    """Return the status file of a hub or an edge, empty if it is not there yet."""
    path = folder / "status.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def broker_pid(folder: Path) -> int | None:
    """Return the process id of a hub's embedded broker, or None if it is not running or the id was reused."""
    try:
        pid = int((folder / "hub" / "broker" / "nats.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes() if Path("/proc/self").exists() else os.fsencode(folder)
    except (OSError, ValueError):
        return None
    return pid if os.fsencode(folder) in words else None


def kill_pid(pid: int | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
