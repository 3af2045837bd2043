"""What services (`edge` and `hub`) share: the service manager, background threads, the log, reloading, the status file.

A service manager (systemd, `Type=notify`) gets one datagram for each message, at the socket that NOTIFY_SOCKET names.
Without it, or if it cannot be reached, nothing happens: no message is worth a delay. The watchdog is fed by the main
loop, between two rounds of its work: a thread of its own would go on feeding it while the loop hangs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from superhosts.core.files import read_json, set_aside_and_report, write_json
from superhosts.core.notices import WARNING, Notice
from superhosts.errors import OutputError, SuperhostsError
from superhosts.output.console import has_log, rendered, say_traceback, tell, use_log
from superhosts.output.streams import Log, raw_stream

FEEDS = 4  # messages within the time that the watchdog allows
SHOWN = 5.0  # seconds between two status texts


class ServiceManager:
    """The service manager that started this process; one that hears nothing if there is none."""

    def __init__(
        self, environment: MutableMapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the variables, and remove them: programs that this one starts are not the service."""
        address = environment.pop("NOTIFY_SOCKET", "")
        limit, owner = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._clock = clock
        self._is_ready = False
        self._pause: float | None = None  # seconds between two feeds of the watchdog
        self._fed = self._shown = 0.0
        if limit.isdigit() and int(limit) and owner in ("", str(os.getpid())):
            self._pause = int(limit) / 1e6 / FEEDS

    def beat(self, status: Callable[[], str]) -> None:
        """Take note that the main loop moves. The first time, the service is ready; `status` says how it is."""
        if not self._address:
            return
        now = self._clock()
        if not self._is_ready:
            self._is_ready = True
            self._fed = self._shown = now
            self._send("READY=1", f"STATUS={status()}")
            return
        if self._pause is not None and now - self._fed >= self._pause:
            self._fed = now
            self._send("WATCHDOG=1")
        if now - self._shown >= SHOWN:
            self._shown = now
            self._send(f"STATUS={status()}")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        self._send("READY=1")

    def stopping(self) -> None:
        """Tell that the service ends. Safe in a signal handler."""
        self._send("STOPPING=1")
        self._address = ""  # nothing else is worth telling

    def _send(self, *lines: str) -> None:
        if self._address:
            text = "\n".join(line.replace("\n", " ") for line in lines)
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
                made.setblocking(False)
                made.sendto(text.encode(errors="replace"), self._address)


STATUS = "status.json"  # of an edge or a hub, in its folder
STATUS_SECONDS = 5.0  # between two writes of the status file


@contextmanager
def log_in_background() -> Iterator[None]:
    """Write messages in a thread of its own: a standard error that nobody reads must not block a service."""
    stream = raw_stream(sys.stderr)
    if stream is None or has_log():
        yield
        return
    log = Log(stream, render=rendered)
    use_log(log)
    try:
        yield
    finally:
        if log.close():
            use_log(None)  # otherwise the last lines of the program would wait for standard error, too


@contextmanager
def in_background(name: str, work: Callable[[], None], stop: threading.Event) -> Iterator[None]:
    """Run `work` in a thread that `stop` ends. An unexpected error there is shown and ends the whole program."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
            say_traceback(traceback.format_exc())
            signal.raise_signal(signal.SIGTERM)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
    if failed:
        raise SuperhostsError(f"ended: the thread {name!r} failed ({failed[0]!r}): please report this")


class Reloads:
    """What SIGHUP reloads. The loop of the service does it, because little is safe inside a signal handler."""

    def __init__(self, manager: ServiceManager | None = None) -> None:
        self.failed: dict[str, str] = {}  # what the last reload could not reload, and why
        self._manager = manager
        self._asked = False
        self._parts: dict[str, Callable[[], None]] = {}

    def add(self, name: str, work: Callable[[], None]) -> None:
        self._parts[name] = work

    def ask(self) -> None:
        """Request a reload. Safe in a signal handler."""
        self._asked = True

    def run_if_asked(self) -> None:
        """Reload if that was requested; a part that fails stays as it was."""
        if not self._asked:
            return
        self._asked = False
        if self._manager is not None:
            self._manager.reloading()
        done: list[str] = []
        self.failed = {}
        for name, work in self._parts.items():
            try:
                work()
                done.append(name)
            except (SuperhostsError, OSError) as error:
                self.failed[name] = str(error)
                tell(Notice(f"NOT RELOADED: {name}: {error}", "not-reloaded", WARNING))
        if done or not self._parts:
            text = f"reloaded: {', '.join(done) or 'nothing, as there is nothing to reload'}"
            tell(Notice(text, "reloaded", parts=done))
        if self._manager is not None:
            self._manager.reloaded()


def read_status(path: Path) -> dict[str, Any]:
    """Return what a service has written last; empty if nothing is there, or the file is damaged."""
    with contextlib.suppress(OSError):
        status = read_json(path)
        if isinstance(status, dict):
            return status
    return {}


class Status:
    """A small file with all counters, replaced every few seconds: for people, scripts and monitoring."""

    def __init__(self, path: Path, **parts: Any) -> None:
        self._path = path
        self._parts = parts
        self._last = 0.0
        self._failed = ""  # why the last write failed

    def write(self, *, now: bool = False) -> None:
        if not now and time.monotonic() - self._last < STATUS_SECONDS:
            return
        self._last = time.monotonic()
        content = {name: asdict(part) if not callable(part) else part() for name, part in self._parts.items()}
        failed = ""
        try:
            if self._path.is_dir():
                set_aside_and_report(self._path, "a folder in place of the status", tell)
            write_json(self._path, {"written": time.time(), **content}, durable=False)
        except (OSError, OutputError) as error:
            failed = getattr(error, "strerror", None) or str(error)
        if failed and not self._failed:
            tell(Notice(f"{self._path}: NOT WRITTEN: {failed}; retrying until it works", "not-written", WARNING))
        elif self._failed and not failed:
            tell(Notice(f"{self._path}: written again", "recovered"))
        self._failed = failed
