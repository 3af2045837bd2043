"""This machine's clock, and whether it is believed where it decides what is removed.

A clock that is months ahead at a start makes everything look old. So nothing is removed by age before the clock agrees
with what is known: it goes on from the last time that a hub worked here (a file's time, kept in the state folder; else
the newest file), or at least half of all sites send windows of this time, and more than one where more are known: a
site may have its time from where the hub has it. A clock that was set while the hub runs is told by the
machine's steady one. Where nothing can agree (captures of last year, after a long rest) an operator says so by `touch`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path

from superhosts.fleet.receipts import Say
from superhosts.replacing import open_fresh
from superhosts.times import iso_time
from superhosts.units import SECOND

RECORD = "clock"  # the file in the state folder whose time is the last that was believed
NEAR = 3600.0  # seconds that two clocks may differ, and that a hub may rest, without a doubt


class Clock:
    """Tells whether the time of this machine can be true. `newest` gives the time of the newest file, 0 for none."""

    def __init__(self, record: Path, newest: Callable[[], float], say: Say) -> None:
        self.doubt: str | None = None  # why it is not believed
        self._record = record
        self._say = say
        recorded = self._recorded()
        self._believed = recorded or newest() or time.time()
        self._steady = time.monotonic()
        if recorded is None:  # files that are written while the clock is in doubt must prove nothing at the next start
            self._record_time(self._believed)

    @property
    def believed(self) -> float:
        """The last time that was believed, in seconds since 1970."""
        return self._believed

    def is_believed(self, heard: Mapping[str, int], known: Set[str] = frozenset()) -> bool:
        """Look again. `heard` has the end (ns) of the window that each site's last sketch since the start was of.

        `known` has the sites that belong to the fleet, heard or not.
        """
        now = time.time()
        expected = self._believed + time.monotonic() - self._steady
        ends = dict(heard)
        agreeing = sum(abs(now - end / SECOND) <= NEAR for end in ends.values())
        fleet = known | ends.keys()
        by_sites = 2 * agreeing >= len(fleet) and (agreeing > 1 or len(fleet) == len(known) == 1)
        by_hand = self.doubt is not None and abs(now - (self._recorded() or 0.0)) <= NEAR
        if abs(now - expected) <= NEAR or by_sites or by_hand:
            self._believe(now)
            return True
        if self.doubt is None:
            self.doubt = f"it shows {_iso(now)}, and this hub last worked at {_iso(expected)}"
            way = (
                "nothing is removed by age until at least half of the sites send windows of this time; "
                f"if it is right: touch {self._record}"
            )
            self._say(f"CLOCK IN DOUBT: {self.doubt}; {way}")
        return False

    def _believe(self, now: float) -> None:
        if self.doubt is not None:
            self.doubt = None
            self._say("the clock is believed again: what is too old is removed")
        self._believed, self._steady = now, time.monotonic()
        self._record_time(now)

    def _record_time(self, moment: float) -> None:
        with contextlib.suppress(OSError):  # a full disk is said elsewhere
            if not self._record.exists():
                open_fresh(self._record).close()
            os.utime(self._record, (moment, moment))

    def _recorded(self) -> float | None:
        try:
            return self._record.lstat().st_mtime
        except OSError:
            return None


def age_of(written: float, end: int, now: float) -> float:
    """Return the seconds since something of a window was written; since the window's end (ns) where that is later.

    The end is later where this machine's clock was behind at the time of writing.
    """
    return now - max(written, end / SECOND if end / SECOND <= now else 0.0)


def _iso(seconds: float) -> str:
    return iso_time(int(seconds) * SECOND)
