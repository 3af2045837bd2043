"""The laws of every detector: those of the registry, also of generic keys, and rivals but for laws that they break."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from shapes import Shape, all_equal, flood_of_sources, repeats, zipf
from superhosts import Cube, Exact, MergeError, PairBatch, Sketch, UsageError, load
from superhosts.core.device import cuda_problem, simulated
from superhosts.detectors import stream
from superhosts.detectors.cbaa import Geometry as CbaaGeometry
from superhosts.detectors.cube import Geometry
from superhosts.detectors.detector import Detector
from superhosts.detectors.registry import DETECTORS, MERGED
from superhosts.lab.rivals import RIVALS, dcds, filter, gse, pairsample, rgs, spreadsketch, vbfa

SHAPES = [zipf(), all_equal(), flood_of_sources(), repeats()]
SMALL: dict[str, dict[str, Any]] = {
    "cube": {"geometry": Geometry(32, 5, 3, 10, 21, 2, 3), "exact": False},
    "cbaa": {"geometry": CbaaGeometry(slice_bits=6, index_bits=9, validating_bits=8, column_bits=8)},
    "cbaa-paper": {"geometry": CbaaGeometry(6, 3, 9, 1, 9, 8, 1)},
    "exact": {},
    "stream": {"geometry": stream.Geometry(32, 1, words=400, buckets=100)},
    "dcds": {"geometry": dcds.Geometry(column_bits=8)},
    "vbfa": {"geometry": vbfa.Geometry(column_bits=8)},
    "gse": {"geometry": gse.Geometry(array_bits=18, vector_bits=9, table_bits=6)},
    "filter": {"geometry": filter.Geometry(words=4096, rows=3, counters=2000, threshold=1)},
    "spreadsketch": {"geometry": spreadsketch.Geometry(rows=3, buckets=500)},
    "pairsample": {"geometry": pairsample.Geometry(pairs=1500)},
    "rgs": {"geometry": rgs.Geometry(groups=900, buckets=20)},
}
# A size that SMALL does not have; `column_bits` 7 for detectors that are not listed here.
OTHER_SIZES = {
    "cube": ("column_bits", 9),
    "gse": ("table_bits", 7),
    "spreadsketch": ("buckets", 501),
    "pairsample": ("pairs", 1501),
}
KEYED = [f"{name} {keys}" for name in ("cube", "dense", "exact") for keys in ("int64", "text")]


def kind_of(name: str) -> type[Detector]:
    return Exact if name.startswith("exact ") else Cube if name in KEYED else (DETECTORS | RIVALS)[name]


def make(name: str, threads: int = 2, **more: Any) -> Any:
    if name in KEYED:
        holder, keys = name.split()
        sizes = {} if holder == "exact" else {"memory": "2MiB", "exact": holder == "cube"}
        return kind_of(name)(keys=keys, device="cpu", threads=threads, **sizes, **more)
    kind = kind_of(name)
    if name != "cube" and cuda_problem() is None and not simulated() and getattr(kind, "runs_on_gpu", True):
        more = {"device": "cuda", **more}  # "auto" would not compile kernels.
    return kind(**{**SMALL.get(name, {}), "threads": threads, **more})


def fed(name: str, hosts: np.ndarray, peers: np.ndarray, threads: int = 2) -> Any:
    detector = make(name, threads)
    detector.update(hosts, peers)
    return detector


def content(detector: Detector) -> dict[str, bytes]:
    """Return the whole state of a detector; the pairs of an exact one are sorted."""
    arrays = detector.arrays()
    if detector.name == "exact" and len(arrays["pairs"]):
        arrays["pairs"] = arrays["pairs"][np.lexsort(arrays["pairs"].T[::-1])]
    return {name: array.tobytes() for name, array in arrays.items()}


def traffic(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the columns of shapes of traffic, with hosts as a detector takes them."""

    def hosts_of(shape: Shape) -> np.ndarray:
        if name.endswith(" text"):
            return np.array([f"Straße {host}" if host % 2 else f"user{host}" for host in shape.hosts.tolist()], object)
        return shape.hosts.astype(np.int64) << 30 if name in KEYED else shape.hosts

    shapes = [all_equal(), repeats()] if name in KEYED else [zipf(), repeats()] if name in RIVALS else SHAPES
    return [(hosts_of(shape), shape.peers) for shape in shapes]


each = pytest.mark.parametrize("name", [*DETECTORS, *KEYED, *RIVALS])


def test_every_detector_is_small_enough_to_be_tested_here() -> None:
    assert set(SMALL) == {*DETECTORS, *RIVALS}


@each
def test_neither_order_nor_repetition_nor_batches_matter(name: str) -> None:
    for hosts, peers in traffic(name):
        detector = fed(name, hosts, peers)
        once, broken = content(detector), detector.broken_laws
        shuffle = np.random.default_rng(1).permutation(len(hosts))
        for threads in (1, 2):
            if "order" not in broken:
                assert content(fed(name, hosts[shuffle], peers[shuffle], threads)) == once
        if "repetition" not in broken:
            detector.update(hosts[:999], peers[:999])
            assert content(detector) == once
            if "order" not in broken:
                assert content(fed(name, np.tile(hosts, 2), np.tile(peers, 2))) == once
        detector.clear()
        assert len(detector.super_hosts(1)) == len(detector.top(5)) == 0
        for start in range(0, len(hosts), 997):
            detector.update(hosts[start : start + 997], peers[start : start + 997])
            if start % 5 == 0:
                detector.super_hosts(1000)  # A query in between changes nothing.
        assert content(detector) == once
        batches = [PairBatch(hosts[a:b], peers[a:b]) for a, b in pairwise([0, 1, 1, 700, len(hosts)])]
        for threads in (1, 3):
            together = make(name, threads)
            together.update_many(batches)
            assert content(together) == once
        with pytest.raises(UsageError, match="1 host but 2 peers"):
            together.update_many([PairBatch(hosts[:1], peers[:2])])


MERGED_RIVALS = [name for name, kind in RIVALS.items() if "merge" not in kind.broken_laws]


@pytest.mark.parametrize("name", [*MERGED, *KEYED, *MERGED_RIVALS])
def test_merging_equals_having_seen_both_streams(name: str) -> None:
    """It is commutative, associative and idempotent."""
    for hosts, peers in traffic(name):
        cut = len(hosts) // 3
        whole = fed(name, hosts, peers)
        parts = [fed(name, hosts[a:b], peers[a:b]) for a, b in ((0, 2 * cut), (cut, len(hosts)), (0, cut))]
        left, right, third = parts  # the streams overlap
        before, twin = content(right), right.copy()
        assert left.merge(right) is left
        assert content(right) == before
        assert content(left) == content(whole) == content(twin.merge(third).merge(left))
        assert left.super_hosts(150).to_dict() == whole.super_hosts(150).to_dict()
        empty = make(name)
        assert content(left.merge(right).merge(left).merge(empty)) == content(whole)
        assert content(empty.merge(left)) == content(whole)


@each
def test_an_empty_one_has_no_hosts(name: str) -> None:
    detector = make(name)
    assert len(detector.super_hosts(1)) == len(detector.top(5)) == 0
    assert detector.estimate("user 1" if name.endswith(" text") else 167772161).peers == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DETECTORS, *KEYED])
def test_files_copies_and_pickles_bring_it_back(name, tmp_path):
    hosts, peers = traffic(name)[0]
    detector = fed(name, hosts, peers)
    before = content(detector)
    detector.save(tmp_path / "a.cube")
    whole = Sketch.of(detector)
    bundles = load(tmp_path / "a.cube"), copy.copy(whole), copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))
    found = [detector.copy(), copy.copy(detector), copy.deepcopy(detector), pickle.loads(pickle.dumps(detector))]
    for sketch in bundles:
        assert isinstance(sketch, Sketch)
        found += sketch.parts.values()
    assert len({id(each.lock) for each in (detector, whole, *bundles, *found)}) == 2 + len(bundles) + len(found)
    for again in found:
        assert type(again) is type(detector)
        assert content(again) == before
        if not name.startswith("cube "):  # What is read from a file of an exact cube is dense.
            assert again.super_hosts(150).to_dict() == detector.super_hosts(150).to_dict()
        if "merge" not in detector.broken_laws:
            again.merge(detector)
        assert content(again) == before
        again.clear()
    assert content(detector) == before


@pytest.mark.parametrize("name", [*DETECTORS, *RIVALS])
def test_unlike_ones_are_refused_naming_both_values(name: str) -> None:
    mine = make(name)
    cases = [
        (make(other), f"cannot merge {other} into {name}: the detectors differ")
        for other in ("cube", "exact", "vbfa")
        if other != name
    ]
    if "merge" in mine.broken_laws:
        cases += [(make(name), "a pair that both have seen would count twice")]
    elif mine.geometry is not None:
        field, size = OTHER_SIZES.get(name, ("column_bits", 7))
        other = kind_of(name)(geometry=mine.geometry._replace(**{field: size}), device="cpu")
        cases += [(other, rf"{field} {size} into {field} \d+")]
        cases += [(make(name, key=b"another key"), r"key [0-9a-f]{16} into key [0-9a-f]{16}")]
    for other, words in cases:
        with pytest.raises(MergeError, match=words):
            mine.merge(other)
    assert len(mine.super_hosts(1)) == 0
