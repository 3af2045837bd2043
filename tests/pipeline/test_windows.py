"""Tumbling windows: where packets go, when windows close, what is late and what is stray."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts.core.pairs import PacketBatch, Window
from superhosts.core.units import SECOND
from superhosts.pipeline.windows import SETTLE, Closed, Piece, PutOff, TumblingWindows, split_by_window

LENGTH = 300 * SECOND
NOON = 1_700_000_100 * SECOND  # the start of a window of five minutes
YEARS = 10 * 365 * 86400 * SECOND
assert NOON % LENGTH == 0


def batch(times: Iterable[int], first: int = 0, family: int = 4) -> PacketBatch:
    """Packets at these times; each is known by its source, counted from `first`."""
    times = np.array(list(times), np.int64)
    src = np.arange(first, first + len(times))
    if family == 4:
        return PacketBatch(4, src.astype(np.uint32), src.astype(np.uint32), times)
    wide = np.stack([src, src], axis=1).astype(np.uint64)
    return PacketBatch(6, wide, wide, times)


class Run:
    """Pushes lists of times and keeps what came out."""

    def __init__(
        self, length: int | None = LENGTH, *, settle: int = SETTLE, expect: int | None = None, **options: int
    ) -> None:
        self.windows = TumblingWindows(length, settle=settle, **options)
        if expect is not None:
            self.windows.expect(expect)
        self.inside: dict[Window, list[int]] = {}
        self.closed: list[Window] = []
        self.pushed = 0

    def push(self, *lists: Iterable[int], watermark: int | None = None) -> Run:
        for times in lists:
            block = batch(times, self.pushed)
            self.pushed += len(block)
            self.take(self.windows.push((block,), watermark))
        return self

    def take(self, events: Iterable[Piece | Closed | PutOff]) -> None:
        for event in events:
            if isinstance(event, PutOff):
                continue
            assert event.window not in self.closed, "a closed window changed"
            if isinstance(event, Closed):
                self.closed.append(event.window)
                continue
            if self.windows.length is not None:
                assert (event.batch.time >= event.window.start).all()
                assert (event.batch.time < event.window.end).all()
            src = event.batch.src if event.batch.family == 4 else event.batch.src[:, 0]
            self.inside.setdefault(event.window, []).extend(src.tolist())

    def finish(self) -> Run:
        self.take(self.windows.finish())
        if self.windows.length is not None:
            if not self.windows.gaps:
                assert sorted(self.inside) == sorted(self.closed), "every window with packets closes, and no other"
            held = sum(map(len, self.inside.values()))
            lost = self.windows.late + self.windows.stray + self.windows.repeated
            assert held + lost == self.pushed, "no packet is lost in silence"
        return self

    def tick(self, seconds: float) -> Run:
        """Let the clock say that it is so many seconds past noon."""
        self.take(self.windows.tick(NOON + round(seconds * SECOND)))
        return self

    @property
    def starts(self) -> list[int]:
        """Closed windows in order, counted from noon."""
        return [(window.start - NOON) // LENGTH for window in self.closed]


def spread(count: int, window: int = 0) -> list[int]:
    """Times in one window, in order."""
    return [NOON + window * LENGTH + i * (LENGTH // (count + 1)) for i in range(count)]


# Where windows lie


@pytest.mark.parametrize("time", [0, NOON, NOON + LENGTH - 1, -1, -LENGTH - 1])
def test_windows_are_aligned_to_the_epoch(time: int) -> None:
    start = time // LENGTH * LENGTH
    assert Run().push([time]).finish().closed == [Window(start, start + LENGTH)]


def test_no_packets_no_windows() -> None:
    assert Run().push([]).finish().closed == []
    assert Run(None).push([]).finish().closed == []


# When a window closes


def test_999_packets_beyond_do_not_close_a_window_and_the_thousandth_does() -> None:
    run = Run().push(spread(2000), spread(999, window=1))
    assert run.starts == []
    run.push(spread(1, window=1))
    assert run.starts == [0]


def test_the_watermark_keeps_a_window_open() -> None:
    run = Run().push(spread(2000), watermark=NOON)
    run.push(spread(5000, window=1), spread(5000, window=2), watermark=NOON + LENGTH - 1)
    assert run.starts == []  # another input has not passed the end
    run.push(spread(10), watermark=NOON + LENGTH)
    assert run.starts == [0]  # and the next one waits for its own end
    run.push(spread(1, window=2), watermark=NOON + 2 * LENGTH)
    assert run.starts == [0, 1]
    assert run.finish().windows.late == 0


def test_both_families_of_a_block_come_before_the_window_closes() -> None:
    run = Run()
    four, six = batch(spread(1500) + spread(1200, window=1)), batch(spread(40), first=5000, family=6)
    run.take(run.windows.push((four, six)))
    run.pushed = len(four) + len(six)
    assert run.starts == [0]
    run.finish()
    assert run.windows.late == 0
    assert len(run.inside[run.closed[0]]) == 1540


# Strays


def beside(run: Run, stray: int) -> None:
    """What holds wherever in the traffic a stray stands: three windows, and the stray counted."""
    run.finish()
    assert run.starts == [0, 1, 2]
    assert [len(run.inside[window]) for window in run.closed] == [2000, 2000, 2000]
    assert (run.windows.stray, run.windows.late) == (stray, 0)


@pytest.mark.parametrize("away", [-YEARS, YEARS, -NOON])
@pytest.mark.parametrize("where", [0, 1, 999, 1999, 2000, 3500, 5999, 6000])
@pytest.mark.parametrize("size", [1, 500, 6001])
def test_a_stray_is_counted_and_closes_nothing(away: int, where: int, size: int) -> None:
    times = spread(2000) + spread(2000, window=1) + spread(2000, window=2)
    times.insert(where, NOON + away)
    expected = NOON if where < 1000 else None  # the first packets show where the traffic is
    beside(Run(expect=expected).push(*(times[i : i + size] for i in range(0, len(times), size))), stray=1)


@pytest.mark.parametrize("options", [{}, {"wall": lambda: NOON}], ids=["captures", "live"])
def test_the_window_before_is_late_and_no_stray_however_long_windows_are(options: dict[str, Callable[[], int]]) -> None:
    length = 366 * 86400 * SECOND
    start = NOON // length * length
    run = Run(length, settle=3, **options).push([start - 1], [start] * 10, [start - 1], [start] * 10)
    assert (run.windows.late, run.windows.stray) == (1, 0)


def test_many_strays_of_many_times() -> None:
    strays = [NOON + (i + 2) * YEARS for i in range(20)] + [NOON - (i + 2) * YEARS // 10 for i in range(20)]
    beside(Run(expect=NOON).push(spread(2000), strays[::2], spread(2000, window=1), strays[1::2], spread(2000, 2)), 40)


@pytest.mark.parametrize(("count", "strays"), [(1, True), (9, True), (100, False)])
def test_strays_for_windows_that_are_closed_are_not_read_again(count: int, strays: bool) -> None:
    old = NOON - YEARS
    run = Run(expect=NOON, revises=True).push(spread(2000), spread(2000, window=1), [old] * count, [NOON])
    assert (run.windows.late, run.windows.stray) == (count + 1, 0)
    run.finish()
    real = {NOON // LENGTH: 1} if strays else {old // LENGTH: count, NOON // LENGTH: 1}
    assert run.windows.put_off == real
    assert (run.windows.late, run.windows.stray) == (sum(real.values()), count if strays else 0)


def test_a_real_gap_of_years_is_no_stray() -> None:
    later = [time + YEARS for time in spread(1500)]
    run = Run(expect=NOON).push(spread(200_000), later).finish()
    assert len(run.closed) == 2
    assert run.windows.stray == 0


def test_a_small_input_years_away_is_expected() -> None:
    run = Run()
    run.windows.expect(NOON - YEARS, 0)
    run.windows.expect(NOON, 1)
    run.push([NOON - YEARS, NOON - YEARS + 1], spread(5000)).finish()
    assert len(run.closed) == 2
    assert run.windows.stray == 0


# One window over everything


def test_all_is_one_window_over_the_hull() -> None:
    run = Run(None).push([NOON + 5, NOON - YEARS], [NOON + YEARS, 0]).finish()
    (window,) = run.closed
    assert window.start == min(0, NOON - YEARS)
    assert window.end >= NOON + YEARS
    assert sorted(chain(*run.inside.values())) == [0, 1, 2, 3]
    assert (run.windows.late, run.windows.stray) == (0, 0)


# Against plain Python


class Plain:
    """The same rule for lists of times, window numbers as dictionary keys, no strays, one input."""

    def __init__(self, length: int, settle: int) -> None:
        self.length, self.settle = length, settle
        self.current: int | None = None
        self.frontier: int | None = None
        self.held: dict[int, list[int]] = {}
        self.inside: dict[int, list[int]] = {}
        self.closed: list[int] = []
        self.late = 0

    def push(self, block: list[tuple[int, int]]) -> None:
        for name, time in block:
            window = time // self.length
            if window == self.current:
                self.inside[window].append(name)
            elif self.frontier is not None and window < self.frontier:
                self.late += 1
            else:
                self.held.setdefault(window, []).append(name)
        self.settled(self.settle)

    def settled(self, settle: int) -> None:
        while True:
            if self.current is None:
                if not self.held or sum(map(len, self.held.values())) < settle:
                    return
                self.open(min(self.held))
            assert self.current is not None
            if sum(len(names) for window, names in self.held.items() if window > self.current) < settle:
                return
            for window in sorted(w for w in self.held if w < self.current):
                self.inside[window] = self.held.pop(window)
                self.closed.append(window)
            self.closed.append(self.current)
            self.frontier, self.current = self.current + 1, None
            if self.held:
                self.open(min(self.held))

    def open(self, window: int) -> None:
        self.current = window
        self.inside[window] = self.held.pop(window)

    def finish(self) -> None:
        self.settled(0)


@given(
    st.lists(st.lists(st.integers(-50, 400), max_size=12), max_size=25),
    st.integers(1, 60),
    st.integers(1, 12),
)
def test_any_order_of_times_agrees_with_plain_python(blocks: list[list[int]], length: int, settle: int) -> None:
    run, plain = Run(length, settle=settle), Plain(length, settle)
    for block in blocks:
        plain.push(list(enumerate(block, run.pushed)))
        run.push(block)
        assert [window.start // length for window in run.closed] == plain.closed
    run.finish()
    plain.finish()
    assert [window.start // length for window in run.closed] == plain.closed
    got = {window.start // length: sorted(names) for window, names in run.inside.items()}
    assert got == {window: sorted(names) for window, names in plain.inside.items()}
    assert run.windows.late == plain.late


# A clock


def test_the_clock_closes_what_has_ended_and_nothing_else() -> None:
    run = Run().push(spread(10), spread(20, window=1))
    assert run.tick(299.9).starts == []
    assert run.tick(300).starts == [0]
    assert run.tick(599.9).starts == [0]
    run.push(spread(5), spread(5, window=1))
    assert run.tick(600).starts == [0, 1]
    run.finish()
    assert run.windows.late == 5
    assert [len(run.inside[window]) for window in run.closed] == [10, 25]


def test_the_clock_closes_a_window_that_had_settled_and_those_held_behind_it() -> None:
    run = Run().push(spread(2000, window=2), spread(30, window=1), spread(40, window=3), spread(50, window=5))
    assert run.tick(4 * 300).starts == [1, 2, 3]
    assert run.push(spread(1200, window=5), spread(1000, window=6)).starts == [1, 2, 3, 5]
    run.finish()
    assert [len(run.inside[window]) for window in run.closed] == [30, 2000, 40, 1250, 1000]


def test_the_clock_before_the_first_packet_closes_nothing() -> None:
    run = Run(gaps=12).tick(900)
    assert run.push(spread(3)).finish().starts == [0]
    assert run.windows.late == 0


@pytest.mark.parametrize("away", [-YEARS, YEARS])
def test_the_clock_opens_no_window_for_a_stray(away: int) -> None:
    run = Run(expect=NOON).push([*spread(500), NOON + away]).tick(301)
    assert run.starts == [0]
    run.finish()
    assert run.windows.stray == 1


def test_after_years_by_the_clock_slow_traffic_is_no_stray() -> None:
    run = Run(expect=NOON, gaps=12).push(spread(1500)).tick(301)
    run.tick(YEARS // SECOND)
    run.push([NOON + YEARS + LENGTH]).finish()
    assert run.windows.stray == 0
    assert run.inside[run.closed[-1]] == [1500]


def test_empty_windows_come_in_their_place_and_once() -> None:
    run = Run(gaps=3).push(spread(1500), spread(10, window=2), spread(1500, window=3), spread(1200, window=9))
    assert run.starts == [0, 1, 2, 3]
    assert run.tick(9 * 300 + 299).starts == [0, 1, 2, 3, 6, 7, 8]
    assert run.tick(11 * 300).starts == [0, 1, 2, 3, 6, 7, 8, 9, 10]
    assert run.tick(11 * 300).starts[-1] == 10
    run.push(spread(1, window=10), spread(1, window=13)).finish()
    assert run.starts[9:] == [11, 12, 13]
    assert run.windows.late == 1  # an empty window that was reported stays empty


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=60),
    st.integers(1, 50),
    st.integers(1, 12),
)
def test_any_traffic_and_clock_keep_the_order_and_lose_nothing(
    steps: list[tuple[int, int]], length: int, settle: int
) -> None:
    run, plain = Run(length, settle=settle, gaps=4), Run(length, settle=settle)
    for time, back in steps:
        for one in (run, plain):
            one.push([time])
            one.take(one.windows.tick(time - back))
    run.finish()
    plain.finish()
    assert run.closed == sorted(set(run.closed))
    for before, after in pairwise(run.closed):  # a hole only before empty windows, of a gap that is longer than four
        assert after.start == before.end or after not in run.inside
    assert plain.closed == sorted(set(plain.closed))


# Going on where another run ended


@given(st.lists(st.integers(0, 900), min_size=1, max_size=120), st.integers(1, 100), st.integers(0, 900))
def test_a_run_that_goes_on_gives_the_rest_of_one_run(times: list[int], length: int, place: int) -> None:
    times = sorted(times)
    whole = Run(length, settle=5)
    for time in times:
        whole.push([time])
    whole.finish()
    rest = Run(length, settle=5, resume_from=place)
    for time in times:
        rest.push([time])
    rest.finish()
    wanted = [window for window in whole.closed if window.end > place]
    assert rest.closed == wanted
    assert all(rest.inside[window] == whole.inside[window] for window in wanted)
    assert rest.windows.repeated == sum(len(whole.inside[w]) for w in whole.closed if w.end <= place)
    assert (rest.windows.late, rest.windows.stray) == (0, 0)


def test_what_was_done_before_is_neither_late_nor_stray() -> None:
    run = Run(resume_from=NOON + LENGTH).push([5], spread(3), spread(2000, window=1), spread(1500, window=2), spread(4))
    run.finish()
    assert (run.windows.repeated, run.windows.late, run.windows.stray) == (8, 0, 0)
    assert run.starts == [1, 2]


def test_the_earliest_window_that_is_open() -> None:
    run = Run(expect=NOON)
    assert run.windows.earliest() is None
    run.push([NOON - YEARS], spread(500, window=1))
    assert run.windows.earliest() == Window(NOON + LENGTH, NOON + 2 * LENGTH)
    run.push(spread(600, window=2), spread(1, window=0))
    assert run.windows.earliest() == Window(NOON, NOON + LENGTH)
    assert Run(None).push([5, 7]).windows.earliest() == Window(5, 7)


# Work


def work(
    times: list[int], size: int, length: int = LENGTH, *, ticks: bool = False, inputs: int = 0, most: float = 10**12
) -> int:
    """Count the calls of functions, compiled ones too, that it takes to cut blocks of these times into windows."""
    windows, calls = TumblingWindows(length, settle=100, gaps=12 if ticks else 0), 0
    given = [batch(times[place : place + size]) for place in range(0, len(times), size)]

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        assert calls < most

    held = 0
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for number in range(inputs):
            windows.expect(NOON + number * SECOND, number)
        for block in given:
            held += sum(len(event.batch) for event in windows.push((block,)) if isinstance(event, Piece))
            if ticks:
                held += sum(len(e.batch) for e in windows.tick(int(block.time.max())) if isinstance(e, Piece))
            windows.earliest()
        held += sum(len(event.batch) for event in windows.finish() if isinstance(event, Piece))
    finally:
        sys.setprofile(before)
    assert held + windows.late + windows.stray == sum(map(len, given))
    return calls


def scattered(years: int, count: int) -> list[int]:
    rng = random.Random(count)
    return [rng.randrange(years * 365 * 86400 * SECOND) for _ in range(count)]


def every(seconds: int, count: int) -> list[int]:
    return [NOON + number * seconds * SECOND for number in range(count)]


SHAPES: dict[str, tuple[Callable[[int], list[int]], int]] = {
    "sparse": (lambda count: every(43200, count), LENGTH),
    "backwards": (lambda count: every(43200, count)[::-1], LENGTH),
    "random seconds": (lambda count: scattered(100, count), SECOND),
    "random in a year": (lambda count: scattered(1, count), SECOND),
    "many strays": (lambda count: [*scattered(280, 60), *every(1, count)], SECOND),
}


@pytest.mark.parametrize("size", [7, 500])
@pytest.mark.parametrize("ticks", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_work_grows_with_packets_and_windows_only(name: str, ticks: bool, size: int) -> None:
    shape, length = SHAPES[name]
    small = work(shape(200), size, length, ticks=ticks)
    work(shape(800), size, length, ticks=ticks, most=6 * small)  # four times as much, and a logarithm


def test_work_does_not_grow_with_the_number_of_inputs() -> None:
    one = work(every(43200, 400), 50)
    work(every(43200, 400), 50, inputs=1000, most=one + 20 * 1000)


def test_a_hundred_years_of_windows_of_a_second() -> None:
    windows = TumblingWindows(SECOND)
    times = scattered(100, 20_000)
    closed = [e.window for e in (*windows.push((batch(times),)), *windows.finish()) if isinstance(e, Closed)]
    assert [window.start // SECOND for window in closed] == sorted({time // SECOND for time in times})
    assert (windows.late, windows.stray) == (0, 0)


MOST = (1 << 63) - 1  # the latest time


@pytest.mark.parametrize("length", [1, 7, LENGTH])
@pytest.mark.parametrize(
    "times",
    [
        [],
        [3, 3, 3],
        [0, 6, 7, 7, 13, 14, 700 * LENGTH],
        [-8, -7, -1, 0, 5],
        [NOON - 1, NOON, NOON + LENGTH - 1, NOON + LENGTH],
        [5, 21, 7, 6, 21, 0, -1],
        [0, MOST - 1, MOST],
        [MOST, 0, MOST],
    ],
)
def test_packets_are_split_by_window(times, length):
    found = [
        (index, piece.time.tolist(), piece.src.tolist(), piece.span)
        for index, piece in split_by_window(batch(times), length)
    ]
    packets = list(enumerate(times))
    expected = []
    for index in sorted({time // length for time in times}):
        inside = [(number, time) for number, time in packets if time // length == index]
        kept = [time for _, time in inside]
        expected.append((index, kept, [number for number, _ in inside], (min(kept), max(kept))))
    assert found == expected
