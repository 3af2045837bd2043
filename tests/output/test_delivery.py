"""Destinations that send: the run never waits for them, nothing is lost without being counted, restarts go on."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from faults import full_disk
from processes import free_port
from queues import waiting_in
from receivers import Receiver
from superhosts.core.pairs import Window
from superhosts.errors import OutputError, UsageError
from superhosts.output import delivery as module
from superhosts.output.delivery import QUEUE, Delivery, DeliveryOptions, left_behind
from superhosts.output.destination import RunKind
from superhosts.output.records import Batch
from superhosts.output.registry import OutputOptions, open_destination, open_destinations
from superhosts.output.report import Report
from superhosts.output.senders import Address, PermanentError, Sender, TemporaryError
from waiting import DEADLINE, wait_for

ENDS, ENDLESS = RunKind(), RunKind(endless=True)


def report(number: int) -> Report:
    start = number * 300 * 10**9
    return Report(rows=[{"host": f"10.0.0.{number}", "peers": 50}], window=Window(start, start + 300 * 10**9))


def quick(say: Any = print, **options: Any) -> DeliveryOptions:
    """Options with short pauses, and limits that no test reaches unless it wants to."""
    return DeliveryOptions(**{"first_pause": 0.01, "last_pause": 0.05, "wait": DEADLINE, "say": say, **options})


class Controlled(Sender):
    """A receiver in this process, for what no real one does on command."""

    scheme: ClassVar[str] = "controlled"

    def __init__(self) -> None:
        super().__init__(Address("controlled://here", "controlled", "here"))
        self.hosts: list[str] = []
        self.errors: list[Exception] = []  # of the next attempts
        self.opened = threading.Event()  # no attempt returns before
        self.called = threading.Event()
        self.opened.set()
        self.ended = ""

    def deliver(self, batch: Batch) -> None:
        self.called.set()
        assert self.opened.wait(DEADLINE)
        if self.ended:
            raise TemporaryError("aborted")
        if self.errors:
            raise self.errors.pop(0)
        self.hosts += [record["host"] for record in batch.records]

    def abort(self) -> None:
        self.ended += "aborted "
        self.opened.set()

    def close(self) -> None:
        self.ended += "closed"


def test_what_fails_is_tried_again_in_order_and_said_once() -> None:
    said: list[str] = []
    sender = Controlled()
    sender.errors = [TemporaryError("it is tired"), TemporaryError("still"), ConnectionRefusedError(111, "refused")]
    delivery = Delivery(sender, ENDS, quick(said.append))
    for number in range(3):
        delivery.write(report(number))
    delivery.close()
    assert sender.hosts == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
    assert said == [
        "controlled://here does NOT TAKE reports: it is tired; they wait, retrying",
        "controlled://here takes reports again",
    ]
    expected = {"reports": 3, "rows": 3, "failures": 3, "waiting": 0, "dropped": 0, "delivered": 3}
    assert delivery.status() == expected
    assert sender.ended == "closed"


@pytest.mark.parametrize("error", [PermanentError("too long"), KeyError("a mistake of ours")])
def test_a_report_that_is_refused_for_good_does_not_hold_up_the_next(error: Exception) -> None:
    said: list[str] = []
    sender = Controlled()
    sender.errors = [error]
    delivery = Delivery(sender, ENDS, quick(said.append))
    for number in range(2):
        delivery.write(report(number))
    with pytest.raises(OutputError, match="controlled://here: 1 report LOST"):
        delivery.close()
    assert sender.hosts == ["10.0.0.1"]
    assert (delivery.status()["dropped"], delivery.status()["delivered"]) == (1, 1)
    assert "REFUSES a report" in said[0]


def test_a_receiver_that_hangs_delays_no_write_and_the_end_says_what_is_lost() -> None:
    sender = Controlled()
    sender.opened.clear()
    delivery = Delivery(sender, ENDS, quick(wait=0.05))
    for number in range(5):
        delivery.write(report(number))  # returns although the receiver hangs
    assert sender.called.wait(DEADLINE)
    assert delivery.status()["waiting"] == 5
    with pytest.raises(OutputError, match="controlled://here: 5 reports NOT DELIVERED") as raised:
        delivery.close()
    assert raised.value.exit_status == 4
    assert sender.ended.startswith("aborted")


def test_a_full_queue_drops_the_oldest_and_says_so() -> None:
    said: list[str] = []
    sender = Controlled()
    sender.opened.clear()
    delivery = Delivery(sender, ENDS, quick(said.append, cap=1500))
    for number in range(20):
        delivery.write(report(number))
    dropped = delivery.status()["dropped"]
    assert dropped == 20 - delivery.status()["waiting"] > 10
    assert said == ["controlled://here: its queue is full; reports LOST so far: 1"]
    sender.opened.set()
    with pytest.raises(OutputError, match=f"{dropped} reports LOST"):
        delivery.close()
    assert sender.hosts[-1] == "10.0.0.19"
    assert sender.hosts == sorted(sender.hosts, key=lambda host: int(host.rpartition(".")[2]))


def test_a_service_leaves_its_queue_on_disk_to_the_next_run(tmp_path: Path) -> None:
    said: list[str] = []
    port = free_port()
    address, options = f"syslog+tcp://127.0.0.1:{port}", {"queue": tmp_path / "queue"}
    first = open_destination(address, ENDLESS, quick(said.append, wait=0.05, **options))
    for number in range(3):
        first.write(report(number))
    first.close()  # no error: nothing is lost
    assert "3 reports not delivered yet; they wait in" in said[-1]
    with Receiver("tcp", port=port) as receiver:
        second = open_destination(address, ENDLESS, quick(said.append, **options))
        second.write(report(3))
        got = receiver.wait(4)
        second.close()
    assert [f"10.0.0.{number}: 50 peers" in got[number] for number in range(4)] == [True] * 4
    assert "reports of earlier runs that wait: 3" in "".join(said)
    assert not waiting_in(tmp_path)


def test_reopening_tries_again_at_once(tmp_path: Path) -> None:
    port = free_port()
    options = quick(first_pause=DEADLINE, last_pause=DEADLINE)
    delivery = open_destination(f"syslog+tcp://127.0.0.1:{port}", ENDLESS, options)
    delivery.write(report(1))
    wait_for(lambda: delivery.status()["failures"], "an attempt fails")
    with Receiver("tcp", port=port) as receiver:
        delivery.reopen()
        receiver.wait(1)
        wait_for(lambda: delivery.status()["delivered"], "it is counted")
    delivery.close()


def test_addresses_in_files_may_have_secrets_which_are_never_shown(tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "addresses"
    port = free_port()
    file.write_text(f"# ours\nwebhook+http://me:XXXX@127.0.0.1:{port}/YYYY?sig=ZZZZ\n\nsyslog://127.0.0.1:{port}\n")
    options = OutputOptions(outputs=[f"@{file}"], delivery=quick(said.append, wait=0.05, queue=tmp_path / "q"))
    outputs = open_destinations(options, ENDS, table=False)
    outputs.write(report(1))
    names = [*outputs.all_status()]
    assert names == [f"webhook+http://me@127.0.0.1:{port}/…", f"syslog://127.0.0.1:{port}"]
    with pytest.raises(OutputError) as raised:
        outputs.__exit__(None)
    everything = "".join([*said, *names, str(raised.value), *(str(path) for path in tmp_path.rglob("*"))])
    assert not [secret for secret in ("XXXX", "YYYY", "ZZZZ") if secret in everything]


def test_destinations_of_one_name_are_numbered_and_repeats_refused(tmp_path: Path) -> None:
    addresses = [f"webhook+http://127.0.0.1:1/{name}" for name in "ab"]
    outputs = open_destinations(OutputOptions(outputs=addresses, delivery=quick()), ENDS, table=False)
    assert [*outputs.all_status()] == ["webhook+http://127.0.0.1:1/…", "webhook+http://127.0.0.1:1/… (2)"]
    outputs.__exit__(None)
    with pytest.raises(UsageError, match=r"--output webhook\+http://127.0.0.1:1/…: given twice"):
        OutputOptions(outputs=[addresses[0]] * 2)
    with pytest.raises(UsageError, match=r"--output @.*: cannot be read"):
        open_destinations(OutputOptions(outputs=[f"@{tmp_path / 'none'}"]), ENDS, table=False)


def test_all_or_none_are_opened(tmp_path: Path) -> None:
    addresses = [f"syslog+tcp://127.0.0.1:{free_port()}", "syslog://host?colour=red"]
    options = OutputOptions(outputs=addresses, delivery=quick(queue=tmp_path))
    for _ in range(2):  # The first attempt has given back the lock of the queue.
        with pytest.raises(UsageError, match="unknown option colour"):
            open_destinations(options, ENDS, table=False)


def test_a_program_that_is_killed_at_the_end_of_the_run_has_refused_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/runs\nsleep 1000\n")
    hook.chmod(0o755)
    delivery = open_destination(f"exec:{hook}?timeout=1h", ENDS, quick(said.append, wait=0.05))
    delivery.write(report(1))
    wait_for(lambda: (tmp_path / "runs").exists(), "the program runs")
    with pytest.raises(OutputError, match=r"1 report NOT DELIVERED$"):
        delivery.close()
    assert (said, delivery.status()["dropped"]) == ([], 0)


def test_each_run_has_a_deadline_of_its_own(tmp_path: Path) -> None:
    """Two runs in one process with the same options: the first has used up its time, the second has not."""
    options = OutputOptions(outputs=[f"syslog+tcp://127.0.0.1:{free_port()}"], delivery=quick(wait=0.05))
    for _ in range(2):
        outputs = open_destinations(options, ENDS, table=False)
        outputs.write(report(1))
        with pytest.raises(OutputError, match="1 report NOT DELIVERED"):
            outputs.__exit__(None)
    assert options.delivery.time_left(DEADLINE) > 0


def test_a_file_of_addresses_that_others_can_read_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "addresses"
    file.write_text("syslog://127.0.0.1:514\n")
    file.chmod(0o644)
    options = OutputOptions(outputs=[f"@{file}"], delivery=quick(said.append))
    open_destinations(options, ENDS, table=False).__exit__(None)
    assert any(f"chmod 600 {file}" in line for line in said)


# The queue: nothing is lost by a crash, the space is bounded, a full disk is survived


ROOM = 1 << 20
_opened: list[module.Outbox] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def Outbox(*arguments: Any, **options: Any) -> module.Outbox:  # noqa: N802
    _opened.append(module.Outbox(*arguments, **options))
    return _opened[-1]


def batch(number: int, size: int = 0) -> Batch:
    return Batch(str(number), [{"kind": "superhost", "id": str(number), "site": "", "host": "x" * size}])


def size_of(one: Batch) -> int:
    outbox = Outbox(None, cap=ROOM, say=print)
    outbox.put(one)
    return outbox.size


def drain(outbox: module.Outbox) -> list[str]:
    found = []
    while (taken := outbox.take(0)) is not None:
        item, one = taken
        found.append(one.id)
        outbox.remove(item)
    return found


def test_a_restart_goes_on_where_the_last_run_stopped(tmp_path: Path) -> None:
    first = Outbox(tmp_path, cap=ROOM, say=print)
    for number in range(3):
        first.put(batch(number))
    taken = first.take(0)
    first.remove(taken[0])
    assert first.take(0) is not None  # under way, but not delivered
    first.close()  # as the end of the process does
    second = Outbox(tmp_path, cap=ROOM, say=print)
    second.put(batch(3))
    assert drain(second) == ["1", "2", "3"]


@pytest.mark.parametrize("after", range(3))
def test_a_crash_while_a_batch_is_written_leaves_whole_ones(tmp_path: Path, after: int) -> None:
    """The files as they are when the process dies within a transaction."""
    outbox = Outbox(tmp_path / "killed", cap=ROOM, say=print)
    for number in range(after):
        outbox.put(batch(number))
    with outbox.database.transaction() as connection:
        connection.execute("INSERT INTO batches (content) VALUES ('half a ba')")
        shutil.copytree(tmp_path / "killed", tmp_path / "left")
    assert drain(Outbox(tmp_path / "left", cap=ROOM, say=print)) == [str(number) for number in range(after)]


def test_batches_that_an_earlier_version_has_left_are_sent_first(tmp_path: Path) -> None:
    for number in (7, 12):
        (tmp_path / f"{number:020}.json").write_text(json.dumps(batch(number).as_json()))
    (tmp_path / ".00000000000000000013.json.tmp").write_text("half a ba")
    assert left_behind(tmp_path.parent, set())[tmp_path] == 2
    outbox = Outbox(tmp_path, cap=ROOM, say=print)
    outbox.put(batch(1))
    assert [each["id"] for each in waiting_in(tmp_path)] == ["7", "12", "1"]
    assert {path.name for path in tmp_path.iterdir()} <= {".lock", QUEUE, f"{QUEUE}-wal", f"{QUEUE}-shm"}
    assert drain(outbox) == ["7", "12", "1"]


def test_two_processes_do_not_share_a_queue(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, cap=ROOM, say=print)
    with pytest.raises(UsageError, match="another process is using this folder"):
        Outbox(tmp_path, cap=ROOM, say=print)
    outbox.close()
    Outbox(tmp_path, cap=ROOM, say=print).close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_oldest_are_dropped_but_not_the_one_under_way(tmp_path: Path, on_disk: bool) -> None:
    one = size_of(batch(0))
    outbox = Outbox(tmp_path if on_disk else None, cap=3 * one, say=print)
    outbox.put(batch(0))
    taken = outbox.take(0)
    for number in range(1, 6):
        outbox.put(batch(number))
    assert (len(outbox), outbox.dropped) == (3, 3)
    outbox.remove(taken[0])
    assert drain(outbox) == ["4", "5"]
    assert (len(outbox), outbox.take(0)) == (0, None)
    outbox.put(batch(6, size=10 * one))  # larger than the queue
    assert (len(outbox), outbox.dropped) == (0, 4)
    assert not waiting_in(tmp_path)
    few = Outbox(None, cap=ROOM, say=print, most=2)
    for number in range(5):
        few.put(batch(number))
    assert (drain(few), few.dropped) == (["3", "4"], 3)


def test_while_the_disk_is_full_batches_wait_in_memory_and_are_saved_later(tmp_path: Path) -> None:
    said: list[str] = []
    one = size_of(batch(0))
    outbox = Outbox(tmp_path, cap=ROOM, memory_cap=2 * one, say=said.append)
    outbox.put(batch(0))
    with full_disk():
        for number in range(1, 4):
            outbox.put(batch(number))
    why = "cannot be written: disk I/O error"
    assert said == [f"{tmp_path / QUEUE}: {why}; reports WAIT IN MEMORY until it can"]
    assert (len(outbox), outbox.dropped) == (3, 1)  # The oldest of those in memory.
    assert len(waiting_in(tmp_path)) == 1
    outbox.put(batch(4))
    assert said[1:] == [f"{tmp_path}: written again"]
    assert len(waiting_in(tmp_path)) == 4
    outbox.close()
    assert drain(Outbox(tmp_path, cap=ROOM, say=print)) == ["0", "2", "3", "4"]


def test_a_damaged_batch_is_said_and_the_others_are_sent(tmp_path: Path) -> None:
    said: list[str] = []
    outbox = Outbox(tmp_path, cap=ROOM, say=said.append)
    for number in range(4):
        outbox.put(batch(number))
    wrong = [(b"{", 1), (b'{"id": "1", "records": [], "colour": "red"}', 2), (b"[" * 10**5, 3)]
    with closing(sqlite3.connect(tmp_path / QUEUE)) as database, database:
        database.executemany("UPDATE batches SET content = ? WHERE number = ?", wrong)
    assert drain(outbox) == ["3"]
    assert (outbox.dropped, len(said)) == (3, 3)
    assert all("cannot be read" in line and "LOST" in line for line in said)


def test_a_damaged_queue_is_set_aside(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / QUEUE).write_bytes(b"no database" * 1000)
    outbox = Outbox(tmp_path, cap=ROOM, say=said.append)
    outbox.put(batch(0))
    assert "SET ASIDE" in said[0]
    assert drain(outbox) == ["0"]


def test_a_delivered_batch_that_cannot_be_removed_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    outbox = Outbox(tmp_path, cap=ROOM, say=said.append)
    outbox.put(batch(0))
    with full_disk():
        assert drain(outbox) == ["0"]
    assert said[0].endswith("cannot be written: disk I/O error; a restart sends reports AGAIN")
    outbox.close()
    assert drain(Outbox(tmp_path, cap=ROOM, say=print)) == ["0"]
