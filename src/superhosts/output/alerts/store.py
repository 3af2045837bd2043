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
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from superhosts.core.database import Database, Format
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Window
from superhosts.core.text import printable
from superhosts.errors import InputError, OutputError
from superhosts.output.alerts.machine import MOST_HOSTS, Alert, AlertMachine, Event, Past, Policy
from superhosts.output.alerts.rules import AllowList, Entry, as_network
from superhosts.output.destination import Destination, for_each
from superhosts.output.report import PARTIAL, Report, Row

KEEP_CLOSED = 100_000  # closed alerts; beyond, the oldest are removed
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
            numbers = [state.get(name, 0) for name in ("windows", "latest", "storm")]
            if not all(isinstance(each, int) for each in numbers):
                raise ValueError(f"a number is {printable(repr(numbers), 40)}")
            windows, latest, storm = numbers
            past = Past(windows=windows)
            past.restore(database.execute("SELECT key, content FROM past").fetchall())
            closed = self.alerts(is_open=False, most=MOST_HOSTS)
            machine = AlertMachine(policy, self.alerts(is_open=True), past, latest, storm, closed)
        machine.mutes = self.mutes()
        return machine

    def take(self, machine: AlertMachine, window: Window, rows: Sequence[Row], *, is_whole: bool = True) -> list[Event]:
        """Have a machine take a window, and store what came of it.

        If it cannot be stored (a full disk), `trouble` says so, detection goes on, and the next window stores it, too.
        """
        mutes, trouble = machine.mutes, ""
        try:
            mutes = self.mutes()  # of `superhosts alerts mute`, while this runs
        except (InputError, OutputError) as error:
            trouble = str(error)
        events = machine.reload(machine.policy, mutes) if mutes.entries != machine.mutes.entries else []
        return self._stored(machine, events + machine.take(window, rows, is_whole=is_whole), trouble)

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
        past = machine.past
        with self._database.transaction() as database:
            database.executemany(
                "INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?)",
                [(alert.id, alert.closed, alert.last, json.dumps(asdict(alert))) for alert in machine.changed.values()],
            )
            database.executemany("INSERT INTO events (content) VALUES (?)", [(json.dumps(each),) for each in events])
            stored = [(key, past.stored(key)) for key in past.changed]
            database.executemany("DELETE FROM past WHERE key = ?", [(key,) for key, text in stored if text is None])
            database.executemany("INSERT OR REPLACE INTO past VALUES (?, ?)", [each for each in stored if each[1]])
            state = {"latest": machine.latest, "windows": past.windows, "storm": machine.storm}
            database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state.items())
            database.execute(
                "DELETE FROM alerts WHERE closed > 0 AND id IN"
                " (SELECT id FROM alerts WHERE closed > 0 ORDER BY last DESC LIMIT -1 OFFSET ?)",
                (KEEP_CLOSED,),
            )
        machine.changed.clear()
        past.changed.clear()

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

    def alerts(self, *, is_open: bool | None = None, host: str | None = None, most: int = -1) -> list[Alert]:
        """Return alerts, those that were seen last first; `is_open`: only open or only closed ones; `most` of them."""
        which = {None: "closed >= 0", True: "closed = 0", False: "closed > 0"}[is_open]
        with self._database.reading() as database:
            asked = (
                f"SELECT content FROM alerts WHERE {which} AND (? IS NULL OR json_extract(content, '$.host') = ?)"
                " ORDER BY last DESC, id LIMIT ?"
            )
            rows = database.execute(asked, (host, host, most)).fetchall()
            return [Alert.from_fields(json.loads(content)) for (content,) in rows]

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

    def mute(self, network: str, rule: str, until: float, why: str = "") -> None:
        """Want no alert of a host or prefix until some time, for one rule or, if it is empty, for all."""
        muted = str(as_network(network, "mute")), rule, float(until), why
        with self._database.transaction() as database:
            database.execute("DELETE FROM mutes WHERE until <= ?", (time.time(),))
            database.execute("INSERT OR REPLACE INTO mutes VALUES (?, ?, ?, ?)", muted)

    def unmute(self, network: str, rule: str) -> bool:
        """Want alerts again; False if none were muted."""
        with self._database.transaction() as database:
            gone = database.execute(
                "DELETE FROM mutes WHERE network = ? AND rule = ?", (str(as_network(network, "mute")), rule)
            )
            return gone.rowcount > 0


class AlertDesk(Destination):
    """A destination that turns the rows of windows into alerts, and hands these on to destinations of their own.

    Destinations of alerts have queues of their own. If one fails all the same, its events wait, and the run goes on.
    """

    def __init__(
        self, store: AlertStore, policy: Policy, receivers: Sequence[Destination], say: Callable[[str], None]
    ) -> None:
        super().__init__(f"alerts:{store.path}")
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
