"""What a configuration says of alerts: rules, and lists of hosts for which no alert is wanted.

A rule says which hosts of a window's rows are worth an alert, and from how many peers on. A line of an allow-list is a
host or a prefix, and perhaps the rule for which it is meant:

    10.0.0.53                # our resolver: no rule
    192.0.2.0/24  scan-out   # our own scanners: this rule only
    peers:198.51.100.0/24    # hosts that talk to these alone, as far as their evidence shows
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from superhosts.core.defaults import THRESHOLD
from superhosts.core.pairs import CONTACT_DIRECTIONS, COUNTS, DIRECTIONS, SIDES, Network
from superhosts.core.prefixes import PRIVATE_NETWORKS
from superhosts.core.text import printable
from superhosts.core.units import parse_duration
from superhosts.errors import InputError, UsageError
from superhosts.output.alerts.past import MOST_WINDOWS
from superhosts.output.report import Row, counted_peers

KEEP = 0.8  # share of the threshold that keeps an alert open: estimates that vary around it must not close and open it
GROWN = 2.0  # an alert is told again when the peers have grown by this factor
QUIET = 2  # windows without the host after which its alert is closed
LAST, WEEK = BASELINES = ("windows", "week")  # what is usual: the last windows, or the hour of the week
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# Public resolvers and the root servers: to block them harms everybody, and forged packets may come from them.
_RESOLVERS = "1.1.1.1 1.0.0.1 8.8.8.8 8.8.4.4 9.9.9.9 149.112.112.112 208.67.222.222 208.67.220.220"
_RESOLVERS += (
    " 2606:4700:4700::1111 2606:4700:4700::1001 2001:4860:4860::8888 2001:4860:4860::8844 2620:fe::fe 2620:fe::9"
)
_ROOTS = "198.41.0.4 170.247.170.2 192.33.4.12 199.7.91.13 192.203.230.10 192.5.5.241 192.112.36.4 198.97.190.53"
_ROOTS += " 192.36.148.17 192.58.128.30 193.0.14.129 199.7.83.42 202.12.27.33 2001:503:ba3e::2:30 2801:1b8:10::b"
_ROOTS += " 2001:500:2::c 2001:500:2d::d 2001:500:a8::e 2001:500:2f::f 2001:500:12::d0d 2001:500:1::53 2001:7fe::53"
_ROOTS += " 2001:503:c27::2:30 2001:7fd::1 2001:500:9f::42 2001:dc3::35"
_SPECIAL = "0.0.0.0/8 100.64.0.0/10 127.0.0.0/8 224.0.0.0/3 ::1/128 ff00::/8"
PEERS = "peers:"  # before a prefix of peers


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: some versions of Python, for a folder
        wrong = f"zone {printable(name)!r}: not a time zone of this machine; write one like Europe/Berlin"
        raise UsageError(wrong) from None


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
        return cls(days, 60 * hour + minute, 60 * last_hour + last_minute, _zone(zone))

    def include(self, seconds: float) -> bool:
        moment = datetime.fromtimestamp(seconds, UTC).astimezone(self.zone)
        minute, day = 60 * moment.hour + moment.minute, moment.weekday()
        if self.begins <= self.ends:
            return day in self.days and self.begins <= minute < self.ends
        if minute >= self.begins:
            return day in self.days
        return minute < self.ends and (day - 1) % 7 in self.days


@dataclass(frozen=True)
class Rule:
    name: str = "many-peers"
    side: str = "inner"
    direction: str = "any"  # one of DIRECTIONS, or of contacts: opened, unanswered-in, …
    counts: str = "hosts"
    threshold: float = THRESHOLD
    prefixes: Mapping[str, float] = field(default_factory=dict)  # other thresholds, by prefix; the longest counts
    times_usual: float | None = None  # besides, so many times the usual number of the host's peers
    baseline: str = LAST  # what is usual: the median of its last windows, or of this hour of the week
    new: str | None = None  # besides, not seen for so long: 7d
    persistent: str | None = None  # besides, seen in so many of the last windows: 9/12
    rises: float | None = None  # besides, with so many more peers than in the window before, as a share: 2.4
    patterns: Sequence[str] = ()  # besides, what the peers look like when it begins; none: anything
    hours: Hours | None = None  # when the rule holds; None: always
    grown: float = GROWN
    quiet: int = QUIET

    def __post_init__(self) -> None:
        known = {"side": SIDES, "direction": (*DIRECTIONS, *CONTACT_DIRECTIONS), "counts": COUNTS}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise UsageError(f"{name} {getattr(self, name)!r}: one of {', '.join(values)}")
        check_name(self.name)
        from superhosts.sketch.evidence.patterns import NAMES  # runs without alerts load these rules, too

        for pattern in self.patterns:
            if pattern not in NAMES:
                raise UsageError(f"unknown pattern {pattern!r}; use {', '.join(NAMES)}")
        least_values = {"threshold": 1, "grown": 1.1, "quiet": 1, "times_usual": 1, "rises": 0.1}
        for name, least in least_values.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UsageError(f"{name} {value}: must be at least {least}")
        if self.baseline not in BASELINES:
            raise UsageError(f"baseline {self.baseline!r}: one of {', '.join(BASELINES)}")
        if self.baseline == WEEK and self.times_usual is None:
            raise UsageError("baseline week: needs times-usual")
        _ = self.new_after, self.least_windows
        for prefix, threshold in self.prefixes.items():
            if not threshold >= 1:
                raise UsageError(f"threshold {threshold} of {prefix}: must be at least 1")
        _ = self._networks

    @cached_property
    def _networks(self) -> Sequence[tuple[Network, float]]:
        found = [(as_network(prefix, "prefixes"), float(least)) for prefix, least in self.prefixes.items()]
        return sorted(found, key=lambda each: -each[0].prefixlen)

    @cached_property
    def new_after(self) -> int:
        """Nanoseconds without a host after which it is new; 0: it need not be."""
        try:
            return 0 if self.new is None else parse_duration(self.new)
        except UsageError as error:
            raise UsageError(f"new {error}") from None

    @cached_property
    def least_windows(self) -> tuple[int, int]:
        """In how many windows a host must have been seen, and of how many; (0, 12): it need not be."""
        if self.persistent is None:
            return 0, 12
        found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", self.persistent)
        least, of = map(int, found.groups()) if found else (0, 0)
        if not 1 <= least <= of <= MOST_WINDOWS:
            raise UsageError(
                f"persistent {self.persistent!r}: write it like 9/12; at most {MOST_WINDOWS} windows are known"
            )
        return least, of

    @property
    def asks_past(self) -> bool:
        return self.new is not None or self.persistent is not None or self.rises is not None

    @property
    def least_threshold(self) -> float:
        return min((self.threshold, *(least for _, least in self._networks)))

    @property
    def words(self) -> str:
        number = counted_peers(self.threshold, self.counts)
        way = "" if self.direction == "any" else f", direction {self.direction}"
        others = "".join(f", {least:,g} in {prefix}" for prefix, least in self.prefixes.items())
        besides = [] if self.times_usual is None else [f"{self.times_usual:g} times the usual number"]
        if self.baseline == WEEK:
            besides[0] += " of that hour of the week"
        besides += [] if self.new is None else [f"not seen for {self.new}"]
        besides += [] if self.persistent is None else [f"in {' of the last '.join(self.persistent.split('/'))} windows"]
        besides += [] if self.rises is None else [f"{self.rises:+.0%} to the window before".replace("%", " %")]
        more = "".join(f", and {each}" for each in besides)
        return f"{self.name}: {self.side} hosts with {number} or more{others}{more}{way}"

    def takes(self, row: Row) -> bool:
        place = row["side"], row["direction"], row.get("counts", "hosts")
        return place == (self.side, self.direction, self.counts)

    def threshold_for(self, network: Network | None) -> float:
        """Return the threshold of a host; None: one that is not an address."""
        for prefix, least in self._networks:
            if network is not None and contains(prefix, network):
                return least
        return self.threshold


def check_name(name: str, place: str = "name") -> str:
    if not NAME.fullmatch(name):
        raise UsageError(f"{place} {name!r}: a name has 1 to 63 of a-z, 0-9, dot, - and _")
    return name


def as_network(text: str, whose: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise UsageError(f"{whose}: {text!r} is neither an address nor a prefix") from None


def contains(outer: Network, inner: Network) -> bool:
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def rules_of(tables: Sequence[Mapping[str, Any]], file: str, baseline: str = LAST) -> list[Rule]:
    """Return the rules of a file's tables. Raise UsageError, which names the rule and the key, if one is wrong.

    `baseline` is that of rules which ask for what is usual, and do not say which.
    """
    usual = {"baseline": baseline}
    given = [usual | {**each} if {"times-usual", "times_usual"} & {*each} else each for each in tables]
    rules = [_rule(table, f"{file}: rule {number}") for number, table in enumerate(given, 1)]
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{file}: two rules are called {name}; rule names must be unique")
    return rules


def _rule(table: Mapping[str, Any], place: str) -> Rule:
    values = {key.replace("-", "_"): value for key, value in table.items()}
    known = {each.name for each in fields(Rule)} | {"zone"}
    for key, value in values.items():
        shown = key.replace("_", "-")
        if key not in known:
            keys = ", ".join(sorted(each.replace("_", "-") for each in known))
            raise UsageError(f"{place}: {shown}: no such key; there are {keys}")
        is_right, kind = _KINDS.get(key, (_is_number, "a number"))
        if not is_right(value):
            raise UsageError(f"{place}: {shown} = {printable(repr(value))}: must be {kind}")
    hours, zone = values.pop("hours", None), values.pop("zone", "UTC")
    try:
        _zone(zone)  # is wrong without hours, too
        return Rule(**values, hours=None if hours is None else Hours.parse(hours, zone))
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {  # of keys; all others are numbers
    **dict.fromkeys(
        ("name", "side", "direction", "counts", "hours", "zone", "baseline", "new", "persistent"), (_is_text, "text")
    ),
    "patterns": (
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
        'a list of patterns: ["horizontal scan"]',
    ),
    "prefixes": (
        lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
        'thresholds by prefix: { "10.0.0.0/8" = 100 }',
    ),
}


class Entry(NamedTuple):
    network: Network
    rule: str = ""  # empty: all rules
    place: str = ""  # where it stands, for messages
    of_peers: bool = False  # the prefix is one of peers, not of hosts


class AllowList:
    """Hosts for which no alert is wanted. Asked once for a row, so a list of some thousand prefixes is fine."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = tuple(entries)

    @classmethod
    def of(cls, lines: Iterable[str], place: str = "allow") -> AllowList:
        """Read lines. Raise UsageError, which names the line, if one is wrong."""
        return cls(entry for number, line in enumerate(lines, 1) for entry in _entries(line, f"{place}, line {number}"))

    @classmethod
    def read(cls, path: Path, place: str = "") -> AllowList:
        """Read a file. Raise InputError, which names the `place` or the path, and the line, if that is not possible."""
        try:
            return cls.of(path.read_text("utf-8").splitlines(), "the list")
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", file=place or str(path)) from None
        except UnicodeDecodeError:
            raise InputError("cannot be read: not a text file (UTF-8)", file=place or str(path)) from None
        except UsageError as error:
            raise InputError(str(error), file=place or str(path)) from None

    def __or__(self, other: AllowList) -> AllowList:
        return AllowList((*self.entries, *other.entries))

    def entry_for(self, network: Network | None, rule: str) -> Entry | None:
        if network is None:
            return None
        entries = (each for each in self.entries if not each.of_peers and each.rule in ("", rule))
        return next((each for each in entries if contains(each.network, network)), None)

    def covers_peers(self, peers: Sequence[Network], rule: str) -> bool:
        """Return True if all of these peers of a host are allowed for a rule; False if none are known."""
        allowed = [each.network for each in self.entries if each.of_peers and each.rule in ("", rule)]
        return bool(peers) and all(any(contains(prefix, peer) for prefix in allowed) for peer in peers)


def peers_named(row: Row) -> list[Network]:
    return [as_network(text, "peer") for text in row.get("evidence", {}).get("peers", ())]


def _entries(line: str, place: str) -> list[Entry]:
    words = line.partition("#")[0].split()
    if not words:
        return []
    if len(words) > 2 or (len(words) == 2 and not NAME.fullmatch(words[1])):
        raise UsageError(
            f"{place}: {printable(line.strip())!r}: write an address or a prefix, and perhaps a rule's name"
        )
    network, rule = (*words, "")[:2]
    of_peers = network.startswith(PEERS)
    return [Entry(as_network(network.removeprefix(PEERS), place), rule, place, of_peers)]


def never_act(own: Iterable[str] = ()) -> AllowList:
    """Return the hosts against which no action may be taken: one's own, private ones, resolvers and root servers."""
    listed = [as_network(text, "never act") for text in f"{_RESOLVERS} {_ROOTS} {_SPECIAL}".split()]
    given = [as_network(text, "--never-act") for text in own]
    return AllowList(Entry(network, place="never act") for network in (*given, *PRIVATE_NETWORKS, *listed))
