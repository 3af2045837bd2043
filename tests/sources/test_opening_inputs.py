"""One grammar of inputs: files, folders, patterns, URLs, pipes, standard input and schemes."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import packets as p
from commands import Run
from superhosts.core import filetypes
from superhosts.errors import InputError, SuperhostsError, UsageError
from superhosts.sources.base import Stopped
from superhosts.sources.folder import FolderSource
from superhosts.sources.open import list_files, open_all, open_inputs
from superhosts.sources.tables.options import TableOptions
from traffic import NOON, STEP, talk, write

SYNTHETIC = "synth:flows=200,packets=400,super_hosts=0"


def names(*inputs: object, **options: Any) -> list[str]:
    return [source.name for source in open_inputs([str(name) for name in inputs], **options)]


@pytest.fixture
def day(tmp_path: Path) -> Path:
    """A folder of three captures, and of files that are none or not finished."""
    for number, name in enumerate(("b/dump.pcap10", "b/dump.pcap9", "a.pcap")):
        (tmp_path / "day" / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / "day" / name, talk("10.0.0.1", 10, NOON + 10 * number * STEP, base=f"172.16.{number}.0"))
    for name in (".hidden", ".x/a", "c.part", "d.tmp"):
        (tmp_path / "day" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "day" / name).write_bytes(b"not a capture")
    return tmp_path / "day"


def test_a_folder_and_a_pattern_stand_for_files(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [f"{day}/a.pcap", f"{day}/b/dump.pcap9", f"{day}/b/dump.pcap10"]
    assert names(day) == names(f"{day}/**/*pcap*") == names(day, f"{day}/b/*") == wanted
    assert names(f"file://{day}") == names(f"file://{day}/") == [f"file://{name}" for name in wanted]
    assert names(f"{day}/a.pcap", f"file://{day}/b/dump*") == [wanted[0], *(f"file://{name}" for name in wanted[1:])]
    monkeypatch.chdir(day.parent)
    # Errors name files as they were given.
    assert names("day") == ["day/a.pcap", "day/b/dump.pcap9", "day/b/dump.pcap10"]
    assert names("day", wanted[0]) == names("day")
    assert names(wanted[0], "day") == [wanted[0], "day/b/dump.pcap9", "day/b/dump.pcap10"]
    assert names("day/a.pcap", "day/a.pcap") == ["day/a.pcap"] * 2


def test_a_name_that_looks_like_a_pattern_or_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("odd[1].pcap", "synth:x", "1.pcap"):
        write(tmp_path / name, talk("10.0.0.1", 3))
    assert names("odd[1].pcap", "./synth:x") == ["odd[1].pcap", "./synth:x"]
    assert [source.name for source in open_inputs([Path("synth:x")])] == ["synth:x"]
    assert names(f"file://{tmp_path}/odd[1].pcap") == [f"file://{tmp_path}/odd[1].pcap"]


def test_inputs_that_are_followed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", talk("10.0.0.1", 3))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    inputs = [tmp_path, path, pipe, SYNTHETIC, f"{tmp_path}/*.pcap", f"{tmp_path}/[a].*"]
    folder, file, fifo, synthetic = open_inputs(inputs, follow=True)
    assert isinstance(folder, FolderSource)
    assert [source.replays for source in (folder, file, fifo, synthetic)] == [True, True, False, True]
    assert [source.live for source in (folder, file, fifo, synthetic)] == [True, False, True, False]
    assert file.finished() == {}
    list(file.blocks())
    assert file.finished() == {f"{path}@{NOON}": (NOON, NOON + 2 * STEP)}
    (again,) = open_inputs([path, SYNTHETIC], done=frozenset(file.finished()))
    assert again.name == SYNTHETIC


def test_what_cannot_be_opened_is_named_and_the_rest_is_opened(day: Path) -> None:
    (day / "text").write_text("this is not a capture")
    (day.parent / "nothing").mkdir()
    errors: list[SuperhostsError] = []
    bad = [day.parent / "nothing", f"{day}/*.gz", day / "none", f"file://{day}/none", "nowhere://a/b"]
    assert len(names(*bad, day, on_error=errors.append)) == 3
    assert [str(error) for error in errors[:4]] == [
        f"{bad[0]}: the folder has no files",
        f"{bad[1]}: matches no file",
        f"{bad[2]}: cannot be opened: No such file or directory",
        f"{bad[3]}: cannot be opened: no such file",
    ]
    assert str(errors[4]).startswith("nowhere://a/b: ")
    assert str(errors[5]) == f"{day}/text: not a capture: it looks like text; {filetypes.TEXTS}"
    for name in (*bad, day):
        with pytest.raises(InputError):
            names(name)


def test_names_that_make_no_sense_end_the_command_before_anything_is_read(run: Run, day: Path) -> None:
    for bad, words in (
        (["synth:flowz=1"], "synth:flowz=1: unknown word 'flowz'; use flows"),
        (["synth:flows=20"], "synth:flows=20: flows: 20 super hosts need at least 22,756 flows; raise it"),
        (["-", "-"], "-: given twice; standard input can be read only once"),
    ):
        ended = run("scan", day, *bad, "--json", "-t", 1)
        assert (ended.status, ended.out) == (2, "")
        assert ended.err.startswith(f"superhosts: {words}")


def test_a_pipe_without_bytes_can_be_stopped(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)  # so that it never ends
    (waiting,), (stopped,) = open_all(pipe), open_all(pipe)
    stopped.stop()
    with pytest.raises(Stopped):
        stopped.first_time()
    ended: list[object] = []
    thread = threading.Thread(target=lambda: ended.extend(waiting.blocks()))
    thread.start()
    waiting.stop()
    thread.join()
    assert ended == []
    os.close(writer)


# Files for other machines


def test_files_for_other_machines(day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[SuperhostsError] = []

    def find(*names: object) -> list[str]:
        return [capture.name for capture in list_files(map(str, names), errors.append)]

    (tmp_path / "odd[1].pcap").write_bytes(b"")
    wanted = [f"{day}/a.pcap", f"{day}/b/dump.pcap9", f"{day}/b/dump.pcap10"]
    assert find(day) == find(f"{day}/**/*pcap*") == find(day, f"{day}/b/*", wanted[0]) == wanted
    urls = [f"file://{name}" for name in wanted]
    assert find(f"file://{day}") == find(f"file://{day}/**/*pcap*") == find(*urls[::-1]) == urls
    assert find(tmp_path / "odd[1].pcap") == [f"{tmp_path}/odd[1].pcap"]
    monkeypatch.chdir(tmp_path)
    assert find("day/a.pcap", "day") == wanted
    before = list_files(["day/a.pcap", f"file://{day}/a.pcap"], errors.append)
    assert [capture.size for capture in before] == 2 * [(day / "a.pcap").stat().st_size]
    os.utime(day / "a.pcap", (1, 1))
    after = list_files(["day/a.pcap", f"file://{day}/a.pcap"], errors.append)
    assert all(a.stamp != b.stamp for a, b in zip(before, after, strict=True))
    assert errors == []
    os.mkfifo(tmp_path / "pipe")
    assert find("pipe", "-", "day/*.gz", f"file://{day}/none", "nowhere://a/b") == []
    assert [str(error).split(": ")[0] for error in errors] == [
        "pipe",
        "-",
        "day/*.gz",
        f"file://{day}/none",
        "nowhere://a/b",
    ]
    assert {error.exit_status for error in errors} == {3}


def test_a_folder_below_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.pcap").touch()
    (tmp_path / "b.pcap").touch()
    scandir, is_file = os.scandir, Path.is_file

    def closed(place: Any) -> Any:
        if Path(place).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(place))
        return scandir(place)

    def broken(path: Path) -> bool:
        if path.name == "b.pcap":
            raise OSError(errno.EIO, "Input/output error")
        return is_file(path)

    monkeypatch.setattr(os, "scandir", closed)
    monkeypatch.setattr(Path, "is_file", broken)
    errors: list[SuperhostsError] = []
    found = list_files([str(tmp_path)], errors.append)
    assert [Path(capture.name).name for capture in found] == ["a.pcap"]
    assert [str(error) for error in errors] == [
        f"{tmp_path / 'b.pcap'}: cannot be opened: Input/output error",
        f"{tmp_path / 'closed'}: cannot be opened: Permission denied",
    ]


# Synthetic traffic


def test_synthetic_traffic_by_name() -> None:
    name = "synth:flows=2k,packets=5k,windows=2,super_hosts=1,seed=3,window=1m,family=both,start=2026-11-14T12:00:30Z"
    (whole,) = open_inputs([name])
    blocks = list(whole.blocks())
    assert whole.counters.packets == 10_000
    assert whole.counters.ipv6 > 1000
    assert whole.first_time() == min(int(b.time.min()) for block in blocks for b in block) == 1_794_657_600 * p.SECOND

    def pairs(text: str) -> tuple[int, set[tuple[int, int]]]:
        (source,) = open_inputs([text])
        seen = [(int(t), int(a)) for k in source.blocks() for b in k if b.family == 4 for t, a in zip(b.time, b.src)]  # noqa: B905
        return source.counters.packets, set(seen)

    everything = pairs(name)[1]
    (many, some), (_, same), (_, others) = (pairs(f"{name},share=0.6,part={part}") for part in (1, 1, 2))
    assert 5600 < many < 6400
    assert some == same
    assert some < everything
    assert others < everything
    assert 0.3 < len(some & others) / len(everything) < 0.42  # 0.36 by chance


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("synth:flow=3", "unknown word 'flow'; use flows, packets, windows, super_hosts, seed, window, family"),
        ("synth:flows=many", "flows: 'many' is not a count"),
        ("synth:seed=x", "seed: invalid literal"),
        ("synth:share=0", "share 0: above 0"),
        ("synth:share=nan", "share nan: above 0"),
        ("synth:part=-1", "part -1: at least 0"),
        ("synth:start=noon", "start: Invalid isoformat"),
        ("synth:family=5", "family: choose 4, 6 or both"),
        ("synth:window=0.5s", "window: .*whole seconds|window: '0.5s'"),
    ],
)
def test_synthetic_traffic_that_is_invalid(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_inputs([text])


def test_a_format_that_does_not_exist_is_told_all_that_do(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r'^format="xml": no such format; use parquet, .*, tsv, netflow, ipfix, sflow$'
    ):
        open_inputs([str(tmp_path)], print, tables=TableOptions("xml"))
