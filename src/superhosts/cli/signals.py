"""When a signal asks a second time to end.

`timeout` and some supervisors signal a process and then its whole process group: one wish arrives as two signals within
a moment. Only a signal some time after the first is a second wish, by somebody who does not want to wait.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

APART = 0.5  # seconds between two wishes


class Wishes:
    """Tells the first wish to end, its echoes and a second wish apart."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: float | None = None

    def is_second(self) -> bool:
        """Note that a signal has come; return True if it is a second wish."""
        now = self._clock()
        if self._first is None:
            self._first = now
        return now - self._first >= APART


def end_at_once(number: int) -> None:
    """End this process as the signal would have without a handler."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
