"""Searches that join columns to addresses give up if columns are too full, alike on every device, and warn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from superhosts import Cbaa, Cube, ThresholdWarning, device
from superhosts.detectors.cbaa import Geometry as CbaaGeometry
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.dcds import Dcds
from superhosts.detectors.dcds import Geometry as DcdsGeometry
from superhosts.detectors.vbfa import Geometry as VbfaGeometry
from superhosts.detectors.vbfa import Vbfa
from superhosts.engines.base import MAX_STEPS, CrowdedError

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
    sketch.engine.load({"bits": np.full_like(sketch.bits, ~np.uint64(0))})


@by_name
@pytest.mark.parametrize("where", ["cpu", *REAL_GPU])
def test_a_full_sketch_answers_with_a_warning(kind, geometry, where):
    sketch = kind(geometry=geometry, device=where, threads=2)
    fill(sketch)
    sketch.engine.max_steps = 100  # instead of 2^26 for each of several thresholds
    with pytest.warns(
        ThresholdWarning, match=f"this {kind.name} is too full for threshold 40: no host can be distinguished"
    ):
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


@by_name
def test_hosts_above_the_crowd_are_found_all_the_same(kind, geometry):
    sketch = kind(geometry=geometry, device="cpu", threads=2)
    big = crowd(sketch)
    few, many = fewest_steps(sketch, 160), fewest_steps(sketch, 20)
    assert few < many
    sketch.engine.max_steps = few
    with pytest.warns(
        ThresholdWarning,
        match=r"too full for threshold 20: the search was limited to hosts with about (40|80|160) or more",
    ):
        found = sketch.super_hosts(20)
    assert set(big.tolist()) <= set(found.hosts.tolist())


@pytest.mark.parametrize(("pairs", "percent"), [(40_000, None), (300_000, 84)])
def test_an_overfull_sketch_says_that_its_hosts_may_be_false(pairs, percent):
    cube = Cube(geometry="slices=1,arrays=3,columns=40,rows=4096,labels=8,share=8", device="cpu", exact=False)
    rng = np.random.default_rng(4)
    cube.update(*rng.integers(0, 1 << 32, (2, pairs), dtype=np.uint32))
    assert (cube.fill().mean > 0.75) == (percent is not None)
    for ask in (lambda: cube.super_hosts(500), lambda: cube.top(3)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            ask()
        overfull = [each for each in said if "overfull" in str(each.message)]
        assert [each.filename for each in overfull] == [__file__] * (percent is not None)
        for each in overfull:
            assert each.category is ThresholdWarning
            assert f"this cube is overfull ({percent} % of its bits are set): most hosts found" in str(each.message)
