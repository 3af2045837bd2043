"""`synth` overwrites what it wrote itself; before it overwrites anything else it asks, or refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commands import Run
from terminals import COMMAND, OnTerminal
from traffic import talk, write

SMALL = ["--flows", "2k", "--packets", "3k", "--super-hosts", "0"]


@pytest.mark.parametrize("name", ["a.pcap", "a.pcap.zst", "a.parquet"])
def test_its_own_files_are_overwritten(run: Run, tmp_path: Path, name: str) -> None:
    for seed in (1, 2):
        assert run("synth", tmp_path / name, *SMALL, "--seed", seed).status == 0
    assert run("synth", tmp_path / name, *SMALL, "--truth-min", "1").status == 0
    assert run("synth", tmp_path / name, *SMALL).status == 0


@pytest.mark.parametrize("name", ["a.pcap", "a.pcap.zst", "a.parquet", "a.truth.jsonl"])
@pytest.mark.parametrize("content", [b"notes of mine", b"", b"\x28\xb5\x2f\xfd"], ids=["text", "empty", "damaged"])
def test_other_files_are_kept_unless_force_is_given(run: Run, tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    out = tmp_path / "a.pcap" if "truth" in name else path
    ended = run("synth", out, *SMALL)
    if "truth" in name and not content:  # the answer of traffic without such hosts is empty
        assert ended.status == 0
        return
    words = f"superhosts: {path}: is there, and synth did not write it; superhosts synth --force overwrites it\n"
    assert (ended.status, ended.err) == (2, words)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (content, [path])
    assert run("synth", out, *SMALL, "--force").status == 0
    assert path.read_bytes() != content


def test_a_real_capture_is_kept(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", talk("10.0.0.7", 30))
    before = path.read_bytes()
    assert run("synth", path, *SMALL).status == 2
    assert path.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "status"), [(b"y\n", 0), (b"yes\n", 0), (b"\n", 2), (b"n\n", 2), (b"\x04", 2)])
def test_on_a_terminal_it_asks(tmp_path: Path, answer: bytes, status: int) -> None:
    path = tmp_path / "a.pcap"
    path.write_text("notes of mine")
    with OnTerminal(*COMMAND, "synth", path, *SMALL, columns=1000) as terminal:
        terminal.until(f"{path} is there, and synth did not write it. Overwrite it? [y/N]")
        os.write(terminal.main, answer)
        assert terminal.ends() == status
        assert (f"superhosts: {path}: nothing was written" in terminal.text) == bool(status)
    assert (path.read_bytes() == b"notes of mine") == bool(status)
