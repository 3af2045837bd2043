"""The public names, and the examples of the documents as they are written."""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from superhosts.errors import MissingExtraError
from traffic import content, near, talk, write

NAMES = [
    "Cbaa",
    "Cube",
    "Exact",
    "Geometry",
    "GeometryError",
    "InputError",
    "ThresholdWarning",
    "MergeError",
    "Network",
    "PacketBatch",
    "PairBatch",
    "Part",
    "Sketch",
    "SketchFileError",
    "SuperHost",
    "SuperHosts",
    "SuperhostsError",
    "UsageError",
    "Window",
    "__version__",
    "load",
    "scan",
]


def pairs(peers: int = 3000, host: str = "10.1.2.3") -> tuple[np.ndarray, np.ndarray]:
    """One host with many peers, and a thousand with one."""
    hosts = np.concatenate([np.full(peers, int(ipaddress.ip_address(host))), 0x0B000000 + np.arange(1000)])
    return hosts.astype(np.uint32), (0xAC100000 + np.arange(len(hosts))).astype(np.uint32)


# Names


def test_public_names_do_not_come_or_go_unnoticed() -> None:
    assert sorted(sh.__all__) == sorted(NAMES)
    assert list(sh.__all__) == sorted(sh.__all__)
    assert dir(sh) == sorted(sh.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(sh, name) is not None


def test_star_import() -> None:
    names: dict[str, Any] = {}
    exec("from superhosts import *", names)
    assert set(NAMES) <= set(names)


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'superhosts' has no attribute 'Square'"):
        sh.Square  # noqa: B018


def test_import_is_light() -> None:
    code = "import sys, superhosts; print(sorted({'numba', 'numpy', 'rich', 'typer'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout == "[]\n"


# The example of the documents


def test_the_example_as_it_is_written(tmp_path: Path) -> None:
    hosts, peers = pairs()
    cube = sh.Cube(memory="1MiB", device="auto")
    cube.update(hosts, peers)
    other = sh.Cube(memory="1MiB", device="auto")
    other.update(*pairs(2000, "10.1.2.4"))
    cube.merge(other)
    found = cube.super_hosts(threshold=1024)
    assert [found.hosts.dtype, found.peers.dtype, found.saturated.dtype] == [np.uint32, np.int64, np.bool_]
    for column in (found.hosts, found.peers, found.peers_low, found.peers_high, found.saturated):
        assert column.shape == (2,)
    assert found.hosts.tolist() == [0x0A010203, 0x0A010204]
    rows = list(found)
    assert [row.host for row in rows] == [ipaddress.ip_address("10.1.2.3"), ipaddress.ip_address("10.1.2.4")]
    for i, row in enumerate(rows):
        columns = (found.peers[i], found.peers_low[i], found.peers_high[i], found.saturated[i])
        assert (row.peers, row.peers_low, row.peers_high, row.saturated) == columns
        assert row.peers_low <= row.peers <= row.peers_high
        assert near(row, (3000, 2000)[i])
    assert cube.estimate("10.1.2.3") == rows[0] == cube.estimate(rows[0].host) == cube.estimate(found.hosts[0])
    assert len(found) == 2
    assert "2 hosts" in repr(found)

    cube.save(tmp_path / "a.cube")
    sketch = sh.load(tmp_path / "a.cube")
    assert isinstance(sketch, sh.Sketch)
    assert [item.row for item in sketch.super_hosts(threshold=1024)] == rows
    assert [item.row for item in sketch.estimate("10.1.2.3")] == rows[:1]
    assert content(sketch) == content(sh.Sketch.of(cube))

    trace = write(tmp_path / "trace.pcap", talk("10.1.2.3", 1500))
    seen = 0
    for window in sh.scan(str(trace), inner="10.0.0.0/8", threshold=1024, window="5m", memory="1MiB"):
        for item in window:
            assert str(item.row.host) == "10.1.2.3"
            seen += 1
    assert seen == 1


def test_a_batch_of_pairs_is_taken_whole() -> None:
    a, b = sh.Cube(memory="1MiB"), sh.Cube(memory="1MiB")
    a.update(*pairs())
    b.update(sh.PairBatch(*pairs()))
    assert content(sh.Sketch.of(a)) == content(sh.Sketch.of(b))


@pytest.mark.parametrize("detector", [lambda: sh.Cube(memory="1MiB"), sh.Exact], ids=["cube", "exact"])
def test_columns_that_cannot_be_pairs(detector: Any) -> None:
    one, hosts = detector(), np.zeros(3, np.uint32)
    for arguments, message in (
        ((hosts,), "hosts and peers, or one PairBatch"),
        ((hosts, hosts[:2]), "3 hosts but 2 peers"),
        ((hosts.astype(np.uint64), hosts), "hosts have 64 bits, this .* takes 32-bit keys"),
        ((hosts.astype(np.int32), hosts), "hosts: int32"),
        ((hosts, hosts.astype(float)), "peers: float64"),
        ((np.zeros((3, 3), np.uint64), hosts), r"hosts: uint64 \(3, 3\)"),
    ):
        with pytest.raises(sh.UsageError, match=message):
            one.update(*arguments)
    one.update(hosts[:0], hosts[:0])
    assert len(one.super_hosts(1000)) == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_an_empty_exact_detector(threads: int) -> None:
    for bits in (32, 64, 128):
        detector = sh.Exact(key_bits=bits, threads=threads)
        assert list(detector.super_hosts(1)) == list(detector.top(3)) == []
        assert detector.estimate(5).peers == 0


@pytest.mark.parametrize("threshold", [0, -1, 0.5, float("nan")])
def test_thresholds_below_one(threshold: float) -> None:
    for detector in (sh.Cube(memory="1MiB"), sh.Exact()):
        with pytest.raises(sh.UsageError, match="threshold"):
            detector.super_hosts(threshold)


# Sketches


def test_a_sketch_makes_parts_when_they_are_needed() -> None:
    sketch = sh.Sketch(lambda part: sh.Exact(key_bits=32 if part.family == 4 else 64), site="ams")
    assert (sketch.memory, list(sketch), sketch.sites) == (0, [], {"ams"})
    sketch.part(sh.Part(4)).update(*pairs(5))
    assert sketch.part(sh.Part(4)) is sketch.parts[sh.Part(4)]
    assert sketch.memory > 0
    sketch.entries.append({"site": "ams"})
    sketch.clear()
    assert (sketch.top(5), sketch.entries) == ([], [])
    with pytest.raises(sh.UsageError, match="has no part"):
        sh.Sketch().part(sh.Part(6))


def test_a_sketch_puts_the_answers_of_its_parts_in_one_order() -> None:
    sketch = sh.Sketch(lambda _: sh.Exact())
    for part, count in ((sh.Part(4, "inner", "in"), 5), (sh.Part(4, "inner", "out"), 9), (sh.Part(4, "outer"), 7)):
        sketch.part(part).update(*pairs(count))
    assert [(item.part.direction, item.row.peers) for item in sketch.super_hosts(2)] == [
        ("out", 9),
        ("any", 7),
        ("in", 5),
    ]
    assert [item.row.peers for item in sketch.top(2)] == [9, 7]
    assert {item.row.peers for item in sketch.estimate("10.1.2.3")} == {5, 7, 9}
    assert sketch.estimate("2001:db8::1") == []


# Tables


def full_and_empty() -> list[sh.SuperHosts]:
    detector = sh.Cube(memory="1MiB")
    detector.update(*pairs(50_000))  # saturated: no upper bound
    detector.update(*pairs(2000, "10.1.2.4"))
    return [detector.super_hosts(1024), sh.Exact().super_hosts(1)]


def test_tables_of_other_libraries() -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("polars")
    pytest.importorskip("pandas")
    found, empty = full_and_empty()
    plain = found.to_dict()
    assert list(plain) == ["host", "peers", "peers_low", "peers_high", "saturated"]
    assert plain["host"][:2] == ["10.1.2.3", "10.1.2.4"]
    assert (plain["peers_high"][0], plain["saturated"][:2]) == (None, [True, False])
    assert found.to_arrow().to_pydict() == plain
    assert found.to_polars().to_dict(as_series=False) == plain
    frame = found.to_pandas()
    assert frame["host"].tolist() == plain["host"]
    assert frame["peers"].tolist() == plain["peers"]
    for table in (empty.to_arrow(), empty.to_polars(), empty.to_pandas()):
        assert table.shape == (0, 5)
    assert [str(kind) for kind in empty.to_arrow().schema.types] == ["string", "int64", "int64", "int64", "bool"]


@pytest.mark.parametrize(
    ("library", "verb"), [("pyarrow", "to_arrow"), ("polars", "to_polars"), ("pandas", "to_pandas")]
)
def test_a_missing_library_names_the_command(monkeypatch: pytest.MonkeyPatch, library: str, verb: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'superhosts\[tables\]'"):
        getattr(sh.Exact().super_hosts(1), verb)()


def test_selecting_rows_keeps_the_reading_of_hosts() -> None:
    detector = sh.Exact(key_bits=64)
    detector.format = detector.format._replace(prefix=48)
    detector.update(np.array([0x20010DB800010000], np.uint64), np.array([[1, 2]], np.uint64))
    assert [str(row.host) for row in detector.super_hosts(1).select(slice(0, 1))] == ["2001:db8:1::/48"]
