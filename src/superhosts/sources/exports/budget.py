"""How much work an exporter may cause with new templates.

Templates are read in Python, far more slowly than records. A template that is known costs nothing, so an exporter that
means well needs a budget only when it starts. One that sends ever new templates is refused when its own is spent; those
that were never heard of before share one, because a source address can be forged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

BURST = 500_000  # bytes of templates of all new exporters together
RATE = 50_000  # bytes of them in a second
BURST_EACH = 65_536  # bytes of templates of one exporter that is established
RATE_EACH = 2_000
MOST_NAMES = 4096


class Bucket:
    """A budget that fills up again with time."""

    def __init__(self, burst: int, rate: int, now: float) -> None:
        self._burst, self._rate = burst, rate
        self._left, self._then = float(burst), now

    def spend(self, amount: int, now: float) -> bool:
        """Take an amount; return False if it is not there."""
        self._left = min(self._burst, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < amount:
            return False
        self._left -= amount
        return True


class Budget:
    """The budgets of all exporters."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shared = Bucket(BURST, RATE, clock())
        self._own: dict[Hashable, Bucket] = {}

    def allows(self, name: Hashable, amount: int, *, is_established: bool) -> bool:
        """Return True if an exporter may send so many bytes of new templates now."""
        now = self._clock()
        if not is_established:
            return self._shared.spend(amount, now)
        if name not in self._own and len(self._own) >= MOST_NAMES:
            del self._own[next(iter(self._own))]
        return self._own.setdefault(name, Bucket(BURST_EACH, RATE_EACH, now)).spend(amount, now)
