"""--plot of `hosts`, `explain` and `calibrate`, end to end: the files, and what is refused before the work."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from commands import Run
from superhosts.core.units import SECOND
from traffic import NOON, talk, write

pytest.importorskip("matplotlib")


@pytest.fixture
def archive(run: Run, tmp_path: Path) -> Path:
    """Two windows of sketches, in which 10.0.0.7 has 300 and 200 peers."""
    capture = tmp_path / "a.pcap"
    write(capture, talk("10.0.0.7", 300) + talk("10.0.0.8", 100) + talk("10.0.0.7", 200, NOON + 400 * SECOND))
    folder = tmp_path / "archive"
    command = ("scan", capture, "--inner", "10.0.0.0/8", "--save", folder, "-m", "1MiB", "--key-file", "public")
    assert run(*command, "--quiet").status == 0
    assert len(list(folder.glob("*.cube"))) == 2
    return folder


def test_what_stands_under_the_hosts(run: Run, archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "hosts.svg"
    run("hosts", archive, "--threshold", 50, "--plot", path)
    text = path.read_text().replace("\N{NO-BREAK SPACE}", " ")
    for words in ("θ = 50", "public key", "10.0.0.7 11-14 22:15", "10.0.0.8"):
        assert words in text, words
    (flows,) = re.findall(r"2 windows of up to (\d+) flows", text)
    assert abs(int(flows) - 400) < 20  # estimated from the bits of the fuller window
    (memory,) = re.findall(r"flows · ([\d.]+ MiB) ·", text)
    assert 0.9 <= float(memory.removesuffix(" MiB")) <= 1
    assert "superhosts hosts" in text


def test_explain_draws_columns_of_one_sketch_and_the_history_of_many(run: Run, archive: Path, tmp_path: Path) -> None:
    columns, history = tmp_path / "columns.svg", tmp_path / "history.svg"
    one = min(archive.glob("*.cube"))
    assert run("explain", one, "10.0.0.7", "--plot", columns).status == 0
    text = columns.read_text()
    assert ">AND of all<" in text
    assert ">column 0<" in text
    assert run("explain", archive, "10.0.0.7", "--plot", history).status == 0
    text = history.read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "10.0.0.7 · 2 windows" in text
    assert "from 2023-11-14" in text


@pytest.mark.parametrize("command", ["hosts {0}", "explain {0} 10.0.0.7", "calibrate {0}"])
def test_wrong_names_are_refused_before_the_work(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "folder.svg").mkdir()
    words = command.format(tmp_path / "none").split()
    for name, status, said in (
        ("figure.jpg", 2, "--plot figure.jpg: write a name that ends in .svg, .pdf or .png"),
        ("figure", 2, "ends in .svg, .pdf or .png"),
        ("no/figure.svg", 4, "figures cannot be written there"),
        ("folder.svg", 4, "it is a folder"),
    ):
        place = name if status == 2 else str(tmp_path / name)
        ended = run(*words, "--plot", place)
        assert (ended.status, ended.out) == (status, ""), name
        assert said in ended.err, name
    assert not (tmp_path / "no").exists()


def test_without_matplotlib_the_extra_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ended = run("hosts", tmp_path, "--plot", tmp_path / "hosts.svg")
    assert ended.status != 0
    assert "pip install 'superhosts[figures]'" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_found_is_nothing_drawn(run: Run, archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "hosts.svg"
    ended = run("hosts", archive, "--threshold", 5000, "--plot", path)
    assert ended.status == 0
    assert "nothing to draw" in ended.err
    assert not path.exists()
