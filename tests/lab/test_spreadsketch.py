"""SpreadSketch against the oracle: bitmaps, labels, counts and the hosts found."""

from __future__ import annotations

import math

import numpy as np
import pytest

import naive
from superhosts import GeometryError
from superhosts.core.hashing import DEFAULT_KEY, mangle32
from superhosts.detectors.engines.base import Tuning
from superhosts.lab.rivals import spreadsketch
from superhosts.lab.rivals.spreadsketch import SATURATION, Geometry, SpreadSketch
from tuned import tuned

pytestmark = pytest.mark.slow

SMALL = Geometry(rows=3, buckets=7)


def traffic(count: int = 3000, hosts: int = 12, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    known = rng.integers(0, 1 << 32, hosts, dtype=np.uint32)
    chosen = np.minimum(rng.geometric(0.3, count) - 1, hosts - 1)
    return known[chosen], rng.integers(0, 1 << 32, count, dtype=np.uint32)


def filled(detector: SpreadSketch, hosts: np.ndarray, peers: np.ndarray) -> naive.SpreadSketch:
    detector.update(hosts, peers)
    oracle = naive.SpreadSketch(detector.geometry.rows, detector.geometry.buckets, DEFAULT_KEY)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    return oracle


def mangled(detector: SpreadSketch, host: int) -> int:
    return int(mangle32(np.uint64(host), detector.key))


def assert_equal(detector: SpreadSketch, oracle: naive.SpreadSketch) -> None:
    """Assert that bits and labels are those of the oracle."""
    expected = np.zeros_like(detector.buckets)
    for (row, bucket), seen in oracle.maps.items():
        line = expected[row * detector.geometry.buckets + bucket]
        for component, bit in seen:
            place = 32 * component + bit
            line[place // 64] |= np.uint64(1 << place % 64)
        level, host = oracle.labels[row, bucket]
        line[7] = (level + 1) << 32 | host
    assert np.array_equal(detector.buckets, expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_buckets_are_the_oracles(threads):
    detector = tuned(SpreadSketch, Tuning(min_pairs_per_thread=100))(geometry=SMALL, threads=threads)
    assert_equal(detector, filled(detector, *traffic()))


@pytest.mark.parametrize("count", [200, 3000, 20_000])
def test_answers_are_the_oracles(count):
    """The traffic ranges from nearly empty bitmaps to those whose first components are full."""
    hosts, peers = traffic(count)
    detector = SpreadSketch(geometry=SMALL)
    oracle = filled(detector, hosts, peers)
    for threshold in (1, 50, 400):
        expected = oracle.find(threshold)
        found = detector.super_hosts(threshold)
        got = {mangled(detector, int(h)): int(n) for h, n in zip(found.hosts, found.peers, strict=True)}
        assert got == {host: round(peers) for host, peers in expected.items()}
    for host in set(hosts.tolist()):
        assert detector.estimate(host).peers == round(oracle.estimate(mangled(detector, host)))
    assert list(detector.top(3)) == list(detector.super_hosts(1))[:3]


def test_scalar_functions_in_plain_python():
    pair = (0b110 << 61) | (37 << 40) | 0b0111
    assert spreadsketch.component_of.py_func(pair) == 2
    assert spreadsketch.level_of.py_func(pair) == 3
    every = (1 << 64) - 1
    assert spreadsketch.component_of(np.uint64(every)) == spreadsketch.component_of.py_func(every) == 12
    assert spreadsketch.level_of(np.uint64(every)) == spreadsketch.level_of.py_func(every) == 32
    assert spreadsketch.place_of(np.uint64(every)) == 447


@pytest.mark.parametrize("peers", [10, 100, 1000, 10_000, 100_000, 600_000])
def test_counts_and_their_deviations_hold_over_the_whole_range(peers):
    """The errors of ninety-nine isolated hosts have the deviation that the interval claims, and little bias."""
    rng = np.random.default_rng(peers)
    runs = 99 if peers < 100_000 else 25
    errors = []
    for _ in range(runs):
        detector = SpreadSketch(geometry=Geometry(1, 2))
        first = rng.integers(0, 1 << 31, dtype=np.uint32)
        detector.update(np.full(peers, 77, np.uint32), first + np.arange(peers, dtype=np.uint32))
        row = detector.estimate(77)
        out, deviation = np.empty(1), np.empty(1)
        host = np.array([mangled(detector, 77)], np.uint32)
        spreadsketch.measure(host, detector.buckets, detector.geometry, detector.key, out, deviation)
        errors.append((out[0] - peers) / deviation[0])
        assert not row.saturated
        assert row.peers_high >= row.peers >= row.peers_low
    assert abs(np.mean(errors)) < 0.5
    assert 0.6 < np.std(errors) < 1.5


def test_a_full_bitmap_is_saturated():
    detector = SpreadSketch(geometry=Geometry(1, 4096))
    host = np.full(1 << 20, 5, np.uint32)
    for turn in range(3):
        detector.update(host, np.arange(turn << 20, (turn + 1) << 20, dtype=np.uint32))
    row = detector.estimate(5)
    assert row.saturated
    crowd = math.e * SATURATION / 4096  # One of all buckets is full.
    assert int(SATURATION) == 1_090_226
    assert row.peers is None
    assert row.peers_low == math.floor(748_043 - crowd)  # 2^12·64·(ln 64 − ln 3.69)
    assert row.peers_high is None
    assert [r.host for r in detector.super_hosts(5_000_000)] == [row.host]


def test_the_interval_reaches_down_by_what_others_may_have_added():
    """Small hosts in crowded buckets: the estimate counts mostly other hosts, and the interval reflects this."""
    rng = np.random.default_rng(6)
    hosts = np.repeat(rng.integers(0, 1 << 32, 500, dtype=np.uint32), 10)
    detector = SpreadSketch(geometry=Geometry(rows=4, buckets=64))
    detector.update(hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32))
    rows = [detector.estimate(host) for host in np.unique(hosts)[:100]]
    assert np.mean([row.peers for row in rows]) > 40
    assert np.mean([row.peers_low <= 10 <= row.peers_high for row in rows]) > 0.95


def test_the_larger_host_wins_a_level_that_two_share():
    """This holds even when it arrives first or comes from another site."""
    hosts = np.arange(50, dtype=np.uint32)
    detectors = [SpreadSketch(geometry=Geometry(1, 2)) for _ in range(3)]
    peers = np.arange(3000, dtype=np.uint32)
    for host in hosts:
        detectors[0].update(np.full(3000, host, np.uint32), peers)
    for host in hosts[::-1]:
        detectors[1 + int(host) % 2].update(np.full(3000, host, np.uint32), peers)
    detectors[1].merge(detectors[2])
    assert np.array_equal(detectors[0].buckets, detectors[1].buckets)


def test_memory_is_true_and_chooses_the_buckets():
    detector = SpreadSketch("1MiB")
    assert detector.memory == detector.geometry.memory == detector.buckets.nbytes == 1 << 20
    assert Geometry.for_memory("128MiB") == Geometry()
    with pytest.raises(GeometryError, match="too small for spreadsketch"):
        SpreadSketch(500)
    with pytest.raises(GeometryError, match="rows=0"):
        SpreadSketch(geometry=Geometry(0, 5))
