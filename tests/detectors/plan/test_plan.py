"""The planner: its population, each part of a prediction compared with manual arithmetic, and the whole with a cube."""

from __future__ import annotations

import math
import re
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from cubes import dense_cube
from superhosts.core.units import parse_size
from superhosts.detectors.cube import Cube, Geometry
from superhosts.detectors.cube.search import Store, list_candidates
from superhosts.detectors.formulas import losing_probability, shape_for, standard_error, unnamed_probability
from superhosts.detectors.plan.choice import best_sizes, least_memory
from superhosts.detectors.plan.population import counted_population, load_distribution, population_of
from superhosts.detectors.plan.prediction import Prediction, predict
from superhosts.errors import GeometryError, ThresholdWarning, UsageError
from superhosts.lab.compare import SharedSettings, choose
from superhosts.lab.plan import plan
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_hosts

MIB = 1 << 20
low_thresholds = pytest.mark.filterwarnings("ignore::superhosts.errors.ThresholdWarning")


def test_without_noise_the_standard_error_is_that_of_linear_counting():
    quiet = predict(Geometry(32, 4, 3, 12, 100_000, 3, 3), 100_000, 1024)
    assert quiet.standard_error == pytest.approx(standard_error(12, 1024), rel=1e-3)


def test_a_quiet_cube_reaches_the_floor_of_measuring():
    quiet = predict(Geometry(32, 4, 3, 14, 100_000, 3, 3), 100_000, 1024)
    assert quiet.total == pytest.approx(0.80 * 1.05 * standard_error(14, 1024), rel=0.03)
    assert quiet.missed_unnamed < 1e-4
    assert quiet.false_meeting < 1e-5
    assert quiet.saturation == math.floor(16384 * math.log(16384))


def test_the_population_has_the_flows_and_the_hosts():
    population = population_of(5_000_000)
    assert (population.peers * population.hosts).sum() == pytest.approx(5_000_000, rel=1e-6)
    assert population.at_least(1024) == pytest.approx(500)
    sizes = window_hosts(Traffic(flows=5_000_000, packets=5_000_000, super_hosts=500), 0)[1]
    for peers in (16, 128, 1024, 8192):
        assert population.at_least(peers) == pytest.approx((sizes >= peers).sum(), rel=0.1)
    # The integral of the density between two sizes is the difference of the counts.
    grid = np.linspace(1024, 2048, 4001)
    between = population.density(grid).mean() * 1024
    assert between == pytest.approx(population.at_least(1024) - population.at_least(2048), rel=1e-3)


def test_loads_of_columns_have_the_right_mean_and_chance_of_silence():
    population = population_of(100_000)
    load = load_distribution(population, 1e4, 1.0, 1 << 20)
    assert (load * np.arange(1 << 20)).sum() == pytest.approx(10, rel=0.01)
    assert load[0] == pytest.approx(math.exp(-population.hosts.sum() / 1e4), rel=1e-6)


def test_each_cause_shows_in_its_own_part():
    flows = 20_000_000
    usual = predict(Geometry(32, 4, 3, 14, 1323, 3, 3), flows, 1024)
    assert predict(Geometry(32, 4, 3, 14, 1323, 0, 3), flows, 1024).missed_unnamed > 20 * usual.missed_unnamed
    # Two hosts meet in two arrays with probability 3/(2^r·c²), in three with 1/(2^r·c³): four times the slices with a
    # quarter of the columns cause 4 and 16 times as many meetings, and the same noise.
    narrow = predict(Geometry(32, 6, 3, 14, 1323 // 4, 3, 3), flows, 1024)
    assert 4 < narrow.false_meeting / usual.false_meeting < 16
    assert narrow.missed_measuring == pytest.approx(usual.missed_measuring, rel=0.05)
    low = predict(Geometry(32, 0, 3, 10, 50_000, 3, 3), flows, 10_000)  # 2^10 rows measure up to 7,097 peers
    hosts = population_of(flows)
    assert low.false_saturated == pytest.approx(hosts.at_least(7097) / hosts.at_least(10_000) - 1)
    few = predict(Geometry(32, 4, 3, 14, 1323, 3, 6), 20_000, 64)  # one pair in 64 competes for labels
    assert few.missed_unnamed == pytest.approx(predicted_without_label(few.threshold), rel=0.1)


def predicted_without_label(threshold: float) -> float:
    """Return the share of hosts that have no pair among the highest 64th of priorities in any of three arrays."""
    hosts = population_of(20_000)
    peers = hosts.peers[hosts.peers >= threshold]
    counts = hosts.hosts[hosts.peers >= threshold]
    return float(((63 / 64) ** (3 * peers) * counts).sum() / counts.sum())


def cube_of_equals(geometry: Geometry, hosts: int, peers: int) -> Cube:
    """Return a cube that has seen `hosts` hosts with exactly `peers` peers each."""
    rng = np.random.default_rng(8)
    addresses = rng.permutation(1 << 20)[:hosts].astype(np.uint32)
    others = rng.permutation(1 << 20)[: hosts * peers].astype(np.uint32)
    cube = dense_cube(geometry=geometry, device="cpu")
    cube.update(np.repeat(addresses, peers), others)
    return cube


@pytest.mark.parametrize("peers", [3, 8, 16])
@pytest.mark.parametrize(
    "geometry",
    [
        Geometry(32, 0, 3, 10, 20_000, 3, 3),  # quiet: only the share of competing pairs matters
        Geometry(32, 2, 5, 10, 10_000, 2, 4),
        Geometry(32, 0, 3, 10, 250, 2, 3),  # crowded: one label per host
        Geometry(32, 0, 2, 10, 1000, 3, 0),  # all pairs compete
    ],
)
def test_as_many_hosts_go_unnamed_as_the_formula_says(geometry, peers):
    hosts, share = 1000, 2.0**-geometry.share_bits
    cube = cube_of_equals(geometry, hosts, peers)
    named = np.unique(cube.labels[cube.labels > 0] & np.uint64(0xFFFFFFFF))
    unnamed = 1 - len(named) / hosts
    # Other hosts fall into the host's label independently, so their number is Poisson.
    mean = (hosts - 1) / (geometry.columns << (geometry.slice_bits + geometry.label_bits))
    chances = np.array([math.exp(-mean) * mean**number / math.factorial(number) for number in range(40)])
    lost = losing_probability(np.array([float(peers)]), peers * np.arange(40.0), share)
    expected = float(lost @ chances) ** geometry.arrays
    # Tolerance: four standard deviations of a binomial count, plus one host for rare events.
    assert unnamed == pytest.approx(expected, abs=4 * math.sqrt(expected / hosts) + 1 / hosts)
    # At the mean number of other pairs the formula overestimates, but only slightly if labels are quiet.
    cautious = unnamed_probability(mean * peers, peers, geometry.arrays, share)
    assert expected <= cautious * (1 + 1e-9)
    if mean < 0.02:
        assert cautious < 1.1 * expected + 1e-3


@pytest.mark.slow
def test_a_warning_names_the_share_of_hosts_and_what_helps():
    quiet = cube_of_equals(Geometry(32, 0, 3, 10, 20_000, 3, 3), 400, 3)  # (7/8)^9 = 30 %
    with pytest.warns(ThresholdWarning, match=r"about 30% of hosts .* Cube\(memory, flows=…, threshold=3\)") as warned:
        quiet.super_hosts(3)
    assert "more memory" not in str(warned[0].message)
    planned = cube_of_equals(Geometry.for_traffic("4MiB", flows="200k", threshold=3), 400, 3)
    assert len(planned.super_hosts(3)) > 0  # A warning would fail the test.
    crowded = cube_of_equals(Geometry(32, 0, 3, 16, 8, 0, 3), 400, 100)
    with pytest.warns(ThresholdWarning, match="more memory or a higher threshold"):
        crowded.super_hosts(100)


def test_the_share_of_unnamed_hosts_is_right_if_few_hosts_have_most_pairs():
    rng = np.random.default_rng(5)
    addresses = rng.permutation(1 << 20)[:2008].astype(np.uint32)
    sizes = np.repeat([20, 40_000], [2000, 8])
    cube = dense_cube(geometry=Geometry(32, 0, 3, 18, 50, 3, 3), device="cpu")
    cube.update(np.repeat(addresses, sizes), rng.permutation(int(sizes.sum())).astype(np.uint32))
    unnamed = 1 - np.isin(cube.mangle(addresses[:2000])[:, 1], cube.labels & np.uint64(0xFFFFFFFF)).mean()
    with pytest.warns(ThresholdWarning, match="cannot be named") as warned:
        cube.super_hosts(20)
    (percent,) = [int(found[1]) for each in warned if (found := re.search(r"about (\d+)%", str(each.message)))]
    # Tolerance: four standard deviations of a binomial count, and the rounding of the text.
    assert percent / 100 == pytest.approx(unnamed, abs=4 * math.sqrt(unnamed * (1 - unnamed) / 2000) + 0.005)
    of_the_mean = unnamed_probability(sizes.sum() / 400, 20, 3, 1 / 8)  # if all labels had the mean number of pairs
    assert unnamed < 0.6 < of_the_mean


def test_the_default_geometry_follows_the_memory_alone():
    for memory in ("128MiB", "8MiB"):
        geometry = Geometry.for_memory(memory)
        assert Cube(memory, device="cpu").geometry == geometry
        assert (*geometry[1:4], geometry.label_bits, geometry.sample_bits) == shape_for(parse_size(memory))
        assert 0.98 * parse_size(memory) < geometry.memory <= parse_size(memory)


@pytest.mark.parametrize(("memory", "key_bits"), [("11k", 32), ("100001", 128), ("97MiB", 128)])
def test_the_best_geometry_is_legal_for_odd_memories(memory, key_bits):
    geometry = Geometry(*best_sizes(parse_size(memory), 3_000_000, 777, key_bits))
    assert geometry.check() == geometry
    assert geometry.key_bits == key_bits
    wasted = parse_size(memory) - geometry.memory
    assert 0 <= wasted <= geometry.memory / geometry.columns


@pytest.mark.parametrize(("flows", "most"), [(5_000_000, 0.0009), (50_000_000, 0.003)])
def test_more_flows_take_more_arrays(flows, most):
    """Noise that passes the AND falls with every array. Six would reach 0.34 % at 50 M flows."""
    best = best_sizes(128 * MIB, flows, 1024)
    assert predict(best, flows, 1024).total < most
    assert (best.arrays > 6) == (flows > 5_000_000)


def test_slices_of_long_columns_are_larger_if_much_memory_would_be_unused():
    long, short = best_sizes(128 * MIB, 20_000_000, 1024), best_sizes(128 * MIB, 50_000_000, 1024)
    assert long.column_bits == 19
    assert short.slice_bits == shape_for(128 * MIB).slice_bits
    assert long.slice_bits < short.slice_bits
    for sizes in (long, short):
        assert 7 / 8 * 128 * MIB <= Geometry(*sizes).memory <= 128 * MIB
    twice = long._replace(slice_bits=long.slice_bits + 1, columns=long.columns // 2)
    assert Geometry(*twice).memory < 7 / 8 * 128 * MIB


def test_the_best_geometry_is_better_than_the_default():
    planned = predict(Geometry.for_traffic("8MiB", flows="20M"), 20_000_000, 1024)
    assert planned.total < 0.8 * predict(Geometry.for_memory("8MiB"), 20_000_000, 1024).total


@pytest.mark.slow
def test_arguments_of_the_cube():
    planned = Cube("1MiB", flows="1M", threshold=512, device="cpu")
    assert planned.geometry == Geometry(*best_sizes(MIB, 1_000_000, 512))
    assert Cube("1MiB", flows=1_000_000, device="cpu").geometry == Geometry(*best_sizes(MIB, 1_000_000, 1024))
    with pytest.raises(UsageError, match="one or the other"):
        Cube(geometry=planned.geometry, flows="1M")


@pytest.mark.slow
def test_a_memory_in_which_most_answers_would_be_wrong_is_refused():
    refusal = r"too small for 50,000,000 flows at threshold 100: about \d\d% .* wrong; ([\d.]+ MiB) would do for 20%"
    with pytest.raises(GeometryError, match=refusal) as refused:
        Cube("100KB", flows="50M", threshold=100, device="cpu")
    enough = re.search(refusal, str(refused.value))
    assert predict(Geometry.for_traffic(enough[1], flows="50M", threshold=100), 50_000_000, 100).total <= 0.2
    for given, shown in (("100KB", "100KB"), (100_000, "97.7 KiB")):
        with pytest.raises(GeometryError, match=f"^memory {shown} is too small for 5,000,000 flows"):
            Geometry.for_traffic(given, flows="5M")
    # No memory would do: nearly all hosts above such a threshold are within the error of the estimate.
    assert Geometry.for_traffic("8MiB", flows="5M", threshold=199_999).check()


@pytest.mark.slow
def test_a_small_memory_samples_pairs():
    for memory, flows, threshold in ((100_000, 900_000, 500), (MIB, 5_000_000, 1024), (4 * MIB, 20_000_000, 1024)):
        best = best_sizes(memory, flows, threshold)
        assert best.sample_bits > 0
        whole = predict(best._replace(sample_bits=0), flows, threshold)
        assert predict(best, flows, threshold).total < 0.6 * whole.total
    assert best_sizes(8 * MIB, 5_000_000, 1024).sample_bits == 0


def test_sampling_adds_its_own_error():
    quiet = Geometry(32, 4, 3, 14, 100_000, 3, 3)
    sampled = predict(quiet._replace(sample_bits=2), 100_000, 1024)
    # One in 4 pairs: n·(s − 1) more variance, and linear counting of n/s pairs.
    error = math.sqrt(3 / 1024 + standard_error(14, 256) ** 2)
    assert sampled.standard_error == pytest.approx(error, rel=1e-3)
    assert sampled.total == pytest.approx(0.80 * 1.05 * error, rel=0.06)
    assert sampled.saturation == pytest.approx(4 * predict(quiet, 100_000, 1024).saturation, abs=4)


def test_giant_columns_measure_what_plain_ones_cannot():
    without = Geometry(32, 0, 3, 10, 50_000, 3, 3)
    giants = predict(without._replace(giants=800), 20_000_000, 50_000)
    assert giants.saturation == pytest.approx(64 * predict(without, 20_000_000, 50_000).saturation, abs=64)
    assert giants.false_saturated == 0
    error = math.sqrt(63 / 50_000 + standard_error(10, 50_000 / 64) ** 2)
    assert giants.standard_error == pytest.approx(error, rel=0.2)


@pytest.mark.slow
def test_the_least_memory_holds_the_error_and_a_step_less_does_not():
    memory = least_memory(0.01, 2_000_000, 1024)
    assert predict(best_sizes(memory, 2_000_000, 1024), 2_000_000, 1024).total <= 0.01
    less = memory * 3 // 4 if memory & (memory - 1) == 0 else memory // 3 * 2
    assert predict(best_sizes(less, 2_000_000, 1024), 2_000_000, 1024).total > 0.01


def test_impossible_wishes_are_refused():
    with pytest.raises(UsageError, match=r"false rate of 0\.01 % cannot be reached: with 16 GiB"):
        least_memory(0.0001, 1_000_000, 1024)
    with pytest.raises(GeometryError, match="memory 100 B is too small for a threshold of 1024; use more memory"):
        best_sizes(100, 1_000_000, 1024)
    with pytest.raises(GeometryError, match=r"memory .* TiB is too large: a cube has at most 4\.1e\+03 TiB"):
        best_sizes(7000 << 40, 1_000_000, 1024)
    assert best_sizes(4000 << 40, 1_000_000, 1024).columns <= 1 << 24
    with pytest.raises(GeometryError, match=r"memory 800 TiB is too large: 16,777,216 columns.* take 680 TiB"):
        Cube("800TiB")
    assert Geometry.for_memory("544TiB").columns <= 1 << 24
    for make in (Geometry.for_memory, partial(Geometry.for_traffic, flows="5M")):
        with pytest.raises(GeometryError, match="too large"):
            make("9" * 40)
    with pytest.raises(GeometryError, match="32, 64 or 128"):
        best_sizes(MIB, 1_000_000, 1024, 33)
    with pytest.raises(UsageError, match="flows 0"):
        predict(Geometry.for_memory("1MiB"), 0, 1024)
    for threshold in (0, 200_000, math.nan):
        with pytest.raises(UsageError, match="predictions need a threshold from 1 to below 200,000 peers"):
            predict(Geometry.for_memory("1MiB"), 1000, threshold)


def test_without_any_super_host_there_is_no_rate():
    hosts = counted_population(np.array([5, 10, 900]))
    assert predict(Geometry.for_memory("1MiB"), hosts, 900).super_hosts == 1
    with pytest.raises(UsageError, match="threshold 901: no host has this many peers"):
        predict(Geometry.for_memory("1MiB"), hosts, 901)


def test_a_threshold_alone_never_chooses_a_geometry():
    for memory in ("20KB", "1MiB"):
        for bits in (32, 128):
            for threshold in (1, 512, 1e6):
                cube = Cube(memory, threshold=threshold, key_bits=bits, device="cpu")
                assert cube.geometry == Geometry.for_memory(memory, bits)
            assert plan(memory=memory, threshold=512, key_bits=bits).geometry == Geometry.for_memory(memory, bits)
    with pytest.raises(UsageError, match=r"^threshold 0: must be a number of peers"):
        Cube("1MiB", threshold=0)
    with pytest.raises(UsageError, match=r"^error=0\.01: needs the expected flows; pass flows="):
        plan(threshold=512, error=0.01)
    left_out = {}
    alone = choose(["cube-dense", "cube-planned"], SharedSettings(512, "cpu", "1MiB"), left_out.__setitem__)
    assert list(alone) == ["cube-dense"]
    assert left_out == {"cube-planned": "of unknown flows it is the same as cube-dense"}


@pytest.mark.parametrize("threshold", [1, 5])
def test_the_lowest_thresholds_are_predicted(threshold):
    expected = predict(Geometry.for_traffic("8MiB", flows="100k", threshold=threshold), 100_000, threshold)
    assert 0 < expected.total < 0.1


@low_thresholds
def test_predictions_agree_with_a_cube():
    """Compare a crowded and a wide cube in four windows of 500,000 flows: 2,070 hosts of 128 peers, 200 of 1024."""
    flows, windows = 500_000, 4
    crowded, wide = Geometry(32, 0, 3, 10, 500, 4, 3), Geometry(32, 0, 3, 12, 1300, 2, 3)
    errors = {(geometry, threshold): np.zeros(3) for geometry in (crowded, wide) for threshold in (128, 1024)}
    for seed in range(windows):
        traffic = Traffic(flows=flows, packets=flows, super_hosts=50, seed=70 + seed)
        pairs, (hosts, sizes) = window_flows(traffic, 0), window_hosts(traffic, 0)
        for (geometry, threshold), seen in errors.items():
            cube = dense_cube(geometry=geometry, device="cpu")
            cube.update(*pairs)
            true, found = set(hosts[sizes >= threshold].tolist()), set(cube.super_hosts(threshold).hosts.tolist())
            seen += len(true), len(true - found), len(found - true)
    for (geometry, threshold), (true, missed, false) in errors.items():
        expected = predict(geometry, flows, threshold)
        assert expected.super_hosts * windows == pytest.approx(true, rel=0.05)
        assert agrees(expected.total * true, missed + false)
        assert agrees(expected.fnr * true, missed)
    # The tested rates are not negligible.
    assert predict(crowded, flows, 128).total > 0.09
    assert predict(wide, flows, 128).total > 0.01


@pytest.mark.slow
def test_work_and_size_agree_with_a_cube():
    flows = 1_000_000
    cube = dense_cube("1MiB", device="cpu")
    cube.update(*window_flows(Traffic(flows=flows, packets=flows, super_hosts=100), 0))
    expected = predict(cube.geometry, flows, 1024)
    search, plain = cube.search_for(1024), cube.geometry.plain_columns
    hot = int((cube.zeros[:plain] <= search.zeros).sum())
    assert hot / 1.5 < expected.hot_columns < 1.5 * hot
    store = Store(cube.bits, cube.zeros, cube.labels)
    listed = len(list_candidates((0, plain), store, search, cube.geometry, cube.key))
    assert listed / 1.3 < expected.candidates < 1.3 * listed
    assert expected.fill == pytest.approx(cube.fill().mean, rel=0.1)
    assert expected.memory == cube.memory


def test_the_size_of_a_file_of_an_exact_window_is_predicted(tmp_path):
    cube = Cube("16MiB", device="cpu")
    cube.update(*window_flows(Traffic(flows=300_000, packets=300_000, super_hosts=30, seed=1), 0))
    cube.save(tmp_path / "a.cube")
    assert cube.exact
    expected = predict(cube.geometry, 300_000, 1024, draws=1)
    stored = (tmp_path / "a.cube").stat().st_size
    assert 2 / 3 < expected.rows_bytes / stored < 3 / 2
    assert expected.rows_bytes < expected.wire_bytes / 3


# Tails of hosts that the planner does not assume, small thresholds, and sampling

WINDOWS = 3
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
@low_thresholds
def test_predictions_agree_with_cubes_of_other_tails(exponent: float, memory: int, threshold: float) -> None:
    geometry = Geometry(*best_sizes(memory, 100_000, threshold))
    true, wrong, expected = measured_errors(geometry, exponent, 100_000, threshold)
    assert agrees(expected.total * true, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.9, 1.3])
@low_thresholds
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
@low_thresholds
def test_the_law_of_small_thresholds_has_many_small_hosts(threshold: int) -> None:
    geometry = Geometry(*best_sizes(MIB, 100_000, threshold))
    true, wrong, _counted = measured_errors(geometry, 1.05, 100_000, threshold)
    assert agrees(predict(geometry, 100_000, threshold).total * true, wrong)


@pytest.mark.parametrize("sample_bits", [1, 5])
@low_thresholds
def test_predictions_know_sampling(sample_bits: int) -> None:
    """At threshold 512, hosts have 256 or 16 written pairs: by the normal law, and by the one for few."""
    geometry = Geometry(32, 0, 4, 10, 1000, 2, 2, sample_bits=sample_bits)
    true, wrong, expected = measured_errors(geometry, 1.05, 300_000, 512)
    assert agrees(expected.total * true, wrong)
    assert expected.total > 0.8 * math.sqrt(((1 << sample_bits) - 1) / 512)
