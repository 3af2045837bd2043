"""One alert, and what is told of it."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

from superhosts.reports.rows import Row
from superhosts.times import iso_time

OPENED, GROWN, CLOSED, STORM = "opened", "grown", "closed", "storm"
QUIET, ALLOWED, MUTED, GONE = "quiet", "allowed", "muted", "rule removed"  # why an alert was closed
# What an event says besides, if the row does: what the peers look like (--evidence), and who the host is (--labels, …).
KNOWN = ("pattern", "label", "name", "asn", "as_name", "country")
Event = dict[str, Any]  # what is told, as destinations get it
Key = tuple[str, str]  # rule, and host with its address family


@dataclass
class Alert:
    """A host that broke a rule, from the window in which it did to the end of the last one in which it still does."""

    rule: str
    host: str | int
    family: int | None
    side: str
    direction: str
    counts: str
    threshold: float  # in force when it was opened
    opened: int  # start of the first window, nanoseconds
    last: int  # end of the last window in which the host was seen
    level: int = 0  # how often the peers have grown by the rule's factor, from the threshold on
    peers: int = 0  # of the last window
    peak: int = 0
    peak_at: int = 0  # end of the window with the most peers
    windows: int = 0  # in which the host was seen
    closed: int = 0  # end of the window that closed it; 0: open
    reason: str = ""

    @property
    def key(self) -> Key:
        """What it is an alert of."""
        return self.rule, f"{self.family or ''}/{self.host}"

    @property
    def id(self) -> str:
        """A short name, the same wherever it is computed."""
        words = f"{self.rule}\n{self.family}\n{self.host}\n{self.opened}"
        return hashlib.blake2b(words.encode(), digest_size=6).hexdigest()

    @property
    def fields(self) -> dict[str, Any]:
        """All of it, as it is stored."""
        return asdict(self)

    def seen(self, peers: int, end: int) -> None:
        """Take a window in which the host was seen. One that comes late changes the peak alone."""
        self.windows += 1
        if end >= self.last:
            self.last, self.peers = end, peers
        if peers > self.peak:
            self.peak, self.peak_at = peers, end

    def event(self, kind: str, row: Row | None = None) -> Event:
        """Return what is told when something happened; `row`: of the window in which it did."""
        told = {
            "kind": "alert",
            "event": kind,
            "alert": self.id,
            "rule": self.rule,
            "host": self.host,
            "family": self.family,
            "side": self.side,
            "direction": self.direction,
            "counts": self.counts,
            "threshold": self.threshold,
            "peers": self.peers,
            "peers_low": None if row is None else row["peers_low"],
            "peers_high": None if row is None else row["peers_high"],
            "peak": self.peak,
            "since": iso_time(self.opened),
            "until": iso_time(self.last),
            "windows": self.windows,
        }
        known = {} if row is None else {name: row[name] for name in KNOWN if row.get(name) is not None}
        return told | known | ({"reason": self.reason} if kind == CLOSED else {})
