"""Searches that join columns to addresses give up if columns are too full, alike on every device, and warn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from superhosts import Cbaa, Cube, ThresholdWarning
from superhosts.core import device
from superhosts.detectors.cbaa import Geometry as CbaaGeometry
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.engines.base import MAX_STEPS, CrowdedError
from superhosts.lab.rivals.dcds import Dcds
from superhosts.lab.rivals.dcds import Geometry as DcdsGeometry
from superhosts.lab.rivals.vbfa import Geometry as VbfaGeometry
from superhosts.lab.rivals.vbfa import Vbfa

SKETCHES = [
    (Cbaa, CbaaGeometry(1, restoring=4, index_bits=12, validating=1, validating_bits=3, column_bits=6)),
    (Dcds, DcdsGeometry(6, (41, 43, 47, 53, 59, 61, 37), 6)),
    (Vbfa, VbfaGeometry(8, 3, 6)),
]
by_name = pytest.mark.parametrize(("kind", "geometry"), SKETCHES, ids=[kind.name for kind, _ in SKETCHES])
GPU = ["cuda"] if device.cuda_problem() is None else []
REAL_GPU = [] if device.simulated() else GPU  # A simulated GPU takes minutes to list this many columns.


def fill(sketch: ColumnSketch) -> None:
    """Set every bit."""
    sketch.engine.load({"bits": np.full_like(sketch.engine.arrays()["bits"], ~np.uint64(0))})


@pytest.mark.slow
@by_name
@pytest.mark.parametrize("where", ["cpu", *REAL_GPU])
def test_a_full_sketch_answers_with_a_warning(kind, geometry, where):
    sketch = kind(geometry=geometry, device=where, threads=2)
    fill(sketch)
    sketch.engine.max_steps = 100  # instead of 2^26 for each of several thresholds
    with pytest.warns(ThresholdWarning, match=f"this {kind.name} is too full for threshold 40: no host can be"):
        assert len(sketch.super_hosts(40)) == 0
    with pytest.warns(ThresholdWarning, match="too full"):
        assert len(sketch.top(3)) == 0


def crowd(sketch: ColumnSketch) -> np.ndarray:
    """Add three hosts with many peers and a crowd of smaller ones; return the three."""
    rng = np.random.default_rng(3)
    big, small = rng.integers(0, 1 << 32, 3, dtype=np.uint32), rng.integers(0, 1 << 32, 6, dtype=np.uint32)
    hosts = np.concatenate([np.repeat(big, 400), np.repeat(small, 25)])
    sketch.update(hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32))
    return big


def fewest_steps(sketch: ColumnSketch, threshold: float) -> int:
    """Return the smallest limit with which the search completes."""
    low, high = -1, 1 << 20
    while high - low > 1:
        sketch.engine.max_steps = (low + high) // 2
        try:
            sketch.engine.search(sketch.search_for(threshold))
            high = sketch.engine.max_steps
        except CrowdedError:
            low = sketch.engine.max_steps
    return high


@pytest.mark.slow
@by_name
def test_every_device_and_number_of_threads_gives_up_at_the_same_limit(kind, geometry):
    limits = {}
    gpus = REAL_GPU if kind is Cbaa else GPU  # VBFA uses the same kernels as CBAA.
    for where, threads in [("cpu", 1), ("cpu", 2), ("cpu", 5), *((where, 1) for where in gpus)]:
        sketch = kind(geometry=geometry, device=where, threads=threads)
        crowd(sketch)
        if not limits:
            limits[where, threads] = fewest_steps(sketch, 60)
        limit = min(limits.values())
        sketch.engine.max_steps = limit - 1
        with pytest.raises(CrowdedError):
            sketch.engine.search(sketch.search_for(60))
        sketch.engine.max_steps = limit
        sketch.engine.search(sketch.search_for(60))
    assert 16 < limit < MAX_STEPS


@pytest.mark.slow
@by_name
def test_hosts_above_the_crowd_are_found_all_the_same(kind, geometry):
    sketch = kind(geometry=geometry, device="cpu", threads=2)
    big = crowd(sketch)
    few, many = fewest_steps(sketch, 160), fewest_steps(sketch, 20)
    assert few < many
    sketch.engine.max_steps = few
    with pytest.warns(ThresholdWarning, match=r"the search was limited to hosts with about (40|80|160) or more"):
        found = sketch.super_hosts(20)
    assert set(big.tolist()) <= set(found.hosts.tolist())


CROWDED = "slices=1,arrays=3,columns=40,rows=4096,labels=8,share=8"


def crowded_cube(geometry: str, pairs: int) -> Cube:
    """Return a cube of hosts with one peer each, and three with a thousand."""
    cube = Cube(geometry=geometry, device="cpu", exact=False)
    rng = np.random.default_rng(4)
    cube.update(*rng.integers(0, 1 << 32, (2, pairs), dtype=np.uint32))
    cube.update(np.repeat(np.arange(3, dtype=np.uint32), 1000), np.tile(np.arange(1000, dtype=np.uint32), 3))
    return cube


def false_host_warnings(ask: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ask()
    return [each for each in said if "may be false" in str(each.message)]


@pytest.mark.parametrize(
    ("geometry", "pairs", "threshold", "warns"),
    [
        (CROWDED, 40_000, 20, True),
        (CROWDED, 40_000, 500, False),
        (CROWDED, 300_000, 500, True),
        (CROWDED.replace("arrays=3", "arrays=5"), 80_000, 20, True),
        (CROWDED.replace("arrays=3", "arrays=5"), 80_000, 50, False),
        (CROWDED + ",sample=8", 320_000, 160, True),
        (CROWDED + ",sample=8", 320_000, 500, False),
    ],
)
def test_a_sketch_that_is_too_full_says_that_its_hosts_may_be_false(geometry, pairs, threshold, warns):
    cube = crowded_cube(geometry, pairs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)
        found = cube.super_hosts(threshold)
    assert (set(found.hosts.tolist()) != {0, 1, 2}) == warns
    for ask in (lambda: cube.super_hosts(threshold), lambda: cube.top(len(found))):
        said = false_host_warnings(ask)
        assert [each.filename for each in said] == [__file__] * warns
        for each in said:
            assert each.category is ThresholdWarning
            state = f"this cube is too full ({math.floor(100 * cube.fill().mean)} % of its bits are set)"
            assert f"{state} for hosts with {found.peers.min():,} peers: many of them may be false" in str(each.message)


def test_the_largest_hosts_of_a_full_sketch_are_found_without_a_warning():
    cube = crowded_cube(CROWDED, 40_000)
    assert not false_host_warnings(lambda: cube.top(3))
    assert false_host_warnings(lambda: cube.top(30))


def test_a_cube_that_is_full_says_that_it_measures_nothing():
    cube = Cube("1KiB", device="cpu", exact=False)
    cube.update(*np.random.default_rng(3).integers(0, 1 << 32, (2, 300_000), dtype=np.uint32))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cube.super_hosts(1024)
    assert "too full (100 % of its bits are set) to measure hosts: saturated ones may" in str(said[-1].message)


def test_a_cube_of_one_array_is_not_too_full_for_its_host():
    cube = Cube(geometry=CROWDED.replace("arrays=3", "arrays=1"), device="cpu", exact=False)
    cube.update(np.zeros(1000, np.uint32), np.arange(1000, dtype=np.uint32))
    assert len(cube.super_hosts(500)) == 1  # A warning would fail the test.
