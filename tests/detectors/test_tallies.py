"""What was counted exactly stays exact in files, pickles and unions: the number of peers of each host."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from functools import reduce
from itertools import permutations
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from superhosts.core.pairs import numbers_to_array
from superhosts.cubefile.header import compose_header, write_parts
from superhosts.sketch.files import estimate_in_file

BITS = (32, 64, 128)
GEOMETRIES = {
    "default": sh.Geometry(32, 2, 4, 10, 40, 3, 1, giants=2),
    "sampled": sh.Geometry(32, 2, 4, 10, 40, 3, 0, giants=2, sample_bits=3),  # some hosts have no pair in the bits
}
pytestmark = pytest.mark.filterwarnings("ignore::superhosts.ThresholdWarning")


def column(numbers: Any, bits: int) -> Any:
    """Return hosts that differ in all of their words."""
    return numbers_to_array(
        [(int(number) * 0x9E3779B97F4A7C15F39CC0605CEDC835) % (1 << bits) for number in numbers], bits
    )


def peers_of(host: int, first: int) -> int:
    return 3 * host + first


def cube_of(first: int, last: int, bits: int = 32, sizes: str = "default", **options: Any) -> sh.Cube:
    """Return a cube of hosts `first` to `last`, each with `peers_of` peers."""
    cube = sh.Cube(geometry=GEOMETRIES[sizes]._replace(key_bits=bits), device="cpu", **options)
    hosts = np.concatenate([np.full(peers_of(host, first), host) for host in range(first, last)])
    peers = np.concatenate([np.arange(peers_of(host, first)) + 1000 * first for host in range(first, last)])
    cube.update(column(hosts, bits), peers.astype(np.uint32))
    return cube


def answers(cube: Any, bits: int = 32) -> list[Any]:
    asked = column(range(70), bits)
    found = [cube.super_hosts(1), cube.super_hosts(59.5), cube.top(7), cube.top(1000), cube.estimate_many(asked)]
    return [list(each) for each in found]


def copies(cube: sh.Cube, folder: Path) -> dict[str, Any]:
    cube.save(folder / "one.cube")
    merged = sh.Sketch()
    for _ in range(2):
        merged.merge_file(folder / "one.cube")
    return {
        "load": sh.Cube.load(folder / "one.cube"),
        "bytes": sh.Cube.from_bytes(cube.to_bytes()),
        "pickle": pickle.loads(pickle.dumps(cube)),
        "pickle of a copy": pickle.loads(pickle.dumps(sh.Cube.from_bytes(cube.to_bytes()))),
        "copy": copy.deepcopy(sh.Cube.from_bytes(cube.to_bytes())),
        "again": sh.Cube.from_bytes(sh.Cube.from_bytes(cube.to_bytes()).to_bytes()),
        "merged": next(iter(merged.parts.values())),
        "into an empty one": sh.Cube(geometry=cube.geometry, device="cpu").merge(sh.Cube.from_bytes(cube.to_bytes())),
    }


@pytest.mark.parametrize("sizes", GEOMETRIES)
@pytest.mark.parametrize("bits", BITS)
def test_what_is_read_again_answers_as_the_exact_cube(tmp_path: Path, bits: int, sizes: str) -> None:
    cube = cube_of(1, 40, bits, sizes)
    expected, number = answers(cube, bits), cube.exact_count()
    assert all(row.exact for found in expected for row in found)
    for name, read in copies(cube, tmp_path).items():
        assert answers(read, bits) == expected, name
        assert (read.exact_count(), read.least_listed, read.fill().pairs) == (number, 1, number), name
    (part,) = sh.load(tmp_path / "one.cube").parts
    asked = column(range(70), bits)
    assert list(estimate_in_file(tmp_path / "one.cube", {part: asked})[part]) == expected[-1]


def part_of_pairs(numbers: range) -> sh.Cube:
    """Return a cube with some of the pairs of one host and of 300 others."""
    cube, peers = sh.Cube("1MiB", device="cpu"), np.array(numbers, np.uint32)
    cube.update(np.where(peers % 3, 7, peers % 300).astype(np.uint32), peers)
    return cube


def test_processes_share_the_work_and_the_union_is_exact() -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        made = pool.map(part_of_pairs, [range(5000), range(4000, 9000), range(8000, 9001)])
    whole = reduce(or_, made)
    assert whole.exact
    assert whole == part_of_pairs(range(9001))
    assert whole.top(400) == part_of_pairs(range(9001)).top(400)
    assert pickle.dumps(whole) == pickle.dumps(part_of_pairs(range(9001)))


@pytest.mark.parametrize("bits", BITS)
def test_a_pickle_goes_on_exactly(bits: int) -> None:
    cube = cube_of(1, 40, bits)
    read = pickle.loads(pickle.dumps(cube))
    assert read.exact
    for each in (cube, read):
        each.update(column(range(80), bits), column(range(80), bits))
    assert answers(read, bits) == answers(cube, bits)
    assert pickle.dumps(read) == pickle.dumps(cube) == pickle.dumps(cube.copy())
    if bits < 128:
        sketch = pickle.loads(pickle.dumps(sh.Sketch.of(cube)))
        other = cube_of(2, 5, bits)
        assert sketch.merge(sh.Sketch.of(other)).top(5) == sh.Sketch.of(cube | other).top(5)
        assert sketch.top(1)[0].exact
    assert b"0/pairs" in cube.to_bytes(pairs=True)
    assert b"0/pairs" not in cube.to_bytes()


def test_bytes_with_pairs_are_read_through_every_door(tmp_path: Path) -> None:
    one, two = cube_of(1, 30), cube_of(20, 40)
    (tmp_path / "one.cube").write_bytes(one.to_bytes(pairs=True))
    merged = sh.Sketch.of(two.copy()).merge_file(tmp_path / "one.cube")
    assert merged.top(100) == sh.Sketch.of(one | two).top(100)
    read = sh.Sketch.of(sh.Cube.from_bytes(two.to_bytes())).merge_file(tmp_path / "one.cube")
    assert read.to_bytes() == sh.Sketch.of(sh.Cube.from_bytes(one.to_bytes()) | two).to_bytes()
    asked = column(range(50), 32)
    assert list(estimate_in_file(tmp_path / "one.cube", {sh.Part(4): asked})[sh.Part(4)]) == list(
        one.estimate_many(asked)
    )
    assert sh.Cube.load(tmp_path / "one.cube").merge(two).to_bytes(pairs=True) == (two | one).to_bytes(pairs=True)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda a: np.repeat(a, 100, 0), "pairs: has .* pairs, the most of a cube of these sizes is"),
        (lambda a: np.repeat(a, 2, 1), "pairs: has a host of more than 32 bits"),
    ],
)
def test_faulty_pairs_are_refused(tmp_path: Path, edit: Any, message: str) -> None:
    written = cube_of(1, 30)._written(sh.Part(4), pairs=True)
    parts = [written._replace(arrays={"pairs": edit(written.arrays["pairs"])})]
    write_parts(tmp_path / "bad.cube", compose_header(parts), parts)
    with pytest.raises(sh.SketchFileError, match=f"bad.cube: damaged: array 0/{message}"):
        sh.load(tmp_path / "bad.cube")


@pytest.mark.parametrize("bits", BITS)
def test_a_union_keeps_the_numbers_of_hosts_of_one_member_and_bounds_those_of_several(
    tmp_path: Path, bits: int
) -> None:
    members = [cube_of(1, 30, bits), cube_of(20, 40, bits), cube_of(25, 50, bits)]
    read = [sh.Cube.from_bytes(each.to_bytes()) for each in members]
    united = [reduce(or_, order) for order in permutations(read)]
    whole = united[0]
    assert {each.to_bytes() for each in united} == {whole.to_bytes()}
    assert (whole | read[0] | whole).to_bytes() == whole.to_bytes()
    assert sh.Cube.from_bytes(whole.to_bytes()).to_bytes() == whole.to_bytes()
    assert whole == reduce(or_, [cube_of(*span, bits, exact=False) for span in ((1, 30), (20, 40), (25, 50))])
    asked = column(range(60), bits)
    for number, row in enumerate(whole.estimate_many(asked)):
        spans = (range(1, 30), range(20, 40), range(25, 50))
        known = [peers_of(number, span.start) for span in spans if number in span]
        assert row.exact == (len(known) < 2)
        if row.exact:
            assert row.peers == row.peers_low == row.peers_high == sum(known)
        else:
            assert max(known) <= row.peers_low <= row.peers <= row.peers_high <= sum(known)
    assert [row.peers for row in whole.top(3)] == sorted((row.peers for row in whole.super_hosts(1)), reverse=True)[:3]
    assert {str(row.host) for row in whole.super_hosts(100)} == {
        str(row.host) for row in whole.estimate_many(asked) if row.peers_low > 0 and row.peers >= 99.5
    }
    assert whole.exact_count() is None
    for number, cube in enumerate(members):
        cube.save(tmp_path / f"{number}.cube")
    (merged,) = sh.union(tmp_path / f"{number}.cube" for number in (2, 0, 1)).parts.values()
    assert merged.to_bytes() == whole.to_bytes()
    sh.Sketch.of(whole).save(tmp_path / "whole.cube")
    (part,) = sh.load(tmp_path / "whole.cube").parts
    assert list(estimate_in_file(tmp_path / "whole.cube", {part: asked})[part]) == list(whole.estimate_many(asked))


def test_a_host_has_at_least_its_largest_number() -> None:
    """All peers of one member are those of the other, so estimates without bounds are as often too low as too high."""
    members = []
    for size in (80, 90):
        cube = sh.Cube(geometry=GEOMETRIES["default"], device="cpu")
        cube.update(np.repeat(np.arange(30, dtype=np.uint32), size), np.tile(np.arange(size, dtype=np.uint32), 30))
        members.append(sh.Cube.from_bytes(cube.to_bytes()))
    found = (members[0] | members[1]).super_hosts(90)
    assert len(found) == 30
    assert min(found.peers_low) == 90
    assert not found.exact.any()


def test_a_cube_with_its_pairs_brings_its_tally_into_a_union() -> None:
    one, two = cube_of(1, 30), cube_of(20, 40)
    read = [sh.Cube.from_bytes(each.to_bytes()) for each in (one, two)]
    expected = (read[0] | read[1]).to_bytes()
    assert (read[0] | two).to_bytes() == (one | read[1]).to_bytes() == expected
    assert one.copy().merge(read[1]).to_bytes() == read[0].copy().merge(two).to_bytes() == expected


def test_what_is_not_counted_takes_the_numbers_away() -> None:
    dense = cube_of(30, 40, exact=False)
    for change in (
        lambda cube: cube.update(*np.ones((2, 1), np.uint32)),
        lambda cube: cube.merge(dense),
        lambda cube: cube.merge(sh.Cube.from_bytes(dense.to_bytes())),
        lambda cube: cube.load_arrays(cube.arrays()),
    ):
        read = sh.Cube.from_bytes(cube_of(1, 40).to_bytes())
        change(read)
        assert not any(row.exact for row in read.super_hosts(50))
        assert read.exact_count() is None
    read.clear()
    assert read.merge(sh.Cube.from_bytes(cube_of(1, 40).to_bytes())).top(1)[0].exact


def test_a_union_of_more_hosts_than_a_cube_counts_estimates() -> None:
    most = GEOMETRIES["default"].exact_pairs
    members = []
    for number in range(3):
        cube = sh.Cube(geometry=GEOMETRIES["default"], device="cpu")
        hosts = np.arange(most // 2, dtype=np.uint32) + number * most
        cube.update(hosts, hosts)
        members.append(sh.Cube.from_bytes(cube.to_bytes()))
    two = members[0] | members[1]
    assert two.exact_count() == most // 2 * 2
    for order in permutations(members):
        assert reduce(or_, order).exact_count() is None
    assert reduce(or_, members).to_bytes() == ((members[2] | members[1]) | two).to_bytes()


def test_an_empty_cube_is_known_to_be_empty(tmp_path: Path) -> None:
    sizes, one = GEOMETRIES["default"], sh.Cube.from_bytes(cube_of(1, 30).to_bytes())
    exact, dense = (sh.Cube(geometry=sizes, device="cpu", exact=exact) for exact in (True, False))
    cleared = sh.Cube.from_bytes(one.to_bytes())
    cleared.clear()
    for empty in (exact, dense, cleared):
        for each in (empty, sh.Cube.from_bytes(empty.to_bytes()), empty | sh.Cube.from_bytes(empty.to_bytes())):
            assert (each.exact_count(), each.least_listed, each.estimate(5).exact, len(each.top(3))) == (0, 1, True, 0)
            each.update([], [])
            each.update_many([])
            assert (one | each).to_bytes() == (each | one).to_bytes() == (dense | one).to_bytes()
            assert (one | each).top(100) == one.top(100)


def test_forged_tallies_of_one_identity_take_the_numbers_away(tmp_path: Path) -> None:
    one, two = (sh.Cube.from_bytes(cube_of(*span).to_bytes()) for span in ((1, 30), (20, 40)))
    written = (one | two)._written(sh.Part(4))
    peers = written.arrays["tallypeers"] + np.uint32(1)
    parts = [written._replace(arrays={**written.arrays, "tallypeers": peers})]
    write_parts(tmp_path / "forged.cube", compose_header(parts), parts)
    forged = sh.Cube.load(tmp_path / "forged.cube")
    assert (forged | one).to_bytes() == (one | forged).to_bytes()
    assert (forged | one).exact_count() is None


def test_text_keys_have_exact_numbers_again() -> None:
    cube = sh.Cube("1MiB", keys="text", device="cpu")
    cube.update(["ann"] * 300 + ["bob"] * 20, [f"peer {number}" for number in range(320)])
    read = pickle.loads(pickle.dumps(cube))
    assert read.top(5) == cube.top(5)
    assert list(read.estimate(["bob", "eve"])) == list(cube.estimate(["bob", "eve"]))


FAULTS = {
    "descending": ("tallies", lambda a: a[:, ::-1], "tallies: must be at most 10,000, in ascending order"),
    "an empty one": ("tallies", lambda a: a * np.array([[1], [0]], np.uint64), "tallies: must have 49 hosts in all"),
    "too many": ("tallies", lambda a: a + np.array([[0], [1]], np.uint64), "tallies: must have 49 hosts in all"),
    "huge": ("tallies", lambda a: a | np.array([[0], [1 << 63]], np.uint64), "tallies: must have 49 hosts in all"),
    "fewer": ("tallyhosts", lambda a: a[:, :-1], "tallyhosts: has 48 hosts, must have 49"),
    "wide": ("tallyhosts", lambda a: a | np.uint32((1 << 32) - 1), "tallyhosts: host 1 has more than 32 bits"),
    "zero": ("tallypeers", np.zeros_like, "tallypeers: must be at least 1"),
    "large": ("tallypeers", lambda a: a + np.uint32(1 << 31), "tallypeers: more than .*, the most that is exact"),
}


@pytest.mark.parametrize(("array", "edit", "message"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_tally_is_refused(tmp_path: Path, array: str, edit: Any, message: str) -> None:
    one, two = (sh.Cube.from_bytes(cube_of(*span).to_bytes()) for span in ((1, 30), (20, 40)))
    written = (one | two)._written(sh.Part(4))
    parts = [written._replace(arrays={**written.arrays, array: edit(written.arrays[array])})]
    path = tmp_path / "bad.cube"
    write_parts(path, compose_header(parts), parts)
    doors = (sh.load, sh.Sketch.of(two).merge_file, lambda path: estimate_in_file(path, {sh.Part(4): [1]}))
    for door in doors:
        with pytest.raises(sh.SketchFileError, match=f"bad.cube: damaged: array 0/{message}"):
            door(path)
