"""What a service manager is told, over a real socket: that of a test, and by real commands."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processes import Node, ending, make_edge, make_hub_on_files
from scraping import ask, endpoint
from superhosts.ui.monitor import Monitor
from superhosts.ui.service import FEEDS, SHOWN, ServiceManager
from traffic import three_windows, write
from waiting import wait_for

HANG = """
import sys, threading
from pathlib import Path
import superhosts.ui.endpoint as health
from superhosts.fleet.hub import Hub
health.Health.__init__.__defaults__ = (health.Health.__init__.__defaults__[0], 1.0)
tidy = Hub.tidy
def hang(self):
    if Path(sys.argv[0]).exists():
        threading.Event().wait()
    tidy(self)
Hub.tidy = hang
from superhosts.cli import main
main()
"""


class Manager:
    """The socket of a service manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.heard: list[str] = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.socket.setblocking(False)

    def listen(self) -> list[str]:
        """Return all lines so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.heard += self.socket.recv(4096).decode().splitlines()
        return self.heard

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "NOTIFY_SOCKET": self.address, **more}


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify") if request.param == "path" else f"@superhosts-test-{os.getpid()}")
    with made.socket:
        yield made


def make(manager: Manager, clock: Any = lambda: 0.0, **variables: str) -> ServiceManager:
    return ServiceManager({"NOTIFY_SOCKET": manager.address, **variables}, clock)


def test_the_first_beat_is_ready_and_later_ones_feed_the_watchdog_in_time(manager: Manager) -> None:
    now = [100.0]
    own = make(manager, lambda: now[0], WATCHDOG_USEC=str(20 * 10**6))
    assert manager.listen() == []
    own.beat(lambda: "two windows\nclosed")
    assert manager.listen() == ["READY=1", "STATUS=two windows closed"]
    own.beat(lambda: "three")
    now[0] += 20 / FEEDS - 0.001
    own.beat(lambda: "three")
    assert len(manager.listen()) == 2  # The main loop beats thousands of times in a second.
    now[0] += 0.001
    own.beat(lambda: "three")
    assert manager.listen()[2:] == ["WATCHDOG=1", "STATUS=three"]
    assert SHOWN == 20 / FEEDS
    for _ in range(3):
        now[0] += 5
        own.beat(lambda: "four")
    assert manager.listen().count("WATCHDOG=1") == 4


def test_reloading_and_stopping(manager: Manager) -> None:
    own = make(manager)
    own.reloading()
    own.reloaded()
    own.stopping()
    first, since, *rest = manager.listen()
    assert first == "RELOADING=1"
    assert since.startswith("MONOTONIC_USEC=")
    assert since.partition("=")[2].isdigit()
    assert rest == ["READY=1", "STOPPING=1"]


@pytest.mark.parametrize("variables", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}])
def test_no_watchdog_unless_it_is_for_this_process(manager: Manager, variables: dict[str, str]) -> None:
    now = [0.0]
    own = make(manager, lambda: now[0], **variables)
    for _ in range(9):
        now[0] += 100
        own.beat(lambda: "fine")
    assert "WATCHDOG=1" not in manager.listen()
    assert manager.listen().count("READY=1") == 1


def test_the_watchdog_of_this_process_is_fed(manager: Manager) -> None:
    now = [0.0]
    own = make(manager, lambda: now[0], WATCHDOG_USEC="1000", WATCHDOG_PID=str(os.getpid()))
    for _ in range(2):
        now[0] += 1
        own.beat(lambda: "fine")
    assert "WATCHDOG=1" in manager.listen()


def test_programs_that_a_service_starts_are_not_the_service(manager: Manager) -> None:
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/root"}
    ServiceManager(environment)
    assert environment == {"HOME": "/root"}


def test_nobody_listens(tmp_path: Path) -> None:
    for variables in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        own = ServiceManager(dict(variables))
        own.beat(lambda: "fine")
        own.stopping()


def test_a_manager_that_does_not_read_delays_nothing(manager: Manager) -> None:
    own = make(manager)
    for _ in range(10_000):
        own.reloaded()


@pytest.mark.slow
def test_a_hub_tells_that_it_is_ready_reloads_lives_and_stops(manager: Manager, tmp_path: Path) -> None:
    hub, _ = make_hub_on_files(tmp_path)
    with ending(hub):
        hub.start(env=manager.environment(WATCHDOG_USEC="400000"))
        wait_for(lambda: "READY=1" in manager.listen(), lambda: hub.words)
        wait_for(lambda: manager.listen().count("WATCHDOG=1") >= 2, lambda: hub.words)
        assert any(line.startswith("STATUS=0 reports; missing: ams, fra, nyc") for line in manager.heard)
        hub.process.send_signal(signal.SIGHUP)
        wait_for(lambda: manager.listen().count("READY=1") == 2, lambda: hub.words)
        reload = manager.heard[manager.heard.index("RELOADING=1") :]
        assert reload.index("READY=1") > 0
        assert "STOPPING=1" not in manager.heard
        assert hub.end() == 0
        assert manager.listen()[-1] == "STOPPING=1"


@pytest.mark.slow
def test_an_edge_and_a_watch_tell_the_same(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    write(tmp_path / "captures" / "a.pcap", three_windows())
    edge = make_edge(tmp_path, "ams", ["--to", str(tmp_path / "link")], str(tmp_path / "captures"))
    watch = Node(tmp_path / "watch.log", "watch", str(tmp_path / "captures"), "--json")
    for node, status in ((edge, 0), (watch, 128 + signal.SIGTERM)):
        manager = Manager(str(tmp_path / f"{node.arguments[0]}.socket"))
        with manager.socket, ending(node):
            node.start(env=manager.environment(WATCHDOG_USEC="400000"))
            wait_for(lambda manager=manager: "WATCHDOG=1" in manager.listen(), lambda node=node: node.words)
            assert manager.heard[0] == "READY=1"
            assert node.end() == status
            assert "STOPPING=1" in manager.listen()


def test_a_service_is_ready_when_traffic_can_come(manager: Manager) -> None:
    """The main loop may move before the thread of a capture has opened its ring."""
    monitor, why = Monitor("watch", manager=make(manager)), ["a capture is not open"]
    monitor.why_closed = lambda: why[0]
    monitor.beat()
    assert manager.listen() == []
    why[0] = ""
    monitor.beat()
    assert manager.listen()[0] == "READY=1"
    why[0] = "the interface is gone"
    monitor.beat()  # The main loop lives all the same, and goes on feeding the watchdog.
    assert monitor._is_open


@pytest.mark.slow
def test_a_main_loop_that_hangs_does_not_feed_the_watchdog(tmp_path: Path) -> None:
    """Although other threads of the hub live: the endpoint still answers, and says that it is dead."""
    manager, switch = Manager(str(tmp_path / "notify")), tmp_path / "hang"
    hub, _ = make_hub_on_files(tmp_path, "--metrics", ":0")
    code = HANG.replace("sys.argv[0]", repr(str(switch)))
    hub.runner = ("-c", code)
    with manager.socket, ending(hub):
        hub.start(env=manager.environment(WATCHDOG_USEC="400000"))
        wait_for(lambda: "WATCHDOG=1" in manager.listen(), lambda: hub.words)
        switch.touch()
        wait_for(lambda: ask(f"{endpoint(hub)}/healthz").status == 503, lambda: hub.words)
        before = len(manager.listen())
        answer = ask(f"{endpoint(hub)}/healthz")
        assert answer.text.startswith("the main loop has not moved for ")
        assert len(manager.listen()) == before
