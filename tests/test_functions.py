"""`sh.plan`, `sh.calibrate`, `sh.compare` and `sh.synth` give what the commands of the same name print."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from commands import Run


def test_a_plan_is_that_of_the_command(run: Run) -> None:
    plan = sh.plan(flows="2M", memory="16MiB")
    assert json.loads(json.dumps(plan.to_dict())) == json.loads(
        run("plan", "--flows", "2M", "--memory", "16MiB", "--json").out
    )
    assert plan.memory <= 16 << 20
    assert 0 < plan.total < 0.2
    assert [each.memory < plan.memory for each in plan.alternatives] == [True, False]
    cube = sh.Cube(geometry=plan.geometry, device="cpu")
    assert cube.geometry == sh.Geometry.parse(plan.option)


@pytest.mark.slow
def test_the_least_memory_for_an_error() -> None:
    plan = sh.plan(flows="2M", error=0.02)
    assert plan.total <= 0.02
    assert plan == sh.plan(flows=2_000_000, error="2%")
    assert plan.memory > sh.plan(flows="2M", error=0.1).memory


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


def test_a_foreign_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_text("precious")
    with pytest.raises(sh.UsageError, match="force=True overwrites it"):
        sh.synth(path, flows=100, packets=100, super_hosts=0)
    assert path.read_text() == "precious"
    sh.synth(str(path), flows=100, packets=100, super_hosts=0, force=True)
    assert path.read_bytes() != b"precious"


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
