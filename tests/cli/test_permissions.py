"""Who may read what commands write: sketches are for their owner alone, whatever the umask; results follow it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import Run
from traffic import talk, write

SMALL = ["--memory", "1MiB", "--device", "cpu", "--threshold", "20"]


@pytest.fixture(params=[0, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write(tmp_path / "a.pcap", talk("10.0.0.1", 30))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_saved_sketches_and_their_folder_are_for_their_owner_alone(run, capture, tmp_path, umask) -> None:
    for _ in range(2):  # the second time it is merged into what is there
        assert run("scan", capture, *SMALL, "--save", tmp_path / "one" / "two").status == 0
        (file,) = (tmp_path / "one" / "two").iterdir()
        assert [mode(path) for path in (file, file.parent, file.parent.parent)] == [0o600, 0o700, 0o700]
        file.chmod(0o644)  # as earlier releases wrote it
    assert run("merge", file, "-o", tmp_path / "merged.cube").status == 0
    assert mode(tmp_path / "merged.cube") == 0o600


def test_a_folder_that_is_there_keeps_its_mode(run: Run, capture: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o775)
    assert run("scan", capture, *SMALL, "--save", tmp_path / "shared").status == 0
    (file,) = (tmp_path / "shared").iterdir()
    assert [mode(file), mode(file.parent)] == [0o600, 0o775]


def test_results_that_are_asked_for_follow_the_umask(run: Run, capture: Path, tmp_path: Path, umask: int) -> None:
    assert run("scan", capture, *SMALL, "-o", tmp_path / "hosts.jsonl").status == 0
    assert mode(tmp_path / "hosts.jsonl") == 0o666 & ~umask
