"""Scores by hand, and a panel of detectors on a small window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cubes import dense_cube
from superhosts import Geometry
from superhosts.core.pairs import array_to_numbers, numbers_to_array
from superhosts.core.results import SuperHosts
from superhosts.detectors.exact import Exact
from superhosts.lab.experiment import Panel, averages
from superhosts.lab.scores import Estimates, Score, Truth, ask_all, known, percent, score

TINY = Geometry(32, 1, 3, 10, 8, 1, 2)


def found(*hosts: int) -> SuperHosts:
    column, zeros = np.array(hosts, np.uint32), np.zeros(len(hosts), np.int64)
    return SuperHosts(column, zeros, zeros, zeros, np.zeros(len(hosts), bool))


def truth_of(counts: dict[int, int]) -> Truth:
    return Truth(np.array(list(counts), np.uint32), np.array(list(counts.values()), np.int64))


def test_hand_computed_examples():
    truth = truth_of({9: 5, 1: 10, 2: 9, 3: 30, 4: 11, 5: 1})
    result = score(found(1, 3, 2, 77), truth, 10)  # 4 is missed; 2 has 9 peers; 77 was never seen
    assert result == Score(true=3, missed=1, false=2, phantoms=1)
    assert (result.fnr, result.fpr, result.ftr) == pytest.approx((1 / 3, 2 / 3, 1.0))
    assert score(found(2), truth_of({1: 10, 2: 9}), 10) == Score(1, 1, 1, 0)
    empty = truth_of({})
    assert score(found(), empty, 10) == Score(0, 0, 0, 0)
    assert score(found(4), empty, 10) == Score(0, 0, 1, 1)
    for rate in (Score(0, 0, 1, 1).fnr, Score(0, 0, 1, 1).fpr, Score(0, 0, 1, 1).ftr):
        assert known(rate) is None  # a share of nothing
    nobody = ask_all(Exact(), empty, 10)
    assert known(nobody.mean_error) is None
    assert known(nobody.coverage) is None
    assert (percent(0.0123), percent(0.5, 1), percent(None)) == ("1.23", "50.0", "–")


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_the_truth_knows_hosts_of_every_width(bits):
    numbers = [(3 << (bits - 4)) + 1, 5, (3 << (bits - 4)) + 2, 1]
    truth = Truth(numbers_to_array(numbers, bits), np.array([10, 20, 30, 40]))
    asked = numbers_to_array([5, 6, numbers[2], numbers[0], 1], bits)
    assert truth.peers_of(asked).tolist() == [20, 0, 30, 10, 40]
    hosts, peers = truth.at_least(20)
    assert dict(zip(array_to_numbers(hosts), peers.tolist(), strict=True)) == {5: 20, numbers[2]: 30, 1: 40}


def test_estimates_leave_out_saturated_hosts_but_count_their_bounds():
    inf = np.inf
    estimates = Estimates(
        true=np.array([100, 200, 300, 400]),
        peers=np.array([110, 190, 250, 399]),
        low=np.array([90, 195, 250, 350]),
        high=np.array([120, 210, inf, 390]),
        saturated=np.array([False, False, True, False]),
    )
    assert estimates.errors == pytest.approx([0.1, -0.05, -0.0025])
    assert estimates.mean_error == pytest.approx((0.1 + 0.05 + 0.0025) / 3)
    assert estimates.held.tolist() == [True, True, True, False]
    assert estimates.coverage == 0.75


def small_window() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    hosts = np.repeat(np.arange(20, dtype=np.uint32), [400] * 3 + [20] * 17)
    return hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32)


def test_a_panel_feeds_everybody_the_same_and_knows_the_truth():
    hosts, peers = small_window()
    panel = Panel({"one": lambda: dense_cube(geometry=TINY, device="cpu"), "two": lambda: Exact()})
    panel.warm_up(300)
    for start in range(0, len(hosts), 300):
        panel.update(hosts[start : start + 300], peers[start : start + 300])
    alone = dense_cube(geometry=TINY, device="cpu")
    alone.update(hosts, peers)
    (one, _), (two, estimates) = panel.judge(300, "noon", 1 << 20)
    assert np.array_equal(panel.detectors["one"].arrays()["bits"], alone.bits)
    assert (two.true, two.missed, two.false, two.phantoms, two.error, two.coverage) == (3, 0, 0, 0, 0, 1)
    assert len(estimates.true) == 3
    counts = one.true, one.missed, one.false, one.phantoms
    assert counts == score(alone.super_hosts(300), Truth.of(panel), 300)
    assert (one.window, one.memory_given, one.memory, one.flows) == ("noon", 1 << 20, alone.memory, len(hosts))
    assert min(one.update_rate, one.restore_ms) > 0
    assert 0 < one.wire < one.memory
    panel.clear()
    assert panel.pairs == 0
    assert panel.seconds == {"one": 0.0, "two": 0.0}
    assert [(row.true, row.false, row.flows) for row, _ in panel.judge(300, "later")] == [(0, 0, 0)] * 2


def test_means_over_windows_leave_out_those_without_super_hosts():
    hosts, peers = small_window()
    panel = Panel({"exact": lambda: Exact(), "cube": lambda: dense_cube(geometry=TINY, device="cpu")})
    rows = []
    for number, least in enumerate((300, 5000, 15)):  # three hosts, none, all of them
        panel.update(hosts, peers)
        rows += [each.row for each in panel.judge(least, str(number))]
        panel.clear()
    exact, mean = averages(rows)
    assert (exact.detector, exact.windows, exact.ftr, exact.ftr_error) == ("exact", 3, 0.0, 0.0)
    first, empty, last = rows[1::2]
    assert [row.true for row in (first, empty, last)] == [3, 0, 20]
    assert (empty.fnr, empty.fpr, empty.ftr, empty.error, empty.coverage) == (None,) * 5
    assert (mean.windows, mean.rated) == (3, 2)
    assert mean.true == pytest.approx(23 / 3)
    assert mean.ftr == pytest.approx((first.ftr + last.ftr) / 2)
    assert mean.ftr_error == pytest.approx(abs(first.ftr - last.ftr) / 2)
    assert mean.update_rate == pytest.approx(3 / sum(1 / row.update_rate for row in (first, empty, last)))
    assert mean.coverage == pytest.approx((first.coverage + last.coverage) / 2)
    assert averages([replace(empty, false=7), replace(first, false=5)])[0].unrated_false == 7
    (nothing,) = averages([empty])
    assert (nothing.ftr, nothing.ftr_error, nothing.coverage, nothing.rated) == (None, None, None, 0)
