"""docs/reference/format.md is true: a reader of 120 lines that follows it reads golden files as the product does."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import naive
import naive_names
import superhosts as sh
from golden.make import KEY, OFFICE, SITE, pairs
from places import DOCS, TESTS, load_module
from superhosts.cubefile.container import CubeReader
from superhosts.detectors.registry import MERGED

READER, PAGE = DOCS / "reference" / "read_cube.py", (DOCS / "reference" / "format.md").read_text()
GOLDEN = [path for path in sorted((TESTS / "golden").glob("*/*.cube")) if path.parent.name != "v1"]
CUBES = [path for path in GOLDEN if re.match("cube|rows|bits|union|site|prefix|empty", path.name)]


def name_of(path) -> str:
    return f"{path.parent.name}/{path.name}"


reader = load_module(READER)


def test_the_reader_is_short_and_does_not_import_the_product():
    text = READER.read_text()
    assert len(text.splitlines()) <= 120
    assert not re.search(r"^\s*(import|from) (superhosts|numpy)", text, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("path", GOLDEN, ids=name_of)
def test_the_reader_reads_the_header_and_the_arrays_of_the_product(path):
    version, header, parts = reader.read(path)
    with CubeReader(path) as product:
        arrays = product.arrays()
        assert header == product.header
    assert version == int(path.parent.name[1])
    flat = {f"{number}/{name}": values for number, part in enumerate(parts) for name, values in part.items()}
    assert flat.keys() == arrays.keys()
    for name, values in flat.items():
        assert np.array_equal(np.array(values, arrays[name].dtype), arrays[name].reshape(-1)), name


def dense(part: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[int, set[int]], dict[tuple[int, int, int], int]]:
    """Return the columns and labels of a cube in the rows form, by the steps of the page."""
    geometry = {"giants": 0, "sample_bits": 0, "turned_lines": 0, **part["geometry"]}
    cube, columns = naive.Cube(geometry, KEY), defaultdict(set)
    labels: dict[tuple[int, int, int], int] = defaultdict(int)
    place, priorities = 0, iter(arrays["priorities"])
    for (m, rows), winner in zip(reader.hosts_of(arrays, geometry["key_bits"]).items(), arrays["winners"], strict=True):
        plain, giants = cube.places(m), cube.giants(m) if geometry["giants"] else []
        label = m >> geometry["slice_bits"] & ((1 << geometry["label_bits"]) - 1)
        for row in rows:
            is_giant = bool(giants) and arrays["giants"][place // 64] >> place % 64 & 1
            place += 1
            for array in range(geometry["arrays"]):
                turned = cube.turned(row, m, array)
                columns[plain[array]].add(turned)
                if is_giant:
                    columns[giants[array]].add(turned)
        for array in range(geometry["arrays"]):
            if winner >> array & 1:
                priority = ~next(priorities) & naive.M32
                for limb in range(geometry["key_bits"] // 32):
                    where = (plain[array], label, limb)
                    labels[where] = max(labels[where], priority << 32 | m >> 32 * limb & naive.M32)
    assert place == len(arrays["rows"])
    assert next(priorities, None) is None
    return columns, labels


@pytest.mark.slow
@pytest.mark.parametrize("path", CUBES, ids=name_of)
def test_rows_and_bits_are_the_cube_that_the_product_loads(path):
    _, header, parts = reader.read(path)
    sketch = sh.load(path, key=KEY)
    for part, arrays in zip(header["parts"], parts, strict=True):
        loaded = sketch.part(sh.Part(part["family"], part["side"], part["direction"])).arrays()
        if "bits" in arrays:
            assert all(np.array_equal(values.reshape(-1), arrays[name]) for name, values in loaded.items())
            continue
        columns, labels = dense(part, arrays)
        bits = np.unpackbits(loaded["bits"].view(np.uint8), axis=1, bitorder="little")
        assert {number: set(np.flatnonzero(row)) for number, row in enumerate(bits) if row.any()} == columns
        assert {
            where: int(loaded["labels"][where]) for where in zip(*np.nonzero(loaded["labels"]), strict=True)
        } == labels


@pytest.mark.filterwarnings("ignore:this cube is too full")
@pytest.mark.parametrize("path", CUBES, ids=name_of)
def test_the_reader_names_the_hosts_of_the_product(path):
    _, header, parts = reader.read(path)
    fingerprint, words = reader.make_key(KEY)
    key, sketch = naive.Key(KEY), sh.load(path, key=KEY)
    for part, arrays in zip(header["parts"], parts, strict=True):
        assert part["key"] == fingerprint
        bits = part["geometry"]["key_bits"]
        hosts = {m: reader.unmangle(m, bits, words) for m in reader.hosts_of(arrays, bits)}
        assert all(naive.mangle(host, bits, key) == m for m, host in hosts.items())
        detector = sketch.part(sh.Part(part["family"], part["side"], part["direction"]))
        found = [detector.format.to_number(row.host) for row in detector.top(20)]
        assert found or path.name == "empty.cube"
        listed = {
            reader.unmangle(m, bits, words)
            for tally in reader.tallies_of(arrays, reader.hosts_of(arrays, bits)).values()
            for m in tally
        }
        assert set(found) <= set(hosts.values()) | listed


@pytest.mark.parametrize("key_bits", [32, 128])
def test_the_rows_form_lists_all_hosts_and_no_others(key_bits):
    hosts, _ = pairs(key_bits, key_bits)
    numbers = {int(host) for host in hosts} if key_bits == 32 else {int(a) << 64 | int(b) for a, b in hosts}
    _, _, (arrays,) = reader.read(TESTS / "golden" / "v3" / f"cube-rows-{key_bits}.cube")
    words = reader.make_key(KEY)[1]
    assert {reader.unmangle(m, key_bits, words) for m in reader.hosts_of(arrays, key_bits)} == numbers


@pytest.mark.parametrize("path", [path for path in CUBES if path.parent.name == "v3-tallies"], ids=name_of)
def test_tallies_are_the_numbers_of_the_product(path):
    _, header, parts = reader.read(path)
    words = reader.make_key(KEY)[1]
    for part, arrays in zip(header["parts"], parts, strict=True):
        bits = part["geometry"]["key_bits"]
        tallies = reader.tallies_of(arrays, reader.hosts_of(arrays, bits))
        assert len(tallies) == (2 if path.name.startswith("union") else 1)
        bounds = defaultdict(list)
        for m, peers in itertools.chain.from_iterable(tally.items() for tally in tallies.values()):
            bounds[reader.unmangle(m, bits, words)].append(peers)
        detector = sh.load(path, key=KEY).part(sh.Part(part["family"], part["side"], part["direction"]))
        found = {detector.format.to_number(row.host): row for row in detector.super_hosts(1)}
        assert found.keys() == bounds.keys()
        for host, row in found.items():
            assert max(bounds[host]) <= row.peers_low <= row.peers <= row.peers_high <= sum(bounds[host])
            assert row.exact == (len(bounds[host]) == 1)


def content(path) -> tuple[Any, Any]:
    with CubeReader(path) as product:
        return product.header, {name: array.tobytes() for name, array in product.arrays().items()}


@pytest.mark.parametrize("path", [path for path in GOLDEN if path.parent.name != "v2"], ids=name_of)
def test_a_file_that_is_written_again_has_the_same_content(path, tmp_path):
    """A cube that is loaded from the rows form has no pairs, and is written as bits, with tallies, from then on."""
    (tmp_path / "pairs.cube").write_bytes(sh.load(path, key=KEY).to_bytes(pairs=True))
    if path.name.startswith("pairs"):
        assert content(tmp_path / "pairs.cube") == content(path)
        return
    sh.load(path, key=KEY).save(tmp_path / "a.cube")
    assert content(tmp_path / "pairs.cube") == content(tmp_path / "a.cube")
    sh.load(tmp_path / "a.cube", key=KEY).save(tmp_path / "b.cube")
    assert content(tmp_path / "a.cube") == content(tmp_path / "b.cube")
    if not any(name.endswith("/rows") for name in content(path)[1]):
        assert content(tmp_path / "a.cube") == content(path)


@pytest.mark.parametrize("name", MERGED)
def test_the_pairs_of_a_golden_file_give_its_content_again(name, tmp_path):
    """All detectors of v3 have seen the pairs that the file of `exact` contains."""
    golden = TESTS / "golden" / "v3"
    stored = np.array(reader.read(golden / "exact.cube")[2][0]["pairs"], np.uint64)
    detector = sh.load(golden / f"{name}.cube", key=KEY).part(sh.Part(4))
    detector.clear()
    detector.update((stored >> np.uint64(32)).astype(np.uint32), stored.astype(np.uint32))
    detector.save(tmp_path / "again.cube")
    assert content(tmp_path / "again.cube") == content(golden / f"{name}.cube")


def test_a_scan_gives_the_content_of_its_golden_file_again(tmp_path):
    golden = TESTS / "golden" / "v3-more" / "site.cube"
    header, stored = content(golden)
    for window in sh.scan(OFFICE, **SITE, key=KEY):
        window.sketch.save(tmp_path / "again.cube")
    again, arrays = content(tmp_path / "again.cube")
    again["arrays"] = [each for each in again["arrays"] if "/tall" not in each["name"]]  # It had none.
    assert {**again, "unlisted": True} == header
    assert {name: array for name, array in arrays.items() if "/tall" not in name} == stored


def test_the_page_names_every_field_and_array():
    named = set(re.findall(r"`\"?([a-z_-]+)\"?`", PAGE))
    fields: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            fields.update(value)
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(each)

    for path in GOLDEN:
        with CubeReader(path) as product:
            collect(product.header)
            fields |= {array["name"].split("/")[1] for array in product.header["arrays"]}
            fields |= {part["detector"] for part in product.header["parts"]}
    assert len(fields) > 40
    assert not fields - named


def test_the_program_prints_the_hosts(tmp_path):
    (tmp_path / "key").write_bytes(KEY + b"\n")
    path = TESTS / "golden" / "v3-tallies" / "rows-64.cube"
    command = [sys.executable, str(READER), str(path)]
    lines = subprocess.run([*command, str(tmp_path / "key")], capture_output=True, text=True, check=True).stdout
    first, second, third, *hosts = lines.splitlines()
    _, header, _ = reader.read(path)
    assert first == f"version 3 {json.dumps(header)}"
    assert second.startswith("set bits {'counts': ")
    assert third == "names []"
    detector = sh.load(path, key=KEY).part(sh.Part(6))
    assert sorted(hosts) == sorted(f"{row.host} {row.peers}" for row in detector.super_hosts(1))
    without = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert without.splitlines() == [first, second, third]


def test_the_program_refuses_a_damaged_file(tmp_path):
    data = bytearray((TESTS / "golden" / "v3" / "cube.cube").read_bytes())
    data[2000] ^= 1
    (tmp_path / "bad.cube").write_bytes(data)
    done = subprocess.run([sys.executable, str(READER), str(tmp_path / "bad.cube")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("bad.cube: not a .cube file of version 2 or 3, or damaged\n")


def names_of(arrays: dict[str, Any]) -> dict[int, str]:
    letters, words = iter(arrays["names"]), naive_names.key_of(KEY)
    shown = [bytes(itertools.islice(letters, size)).decode() for size in arrays["namesizes"]]
    assert next(letters, None) is None
    return {int(name[-32:], 16) if "…#" in name else naive_names.siphash(name.encode(), *words): name for name in shown}


@pytest.mark.parametrize("form", ["bits", "rows"])
def test_the_names_of_a_file_are_those_of_its_hosts(form):
    path = TESTS / "golden" / "v3-keys" / f"{form}-text.cube"
    _, _, (arrays,) = reader.read(path)
    words = reader.make_key(KEY)[1]
    names = names_of(arrays)
    assert {"Zoë", "", "user--463271"} <= set(names.values())
    listed = {reader.unmangle(m, 128, words) for m in reader.hosts_of(arrays, 128)}
    assert listed == set(names) if form == "rows" else listed <= set(names)
    found = sh.load(path, key=KEY).part(sh.Part(0)).top(50)
    assert {row.host for row in found} <= set(names.values())


def test_the_ranks_of_names_are_the_smallest_hashes_of_pairs():
    _, _, (arrays,) = reader.read(TESTS / "golden" / "v3-keys" / "exact-text.cube")
    key, ranks = naive.Key(KEY), {}
    for i in range(0, len(arrays["pairs"]), 4):
        host, peer = (arrays["pairs"][j] << 64 | arrays["pairs"][j + 1] for j in (i, i + 2))
        rank = naive.pair_hash(naive.fold(host, key), naive.fold(peer, key), key)
        ranks[host] = min(rank, ranks.get(host, rank))
    assert dict(zip(names_of(arrays), arrays["nameranks"], strict=True)) == ranks
    assert list(arrays["nameranks"]) == sorted(ranks.values())


def test_integers_are_stored_in_twos_complement():
    _, _, (arrays,) = reader.read(TESTS / "golden" / "v3-keys" / "rows-int64.cube")
    words = reader.make_key(KEY)[1]
    numbers = {reader.unmangle(m, 64, words) for m in reader.hosts_of(arrays, 64)}
    hosts, _ = pairs(5)
    assert {number - (number >> 63 << 64) for number in numbers} == {
        int(host) - (10 << 24) - (1 << 19) for host in hosts
    }
