"""What services (`edge` and `hub`) share: threads in the background, the log, the status file."""

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

from superhosts.cli._console import has_log, say, tell, use_log
from superhosts.durable import put_aside, write_json
from superhosts.errors import OutputError, SuperhostsError
from superhosts.reports.background import Log
from superhosts.reports.streams import raw_stream

STATUS = 5.0  # seconds between two writings of the status file


@contextmanager
def log_in_background() -> Iterator[None]:
    """Write lines for people in a thread of its own: a standard error that nobody reads must not stop a service."""
    stream = raw_stream(sys.stderr)
    if stream is None or has_log():
        yield
        return
    log = Log(stream)
    use_log(log)
    try:
        yield
    finally:
        if log.close():
            use_log(None)  # otherwise the last lines of the program would wait for standard error, too


@contextmanager
def in_background(name: str, work: Callable[[], None], stop: threading.Event) -> Iterator[None]:
    """Do work in a thread that `stop` ends. An error there that nobody foresaw ends the whole program, and is shown."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
            for line in traceback.format_exc().splitlines():
                say(line)
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
    """What SIGHUP asks for: done in the loop of the service, since little is safe in a signal's handler."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}  # what the last reload did not change, and why
        self._asked = False
        self._parts: dict[str, Callable[[], None]] = {}

    def add(self, name: str, work: Callable[[], None]) -> None:
        """Have something done at each reload."""
        self._parts[name] = work

    def ask(self) -> None:
        """Note that a reload is wanted."""
        self._asked = True

    def look(self) -> None:
        """Reload if that was asked for; what fails stays as it was."""
        if not self._asked:
            return
        self._asked = False
        done: list[str] = []
        self.failed = {}
        for name, work in self._parts.items():
            try:
                work()
                done.append(name)
            except (SuperhostsError, OSError) as error:
                self.failed[name] = str(error)
                tell(f"NOT RELOADED: {name}: {error}")
        if done:
            tell(f"reloaded: {', '.join(done)}")


class Status:
    """A small file with all counters, replaced every few seconds: for people, scripts and monitoring."""

    def __init__(self, path: Path, **parts: Any) -> None:
        self._path = path
        self._parts = parts
        self._last = 0.0
        self._failed = ""  # why it could not be written

    def write(self, *, now: bool = False) -> None:
        """Write the counters if it is time."""
        if not now and time.monotonic() - self._last < STATUS:
            return
        self._last = time.monotonic()
        content = {name: asdict(part) if not callable(part) else part() for name, part in self._parts.items()}
        failed = ""
        try:
            if self._path.is_dir():
                put_aside(self._path, "a folder in place of the status", tell)
            write_json(self._path, {"written": time.time(), **content}, durable=False)
        except (OSError, OutputError) as error:
            failed = getattr(error, "strerror", None) or str(error)
        if failed and not self._failed:
            tell(f"{self._path}: NOT WRITTEN: {failed}; trying again until it works")
        elif self._failed and not failed:
            tell(f"{self._path}: is written again")
        self._failed = failed
