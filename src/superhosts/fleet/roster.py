"""What a hub knows about each of its sites: when it was last heard, how far it is, what waits there, its clock.

A site tells its release, its spool and its time while its link works (`fleet/nats/telling.py`); links by files, and
edges of earlier releases, tell nothing of these. All of it is for people. Nothing that is merged depends on it.

The difference of two clocks is what remains of the time between sending and arriving when nothing delays a message. So
of the last few messages the quickest counts: a slow network or a busy hub makes a message late, never early.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import printable
from superhosts.core.units import SECOND
from superhosts.errors import UsageError
from superhosts.fleet.clock import THIS_MACHINE, TimeSource
from superhosts.fleet.limits import LimitedSay
from superhosts.fleet.parcels import Parcel, check_site
from superhosts.fleet.receipts import Say

MOST_SITES = 10_000  # that are remembered; more must be invented
RECENT = 5  # messages of which the quickest counts
ENOUGH = 3  # messages before a clock is judged
LATEST = 1e11  # seconds since 1970; no clock shows more
WRONG = 5.0  # seconds that a clock may differ; less hardly moves pairs to another window


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

    @property
    def is_clock_wrong(self) -> bool:
        """Return True if its clock differs too much from the hub's."""
        return is_wrong(self.clock)


def is_wrong(clock: Any) -> bool:
    """Return True if a clock is known to differ too much from the hub's, by so many seconds."""
    return type(clock) in (int, float) and abs(clock) > WRONG


class Roster:
    """All sites of a hub. Safe to use from several threads."""

    def __init__(self, say: Say = lambda text: None, times: TimeSource = THIS_MACHINE) -> None:
        self._sites: dict[str, Site] = {}
        self._times = times
        self._say = LimitedSay(say, clock=times.steady)
        self._lock = threading.Lock()

    @contextmanager
    def _heard(self, site: str) -> Iterator[Site]:
        """Note that something of a site has arrived, and what the block adds."""
        with self._lock:
            found = self._sites.get(site) or Site()
            if site in self._sites or len(self._sites) < MOST_SITES:
                self._sites[site] = found
            found.seen = self._times.wall()
            yield found

    def told(self, site: str, version: str | None, sent: int | None, spool: tuple[int, int] | None) -> None:
        """Note what an edge tells about itself; `sent` is its own time (ns)."""
        with self._heard(site) as found:
            found.version = version
            found.spool_sketches, found.spool_bytes = spool or (None, None)
            if sent is not None:
                found.lags.append(self._times.wall() - sent / SECOND)
        self._judge_clock(site)

    def accepted(self, parcel: Parcel) -> None:
        """Count a sketch that was accepted."""
        with self._heard(parcel.site) as found:
            found.accepted += 1
            found.taken = found.seen
            found.window_end = parcel.window.end / SECOND

    def refused(self, site: str) -> None:
        """Count a sketch that was refused."""
        with self._heard(site) as found:
            found.refused += 1

    def slowed(self, site: str) -> None:
        """Count that a site was made to wait."""
        with self._heard(site) as found:
            found.slowed += 1

    def mismatched(self, site: str, why: str) -> None:
        """Note that a site cannot work with this hub, or that it can (empty)."""
        with self._heard(site) as found:
            before, found.mismatch = found.mismatch, why
        if why and why != before:
            self._say(
                site,
                "edges of another version",
                Notice(f"NOT TAKEN from {site}: {why}; its sketches wait there", "not-taken", WARNING),
            )

    def _judge_clock(self, site: str) -> None:
        """Say when a site's clock has become wrong, or right again."""
        with self._lock:
            found = self._sites.get(site)
            if found is None or found.clock is None or found.is_clock_wrong == found.clock_said:
                return
            found.clock_said = found.is_clock_wrong
            offset, wrong = found.clock, found.is_clock_wrong
            judged = [each for each in self._sites.values() if each.clock is not None]
            alike = sum(each.is_clock_wrong for each in judged)
        if not wrong:
            self._say(site, "clocks", f"the clock of {site} agrees with this hub's again")
            return
        way = "ahead of" if offset > 0 else "behind"
        who = "this hub's own clock may be wrong, as most sites differ" if alike > 1 and 2 * alike > len(judged) else ""
        text = f"CLOCK OF {site}: {abs(offset):,.0f} s {way} this hub's"
        self._say(
            site,
            "clocks",
            Notice(
                f"{text}; {who or 'its windows are not those of the other sites: run NTP there'}", "clock-of", WARNING
            ),
        )

    def taken(self) -> dict[str, float]:
        """Return when a sketch of each site was accepted last, in seconds since 1970; not of those refused."""
        with self._lock:
            return {site: each.taken for site, each in self._sites.items() if each.taken is not None}

    def wrong_clocks(self) -> dict[str, float]:
        """Return the sites whose clocks differ too much from the hub's, and by how many seconds they are ahead."""
        with self._lock:
            return {
                site: round(each.clock, 1)
                for site, each in sorted(self._sites.items())
                if each.clock is not None and each.is_clock_wrong
            }

    def status(self) -> dict[str, dict[str, Any]]:
        """Return everything that is known, for the status file."""
        with self._lock:
            return {site: _shown(each) for site, each in sorted(self._sites.items())}

    def restore(self, content: Any) -> None:
        """Take over what an earlier run of the hub knew, from its status. Counters begin again."""
        for site, entry in content.items() if isinstance(content, dict) else ():
            if isinstance(entry, dict) and _is_site(site) and len(self._sites) < MOST_SITES:
                version = entry.get("version")
                self._sites[site] = Site(
                    seen=_time(entry.get("seen")),
                    version=printable(version) if isinstance(version, str) else None,
                    window_end=_time(entry.get("window_end")),
                )


def _shown(site: Site) -> dict[str, Any]:
    names = ("seen", "version", "window_end", "spool_sketches", "spool_bytes", "accepted", "refused", "slowed")
    clock = None if site.clock is None else round(site.clock, 3)
    return {**{name: getattr(site, name) for name in names}, "clock": clock, "mismatch": site.mismatch}


def _time(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < LATEST else None


def _is_site(name: Any) -> bool:
    try:
        return bool(check_site(name))
    except (UsageError, TypeError):
        return False
