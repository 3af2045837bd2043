"""`superhosts plan` from end to end."""

from __future__ import annotations

import json
from functools import partial

import pytest

import superhosts as sh
from commands import Run


@pytest.fixture
def run(run: Run) -> Run:
    """Run `superhosts plan ARGUMENTS` in this process."""
    return partial(run, "plan")


@pytest.mark.slow
def test_the_table_shows_the_plan_and_its_neighbours(run: Run) -> None:
    ended = run("--flows", "2M", "--threshold", "1024", "--memory", "16MiB")
    assert ended.status == 0
    assert ended.err == ""
    lines = ended.out.splitlines()
    assert lines[0] == "2,000,000 flows, threshold 1,024, keys of 32 bits: about 200 super hosts"
    assert "(this plan)" in lines[2]
    for name in ("arrays", "missed (FNR)", "false (FPR)", "total false rate", "saturated beyond", "file, about"):
        row = next(line for line in lines if line.startswith(name))
        assert len(row.removeprefix(name).replace(" peers", "").replace(" MiB", "MiB").split()) == 3
    assert 'Python: sh.Cube("16MiB", flows=2000000, threshold=1024)' in lines


def test_without_flows_the_sizes_are_those_of_the_memory(run: Run) -> None:
    ended = run("--threshold", "300", "--memory", "16MiB")
    assert f'geometry = "{sh.Cube("16MiB").geometry.spelled}"\n' in ended.out
    assert 'Python: sh.Cube("16MiB")\n' in ended.out
    assert "give --flows to plan for yours" in ended.out


@pytest.mark.slow
def test_giant_columns_and_sampling_are_shown_where_there_are_any(run: Run) -> None:
    small = run("--flows", "5M", "--memory", "1MiB").out
    assert "pairs that are written" in small
    assert "giant columns of an array" in small
    assert ",sample=2" in small
    large = run("--flows", "1M", "--memory", "64MiB", "--threshold", "20").out
    assert "pairs that are written" not in large


@pytest.mark.slow
def test_json_names_the_geometry_that_the_cube_gets(run: Run) -> None:
    plan = json.loads(run("--flows", "2M", "--threshold", "1k", "--memory", "4MiB", "--key-bits", "64", "--json").out)
    cube = sh.Cube("4MiB", flows="2M", threshold=1000, key_bits=64, device="cpu")
    assert plan["geometry"] == cube.geometry._asdict()
    assert plan["memory"] == cube.geometry.memory
    assert plan["total"] == pytest.approx(plan["fnr"] + plan["fpr"])
    less, more = plan["alternatives"]
    assert less["memory"] < plan["memory"] < more["memory"]
    assert less["total"] > plan["total"] > more["total"]


@pytest.mark.slow
def test_an_error_gives_the_least_memory(run: Run) -> None:
    plan = json.loads(run("--flows", "1M", "--error", "1%", "--json").out)
    assert plan["total"] <= 0.01 < plan["alternatives"][0]["total"]
    assert json.loads(run("--flows", "1M", "--error", "0.01", "--json").out) == plan


@pytest.mark.slow
def test_a_memory_that_does_not_hold_the_error_is_refused_with_one_that_does(run: Run) -> None:
    ended = run("--flows", "1M", "--error", "1%", "--memory", "256KiB")
    assert (ended.status, ended.out) == (2, "")
    assert "--memory 256KiB: a total false rate of" in ended.err
    assert "MiB would achieve it" in ended.err
    assert run("--flows", "1M", "--error", "1%", "--memory", "32MiB").status == 0
    refused = run("--memory", "100KB", "--flows", "50M", "--threshold", "100")
    assert (refused.status, "wrong; 12 MiB would do for 20%" in refused.err) == (2, True)


WISHES = {
    "--flows 5M --error 0.01%": "cannot be reached",
    "--error 1%": "--error 1%: needs the expected flows; pass --flows",
    "--error none": "not a share of the super hosts; write it like 1%",
    "--error 5": "not a share",
    "--memory 100 --flows 5M": "too small",
    "--memory 9000TiB --flows 5M": "memory 9e+03 TiB is too large: a cube has at most 4.1e+03 TiB",
    "--memory big": "not a size",
    "--flows 0": "--flows: '0' is too small; write a count of at least 1",
    "--flows many": "not a count",
    "--threshold 0": "--threshold 0: must be a number of peers, at least 1",
    "--threshold 200k": "predictions need a threshold from 1 to below 200,000 peers",
    "--threshold 1M": "predictions need a threshold from 1",
    "--key-bits 33": "--key-bits 33: must be 32, 64 or 128",
}


def test_bad_wishes_are_one_line_and_status_2(run: Run) -> None:
    for words, message in WISHES.items():
        ended = run(*words.split())
        assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), words
        assert message in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("threshold", ["195k", "199k", "199999"])
def test_thresholds_near_the_largest_host_give_plain_json(run: Run, threshold: str) -> None:
    ended = run("--flows", "5M", "--threshold", threshold, "--memory", "8MiB", "--json")
    assert ended.err == ""
    plan = json.loads(ended.out, parse_constant=pytest.fail)
    assert 0 < plan["unnamed"] < 0.05
    assert 0 < plan["fnr"] <= 0.55


def test_half_of_a_tiny_memory_is_left_out(run: Run) -> None:
    plan = json.loads(run("--flows", "100", "--threshold", "10", "--memory", "160", "--json").out)
    assert [each["memory"] > plan["memory"] for each in plan["alternatives"]] == [True]
