"""Files of exact cubes list the rows of hosts; through every door they are the bits and labels of a dense cube."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts import Cube, Geometry, Part, Sketch, SketchFileError, load
from superhosts.core.hashing import make_key
from superhosts.core.pairs import numbers_to_array
from superhosts.cubefile.container import CubeReader
from superhosts.cubefile.header import compose_header, write_parts
from superhosts.detectors.cube.rowform import add_differences, find_winners, gather, host_differences
from superhosts.detectors.cube.tally import Tallies
from superhosts.detectors.engines.base import Tuning
from superhosts.sketch.files import estimate_in_file
from tuned import tuned

BITS = (32, 64, 128)
Arrays = dict[str, Any]
pytestmark = pytest.mark.filterwarnings("ignore:threshold")


def geometry(bits: int = 32, **sizes: int) -> Geometry:
    """Return a geometry with room for about 6,000 exact pairs of 32-bit hosts."""
    return Geometry(bits, 2, 4, 10, 40, 3, 1, giants=2)._replace(**sizes)


def make(sizes: Geometry, *, exact: bool = True, threads: int = 2) -> Cube:
    return tuned(Cube, Tuning(min_pairs_per_thread=16))(geometry=sizes, device="cpu", threads=threads, exact=exact)


def pairs_of(sizes: Geometry, count: int = 1500, seed: int = 1) -> tuple[Any, Any]:
    """Return pairs of one host with half of them, and of 60 others with 1 to about 80 peers."""
    rng = np.random.default_rng(seed)
    numbers = [int.from_bytes(rng.bytes(sizes.key_bits // 8), "little") for _ in range(61)]
    chosen = np.where(np.arange(count) % 2, 0, 1 + np.minimum(rng.zipf(1.2, count), 60)).clip(0, 60)
    peers = [int.from_bytes(rng.bytes(4), "little") for _ in range(count)]
    return numbers_to_array([numbers[i] for i in chosen], sizes.key_bits), np.array(peers, np.uint32)


def saved(path: Path, cube: Cube) -> Path:
    cube.save(path)
    return path


def arrays_in(path: Path) -> Arrays:
    """Return the arrays of a file with one part, by their names within the part."""
    with CubeReader(path) as reader:
        return {name.removeprefix("0/"): array for name, array in reader.arrays().items()}


def is_rows_form(path: Path) -> bool:
    with CubeReader(path) as reader:
        return "0/rows" in {array["name"] for array in reader.header["arrays"]}


def only(sketch: Sketch) -> Cube:
    (cube,) = sketch.parts.values()
    assert isinstance(cube, Cube)
    return cube


def assert_same(cube: Cube, other: Cube) -> None:
    for name, array in cube.arrays().items():
        assert np.array_equal(array, other.arrays()[name]), name
    assert np.array_equal(cube.zeros, other.zeros)


SIZES = {
    "default": {},
    "no giants": {"giants": 0},
    "sampled": {"sample_bits": 2, "share_bits": 0},
    "one slice": {"slice_bits": 0, "columns": 160},
    "more slices than bins": {"slice_bits": 8, "columns": 3, "giants": 1},
    "short columns": {"column_bits": 6, "columns": 640},
    "long columns": {"column_bits": 17, "columns": 2, "giants": 1, "slice_bits": 1},
    "eight arrays": {"arrays": 8, "columns": 20},
    "rows as in version 2": {"turned_lines": 0, "giants": 0},
}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_a_file_of_rows_is_a_dense_cube_through_every_door(bits, sizes, tmp_path):
    sizes = geometry(bits, **sizes)
    hosts, peers = pairs_of(sizes)
    exact, dense, other = make(sizes), make(sizes, exact=False), make(sizes, exact=False)
    for cube in (exact, dense):
        cube.update(hosts, peers)
    other.update(*pairs_of(sizes, seed=2))
    path = saved(tmp_path / "rows.cube", exact)
    assert exact.exact
    assert is_rows_form(path)
    loaded = only(load(path))
    assert not loaded.exact
    assert_same(loaded, dense)
    alone = Sketch()
    alone.merge_file(path)
    assert_same(only(alone), dense)
    union = Sketch.of(other.copy())
    union.merge_file(path)
    other.merge(dense)
    assert_same(only(union), other)
    (part,) = load(path).parts
    asked = np.unique(hosts, axis=0)
    answers = estimate_in_file(path, {part: asked})[part]
    assert list(answers) == list(exact.estimate_many(asked))


@pytest.mark.parametrize("bits", BITS)
def test_the_bytes_depend_on_the_set_of_pairs_alone(bits, tmp_path):
    sizes = geometry(bits)
    hosts, peers = pairs_of(sizes)
    first = make(sizes)
    first.update(hosts, peers)
    expected = saved(tmp_path / "a.cube", first).read_bytes()
    for seed, threads in ((1, 1), (2, 2), (3, 5)):
        order = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(hosts)), 2))
        halves = make(sizes, threads=threads), make(sizes, threads=threads)
        for number, piece in enumerate(np.array_split(order, 7)):
            halves[number % 2].update(hosts[piece], peers[piece])
        halves[0].merge(halves[1])
        assert saved(tmp_path / "b.cube", halves[0]).read_bytes() == expected


@pytest.mark.slow
def test_a_cube_of_a_gpu_loads_rows(tmp_path):
    sizes = geometry()
    exact, dense = make(sizes), make(sizes, exact=False)
    for cube in (exact, dense):
        cube.update(*pairs_of(sizes))
    path = saved(tmp_path / "a.cube", exact)
    assert is_rows_form(path)
    assert_same(only(load(path, device="cuda")), dense)
    assert_same(only(load(path, device="cuda:0,0")), dense)


def test_an_exact_cube_is_saved_without_its_bits(tmp_path):
    cube = Cube("128MiB", device="cpu")
    cube.update(np.arange(20_000, dtype=np.uint32) % 50, np.arange(20_000, dtype=np.uint32))
    tracemalloc.start()
    try:
        cube.save(tmp_path / "a.cube")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert is_rows_form(tmp_path / "a.cube")
    assert cube.exact


TRAFFIC = {  # hosts and peers of each
    "one pair": (1, 1),
    "few pairs": (5, 4),
    "one large host": (1, 20_000),
    "small hosts": (2_000, 10),
    "hosts of one peer": (20_000, 1),
}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("memory", ["64KiB", "1MiB", "4MiB"])
@pytest.mark.parametrize("traffic", TRAFFIC.values(), ids=TRAFFIC)
def test_no_file_of_an_exact_cube_is_larger_than_that_of_a_dense_one(traffic, memory, bits, tmp_path):
    number, peers = traffic
    exact, dense = (Cube(memory, key_bits=bits, device="cpu", exact=exact) for exact in (True, False))
    most = exact.geometry.exact_pairs
    each = np.repeat(np.arange(number), peers)[:most]
    hosts = numbers_to_array([int(host) for host in each], bits)
    for cube in (exact, dense):
        cube.update(hosts, np.arange(len(each), dtype=np.uint32))
    assert exact.exact
    dense._tallies = Tallies.of(gather(exact._pairs(), exact.geometry, exact.key), exact.geometry)  # It says as much.
    paths = saved(tmp_path / "rows.cube", exact), saved(tmp_path / "bits.cube", dense)
    assert (
        paths[0].stat().st_size <= paths[1].stat().st_size + 150
    )  # It has three arrays more, each a line of the header.
    assert_same(only(load(paths[0])), dense)


def test_hosts_of_equal_priority_both_win_their_label():
    """Their label then has the larger limb of each, which no single host has."""
    sizes = geometry(64, slice_bits=0, columns=2, label_bits=0)
    key = make_key(b"some key")
    hosts = np.random.default_rng(1).integers(0, 1 << 63, (8, 2), dtype=np.uint64)
    hosts[:, 0] = 0
    wins = find_winners(hosts, np.full((8, sizes.arrays), 9, np.uint32), sizes, key)
    assert wins.all()


EDGES = st.sampled_from([0, 1, (1 << 64) - 1, 1 << 64, (1 << 64) + 1, 1 << 127, (1 << 128) - 1])


@given(st.sets(EDGES | st.integers(0, (1 << 128) - 1), min_size=1, max_size=9))
def test_differences_of_wide_hosts_carry(numbers):
    hosts = np.array([(number >> 64, number & (1 << 64) - 1) for number in sorted(numbers)], np.uint64)
    sizes = np.array([len(hosts)])
    decoded = np.empty_like(hosts)
    assert add_differences(host_differences(hosts, sizes), sizes, 128, decoded) == -1
    assert np.array_equal(decoded, hosts)


# Files from elsewhere


def forge(path: Path, cube: Cube, arrays: Arrays, family: int = 4) -> None:
    parts = [cube._written(Part(family))._replace(arrays=arrays)]
    write_parts(path, compose_header(parts), parts)


def change(name: str, edit: Any) -> Any:
    """Return a function that changes one array."""

    def of(arrays: Arrays) -> None:
        arrays[name] = edit(arrays[name])

    return of


def put(place: Any, value: int) -> Any:
    def edit(array: Any) -> Any:
        array = array.copy()
        array[place] = value
        return array

    return edit


def list_a_host_twice(arrays: Arrays) -> None:
    """Give the first host of the second group the number of the first host of the first one."""
    arrays["hosts"][:, arrays["counts"][1, 0]] = arrays["hosts"][:, 0]


def too_many_rows(arrays: Arrays) -> None:
    count = geometry().exact_pairs + 1
    arrays["counts"], arrays["hosts"] = np.array([[1], [count]], np.uint32), np.zeros((1, count), np.uint32)
    arrays["rows"], arrays["giants"] = np.zeros(count, np.uint16), np.zeros(-(-count // 64), np.uint64)
    arrays["winners"], arrays["priorities"] = np.zeros(count, np.uint8), np.zeros(0, np.uint32)


WIDE = change("hosts", put((..., 1), (1 << 64) - 1))
FAULTS: dict[str, tuple[Any, ...]] = {  # of a file of IPv4 hosts, or of the sizes that are given
    "no rows": (change("counts", put((0, 0), 0)), "array 0/counts: must be numbers of rows from 1 to 1024"),
    "counts descend": (change("counts", lambda a: a[:, ::-1]), "array 0/counts: must be numbers of rows"),
    "too large": (change("counts", put((0, -1), 1025)), "array 0/counts: must be numbers of rows from 1 to 1024"),
    "no hosts": (change("counts", put((1, 0), 0)), "array 0/counts: .* but array hosts has"),
    "too many hosts": (change("counts", put((1, 0), (1 << 32) - 1)), "array 0/counts: .* but array hosts has"),
    "fewer hosts": (change("hosts", lambda a: a[:, :-1]), "array 0/counts: .* but array hosts has"),
    "a wide host": (change("hosts", put((0, 1), (1 << 32) - 1)), "array 0/hosts: host 1 has more than 32 bits"),
    "one host twice": (list_a_host_twice, "array 0/hosts: lists a host twice"),
    "too many rows": (too_many_rows, "array 0/rows: has .* rows, the most of a cube of these sizes"),
    "a row less": (change("rows", lambda a: a[:-1]), "array 0/rows: has .* rows, but hosts have"),
    "a row beyond": (change("rows", put(-1, 1024)), "array 0/rows: host .* has a row that is not below 1024"),
    "a large row": (change("rows", put(-1, 65535)), "array 0/rows: host .* has a row that is not below 1024"),
    "no giants": (change("giants", lambda a: a[:0]), "array 0/giants: has 0 words, must have"),
    "giants beyond": (change("giants", put(-1, 1 << 63)), "array 0/giants: has a bit after"),
    "no winners": (change("winners", lambda a: a[:0]), "array 0/winners: has 0 hosts, must have"),
    "an array too many": (change("winners", put(0, 16)), "array 0/winners: names an array that is not below 4"),
    "a winner more": (change("winners", lambda a: a | 15), "array 0/priorities: has .*, but hosts have .* labels"),
    "a priority less": (change("priorities", lambda a: a[:-1]), "array 0/priorities: has .*, but hosts have"),
    "a low priority": (change("priorities", put(0, 1 << 31)), "array 0/priorities: has one below"),
    "two tallies": (
        change("tallies", lambda _: np.array([[1, 2], [1, 51]], np.uint64)),
        "array 0/tallies: must be one",
    ),
    "no tally": (change("tallies", lambda a: a[:, :0]), "array 0/tallies: must have 52 hosts in all"),
    "too many peers": (
        change("tallypeers", put(0, 1 << 31)),
        "array 0/tallypeers: more than .*, the most that is exact",
    ),
    "beyond 64 bits": (WIDE, "array 0/hosts: host 1 has more than 64 bits", geometry(64)),
    "beyond 128 bits": (WIDE, "array 0/hosts: host 1 has more than 128 bits", geometry(128)),
    "giants of none": (
        change("giants", lambda _: np.ones(1, np.uint64)),
        "array 0/giants: has 1 word, must have 0",
        geometry(giants=0),
    ),
}


@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS)
def test_a_file_with_a_fault_is_refused_and_changes_nothing(case, tmp_path):
    fault, message, sizes = (*case, geometry())[:3]
    family = 4 if sizes.key_bits == 32 else 6
    cube, union = make(sizes), make(sizes, exact=False)
    hosts, peers = pairs_of(sizes)
    cube.update(hosts, peers)
    arrays = {name: array.copy() for name, array in arrays_in(saved(tmp_path / "good.cube", cube)).items()}
    path = tmp_path / "bad.cube"
    fault(arrays)
    forge(path, cube, arrays, family)
    part = Part(family)
    sketch = Sketch(lambda _: union)
    assert sketch.part(part) is union
    doors = [lambda: load(path), lambda: sketch.merge_file(path), lambda: estimate_in_file(path, {part: hosts[:1]})]
    for door in doors:
        with pytest.raises(SketchFileError, match=f"bad.cube: damaged: {message}"):
            door()
    assert not union.bits.any()
    assert not union.labels.any()


def test_a_missing_or_strange_array_is_named(tmp_path):
    cube = make(geometry())
    cube.update(*pairs_of(cube.geometry))
    arrays = arrays_in(saved(tmp_path / "a.cube", cube))
    bits = {name: array for name, array in cube.arrays().items() if name == "bits"}
    cases = [
        ({name: array for name, array in arrays.items() if name != "rows"}, "field arrays: missing 0/rows"),
        ({**arrays, **bits}, r"field arrays\[8\].name: 0/bits: no part has this array"),
        ({**arrays, "rows": arrays["rows"].astype(np.uint32)}, r'field arrays\[2\].dtype: "<u4", must be <u2'),
        ({**arrays, "hosts": arrays["hosts"][0]}, r"field arrays\[1\].shape: a list of 1|must be 1 by any"),
    ]
    for changed, message in cases:
        forge(tmp_path / "b.cube", cube, changed)
        with pytest.raises(SketchFileError, match=message):
            load(tmp_path / "b.cube")


def test_a_file_that_takes_too_much_memory_is_refused(tmp_path):
    cube = make(geometry())
    cube.update(*pairs_of(cube.geometry))
    path = saved(tmp_path / "a.cube", cube)
    with pytest.raises(SketchFileError, match="memory"):
        load(path, max_memory=cube.geometry.memory)
    union = Sketch.of(make(geometry(), exact=False))
    with pytest.raises(SketchFileError, match="memory"):
        union.merge_file(path, max_memory=cube.geometry.memory)
    load(path, max_memory=2 * cube.geometry.memory)
    union.merge_file(path, max_memory=2 * cube.geometry.memory)
