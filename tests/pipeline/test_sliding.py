"""Sliding windows: the rows of a scan of each window alone, few merges, and what becomes of the panes."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from livescans import EXACT, Clock, Pipes, Start, some
from superhosts.core.pairs import Window
from superhosts.core.results import Searchable, Selection, SuperHosts
from superhosts.errors import UsageError
from superhosts.jit.memory import Reuse
from superhosts.pipeline.builder import WindowResult, report_of
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.sliding import MOST_KEPT, PaneQueue, SlidingPanes
from superhosts.sketch.sketch import Sketch
from superhosts.sources.capture import open_capture
from traffic import MINUTES, NOON, Frames, packet, write

SLIDE = MINUTES
LENGTH = 4 * SLIDE
COMMON: dict[str, Any] = {"device": "cpu", "threads": 2}
SMALL = {"memory": "16KiB"}  # an exact set takes 768 pairs
# All detectors that merge; a cube that is exact, one that never is, and one whose windows are now this, now that.
WAYS: dict[str, dict[str, Any]] = {
    "exact while it fits": {"memory": "1MiB"},
    "never exact": {"memory": "1MiB", "exact": False},
    "exact or not": SMALL,
    "cbaa": {"detector": "cbaa", "memory": "8MiB"},
    "exact": {"detector": "exact"},
}


def random_traffic(seed: int, panes: int = 12, most: int = 900) -> Frames:
    """Return packets of panes of which some are empty, some have very few packets, and some repeat earlier pairs."""
    draw = random.Random(seed)
    frames: Frames = []
    for pane in range(panes):
        count = draw.choice([0, 0, 3, most // 3, most, most])
        if pane in (2, 3, 4, 5, 6) and seed % 2:
            count = 0  # longer than a window
        start = NOON + pane * SLIDE
        for _ in range(count):
            wide = draw.random() < 0.1
            host, peer = draw.choice([1, 1, 1, draw.randrange(1, 40)]), draw.randrange(3000)
            ends = (f"2001:db8:0:{host:x}::1", f"2a00::{peer:x}") if wide else (f"10.0.0.{host}", number(peer))
            frames.append(packet(start + draw.randrange(SLIDE), *(ends if draw.random() < 0.5 else ends[::-1])))
    return sorted(frames, key=lambda frame: frame[0])


def number(peer: int) -> str:
    return f"172.16.{peer >> 8}.{peer & 255}"


def rows(found: Any) -> list[tuple[Any, ...]]:
    return [(row.part, row.host, *row[1:6]) for row in found]


def naive(folder: Path, frames: Frames, **settings: Any) -> dict[int, tuple[int, list[tuple[Any, ...]]]]:
    """Return the packets and rows of each window by its end, from a scan of its packets alone.

    A window with the packets of the one before is left out.
    """
    found: dict[int, tuple[int, list[tuple[Any, ...]]]] = {}
    before: Frames = []
    first, last = (frames[index][0] // SLIDE for index in (0, -1))
    for pane in range(first, last + 1):
        end = (pane + 1) * SLIDE
        inside = [frame for frame in frames if end - LENGTH <= frame[0] < end]
        if inside and inside != before:
            (window,) = sh.scan(write(folder / "alone.pcap", inside), window="all", **settings, **COMMON)
            found[end] = window.packets, rows(window)
        before = inside
    return found


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_of_each_window_alone(tmp_path: Path, way: str, seed: int) -> None:
    frames = random_traffic(seed)
    settings = {"inner": ["10.0.0.0/8", "2001:db8::/32"], "top": 12, **WAYS[way]}
    path = write(tmp_path / "all.pcap", frames)
    found = list(sh.scan(path, window="4m", slide="1m", keep_sketch=True, **settings, **COMMON))
    expected = naive(tmp_path, frames, **settings)
    assert {each.window.end: (each.packets, rows(each)) for each in found} == expected
    assert [each.window for each in found] == [Window(end - LENGTH, end) for end in expected]
    for each in found:  # sketches that are kept have not changed since
        assert rows(each.sketch.top(12)) == expected[each.window.end][1]
    if way == "exact or not":
        states = {row[-2] for _, part in expected.values() for row in part}
        assert states == {True, False} or seed % 2  # both are tested


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a part", "shuffled", "backwards", "whole panes"])
@pytest.mark.parametrize("seed", [3, 4])
def test_packets_far_out_of_order_give_revisions(tmp_path: Path, seed: int, how: str) -> None:
    """Panes close after 1,000 packets beyond them; these packets come later."""
    frames = random_traffic(seed, panes=16, most=2500)
    draw = random.Random(seed)
    late = {pane for pane in range(16) if draw.random() < 0.15} | {1, 9}
    share = 0.6 if how == "a part" else 1
    behind = [frame for frame in frames if (frame[0] - NOON) // SLIDE in late and draw.random() < share]
    chosen = set(map(id, behind))
    shuffled = [frame for frame in frames if id(frame) not in chosen] + behind
    if how == "shuffled":
        draw.shuffle(shuffled)
    elif how == "backwards":
        shuffled = frames[::-1]
    sources = [open_capture(write(tmp_path / "late.pcap", shuffled), block_bytes=4096)]
    run = Scan(sources, Settings(window="4m", slide="1m", top=5, memory="1MiB", **COMMON), RunOptions(revises=True))
    windows, found = [], {}
    for each in run:
        windows.append((each.window.end, each.revision))
        assert each.revision == (2 if each.window.end in found else 1)
        found[each.window.end] = each.packets, rows(each)
    assert (run.counters.late, run.counters.unrevised) == (0, 0)
    assert run.counters.revised == sum(revision == 2 for _, revision in windows)
    assert run.counters.revised or how != "a part"
    assert found == naive(tmp_path, frames, top=5, memory="1MiB")


def test_the_clock_closes_windows_that_slide_until_none_has_a_packet(pipe: Pipes, live: Start) -> None:
    """Panes are five minutes. The window goes on by the clock after the last packet; empty ones are left out."""
    clock, end = Clock(), pipe()
    settings = {**EXACT, "window": "15m", "slide": "5m"}
    run = live(open_capture(end.path), settings=settings, clock=clock, grace=10.0, clock_only=True)
    end.send(some(5, seconds=100))
    run.read(5)
    clock.now += 209.9  # 9.9 seconds beyond the end of the pane
    run.gives()
    clock.now += 0.2
    run.gives((-2, 5))
    clock.now += 300
    run.gives((-2, 5), (-1, 5))
    clock.now += 3000
    run.gives((-2, 5), (-1, 5), (0, 5))
    end.send(some(3, window=20))
    end.close()
    run.ends()
    assert run.seen == [(-2, 5), (-1, 5), (0, 5), (18, 3)]


# The queue


def sketch_of(peers: range, settings: Settings) -> Sketch:
    sketch = Sketch(settings.make_detector)
    sketch.part(sh.Part()).update(np.full(len(peers), 7, np.uint32), np.array(peers, np.uint32))
    return sketch


@pytest.mark.slow
@pytest.mark.parametrize("panes", [1, 2, 3, 10, 17])
def test_merges_for_a_slide_are_constant(panes: int) -> None:
    settings = Settings(memory="1MiB", **COMMON)
    queue, slides = PaneQueue(), 5 * panes
    members = [sketch_of(range(3 * number, 3 * number + 5), settings) for number in range(slides)]
    for number, pane in enumerate(members):
        if len(queue) == panes:
            queue.pop()
        queue.push(pane)
        first = max(0, number - panes + 1)
        for without in range(min(panes, number + 1)):
            expected = len(
                {peer for each in range(first + without, number + 1) for peer in range(3 * each, 3 * each + 5)}
            )
            merges = queue.merges
            assert queue.union(without).part(sh.Part()).estimate(7).peers == expected
            queue.merges = merges + (without == 0 and queue.merges > merges)
    assert queue.merges <= 3 * slides
    for number, pane in enumerate(members):  # a pane is never changed
        assert pane.part(sh.Part()).estimate(7).peers == 5, number


def crowd_of(peers: range, settings: Settings) -> Sketch:
    """Return a sketch of many hosts with few peers each."""
    sketch = Sketch(settings.make_detector)
    sketch.part(sh.Part()).update(np.array(peers, np.uint32) // 8, np.array(peers, np.uint32))
    return sketch


SIZES = "slices=1,arrays=4,columns=112,rows=1024,labels=2,share=8,giants=1"  # 64 KiB
TINY = Settings(geometry=SIZES, **COMMON)
LIMIT = sh.Geometry.parse(SIZES).exact_pairs  # of a detector with these settings


def slide(queue: PaneQueue, pane: Sketch, panes: int) -> Any:
    """Add a pane to a queue of at most `panes`; return the detector of their union."""
    if len(queue) == panes:
        queue.pop()
    queue.push(pane)
    return queue.union().part(sh.Part())


def test_windows_are_exact_if_and_only_if_their_pairs_fit() -> None:
    """While windows are dense, the unions of both stacks are dense before they have to be; what fits is exact."""
    many, few = [LIMIT // 3] * 14, [LIMIT // 10] * 6
    at_the_limit = [LIMIT // 4, LIMIT // 4, LIMIT // 4, LIMIT - 3 * (LIMIT // 4)] * 2
    sizes = [*few, *many, *at_the_limit, *many, *few, *many, *(size + 1 for size in at_the_limit)]
    edges = np.cumsum([0, *sizes]).tolist()
    queue, states, back, front = PaneQueue(), [], [], []
    for number in range(len(sizes)):
        union = slide(queue, crowd_of(range(edges[number], edges[number + 1]), TINY), 4)
        alone = crowd_of(range(edges[max(0, number - 3)], edges[number + 1]), TINY).part(sh.Part())
        assert (union.exact, union.exact_count()) == (alone.exact, alone.exact_count()), number
        assert union == alone, number
        states.append(union.exact)
        back.append(queue._whole_back is not None and bool(queue._whole_back.densified))
        front.append(any(each.densified for each in queue._front))
    assert changes(states) >= 5
    assert changes(back) >= 5  # It was used, and given up.
    assert changes(front) >= 5


def changes(states: list[bool]) -> int:
    return sum(one != other for one, other in pairwise(states))


def test_the_memory_of_panes_that_are_kept_is_bounded() -> None:
    """Panes with the same pairs fit together, so all of them would be kept besides their unions."""
    same, other, queue = range(LIMIT // 2), range(LIMIT, 2 * LIMIT), PaneQueue()
    for number in range(20):
        union = slide(queue, crowd_of(other if number % 8 == 0 else same, TINY), 8)
        alone = crowd_of(other, TINY).part(sh.Part())
        if number:
            alone.merge(crowd_of(same, TINY).part(sh.Part()))
        assert union == alone, number
        kept = sum(each.oldest.memory for each in queue._front if each.oldest)
        assert kept <= MOST_KEPT * alone.geometry.memory, number
    assert len(queue._front) >= 3
    assert all(each.whole.part(sh.Part()).exact for each in queue._front)


@pytest.mark.slow
def test_windows_in_memory_that_was_used_before() -> None:
    settings = Settings(memory="16MiB", **COMMON)  # Smaller arrays are not used again.
    limit = sketch_of(range(1), settings).part(sh.Part()).geometry.exact_pairs
    size, queue, lent = limit // 2, PaneQueue(), []
    for number in range(14):
        union = slide(queue, crowd_of(range(number * size, (number + 1) * size), settings), 4)
        alone = crowd_of(range(max(0, number - 3) * size, (number + 1) * size), settings).part(sh.Part())
        assert union == alone, number
        lender = Reuse.lender(union.engine.arrays()["bits"].nbytes)
        lent.append(0 if lender is None else lender.made)
    assert lent[-8] == lent[-1] > 0
    for _ in range(4):  # Empty panes push the others out: the memory is free again.
        slide(queue, sketch_of(range(1), settings), 4)
    assert queue._reuse is None


def test_few_hosts_with_most_of_the_pairs_cost_no_more_merges() -> None:
    """Their columns are full, so that a dense union never shows that its pairs do not fit."""
    size, queue = LIMIT // 8, PaneQueue()
    for number in range(60):
        union = slide(queue, sketch_of(range(number * size, (number + 1) * size), TINY), 12)
        assert union.exact == (number < 8), number
        assert union.exact or not union.surely_exceeds_exact()
    assert queue.merges < 160  # 183 if unions are made in vain at each turn
    for number in range(12):  # A window that fits removes the doubt.
        slide(queue, sketch_of(range(number), TINY), 12)
    assert not queue._doubtful


def test_memory_of_cubes_does_not_wait_beside_panes_that_are_cubes() -> None:
    queue = PaneQueue()
    for number in range(9):
        large = number in (4, 5)
        size = LIMIT + 1 if large else LIMIT // 2
        slide(queue, crowd_of(range(number * 2 * LIMIT, number * 2 * LIMIT + size), TINY), 3)
        assert (queue._reuse is None) == (large or number < 2), number


# Windows that are made while packets are counted


@pytest.fixture(scope="module")
def minutes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a capture of eight panes of more packets than are read at once: windows close before the end."""
    times = [NOON + pane * SLIDE + place for pane in range(8) for place in range(2000)]
    frames = [packet(time, "10.0.0.1", number(time % 3000)) for time in times]
    return write(tmp_path_factory.mktemp("minutes") / "all.pcap", frames)


def sliding_scan(path: Path, **settings: Any) -> Scan:
    return sh.scan(path, window="4m", slide="1m", memory="1MiB", **settings, **COMMON)


def test_a_report_tells_by_which_selection_its_hosts_were_found(minutes: Path) -> None:
    run = sliding_scan(minutes, threshold=5)
    titles = []
    for window in run:
        titles.append(report_of(window).title)
        run.select(1000, None)
    assert titles[0] == "1 host with at least 5 peers"
    assert titles[-1] == "1 host with at least 1,000 peers"


def test_a_scan_that_has_ended_keeps_no_panes(minutes: Path) -> None:
    run = sliding_scan(minutes)
    assert len(list(run)) == 8
    assert len(run._sliding._queue) == 0


def threads_of_windows() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("superhosts-windows")]


def test_an_error_of_a_window_comes_in_its_place(minutes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search, calls = Selection.search, iter(range(1, 100))

    def failing(self: Selection, searched: Searchable) -> tuple[SuperHosts, int]:
        if next(calls) == 4:
            raise UsageError("no luck")
        return search(self, searched)

    monkeypatch.setattr(Selection, "search", failing)
    run = iter(sliding_scan(minutes))
    ends = [next(run).window.end // SLIDE - NOON // SLIDE for _ in range(3)]
    assert ends == [1, 2, 3]
    with pytest.raises(UsageError, match="no luck"):
        next(run)
    assert not threads_of_windows()


def test_a_loop_that_is_left_ends_the_thread(minutes: Path) -> None:
    for window in sliding_scan(minutes):
        assert window.packets == 2000
        break
    gc.collect()
    assert not threads_of_windows()


def test_windows_before_an_error_of_an_input_come_first(minutes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(sliding_scan(minutes))
    read = Scan._read

    def damaged(self: Scan) -> Iterator[Any]:
        yield from read(self)
        raise sh.InputError("damaged", file="all.pcap")

    monkeypatch.setattr(Scan, "_read", damaged)
    run = iter(sliding_scan(minutes))
    found = [(window.window, window.packets) for window in islice(run, 7)]
    with pytest.raises(sh.InputError, match="damaged"):
        next(run)
    assert found == [(each.window, each.packets) for each in whole[:7]]  # The last one was open.


def panes_of(packets: dict[int, int], settings: Settings) -> Iterator[WindowResult]:
    for number, count in packets.items():
        sketch = sketch_of(range(10 * number, 10 * number + count), settings)
        yield WindowResult(Window(number * SLIDE, (number + 1) * SLIDE), SuperHosts.none(), sketch, count)


def test_gaps_and_what_is_open() -> None:
    settings = Settings(memory="1MiB", **COMMON)

    def find(sketch: Sketch, window: Window, packets: int) -> WindowResult:
        return WindowResult(window, sketch.top(1), sketch, packets)

    for keeps_all in (True, False):
        check_gaps(SlidingPanes(LENGTH, SLIDE, find, keeps_all=keeps_all), settings, keeps_all=keeps_all)


def check_gaps(sliding: SlidingPanes, settings: Settings, *, keeps_all: bool) -> None:
    found = []
    for pane in panes_of({5: 3, 6: 4, 8: 5, 20: 6, 21: 0}, settings):
        if pane.packets:
            before = sliding.peek(pane)
        found += list(sliding.add(pane))
        if pane.packets:
            last = found[-1]
            assert (before.window, before.packets, rows(before)) == (last.window, last.packets, rows(last))
    ends = [(each.window.end // SLIDE - 1, each.packets, sum(each.peers), each.pane is not None) for each in found]
    every = [
        (5, 3, 3, True),
        (6, 7, 7, True),
        (7, 7, 7, False),  # as the one before
        (8, 12, 12, True),
        (9, 9, 9, False),
        (10, 5, 5, False),
        (11, 5, 5, False),  # as the one before
        (20, 6, 6, True),
        (21, 6, 6, True),  # as the one before
    ]
    skipped = [] if keeps_all else [7, 11, 21]
    assert ends == [each for each in every if each[0] not in skipped]
    assert sliding.skipped == len(skipped)
    assert [index for index in range(30) if sliding.was_skipped(index)] == skipped
    (again,) = sliding.add(next(panes_of({20: 9}, settings)))  # late packets have opened it again
    assert (len(again), again.packets, again.stored is again.pane) == (0, 9, True)
    sliding.clear()
    (first,) = sliding.add(next(panes_of({3: 2}, settings)))
    assert (first.packets, first.window) == (2, Window(0, LENGTH))
