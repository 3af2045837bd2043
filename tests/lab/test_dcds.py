"""DCDS against the oracle: bits, the way back from columns to an address, and the search over all combinations."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from superhosts import GeometryError
from superhosts.core import device
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.lab.rivals import dcds
from superhosts.lab.rivals.base import as_words
from superhosts.lab.rivals.dcds import Dcds, Geometry

pytestmark = pytest.mark.slow

LONG = Geometry(column_bits=8)
TINY = Geometry(6, (41, 43, 47, 53, 59, 61, 37), 6)  # six small moduli whose product exceeds 2^32: few columns
NO_PRE_CHECK = {"prefix_words": 1, "prefix_ones": 0}  # The pre-check may drop noise that is not a host.
needs_cuda = pytest.mark.skipif(device.cuda_problem() is not None, reason=f"no GPU: {device.cuda_problem()}")


def traffic(seed: int, big: int, small: int, peers: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    hosts = np.repeat(rng.integers(0, 1 << 32, big, dtype=np.uint32), peers)
    hosts = np.concatenate([hosts, rng.integers(0, 1 << 32, small, dtype=np.uint32)])
    return hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32)


def filled(detector: Dcds, hosts: np.ndarray, peers: np.ndarray) -> naive.Dcds:
    """Add pairs to a detector and to an oracle of the same geometry; return the oracle."""
    detector.update(hosts, peers)
    oracle = naive.Dcds(*detector.geometry, DEFAULT_KEY)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    return oracle


def assert_bits(detector: Dcds, oracle: naive.Dcds) -> None:
    expected = np.zeros((detector.geometry.total_columns, detector.geometry.rows), bool)
    edges = detector.geometry.edges
    for (array, column), rows in oracle.arrays.items():
        expected[edges[array] + column, list(rows)] = True
    stored = np.unpackbits(detector.arrays()["bits"].view(np.uint8), axis=1, bitorder="little").astype(bool)
    assert np.array_equal(stored, expected)
    assert np.array_equal(detector.engine.zeros(), (~expected).sum(axis=1))


def found(detector: Dcds, threshold: float, **limits: int) -> dict[int, list[int]]:
    """Return the mangled hosts of the search with their zero counts; assert that there are no duplicates."""
    mangled, counts = detector.engine.search(detector.search_for(threshold)._replace(**limits))
    assert not mangled[:, 0].any()
    result = dict(zip(mangled[:, 1].tolist(), counts.tolist(), strict=True))
    assert len(result) == len(mangled)
    return result


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("geometry", [LONG, TINY], ids=["2+1", "6+1"])
def test_bits_are_the_oracles(geometry, threads):
    detector = Dcds(geometry=geometry, threads=threads, device="cpu")
    hosts, peers = traffic(1, 5, 2000)
    oracle = filled(detector, hosts[:1000], peers[:1000])
    detector.flush()
    assert_bits(detector, oracle)
    detector.update(hosts[900:], peers[900:])  # repeats some pairs after a drain
    for host, peer in zip(hosts[900:].tolist(), peers[900:].tolist(), strict=True):
        oracle.update(host, peer)
    assert_bits(detector, oracle)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "geometry",
    [
        LONG,
        LONG._replace(moduli=(65537, 65536)),
        LONG._replace(moduli=(65536, 70001, 997, 101)),
        Geometry(3, (1627, 1637, 1657, 211), 8),
    ],
    ids=["2+1", "2+0", "2+2", "3+1"],
)
def test_the_search_finds_what_all_combinations_give(geometry, threads):
    """Compare hosts and zero counts."""
    detector = Dcds(geometry=geometry, threads=threads, device="cpu")
    hosts, peers = traffic(2, 30, 2000)
    detector.update(hosts, peers)
    expected = all_combinations(geometry)
    assert found(detector, 200, **NO_PRE_CHECK) == expected
    key = naive.Dcds(*geometry, DEFAULT_KEY).key
    assert {naive.mangle32(host, key) for host in hosts[: 30 * 300].tolist()} <= expected.keys()


@lru_cache
def all_combinations(geometry: Geometry) -> dict[int, tuple[int, ...]]:
    """Return the hosts with 200 peers in the traffic of the search's test, found by testing all combinations."""
    oracle = filled(Dcds(geometry=geometry, device="cpu"), *traffic(2, 30, 2000))
    return oracle.restore(naive.zero_limit(geometry.rows, 200))


def test_what_begins_in_crowded_columns_is_a_combination_below_two_to_the_32():
    """All columns are full: every combination is a number, and numbers beyond the last address are dropped."""
    geometry = Geometry(2, (1 << 20, 65537), 6)  # their product is 16 times the number of addresses
    detector = Dcds(geometry=geometry, device="cpu", threads=2)
    hosts = np.repeat(np.arange(24, dtype=np.uint32), 2000)
    oracle = filled(detector, hosts, np.arange(len(hosts), dtype=np.uint32))
    expected = oracle.restore(10)
    assert len(expected) > 24
    assert found(detector, 400, **NO_PRE_CHECK) == oracle.restore(naive.zero_limit(64, 400))
    own = {naive.mangle32(host, oracle.key) for host in range(24)}
    assert own <= expected.keys()
    assert len(expected) < 24 * 24  # Most combinations of such columns are beyond 2^32.
    detector.clear()
    assert not found(detector, 400, **NO_PRE_CHECK)


@given(st.integers(0, (1 << 32) - 1), st.sampled_from([LONG, TINY, Geometry(2, (1 << 20, 4099), 6)]))
def test_columns_give_the_address_back(mangled, geometry):
    before, inverses = geometry.check().steps
    number = 0
    for array in range(geometry.reversible):
        modulus = geometry.moduli[array]
        column = int(dcds.column_of.py_func(mangled, modulus))
        assert column == mangled % modulus
        number = dcds.garner_step.py_func(number, column, modulus, before[array], inverses[array])
        assert number == mangled % (before[array] * modulus)
    assert number == mangled


def test_the_published_setting():
    geometry = Geometry.for_memory("384MiB")
    assert geometry == Geometry()
    assert geometry.rows == 1 << 14
    assert 0 <= geometry.memory / (384 << 20) - 1 < 1e-4
    assert Geometry.for_memory("383MiB").column_bits == 13
    assert Geometry.for_memory("2MiB").column_bits == 6
    with pytest.raises(GeometryError, match=r"too small for dcds: at least 1\.5 MiB"):
        Dcds("1MiB")


@pytest.mark.parametrize(
    ("geometry", "rule"),
    [
        (Geometry(moduli=(65537, 65539, 65539)), "65539 and 65539 are not coprime"),
        (Geometry(moduli=(65536, 65538, 3)), "65536 and 65538 are not coprime"),
        (Geometry(moduli=(65535, 65536, 65537)), r"2\^32 or more"),  # 65535·65536 is just below
        (Geometry(moduli=(65537,)), "one for each of the 2 reversible arrays"),
        (Geometry(moduli=(65537, 65539, 0)), "whole numbers from 2"),
        (Geometry(moduli=(65537, 65539, 1.5)), "whole numbers from 2"),
        (Geometry(moduli=65537), "one for each"),
        (Geometry(4, (1048573, 1048571, 1048559, 1048549)), r"less than 2\^62"),
        (Geometry(reversible=1), "reversible=1"),
        (Geometry(column_bits=5), "column_bits=5"),
    ],
)
def test_illegal_geometries_are_refused_with_the_rule(geometry, rule):
    with pytest.raises(GeometryError, match=rule):
        Dcds(geometry=geometry)


def test_numbers_are_linear_counting_without_noise_removed():
    detector = Dcds(geometry=LONG, device="cpu")
    hosts, peers = traffic(3, 3, 30_000, peers=100)
    oracle = filled(detector, hosts, peers)
    for host in (*hosts[:300:100].tolist(), 12345):
        zeros = oracle.zeros(naive.mangle32(host, oracle.key))
        assert detector.engine.measure(as_words(np.array([naive.mangle32(host, oracle.key)])))[0].tolist() == zeros
        n = 256 * math.log(256 / zeros[-1])
        sigma = math.sqrt(256 * (math.exp(n / 256) - n / 256 - 1))
        row = detector.estimate(host)
        assert row.peers == round(n)
        assert row.peers_low == max(0, math.floor(n - 1.959963984540054 * sigma))
        assert row.peers_high == math.ceil(n + 1.959963984540054 * sigma)
        assert not row.saturated


@needs_cuda
def test_the_gpu_has_the_oracles_bits_and_finds_what_the_cpu_finds():
    """An array has more hot columns than a simulated block has threads."""
    geometry = TINY._replace(column_bits=7)
    on_cpu, on_gpu = (Dcds(geometry=geometry, device=where, threads=2) for where in ("cpu", "cuda"))
    hosts, peers = traffic(5, 6, 12, peers=100)
    oracle = filled(on_gpu, hosts, peers)
    on_cpu.update(hosts, peers)
    assert_bits(on_gpu, oracle)
    assert np.array_equal(on_cpu.engine.zeros(), on_gpu.engine.zeros())
    expected = found(on_cpu, 80)
    assert {naive.mangle32(host, oracle.key) for host in hosts[:600].tolist()} <= expected.keys()
    assert found(on_gpu, 80) == expected
    assert on_gpu.super_hosts(80).to_dict() == on_cpu.super_hosts(80).to_dict()  # The lists of hot columns are reset.
    assert on_gpu.estimate(int(hosts[0])) == on_cpu.estimate(int(hosts[0]))


@needs_cuda
def test_the_gpu_combines_all_hot_columns_as_the_cpu_does():
    """Big hosts fill tiny arrays: there are many more combinations than hosts, some beyond the last address."""
    on_cpu, on_gpu = (Dcds(geometry=TINY, device=where, threads=2) for where in ("cpu", "cuda"))
    for detector in (on_cpu, on_gpu):
        detector.update(np.repeat(np.array([1, 2], np.uint32), 300), np.arange(600, dtype=np.uint32))
    expected = found(on_cpu, 100)
    assert len(expected) > 2
    assert found(on_gpu, 100) == expected
