"""GSE against the oracle, on the CPU and on a (simulated) GPU: bits, hosts, zeros and the hosts found."""

from __future__ import annotations

import math

import numpy as np
import pytest

import naive
from shapes import zipf
from superhosts import GeometryError
from superhosts.core import device
from superhosts.core.hashing import DEFAULT_KEY, make_key, mangle32, unmangle32
from superhosts.detectors.engines.base import GpuTuning, Tuning
from superhosts.detectors.estimate import saturation_of
from superhosts.lab.rivals.gse import Geometry
from superhosts.lab.rivals.gse import Gse as UntunedGse
from tuned import tuned

pytestmark = pytest.mark.slow

# Sets of hosts are so small that they must grow.
Gse = tuned(UntunedGse, Tuning(host_slots=4, gpu=GpuTuning(host_slots=4)))
SMALL = Geometry(array_bits=13, vector_bits=6, table_bits=4)
LARGE_TABLE = SMALL._replace(table_bits=12)  # The table of recent pairs drops hardly any.
SIMULATED = device.simulated()
DEVICES = ["cpu", "cuda"] if device.cuda_problem() is None else ["cpu"]
on_any_device = pytest.mark.parametrize("place", DEVICES)
if len(DEVICES) > 1:
    from superhosts.lab.rivals.gse import MAX_PROBES
on_gpu = pytest.mark.skipif(len(DEVICES) == 1, reason=f"no GPU: {device.cuda_problem()}")


def traffic(count: int = 400, hosts: int = 30, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    known = rng.integers(0, 1 << 32, hosts, dtype=np.uint32)
    chosen = np.minimum(rng.geometric(0.2, count) - 1, hosts - 1)
    return known[chosen], rng.integers(0, 1 << 32, count, dtype=np.uint32)


def filled(detector: Gse, hosts: np.ndarray, peers: np.ndarray) -> naive.Gse:
    detector.update(hosts, peers)
    oracle = naive.Gse(detector.geometry._asdict(), DEFAULT_KEY)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    return oracle


def assert_equal(detector: Gse, oracle: naive.Gse) -> None:
    arrays = detector.arrays()
    bits = np.flatnonzero(np.unpackbits(arrays["bits"].view(np.uint8).reshape(-1), bitorder="little"))
    assert set(bits.tolist()) == oracle.bits
    assert arrays["hosts"].tolist() == sorted(oracle.hosts)
    assert int(detector.engine.zero_sums().sum()) == oracle.m - len(oracle.bits)


def reported(oracle: naive.Gse, m: int) -> int | None:
    """Return the number that is reported: None for a saturated host."""
    return None if oracle.zeros(m) == 0 else round(oracle.estimate(m))


def mangled(host: int) -> int:
    return int(mangle32(np.uint64(host), make_key(DEFAULT_KEY)))


@on_any_device
def test_bits_and_hosts_are_the_oracles(place):
    hosts, peers = traffic()
    zero = int(unmangle32(np.uint64(0), make_key(DEFAULT_KEY)))  # It must not be mistaken for an empty slot.
    hosts, peers = np.append(hosts, np.array([zero, 0], np.uint32)), np.append(peers, np.array([9, 0], np.uint32))
    detector = Gse(geometry=SMALL, device=place)
    oracle = filled(detector, np.tile(hosts, 2), np.tile(peers, 2))
    assert 0 in oracle.hosts
    assert_equal(detector, oracle)


@on_any_device
@pytest.mark.parametrize("load", [0.1, 1.0, 8.0])
def test_answers_are_the_oracles(place, load):
    """The traffic ranges from a nearly empty array to vectors with no zero left."""
    geometry = Geometry(array_bits=12, vector_bits=5, table_bits=4)
    count = int(load * 4096)
    rng = np.random.default_rng(3)
    hosts = rng.integers(0, 12, count).astype(np.uint32) if load < 1 else rng.integers(0, 200, count).astype(np.uint32)
    if place != "cpu" and SIMULATED:
        hosts, count = hosts[:300] % np.uint32(30), 300
    peers = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    detector = Gse(geometry=geometry, device=place)
    oracle = filled(detector, hosts, peers)
    for threshold in (1, 12, 40, 1e6):
        expected = {m: reported(oracle, m) for m in oracle.find(threshold)}
        found = detector.super_hosts(threshold)
        assert {mangled(int(row.host)): row.peers for row in found} == expected
        assert all(row.saturated == (row.peers is None) for row in found)
    for host in (*set(hosts[:9].tolist()), 123456):
        row = detector.estimate(host)
        assert row.peers == reported(oracle, mangled(host))
        assert row.saturated == (oracle.zeros(mangled(host)) == 0)


def test_a_saturated_host_has_whole_numbers_and_an_honest_bound():
    """Of sixty hosts near saturation, few just below the bound are saturated, and their peers are not below it."""
    geometry = Geometry(array_bits=24, vector_bits=8, table_bits=4)
    rng = np.random.default_rng(7)
    typical, low = saturation_of(geometry.vector, 0.995)  # The traffic below leaves this share of the array free.
    for peers, least, most in (([low - 40] * 60, 0, 6), (rng.integers(low - 50, typical, 60), 5, 35)):
        detector = Gse(geometry=geometry, device="cpu")
        hosts = np.repeat(np.arange(60, dtype=np.uint32), peers)
        detector.update(hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32))
        known = saturation_of(geometry.vector, int(detector.engine.zero_sums().sum()) / 2**24)
        rows = [detector.estimate(host) for host in range(60)]
        saturated = [row for row in rows if row.saturated]
        assert all((row.peers, row.peers_low) == (None, known.low) for row in saturated)
        assert least <= len(saturated) <= most
        assert np.mean([row.peers_low <= true for row, true in zip(rows, peers, strict=True)]) >= 0.95
        assert {row.host for row in saturated} <= {row.host for row in detector.super_hosts(10 * typical)}


def test_the_interval_is_that_of_the_formula_and_covers():
    geometry = Geometry(array_bits=17, vector_bits=9, table_bits=8)
    rng = np.random.default_rng(4)
    hosts = np.repeat(rng.integers(0, 1 << 32, 400, dtype=np.uint32), 150)
    detector = Gse(geometry=geometry)
    detector.update(hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32))
    rows = [detector.estimate(host) for host in np.unique(hosts)]
    free = int(detector.engine.zero_sums().sum()) / 2**17
    for row in rows[:20]:
        load = row.peers / 512
        deviation = math.sqrt(512 * (math.exp(load) / free - load - 1))
        assert (row.peers_high - row.peers_low) / 2 == pytest.approx(1.96 * deviation, abs=1.5)
    assert np.mean([row.peers_low <= 150 <= row.peers_high for row in rows]) > 0.91


def test_the_prefix_loses_no_host_that_passes_and_saves_most_of_the_work():
    tail = zipf()
    detector = Gse("16MiB")
    detector.update(tail.hosts, tail.peers)
    search = detector.search_for(1024)
    assert 64 <= search.prefix_bits < 512
    every = search._replace(prefix_bits=detector.geometry.vector, prefix_zeros=detector.geometry.vector)
    found, plain = detector.engine.search(search), detector.engine.search(every)
    rows = [sorted(zip(map(tuple, hosts.tolist()), counts.tolist(), strict=True)) for hosts, counts in (found, plain)]
    assert rows[0] == rows[1]
    rest = search._replace(zeros=detector.geometry.vector)
    assert len(detector.engine.search(rest)[0]) < len(tail.truth) / 10


def test_top_goes_down_until_it_has_enough():
    rng = np.random.default_rng(5)
    sizes = [3000, 700, 200, 60, 1]
    hosts = np.repeat(np.arange(5, dtype=np.uint32), sizes)
    detector = Gse("1MiB")
    detector.update(hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32))
    for count in (1, 3, 4):
        assert detector.top(count).hosts.tolist() == list(range(count))
    assert detector.top(50).hosts.tolist()[:4] == [0, 1, 2, 3]


@on_any_device
def test_merging_unites_hosts_and_bits_over_devices(place):
    hosts, peers = traffic(200)
    whole = Gse(geometry=SMALL)
    oracle = filled(whole, hosts, peers)
    for other in DEVICES:
        left, right = Gse(geometry=SMALL, device=place), Gse(geometry=SMALL, device=other)
        left.update(hosts[:120], peers[:120])
        right.update(hosts[80:], peers[80:])
        left.super_hosts(10)  # Counts known before the merge must not be used after it.
        left.merge(right)
        left.merge(right)
        left.merge(left)
        assert_equal(left, oracle)
        assert left.super_hosts(10).to_dict() == whole.super_hosts(10).to_dict()


@on_any_device
def test_copies_and_clear(place):
    hosts, peers = traffic(150)
    detector = Gse(geometry=LARGE_TABLE, device=place)
    oracle = filled(detector, hosts, peers)
    twin = detector.copy()
    assert twin.device == detector.device
    detector.clear()
    assert len(detector.super_hosts(1)) == len(detector.arrays()["hosts"]) == 0
    assert_equal(twin, oracle)
    twin.clear()
    twin.update(hosts, peers)  # requires that the table of recent pairs was emptied
    assert_equal(twin, oracle)


@on_any_device
def test_an_empty_table_holds_no_hash_that_belongs_there(place):
    """The hash 0 maps to slot 0, whose empty value must therefore differ from that of all others."""
    detector = Gse(geometry=SMALL, device=place)
    for _ in range(2):
        engine = detector.engine
        table = engine.table if place == "cpu" else engine.extra.copy_to_host()
        assert table.tolist() == [1, *[0] * 15]
        detector.update(*traffic(30))
        detector.clear()


@on_any_device
def test_memory_counts_the_set_of_hosts(place):
    detector = Gse(geometry=SMALL, device=place)
    fixed = SMALL.memory
    assert fixed == 1024 + 8 * 16
    assert detector.memory > fixed
    before = detector.memory
    hosts = np.arange(40, dtype=np.uint32) * 77
    detector.update(hosts, hosts)
    assert detector.memory - before >= 4 * 40
    assert detector.memory - fixed == detector.engine.host_memory


@on_gpu
def test_no_host_is_lost_while_the_set_grows():
    """The set must grow several times during one batch."""
    hosts = np.arange(1, 120, dtype=np.uint32)
    detector = Gse(geometry=LARGE_TABLE, device="cuda")
    before = detector.engine.host_memory
    oracle = filled(detector, hosts, hosts)
    assert_equal(detector, oracle)
    assert detector.engine.host_memory > 16 * before


@on_gpu
def test_no_host_is_lost_if_a_set_that_is_half_empty_must_grow():
    """The mangled hosts end in ten zeros, so they all begin at one slot and need ever more probes."""
    count, slots = MAX_PROBES + 30, 1024
    assert count < slots // 2
    hosts = np.array([unmangle32(np.uint64(k << 10), make_key(DEFAULT_KEY)) for k in range(1, count + 1)], np.uint32)
    detector = tuned(Gse, Tuning(gpu=GpuTuning(host_slots=slots)))(geometry=LARGE_TABLE, device="cuda")
    oracle = filled(detector, hosts, hosts)
    assert_equal(detector, oracle)
    assert detector.engine.host_memory > 4 * (slots + 1)


@on_gpu
def test_pairs_that_lie_on_the_gpu():
    cuda = device.import_cuda()

    hosts, peers = traffic(150)
    detector = Gse(geometry=SMALL, device="cuda")
    detector.update(cuda.to_device(hosts), cuda.to_device(peers))
    detector.flush()
    oracle = naive.Gse(SMALL._asdict(), DEFAULT_KEY)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    assert_equal(detector, oracle)
    on_cpu = Gse(geometry=SMALL, device="cpu")
    on_cpu.update(cuda.to_device(hosts), cuda.to_device(peers))
    assert_equal(on_cpu, oracle)


@on_gpu
def test_several_gpus_share_the_pairs():
    if not SIMULATED:
        pytest.skip("the same GPU twice; the simulator shows it")
    hosts, peers = traffic(150)
    detector = Gse(geometry=SMALL, device="cuda:0,0")
    for start in range(0, 150, 50):
        detector.update(hosts[start : start + 50], peers[start : start + 50])
    single = Gse(geometry=SMALL)
    oracle = filled(single, hosts, peers)
    assert detector.memory == 2 * SMALL.memory + sum(engine.host_memory for engine in detector.engine.engines)
    assert detector.super_hosts(10).to_dict() == single.super_hosts(10).to_dict()
    assert_equal(detector, oracle)


@on_gpu
def test_more_hosts_than_an_answer_has_room_for():
    hosts, peers = traffic(150)
    few_rows = tuned(Gse, Tuning(gpu=GpuTuning(host_slots=4, rows=3)))
    detector, single = few_rows(geometry=SMALL, device="cuda"), Gse(geometry=SMALL, device="cpu")
    detector.update(hosts, peers)
    single.update(hosts, peers)
    assert len(single.super_hosts(1)) > 3
    for _ in range(2):
        assert detector.super_hosts(1).to_dict() == single.super_hosts(1).to_dict()


def test_geometry_and_errors():
    assert Geometry.for_memory("128MiB") == Geometry() == Geometry(30, 12, 20)
    assert Geometry().memory == (128 << 20) + (8 << 20)
    assert Geometry.for_memory("200MiB").array_bits == 30
    with pytest.raises(GeometryError, match="too small for gse"):
        Gse(1000)
    with pytest.raises(GeometryError, match="vector_bits=14: must be at most array_bits=13"):
        Gse(geometry=SMALL._replace(vector_bits=14))
