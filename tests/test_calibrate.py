"""`superhosts calibrate`: trials against the truth, its advice, its figure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from superhosts.cli import app
from superhosts.evaluation.calibration import Calibration, Trial, sizes_around
from superhosts.evaluation.scores import Score
from superhosts.planning import predict
from superhosts.planning.choice import best_sizes
from superhosts.sources.capture_writer import write_capture
from superhosts.sources.synth import SyntheticSource, Traffic


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrate") / "trace.pcap"
    traffic = Traffic(flows=60_000, packets=120_000, super_hosts=9, windows=2, family="both")
    write_capture(path, SyntheticSource(traffic).blocks())
    return path


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["calibrate", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout


def test_both_families_and_all_windows_are_judged(capture: Path) -> None:
    nets = ["--inner", "10.0.0.0/8", "--inner", "2001:db8::/32", "--ipv6-prefix", "128"]
    facts = json.loads(run(str(capture), *nets, "--memory", "2MiB", "--json"))
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


def test_the_table_and_the_figure(capture: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    text = run(str(capture), "--inner", "10.0.0.0/8", "-m", "1MiB", "--figure", str(tmp_path / "plot.png"))
    assert "1 MiB *" in text
    assert "super hosts of 1,024 peers" in text
    pixels = image.imread(tmp_path / "plot.png")[:, :, :3]
    red = (pixels[:, :, 0] > 0.7) & (pixels[:, :, 1] < 0.3) & (pixels[:, :, 2] < 0.3)
    assert red.sum() > 50  # the estimates are drawn
    assert (tmp_path / "plot.svg").stat().st_size > 1000


def test_errors(capture: Path, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["calibrate", str(tmp_path / "none.pcap")]).exit_code == 3
    assert CliRunner().invoke(app, ["calibrate", str(capture), "--error", "much"]).exit_code != 0


def calibration(*wrong: int, true: int = 1000, lower: int = 0) -> Calibration:
    """Trials of 1, 2 and 4 MiB with so many wrong hosts of `true`; at half the threshold `lower` more."""
    trials = []
    for size, count in zip((1 << 20, 1 << 21, 1 << 22), wrong, strict=True):
        scores = {1024.0: Score(true, count, 0, 0), 512.0: Score(2 * true, 0, count + lower, 0)}
        expected = predict(best_sizes(size, 100_000, 1024.0), 100_000, 1024.0)
        trials.append(Trial(size, scores, expected=expected))
    return Calibration(1024.0, 1 << 21, 0.01, trials, windows=1)


def test_advice_names_the_least_memory_that_holds():
    assert calibration(5, 5, 5, lower=500).advice().startswith("1 MiB would do for threshold 1,024:")
    assert calibration(5, 5, 5).advice().startswith("1 MiB would do for threshold 1,024, and down to threshold 512:")
    assert calibration(50, 5, 5, lower=500).advice().startswith("2 MiB would do")
    assert calibration(50, 50, 5, lower=500).advice().startswith("Threshold 1,024 needs 4 MiB:")
    assert calibration(50, 50, 50).advice() == (
        "Threshold 1,024 needs more than 4 MiB for at most 1 % of super hosts wrong."
    )


def test_advice_admits_doubt():
    assert "by 4 super hosts only" in calibration(0, 0, 0, true=4).advice()
    assert calibration(0, 0, 0, true=0).advice().startswith("No host has 1,024 peers")


def test_few_hosts_without_error_do_not_beat_a_bad_prediction():
    trial = calibration(0, 0, 0, true=4).trials[0]
    assert trial.holds(1024.0, 0.01) == (trial.expected is not None and trial.expected.total <= 0.02)
    crowded = Trial(1 << 16, {1024.0: Score(4, 0, 0, 0)})
    crowded.expected = predict(best_sizes(1 << 18, 5_000_000, 1024.0), 5_000_000, 1024.0)
    assert crowded.expected.total > 0.02
    assert not crowded.holds(1024.0, 0.01)


def test_sizes_around():
    assert sizes_around(1 << 20) == [1 << 18, 1 << 19, 1 << 20, 1 << 21]
    assert sizes_around(100_000) == [100_000, 200_000]
    assert np.all(np.diff(sizes_around(1 << 17)) > 0)
