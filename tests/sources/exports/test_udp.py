"""Exports from the network: sockets, threads, stops and restarts."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import exports as e
from processes import Node, ending, free_port
from superhosts.errors import InputError, UsageError
from superhosts.sources.exports import udp as product
from superhosts.sources.exports.registry import state_folder
from superhosts.sources.exports.udp import Listening, UdpSource, parse_listening
from superhosts.sources.open import open_all
from udp import send, wait_listening, wait_received, waiting_bytes
from waiting import DEADLINE, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="exports are received on Linux only")

FLOW = e.data(256, [e.usual("10.0.0.1", "10.0.0.2"), e.usual("10.0.0.1", "10.0.0.3")])
KNOWN = e.template(256, e.USUAL)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)


class Read:
    """A source that a thread reads."""

    def __init__(self, name: str) -> None:
        (source,) = open_all(name)
        assert isinstance(source, UdpSource)
        self.source = source
        self.packets = 0
        self.source.open()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for block in self.source.blocks():
            self.packets += sum(map(len, block))

    def until(self, packets: int) -> None:
        wait_for(lambda: self.packets >= packets, lambda: (self.packets, self.source.counters))
        assert self.packets == packets

    def stop(self) -> None:
        self.source.stop()
        self._thread.join(600)
        assert not self._thread.is_alive()


@contextmanager
def reading(name: str) -> Iterator[Read]:
    read = Read(name)
    try:
        yield read
    finally:
        read.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "", "[::]"])
def test_datagrams_of_all_versions_on_one_port(host: str) -> None:
    port = free_port()
    with reading(f"netflow://{host}:{port}") as read:
        wide = e.data(300, [e.wide("2001:db8::1", "2001:db8::2")])
        datagrams = [
            e.version5([e.record5("10.0.0.1", "10.0.0.2")]),
            e.version9(KNOWN, FLOW),
            e.ipfix(e.template(300, e.WIDE, is_ipfix=True), wide),
            b"something else",
        ]
        send(port, *datagrams, to="::1" if host == "[::1]" else "127.0.0.1")
        read.until(4)
        wait_for(read.source.waits, "it waits")
        if host == "[::]":
            send(port, e.version5([e.record5("10.0.0.1", "10.0.0.2")], sequence=1), to="::1")
            read.until(5)
    [status] = read.source.counters.exports
    assert (status["datagrams"], status["other_datagrams"]) == (4 if host == "[::]" else 3, 1)
    assert status["exporters"][0]["address"] in ("127.0.0.1", "::1")
    assert waiting_bytes(port) is None  # The socket is closed.


def test_sflow() -> None:
    port = free_port()
    with reading(f"sflow://127.0.0.1:{port}") as read:
        send(port, e.sflow(e.flow_sample(e.sampled("10.0.0.1", "10.0.0.2"))))
        read.until(1)
    assert not state_folder().exists()  # sFlow has no templates.


def test_several_sockets_are_one_source() -> None:
    port = free_port()
    with reading(f"netflow://127.0.0.1:{port}?sockets=3") as read:
        for _ in range(20):  # each from a port of its own, so that the kernel divides them
            send(port, e.version5([e.record5("10.0.0.1", "10.0.0.2")]))
        read.until(20)
    [status] = read.source.counters.exports
    assert status["datagrams"] == 20
    assert len(status["exporters"]) == 1


def test_everything_that_waits_is_read_if_the_stop_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does where the first call that receives is still compiled; several batches wait by then."""
    monkeypatch.setattr(product, "BATCH_DATAGRAMS", 4)
    port = free_port()
    (source,) = open_all(f"netflow://127.0.0.1:{port}")
    source.open()
    send(port, *(e.version5([e.record5("10.0.0.1", "10.0.0.2")], sequence=each) for each in range(40)))
    source.stop()
    assert sum(sum(map(len, block)) for block in source.blocks()) == 40


def test_the_last_datagrams_that_the_kernel_drops_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "RECEIVE_BUFFER", 4096)
    port = free_port()
    (source,) = open_all(f"netflow://127.0.0.1:{port}")
    source.open()
    send(port, *(e.version5([e.record5("10.0.0.1", "10.0.0.2")], sequence=each) for each in range(400)))
    source.stop()
    read = sum(sum(map(len, block)) for block in source.blocks())
    [status] = source.counters.exports
    assert 0 < read < 400
    assert read + status["kernel_drops"] == 400


def test_what_nobody_decodes_after_a_stop_counts_as_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MOST_WAITING": 1, "BATCH_DATAGRAMS": 4, "DRAIN": 0.0, "IDLE": 0.001}.items():
        monkeypatch.setattr(product, name, value)
    port = free_port()
    source = UdpSource("test", Listening("netflow", "127.0.0.1", port))
    source.open()
    send(port, *(e.version5([e.record5("10.0.0.1", "10.0.0.2")], sequence=each) for each in range(40)))
    source.stop()
    source._receive(0)
    assert source._dropped == [36]
    assert sum(sum(map(len, block)) for block in source.blocks()) == 4


def test_what_waits_in_the_socket_of_a_process_when_it_is_told_to_stop_counts(tmp_path: Path) -> None:
    port = free_port()
    node = scan_node(tmp_path, "stopped", port, "--window", "1h")
    with ending(node):
        node.start()
        wait_listening(port)
        assert node.process is not None
        os.kill(node.process.pid, signal.SIGSTOP)
        send(port, *(e.version5([e.record5("10.0.0.1", "10.0.0.2")] * 30, sequence=30 * each) for each in range(60)))
        node.process.send_signal(signal.SIGTERM)
        os.kill(node.process.pid, signal.SIGCONT)
        assert node.process.wait(DEADLINE) == 128 + signal.SIGTERM
    counters = json.loads((tmp_path / "stopped.json").read_text())
    assert counters["packets"] + 30 * counters["exports"][0]["kernel_drops"] == 30 * 60
    assert counters["packets"] > 0


@pytest.mark.slow
def test_a_source_ends_while_datagrams_still_come() -> None:
    port, stopped = free_port(), threading.Event()
    datagram = e.version5([e.record5("10.0.0.1", "10.0.0.2")])

    def keep_sending() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not stopped.wait(0.001):
                sender.sendto(datagram, ("127.0.0.1", port))

    read = Read(f"netflow://127.0.0.1:{port}")
    thread = threading.Thread(target=keep_sending)
    thread.start()
    try:
        wait_for(lambda: read.packets > 10, "packets")
        read.stop()
        Read(f"netflow://127.0.0.1:{port}").stop()  # the port is free again
    finally:
        stopped.set()
        thread.join()


@pytest.mark.slow
def test_records_count_when_they_are_received_unless_another_time_is_chosen() -> None:
    port = free_port()
    listening = Listening("netflow", "127.0.0.1", port)
    for which, near in (("record", 0), ("received", 0), ("export", 60), ("start", 64), ("end", 63)):
        source = UdpSource("test", listening)
        source.choose_time(which)
        source.open()
        now = int(time.time())
        send(port, e.version5([e.record5("10.0.0.1", "10.0.0.2")], seconds=now - 60))
        first = source.first_time()
        source.stop()
        assert sum(sum(map(len, block)) for block in source.blocks()) == 1
        assert first is not None
        assert abs(first / e.SECOND - (now - near)) < (60 if near == 0 else 1.5)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("netflow:2055", "write it like netflow://0.0.0.0:2055"),
        ("netflow://0.0.0.0:99999", ": port 99999: must be a number from 1 to 65535; write it like netflow://0.0.0.0:"),
        ("netflow://0.0.0.0:0", ": port 0: must be a number from 1 to 65535; write it like"),
        ("sflow://127.0.0.1:80x", ": port 80x: must be a number from 1 to 65535; write it like sflow://0.0.0.0:6343"),
        ("sflow://127.0.0.1:-1", ": port -1: must be a number from 1 to 65535"),
        ("sflow://[::1]:80x", ": port 80x: must be a number from 1 to 65535"),
        ("netflow://::1:2055", ": an IPv6 address stands in brackets, like netflow://[::1]:2055"),
        ("netflow://[::1:2055", ": this is not an address; write it like netflow://0.0.0.0:2055; an IPv6 address"),
        ("netflow://[here]:2055", ": this is not an address; write it like"),
        ("netflow://0.0.0.0:2055/path", "write it like"),
        ("netflow://no such host:2055", "is not an address of this machine"),
        ("sflow://?sockets=0", "a whole number from 1 to"),
        ("sflow://?sockets=many", "a whole number from 1 to"),
        ("sflow://?templates=", "needs a value"),
        ("sflow://?port=1", "unknown word 'port'; use sockets, templates"),
    ],
)
def test_names_that_make_no_sense(name: str, says: str) -> None:
    with pytest.raises(UsageError, match="^" + name.split("?")[0].replace("[", r"\[")) as raised:
        parse_listening(name)
    assert says in str(raised.value)


def test_usual_names() -> None:
    assert parse_listening("netflow://") == Listening("netflow", "", 2055)
    assert parse_listening("sflow://[::1]?sockets=4") == Listening("sflow", "::1", 6343, 4)
    file = parse_listening("netflow://[::]:9995").state_file
    assert file == state_folder() / "templates-__-9995.json"
    assert parse_listening("netflow://:1?templates=none").state_file is None
    assert parse_listening("netflow://:1?templates=/a/b").state_file == Path("/a/b")


def test_a_port_in_use_and_an_address_of_another_machine() -> None:
    port = free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", port))
        with pytest.raises(InputError, match=f"port {port} is in use"):
            open_all(f"netflow://127.0.0.1:{port}")
    with pytest.raises(InputError, match="is not an address of this machine"):
        open_all(f"netflow://192.0.2.77:{port}")


def scan_node(folder: Path, name: str, port: int, *options: str) -> Node:
    rows, counters = folder / f"{name}.jsonl", folder / f"{name}.json"
    outputs = ["--output", str(rows), "--counters", str(counters), "--key-file", "public", "--top", "100"]
    return Node(folder / f"{name}.log", "scan", f"netflow://127.0.0.1:{port}", *outputs, *options)


def test_a_restart_loses_no_flow_whose_template_was_seen(tmp_path: Path) -> None:
    port = free_port()
    first = scan_node(tmp_path, "first", port)
    with ending(first):
        first.start()
        wait_listening(port)
        send(port, e.version9(KNOWN, FLOW, domain=3))
        wait_for(lambda: list(state_folder().glob("*.json")), "templates are kept")
        first.kill()
    second = scan_node(tmp_path, "second", port, "--window", "1h")
    with ending(second):
        second.start()
        wait_listening(port)
        for number in range(1, 6):
            flow = e.data(256, [e.usual("10.0.0.7", f"10.0.1.{number}")])
            send(port, e.version9(flow, sequence=number, domain=3))
        wait_received(port)
        assert second.end(signal.SIGINT) == 128 + signal.SIGINT
    rows = [json.loads(line) for line in (tmp_path / "second.jsonl").read_text().splitlines()]
    assert sum(row["peers"] for row in rows if row["host"] == "10.0.0.7") >= 5
    assert all(row["sampling"] is None and row["partial"] for row in rows[-1:])
    counters = json.loads((tmp_path / "second.json").read_text())
    [status] = counters["exports"]
    assert (counters["packets"], status["sets_waiting"], status["lost_datagrams"]) == (5, 0, 0)


def test_an_edge_receives_exports(tmp_path: Path) -> None:
    port = free_port()
    where = f"--to {tmp_path}/hub --spool {tmp_path}/spool --output {tmp_path}/rows.jsonl --key-file public".split()
    options = ["--site", "ams", "--memory", "256KiB", "--threshold", "1"]
    edge = Node(tmp_path / "edge.log", "edge", f"netflow://127.0.0.1:{port}", *options, *where)
    with ending(edge):
        edge.start()
        wait_listening(port)
        edge.wait_ready()
        send(port, e.version5([e.record5("10.0.0.1", "10.0.0.2")] * 30, sampling=100))
        wait_received(port)
        status = tmp_path / "spool" / "status.json"
        wait_for(lambda: status.exists() and json.loads(status.read_text())["scan"]["packets"] == 30, "it has counted")
        assert edge.end() in (0, 128 + signal.SIGTERM)
    exports = json.loads(status.read_text())["scan"]["exports"]
    assert exports[0]["sampling"] == 100
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["sampling"] for row in rows} == {100}
