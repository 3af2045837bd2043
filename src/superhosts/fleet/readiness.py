"""How long a window waits for the other sites, and which windows tell who the other sites are.

A window waits from its first sketch on. But a sketch may come before its window has ended: the clock of its site is
ahead, or its edge was stopped within the window. Then the other sites cannot have sent theirs, and the wait begins with
the end of the window. So a wrong clock never closes the windows of others before they had their time.

A window that lies further ahead is reported soon: its time may never come, if it is a clock that was years ahead. If it
comes, the sketches of the other sites wait for each other as in any other window.
"""

from __future__ import annotations

from typing import NamedTuple

from superhosts.core.pairs import Window
from superhosts.core.units import SECOND
from superhosts.fleet.clock import TOLERANCE
from superhosts.fleet.ledger import Ledger
from superhosts.fleet.limits import FUTURE


class Wait(NamedTuple):
    """The wait of a window for further sketches, in seconds by this machine's clock."""

    since: float
    pause: float
    for_all: bool  # it ends when all expected sites are there
    ahead: float = 0.0  # how far `since` may lie in the future; further, and the clock was set back

    def is_over(self, now: float) -> bool:
        """Return True if the window has waited long enough."""
        return not -self.ahead <= now - self.since < self.pause


def wait_of(window: Window | None, ledger: Ledger, now: float, grace: float, late_pause: float) -> Wait:
    """Return the wait of a window that has something to report. `late_pause` is that of a window that was reported."""
    start, end = (0.0, 0.0) if window is None else (window.start / SECOND, window.end / SECOND)
    if ledger.issued is not None:
        too_soon = ledger.first < end - FUTURE and bool(ledger.issued.missing)
        return Wait(ledger.unreported, grace if too_soon else min(grace, late_pause), for_all=too_soon)
    if ledger.unreported < end and start - FUTURE <= now:
        return Wait(end, grace, for_all=True, ahead=end - start + FUTURE)
    return Wait(ledger.unreported, grace, for_all=True)


def is_timely(window: Window | None, ledger: Ledger) -> bool:
    """Return True if the first sketch of a window came about when the window ended."""
    return window is not None and -FUTURE <= ledger.first - window.end / SECOND <= TOLERANCE
