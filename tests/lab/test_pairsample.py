"""The pair sample against the oracle: the pairs kept, the estimates, and how often the intervals hold."""

from __future__ import annotations

import numpy as np
import pytest

import naive_rivals
from shapes import zipf
from superhosts import GeometryError
from superhosts.core.hashing import DEFAULT_KEY, mangle32
from superhosts.detectors.engines.base import Tuning
from superhosts.lab.rivals.pairsample import Geometry, PairSample
from tuned import tuned

pytestmark = pytest.mark.slow

SMALL = Geometry(pairs=500)


def traffic(count: int, hosts: int = 20, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    known = rng.integers(0, 1 << 32, hosts, dtype=np.uint32)
    chosen = np.minimum(rng.geometric(0.2, count) - 1, hosts - 1)
    return known[chosen], rng.integers(0, 1000, count, dtype=np.uint32)


def filled(detector: PairSample, hosts: np.ndarray, peers: np.ndarray) -> naive_rivals.PairSample:
    detector.update(hosts, peers)
    oracle = naive_rivals.PairSample(detector.geometry.pairs, DEFAULT_KEY)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    return oracle


def mangled(detector: PairSample, host: int) -> int:
    return int(mangle32(np.uint64(host), detector.key))


@pytest.mark.parametrize("waiting", [1, 7, 1 << 20])
@pytest.mark.parametrize("count", [1, 100, 499, 500, 501, 20_000])
def test_the_pairs_kept_are_the_oracles(count, waiting):
    """The buffer of new pairs is merged after every pair, after a few, or when the sample is asked."""
    detector = tuned(PairSample, Tuning(min_pending=waiting))(geometry=SMALL)
    hosts, peers = (
        traffic(count) if count > 501 else (np.arange(count, dtype=np.uint32) % 9, np.arange(count).astype("u4"))
    )
    oracle = filled(detector, hosts, peers)
    assert detector.arrays()["pairs"].tolist() == oracle.kept()
    expected = oracle.estimates()
    for threshold in (1, 30, 45.5):
        found = detector.super_hosts(threshold)
        got = {mangled(detector, int(h)): int(n) for h, n in zip(found.hosts, found.peers, strict=True)}
        assert got == {m: round(n) for m, n in expected.items() if n >= threshold}
    for host in np.unique(hosts).tolist():
        assert detector.estimate(host).peers == round(expected.get(mangled(detector, host), 0))
    assert list(detector.top(3)) == list(detector.super_hosts(1))[:3]


def test_numbers_are_exact_until_the_sample_is_full():
    shape = zipf()
    detector = PairSample("4MiB")
    detector.update(shape.hosts, shape.peers)
    found = detector.super_hosts(1)
    assert dict(zip(found.hosts.tolist(), found.peers.tolist(), strict=True)) == shape.truth
    assert np.array_equal(found.peers_low, found.peers)
    assert np.array_equal(found.peers_high, found.peers)
    nobody = detector.estimate("255.1.2.3")
    assert (nobody.peers, nobody.peers_low, nobody.peers_high) == (0, 0, 0)


def test_rows_are_marked_as_exact_while_every_pair_is_kept():
    hosts, peers = np.zeros(100, np.uint32), np.arange(100, dtype=np.uint32)

    def filled(peers=peers, pairs=100, memory=1000):
        detector = PairSample(geometry=Geometry(memory))
        detector.update(hosts[:pairs], peers[:pairs])
        return detector

    def is_exact(detector):
        (row,) = detector.super_hosts(1)
        assert detector.estimate(0).exact == row.exact
        return row.exact

    assert is_exact(filled())
    assert not is_exact(filled(memory=50))
    assert is_exact(filled(peers.astype(np.uint64)))
    wide = filled(peers + np.uint64(1 << 40))
    assert not is_exact(wide)  # Two peers may have been folded into one.
    merged = filled()
    merged.merge(filled(pairs=50))
    assert is_exact(merged)
    merged.merge(wide)
    assert not is_exact(merged)
    wide.clear()
    wide.update(hosts, peers)
    assert is_exact(wide)


@pytest.mark.parametrize("peers", [1, 10, 100, 1000, 10_000])
def test_intervals_hold_for_hosts_of_all_sizes(peers):
    """A sample of one pair in fifty; consecutive peers, whose hashes must still be independent."""
    hosts = np.repeat(np.arange(200_000 // peers, dtype=np.uint32), peers)
    detector = PairSample(geometry=Geometry(4000))
    detector.update(hosts, np.tile(np.arange(peers, dtype=np.uint32), 200_000 // peers))
    rows = detector.estimate_many(np.unique(hosts))
    assert rows.peers.sum() == pytest.approx(200_000, rel=4 / np.sqrt(4000))
    held = (rows.peers_low <= peers) & (peers <= rows.peers_high)
    fewest = 0.95 - 4 * np.sqrt(0.05 * 0.95 / len(held)) - 0.01  # The score interval is approximate.
    assert held.mean() >= fewest
    if peers >= 1000:
        deviation = np.sqrt(peers * 49)  # s is binomial with p = 1/50, and n = 50·s
        assert 0.6 < np.std(rows.peers) / deviation < 1.5
    assert not rows.saturated.any()


def test_a_host_without_a_sampled_pair_may_still_have_peers():
    detector = PairSample(geometry=SMALL)
    detector.update(np.full(50_000, 7, np.uint32), np.arange(50_000, dtype=np.uint32))
    nobody = detector.estimate(8)
    assert (nobody.peers, nobody.peers_low) == (0, 0)
    assert nobody.peers_high == pytest.approx(3.84 * 100, rel=0.2)  # z²/p


def test_peers_of_every_width_are_folded_as_the_oracle_does():
    rng = np.random.default_rng(5)
    hosts, low = traffic(400)
    high = np.where(np.arange(400) % 2, rng.integers(0, 1 << 63, 400), 0).astype(np.uint64)
    middle = low.astype(np.uint64) | np.uint64(5 << 40)
    oracle, detector = naive_rivals.PairSample(SMALL.pairs, DEFAULT_KEY), PairSample(geometry=SMALL)
    for host, a, b in zip(hosts.tolist(), high.tolist(), middle.tolist(), strict=True):
        oracle.update(host, a << 64 | b)
    detector.update(hosts, np.stack([high, middle], axis=1))
    assert detector.arrays()["pairs"].tolist() == oracle.kept()
    narrow, wide = PairSample(geometry=SMALL), PairSample(geometry=SMALL)
    narrow.update(hosts, low)
    wide.update(hosts, low.astype(np.uint64))
    assert np.array_equal(narrow.arrays()["pairs"], wide.arrays()["pairs"])


def test_a_merge_counts_what_waits_in_both():
    hosts, peers = traffic(3000)
    whole, left, right = (PairSample(geometry=SMALL) for _ in range(3))
    whole.update(hosts, peers)
    left.update(hosts[:1500], peers[:1500])
    for start in range(1500, 3000, 50):  # The last pairs still wait when the two are merged.
        right.update(hosts[start : start + 50], peers[start : start + 50])
    left.merge(right)
    assert np.array_equal(left.arrays()["pairs"], whole.arrays()["pairs"])


def test_all_of_the_memory_holds_pairs():
    detector = PairSample("1MiB")
    assert detector.memory == detector.geometry.memory == 1 << 20
    assert detector.geometry.pairs == 1 << 17
    assert Geometry.for_memory("128MiB") == Geometry()
    with pytest.raises(GeometryError, match="too small for pairsample: 16 pairs take 128 B"):
        PairSample(127)
    with pytest.raises(GeometryError, match="pairs=3"):
        PairSample(geometry=Geometry(3))


def test_no_host_has_more_peers_than_there_are_addresses():
    detector = PairSample(geometry=Geometry(16))
    detector.kept[:], detector.count = np.arange(16), 16
    rows = list(detector.super_hosts(1))
    assert {(row.peers, row.peers_high) for row in rows} == {(1 << 32, 1 << 32)}
    assert all(1 <= row.peers_low <= row.peers for row in rows)
