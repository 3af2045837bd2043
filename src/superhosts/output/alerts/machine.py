"""The state machine: rows of windows in, a few events out.

An alert belongs to a rule and a host. It is opened in the first window in which the host has as many peers as the rule
says, told again each time the peers have grown by a factor (steps from the threshold, so never on a timer), and closed
after some windows without the host. What varies around the threshold neither closes nor opens it: 80 % keep it open.
At most `cap` alerts are opened in a window, those with the most peers; how many were held back is told (a storm). Hosts
that are held back and stay are opened in later windows; a storm is closed by the first window that holds none back.

Everything is decided by the times of windows, never by the clock. A window that is late, reported again or interrupted
may open alerts and let them grow. It opens none of a host whose alert was closed after that window, and no more than
the cap together with what it has opened before, so a file that is scanned twice tells everything once. Unless it is
interrupted, it closes alerts of windows before it, as those of an older file. The clock says alone whether a sentence
needs a date.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, Required, TypedDict, get_type_hints

from superhosts.core.pairs import Network, Window
from superhosts.core.text import counted, printable
from superhosts.core.times import clock_time, iso_time
from superhosts.core.units import SECOND
from superhosts.output.alerts.rules import KEEP, AllowList, Rule, peers_named
from superhosts.output.names import network_of
from superhosts.output.records import ALERT, CLOSED, GROWN, OPEN, OPENED, STORM
from superhosts.output.report import Row, counted_peers, known_peers

QUIET, ALLOWED, MUTED, GONE = "quiet", "allowed", "muted", "rule removed"  # why an alert was closed
# What an event says besides, if the row does: the group of the packets (--group-by), what the peers look like
# (--evidence), and who the host is (--labels, …).
KNOWN = ("group", "pattern", "label", "name", "asn", "as_name", "country")
MAIN = 0.5  # share of a host's pairs from which on one service is its service
WINDOWS = 12  # of which the median is taken
LEARNING = 6  # windows before anything is known of anybody
MOST_HOSTS = 65_536  # whose past is kept
CAP = 100  # alerts opened in one window
Event = dict[str, Any]  # what is told, as destinations get it: the fields of AlertEvent
Key = tuple[str, str]  # rule, and host with its address family


class AlertColumns(TypedDict, total=False):
    """The fields of events in formats that have fixed columns. The event of a storm is about no host."""

    event: Required[Literal["opened", "grown", "closed", "storm", "open"]]
    alert: Required[str]  # its id, the same from its begin to its end
    rule: str
    host: str | int
    family: int | None
    side: str
    direction: str
    counts: str
    threshold: float
    peers: int
    peers_low: int | None
    peers_high: int | None
    peak: int
    since: Required[str]
    until: Required[str]
    windows: int
    reason: str
    act: Required[bool]
    held_back: int


class KnownFields(TypedDict, total=False):
    """What rows have said of the host besides."""

    group: str
    service: str
    pattern: str
    label: str
    name: str
    asn: int
    as_name: str
    country: str


class AlertEvent(AlertColumns, KnownFields, total=False):
    """An event of an alert, as receivers and files of lines get it."""

    kind: Required[Literal["alert"]]
    text: Required[str]
    closed: str
    id: str  # of what is sent
    site: str


class ListedAlert(KnownFields):
    """An alert, open or closed, as `alerts list --json`, `alerts show --json` and `alerts export` write it."""

    alert: str  # the id, as in events
    rule: str
    host: str | int
    family: int | None
    side: str
    direction: str
    counts: str
    threshold: float
    since: str
    until: str
    peers: int
    peak: int
    peak_at: str | None
    windows: int
    closed: str | None
    reason: str  # empty while it is open
    act: bool
    muted_until: str | None
    muted_why: str | None


ALERT_COLUMNS = tuple(AlertColumns.__annotations__)


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
    def group(self) -> str:
        """Of packets, if they are kept apart: in another group, another host may have the same address."""
        return str(self.known.get("group", ""))

    @property
    def key(self) -> Key:
        return self.rule, f"{self.family or ''}/{self.host}" + (f"/{self.group}" if self.group else "")

    @property
    def id(self) -> str:
        words = f"{self.rule}\n{self.family}\n{self.host}\n{self.opened}" + (f"\n{self.group}" if self.group else "")
        return hashlib.blake2b(words.encode(), digest_size=6).hexdigest()

    @classmethod
    def from_fields(cls, content: Any) -> Alert:
        """Return a stored alert. Raise ValueError if a field is missing or wrong.

        Fields that are not known here are ignored: a later version of the same format has added them.
        """
        if not isinstance(content, dict):
            raise ValueError("an alert is not an object")
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
        if end > self.last or not self.windows:
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
        whose = ("rule", "host", "family", "side", "direction", "counts", "threshold", "peers")
        return {
            "kind": ALERT,
            "event": kind,
            "text": self._sentence(kind, row),
            "alert": self.id,
            **{name: getattr(self, name) for name in whose},
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
        name = next(
            (f" ({printable(self.known[each])})" for each in ("label", "name", "as_name") if each in self.known), ""
        )
        since = clock_time(self.opened, time.time_ns())  # with its date, unless that is today
        threshold = f"(threshold {self.threshold:,.10g})"
        group = f" of {printable(self.group)}" if self.group else ""
        whose = f"{kind.upper()} {self.rule}: {printable(self.host)}{group}{name}"
        if kind == CLOSED:
            now = f": {GONE}" if self.reason == GONE else f" is {self.reason}"
            times = f"{since.removesuffix(' UTC')} to {clock_time(self.last, self.opened)}"
            peak = f"peak {counted_peers(self.peak, self.counts)} {threshold}"
            return f"{whose}{now} after {_span(self.last - self.opened)} ({times}), {peak}"
        bound = "at least " if row is not None and row["peers"] is None else ""
        way = f", direction {self.direction}" if self.direction != "any" else ""
        service = f" on {self.known['service']}" if "service" in self.known else ""
        pattern = f", {self.known['pattern']}{service}" if "pattern" in self.known else ""
        number = f"{bound}{counted_peers(self.peers, self.counts)} {threshold}"
        return f"{whose} has {number}{way}{pattern}, since {since}"


_TYPES = {name: int | float if kind is float else kind for name, kind in get_type_hints(Alert).items()}
_TYPES["known"] = dict


def _known(row: Row) -> dict[str, Any]:
    found = {name: row[name] for name in KNOWN if row.get(name) is not None}
    ports = (row.get("evidence") or {}).get("ports") or ()
    return found | ({"service": ports[0]["port"]} if ports and ports[0]["share"] >= MAIN else {})


def _span(nanoseconds: int) -> str:
    """Return how long something took: 45 s, 10 min, 2 h 5 min, 3 d 2 h."""
    seconds = nanoseconds // SECOND
    for least, large, part, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 60, "")):
        if seconds >= least:
            rest = seconds % least // part
            return f"{seconds // least} {large}" + (f" {rest} {small}" if rest else "")
    return f"{seconds} s"


class Past:
    """Peers of hosts in the last windows, by a key that names rule and host: how many each usually has.

    A window without a host counts as none. Of hosts beyond the bound, those that were seen longest ago are forgotten:
    they are new when they come again.
    """

    def __init__(self, *, hosts: int = MOST_HOSTS, windows: int = 0) -> None:
        self.windows = windows  # taken so far
        self.changed: set[str] = set()  # keys whose values are to be stored, or removed if they were forgotten
        self._most = hosts
        self._values: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()  # (number of the window, peers)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def knows(self) -> bool:
        """False as long as nothing can be called usual."""
        return self.windows >= LEARNING

    def usual(self, key: str) -> float:
        known = min(self.windows, WINDOWS)
        values = [peers for number, peers in self._values.get(key, ()) if number >= self.windows - known]
        return float(median([*values, *[0] * (known - len(values))])) if known else 0.0

    def note(self, key: str, peers: int) -> None:
        values = [each for each in self._values.pop(key, []) if each[0] > self.windows - WINDOWS]
        self._values[key] = [*(each for each in values if each[0] != self.windows), (self.windows, peers)]
        self.changed.add(key)
        while len(self._values) > self._most:
            oldest, _ = self._values.popitem(last=False)
            self.changed.add(oldest)

    def stored(self, key: str) -> str | None:
        return json.dumps(self._values[key]) if key in self._values else None

    def restore(self, rows: Iterable[tuple[str, str]]) -> None:
        """Take stored values, those that were seen longest ago first."""
        read = [(key, [(int(number), int(peers)) for number, peers in json.loads(text)]) for key, text in rows]
        for key, values in sorted(read, key=lambda each: max((number for number, _ in each[1]), default=0)):
            self._values[key] = values


@dataclass
class AlertCounters:
    opened: int = 0
    grown: int = 0
    closed: int = 0
    allowed: int = 0  # rows for which no alert is wanted
    held_back: int = 0  # by the cap


@dataclass(frozen=True)
class Policy:
    """What a configuration says of alerts; replaced as a whole when it is read again."""

    rules: Sequence[Rule] = (Rule(),)
    allow: AllowList = field(default_factory=AllowList)
    never_act: AllowList = field(default_factory=AllowList)
    cap: int = CAP

    @property
    def least_threshold(self) -> float:
        return min((rule.least_threshold for rule in self.rules), default=math.inf)

    @property
    def least(self) -> float:
        """Peers from which on rows are needed: fewer than the threshold, because they keep alerts open."""
        return KEEP * self.least_threshold


class AlertMachine:
    """Takes windows and returns events. Its whole state is `alerts`, `past`, `latest` and `storm`."""

    def __init__(
        self,
        policy: Policy,
        alerts: Iterable[Alert] = (),
        past: Past | None = None,
        latest: int = 0,
        storm: int = 0,
        closed: Sequence[Alert] = (),
    ) -> None:
        self.policy = policy
        self.mutes = AllowList()  # by a person, for some time
        self.alerts: dict[Key, Alert] = {alert.key: alert for alert in alerts}
        self.past = past or Past()
        self.latest = latest  # end of the newest window taken
        self._closed: dict[Key, int] = {}  # end of the window that closed the last alert
        for alert in closed:
            self._closed[alert.key] = max(alert.closed, self._closed.get(alert.key, 0))
        self._opened = Counter(alert.opened for alert in (*self.alerts.values(), *closed))  # by starts of windows
        self.storm = storm  # start of the first window that held alerts back; 0: there is no storm
        self.counters = AlertCounters()
        self.changed: dict[str, Alert] = {}  # alerts to store, by id

    def take(self, window: Window, rows: Sequence[Row], *, is_whole: bool = True) -> list[Event]:
        is_newest = is_whole and window.end > self.latest
        events: list[Event] = []
        candidates: list[tuple[Alert, Row]] = []
        for rule in self.policy.rules:
            if rule.hours is None or rule.hours.include(window.start / SECOND):
                for row in filter(rule.takes, rows):
                    events += self._take_row(rule, row, window, candidates, is_newest=is_newest)
        events += self._open(candidates, window, is_newest=is_newest)
        if is_newest:
            self.latest = window.end
            self.past.windows += 1
        if is_whole:
            length = window.end - window.start
            quiet = {rule.name: rule.quiet for rule in self.policy.rules}
            over = [each for each in self.alerts.values() if window.end - each.last >= quiet.get(each.rule, 0) * length]
            events += [self._close(each, QUIET if each.rule in quiet else GONE, window.end) for each in over]
        return events

    def reload(self, policy: Policy, mutes: AllowList | None = None) -> list[Event]:
        """Take another policy, or other mutes; what they no longer want is closed at once."""
        self.policy = policy
        self.mutes = self.mutes if mutes is None else mutes
        names = {rule.name for rule in policy.rules}
        events = []
        for alert in list(self.alerts.values()):
            why = GONE if alert.rule not in names else self._unwanted(network_of(alert.host), alert.rule)
            if why:
                events.append(self._close(alert, why, self.latest))
        return events

    def _take_row(
        self, rule: Rule, row: Row, window: Window, candidates: list[tuple[Alert, Row]], *, is_newest: bool
    ) -> list[Event]:
        network, peers = network_of(row["host"]), known_peers(row)
        place = row["host"], row["family"], row["side"], row["direction"], row.get("counts", "hosts")
        group = {"group": row["group"]} if "group" in row else {}
        alert = Alert(rule.name, *place, rule.threshold, window.start, window.end, known=group)
        least = rule.threshold_for(network)
        if rule.times_usual is not None:
            key = "\n".join(alert.key)
            usual = self.past.usual(key) if self.past.knows else math.inf
            least = max(least, rule.times_usual * usual)
            if is_newest:
                self.past.note(key, peers)
        known = self.alerts.get(alert.key)
        if why := self._unwanted(network, rule.name, peers_named(row)):
            self.counters.allowed += 1
            return [self._close(known, why, self.latest)] if known is not None else []
        if known is None:
            alert.threshold = least
            is_over = window.end <= self._closed.get(alert.key, 0)
            if peers >= least and not is_over and (not rule.patterns or row.get("pattern") in rule.patterns):
                candidates.append((alert, row))
            return []
        if peers < KEEP * (least if rule.times_usual is None else known.threshold):
            return []
        known.seen(row, window.end)
        self.changed[known.id] = known
        level = _level(rule, known)
        if level <= known.level:
            return []
        known.level = level
        self.counters.grown += 1
        return [known.event(GROWN, row, act=known.act and self._may_act(known))]

    def _open(self, candidates: list[tuple[Alert, Row]], window: Window, *, is_newest: bool) -> list[Event]:
        """Open the alerts of the largest hosts, and tell how many others there are, or that there are none any more."""
        candidates.sort(key=lambda each: -known_peers(each[1]))
        events = []
        rules = {rule.name: rule for rule in self.policy.rules}
        room = max(0, self.policy.cap - self._opened[window.start])
        for alert, row in candidates[:room]:
            alert.seen(row, window.end)
            alert.act = self._may_act(alert)
            alert.level = _level(rules[alert.rule], alert)
            self.alerts[alert.key] = self.changed[alert.id] = alert
            self.counters.opened += 1
            self._opened[window.start] += 1
            events.append(alert.event(OPENED, row, act=alert.act))
        held_back = len(candidates) - len(events)
        self.counters.held_back += held_back
        if held_back and is_newest:
            self.storm = self.storm or window.start
            hosts = counted(held_back, "more host has", "more hosts have")
            most = counted(self.policy.cap, "alert is", "alerts are")
            text = f"STORM: {hosts} reached a threshold; at most {most} opened in a window"
            events.append(self._storm_event(STORM, text, held_back, window.end))
        elif self.storm and is_newest:
            text = f"CLOSED storm after {_span(window.start - self.storm)}: no alert is held back any more"
            ended = {"closed": iso_time(window.end), "reason": QUIET}
            events.append(self._storm_event(CLOSED, text, 0, window.end) | ended)
            self.storm = 0
        return events

    def _storm_event(self, kind: str, text: str, held_back: int, until: int) -> Event:
        """Return what is told of a storm, under one id from its begin to its end."""
        id = hashlib.blake2b(f"storm\n{self.storm}".encode(), digest_size=6).hexdigest()
        times = {"since": iso_time(self.storm), "until": iso_time(until)}
        return {"kind": ALERT, "event": kind, "text": text, "alert": id, "held_back": held_back, **times, "act": False}

    def _close(self, alert: Alert, reason: str, now: int) -> Event:
        alert.closed, alert.reason = max(now, alert.last), reason
        self.changed[alert.id] = self.alerts.pop(alert.key)
        self._closed[alert.key] = max(alert.closed, self._closed.get(alert.key, 0))
        self.counters.closed += 1
        # Another rule's alert of the same host keeps what was done against it in force.
        others = (self.alerts.get((rule.name, alert.key[1])) for rule in self.policy.rules)
        undo = alert.act and not any(each is not None and each.act for each in others)
        return alert.event(CLOSED, act=undo)

    def open_events(self) -> list[Event]:
        return [alert.event(OPEN, act=alert.act) for alert in self.alerts.values()]

    def _may_act(self, alert: Alert) -> bool:
        network = network_of(alert.host)
        return network is not None and self.policy.never_act.entry_for(network, alert.rule) is None

    def _unwanted(self, network: Network | None, rule: str, peers: Sequence[Network] = ()) -> str:
        """Return why no alert is wanted of a host; empty if one is. `peers` are some of it, where they are known."""
        if self.policy.allow.entry_for(network, rule) or self.policy.allow.covers_peers(peers, rule):
            return ALLOWED
        return MUTED if self.mutes.entry_for(network, rule) else ""


def _level(rule: Rule, alert: Alert) -> int:
    return max(0, math.floor(math.log(max(alert.peak, 1) / alert.threshold, rule.grown) + 1e-9))
