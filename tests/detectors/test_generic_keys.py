"""Detectors whose hosts are integers or names: the laws, against sets of Python, and what is refused."""

from __future__ import annotations

import os
import pickle
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest

import superhosts as sh
from superhosts.core.units import parse_size
from superhosts.detectors.detector import Detector
from superhosts.errors import MergeError, UsageError

HOLDERS = ["cube", "dense", "exact"]
KINDS = ["int64", "text"]
OTHER_KEY = b"another secret key"


def make(name: str, keys: str, **more: Any) -> Detector:
    if name == "exact":
        return sh.Exact(keys=keys, device="cpu", threads=2, **more)
    return sh.Cube("2MiB", keys=keys, exact=name == "cube", device="cpu", threads=2, **more)


def traffic(keys: str, seed: int = 1, count: int = 20_000) -> tuple[list[Any], list[Any]]:
    """Return pairs with a few large hosts and many small ones."""
    rng = np.random.default_rng(seed)
    numbers = rng.zipf(1.4, count) % 3000 - 1500
    peers = rng.integers(-(1 << 63), 1 << 63, count)
    if keys == "int64":
        return [int(n) * (1 << 52) for n in numbers], peers.tolist()
    return [f"Straße {n}" if n % 2 else f"user{n}" for n in numbers.tolist()], [f"peer {p}" for p in peers.tolist()]


def peers_of(hosts: list[Any], peers: list[Any]) -> dict[Any, int]:
    """The oracle."""
    seen = defaultdict(set)
    for host, peer in zip(hosts, peers, strict=True):
        seen[host].add(peer)
    return {host: len(found) for host, found in seen.items()}


def fed(name: str, keys: str, hosts: Any, peers: Any) -> Detector:
    detector = make(name, keys)
    detector.update(hosts, peers)
    return detector


@pytest.mark.parametrize("keys", KINDS)
@pytest.mark.parametrize("name", HOLDERS)
def test_hosts_come_back_as_they_were_given(name: str, keys: str) -> None:
    hosts, peers = traffic(keys)
    detector, truth = fed(name, keys, hosts, peers), peers_of(hosts, peers)
    rows = detector.super_hosts(300)
    found, expected = {row.host: row.peers for row in rows}, {host: n for host, n in truth.items() if n >= 300}
    if name == "dense":
        clear = {host for host, count in truth.items() if count >= 360}
        assert clear <= found.keys() <= {host for host, count in truth.items() if count >= 240}
        assert all(abs(found[host] - truth[host]) < 0.15 * truth[host] for host in found)
    else:
        assert found == expected
    assert {type(host) for host in found} == {int if keys == "int64" else str}
    assert rows.unnamed == 0
    # Estimates
    largest, nobody = max(truth, key=lambda host: truth[host]), 42 if keys == "int64" else "nobody"
    none, one = detector.estimate_many([nobody, largest])
    assert [none.host, one.host] == [nobody, largest]
    assert one == detector.estimate(largest)
    assert abs(one.known_peers - truth[largest]) <= (0.1 * truth[largest] if name == "dense" else 0)
    assert none.known_peers < 300
    assert {row.host for row in detector.estimate_many(rows)} == {row.host for row in rows}
    assert (len(detector.columns_of(largest)) > 1) == (name == "dense")
    # Tables: such hosts have no family.
    columns, table = detector.top(1).to_dict(), detector.top(5).to_arrow()
    assert (columns["family"], columns["host"], detector.top(1)[0].family) == ([None], [largest], None)
    assert str(table.schema.field("host").type) == ("int64" if keys == "int64" else "string")
    assert table["family"].null_count == len(table)
    assert table["host"].to_pylist() == [row.host for row in detector.top(5)]
    # Pickles of formats and results hold no key.
    assert detector._text_key is not None
    for each in (detector.format, detector.top(3)):
        data = pickle.dumps(each)
        assert not any(int(word).to_bytes(8, "little") in data for word in detector._text_key)
        assert pickle.loads(data) == each


def test_the_smallest_and_largest_integers() -> None:
    numbers = [-(1 << 63), -1, 0, 1, (1 << 63) - 1]
    cube = fed("cube", "int64", numbers, numbers)
    assert {row.host for row in cube.top(9)} == set(numbers)
    assert cube.estimate("-1") == cube.estimate(-1) == cube.estimate(np.int32(-1))


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", ">i4", "<u4", ">i8", "<i8", "<u8"])
def test_integers_of_any_type(dtype: str) -> None:
    numbers = np.arange(100).astype(dtype)
    cube = fed("cube", "int64", numbers, numbers[::-1])
    assert {row.host for row in cube.top(200)} == set(range(100))


def test_names_survive_when_the_set_of_pairs_overflows() -> None:
    cube = make("cube", "text")
    assert isinstance(cube, sh.Cube)
    hosts = [f"host {i % 7}" for i in range(2 * cube.geometry.exact_pairs)]
    for start in range(0, len(hosts), 10_000):
        cube.update(hosts[start : start + 10_000], np.arange(start, min(len(hosts), start + 10_000)))
    assert not cube.exact
    assert {row.host for row in cube.super_hosts(1000)} == {f"host {i}" for i in range(7)}


def test_forgotten_names_are_shown_as_hashes_and_counted() -> None:
    cube = make("dense", "text")
    assert cube.names_kept == 0
    small = [f"small {i}" for i in range(25_000)]
    cube.update(small, np.zeros(len(small), np.int64))
    most = cube.names_kept
    assert isinstance(cube, sh.Cube)
    assert most == cube.geometry.memory // 1024
    cube.update(["big"] * 5000 + small, np.concatenate([np.arange(5000), np.ones(len(small), np.int64)]))
    assert cube.names_kept == most
    assert [row.host for row in cube.super_hosts(4000)] == ["big"]
    exact = make("cube", "text")
    exact.update(small, np.zeros(len(small), np.int64))
    rows = exact.top(40_000)
    shown = [row.host for row in rows if row.host.startswith("#")]
    assert rows.unnamed == len(shown) == len(small) - most
    assert {row.host for row in rows} - set(shown) <= set(small)
    assert exact.estimate(shown[0]).peers == 1
    assert shown[0] in rows
    assert exact.estimate(shown[0]).host == shown[0]


def test_an_exact_detector_keeps_all_names() -> None:
    names = [f"name {i}" for i in range(5000)]
    exact = fed("exact", "text", names, names)
    assert {row.host for row in exact.top(9999)} == set(names)
    assert exact.names_kept == 5000


def test_memory_counts_names() -> None:
    cube = make("dense", "text")
    before = cube.memory
    cube.update([f"{i:200d}" for i in range(2000)], list(range(2000)))
    assert cube.memory > before + 2000 * 200
    cube.update([f"{i:200d}" for i in range(50_000)], list(range(50_000)))
    assert cube.memory < before + 2048 * 5 // 4 * (255 + 51) * 2


REFUSED: dict[str, tuple[str, Any, Any]] = {
    "hosts are text, but this detector has keys": ("int64", ["a"], ["b"]),
    "hosts are integers, but this detector has keys": ("text", [1], ["b"]),
    "1 host but 2 peers": ("text", ["a"], ["b", "c"]),
    r"9223372036854775808 does not fit: keys=\"int64\" takes integers from": ("int64", [1, 1 << 63], [1, 2]),
    "row 1: 1.5 is ": ("int64", [1, 1.5], [1, 2]),
    "row 0: True is ": ("int64", [True], [1]),
    "hosts, row 2: 9223372036854775808 does not fit": ("int64", *[np.array([1, 2, 1 << 63], np.uint64)] * 2),
    "row 1: NaN": ("int64", np.array([1.0, np.nan]), np.array([1, 2])),
}


def test_what_is_no_pair_of_keys() -> None:
    for reason, (keys, hosts, peers) in REFUSED.items():
        with pytest.raises(UsageError, match=reason):
            make("cube", keys).update(hosts, peers)
    for host in ("a", None, 1.5, 1 << 63):
        with pytest.raises(UsageError, match="takes integers from"):
            make("cube", "int64").estimate(host)  # type: ignore[call-overload]


def test_arguments() -> None:
    with pytest.raises(UsageError, match=r'keys=\'str\': must be "int64", "text" or None'):
        sh.Cube(keys="str")
    with pytest.raises(UsageError, match=r'key_bits=32 cannot be combined with keys="text", which has 128 bits'):
        sh.Cube(keys="text", key_bits=32)
    with pytest.raises(UsageError, match="key_bits"):
        sh.Cube(keys="int64", geometry=sh.Geometry.for_memory("2MiB", 128))
    assert sh.Cube("2MiB", keys="int64").key_bits == 64
    assert sh.Exact(keys="text", key_bits=128).key_bits == 128


def test_unlike_keys_are_not_merged() -> None:
    cubes = {
        "int64 keys": make("cube", "int64"),
        "text keys": make("cube", "text"),
        "IPv6 /64 hosts": sh.Cube("2MiB", key_bits=64),
        "IPv6 /128 hosts": sh.Cube("2MiB", key_bits=128),
    }
    for mine, here in cubes.items():
        for theirs, there in cubes.items():
            if "keys" in mine + theirs and mine != theirs:
                with pytest.raises(MergeError, match=f"cannot merge: {theirs} into {mine}"):
                    here.merge(there)
                with pytest.raises(MergeError, match=f"cannot merge: {theirs} into {mine}"):
                    sh.Sketch.of(here).merge(sh.Sketch.of(there))
    for name in HOLDERS:
        with pytest.raises(MergeError, match="key"):
            make(name, "text").merge(make(name, "text", key=OTHER_KEY))


def test_several_results_share_their_names() -> None:
    cube = fed("cube", "text", *traffic("text"))
    joined = sh.SuperHosts.joined([cube.super_hosts(300), cube.top(100)[20:]])
    assert joined.unnamed == 0


def test_texts_with_lone_surrogates_are_as_many_as_they_are(tmp_path):
    """File names that are no UTF-8 come from `os.fsdecode` with lone surrogates."""
    names = [*(os.fsdecode(b"caf%c.txt" % last) for last in b"\xe9\xe8\xea"), "\ud800", "?", "caf?"]
    columns = {
        "list": names,
        "array": np.array(names),
        "objects": np.array(names, object),
        "series": pd.Series(names, dtype=object),
        "strings": pd.Series(names, dtype=pd.StringDtype("python")),
        "bytes": [name.encode(errors="surrogatepass") for name in names],
    }
    for name, column in columns.items():
        cube = make("cube", "text")
        cube.update(["a"] * len(names), column)
        cube.update(column, [1] * len(names))
        assert cube.estimate("a").peers == len(names), name
        assert len(cube.top(10)) == len(names) + 1, name
        assert cube.exact_count() == 2 * len(names)
    shown = {str(row.host): row.peers for row in cube.top(10)}
    assert len(shown) == len(names) + 1
    assert any(text.startswith("caf\\udce9.txt…#") for text in shown)
    asked = cube.estimate_many(names)  # in order, by name and by what is shown of it
    assert [row.peers for row in asked] == [1] * len(names)
    assert {str(row.host) for row in asked} | {"a"} == set(shown)
    for text, peers in shown.items():
        assert cube.estimate(text).peers == peers
        assert text.encode().decode() == text
    cube.top(10).to_arrow()
    cube.save(tmp_path / "a.cube")
    again = sh.Cube.load(tmp_path / "a.cube")
    assert again.names_kept == len(shown)
    numbers = cube.top(10)
    assert [row.host for row in again.estimate_many(numbers)] == [row.host for row in numbers]
    other = make("dense", "text")
    other.update(["caf\udceb.txt"] * 3000, range(3000))
    other.merge(again)
    (largest,) = other.super_hosts(2000)
    assert str(largest.host).startswith("caf\\udceb.txt…#")
    assert other.estimate("caf\udce9.txt").peers == 1


def test_a_text_cube_stays_within_its_memory_with_its_names():
    for memory in ("1MiB", "4MiB"):
        size = parse_size(memory)
        for letters in (8, 60):
            for exact in (True, False):
                cube = sh.Cube(memory, keys="text", exact=exact, device="cpu")
                count = size // 512  # more than it keeps names
                cube.update([f"{i:0{letters}}" for i in range(count)], [str(i) for i in range(count)])
                assert cube.names_kept == cube.geometry.memory // 1024 or memory == "1MiB"
                assert cube.memory <= size
                assert cube.memory > 0.85 * size or exact
    assert sh.Cube("1MiB", keys="int64").geometry == sh.Cube("1MiB", key_bits=64).geometry
    planned = sh.Cube("4MiB", keys="text", flows="100k")
    assert 0.7 * parse_size("4MiB") < planned.geometry.memory <= 7 / 8 * parse_size("4MiB")
    with pytest.raises(MergeError, match=r'\(memory="4MiB" into memory="1MiB"\)'):
        sh.Cube("1MiB", keys="text").merge(sh.Cube("4MiB", keys="text"))
