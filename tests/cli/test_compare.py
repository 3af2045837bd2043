"""`superhosts compare` end to end, its files and figures read back."""

from __future__ import annotations

import csv
import html
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from commands import Run
from superhosts.cli import app
from superhosts.cli.compare import _rate
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.errors import OutputError, UsageError
from superhosts.lab.compare import SharedSettings, choose
from superhosts.lab.experiment import COLUMNS
from superhosts.lab.lineup import ENTRANTS
from superhosts.sources.synthetic.capture import write_capture
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks
from traffic import talk, write

ONE = ["--windows", "1", "--flows", "20000", "--super-hosts", "4"]
SMALL = ["--windows", "2", "--flows", "20000", "--super-hosts", "4"]


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["compare", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout


def rows_of(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in run(*arguments, "--json").splitlines()]


@pytest.mark.slow
def test_every_detector_takes_part(tmp_path: Path) -> None:
    rows = {row["detector"]: row for row in rows_of(*ONE)}
    assert set(rows) == set(ENTRANTS)
    for name, row in rows.items():
        assert (row["true"], row["fnr"]) == (4, 0), name  # so few flows are easy for all
        assert min(row["update_rate"], row["restore_ms"], row["wire"]) > 0
    assert rows["dcds"]["memory"] > 384 << 20
    assert rows["gse"]["memory"] > 128 << 20  # with its list of hosts


@pytest.mark.slow
def test_the_cube_as_users_get_it_beside_the_dense_one() -> None:
    """Exact while the pairs fit, with the memory that they take; dense beyond that."""
    names = ["--detector", "cube,cube-dense", "--windows", "1", "--super-hosts", "4"]
    exact, dense = rows_of(*names, "--flows", "20000", "-m", "16MiB")
    assert (exact["ftr"], exact["error"], exact["coverage"]) == (0, 0, 1)
    assert dense["error"] > 0
    assert exact["memory"] < 4 << 20 < dense["memory"]
    first, second = rows_of(*names, "--flows", "60000", "-m", "1MiB")
    scores = ("missed", "false", "error", "coverage", "wire")
    assert [first[name] for name in scores] == [second[name] for name in scores]


def test_on_a_gpu_the_dense_cube_is_left_out() -> None:
    said: list[tuple[str, str]] = []
    shared = SharedSettings(threshold=1024, device="cuda:7", memory="1MiB")
    with pytest.raises(UsageError):  # There is no such GPU; the reason is found first.
        choose(["cube-dense", "cube"], shared, lambda *why: said.append(why))
    assert said == [("cube-dense", "on a GPU it is the same as cube")]


@pytest.mark.slow
def test_quick_is_two_small_windows() -> None:
    rows = rows_of("--quick", "--detector", "cube-planned")
    assert [row["true"] for row in rows] == [60, 60]
    assert all(row["ftr"] < 0.1 for row in rows)
    (row,) = rows_of("--quick", *ONE, "--detector", "cube", "-m", "1MiB")  # It fills in only what is not given.
    assert row["true"] == 4


def test_rows_go_to_a_file_and_means_to_the_terminal(tmp_path: Path) -> None:
    output, file = tmp_path / "rows.csv", tmp_path / "rows.parquet"
    text = run(*SMALL, "--detector", "cube", "--detector", "cbaa", "-m", "16MiB", "-o", str(output))
    assert "means of 2 windows" in text
    assert "cbaa" in text
    with output.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["detector"] for row in rows] == ["cube", "cbaa"] * 2
    assert tuple(rows[0]) == COLUMNS
    parquet = pytest.importorskip("pyarrow.parquet")
    found = rows_of(*SMALL, "--detector", "cube", "-m", "1MiB", "-o", str(file))
    assert parquet.read_table(file).to_pylist() == found


def test_the_same_seed_gives_the_same_scores() -> None:
    def scores(*more: str) -> list[tuple[float, ...]]:
        rows = rows_of(*SMALL, "--detector", "cube-dense", "-m", "1MiB", *more)
        return [(row["fnr"], row["fpr"], row["error"]) for row in rows]

    assert scores() == scores() != scores("--seed", "2")


@pytest.mark.slow
def test_figures_say_what_they_depend_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    folder, two = tmp_path / "a folder", ["--detector", "cube", "--detector", "spreadsketch"]
    assert run("compare", "--figures", folder.name, *SMALL, *two, "-m", "1MiB").status == 0
    names = {"fnr", "fpr", "ftr", "restore", "memory", "estimates", "coverage"}
    assert {path.name for path in folder.iterdir()} == {name + kind for name in names for kind in (".pdf", ".svg")}
    for name in names:
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        text = html.unescape((folder / f"{name}.svg").read_text()).replace("\N{NO-BREAK SPACE}", " ")
        assert "superhosts compare --figures 'a folder'" in text
        for words in (
            "θ = 1,024",
            "2 windows of 20,000 flows",
            "4 super hosts in each",
            "1 MiB for each detector",
            "public key",
        ):
            assert words in text, name
        for detector in ("cube", "spreadsketch"):
            assert f">{detector}" in text, name


@pytest.mark.slow
def test_several_memories_are_compared_one_after_the_other(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder, output = tmp_path / "figures", tmp_path / "rows.csv"
    few = ["--detector", "cube-dense,spreadsketch", "-m", "256KiB,1MiB", "-m", "4MiB"]
    ended = run("compare", *SMALL, *few, "--figures", folder, "-o", output)
    assert ended.status == 0, ended.err
    with output.open() as stream:
        rows = list(csv.DictReader(stream))
    given = [int(row["memory_given"]) for row in rows]
    assert given == [256 << 10] * 4 + [1 << 20] * 4 + [4 << 20] * 4
    assert all(0.4 < int(row["memory"]) / int(row["memory_given"]) < 1.2 for row in rows)
    shown = [line.split()[:3] for line in ended.out.splitlines() if line.startswith("cube-dense")]
    assert shown == [["cube-dense", "256", "KiB"], ["cube-dense", "1", "MiB"], ["cube-dense", "4", "MiB"]]
    names = {f"memory-{rate}{kind}" for rate in ("fnr", "fpr", "ftr") for kind in (".pdf", ".svg")}
    assert {path.name for path in folder.iterdir()} == names


@pytest.mark.slow
def test_the_table_fits_80_columns_and_has_phantoms(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = run("compare", *SMALL, "--detector", "cube-planned,spreadsketch", "-m", "1MiB,2MiB")
    (heading,) = [line for line in ended.out.splitlines() if line.startswith("detector")]
    assert " ".join(heading.split()) == "detector given FNR FPR FTR ± ph. err held M/s ms MiB file"
    assert "…" not in ended.out


def test_rates_above_one_take_no_more_room() -> None:
    rates = {0.0: "0.00", 0.0017: "0.17", 0.84712: "84.71", 0.9999: "100", 3.0083: "301", None: "–"}
    assert [_rate(rate) for rate in rates] == list(rates.values())
    assert [_rate(rate, 1) for rate in (0.965, 0.9994, 1.0)] == ["96.5", "99.9", "100"]


def test_a_capture_is_cut_into_windows(tmp_path: Path) -> None:
    path = tmp_path / "trace.pcap"
    write_capture(path, packet_blocks(Traffic(flows=20_000, packets=40_000, super_hosts=4, windows=2)))
    rows = rows_of(str(path), "--inner", "10.0.0.0/8", "--detector", "cube", "-m", "1MiB")
    assert [row["window"] for row in rows] == ["2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"]
    assert [row["true"] for row in rows] == [4, 4]
    assert all(row["ftr"] < 1 for row in rows)


def test_figures_that_cannot_be_written_are_refused_before_the_work(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file" / "sub", tmp_path / "none" / "sub", tmp_path / "file"):
        result = CliRunner().invoke(app, ["compare", "--figures", str(place)])
        assert isinstance(result.exception, OutputError)
        assert "figures cannot be written there" in str(result.exception)
    assert not (tmp_path / "none").exists()


def test_traffic_that_is_left_out_is_said(tmp_path: Path) -> None:
    def said(capture: Path, *more: str) -> str:
        return CliRunner().invoke(app, ["compare", str(capture), *more, "--detector", "cube", "-m", "64KiB"]).stderr

    sixes, both, empty = tmp_path / "sixes.pcap", tmp_path / "both.pcap", tmp_path / "empty.pcap"
    write_capture(sixes, packet_blocks(Traffic(flows=500, packets=500, super_hosts=0, family=6)))
    assert "nothing to compare: all IP packets are IPv6, which these detectors do not take" in said(sixes)
    write_capture(both, packet_blocks(Traffic(flows=5000, packets=5000, super_hosts=0, family="both")))
    assert "IPv6, which this detector does not take" in said(both)
    assert "nothing to compare" not in said(both)
    assert "nothing to compare: no packet has an address inside" in said(both, "--inner", "192.0.2.0/24")
    empty.write_bytes(both.read_bytes()[:24])
    assert "nothing to compare: no packet was read" in said(empty)


@pytest.mark.slow
def test_no_super_hosts_give_no_rates(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command = ["--windows", "2", "--flows", "5000", "--super-hosts", "0", "--detector", "cube", "-m", "256KiB"]
    folder, output = tmp_path / "figures", tmp_path / "rows.csv"
    result = CliRunner().invoke(app, ["compare", *command, "--figures", str(folder), "-o", str(output)])
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("cube")]
    assert line.split()[1:8] == ["–"] * 4 + ["0"] + ["–"] * 2
    assert "no super hosts" in result.stdout
    assert "no rates to draw" in result.stderr
    assert {path.name for path in folder.iterdir()} == {"restore.pdf", "restore.svg"}
    with output.open() as stream:
        for row in csv.DictReader(stream):
            assert [row[name] for name in ("fnr", "fpr", "ftr", "error", "coverage")] == [""] * 5
            assert (row["missed"], row["false"]) == ("0", "0")
    assert [row["ftr"] for row in rows_of(*command)] == [None, None]


@pytest.mark.slow
def test_the_key_of_the_environment_does_not_move_scores_of_synthetic_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    def scores() -> list[list[float]]:
        rows = rows_of(*ONE, "--threshold", "64", "--detector", "cube,cube-dense", "-m", "64KiB")
        return [[row[name] for name in ("fnr", "fpr", "error")] for row in rows]

    before = scores()
    monkeypatch.setenv("SUPERHOSTS_KEY", "another key of a user")
    assert scores() == before


def test_captures_are_compared_with_the_key_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (None, b"a key of our own"):
        shared = SharedSettings(1024, "cpu", 1 << 20, key=key)
        made = choose(["cube"], shared)["cube"]()
        monkeypatch.setenv("SUPERHOSTS_KEY", "another key of a user")
        assert (made.kind == choose(["cube"], shared)["cube"]().kind) == (key is not None)


def test_a_given_memory_is_that_of_every_detector() -> None:
    left_out = []
    makers = choose(
        [], SharedSettings(1024, "cpu", 64 << 20, 5_000_000, DEFAULT_KEY), lambda name, _: left_out.append(name)
    )
    assert left_out == ["vbfa-long", "vbfa-wide"]  # readings of the published setting, which have their own sizes
    assert makers.pop("cube")().memory < 1 << 20  # It grows with the traffic.
    for name, make in makers.items():
        assert 0.5 < make().memory / (64 << 20) < 1.1, name
    usual = {name: make().memory >> 20 for name, make in choose(VBFAS, SharedSettings(1024, "cpu")).items()}
    assert usual == {"cbaa-paper": 128, "vbfa": 20, "vbfa-wide": 160, "vbfa-long": 160}
    with pytest.raises(UsageError, match="no detector can take part: vbfa-long: reading=long cannot be combined"):
        choose(["vbfa-long"], SharedSettings(1024, "cpu", 64 << 20))


VBFAS = ["cbaa-paper", "vbfa", "vbfa-wide", "vbfa-long"]


def test_detectors_that_cannot_be_so_small_are_left_out() -> None:
    few = ["compare", "--windows", "1", "--flows", "5000", "--super-hosts", "1", "-m", "10KiB", "--json"]
    names = [word for name in ("dcds", "cube", "cbaa-paper") for word in ("--detector", name)]
    result = CliRunner().invoke(app, [*few, *names])
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["detector"] for line in result.stdout.splitlines()] == ["cube"]
    assert "dcds is left out: memory 10 KiB is too small" in result.stderr
    assert "cbaa-paper is left out: memory 10 KiB is too small" in result.stderr
    nobody = CliRunner().invoke(app, [*few, "--detector", "dcds", "--detector", "cbaa"])
    assert isinstance(nobody.exception, UsageError)
    assert "no detector can take part" in str(nobody.exception)


def test_sizes_of_synthetic_traffic_are_not_checked_for_captures(run: Run, tmp_path: Path) -> None:
    capture = write(tmp_path / "a.pcap", talk("10.0.0.7", 300))
    ended = run("compare", capture, "--flows", "1k", "--detector", "cube", "-m", "1MiB", "-t", 50)
    assert ended.status == 0, ended.err


def test_a_missing_capture_leaves_nothing_to_compare(run: Run) -> None:
    ended = run("compare", "none.pcap", "--detector", "cube")
    assert (ended.status, "nothing to compare: no packet was read" in ended.err) == (3, True)
