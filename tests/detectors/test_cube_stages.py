"""The two states of a cube: exact up to a number of distinct pairs, then dense, whatever happened before."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowd import DEADLINE
from gpus import full_gpu
from superhosts import Cube, Exact, Geometry, Sketch
from superhosts.core.device import cuda_problem
from superhosts.core.hashing import DEFAULT_KEY, make_key, mangle_column
from superhosts.core.pairs import numbers_to_array, words_to_column
from superhosts.detectors.cube.engine import CpuCube, make_on_gpu
from superhosts.detectors.engines.base import AutoGpu, GpuTuning, Tuning, said
from superhosts.detectors.engines.pairset import PairSet
from superhosts.detectors.engines.pairtable import unite
from superhosts.errors import DeviceWarning, GpuMemoryError
from tuned import tuned

SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835
BITS = (32, 64, 128)
pytestmark = pytest.mark.filterwarnings("ignore:threshold")
Pairs = list[tuple[int, int]]


def tiny(bits: int = 32, slice_bits: int = 2) -> Geometry:
    """Return a geometry with room for 90 (IPv4), 75 (64 bits) or 80 (128 bits) exact pairs."""
    return Geometry(bits, slice_bits, 3, 7, max(2, 20 >> slice_bits), {32: 1, 64: 2, 128: 2}[bits], 1)


def cube_of(bits: int = 32, *, slice_bits: int = 2, **options) -> Cube:
    small = tuned(Cube, Tuning(min_pairs_per_thread=16))
    return small(geometry=tiny(bits, slice_bits), **{"device": "cpu", "threads": 2, **options})


def distinct_pairs(count: int, bits: int = 32, peer_bits: int | None = None, hosts: int = 7, seed: int = 0) -> Pairs:
    """Return this many distinct pairs: some of one large host, the rest of several others."""
    mask, peer_mask = (1 << bits) - 1, (1 << (peer_bits or bits)) - 1
    numbers = [(0 if i % 3 else i % hosts, i + seed) for i in range(1, count + 1)]
    return [((host + 1) * SPREAD & mask, peer * SPREAD & peer_mask) for host, peer in numbers]


def feed(cube, pairs: Pairs, bits: int = 32, peer_bits: int | None = None):
    """Update a detector with pairs."""
    hosts, peers = [host for host, _ in pairs], [peer for _, peer in pairs]
    if pairs:
        cube.update(numbers_to_array(hosts, bits), numbers_to_array(peers, peer_bits or bits))
    return cube


def rows(detector, asked: list[int]) -> tuple:
    """Return the answers to all questions."""
    answers = (detector.super_hosts(1), detector.super_hosts(9.5), detector.top(3), detector.estimate_many(asked))
    return tuple([row[:6] for row in answer] for answer in answers)  # without the name of the detector


def assert_same(one: Cube, other: Cube, asked: list[int]) -> None:
    assert one.exact == other.exact
    assert rows(one, asked) == rows(other, asked)
    for name, array in one.arrays().items():
        assert np.array_equal(array, other.arrays()[name]), name


def asked_of(pairs: Pairs, bits: int) -> list[int]:
    """Return hosts to ask for: those of the pairs, one twice, one unknown."""
    known = sorted({host for host, _ in pairs})
    return [*known, *known[:1], 5 * SPREAD & (1 << bits) - 3]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("slice_bits", [0, 2, 4])
def test_the_limit_is_exactly_that_of_the_geometry(bits, slice_bits):
    limit = tiny(bits, slice_bits).exact_pairs
    assert 50 < limit < 300
    pairs = distinct_pairs(limit + 1, bits)
    cube = feed(cube_of(bits, slice_bits=slice_bits), 3 * pairs[:-1], bits)
    assert cube.exact
    assert feed(cube, pairs[:5], bits).exact
    assert not feed(cube, pairs[-1:], bits).exact
    assert not feed(cube, pairs[:1], bits).exact


@pytest.mark.parametrize(("bits", "peer_bits"), [(32, 32), (32, 64), (32, 128), (64, 32), (64, 128), (128, 128)])
@pytest.mark.parametrize("over", [-1, 0, 1, 60])
def test_answers_are_those_of_the_exact_detector_and_arrays_those_of_a_dense_cube(bits, peer_bits, over):
    pairs = distinct_pairs(tiny(bits).exact_pairs + over, bits, peer_bits)
    cube, dense = feed(cube_of(bits), pairs, bits, peer_bits), feed(cube_of(bits, exact=False), pairs, bits, peer_bits)
    asked = asked_of(pairs, bits)
    assert cube.exact == (over <= 0)
    assert not dense.exact
    oracle = feed(Exact(key_bits=bits, device="cpu") if over <= 0 else dense, pairs, bits, peer_bits)
    assert rows(cube, asked) == rows(oracle, asked)
    for name, array in dense.arrays().items():
        assert np.array_equal(array, cube.arrays()[name]), name
    assert np.array_equal(dense.zeros, cube.zeros)
    assert np.array_equal(dense.labels, cube.labels)
    assert cube.exact == (over <= 0)  # Questions do not change the state.
    if cube.exact:
        assert cube.fill() == dense.fill()._replace(pairs=len(pairs))
        assert cube.columns_of(asked[0]) == []
        assert all(row.exact and row.peers == row.peers_low == row.peers_high for row in cube.super_hosts(1))
    else:
        assert cube.fill() == dense.fill()
        assert not any(row.exact for row in cube.super_hosts(1))


@st.composite
def histories(draw) -> tuple[int, int, int, list[tuple[str, Pairs, int]]]:
    """Draw a width, threads and a history: batches with repeats, questions and clears, of pairs near the limit."""
    bits = draw(st.sampled_from(BITS))
    count = tiny(bits).exact_pairs + draw(st.sampled_from([-40, -1, 0, 1, 30]))
    flood = draw(st.booleans())
    pairs = distinct_pairs(count, bits, 32, hosts=1 if flood else 7)
    order = draw(st.permutations(pairs + pairs[: draw(st.integers(0, 20))]))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=6)))
    steps = []
    for start, stop in zip([0, *cuts], [*cuts, len(order)], strict=True):
        action = draw(st.sampled_from(["", "ask", "save", "copy"]))
        steps.append((action, order[start:stop], draw(st.sampled_from(BITS))))
    return bits, draw(st.sampled_from([1, 2, 3])), count, steps


@pytest.mark.slow
@given(histories())
def test_the_state_depends_on_the_set_of_pairs_alone(history):
    """Peers are numbers below 2^32, so that they are the same pairs in a column of any width."""
    bits, threads, count, steps = history
    cube = cube_of(bits, threads=threads)
    everything: Pairs = []
    for action, pairs, peer_bits in steps:
        feed(cube, pairs, bits, peer_bits)
        everything += pairs
        if action == "ask":
            assert cube.exact == (len(set(everything)) <= cube.geometry.exact_pairs)
            cube.top(1)
        elif action == "save":
            cube.arrays()
        elif action == "copy":
            cube = cube.copy()
    assert cube.exact == (count <= cube.geometry.exact_pairs)
    asked = asked_of(everything, bits)
    assert_same(cube, feed(cube_of(bits), sorted(everything), bits, 32), asked)
    if cube.exact:
        assert rows(cube, asked) == rows(feed(Exact(key_bits=bits, device="cpu"), everything, bits, 32), asked)
    cube.clear()
    assert cube.exact
    assert list(cube.super_hosts(1)) == []
    assert_same(feed(cube, everything, bits, 32), feed(cube_of(bits), everything, bits, 32), asked)


@pytest.mark.slow
@given(st.sampled_from(BITS), st.sampled_from([-1, 0, 1, 40]), st.randoms(use_true_random=False))
def test_merging_in_any_grouping_gives_the_cube_of_all_pairs(bits, over, random):
    pairs = distinct_pairs(tiny(bits).exact_pairs + over, bits, 32)
    cubes, staged = [], True
    for number in range(5):
        share = [pair for pair in pairs if random.random() < 0.4 or hash(pair) % 5 == number]
        exact = random.choice([None, None, None, False])
        staged = staged and exact is None
        cubes.append(feed(cube_of(bits, exact=exact), share, bits, random.choice(BITS)))
        if random.random() < 0.3:
            cubes[-1].top(1)
    while len(cubes) > 1:
        other = cubes.pop(random.randrange(len(cubes)))
        before = {name: array.copy() for name, array in other.arrays().items()}
        random.choice(cubes).merge(other)
        assert all(np.array_equal(array, before[name]) for name, array in other.arrays().items())
    whole = feed(cube_of(bits), pairs, bits, 32)
    dense = feed(cube_of(bits, exact=False), pairs, bits, 32)
    assert cubes[0].exact == (staged and over <= 0)
    assert_same(cubes[0], whole if cubes[0].exact else dense, asked_of(pairs, bits))


@pytest.mark.parametrize("bits", BITS)
def test_words_of_empty_slots_are_no_pairs(bits):
    """Hosts with the smallest mangled addresses, among them 0 and 1, and the peer 0."""
    mangled = np.zeros((60, 2), np.uint64)
    mangled[:, 1] = np.arange(60)
    hosts = words_to_column(mangle_column(mangled, bits, True, make_key(DEFAULT_KEY)), bits)
    cube = cube_of(bits)
    cube.update(hosts, np.zeros(60, np.uint32))
    cube.update(hosts[:5], np.ones(5, np.uint32))
    assert sorted(cube.super_hosts(1).peers.tolist()) == [1] * 55 + [2] * 5
    assert cube.estimate_many(hosts).peers.tolist() == [2] * 5 + [1] * 55
    assert cube.fill().pairs == 65


@pytest.mark.parametrize("bits", BITS)
def test_no_pair_is_lost_when_the_union_of_two_exact_cubes_overflows(bits):
    """All pairs are of different hosts, so that many tables still wait when the set is over its limit."""
    each = tiny(bits, 4).exact_pairs * 9 // 10
    pairs = [(host * SPREAD & (1 << bits) - 1, host) for host in range(1, 2 * each + 1)]
    one, other = (feed(cube_of(bits, slice_bits=4), share, bits, 32) for share in (pairs[:each], pairs[each:]))
    assert one.exact
    assert other.exact
    one.merge(other)
    assert other.exact
    assert_same(one, feed(cube_of(bits, slice_bits=4, exact=False), pairs, bits, 32), asked_of(pairs, bits))


def test_a_cube_that_loads_arrays_is_dense_until_it_is_cleared():
    pairs = distinct_pairs(40)
    twin = cube_of()
    twin.load_arrays(feed(cube_of(), pairs).arrays())
    assert_same(twin, feed(cube_of(exact=False), pairs), asked_of(pairs, 32))
    twin.clear()
    assert twin.exact


def test_a_file_merges_into_an_exact_sketch(tmp_path):
    pairs = distinct_pairs(60)
    feed(cube_of(), pairs[:40]).save(tmp_path / "a.cube")
    cube = feed(cube_of(), pairs[20:])
    sketch = Sketch.of(cube)
    sketch.merge_file(tmp_path / "a.cube")
    assert next(iter(sketch.parts.values())) == feed(cube_of(exact=False), pairs)


def test_memory_grows_with_the_pairs_and_the_cube_is_made_on_overflow_only():
    cube = Cube("128MiB", device="cpu", threads=1)
    assert cube.memory == 0
    hosts = np.arange(1000, dtype=np.uint32)
    cube.update(hosts, hosts)
    assert cube.exact
    assert 8000 < cube.memory < 100_000
    assert cube.geometry.exact_pairs == cube.geometry.memory * 3 // 64
    small = feed(cube_of(), distinct_pairs(200))
    assert not small.exact
    assert small.memory == small.geometry.memory


@pytest.mark.parametrize("flood", [False, True], ids=["many hosts", "one host"])
def test_tables_take_at_most_the_memory_of_the_geometry(flood):
    """A flood of one host puts all pairs into one bin."""
    cube = Cube("1MiB", device="cpu", threads=2)
    limit = cube.geometry.exact_pairs
    rng = np.random.default_rng(3)
    hosts = np.full(limit, 7, np.uint32) if flood else rng.integers(0, 1 << 32, limit, dtype=np.uint32)
    for start in range(0, limit, 5000):
        cube.update(hosts[start : start + 5000], np.arange(start, min(start + 5000, limit), dtype=np.uint32))
        assert cube.exact
        assert cube.memory < 0.8 * cube.geometry.memory
    assert int(cube.super_hosts(1).peers.sum()) == limit
    cube.update(hosts[:1], np.array([limit], np.uint32))
    assert not cube.exact


def test_an_exact_cube_takes_any_threshold_without_warning():
    cube = feed(cube_of(), distinct_pairs(50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(cube.super_hosts(1)) == 7
        assert list(cube.super_hosts(1 << 40)) == []


def test_a_cube_starts_exact_unless_asked_otherwise_or_on_a_gpu():
    cases = [("cpu", None, True), ("auto", None, True), ("cpu", False, False)]
    cases += [("cuda", None, False), ("cuda", True, True)] if cuda_problem() is None else []
    for device, exact, starts in cases:
        assert Cube(geometry=tiny(), device=device, exact=exact).exact == starts


# On a GPU, real or simulated

on_gpu = pytest.mark.skipif(cuda_problem() is not None, reason=f"no GPU: {cuda_problem()}")


@pytest.mark.slow
@on_gpu
@pytest.mark.parametrize(("bits", "peer_bits"), [(32, 32), (32, 64), (64, 32), (128, 128)])
@pytest.mark.parametrize("gpus", ["cuda", "cuda:0,0"])
def test_a_cube_that_outgrows_its_set_goes_on_on_the_gpu(bits, peer_bits, gpus):
    pairs = distinct_pairs(tiny(bits).exact_pairs + 5, bits, peer_bits)
    cube, dense = cube_of(bits, device=gpus, exact=True), cube_of(bits, exact=False)
    for start in range(0, len(pairs), 30):
        if start < 60:
            assert feed(cube, pairs[start : start + 30], bits, peer_bits).exact
        else:
            feed(cube, pairs[start : start + 30], bits, peer_bits)
    assert not cube.exact
    feed(cube, pairs[:9], bits, peer_bits)
    assert_same(cube, feed(dense, pairs, bits, peer_bits), asked_of(pairs, bits))
    cube.clear()
    assert cube.exact


@pytest.mark.slow
@on_gpu
def test_exact_and_dense_cubes_merge_across_devices():
    pairs = distinct_pairs(80)
    dense = feed(cube_of(exact=False), pairs)
    for exact in (True, False):
        gpu = feed(cube_of(device="cuda", exact=exact), pairs[:50])
        gpu.merge(feed(cube_of(), pairs[40:]))
        assert gpu.exact == exact
        assert_same(gpu, feed(cube_of(), pairs) if exact else dense, asked_of(pairs, 32))
        cpu = feed(cube_of(), pairs[40:])
        cpu.merge(feed(cube_of(device="cuda", exact=exact), pairs[:50]))
        assert_same(cpu, feed(cube_of(), pairs) if exact else dense, asked_of(pairs, 32))


@pytest.mark.slow
@on_gpu
def test_a_gpu_without_memory_is_named():
    pairs = distinct_pairs(tiny().exact_pairs + 1)
    cube = feed(cube_of(device="cuda", exact=True), pairs)
    with full_gpu():
        for _ in range(2):
            with pytest.raises(GpuMemoryError, match="GPU 0 does not have enough free memory"):
                cube.top(1)
    assert_same(cube, feed(cube_of(exact=False), pairs), asked_of(pairs, 32))  # Nothing was lost.


class Waiting(AutoGpu):
    """The GPU of "auto", real or simulated, whose start can be held back."""

    def __init__(self, make=make_on_gpu) -> None:
        said.clear()
        super().__init__(make, self.find)
        self.may_start, self.asked = threading.Event(), 0

    def find(self) -> int:
        self.asked += 1
        assert self.may_start.wait(DEADLINE)
        return 0

    def start(self) -> None:
        self.may_start.set()
        self.wait()


def auto_cube(auto: AutoGpu, tuning: Tuning = Tuning(min_pairs_per_thread=16)) -> Cube:  # noqa: B008
    kind = type("AutoCube", (tuned(Cube, tuning),), {"auto_gpu": auto})
    return kind(geometry=tiny(), threads=2, device="auto")


@pytest.mark.slow
@on_gpu
def test_auto_goes_on_on_the_cpu_until_the_gpu_is_ready_and_loses_nothing():
    pairs = distinct_pairs(tiny().exact_pairs + 40)
    asked = asked_of(pairs, 32)
    auto = Waiting()
    cube = auto_cube(auto)
    feed(cube, pairs[: tiny().exact_pairs])
    assert cube.exact
    assert not auto.asked  # A GPU that nobody needs is not started.
    feed(cube, pairs[: tiny().exact_pairs + 10])
    assert (cube.exact, cube.device) == (False, "cpu")
    feed(cube, pairs[60:-20])
    assert cube.device == "cpu"
    auto.start()
    assert_same(cube, feed(cube_of(exact=False), pairs[:-20]), asked)
    with pytest.warns(DeviceWarning, match="it goes on on the GPU"):  # said once: a second one would be an error
        feed(cube, pairs[-30:])
    assert cube.device == "cuda:0"
    assert_same(cube, feed(cube_of(exact=False), pairs), asked)
    second = feed(auto_cube(auto), pairs)  # The next window goes there directly.
    assert not second.exact
    assert second.device == "cuda:0"
    assert_same(second, cube, asked)
    assert second.copy().device == "cuda:0"
    second.clear()
    assert (second.exact, second.device) == (True, "cpu")


@on_gpu
@pytest.mark.filterwarnings("error")
def test_auto_stays_on_the_cpu_where_there_is_no_gpu_or_a_small_or_broken_one():
    pairs = distinct_pairs(tiny().exact_pairs + 1)
    none, small = AutoGpu(make_on_gpu, lambda: None), Waiting()
    small.may_start.set()
    for auto, tuning in ((none, Tuning()), (small, Tuning(gpu=GpuTuning(max_memory=1024)))):
        cube = feed(auto_cube(auto, tuning), pairs)
        assert not cube.exact
        auto.wait()
        feed(cube, pairs)
        assert cube.device == copy.copy(cube).device == "cpu"
        assert_same(cube, feed(cube_of(exact=False), pairs), asked_of(pairs, 32))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda plan, gpu: NotCompiled(plan), "its kernels are not compiled yet"),
        (lambda plan, gpu: 1 // 0, "the GPU is not used: integer division"),
    ],
)
def test_auto_says_once_why_a_gpu_is_not_used(make, text):
    pairs = distinct_pairs(tiny().exact_pairs + 1)
    auto = Waiting(make)
    auto.may_start.set()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            cube = feed(auto_cube(auto), pairs)
            assert not cube.exact
            auto.wait()
            feed(cube, pairs)
            assert cube.device == "cpu"
    assert len([each for each in said if text in str(each.message)]) == 1


@pytest.mark.parametrize(("device", "where"), [("auto", "cpu"), ("cuda", "cuda:0")])
@pytest.mark.filterwarnings("ignore:the GPU is not used")
def test_auto_makes_a_dense_cube_on_a_gpu_only_if_its_kernels_are_compiled(device, where):
    class OnGpu(Cube):
        def _choose_device(self, _device):
            return "cuda:0"

        def _on_gpu(self, plan, _gpu):
            return NotCompiled(plan)

    assert OnGpu(geometry=tiny(), device=device, exact=False).device == where


class NotCompiled(CpuCube):
    """An engine on a GPU whose kernels are not on disk."""

    def is_compiled(self) -> bool:
        return False


class Failing:
    """Makes engines on a GPU that fails after its trial: in one method, or when an engine is made."""

    def __init__(self, method: str) -> None:
        self.method, self.made = method, 0

    def __call__(self, plan, gpu):
        self.made += 1
        if self.made > 1 and self.method == "make":
            self.fail()
        engine = make_on_gpu(plan, gpu)
        if self.made > 1:
            setattr(engine, self.method, self.fail)
        return engine

    def fail(self, *_arguments):
        raise RuntimeError(f"broken in {self.method}")


@on_gpu
@pytest.mark.parametrize(
    ("method", "ready"),
    [(method, ready) for ready in (False, True) for method in ("make", "update_batches", "flush")] + [("load", False)],
)
def test_auto_stays_on_the_cpu_with_all_pairs_if_the_gpu_fails_after_its_trial(method, ready):
    """A GPU that is ready gets the pairs of the set, any other one those of the dense cube on the CPU."""
    pairs = distinct_pairs(tiny().exact_pairs + 60)
    make = Failing(method)
    auto = Waiting(make)
    cube = auto_cube(auto)
    if ready:
        auto.engine(cube.engine.plan)
        auto.start()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert not feed(cube, pairs[: tiny().exact_pairs + 20]).exact
        auto.start()
        for start in range(0, len(pairs), 30):
            feed(cube, pairs[start : start + 30])
        twin = cube.copy()
    assert (cube.device, twin.device) == ("cpu", "cpu")
    assert [str(each.message) for each in said] == [f"the GPU is not used: broken in {method}"]
    assert make.made == 2  # The GPU is not tried again.
    for each in (cube, twin):
        assert_same(each, feed(cube_of(exact=False), pairs), asked_of(pairs, 32))


@on_gpu
@pytest.mark.parametrize("method", ["update_batches", "flush"])
def test_the_trial_of_a_gpu_sends_pairs(method):
    make = Failing(method)
    make.made = 1
    auto = Waiting(make)
    cube = auto_cube(auto)
    auto.engine(cube.engine.plan)
    auto.start()
    with pytest.warns(DeviceWarning, match=f"the GPU is not used: broken in {method}"):
        assert auto.engine(cube.engine.plan) is None
    assert make.made == 2


@on_gpu
def test_what_is_read_from_a_pickle_works_on_the_cpu():
    pairs = distinct_pairs(40)
    read = pickle.loads(pickle.dumps(feed(Cube(geometry=tiny(), device="cuda", exact=True), pairs)))
    assert read.device == copy.copy(read).device == "cpu"
    assert read == feed(cube_of(exact=False), pairs)
    assert rows(read, asked_of(pairs, 32)) == rows(feed(cube_of(), pairs), asked_of(pairs, 32))


@pytest.mark.parametrize("extra", [40, 300, 1000])
def test_tables_are_lent_until_they_were_read(extra: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lent its tables must not write to them while another cube, in another thread, makes its own of them."""

    def cube_of(first: int, last: int) -> Cube:
        cube = Cube("1MiB", device="cpu", threads=2)
        peers = np.arange(first, last, dtype=np.uint32)
        cube.update(peers // 8, peers)
        return cube

    lender, changed = cube_of(0, 10_000).merge(cube_of(10_000, 11_000)), []
    union = lender | cube_of(50_000, 53_000)
    work = PairSet._work

    def interrupted(self: PairSet, pairs: int, call: Any, tables: int) -> Any:
        if self is union.engine.pairs and call.func is unite and not changed:
            changed.append(1)
            thread = threading.Thread(target=lender.merge, args=(cube_of(20_000, 20_000 + extra),))
            thread.start()
            thread.join()
        return work(self, pairs, call, tables)

    monkeypatch.setattr(PairSet, "_work", interrupted)
    assert union.exact_count() == 14_000
    assert changed
    assert union == cube_of(0, 11_000) | cube_of(50_000, 53_000)
