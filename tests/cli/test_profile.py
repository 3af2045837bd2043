"""`scan -v` and `bench` say where the time went."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from commands import Run
from superhosts.cli._summary import profile_lines
from superhosts.core.profile import Profile, Spent
from traffic import talk, write


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write(tmp_path / "a.pcap", talk("10.0.0.1", 40))


def test_a_column_for_each_thread() -> None:
    main = {"start": Spent(0.5, 0.25), "walk": Spent(1.25, 1.0, 5_000_000)}
    profile = Profile(2.0, {"MainThread": main, "read /a/long/path/of/traffic.pcap": {"wait": Spent(1.5)}})
    assert list(profile_lines(profile)) == [
        "where the time went: 2.000 s, 2 threads",
        "stage  MainThread  read …f/traffic.pcap  total    CPU  share             rate",
        "start       0.500                 0.000  0.500  0.250    20%",
        "walk        1.250                 0.000  1.250  1.000    80%  4.0 M packets/s",
        "wait        0.000                 1.500  1.500",
        "most work: walk (80%)",
    ]


def test_many_threads_are_grouped_by_what_they_do() -> None:
    pool = {f"superhosts_{number}": {"bin": Spent(1.0 + number, 1.0 + number)} for number in range(9)}
    readers = {f"read /a folder/{number}.pcap": {"wait": Spent(1.0)} for number in range(3)}
    lines = list(profile_lines(Profile(10.0, {"MainThread": {"walk": Spent(2.0, 2.0)}, **pool, **readers})))
    assert lines[1].split("  ")[:2] == ["stage", "MainThread"]
    assert "9 superhosts  3 read" in lines[1]
    assert lines[3].split()[:5] == ["bin", "0.000", "45.000", "0.000", "45.000"]
    assert lines[-3] == "9 superhosts: 1.000 to 9.000 s each"
    assert lines[-1] == "most work: bin (96%)"


def test_scan_says_where_the_time_went(run: Run, capture: Path) -> None:
    wanted = "scan", capture, "--json", "--threshold", "20"
    quiet, told = run(*wanted), run(*wanted, "-v")
    assert quiet.out == told.out
    assert "where the time went" not in quiet.err
    table = told.err[told.err.index("where the time went") :].splitlines()
    assert {"start", "read", "walk", "pairs", "bin", "write", "restore", "report"} <= {
        line.split()[0] for line in table
    }
    assert table[-1].startswith("most work: ")


def test_decompression_is_a_stage(run: Run, capture: Path) -> None:
    packed = capture.with_suffix(".gz")
    packed.write_bytes(gzip.compress(capture.read_bytes()))
    assert "\ninflate " in run("scan", packed, "-v").err


def test_bench_has_the_profile(run: Run) -> None:
    size = "--flows", "2k", "--packets", "20k", "--memory", "1MiB", "--device", "cpu"
    profile = json.loads(run("bench", *size, "--json").out)["profile"]
    assert {"bin", "write", "restore"} <= set(profile["stages"])
    assert profile["stages"]["bin"]["pairs"] == 20_000
    assert "most work: " in run("bench", *size).out
