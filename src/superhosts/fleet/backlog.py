"""How far a service is with what waited on disk when it started: told at intervals, and for monitoring.

A service with gigabytes that wait is ready at once. Nothing of them is read to know how many they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from superhosts.core.notices import Notice
from superhosts.core.units import format_size
from superhosts.fleet.receipts import Say

EVERY = 30.0  # seconds between two lines


class Backlog:
    """Things of an earlier run that wait, by their names, with their bytes."""

    def __init__(
        self,
        what: str,
        waiting: Callable[[], Mapping[str, int] | None],
        say: Say,
        *,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`waiting` returns all that waits now; None: that is not known yet."""
        self._what, self._waiting, self._say = what, waiting, say
        self._every, self._clock = every, clock
        self._first: frozenset[str] | None = None
        self._next = clock() + every
        self._told = -1  # how many were left at the last line
        self.left()

    def left(self) -> tuple[int, int]:
        """Return how many of the first things are left, and their bytes."""
        now = self._waiting()
        if now is None:
            return 0, 0
        if self._first is None:
            self._first = frozenset(now)
        sizes = [size for name, size in now.items() if name in self._first]
        return len(sizes), sum(sizes)

    def tell(self) -> None:
        """Say how far it is, from time to time, until all is done. Costs nothing between two lines."""
        if self._first is None:
            self.left()  # what waits is known from the first moment in which it can be
        if self._clock() < self._next or not self._first:
            return
        self._next = self._clock() + self._every
        left, size = self.left()
        total = len(self._first)
        if left:
            text = f"{self._what}: {total - left:,} of {total:,} done, {format_size(size)} left"
        else:
            text = f"{self._what}: all {total:,} done"
            self._first = frozenset()
        self._say(Notice(text, "backlog", done=total - left, total=total, bytes_left=size))
