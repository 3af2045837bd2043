"""An input that is shorter than a window is one window; a longer one has the windows that it always has."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from superhosts.core.pairs import PacketBatch, Window
from superhosts.core.units import SECOND
from superhosts.pipeline.windows import Closed, Piece, TumblingWindows

LENGTH = 300 * SECOND
NOON = 1_700_000_100 * SECOND  # the start of a window of five minutes
YEARS = 10 * 365 * 86400 * SECOND
Result = list[tuple[Window, list[int]]]


def split(blocks: Sequence[Sequence[int]], *, joins: bool, settle: int = 5, whole: bool = True) -> Result:
    """Return the windows of packets at these times, in the order in which they close, each with its times."""
    windows = TumblingWindows(LENGTH, settle=settle, joins=joins)
    if blocks:
        windows.expect(int(np.median(blocks[0])))
    inside: dict[int, list[int]] = {}
    closed: Result = []

    def take(event: object) -> None:
        if isinstance(event, Piece):
            inside.setdefault(event.window.start, []).extend(event.batch.time.tolist())
        elif isinstance(event, Closed):
            starts = event.starts or (event.window.start,)
            closed.append((event.window, sorted(time for start in starts for time in inside.pop(start))))

    for block in blocks:
        times = np.array(block, np.int64)
        words = np.arange(len(times), dtype=np.uint32)
        for event in windows.push((PacketBatch(4, words, words, times),)):
            take(event)
    for event in [] if whole else windows.split():
        take(event)
    for event in windows.finish():
        take(event)
    assert not inside
    return closed


def in_blocks(times: Sequence[int], size: int) -> list[list[int]]:
    return [list(times[place : place + size]) for place in range(0, len(times), size)]


def test_windows_of_random_inputs() -> None:
    """Whether an input is short depends on its first and last time alone, and nothing is lost either way."""
    chance = random.Random(7)
    joined = 0
    for _ in range(500):
        start = NOON + chance.randrange(LENGTH)
        spread = chance.choice([LENGTH // 10, LENGTH // 2, LENGTH - 1, LENGTH, 2 * LENGTH, 5 * LENGTH])
        count = chance.choice([1, 2, 8, 40])
        times = sorted(start + chance.randrange(spread + 1) for _ in range(count))
        blocks = in_blocks(times, chance.choice([1, 3, 40]))
        found, apart = split(blocks, joins=True), split(blocks, joins=False)
        if times[-1] - times[0] < LENGTH and len(apart) > 1:
            joined += 1
            assert found == [(Window(times[0], times[-1]), times)]
        else:
            assert found == apart
    assert joined > 25


@pytest.mark.parametrize("whole", [True, False])
def test_an_input_that_is_interrupted_has_its_windows_apart(whole: bool) -> None:
    times = [NOON + LENGTH + number * SECOND for number in range(-20, 20)]
    assert len(split(in_blocks(times, 4), joins=True, whole=whole)) == (1 if whole else 2)


def test_packets_of_the_first_window_that_come_late_belong_to_the_one_window() -> None:
    times = [NOON + LENGTH + number * SECOND for number in range(-20, 20)]
    late = [*times, *times[:10]]
    assert split(in_blocks(late, 4), joins=True) == [(Window(times[0], times[-1]), sorted(late))]


def test_stray_times_do_not_make_an_input_long() -> None:
    times = [NOON + LENGTH + number * SECOND // 10 for number in range(-200, 200)]
    with_stray = [*times[:300], NOON + YEARS, *times[300:]]
    assert split(in_blocks(with_stray, 50), joins=True) == [(Window(times[0], times[-1]), times)]


def test_an_older_window_that_comes_last_makes_it_long() -> None:
    times = [NOON + LENGTH + number * SECOND for number in range(-20, 20)]
    older = [NOON - 10 * SECOND + number for number in range(3)]
    found = split(in_blocks([*times, *older], 4), joins=True)
    assert [window.start for window, _ in found] == [NOON - LENGTH, NOON, NOON + LENGTH]


def test_a_long_input_closes_its_first_window_as_soon_as_it_is_long() -> None:
    windows = TumblingWindows(LENGTH, settle=5, joins=True)
    words = np.arange(40, dtype=np.uint32)
    times = NOON + LENGTH - 20 * SECOND + np.arange(40) * SECOND

    def closed(times: np.ndarray) -> list[int]:
        batch = PacketBatch(4, words[: len(times)], words[: len(times)], times)
        return [event.window.start for event in windows.push((batch,)) if isinstance(event, Closed)]

    assert closed(times) == []
    assert windows.earliest() == Window(NOON, NOON + LENGTH)
    assert closed(times[:1] + LENGTH) == [NOON]
    assert windows.earliest() == Window(NOON + LENGTH, NOON + 2 * LENGTH)
