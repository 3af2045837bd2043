"""The estimator: its equations, its variance and the coverage of its interval against theory, and its edge cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from superhosts.core.results import UNBOUNDED
from superhosts.detectors.estimate import (
    Evidence,
    Measured,
    better_of,
    estimate,
    estimate_by_mean,
    measure,
    saturation_of,
)
from superhosts.detectors.formulas import prefix_test, saturation_point, standard_error, unnamed_probability, zero_limit


def evidence(zeros: list[list[int]], common: list[int], fills: list[list[float]] | None = None) -> Evidence:
    fills = fills or [[0.0] * len(zeros[0])] * len(zeros)
    return Evidence(np.array(zeros, np.int32), np.array(common, np.int32), np.array(fills, float))


@given(st.data())
def test_it_solves_the_oracles_equation(data):
    rows = 1 << data.draw(st.integers(8, 14))
    zeros = data.draw(st.lists(st.integers(rows // 8, rows), min_size=2, max_size=5))
    common = data.draw(st.integers(max(zeros), rows))
    if common < 16:
        return
    found = estimate(evidence([zeros], [common]), rows)
    expected = naive.estimate(zeros, common, rows)
    # The oracle does not implement the fallback to the mean fill for nearly singular equations.
    u = math.exp(-expected / rows)
    noises = [1 - z / rows / u for z in zeros]
    product = math.prod(noises)
    if min(noises) > 1e-9 and 1 - product * (1 + sum((1 - p) / p for p in noises)) > 1e-3:
        assert found.peers[0] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def simulate(peers: int, fills: tuple[float, ...], rows: int, times: int) -> Evidence:
    """Return columns of a host with independent noise of other hosts, for many trials."""
    rng = np.random.default_rng(peers)
    zeros, common = [], []
    for _ in range(times):
        own = np.zeros(rows, bool)
        own[rng.integers(0, rows, peers)] = True
        columns = [own | (rng.random(rows) < fill) for fill in fills]
        zeros.append([int((~column).sum()) for column in columns])
        common.append(int((~np.logical_and.reduce(columns)).sum()))
    return evidence(zeros, common, [list(fills)] * times)


@pytest.mark.parametrize("fills", [(0.02, 0.02, 0.02), (0.1, 0.3, 0.2), (0.6, 0.5, 0.7), (0.9, 0.1, 0.2, 0.3, 0.5)])
@pytest.mark.parametrize("peers", [300, 1024, 5000])
def test_the_interval_holds_the_truth_19_times_of_20(peers, fills):
    """The coverage of 400 trials is within five standard deviations of a binomial of 0.95, and the bias is small."""
    rows, times = 4096, 400
    found = estimate(simulate(peers, fills, rows, times), rows)
    inside = ((found.low <= peers) & (peers <= found.high)).mean()
    assert inside > 0.95 - 5 * math.sqrt(0.95 * 0.05 / times)
    deviation = found.peers.std()
    claimed = ((found.high - found.low) / 2 / 1.96).mean()
    # The standard deviation of 400 trials has an error of 3.5 %; allow 5 times that.
    assert deviation == pytest.approx(claimed, rel=0.25)
    assert abs(found.peers.mean() - peers) < 0.3 * deviation + 5 * deviation / math.sqrt(times)


def test_without_noise_it_is_linear_counting():
    found = estimate(evidence([[3000] * 3], [3000]), 4096)
    assert found.peers[0] == pytest.approx(-4096 * math.log(3000 / 4096))
    deviation = (found.high[0] - found.low[0]) / 2 / 1.96
    t = found.peers[0] / 4096
    assert deviation == pytest.approx(math.sqrt(4096 * (math.exp(t) - t - 1)), abs=1)


def test_no_zero_left_is_saturated_never_infinite():
    for method in (estimate, estimate_by_mean):
        found = method(evidence([[0, 5, 9], [5, 0, 0]], [9, 0]), 4096)
        assert found.saturated.tolist() == [False, True]
        assert found.peers[1] == saturation_point(4096) == 34069
        assert found.low[1] == math.floor(4096 * (math.log(4096) - math.log(-math.log(0.025)))) == 28722
        assert found.high[1] == UNBOUNDED
        assert np.isfinite(found.peers).all()


def filled_rows(peers: int, rows: int, times: int) -> np.ndarray:
    """Return which of many hosts with this many peers leave no zero."""
    rng = np.random.default_rng(peers)
    return np.array([len(np.unique(rng.integers(0, rows, peers))) == rows for _ in range(times)])


@pytest.mark.slow
@pytest.mark.parametrize("rows", [64, 1024, 4096])
def test_below_the_bound_hardly_anybody_is_saturated(rows):
    """At the bound itself, one host in 40 is saturated: of 1,000, within five standard deviations of a binomial."""
    typical, low = saturation_of(rows)
    times = 1000 if rows < 4096 else 200
    slack = 5 * math.sqrt(0.025 * 0.975 / times)
    assert abs(filled_rows(low, rows, times).mean() - 0.025) < slack
    assert filled_rows(round(0.9 * low), rows, times).mean() < 0.01
    assert filled_rows(typical, rows, times).mean() == pytest.approx(math.exp(-1), abs=5 * math.sqrt(0.24 / times))


def test_others_and_sampling_move_the_bound():
    """A host saturates sooner if others hold half of the rows, and sixteen times later if one in 16 peers counts."""
    plain, crowded, sampled = saturation_of(512), saturation_of(512, 0.5), saturation_of(512, sample=16)
    assert plain.peers - crowded.peers == pytest.approx(512 * math.log(2), abs=1)
    assert plain.low - crowded.low == pytest.approx(512 * math.log(2), abs=1)
    assert (sampled.peers // 16, sampled.low // 16) == plain
    assert saturation_of(16, 0.01) == (0, 0)  # Nothing is known about a host in an array that others have filled.


def test_a_big_host_with_few_zeros_left_does_not_come_out_as_nothing():
    rows = 4096
    noisy = simulate(24_000, (0.3, 0.2, 0.25), rows, 100)
    found = estimate(noisy, rows)
    assert (found.peers > 15_000).all()


def test_a_small_host_in_two_full_columns_is_not_taken_for_a_big_one():
    """Its AND is its third column, as full as any: the equations allow 0 to 650 peers, the mean fill suggests none."""
    found = estimate(evidence([[0, 0, 3500]], [3500], [[0.14, 0.14, 0.14]]), 4096)
    assert found.peers[0] < 50
    big = estimate(evidence([[0, 0, 1200]], [1200], [[0.14, 0.14, 0.14]]), 4096)
    assert big.peers[0] == pytest.approx(-4096 * math.log(1200 / 4096 / 0.86), rel=1e-6)


def measured(*hosts: tuple[float, float, bool, bool]) -> Measured:
    """Return measurements of hosts, each given as peers, deviation, doubtful and full."""
    peers, deviations, doubtful, full = zip(*hosts, strict=True)
    return Measured(np.array(peers), np.array(deviations), np.array(doubtful), np.array(full))


@pytest.mark.parametrize(
    ("plain", "giant", "takes_giant"),
    [
        ((100.0, 5.0, False, False), (90.0, 9.0, True, False), False),
        ((100.0, 5.0, True, False), (90.0, 9.0, False, False), False),
        ((100.0, 9.0, False, False), (90.0, 5.0, True, False), True),
        ((100.0, 9.0, True, False), (90.0, 5.0, False, False), True),
        ((0.0, 0.0, False, True), (90.0, 5.0, True, False), True),  # The numbers of a full one are meaningless.
        ((100.0, 9.0, True, False), (0.0, 0.0, False, True), False),
        ((0.0, 0.0, False, True), (0.0, 0.0, False, True), True),
    ],
    ids=["plain", "doubtful plain", "doubtful giant", "giant", "plain is full", "giant is full", "both are full"],
)
def test_of_two_measurements_the_one_with_the_smaller_deviation_counts_unless_it_is_full(plain, giant, takes_giant):
    other = (7.0, 1.0, False, False), (8.0, 2.0, True, False)  # another host, for which the plain columns count
    found = better_of(measured(plain, other[0]), measured(giant, other[1]))
    expected = measured(giant if takes_giant else plain, other[0])
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]


def test_an_untouched_host_has_no_peers():
    found = estimate(evidence([[4096] * 3], [4096]), 4096)
    assert (found.peers[0], found.low[0]) == (0, 0)
    crowded = estimate(evidence([[2000, 2000, 2000]], [3500], [[0.5] * 3]), 4096)
    assert crowded.low[0] >= 0


def test_theorem_2_subtracts_the_slices_mean_noise():
    found = estimate_by_mean(evidence([[1, 2, 3]], [2000], [[0.5, 0.4, 0.1]]), 4096)
    assert found.peers[0] == pytest.approx(-4096 * math.log(2000 / (4096 * (1 - 0.02))))


def test_hot_columns_lose_no_host_of_the_threshold():
    """A host of exactly θ peers leaves more zeros than Zmax about once in 740 (three deviations)."""
    rng = np.random.default_rng(1)
    rows, theta, times = 4096, 1024, 2000
    zeros = [rows - len(np.unique(rng.integers(0, rows, theta))) for _ in range(times)]
    limit = zero_limit(12, theta)
    assert limit == naive.zero_limit(rows, theta)
    assert (np.array(zeros) > limit).mean() < 0.00135 + 5 * math.sqrt(0.00135 / times)
    look = prefix_test(12, theta)
    assert look[0] * 64 <= rows
    ones = [len(np.unique(r[r < look[0] * 64])) for r in (rng.integers(0, rows, theta) for _ in range(500))]
    assert min(ones) >= look[1] > 0


def test_formulas_of_the_documents():
    assert standard_error(12, 1024) == pytest.approx(0.0115, abs=5e-5)
    assert standard_error(13, 1024) == pytest.approx(0.0080, abs=5e-5)
    assert standard_error(14, 1024) == pytest.approx(0.0056, abs=5e-5)
    labels = 16 * 1323 * 8
    assert unnamed_probability(50e6 / labels, 128, 3, 1 / 8) == pytest.approx(1 / 3, abs=0.03)
    assert unnamed_probability(5e6 / labels, 1024, 3, 1 / 8) < 1e-4
    assert unnamed_probability(0, 32, 3, 1 / 8) == pytest.approx((7 / 8) ** 96)  # a pair of high priority in no array


@pytest.mark.slow
def test_an_estimate_does_not_depend_on_the_other_hosts_of_its_group():
    random = np.random.default_rng(5)
    own = 1 - 10 ** random.uniform(-4, -0.1, 200)  # the share of rows that a host's own peers leave free
    others = 1 - 10 ** random.uniform(-3, -0.01, (200, 5))  # and that others leave free in each column
    zeros = np.rint(65_536 * own[:, None] * others).astype(np.int64)
    common = np.rint(65_536 * own * (1 - np.prod(1 - others, axis=1))).astype(np.int64)
    evidence = Evidence(zeros, common, 1 - zeros / 65_536)
    order = random.permutation(200)
    peers = measure(evidence, 65_536).peers
    assert measure(Evidence(*(part[order] for part in evidence)), 65_536).peers.tolist() == peers[order].tolist()
