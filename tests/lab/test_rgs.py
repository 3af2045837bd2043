"""RGS-Sketch against the oracle: registers, cells and the hosts found, and how often the intervals hold."""

from __future__ import annotations

import numpy as np
import pytest

import naive_rivals
from superhosts import GeometryError
from superhosts.core.hashing import DEFAULT_KEY, mangle32
from superhosts.lab.rivals.rgs import Geometry, Rgs

pytestmark = pytest.mark.slow

SMALL = Geometry(groups=60, buckets=3)


def traffic(count: int = 3000, hosts: int = 60, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    known = rng.integers(0, 1 << 32, hosts, dtype=np.uint32)
    chosen = np.minimum(rng.geometric(0.08, count) - 1, hosts - 1)
    return known[chosen], rng.integers(0, 1000, count, dtype=np.uint32)


def heavy_tailed(seed: int) -> tuple[np.ndarray, np.ndarray, dict[int, int]]:
    """Return 90,000 distinct pairs of 6,000 hosts in random order, and the number of peers of each."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.pareto(1.05, 6000) + 1, 6000)
    sizes = np.maximum(1, sizes * 90_000 / sizes.sum()).astype(np.int64)
    names = rng.permutation(np.unique(rng.integers(0, 1 << 32, 12_000, dtype=np.uint32)))[:6000]
    hosts = np.repeat(names, sizes)
    order = rng.permutation(len(hosts))
    peers = rng.permutation(1 << 20)[: len(hosts)].astype(np.uint32)
    return hosts[order], peers, dict(zip(names.tolist(), sizes.tolist(), strict=True))


def filled(detector: Rgs, hosts: np.ndarray, peers: np.ndarray) -> naive_rivals.Rgs:
    detector.update(hosts, peers)
    oracle = naive_rivals.Rgs(detector.geometry.groups, detector.geometry.buckets, DEFAULT_KEY)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    return oracle


def assert_equal(detector: Rgs, oracle: naive_rivals.Rgs) -> None:
    """Assert that registers and cells are those of the oracle."""
    arrays = detector.arrays()
    words = [int.from_bytes(group.tobytes(), "little") for group in arrays["groups"]]
    assert [[word >> 5 * place & 31 for place in range(8)] for word in words] == oracle.groups
    cells = arrays["cells"].reshape(-1, 8, 2).tolist()
    assert cells == [bucket + [[0, 0]] * (8 - len(bucket)) for bucket in oracle.buckets]


@pytest.mark.parametrize("count", [10, 300, 3000, 40_000])
def test_registers_cells_and_answers_are_the_oracles(count):
    """The traffic ranges from empty cells to buckets in which hosts replace each other."""
    hosts, peers = traffic(count)
    if count > 10_000:
        peers = np.random.default_rng(2).integers(0, 1 << 32, count, dtype=np.uint32)
    detector = Rgs(geometry=SMALL)
    oracle = filled(detector, hosts, peers)
    assert_equal(detector, oracle)
    for threshold in (1, 20, 45.5):
        found = detector.super_hosts(threshold)
        got = {int(mangle32(np.uint64(h), detector.key)): int(n) for h, n in zip(found.hosts, found.peers, strict=True)}
        assert got == oracle.find(threshold)
    for host in np.unique(hosts).tolist():
        row = detector.estimate(host)
        assert row.peers == oracle.find(1).get(int(mangle32(np.uint64(host), detector.key)), 0)
        assert row.peers_low <= row.peers <= row.peers_high
    assert list(detector.top(3)) == list(detector.super_hosts(1))[:3]


@pytest.mark.parametrize("peers", [10, 100, 1000, 20_000])
def test_counts_are_unbiased_and_intervals_hold(peers):
    """Hosts that hardly share registers: 256 of them count with a deviation of about 5 %."""
    hosts = np.repeat(np.arange(100, dtype=np.uint32), peers)
    detector = Rgs("4MiB")
    detector.update(hosts, np.tile(np.arange(peers, dtype=np.uint32), 100))
    rows = detector.estimate_many(np.arange(100, dtype=np.uint32))
    assert rows.peers.mean() == pytest.approx(peers, rel=4 * 0.06 / np.sqrt(100))
    assert 0.02 < rows.peers.std() / peers < 0.08
    assert np.mean((rows.peers_low <= peers) & (peers <= rows.peers_high)) >= 0.95
    assert np.mean(rows.peers_high - rows.peers_low) < 6 * 0.06 * peers + 2
    assert not rows.saturated.any()


def test_the_largest_hosts_are_found_in_little_memory():
    """90,000 pairs in 10 KB: the published 0.9 M pairs in 100 KB, ten times smaller."""
    right = 0
    for seed in range(4):
        hosts, peers, truth = heavy_tailed(seed)
        detector = Rgs(10_000)
        detector.update(hosts, peers)
        largest = sorted(truth, key=truth.__getitem__, reverse=True)[:20]
        right += len(set(detector.top(20).hosts.tolist()) & set(largest))
    assert right >= 72


def test_intervals_of_crowded_hosts_hold_wherever_they_stand():
    """This includes hosts without a cell."""
    held, without = [], 0
    for seed in range(4):
        hosts, peers, truth = heavy_tailed(seed)
        detector = Rgs(10_000)
        detector.update(hosts, peers)
        names = np.array(list(truth), np.uint32)
        rows = detector.estimate_many(names)
        sizes = np.array(list(truth.values()))
        held.append(np.mean((rows.peers_low <= sizes) & (sizes <= rows.peers_high)))
        without += int((rows.peers == 0).sum())
    assert without > 10_000
    assert np.mean(held) >= 0.95


def test_the_interval_reaches_down_by_what_a_host_inherited():
    """Hosts of one peer that took over a cell continue its count, and their lower bound says so."""
    detector = Rgs(geometry=Geometry(groups=1 << 16, buckets=2))
    rng = np.random.default_rng(3)
    big, small = np.repeat(np.arange(16, dtype=np.uint32), 100), np.arange(1000, 21_000, dtype=np.uint32)
    detector.update(big, rng.integers(0, 1 << 32, len(big), dtype=np.uint32))
    detector.update(small, small)
    heirs = [row for row in detector.super_hosts(50) if int(row.host) >= 1000]
    assert len(heirs) >= 5
    assert all(row.peers_low <= 1 for row in heirs)


def test_small_hosts_leave_the_registers_alone():
    """A pair whose host gets no cell raises no register: 20,000 small hosts raise few."""
    rng = np.random.default_rng(3)
    big = np.repeat(np.arange(50, dtype=np.uint32), 500)
    detector = Rgs(geometry=Geometry(groups=4000, buckets=2))
    detector.update(big, rng.integers(0, 1 << 32, len(big), dtype=np.uint32))
    before = np.count_nonzero(detector.arrays()["groups"])
    small = rng.integers(0, 1 << 32, 20_000, dtype=np.uint32)
    detector.update(small, small)
    assert np.count_nonzero(detector.arrays()["groups"]) - before < 500


def test_a_full_count_is_a_lower_bound():
    detector = Rgs(geometry=SMALL)
    detector.update(np.full(9, 7, np.uint32), np.arange(9, dtype=np.uint32))
    arrays = detector.arrays()
    arrays["cells"][arrays["cells"][:, 1] > 0, 1] = 0xFFFFFFFE
    assert not detector.estimate(7).saturated
    detector.update(np.full(99, 7, np.uint32), np.arange(50, 149, dtype=np.uint32))
    row = detector.estimate(7)
    assert row.saturated
    assert row.peers is row.peers_high is None
    assert 0xFFFF0000 - 200_000 < row.peers_low < 0xFFFFFFFF


def test_a_register_with_the_largest_value_cannot_be_raised():
    """Seven of eight registers are at their end: a pair that raises the eighth counts for eight."""
    detector, oracle = Rgs(geometry=SMALL), naive_rivals.Rgs(SMALL.groups, SMALL.buckets, DEFAULT_KEY)
    word = sum(31 << 5 * place for place in range(7))
    groups = np.tile(np.frombuffer(word.to_bytes(5, "little"), np.uint8), (SMALL.groups, 1))
    detector.arrays()["groups"][:] = groups
    oracle.groups = [[31] * 7 + [0] for _ in range(SMALL.groups)]
    hosts, peers = traffic(500)
    detector.update(hosts, peers)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    assert_equal(detector, oracle)
    assert np.unique(detector.arrays()["cells"][:, 1]).tolist()[:2] == [0, 8]


def test_memory_is_true_and_split_as_published():
    detector = Rgs(100 * 1024)
    assert detector.geometry == Geometry(groups=13312, buckets=560)
    assert detector.memory == detector.geometry.memory == 100 * 1024
    assert Geometry.for_memory("128MiB") == Geometry()
    with pytest.raises(GeometryError, match="too small for rgs: use 366 B or more"):
        Rgs(365)
    assert Rgs(366).geometry.buckets == 2
    with pytest.raises(GeometryError, match="groups=1"):
        Rgs(geometry=Geometry(1, 5))
