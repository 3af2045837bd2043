"""When a signal asks a second time to end.

`timeout` and some supervisors signal a process and then its whole process group: one wish arrives as two signals within
a moment. Only a signal some time after the first is a second wish, by somebody who does not want to wait.
"""

from __future__ import annotations

import _thread
import itertools
import signal
import threading
import time
from collections.abc import Callable

APART = 0.5  # seconds between two wishes


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
