"""A fleet of real processes, and the faults that are injected into it round by round.

Every round gives each site the traffic of one more window and injects one fault meanwhile. The round ends when the
unions of all completed windows equal, bit for bit, those of one process over all traffic. Its events depend only on the
seed, the test and the number of the round.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleets import write_parcel
from places import TESTS
from processes import (
    COMMON,
    Node,
    broker_pid,
    ending,
    joined,
    kill_pid,
    make_edge,
    make_hub,
    one_process,
    rows,
    sites_traffic,
    unions,
    wait_for,
)
from processes import SITES as ALL_SITES
from superhosts.core.pairs import PacketBatch
from superhosts.output.report import make_rows
from superhosts.pipeline.scan import scan
from superhosts.sources.synthetic.capture import write_capture
from superhosts.sources.synthetic.traffic import Traffic

LONG = "SUPERHOSTS_CHAOS_ROUNDS" in os.environ
ROUNDS = int(os.environ.get("SUPERHOSTS_CHAOS_ROUNDS", "5"))
SITES = ALL_SITES if LONG else ALL_SITES[:2]  # every site is a process that starts again and again
SEED = int(os.environ.get("SUPERHOSTS_CHAOS_SEED", "1"))
SECONDS = 60  # of a window
WRONG_CLOCK = TESTS / "wrong_clock.py"
DAY = 86_400  # seconds
PANES = 3  # of a window that slides
THRESHOLD = 500
PACKETS = 3000  # of a window; a site sees 60 %, more than the thousand that close the previous window

Fault = Callable[["Fleet", random.Random], AbstractContextManager[None]]


LINKS = pytest.mark.parametrize("by_files", [False, True], ids=["nats", "files"])
FILES_OR_BOTH = LINKS if LONG else pytest.mark.parametrize("by_files", [True], ids=["files"])  # both in a long run


def share(percent: int, least: int = 2) -> int:
    """Return the rounds of one test: a percentage of all rounds, but at least `least`."""
    return max(min(ROUNDS, least), ROUNDS * percent // 100)


class Fleet:
    """A hub and edges that follow folders. A test decides when the traffic of a window arrives."""

    def __init__(
        self,
        folder: Path,
        windows: int,
        *,
        by_files: bool,
        start: int = Traffic.start,
        keys: bool = False,
        slides: bool = False,
    ):
        if not by_files:
            pytest.importorskip("nats", reason="pip install 'superhosts[fleet]'")
        self.folder = folder
        self.by_files = by_files
        self.slides = slides  # the windows of a round are panes of longer ones
        length = f"{PANES * SECONDS}s"
        cut = ["--window", length, "--slide", f"{SECONDS}s"] if slides else ["--window", f"{SECONDS}s"]
        self.archive = folder / "archive"
        options = ["--grace", "3s", "--threshold", str(THRESHOLD), *(cut if slides else [])]
        self.hub, link = make_hub(folder, *options, sites=SITES, by_files=by_files)
        self.url = link[-1]
        self.edges: dict[str, Node] = {}
        self.captures: dict[str, list[Path]] = {}  # captures of each site, one per window
        traffic = sites_traffic(windows + 1, seconds=SECONDS, packets=PACKETS, start=start)
        for site in SITES:
            (folder / "captures" / site).mkdir(parents=True)
            self.captures[site] = write_windows(folder / "ready" / site, traffic[site])
            options = [str(folder / "captures" / site), *cut]
            proof = ["--nkey", str(self.enroll(site))] if keys else []
            self.edges[site] = make_edge(folder, site, [*link, *proof], *options)
        self.truth = one_process([path for paths in self.captures.values() for path in paths], f"{SECONDS}s")
        self.windows = sorted(self.truth)[:windows]  # No traffic follows the last window, so edges never close it.
        self.killed_at_calls = 0
        self.ended = 0  # number of windows whose traffic is complete and followed by later traffic

    def enroll(self, site: str) -> Path:
        """Enroll a site and return its key. Without any enrolled site, a hub accepts every local client."""
        from superhosts.fleet.nats.enrolment import enroll

        return enroll(self.folder / "hub" / "broker", site)

    @property
    def nodes(self) -> dict[str, Node]:
        return {"hub": self.hub, **self.edges}

    @functools.cached_property
    def sketch_files(self) -> dict[str, list[Path]]:
        """The sketches of every site as an edge sends them, one per window."""
        return {site: self._parcels(site) for site in SITES}

    def _parcels(self, site: str) -> list[Path]:
        options: dict[str, Any] = {"memory": COMMON[1], "device": "cpu", "threads": 1, "site": site}
        run = scan(self.captures[site], inner="10.0.0.0/8", window=f"{SECONDS}s", **options)
        return [write_parcel(result.sketch, self.folder / "sketch_files" / site, site) for result in run]

    def live(self, name: str, count: int, faults: Sequence[Fault], then: Callable[[], object] = lambda: None) -> None:
        """Start all processes, run `count` rounds with the faults in random order, and end the processes in order."""
        with ending(*self.nodes.values()):
            for node in self.nodes.values():
                node.start()
            self.feed(0, SITES)
            self._play(name, count, faults)
            then()
            self._finish()

    def feed(self, number: int, sites: Sequence[str]) -> None:
        """Give sites the traffic of a window, as a capture program that rotates its files does."""
        for site in sites:
            put(self.captures[site][number], self.folder / "captures" / site)

    def is_exact(self) -> bool:
        if not self.hub.running and self.hub.process is not None and self.hub.process.returncode not in (0, -9):
            raise AssertionError(f"the hub has ended with status {self.hub.process.returncode}")
        wanted = self.windows[: self.ended]
        if len(list(self.archive.glob("*/*-hub.cube"))) < len(wanted):
            return False
        found = unions(self.archive)
        exact = all(found.get(window) == self.truth[window] for window in wanted)
        return exact and (not self.slides or self._is_sliding_exact())

    def check(self) -> None:
        wait_for(self.is_exact, f"the unions of {self.ended} windows are those of one process")
        for name, node in self.nodes.items():
            assert "Traceback" not in node.words, f"{name} shows a traceback"

    def _play(self, name: str, count: int, faults: Sequence[Fault]) -> None:
        deck: list[Fault] = []
        for number in range(count):
            chance = random.Random(f"{SEED} {name} {number}")
            if not deck:
                deck = chance.sample(list(faults), len(faults))
            fault = deck.pop()
            title = f"SUPERHOSTS_CHAOS_SEED={SEED}, {name}, round {number} of {count}: {fault.__name__}"
            print(title, flush=True)
            try:
                self._round(number + 1, fault, chance)
            except BaseException as error:
                error.add_note(title)
                raise

    def _round(self, number: int, fault: Fault, chance: random.Random) -> None:
        early = chance.sample(SITES, chance.randint(0, len(SITES)))
        self.feed(number, early)
        self.ended = number
        with fault(self, chance):
            self.feed(number, [site for site in SITES if site not in early])
        for node in self.nodes.values():
            if not node.running:
                node.start()
        self.check()

    def _finish(self) -> None:
        """Terminate all processes gracefully, and check that windows reported twice had the same rows."""
        for node in self.nodes.values():
            node.wait_ready()
        for site, edge in self.edges.items():
            assert edge.end() == 0, site
        assert self.hub.end() == 0
        self.check()
        issued: dict[tuple[object, ...], dict[str, object]] = {}
        for row in rows(self.folder / "found.jsonl"):
            name = (row["window_start"], row["revision"], row["host"])
            assert issued.setdefault(name, row) == row

    @functools.cached_property
    def sliding_truth(self) -> list[list[dict[str, Any]]]:
        paths = sorted(path for each in self.captures.values() for path in each)
        cut = {"window": f"{PANES * SECONDS}s", "slide": f"{SECONDS}s", "threshold": THRESHOLD}
        common: dict[str, Any] = {"memory": COMMON[1], "device": "cpu", "threads": 1, "exact": False}
        run = scan(paths, inner="10.0.0.0/8", **cut, **common)
        return [make_rows(result.window, result) for result in run]

    def _is_sliding_exact(self) -> bool:
        """Return True if the last rows of every window that slides are those of one process, with no site missing."""
        found = rows(self.folder / "found.jsonl")
        for expected in self.sliding_truth[: self.ended]:
            mine = [row for row in found if row["window_end"] == expected[0]["window_end"]]
            last = {row["host"]: row for row in mine if row["revision"] == max(each["revision"] for each in mine)}
            shared = [{name: row[name] for name in expected[0]} for row in last.values()]
            if shared != expected or any(row["missing"] for row in last.values()):
                return False
        return True


def write_windows(folder: Path, batches: list[PacketBatch]) -> list[Path]:
    folder.mkdir(parents=True)
    whole = joined(batches)
    indices = whole.time // (SECONDS * 10**9)
    paths = []
    for number, index in enumerate(np.unique(indices)):
        here = indices == index
        paths.append(folder / f"dump{number:04d}.pcap")
        write_capture(paths[-1], [(PacketBatch(4, whole.src[here], whole.dst[here], whole.time[here]),)])
    return paths


def put(path: Path, folder: Path, name: str | None = None) -> None:
    """Copy a file atomically into a folder that other processes read."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / (name or path.name)
    shutil.copyfile(path, target.with_name(f".{target.name}.tmp"))
    target.with_name(f".{target.name}.tmp").replace(target)


# Faults


@contextmanager
def kill(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """Kill one process (SIGKILL) at a random moment."""
    victim = chance.choice(["hub", *SITES, *([] if fleet.by_files else ["broker"])])
    yield
    time.sleep(chance.uniform(0.0, 1.5))
    if victim == "broker":
        kill_pid(broker_pid(fleet.folder))
    else:
        fleet.nodes[victim].kill()


@contextmanager
def restart(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """Terminate one process gracefully, and restart it after a while."""
    node = chance.choice(list(fleet.nodes.values()))
    node.wait_ready()
    assert node.end() == 0
    yield
    time.sleep(chance.uniform(0.0, 1.0))


@contextmanager
def pause(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """Stop one process or all (SIGSTOP), and continue them seconds later (SIGCONT)."""
    nodes = list(fleet.nodes.values())
    chosen = nodes if chance.random() < 0.2 else [chance.choice(nodes)]
    pids = [node.process.pid for node in chosen if node.process is not None]
    if not fleet.by_files and chance.random() < 0.3 and (pid := broker_pid(fleet.folder)) is not None:
        pids = [pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
        time.sleep(chance.uniform(0.5, 4.0))
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def replay(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """Deliver sketches and captures a second time, under their own names and under others."""
    for site in chance.sample(SITES, chance.randint(1, len(SITES))):
        past = range(fleet.ended)
        for number in chance.choices(past, k=3):
            folder = fleet.folder / "link" / site if fleet.by_files else fleet.folder / f"spool-{site}"
            put(fleet.sketch_files[site][number], folder)
        number = chance.choice(past)
        name = chance.choice([None, f"again{chance.randrange(10**6)}.pcap"])
        put(fleet.captures[site][number], fleet.folder / "captures" / site, name)
    yield


def set_clock(node: Node, seconds: float) -> dict[str, Any]:
    """Have a process run with a wrong clock from its next start on; return what that start needs."""
    node.runner = (str(WRONG_CLOCK),)
    return {"env": {**os.environ, "SUPERHOSTS_TEST_CLOCK": str(seconds)}}


@contextmanager
def shift_clock(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """One process is started with a clock that is days off, and set right when it is started again.

    In the second round the hub is 100 days ahead, and by that clock its archive is too old to be kept.
    """
    node = fleet.hub if LONG and chance.random() < 0.5 else chance.choice(list(fleet.edges.values()))
    days = chance.choice([-3650, -100, -1, 1, 100, 3650])
    if fleet.ended == 2:
        node, days = fleet.hub, 100
    node.wait_ready()
    assert node.end() == 0
    node.start(**set_clock(node, DAY * days))
    node.runner = ()
    node.wait_ready()
    yield
    wait_for(fleet.is_exact, "the unions are exact with a clock that is wrong")
    assert node.end() == 0


SYNC = ("fsync", "fdatasync")
RENAME = ("rename", "renameat", "renameat2")
UNLINK = ("unlink", "unlinkat")
WRITE = ("write", "pwrite64")  # SQLite writes with the second


def traced(calls: Sequence[str], what: str, when: str) -> tuple[str, ...]:
    """Return the strace command that tampers with system calls of a command. Calls are counted per thread."""
    names = ",".join(f"?{call}" for call in calls)  # "?" ignores calls that this machine lacks.
    wanted = ["-e", f"trace={names}", "-e", f"inject={names}:{what}:when={when}"]
    return ("strace", "-D", "-f", "-qq", "-o", "/dev/null", *wanted)


def need_strace() -> None:
    """Skip a test if strace cannot tamper with system calls, unless SUPERHOSTS_NEED_STRACE requires it."""
    why = "strace is not installed" if shutil.which("strace") is None else ""
    if not why:
        with tempfile.TemporaryDirectory() as folder:
            probe = [sys.executable, "-c", "import os, sys; os.rename(*sys.argv[1:])", f"{folder}/a", f"{folder}/b"]
            Path(folder, "a").touch()
            ended = subprocess.run([*traced(RENAME, "error=ENOSPC", "1..2"), *probe], capture_output=True, text=True)
        if os.strerror(errno.ENOSPC) not in ended.stderr:
            why = f"strace does not work here: {ended.stderr.strip()[-200:]}"
    if why and os.environ.get("SUPERHOSTS_NEED_STRACE"):
        pytest.fail(why)
    if why:
        pytest.skip(why)


@contextmanager
def under(node: Node, prefix: tuple[str, ...], fleet: Fleet) -> Iterator[None]:
    """Run a process behind a command prefix until the process dies or the round ends."""
    node.kill()
    node.prefix = prefix
    node.start()
    node.prefix = ()
    yield
    wait_for(lambda: not node.running or fleet.is_exact(), f"{' '.join(prefix)} has had its effect")


@contextmanager
def kill_at_call(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    node = chance.choice(list(fleet.nodes.values()))
    calls = chance.choice([SYNC, RENAME, UNLINK, WRITE[1:]])
    when = 1 if fleet.killed_at_calls == 0 else chance.randint(1, 8)
    with under(node, traced(calls, "signal=KILL", str(when)), fleet):
        yield
    node.wait_ready()  # A busy machine may take longer to start it than the others take for the round.
    if node.running:  # The process did not make that many calls.
        node.kill()
    else:
        fleet.killed_at_calls += 1


@contextmanager
def fail_disk(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """Let system calls of one process fail for a while, as if the disk were full or broken."""
    names = [*SITES, "hub"] if fleet.by_files else SITES  # The fault would also affect the hub's broker.
    node = fleet.nodes[chance.choice(names)]
    calls = chance.choice([SYNC, RENAME, (*SYNC, *RENAME), WRITE])
    first = chance.randint(1, 12)
    what = f"error={chance.choice(['ENOSPC', 'EIO', 'EDQUOT'])}"
    with under(node, traced(calls, what, f"{first}..{first + chance.randint(0, 12)}"), fleet):
        yield
    if node.running:
        node.kill()
