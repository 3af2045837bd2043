"""Signals that end a program, and those that reload a service.

`timeout` and some supervisors signal a process and then its whole process group, so one request to stop arrives as two
signals within a moment. Only a signal that comes some time after the first one is a second request, from somebody who
does not want to wait.
"""

from __future__ import annotations

import _thread
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ECHO_SECONDS = 0.5  # signals closer together are one request
_held: list[int] = []  # a SIGHUP that came while the service was starting


class StopRequests:
    """Tells the first request to stop from its echoes and from a second request.

    A signal may interrupt the handler of an earlier one anywhere.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._signals = itertools.count()
        self._first: float | None = None

    def note(self) -> int:
        """Note a signal; return 1 for the first request, 2 for a second one, 0 for an echo of the first."""
        now = self._clock()
        if next(self._signals) == 0:
            self._first = now
            return 1
        return 2 if self._first is not None and now - self._first >= ECHO_SECONDS else 0


def set_safely(event: threading.Event) -> None:
    """Set an event from a signal handler: in a thread, because the interrupted code may hold the event's lock."""
    _thread.start_new_thread(event.set, ())


def end_at_once(number: int) -> None:
    """End this process as the signal would without a handler."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


class Interruption:
    """The first SIGINT or SIGTERM stops the work in an orderly way, a second one ends the process at once."""

    def __init__(
        self,
        stop: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self.number: int | None = None  # of the first signal
        self._stop, self._end = stop, end
        self._requests = StopRequests(clock)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # ignored: a shell's background job
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        request = self._requests.note()
        if request == 2:
            self._end(128 + number)
        if request == 1:
            self.number = number
            self._stop()


@contextmanager
def sighup_held() -> Iterator[None]:
    """Hold a SIGHUP that comes while a service starts, for `ended_by_signals`; by default it would end the service."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL or _has_terminal():
        yield
        return
    signal.signal(signal.SIGHUP, lambda number, _frame: _held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        _held.clear()


@contextmanager
def ended_by_signals(
    stop: Callable[[], None],
    reload: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    end: Callable[[int], None] = end_at_once,
) -> Iterator[None]:
    """Let the first SIGTERM, SIGINT or SIGHUP stop the work in an orderly way, and a second one end it at once.

    With `reload`, SIGHUP calls that instead, unless the terminal has closed, which sends SIGHUP, too. If SIGHUP is
    ignored (nohup), it stays ignored.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]
    had_terminal = _has_terminal()
    requests = StopRequests(clock)

    def handle(number: int, _frame: Any) -> None:
        if number == signal.SIGHUP and reload is not None and not (had_terminal and not _has_terminal()):
            reload()
            return
        request = requests.note()
        if request == 2:
            end(number)
        if request == 1:
            stop()

    for number in before:
        signal.signal(number, handle)
    _raise_held()
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def reloaded_by_sighup(reload: Callable[[], None]) -> Iterator[None]:
    """Let SIGHUP call `reload`, or stop the work like SIGTERM if the terminal has closed; ignored, it stays so."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    had_terminal = _has_terminal()

    def handle(_number: int, _frame: Any) -> None:
        if had_terminal and not _has_terminal():
            signal.raise_signal(signal.SIGTERM)
        else:
            reload()

    signal.signal(signal.SIGHUP, handle)
    _raise_held()
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _raise_held() -> None:
    """Raise a SIGHUP that came while the service was starting."""
    if _held:
        _held.clear()
        signal.raise_signal(signal.SIGHUP)


def _has_terminal() -> bool:
    """Return True if this process has a controlling terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
