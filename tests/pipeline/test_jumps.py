"""Clocks that are set while traffic runs: what jumps, what is stray or late, and that every packet is somewhere."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts.core.pairs import PacketBatch
from superhosts.core.units import SECOND
from superhosts.pipeline.windows import Closed, Event, Jump, Limits, Piece, PutOff, TumblingWindows

LENGTH = 300 * SECOND
NOON = 1_700_000_100 * SECOND
HOUR = 3600 * SECOND
DAY = 24 * HOUR
YEAR = 365 * DAY
assert NOON % LENGTH == 0


class Live:
    """Live traffic in blocks, and what comes out of it; windows may come again."""

    def __init__(
        self, *, length: int = LENGTH, settle: int = 100, wall: int = NOON, **options: bool | int | Limits
    ) -> None:
        self.wall = wall
        self.windows = TumblingWindows(length, settle=settle, wall=lambda: self.wall, **options)  # type: ignore[arg-type]
        self.inside: dict[int, list[int]] = {}  # by start of the window
        self.closed: list[int] = []
        self.jumps: list[int] = []
        self.times: list[int] = []
        self.open: set[int] = set()

    def push(self, times: Iterable[int], size: int = 10**9) -> Live:
        rows = list(times)
        for place in range(0, len(rows), size):
            part = rows[place : place + size]
            names = np.arange(len(self.times), len(self.times) + len(part), dtype=np.uint32)
            self.times += part
            four, six = names % 7 != 0, names % 7 == 0
            time = np.array(part, np.int64)
            wide = np.stack([names, names], axis=1).astype(np.uint64)
            block = (
                PacketBatch(4, names[four], names[four], time[four]),
                PacketBatch(6, wide[six], wide[six], time[six]),
            )
            self.take(self.windows.push(block))
            self.check()
        return self

    def tick(self, time: int) -> Live:
        self.take(self.windows.tick(time))
        return self

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Jump):
                self.jumps.append(event.by)
            elif isinstance(event, Closed):
                self.closed.append(event.window.start)
                self.open.discard(event.window.start)
            elif isinstance(event, Piece):
                assert (event.batch.time >= event.window.start).all()
                assert (event.batch.time < event.window.end).all()
                self.open.add(event.window.start)
                names = event.batch.src if event.batch.family == 4 else event.batch.src[:, 0]
                self.inside.setdefault(event.window.start, []).extend(names.tolist())
            else:
                assert isinstance(event, PutOff)

    def check(self) -> None:
        """Every packet is in one place."""
        windows = self.windows
        lost = windows.late + windows.stray + windows.repeated
        assert sum(map(len, self.inside.values())) + windows.waiting + lost == len(self.times)

    def finish(self) -> Live:
        self.take(self.windows.finish())
        self.check()
        assert self.windows.waiting == 0
        assert not self.open, "every window that got packets was closed after them"
        for start, names in self.inside.items():
            assert len(set(names)) == len(names)
            assert all(
                self.times[name] // (self.windows.length or 1) * (self.windows.length or 1) == start for name in names
            )
        return self

    @property
    def lost(self) -> tuple[int, int]:
        return self.windows.late, self.windows.stray


def steady(start: int, seconds: int, rate: float = 2) -> list[int]:
    """Traffic of so many packets a second."""
    return [start + round(number * SECOND / rate) for number in range(round(seconds * rate))]


def whole(run: Live) -> None:
    """Every packet is in its window."""
    assert run.lost == (0, 0)
    wanted: dict[int, list[int]] = {}
    for name, time in enumerate(run.times):
        wanted.setdefault(time // LENGTH * LENGTH, []).append(name)
    assert {start: sorted(names) for start, names in run.inside.items()} == wanted


@pytest.mark.parametrize("ahead", [HOUR, 90 * DAY, 3 * YEAR])
@pytest.mark.parametrize("size", [1, 50, 1777, 10**9])
@pytest.mark.parametrize("ticks", [False, True])
def test_a_clock_that_is_ahead_for_some_windows_costs_no_packet(ahead: int, size: int, ticks: bool) -> None:
    run = Live(gaps=12)
    for start, stamped in ((NOON, 0), (NOON + 1000 * SECOND, ahead), (NOON + 2000 * SECOND, 0)):
        run.wall = start
        run.push(steady(start + stamped, 1000), size)
        if ticks:
            run.tick(start + stamped + 900 * SECOND)
    whole(run.push(steady(NOON + 3000 * SECOND, 500), size).finish())
    if size < 10**9:  # in three blocks it all is one piece of traffic
        assert [round(by / HOUR) for by in run.jumps] == [round(ahead / HOUR), -round(ahead / HOUR)]


def test_a_clock_that_is_set_back_opens_windows_again_and_forgets_that_it_was_ahead() -> None:
    """The machine's own clock is the one that is wrong: its times are never ahead of it."""
    run = Live(gaps=12, wall=NOON + HOUR)
    run.push(steady(NOON + HOUR, 700), 100)
    before = run.windows.late
    run.wall = NOON
    run.push(steady(NOON, 4500), 100)
    assert before == 0
    whole(run.finish())
    assert len(run.jumps) == 1
    again = [start for start in set(run.closed) if run.closed.count(start) > 1]
    assert NOON + HOUR in again


@pytest.mark.parametrize("size", [1, 50, 10**9])
@pytest.mark.parametrize("share", [20, 10, 5, 3])
def test_times_ahead_of_all_clocks_are_strays_and_close_nothing(size: int, share: int) -> None:
    """Up to a third of the packets, all of them at one time: much more than settles a window."""
    times = steady(NOON, 1000)
    stamped = [time + HOUR if number % share == share - 1 else time for number, time in enumerate(times)]
    run = Live()
    run.windows.expect(NOON)
    run.push(stamped, size)
    assert run.closed == [NOON, NOON + LENGTH, NOON + 2 * LENGTH]
    run.finish()
    assert run.jumps == []
    assert run.lost == (0, len(times[share - 1 :: share]))
    assert sorted(run.inside) == [NOON + number * LENGTH for number in range(4)]


def test_a_first_packet_with_a_stray_time_does_not_make_others_believed() -> None:
    times = steady(NOON, 1000)
    run = Live().push([NOON + HOUR]).push(times[:300], 1)
    run.push([time + HOUR if number % 3 == 0 else time for number, time in enumerate(times[300:])], 1)
    assert run.closed == [NOON, NOON + LENGTH, NOON + 2 * LENGTH]
    assert run.windows.stray == len(times[300::3])


def test_a_few_late_packets_are_late() -> None:
    run = Live().push(steady(NOON, 900), 100)
    for number in range(5):
        run.push(steady(NOON, 1, rate=3)).push(steady(NOON + (900 + 10 * number) * SECOND, 10))
    assert run.windows.late == 15
    assert run.finish().jumps == []
    assert run.lost == (15, 0)


def test_a_year_behind_is_stray() -> None:
    run = Live().push(steady(NOON, 900), 100).push([NOON - 2 * YEAR]).push(steady(NOON + 900 * SECOND, 300))
    assert run.lost == (0, 1)
    assert run.finish().lost == (0, 1)


@pytest.mark.parametrize("wall", [NOON + 2 * YEAR, NOON - HOUR, NOON - 40 * YEAR])
def test_only_differences_of_times_count(wall: int) -> None:
    """Captures of old, and a machine whose clock is wrong by any amount, be it as if it were 1983."""
    run = Live(wall=wall).push(steady(NOON, 3000), 100)
    assert run.jumps == []
    whole(run.finish())


def test_a_pause_is_no_jump_for_a_clock_that_is_right() -> None:
    run = Live(wall=NOON + 2 * DAY).push(steady(NOON, 600), 100).push(steady(NOON + DAY, 10)).tick(NOON + DAY + HOUR)
    assert run.lost == (0, 0)
    whole(run.finish())
    assert run.jumps == []


def test_a_pause_costs_nothing_where_the_clock_is_ahead_all_the_time() -> None:
    run = Live(wall=NOON - HOUR).push(steady(NOON, 600), 100)
    for number in range(40):
        run.push([NOON + HOUR + number * SECOND]).tick(NOON + (600 + number * 30) * SECOND)
    assert [round(by / HOUR, 1) for by in run.jumps] == [0.9]
    whole(run.finish())


def test_slow_traffic_needs_a_windows_length_to_be_followed() -> None:
    run = (
        Live(gaps=12, wall=NOON + 2 * HOUR).push(steady(NOON + HOUR, 900, rate=1), 10).tick(NOON + HOUR + 910 * SECOND)
    )
    closed = list(run.closed)
    for number in range(12):
        run.push([NOON + number * 20 * SECOND]).tick(NOON + HOUR + (920 + 20 * number) * SECOND)
    assert (run.jumps, run.windows.late) == ([], 12)
    run.tick(NOON + HOUR + 1300 * SECOND)
    assert len(run.jumps) == 1
    assert run.windows.late == 0
    run.tick(NOON + LENGTH)
    assert run.closed[len(closed) :][-1] == NOON
    whole(run.finish())


def test_the_earliest_window_is_the_one_that_the_traffic_has_gone_back_to() -> None:
    run = Live(wall=NOON + 2 * HOUR).push(steady(NOON + HOUR, 900), 100).push(steady(NOON, 5), 1)
    assert run.jumps == []  # not yet
    earliest = run.windows.earliest()
    assert earliest is not None
    assert earliest.start == NOON
    run.push(steady(NOON + HOUR + 900 * SECOND, 5))
    later = run.windows.earliest()
    assert later is not None
    assert later.start > NOON


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("limits", [Limits(off_time=150), Limits(pieces=150)], ids=["packets", "pieces"])
def test_what_waits_off_its_time_is_bounded(limits: Limits, direction: int) -> None:
    """Packets in time between the others put the decision off; a jump then brings back what still waits."""
    times = steady(NOON + 900 * SECOND, 20, rate=10)
    off = [time + direction * (DAY + number * HOUR) for number, time in enumerate(times)]
    last = steady(max(off), 95, rate=1)
    for bounds, dropped in ((Limits(), 0), (limits, 150)):
        run = Live(limits=bounds).push(steady(NOON, 900), 100)
        for pair in zip(times, off, strict=True):
            run.push(pair)
        assert run.jumps == []
        run.push(last, 1).finish()
        assert run.jumps
        assert run.lost == ((0, dropped) if direction > 0 else (dropped, 0))


def test_an_earlier_run_has_done_what_comes_before_its_frontier_and_nothing_that_comes_after() -> None:
    run = Live(resume_from=NOON + HOUR, wall=NOON + 2 * HOUR)
    run.push(steady(NOON + HOUR - 600 * SECOND, 1200), 100)
    assert run.windows.repeated == 600 * 2
    run.push(steady(NOON, 600), 100).finish()  # and now the clock is set back
    assert len(run.jumps) == 1
    assert run.windows.repeated == 600 * 2
    assert run.lost == (0, 0)


# Any times


TIMES = st.lists(
    st.lists(st.one_of(st.integers(-20, 400), st.integers(-(10**5), 10**5), st.integers(-(2**62), 2**62)), max_size=12),
    max_size=25,
)


@given(TIMES, st.integers(1, 60), st.integers(1, 12))
def test_windows_that_open_again_hold_what_grouping_by_time_gives(
    blocks: list[list[int]], length: int, settle: int
) -> None:
    """Where no time is a stray: all within a year, or all believed."""
    run = Live(length=length, settle=settle)
    run.windows = TumblingWindows(length, settle=settle, reopens=True)
    for block in blocks:
        run.push([time % 10**6 for time in block])
    run.finish()
    wanted: dict[int, list[int]] = {}
    for name, time in enumerate(run.times):
        wanted.setdefault(time // length * length, []).append(name)
    assert {start: sorted(names) for start, names in run.inside.items()} == wanted
    assert run.lost == (0, 0)


@pytest.mark.slow
def test_random_jumps_in_steady_traffic_cost_nothing() -> None:
    """Set again and again, by anything from minutes to years, for at least as long as it takes to be believed."""
    for seed in range(10):
        chance = random.Random(seed)
        run, now, off = Live(gaps=12), NOON, 0
        for _ in range(12):
            off = chance.choice([0, 0, HOUR, -HOUR, 7 * 60 * SECOND, DAY, -2 * YEAR, 5 * YEAR])
            run.wall = now + chance.choice([0, off])
            seconds = chance.randrange(60, 900)
            run.push(steady(now + off, seconds), chance.choice([1, 33, 500]))
            now += seconds * SECOND
        whole(run.finish())
