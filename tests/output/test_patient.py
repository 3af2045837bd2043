"""Files of services: a full disk holds up nothing else, rows are in the file once and in order, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from faults import fill_disk, system_call
from output.test_fanout import Fake
from queues import waiting_in
from superhosts.core.database import Database
from superhosts.core.pairs import Window
from superhosts.errors import OutputError
from superhosts.output.delivery import FORMAT, QUEUE, DeliveryOptions
from superhosts.output.destination import Destination, Destinations, RunKind
from superhosts.output.files import AppendedFile, ParquetFolder, PatientFile, Span, digest_of
from superhosts.output.report import Report
from waiting import DEADLINE, wait_for

ENDLESS = RunKind(("host", "peers"), endless=True)
_opened: list[PatientFile] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().abandon()


def report(number: int, revision: int = 1, hosts: int = 2) -> Report:
    start = number * 300 * 10**9
    rows = [{"host": f"10.0.{number}.{last}", "peers": 50} for last in range(hosts)]
    return Report(rows=rows, window=Window(start, start + 300 * 10**9), revision=revision)


def patient(inner: Destination, path: Path, *, patience: float = DEADLINE, **options: Any) -> PatientFile:
    quick: dict[str, Any] = {"first_pause": 0.01, "last_pause": 0.05, "wait": DEADLINE, "say": print, **options}
    _opened.append(PatientFile(inner, path, DeliveryOptions(**quick), patience=patience))
    return _opened[-1]


def lines(path: Path, **options: Any) -> PatientFile:
    return patient(AppendedFile(path, ENDLESS), path, **options)


def hosts_in(path: Path) -> list[str]:
    return [json.loads(line)["host"] for line in path.read_text().splitlines()]


def hosts_of(*reports: Report) -> list[str]:
    return [row["host"] for each in reports for row in each.rows]


class Disk:
    """The disk of one destination, which is full until there is room."""

    def __init__(self, inner: AppendedFile | ParquetFolder) -> None:
        self.is_full = True
        self._inner, self._write = inner, inner._write
        inner._write = self.write

    def write(self, report: Report) -> None:
        if self.is_full:
            raise OutputError(f"{self._inner.name}: cannot be written: No space left on device")
        self._write(report)


def test_rows_are_in_the_file_when_write_returns(tmp_path: Path) -> None:
    file = lines(tmp_path / "rows.jsonl", queue=tmp_path / "queue")
    for number in range(3):
        file.write(report(number))
        assert hosts_in(tmp_path / "rows.jsonl") == hosts_of(*map(report, range(number + 1)))
    assert file.status() == {"reports": 3, "rows": 6, "failures": 0, "waiting": 0, "dropped": 0, "delivered": 3}


@pytest.mark.parametrize("queue", [True, False])
def test_a_file_that_fails_gets_every_row_once_and_in_order_when_there_is_room(tmp_path: Path, queue: bool) -> None:
    said: list[str] = []
    path, other = tmp_path / "rows.jsonl", Fake()
    inner = AppendedFile(path, ENDLESS)
    disk = Disk(inner)
    file = patient(inner, path, say=said.append, queue=tmp_path / "queue" if queue else None)
    outputs = Destinations([file, other])
    for number in range(5):
        outputs.write(report(number))  # fails nowhere
    assert hosts_of(*other.reports) == hosts_of(*map(report, range(5)))
    assert (path.read_text(), file.status()["waiting"]) == ("", 5)
    assert file.status()["failures"] > 0
    assert said == [f"{path} does NOT TAKE reports: cannot be written: No space left on device; they wait, retrying"]
    disk.is_full = False
    wait_for(lambda: file.status()["waiting"] == 0, "all is written")
    assert hosts_in(path) == hosts_of(*map(report, range(5)))
    wait_for(lambda: said[1:] == [f"{path} takes reports again"], "that is told")


def test_a_write_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    path, opened, calls = tmp_path / "rows.jsonl", threading.Event(), list[int]()
    inner = AppendedFile(path, ENDLESS)
    write = inner._write

    def hang(report: Report) -> None:
        calls.append(report.revision)
        assert opened.wait(DEADLINE)
        write(report)

    inner._write = hang
    file = patient(inner, path, patience=0.01, queue=tmp_path / "queue")
    for number in range(4):
        file.write(report(number))  # returns
    wait_for(lambda: calls == [1], "the first write has begun")
    assert file.status()["waiting"] == 4
    assert len(waiting_in(tmp_path / "queue")) == 4  # a crash loses none of them
    opened.set()
    wait_for(lambda: file.status()["waiting"] == 0, "all is written")
    assert hosts_in(path) == hosts_of(*map(report, range(4)))


@pytest.mark.parametrize("once", [True, False])
def test_a_report_that_is_handed_in_again_is_written_once_if_that_is_wanted(tmp_path: Path, once: bool) -> None:
    path = tmp_path / "rows.jsonl"
    options: dict[str, Any] = {"queue": tmp_path / "queue", "once": once}
    first = lines(path, **options)
    first.write(report(0))
    first.write(report(1))
    first.close()
    second = lines(path, **options)
    second.write(report(1))  # the run was killed before it had noted that it was done
    second.write(report(1, revision=2))
    again = [] if once else [report(1)]
    assert hosts_in(path) == hosts_of(report(0), report(1), *again, report(1, revision=2))


def test_names_that_are_known_by_now_make_no_other_report(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first = lines(path, queue=tmp_path / "queue", once=True)
    first.write(report(0))
    named = [{**row, "name": "www.example"} for row in report(0).rows]
    first.write(Report(rows=named, window=report(0).window))
    assert hosts_in(path) == hosts_of(report(0))


def test_a_report_that_waits_and_is_handed_in_again_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    options: dict[str, Any] = {"queue": tmp_path / "queue", "once": True}
    inner = AppendedFile(path, ENDLESS)
    Disk(inner)
    first = patient(inner, path, wait=0.01, **options)
    first.write(report(0))
    first.write(report(1))
    first.close()
    second = lines(path, **options)
    second.write(report(1))
    second.write(report(2))
    wait_for(lambda: second.status()["waiting"] == 0, "all is written")
    assert hosts_in(path) == hosts_of(report(0), report(1), report(2))


@pytest.mark.parametrize("is_of_earlier_version", [False, True])
@pytest.mark.parametrize("done", [0, 1, 40, 60, "all"])
def test_an_append_that_was_cut_by_a_kill_is_finished_or_undone(tmp_path, done, is_of_earlier_version) -> None:
    """The state on disk after a kill at any byte of an append, whose report waits in the queue."""
    path = tmp_path / "rows.jsonl"
    options: dict[str, Any] = {"queue": tmp_path / "queue", "once": True}
    before = lines(path, **options)
    before.write(report(0))
    before.close()
    size = path.stat().st_size
    inner = AppendedFile(path, ENDLESS)
    Disk(inner)
    killed = patient(inner, path, wait=0.01, **options)
    killed.write(report(1))
    killed.close()
    data = "".join(json.dumps(row) + "\n" for row in report(1).rows).encode()
    (waiting,) = waiting_in(tmp_path / "queue")
    there = path.stat()
    span = Span(there.st_dev, there.st_ino, size, len(data), digest_of(data))
    noted = json.dumps({"id": waiting["id"], "span": span._asdict(), "recent": []})
    (queue,) = tmp_path.glob("queue/*")
    if is_of_earlier_version:
        (queue / "journal.json").write_text(noted)
    else:
        with closing(Database(queue / QUEUE, FORMAT)) as database:
            database.save(journal=noted)
    with path.open("ab") as file:
        file.write(data if done == "all" else data[: int(done)])
    after = lines(path, **options)
    after.write(report(2))
    wait_for(lambda: after.status()["waiting"] == 0, "all is written")
    assert hosts_in(path) == hosts_of(report(0), report(1), report(2))


KILLED = """
import os, signal, sys
from pathlib import Path
from superhosts.core.pairs import Window
from superhosts.output.delivery import DeliveryOptions
from superhosts.output.destination import RunKind
from superhosts.output.files import AppendedFile, PatientFile
from superhosts.output.report import Report
path = Path(sys.argv[1])
file = PatientFile(AppendedFile(path, RunKind(endless=True)), path, DeliveryOptions(queue=path.parent / "q", once=True))
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # the rows are written
file.write(Report(rows=[{"host": "10.0.0.1"}], window=Window(0, 1)))
"""


def test_rows_are_in_the_file_once_though_the_process_was_killed_when_it_had_written_them(tmp_path: Path) -> None:
    """The caller hands in the report again that it had not noted as done, as a hub does."""
    path = tmp_path / "rows.jsonl"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=DEADLINE, check=False)
    assert (killed.returncode, hosts_in(path)) == (-signal.SIGKILL, ["10.0.0.1"])
    file = lines(path, queue=tmp_path / "q", once=True)
    for number in (1, 2):
        file.write(Report(rows=[{"host": f"10.0.0.{number}"}], window=Window(number - 1, number)))
    wait_for(lambda: file.status()["waiting"] == 0, "all is written")
    assert hosts_in(path) == ["10.0.0.1", "10.0.0.2"]


def test_a_journal_that_cannot_be_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    file = lines(path, queue=tmp_path / "queue")
    with system_call("save", fill_disk, Database):
        file.write(report(0))
        assert (path.read_text(), file.status()["waiting"]) == ("", 1)
    wait_for(lambda: file.status()["waiting"] == 0, "it is written")
    assert hosts_in(path) == hosts_of(report(0))


@pytest.mark.parametrize(
    "content", ["", "{}", '{"id": 1}', '{"id": "a", "recent": [], "span": {"start": "x"}}', "[" * 10**5]
)
def test_a_damaged_journal_is_said(tmp_path: Path, content: str) -> None:
    said: list[str] = []
    lines(tmp_path / "rows.jsonl", queue=tmp_path / "queue").close()
    (queue,) = tmp_path.glob("queue/*")
    with closing(Database(queue / QUEUE, FORMAT)) as database:
        database.save(journal=content)
    lines(tmp_path / "rows.jsonl", queue=tmp_path / "queue", say=said.append).write(report(0))
    assert "what was appended last cannot be read" in said[0]
    assert hosts_in(tmp_path / "rows.jsonl") == hosts_of(report(0))


def test_a_file_that_was_moved_away_is_reopened_by_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    file = lines(path)
    file.write(report(0))
    path.rename(tmp_path / "old.jsonl")
    file.reopen()
    assert path.read_text() == ""
    file.write(report(1))
    assert (hosts_in(tmp_path / "old.jsonl"), hosts_in(path)) == (hosts_of(report(0)), hosts_of(report(1)))


def test_parquet_files_of_all_windows_are_there_when_there_is_room(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    inner = ParquetFolder(tmp_path / "rows", ENDLESS)
    disk = Disk(inner)
    folder = patient(inner, tmp_path / "rows", queue=tmp_path / "queue")
    for number in range(3):
        folder.write(report(number))
    folder.write(report(1, revision=2, hosts=1))
    assert list((tmp_path / "rows").iterdir()) == []
    disk.is_full = False
    wait_for(lambda: folder.status()["waiting"] == 0, "all is written")
    import pyarrow.parquet

    found = [pyarrow.parquet.read_table(each).num_rows for each in sorted((tmp_path / "rows").iterdir())]
    assert found == [2, 1, 2]


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(OutputError, match="appended to plain files only"):
        AppendedFile(tmp_path / "rows.jsonl", ENDLESS)


def test_a_csv_file_that_a_crash_has_cut_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n3,")
    file = AppendedFile(path, RunKind(("a", "b"), endless=True))
    file.write(Report(rows=[{"a": 5, "b": 6}]))
    file.close()
    assert path.read_text() == "a,b\n1,2\n5,6\n"
