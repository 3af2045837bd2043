"""Detectors and sketches as objects: unions, comparison, copies, bytes, file objects and pickles."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from superhosts.core.hashing import DEFAULT_KEY, Key
from superhosts.core.keys import write_key
from superhosts.core.pairs import HostFormat
from superhosts.detectors.registry import DETECTORS, MERGED

SECRET = b"correct horse battery"
SIZES = {"cbaa": "8MiB", "cbaa-paper": "8MiB"}
MAKERS: dict[str, Any] = {
    name: partial(sh.Exact, device="cpu") if name == "exact" else partial(kind, SIZES.get(name, "1MiB"), device="cpu")
    for name, kind in DETECTORS.items()
}
each_detector = pytest.mark.parametrize("name", DETECTORS)
each_merged = pytest.mark.parametrize("name", MERGED)


def fed(detector: Any, *hosts: int) -> Any:
    """Give each host 300 peers of its own."""
    for host in hosts:
        detector.update(np.full(300, host, np.uint32), (1000 * host + np.arange(300)).astype(np.uint32))
    return detector


def small(*hosts: int, **options: Any) -> sh.Cube:
    cube: sh.Cube = fed(sh.Cube("256KiB", device="cpu", **options), *hosts)
    return cube


def sketch_of(*hosts: int, site: str = "ams", start: int = 0, **options: Any) -> sh.Sketch:
    sketch = sh.Sketch.of(small(*hosts, **options))
    sketch.sites, sketch.window = {site}, sh.Window(start, start + 5)
    sketch.entries = [{"site": site, "start": start, "end": start + 5, **sh.Part(4)._asdict(), "pairs": 300}]
    return sketch


# Unions


@each_merged
def test_a_union_is_new_and_leaves_its_members_as_they_are(name: str) -> None:
    a, b, whole = fed(MAKERS[name](), 1, 2), fed(MAKERS[name](), 2, 3), fed(MAKERS[name](), 1, 2, 3)
    before = a.to_bytes(), b.to_bytes()
    for union in (a | b, b | a, sh.union([a, b]), sh.union(iter([b, a, b]))):
        assert type(union) is type(a)
        assert union == whole
        assert union.to_bytes() == whole.to_bytes()
    assert (a.to_bytes(), b.to_bytes()) == before
    same = a
    same |= b
    assert same is a == whole
    assert a.merge(b) is a
    fed(a | b, 9)
    assert a == whole


def test_sketches_unite_as_they_merge(tmp_path: Path) -> None:
    a, b = sketch_of(1), sketch_of(2, site="fra", start=5)
    merged = copy.copy(a).merge(b)
    a.save(tmp_path / "a.cube")
    b.save(tmp_path / "b.cube")
    for union in (
        a | b,
        sh.union([a, b]),
        sh.union([tmp_path / "a.cube", str(tmp_path / "b.cube")]),
        sh.union([a, tmp_path / "b.cube"]),
    ):
        assert isinstance(union, sh.Sketch)
        assert union == merged
        assert (union.window, union.sites) == (sh.Window(0, 10), {"ams", "fra"})
    assert (a.sites, a.window) == ({"ams"}, sh.Window(0, 5))
    assert a.merge_file(tmp_path / "b.cube") == merged


def test_what_cannot_be_united() -> None:
    cube: Any = small(1)
    sketch = sh.Sketch.of(small(1))
    for other in (5, None, "a.cube", {1}):
        with pytest.raises(TypeError, match="unsupported operand"):
            cube | other
    refused: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (sh.MergeError, "key", lambda: cube | small(key=SECRET)),
        (sh.MergeError, "geometry", lambda: cube | sh.Cube("1MiB")),
        (sh.MergeError, "the detectors differ", lambda: cube | sh.Exact()),
        (sh.MergeError, r"whole sketch.*sketch\.part", lambda: cube | sketch),
        (sh.MergeError, r"sh\.Sketch\.of\(detector\)", lambda: sketch | cube),
        (sh.MergeError, "cannot merge int into a sketch: not a sketch", lambda: sketch.merge(5)),  # type: ignore[arg-type]
        (sh.UsageError, "nothing to unite", lambda: sh.union([])),
        (sh.UsageError, "union: int is not a detector, sketch or path", lambda: sh.union([5])),  # type: ignore[list-item]
        (sh.MergeError, "cannot merge str into cube", lambda: sh.union([cube, "a.cube"])),
    ]
    for error, words, unite in refused:
        with pytest.raises(error, match=words):
            unite()


# Comparison


@each_detector
def test_equal_are_those_of_the_same_kind_and_content(name: str) -> None:
    a, b = fed(MAKERS[name](), 1, 2), fed(MAKERS[name](), 2, 1)
    assert a == a == b
    assert not a != b  # noqa: SIM202
    assert a == copy.copy(a) == copy.deepcopy(a) == a.copy()
    fed(b, 3)
    assert a != b
    assert MAKERS[name]() == MAKERS[name]() != a
    b.clear()
    assert b == MAKERS[name]()
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)
    for other in (None, 5, "a", sh.Sketch.of(a)):
        assert a != other


def test_kinds_that_are_not_equal() -> None:
    empties = [
        small(),
        small(key=SECRET),
        sh.Cube("512KiB", device="cpu"),
        sh.Cube("256KiB", device="cpu", key_bits=64),
        sh.Exact(device="cpu"),
        sh.Exact(device="cpu", key_bits=64),
        sh.Sketch.of(small()),
        sh.Sketch(),
    ]
    prefixes = small()
    prefixes.format = HostFormat(4, 24)
    for one, other in itertools.combinations([*empties, prefixes], 2):
        assert one != other


def test_an_exact_cube_equals_the_dense_one_with_the_same_pairs() -> None:
    exact, dense = small(1, 2), small(1, 2, exact=False)
    assert (exact.exact, dense.exact) == (True, False)
    assert exact == dense
    assert exact != small(1, exact=False)
    assert exact == sh.Cube.from_bytes(exact.to_bytes()) == pickle.loads(pickle.dumps(exact))


def test_sketches_are_equal_with_their_notes() -> None:
    assert sketch_of(1) == sketch_of(1) != sketch_of(2)
    changes: list[dict[str, Any]] = [
        {"window": None},
        {"sites": {"fra"}},
        {"entries": []},
        {"partial": True},
        {"unlisted": True},
        {"parts": {}},
        {"parts": {sh.Part(4, "outer"): small(1)}},
    ]
    for change in changes:
        other = sketch_of(1)
        vars(other).update(change)
        assert other != sketch_of(1), change


# Bytes and files


@each_detector
def test_bytes_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    detector = fed(MAKERS[name](), 1, 2)
    detector.save(tmp_path / "a.cube")
    data = detector.to_bytes()
    assert data == (tmp_path / "a.cube").read_bytes()
    kind = type(detector)
    for given in (data, bytearray(data), memoryview(data)):
        assert kind.from_bytes(given) == detector
    assert type(kind.load(tmp_path / "a.cube")) is kind
    sketch = sh.Sketch.of(detector)
    assert sh.Sketch.from_bytes(sketch.to_bytes()) == sketch == sh.Sketch.load(tmp_path / "a.cube")


def test_file_objects(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    for whole, load in ((small(1), sh.Cube.load), (sketch_of(1), sh.load), (sketch_of(2), sh.Sketch.load)):
        memory = io.BytesIO()
        whole.save(memory)
        memory.seek(0)
        assert load(memory) == whole
        with (tmp_path / "open.cube").open("wb") as file:
            file.write(b"before")
            whole.save(file)
        with (tmp_path / "open.cube").open("rb") as file:
            file.seek(len(b"before"))
            assert load(file) == whole
        with fsspec.open("memory://remote.cube", "wb") as file:
            whole.save(file)
        with fsspec.open("memory://remote.cube", "rb") as file:
            assert load(file) == whole
    into = sketch_of(1)
    into.merge_file(io.BytesIO(sketch_of(2).to_bytes()))
    assert into == sketch_of(1) | sketch_of(2)


def test_file_objects_that_cannot_be_used(tmp_path: Path) -> None:
    cube = small(1)
    with (tmp_path / "text.cube").open("w") as file, pytest.raises(sh.UsageError, match=r"text\.cube: .* mode 'wb'"):
        cube.save(file)  # type: ignore[arg-type]
    with pytest.raises(sh.UsageError, match="<bytes>: reading gives str, not bytes; open the file with mode 'rb'"):
        sh.load(io.StringIO("text"))  # type: ignore[arg-type]
    data = cube.to_bytes()
    for length in (0, 1, 9, 40, len(data) // 2, len(data) - 1):
        with pytest.raises(sh.SketchFileError, match=r"^<bytes>"):
            sh.Cube.from_bytes(data[:length])

    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(sh.SuperhostsError, match="<bytes>: cannot be written: No space left"):
        cube.save(Full())


def test_a_file_that_holds_something_else(tmp_path: Path) -> None:
    sh.Exact().save(tmp_path / "exact.cube")
    with pytest.raises(sh.UsageError, match=r"Cube\.load: the file holds exact; use sh\.load"):
        sh.Cube.load(tmp_path / "exact.cube")
    two = sh.Sketch(lambda _: small())
    for direction in ("in", "out"):
        two.part(sh.Part(4, "inner", direction))
    two.save(tmp_path / "two.cube")
    with pytest.raises(sh.UsageError, match=r"has 2 parts \(IPv4 inner in, IPv4 inner out\); use sh\.load"):
        sh.Cube.load(tmp_path / "two.cube")
    with pytest.raises(sh.MergeError, match="written with key"):
        sh.Cube.from_bytes(small(key=SECRET).to_bytes())
    assert sh.Cube.from_bytes(small(1, key=SECRET).to_bytes(), key=SECRET) == small(1, key=SECRET)


class OwnCube(sh.Cube):
    """A class of a caller."""


def test_a_class_of_a_caller_comes_back() -> None:
    own = fed(OwnCube("256KiB", device="cpu"), 1)
    for again in (OwnCube.from_bytes(own.to_bytes()), pickle.loads(pickle.dumps(own)), copy.copy(own)):
        assert type(again) is OwnCube
        assert again == own == small(1)


# Pickles


def words_of(key: Key) -> list[bytes]:
    """The words of a key schedule as a pickle would hold them."""
    return [int(word).to_bytes(8, "little") for words in key for word in words if int(word) > 1 << 40]


@each_detector
def test_a_pickle_is_the_file_and_holds_no_key(name: str) -> None:
    if name == "exact":
        pytest.skip("it has no key")
    detector = fed(MAKERS[name](key=SECRET), 1, 2)
    for whole in (detector, sh.Sketch.of(detector), [detector, sh.Sketch.of(detector)]):
        data = pickle.dumps(whole)
        assert SECRET not in data
        assert not any(word in data for word in words_of(detector.key))
    assert detector.to_bytes(pairs=True) in pickle.dumps(detector)


def test_unpickling_asks_for_the_key_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for whole in (small(1, key=SECRET), sketch_of(1, key=SECRET)):
        data = pickle.dumps(whole)
        monkeypatch.delenv("SUPERHOSTS_KEY", raising=False)
        kind = type(whole).__name__
        words = rf"needs key [0-9a-f]{{16}}: set SUPERHOSTS_KEY.*{kind}\.from_bytes\(data, key="
        with pytest.raises(sh.MergeError, match=words) as raised:
            pickle.loads(data)
        assert "correct" not in str(raised.value)
        monkeypatch.setenv("SUPERHOSTS_KEY", SECRET.decode())
        assert pickle.loads(data) == whole


def test_the_own_key_unpickles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SUPERHOSTS_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = write_key(tmp_path / "superhosts" / "key")
    cube = small(1, key=own)
    assert pickle.loads(pickle.dumps(cube)) == cube


def test_the_public_key_unpickles_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_KEY", SECRET.decode())
    cube = small(1, key=DEFAULT_KEY)
    assert pickle.loads(pickle.dumps(cube)) == cube


def test_the_sketch_of_a_scan_is_pickled_without_the_key_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_KEY", SECRET.decode())
    traffic = "synth:flows=30000,super_hosts=3,seed=1"
    (window,) = sh.scan(traffic, window="all", key=SECRET, memory="256KiB", threshold=100)
    data = pickle.dumps(window.sketch)
    assert SECRET not in data
    assert pickle.loads(data) == window.sketch


# Text


def test_the_text_of_a_cube_says_what_it_is() -> None:
    cube = sh.Cube("256KiB", device="cpu")
    assert repr(cube).startswith("<Cube: 2")
    most = cube.geometry.exact_pairs
    assert f"KiB, exact, 0 of at most {most:,} pairs (" in repr(cube)
    assert f"exact, 600 of at most {most:,} pairs" in repr(fed(cube, 1, 2))
    dense = small(1, 2, exact=False)
    fill = dense.fill()
    assert f"KiB, dense, about {fill.pairs:,} pairs, {fill.mean:.1%} of bits set, cpu>" in repr(dense)
    assert abs(fill.pairs - 600) < 60
    assert repr(fed(sh.Exact(device="cpu"), 1)).endswith(", exact, 300 pairs, cpu>")
    assert repr(sh.Cube.__new__(sh.Cube)).startswith("<superhosts.detectors.cube.Cube object")


def test_the_text_of_a_sketch_names_window_sites_and_parts() -> None:
    sketch = sketch_of(1)
    cube = sketch.parts[sh.Part(4)]
    assert repr(sketch) == (
        "<Sketch: 1970-01-01T00:00:00Z to 1970-01-01T00:00:00.000000005Z, sites ams, 1 part>\n"
        f"  IPv4 inner any: {cube!r}"
    )
    sketch.sites, sketch.partial = {f"s{i}" for i in range(9)} | {"\x1b[2J"}, True
    assert "sites \\x1b[2J, s0, s1, s2, s3, and 5 more, partial, 1 part>" in repr(sketch)
    assert repr(sh.Sketch()) == "<Sketch: 0 parts>"
