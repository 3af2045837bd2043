"""The state machine: rows of windows in, a few events out.

An alert belongs to a rule and a host. It is opened in the first window in which the host has as many peers as the rule
says, told again each time the peers have grown by a factor (steps from the threshold, so never on a timer), and closed
after some windows without the host. What varies around the threshold neither closes nor opens it: 80 % keep it open.
At most `cap` alerts are opened in a window, those with the most peers; how many were held back is told. Hosts that
are held back and stay are opened in later windows.

Everything is decided by the times of windows, never by the clock, so a replay tells the same. A window that is
reported again, or late, may open alerts and let them grow, and closes none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from superhosts.core.pairs import Network, Window
from superhosts.core.text import counted
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND
from superhosts.output.alerts.alert import ALLOWED, GONE, MUTED, QUIET, Alert, Event, Key
from superhosts.output.alerts.allowing import AllowList, peers_named
from superhosts.output.alerts.past import Past
from superhosts.output.alerts.rules import KEEP, Rule, network_of, peers_of
from superhosts.output.batches import ALERT, CLOSED, GROWN, OPEN, OPENED, STORM
from superhosts.output.rows import Row

CAP = 100  # alerts opened in one window


@dataclass
class AlertCounters:
    """What came of the rows."""

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
        """Peers from which on a host may break a rule."""
        return min((rule.least_threshold for rule in self.rules), default=math.inf)

    @property
    def least(self) -> float:
        """Peers from which on rows are needed."""
        return min((rule.least for rule in self.rules), default=math.inf)


class _Candidate(NamedTuple):
    """A host that has broken a rule and has no alert yet."""

    alert: Alert
    row: Row


class AlertMachine:
    """Takes windows and returns events. The state is `alerts`, `past` and `latest`; whoever stores it has all of it."""

    def __init__(self, policy: Policy, alerts: Iterable[Alert] = (), past: Past | None = None, latest: int = 0) -> None:
        self.policy = policy
        self.mutes = AllowList()  # by a person, for some time
        self.alerts: dict[Key, Alert] = {alert.key: alert for alert in alerts}
        self.past = past or Past()
        self.latest = latest  # end of the newest window taken
        self.counters = AlertCounters()
        self.changed: dict[str, Alert] = {}  # alerts to store, by id

    def take(self, window: Window, rows: Sequence[Row]) -> list[Event]:
        """Take the rows of a window; return what is to be told."""
        is_newest = window.end > self.latest
        events: list[Event] = []
        candidates: list[_Candidate] = []
        for rule in self.policy.rules:
            if rule.holds_at(window.start / SECOND):
                for row in filter(rule.takes, rows):
                    events += self._take_row(rule, row, window, candidates, is_newest=is_newest)
        events += self._open(candidates, window)
        if is_newest:
            self.latest = window.end
            self.past.next_window()
            events += self._close_quiet(window)
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
                events.append(self._close(alert, why))
        return events

    def _take_row(
        self, rule: Rule, row: Row, window: Window, candidates: list[_Candidate], *, is_newest: bool
    ) -> list[Event]:
        network, peers = network_of(row["host"]), peers_of(row)
        alert = _new_alert(rule, row, window)
        least = rule.threshold_for(network)
        if rule.times_usual is not None:
            key = "\n".join(alert.key)
            usual = self.past.usual(key) if self.past.knows else math.inf
            least = max(least, rule.times_usual * usual)
            if is_newest:
                self.past.note(key, int(peers))
        known = self.alerts.get(alert.key)
        if why := self._unwanted(network, rule.name, peers_named(row)):
            self.counters.allowed += 1
            return [self._close(known, why)] if known is not None else []
        if known is None:
            alert.threshold = least
            if peers >= least and rule.begins_with(row):
                candidates.append(_Candidate(alert, row))
            return []
        if peers < KEEP * (least if rule.times_usual is None else known.threshold):
            return []
        known.seen(row, window.end)
        self.changed[known.id] = known
        return self._grow(rule, known, row)

    def _grow(self, rule: Rule, alert: Alert, row: Row) -> list[Event]:
        level = _level(rule, alert)
        if level <= alert.level:
            return []
        alert.level = level
        self.counters.grown += 1
        return [alert.event(GROWN, row, act=alert.act and self._may_act(alert))]

    def _open(self, candidates: list[_Candidate], window: Window) -> list[Event]:
        """Open the alerts of the largest hosts, and tell how many others there are."""
        candidates.sort(key=lambda each: -peers_of(each.row))
        events = []
        rules = {rule.name: rule for rule in self.policy.rules}
        for alert, row in candidates[: self.policy.cap]:
            alert.seen(row, window.end)
            alert.act = self._may_act(alert)
            alert.level = _level(rules[alert.rule], alert)
            self.alerts[alert.key] = self.changed[alert.id] = alert
            self.counters.opened += 1
            events.append(alert.event(OPENED, row, act=alert.act))
        held_back = len(candidates) - len(events)
        if held_back:
            self.counters.held_back += held_back
            hosts = counted(held_back, "more host has", "more hosts have")
            most = counted(self.policy.cap, "alert is", "alerts are")
            text = f"STORM: {hosts} reached a threshold; at most {most} opened in a window"
            storm = {"kind": ALERT, "event": STORM, "text": text, "held_back": held_back}
            events.append({**storm, "until": iso_time(window.end), "act": False})
        return events

    def _close_quiet(self, window: Window) -> list[Event]:
        length = window.end - window.start
        quiet = {rule.name: rule.quiet for rule in self.policy.rules}
        over = [each for each in self.alerts.values() if window.end - each.last >= quiet.get(each.rule, 0) * length]
        return [self._close(alert, QUIET) for alert in over]

    def _close(self, alert: Alert, reason: str) -> Event:
        alert.closed, alert.reason = max(self.latest, alert.last), reason
        self.changed[alert.id] = self.alerts.pop(alert.key)
        self.counters.closed += 1
        # Another rule's alert of the same host keeps what was done against it in force.
        others = (self.alerts.get((rule.name, alert.key[1])) for rule in self.policy.rules)
        undo = alert.act and not any(each is not None and each.act for each in others)
        return alert.event(CLOSED, act=undo)

    def open_events(self) -> list[Event]:
        """Return all open alerts as events, for destinations that must hear of them again and again."""
        return [alert.event(OPEN, act=alert.act) for alert in self.alerts.values()]

    def _may_act(self, alert: Alert) -> bool:
        """Return True if something may be done against the host."""
        network = network_of(alert.host)
        return network is not None and self.policy.never_act.entry_for(network, alert.rule) is None

    def _unwanted(self, network: Network | None, rule: str, peers: Sequence[Network] = ()) -> str:
        """Return why no alert is wanted of a host; empty if one is. `peers` are some of it, where they are known."""
        if self.policy.allow.entry_for(network, rule) or self.policy.allow.covers_peers(peers, rule):
            return ALLOWED
        return MUTED if self.mutes.entry_for(network, rule) else ""


def _new_alert(rule: Rule, row: Row, window: Window) -> Alert:
    place = row["host"], row["family"], row["side"], row["direction"], row.get("counts", "hosts")
    return Alert(rule.name, *place, rule.threshold, window.start, window.end)


def _level(rule: Rule, alert: Alert) -> int:
    """Return how often the peak is larger than the threshold by the rule's factor."""
    return max(0, math.floor(math.log(max(alert.peak, 1) / alert.threshold, rule.grown) + 1e-9))
