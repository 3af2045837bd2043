"""Sketches on a GPU have the same bits and labels as the oracle and give the same answers as on the CPU.

`make test` runs the kernels in numba's simulator, where a GPU thread is a Python thread, so inputs are small.
`make test-gpu` runs the same tests on a real GPU with larger inputs, and tests that need a real one.
"""

from __future__ import annotations

import copy
import gc
import itertools
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

import numpy as np
import pytest

import naive
from crowd import DEADLINE
from cubes import assert_equal_to_oracle, assert_equal_to_oracle_of_cbaa, dense_cube, feed, random_pairs
from gpus import Driver, full_gpu, machine_with, to_gpu
from superhosts import Cbaa, Cube, Geometry, UsageError, load
from superhosts.core import device
from superhosts.core.hashing import DEFAULT_KEY, make_key, unmangle32
from superhosts.core.pairs import numbers_to_array
from superhosts.detectors.cbaa import Geometry as CbaaGeometry
from superhosts.detectors.cbaa import PaperCbaa
from superhosts.detectors.cube import cuda
from superhosts.detectors.engines.base import GpuTuning, TransferSizes, Tuning
from superhosts.detectors.gpu import launch, transfer
from superhosts.detectors.gpu.transfer import Lane
from superhosts.lab.rivals.dcds import Dcds
from superhosts.lab.rivals.gse import Gse
from superhosts.lab.rivals.vbfa import Vbfa
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_packets
from tuned import tuned

SIMULATED = device.simulated()
COUNT = 40 if SIMULATED else 3000
TINY = Geometry(32, 2, 3, 7, 5, 1, 1)
pytestmark = [
    pytest.mark.skipif(device.cuda_problem() is not None, reason=f"no GPU: {device.cuda_problem()}"),
    pytest.mark.filterwarnings("ignore:threshold"),
]
real = pytest.mark.skipif(SIMULATED, reason="needs a real GPU: make test-gpu")


def gpu_cube(geometry: Geometry = TINY, gpus: str = "cuda", tuning: GpuTuning = Cube.tuning.gpu) -> Cube:
    return tuned(Cube, Tuning(gpu=tuning))(geometry=geometry, device=gpus, threads=2)


def both(count: int = COUNT, tuning: GpuTuning = Cube.tuning.gpu) -> tuple[Cube, Cube]:
    """Return a cube on the CPU and one on the GPU with the same few hosts with many peers."""
    rng = np.random.default_rng(5)
    hosts = rng.choice(rng.integers(0, 1 << 32, 4), count).astype(np.uint32)
    peers = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    cubes = dense_cube(geometry=TINY, device="cpu"), gpu_cube(tuning=tuning)
    for cube in cubes:
        cube.update(hosts, peers)
    return cubes


def twins(geometry: Geometry, pairs: list[tuple[int, int]], peer_bits: int = 32) -> tuple[Cube, Cube]:
    """Return a cube on the CPU and one on the GPU with the same pairs."""
    cubes = dense_cube(geometry=geometry, device="cpu"), gpu_cube(geometry)
    for cube in cubes:
        feed(cube, pairs, peer_bits)
    return cubes


def numbered(sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of the hosts 0, 1, … with these numbers of peers."""
    hosts = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    return hosts, np.random.default_rng(4).integers(0, 1 << 32, len(hosts), dtype=np.uint32)


def candidates(sketch: Cube | Cbaa, threshold: float) -> list[tuple[int, ...]]:
    """Return the mangled hosts that may have this many peers and their zero counts, before any estimation.

    A search on a GPU also returns counts of giant columns, which follow and have a test of their own.
    """
    hosts, counts = sketch.engine.search(sketch.search_for(threshold))
    plain = counts[:, : sketch.geometry.arrays + 1].astype(np.uint64)
    return sorted(tuple(row) for row in np.hstack([hosts, plain]).tolist())


def assert_same(one: Cube, other: Cube, threshold: float = 8) -> None:
    """Assert that all queries have the same answers."""
    for name, array in one.arrays().items():
        assert np.array_equal(array, other.arrays()[name]), name
    assert np.array_equal(one.zeros, other.zeros)
    assert np.array_equal(one.engine.zero_sums(), other.engine.zero_sums())
    assert candidates(one, threshold) == candidates(other, threshold)
    assert one.super_hosts(threshold).to_dict() == other.super_hosts(threshold).to_dict()
    assert one.fill() == other.fill()


def test_hosts_are_measured_in_the_order_in_which_they_are_named():
    geometry = Geometry(32, 1, 3, 6, 5, 1, 0, giants=1)
    on_cpu, on_gpu = dense_cube(geometry=geometry, device="cpu"), gpu_cube(geometry, tuning=GpuTuning(rows=4))
    on_cpu.update(*numbered(sizes=(1500, 30, 5, 60)))
    on_gpu.load_arrays(on_cpu.arrays())
    mangled = on_cpu.mangle(np.array([3, 0, 9, 1, 0, 2, 3], np.uint32))  # one is unknown, two are named twice
    measured = on_gpu.engine.measure(mangled)
    assert np.array_equal(measured[:, :4], on_cpu.engine.measure(mangled))
    full = measured[:, 3] < geometry.giant_zeros
    assert 0 < full.sum() < len(full)
    assert np.array_equal(measured[full, 4:], on_cpu.engine.measure_giants(mangled[full]))
    assert not measured[~full, 4:].any()
    assert candidates(on_gpu, 16) == candidates(on_cpu, 16)  # The limits of the question are those of a search again.


@pytest.mark.parametrize(("bits", "peer_bits"), [(32, 32), (32, 128), (64, 64), (64, 128), (128, 128)])
def test_bits_and_labels_are_the_oracles_for_every_width(bits, peer_bits):
    cube = gpu_cube(TINY._replace(key_bits=bits))
    pairs = random_pairs(bits, peer_bits, COUNT)
    feed(cube, pairs, peer_bits)
    assert_equal_to_oracle(cube, pairs)


@pytest.mark.filterwarnings("ignore:this cube is overfull")
def test_a_search_also_reads_the_giant_columns_of_hosts_whose_plain_ones_are_nearly_full():
    geometry = Geometry(32, 1, 3, 6, 5, 1, 0, giants=1)
    cubes = dense_cube(geometry=geometry, device="cpu"), gpu_cube(geometry)
    rng = np.random.default_rng(1)
    big, small = 7, 9
    for host, count in ((big, 1500), (small, 30)):
        cubes[0].update(np.full(count, host, np.uint32), rng.integers(0, 1 << 32, count, dtype=np.uint32))
    cubes[1].load_arrays(cubes[0].arrays())
    hosts, counts = cubes[1].engine.search(cubes[1].search_for(16))
    order = np.argsort(counts[:, 3])  # the zeros of the AND of plain columns
    assert np.array_equal(hosts[order], cubes[0].mangle(np.array([big, small], np.uint32)))
    plain, giant = counts[order, :4], counts[order, 4:]
    assert np.array_equal(plain, cubes[0].engine.measure(hosts[order]))
    assert np.array_equal(giant[0], cubes[0].engine.measure_giants(hosts[order])[0])
    assert giant[0].all()
    assert not giant[1].any()
    assert cubes[0].super_hosts(16).to_dict() == cubes[1].super_hosts(16).to_dict()


TILED = GpuTuning(min_tiled_pairs=8, min_tiled_memory=0, max_tiled_pairs=50)  # sorts a batch in several rounds


@pytest.mark.slow
@pytest.mark.parametrize("slice_bits", [1, 6])
def test_pairs_that_lie_on_the_gpu_are_sorted_by_slice_and_none_is_lost(slice_bits):
    geometry = TINY._replace(slice_bits=slice_bits, columns=3)
    # Pairs that are zero before or after mangling must not be mistaken for an empty place of a cache.
    zero = int(unmangle32(0, make_key()))
    pairs = [(0, 0), (0, 1), (1, 0), (zero, 0), (zero, 1), *random_pairs(32, 32, 2 * COUNT)] * 2
    cube = gpu_cube(geometry, tuning=TILED)
    hosts, peers = (np.array(column, np.uint32) for column in zip(*pairs, strict=True))
    cube.update(to_gpu(hosts), to_gpu(peers))
    assert cube.engine.tiles is not None
    assert_equal_to_oracle(cube, pairs)


@pytest.mark.slow
def test_in_a_train_of_packets_only_repeats_of_the_whole_pair_are_dropped():
    """Neighbours share their host, their peer or both."""
    hosts, peers = np.array([[host, peer] for host in range(1, 7) for peer in (1, 2, 2, 2, 1, 1)], np.uint32).T.copy()
    hosts, peers = np.concatenate([hosts, peers]), np.concatenate([peers, hosts])
    cube = gpu_cube(tuning=TILED)
    cube.update(to_gpu(hosts), to_gpu(peers))
    assert cube.engine.tiles is not None
    assert_equal_to_oracle(cube, list(zip(hosts.tolist(), peers.tolist(), strict=True)))


def sort_one_pair(cube: Cube, host: int, peer: int) -> None:
    """Update a cube with one pair, repeated until the batch is large enough to be sorted by slice."""
    cube.update(*(to_gpu(np.full(TILED.min_tiled_pairs, number, np.uint32)) for number in (host, peer)))
    assert cube.engine.tiles is not None


@pytest.mark.parametrize("way", ["clear", pytest.param("load", marks=pytest.mark.slow)])
def test_pairs_that_were_discarded_are_written_when_they_come_again(way):
    cube = gpu_cube(tuning=TILED)
    empty = cube.arrays()
    sort_one_pair(cube, 7, 9)
    assert cube.bits.any()
    if way == "clear":
        cube.clear()
    else:
        cube.load_arrays(empty)
    assert not cube.bits.any()
    sort_one_pair(cube, 7, 9)
    assert_equal_to_oracle(cube, [(7, 9)])


def test_a_batch_of_host_memory_travels_in_pieces(monkeypatch):
    monkeypatch.setenv("SUPERHOSTS_THREADS", "3")
    cube = gpu_cube(tuning=GpuTuning(transfer=TransferSizes(piece=17, part_bytes=16)))
    pairs = random_pairs(32, 32, COUNT)
    hosts, peers = (np.array(column, np.uint32) for column in zip(*pairs, strict=True))
    cube.update(hosts, peers)
    hosts[:], peers[:] = 7, 7  # The caller may reuse its arrays as soon as update returns.
    assert_equal_to_oracle(cube, pairs)


@pytest.mark.parametrize("piece", [17, 1 << 20])
def test_several_batches_travel_together(piece, monkeypatch):
    monkeypatch.setenv("SUPERHOSTS_THREADS", "3")
    cube = gpu_cube(tuning=GpuTuning(transfer=TransferSizes(piece=piece, part_bytes=64)))
    pairs = random_pairs(32, 32, COUNT)
    hosts, peers = (np.array(column, np.uint32) for column in zip(*pairs, strict=True))
    edges = [0, 3, 3, 30, 31, COUNT - 1, COUNT]
    cube.engine.update_batches([(hosts[a:b], peers[a:b]) for a, b in itertools.pairwise(edges)])
    wide = [((host, peer << 64)) for host, peer in pairs[:9]]
    more = hosts[:9], numbers_to_array([peer for _, peer in wide], 128)
    cube.engine.update_batches([more, (to_gpu(hosts[:5]), peers[:5])])  # of other types, and from the GPU
    cube.engine.update_batches([(hosts[:2], peers[:2]), more])
    cube.engine.update_batches([])
    assert_equal_to_oracle(cube, pairs + wide)


def test_where_there_is_no_room_to_sort_pairs_are_written_as_they_come():
    cube = gpu_cube(tuning=TILED)
    pairs = random_pairs(32, 32, COUNT)
    columns = [to_gpu(np.array(column, np.uint32)) for column in zip(*pairs, strict=True)]
    with full_gpu():
        cube.update(*columns)
    assert cube.engine.tiles is None
    assert_equal_to_oracle(cube, pairs)


def test_one_pair_none_and_arrays_with_gaps():
    cube = gpu_cube()
    hosts, peers = np.arange(20, dtype=np.uint32), np.arange(100, 120, dtype=np.uint32)
    cube.update(hosts[:0], peers[:0])
    cube.update(to_gpu(hosts[:0]), to_gpu(peers[:0]))
    cube.update(hosts[3:4], peers[3:4])
    cube.update(hosts[::2], peers[::2])
    if not SIMULATED:  # CuPy, which removes gaps, has no stand-in here.
        cube.update(to_gpu(hosts)[1::5], to_gpu(peers)[1::5])
    cube.update(to_gpu(hosts[18:]), peers[18:])  # one array on the GPU, one in main memory
    seen = {3, 18, 19, *range(0, 20, 2), *(() if SIMULATED else range(1, 20, 5))}
    assert_equal_to_oracle(cube, [(i, i + 100) for i in seen])


def test_a_cube_on_the_cpu_takes_pairs_from_the_gpu():
    on_cpu, on_gpu = dense_cube(geometry=TINY, device="cpu"), gpu_cube()
    hosts, peers = np.arange(30, dtype=np.uint32) % 3, np.arange(30, dtype=np.uint32)
    on_cpu.update(to_gpu(hosts), to_gpu(peers))
    on_gpu.update(hosts, peers)
    assert_same(on_cpu, on_gpu)


@pytest.mark.parametrize("bits", [32, *(pytest.param(bits, marks=pytest.mark.slow) for bits in (64, 128))])
def test_the_same_hosts_as_on_the_cpu_with_the_same_numbers(bits):
    pairs = [(host % 5, peer) for host, peer in random_pairs(bits, bits, 2 * COUNT)]
    on_cpu, on_gpu = twins(TINY._replace(key_bits=bits), pairs, bits)
    assert len(on_cpu.super_hosts(8))
    assert_same(on_cpu, on_gpu)
    for threshold in (20, 30, 50):  # A column may be hot although the AND of all is not.
        assert candidates(on_cpu, threshold) == candidates(on_gpu, threshold)
    assert on_cpu.estimate(3) == on_gpu.estimate(3)
    assert on_cpu.top(2).to_dict() == on_gpu.top(2).to_dict()


@pytest.mark.parametrize("bits", [32, 128])
def test_labels_that_are_too_many_for_one_queue_name_the_same_hosts(bits, monkeypatch):
    monkeypatch.setattr(cuda, "MOST_QUEUED", 10)
    monkeypatch.setattr(cuda, "make_list_candidates", cache(cuda.make_list_candidates.__wrapped__))
    pairs = [(host % 5, peer) for host, peer in random_pairs(bits, bits, 2 * COUNT)]
    on_cpu, on_gpu = twins(TINY._replace(key_bits=bits), pairs, bits)
    assert len(candidates(on_cpu, 8)) > 1
    for threshold in (8, 20, 30, 50):
        assert candidates(on_cpu, threshold) == candidates(on_gpu, threshold)


def test_every_test_of_a_candidate_reads_the_words_after_those_of_the_test_before():
    geometry = Geometry(32, 0, 3, 13, 2, 3, 0)
    sizes = np.repeat([60, 150, 240, 330], 3)
    on_cpu, on_gpu = dense_cube(geometry=geometry, device="cpu"), gpu_cube(geometry)
    on_cpu.update(*numbered(sizes))
    on_gpu.load_arrays(on_cpu.arrays())
    search = on_gpu.search_for(300)
    assert search.first_words < search.second_words < search.third_words < geometry.words
    for threshold in (220, 300):
        assert 0 < len(candidates(on_cpu, threshold)) < len(sizes)
        assert candidates(on_cpu, threshold) == candidates(on_gpu, threshold)


@pytest.mark.slow
def test_where_room_runs_out_nobody_is_lost_even_when_memory_for_more_is_refused():
    for rows, candidates in ((1, 100), (100, 1), (1, 1)):
        on_cpu, on_gpu = both(tuning=GpuTuning(rows=rows, candidates=candidates))
        assert len(on_cpu.super_hosts(4)) > 1
        if rows == candidates:
            with full_gpu(allocations=1), pytest.raises(RuntimeError, match="OUT_OF_MEMORY"):
                on_gpu.super_hosts(4)
        assert on_gpu.super_hosts(4).to_dict() == on_cpu.super_hosts(4).to_dict()
        assert (on_gpu.engine.max_rows > rows) is (rows == 1)
        assert (on_gpu.engine.max_candidates > candidates) is (candidates == 1)


def test_a_sketch_that_nobody_holds_is_gone_at_once():
    """Memory must not wait for the garbage collector, because a scan would fill the GPU's memory meanwhile."""
    on_gpu = both()[1]
    on_gpu.super_hosts(4)
    engine = weakref.ref(on_gpu.engine)
    gc.disable()
    try:
        del on_gpu
        assert engine() is None
    finally:
        gc.enable()


def test_threads_have_ended_when_a_batch_fails():
    """The first piece fails on the GPU while threads still copy the second one."""
    copying, may_end = threading.Barrier(4), threading.Event()
    running = []

    class SlowLane(Lane):
        def transfer(self, piece, first, step):
            if piece.batches[0][0][0] == 0:
                return
            running.append(first)
            copying.wait(DEADLINE)
            assert may_end.wait(DEADLINE)
            running.remove(first)

    def fail(*_):
        copying.wait(DEADLINE)
        raise RuntimeError("no launch")

    column = np.arange(12, dtype=np.uint32)  # two pieces of three parts
    stage = transfer.Staging(0, 3, TransferSizes(piece=6, part_bytes=16), SlowLane)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(stage.send, [(column, column)], fail)
        still_waits = not wait([sending], 0.05).done
        may_end.set()
        assert still_waits
        with pytest.raises(RuntimeError, match="no launch"):
            sending.result(DEADLINE)
    assert not running


def test_arrays_go_by_their_names():
    on_cpu, on_gpu = both()
    arrays = on_gpu.arrays()
    on_gpu.load_arrays({"labels": arrays["labels"], "bits": arrays["bits"]})
    assert_same(on_cpu, on_gpu)
    with pytest.raises(ValueError, match="words"):
        on_gpu.load_arrays({"labels": arrays["labels"], "bits": arrays["bits"][1:]})
    assert_same(on_cpu, copy.deepcopy(on_gpu))


ODD = [
    TINY._replace(slice_bits=0, column_bits=6, label_bits=0, columns=2),
    TINY._replace(arrays=8, columns=2, share_bits=0),
    TINY._replace(key_bits=128, arrays=1, label_bits=3),
]


@pytest.mark.slow
@pytest.mark.parametrize("geometry", ODD, ids=lambda geometry: "-".join(map(str, geometry)))
def test_odd_geometries_answer_as_on_the_cpu(geometry):
    assert_same(*twins(geometry, [(host % 4, peer) for host, peer in random_pairs(geometry.key_bits, 32, COUNT)]))


@pytest.mark.slow
def test_merging_crosses_devices():
    left, right = both()
    for cube, first in ((left, 0), (right, 50)):
        cube.update(np.full(30, 9, np.uint32), np.arange(first, first + 30, dtype=np.uint32))
    union = dense_cube(geometry=TINY, device="cpu")
    union.merge(left)
    union.merge(right)
    onto_gpu, onto_cpu, among_gpus = right.copy(), left.copy(), right.copy()
    onto_gpu.merge(left)
    onto_cpu.merge(right)
    other = gpu_cube()
    other.merge(left)
    among_gpus.merge(other)
    among_gpus.merge(among_gpus)
    for merged in (onto_gpu, onto_cpu, among_gpus):
        assert_same(union, merged)
    assert not np.array_equal(right.bits, union.bits)  # A copy is independent.


@pytest.mark.slow
def test_files_cross_devices(tmp_path):
    on_cpu, on_gpu = both()
    on_gpu.save(tmp_path / "gpu.cube")
    on_cpu.save(tmp_path / "cpu.cube")
    for name in ("gpu.cube", "cpu.cube"):
        for where in ("cpu", "cuda"):
            (loaded,) = load(tmp_path / name, device=where).parts.values()
            assert isinstance(loaded, Cube)
            assert loaded.device == device.choose_device(where)
            assert_same(on_cpu, loaded)


@pytest.mark.slow
def test_several_gpus_share_the_work_and_answer_as_one():
    on_cpu, several = dense_cube(geometry=TINY, device="cpu"), gpu_cube(gpus="cuda:0,0")
    pairs = random_pairs(32, 32, COUNT)
    for start in range(0, COUNT, COUNT // 4):
        feed(several, pairs[start : start + COUNT // 4], 32)
    feed(on_cpu, pairs, 32)
    assert all(engine.arrays()["bits"].any() for engine in several.engine.engines)
    assert_same(on_cpu, several)
    feed(several, [(1, 2), (3, 4)], 32)
    feed(several, [(5, 6)], 32)
    feed(on_cpu, [(1, 2), (3, 4), (5, 6)], 32)
    several.merge(several.copy())
    assert_same(on_cpu, several)
    assert several.memory == 2 * on_cpu.memory == 2 * TINY.memory  # Each GPU has its own columns.
    several.clear()
    assert not several.bits.any()


# Many small arrays that restore 31 or 32 bits: zeros are counted quickly, and the search ends.
CBAA = {
    "7 + 1": CbaaGeometry(1, 7, 5, 1, 2, 6),
    "8 + 0": CbaaGeometry(1, 8, 4, 0, 2, 6),
    "8 + 0, by peer": CbaaGeometry(1, 8, 4, 0, 2, 6, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CBAA)
def test_cbaa_is_the_oracles_and_finds_what_the_cpu_finds(name):
    rng = np.random.default_rng(3)
    hosts = np.repeat(rng.integers(0, 1 << 32, 2, dtype=np.uint32), 40)
    peers = rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32)
    kind = PaperCbaa if CBAA[name].rows_by_peer else Cbaa
    on_cpu, on_gpu = (kind(geometry=CBAA[name], device=where) for where in ("cpu", "cuda"))
    oracle = naive.Cbaa(CBAA[name]._asdict(), DEFAULT_KEY)
    for host, peer in zip(hosts.tolist(), peers.tolist(), strict=True):
        oracle.update(host, peer)
    for detector in (on_cpu, on_gpu):
        detector.update(hosts, peers)
    assert_equal_to_oracle_of_cbaa(on_gpu, oracle)
    assert set(on_cpu.super_hosts(20).hosts.tolist()) >= set(hosts.tolist())
    assert_same(on_cpu, on_gpu, 20)
    assert on_cpu.estimate(int(hosts[0])) == on_gpu.estimate(int(hosts[0]))


def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="there is no GPU 99"):
        Cube(geometry=TINY, device="cuda:99")
    with pytest.raises(UsageError, match="cuda:x"):
        Cube(geometry=TINY, device="cuda:x")


def test_a_sketch_too_large_for_the_gpu_is_refused_and_auto_takes_the_cpu():
    small_gpu = GpuTuning(max_memory=1024)
    with pytest.raises(UsageError, match="a sketch on a GPU must be smaller than 1 KiB"):
        gpu_cube(tuning=small_gpu)
    with machine_with(Driver()):
        assert device.choose_device("auto") == "cuda:0"
        sizes = tuned(Cube, Tuning(gpu=small_gpu))
        assert sizes(geometry=TINY, device="auto", exact=False).device == "cpu"
    with full_gpu(), pytest.raises(UsageError, match="GPU 0 does not have enough free memory"):
        gpu_cube()


@pytest.mark.slow
def test_without_a_driver_the_way_to_one_is_named():
    code = "import superhosts as sh; sh.Cube('1MiB', device='cuda')"
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "UsageError: device 'cuda' cannot be used" in ended.stderr
    if "no NVIDIA driver" in ended.stderr:
        assert "pip install 'superhosts[gpu]'" in ended.stderr


@pytest.mark.slow
def test_the_cpu_imports_nothing_of_cuda():
    code = (
        "import sys, numpy as np, superhosts as sh; c = sh.Cube('1MiB', device='cpu');"
        "c.update(np.arange(9, dtype=np.uint32), np.arange(9, dtype=np.uint32)); c.super_hosts(1024);"
        "print([m for m in sys.modules if m == 'cupy' or m.startswith(('numba.cuda', 'cuda.'))])"
    )
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


# Tests that need a real GPU


def window(flows: int, packets: int, supers: int, order: str = "shuffled") -> tuple[np.ndarray, np.ndarray]:
    traffic = Traffic(flows=flows, packets=packets, super_hosts=supers)
    hosts, peers = window_flows(traffic, 0)
    picks = window_packets(traffic, 0, order=order)
    return hosts[picks], peers[picks]


@real
@pytest.mark.gpu
@pytest.mark.parametrize("order", ["shuffled", "trains"])
@pytest.mark.parametrize("make", [dense_cube, Cbaa, Cbaa.paper], ids=["cube", "cbaa", "cbaa-paper"])
def test_a_whole_window_is_the_cpus(make, order):
    import cupy

    hosts, peers = window(2_000_000, 12_000_000, 300, order)
    on_cpu = make(device="cpu")
    on_cpu.update(hosts, peers)
    for batch in ((hosts, peers), (cupy.asarray(hosts), cupy.asarray(peers))):
        on_gpu = make(device="cuda")
        on_gpu.update(*batch)
        assert_same(on_cpu, on_gpu, 1024)
        assert_same(on_cpu, on_gpu, 200)


@real
@pytest.mark.gpu
@pytest.mark.parametrize("make", [Dcds, Vbfa, Gse], ids=["dcds", "vbfa", "gse"])
def test_a_whole_window_of_a_rival_is_the_cpus(make):
    import cupy

    hosts, peers = window(2_000_000, 12_000_000, 300, "shuffled")
    on_cpu = make(device="cpu")
    on_cpu.update(hosts, peers)
    expected = on_cpu.super_hosts(1024).to_dict()
    assert len(expected["host"]) > 250
    for batch in ((hosts, peers), (cupy.asarray(hosts), cupy.asarray(peers))):
        on_gpu = make(device="cuda")
        on_gpu.update(*batch)
        assert on_gpu.super_hosts(1024).to_dict() == expected
        for name, array in on_cpu.arrays().items():
            assert np.array_equal(array, on_gpu.arrays()[name]), name


@real
@pytest.mark.gpu
@pytest.mark.parametrize("bits", [64, 128])
def test_wide_hosts_at_full_size(bits):
    hosts, peers = window(300_000, 2_000_000, 100)
    wide = hosts.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    if bits == 128:
        wide = np.stack([wide, hosts.astype(np.uint64)], axis=1)
    on_cpu, on_gpu = dense_cube(key_bits=bits, device="cpu"), Cube(key_bits=bits, device="cuda")
    for cube in (on_cpu, on_gpu):
        cube.update(wide, peers)
    assert_same(on_cpu, on_gpu, 1024)


@real
@pytest.mark.gpu
def test_pinned_memory_and_streams_of_the_users_own():
    import cupy

    hosts, peers = window(100_000, 20_000_000, 10)
    on_cpu, on_gpu = dense_cube(device="cpu"), Cube(device="cuda")
    on_cpu.update(hosts, peers)
    pinned = [device.import_cuda().pinned_array(len(hosts), np.uint32) for _ in range(2)]
    half = len(hosts) // 2
    pinned[0][:half], pinned[1][:half] = hosts[:half], peers[:half]
    assert launch.is_pinned(pinned[0])
    assert not launch.is_pinned(hosts)
    on_gpu.update(pinned[0][:half], pinned[1][:half])
    pinned[0][:], pinned[1][:] = 7, 7
    with cupy.cuda.Stream(non_blocking=True):
        columns = cupy.asarray(hosts[half:]), cupy.asarray(peers[half:])
        on_gpu.update(*columns)
        columns[0][:], columns[1][:] = 7, 7
    assert_same(on_cpu, on_gpu, 1024)


@real
@pytest.mark.gpu
def test_arrays_of_cupy_with_gaps_and_of_any_width():
    import cupy

    on_cpu, oracle = (dense_cube(geometry=TINY, device="cpu") for _ in range(2))
    on_gpu = gpu_cube()
    for peer_bits in (32, 64, 128):
        hosts, peers = zip(*random_pairs(32, peer_bits, COUNT), strict=True)
        columns = numbers_to_array(hosts, 32), numbers_to_array(peers, peer_bits)
        on_gpu_memory = [cupy.asarray(column) for column in columns]
        for cube in (on_cpu, on_gpu):
            cube.update(*(column[::3] for column in on_gpu_memory))
            cube.update(*(column[1::3].copy() for column in on_gpu_memory))
        oracle.update(*(np.concatenate([column[::3], column[1::3]]) for column in columns))
    assert_same(oracle, on_cpu)
    assert_same(oracle, on_gpu)
