"""The public names, and the examples of the documents as they are written."""

from __future__ import annotations

import inspect
import ipaddress
import json
import subprocess
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from commands import Run
from superhosts.detectors.cbaa import Geometry as CbaaGeometry
from superhosts.lab.rivals.filter import Geometry as FilterGeometry
from superhosts.lab.rivals.vbfa import Geometry as VbfaGeometry
from superhosts.pipeline.settings import Settings

NAMES = ["Cbaa", "Cube", "Dcds", "Detector", "Exact", "Filter", "Gse", "PairSample", "Rgs", "SpreadSketch", "Vbfa"]
NAMES += ["GeometryError", "InputError", "MergeError", "SketchFileError", "SuperhostsError", "UsageError"]
NAMES += ["Calibration", "Comparison", "Geometry", "Network", "OwnDetector", "PacketBatch", "PairBatch", "Part", "Plan"]
NAMES += [
    "Scan",
    "Settings",
    "Sketch",
    "Stream",
    "SuperHost",
    "SuperHosts",
    "ThresholdWarning",
    "Window",
    "__version__",
]
NAMES += ["calibrate", "compare", "load", "own_key", "plan", "scan", "synth", "union"]


def pairs(peers: int = 3000, host: str = "10.1.2.3") -> tuple[np.ndarray, np.ndarray]:
    """One host with many peers, and a thousand with one."""
    hosts = np.concatenate([np.full(peers, int(ipaddress.ip_address(host))), 0x0B000000 + np.arange(1000)])
    return hosts.astype(np.uint32), (0xAC100000 + np.arange(len(hosts))).astype(np.uint32)


# Names


def test_public_names_do_not_come_or_go_unnoticed() -> None:
    assert list(sh.__all__) == dir(sh) == sorted(NAMES)
    names: dict[str, Any] = {}
    exec("from superhosts import *", names)
    assert all(names[name] is getattr(sh, name) is not None for name in NAMES)
    with pytest.raises(AttributeError, match="module 'superhosts' has no attribute 'Square'"):
        sh.Square  # noqa: B018


def test_import_is_light() -> None:
    code = "import sys, superhosts; print(sorted({'numba', 'numpy', 'rich', 'click'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout == "[]\n"


# Arguments


def test_a_list_of_no_hosts_cannot_be_asked_for() -> None:
    for detector in (sh.Cube("1MiB", device="cpu"), sh.Exact(), sh.Sketch.of(sh.Exact()), sh.Sketch()):
        for count in (0, -1, 2.5, "3", None, True):
            with pytest.raises(sh.UsageError, match=f"^top {count}: must be a number of hosts, at least 1"):
                detector.top(count)
    exact = sh.Exact()
    exact.update(*pairs())
    assert len(exact.top(np.int64(1))) == len(exact.top(1.0)) == 1


def test_sizes_of_any_kind() -> None:
    sized = sh.Cube("1MiB", device="cpu").geometry
    for memory in (1 << 20, np.int64(1 << 20), np.uint32(1 << 20), float(1 << 20)):
        assert sh.Cube(memory, device="cpu").geometry == sized  # type: ignore[arg-type]
    planned = sh.Cube("1MiB", flows="5M", device="cpu").geometry
    for flows in (5_000_000, np.int64(5_000_000), 5e6):
        assert sh.Cube("1MiB", flows=flows, device="cpu").geometry == planned  # type: ignore[arg-type]
    for memory in (1.5, True, -1, [1]):
        with pytest.raises(sh.UsageError, match="is not a size"):
            sh.Cube(memory)  # type: ignore[arg-type]
    with pytest.raises(sh.UsageError, match="is not a count"):
        sh.Cube("1MiB", flows=2.5)  # type: ignore[arg-type]
    for make in (partial(sh.Cube, "1MiB", device="cpu"), sh.Exact):
        assert type(make(key_bits=np.int64(64)).key_bits) is int
        with pytest.raises(sh.UsageError, match="key_bits=33: must be 32, 64 or 128"):
            make(key_bits=33)
        for threads in (0, 1.5, "2"):
            with pytest.raises(sh.UsageError, match=f"threads={threads}: must be at least 1"):
                make(threads=threads)


CUBE, FILTER, VBFA = sh.Geometry.for_memory("1MiB"), FilterGeometry(words=9, counters=9), VbfaGeometry(column_bits=6)
GEOMETRIES_OF: list[tuple[Any, Any, dict[str, Any], str]] = [
    (sh.Cube, CUBE, {"memory": "1GiB"}, r"memory=1GiB cannot be combined with a geometry with memory=\d+;"),
    (sh.Cube, CUBE, {"key_bits": 128}, "key_bits=128 cannot be combined with a geometry with key_bits=32;"),
    (sh.Cube, CUBE, {"flows": "5M"}, "flows=5M cannot be combined with a geometry;"),
    (sh.Cube, CUBE, {"threshold": 9}, "threshold=9 cannot be combined with a geometry;"),
    (sh.Cbaa, CbaaGeometry(slice_bits=0), {"memory": "1GiB"}, "memory=1GiB"),
    (sh.Filter, FILTER, {"threshold": 100}, "threshold=100 cannot be combined .* threshold=1024;"),
    (sh.Vbfa, VBFA, {"reading": "wide"}, "reading=wide cannot be combined with a geometry;"),
]


@pytest.mark.parametrize(("make", "geometry", "others", "problem"), GEOMETRIES_OF)
def test_a_geometry_stands_alone(make: Any, geometry: Any, others: dict[str, Any], problem: str) -> None:
    with pytest.raises(sh.UsageError, match=f"^{problem}.*pass one or the other"):
        make(geometry=geometry, device="cpu", **others)
    assert make(geometry=geometry, device="cpu").geometry == geometry
    same = {name: getattr(geometry, name) for name in others if isinstance(getattr(geometry, name, None), int)}
    assert make(geometry=geometry, device="cpu", **same).geometry == geometry  # what agrees is not a contradiction


def test_sizes_that_are_not_given() -> None:
    assert sh.Cbaa(device="cpu").geometry.memory == 128 << 20
    assert (128 << 20) * 0.99 < sh.Cube(device="cpu").geometry.memory <= 128 << 20


# Sketches


def test_a_sketch_makes_parts_when_they_are_needed() -> None:
    sketch = sh.Sketch(lambda part: sh.Exact(key_bits=32 if part.family == 4 else 64), site="ams")
    assert (sketch.memory, list(sketch), sketch.sites) == (0, [], {"ams"})
    sketch.part(sh.Part(4)).update(*pairs(5))
    assert sketch.part(sh.Part(4)) is sketch.parts[sh.Part(4)]
    assert sketch.memory > 0
    sketch.entries.append({"site": "ams"})
    sketch.clear()
    assert (list(sketch.top(5)), sketch.entries) == ([], [])
    with pytest.raises(sh.UsageError, match="has no part"):
        sh.Sketch().part(sh.Part(6))


def test_a_sketch_puts_the_answers_of_its_parts_in_one_order() -> None:
    sketch = sh.Sketch(lambda _: sh.Exact())
    for part, count in ((sh.Part(4, "inner", "in"), 5), (sh.Part(4, "inner", "out"), 9), (sh.Part(4, "outer"), 7)):
        sketch.part(part).update(*pairs(count))
    assert [(item.part.direction, item.peers) for item in sketch.super_hosts(2)] == [("out", 9), ("any", 7), ("in", 5)]
    assert [item.peers for item in sketch.top(2)] == [9, 7]
    assert {item.peers for item in sketch.estimate("10.1.2.3")} == {5, 7, 9}
    assert list(sketch.estimate("2001:db8::1")) == []


# `sh.plan`, `sh.calibrate`, `sh.compare` and `sh.synth` give what the commands of the same name print


def test_a_plan_is_that_of_the_command(run: Run) -> None:
    plan = sh.plan(flows="2M", memory="16MiB")
    ended = run("plan", "--flows", "2M", "--memory", "16MiB", "--json")
    assert json.loads(json.dumps(plan.to_dict())) == json.loads(ended.out)
    assert plan.memory <= 16 << 20
    assert 0 < plan.total < 0.2
    assert [each.memory < plan.memory for each in plan.alternatives] == [True, False]
    cube = sh.Cube(geometry=plan.geometry, device="cpu")
    assert cube.geometry == sh.Geometry.parse(plan.option)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("synth") / "day.pcap"
    return sh.synth(path, flows=20_000, packets="40k", super_hosts=5, window="1m")


def test_synthetic_traffic_and_its_answer(made: Any, tmp_path: Path, run: Run) -> None:
    assert (made.packets, made.flows, made.super_hosts) == (40_000, 20_000, 5)
    assert [json.loads(line) for line in made.truth_path.read_text().splitlines()] == made.truth
    other = tmp_path / "day.pcap"
    run("synth", other, "--flows", "20k", "--packets", "40k", "--super-hosts", "5", "--window", "1m")
    assert other.read_bytes() == made.path.read_bytes()
    (window,) = sh.scan(made.path, inner="10.0.0.0/8", threshold=1024)
    truth = {row["host"]: row["peers"] for row in made.truth if row["side"] == "inner" and row["peers"] >= 1024}
    assert {str(row.host): row.peers for row in window} == truth
    sh.synth(made.path, flows=20_000, packets="40k", super_hosts=5, window="1m")  # its own files are overwritten
    other.write_text("precious")
    with pytest.raises(sh.UsageError, match="force=True overwrites it"):
        sh.synth(other, flows=100, packets=100, super_hosts=0)
    assert other.read_text() == "precious"
    sh.synth(str(other), flows=100, packets=100, super_hosts=0, force=True)
    assert other.read_bytes() != b"precious"


def test_a_calibration_is_that_of_the_command(made: Any, run: Run) -> None:
    result = sh.calibrate(made.path, inner="10.0.0.0/8", memory="1MiB", exact=False, device="cpu")
    options = ["--inner", "10.0.0.0/8", "--memory", "1MiB", "--exact", "off", "--device", "cpu", "--json"]
    assert json.loads(json.dumps(result.to_dict())) == json.loads(run("calibrate", made.path, *options).out)
    assert result.asked.memory == 1 << 20
    assert result.advice()


def test_a_comparison_is_that_of_the_command(made: Any, run: Run) -> None:
    result = sh.compare(made.path, inner="10.0.0.0/8", detectors=["cube", "gse"])
    ended = run("compare", made.path, "--inner", "10.0.0.0/8", "--detector", "cube,gse", "--json")
    timed = ("update_rate", "restore_ms", "memory")  # tables of exact pairs grow with the batches in which pairs come
    rows = [{name: value for name, value in row.items() if name not in timed} for row in result.to_dict()]
    printed = [json.loads(line) for line in ended.out.splitlines()]
    assert rows == [{name: row[name] for name in rows[0]} for row in printed]
    left_out = sh.compare(flows=2000, packets=4000, windows=1, super_hosts=0, detectors=["cube", "dcds"], memory="1MiB")
    assert list(left_out.left_out) == ["dcds"]
    assert [mean.ftr for mean in left_out] == [None]


@pytest.mark.parametrize("name", ["plan", "calibrate", "compare", "synth", "scan"])
def test_arguments_are_typed_and_given_by_name(name: str) -> None:
    signature = inspect.signature(getattr(sh, name))
    given = [each for each in signature.parameters.values() if each.name not in ("inputs", "out")]
    assert given
    assert all(each.kind is each.KEYWORD_ONLY for each in given)
    assert all(each.annotation is not each.empty for each in signature.parameters.values())
    assert signature.return_annotation is not signature.empty


def test_a_scan_has_an_argument_for_every_setting() -> None:
    of_inputs = {"inputs", "map", "format", "time", "keep_sketch"}
    assert set(inspect.signature(sh.scan).parameters) == {each.name for each in fields(Settings)} | of_inputs
