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
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Required, TypedDict, get_origin, get_type_hints
from urllib.parse import quote

from superhosts.core.pairs import Network, Window
from superhosts.core.text import counted, printable
from superhosts.core.times import clock_time, iso_time
from superhosts.core.units import SECOND
from superhosts.output.alerts.past import Past, Usual, Week, when_of
from superhosts.output.alerts.rules import KEEP, WEEK, AllowList, Rule, peers_named
from superhosts.output.names import network_of
from superhosts.output.records import ALERT, CLOSED, GROWN, OPEN, OPENED, STORM
from superhosts.output.report import Row, counted_peers, known_peers
from superhosts.sketch.evidence.summary import NetFields

QUIET, ALLOWED, MUTED, GONE = "quiet", "allowed", "muted", "rule removed"  # why an alert was closed
# What an event says besides, if the row does: the group of the packets (--group-by), what the peers look like
# (--evidence), and who the host is (--labels, …).
KNOWN = ("group", "pattern", "label", "name", "asn", "as_name", "country")
MAIN = 0.5  # share of a host's pairs from which on one service is its service
MOST = 5  # ports, peers and networks that are named
TOLD = 0.02  # least share of a port or network in the sentence
LOCAL = "local"  # the name of a site that has none
CAP = 100  # alerts opened in one window
# Of known fields, those that are about one window and the ones before it.
PASSING = ("peers_before", "change", "usual_low", "usual_high", "usual_when", "persistence", "first_seen")
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


class PortShare(TypedDict, total=False):
    port: Required[str]
    at: str | None  # the end that has it
    share: Required[float]


class Facts(TypedDict, total=False):
    """What is known of the host and its alert besides: from rows, from earlier windows, and from people."""

    group: str
    service: str
    pattern: str
    pattern_reason: str
    ports: list[PortShare]
    some_peers: list[str]
    networks: list[NetFields]
    label: str
    name: str
    asn: int
    as_name: str
    country: str
    sites: list[str]
    peers_before: int | None
    change: int
    usual_low: int
    usual_high: int
    usual_when: str
    persistence: dict[str, int]  # in how many `windows`, of how many, it was seen
    new: str
    url: str
    owner: str
    note: str
    acknowledged_by: str


class KnownFields(Facts, total=False):
    first_seen: str
    acknowledged: str


class AlertEvent(AlertColumns, KnownFields, total=False):
    """An event of an alert, as receivers and files of lines get it."""

    kind: Required[Literal["alert"]]
    text: Required[str]
    duration: float  # seconds
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
    duration: float
    state: Literal["open", "acknowledged", "muted", "closed"]
    text: str
    muted_until: str | None
    muted_why: str | None


ALERT_COLUMNS = (*AlertColumns.__annotations__, "duration", *get_type_hints(KnownFields), "text")
PEOPLE = ("owner", "note", "acknowledged", "acknowledged_by")  # of known fields, those that people set


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
        for name, value in found.known.items():
            if not _is_known(name, value):
                raise ValueError(f"{printable(name)} of an alert is {printable(repr(value), 40)}")
        return found

    @property
    def duration(self) -> int:
        return self.last - self.opened

    @property
    def text(self) -> str:
        """The sentence about the alert as it is now."""
        return self._sentence(CLOSED if self.closed else OPEN, None)

    def seen(self, row: Row, end: int, facts: Mapping[str, Any] | None = None) -> None:
        """Take a window in which the host was seen, with what earlier ones say. A late one changes the peak alone."""
        peers = known_peers(row)
        if end > self.last or not self.windows:
            self.windows += 1
        if end >= self.last:
            self.last, self.peers = end, peers
            stale = PASSING if facts and "first_seen" in facts else ()
            self.known = {name: value for name, value in self.known.items() if name not in stale}
            self.known |= _known(row) | dict(facts or {})
            if stale:  # What is known of the host may be younger than its alert.
                self.known["first_seen"] = min(self.known["first_seen"], iso_time(self.opened))
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
            "duration": self.duration / SECOND,
            **self.known,
            **ended,
            "act": act,
        }

    def _sentence(self, kind: str, row: Row | None) -> str:
        """Return what people read, in clauses: the first one is a whole sentence, and the subject of a mail."""
        name = next(
            (f" ({printable(self.known[each])})" for each in ("label", "name", "as_name") if each in self.known), ""
        )
        since = clock_time(self.opened, time.time_ns())  # with its date, unless that is today
        threshold, span = f"(threshold {self.threshold:,.10g})", _span(self.duration)
        group = f" of {printable(self.group)}" if self.group else ""
        whose = f"{kind.upper()} {self.rule}: {printable(self.host)}{group}{name}"
        way = f", direction {self.direction}" if self.direction != "any" else ""
        service = f" on {printable(self.known['service'])}" if "service" in self.known else ""
        pattern = f", {self.known['pattern']}{service}" if "pattern" in self.known else ""
        if kind == CLOSED:
            now = f": {GONE}" if self.reason == GONE else f" is {self.reason}"
            times = f"{since.removesuffix(' UTC')} to {clock_time(self.last, self.opened)}"
            peak = f"peak {counted_peers(self.peak, self.counts)} {threshold}"
            first = f"{whose}{now} after {span} ({times}), {peak}{way}{pattern}"
        else:
            bound = "at least " if row is not None and row["peers"] is None else ""
            number = f"{bound}{counted_peers(self.peers, self.counts)} {threshold}"
            first = f"{whose} has {number}{way}{pattern}, since {since} for {span}, peak {self.peak:,}"
        return "; ".join([first, *self._clauses(kind)])

    def _clauses(self, kind: str) -> Iterator[str]:
        """Yield what else is known, each in a few words."""
        known = self.known
        if "pattern_reason" in known:
            yield printable(known["pattern_reason"])
        for name, field_ in (("ports", "port"), ("networks", "network")):
            told = [_share(each, field_) for each in known.get(name, ()) if each["share"] >= TOLD]
            if told:
                yield f"{name} {', '.join(told)}"
        if known.get("some_peers"):
            yield f"peers like {', '.join(map(printable, known['some_peers']))}"
        if "peers_before" in known and kind != CLOSED:
            yield f"{self.change or 'not among the rows'} {'to' if self.change else 'of'} the window before"
        if "usual_when" in known:
            yield self._usual()
        if "new" in known:
            yield printable(known["new"])
        elif known.get("first_seen", "") != iso_time(self.opened) and "first_seen" in known:
            yield f"first seen {printable(known['first_seen'])}"
        if "persistence" in known and known["persistence"].get("of", 0) > 1:
            yield f"in {self.persistence.replace(' of ', ' of the last ')} windows"
        if known.get("sites"):
            yield f"at {', '.join(map(printable, known['sites']))}"
        if "acknowledged" in known:
            yield f"acknowledged{f' by {who}' if (who := printable(known.get('acknowledged_by', ''))) else ''}"
        for name in ("owner", "note"):
            if known.get(name):
                yield f"{name} {printable(known[name])}"
        if "url" in known:
            yield printable(known["url"], most=500)

    @property
    def change(self) -> str:
        """How many more peers it has than in the window before: +700 (+88 %); empty if that is not known."""
        before, change = self.known.get("peers_before"), self.known.get("change")
        if change is None:
            return ""
        return f"{change:+,}" + (f" ({change / before:+,.0%})".replace("%", " %") if before else "")

    @property
    def persistence(self) -> str:
        """In how many of the last windows it was seen: 9 of 12; empty if that is not known."""
        found = self.known.get("persistence", {})
        return f"{found.get('windows')} of {found.get('of')}" if found else ""

    def _usual(self) -> str:
        low, high = self.known.get("usual_low", 0), self.known.get("usual_high", 0)
        when = f"on {printable(self.known['usual_when'])} UTC"
        if not high:
            return f"usually not among the rows {when}"
        least = "" if low == high else f"{low:,} to " if low else "up to "
        return f"usually {least}{counted_peers(high, self.counts)} {when}"


_TYPES = {name: int | float if kind is float else kind for name, kind in get_type_hints(Alert).items()}
_TYPES["known"] = dict
_KNOWN_TYPES = get_type_hints(KnownFields)


def _is_known(name: str, value: Any) -> bool:
    """Return True if a known field has a value that can be told. Of other fields nothing is told."""
    kind = _KNOWN_TYPES.get(name)
    if name in ("ports", "networks"):
        return isinstance(value, list) and all(
            isinstance(each, dict) and isinstance(each.get("share"), int | float) for each in value
        )
    if name == "persistence":
        return isinstance(value, dict) and all(isinstance(each, int) for each in value.values())
    return kind is None or isinstance(value, get_origin(kind) if get_origin(kind) is list else kind)


def _share(found: Mapping[str, Any], name: str) -> str:
    own = "own " if found.get("at") == "host" else ""
    return f"{own}{printable(found.get(name, ''))} {100 * found['share']:.0f} %"


def _known(row: Row) -> dict[str, Any]:
    found = {name: row[name] for name in KNOWN if row.get(name) is not None}
    evidence = row.get("evidence") or {}
    ports, networks = evidence.get("ports") or (), evidence.get("networks") or ()
    found |= {"pattern_reason": row["reason"]} if row.get("reason") else {}
    found |= {"service": ports[0]["port"]} if ports and ports[0]["share"] >= MAIN else {}
    found |= {"ports": [dict(each) for each in ports[:MOST]]} if ports else {}
    found |= {"some_peers": list(evidence["peers"][:MOST])} if evidence.get("peers") else {}
    found |= {"networks": [dict(each) for each in networks[:MOST]]} if networks else {}
    return found | ({"sites": [each["site"] for each in row["sites"]]} if row.get("sites") else {})


def _span(nanoseconds: int) -> str:
    """Return how long something took: 45 s, 10 min, 2 h 5 min, 3 d 2 h."""
    seconds = nanoseconds // SECOND
    for least, large, part, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 60, "")):
        if seconds >= least:
            rest = seconds % least // part
            return f"{seconds // least} {large}" + (f" {rest} {small}" if rest else "")
    return f"{seconds} s"


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
    web_url: str = ""  # of the dashboard, for links to its pages of hosts
    site: str = LOCAL  # which alerts name, if rows do not say which sites saw the host

    @property
    def least_threshold(self) -> float:
        return min((rule.least_threshold for rule in self.rules), default=math.inf)

    @property
    def asks_week(self) -> bool:
        return any(rule.baseline == WEEK for rule in self.rules)

    @property
    def least(self) -> float:
        """Peers from which on rows are needed: fewer than the threshold, because they keep alerts open."""
        return KEEP * self.least_threshold


@dataclass
class Turn:
    """A window that is taken, and what its rows have brought so far."""

    window: Window
    is_newest: bool
    candidates: list[tuple[Alert, Row, dict[str, Any]]] = field(default_factory=list)  # with what is known besides
    noted: list[tuple[str, int, bool]] = field(default_factory=list)  # who has how many peers; enough to be seen
    held_back: set[str] = field(default_factory=set)


class AlertMachine:
    """Takes windows and returns events. Its whole state is `alerts`, `past`, `week`, `latest` and `storm`."""

    def __init__(
        self,
        policy: Policy,
        alerts: Iterable[Alert] = (),
        past: Past | None = None,
        latest: int = 0,
        storm: int = 0,
        closed: Sequence[Alert] = (),
        week: Week | None = None,
    ) -> None:
        self.policy = policy
        self.mutes = AllowList()  # by a person, for some time
        self.alerts: dict[Key, Alert] = {alert.key: alert for alert in alerts}
        self.past = past or Past()
        self.week = week or Week()
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
        events, turn = list[Event](), Turn(window, is_newest)
        if is_newest and not self.past.began:
            self.past.began = window.start
        for rule in self.policy.rules:
            if rule.hours is None or rule.hours.include(window.start / SECOND):
                for row in filter(rule.takes, rows):
                    events += self._take_row(rule, row, turn)
        events += self._open(turn)
        if is_newest:
            for key, peers, is_seen in turn.noted:
                self.past.note(key, peers)
                if is_seen and key not in turn.held_back:  # A host that is held back is as new in the next window.
                    self.past.see(key, window)
            if self.policy.asks_week:
                self.learn(window, rows)
            self.latest = window.end
            self.past.windows += 1
        if is_whole:
            length = window.end - window.start
            quiet = {rule.name: rule.quiet for rule in self.policy.rules}
            over = [each for each in self.alerts.values() if window.end - each.last >= quiet.get(each.rule, 0) * length]
            events += [self._close(each, QUIET if each.rule in quiet else GONE, window.end) for each in over]
        return events

    def learn(self, window: Window, rows: Sequence[Row]) -> bool:
        """Note what hosts have in this hour of the week. Return False if that time was noted before."""
        if not self.week.takes(window):
            return False
        self.week.note(window, {_place(row): known_peers(row) for row in rows})
        return True

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

    def _take_row(self, rule: Rule, row: Row, turn: Turn) -> list[Event]:
        window = turn.window
        network, peers = network_of(row["host"]), known_peers(row)
        place = row["host"], row["family"], row["side"], row["direction"], row.get("counts", "hosts")
        group = {"group": row["group"]} if "group" in row else {}
        alert = Alert(rule.name, *place, rule.threshold, window.start, window.end, known=group)
        base = rule.threshold_for(network)
        least, key, usual = base, _key_of(alert), None
        if rule.baseline == WEEK:
            usual = self.week.usual(_place(row), window)
        if rule.times_usual is not None:
            least = max(base, rule.times_usual * self._usual(rule, key, usual))
        turn.noted.append((key, peers, peers >= KEEP * base))
        known = self.alerts.get(alert.key)
        if why := self._unwanted(network, rule.name, peers_named(row)):
            self.counters.allowed += 1
            return [self._close(known, why, self.latest)] if known is not None else []
        if known is None:
            alert.threshold = least
            is_over = window.end <= self._closed.get(alert.key, 0)
            is_wanted = peers >= least and not is_over and (not rule.patterns or row.get("pattern") in rule.patterns)
            if is_wanted and (not rule.asks_past or (turn.is_newest and self._breaks(rule, key, window, peers))):
                turn.candidates.append((alert, row, self._facts(rule, row, key, turn, usual)))
            return []
        if peers < KEEP * (least if rule.times_usual is None else known.threshold):
            return []
        known.seen(row, window.end, self._facts(rule, row, key, turn, usual))
        self.changed[known.id] = known
        level = _level(rule, known)
        if level <= known.level:
            return []
        known.level = level
        self.counters.grown += 1
        return [known.event(GROWN, row, act=known.act and self._may_act(known))]

    def _usual(self, rule: Rule, key: str, usual: Usual | None) -> float:
        """Return how many peers a host usually has; infinite as long as that is not known."""
        if rule.baseline == WEEK:
            return math.inf if usual is None else usual.middle
        return self.past.usual(key) if self.past.knows else math.inf

    def _follows(self, window: Window) -> bool:
        """Return True if the window before this one was taken, so that they can be compared."""
        return bool(self.past.windows) and window.start <= self.latest

    def _breaks(self, rule: Rule, key: str, window: Window, peers: int) -> bool:
        """Return True if a host breaks a rule by what is known of earlier windows."""
        seen, since = self.past.seen(key), window.start - rule.new_after
        if rule.new_after and (self.past.began > since or (seen is not None and seen.last > since)):
            return False
        least, of = rule.least_windows
        if least and self.past.persistence(key, of) < least:
            return False
        if rule.rises is None:
            return True
        before = self.past.before(key)  # None: fewer than any rule asks for, as it was not among the rows
        return self._follows(window) and peers >= (1 + rule.rises) * (before or self.policy.least_threshold)

    def _facts(self, rule: Rule, row: Row, key: str, turn: Turn, usual: Usual | None) -> dict[str, Any]:
        """Return what an event says besides the row: the link, and what earlier windows have."""
        facts: dict[str, Any] = {}
        if self.policy.web_url:
            facts["url"] = f"{self.policy.web_url}/#/host/{quote(str(row['host']), safe='')}"
        if self.policy.site != LOCAL and not row.get("sites"):
            facts["sites"] = [self.policy.site]
        if not turn.is_newest:
            return facts
        window = turn.window
        seen, of = self.past.seen(key), min(rule.least_windows[1], self.past.windows + 1)
        facts["first_seen"] = iso_time(window.start if seen is None else seen.first)
        facts["persistence"] = {"windows": self.past.persistence(key, of), "of": of}
        if self._follows(window):
            facts["peers_before"] = before = self.past.before(key)
            facts |= {} if before is None else {"change": known_peers(row) - before}
        if usual is not None:
            facts |= {"usual_low": usual.low, "usual_high": usual.high, "usual_when": when_of(window)}
        if rule.new_after and seen is None:
            facts["new"] = f"new: not seen in the {_span(window.start - self.past.began)} before"
        elif rule.new_after and seen is not None and window.start - seen.last >= rule.new_after:
            facts["new"] = f"new: last seen {_span(window.start - seen.last)} before"
        return facts

    def _open(self, turn: Turn) -> list[Event]:
        """Open the alerts of the largest hosts, and tell how many others there are, or that there are none any more."""
        candidates, window = sorted(turn.candidates, key=lambda each: -known_peers(each[1])), turn.window
        events = []
        rules = {rule.name: rule for rule in self.policy.rules}
        room = max(0, self.policy.cap - self._opened[window.start])
        turn.held_back.update(_key_of(alert) for alert, *_ in candidates[room:])
        for alert, row, facts in candidates[:room]:
            alert.seen(row, window.end, facts)
            alert.act = self._may_act(alert)
            alert.level = _level(rules[alert.rule], alert)
            self.alerts[alert.key] = self.changed[alert.id] = alert
            self.counters.opened += 1
            self._opened[window.start] += 1
            events.append(alert.event(OPENED, row, act=alert.act))
        others = len(candidates) - len(events)
        self.counters.held_back += others
        if others and turn.is_newest:
            self.storm = self.storm or window.start
            hosts = counted(others, "more host has", "more hosts have")
            most = counted(self.policy.cap, "alert is", "alerts are")
            text = f"STORM: {hosts} reached a threshold; at most {most} opened in a window"
            events.append(self._storm_event(STORM, text, others, window.end))
        elif self.storm and turn.is_newest:
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
        return [alert.event(OPEN, act=alert.act and self._may_act(alert)) for alert in self.alerts.values()]

    def _may_act(self, alert: Alert) -> bool:
        network = network_of(alert.host)
        return network is not None and self.policy.never_act.entry_for(network, alert.rule) is None

    def _unwanted(self, network: Network | None, rule: str, peers: Sequence[Network] = ()) -> str:
        """Return why no alert is wanted of a host; empty if one is. `peers` are some of it, where they are known."""
        if self.policy.allow.entry_for(network, rule) or self.policy.allow.covers_peers(peers, rule):
            return ALLOWED
        return MUTED if self.mutes.entry_for(network, rule) else ""


def _key_of(alert: Alert) -> str:
    return "\n".join(alert.key)


def _place(row: Row) -> str:
    """Return what names a host, and what is counted of it, for all rules."""
    return f"{row['side']}/{row['direction']}/{row.get('counts', 'hosts')}\n{row['family'] or ''}/{row['host']}"


def _level(rule: Rule, alert: Alert) -> int:
    return max(0, math.floor(math.log(max(alert.peak, 1) / alert.threshold, rule.grown) + 1e-9))
