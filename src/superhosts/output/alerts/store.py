"""Alerts on disk: one SQLite file, in which a window changes everything or nothing.

The events of a window are written in the same transaction as the state, and are removed when they have been handed on.
So a program that dies between the two hands them on again, and never forgets one. `superhosts alerts` reads the same
file while the program runs, and writes mutes into it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from superhosts.core.database import Database, Format
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Window
from superhosts.core.text import printable
from superhosts.core.times import iso_time, seconds_of
from superhosts.core.units import SECOND
from superhosts.errors import InputError, OutputError, UsageError
from superhosts.output.alerts.machine import PEOPLE, Alert, AlertMachine, Event, Policy
from superhosts.output.alerts.past import MOST_HOSTS, Past, Week
from superhosts.output.alerts.rules import AllowList, Entry, as_network
from superhosts.output.destination import Destination, for_each
from superhosts.output.names import network_of
from superhosts.output.records import CLOSED, OPENED
from superhosts.output.report import PARTIAL, Report, Row

KEEP_CLOSED = 100_000  # closed alerts; beyond, the oldest are removed
LEARNED = ("usual_began", "usual_ended", "taught")  # of the state: the time that was learned, and when it was taught
MOST_HISTORY = 500  # events of an alert that are kept
# What people do with an alert, in its history. The text is their note, or the name of the owner.
ACKNOWLEDGED, WITHDRAWN, ASSIGNED, NOTED, MUTED = "acknowledged", "unacknowledged", "assigned", "noted", "muted"
STATES = ("open", "acknowledged", "muted", "closed")  # in the order of lists
State = Literal["open", "acknowledged", "muted", "closed"]
Mute = dict[str, Any]  # of `AlertStore.muted`
FORMAT = Format(
    what="a file of alerts",
    version=1,
    table="alerts",
    schema="""
CREATE TABLE IF NOT EXISTS alerts (id TEXT PRIMARY KEY, closed INTEGER NOT NULL, last INTEGER NOT NULL,
    content TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS alerts_by_end ON alerts (closed, last);
CREATE TABLE IF NOT EXISTS events (number INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS past (key TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mutes (network TEXT NOT NULL, rule TEXT NOT NULL, until REAL NOT NULL, why TEXT NOT NULL,
    PRIMARY KEY (network, rule)) WITHOUT ROWID;
""",
    added="""
CREATE TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
    number INTEGER NOT NULL, windows TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usual (hour INTEGER NOT NULL, key TEXT NOT NULL, week INTEGER NOT NULL,
    content TEXT NOT NULL, PRIMARY KEY (hour, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (number INTEGER PRIMARY KEY AUTOINCREMENT, alert TEXT NOT NULL, at INTEGER NOT NULL,
    event TEXT NOT NULL, text TEXT NOT NULL, person TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS history_of_alerts ON history (alert, number);
""",
    trouble="alerts cannot be kept",
    way_out="move it away to begin with a new one (open alerts are told again), or restore a backup",
)


class AlertStore:
    """A file of alerts. One program takes windows; any number may read and mute."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        self.trouble = ""  # why the last window could not be stored; empty: it is
        self._pending: list[Event] = []  # events of windows that could not be stored
        if must_exist and not (path.is_file() and path.stat().st_size):  # SQLite would make any empty file its own
            raise InputError("no alerts are kept here", file=str(path))
        self._database = Database(path, FORMAT)

    def close(self) -> None:
        self._database.close()

    def machine(self, policy: Policy) -> AlertMachine:
        with self._database.reading() as database:
            state = self._database.state()
            names = ("windows", "latest", "storm", "began", *LEARNED)
            numbers = [state.get(name, 0) for name in names]
            if not all(isinstance(each, int) for each in numbers):
                raise ValueError(f"a number is {printable(repr(numbers), 40)}")
            windows, latest, storm, began, *learned = numbers
            past = Past(windows=windows, began=began)
            seen = database.execute("SELECT key, first, last, number, windows FROM seen").fetchall()
            past.restore(database.execute("SELECT key, content FROM past").fetchall(), seen)
            closed = self.alerts(is_open=False, most=MOST_HOSTS)
            week = Week(self._usual, *learned)
            machine = AlertMachine(policy, self.alerts(is_open=True), past, latest, storm, closed, week)
        machine.mutes = self.mutes()
        return machine

    def take(self, machine: AlertMachine, window: Window, rows: Sequence[Row], *, is_whole: bool = True) -> list[Event]:
        """Have a machine take a window, and store what came of it.

        If it cannot be stored (a full disk), `trouble` says so, detection goes on, and the next window stores it, too.
        """
        mutes, trouble = machine.mutes, ""
        try:
            mutes = self.mutes()  # of `superhosts alerts mute`, while this runs
            self._tell_people([*machine.alerts.values()])
            if window.end > machine.latest and machine.policy.asks_week:
                self._turn(machine.week, window)
        except (InputError, OutputError) as error:
            trouble = str(error)
        events = machine.reload(machine.policy, mutes) if mutes.entries != machine.mutes.entries else []
        return self._stored(machine, events + machine.take(window, rows, is_whole=is_whole), trouble)

    def learn(self, machine: AlertMachine, window: Window, rows: Sequence[Row]) -> bool:
        """Note what hosts have in this hour of the week, without alerts; False if that time was noted before.

        A run may go on meanwhile. Learn the newest windows before older ones: what lies between two is not learned.
        """
        machine.week.taught = 0  # so that cells are read again
        self._turn(machine.week, window)
        if found := machine.learn(window, rows):
            machine.week.taught = time.time_ns()
            with self._database.transaction() as database:  # A run may go on, whose other state stays.
                self._write_week(database, machine.week)
            machine.week.changed.clear()
        return found

    def _write_week(self, database: Any, week: Week) -> None:
        cells = [(*place, cell) for place, cell in week.changed.items()]
        gone = [(hour, key) for hour, key, cell in cells if cell is None]
        kept = [(hour, key, cell.week, cell.text) for hour, key, cell in cells if cell is not None]
        database.executemany("DELETE FROM usual WHERE hour = ? AND key = ?", gone)
        database.executemany("INSERT OR REPLACE INTO usual VALUES (?, ?, ?, ?)", kept)
        for name, value, kept_one in zip(
            LEARNED, (week.began, week.ended, week.taught), ("min", "max", "max"), strict=True
        ):
            upsert = f"ON CONFLICT (name) DO UPDATE SET value = {kept_one}(value, excluded.value)"
            database.execute(f"INSERT INTO state VALUES (?, ?) {upsert}", (name, value))

    def _turn(self, week: Week, window: Window) -> None:
        """Read what is usual in the hour of a window, again if another program has learned meanwhile."""
        with self._database.reading():
            state = self._database.state()
            week.renew(*(int(state.get(name, 0)) for name in LEARNED))
            week.turn(window)

    def _usual(self, hour: int) -> list[tuple[str, int, str]]:
        with self._database.reading() as database:
            return database.execute("SELECT key, week, content FROM usual WHERE hour = ?", (hour,)).fetchall()

    def reload(self, machine: AlertMachine, policy: Policy) -> list[Event]:
        return self._stored(machine, machine.reload(policy, self.mutes()))

    def _stored(self, machine: AlertMachine, events: list[Event], trouble: str = "") -> list[Event]:
        with self._database.lock:
            self._pending += events
            try:
                self._write(machine, self._pending)
            except (InputError, OutputError) as error:
                self.trouble = str(error)
            else:
                self.trouble = trouble
                self._pending = []
        return events

    def _write(self, machine: AlertMachine, events: list[Event]) -> None:
        past, week = machine.past, machine.week
        with self._database.transaction() as database:
            database.executemany(
                "INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?)",
                [(alert.id, alert.closed, alert.last, json.dumps(asdict(alert))) for alert in machine.changed.values()],
            )
            database.executemany("INSERT INTO events (content) VALUES (?)", [(json.dumps(each),) for each in events])
            database.executemany(
                "INSERT INTO history (alert, at, event, text, person) VALUES (?, ?, ?, ?, '')",
                [(each["alert"], _when(each), each["event"], each["text"]) for each in events if "host" in each],
            )
            stored = [(key, past.stored(key)) for key in past.changed]
            database.executemany("DELETE FROM past WHERE key = ?", [(key,) for key, text in stored if text is None])
            database.executemany("INSERT OR REPLACE INTO past VALUES (?, ?)", [each for each in stored if each[1]])
            seen = [(key, past.stored_seen(key)) for key in past.changed]
            database.executemany("DELETE FROM seen WHERE key = ?", [(key,) for key, found in seen if found is None])
            database.executemany(
                "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?)", [(key, *found) for key, found in seen if found]
            )
            state = {"latest": machine.latest, "windows": past.windows, "storm": machine.storm, "began": past.began}
            database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state.items())
            if week.changed:
                self._write_week(database, week)
            gone = database.execute(
                "DELETE FROM alerts WHERE closed > 0 AND id IN"
                " (SELECT id FROM alerts WHERE closed > 0 ORDER BY last DESC LIMIT -1 OFFSET ?)",
                (KEEP_CLOSED,),
            )
            if gone.rowcount:
                database.execute("DELETE FROM history WHERE alert NOT IN (SELECT id FROM alerts)")
        machine.changed.clear()
        past.changed.clear()
        week.changed.clear()

    def waiting(self, most: int = 1000) -> list[tuple[int, Event]]:
        """Return events that were not handed on yet, the oldest first, with their numbers."""
        with self._database.reading() as database:
            found = database.execute("SELECT number, content FROM events ORDER BY number LIMIT ?", (most,))
            events = [(number, json.loads(content)) for number, content in found.fetchall()]
            if not all(isinstance(event, dict) and isinstance(event.get("event"), str) for _, event in events):
                raise ValueError("an event is not an object")
            return events

    def count_waiting(self) -> int:
        """Return how many events wait; 0 if the file cannot be read, which `trouble` says."""
        with contextlib.suppress(InputError, OutputError), self._database.reading() as database:
            return int(database.execute("SELECT count(*) FROM events").fetchone()[0])
        return 0

    def handed_on(self, number: int) -> None:
        with self._database.transaction() as database:
            database.execute("DELETE FROM events WHERE number <= ?", (number,))

    def alerts(
        self, *, is_open: bool | None = None, host: str | None = None, id: str | None = None, most: int = -1
    ) -> list[Alert]:
        """Return alerts, those that were seen last first; `is_open`: only open or only closed ones; `most` of them."""
        which = {None: "closed >= 0", True: "closed = 0", False: "closed > 0"}[is_open]
        with self._database.reading() as database:
            asked = (
                f"SELECT content FROM alerts WHERE {which} AND (? IS NULL OR id = ?)"
                " AND (? IS NULL OR CAST(json_extract(content, '$.host') AS TEXT) = ?) ORDER BY last DESC, id LIMIT ?"
            )
            rows = database.execute(asked, (id, id, host, host, most)).fetchall()
            found = [Alert.from_fields(json.loads(content)) for (content,) in rows]
            self._tell_people(found)
            return found

    def _tell_people(self, alerts: Sequence[Alert]) -> None:
        """Give alerts what people have said of them."""
        marks = self._marks([alert.id for alert in alerts])
        for alert in alerts:
            kept = {name: value for name, value in alert.known.items() if name not in PEOPLE}
            alert.known = kept | marks.get(alert.id, {})

    def _marks(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return what people have said of alerts: fields of events, by the id of the alert."""
        asked = (
            "SELECT alert, at, event, text, person FROM history WHERE person <> '' AND alert IN"
            " (SELECT value FROM json_each(?)) ORDER BY number"
        )
        found: dict[str, dict[str, Any]] = {}
        with self._database.reading() as database:
            for alert, at, event, text, person in database.execute(asked, (json.dumps(ids),)).fetchall():
                marks = found.setdefault(alert, {})
                if event in (ACKNOWLEDGED, WITHDRAWN):
                    for name in ("acknowledged", "acknowledged_by"):
                        marks.pop(name, None)
                if event == ACKNOWLEDGED:
                    marks |= {"acknowledged": iso_time(int(at)), "acknowledged_by": str(person)}
                if event == ASSIGNED:
                    marks["owner"] = str(text)
                if event == NOTED or (event == ACKNOWLEDGED and text):
                    marks["note"] = str(text)
        return {alert: {name: value for name, value in marks.items() if value} for alert, marks in found.items()}

    def history(self, alert: Alert) -> list[dict[str, Any]]:
        """Return what happened to an alert, the first first: what, when (in seconds), in words, and by whom."""
        with self._database.reading() as database:
            asked = "SELECT at, event, text, person FROM history WHERE alert = ? ORDER BY at, number"
            rows = database.execute(asked, (alert.id,)).fetchall()
            found = [{"at": int(at) / SECOND, "event": str(e), "text": str(t), "by": str(by)} for at, e, t, by in rows]
        events = {each["event"] for each in found}
        if OPENED not in events:  # An earlier release has kept no history.
            found.insert(0, {"at": alert.opened / SECOND, "event": OPENED, "text": "", "by": ""})
        if alert.closed and CLOSED not in events:
            found.append({"at": alert.closed / SECOND, "event": CLOSED, "text": alert.text, "by": ""})
        return found

    def acknowledge(self, words: Sequence[str], by: str, note: str = "", *, off: bool = False) -> list[Alert]:
        """Say that somebody looks at alerts, or with `off` that nobody does any more; return them."""
        return self._mark(self.find(words), by, {WITHDRAWN if off else ACKNOWLEDGED: note})

    def note(self, words: Sequence[str], by: str, owner: str | None, note: str | None) -> list[Alert]:
        """Give alerts an owner and a note; an empty text removes what was there, None leaves it."""
        return self._mark(self.find(words), by, {ASSIGNED: owner, NOTED: note})

    def _mark(self, alerts: list[Alert], by: str, events: Mapping[str, str | None]) -> list[Alert]:
        """Write into the history of alerts what a person does with them."""
        at, newest = time.time_ns(), "SELECT number FROM history WHERE alert = ? ORDER BY number DESC LIMIT 1 OFFSET ?"
        told = [(event, text, by or "somebody") for event, text in events.items() if text is not None]
        with self._database.transaction() as database:
            database.executemany(
                "INSERT INTO history (alert, at, event, text, person) VALUES (?, ?, ?, ?, ?)",
                [(alert.id, at, *each) for alert in alerts for each in told],
            )
            database.executemany(
                f"DELETE FROM history WHERE alert = ? AND number <= ({newest})",
                [(alert.id, alert.id, MOST_HISTORY) for alert in alerts],
            )
        return alerts

    def find(self, words: Sequence[str]) -> list[Alert]:
        """Return the alerts of ids, and the open alerts of hosts. Raise UsageError if there is none of a word."""
        found: dict[str, Alert] = {}
        for word in words:
            mine = self.alerts(id=word) or self.alerts(host=word, is_open=True)
            if not mine:
                raise UsageError(f"{printable(word)}: neither the id of an alert nor a host with an open one")
            found |= {each.id: each for each in mine}
        return [*found.values()]

    def mutes(self) -> AllowList:
        with self._database.reading():
            return AllowList(Entry(as_network(each["host"], "mute"), each["rule"], "muted") for each in self.muted())

    def muted(self) -> list[dict[str, Any]]:
        names, kinds = ("host", "rule", "until", "why"), (str, str, float, str)
        with self._database.reading() as database:
            asked = "SELECT network, rule, until, why FROM mutes WHERE until > ? ORDER BY until"
            rows = database.execute(asked, (time.time(),)).fetchall()
            if not all(isinstance(value, kind) for row in rows for value, kind in zip(row, kinds, strict=True)):
                raise ValueError("a mute is not text with a time")
            for network, *_ in rows:
                as_network(network, "mute")  # raises an error that says what is wrong
        return [dict(zip(names, row, strict=True)) for row in rows]

    def mute(self, network: str, rule: str, until: float, why: str = "", by: str = "") -> None:
        """Want no alert of a host or prefix until some time, for one rule or, if it is empty, for all.

        The history of the open alerts that it closes says so.
        """
        muting = _muting(network, rule)
        closes = [each for each in self.alerts(is_open=True) if muting.entry_for(network_of(each.host), each.rule)]
        text = f"until {iso_time(int(until) * SECOND)}{f': {why}' if why else ''}"
        muted = str(as_network(network, "mute")), rule, float(until), why
        with self._database.transaction() as database:
            database.execute("DELETE FROM mutes WHERE until <= ?", (time.time(),))
            database.execute("INSERT OR REPLACE INTO mutes VALUES (?, ?, ?, ?)", muted)
        self._mark(closes, by, {MUTED: text})

    def unmute(self, network: str, rule: str) -> bool:
        """Want alerts again; False if none were muted."""
        with self._database.transaction() as database:
            gone = database.execute(
                "DELETE FROM mutes WHERE network = ? AND rule = ?", (str(as_network(network, "mute")), rule)
            )
            return gone.rowcount > 0


def mute_of(alert: Alert, muted: Sequence[Mute]) -> Mute | None:
    """Return the mute that ends last of those for this alert; `muted` has the first to end first."""
    network = network_of(alert.host)
    return next((m for m in reversed(muted) if _muting(m["host"], m["rule"]).entry_for(network, alert.rule)), None)


@lru_cache(4096)
def _muting(host: str, rule: str) -> AllowList:
    return AllowList([Entry(as_network(host, "mute"), rule)])


def state_of(alert: Alert, muted: Sequence[Mute]) -> State:
    """Return what is to be done: an alert that is muted is closed with the next window."""
    if alert.closed:
        return "closed"
    if mute_of(alert, muted) is not None:
        return "muted"
    return "acknowledged" if "acknowledged" in alert.known else "open"


def _when(event: Event) -> int:
    """Return when something happened, by the times of windows."""
    return round(seconds_of(event["closed"] if event["event"] == CLOSED else event["until"]) * SECOND)


class AlertDesk(Destination):
    """A destination that turns the rows of windows into alerts, and hands these on to destinations of their own.

    Destinations of alerts have queues of their own. If one fails all the same, its events wait, and the run goes on.
    """

    def __init__(
        self, store: AlertStore, policy: Policy, receivers: Sequence[Destination], say: Callable[[str], None]
    ) -> None:
        super().__init__(f"alerts:{store.path}")
        self.path = store.path
        self._store, self._receivers, self._say = store, receivers, say
        self._machine = store.machine(policy)
        self._trouble = ""
        self._untimed = False
        self._keep_open()

    def _write(self, report: Report) -> None:
        window = report.window
        if window is None or not window.is_timed:
            if not self._untimed:
                text = "NO ALERTS: the rows have no times, and alerts are opened and closed by them"
                self._say(Notice(text, "no-alerts", WARNING))
            self._untimed = True
            return
        self._store.take(self._machine, window, report.rows, is_whole=PARTIAL not in report.notes)
        self._hand_on()

    @property
    def knows_week(self) -> bool:
        """Return True if a week was noted, so that its hours are known."""
        return self._machine.week.ended - self._machine.week.began >= 7 * 86400 * SECOND

    @property
    def policy(self) -> Policy:
        return self._machine.policy

    def receivers(self) -> list[Destination]:
        return list(self._receivers)

    def states(self) -> dict[str, int]:
        """Return how many alerts are open, and how many were opened, grown, closed and held back; asks no file."""
        return {"open": len(self._machine.alerts), **asdict(self._machine.counters)}

    def open_events(self) -> list[Event]:
        """Return what is told of the alerts that are open; asks no file."""
        return self._machine.open_events()

    def exchange(self, receivers: Sequence[Destination]) -> list[Destination]:
        left = [each for each in self._receivers if each not in receivers]
        for each in left:
            each.keep_open(tuple)  # Nothing is wanted of it any more.
        self._receivers = list(receivers)
        self._keep_open()
        return left

    def reload(self, policy: Policy) -> None:
        self._store.reload(self._machine, policy)
        self._hand_on()

    def reopen(self) -> None:
        for receiver in self._receivers:
            receiver.reopen()

    def _keep_open(self) -> None:
        for receiver in self._receivers:
            receiver.keep_open(self._machine.open_events)

    def _hand_on(self) -> None:
        """Hand on all events that wait. If that fails, they come again with the next window."""
        self._keep_open()  # first, so that nobody repeats an alert after it was told that it is closed
        try:
            while waiting := self._store.waiting():
                events = [event for _, event in waiting]
                counts = Counter(event["event"] for event in events)
                title = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
                for receiver in self._receivers:
                    receiver.write(Report(rows=events, title=title))
                self._store.handed_on(waiting[-1][0])
            trouble = self._store.trouble
        except (InputError, OutputError) as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            self._say(Notice(f"ALERTS WAIT: {trouble}", "alerts-wait", WARNING))
        self._trouble = trouble

    def close(self) -> None:
        try:
            for_each(self._receivers, lambda receiver: receiver.close())
        finally:
            self._store.close()
        if self._trouble:
            raise OutputError(f"alerts of the last windows were not handed on: {self._trouble}")

    def status(self) -> dict[str, int]:
        return asdict(self.counters) | self.states() | {"waiting": self._store.count_waiting()}
