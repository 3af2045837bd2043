"""VBFA against the oracle, which splits bytes and joins arrays as published: bits, hosts, noise and estimates."""

from __future__ import annotations

import math

import numpy as np
import pytest

import naive
from superhosts import GeometryError, UsageError
from superhosts.core import device
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.lab.rivals.base import as_words, mangled_of
from superhosts.lab.rivals.vbfa import Geometry, Vbfa

pytestmark = pytest.mark.slow

SMALL = Geometry(11, 7, 8)
TINY = Geometry(8, 3, 6)  # windows of one byte, which do not overlap: few columns
STORED = (2, 1, 0, 3, 4)  # the engine's arrays for h1 to h5
needs_cuda = pytest.mark.skipif(device.cuda_problem() is not None, reason=f"no GPU: {device.cuda_problem()}")


def traffic(seed: int, big: int, small: int, peers: int | np.ndarray = 300) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of big hosts, half of them in one /16, and of random hosts with a single peer."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, 1 << 32, big, dtype=np.uint32)
    chosen[::2] = 0x0A010000 | chosen[::2] & 0xFFFF
    hosts = np.concatenate([np.repeat(chosen, peers), rng.integers(0, 1 << 32, small, dtype=np.uint32)])
    return hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32)


def filled(detector: Vbfa, hosts: np.ndarray, peers: np.ndarray) -> naive.Vbfa:
    """Add pairs to a detector and to an oracle of the same geometry; return the oracle."""
    detector.update(hosts, peers)
    g = detector.geometry
    oracle = naive.Vbfa(g.index_bits, g.validating_bits, g.column_bits, bool(g.mangled), DEFAULT_KEY)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    return oracle


def assert_bits(detector: Vbfa, oracle: naive.Vbfa) -> None:
    expected = np.zeros((detector.geometry.cube.total_columns, detector.geometry.rows), bool)
    edges = detector.geometry.cube.edges
    for (array, column), rows in oracle.arrays.items():
        expected[edges[STORED[array]] + column, list(rows)] = True
    stored = np.unpackbits(detector.arrays()["bits"].view(np.uint8), axis=1, bitorder="little").astype(bool)
    assert np.array_equal(stored, expected)
    assert np.array_equal(detector.engine.zeros(), (~expected).sum(axis=1))


def test_the_published_windows_by_hand():
    """10.32.58.197 is 0A 20 3A C5: h1 = 0A2, h2 = 203, h3 = 3AC and h4 = C50, closing the ring with the first 0."""
    detector = Vbfa(mangled=False, device="cpu")
    detector.update(np.array([0x0A203AC5], np.uint32), np.array([1], np.uint32))
    (places,) = np.nonzero(detector.engine.zeros() < detector.geometry.rows)
    assert [int(places[k]) - 4096 * k for k in (2, 1, 0, 3)] == [0x0A2, 0x203, 0x3AC, 0xC50]
    oracle = naive.Vbfa(12, 12, 13, False, DEFAULT_KEY)
    assert oracle.windows(0x0A203AC5)[:4] == [0x0A2, 0x203, 0x3AC, 0xC50]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("mangled", [0, 1])
@pytest.mark.parametrize("window", [8, 11, 12, 15, 16])
def test_bits_are_the_oracles(window, mangled, threads):
    detector = Vbfa(geometry=Geometry(window, 7, 6, mangled), threads=threads, device="cpu")
    hosts, peers = traffic(1, 3, 500)
    oracle = filled(detector, hosts[:700], peers[:700])
    detector.flush()
    detector.update(hosts[600:], peers[600:])  # repeats some pairs after a drain
    for host, peer in zip(hosts[600:].tolist(), peers[600:].tolist(), strict=True):
        oracle.update(host, peer)
    assert_bits(detector, oracle)


@pytest.mark.parametrize("noise", [2, 5])
@pytest.mark.parametrize("mangled", [0, 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_join_finds_what_the_published_one_finds(threads, mangled, noise):
    """The pre-check is disabled, because it may drop noise that is not a host."""
    detector = Vbfa(geometry=SMALL._replace(mangled=mangled, noise_arrays=noise), threads=threads, device="cpu")
    hosts, peers = traffic(2, 60, 4000, np.linspace(150, 330, 60).astype(int))  # many near the threshold
    oracle = filled(detector, hosts, peers)
    delta = oracle.noise(noise)
    assert delta > 0.5  # There is enough noise to distinguish the two.
    limit = math.floor(256 * math.exp(-(200 + delta) / 256))
    expected = oracle.restore(limit)
    mangled_hosts, counts = detector.engine.search(detector.search_for(200)._replace(prefix_words=1, prefix_ones=0))
    assert {oracle.rotated(x) for x in expected} == set(mangled_hosts[:, 1].tolist())
    assert len(mangled_hosts) == len(expected) > 20
    peers_of = {oracle.address(int(row.host)): row.peers for row in detector.super_hosts(200)}
    assert peers_of.keys() == expected
    for x, found in peers_of.items():
        rows = set.intersection(*(oracle.arrays[a, c] for a, c in enumerate(oracle.windows(x))))
        assert found == round(256 * math.log(256 / (256 - len(rows))) - delta)
    assert counts.shape == (len(expected), 6)


def test_the_noise_of_two_arrays_is_the_published_formula():
    detector = Vbfa(geometry=SMALL, device="cpu")
    hosts, peers = traffic(3, 10, 3000)
    oracle = filled(detector, hosts, peers)
    v5 = float(detector.engine.zeros()[4 * 2048 :].mean()) / 256
    noise = -256 * math.log(v5 * (2 - v5))
    assert oracle.noise(2) == pytest.approx(noise)
    for host in np.unique(hosts)[:100]:
        zeros = int(detector.engine.measure(as_words(mangled_of(np.array([host]), detector.key)))[0, -1])
        assert detector.estimate(int(host)).peers == max(0, round(256 * math.log(256 / zeros) - noise))


def test_the_interval_is_that_of_linear_counting_with_noise():
    """In 200 windows of one host among others, 95 % of the intervals contain the truth, within four deviations."""
    rng = np.random.default_rng(4)
    covered = 0
    detector = Vbfa(geometry=Geometry(8, 8, 8, 1, 5), device="cpu", threads=1)
    for _ in range(200):
        detector.clear()
        others = rng.integers(0, 1 << 32, 256 * 120, dtype=np.uint32)  # fill a share of 0.37 of every column
        hosts = np.concatenate([others, np.full(150, 77, np.uint32)])
        detector.update(hosts, np.arange(len(hosts), dtype=np.uint32) + rng.integers(0, 1 << 31, dtype=np.uint32))
        row = detector.estimate(77)
        covered += row.peers_low <= 150 <= row.peers_high
    assert abs(covered / 200 - 0.95) <= 4 * math.sqrt(0.95 * 0.05 / 200)


def test_three_readings_of_the_published_setting():
    assert Geometry.reading("published").memory == 20 << 20
    assert Geometry.reading("long").memory == Geometry.reading("wide").memory == 160 << 20
    assert Geometry.reading("long").rows == 1 << 16
    assert Geometry.reading("wide").rows == 1 << 13
    assert Geometry.reading("wide", noise="five", mangled=False) == Geometry(15, 15, 13, 0, 5)
    assert Vbfa(device="cpu").geometry == Geometry() == Geometry.reading("published")
    assert Geometry.for_memory("160MiB") == Geometry.reading("long")
    assert Vbfa("30MiB", device="cpu").memory == 20 << 20
    assert Vbfa("5MiB", reading="wide", noise="five", device="cpu").geometry == Geometry(15, 15, 8, 1, 5)
    for wrong in ({"reading": "short"}, {"noise": "three"}):
        with pytest.raises(UsageError, match="one of"):
            Vbfa(**wrong)
    with pytest.raises(GeometryError, match="too small for vbfa: at least 160 KiB"):
        Vbfa("100KiB")


@pytest.mark.parametrize(
    ("geometry", "rule"),
    [
        (SMALL._replace(index_bits=7), "index_bits=7: must be a whole number from 8 to 16"),
        (SMALL._replace(validating_bits=21), "validating_bits=21"),
        (SMALL._replace(column_bits=5), "column_bits=5"),
        (SMALL._replace(mangled=2), "mangled=2"),
        (SMALL._replace(noise_arrays=3), "noise_arrays=3: must be 2 or 5"),
    ],
)
def test_illegal_geometries_are_refused_with_the_rule(geometry, rule):
    with pytest.raises(GeometryError, match=rule):
        Vbfa(geometry=geometry)


@needs_cuda
@pytest.mark.parametrize("mangled", [1, 0], ids=["mangled", "plain"])
def test_the_gpu_has_the_oracles_bits_and_finds_what_the_cpu_finds(mangled):
    geometry = TINY._replace(mangled=mangled)
    on_cpu, on_gpu = (Vbfa(geometry=geometry, device=where, threads=2) for where in ("cpu", "cuda"))
    hosts, peers = traffic(5, 3, 12, peers=60)
    oracle = filled(on_gpu, hosts, peers)
    on_cpu.update(hosts, peers)
    assert_bits(on_gpu, oracle)
    assert np.array_equal(on_cpu.engine.zeros(), on_gpu.engine.zeros())
    results = [np.hstack(detector.engine.search(detector.search_for(30))).tolist() for detector in (on_cpu, on_gpu)]
    assert sorted(results[0]) == sorted(results[1])
    assert {oracle.rotated(oracle.address(host)) for host in hosts[:180].tolist()} <= {row[1] for row in results[0]}
    assert on_gpu.super_hosts(30).to_dict() == on_cpu.super_hosts(30).to_dict()
    assert on_gpu.estimate(int(hosts[0])) == on_cpu.estimate(int(hosts[0]))
    cuda = device.import_cuda()

    before = on_gpu.arrays()["bits"]
    on_gpu.update(cuda.to_device(hosts[:50]), cuda.to_device(peers[:50]))  # repeats known pairs, from the GPU
    assert np.array_equal(on_gpu.arrays()["bits"], before)
