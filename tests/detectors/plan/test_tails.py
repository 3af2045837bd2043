"""Predictions compared with cubes: tails of hosts that the planner does not assume, small thresholds, and sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from cubes import dense_cube
from superhosts.detectors.cube import Geometry
from superhosts.detectors.plan.choice import best_sizes
from superhosts.detectors.plan.population import counted_population
from superhosts.detectors.plan.prediction import Prediction, predict

MIB = 1 << 20
WINDOWS = 3
pytestmark = pytest.mark.filterwarnings("ignore::superhosts.errors.ThresholdWarning")

Column = NDArray[np.uint32]


def pareto_window(exponent: float, flows: int, seed: int) -> tuple[Column, Column, Column, NDArray[np.int64]]:
    """Return distinct pairs of hosts from one peer on, and the hosts with their numbers of peers."""
    random = np.random.default_rng(seed)
    sizes = np.minimum(random.random(flows) ** (-1 / exponent), 200_000).astype(np.int64)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), flows) + 1]
    names = random.permutation(1 << 21)[: len(sizes)].astype(np.uint32)
    hosts = np.repeat(names, sizes)
    return hosts, random.permutation(len(hosts)).astype(np.uint32), names, sizes


def measured_errors(geometry: Geometry, exponent: float, flows: int, threshold: float) -> tuple[int, int, Prediction]:
    """Return the numbers of true hosts and of errors in some windows, and the prediction for the hosts of the first."""
    true = wrong = 0
    counted = counted_population(pareto_window(exponent, flows, 1)[3])
    for seed in range(1, WINDOWS + 1):
        hosts, peers, names, sizes = pareto_window(exponent, flows, seed)
        cube = dense_cube(geometry=geometry)
        cube.update(hosts, peers)
        large, found = set(names[sizes >= threshold].tolist()), set(cube.super_hosts(threshold).hosts.tolist())
        true, wrong = true + len(large), wrong + len(large ^ found)
    return true, wrong, predict(geometry, counted, threshold)


def agrees(expected: float, wrong: int) -> bool:
    """Return True if a count of errors is within a factor of two of the expected one, plus two standard deviations."""
    return expected / 2 - 2 * math.sqrt(expected) <= wrong <= 2 * expected + 2 * math.sqrt(2 * expected) + 1


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.9, 1.05, 1.3])
@pytest.mark.parametrize(("memory", "threshold"), [(MIB, 2), (MIB, 5), (MIB, 10), (MIB // 4, 32), (100_000, 128)])
def test_predictions_agree_with_cubes_of_other_tails(exponent: float, memory: int, threshold: float) -> None:
    geometry = Geometry(*best_sizes(memory, 100_000, threshold))
    true, wrong, expected = measured_errors(geometry, exponent, 100_000, threshold)
    assert agrees(expected.total * true, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.9, 1.3])
def test_predictions_near_the_refusal_depend_on_the_tail(exponent: float) -> None:
    """The plan assumes a tail of 1.05: 12 %. A tail of 1.3 has nearly twice as many errors, one of 0.9 has fewer."""
    geometry = Geometry(*best_sizes(100_000, 900_000, 500))
    true, wrong, expected = measured_errors(geometry, exponent, 900_000, 500)
    assert expected.total / 1.3 - 2 * math.sqrt(wrong) / true <= wrong / true
    assert wrong / true <= 1.3 * expected.total + 2 * math.sqrt(wrong) / true
    planned = predict(geometry, 900_000, 500).total
    assert expected.total < 0.9 * planned if exponent < 1 else expected.total > 1.5 * planned


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [2, 5, 10])
def test_the_law_of_small_thresholds_has_many_small_hosts(threshold: int) -> None:
    geometry = Geometry(*best_sizes(MIB, 100_000, threshold))
    true, wrong, _counted = measured_errors(geometry, 1.05, 100_000, threshold)
    assert agrees(predict(geometry, 100_000, threshold).total * true, wrong)


@pytest.mark.parametrize("sample_bits", [1, 5])
def test_predictions_know_sampling(sample_bits: int) -> None:
    """At threshold 512, hosts have 256 or 16 written pairs: by the normal law, and by the one for few."""
    geometry = Geometry(32, 0, 4, 10, 1000, 2, 2, sample_bits=sample_bits)
    true, wrong, expected = measured_errors(geometry, 1.05, 300_000, 512)
    assert agrees(expected.total * true, wrong)
    assert expected.total > 0.8 * math.sqrt(((1 << sample_bits) - 1) / 512)
