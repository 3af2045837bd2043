"""What people do with alerts: acknowledge, note, assign and mute them, and the history that says so."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from commands import Run
from dashboards import Shown, serving
from output.alerts.test_alerts import RESOLVER, SCANNER, row, window
from superhosts.core.units import SECOND
from superhosts.errors import InputError, UsageError
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.rules import Rule
from superhosts.output.alerts.store import MOST_HISTORY, AlertStore, state_of
from ui.web.test_web_server import ask

POLICY = Policy((Rule(threshold=1000),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "alerts.sqlite"
    with closing(AlertStore(path)) as store:
        store.take(store.machine(POLICY), window(0), [row(), row(RESOLVER, 3000), row("203.0.113.7", 9000)])
    return path


def test_acknowledged_alerts_stay_open_and_say_by_whom(run: Run, file: Path) -> None:
    with closing(AlertStore(file)) as running:  # the run goes on meanwhile
        machine = running.machine(POLICY)
        said = run("alerts", "acknowledge", file, SCANNER, "203.0.113.7", "--by", "ana", "--note", "a backup")
        assert [line.rpartition(": ")[2] for line in said.err.splitlines()] == ["acknowledged"] * 2
        listed = run("alerts", "list", file).out.splitlines()[1:]
        states = [(line.split()[2], line.rpartition("Z  ")[2].strip()) for line in listed]
        by_ana = "acknowledged by ana"
        assert states == [(RESOLVER, "open"), ("203.0.113.7", by_ana), (SCANNER, by_ana)]
        (grown,) = running.take(machine, window(1), [row(peers=4500), row(RESOLVER, 3000), row("203.0.113.7", 9000)])
        assert (grown["note"], grown["acknowledged_by"]) == ("a backup", "ana")
        assert "; acknowledged by ana; note a backup" in grown["text"]
        run("alerts", "acknowledge", file, SCANNER, "--off", "--by", "bob")
        events = running.take(machine, window(2), [row(peers=9000), row(RESOLVER, 3000), row("203.0.113.7", 9000)])
        assert "acknowledged" not in events[0]
        assert events[0]["note"] == "a backup"
    with closing(AlertStore(file)) as again:  # also after a restart
        (alert,) = again.alerts(host=SCANNER)
        assert ("acknowledged" in alert.known, alert.known["note"]) == (False, "a backup")
        history = [(each["event"], each["by"], each["text"][:8]) for each in again.history(alert)]
    assert history == [
        ("opened", "", "OPENED m"),
        ("grown", "", "GROWN ma"),
        ("grown", "", "GROWN ma"),
        ("acknowledged", "ana", "a backup"),
        ("unacknowledged", "bob", ""),
    ]


def test_an_owner_and_a_note(run: Run, file: Path) -> None:
    run("alerts", "note", file, SCANNER, "--owner", "ana", "--note", "ticket 4711")
    listed = run("alerts", "list", file).out.splitlines()
    assert "owner" in listed[0].split()
    assert [line.split()[2] for line in listed if " ana " in line] == [SCANNER]
    shown = run("alerts", "show", file, SCANNER).out
    assert shown.splitlines()[0].startswith(f"OPEN many-peers: {SCANNER} has 2,000 peers (threshold 1,000), since ")
    assert shown.splitlines()[0].endswith("; owner ana; note ticket 4711")
    history = [line.split(maxsplit=2)[2] for line in shown.splitlines() if line.startswith("history")]
    assert history[0].startswith(f"OPENED many-peers: {SCANNER} has 2,000 peers")
    assert [line.partition(" by ")[0] for line in history[1:]] == ["assigned", "noted"]
    run("alerts", "note", file, SCANNER, "--owner", "")
    (record,) = run("alerts", "show", file, SCANNER, "--json").rows
    assert ("owner" in record, record["note"], record["state"]) == (False, "ticket 4711", "open")
    for words in (
        ["note", file, SCANNER],
        ["note", file, "192.0.2.1", "--owner", "x"],
        ["acknowledge", file, "nobody"],
    ):
        assert run("alerts", *words).status == 2


def test_escape_codes_of_a_note_reach_no_terminal(run: Run, file: Path) -> None:
    run("alerts", "note", file, SCANNER, "--owner", "\x1b[31mred", "--note", "a\nb")
    for words in (("list", file), ("show", file, SCANNER)):
        said = run("alerts", *words).out
        assert "\x1b" not in said
        assert "\\x1b[31mred" in said


def test_a_mute_is_in_the_history_of_the_alert_that_it_closes(run: Run, file: Path) -> None:
    run("alerts", "mute", file, "203.0.113.0/25", "--why", "our scanner", "--by", "ana")
    with closing(AlertStore(file)) as store:
        states = {alert.host: state_of(alert, store.muted()) for alert in store.alerts()}
        assert states == {SCANNER: "muted", "203.0.113.7": "muted", RESOLVER: "open"}
        store.take(store.machine(POLICY), window(1), [row(), row(RESOLVER, 3000)])
        (alert,) = store.alerts(host=SCANNER)
        found = store.history(alert)
    events = {each["event"]: each for each in found}
    assert [each["event"] for each in sorted(found, key=lambda each: each["at"])] == ["opened", "closed", "muted"]
    assert (events["muted"]["by"], events["muted"]["text"].endswith(": our scanner")) == ("ana", True)
    assert events["closed"]["text"].startswith(f"CLOSED many-peers: {SCANNER} is muted after 5 min")


def test_a_history_is_bounded_and_goes_with_its_alert(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(AlertStore(file)) as store:
        (alert,) = store.alerts(host=SCANNER)
        for number in range(MOST_HISTORY + 20):
            store.acknowledge([alert.id], "ana", f"note {number}")
        found = store.history(alert)
        assert len(found) == MOST_HISTORY + 1  # and that it was opened
        assert (found[0]["event"], found[-1]["text"]) == ("opened", f"note {MOST_HISTORY + 19}")
        monkeypatch.setattr("superhosts.output.alerts.store.KEEP_CLOSED", 0)
        machine = store.machine(POLICY)
        for number in (1, 2, 3):
            store.take(machine, window(number), [row(RESOLVER, 3000)])
        assert [each.host for each in store.alerts()] == [RESOLVER]
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(DISTINCT alert) FROM history").fetchone() == (1,)


def test_the_dashboard_acknowledges_and_notes(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    first, second = shown.alerts.alerts()[:2]
    with serving(shown.view) as web:
        before = shown.board.version
        posted = {"alerts": [first.id, second.id], "by": "ana", "note": "known", "off": False}
        assert ask(web, "/api/acknowledge", "POST", posted).content == {"acknowledged": 2}
        assert shown.board.version > before  # all viewers hear of it
        assert ask(web, "/api/note", "POST", {"alert": first.id, "owner": "bob"}).status == 200
        listed = {each["id"]: each for each in ask(web, "/api/alerts").content["alerts"]}
        mine = listed[first.id]
        assert (mine["state"], mine["acknowledged_by"], mine["owner"], mine["note"]) == (
            "closed" if first.closed else "acknowledged",
            "ana",
            "bob",
            "known",
        )
        assert abs(mine["acknowledged"] - time.time()) < 600
        assert mine["text"] == shown.alerts.alerts(id=first.id)[0].text
        assert mine["duration"] == (first.last - first.opened) / SECOND
        one = ask(web, f"/api/alert?id={first.id}").content
        assert [(each["event"], each["by"]) for each in one["history"]][-2:] == [
            ("acknowledged", "ana"),
            ("assigned", "somebody"),
        ]
        assert ask(web, "/api/acknowledge", "POST", {**posted, "off": True}).content == {"acknowledged": 2}
        assert "acknowledged" not in ask(web, f"/api/alert?id={first.id}").content
        wrong = [{"alerts": []}, {"alerts": "all"}, {"alerts": [5]}, {"alerts": ["none"]}, {"off": 1}, {"by": 7}]
        for each in [*wrong, {"note": "x" * 501}, {"note": "\ud800"}]:
            assert ask(web, "/api/acknowledge", "POST", {**posted, **each}).status == 400, each
        for note in ({"alert": "none", "owner": "x"}, {"alert": first.id, "owner": 5}, {"owner": "x" * 501}):
            assert ask(web, "/api/note", "POST", note).status == 400, note
        assert ask(web, "/api/alert").status == 400
        assert ask(web, "/api/acknowledge").status == 405
    shown.view.alerts = None
    with pytest.raises(UsageError, match="no alerts are kept here"):
        shown.view.acknowledge([first.id], "", "", off=False)
    shown.close()


# A file that release 0.1.0 has written, as `.dump` shows it

OF_0_1_0 = """
CREATE TABLE alerts (id TEXT PRIMARY KEY, closed INTEGER NOT NULL, last INTEGER NOT NULL,
    content TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO alerts VALUES('49f388ec7f2c',1794660300000000000,1794659700000000000,'{"rule": "many-peers",
    "host": "10.0.0.53", "family": 4, "side": "inner", "direction": "any", "counts": "hosts", "threshold": 1000,
    "opened": 1794659400000000000, "last": 1794659700000000000, "level": 1, "peers": 2000, "peak": 2000,
    "peak_at": 1794659700000000000, "windows": 1, "closed": 1794660300000000000, "reason": "quiet", "act": true,
    "known": {"label": "lab"}}');
INSERT INTO alerts VALUES('753a6ebbfae4',0,1794660300000000000,'{"rule": "many-peers", "host": "203.0.113.66",
    "family": 4, "side": "inner", "direction": "any", "counts": "hosts", "threshold": 1000,
    "opened": 1794659400000000000, "last": 1794660300000000000, "level": 0, "peers": 1700, "peak": 1700,
    "peak_at": 1794660300000000000, "windows": 3, "closed": 0, "reason": "", "act": true,
    "known": {"pattern": "prefix sweep", "service": "tcp/445"}}');
CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT NOT NULL);
INSERT INTO events VALUES(3,'{"kind": "alert", "event": "closed", "text": "CLOSED many-peers: 10.0.0.53 (lab)",
    "alert": "49f388ec7f2c", "host": "10.0.0.53", "since": "2026-11-14T12:30:00Z", "until": "2026-11-14T12:35:00Z",
    "closed": "2026-11-14T12:45:00Z", "reason": "quiet", "act": true}');
CREATE TABLE mutes (network TEXT NOT NULL, rule TEXT NOT NULL, until REAL NOT NULL, why TEXT NOT NULL,
    PRIMARY KEY (network, rule)) WITHOUT ROWID;
INSERT INTO mutes VALUES('198.51.100.0/24','',4000000000.0,'known');
CREATE TABLE past (key TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO past VALUES('many-peers' || char(10) || '4/203.0.113.66','[[6, 1500], [7, 1600], [8, 1700]]');
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO state VALUES('latest',1794660300000000000);
INSERT INTO state VALUES('storm',0);
INSERT INTO state VALUES('windows',9);
INSERT INTO state VALUES('written_by','0.1.0');
CREATE INDEX alerts_by_end ON alerts (closed, last);
PRAGMA user_version=1;
"""


def test_a_file_of_an_earlier_release_goes_on(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "alerts.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(OF_0_1_0)
    (listed,) = run("alerts", "list", path, "--json").rows
    assert (listed["host"], listed["pattern"], listed["state"]) == ("203.0.113.66", "prefix sweep", "open")
    assert run("alerts", "acknowledge", path, "203.0.113.66", "--by", "ana").status == 0
    with closing(AlertStore(path)) as store:
        machine = store.machine(POLICY)
        assert [event["event"] for _, event in store.waiting()] == ["closed"]
        (grown,) = store.take(machine, window(9), [row(peers=2100)])
        assert (grown["peers_before"], grown["acknowledged_by"], grown["since"]) == (
            1700,
            "ana",
            "2026-11-14T12:30:00Z",
        )
        assert grown["first_seen"] <= grown["since"]
        still, over = store.alerts()
        assert [each["event"] for each in store.history(still)] == ["opened", "grown", "acknowledged"]
        assert [(each["event"], each["at"]) for each in store.history(over)] == [
            ("opened", over.opened / SECOND),
            ("closed", over.closed / SECOND),
        ]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)  # earlier releases read it, too


def test_known_fields_that_cannot_be_told_are_damage(file: Path) -> None:
    for known in (
        {"ports": 5},
        {"ports": ["tcp/445"]},
        {"networks": [{"network": "10.0.0.0/8"}]},
        {"persistence": [9, 12]},
        {"persistence": {"windows": "9"}},
        {"sites": "ams"},
        {"usual_low": "few"},
        {"first_seen": 5},
        {"url": []},
    ):
        with closing(sqlite3.connect(file)) as database:
            database.execute("UPDATE alerts SET content = json_set(content, '$.known', json(?))", (json.dumps(known),))
            database.commit()
        with closing(AlertStore(file)) as store, pytest.raises(InputError, match=f"{next(iter(known))} of an alert is"):
            store.alerts()
