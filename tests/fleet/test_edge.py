"""The edge by itself: what goes into the spool, what a full disk costs, what a restart reads again."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from commands import Run
from fleets import LENGTH, NOON, SETTINGS, make_odd, make_sketch
from hubs import union_of
from livescans import Pipes
from output.test_fanout import Fake
from processes import DEADLINE, wait_for
from superhosts.core.database import Database
from superhosts.core.pairs import PacketBatch, PacketBlock, Window
from superhosts.core.results import SuperHosts
from superhosts.errors import OutputError, UsageError
from superhosts.fleet.edge import FORMAT, JUMPS_SAID, STATE, Edge, EdgeTiming, LocalRows, Position, check_settings
from superhosts.fleet.link import REFUSED, Receipt
from superhosts.fleet.spool import Spool
from superhosts.output.delivery import BackgroundOutput, DeliveryOptions
from superhosts.output.destination import Destinations, RunKind
from superhosts.output.registry import open_destination
from superhosts.pipeline.builder import WindowResult
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.windows import Jump
from superhosts.sketch.sketch import Sketch
from superhosts.sources.base import Source
from superhosts.sources.capture import open_capture
from superhosts.sources.open import open_inputs
from traffic import content, talk, three_windows, write


class Packets(Source):
    """A source of a few packets, of one host that talks to many."""

    def __init__(self, windows: int, *, replays: bool = True) -> None:
        super().__init__("packets")
        self.replays = replays
        self._windows = windows

    def first_time(self) -> int | None:
        return NOON

    def _read(self) -> Iterator[PacketBlock]:
        for number in range(self._windows):
            peers = np.arange(200, dtype=np.uint32) + np.uint32(1000 * number)
            times = np.full(200, NOON + number * LENGTH, np.int64)
            yield (PacketBatch(4, np.full(200, 0x0A000007, np.uint32), peers, times),)


def make_edge(
    folder: Path, said: list[str], source: Any, settings: Settings = SETTINGS, wall: int = 2 * NOON, **options: Any
) -> Edge:
    spool = make_spool(folder, said)
    position = Position(folder, ["packets"], settings.fingerprint, said.append, wall=lambda: wall)
    scan = Scan([source], settings, RunOptions(resume_from=position.frontier, find=False, **options))
    return Edge(scan, spool, position, said.append)


class SpoolOn(Spool):
    """A spool on a disk that a test controls: `before` is called before each write, and may fail."""

    def __init__(self, folder: Path, before: Callable[[], None]) -> None:
        super().__init__(folder, "ams", cap=1 << 30, say=print)
        self._before = before

    def put(self, sketch: Sketch) -> Path:
        self._before()
        return super().put(sketch)


def spooled(folder: Path) -> list[Any]:
    return [content(sh.load(path)) for path in sorted(folder.glob("*.cube"))]


@pytest.mark.slow
def test_an_edge_on_a_gpu_spools_the_bits_of_the_cpu(tmp_path: Path):
    settings = Settings(memory="64KiB", site="ams", inner=["10.0.0.0/8"], device="cpu", threads=1)
    make_edge(tmp_path / "cpu", [], Packets(2), settings).run()
    on_gpu = Settings(memory="64KiB", site="ams", inner=["10.0.0.0/8"], device="cuda")
    make_edge(tmp_path / "gpu", [], Packets(2), on_gpu).run()
    assert len(spooled(tmp_path / "cpu")) == 2
    assert spooled(tmp_path / "gpu") == spooled(tmp_path / "cpu")


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


def test_input_that_can_wait_waits_for_the_disk(tmp_path: Path):
    said: list[str] = []
    failures = iter([True, True, False, True])

    def fail() -> None:
        if next(failures, False):
            raise OutputError("No space left on device")

    scan = Scan([Packets(3)], SETTINGS, RunOptions(find=False))
    position = Position(tmp_path, ["packets"], SETTINGS.fingerprint)
    edge = Edge(scan, SpoolOn(tmp_path, fail), position, said.append, timing=EdgeTiming(retry=0.01))
    beats: list[None] = []
    edge.on_wait = lambda: beats.append(None)
    edge.run()
    assert len(spooled(tmp_path)) == 3
    assert edge.counters.waits == len(beats) == 3  # The main loop waits, and is no less alive.
    assert [("NOT WRITABLE" in line, "can be written again" in line) for line in said] == [
        (True, False),
        (False, True),
    ] * 2


class Windows:
    """What an edge needs of a scan, with windows that come when the test says so."""

    on_jump: Callable[[Jump], None]

    def __init__(self, gates: list[threading.Event]) -> None:
        self.sources = [Packets(0, replays=False)]
        self._gates = gates

    def __iter__(self) -> Iterator[WindowResult]:
        for number, gate in enumerate(self._gates):
            assert gate.wait(DEADLINE)
            sketch = make_sketch("ams", number)
            yield WindowResult(sketch.window, sh.SuperHosts.none(), sketch, 1)

    def stop(self) -> None: ...

    def open_window(self) -> Window | None:
        return Window(NOON, NOON + LENGTH)


def test_live_input_goes_on_while_the_disk_does_not_and_loses_whole_windows(tmp_path: Path):
    said: list[str] = []
    full, tried = threading.Event(), threading.Event()
    full.set()

    def fail() -> None:
        tried.set()
        if full.is_set():
            raise OutputError("No space left on device")

    gates = [threading.Event() for _ in range(4)]
    scan: Any = Windows(gates)
    timing = EdgeTiming(retry=0.01, final=DEADLINE)
    edge = Edge(scan, SpoolOn(tmp_path, fail), Position(tmp_path, ["-"], {}), said.append, timing=timing)
    beats: list[None] = []
    edge.on_wait = lambda: beats.append(None)
    thread = threading.Thread(target=edge.run)
    thread.start()
    gates[0].set()
    assert tried.wait(DEADLINE)  # the first is being tried; the second waits, the third pushes it out
    for gate in gates[1:]:
        gate.set()
    wait_for(lambda: edge.counters.lost == 2 or not thread.is_alive(), "two windows are lost")
    full.clear()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert edge.counters.lost == 2
    assert beats == []  # Another thread waits, which says nothing about the main loop.
    assert sum("LOST" in line for line in said) == 2
    assert len(spooled(tmp_path)) == 2
    assert Position(tmp_path, ["-"], {}).open is None


@pytest.mark.parametrize("hangs", [False, True])
def test_windows_that_close_back_to_back_wait_for_a_slow_disk_but_not_for_one_that_hangs(tmp_path: Path, hangs: bool):
    said: list[str] = []
    gates = [threading.Event() for _ in range(4)]
    for gate in gates:
        gate.set()
    scan: Any = Windows(gates)
    slow = threading.Event()
    timing = EdgeTiming(hold_up=0.0 if hangs else DEADLINE, final=DEADLINE)
    spool = SpoolOn(tmp_path, lambda: slow.wait(DEADLINE))
    edge = Edge(scan, spool, Position(tmp_path, ["-"], {}), said.append, timing=timing)
    thread = threading.Thread(target=edge.run, daemon=True)
    thread.start()
    wait_for(lambda: edge.counters.lost == 2 if hangs else edge.counters.windows == 3, "one is written, one waits")
    slow.set()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert len(spooled(tmp_path)) == (2 if hangs else 4)
    assert edge.counters.lost == sum("LOST" in line for line in said) == (2 if hangs else 0)


def test_a_window_that_was_open_at_a_crash_is_named_at_the_next_start(tmp_path: Path):
    said: list[str] = []
    scan: Any = Windows([])
    Edge(scan, SpoolOn(tmp_path, lambda: None), Position(tmp_path, ["-"], {}), said.append).on_progress()
    assert Position(tmp_path, ["-"], {}).open is not None  # and now it is killed
    again = make_edge(tmp_path, said, Packets(0, replays=False))
    again.run()
    assert again.counters.interrupted == 1
    assert "2026-11-14T12:00:00Z to 2026-11-14T12:05:00Z" in said[0]
    third = make_edge(tmp_path, said, Packets(0, replays=False))
    third.run()
    assert third.counters.interrupted == 0


def test_a_stopped_live_edge_keeps_what_it_has_seen(tmp_path: Path, said: list[str], pipe: Pipes):
    """What a pipe has given of a window is spooled, and the next run adds to it."""
    settings = replace(SETTINGS, site="ams", inner=["10.0.0.0/8"])
    frames = talk("10.0.0.7", 1500)
    for part in (frames[:700], frames[700:]):
        end = pipe()
        scan = Scan([open_capture(end.path)], settings, RunOptions(grace=1e6, find=False))
        edge = Edge(scan, make_spool(tmp_path, said), Position(tmp_path, ["-"], {}), said.append)
        thread = threading.Thread(target=edge.run)
        thread.start()
        end.send(part)
        wait_for(lambda scan=scan, part=part: scan.pending() == len(part), "all is read")
        edge.stop()
        thread.join(DEADLINE)
        assert edge.counters.interrupted == 0
    assert [line.rpartition(": ")[2] for line in said] == ["the partial window is kept"] * 2
    (whole,) = Scan([open_capture(write(tmp_path / "all.pcap", frames))], settings)
    assert content(union_of(*map(sh.load, tmp_path.glob("*.cube")))) == content(whole.sketch)


def test_a_jump_back_moves_the_position_to_the_windows_that_open_again(tmp_path: Path, said: list[str]):
    edge = make_edge(tmp_path, said, Packets(1))
    edge._position.advance(NOON + 3 * LENGTH, {})
    scan: Any = edge._scan
    scan.on_jump(Jump(-2 * LENGTH, Window(NOON + LENGTH, NOON + 2 * LENGTH)))
    edge._position.close()
    assert Position(tmp_path, ["packets"], SETTINGS.fingerprint, said.append).frontier == NOON + LENGTH


def test_jumps_that_never_end_are_said_now_and_then(tmp_path: Path):
    said: list[str] = []
    edge = make_edge(tmp_path, said, Packets(1))
    scan: Any = edge._scan
    for number in range(1000):
        scan.on_jump(Jump((-1) ** number * LENGTH, Window(NOON, NOON + LENGTH)))
    assert (edge.counters.jumps, len(said)) == (1000, JUMPS_SAID)
    assert said[0] == "TIMES JUMPED ahead by 5m, to 2026-11-14T12:00:00Z: whose clock is wrong?"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": "all"}, "whole seconds"),
        ({"window": "1.5s"}, "whole seconds"),
        ({"detector": "filter"}, "one of cube"),
        ({"detector": "exact"}, "a hub merges"),
        ({"by": "address-port"}, "a hub merges"),
    ],
)
def test_what_a_hub_cannot_merge_is_refused(options: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        check_settings(Settings(**options))


@pytest.mark.parametrize(("slide", "with_rows"), [("", True), ("1m", True), ("1m", False)])
def test_an_edge_spools_sketches_and_writes_its_own_rows(tmp_path: Path, run: Run, slide: str, with_rows: bool) -> None:
    """Of windows that overlap, panes are spooled: every packet is in one sketch. The rows are those of the windows."""
    capture = write(tmp_path / "three.pcap", three_windows())
    common = {"memory": "1MiB", "inner": ["10.0.0.0/8"], "device": "cpu", "threads": 1, "threshold": 1000}
    settings = Settings(window="5m", slide=slide, site="ams", **common)
    scan = Scan(open_inputs([capture]), settings, RunOptions(find=with_rows))
    position = Position(tmp_path, ["three"], settings.fingerprint, print)
    spool = Spool(tmp_path, "ams", cap=1 << 30, say=print)
    destination = open_destination(str(tmp_path / "rows.jsonl"), RunKind(endless=True))
    with Destinations([destination]) as destinations:
        Edge(scan, spool, position, print, rows=LocalRows(destinations, print) if with_rows else None).run()
    panes = Settings(window=slide or "5m", site="ams", **common)
    plain = {each.window: each.sketch.entries for each in Scan(open_inputs([capture]), panes)}
    spooled = [sh.load(tmp_path / name) for name in spool.waiting()]
    assert {each.window: each.entries for each in spooled} == plain
    assert position.frontier == max(window.end for window in plain)
    if with_rows:
        written = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
        options = [
            "--memory",
            "1MiB",
            "--inner",
            "10.0.0.0/8",
            "--device",
            "cpu",
            "--json",
            "-t",
            "1k",
            "--detector",
            "cube",
        ]
        slides = [] if not slide else ["--slide", slide]
        assert written == run("scan", capture, *options, "--window", "5m", *slides).rows != []


def test_rows_wait_in_the_queue_of_their_destination_and_are_written_in_order() -> None:
    fake, said = Fake("write"), []
    results = [WindowResult(Window(start, start + 1), SuperHosts.none(), Sketch(), 0) for start in range(3)]
    options = DeliveryOptions(say=said.append, first_pause=0.01, last_pause=0.01)
    with Destinations([BackgroundOutput(fake, options)]) as destinations:
        rows = LocalRows(destinations, said.append)
        for result in results:
            rows.add(result)
        assert rows.status() == {"waiting": 3, "lost": 0, "reopened": 0}
        assert "fake does NOT TAKE reports: write fails" in said[0]
        fake.failing = ()
    assert [report.window for report in fake.reports] == [result.window for result in results]
    assert said[1:] == ["fake takes reports again"]


def test_a_destination_without_a_queue_that_fails_does_not_stop_the_edge() -> None:
    said: list[str] = []
    rows = LocalRows(Destinations([Fake("write")]), said.append)
    rows.add(WindowResult(Window(0, 1), SuperHosts.none(), Sketch(), 0))
    assert said == ["ROWS NOT WRITTEN: write fails; sketches are sent nevertheless"]


def test_a_reopened_window_keeps_its_first_rows() -> None:
    destination, said = Fake(), []
    rows = LocalRows(Destinations([destination]), said.append)
    first = WindowResult(Window(0, 1), SuperHosts.none(), Sketch(), 0, {"title": "no hosts"})
    first.partial = True
    for _ in range(3):
        rows.add(first)
    assert [(report.window, report.title) for report in destination.reports] == [(first.window, "no hosts")]
    assert destination.reports[0].notes == ["partial: interrupted"]
    assert rows.status()["reopened"] == 2
    assert len(said) == 1


# What others leave in a spool: whatever it is, the edge starts, names what it sets aside, and loses nothing


WINDOWS = 3
SKETCH = "20261114T120000Z-5m-ams-0123456789abcdef.cube"  # a name like those of the site's own sketches
ODD = ["fifo", "folder", "device", "link"]


def make_spool(folder: Path, said: list[str]) -> Spool:
    return Spool(folder, "ams", cap=1 << 30, say=said.append)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("truth")
    make_edge(folder, [], Packets(WINDOWS)).run()
    return spooled(folder)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", [SKETCH, "a-b-c.cube", SKETCH.replace("ams", "fra")])
def test_what_is_no_file_does_not_stay_among_the_sketches(tmp_path: Path, said: list[str], kind: str, name: str):
    tmp_path.chmod(0o700)
    make_odd(tmp_path / name, kind)
    spool = make_spool(tmp_path, said)
    assert spool.waiting() == []
    assert os.path.lexists(tmp_path / f".{name}.aside")
    assert spool.aside() == [f".{name}.aside"]
    assert len(said) == 1
    assert name in said[0]
    assert f".{name}.aside" in said[0]
    make_odd(tmp_path / name, kind)  # and again while it runs
    good = spool.put(make_sketch("ams"))
    assert spool.waiting() == [good]
    assert os.path.lexists(tmp_path / f".{name}.aside.1")
    assert len(said) == 2


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", [STATE, f"{STATE}-wal", ".fresh.tmp", "refused", "damaged"])
def test_the_edges_own_names_are_free_at_the_start(tmp_path, said, truth, kind, name):
    if name in ("refused", "damaged") and kind == "folder":
        pytest.skip("these are folders")
    make_odd(tmp_path / name, kind)
    edge = make_edge(tmp_path, said, Packets(WINDOWS))
    edge.run()
    assert spooled(tmp_path) == truth
    assert (tmp_path / STATE).is_file()
    assert all((tmp_path / folder).is_dir() for folder in ("refused", "damaged"))
    if name != ".fresh.tmp" or kind == "folder":  # what a killed run has left is removed
        assert any(f"{name}.aside" in line for line in said)
    again = make_edge(tmp_path, said, Packets(WINDOWS))
    again.run()
    assert again.counters.windows == 0


@pytest.mark.parametrize("kind", ODD)
def test_what_stands_in_the_way_of_a_refused_sketch_is_set_aside(tmp_path: Path, said: list[str], kind: str):
    spool = make_spool(tmp_path, said)
    path = spool.put(make_sketch("ams"))
    make_odd(tmp_path / "refused" / path.name, kind)
    spool.settle(Receipt(path.name, REFUSED, "no"))
    assert spool.waiting() == []
    assert content(sh.load(tmp_path / "refused" / path.name)) == content(make_sketch("ams"))
    assert spool.counters.refused == 1


# Wrong content


@pytest.mark.parametrize("name", [STATE, "position.json", "open.json"])
@pytest.mark.parametrize("data", [b"\xff\xfe", b"[" * 100_000, b'{"a": ', b'{"start": "noon"}'], ids=len)
def test_a_state_that_makes_no_sense_is_set_aside_and_nothing_is_lost(tmp_path, said, truth, name, data):
    (tmp_path / name).write_bytes(data)
    make_edge(tmp_path, said, Packets(WINDOWS)).run()
    assert spooled(tmp_path) == truth
    assert (tmp_path / f".{name}.aside").read_bytes() == data
    assert [f"{name}.aside" in line for line in said] == [True]


@pytest.mark.parametrize("value", ["", "[]", '{"x": {"frontier": 1}}', "[" * 100_000], ids=len)
def test_a_position_that_cannot_be_used_is_set_aside(tmp_path: Path, said: list[str], truth: list[Any], value: str):
    Position(tmp_path, ["other"], {}).advance(77, {})
    database = Database(tmp_path / STATE, FORMAT)
    database.save(position=value)
    database.close()
    make_edge(tmp_path, said, Packets(WINDOWS)).run()
    assert spooled(tmp_path) == truth
    assert [f"{STATE}.aside" in line for line in said] == [True]


def test_the_state_of_an_earlier_version_is_moved_over(tmp_path: Path):
    Position(tmp_path, ["-"], {}).advance(77, {})
    state = Database(tmp_path / STATE, FORMAT).state()["position"]
    (tmp_path / STATE).unlink()
    (tmp_path / "position.json").write_text(state)
    (tmp_path / "open.json").write_text('{"start": 5, "end": 6}')
    for _ in range(2):
        position = Position(tmp_path, ["-"], {})
        assert (position.frontier, position.open) == (77, Window(5, 6))
    assert not [*tmp_path.glob("*.json")]


def test_foreign_files_that_come_while_the_edge_runs_are_never_sent(tmp_path: Path, said: list[str]):
    spool = make_spool(tmp_path, said)
    good = spool.put(make_sketch("ams"))
    names = ("a-b-c.cube", SKETCH.replace("ams", "fra"), "x\x1b[31m\n.cube")
    for name in names:
        (tmp_path / name).write_bytes(b"something")
    assert spool.waiting() == [good]
    assert spool.counters.damaged == len(said) == 3
    assert all(line.isprintable() for line in said)
    assert {path.name for path in (tmp_path / "damaged").iterdir()} == set(names)
