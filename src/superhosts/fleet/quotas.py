"""How much one site may send in a minute. What is more waits; nothing is refused and nothing is lost.

Over NATS it waits in the queue, of which a site has its share, and then at the edge. By files it waits in the folder.
So a site that floods the hub slows itself down, and takes neither the disk nor the turns of others.

A site may save up one minute: an edge that catches up begins quickly. One sketch larger than a whole minute's bytes is
taken when nothing else was for a minute.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import counted
from superhosts.core.units import format_size
from superhosts.fleet.limits import LimitedSay
from superhosts.fleet.receipts import Say
from superhosts.fleet.roster import MOST_SITES, Roster

MINUTE = 60.0


@dataclass(frozen=True)
class Quota:
    """What one site may send in a minute; None: any amount."""

    bytes: int | None = None
    sketches: int | None = None

    @property
    def amounts(self) -> tuple[float, float]:
        """Bytes and sketches, without an end if any amount is allowed."""
        return math.inf if self.bytes is None else self.bytes, math.inf if self.sketches is None else self.sketches

    def __str__(self) -> str:
        parts = [] if self.bytes is None else [format_size(self.bytes)]
        parts += [] if self.sketches is None else [counted(self.sketches, "sketch", "sketches")]
        return f"{' and '.join(parts) or 'any amount'} a minute"


NO_QUOTA = Quota()


class _Account:
    """What a site has left of its quota."""

    def __init__(self, quota: Quota, now: float) -> None:
        self._quota, self._at = quota, now
        self.left = [float(most) for most in quota.amounts]
        self.slowed: float | None = None  # when it last had to wait

    def save_up(self, now: float) -> None:
        """Add what the time since the last call gives, up to a whole minute."""
        minutes, self._at = (now - self._at) / MINUTE, now
        self.give([most * minutes if most < math.inf else 0.0 for most in self._quota.amounts])

    def give(self, amounts: list[float]) -> None:
        """Add something."""
        most = self._quota.amounts
        self.left = [min(each, has + more) for each, has, more in zip(most, self.left, amounts, strict=True)]

    def take(self, amounts: list[float]) -> bool:
        """Take something off if enough is left, or all of a minute."""
        most = self._quota.amounts
        fits = all(has >= min(need, each) for each, has, need in zip(most, self.left, amounts, strict=True))
        if fits:
            self.left = [has - need for has, need in zip(self.left, amounts, strict=True)]
        return fits


class Quotas:
    """The accounts of all sites. Safe to use from several threads."""

    def __init__(
        self,
        quota: Quota = NO_QUOTA,
        *,
        roster: Roster | None = None,
        say: Say = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.quota = quota
        self.roster = Roster() if roster is None else roster
        self._say = LimitedSay(say, clock=clock)
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._lock = threading.Lock()

    def allows(self, site: str, *, bytes: int = 0, sketches: int = 0) -> bool:
        """Return True, and take it off the quota, if a site may send so much now."""
        if self.quota == NO_QUOTA:
            return True
        with self._lock:
            account = self._account(site)
            if account.take([bytes, sketches]):
                return True
            account.slowed = self._clock()
        self.roster.slowed(site)
        self._say(
            site,
            "times over its quota",
            Notice(f"SLOWED: {site} is over its quota, {self.quota}; the rest waits", "slowed", WARNING),
        )
        return False

    def give_back(self, site: str, bytes: int) -> None:
        """Undo what `allows` has taken off a quota for bytes that were not used."""
        with self._lock:
            self._account(site).give([bytes, 0])

    def _account(self, site: str) -> _Account:
        found = self._accounts.get(site)
        if found is None:
            if len(self._accounts) >= MOST_SITES:  # more must be invented
                self._accounts = {}
            found = self._accounts[site] = _Account(self.quota, self._clock())
        found.save_up(self._clock())
        return found

    def notice(self, site: str) -> str:
        """Return what the operator of a site should know; empty if it had not to wait for a minute."""
        with self._lock:
            found = self._accounts.get(site)
            slowed = found is not None and found.slowed is not None and self._clock() - found.slowed < MINUTE
        return f"this site is over its quota, {self.quota}: its sketches wait" if slowed else ""
