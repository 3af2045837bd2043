"""The border of an input: whatever one input raises is an error of that input alone, and all others count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from commands import Run
from fleets import SETTINGS
from superhosts.fleet.batch import Task, _fold
from superhosts.jit.memory import is_out_of_memory
from superhosts.sources import base
from superhosts.sources.input import Opens
from superhosts.sources.tables.formats import FORMATS
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import BadRow, RowBlock, TableFormat
from traffic import MINUTES, NOON, talk, write

MAGIC = b"TOYTABLE"
SCAN = ("--json", "--detector", "exact", "--threshold", 1, "--inner", "10.0.0.0/8")
ERRORS: dict[str, Exception] = {
    "type": TypeError("bytes are not text"),
    "memory": MemoryError("Unable to allocate 8.00 EiB"),
    "system": OSError(5, "Input/output error"),
}


class ToyReader:
    """Has 1,500 rows of one host, and then fails as the file says: TOYTABLE type. `open` and `first` fail earlier."""

    columns = ("src", "dst")
    has_time = True

    def __init__(self, file: Opens, _: TableOptions) -> None:
        stream, data = file.open(), bytearray(64)
        self._words = bytes(data[: stream.readinto(memoryview(data))]).decode().split()[1:]
        stream.close()
        self._rows = 0
        if "open" in self._words:
            raise self._error()

    def _error(self) -> Exception:
        return ERRORS[self._words[0]]

    def read(self) -> RowBlock | None:
        if self._rows or "first" in self._words:
            raise self._error()
        self._rows = 1500
        peers = np.arange(self._rows, dtype=np.uint32)
        times = np.full(self._rows, NOON, np.int64)
        return RowBlock(np.full(self._rows, 0x0A000007, np.uint32), peers, times, lambda row: BadRow(row, ""))

    def position(self) -> int:
        return self._rows

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    toy = TableFormat("toy", lambda head: head.startswith(MAGIC), ToyReader)
    FORMATS.insert(0, toy)
    yield
    FORMATS.remove(toy)


def bad(path: Path, words: str = "type") -> Path:
    path.write_bytes(MAGIC + f" {words}".ljust(50).encode() + b"\n")
    return path


def test_a_scan_counts_what_came_before_and_all_other_inputs(run: Run, tmp_path: Path) -> None:
    good = write(tmp_path / "good.pcap", talk("10.0.0.8", 50))
    said = "internal error (TypeError: bytes are not text); please report it (--verbose shows where)"
    for words, before, why in (
        ("type", [1500], said),
        ("type first", [], said),
        ("type open", [], said),
        ("memory", [1500], "internal error (MemoryError: Unable to allocate 8.00 EiB); please"),
        ("system", [1500], "cannot be read: Input/output error\n"),
    ):
        file = bad(tmp_path / "bad.toy", words)
        for order in ([file, good], [good, file]):
            ended = run("scan", *order, *SCAN)
            assert (ended.status, [row["peers"] for row in ended.rows]) == (3, [*before, 50]), words
            assert f"superhosts: {file}: {why}" in ended.err
            assert "Traceback" not in ended.err
            assert ended.err.splitlines()[-1].startswith("1,550 records in " if before else "50 packets in ")


def test_verbose_shows_the_traceback_of_this_run_alone(run: Run, tmp_path: Path) -> None:
    file = bad(tmp_path / "bad.toy")
    assert "test_border.py" in run("scan", file, "-v", *SCAN).err
    ended = run("scan", file, *SCAN)
    assert (ended.status, "test_border.py" in ended.err) == (3, False)


class OwnError(Exception):
    """An error of the caller's own code."""


def use(windows: Iterator[Any], error: type[BaseException]) -> None:
    for _ in windows:
        raise error


def test_errors_of_the_caller_and_interruptions_pass(tmp_path: Path) -> None:
    files = [write(tmp_path / "good.pcap", talk("10.0.0.8", 50))]
    for error in (OwnError, KeyboardInterrupt):
        windows = iter(sh.scan(files))
        with pytest.raises(error):
            use(windows, error)
    with pytest.raises(KeyboardInterrupt), base.input_border("x"):
        raise KeyboardInterrupt


def test_a_process_out_of_memory_is_no_error_of_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_out_of_memory()
    monkeypatch.setattr(base, "is_out_of_memory", lambda: True)
    with pytest.raises(MemoryError), base.input_border("x"):
        raise MemoryError
    monkeypatch.setattr("superhosts.jit.memory.SPARE", 1 << 62)
    assert is_out_of_memory()


def test_files_out_of_order_are_read_again_without_the_bad_one(run: Run, tmp_path: Path) -> None:
    """The second reading meets the same exception, which the first has reported."""
    frames = talk("10.0.0.8", 1500, NOON + 60 * MINUTES) + talk("10.0.0.9", 1500, NOON) + talk("10.0.0.8", 40)
    ended = run("scan", write(tmp_path / "a.pcap", frames), bad(tmp_path / "bad.toy"), "--window", "5m", *SCAN)
    assert (ended.status, ended.err.count("internal error")) == (3, 1)
    first = min(row["window_start"] for row in ended.rows)
    assert {row["host"]: row["peers"] for row in ended.rows if row["window_start"] == first} == {
        "10.0.0.9": 1500,
        "10.0.0.8": 40,
        "10.0.0.7": 1500,
    }


def test_a_task_of_a_batch_reports_the_file_and_its_traceback(tmp_path: Path) -> None:
    names = [str(bad(tmp_path / "bad.toy")), str(write(tmp_path / "good.pcap", talk("10.0.0.8", 50)))]
    (tmp_path / "private").mkdir()
    task = Task("fold", "0" * 32, names, str(tmp_path), SETTINGS)
    result: dict[str, Any] = _fold(task, SETTINGS, tmp_path / "private")
    ((text, status, cause),) = result["errors"]
    assert (text.startswith(f"{names[0]}: internal error (TypeError"), status) == (True, 3)
    assert "test_border.py" in cause
    assert (len(result["pieces"]), result["counters"]["packets"]) == (1, 1550)
