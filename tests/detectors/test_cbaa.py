"""CBAA against the oracle: its bits, and its join compared with a test of every address."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

import naive
from cubes import assert_equal_to_oracle_of_cbaa
from shapes import near_threshold, one_scanner, zipf
from superhosts import Cbaa, GeometryError
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.detectors.cbaa import Geometry, PaperCbaa

# 10 slice bits leave 22 bits to restore, few enough to test every address.
SMALL = Geometry(slice_bits=10, restoring=3, index_bits=9, validating=2, validating_bits=3, column_bits=9)


def filled(detector: Cbaa, hosts: np.ndarray, peers: np.ndarray) -> naive.Cbaa:
    detector.update(hosts, peers)
    oracle = naive.Cbaa(detector.geometry._asdict(), DEFAULT_KEY)
    for host, peer in set(zip(hosts.tolist(), peers.tolist(), strict=True)):
        oracle.update(host, peer)
    return oracle


def traffic(seed: int, big: int = 60, small: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    hosts = np.repeat(rng.integers(0, 1 << 32, big, dtype=np.uint32), 300)
    hosts = np.concatenate([hosts, rng.integers(0, 1 << 32, small, dtype=np.uint32)])
    return hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32)


@pytest.mark.slow
@pytest.mark.parametrize("rows_by_peer", [0, 1])
@pytest.mark.parametrize("threads", [1, 3])
def test_bits_are_the_oracles(rows_by_peer, threads):
    geometry = SMALL._replace(rows_by_peer=rows_by_peer, slice_bits=6)
    detector = Cbaa(geometry=geometry, threads=threads)
    assert_equal_to_oracle_of_cbaa(detector, filled(detector, *traffic(1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "geometry",
    [
        SMALL,
        SMALL._replace(restoring=2, index_bits=13),
        SMALL._replace(restoring=4, index_bits=7),
        SMALL._replace(validating=0),
    ],
    ids=["3+2", "2+2", "4+2", "3+0"],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_join_finds_what_trying_every_address_finds(geometry, threads):
    """The join finds the oracle's candidates. The pre-check is disabled, since it may drop noise that is not a host."""
    detector = Cbaa(geometry=geometry, threads=threads)
    detector.update(*traffic(2, big=12, small=500))
    detector.flush()
    mangled, counts = detector.engine.search(detector.search_for(200)._replace(prefix_words=1, prefix_ones=0))
    assert {int(m) for m in mangled[:, 1]} == every_address(geometry)
    assert len(mangled) == len({int(m) for m in mangled[:, 1]})
    assert counts.shape == (len(mangled), geometry.arrays + 1)


@lru_cache
def every_address(geometry: Geometry) -> set[int]:
    """Return the mangled hosts with 200 peers in the traffic of the join's test, found by testing every address."""
    oracle = naive.Cbaa(geometry._asdict(), DEFAULT_KEY)
    for host, peer in zip(*(column.tolist() for column in traffic(2, big=12, small=500)), strict=True):
        oracle.update(host, peer)
    found = oracle.restore(naive.zero_limit(geometry.rows, 200))
    assert len(found) >= 12
    return found


def test_the_papers_windows_are_those_of_the_documents():
    g = Geometry.paper()
    assert g.layout().offsets.tolist() == [0, 10, 19, -1]
    assert g.layout().owns.tolist() == [10, 9, 9]
    assert g.memory == Geometry().memory == 128 << 20


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: Cbaa("128MiB"), Cbaa.paper], ids=["cbaa", "cbaa-paper"])
@pytest.mark.parametrize("shape", [one_scanner(), zipf(), near_threshold()], ids=lambda s: s.name)
def test_super_hosts_of_named_shapes(make, shape):
    detector = make()
    detector.update(shape.hosts, shape.peers)
    found = set(detector.super_hosts(1024).hosts.tolist())
    sigma = np.sqrt(4096 * (np.exp(0.25) - 1.25))
    for host, peers in shape.truth.items():
        if peers >= 1024 + 5 * sigma:
            assert host in found
        elif peers <= 1024 - 6 * sigma:
            assert host not in found


def test_the_papers_detector_keeps_the_papers_threshold_and_noise():
    detector = Cbaa.paper()
    assert isinstance(detector, PaperCbaa)
    shape = zipf()
    detector.update(shape.hosts, shape.peers)
    detector.flush()
    edges = detector.geometry.edges
    fills = 1 - detector.zeros.reshape(16, 4, 4096).mean(axis=2) / 4096
    assert edges == [0, 4096, 8192, 12288, 16384]
    noise = fills.prod(axis=1)
    expected = np.floor(4096 * (1 + noise) * np.exp(-0.25) - 4096 * noise)
    assert detector.search_for(1024).zeros.tolist() == expected.tolist()
    row = next(iter(detector.super_hosts(1024)))
    mangled = detector.mangled(row.host)
    common = int(detector.engine.measure(mangled)[0, -1])
    slice_ = int(mangled[0, 1]) & 15
    assert row.peers == pytest.approx(-4096 * np.log(common / (4096 * (1 - noise[slice_]))), abs=0.5)


@pytest.mark.parametrize(
    ("geometry", "rule"),
    [
        (SMALL._replace(index_bits=6), "must cover the 22 bits"),
        (SMALL._replace(restoring=2, index_bits=20, slice_bits=14), "slice_bits=14"),
        (SMALL._replace(restoring=5, validating=5), "at most 8 arrays"),
        (SMALL._replace(restoring=1), "restoring=1"),
    ],
)
def test_illegal_geometries_are_refused_with_the_rule(geometry, rule):
    with pytest.raises(GeometryError, match=rule):
        Cbaa(geometry=geometry)


def test_memory_chooses_the_number_of_slices():
    assert Geometry.for_memory("128MiB").slice_bits == 4
    assert Geometry.for_memory("8MiB").slice_bits == 0
    assert Geometry.for_memory("200MiB").slice_bits == 4
    with pytest.raises(GeometryError, match="too small"):
        Geometry.for_memory("1MiB")
