"""Scans of live inputs in a thread, the pipes that feed them, and a clock that stands still."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import packets as p
from superhosts.core.pairs import PacketBatch
from superhosts.pipeline.builder import WindowResult
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.base import Pace, Source
from superhosts.sources.capture import capture_format
from superhosts.sources.folder import FolderSource
from traffic import MINUTES, NOON, Frames, talk
from waiting import wait_for

SOON = 240.0  # seconds; reached only by what hangs, but the first run compiles for many of them
LENGTH = 5 * MINUTES
YEARS = 10 * 365 * 86400 * p.SECOND
EXACT: dict[str, Any] = {"detector": "exact", "inner": ["10.0.0.0/8"], "threshold": 1, "site": "ams"}
SMALL: dict[str, Any] = {"memory": "1MiB", "inner": ["10.0.0.0/8", "2001:db8::/32"], "threshold": 1000}
QUICK = Pace(wake=0.02, caught_up=0.0, poll=0.01, quiet=0.1)  # the clock counts once everything was read
NO_CLOCK = QUICK._replace(caught_up=1e9)  # windows close only by what the inputs have reached


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Pipe:
    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.path = f"/dev/fd/{self._read}"
        self.write(p.pcap_header())
        self.sent = 0

    def send(self, frames: Frames) -> None:
        for place in range(0, len(frames), 500):
            self.write(b"".join(p.record(*frame) for frame in frames[place : place + 500]))
        self.sent += len(frames)

    def write(self, data: bytes) -> None:
        assert os.write(self._write, data) == len(data)

    def deafen(self) -> None:
        """Read no more: whoever writes is told so, unless a scan still reads with a descriptor of its own."""
        if self._read >= 0:
            os.close(self._read)
            self._read = -1

    def close(self) -> None:
        self.deafen()
        if self._write >= 0:
            os.close(self._write)
            self._write = -1


class Live:
    def __init__(self, sources: Sequence[Source], settings: dict[str, Any] = EXACT, **options: Any) -> None:
        self.results: list[WindowResult] = []
        self.error: BaseException | None = None
        self.steps = 0  # of the scan, with or without packets
        self._done = 0  # packets that have come to their windows
        on_error = options.pop("on_error", None)
        way = RunOptions(**{"grace": 30.0, "pace": QUICK, **options})
        self.scan = Scan(sources, Settings(**settings), way, on_error=on_error, on_progress=self._look)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for result in self.scan:
                self.results.append(result)
        except BaseException as error:  # told to the test by the next wait
            self.error = error

    def _look(self, *_: int) -> None:
        """Count, between two steps of the scan: only there no packet is on its way from one place to another."""
        counters = self.scan.counters
        lost = counters.late + counters.stray + counters.repeated
        self._done = self.scan.pending() + lost + sum(result.packets for result in self.results)
        self.steps += 1

    @property
    def seen(self) -> list[tuple[int, int]]:
        return [((result.window.start - NOON) // LENGTH, result.packets) for result in self.results]

    def until(self, condition: Callable[[], bool]) -> None:
        def met() -> bool:
            assert self.error is None, self.error
            return condition()

        wait_for(met, lambda: (self.seen, self.scan.counters), SOON)

    def read(self, count: int) -> None:
        """Wait until so many packets have come to their windows."""
        self.until(lambda: self._done >= count)
        assert self._done == count

    def rest(self) -> None:
        """Wait until the scan has seen that there is nothing to read, and has looked at the clock."""
        self.until(lambda: all(source.waits() for source in self.scan.sources))
        self.go_on(5)  # the first four, of packets and of the clock in turn, may have begun earlier

    def go_on(self, steps: int) -> None:
        before = self.steps
        self.until(lambda: self.steps >= before + steps)

    def gives(self, *windows: tuple[int, int]) -> None:
        """Wait for exactly these windows, and until no more can come."""
        self.until(lambda: len(self.seen) >= len(windows))
        self.rest()
        assert self.seen == list(windows)

    def ends(self) -> None:
        self._thread.join(SOON)
        assert not self._thread.is_alive()
        assert self.error is None

    def stop(self) -> None:
        self.scan.stop()
        self.ends()


Pipes = Callable[[], Pipe]
Start = Callable[..., Live]


@contextmanager
def pipes() -> Iterator[Pipes]:
    opened: list[Pipe] = []

    def make() -> Pipe:
        opened.append(Pipe())
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@contextmanager
def live_scans() -> Iterator[Start]:
    runs: list[Live] = []

    def start(*sources: Source, **options: Any) -> Live:
        runs.append(Live(sources, **options))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()


def some(count: int, window: int = 0, seconds: int = 0, host: str = "10.0.0.1") -> Frames:
    return talk(host, count, NOON + window * LENGTH + seconds * p.SECOND)


def batch_at(time: int) -> PacketBatch:
    nobody = np.zeros(1, np.uint32)
    return PacketBatch(4, nobody, nobody, np.array([time]))


def folder(path: Path, **options: Any) -> FolderSource:
    return FolderSource(path, lambda *_: capture_format(4096), pace=QUICK, **options)
