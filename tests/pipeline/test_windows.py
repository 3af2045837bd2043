"""Tumbling windows: where packets go, when windows close, what is late, stray or off its time, and short inputs."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.windows import LENGTH, NOON, YEAR, Run, batch
from superhosts.core.pairs import Window
from superhosts.core.units import SECOND
from superhosts.pipeline.windows import Limits, Piece, TumblingWindows, split_by_window

HOUR = 3600 * SECOND
DAY = 24 * HOUR
YEARS = 10 * YEAR
assert NOON % LENGTH == 0


def grouped(times: list[int], length: int = LENGTH) -> dict[int, list[int]]:
    """Return the numbers of packets by the start of their window."""
    found: dict[int, list[int]] = {}
    for number, time in enumerate(times):
        found.setdefault(time // length * length, []).append(number)
    return found


def spread(count: int, window: int = 0) -> list[int]:
    """Times in one window, in order."""
    return [NOON + window * LENGTH + i * (LENGTH // (count + 1)) for i in range(count)]


# Where windows lie


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


# Strays


def beside(run: Run, stray: int) -> None:
    """What holds wherever in the traffic a stray stands: three windows, and the stray counted."""
    run.finish()
    assert run.starts == [0, 1, 2]
    assert run.sizes == [2000, 2000, 2000]
    assert run.lost == (0, stray)


@pytest.mark.parametrize("away", [-YEARS, YEARS, -NOON])
@pytest.mark.parametrize("where", [0, 1, 999, 1999, 2000, 3500, 5999, 6000])
@pytest.mark.parametrize("size", [1, 500, 6001])
def test_a_stray_is_counted_and_closes_nothing(away: int, where: int, size: int) -> None:
    times = spread(2000) + spread(2000, window=1) + spread(2000, window=2)
    times.insert(where, NOON + away)
    expected = NOON if where < 1000 else None  # the first packets show where the traffic is
    beside(Run(expect=expected).push(*(times[i : i + size] for i in range(0, len(times), size))), stray=1)


@pytest.mark.parametrize("wall", [None, NOON], ids=["captures", "live"])
def test_the_window_before_is_late_and_no_stray_however_long_windows_are(wall: int | None) -> None:
    length = 366 * DAY
    start = NOON // length * length
    run = Run(length, settle=3, wall=wall).push([start - 1], [start] * 10, [start - 1], [start] * 10)
    assert run.lost == (1, 0)


def test_many_strays_of_many_times() -> None:
    strays = [NOON + (i + 2) * YEARS for i in range(20)] + [NOON - (i + 2) * YEARS // 10 for i in range(20)]
    beside(Run(expect=NOON).push(spread(2000), strays[::2], spread(2000, window=1), strays[1::2], spread(2000, 2)), 40)


@pytest.mark.parametrize(("count", "strays"), [(1, True), (9, True), (100, False)])
def test_strays_for_windows_that_are_closed_are_not_read_again(count: int, strays: bool) -> None:
    old = NOON - YEARS
    run = Run(expect=NOON, revises=True).push(spread(2000), spread(2000, window=1), [old] * count, [NOON])
    assert run.lost == (count + 1, 0)
    run.finish()
    real = {NOON // LENGTH: 1} if strays else {old // LENGTH: count, NOON // LENGTH: 1}
    assert run.windows.put_off == real
    assert run.lost == (sum(real.values()), count if strays else 0)


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
    assert run.lost == (0, 0)


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


@given(st.lists(st.lists(st.integers(-50, 400), max_size=12), max_size=25), st.integers(1, 60), st.integers(1, 12))
def test_any_order_of_times_agrees_with_plain_python(blocks: list[list[int]], length: int, settle: int) -> None:
    run, plain = Run(length, settle=settle), Plain(length, settle)
    for block in blocks:
        plain.push(list(enumerate(block, len(run.times))))
        run.push(block)
        assert [window.start // length for window in run.closed] == plain.closed
    run.finish()
    plain.finish()
    assert [window.start // length for window in run.closed] == plain.closed
    assert run.by_start() == {window * length: sorted(names) for window, names in plain.inside.items()}
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
    assert run.sizes == [10, 25]


def test_the_clock_closes_a_window_that_had_settled_and_those_held_behind_it() -> None:
    run = Run().push(spread(2000, window=2), spread(30, window=1), spread(40, window=3), spread(50, window=5))
    assert run.tick(4 * 300).starts == [1, 2, 3]
    assert run.push(spread(1200, window=5), spread(1000, window=6)).starts == [1, 2, 3, 5]
    run.finish()
    assert run.sizes == [30, 2000, 40, 1250, 1000]


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
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=60), st.integers(1, 50), st.integers(1, 12)
)
def test_any_traffic_and_clock_keep_the_order_and_lose_nothing(steps, length, settle) -> None:
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
    whole = Run(length, settle=5).push(times, size=1).finish()
    rest = Run(length, settle=5, resume_from=place).push(times, size=1).finish()
    wanted = [window for window in whole.closed if window.end > place]
    assert rest.closed == wanted
    assert all(rest.inside[window] == whole.inside[window] for window in wanted)
    assert rest.windows.repeated == sum(len(whole.inside[w]) for w in whole.closed if w.end <= place)
    assert rest.lost == (0, 0)


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


# Inputs that are shorter than a window


AROUND = [NOON + LENGTH + number * SECOND for number in range(-20, 20)]


def split(times: list[int], size: int, *, joins: bool = True, whole: bool = True) -> list[tuple[Window, list[int]]]:
    """Return the windows of packets at these times, in the order in which they close, each with its times."""
    run = Run(settle=5, joins=joins, expect=int(np.median(times[:size]))).push(times, size=size)
    if not whole:
        run.take(run.windows.split())
    run.finish()
    return [(window, sorted(run.times[number] for number in run.inside[window])) for window in run.closed]


def test_windows_of_random_inputs() -> None:
    """Whether an input is short depends on its first and last time alone, and nothing is lost either way."""
    chance = random.Random(7)
    joined = 0
    for _ in range(200):
        start = NOON + chance.randrange(LENGTH)
        spread = chance.choice([LENGTH // 10, LENGTH // 2, LENGTH - 1, LENGTH, 2 * LENGTH, 5 * LENGTH])
        count = chance.choice([1, 2, 8, 40])
        times = sorted(start + chance.randrange(spread + 1) for _ in range(count))
        size = chance.choice([1, 3, 40])
        found, apart = split(times, size), split(times, size, joins=False)
        if times[-1] - times[0] < LENGTH and len(apart) > 1:
            joined += 1
            assert found == [(Window(times[0], times[-1]), times)]
        else:
            assert found == apart
    assert joined > 10


@pytest.mark.parametrize("whole", [True, False])
def test_an_input_that_is_interrupted_has_its_windows_apart(whole: bool) -> None:
    assert len(split(AROUND, 4, whole=whole)) == (1 if whole else 2)


def test_packets_of_the_first_window_that_come_late_belong_to_the_one_window() -> None:
    late = [*AROUND, *AROUND[:10]]
    assert split(late, 4) == [(Window(AROUND[0], AROUND[-1]), sorted(late))]


def test_stray_times_do_not_make_an_input_long() -> None:
    times = [NOON + LENGTH + number * SECOND // 10 for number in range(-200, 200)]
    with_stray = [*times[:300], NOON + YEARS, *times[300:]]
    assert split(with_stray, 50) == [(Window(times[0], times[-1]), times)]


def test_an_older_window_that_comes_last_makes_it_long() -> None:
    older = [NOON - 10 * SECOND + number for number in range(3)]
    found = split([*AROUND, *older], 4)
    assert [window.start for window, _ in found] == [NOON - LENGTH, NOON, NOON + LENGTH]


def test_a_long_input_closes_its_first_window_as_soon_as_it_is_long() -> None:
    run = Run(settle=5, joins=True).push(AROUND)
    assert (run.starts, run.windows.earliest()) == ([], Window(NOON, NOON + LENGTH))
    run.push([AROUND[0] + LENGTH])
    assert (run.starts, run.windows.earliest()) == ([0], Window(NOON + LENGTH, NOON + 2 * LENGTH))


# Clocks that are set while traffic runs


def live(*, settle: int = 100, wall: int = NOON, **options: Any) -> Run:
    """Live traffic, in which windows may come again."""
    return Run(settle=settle, wall=wall, **options)


def steady(start: int, seconds: int, rate: float = 2) -> list[int]:
    """Traffic of so many packets a second."""
    return [start + round(number * SECOND / rate) for number in range(round(seconds * rate))]


def whole(run: Run) -> None:
    assert run.finish().lost == (0, 0)
    assert run.by_start() == grouped(run.times)


@pytest.mark.parametrize("ahead", [HOUR, 90 * DAY, 3 * YEAR])
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 50, 1777, 10**9])
@pytest.mark.parametrize("ticks", [False, True])
def test_a_clock_that_is_ahead_for_some_windows_costs_no_packet(ahead: int, size: int, ticks: bool) -> None:
    run = live(gaps=12)
    for start, stamped in ((NOON, 0), (NOON + 1000 * SECOND, ahead), (NOON + 2000 * SECOND, 0)):
        run.wall = start
        run.push(steady(start + stamped, 1000), size=size)
        if ticks:
            run.tick((start - NOON + stamped) / SECOND + 900)
    whole(run.push(steady(NOON + 3000 * SECOND, 500), size=size))
    if size < 10**9:  # in three blocks it all is one piece of traffic
        assert [round(by / HOUR) for by in run.jumps] == [round(ahead / HOUR), -round(ahead / HOUR)]


def test_a_clock_that_is_set_back_opens_windows_again_and_forgets_that_it_was_ahead() -> None:
    """The machine's own clock is the one that is wrong: its times are never ahead of it."""
    run = live(gaps=12, wall=NOON + HOUR)
    run.push(steady(NOON + HOUR, 700), size=100)
    assert run.windows.late == 0
    run.wall = NOON
    whole(run.push(steady(NOON, 4500), size=100))
    assert len(run.jumps) == 1
    assert run.starts.count(HOUR // LENGTH) > 1


@pytest.mark.parametrize("size", [1, 50, 10**9])
@pytest.mark.parametrize("share", [20, 10, 5, 3])
def test_times_ahead_of_all_clocks_are_strays_and_close_nothing(size: int, share: int) -> None:
    """Up to a third of the packets, all of them at one time: much more than settles a window."""
    times = steady(NOON, 1000)
    stamped = [time + HOUR if number % share == share - 1 else time for number, time in enumerate(times)]
    run = live()
    run.windows.expect(NOON)
    run.push(stamped, size=size)
    assert run.starts == [0, 1, 2]
    run.finish()
    assert run.jumps == []
    assert run.lost == (0, len(times[share - 1 :: share]))
    assert sorted(run.by_start()) == [NOON + number * LENGTH for number in range(4)]


def test_a_first_packet_with_a_stray_time_does_not_make_others_believed() -> None:
    times = steady(NOON, 1000)
    run = live().push([NOON + HOUR]).push(times[:300], size=1)
    run.push([time + HOUR if number % 3 == 0 else time for number, time in enumerate(times[300:])], size=1)
    assert run.starts == [0, 1, 2]
    assert run.windows.stray == len(times[300::3])


def test_a_few_late_packets_are_late() -> None:
    run = live().push(steady(NOON, 900), size=100)
    for number in range(5):
        run.push(steady(NOON, 1, rate=3)).push(steady(NOON + (900 + 10 * number) * SECOND, 10))
    assert run.windows.late == 15
    assert run.finish().jumps == []
    assert run.lost == (15, 0)


def test_a_year_behind_is_stray() -> None:
    run = live().push(steady(NOON, 900), size=100).push([NOON - 2 * YEAR]).push(steady(NOON + 900 * SECOND, 300))
    assert run.lost == (0, 1)
    assert run.finish().lost == (0, 1)


@pytest.mark.parametrize("wall", [NOON + 2 * YEAR, NOON - HOUR, NOON - 40 * YEAR])
def test_only_differences_of_times_count(wall: int) -> None:
    """Captures of old, and a machine whose clock is wrong by any amount, be it as if it were 1983."""
    run = live(wall=wall).push(steady(NOON, 3000), size=100)
    assert run.jumps == []
    whole(run)


def test_a_pause_is_no_jump_for_a_clock_that_is_right() -> None:
    run = live(wall=NOON + 2 * DAY).push(steady(NOON, 600), size=100).push(steady(NOON + DAY, 10)).tick(25 * 3600)
    assert run.lost == (0, 0)
    whole(run)
    assert run.jumps == []


def test_a_pause_costs_nothing_where_the_clock_is_ahead_all_the_time() -> None:
    run = live(wall=NOON - HOUR).push(steady(NOON, 600), size=100)
    for number in range(40):
        run.push([NOON + HOUR + number * SECOND]).tick(600 + number * 30)
    assert [round(by / HOUR, 1) for by in run.jumps] == [0.9]
    whole(run)


def test_slow_traffic_needs_a_windows_length_to_be_followed() -> None:
    run = live(gaps=12, wall=NOON + 2 * HOUR).push(steady(NOON + HOUR, 900, rate=1), size=10).tick(3600 + 910)
    for number in range(12):
        run.push([NOON + number * 20 * SECOND]).tick(3600 + 920 + 20 * number)
    assert (run.jumps, run.windows.late) == ([], 12)
    run.tick(3600 + 1300)
    assert len(run.jumps) == 1
    assert run.windows.late == 0
    run.tick(300)
    assert run.starts[-1] == 0
    whole(run)


def test_the_earliest_window_is_the_one_that_the_traffic_has_gone_back_to() -> None:
    run = live(wall=NOON + 2 * HOUR).push(steady(NOON + HOUR, 900), size=100).push(steady(NOON, 5), size=1)
    assert run.jumps == []  # not yet
    assert run.windows.earliest() == Window(NOON, NOON + LENGTH)
    run.push(steady(NOON + HOUR + 900 * SECOND, 5))
    assert run.windows.earliest() > Window(NOON, NOON + LENGTH)


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("limits", [Limits(off_time=150), Limits(pieces=150)], ids=["packets", "pieces"])
def test_what_waits_off_its_time_is_bounded(limits: Limits, direction: int) -> None:
    """Packets in time between the others put the decision off; a jump then brings back what still waits."""
    times = steady(NOON + 900 * SECOND, 20, rate=10)
    off = [time + direction * (DAY + number * HOUR) for number, time in enumerate(times)]
    last = steady(max(off), 95, rate=1)
    for bounds, dropped in ((Limits(), 0), (limits, 150)):
        run = live(limits=bounds).push(steady(NOON, 900), size=100)
        for pair in zip(times, off, strict=True):
            run.push(pair)
        assert run.jumps == []
        run.push(last, size=1).finish()
        assert run.jumps
        assert run.lost == ((0, dropped) if direction > 0 else (dropped, 0))


def test_an_earlier_run_has_done_what_comes_before_its_frontier_and_nothing_that_comes_after() -> None:
    run = live(resume_from=NOON + HOUR, wall=NOON + 2 * HOUR)
    run.push(steady(NOON + HOUR - 600 * SECOND, 1200), size=100)
    assert run.windows.repeated == 600 * 2
    run.push(steady(NOON, 600), size=100).finish()  # and now the clock is set back
    assert len(run.jumps) == 1
    assert run.windows.repeated == 600 * 2
    assert run.lost == (0, 0)


# Any times


TIMES = st.lists(
    st.lists(st.one_of(st.integers(-20, 400), st.integers(-(10**5), 10**5), st.integers(-(2**62), 2**62)), max_size=12),
    max_size=25,
)


@given(TIMES, st.integers(1, 60), st.integers(1, 12))
def test_windows_that_open_again_hold_what_grouping_by_time_gives(blocks, length, settle) -> None:
    """Where no time is a stray: all within a year, or all believed."""
    run = Run(length, settle=settle, reopens=True).push(*([time % 10**6 for time in block] for block in blocks))
    assert run.finish().by_start() == grouped(run.times, length)
    assert run.lost == (0, 0)
