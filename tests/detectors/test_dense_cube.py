"""The dense cube: giant columns, sampling, turned rows, and what it says where columns are full."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import naive
from cubes import filled_oracle
from superhosts import Cube, Geometry, Part, ThresholdWarning
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.core.pairs import Addresses
from superhosts.detectors.cube.fill import SPAN
from superhosts.detectors.cube.geometry import LINE_BITS
from superhosts.detectors.estimate import Evidence, conclude, measure, saturation_of
from superhosts.sketch.files import estimate_in_file

GIANT = Geometry(32, 2, 4, 10, 16, 4, 3, giants=2)  # columns of 2^10 rows are full near 7,000 peers


def peers_of(count: int, seed: int) -> Addresses:
    """Return distinct peers."""
    rng = np.random.default_rng(seed)
    step, start = int(rng.integers(1 << 31)) * 2 + 1, int(rng.integers(1 << 32))
    numbers = np.arange(count, dtype=np.uint64) * np.uint64(step) + np.uint64(start)
    return (numbers & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def fill(cube: Cube, sizes: dict[int, int]) -> None:
    for seed, (host, count) in enumerate(sizes.items()):
        cube.update(np.full(count, host, np.uint32), peers_of(count, seed))


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_giant_columns_have_the_zero_counts_of_the_oracle(device: str) -> None:
    cube = Cube(geometry=GIANT, device=device, exact=False)
    hosts = np.repeat(np.arange(1, 6, dtype=np.uint32), 400)
    peers = peers_of(2000, 1)
    cube.update(hosts, peers)
    oracle = filled_oracle(cube, list(zip(hosts.tolist(), peers.tolist(), strict=True)))
    asked = cube.mangle(np.arange(1, 7, dtype=np.uint32))
    measured = Cube(geometry=GIANT, device="cpu", exact=False)
    measured.load_arrays(cube.arrays())
    for host, counts in zip(range(1, 7), measured.engine.measure_giants(asked).tolist(), strict=True):
        zeros, common = oracle.zeros(host, giant=True)
        assert counts == [*zeros, common]


def test_hosts_far_beyond_a_full_column_are_measured() -> None:
    """In columns that are full near 7,000 peers, hosts with up to 300,000 are measured; intervals hold the truth."""
    sizes = {host: 3000 * host for host in (1, 2, 4, 8, 16, 32, 64, 100)}
    held = total = 0
    for shift in range(5):
        cube = Cube(geometry=GIANT._replace(slice_bits=4), device="cpu", key=f"a secret {shift}", exact=False)
        fill(cube, {host + 1000 * shift: count for host, count in sizes.items()})
        for host, count in sizes.items():
            row = cube.estimate(host + 1000 * shift)
            assert not row.saturated
            assert row.peers == pytest.approx(count, rel=0.35)
            total += 1
            held += row.peers_low <= count <= (row.peers_high or 0)
    assert held >= 0.85 * total


def test_the_default_cube_measures_a_victim_of_a_million_sources() -> None:
    cube = Cube(device="cpu", exact=False)
    fill(cube, {7: 1_000_000, 8: 20_000, 9: 200_000})
    result = cube.super_hosts(10_000)
    found = dict(zip(result.hosts.tolist(), result.peers.tolist(), strict=True))
    assert found[7] == pytest.approx(1_000_000, rel=0.06)
    assert found[8] == pytest.approx(20_000, rel=0.02)
    assert found[9] == pytest.approx(200_000, rel=0.03)
    assert [int(host) for host in cube.super_hosts(500_000).hosts] == [7]  # beyond what plain columns can tell


def test_hosts_far_beyond_a_full_column_are_measured_from_a_file_as_in_memory(tmp_path: Path) -> None:
    cube = Cube(geometry=GIANT, device="cpu", exact=False)
    sizes = {1: 50, 2: 100_000, 3: 700, 4: 40_000, 5: 8000}
    fill(cube, sizes)
    cube.save(tmp_path / "a.cube")
    part = Part(4)
    found = estimate_in_file(tmp_path / "a.cube", {part: list(sizes)})[part]
    assert list(found) == list(cube.estimate_many(np.array(list(sizes), np.uint32)))
    assert found.peers[1] == pytest.approx(100_000, rel=0.35)


def test_beyond_giant_columns_a_host_is_saturated_and_has_only_a_lower_bound() -> None:
    geometry = Geometry(32, 0, 2, 6, 8, 1, 0, giants=1)
    cube = Cube(geometry=geometry, device="cpu", exact=False)
    fill(cube, {7: 60_000})
    row = cube.estimate(7)
    assert row.saturated
    assert (row.peers, row.peers_high) == (None, None)
    assert 0.9 * saturation_of(64, sample=64).low < row.peers_low <= saturation_of(64, sample=64).low < 60_000


def test_in_an_overfull_cube_a_host_that_nobody_saw_has_no_lower_bound() -> None:
    cube = Cube(geometry=Geometry(32, 0, 3, 8, 8, 1, 0, giants=1), device="cpu", exact=False)
    rng = np.random.default_rng(1)
    cube.update(*rng.integers(0, 1 << 32, (2, 1_000_000), dtype=np.uint32))
    row = cube.estimate(7)
    assert row.saturated
    assert row.peers_low == 0


@pytest.mark.parametrize("bits", [1, 3, 5])
def test_a_sample_of_the_pairs_gives_unbiased_numbers_and_honest_intervals(bits: int) -> None:
    geometry = Geometry(32, 0, 3, 12, 40, 2, 0, giants=1, sample_bits=bits)
    errors, held = [], []
    for round_ in range(4):
        cube = Cube(geometry=geometry, device="cpu", key=f"a secret {round_}", exact=False)
        fill(cube, dict.fromkeys(range(1, 21), 2000))
        for row in cube.estimate_many(np.arange(1, 21, dtype=np.uint32)):
            errors.append((row.peers or 0) - 2000)
            held.append(row.peers_low <= 2000 <= (row.peers_high or 0))
        found = {int(host) for host in cube.super_hosts(1000).hosts}
        assert len(found) >= 18
        assert found <= set(range(1, 21))
    deviation = np.sqrt(2000 * ((1 << bits) - 1))
    assert abs(np.mean(errors)) < 4 * deviation / np.sqrt(len(errors)) + 10
    assert 0.7 * deviation < np.std(errors) < 1.5 * deviation + 40
    assert np.mean(held) > 0.85


@pytest.mark.parametrize(("giants", "most"), [(0, 1064), (1, 68_139)])
def test_a_sample_moves_the_most_peers_that_can_be_measured(giants: int, most: int) -> None:
    """64 rows are full near 64·ln 64 = 266.17 peers; one in 4 pairs is written, one in 256 to giant columns."""
    cube = Cube(geometry=Geometry(32, 0, 2, 6, 8, 1, 0, giants=giants, sample_bits=2), device="cpu", exact=False)
    cube.update([1], [1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cube.super_hosts(most)
    with pytest.warns(ThresholdWarning, match=f"hosts with more than {most:,} peers cannot be measured"):
        cube.super_hosts(most + 1)


def test_a_threshold_that_labels_cannot_support_in_a_sample_is_warned_about() -> None:
    """A host with 64 peers has 8 pairs among about 6 others of its label, and loses nearly (6/14)³ times; with 256,
    once in 250."""
    geometry = Geometry(32, 0, 3, 12, 40, 2, 0, sample_bits=3)
    cube = Cube(geometry=geometry, device="cpu", key="a secret", exact=False)
    cube.update(*np.random.default_rng(2).integers(0, 1 << 32, (2, 8 * 6 * 160), dtype=np.uint32))
    with pytest.warns(ThresholdWarning, match="about 7% of hosts with this many peers cannot be named"):
        cube.super_hosts(64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cube.super_hosts(256)


def test_the_number_of_pairs_in_a_sampled_cube_is_that_of_all_pairs() -> None:
    geometry = Geometry(32, 1, 3, 12, 20, 2, 0, giants=1, sample_bits=3)
    cube = Cube(geometry=geometry, device="cpu", key="a secret", exact=False)
    cube.update(*np.random.default_rng(5).integers(0, 1 << 32, (2, 50_000), dtype=np.uint32))
    assert cube.fill().pairs == pytest.approx(50_000, rel=0.1)  # 6,250 are written, with a deviation of 1.2 %


def test_a_host_in_all_columns_of_a_big_one_is_told_from_it_by_its_lines() -> None:
    """Also where rotations coincide: the lines of 512 rows are in another order for every host."""
    geometry = Geometry(32, 0, 3, 12, 2, 1, 1)
    oracle = naive.Cube(geometry._asdict(), DEFAULT_KEY)
    rng = np.random.default_rng(4)
    big, *others = rng.integers(0, 1 << 32, 40_000, dtype=np.uint32).tolist()

    def turns(host: int) -> list[tuple[int, int]]:
        m = naive.mangle32(host, oracle.key)
        return [divmod(oracle.turned(0, m, array), 512) for array in range(3)]

    def sharing(host: int) -> bool:
        """Return True if a host has all columns of the big one, is rotated alike, but has other lines."""
        if oracle.places(naive.mangle32(host, oracle.key)) != oracle.places(naive.mangle32(big, oracle.key)):
            return False
        pairs = list(zip(turns(host), turns(big), strict=True))
        return (
            len({(mine[1] - other[1]) % 64 for mine, other in pairs}) == 1
            and len({mine[0] ^ other[0] for mine, other in pairs}) == 3
        )

    host = next(host for host in others if sharing(host))
    cube = Cube(geometry=geometry, device="cpu", exact=False)
    fill(cube, {big: 2000, host: 100})
    assert cube.estimate(host).peers_low <= 100
    assert (cube.estimate(host).peers or 0) < 400


@pytest.mark.parametrize("threshold", [2, 5, 10])
def test_exactly_the_threshold_is_found_at_low_thresholds(threshold: int) -> None:
    """Noise removal turns exactly θ into slightly less, which still counts as θ: otherwise 4 to 12 % would be found."""
    rng = np.random.default_rng(3)
    hosts, others = np.split(rng.choice(1 << 32, 52_000, replace=False).astype(np.uint32), [2000])
    cube = Cube(geometry=Geometry(32, 2, 4, 14, 20, 10, 0), device="cpu", key="a secret", exact=False)
    sent = np.concatenate([np.repeat(hosts, threshold), others])
    cube.update(sent, rng.integers(0, 1 << 32, len(sent), dtype=np.uint32))
    assert np.isin(hosts, cube.super_hosts(threshold).hosts).mean() > 0.98


def test_hosts_are_found_where_few_of_their_pairs_compete_for_labels() -> None:
    """Of 16 pairs, two compete in each array, and none in one of eight: there, others or nobody have the label."""
    rng = np.random.default_rng(9)
    hosts = rng.choice(1 << 32, 200, replace=False).astype(np.uint32)
    cube = Cube(geometry=Geometry(32, 2, 4, 12, 20, 6, 3), device="cpu", key="a secret", exact=False)
    cube.update(np.repeat(hosts, 16), rng.integers(0, 1 << 32, 16 * len(hosts), dtype=np.uint32))
    assert np.isin(hosts, cube.super_hosts(16).hosts).mean() > 0.95


def test_the_interval_of_a_small_host_among_giants_begins_at_0() -> None:
    """Two of its three columns are full. The bits in the third may be its own or others'."""
    rows = 4096
    evidence = Evidence(
        np.array([[0, 3, 3000], [3000, 3000, 3000], [4, 3, 4]], np.int32),
        np.array([3000, 3900, 5], np.int32),
        np.full((3, 3), 0.1),
    )
    found = conclude(measure(evidence, rows), saturation_of(rows))
    assert found.peers[0] > 500  # The estimate stays: it decides, and to lower it would miss more than it saves.
    assert found.low[0] == 0
    assert found.low[1] > 100
    assert found.low[2] > 20_000  # Its own peers filled all columns.


@pytest.mark.parametrize(
    ("bits", "arrays", "columns", "sample"), [(32, 5, 2400, 0), (64, 8, 2400, 0), (128, 4, 6000, 0), (32, 5, 2400, 1)]
)
def test_a_slice_at_once_is_the_same_as_in_steps(bits: int, arrays: int, columns: int, sample: int) -> None:
    """Few pairs set bits one by one and count them; more than fit a thread's memory are written in several spans."""
    geometry = Geometry(bits, 0, arrays, 12, columns, 3, 2, giants=1, sample_bits=sample)
    rng = np.random.default_rng(bits + arrays)
    count = 3 * SPAN
    lines = arrays * columns << (12 - LINE_BITS)
    peers = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    hosts = rng.integers(0, 1 << 12, count, dtype=np.uint32)
    wide: Addresses = hosts
    if bits > 32:
        wide = hosts.astype(np.uint64) << np.uint64(40)
    if bits == 128:
        wide = np.column_stack((wide, hosts.astype(np.uint64)))
    at_once, by_and_by = (Cube(geometry=geometry, device="cpu", exact=False, threads=1) for _ in range(2))
    at_once.update(wide, peers)
    step = lines // 2
    for start in range(0, count, step):
        by_and_by.update(wide[start : start + step], peers[start : start + step])
        by_and_by.flush()
    for name, array in by_and_by.engine.arrays().items():
        assert np.array_equal(at_once.engine.arrays()[name], array), name
    assert np.array_equal(at_once.engine.zeros(), by_and_by.engine.zeros())


@pytest.mark.parametrize("bits", [32, 64])
def test_an_array_of_more_bits_than_32_bit_addresses_reach(bits: int) -> None:
    """Most of its columns, of 128 KiB each, are never touched and take no memory."""
    geometry = Geometry(bits, 0, 1, 20, 3 << 12, 0, 3)
    cube = Cube(geometry=geometry, device="cpu", exact=False, key="a secret")
    dtype = np.uint32 if bits == 32 else np.uint64
    hosts = np.arange(1, 9, dtype=dtype)
    cube.update(np.repeat(hosts, 1000), np.tile(np.arange(1000, dtype=np.uint32), len(hosts)))
    assert np.allclose(cube.estimate_many(hosts).peers, 1000, atol=10)
