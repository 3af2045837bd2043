"""The exact detector: wide hosts, compaction, and memory that grows with distinct pairs."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from superhosts import Cbaa, Exact
from superhosts.core.pairs import array_to_numbers, numbers_to_array
from superhosts.detectors.engines.base import Tuning
from tuned import tuned


def pairs_of(bits: int, peer_bits: int, count: int = 4000) -> list[tuple[int, int]]:
    rng = np.random.default_rng(bits + peer_bits)
    spread = 0x9E3779B97F4A7C15F39CC0605CEDC835
    hosts = [int(x) * spread & (1 << bits) - 1 for x in rng.integers(0, 30, count)]
    peers = [int(x) * spread & (1 << peer_bits) - 1 for x in rng.integers(0, 200, count)]
    return list(zip(hosts, peers, strict=True))


@pytest.mark.parametrize(("bits", "peer_bits"), [(32, 32), (32, 64), (32, 128), (64, 64), (64, 128), (128, 128)])
def test_counts_are_those_of_sets(bits, peer_bits):
    pairs = pairs_of(bits, peer_bits)
    exact = tuned(Exact, Tuning(min_pending=500))(key_bits=bits)  # compacts often
    for start in range(0, len(pairs), 333):
        piece = pairs[start : start + 333]
        exact.update(
            numbers_to_array([host for host, _ in piece], bits),
            numbers_to_array([peer for _, peer in piece], peer_bits),
        )
    hosts, peers = exact.counts()
    assert dict(zip(array_to_numbers(hosts), peers.tolist(), strict=True)) == naive.peers(pairs)


def test_a_pair_is_the_same_in_every_width():
    exact, other = Exact(), Exact()
    pairs = pairs_of(32, 32)
    hosts, peers = (numbers_to_array(list(column), 32) for column in zip(*pairs, strict=True))
    exact.update(hosts, peers)
    exact.update(hosts, peers.astype(np.uint64))
    other.update(hosts, peers.astype(np.uint64))
    exact.merge(other)
    other.merge(exact)
    for detector in (exact, other):
        found, counts = detector.counts()
        assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == naive.peers(pairs)


def test_memory_follows_distinct_pairs_not_packets():
    exact = tuned(Exact, Tuning(min_pending=1000))()
    hosts, peers = np.zeros(900, np.uint32), np.arange(900, dtype=np.uint32)
    for _ in range(50):
        exact.update(hosts, peers)
    assert exact.memory <= 8 * (900 + 1900)
    assert exact.estimate("0.0.0.0").peers == 900


def test_results_say_that_they_were_counted():
    exact = Exact()
    exact.update(np.array([1, 1, 2], np.uint32), np.array([5, 6, 7], np.uint32))
    answers = [exact.super_hosts(1), exact.super_hosts(1).select(slice(0, 1)), exact.top(1), exact.estimate_many([2])]
    assert all(row.exact for answer in answers for row in answer)
    assert [answer.exact.tolist() for answer in answers] == [[True] * 2, [True], [True], [True]]
    assert not Cbaa("8MiB", device="cpu").estimate_many([2]).exact.any()
