"""The whole road from captures to super hosts: any order, any split, any overlap gives the same bits."""

from __future__ import annotations

import inspect
import os
import random
import threading
import weakref
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packets
import superhosts as sh
from faults import full_disk
from packets import SECOND
from superhosts.core.pairs import Part, Window
from superhosts.errors import InputError, OutputError, SuperhostsError, UsageError
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.windows import LIMITS, Limits
from superhosts.sources.capture import CAPTURES, open_capture
from superhosts.sources.input import FileSource, Input
from superhosts.sources.open import open_inputs
from traffic import MINUTES, NOON, STEP, Frames, everything, near, packet, talk, three_windows, write

SMALL: dict[str, Any] = {"memory": "1MiB", "inner": ["10.0.0.0/8", "2001:db8::/32"], "threshold": 1000}
YEARS = 10 * 365 * 86400 * SECOND
LENGTH = 5 * MINUTES


def scan(*paths: Path, block_bytes: int = 4096, **settings: Any) -> Scan:
    """Scan with small blocks, so that little captures have many."""
    sources = [open_capture(path, block_bytes=block_bytes) for path in paths]
    return Scan(sources, Settings(**{**SMALL, **settings}))


def summary(run: Scan) -> list[tuple[int, int, list[tuple[str, int]]]]:
    """Windows counted from noon, with their packets and hosts."""
    return [
        ((w.window.start - NOON) // (5 * MINUTES), w.packets, [(str(f.host), f.peers) for f in w.found]) for w in run
    ]


@pytest.fixture(scope="module")
def frames() -> Frames:
    return three_windows()


@pytest.fixture(scope="module")
def whole(frames: Frames, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("whole") / "whole.pcap", frames)


@pytest.fixture(scope="module")
def wanted(whole: Path) -> list[Any]:
    return everything(scan(whole))


def test_what_a_scan_finds(whole: Path, frames: Frames) -> None:
    exact = [[("10.0.0.7", 1500)], *2 * [[("10.0.0.7", 1500), ("2001:db8::/64", 1300)]]]
    run = scan(whole, detector="exact")
    got = summary(run)
    assert [(window, hosts) for window, _, hosts in got] == list(enumerate(exact))
    assert sum(count for _, count, _ in got) == len(frames) == run.counters.packets
    for window, wanted in zip(scan(whole), exact, strict=True):
        assert [str(row.host) for row in window] == [host for host, _ in wanted]
        assert all(near(row, 1300 if row.part.family == 6 else 1500) for row in window)


# Any order, any split, any overlap


@pytest.mark.parametrize("block_bytes", [4096, 1 << 22])
def test_rotated_captures_in_the_order_of_the_shell(frames, wanted, tmp_path, block_bytes) -> None:
    rng = random.Random(3)
    edges = [0, *sorted(rng.sample(range(len(frames)), 10)), len(frames)]
    for number, (a, b) in enumerate(pairwise(edges), 1):
        write(tmp_path / f"dump.pcap{number}", frames[a:b])
    names = sorted(tmp_path.iterdir())
    assert [path.name for path in names][:3] == ["dump.pcap1", "dump.pcap10", "dump.pcap11"]
    for order in (names, names[::-1]):
        assert everything(scan(*order, block_bytes=block_bytes)) == wanted


@pytest.mark.parametrize("block_bytes", [600, 1 << 22])
@pytest.mark.parametrize("shares", [(1, 1, 1), (1, 300)])
def test_captures_that_overlap_in_time(frames, wanted, tmp_path, block_bytes, shares) -> None:
    rng = random.Random(4)
    split: list[Frames] = [[] for _ in shares]
    for frame in frames:
        rng.choices(split, shares)[0].append(frame)
    paths = [write(tmp_path / f"eth{i}.pcap", part) for i, part in enumerate(split)]
    run = scan(*paths, block_bytes=block_bytes)
    assert everything(run) == wanted
    assert run.counters.late == 0


def test_one_window_over_everything(frames: Frames, whole: Path, tmp_path: Path) -> None:
    (one,) = everything(scan(whole, window="all"))
    parts = [write(tmp_path / f"{i}.pcap", frames[i::3]) for i in range(3)]
    assert everything(scan(*parts, window="all")) == [one]
    assert one[0].start == frames[0][0] // 1000 * 1000  # pcap has microseconds
    assert one[0].end >= frames[-1][0] // 1000 * 1000
    assert one[1] == len(frames)


@pytest.mark.parametrize("detector", ["cube", "cbaa", "cbaa-paper", "exact"])
def test_threads_do_not_change_a_bit(whole: Path, detector: str) -> None:
    settings: dict[str, Any] = {"detector": detector, "memory": "8MiB" if "cbaa" in detector else "1MiB"}
    assert everything(scan(whole, threads=1, **settings)) == everything(scan(whole, threads=2, **settings))


# Files far out of order


def revised(*paths: Path, limits: Limits = LIMITS, **settings: Any) -> tuple[list[Any], Scan]:
    """The last revision of every window, in order, and the scan."""
    sources = [open_capture(path, block_bytes=4096) for path in paths]
    run = Scan(sources, Settings(**{**SMALL, **settings}), RunOptions(revises=True, limits=limits))
    last: dict[Window, Any] = {}
    for result in run:
        assert result.revision == (2 if result.window in last else 1)
        assert not result.partial
        last[result.window] = everything([result])[0]
    return [last[window] for window in sorted(last)], run


def out_of_order(frames: Frames) -> dict[str, Frames]:
    third = len(frames) // 3
    return {
        "backwards": frames[::-1],
        "parts": frames[third:] + frames[:third],
        "a few": frames[100:] + frames[:100],
        "shuffled": random.Random(1).sample(frames, len(frames)),
    }


@pytest.mark.parametrize("how", ["backwards", "parts", "a few", "shuffled"])
def test_a_file_in_any_order_gives_the_same_bits(frames: Frames, wanted: list[Any], tmp_path: Path, how: str) -> None:
    got, run = revised(write(tmp_path / "a.pcap", out_of_order(frames)[how]))
    assert got == wanted
    assert (run.counters.late, run.counters.stray, run.counters.packets) == (0, 0, len(frames))
    assert run.counters.revised > 0 or how in ("backwards", "parts")  # where older windows come late as a whole
    assert run.counters.no_inner_end == scan(write(tmp_path / "b.pcap", frames)).counters.no_inner_end


def test_a_window_all_of_which_lay_out_of_order_is_no_revision(tmp_path: Path) -> None:
    late = talk("10.0.0.1", 1500, NOON + 10 * MINUTES) + talk("10.0.0.2", 1500, NOON + 20 * MINUTES)
    late += talk("10.0.0.3", 40, NOON)
    got, run = revised(write(tmp_path / "a.pcap", late), detector="exact", threshold=1)
    assert [((window.start - NOON) // MINUTES, count) for window, count, *_ in got] == [(0, 40), (10, 1500), (20, 1500)]
    assert run.counters.revised == 0


def test_years_that_come_before_others_in_a_file_are_no_strays(tmp_path: Path) -> None:
    """Two captures, one behind the other in one file, the younger first; and a stray between them."""
    stray = packet(NOON - 3 * YEARS, "10.0.0.9", "172.16.0.1")
    frames = [*talk("10.0.0.1", 3000), *talk("10.0.0.2", 1200, NOON - YEARS), stray, *talk("10.0.0.1", 10)]
    got, run = revised(write(tmp_path / "a.pcap", frames), detector="exact", threshold=1)
    assert [(window.start, count) for window, count, *_ in got] == [(NOON - YEARS - YEARS % LENGTH, 1200), (NOON, 3010)]
    assert (run.counters.late, run.counters.stray) == (0, 1)


@pytest.mark.slow
def test_packets_wait_on_disk_where_memory_does_not_hold_them(frames, wanted, tmp_path) -> None:
    path = write(tmp_path / "a.pcap", out_of_order(frames)["shuffled"])
    for limits in (Limits(packets=2000), Limits(pieces=20)):
        assert revised(path, limits=limits)[0] == wanted
        with full_disk(), pytest.raises(OutputError, match="File too large; TMPDIR names another folder"):
            revised(path, limits=limits)


def test_a_file_that_changes_between_two_readings_is_an_error_and_its_packets_stay_late(tmp_path: Path) -> None:
    late = talk("10.0.0.1", 1500, NOON + 5 * MINUTES) + talk("10.0.0.2", 1500, NOON + 10 * MINUTES)
    path, errors = write(tmp_path / "a.pcap", late + talk("10.0.0.3", 40)), []
    run = Scan(
        [open_capture(path, block_bytes=4096)], Settings(**SMALL), RunOptions(revises=True), on_error=errors.append
    )
    for result in run:
        if (result.window.start - NOON) // MINUTES == 10:  # the last one of the first reading
            write(path, late)
    assert [str(error) for error in errors] == [f"{path}: changed between two readings"]
    assert (run.counters.late, run.counters.revised) == (40, 0)


def test_a_stop_leaves_packets_out_of_order_late(tmp_path: Path) -> None:
    late = talk("10.0.0.1", 1500, NOON + 5 * MINUTES) + talk("10.0.0.2", 1500, NOON + 10 * MINUTES)
    path = write(tmp_path / "a.pcap", late + talk("10.0.0.3", 40) + talk("10.0.0.4", 40, NOON - 60 * MINUTES))
    run = Scan([open_capture(path, block_bytes=4096)], Settings(**SMALL), RunOptions(revises=True))
    starts = []
    for result in run:
        starts.append((result.window.start - NOON) // MINUTES)
        if starts[-1] == -60:
            run.stop()
    assert starts == [5, 10, -60]
    assert run.counters.late == 40


def test_pipes_and_scans_that_do_not_ask_for_it_count_what_is_late(tmp_path: Path) -> None:
    late = talk("10.0.0.1", 1500, NOON + 5 * MINUTES) + talk("10.0.0.2", 1500, NOON + 10 * MINUTES)
    path = write(tmp_path / "a.pcap", late + talk("10.0.0.3", 40))
    run = scan(path)
    assert len(list(run)) == 2
    assert run.counters.late == 40
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(path.read_bytes()))
    writer.start()
    piped = Scan([open_capture(fifo, block_bytes=4096)], Settings(**SMALL), RunOptions(revises=True))
    assert len(list(piped)) == 2
    writer.join(600)
    assert piped.counters.late == 40


# Strays


@pytest.mark.parametrize("stray", [0, NOON + YEARS])
def test_a_stray_in_the_middle_of_one_of_two_inputs_delays_nobody(tmp_path: Path, stray: int) -> None:
    wanted = [(window, 3000, [("10.0.0.1", 1500), ("10.0.0.2", 1500)]) for window in (0, 1)]
    other = write(tmp_path / "b.pcap", talk("10.0.0.2", 3000, step=200 * STEP))
    for where in (139, 140, 141):  # 140 packets fill the first block of 8192 bytes: one of these begins the second
        frames = talk("10.0.0.1", 3000, step=200 * STEP)
        frames.insert(where, packet(stray, "10.0.0.9", "172.16.0.1"))
        run = scan(write(tmp_path / "a.pcap", frames), other, detector="exact", block_bytes=8192)
        assert summary(run) == wanted
        assert (run.counters.stray, run.counters.late) == (1, 0)


def test_an_input_whose_first_time_is_a_stray_in_the_future_is_not_read_too_late(tmp_path: Path) -> None:
    frames = [packet(NOON + YEARS, "10.0.0.9", "172.16.0.1"), *talk("10.0.0.1", 3000)]
    long = write(tmp_path / "b.pcap", talk("10.0.0.2", 9000, step=200 * STEP))
    run = scan(write(tmp_path / "a.pcap", frames), long, detector="exact")
    assert summary(run)[0] == (0, 4500, [("10.0.0.1", 3000), ("10.0.0.2", 1500)])
    assert run.counters.late == 0


# Inputs that fail


def bad_inputs(tmp_path: Path) -> dict[str, Path]:
    corrupt = tmp_path / "corrupt.pcap"
    good = talk("10.0.0.5", 20)
    corrupt.write_bytes(packets.pcap(good) + packets.record(NOON, b"x" * 60, captured=1 << 31))
    (tmp_path / "text.pcap").write_text("this is not a capture")
    (tmp_path / "cut.pcap").write_bytes(packets.pcap(talk("10.0.0.6", 20))[:-7])
    (tmp_path / "empty.pcap").write_bytes(b"")
    return {name: tmp_path / f"{name}.pcap" for name in ("corrupt", "text", "cut", "empty", "missing")}


def test_one_bad_input_among_many_and_the_rest_runs(tmp_path: Path) -> None:
    bad = bad_inputs(tmp_path)
    good = write(tmp_path / "good.pcap", talk("10.0.0.7", 30))
    errors: list[SuperhostsError] = []
    sources = open_inputs([*bad.values(), good], errors.append)
    run = Scan(sources, Settings(**{**SMALL, "threshold": 1, "detector": "exact"}), on_error=errors.append)
    assert summary(run) == [(0, 69, [("10.0.0.7", 30), ("10.0.0.5", 20), ("10.0.0.6", 19)])]
    assert {Path(error.file).name for error in errors} == {"corrupt.pcap", "text.pcap", "missing.pcap"}
    assert all(isinstance(error, InputError) and error.exit_status == 3 for error in errors)
    place = next(error.offset for error in errors if "corrupt" in str(error))
    assert place == len(packets.pcap(talk("10.0.0.5", 20)))
    assert any("cut.pcap" in warning for warning in run.counters.warnings)


@pytest.mark.parametrize("name", ["corrupt", "text", "missing"])
def test_without_a_taker_the_first_error_ends_the_scan(tmp_path: Path, name: str) -> None:
    path = bad_inputs(tmp_path)[name]
    with pytest.raises(InputError, match=rf"{name}\.pcap"):
        list(sh.scan(path, **SMALL))


# Families, sides, directions


def test_detectors_of_ipv4_only_count_what_they_skip(tmp_path: Path) -> None:
    mixed = talk("10.0.0.7", 1500) + talk("2001:db8::7", 200)
    run = scan(write(tmp_path / "a.pcap", mixed), detector="cbaa", memory="8MiB")
    ((_, count, hosts),) = summary(run)
    assert [host for host, _ in hosts] == ["10.0.0.7"]
    assert (run.counters.ipv6, run.counters.skipped_family, count) == (200, 200, 1700)


def test_every_side_and_direction_has_its_own_detector(tmp_path: Path) -> None:
    frames = talk("10.0.0.1", 30) + talk("10.0.0.1", 20, base="172.16.0.20", inbound=True)  # ten peers answer
    frames += [packet(NOON, "192.0.2.1", "192.0.2.2"), packet(NOON, "10.0.0.1", "10.0.0.1")]
    path = write(tmp_path / "a.pcap", frames)
    run = scan(path, detector="exact", threshold=15, watch=["inner", "outer"], direction=["any", "out", "in"])
    (window,) = run
    assert [(f.part, str(f.host), f.peers) for f in window] == [
        (Part(4, "inner", "any"), "10.0.0.1", 40),
        (Part(4, "inner", "out"), "10.0.0.1", 30),
        (Part(4, "inner", "in"), "10.0.0.1", 20),
    ]
    assert set(window.sketch.parts) == {Part(4, s, d) for s in ("inner", "outer") for d in ("any", "out", "in")}
    assert (run.counters.no_inner_end, run.counters.same_ends, window.packets) == (1, 1, 52)
    (outer,) = scan(path, detector="exact", threshold=1, watch=["outer"])
    assert {str(f.host) for f in outer} == {f"172.16.0.{i}" for i in range(40)}


class Haunted(sh.Exact):
    """A detector that finds a host outside the monitored network, which is wrong: no host there was counted."""

    def super_hosts(self, threshold: float) -> sh.SuperHosts:
        self.update(np.full(5, 0xC0000201, np.uint32), np.arange(5, dtype=np.uint32))
        return super().super_hosts(threshold)


def test_phantoms_of_the_other_side_are_left_out(tmp_path: Path) -> None:
    source = open_capture(write(tmp_path / "a.pcap", talk("10.0.0.1", 5)))
    made: list[Haunted] = []

    def make_detector(_: Part) -> Haunted:
        made.append(Haunted())
        return made[-1]

    run = Scan([source], Settings(**{**SMALL, "threshold": 5}), make_detector=make_detector)
    assert [hosts for _, _, hosts in summary(run)] == [[("10.0.0.1", 5)]]
    assert [[str(row.host) for row in detector.super_hosts(5)] for detector in made] == [["10.0.0.1", "192.0.2.1"]]


# What a window carries


def test_sketches_carry_window_site_and_counters(whole: Path) -> None:
    first, second, _ = scan(whole, site="ams")
    assert first.sketch.window == first.window == Window(NOON, NOON + 5 * MINUTES)
    assert first.sketch.sites == {"ams"}
    entry = {"site": "ams", "start": NOON, "end": NOON + 5 * MINUTES, "side": "inner", "direction": "any"}
    assert first.sketch.entries == [{**entry, "family": 4, "pairs": first.sketch.entries[0]["pairs"]}]
    assert first.packets <= first.sketch.entries[0]["pairs"] <= 2 * first.packets
    assert [entry["family"] for entry in second.sketch.entries] == [4, 6]


def test_top_gives_the_largest_hosts_over_all_parts(whole: Path) -> None:
    for window in scan(whole, threshold=None, top=2):
        peers = [found.peers for found in window]
        assert len(peers) == 2
        assert peers == sorted(peers, reverse=True)
    assert [len(window.found) for window in scan(whole, threshold=1000, top=1)] == [1, 1, 1]


def test_a_closed_window_is_not_held(whole: Path) -> None:
    """The next window's cubes are made while the caller looks at this one: nobody else may keep it alive."""
    run = iter(scan(whole))
    gone = weakref.ref(next(run).sketch)
    next(run)
    assert gone() is None


def test_a_scan_that_is_left_stops_its_readers(whole: Path) -> None:
    for paths in ((whole,), (whole, whole)):
        before = set(threading.enumerate())
        run = iter(scan(*paths, block_bytes=600))
        next(run)
        run.close()
        for thread in set(threading.enumerate()) - before:
            thread.join(240)
            assert not thread.is_alive()


def test_a_scan_that_was_left_or_closed_or_has_failed_is_not_read_a_second_time(whole, tmp_path, frames) -> None:
    for paths in ((whole,), (whole, whole)):
        left = scan(*paths, block_bytes=600)
        iter(left)  # nothing has been read yet
        next(iter(left))
        with pytest.raises(UsageError, match="left before its end"):
            next(iter(left))
    closed = scan(whole, block_bytes=600)
    windows = iter(closed)
    next(windows)
    assert iter(closed) is windows
    windows.close()
    with pytest.raises(UsageError, match="left before its end"):
        iter(closed)
    damaged = write(tmp_path / "damaged.pcap", frames)
    with damaged.open("ab") as file:
        file.write(b"\xff" * 16)
    failed = scan(damaged, inner=["203.0.113.0/28"])
    with pytest.raises(InputError):
        list(failed)
    counters = failed.counters  # packets before damage are counted by what became of them
    assert counters.no_inner_end + counters.same_ends == counters.ipv4 + counters.ipv6 > 0
    with pytest.raises(UsageError, match="left before its end"):
        list(failed)


class Asked(FileSource):
    """A capture that counts how often it is asked how far it was read."""

    asked = 0

    def position(self) -> int:
        self.asked += 1
        return super().position()


def test_progress_does_not_ask_every_input_after_every_block(tmp_path: Path) -> None:
    count, seen = 120, []
    for number in range(count):
        write(tmp_path / f"{number}.pcap", talk("10.0.0.1", 3, NOON + number * SECOND))
    sources = [Asked(Input(path), lambda _: CAPTURES) for path in sorted(tmp_path.iterdir())]
    list(Scan(sources, Settings(**SMALL), on_progress=lambda *reached: seen.append(reached)))
    assert seen == sorted(seen)
    assert seen[-1] == (sum(path.stat().st_size for path in tmp_path.iterdir()), 3 * count)
    assert count <= sum(source.asked for source in sources) < 10 * count


# `superhosts.scan`: its signature, reading twice, and what becomes of sketches


def test_every_setting_is_an_argument_with_the_same_default() -> None:
    arguments = inspect.signature(sh.scan).parameters
    kinds = {each.kind for name, each in arguments.items() if name != "inputs"}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    assert {each.name for each in fields(Settings)} <= set(arguments)
    for each in fields(Settings):
        default = arguments[each.name].default
        if each.name == "window":
            assert default is None  # short inputs are joined unless a length is given
        else:
            assert ((default,) if each.name in ("watch", "direction") else default) == each.default
    assert inspect.signature(sh.scan).return_annotation == "Scan"
    with pytest.raises(TypeError, match="unexpected keyword argument 'memroy'"):
        sh.scan("a.pcap", memroy=3)
    for name in arguments:
        assert f"`{name}`" in (sh.scan.__doc__ or "") or name == "inputs"


def windows_of(run: object) -> list[tuple[int, int, list[str]]]:
    return [(each.window.start, each.packets, [str(row.host) for row in each]) for each in run]


@pytest.mark.parametrize("kind", ["file", "folder", "synth", "pattern"])
def test_another_loop_reads_again(whole: Path, kind: str) -> None:
    inputs = {
        "file": whole,
        "folder": str(whole.parent),
        "pattern": str(whole.parent / "*.pcap"),
        "synth": "synth:flows=2k,packets=5k,windows=2,super_hosts=0",
    }
    run = sh.scan(inputs[kind], window="5m", top=3, memory="1MiB", device="cpu")
    first = windows_of(run)
    packets = run.counters.packets
    assert len(first) > 1
    assert windows_of(run) == first
    assert run.counters.packets == packets  # of the last reading
    for _ in run:  # a loop that is left
        break
    assert windows_of(run) == first


def test_a_pipe_is_read_once(whole: Path) -> None:
    reader, writer = os.pipe()

    def feed() -> None:
        with os.fdopen(writer, "wb") as end:
            end.write(whole.read_bytes())

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        run = sh.scan(f"/dev/fd/{reader}", memory="1MiB", device="cpu")
        assert sum(each.packets for each in run) > 0
        with pytest.raises(sh.UsageError, match=rf"^/dev/fd/{reader}: was read, and can be read only once; keep its"):
            iter(run)
    finally:
        thread.join()
        os.close(reader)


def test_the_sketch_of_a_window_is_freed_when_the_next_comes(whole: Path) -> None:
    last, parts = None, []
    for window in sh.scan(whole, window="5m", memory="1MiB", device="cpu"):
        assert window.sketch.parts
        parts.append(weakref.ref(next(iter(window.sketch.parts.values()))))
        if last is not None:
            with pytest.raises(sh.UsageError, match=r"freed when the next window came; scan\(…, keep_sketch=True\)"):
                _ = last.sketch
            assert parts[-2]() is None
        assert last is None or len(last) >= 0  # The rows stay.
        last = window
    assert last.sketch.parts  # No window came after it.
    kept = list(sh.scan(whole, window="5m", memory="1MiB", device="cpu", keep_sketch=True))
    assert len(kept) > 1
    assert all(window.sketch.parts for window in kept)


def test_a_thread_frees_its_own_windows_only(whole: Path) -> None:
    windows = iter(sh.scan(whole, window="5m", memory="1MiB", device="cpu"))
    mine, others = next(windows), []
    thread = threading.Thread(target=lambda: others.append(next(windows)))
    thread.start()
    thread.join()
    assert mine.sketch.parts
    next(windows)
    assert others[0].sketch.parts
    with pytest.raises(sh.UsageError, match="keep_sketch=True"):
        _ = mine.sketch


def test_a_scan_says_what_it_reads_and_how_far_it_has_come(whole: Path) -> None:
    run = sh.scan(whole, window="5m", memory="1MiB", device="cpu")
    assert repr(run) == f"<Scan: {whole}, window 5m, cube 1 MiB, cpu; not begun>"
    windows = iter(run)
    next(windows)
    assert "; begun (" in repr(run)
    for _ in windows:
        pass
    assert repr(run).endswith(f"; read ({run.counters.packets:,} packets, {run.counters.pairs:,} pairs)>")
    assert repr(sh.scan([whole, whole])).startswith("<Scan: 2 inputs, window 5m, cube 128 MiB, auto;")
