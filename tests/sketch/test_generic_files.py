"""Files of integer and text keys: round trips, merges block by block, queries, and hostile ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from forging import forge, frame, take_apart
from superhosts.core.pairs import Part
from superhosts.errors import MergeError, SketchFileError, UsageError
from superhosts.sketch.files import estimate_in_file, find_in_file
from superhosts.sketch.sketch import Sketch

KEYED = Part(0)
KINDS = ["int64", "text"]
FORMS = ["exact-cube", "dense", "exact"]


def make(keys: str, form: str = "dense", first: int = 0, count: int = 3000, **more: Any) -> Any:
    """Return a detector with two large hosts and some small ones."""
    detector = (
        sh.Exact(keys=keys, device="cpu", **more)
        if form == "exact"
        else sh.Cube("1MiB", keys=keys, exact=form == "exact-cube", device="cpu", **more)
    )
    peers = np.arange(first, first + count)
    hosts = [(-7, 1 << 40, int(i))[min(2, i % 5)] for i in range(count)]
    detector.update(hosts if keys == "int64" else [f"größe {host}" for host in hosts], peers)
    return detector


def host_of(keys: str, number: int = -7) -> Any:
    return number if keys == "int64" else f"größe {number}"


def arrays_of(sketch: Sketch) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in sketch.part(KEYED).arrays().items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keys", KINDS)
def test_merging_a_file_is_merging_what_it_holds(keys: str, form: str, tmp_path: Path) -> None:
    paths = [tmp_path / "a.cube", tmp_path / "b.cube"]
    for number, path in enumerate(paths):
        make(keys, form, first=2000 * number).save(path)
    whole, loaded = Sketch(), sh.load(paths[0])
    for path in (*paths, paths[0]):
        whole.merge_file(path)
    loaded.merge(sh.load(paths[1]))
    assert set(map(bytes, arrays_of(whole).values())) == set(map(bytes, arrays_of(loaded).values()))
    assert list(whole.super_hosts(400)) == list(loaded.super_hosts(400))
    assert host_of(keys) in whole.super_hosts(400)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keys", KINDS)
def test_queries(keys: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.cube"
    make(keys, form).save(path)
    sketch, host = sh.load(path), host_of(keys)
    assert list(find_in_file(path, host)) == list(sketch.estimate(host))
    assert [row.host for row in find_in_file(path, host)] == [host]
    rows = estimate_in_file(path, {KEYED: [host, host_of(keys, 99)]})[KEYED]
    assert list(rows) == list(sketch.part(KEYED).estimate_many([host, host_of(keys, 99)]))
    assert [row.host for row in rows] == [host, host_of(keys, 99)]


def test_keys_are_not_merged_with_addresses(tmp_path: Path) -> None:
    make("int64").save(tmp_path / "keys.cube")
    make("text").save(tmp_path / "text.cube")
    cube = sh.Cube("1MiB", key_bits=64, exact=False)
    cube.save(tmp_path / "addresses.cube")
    for first, second, words in [
        ("addresses", "keys", "made with int64 keys, .*addresses.cube with IPv6 /64 hosts"),
        ("keys", "addresses", "made with IPv6 /64 hosts, .*keys.cube with int64 keys"),
        ("keys", "text", "made with text keys, .*keys.cube with int64 keys"),
    ]:
        sketch = Sketch()
        sketch.merge_file(tmp_path / f"{first}.cube")
        with pytest.raises(MergeError, match=words):
            sketch.merge_file(tmp_path / f"{second}.cube")


def test_forgotten_names_of_files(tmp_path: Path) -> None:
    cube = sh.Cube("1MiB", keys="text", exact=False)
    cube.update([f"small {i}" for i in range(5000)] + ["big"] * 3000, np.arange(8000))
    cube.save(tmp_path / "a.cube")
    sketch = sh.load(tmp_path / "a.cube")
    assert sketch.part(KEYED).names_kept == cube.names_kept == 1024
    assert [row.host for row in sketch.super_hosts(2500)] == ["big"]
    again = Sketch()
    again.merge_file(tmp_path / "a.cube")
    assert arrays_of(again) == arrays_of(sketch)


def test_files_hold_names_of_hosts_but_not_of_peers(tmp_path: Path) -> None:
    cube = sh.Cube("1MiB", keys="text")
    cube.update(["visible"] * 500, [f"secret {i}" for i in range(500)])
    cube.save(tmp_path / "a.cube")
    header, _ = take_apart(tmp_path / "a.cube")
    names = {array["name"]: array["shape"] for array in header["arrays"]}
    assert names["0/names"] == [len("visible")]
    assert b"secret" not in b"".join(arrays_of(sh.load(tmp_path / "a.cube")).values())


def test_files_of_addresses_have_no_names(tmp_path: Path) -> None:
    sh.Cube("1MiB").save(tmp_path / "a.cube")
    make("int64").save(tmp_path / "b.cube")
    for path in (tmp_path / "a.cube", tmp_path / "b.cube"):
        assert not any("name" in array["name"] for array in take_apart(path)[0]["arrays"])


def change_names(path: Path, names: bytes, sizes: list[int], ranks: list[int]) -> None:
    """Replace the names of a file of one exact detector without pairs, whose checksum becomes right."""
    header, _ = take_apart(path)
    blocks = b""
    content = {
        "0/names": np.frombuffer(names, np.uint8),
        "0/namesizes": np.array(sizes, np.uint16),
        "0/nameranks": np.array(ranks, np.uint64),
    }
    for array in header["arrays"]:
        if array["name"] in content:
            values = content[array["name"]]
            array["shape"] = [len(values)]
            if len(values):
                blocks += frame(values.view(np.uint8).reshape(-1, values.itemsize).T.tobytes(), coding=1)
    forge(path, header, blocks, version=3)


def test_hostile_names(tmp_path: Path) -> None:
    """`detectors/test_host_names.py` has all that is refused."""
    path = tmp_path / "a.cube"
    sh.Exact(keys="text", device="cpu").save(path)
    change_names(path, b"aa", [1, 1], [0, 1])
    for read in (sh.load, Sketch().merge_file):
        with pytest.raises(SketchFileError, match="array 0/names: names a host twice"):
            read(path)


def test_names_that_change_a_terminal_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "a.cube"
    sh.Exact(keys="text", device="cpu").save(path)
    evil = "\x1b[31m[bold]\u202eevil\n".encode()
    change_names(path, evil, [len(evil)], [0])
    row = sh.load(path).estimate(evil.decode())
    assert "\x1b" not in repr(row)
    assert "\n" not in repr(row).splitlines()[-1]


ODD_HEADERS: dict[str, dict[str, Any]] = {
    r"parts\[0\].format: text keys in a part of family 6": {"family": 6},
    r"parts\[0\].format: IPv6 /128 hosts in a part of family 0": {"format": [6, 128]},
    r"parts\[0\].format\[1\]: 96, must be one of 64, 128": {"format": [0, 96]},
    r"parts\[0\].key_bits: 128-bit keys, but int64 keys need 64 bits": {"format": [0, 64]},
    r"parts\[0\].key: null for text keys of exact": {"key": None},
}


@pytest.mark.parametrize("reason", ODD_HEADERS)
def test_headers_that_contradict_themselves(reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.cube"
    make("text", "exact").save(path)
    header, blocks = take_apart(path)
    header["parts"][0].update(ODD_HEADERS[reason])
    forge(path, header, blocks, version=3)
    with pytest.raises(SketchFileError, match=reason):
        sh.load(path)


def test_detectors_that_take_addresses_only(tmp_path: Path) -> None:
    path = tmp_path / "a.cube"
    sh.Cbaa().save(path)
    header, blocks = take_apart(path)
    header["parts"][0].update({"family": 0, "format": [0, 64]})
    forge(path, header, blocks, version=3)
    with pytest.raises(SketchFileError, match="int64 keys, but cbaa takes addresses only"):
        sh.load(path)


def test_more_names_than_a_cube_keeps_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.cube"
    many = sh.Cube("1MiB", keys="text", exact=False)
    many._names.most = 10_000  # type: ignore[union-attr]
    many.update([f"{i}" for i in range(9000)], np.arange(9000))
    many.save(path)
    with pytest.raises(SketchFileError, match=r"0/namesizes: 9,000 sizes, must be of at most 1,"):
        sh.load(path)


def test_asking_for_the_wrong_kind_of_host(tmp_path: Path) -> None:
    make("int64").save(tmp_path / "a.cube")
    with pytest.raises(UsageError, match="'alice' is not an integer"):
        sh.load(tmp_path / "a.cube").estimate("alice")
