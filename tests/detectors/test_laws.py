"""The laws that every detector in DETECTORS must keep."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from shapes import all_equal, flood_of_sources, repeats, zipf
from superhosts import MergeError, PairBatch, Sketch, UsageError, load
from superhosts.core.device import cuda_problem, simulated
from superhosts.detectors.cbaa import Geometry as CbaaGeometry
from superhosts.detectors.cube import Geometry
from superhosts.detectors.detector import Detector
from superhosts.sketch.sketch import DETECTORS

SHAPES = [zipf(), all_equal(), flood_of_sources(), repeats()]
SMALL = {
    "cube": {"geometry": Geometry(32, 5, 3, 10, 21, 2, 3), "exact": False},
    "cbaa": {"geometry": CbaaGeometry(slice_bits=6, index_bits=9, validating_bits=8, column_bits=8)},
    "cbaa-paper": {"geometry": CbaaGeometry(6, 3, 9, 1, 9, 8, 1)},
    "exact": {},
}
# A size that SMALL does not have; `column_bits` 7 for detectors that are not listed here.
OTHER_SIZES = {"cube": ("column_bits", 9)}


def make(name: str, threads: int = 2, **more) -> Detector:
    kind = DETECTORS[name]
    if name != "cube" and cuda_problem() is None and not simulated():
        more = {"device": "cuda", **more}  # "auto" would not compile kernels.
    return kind(**SMALL.get(name, {}), threads=threads, **more)


def fed(name: str, hosts: np.ndarray, peers: np.ndarray, threads: int = 2) -> Detector:
    detector = make(name, threads)
    detector.update(hosts, peers)
    return detector


def content(detector: Detector) -> dict[str, bytes]:
    """Return the whole state of a detector; the pairs of an exact one are sorted."""
    arrays = detector.arrays()
    if detector.name == "exact" and len(arrays["pairs"]):
        arrays["pairs"] = arrays["pairs"][np.lexsort(arrays["pairs"].T[::-1])]
    return {name: array.tobytes() for name, array in arrays.items()}


each = pytest.mark.parametrize("name", DETECTORS)


def test_every_detector_is_small_enough_to_be_tested_here():
    assert set(SMALL) == set(DETECTORS)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
@pytest.mark.parametrize("threads", [1, 2])
@each
def test_order_does_not_matter(name, shape, threads):
    shuffle = np.random.default_rng(1).permutation(len(shape.hosts))
    assert content(fed(name, shape.hosts, shape.peers)) == content(
        fed(name, shape.hosts[shuffle], shape.peers[shuffle], threads)
    )


@pytest.mark.parametrize("threads", [1, 3])
@each
def test_several_batches_at_once_equal_one_batch_after_another(name, threads):
    shape = zipf()
    batches = [PairBatch(shape.hosts[a:b], shape.peers[a:b]) for a, b in pairwise([0, 1, 1, 700, len(shape.hosts)])]
    together, apart = make(name, threads), make(name)
    together.update_many(batches)
    for batch in batches:
        apart.update(batch)
    assert content(together) == content(apart)
    with pytest.raises(UsageError, match="1 host but 2 peers"):
        together.update_many([PairBatch(shape.hosts[:1], shape.peers[:2])])


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
@each
def test_repetition_does_not_matter(name, shape):
    twice = fed(name, np.tile(shape.hosts, 2), np.tile(shape.peers, 2))
    twice.update(shape.hosts[:100], shape.peers[:100])
    assert content(fed(name, shape.hosts, shape.peers)) == content(twice)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
@each
def test_merging_equals_having_seen_both_streams(name, shape):
    cut = len(shape.hosts) // 3
    whole = fed(name, shape.hosts, shape.peers)
    left = fed(name, shape.hosts[: 2 * cut], shape.peers[: 2 * cut])  # the streams overlap
    right = fed(name, shape.hosts[cut:], shape.peers[cut:])
    left.merge(right)
    assert content(left) == content(whole)
    assert left.super_hosts(150).to_dict() == whole.super_hosts(150).to_dict()


@pytest.mark.slow
@each
def test_merging_is_commutative_associative_and_idempotent(name):
    shape = zipf()
    thirds = np.array_split(np.arange(len(shape.hosts)), 3)

    def part(i: int) -> Detector:
        return fed(name, shape.hosts[thirds[i]], shape.peers[thirds[i]])

    ab, ba, left, right = part(0), part(1), part(0), part(1)
    ab.merge(part(1))
    ba.merge(part(0))
    assert content(ab) == content(ba)
    left.merge(part(1))
    left.merge(part(2))
    right.merge(part(2))
    right.merge(part(0))
    assert content(left) == content(right)
    before = content(left)
    left.merge(right)
    left.merge(left)
    assert content(left) == before


@each
def test_merging_an_empty_one_changes_nothing_and_leaves_the_other_alone(name):
    shape = all_equal()
    full, empty = fed(name, shape.hosts, shape.peers), make(name)
    before = content(full)
    full.merge(empty)
    assert content(full) == before
    empty.merge(full)
    assert content(empty) == before == content(full)


@each
def test_an_empty_one_has_no_hosts(name):
    detector = make(name)
    assert len(detector.super_hosts(1)) == len(detector.top(5)) == 0
    assert detector.estimate("10.0.0.1").peers == 0


@each
def test_clear_makes_it_as_new(name):
    shape = zipf()
    detector = fed(name, shape.hosts, shape.peers)
    detector.clear()
    assert len(detector.super_hosts(1)) == 0
    detector.update(shape.hosts, shape.peers)
    assert content(detector) == content(fed(name, shape.hosts, shape.peers))


@pytest.mark.slow
@each
def test_a_file_brings_it_back(name, tmp_path):
    shape = zipf()
    detector = fed(name, shape.hosts, shape.peers)
    detector.save(tmp_path / "a.cube")
    sketch = load(tmp_path / "a.cube")
    assert isinstance(sketch, Sketch)
    (again,) = sketch.parts.values()
    assert type(again) is type(detector)
    assert content(again) == content(detector)
    assert again.super_hosts(150).to_dict() == detector.super_hosts(150).to_dict()
    again.merge(detector)
    assert content(again) == content(detector)


@each
def test_many_small_updates_equal_one_large(name):
    shape = repeats()
    detector = make(name)
    for start in range(0, 5000, 37):
        detector.update(shape.hosts[start : start + 37], shape.peers[start : start + 37])
        if start % 740 == 0:
            detector.super_hosts(1000)  # A query in between changes nothing.
    stop = 37 * -(-5000 // 37)
    assert content(detector) == content(fed(name, shape.hosts[:stop], shape.peers[:stop]))


@each
def test_another_detector_is_refused_by_its_name(name):
    mine = make(name)
    for other in DETECTORS:
        if other != name:
            with pytest.raises(MergeError, match=f"cannot merge {other} into {name}: the detectors differ"):
                mine.merge(make(other))
    assert len(mine.super_hosts(1)) == 0


@pytest.mark.parametrize("name", [name for name, kind in DETECTORS.items() if kind.geometry_type is not None])
def test_unlike_sketches_are_refused_naming_both_values(name):
    mine = make(name)
    with pytest.raises(MergeError, match=r"key [0-9a-f]{16} into key [0-9a-f]{16}"):
        mine.merge(make(name, key=b"another key"))
    field, size = OTHER_SIZES.get(name, ("column_bits", 7))
    other_geometry = SMALL[name]["geometry"]._replace(**{field: size})
    with pytest.raises(MergeError, match=rf"{field} {size} into {field} \d+"):
        mine.merge(DETECTORS[name](geometry=other_geometry))
    assert len(mine.super_hosts(1)) == 0
