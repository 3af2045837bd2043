"""The sites of a hub: what it knows about each (`Roster`), how much each may send (`Quotas`), log lines (`SiteLog`).

A site tells its release, its spool and its time while its link works (`PeerInfo`); links by files, and edges of earlier
releases, tell nothing of these. All of it is for people. Nothing that is merged depends on it.

The difference of two clocks is what remains of the time between sending and arriving when nothing delays a message. So
of the last few messages the quickest counts: a slow network or a busy hub makes a message late, never early.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from superhosts.core.fields import is_fleet_name
from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import counted, printable
from superhosts.core.units import SECOND, format_size
from superhosts.fleet.clock import THIS_MACHINE, TimeSource
from superhosts.fleet.link import Say
from superhosts.fleet.names import SketchId

STATUS = ("seen", "version", "window_end", "spool_sketches", "spool_bytes", "accepted", "refused", "slowed")
LINES_PER_MINUTE = 5  # in the log, about one site and kind of problem
MINUTE = 60.0
MAX_SUBJECTS = 1_000  # pairs of site and kind that are counted separately; more must be invented names
MOST_SITES = 10_000  # that are remembered; more must be invented
RECENT = 5  # messages of which the quickest counts
ENOUGH = 3  # messages before a clock is judged
LATEST = 1e11  # seconds since 1970; no clock shows more
WRONG = 5.0  # seconds that a clock may differ; less hardly moves pairs to another window


@dataclass
class _Lines:
    since: float
    said: int = 0
    left_out: int = 0


class SiteLog:
    """Logs the first few lines about a site and a kind of problem, then how many more there were in that minute.

    The next line logs that number, or the main loop, which calls `flush`. Safe to use from several threads.
    """

    def __init__(self, say: Say, clock: Callable[[], float]) -> None:
        self._say, self._clock = say, clock
        self._lock = threading.Lock()
        self._accounts: dict[tuple[str, str], _Lines] = {}

    def __call__(self, site: str, kind: str, text: str) -> None:
        self.flush()
        with self._lock:
            subject = (site, kind)
            if subject not in self._accounts and len(self._accounts) >= MAX_SUBJECTS:
                subject = ("other sites", kind)
            account = self._accounts.setdefault(subject, _Lines(self._clock()))
            if account.said >= LINES_PER_MINUTE:
                account.left_out += 1
                return
            account.said += 1
        self._say(text)

    def flush(self) -> None:
        """Log how many lines were left out in the minutes that have ended."""
        with self._lock:
            over = [subject for subject, each in self._accounts.items() if self._clock() - each.since >= MINUTE]
            left_out = {subject: self._accounts.pop(subject).left_out for subject in over}
        for (site, kind), count in left_out.items():
            if count:
                self._say(f"{site}: {count:,} more in a minute: {kind}")


@dataclass
class Site:
    """What is known about one site; None where nothing is."""

    seen: float | None = None  # when something of it arrived, in seconds since 1970
    taken: float | None = None  # when a sketch of it was accepted, since the start of the hub
    version: str | None = None  # its release
    window_end: float | None = None  # end of the window that arrived last, in seconds since 1970
    spool_sketches: int | None = None  # that wait at the edge, as it told last
    spool_bytes: int | None = None
    accepted: int = 0  # sketches since the start of the hub
    refused: int = 0
    slowed: int = 0  # times that it was made to wait because it is over its quota
    mismatch: str = ""  # why it cannot work with this hub, and which end to upgrade
    lags: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))  # seconds from sending to arrival
    clock_said: bool = False

    @property
    def clock(self) -> float | None:
        """How many seconds its clock is ahead of the hub's."""
        return -min(self.lags) if len(self.lags) >= ENOUGH else None


def is_wrong(clock: Any) -> bool:
    """Return True if a clock is known to differ too much from the hub's, by so many seconds."""
    return type(clock) in (int, float) and abs(clock) > WRONG


class Roster:
    """All sites of a hub. Safe to use from several threads."""

    def __init__(self, say: Say = lambda text: None, times: TimeSource = THIS_MACHINE) -> None:
        self.times = times
        self.log = SiteLog(say, times.steady)
        self._sites: dict[str, Site] = {}
        self._lock = threading.Lock()

    @contextmanager
    def _heard(self, site: str) -> Iterator[Site]:
        """Note that something of a site has arrived, and what the block adds."""
        with self._lock:
            found = self._sites.get(site) or Site()
            if site in self._sites or len(self._sites) < MOST_SITES:
                self._sites[site] = found
            found.seen = self.times.wall()
            yield found

    def told(self, site: str, version: str | None, sent: int | None, spool: tuple[int, int] | None) -> None:
        """Note what an edge tells about itself; `sent` is its own time (ns). Log when its clock goes wrong or right."""
        with self._heard(site) as found:
            found.version = version
            found.spool_sketches, found.spool_bytes = spool or (None, None)
            if sent is not None:
                found.lags.append(self.times.wall() - sent / SECOND)
            offset, wrong = found.clock, is_wrong(found.clock)
            if offset is None or wrong == found.clock_said:
                return
            found.clock_said = wrong
            judged = [each for each in self._sites.values() if each.clock is not None]
            alike = sum(is_wrong(each.clock) for each in judged)
        if not wrong:
            self.log(site, "clocks", f"the clock of {site} agrees with this hub's again")
            return
        way = "ahead of" if offset > 0 else "behind"
        who = "this hub's own clock may be wrong, as most sites differ" if alike > 1 and 2 * alike > len(judged) else ""
        advice = who or "its windows are not those of the other sites: run NTP there"
        text = f"CLOCK OF {site}: {abs(offset):,.0f} s {way} this hub's; {advice}"
        self.log(site, "clocks", Notice(text, "clock-of", WARNING))

    def accepted(self, sketch_id: SketchId) -> None:
        with self._heard(sketch_id.site) as found:
            found.accepted += 1
            found.taken = found.seen
            found.window_end = sketch_id.window.end / SECOND

    def refused(self, site: str) -> None:
        with self._heard(site) as found:
            found.refused += 1

    def slowed(self, site: str) -> None:
        with self._heard(site) as found:
            found.slowed += 1

    def mismatched(self, site: str, why: str) -> None:
        """Note that a site cannot work with this hub, or that it can (empty)."""
        with self._heard(site) as found:
            before, found.mismatch = found.mismatch, why
        if why and why != before:
            text = f"NOT TAKEN from {site}: {why}; its sketches wait there"
            self.log(site, "edges of another version", Notice(text, "not-taken", WARNING))

    def taken(self) -> dict[str, float]:
        """Return when a sketch of each site was accepted last, in seconds since 1970; not of those refused."""
        with self._lock:
            return {site: each.taken for site, each in self._sites.items() if each.taken is not None}

    def wrong_clocks(self) -> dict[str, float]:
        """Return the sites whose clocks differ too much from the hub's, and by how many seconds they are ahead."""
        clocks = {site: each["clock"] for site, each in self.status().items()}
        return {site: round(clock, 1) for site, clock in clocks.items() if is_wrong(clock)}

    def status(self) -> dict[str, dict[str, Any]]:
        with self._lock:
            return {
                site: {
                    **{name: getattr(each, name) for name in STATUS},
                    "clock": None if each.clock is None else round(each.clock, 3),
                    "mismatch": each.mismatch,
                }
                for site, each in sorted(self._sites.items())
            }

    def restore(self, content: Any) -> None:
        """Take over what an earlier run of the hub knew, from its status. Counters begin again."""
        for site, entry in content.items() if isinstance(content, dict) else ():
            if isinstance(entry, dict) and is_fleet_name(site) and len(self._sites) < MOST_SITES:
                version = entry.get("version")
                self._sites[site] = Site(
                    seen=_time(entry.get("seen")),
                    version=printable(version) if isinstance(version, str) else None,
                    window_end=_time(entry.get("window_end")),
                )


def _time(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < LATEST else None


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


@dataclass
class _Account:
    left: list[float]  # of its quota: bytes, sketches
    at: float  # when that was so
    slowed: float | None = None  # when the site last had to wait


class Quotas:
    """How much one site may send in a minute. What exceeds that waits; nothing is refused and nothing is lost.

    Over NATS it waits in the queue, of which a site has its share, and then at the edge. By files it waits in the
    folder. So a site that floods the hub slows itself down, and takes neither the disk nor the turns of others. A site
    may save up one minute: an edge that catches up begins quickly. One sketch larger than a whole minute's bytes is
    taken when nothing else was for a minute. Safe to use from several threads.
    """

    def __init__(self, quota: Quota, roster: Roster) -> None:
        self.quota, self.roster = quota, roster
        self._clock = roster.times.steady
        self._accounts: dict[str, _Account] = {}
        self._lock = threading.Lock()

    def allows(self, site: str, *, bytes: int = 0, sketches: int = 0) -> bool:
        """Return True, and take it off the quota, if a site may send so much now."""
        if self.quota == NO_QUOTA:
            return True
        with self._lock:
            account, need = self._account(site), (bytes, sketches)
            limits = zip(self.quota.amounts, account.left, need, strict=True)
            if all(left >= min(each, most) for most, left, each in limits):  # enough, or all of a minute
                account.left = [left - each for left, each in zip(account.left, need, strict=True)]
                return True
            account.slowed = self._clock()
        self.roster.slowed(site)
        said = Notice(f"SLOWED: {site} is over its quota, {self.quota}; the rest waits", "slowed", WARNING)
        self.roster.log(site, "times over its quota", said)
        return False

    def give_back(self, site: str, bytes: int) -> None:
        """Undo what `allows` has taken off a quota for bytes that were not used."""
        with self._lock:
            left = self._account(site).left
            left[0] = min(self.quota.amounts[0], left[0] + bytes)

    def _account(self, site: str) -> _Account:
        """Return what a site has left, with what the time since the last call gives, up to a whole minute."""
        found, now, amounts = self._accounts.get(site), self._clock(), self.quota.amounts
        if found is None:
            if len(self._accounts) >= MOST_SITES:  # more must be invented
                self._accounts = {}
            found = self._accounts[site] = _Account([float(most) for most in amounts], now)
        minutes, found.at = (now - found.at) / MINUTE, now
        limits = zip(amounts, found.left, strict=True)
        found.left = [min(most, left + most * minutes) if most < math.inf else math.inf for most, left in limits]
        return found

    def notice(self, site: str) -> str:
        """Return what the operator of a site should know; empty if it had not to wait for a minute."""
        with self._lock:
            found = self._accounts.get(site)
            slowed = found is not None and found.slowed is not None and self._clock() - found.slowed < MINUTE
        return f"this site is over its quota, {self.quota}: its sketches wait" if slowed else ""
