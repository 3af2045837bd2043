"""The exact detector: the answers of sets, wide hosts and peers, and the same bytes on a GPU as on the CPU.

Tests of a GPU run on a stand-in for CuPy, which is NumPy made as strict as CuPy, and on a GPU if there is one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import naive
from gpus import Driver, machine_with, to_gpu
from stand_in import OnGpu, StandIn
from superhosts import Cbaa, load
from superhosts.core.device import cuda_problem, simulated
from superhosts.core.pairs import array_to_numbers, numbers_to_array
from superhosts.detectors.engines.base import Tuning
from superhosts.detectors.exact import Exact as UntunedExact
from tuned import tuned

Exact = tuned(UntunedExact, Tuning(min_pending=500))  # sorts pending rows often
WIDTHS = [(32, 32), (32, 64), (32, 128), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128)]
PLACES = ["host", "gpu", "both"]


def real_gpu() -> bool:
    return cuda_problem() is None and not simulated()


REAL = pytest.param("real", marks=[pytest.mark.gpu, pytest.mark.skipif(not real_gpu(), reason="needs a GPU")])


@pytest.fixture(params=["stand-in", REAL])
def gpu(request):
    """The array library of the GPU."""
    if request.param == "real":
        import cupy

        yield cupy
        return
    stand_in = StandIn()
    with machine_with(Driver(), stand_in):
        yield stand_in


# Traffic and comparison


def pairs_of(bits: int, peer_bits: int, count: int = 4000, seed: int = 0) -> list[tuple[int, int]]:
    rng = np.random.default_rng(bits + peer_bits + seed)
    spread = 0x9E3779B97F4A7C15F39CC0605CEDC835
    hosts = [int(x) * spread & (1 << bits) - 1 for x in rng.zipf(1.4, count) % 50]
    peers = [int(x) * spread & (1 << peer_bits) - 1 for x in rng.integers(0, 300, count)]
    ends = [((1 << bits) - 1, (1 << peer_bits) - 1), ((1 << bits) - 1, 0), (0, (1 << peer_bits) - 1), (0, 0)]
    return [*zip(hosts, peers, strict=True), *ends]


def columns_of(pairs: list[tuple[int, int]], bits: int, peer_bits: int) -> tuple[np.ndarray, np.ndarray]:
    hosts, peers = zip(*pairs, strict=True)
    return numbers_to_array(list(hosts), bits), numbers_to_array(list(peers), peer_bits)


def feed(detector: Exact, columns: tuple[Any, Any], step: int = 333) -> Exact:
    for start in range(0, len(columns[0]), step):
        detector.update(*(column[start : start + step] for column in columns))
    return detector


def content(detector: Exact) -> bytes:
    """Return all pairs in the order of their rows."""
    pairs = detector.arrays()["pairs"]
    assert type(pairs) is np.ndarray
    return pairs[np.lexsort(pairs.T[::-1])].tobytes() if pairs.size else b""


def assert_same(mine: Exact, other: Exact) -> None:
    """Assert that all answers of two detectors are equal."""
    assert content(mine) == content(other)
    assert mine.memory == other.memory
    hosts, peers = mine.counts()
    assert (type(hosts), type(peers)) == (np.ndarray, np.ndarray)
    numbers = array_to_numbers(hosts)
    counts = dict(zip(numbers, peers.tolist(), strict=True))
    other_hosts, other_peers = other.counts()
    assert counts == dict(zip(array_to_numbers(other_hosts), other_peers.tolist(), strict=True))
    assert (hosts.dtype, hosts.shape, peers.dtype) == (other_hosts.dtype, other_hosts.shape, other_peers.dtype)
    answers = [lambda d, t=t: d.super_hosts(t) for t in (1, 1.5, 60, 200, 1e9)]
    answers += [lambda d, c=c: d.top(c) for c in (1, 7, max(1, len(peers)), 1000)]
    for answer in answers:
        assert type(answer(mine).hosts) is np.ndarray
        assert answer(mine).to_dict() == answer(other).to_dict()
    assert mine.top(7).peers.tolist() == sorted(counts.values(), reverse=True)[:7]
    assert len(mine.super_hosts(60)) == sum(count >= 60 for count in counts.values())
    for number in (*numbers[:5], 0, 12345, (1 << mine.key_bits) - 1):
        assert mine.estimate(number) == other.estimate(number)
        assert mine.estimate(number).peers == counts.get(number, 0)


# Tests


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("bits", "peer_bits"), WIDTHS)
def test_answers_are_those_of_the_cpu_and_of_sets(gpu, bits, peer_bits, place):
    pairs = pairs_of(bits, peer_bits)
    hosts, peers = columns_of(pairs, bits, peer_bits)
    there = (hosts if place == "host" else gpu.asarray(hosts), peers if place != "gpu" else gpu.asarray(peers))
    detector, cpu = Exact(key_bits=bits, device="cuda"), Exact(key_bits=bits, device="cpu")
    assert (detector.device, detector.gpu, cpu.device, cpu.gpu) == ("cuda:0", 0, "cpu", None)
    feed(detector, there)
    feed(cpu, there)
    assert detector.memory == cpu.memory  # even while pairs are pending
    assert_same(detector, cpu)
    found, counts = detector.counts()
    assert dict(zip(array_to_numbers(found), counts.tolist(), strict=True)) == naive.peers(pairs)


def test_an_empty_one(gpu):
    for bits in (32, 64, 128):
        detector, cpu = Exact(key_bits=bits, device="cuda"), Exact(key_bits=bits, device="cpu")
        assert_same(detector, cpu)
        assert detector.memory == 0
        detector.merge(cpu)
        cpu.merge(detector)
        assert_same(detector, cpu)
        detector.load_arrays(cpu.arrays())
        assert_same(detector, cpu)


@pytest.mark.parametrize("wide", [64, 128])
def test_peers_become_wider_on_the_way(gpu, wide):
    narrow_columns, wide_columns = columns_of(pairs_of(32, 32), 32, 32), columns_of(pairs_of(32, wide), 32, wide)
    detectors = [Exact(device="cuda"), Exact(device="cpu")]
    for detector in detectors:
        feed(detector, narrow_columns)
        feed(detector, wide_columns)
        feed(detector, (narrow_columns[0], narrow_columns[1].astype(np.uint64)))
        feed(detector, narrow_columns)
    assert_same(*detectors)
    hosts, counts = detectors[0].counts()
    truth = naive.peers(pairs_of(32, 32) + pairs_of(32, wide))
    assert dict(zip(hosts.tolist(), counts.tolist(), strict=True)) == truth


@pytest.mark.slow
@pytest.mark.parametrize("devices", [("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")])
@pytest.mark.parametrize(
    ("bits", "left", "right"), [(32, 32, 32), (32, 32, 64), (32, 128, 32), (64, 64, 64), (128, 64, 128)]
)
def test_merging_crosses_devices(gpu, devices, bits, left, right):
    first, second = columns_of(pairs_of(bits, left), bits, left), columns_of(pairs_of(bits, right, seed=1), bits, right)
    both = feed(feed(Exact(key_bits=bits, device="cpu"), first), second)
    mine, other = (Exact(key_bits=bits, device=device) for device in devices)
    feed(mine, first)
    feed(other, second)
    before = content(other)
    mine.merge(other)
    assert_same(mine, both)
    assert content(other) == before
    mine.merge(other)
    mine.merge(mine)
    assert_same(mine, both)
    empty = Exact(key_bits=bits, device=devices[1])
    empty.merge(mine)
    assert_same(empty, both)
    empty.update(first[0][:1], first[1][::-1][:1].copy())
    assert_same(mine, both)


@pytest.mark.parametrize(("bits", "peer_bits"), WIDTHS)
def test_files_cross_devices(gpu, bits, peer_bits, tmp_path):
    columns = columns_of(pairs_of(bits, peer_bits), bits, peer_bits)
    for device in ("cuda", "cpu"):
        feed(Exact(key_bits=bits, device=device), columns).save(tmp_path / f"{device}.cube")
    for saved in ("cuda", "cpu"):
        for device in ("cuda", "cpu"):
            (again,) = load(tmp_path / f"{saved}.cube", device=device).parts.values()
            assert again.device == ("cuda:0" if device == "cuda" else "cpu")
            assert_same(again, feed(Exact(key_bits=bits, device="cpu"), columns))


def address_of(array: Any) -> int:
    return array.ctypes.data if isinstance(array, OnGpu) else array.data.ptr


def test_what_it_takes_in_from_another_is_its_own(gpu):
    """Pending rows are sorted in place, while another thread may query the other detector."""
    columns = columns_of(pairs_of(32, 32, 300), 32, 32)
    one, other = Exact(device="cuda"), feed(Exact(device="cuda"), columns)
    other.top(1)  # leaves no rows pending
    one.merge(other)
    mine, others = ({address_of(rows) for rows in each} for each in (one.pending, other.buckets))
    assert len(mine) == len(others) == 1
    assert mine != others


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_what_it_is_given_stays_as_it_was(gpu, bits):
    """Rows are sorted in place, but the caller's arrays are not."""
    columns = columns_of(pairs_of(bits, bits), bits, bits)
    given = tuple(gpu.asarray(column) for column in columns)
    detector = Exact(key_bits=bits, device="cuda")
    detector.update(*given)
    detector.counts()
    for column, array in zip(columns, given, strict=True):
        assert (gpu.asnumpy(array) == column).all()
    rows = detector.arrays()["pairs"][::-1].copy()
    before = rows.copy()
    detector.load_arrays({"pairs": rows})
    detector.counts()
    assert (rows == before).all()


@pytest.mark.parametrize("gpu", ["stand-in"], indirect=True)  # because CuPy does not count copies
def test_only_what_is_asked_for_comes_back(gpu):
    detector = feed(Exact(device="cuda"), columns_of(pairs_of(32, 32), 32, 32))
    found = len(detector.super_hosts(200))
    assert 0 < found < 10
    assert gpu.copied == 2 * found  # a host and its number of peers for each
    detector.estimate(1)
    assert gpu.copied == 2 * found
    gpu.copied = 0
    detector.top(1)
    assert gpu.copied == 2


@pytest.mark.parametrize("gpu", ["stand-in"], indirect=True)  # because it needs several GPUs
def test_of_several_gpus_it_uses_the_first(gpu):
    columns = columns_of(pairs_of(32, 32), 32, 32)
    mine, other = Exact(device="cuda:1,0"), Exact(device="cuda:0,1")
    assert (mine.gpu, other.gpu, Exact().device) == (1, 0, "cuda:0")
    feed(other, columns)
    mine.merge(other)
    assert_same(mine, other)
    assert mine.buckets[0] is not other.buckets[0]


@pytest.mark.skipif(not simulated(), reason="needs the simulator")
def test_with_a_simulated_gpu_the_cpu_does_the_work():
    numbers = np.arange(9, dtype=np.uint32)
    exact = Exact(device="cuda")
    exact.update(to_gpu(numbers), numbers)
    assert (exact.device, exact.gpu, exact.top(1).peers.tolist()) == ("cuda:0", None, [1])


def test_memory_follows_distinct_pairs_not_packets():
    exact = tuned(UntunedExact, Tuning(min_pending=1000))(device="cpu")
    hosts, peers = np.zeros(900, np.uint32), np.arange(900, dtype=np.uint32)
    for _ in range(50):
        exact.update(hosts, peers)
    assert exact.memory <= 8 * (900 + 1900)
    assert exact.estimate("0.0.0.0").peers == 900


def test_results_say_that_they_were_counted():
    exact = Exact(device="cpu")
    exact.update(np.array([1, 1, 2], np.uint32), np.array([5, 6, 7], np.uint32))
    answers = [exact.super_hosts(1), exact.super_hosts(1).select(slice(0, 1)), exact.top(1), exact.estimate_many([2])]
    assert all(row.exact for answer in answers for row in answer)
    assert [answer.exact.tolist() for answer in answers] == [[True] * 2, [True], [True], [True]]
    assert not Cbaa("8MiB", device="cpu").estimate_many([2]).exact.any()
