"""`superhosts calibrate`: trials against the truth, its advice, its figure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from superhosts.cli import app
from superhosts.detectors.cube import Cube
from superhosts.detectors.plan.choice import best_sizes
from superhosts.detectors.plan.population import counted_population
from superhosts.detectors.plan.prediction import Prediction, predict
from superhosts.lab.calibrate import Calibration, Trial, prediction_for, sizes_around
from superhosts.lab.scores import Score
from superhosts.sources.synthetic.capture import write_capture
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrate") / "trace.pcap"
    traffic = Traffic(flows=60_000, packets=120_000, super_hosts=9, windows=2, family="both")
    write_capture(path, packet_blocks(traffic))
    return path


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["calibrate", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout


@pytest.mark.slow
def test_both_families_and_all_windows_are_judged(capture: Path) -> None:
    nets = ["--inner", "10.0.0.0/8", "--inner", "2001:db8::/32", "--ipv6-prefix", "128"]
    facts = json.loads(run(str(capture), *nets, "--memory", "2MiB", "--json", "--exact", "off"))
    assert facts["windows"] == 2
    assert facts["super_hosts"] == 18
    assert [trial["memory"] for trial in facts["trials"]] == [1 << 19, 1 << 20, 1 << 21, 1 << 22]
    for trial in facts["trials"]:
        assert set(trial["ftr_by_threshold"]) == {"128", "256", "512", "1024"}
        assert trial["fnr"] + trial["fpr"] == pytest.approx(trial["ftr_by_threshold"]["1024"])
        assert 0 < trial["fill"] < trial["fullest_column"] <= 1
    small, *_, large = facts["trials"]
    assert large["error"] < 0.05
    assert large["coverage"] > 0.7
    assert small["fill"] > large["fill"]
    assert facts["advice"].endswith("wrong.")


@pytest.mark.slow
def test_sides_directions_and_exclusions_are_those_of_a_scan(capture: Path) -> None:
    nets = ["--inner", "10.0.0.0/8", "--memory", "2MiB", "-t", "200"]
    cases = {
        "inner": [],
        "outer": ["--watch", "outer"],
        "both": ["--watch", "inner,outer"],
        "out": ["--direction", "out"],
        "in": ["--direction", "in"],
        "excluded": ["--exclude", "10.95.192.0/20"],
    }
    judged = {name: json.loads(run(str(capture), *nets, *more, "--json")) for name, more in cases.items()}
    for name, more in cases.items():
        scan = CliRunner().invoke(app, ["scan", str(capture), "-q", "--json", *nets, *more])
        assert judged[name]["super_hosts"] == len(scan.stdout.splitlines()), name
    found = {name: facts["super_hosts"] for name, facts in judged.items()}
    assert found["both"] == found["inner"] + found["outer"]
    assert len(set(found.values())) > 3


@pytest.mark.slow
def test_the_table_and_the_figure(capture: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = run(str(capture), "--inner", "10.0.0.0/8", "-m", "1MiB", "--plot", str(tmp_path / "plot.svg"))
    assert "1 MiB *" in text
    assert "super hosts of 1,024 peers" in text
    drawn = (tmp_path / "plot.svg").read_text().replace("\N{NO-BREAK SPACE}", " ")
    for words in ("θ = 1,024 · 2 windows of up to", "a cube of 1 MiB", "public key", "512 KiB", "hold the truth"):
        assert words in drawn, words
    assert [path.name for path in tmp_path.iterdir()] == ["plot.svg"]


def test_what_is_lost_of_a_capture_is_said(capture: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(capture.read_bytes()[:100_000])
    result = CliRunner().invoke(app, ["calibrate", str(cut), "-t", "16", "-m", "256KiB"])
    assert result.exit_code == 0
    assert "packets" in result.stderr
    assert "the file ends inside a record" in result.stderr
    nobody = CliRunner().invoke(app, ["calibrate", str(cut), "--inner", "192.0.2.0/24", "-m", "256KiB"])
    assert "nothing to judge: no packet has an address inside" in nobody.stderr


@pytest.mark.slow
def test_rates_of_nothing_are_left_empty(capture: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command = [str(capture), "-m", "256KiB", "-t", "150000"]
    table = run(*command)
    rows = [line for line in table.splitlines() if "KiB" in line]
    assert rows
    assert all(line.split().count("–") == 4 for line in rows)  # FTR, predicted, error, held
    facts = json.loads(run(*command, "--json"), parse_constant=pytest.fail)
    for trial in facts["trials"]:
        for name in ("fnr", "fpr", "ftr", "expected_ftr", "error", "coverage"):
            assert trial[name] is None, name
    result = CliRunner().invoke(app, ["calibrate", *command, "--plot", str(tmp_path / "none.png")])
    assert result.exit_code == 0
    assert "there is nothing to draw" in result.stderr
    assert not list(tmp_path.iterdir())


def test_the_column_predicted_is_for_the_hosts_of_the_capture(capture: Path) -> None:
    """Without --inner every peer is a host of few peers."""
    ratios = []
    for trial in json.loads(run(str(capture), "-w", "all", "-m", "512KiB", "-t", "16", "--json"))["trials"]:
        assert trial["ftr"] > 0.02
        assert trial["expected_ftr"] / 2 < trial["ftr"] < 1.5 * trial["expected_ftr"]
        geometry = Cube(trial["memory"], device="cpu").geometry
        ratios.append(trial["expected_ftr"] / predict(geometry, 160_000, 16).total)  # of the law, for as many flows
    assert max(ratios) > 1.3


def test_there_are_no_predictions_beyond_the_largest_host() -> None:
    geometry, hosts = Cube("1MiB", device="cpu").geometry, counted_population(np.array([1, 2, 300_000]))
    assert hosts.flows == 300_003
    assert hosts.at_least(250_000) == 0  # a host beyond the law's largest counts as one of its size
    assert prediction_for(geometry, hosts, 250_000.0) is None
    assert prediction_for(geometry, hosts, 150_000.0) is not None


def predictions(size: int) -> dict[float, Prediction | None]:
    sizes = best_sizes(size, 100_000, 1024.0)
    return {threshold: predict(sizes, 100_000, threshold) for threshold in (1024.0, 512.0)}


def calibration(*wrong: int, true: int = 1000, lower: int = 0) -> Calibration:
    """Trials of 1, 2 and 4 MiB with so many wrong hosts of `true`; at half the threshold `lower` more."""
    trials = []
    for size, count in zip((1 << 20, 1 << 21, 1 << 22), wrong, strict=True):
        scores = {1024.0: Score(true, count, 0, 0), 512.0: Score(2 * true, 0, count + lower, 0)}
        trials.append(Trial(size, scores, expected=predictions(size)))
    return Calibration(1024.0, 1 << 21, 0.01, trials, windows=1)


@pytest.mark.slow
def test_advice_names_the_least_memory_that_holds():
    assert calibration(5, 5, 5, lower=500).advice().startswith("1 MiB would do for threshold 1,024:")
    assert calibration(5, 5, 5).advice().startswith("1 MiB would do for threshold 1,024, and down to threshold 512:")
    assert calibration(50, 5, 5, lower=500).advice().startswith("2 MiB would do")
    assert calibration(50, 50, 5, lower=500).advice().startswith("Threshold 1,024 needs 4 MiB:")
    assert calibration(50, 50, 50).advice() == (
        "Threshold 1,024 needs more than 4 MiB for at most 1 % of super hosts wrong."
    )


@pytest.mark.slow
def test_advice_admits_doubt():
    assert calibration(0, 0, 0, true=4).advice() == (
        "1 MiB would do for threshold 1,024 (by 4 super hosts only), and down to threshold 512 (by 8 super hosts only):"
        " at most 1 % of super hosts wrong."
    )
    assert "1,024 (by 15 super hosts only), and down to threshold 512:" in calibration(0, 0, 0, true=15).advice()
    assert "(by 1 super host only)" in calibration(0, 0, 0, true=1).advice()
    assert calibration(0, 0, 0, true=0).advice().startswith("No host has 1,024 peers")


def bad_prediction() -> Prediction:
    expected = predict(best_sizes(1 << 18, 5_000_000, 1024.0), 5_000_000, 1024.0)
    assert expected.total > 0.02
    return expected


@pytest.mark.slow
def test_few_hosts_without_error_do_not_beat_a_bad_prediction():
    trial = Trial(1 << 16, {1024.0: Score(4, 0, 0, 0), 512.0: Score(400, 0, 0, 0)})
    assert trial.holds(1024.0, 0.01)
    trial.expected = {1024.0: bad_prediction(), 512.0: bad_prediction()}
    assert not trial.holds(1024.0, 0.01)
    assert trial.holds(512.0, 0.01)  # many hosts, and no error


def test_advice_is_the_same_from_above_and_from_below():
    """A prediction forbids 512. So 1024 alone holds, though nothing speaks against 256; 512 itself never holds."""
    scores = {threshold: Score(4, 0, 0, 0) for threshold in (1024.0, 512.0, 256.0)}
    trials = [Trial(size, dict(scores), expected={512.0: bad_prediction()}) for size in (1 << 20, 1 << 21)]
    above = Calibration(1024.0, 1 << 21, 0.01, trials, windows=1).advice()
    assert above == "1 MiB would do for threshold 1,024 (by 4 super hosts only): at most 1 % of super hosts wrong."
    below = Calibration(512.0, 1 << 21, 0.01, trials, windows=1).advice()
    assert below.startswith("Threshold 512 (by 4 super hosts only) needs more than 2 MiB")


def test_sizes_around():
    assert sizes_around(1 << 20) == [1 << 18, 1 << 19, 1 << 20, 1 << 21]
    assert sizes_around(100_000) == [100_000, 200_000]
    assert np.all(np.diff(sizes_around(1 << 17)) > 0)
