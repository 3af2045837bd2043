"""The limit of a sample: never below the largest hash of the sample, and soon close to it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts.sketch.evidence.sample import ALL, LIMIT, Reach, admit, new_reach

BITS = st.integers(0, 64)


def take(hashes: list[int], reach: Reach, counts: list[int] | None = None) -> list[int]:
    """Admit hashes; return those that are left."""
    rows = np.array([[hashed, number] for number, hashed in enumerate(hashes)], np.uint64).reshape(-1, 2)
    flags = np.array([1] * len(hashes) if counts is None else counts, np.uint8)
    left = admit(rows, 0, len(rows), flags, reach)
    assert [hashes[int(number)] for number in rows[:left, 1]] == rows[:left, 0].tolist()  # rows stay whole
    return [int(hashed) for hashed in rows[:left, 0]]


def limit_of(reach: Reach) -> int:
    return int(reach.state[LIMIT])


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 1000])
def test_it_follows_the_largest_hash_of_the_sample(size: int) -> None:
    draw, reach, seen = random.Random(size), new_reach(size), set()
    for _ in range(200):
        fresh = [draw.getrandbits(64) for _ in range(size // 4)]
        seen.update(fresh)
        take([hashed for hashed in (*fresh, *fresh) if hashed <= limit_of(reach)], reach)
        if len(seen) < size:
            assert limit_of(reach) == ALL
        else:
            largest = sorted(seen)[size - 1]
            assert largest <= limit_of(reach) <= 1.02 * largest


@given(st.lists(st.tuples(BITS, st.integers(0, ALL)), max_size=300), st.integers(1, 40))
def test_no_hash_of_the_sample_is_above_it(drawn: list[tuple[int, int]], size: int) -> None:
    hashes = [value >> shift for shift, value in drawn]  # also small ones, which fill few buckets
    reach = new_reach(size)
    for start in range(0, len(hashes), 50):
        before = limit_of(reach)
        left = take(hashes[start : start + 50], reach)
        smallest = sorted(set(hashes[: start + 50]))[:size]
        assert smallest[-1] <= limit_of(reach) <= before
        assert set(hashes[start : start + 50]) & set(smallest) <= set(left)


def test_repeats_and_what_does_not_count_do_not_lower_it() -> None:
    reach = new_reach(64)
    hashes = [number << 50 for number in range(1, 64)]
    assert take(hashes * 40, reach) == hashes * 40
    assert limit_of(reach) == ALL
    others = [number << 40 for number in range(1, 64)]
    assert take(others, reach, [0] * len(others)) == []
    assert limit_of(reach) == ALL
    assert take([1, 1 << 62], reach) == [1]  # The sample is full with the first of both.
    assert limit_of(reach) < ALL
