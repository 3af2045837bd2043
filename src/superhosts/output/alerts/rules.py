"""Rules: which hosts of a window's rows are worth an alert, and from how many peers on."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from superhosts.core.defaults import THRESHOLD
from superhosts.core.pairs import CONTACT_DIRECTIONS, COUNTS, DIRECTIONS, SIDES, Network
from superhosts.errors import UsageError
from superhosts.output.rows import Row, known_peers
from superhosts.output.titles import counted_peers
from superhosts.sketch.evidence.patterns import NAMES

KEEP = 0.8  # share of the threshold that keeps an alert open: estimates that vary around it must not close and open it
GROWN = 2.0  # an alert is told again when the peers have grown by this factor
QUIET = 2  # windows without the host after which its alert is closed
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True)
class Hours:
    """Hours of some days of the week: mon-fri 08:00-18:00. A span that ends before it begins goes over midnight."""

    days: frozenset[int]
    begins: int  # minutes of the day
    ends: int
    zone: tzinfo = UTC

    @classmethod
    def parse(cls, text: str, zone: str = "UTC") -> Hours:
        """Read `[DAY-DAY ]HH:MM-HH:MM`."""
        found = re.fullmatch(r"(?:([a-z]{3})(?:-([a-z]{3}))? )?(\d\d?):(\d\d)-(\d\d?):(\d\d)", text.lower().strip())
        names = [name for name in found.group(1, 2) if name] if found else []
        if found is None or any(name not in _DAYS for name in names):
            raise UsageError(f"hours {text!r}: write them like 08:00-18:00 or mon-fri 08:00-18:00")
        hour, minute, last_hour, last_minute = map(int, found.group(3, 4, 5, 6))
        if max(hour, last_hour) > 24 or max(minute, last_minute) > 59:
            raise UsageError(f"hours {text!r}: a day has 24 hours of 60 minutes")
        first, last = (_DAYS.index(names[0]), _DAYS.index(names[-1])) if names else (0, 6)
        days = frozenset(day % 7 for day in range(first, last + 1 if last >= first else last + 8))
        try:
            return cls(days, 60 * hour + minute, 60 * last_hour + last_minute, ZoneInfo(zone))
        except (ZoneInfoNotFoundError, ValueError):
            raise UsageError(f"zone {zone!r}: not a time zone of this machine; write one like Europe/Berlin") from None

    def include(self, seconds: float) -> bool:
        """Return True if a moment, in seconds since the epoch, is in these hours."""
        moment = datetime.fromtimestamp(seconds, UTC).astimezone(self.zone)
        minute, day = 60 * moment.hour + moment.minute, moment.weekday()
        if self.begins <= self.ends:
            return day in self.days and self.begins <= minute < self.ends
        if minute >= self.begins:
            return day in self.days
        return minute < self.ends and (day - 1) % 7 in self.days


@dataclass(frozen=True)
class Rule:
    """Hosts of one side and direction with at least `threshold` peers."""

    name: str = "many-peers"
    side: str = "inner"
    direction: str = "any"  # one of DIRECTIONS, or of contacts: opened, unanswered-in, …
    counts: str = "hosts"
    threshold: float = THRESHOLD
    prefixes: Mapping[str, float] = field(default_factory=dict)  # other thresholds, by prefix; the longest counts
    times_usual: float | None = None  # besides, so many times the median of the host's last windows
    patterns: Sequence[str] = ()  # besides, what the peers look like when it begins; none: anything
    hours: Hours | None = None  # when the rule holds; None: always
    grown: float = GROWN
    quiet: int = QUIET

    def __post_init__(self) -> None:
        known = {"side": SIDES, "direction": (*DIRECTIONS, *CONTACT_DIRECTIONS), "counts": COUNTS}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise UsageError(f"rule {self.name}: {name} {getattr(self, name)!r}: one of {', '.join(values)}")
        check_name(self.name)
        for pattern in self.patterns:
            if pattern not in NAMES:
                raise UsageError(f"rule {self.name}: patterns {pattern!r}: each one of {', '.join(NAMES)}")
        for name, least in (("threshold", 1), ("grown", 1.1), ("quiet", 1), ("times_usual", 1)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UsageError(f"rule {self.name}: {name} {value}: must be at least {least}")
        for prefix, threshold in self.prefixes.items():
            if not threshold >= 1:
                raise UsageError(f"rule {self.name}: threshold {threshold} of {prefix}: must be at least 1")
        _ = self._networks

    @cached_property
    def _networks(self) -> Sequence[tuple[Network, float]]:
        found = [(as_network(prefix, f"rule {self.name}"), float(least)) for prefix, least in self.prefixes.items()]
        return sorted(found, key=lambda each: -each[0].prefixlen)

    @property
    def least_threshold(self) -> float:
        """Peers from which on a host may break the rule."""
        return min((self.threshold, *(least for _, least in self._networks)))

    @property
    def least(self) -> float:
        """Peers from which on rows are needed: fewer than the threshold, because they keep alerts open."""
        return KEEP * self.least_threshold

    @property
    def words(self) -> str:
        """What the rule is about, for people."""
        number = counted_peers(self.threshold, self.counts)
        way = "" if self.direction == "any" else f", direction {self.direction}"
        others = "".join(f", {least:,g} in {prefix}" for prefix, least in self.prefixes.items())
        usual = "" if self.times_usual is None else f", and {self.times_usual:g} times the usual number"
        return f"{self.name}: {self.side} hosts with {number} or more{others}{usual}{way}"

    def takes(self, row: Row) -> bool:
        """Return True if a row is of this rule's side and direction."""
        place = row["side"], row["direction"], row.get("counts", "hosts")
        return place == (self.side, self.direction, self.counts)

    def begins_with(self, row: Row) -> bool:
        """Return True if what the peers of a row look like may be the beginning of an alert."""
        return not self.patterns or row.get("pattern") in self.patterns

    def threshold_for(self, network: Network | None) -> float:
        """Return the threshold of a host; None: one that is no address."""
        for prefix, least in self._networks:
            if network is not None and contains(prefix, network):
                return least
        return self.threshold

    def holds_at(self, seconds: float) -> bool:
        """Return True if the rule holds at a moment."""
        return self.hours is None or self.hours.include(seconds)


def check_name(name: str) -> str:
    """Return the name of a rule; raise UsageError if it is none."""
    if not NAME.fullmatch(name):
        raise UsageError(f"rule {name!r}: a name has 1 to 63 of a-z, 0-9, dot, - and _")
    return name


def peers_of(row: Row) -> float:
    """Return the peers that decide: the lower bound of a saturated host."""
    return float(known_peers(row))


def as_network(text: str, whose: str) -> Network:
    """Return the prefix, or the one address, that a text names."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise UsageError(f"{whose}: {text!r} is neither an address nor a prefix") from None


def network_of(host: object) -> Network | None:
    """Return the host of a row as a prefix, without its port; None if it is no address."""
    text = str(host)
    for candidate in (text, text.rpartition(":")[0].removeprefix("[").removesuffix("]")):
        try:
            return ipaddress.ip_network(candidate, strict=False)
        except ValueError:
            continue
    return None


def contains(outer: Network, inner: Network) -> bool:
    """Return True if a prefix contains another one of any family."""
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]
