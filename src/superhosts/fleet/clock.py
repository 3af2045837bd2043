"""Whether this machine's clock is plausible enough to remove files by age.

A clock that is months ahead at start makes every file look old. So nothing is removed by age until the clock agrees
with other evidence: it continues from the last time that a hub worked here (the modification time of a file in the
state folder, otherwise of the newest file), or at least half of all sites send windows of the current time; more than
one, if more than one is known, since a single site may share the hub's time source. The monotonic clock shows if the
clock was set while the hub runs. Without any evidence, an operator confirms the clock with `touch`. A watch has no
sites, so it believes a clock in doubt after some time (`patience`), in which somebody can set it right.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from superhosts.core.files import open_fresh
from superhosts.core.notices import WARNING, Notice
from superhosts.core.times import age_text, iso_time
from superhosts.core.units import SECOND
from superhosts.fleet.link import Say

RECORD = "clock"  # the file in the state folder whose modification time is the last plausible time
TOLERANCE = 3600.0  # seconds that two clocks may differ, or that a hub may be down, without raising doubt


@dataclass(frozen=True)
class TimeSource:
    """Where a hub gets the time from, in seconds."""

    wall: Callable[[], float] = time.time  # since 1970; somebody may set it
    steady: Callable[[], float] = time.monotonic


THIS_MACHINE = TimeSource()


class Clock:
    """Judges this machine's clock. `newest` returns the modification time of the newest file, 0 if there is none.

    `patience`: seconds that it may be off, and after which it is believed all the same, if no sites can vouch for it.
    """

    def __init__(
        self,
        record: Path,
        newest: Callable[[], float],
        say: Say,
        times: TimeSource = THIS_MACHINE,
        patience: float | None = None,
    ) -> None:
        self.doubt: str | None = None  # why the clock is not trusted
        self._times, self._record, self._say = times, record, say
        self._tolerance, self._patience = max(TOLERANCE, patience or 0.0), patience
        recorded = self._recorded()
        self._believed = recorded or newest() or times.wall()
        self._steady = self._doubted = times.steady()
        if recorded is None:  # Files written while the clock is in doubt must not count as evidence at the next start.
            self._record_time(self._believed)

    @property
    def believed(self) -> float:
        """The last plausible time, in seconds since 1970."""
        return self._believed

    def is_believed(self, heard: Mapping[str, int], known: Set[str] = frozenset()) -> bool:
        """Judge the clock again; return True if files may be removed by age.

        `heard` maps each site to the end (ns) of the window of its latest sketch since the start. `known` has all sites
        that belong to the fleet, heard or not.
        """
        now = self._times.wall()
        expected = self._believed + self._times.steady() - self._steady
        ends = dict(heard)
        agreeing = sum(abs(now - end / SECOND) <= TOLERANCE for end in ends.values())
        fleet = known | ends.keys()
        by_sites = 2 * agreeing >= len(fleet) and (agreeing > 1 or len(fleet) == len(known) == 1)
        by_hand = self.doubt is not None and abs(now - (self._recorded() or 0.0)) <= TOLERANCE
        waited = self.doubt is not None and self._times.steady() - self._doubted >= (self._patience or math.inf)
        if abs(now - expected) <= self._tolerance or by_sites or by_hand or waited:
            if self.doubt is not None:
                self.doubt = None
                self._say(Notice("the clock is plausible again: old files are removed", "recovered"))
            self._believed, self._steady = now, self._times.steady()
            self._record_time(now)
            return True
        if self.doubt is None:
            self._doubted, who = self._times.steady(), "hub" if self._patience is None else "watch"
            self.doubt = f"it shows {_iso(now)}, and this {who} last worked at {_iso(expected)}"
            until = "until at least half of the sites send windows of this time"
            if self._patience is not None:
                until = f"for the next {age_text(self._patience)}, so set the clock if it is wrong"
            way = f"nothing is removed by age {until}; if it is right: touch {self._record}"
            self._say(Notice(f"CLOCK IN DOUBT: {self.doubt}; {way}", "clock-in-doubt", WARNING))
        return False

    def _record_time(self, moment: float) -> None:
        with contextlib.suppress(OSError):  # a full disk is reported elsewhere
            if not self._record.exists():
                open_fresh(self._record).close()
            os.utime(self._record, (moment, moment))

    def _recorded(self) -> float | None:
        try:
            return self._record.lstat().st_mtime
        except OSError:
            return None


def age_of(written: float, end: int, now: float) -> float:
    """Return the seconds since a file of a window was written, or since the window's end (ns) if that is later.

    The end is later if this machine's clock was slow when the file was written.
    """
    return now - max(written, end / SECOND if end / SECOND <= now else 0.0)


def _iso(seconds: float) -> str:
    return iso_time(int(seconds) * SECOND)
