"""Whether a program lives, and whether it takes traffic.

It lives as long as its main loop moves: the loop itself beats, once for each round, so a loop that hangs is noticed
although other threads still run. It is ready if nothing that it was told to look at says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STALLED = 120.0  # seconds between two beats: the largest windows take less
STARTING = 600.0  # seconds until the first: a slow machine compiles for minutes

Reason = Callable[[], str]  # why the program is not ready; empty if it is


class Health:
    """The beats of a main loop, and the conditions of being ready. Any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, stalled: float = STALLED) -> None:
        self._clock, self._stalled = clock, stalled
        self._last = clock()
        self._has_begun = False
        self._reasons: list[Reason] = []

    def beat(self) -> None:
        """Note that the main loop moves. It does this very often, so it must cost nothing."""
        self._last = self._clock()
        self._has_begun = True

    @property
    def has_begun(self) -> bool:
        """True from the first beat on."""
        return self._has_begun

    def look_at(self, reason: Reason) -> None:
        """Ask this for readiness, too."""
        self._reasons.append(reason)

    def why_dead(self) -> str:
        """Return why the program does not live; empty if it does."""
        silent, allowed = self._clock() - self._last, self._stalled if self._has_begun else STARTING
        return f"the main loop has not moved for {silent:.0f} s" if silent > allowed else ""

    def why_not_ready(self) -> list[str]:
        """Return why the program takes no traffic; an empty list if it does."""
        if not self._has_begun:
            return ["starting"]
        found = [self.why_dead(), *(reason() for reason in self._reasons)]
        return [each for each in found if each]
