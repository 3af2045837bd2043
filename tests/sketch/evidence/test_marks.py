"""How many distinct things were seen, in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from superhosts.sketch.evidence.observations import MOST, distinct, mark_of


def marks_of(count: int, draw: np.random.Generator) -> int:
    word = 0
    for hashed in draw.integers(0, 2**64, count, dtype=np.uint64):
        word |= int(mark_of(hashed))
    return word


def test_nothing_and_one_are_exact() -> None:
    draw = np.random.default_rng(1)
    words = np.array([0, *(marks_of(1, draw) for _ in range(50))], np.uint64)
    assert distinct(words).tolist() == [0.0, *[1.0] * 50]


@pytest.mark.parametrize("count", [2, 3, 5, 10, 30, 100, 300, 1000])
def test_the_mean_over_pairs_is_about_right(count: int) -> None:
    draw = np.random.default_rng(count)
    words = np.array([marks_of(count, draw) for _ in range(200)], np.uint64)
    found = distinct(words)
    assert found.mean() == pytest.approx(count, rel=0.15)
    assert np.quantile(np.abs(found - count) / count, 0.7) < 0.5


def test_it_is_bounded() -> None:
    assert distinct(np.array([2**64 - 1], np.uint64)).tolist() == [MOST]


def test_a_repeat_changes_nothing() -> None:
    hashed = np.uint64(0x123456789ABCDEF0)
    assert mark_of(hashed) | mark_of(hashed) == mark_of(hashed)
    assert bin(int(mark_of(hashed))).count("1") == 1
