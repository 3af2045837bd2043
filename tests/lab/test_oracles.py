"""Every rival against its oracle: what it stores, the hosts it finds and their numbers, on the CPU and on a GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from gpus import to_gpu
from superhosts.core import device
from superhosts.core.hashing import DEFAULT_KEY, make_key, mangle32, unmangle32
from superhosts.core.pairs import as_words
from superhosts.detectors.cbaa import addressing
from superhosts.detectors.engines.base import GpuTuning, Tuning
from superhosts.detectors.estimate import FILLED
from superhosts.lab.rivals import dcds, gse, spreadsketch, vbfa
from superhosts.lab.rivals.dcds import Dcds
from superhosts.lab.rivals.filter import Filter
from superhosts.lab.rivals.filter import Geometry as FilterGeometry
from superhosts.lab.rivals.pairsample import Geometry as SampleGeometry
from superhosts.lab.rivals.pairsample import PairSample
from superhosts.lab.rivals.rgs import Geometry as RgsGeometry
from superhosts.lab.rivals.rgs import Rgs
from superhosts.lab.rivals.spreadsketch import SpreadSketch
from superhosts.lab.rivals.vbfa import Vbfa
from tuned import tuned

pytestmark = pytest.mark.slow

KEY = make_key(DEFAULT_KEY)
DEVICES = ["cpu", "cuda"] if device.cuda_problem() is None else ["cpu"]
needs_cuda = pytest.mark.skipif(len(DEVICES) == 1, reason=f"no GPU: {device.cuda_problem()}")
LONG = dcds.Geometry(column_bits=8)
TINY = dcds.Geometry(6, (41, 43, 47, 53, 59, 61, 37), 6)  # six small moduli whose product exceeds 2^32: few columns
NO_PRE_CHECK = {"prefix_words": 1, "prefix_ones": 0}  # The pre-check may drop noise that is not a host.
STORED = (2, 1, 0, 3, 4)  # the arrays of CBAA's engine for VBFA's h1 to h5
# Sets of hosts are so small that they must grow.
Gse = tuned(gse.Gse, Tuning(host_slots=4, gpu=GpuTuning(host_slots=4)))
SMALL_GSE = gse.Geometry(array_bits=13, vector_bits=6, table_bits=4)


def mangled(host: int) -> int:
    return int(mangle32(np.uint64(host), KEY))


def traffic(count: int, hosts: int = 30, peers: int = 1 << 32, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of random hosts, each with fewer pairs than the one before it."""
    rng = np.random.default_rng(seed)
    known = rng.integers(0, 1 << 32, hosts, dtype=np.uint32)
    chosen = np.minimum(rng.geometric(0.15, count) - 1, hosts - 1)
    return known[chosen], rng.integers(0, peers, count, dtype=np.uint32)


def crowd(seed: int, big: int, small: int, peers: Any = 300) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of big hosts, half of them in one /16, and of random hosts with a single peer."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, 1 << 32, big, dtype=np.uint32)
    chosen[::2] = 0x0A010000 | chosen[::2] & 0xFFFF
    hosts = np.concatenate([np.repeat(chosen, peers), rng.integers(0, 1 << 32, small, dtype=np.uint32)])
    return hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32)


def filled(rival: Any, oracle: Any, hosts: np.ndarray, peers: np.ndarray) -> Any:
    """Add pairs to a rival, some of them twice, and to its oracle; return the oracle."""
    rival.update(hosts[:-90], peers[:-90])
    rival.flush()
    rival.update(hosts[-99:], peers[-99:])
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    return oracle


def numbers(found: Any) -> dict[int, int | None]:
    return {mangled(int(row.host)): row.peers for row in found}


def assert_columns(rival: Any, oracle: Any, edges: list[int], order: tuple[int, ...] = tuple(range(9))) -> None:
    expected = np.zeros((edges[-1], rival.geometry.rows), bool)
    for (array, column), rows in oracle.arrays.items():
        expected[edges[order[array]] + column, list(rows)] = True
    stored = np.unpackbits(rival.arrays()["bits"].view(np.uint8), axis=1, bitorder="little").astype(bool)
    assert np.array_equal(stored, expected)
    assert np.array_equal(rival.engine.zeros(), (~expected).sum(axis=1))


def searched(rival: Any, threshold: float, **limits: int) -> dict[int, list[int]]:
    """Return the mangled hosts of a search with their zero counts; assert that there are no duplicates."""
    hosts, counts = rival.engine.search(rival.search_for(threshold)._replace(**limits))
    result = dict(zip(hosts[:, 1].tolist(), counts.tolist(), strict=True))
    assert len(result) == len(hosts)
    return result


# DCDS


@pytest.mark.parametrize(
    "geometry",
    [
        LONG,
        LONG._replace(moduli=(65537, 65536)),
        LONG._replace(moduli=(65536, 70001, 997, 101)),
        dcds.Geometry(3, (1627, 1637, 1657, 211), 8),
    ],
    ids=["2+1", "2+0", "2+2", "3+1"],
)
def test_dcds_finds_what_all_combinations_give(geometry):
    hosts, peers = crowd(2, 30, 2000)
    for threads in (1, 2, 5):
        rival = Dcds(geometry=geometry, threads=threads, device="cpu")
        oracle = filled(rival, naive.Dcds(*geometry, DEFAULT_KEY), hosts, peers)
        assert_columns(rival, oracle, geometry.edges)
        if threads == 1:
            expected = oracle.restore(naive.zero_limit(geometry.rows, 200))
        assert searched(rival, 200, **NO_PRE_CHECK) == expected
    assert {mangled(host) for host in hosts[: 30 * 300].tolist()} <= expected.keys()
    for host in (*hosts[:900:300].tolist(), 12345):  # linear counting without noise removed
        zeros = oracle.zeros(mangled(host))
        assert rival.engine.measure(as_words(np.array([mangled(host)])))[0].tolist() == zeros
        n = 256 * math.log(256 / zeros[-1])
        reach = 1.959963984540054 * math.sqrt(256 * (math.exp(n / 256) - n / 256 - 1))
        row = rival.estimate(host)
        interval = max(0, math.floor(n - reach)), math.ceil(n + reach)
        assert (row.peers, row.peers_low, row.peers_high) == (round(n), *interval)


def test_dcds_drops_combinations_beyond_the_last_address():
    """All columns are full: every combination is a number, of which most are beyond 2^32."""
    geometry = dcds.Geometry(2, (1 << 20, 65537), 6)  # their product is 16 times the number of addresses
    rival = Dcds(geometry=geometry, device="cpu", threads=2)
    hosts = np.repeat(np.arange(24, dtype=np.uint32), 2000)
    oracle = filled(rival, naive.Dcds(*geometry, DEFAULT_KEY), hosts, np.arange(len(hosts), dtype=np.uint32))
    expected = oracle.restore(naive.zero_limit(64, 400))
    assert searched(rival, 400, **NO_PRE_CHECK) == expected
    assert 24 < len(expected) < 24 * 24
    assert {mangled(host) for host in range(24)} <= expected.keys()


@given(st.integers(0, (1 << 32) - 1), st.sampled_from([LONG, TINY, dcds.Geometry(2, (1 << 20, 4099), 6)]))
def test_columns_of_dcds_give_the_address_back(number, geometry):
    before, inverses = geometry.check().layout().factors.tolist()
    found = 0
    for array in range(geometry.reversible):
        modulus = geometry.moduli[array]
        column = int(addressing.remainder.py_func(number, modulus))
        found = addressing.garner_step.py_func(found, column, modulus, before[array], inverses[array])
        assert found == number % (before[array] * modulus)
    assert found == number


# VBFA


def vbfa_oracle(geometry: vbfa.Geometry) -> naive.Vbfa:
    return naive.Vbfa(*geometry, DEFAULT_KEY)


def test_the_published_windows_of_vbfa_by_hand():
    """10.32.58.197 is 0A 20 3A C5: h1 = 0A2, h2 = 203, h3 = 3AC and h4 = C50, closing the ring with the first 0."""
    rival = Vbfa(device="cpu")
    oracle = vbfa_oracle(rival.geometry)
    rival.update(rival._unmangle(np.array([oracle.rotated(0x0A203AC5)], np.uint32)), np.array([1], np.uint32))
    (places,) = np.nonzero(rival.engine.zeros() < rival.geometry.rows)
    assert [int(places[k]) - 4096 * k for k in (2, 1, 0, 3)] == [0x0A2, 0x203, 0x3AC, 0xC50]
    assert oracle.windows(0x0A203AC5)[:4] == [0x0A2, 0x203, 0x3AC, 0xC50]


def test_vbfa_stores_and_finds_what_is_published():
    for window, threads in ((8, 1), (12, 2), (16, 7)):
        rival = Vbfa(geometry=vbfa.Geometry(window, 7, 6), threads=threads, device="cpu")
        oracle = filled(rival, vbfa_oracle(rival.geometry), *crowd(1, 3, 500))
        assert_columns(rival, oracle, rival.geometry.cube.edges, STORED)
    hosts, peers = crowd(2, 60, 4000, np.linspace(150, 330, 60).astype(int))  # many near the threshold
    rival = Vbfa(geometry=vbfa.Geometry(11, 7, 8), threads=2, device="cpu")
    oracle = filled(rival, vbfa_oracle(rival.geometry), hosts, peers)
    delta = oracle.noise()
    v5 = float(rival.engine.zeros()[4 * 2048 :].mean()) / 256
    assert delta == pytest.approx(-256 * math.log(v5 * (2 - v5)))
    assert delta > 0.5
    expected = oracle.restore(math.floor(256 * math.exp(-(200 + delta) / 256)))
    assert {oracle.rotated(x) for x in expected} == searched(rival, 200, **NO_PRE_CHECK).keys()
    found = {oracle.address(int(row.host)): row.peers for row in rival.super_hosts(200)}
    assert found.keys() == expected
    assert len(expected) > 20
    for x, number in found.items():
        rows = set.intersection(*(oracle.arrays[a, c] for a, c in enumerate(oracle.windows(x))))
        assert number == round(256 * math.log(256 / (256 - len(rows))) - delta)


# Both on a GPU

FEW = vbfa.Geometry(8, 3, 6)  # windows of one byte, which do not overlap: few columns
ON_GPU = {  # rival, geometry, hosts of `crowd` (big, small, peers), threshold
    # An array has more hot columns than a simulated block has threads; in the second case all combinations pass.
    "dcds": (Dcds, TINY._replace(column_bits=7), (6, 12, 100), 80),
    "dcds, combinations": (Dcds, TINY, (2, 12, 300), 80),
    "vbfa": (Vbfa, FEW, (3, 99, 60), 30),
}


@needs_cuda
@pytest.mark.parametrize("case", ON_GPU)
def test_columns_on_a_gpu(case):
    kind, geometry, (big, small, count), threshold = ON_GPU[case]
    on_cpu, on_gpu = (kind(geometry=geometry, device=where, threads=2) for where in ("cpu", "cuda"))
    hosts, peers = crowd(5, big, small, count)
    on_cpu.update(hosts, peers)
    if kind is Dcds:
        oracle = filled(on_gpu, naive.Dcds(*geometry, DEFAULT_KEY), hosts, peers)
        assert_columns(on_gpu, oracle, geometry.edges)
        known = {mangled(host) for host in hosts[: big * count].tolist()}
    else:
        oracle = filled(on_gpu, vbfa_oracle(geometry), hosts, peers)
        assert_columns(on_gpu, oracle, geometry.cube.edges, STORED)
        known = {oracle.rotated(oracle.address(host)) for host in hosts[: big * count].tolist()}
    expected = searched(on_cpu, threshold)
    assert known <= expected.keys()
    assert searched(on_gpu, threshold) == expected
    assert on_gpu.super_hosts(threshold).to_dict() == on_cpu.super_hosts(threshold).to_dict()  # Counters are reset.
    assert on_gpu.estimate(int(hosts[0])) == on_cpu.estimate(int(hosts[0]))
    before = on_gpu.arrays()["bits"]
    on_gpu.update(to_gpu(hosts[:50]), to_gpu(peers[:50]))  # repeats known pairs, from the GPU
    assert np.array_equal(on_gpu.arrays()["bits"], before)


# GSE


def assert_gse(rival: Any, oracle: naive.Gse) -> None:
    arrays = rival.arrays()
    bits = np.flatnonzero(np.unpackbits(arrays["bits"].view(np.uint8).reshape(-1), bitorder="little"))
    assert set(bits.tolist()) == oracle.bits
    assert arrays["hosts"].tolist() == sorted(oracle.hosts)
    assert int(rival.engine.zero_sums().sum()) == oracle.m - len(oracle.bits)


def gse_oracle(geometry: gse.Geometry = SMALL_GSE) -> naive.Gse:
    return naive.Gse(geometry._asdict(), DEFAULT_KEY)


@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize("load", [0.1, 1.0, 8.0])
def test_gse_and_its_answers(place, load):
    """The traffic ranges from a nearly empty array to vectors with no zero left."""
    geometry = gse.Geometry(array_bits=12, vector_bits=5, table_bits=4)
    count = 300 if place != "cpu" and device.simulated() else int(load * 4096)
    hosts, peers = np.arange(count, dtype=np.uint32) % (12 if load < 1 else 200), traffic(count)[1]
    hosts[:2] = int(unmangle32(np.uint64(0), KEY)), 0  # The first must not be mistaken for an empty slot.
    rival = Gse(geometry=geometry, device=place)
    before = rival.memory
    oracle = filled(rival, gse_oracle(geometry), hosts, peers)
    assert_gse(rival, oracle)
    assert 0 in oracle.hosts
    assert rival.memory - before >= 4 * len(oracle.hosts) - 20
    for threshold in (1, 12, 40, 1e6):
        expected = {m: None if oracle.zeros(m) == 0 else round(oracle.estimate(m)) for m in oracle.find(threshold)}
        assert numbers(rival.super_hosts(threshold)) == expected
    for host in (*set(hosts[:9].tolist()), 123456):
        row, zeros = rival.estimate(host), oracle.zeros(mangled(host))
        assert (row.peers, row.saturated) == ((round(oracle.estimate(mangled(host))), False) if zeros else (None, True))


@pytest.mark.parametrize("place", DEVICES)
def test_copies_clearing_and_merging_of_gse(place):
    hosts, peers = traffic(200)
    whole = Gse(geometry=SMALL_GSE, device="cpu")
    oracle = filled(whole, gse_oracle(), hosts, peers)
    for other in DEVICES:
        left, right = Gse(geometry=SMALL_GSE, device=place), Gse(geometry=SMALL_GSE, device=other)
        left.update(hosts[:120], peers[:120])
        right.update(hosts[80:], peers[80:])
        left.super_hosts(10)  # Counts known before the merge must not be used after it.
        left.merge(right).merge(right).merge(left)
        assert_gse(left, oracle)
        assert left.super_hosts(10).to_dict() == whole.super_hosts(10).to_dict()
    twin = left.copy()
    assert twin.device == left.device
    left.clear()
    assert len(left.super_hosts(1)) == len(left.arrays()["hosts"]) == 0
    assert_gse(twin, oracle)
    # The hash 0 maps to slot 0 of the table of recent pairs, whose empty value must differ from that of all others.
    table = left.engine.table if place == "cpu" else left.engine.extra.copy_to_host()
    assert table.tolist() == [1, *[0] * 15]
    left.update(hosts, peers)
    assert_gse(left, oracle)


@needs_cuda
def test_the_sets_and_answers_of_gse_grow_on_a_gpu():
    """Mangled hosts that end in ten zeros all begin at one slot and need ever more probes, in a set half empty."""
    crowded = [unmangle32(np.uint64(k << 10), KEY) for k in range(1, gse.MAX_PROBES + 31)]
    geometry = SMALL_GSE._replace(table_bits=12)  # The table of recent pairs drops hardly any.
    for slots, hosts in ((4, np.arange(1, 120, dtype=np.uint32)), (1024, np.array(crowded, np.uint32))):
        rival = tuned(Gse, Tuning(gpu=GpuTuning(host_slots=slots, rows=3)))(geometry=geometry, device="cuda")
        before = rival.engine.host_memory
        oracle = filled(rival, gse_oracle(geometry), hosts, hosts)
        assert_gse(rival, oracle)
        assert rival.engine.host_memory > 3 * before
        assert len(rival.super_hosts(1)) > 3  # more hosts than an answer has room for


@needs_cuda
def test_pairs_on_a_gpu_and_several_gpus():
    hosts, peers = traffic(150)
    oracle = filled(single := Gse(geometry=SMALL_GSE, device="cpu"), gse_oracle(), hosts, peers)
    for place in ("cpu", "cuda", *(["cuda:0,0"] if device.simulated() else [])):
        rival = Gse(geometry=SMALL_GSE, device=place)
        for start in range(0, 150, 50):
            some = slice(start, start + 50)
            rival.update(to_gpu(hosts[some].copy()), to_gpu(peers[some].copy()))
        assert_gse(rival, oracle)
        assert rival.super_hosts(10).to_dict() == single.super_hosts(10).to_dict()


# The line-speed filter


@pytest.mark.parametrize(("count", "peers"), [(100, 300), (3000, 300), (40_000, 1 << 32)])
def test_filter(count, peers):
    """The traffic ranges up to a bit array in which no bit is clear: then counters are lower bounds."""
    hosts, others = traffic(count, 40, peers)
    hosts[-1] = int(unmangle32(np.uint64(0), KEY))  # It must not be mistaken for an empty slot.
    rival = tuned(Filter, Tuning(host_slots=4))(geometry=FilterGeometry(words=40, rows=3, counters=50, threshold=20))
    oracle = filled(rival, naive.Filter(rival.geometry._asdict(), DEFAULT_KEY), hosts, others)
    bits = np.flatnonzero(np.unpackbits(rival.bits.view(np.uint8), bitorder="little"))
    assert set(bits.tolist()) == oracle.marked
    expected = np.zeros_like(rival.counters)
    for (row, counter), value in oracle.counters.items():
        expected[row * 50 + counter] = value
    assert np.array_equal(rival.counters, expected)
    assert rival.arrays()["hosts"].tolist() == sorted(oracle.listed)
    full = len(oracle.marked) == 40 * 64
    assert full == (count > 10_000)
    for threshold in (20, 45.5, 100):
        large = {m: round(oracle.estimate(m)) for m in oracle.listed if oracle.estimate(m) >= threshold}
        assert numbers(rival.super_hosts(threshold)) == (dict.fromkeys(oracle.listed) if full else large)
    for host in set(hosts.tolist()):
        row = rival.estimate(host)
        assert (row.peers, row.saturated) == ((None, True) if full else (round(oracle.estimate(mangled(host))), False))


# SpreadSketch


@pytest.mark.parametrize("sizes", [(3, 79), (13, 32), (2, 149)])
@pytest.mark.parametrize("count", [200, 3000, 20_000])
def test_spreadsketch(count, sizes):
    """The traffic ranges from nearly empty bitmaps to those whose first components are full."""
    hosts, peers = traffic(count, 12)
    geometry = spreadsketch.Geometry(3, 7, *sizes)
    for threads in (1, 2, 5):
        kind = tuned(SpreadSketch, Tuning(min_pairs_per_thread=100))
        rival = kind(geometry=geometry, threads=threads)
        oracle = filled(rival, naive.SpreadSketch(geometry._asdict(), DEFAULT_KEY), hosts, peers)
        expected = np.zeros_like(rival.buckets)
        for (row, bucket), seen in oracle.maps.items():
            line = expected[row * 7 + bucket]
            for component, bit in seen:
                place = sizes[1] * component + bit
                line[place // 64] |= np.uint64(1 << place % 64)
            level, host = oracle.labels[row, bucket]
            line[7] = (level + 1) << 32 | host
        assert np.array_equal(rival.buckets, expected)
    for threshold in (1, 50, 400):
        large = {host: whole(number) for host, number in oracle.find(threshold).items()}
        assert numbers(rival.super_hosts(threshold)) == large
    for host in set(hosts.tolist()):
        assert rival.estimate(host).peers == whole(oracle.estimate(mangled(host)))


def whole(number: float) -> int | None:
    return None if math.isinf(number) else round(number)


def test_a_full_bitmap_of_spreadsketch_is_saturated():
    rival = SpreadSketch(geometry=spreadsketch.Geometry(1, 4096))
    rival.update(np.full(1 << 15, 5, np.uint32), np.arange(1 << 15, dtype=np.uint32))
    row = rival.estimate(5)
    crowd = math.e * rival.geometry.most / 4096  # One of all buckets is full.
    low = math.floor(math.floor(4 * 290 * math.log(290 / FILLED)) - crowd)
    assert (row.saturated, row.peers, row.peers_low, row.peers_high) == (True, None, low, None)
    assert [each.host for each in rival.super_hosts(5_000_000)] == [row.host]


# The pair sample


@pytest.mark.parametrize("waiting", [1, 7, 1 << 20])
def test_pairsample(waiting):
    """The buffer of new pairs is merged after every pair, after a few, or when the sample is asked."""
    for count in (100, 499, 500, 501, 20_000):
        rival = tuned(PairSample, Tuning(min_pending=waiting))(geometry=SampleGeometry(500))
        few = np.arange(count, dtype=np.uint32)
        hosts, peers = traffic(count, 20, 1000) if count > 501 else (few % 9, few)
        oracle = filled(rival, naive.PairSample(500, DEFAULT_KEY), hosts, peers)
        assert rival.arrays()["pairs"].tolist() == oracle.kept()
        expected = oracle.estimates()
        for threshold in (1, 30, 45.5):
            assert numbers(rival.super_hosts(threshold)) == {m: round(n) for m, n in expected.items() if n >= threshold}
        for host in np.unique(hosts).tolist():
            assert rival.estimate(host).peers == round(expected.get(mangled(host), 0))
        assert {row.exact for row in rival.super_hosts(1)} == {count < 500}


def test_pairsample_folds_wide_peers_and_no_longer_counts_exactly():
    hosts, low = traffic(400)
    high = np.where(np.arange(400) % 2, np.random.default_rng(5).integers(0, 1 << 63, 400), 0).astype(np.uint64)
    middle = low.astype(np.uint64) | np.uint64(5 << 40)
    oracle, wide = naive.PairSample(500, DEFAULT_KEY), PairSample(geometry=SampleGeometry(500))
    for host, a, b in zip(hosts.tolist(), high.tolist(), middle.tolist(), strict=True):
        oracle.update(host, a << 64 | b)
    wide.update(hosts, np.stack([high, middle], axis=1))
    assert wide.arrays()["pairs"].tolist() == oracle.kept()
    narrow = PairSample(geometry=SampleGeometry(5000))
    narrow.update(hosts, low.astype(np.uint64))
    assert narrow.estimate(int(hosts[0])).exact
    assert not wide.estimate(int(hosts[0])).exact  # Two peers may have been folded into one.
    nobody = wide.estimate(8)
    assert (nobody.peers, nobody.peers_low) == (0, 0)


def test_no_host_of_pairsample_has_more_peers_than_there_are_addresses():
    rival = PairSample(geometry=SampleGeometry(16))
    rival.kept[:], rival.count = np.arange(16), 16
    assert {(row.peers, row.peers_high) for row in rival.super_hosts(1)} == {(1 << 32, 1 << 32)}


# RGS-Sketch


def assert_rgs(rival: Rgs, oracle: naive.Rgs) -> None:
    words = [int.from_bytes(group.tobytes(), "little") for group in rival.state.groups]
    assert [[word >> 5 * place & 31 for place in range(8)] for word in words] == oracle.groups
    cells = rival.state.cells.reshape(-1, 8, 2).tolist()
    assert cells == [bucket + [[0, 0]] * (8 - len(bucket)) for bucket in oracle.buckets]


@pytest.mark.parametrize(("count", "peers"), [(99, 1000), (3000, 1000), (40_000, 1 << 32)])
def test_rgs(count, peers):
    """The traffic ranges from empty cells to buckets in which hosts replace each other."""
    hosts, others = traffic(count, 60, peers)
    rival, oracle = Rgs(geometry=RgsGeometry(60, 3)), naive.Rgs(60, 3, DEFAULT_KEY)
    rival.update(hosts, others)
    for host, peer in zip(hosts.tolist(), others.tolist(), strict=True):
        oracle.update(host, peer)
    assert_rgs(rival, oracle)
    for threshold in (1, 20, 45.5):
        assert numbers(rival.super_hosts(threshold)) == oracle.find(threshold)
    for host in np.unique(hosts).tolist():
        row = rival.estimate(host)
        assert row.peers == oracle.find(1).get(mangled(host), 0)
        assert row.peers_low <= row.peers <= row.peers_high


def test_a_register_of_rgs_with_the_largest_value_cannot_be_raised():
    """Seven of eight registers are at their end: a pair that raises the eighth counts for eight."""
    rival, oracle = Rgs(geometry=RgsGeometry(60, 3)), naive.Rgs(60, 3, DEFAULT_KEY)
    word = sum(31 << 5 * place for place in range(7))
    rival.state.groups[:] = np.frombuffer(word.to_bytes(5, "little"), np.uint8)
    oracle.groups = [[31] * 7 + [0] for _ in range(60)]
    hosts, peers = traffic(500, 60, 1000)
    rival.update(hosts, peers)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    assert_rgs(rival, oracle)
    assert np.unique(rival.state.cells[:, 1]).tolist()[:2] == [0, 8]


def test_a_full_count_of_rgs_is_a_lower_bound():
    rival = Rgs(geometry=RgsGeometry(60, 3))
    rival.update(np.full(9, 7, np.uint32), np.arange(9, dtype=np.uint32))
    rival.state.cells[rival.state.cells[:, 1] > 0, 1] = 0xFFFFFFFE
    assert not rival.estimate(7).saturated
    rival.update(np.full(99, 7, np.uint32), np.arange(50, 149, dtype=np.uint32))
    row = rival.estimate(7)
    assert (row.saturated, row.peers, row.peers_high) == (True, None, None)
    assert 0xFFFF0000 - 200_000 < row.peers_low < 0xFFFFFFFF
