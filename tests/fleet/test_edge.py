"""The edge by itself: what goes into the spool, what a full disk costs, what a restart reads again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from fleets import LENGTH, NOON, SETTINGS, make_sketch
from processes import DEADLINE
from superhosts.errors import OutputError, UsageError
from superhosts.fleet import edge as edge_module
from superhosts.fleet.edge import Edge, check_settings
from superhosts.fleet.position import Position
from superhosts.fleet.spool import Spool
from superhosts.pairs import PacketBatch, PacketBlock, Window
from superhosts.pipeline.building import WindowResult
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.base import SourceCounters
from superhosts.windows.jumps import Jump
from traffic import content


class Packets:
    """A source of a few packets, of one host that talks to many."""

    name = "packets"
    live = False

    def __init__(self, windows: int, *, replays: bool = True) -> None:
        self.counters = SourceCounters()
        self.replays = replays
        self._windows = windows

    def first_time(self) -> int | None:
        return NOON

    def blocks(self) -> Iterator[PacketBlock]:
        for number in range(self._windows):
            peers = np.arange(200, dtype=np.uint32) + np.uint32(1000 * number)
            times = np.full(200, NOON + number * LENGTH, np.int64)
            yield (PacketBatch(4, np.full(200, 0x0A000007, np.uint32), peers, times),)

    def position(self) -> int:
        return 0

    def size(self) -> int | None:
        return None

    def waits(self) -> bool:
        return False

    def stop(self) -> None: ...

    def finished(self) -> dict[str, tuple[int, int]]:
        return {}


def make_edge(
    folder: Path, said: list[str], source: Any, settings: Settings = SETTINGS, wall: int = 2 * NOON, **options: Any
) -> Edge:
    spool = Spool(folder, "ams", cap=1 << 30, say=said.append)
    position = Position(folder, ["packets"], settings.fingerprint, said.append, wall=lambda: wall)
    scan = Scan([source], settings, RunOptions(resume_from=position.frontier, find=False, **options))
    return Edge(scan, spool, position, said.append)


def spooled(folder: Path) -> list[Any]:
    return [content(sh.load(path)) for path in sorted(folder.glob("*.cube"))]


def test_an_edge_on_a_gpu_spools_the_bits_of_the_cpu(tmp_path: Path):
    settings = Settings(memory="64KiB", site="ams", inner=["10.0.0.0/8"], device="cpu", threads=1)
    make_edge(tmp_path / "cpu", [], Packets(2), settings).run()
    on_gpu = Settings(memory="64KiB", site="ams", inner=["10.0.0.0/8"], device="cuda")
    make_edge(tmp_path / "gpu", [], Packets(2), on_gpu).run()
    assert len(spooled(tmp_path / "cpu")) == 2
    assert spooled(tmp_path / "gpu") == spooled(tmp_path / "cpu")


def test_a_second_run_over_the_same_input_has_nothing_to_do(tmp_path: Path):
    make_edge(tmp_path, [], Packets(3)).run()
    before = sorted(tmp_path.glob("*.cube"))
    again = make_edge(tmp_path, [], Packets(3))
    again.run()
    assert again.counters.windows == 0
    assert sorted(tmp_path.glob("*.cube")) == before


class Stamped(Packets):
    """A folder, as it were, whose packets come in windows of these numbers."""

    live = True

    def __init__(self, numbers: list[int]) -> None:
        super().__init__(0)
        self._numbers = numbers
        self._waits = self._stopped = False

    def blocks(self) -> Iterator[PacketBlock]:
        for number in self._numbers:
            peers = np.arange(1500, dtype=np.uint32) + np.uint32(2000 * (number % 100))
            times = NOON + number * LENGTH + np.arange(1500) * 1000
            self.counters.packets += 1500
            yield (PacketBatch(4, np.full(1500, 0x0A000007, np.uint32), peers, times),)
        self._waits = True
        while not self._stopped:
            time.sleep(0.01)

    def waits(self) -> bool:
        return self._waits

    def stop(self) -> None:
        self._stopped = True


def run_until(edge: Edge, done: Callable[[], bool]) -> None:
    """Run an edge until something has happened, and stop it."""
    thread = threading.Thread(target=edge.run)
    thread.start()
    limit = time.monotonic() + DEADLINE
    while not done():
        assert thread.is_alive()
        assert time.monotonic() < limit
        time.sleep(0.01)
    edge.stop()
    thread.join(DEADLINE)
    assert not thread.is_alive()


def windows_in(folder: Path) -> list[int]:
    """Windows that are in the spool, by number, those with packets only."""
    sketches = [sh.load(path) for path in sorted(folder.glob("*.cube"))]
    return [(sketch.window.start - NOON) // LENGTH for sketch in sketches if sketch.window and sketch.parts]


@pytest.mark.parametrize("ahead", [12, 100_000])
def test_a_clock_that_was_ahead_costs_nothing_also_over_a_restart(tmp_path: Path, ahead: int):
    """Three windows right, two ahead, then right again; stopped after each of them and started again."""
    numbers, said = [0, 1, 2, 3 + ahead, 4 + ahead, 5, 6, 7, 8], list[str]()
    for read in range(1, len(numbers) + 1):
        wall = NOON + (read + 1) * LENGTH
        edge = make_edge(tmp_path, said, Stamped(numbers[:read]), wall=wall, grace=1e6)
        edge._scan._windows._off._wall = lambda wall=wall: wall  # type: ignore[union-attr,misc]
        packets = 1500 * read
        run_until(edge, lambda edge=edge, packets=packets: edge._scan._windows._seen == packets)  # type: ignore[misc]
        counters = edge._scan.counters
        assert (counters.late, counters.stray) == (0, 0)
        frontier = Position(tmp_path, ["packets"], SETTINGS.fingerprint, wall=lambda: 2**62).frontier
        assert frontier is None or frontier <= wall + LENGTH
    assert {0, 1, 2, 3 + ahead, 5, 6, 7} <= set(windows_in(tmp_path))
    assert any("TIMES JUMPED ahead by" in line for line in said)
    assert any("TIMES JUMPED back by" in line for line in said)


def test_a_frontier_in_the_future_is_neither_kept_nor_believed(tmp_path: Path):
    wall, said = NOON, list[str]()
    cut = SETTINGS.fingerprint
    position = Position(tmp_path, ["packets"], cut, said.append, wall=lambda: wall)
    position.advance(NOON + LENGTH, {})
    for number in range(2, 15):
        position.advance(NOON + number * LENGTH, {})
    assert position.frontier == NOON + LENGTH
    wall = NOON + 3 * LENGTH  # time passes
    position.advance(NOON + 15 * LENGTH, {})
    assert position.frontier == NOON + 4 * LENGTH
    position.advance(NOON + 2 * LENGTH, {})  # the clock was set right
    assert position.frontier == NOON + 2 * LENGTH
    position.advance(NOON + 3 * LENGTH, {})
    wall = NOON + 40 * LENGTH
    position.advance(NOON + 4 * LENGTH, {})
    assert position.frontier == NOON + 4 * LENGTH  # and what lay ahead then is forgotten
    assert Position(tmp_path, ["packets"], cut, said.append, wall=lambda: wall).frontier == NOON + 4 * LENGTH
    assert said == []
    assert Position(tmp_path, ["packets"], cut, said.append, wall=lambda: NOON).frontier is None
    assert "2026-11-14T12:20:00Z) lies ahead of this machine's clock: all input is read again" in said[0]
    position.go_back(NOON)
    assert Position(tmp_path, ["packets"], cut, said.append, wall=lambda: NOON).frontier == NOON


def test_jumps_that_never_end_are_said_now_and_then(tmp_path: Path):
    said: list[str] = []
    edge = make_edge(tmp_path, said, Packets(0))
    for number in range(1000):
        edge._jumped(Jump((-1) ** number * LENGTH, Window(NOON, NOON + LENGTH)))
    assert edge.counters.jumps == 1000
    assert len(said) == edge_module.JUMPS_SAID
    assert said[0] == "TIMES JUMPED ahead by 5m, to 2026-11-14T12:00:00Z: whose clock is wrong?"
    assert said[1] == "TIMES JUMPED back by 5m, to 2026-11-14T12:00:00Z: windows of that time are opened again"


def test_input_that_can_wait_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    monkeypatch.setattr(edge_module, "RETRY", 0.01)
    edge = make_edge(tmp_path, said, Packets(3))
    put, failures = Spool.put, iter([True, True, False, True])

    def sometimes(spool: Spool, sketch: Any) -> Path:
        if next(failures, False):
            raise OutputError("No space left on device")
        return put(spool, sketch)

    monkeypatch.setattr(Spool, "put", sometimes)
    edge.run()
    assert len(spooled(tmp_path)) == 3
    assert edge.counters.waits == 3
    assert [("NOT WRITABLE" in line, "can be written again" in line) for line in said] == [
        (True, False),
        (False, True),
    ] * 2


class Windows:
    """What an edge needs of a scan, with windows that come when the test says so."""

    def __init__(self, gates: list[threading.Event]) -> None:
        self.sources = [Packets(0, replays=False)]
        self._gates = gates

    def __iter__(self) -> Iterator[WindowResult]:
        for number, gate in enumerate(self._gates):
            assert gate.wait(DEADLINE)
            sketch = make_sketch("ams", number)
            assert sketch.window is not None
            yield WindowResult(sketch.window, [], sketch, 1)

    def stop(self) -> None: ...

    def open_window(self) -> Window | None:
        return Window(NOON, NOON + LENGTH)


def test_live_input_goes_on_while_the_disk_does_not_and_loses_whole_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    said: list[str] = []
    monkeypatch.setattr(edge_module, "RETRY", 0.01)
    monkeypatch.setattr(edge_module, "FINAL", DEADLINE)
    gates = [threading.Event() for _ in range(4)]
    spool = Spool(tmp_path, "ams", cap=1 << 30, say=said.append)
    scan: Any = Windows(gates)
    edge = Edge(scan, spool, Position(tmp_path, ["-"], {}), said.append)
    full = threading.Event()
    full.set()
    put, tried = Spool.put, threading.Event()

    def sometimes(spool: Spool, sketch: Any) -> Path:
        tried.set()
        if full.is_set():
            raise OutputError("No space left on device")
        return put(spool, sketch)

    monkeypatch.setattr(Spool, "put", sometimes)
    thread = threading.Thread(target=edge.run)
    thread.start()
    gates[0].set()
    assert tried.wait(DEADLINE)  # the first is being tried; the second waits, the third pushes it out
    for gate in gates[1:]:
        gate.set()
    while edge.counters.lost < 2:
        assert thread.is_alive()
        time.sleep(0.005)
    full.clear()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert edge.counters.lost == 2
    assert sum("LOST" in line for line in said) == 2
    assert len(spooled(tmp_path)) == 2
    assert not (tmp_path / "open.json").exists()


@pytest.mark.parametrize("hangs", [False, True])
def test_windows_that_close_back_to_back_wait_for_a_slow_disk_but_not_for_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool
):
    said: list[str] = []
    monkeypatch.setattr(edge_module, "HOLD_UP", 0.0 if hangs else DEADLINE)
    monkeypatch.setattr(edge_module, "FINAL", DEADLINE)
    gates = [threading.Event() for _ in range(4)]
    for gate in gates:
        gate.set()
    scan: Any = Windows(gates)
    spool = Spool(tmp_path, "ams", cap=1 << 30, say=said.append)
    edge = Edge(scan, spool, Position(tmp_path, ["-"], {}), said.append)
    put, slow = Spool.put, threading.Event()

    def slowly(spool: Spool, sketch: Any) -> Path:
        assert slow.wait(DEADLINE)
        return put(spool, sketch)

    monkeypatch.setattr(Spool, "put", slowly)
    thread = threading.Thread(target=edge.run, daemon=True)
    thread.start()
    while edge.counters.windows < 3 or (hangs and edge.counters.lost < 2):  # one is being written, one waits
        assert thread.is_alive()
        time.sleep(0.005)
    if not hangs:
        time.sleep(0.3)
        assert edge.counters.windows == 3
    slow.set()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert len(spooled(tmp_path)) == (2 if hangs else 4)
    assert edge.counters.lost == sum("LOST" in line for line in said) == (2 if hangs else 0)


def test_a_window_that_was_open_at_a_crash_is_named_at_the_next_start(tmp_path: Path):
    said: list[str] = []
    edge = make_edge(tmp_path, said, Packets(0, replays=False))
    edge._scan.open_window = lambda: Window(NOON, NOON + LENGTH)  # type: ignore[method-assign]
    edge.on_progress()
    assert (tmp_path / "open.json").exists()  # and now it is killed
    again = make_edge(tmp_path, said, Packets(0, replays=False))
    again.run()
    assert again.counters.interrupted == 1
    assert "2026-11-14T12:00:00Z to 2026-11-14T12:05:00Z" in said[0]
    third = make_edge(tmp_path, said, Packets(0, replays=False))
    third.run()
    assert third.counters.interrupted == 0
    (tmp_path / "open.json").write_text('{"start": "noon", "end": 5}')
    third.run()
    assert third.counters.interrupted == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": "all"}, "whole seconds"),
        ({"window": "1.5s"}, "whole seconds"),
        ({"detector": "filter"}, "a hub merges"),
        ({"detector": "exact"}, "a hub merges"),
    ],
)
def test_what_a_hub_cannot_merge_is_refused(options: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        check_settings(Settings(**options))
