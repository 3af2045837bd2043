"""One alert, and what is told of it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, field
from typing import Any, get_type_hints

from superhosts.core.text import printable
from superhosts.core.times import clock_time, iso_time
from superhosts.core.units import SECOND
from superhosts.output.batches import ALERT, CLOSED
from superhosts.output.rows import Row, known_peers
from superhosts.output.titles import counted_peers

QUIET, ALLOWED, MUTED, GONE = "quiet", "allowed", "muted", "rule removed"  # why an alert was closed
# What an event says besides, if the row does: what the peers look like (--evidence), and who the host is (--labels, …).
KNOWN = ("pattern", "label", "name", "asn", "as_name", "country")
MAIN = 0.5  # share of a host's pairs from which on one service is its service
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
    act: bool = True  # something could be done against the host when it was opened, and must be undone at the end
    known: dict[str, Any] = field(default_factory=dict)  # what rows have said besides (KNOWN, service)

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

    @classmethod
    def from_fields(cls, content: Any) -> Alert:
        """Return a stored alert. Raise ValueError if a field is missing or wrong.

        Fields that are not known here are ignored: a later version of the same format has added them.
        """
        if not isinstance(content, dict):
            raise ValueError("an alert is no object")
        for name, kind in _TYPES.items():
            if name in content and not isinstance(content[name], kind):
                raise ValueError(f"{name} of an alert is {printable(repr(content[name]), 40)}")
        try:
            found = cls(**{name: value for name, value in content.items() if name in _TYPES})
        except TypeError:
            missing = next(name for name in _TYPES if name not in content)
            raise ValueError(f"{missing} of an alert is missing") from None
        if not 0 < found.threshold < math.inf:
            raise ValueError(f"threshold of an alert is {found.threshold}")
        return found

    def seen(self, row: Row, end: int) -> None:
        """Take a window in which the host was seen. One that comes late changes the peak alone."""
        peers = known_peers(row)
        self.windows += 1
        if end >= self.last:
            self.last, self.peers = end, peers
            self.known |= _known(row)
        if peers > self.peak:
            self.peak, self.peak_at = peers, end

    def event(self, kind: str, row: Row | None = None, *, act: bool) -> Event:
        """Return what is told when something happened; `row`: of the window in which it did.

        `act`: something may be done against the host, or, of an alert that was closed, what was done is to be undone.
        """
        ended = {"closed": iso_time(self.closed), "reason": self.reason} if kind == CLOSED else {}
        return {
            "kind": ALERT,
            "event": kind,
            "text": self._sentence(kind, row),
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
            **self.known,
            **ended,
            "act": act,
        }

    def _sentence(self, kind: str, row: Row | None) -> str:
        """Return what happened in one line for people, which every destination that people read shows."""
        name = next(
            (f" ({printable(self.known[each])})" for each in ("label", "name", "as_name") if each in self.known), ""
        )
        whose = f"{kind.upper()} {self.rule}: {printable(self.host)}{name}"
        if kind == CLOSED:
            why = "" if self.reason == QUIET else f" ({self.reason})"
            return f"{whose} after {_span(self.last - self.opened)}, peak {self.peak:,}{why}"
        bound = "at least " if row is not None and row["peers"] is None else ""
        way = f", direction {self.direction}" if self.direction != "any" else ""
        service = f" on {self.known['service']}" if "service" in self.known else ""
        pattern = f", {self.known['pattern']}{service}" if "pattern" in self.known else ""
        number = f"{bound}{counted_peers(self.peers, self.counts)} (threshold {self.threshold:,.10g})"
        return f"{whose} has {number}{way}{pattern}, since {clock_time(self.opened, self.last)}"


_TYPES = {name: int | float if kind is float else kind for name, kind in get_type_hints(Alert).items()}
_TYPES["known"] = dict


def _known(row: Row) -> dict[str, Any]:
    """Return what a row says besides its numbers."""
    found = {name: row[name] for name in KNOWN if row.get(name) is not None}
    ports = (row.get("evidence") or {}).get("ports") or ()
    return found | ({"service": ports[0]["port"]} if ports and ports[0]["share"] >= MAIN else {})


def _span(nanoseconds: int) -> str:
    """Return how long something took: 45 s, 10 min, 2 h 5 min, 3 d 2 h."""
    seconds = nanoseconds // SECOND
    for least, large, small in ((86400, "d", "h"), (3600, "h", "min")):
        if seconds >= least:
            whole, rest = divmod(seconds, least)
            parts = rest // (3600 if small == "h" else 60)
            return f"{whole} {large}" + (f" {parts} {small}" if parts else "")
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"
