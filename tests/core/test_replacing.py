"""Results replace plain files only, and symbolic links are followed."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import Run
from forging import bundle
from superhosts.core.files import replaceable, replacing
from superhosts.errors import OutputError
from superhosts.output.files import ReplacedFile
from superhosts.output.report import Report


def save(path: Path) -> None:
    bundle().save(path)


def report(path: Path) -> None:
    file = ReplacedFile(path)
    file.write(Report(rows=[]))
    file.close()


def synthesize(path: Path) -> None:
    with replacing(replaceable(path)) as part:
        part.write_text("new")


WRITERS = pytest.mark.parametrize(
    ("write", "name"), [(save, "a.cube"), (report, "a.jsonl"), (report, "a.csv"), (synthesize, "a.pcap")]
)
Write = Callable[[Path], None]


@WRITERS
@pytest.mark.parametrize("linked", [False, True])
def test_a_fifo_is_refused_and_stays(tmp_path: Path, write: Write, name: str, linked: bool) -> None:
    path = fifo = tmp_path / name
    if linked:
        path.symlink_to("pipe")
        fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OutputError, match=f"{name}: cannot be written: it is a FIFO, and only plain files"):
        write(path)
    assert fifo.is_fifo()
    assert sorted(tmp_path.iterdir()) == before


@WRITERS
@pytest.mark.parametrize("old", ["old", None])
def test_the_target_of_a_link_is_written(tmp_path: Path, write: Write, name: str, old: str | None) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "target"
    if old is not None:
        target.write_text(old)
    (tmp_path / "middle").symlink_to(target)
    (tmp_path / name).symlink_to("middle")
    write(tmp_path / name)
    assert (tmp_path / name).is_symlink()
    assert target.is_file()
    assert target.read_bytes() != b"old"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_what_else_is_no_plain_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # Names of sockets must be short.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        with pytest.raises(OutputError, match="it is a socket"):
            replaceable("s")
    with pytest.raises(OutputError, match="it is a folder"):
        replaceable(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match="loop: cannot be written: Too many levels"):
        replaceable("loop")
    assert replaceable("new") == Path("new")


def test_merge_refuses_before_it_reads(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ended = run("merge", tmp_path / "none.cube", "-o", tmp_path / "pipe")
    assert (ended.status, "pipe: cannot be written: it is a FIFO" in ended.err) == (4, True)
    assert (tmp_path / "pipe").is_fifo()
