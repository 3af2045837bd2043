"""When a signal asks a second time to end.

`timeout` and some supervisors signal a process and then its whole process group: one wish arrives as two signals within
a moment. Only a signal some time after the first is a second wish, by somebody who does not want to wait.
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

APART = 0.5  # seconds between two wishes
_held: list[int] = []  # a SIGHUP that came before anybody could act on it


class Wishes:
    """Tells the first wish to end, its echoes and a second wish apart.

    A signal may interrupt the handler of the one before it at any place.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._signals = itertools.count()
        self._first: float | None = None

    def note(self) -> int:
        """Note that a signal has come; return 1 for the first wish, 2 for a second one, 0 for an echo of the first."""
        now = self._clock()
        if next(self._signals) == 0:
            self._first = now
            return 1
        return 2 if self._first is not None and now - self._first >= APART else 0


def set_safely(event: threading.Event) -> None:
    """Set an event from a signal handler: in a thread, as the code that was interrupted may hold the event's lock."""
    _thread.start_new_thread(event.set, ())


def end_at_once(number: int) -> None:
    """End this process as the signal would have without a handler."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


class Interruption:
    """The first SIGINT or SIGTERM stops the work in good order, a second one ends the process at once."""

    def __init__(self, stop: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.number: int | None = None  # of the signal that came
        self._stop = stop
        self._wishes = Wishes(clock)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell sets it for what runs in the background
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        wish = self._wishes.note()
        if wish == 2:
            os._exit(128 + number)
        if wish == 1:
            self.number = number
            self._stop()


@contextmanager
def sighup_held() -> Iterator[None]:
    """Keep a SIGHUP that comes while a service starts for `ended_by_signals`; by default it would end the service."""
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
) -> Iterator[None]:
    """Let the first SIGTERM, SIGINT or SIGHUP end the work in good order; the second ends it at once.

    With `reload`, SIGHUP calls that instead, unless the terminal has closed, which sends SIGHUP, too. Where SIGHUP is
    ignored (nohup) it stays so.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]
    had_terminal = _has_terminal()
    wishes = Wishes(clock)

    def handle(number: int, _frame: Any) -> None:
        if number == signal.SIGHUP and reload is not None and not (had_terminal and not _has_terminal()):
            reload()
            return
        wish = wishes.note()
        if wish == 2:
            end_at_once(number)
        if wish == 1:
            stop()

    for number in before:
        signal.signal(number, handle)
    if _held:
        _held.clear()
        signal.raise_signal(signal.SIGHUP)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _has_terminal() -> bool:
    """Return True if this process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
