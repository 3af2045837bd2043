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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from superhosts.jit.compilation import stop_compiling

ECHO_SECONDS = 0.5  # signals closer together are one request
ENDING = (signal.SIGINT, signal.SIGTERM)
_held: list[int] = []  # a SIGHUP that came while the service was starting


def set_safely(event: threading.Event) -> None:
    """Set an event from a signal handler: in a thread, because the interrupted code may hold the event's lock."""
    _thread.start_new_thread(event.set, ())


class Interruption:
    """The first SIGINT, SIGTERM or SIGHUP stops the work in an orderly way, a second one ends the process at once.

    With `reload`, SIGHUP calls that instead, unless the terminal has closed, which sends SIGHUP, too. A signal that is
    ignored (nohup, a shell's background job) stays so. A signal may interrupt the handler of an earlier one anywhere.
    """

    def __init__(
        self,
        stop: Callable[[], None],
        reload: Callable[[], None] | None = None,
        *,
        numbers: Sequence[int] = (*ENDING, signal.SIGHUP),
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self.number: int | None = None  # of the first signal
        self._stop, self._reload, self._numbers = stop, reload, numbers
        self._clock, self._end = clock, end
        self._signals, self._first = itertools.count(), 0.0
        self._had_terminal = _has_terminal()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
            if _held and signal.SIGHUP in self._before:
                _held.clear()
                signal.raise_signal(signal.SIGHUP)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        has_closed = self._had_terminal and not _has_terminal()
        if number == signal.SIGHUP and self._reload is not None and not has_closed:
            self._reload()
        elif next(self._signals) == 0:
            self.number, self._first = number, self._clock()
            stop_compiling()
            self._stop()
        elif self._first and self._clock() - self._first >= ECHO_SECONDS:
            self._end(128 + number)


@contextmanager
def sighup_held() -> Iterator[None]:
    """Hold a SIGHUP that comes while a service starts, for its `Interruption`; by default it would end the service."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL or _has_terminal():
        yield
        return
    signal.signal(signal.SIGHUP, lambda number, _frame: _held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        _held.clear()


def _has_terminal() -> bool:
    """Return True if this process has a controlling terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
