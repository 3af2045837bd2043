"""The line-speed filter against the oracle: marked pairs, counters to the last bit, and the list."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from shapes import one_scanner, zipf
from superhosts import GeometryError, UsageError
from superhosts.core.hashing import DEFAULT_KEY, make_key, mangle32, unmangle32
from superhosts.detectors.engines.base import Tuning
from superhosts.lab.rivals.base import HostSet
from superhosts.lab.rivals.filter import Filter, Geometry
from tuned import tuned

pytestmark = pytest.mark.slow

SMALL = Geometry(words=40, rows=3, counters=50, threshold=20)


def traffic(count: int = 3000, hosts: int = 40, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    known = rng.integers(0, 1 << 32, hosts, dtype=np.uint32)
    chosen = np.minimum(rng.geometric(0.1, count) - 1, hosts - 1)
    return known[chosen], rng.integers(0, 300, count, dtype=np.uint32)


def filled(detector: Filter, hosts: np.ndarray, peers: np.ndarray) -> naive.Filter:
    detector.update(hosts, peers)
    oracle = naive.Filter(detector.geometry._asdict(), DEFAULT_KEY)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    return oracle


def assert_equal(detector: Filter, oracle: naive.Filter) -> None:
    bits = np.flatnonzero(np.unpackbits(detector.bits.view(np.uint8), bitorder="little"))
    assert set(bits.tolist()) == oracle.marked
    assert detector.ones == len(oracle.marked)
    expected = np.zeros_like(detector.counters)
    for (row, counter), value in oracle.counters.items():
        expected[row * detector.geometry.counters + counter] = value
    assert np.array_equal(detector.counters, expected)
    assert detector.arrays()["hosts"].tolist() == sorted(oracle.listed)


@pytest.mark.parametrize("count", [100, 3000, 40_000])
def test_bits_counters_and_list_are_the_oracles(count):
    """The traffic ranges up to a bit array in which no bit is clear."""
    hosts, peers = traffic(count)
    if count > 10_000:
        peers = np.random.default_rng(2).integers(0, 1 << 32, count, dtype=np.uint32)
    detector = Filter(geometry=SMALL)
    oracle = filled(detector, hosts, peers)
    assert_equal(detector, oracle)
    for threshold in (20, 45.5, 100):
        found = detector.super_hosts(threshold)
        got = {int(mangle32(np.uint64(int(row.host)), detector.key)): row.peers for row in found}
        full = len(oracle.marked) == 40 * 64
        expected = {m: round(oracle.estimate(m)) for m in oracle.listed if oracle.estimate(m) >= threshold}
        if full:
            expected = dict.fromkeys(oracle.listed)
        assert got == expected
    for host in set(hosts.tolist()):
        row = detector.estimate(host)
        estimate = round(oracle.estimate(int(mangle32(np.uint64(host), detector.key))))
        assert (row.peers, row.saturated) == ((None, True) if count > 10_000 else (estimate, False))


def test_what_a_full_filter_has_counted_is_a_lower_bound_no_more():
    """The last pairs weigh thousands each, and the bound must reflect how little is known."""
    rng = np.random.default_rng(2)
    hosts, peers = np.repeat(np.arange(40, dtype=np.uint32), 1000), rng.integers(0, 1 << 32, 40_000, dtype=np.uint32)
    order = rng.permutation(40_000)
    detector = Filter(geometry=SMALL._replace(counters=4000))
    detector.update(hosts[order], peers[order])
    rows = [detector.estimate(host) for host in range(40)]
    assert all((row.saturated, row.peers, row.peers_high) == (True, None, None) for row in rows)
    assert np.mean([row.peers_low <= 1000 for row in rows]) >= 0.95


def test_a_long_list_grows_and_counts_as_memory():
    detector = tuned(Filter, Tuning(host_slots=4))(geometry=Geometry(words=1000, rows=2, counters=5000, threshold=1))
    small = detector.memory
    hosts = np.arange(700, dtype=np.uint32)
    oracle = filled(detector, hosts, hosts)
    assert_equal(detector, oracle)
    assert len(detector.super_hosts(1)) > 600
    assert detector.memory == small + 4 * (2048 - 4)


def test_a_set_of_hosts_holds_every_host_once():
    rng = np.random.default_rng(3)
    numbers = np.concatenate([rng.integers(0, 1 << 32, 500, dtype=np.uint32), [0, 1, 2, 4, 8, 0, 0xFFFFFFFF]])
    known = HostSet(2)
    for part in np.array_split(numbers.astype(np.uint32), 7):
        known.add(part)
        known.add(part)
    assert known.hosts().tolist() == sorted(set(numbers.tolist()))
    assert known.count == len(set(numbers.tolist()))
    assert known.memory == known.slots.nbytes
    assert 2 * known.count <= len(known.slots) - 1


def test_the_host_whose_mangled_address_is_zero_is_listed():
    detector = Filter(geometry=SMALL._replace(threshold=1))
    zero = int(unmangle32(np.uint64(0), make_key(DEFAULT_KEY)))
    detector.update(np.array([zero], np.uint32), np.array([5], np.uint32))
    assert detector.super_hosts(1).hosts.tolist() == [zero]


def test_named_shapes():
    shape = one_scanner()
    detector = Filter("4MiB")
    detector.update(shape.hosts, shape.peers)
    (row,) = detector.super_hosts(1024)
    assert str(row.host) == "10.0.0.7"
    assert row.peers_low <= 5000 <= row.peers_high
    assert list(detector.top(3)) == [row]
    tail = zipf()
    detector = Filter("256KiB")
    detector.update(tail.hosts, tail.peers)
    found = detector.super_hosts(1024)
    columns = zip(found.hosts, found.peers_low, found.peers_high, strict=True)
    covered = [low <= tail.truth[int(h)] <= high for h, low, high in columns]
    assert len(covered) > 15
    assert np.mean(covered) > 0.9


def test_the_interval_reaches_down_by_what_others_may_have_added():
    """Small hosts in crowded counters: the estimate counts mostly other hosts, and the interval reflects this."""
    rng = np.random.default_rng(6)
    hosts = np.repeat(rng.integers(0, 1 << 32, 500, dtype=np.uint32), 10)
    detector = Filter(geometry=Geometry(words=4096, rows=4, counters=64, threshold=1))
    detector.update(hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32))
    rows = list(detector.super_hosts(1))
    assert np.mean([row.peers for row in rows]) > 50
    assert np.mean([row.peers_low <= 10 <= row.peers_high for row in rows]) > 0.95


def test_the_threshold_is_fixed_beforehand():
    detector = Filter("1MiB", threshold=500.5)
    assert detector.geometry.threshold == 500
    with pytest.raises(UsageError, match="threshold 400: this filter lists only hosts with at least 500 peers"):
        detector.super_hosts(400)
    assert len(detector.super_hosts(500)) == 0
    for threshold in (0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="threshold"):
            Filter("1MiB", threshold=threshold)


def test_memory_is_split_evenly():
    detector = Filter("1MiB")
    assert detector.bits.nbytes == detector.counters.nbytes == 1 << 19
    assert detector.memory == (1 << 20) + detector.listed.memory
    assert Geometry.for_memory("128MiB") == Geometry()
    with pytest.raises(GeometryError, match="too small for filter"):
        Filter(100)
    with pytest.raises(GeometryError, match="words=134217728: must be a whole number"):
        Geometry.for_memory("2GiB")
