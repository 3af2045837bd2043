"""What services (`edge` and `hub`) share: background threads, the log, reloading, the status file."""

from __future__ import annotations

import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from superhosts.cli._console import has_log, rendered, say_traceback, tell, use_log
from superhosts.cli._systemd import ServiceManager
from superhosts.core.files import set_aside_and_report, write_json
from superhosts.core.notices import WARNING, Notice
from superhosts.errors import OutputError, SuperhostsError
from superhosts.output.streams import Log, raw_stream

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
        """A service manager is told when a reload begins and ends."""
        self.failed: dict[str, str] = {}  # what the last reload could not reload, and why
        self._manager = manager
        self._asked = False
        self._parts: dict[str, Callable[[], None]] = {}

    def add(self, name: str, work: Callable[[], None]) -> None:
        """Call `work` at each reload."""
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


class Status:
    """A small file with all counters, replaced every few seconds: for people, scripts and monitoring."""

    def __init__(self, path: Path, **parts: Any) -> None:
        self._path = path
        self._parts = parts
        self._last = 0.0
        self._failed = ""  # why the last write failed

    def write(self, *, now: bool = False) -> None:
        """Write the counters, at most every few seconds unless `now`."""
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
