"""Merging and querying files in blocks gives the results of whole sketches, and a rejected file changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from cubes import dense_cube
from forging import PARTS, bundle, forge, take_apart
from superhosts.detectors.cbaa import Cbaa, PaperCbaa
from superhosts.detectors.cbaa.addressing import Geometry as CbaaGeometry
from superhosts.detectors.exact import Exact
from superhosts.errors import MergeError, SketchFileError, UsageError, VersionError
from superhosts.sketch.files import estimate_in_file, read_header
from taken import little_memory
from traffic import content

FOUR, SIX, OUTER = PARTS
CUBES = {bits: sh.Geometry.for_memory("1MiB", bits) for bits in (32, 64, 128)}
SMALL_CBAA = CbaaGeometry(slice_bits=0, restoring=4, index_bits=9, validating_bits=9, column_bits=8)


def columns(bits: int, count: int = 4000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of some busy hosts and many quiet ones."""
    rng = np.random.default_rng(seed)
    shape = (600, 2) if bits == 128 else 600
    crowd = rng.integers(1 << 32 if bits == 32 else 1 << 63, size=shape, dtype=np.uint64)
    hosts = crowd[(600 * rng.random(count) ** 4).astype(int)]
    peers = rng.integers(1 << 32, size=count, dtype=np.uint32) if bits == 32 else None
    wide = rng.integers(1 << 63, size=(count, 2), dtype=np.uint64)
    return (hosts.astype(np.uint32), peers) if peers is not None else (hosts, wide)


MAKERS: dict[str, Callable[[], Any]] = {
    **{f"cube-{bits}": lambda bits=bits: dense_cube(geometry=CUBES[bits], device="cpu") for bits in CUBES},  # type: ignore[misc]
    "one thread": lambda: dense_cube(geometry=CUBES[32], device="cpu", threads=1),
    "exact cube": lambda: sh.Cube(geometry=CUBES[32], device="cpu"),
    "cbaa": lambda: Cbaa(geometry=SMALL_CBAA),
    "cbaa-paper": lambda: PaperCbaa(geometry=SMALL_CBAA._replace(rows_by_peer=1)),
    "exact": lambda: Exact(),
    "exact-64": lambda: Exact(key_bits=64),
}


def sketch_of(name: str, seed: int, count: int = 4000) -> Any:
    detector = MAKERS[name]()
    detector.update(*columns(detector.key_bits, count, seed))
    return sh.Sketch.of(detector)


def state(sketch: Any) -> Any:
    """Return a copy of the complete state of a sketch, including zero counts."""
    zeros = {part: detector.zeros.tolist() for part, detector in sketch if hasattr(detector, "zeros")}
    return copy.deepcopy((content(sketch), zeros, sketch.window, sketch.sites, sketch.entries))


# Merging


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("count", [30, 4000])
def test_merging_a_file_is_merging_what_it_holds(tmp_path: Path, name: str, count: int) -> None:
    sketch_of(name, 2, count).save(tmp_path / "b.cube")
    blocks, whole = sketch_of(name, 1, count), sketch_of(name, 1, count)
    blocks.merge_file(tmp_path / "b.cube")
    whole.merge(sh.load(tmp_path / "b.cube"))
    assert state(blocks) == state(whole)
    assert state(blocks) != state(sketch_of(name, 1, count))
    blocks.merge_file(tmp_path / "b.cube")  # Merging again changes nothing.
    assert state(blocks) == state(whole)
    (detector,) = blocks.parts.values()
    assert [*detector.top(5)] == [*next(iter(whole.parts.values())).top(5)]


@pytest.mark.parametrize("density", [0.0, 0.0003, 0.02, 0.3, 0.9, 1.0])
def test_blocks_of_every_density(tmp_path: Path, density: float) -> None:
    """Merge arrays of several blocks and a short last one, coded as gaps and as planes, and their labels."""
    geometry = sh.Geometry(32, 0, 3, 12, 1000, 3, 3)
    rng = np.random.default_rng(7)
    cubes = []
    for share in (density, 0.01):
        cube = sh.Cube(geometry=geometry, device="cpu")
        bits = np.packbits(rng.random(64 * cube.bits.size) < share).view(np.uint64).reshape(cube.bits.shape)
        labels = rng.integers(1 << 63, size=cube.labels.shape, dtype=np.uint64)
        cube.load_arrays({"bits": bits, "labels": labels * (rng.random(labels.shape) < share)})
        cubes.append(sh.Sketch.of(cube))
    cubes[0].save(tmp_path / "a.cube")
    want = copy.deepcopy(cubes[1])
    want.merge(cubes[0])
    cubes[1].merge_file(tmp_path / "a.cube")
    assert state(cubes[1]) == state(want)


@pytest.mark.parametrize(
    ("mine", "theirs"), [(PARTS, PARTS), (PARTS, [SIX]), ([], PARTS), ([SIX, OUTER], PARTS)], ids=str
)
def test_parts_that_one_of_both_lacks_and_pairs_that_wait(tmp_path: Path, mine: Any, theirs: Any) -> None:
    other = bundle(seed=2, site="fra", start=900, parts=theirs)
    other.save(tmp_path / "b.cube")
    got, want = bundle(seed=1, parts=mine), bundle(seed=1, parts=mine)
    for sketch in (got, want):
        for part in mine:
            sketch.parts[part].update(*columns(PARTS[part], seed=9))
    before = state(other)
    got.merge_file(tmp_path / "b.cube")
    want.merge(other)
    assert state(got) == state(want)
    assert set(got.parts) == {*mine, *theirs}
    for sketch in (got, want):  # An update of a part that may have come from the file, or from the other sketch.
        sketch.parts[SIX].update(*columns(64, seed=5))
    assert state(got) == state(want)
    assert state(other) == before


def test_equal_counters_count_once_and_others_are_kept(tmp_path: Path) -> None:
    sketch = bundle(seed=1)
    for site, start in (("ams", 0), ("fra", 0), ("ams", 300), ("fra", 0)):
        bundle(seed=1, site=site, start=start).save(tmp_path / "b.cube")
        sketch.merge_file(tmp_path / "b.cube")
    assert [(e["site"], e["start"]) for e in sketch.entries[::3]] == [("ams", 0), ("fra", 0), ("ams", 300)]
    assert len(sketch.entries) == 9
    sketch.entries = []  # A merge adds removed entries again.
    sketch.merge_file(tmp_path / "b.cube")
    assert len(sketch.entries) == 3
    sketch.entries = [{"site": "zrh"}, {"site": "lon"}, {"site": "par"}]
    sketch.merge_file(tmp_path / "b.cube")
    assert len(sketch.entries) == 6


def test_a_sketch_on_a_gpu_takes_files_too(tmp_path: Path) -> None:
    tiny = sh.Geometry(32, 0, 2, 6, 2, 0, 3)
    here, there = sh.Cube(geometry=tiny, device="cuda:0"), sh.Cube(geometry=tiny, device="cpu")
    for seed, cube in enumerate((here, there)):
        cube.update(*columns(32, 60, seed))
    there.save(tmp_path / "b.cube")
    sketch, want = sh.Sketch.of(here), sh.Sketch.of(here.copy())
    sketch.merge_file(tmp_path / "b.cube")
    want.merge(sh.Sketch.of(there))
    assert content(sketch) == content(want)
    assert here.device == "cuda:0"


# Rejected files


def test_another_key_is_refused_whether_it_is_known_or_not(tmp_path: Path) -> None:
    bundle(seed=2, key="their secret").save(tmp_path / "b.cube")
    sketch = bundle(seed=1)
    before = state(sketch)
    with pytest.raises(MergeError, match=r"b\.cube: written with key"):
        sh.Sketch().merge_file(tmp_path / "b.cube")
    with pytest.raises(MergeError, match="sketches of two keys cannot be merged"):
        sketch.merge_file(tmp_path / "b.cube")
    with pytest.raises(MergeError, match="sketches of two keys cannot be merged"):
        sketch.merge_file(tmp_path / "b.cube", key="their secret")
    assert state(sketch) == before
    theirs = bundle(seed=3, key="their secret")
    theirs.merge_file(tmp_path / "b.cube", key="their secret")
    want = bundle(seed=3, key="their secret")
    want.merge(bundle(seed=2, key="their secret"))
    assert state(theirs) == state(want)


def test_damage_anywhere_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    bundle(seed=2).save(tmp_path / "b.cube")
    good, bad = (tmp_path / "b.cube").read_bytes(), tmp_path / "bad.cube"
    sketch = bundle(seed=1)
    before = state(sketch)
    for place in (*range(24), *range(24, len(good), len(good) // 40)):
        broken = bytearray(good)
        broken[place] ^= 4
        for data in (bytes(broken), good[:place]):
            bad.write_bytes(data)
            with pytest.raises(SketchFileError, match=r"bad\.cube: ") as loading:
                sh.load(bad)
            for ask in (sketch.merge_file, read_header, lambda path: estimate_in_file(path, {FOUR: [1]})):
                with pytest.raises(SketchFileError) as caught:
                    ask(bad)
                assert str(caught.value) == str(loading.value)
    with pytest.raises(SketchFileError, match="cannot be read"):
        sketch.merge_file(tmp_path / "none.cube")
    assert state(sketch) == before


def test_another_version_and_a_damaged_version_are_told_apart(tmp_path: Path) -> None:
    bundle(seed=1).save(tmp_path / "a.cube")
    data = bytearray((tmp_path / "a.cube").read_bytes())
    forge(tmp_path / "b.cube", *take_apart(tmp_path / "a.cube"), version=4)
    with pytest.raises(VersionError, match="format version 4; this program reads versions 2 and 3"):
        read_header(tmp_path / "b.cube")
    data[8] ^= 1
    (tmp_path / "b.cube").write_bytes(data)
    with pytest.raises(SketchFileError, match="checksum") as caught:
        read_header(tmp_path / "b.cube")
    assert not isinstance(caught.value, VersionError)


def test_no_second_sketch_is_made(tmp_path: Path) -> None:
    sketch = sh.Sketch.of(dense_cube("64MiB", device="cpu", threads=2))
    sketch.part(FOUR).update(*columns(32, seed=2))
    sketch.save(tmp_path / "b.cube")
    with little_memory(16 << 20):
        sketch.merge_file(tmp_path / "b.cube")
        answer = estimate_in_file(tmp_path / "b.cube", {FOUR: columns(32, seed=2)[0][:9]})
    assert len(answer[FOUR]) == 9


# Headers


def test_a_header_says_what_the_sketch_is(tmp_path: Path) -> None:
    sketch = bundle(seed=2, site="fra", start=900)
    sketch.save(tmp_path / "b.cube")
    header = read_header(tmp_path / "b.cube")
    assert (header.window, header.sites, header.entries) == (sketch.window, frozenset(["fra"]), sketch.entries)
    assert header.kinds == sketch.kinds
    assert bytes.fromhex(header.digest) == (tmp_path / "b.cube").read_bytes()[-32:]


# Single hosts


@pytest.mark.parametrize("name", MAKERS)
def test_hosts_in_a_file_are_those_of_the_loaded_sketch(tmp_path: Path, name: str) -> None:
    sketch = sketch_of(name, 3)
    sketch.save(tmp_path / "a.cube")
    ((part, detector),) = sh.load(tmp_path / "a.cube").parts.items()
    hosts, _ = columns(detector.key_bits, 60, 3)
    absent, _ = columns(detector.key_bits, 60, 4)
    asked = np.concatenate((hosts, absent))
    answer = estimate_in_file(tmp_path / "a.cube", {part: asked})[part]
    assert (answer.hosts == asked).all()  # in the order of the query, with duplicates
    numbers = [int(h) if np.ndim(h) == 0 else int(h[0]) << 64 | int(h[1]) for h in asked]
    assert list(answer) == [detector.estimate(number) for number in numbers]
    assert answer.peers.max() > 100
    texts = [str(row.host) for row in answer][::7]
    assert list(estimate_in_file(tmp_path / "a.cube", {part: texts})[part]) == list(answer)[::7]
    found = detector.top(5)
    assert list(estimate_in_file(tmp_path / "a.cube", {part: found})[part]) == list(found)


def test_several_parts_at_once_and_parts_that_are_missing(tmp_path: Path) -> None:
    sketch = bundle(seed=2, parts=[FOUR, SIX])
    sketch.save(tmp_path / "a.cube")
    asked = {part: columns(bits, 50, 2)[0] for part, bits in PARTS.items()}
    answer = estimate_in_file(tmp_path / "a.cube", asked)
    assert set(answer) == {FOUR, SIX}
    for part in answer:
        assert list(answer[part]) == [sketch.parts[part].estimate(int(host)) for host in asked[part]]
    assert len(estimate_in_file(tmp_path / "a.cube", {FOUR: []})[FOUR]) == 0
    assert estimate_in_file(tmp_path / "a.cube", {}) == {}


def test_a_saturated_host(tmp_path: Path) -> None:
    cube = sh.Cube(geometry=sh.Geometry(32, 0, 2, 6, 40, 0, 3), device="cpu")
    cube.update(np.full(3000, 7, np.uint32), np.arange(3000, dtype=np.uint32))
    cube.save(tmp_path / "a.cube")
    (row,) = estimate_in_file(tmp_path / "a.cube", {FOUR: ["0.0.0.7"]})[FOUR]
    assert row == cube.estimate(7)
    assert (row.saturated, row.peers, row.peers_high) == (True, None, None)
    sketch = sh.Sketch()
    sketch.parts = {sh.Part(4, "inner", "in"): sh.Exact(), FOUR: cube}
    sketch.part(sh.Part(4, "inner", "in")).update(np.full(181, 9, np.uint32), np.arange(181, dtype=np.uint32))
    assert [item.peers for item in sketch.super_hosts(100)] == [None, 181]  # The lower bound is 182.


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    bundle(seed=2).save(tmp_path / "a.cube")
    path = tmp_path / "a.cube"
    with pytest.raises(UsageError, match="does not fit in 32 bits"):
        estimate_in_file(path, {FOUR: columns(64)[0]})
    with pytest.raises(UsageError, match="IPv6"):
        estimate_in_file(path, {FOUR: ["2001:db8::1"]})
    with pytest.raises(UsageError, match="/64"):
        estimate_in_file(path, {FOUR: sketch_of("cube-64", 1).parts[SIX].top(3)})
    with pytest.raises(MergeError, match="written with key"):
        estimate_in_file(path, {FOUR: [1]}, key="another secret")
