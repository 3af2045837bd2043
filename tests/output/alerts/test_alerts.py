"""One scan is one alert and its growth: the state machine, its rules and lists, and its file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from faults import full_disk
from superhosts.core.pairs import Window
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND
from superhosts.errors import InputError, UsageError
from superhosts.output.alerts.machine import AlertMachine, Event, Policy
from superhosts.output.alerts.past import LEARNING, Past
from superhosts.output.alerts.rules import AllowList, Hours, Rule, never_act, rules_of
from superhosts.output.alerts.store import AlertStore
from superhosts.output.records import ALERT, Batch, make_record, shown_lines
from superhosts.output.report import Row
from superhosts.output.senders.alertmanager import Alertmanager
from superhosts.output.senders.webhook import as_pagerduty

NOON = 1_794_657_600  # 2026-11-14T12:00:00Z, a Saturday
LENGTH = 300
SCANNER, RESOLVER = "203.0.113.66", "10.0.0.53"


def window(number: int, length: int = LENGTH, step: int = LENGTH) -> Window:
    start = (NOON + number * step) * SECOND
    return Window(start, start + length * SECOND)


def row(host: str | int = SCANNER, peers: int = 2000, **others: Any) -> Row:
    plain = {"host": host, "family": 6 if ":" in str(host) else 4, "side": "inner", "direction": "any"}
    return plain | {"peers": peers, "peers_low": peers - 50, "peers_high": peers + 50, "saturated": False} | others


def run(machine: AlertMachine, windows: Iterable[Iterable[Row]]) -> list[Event]:
    return [event for number, rows in enumerate(windows) for event in machine.take(window(number), list(rows))]


def kinds(events: Iterable[Event]) -> list[str]:
    return [event["event"] for event in events]


def machine_of(*rules: Rule, **policy: Any) -> AlertMachine:
    return AlertMachine(Policy(rules or (Rule(threshold=1000),), **policy))


def test_a_scan_of_an_hour_is_one_alert_that_grows_and_is_closed() -> None:
    scan = [[row(peers=1500)], [row(peers=2500)], *[[row(peers=4100)]] * 10, [], [], []]
    events = run(machine_of(), scan)
    assert kinds(events) == ["opened", "grown", "grown", "closed"]
    assert len({event["alert"] for event in events}) == 1
    assert [event["peers"] for event in events] == [1500, 2500, 4100, 4100]
    closed = events[-1]
    assert closed["reason"] == "quiet"
    assert (closed["peak"], closed["windows"]) == (4100, 12)
    assert (closed["since"], closed["until"]) == (iso_time(window(0).start), iso_time(window(11).end))


def test_a_scan_that_pauses_every_third_window_is_one_alert() -> None:
    events = run(machine_of(), ([] if number % 3 == 2 else [row()] for number in range(24)))
    assert kinds(events) == ["opened"]


def test_what_varies_around_the_threshold_does_not_flap() -> None:
    for numbers, told in (
        ([1001, 990, 820, 1020, 805, 999, 1001] * 5, ["opened"]),
        ([999] * 5, []),
        ([1000, 799, 799], ["opened", "closed"]),  # below the share that keeps it open
        ([1000, 800, 800], ["opened"]),
    ):
        assert kinds(run(machine_of(), ([row(peers=peers)] for peers in numbers))) == told


def test_sliding_windows_are_quiet_by_their_length() -> None:
    machine, events = machine_of(), []
    for number in range(40):
        rows = [row()] if number < 10 else []
        events += machine.take(window(number, step=30), rows)
        if number < 29:
            assert kinds(events) == ["opened"]
    assert kinds(events) == ["opened", "closed"]


def test_a_window_that_comes_late_opens_alerts_and_closes_older_ones_alone() -> None:
    machine = machine_of()
    machine.take(window(5), [row()])
    (late,) = machine.take(window(2), [row("203.0.113.7", 9000)])
    assert (late["event"], late["host"]) == ("opened", "203.0.113.7")
    assert machine.latest == window(5).end
    (grown,) = machine.take(window(3), [row(peers=5000)])
    assert (grown["event"], grown["peers"], grown["peak"]) == ("grown", 2000, 5000)
    (closed,) = machine.take(window(4), [])  # what is over; the other one is newer
    assert (closed["event"], closed["host"]) == ("closed", "203.0.113.7")


def test_a_replay_tells_nothing_again(tmp_path: Path) -> None:
    scan = [[row()], [row(peers=4500), row("203.0.113.7")], [], [row()], [], []]
    store = AlertStore(tmp_path / "a.sqlite")
    machine = store.machine(Policy((Rule(threshold=1000),)))
    first = [event for number, rows in enumerate(scan) for event in store.take(machine, window(number), rows)]
    assert kinds(first) == ["opened", "grown", "opened", "closed", "closed"]
    seen = {alert.id: alert.windows for alert in store.alerts()}
    again = store.machine(machine.policy)  # a second run
    assert [event for number, rows in enumerate(scan) for event in store.take(again, window(number), rows)] == []
    assert {alert.id: alert.windows for alert in store.alerts()} == seen
    assert kinds(store.take(again, window(len(scan)), [row()])) == ["opened"]
    store.close()


def test_a_storm_that_is_replayed_opens_nothing(tmp_path: Path) -> None:
    many = [row(f"203.0.113.{number}", 2000 + number) for number in range(6)]
    for scan in ([many, many, [], [], []], [many, many]):  # closed, and still open
        with closing(AlertStore(tmp_path / f"{len(scan)}.sqlite")) as store:
            told = []
            for _ in range(3):
                machine = store.machine(Policy((Rule(threshold=1000),), cap=2))
                told.append([e for number, rows in enumerate(scan) for e in store.take(machine, window(number), rows)])
            assert kinds(told[0]).count("opened") == 4
            assert told[1:] == [[], []]


def test_an_older_capture_closes_the_alerts_that_it_has_opened(tmp_path: Path) -> None:
    machine = machine_of()
    machine.take(window(1000), [row()])
    older = [[row("203.0.113.7")], [row("203.0.113.7", 2500)], [], [], [row("203.0.113.7")], [], []]
    events = run(machine, older)
    assert kinds(events) == ["opened", "closed"] * 2
    assert (events[1]["reason"], events[1]["closed"]) == ("quiet", iso_time(window(3).end))
    assert [alert.host for alert in machine.alerts.values()] == [SCANNER]
    assert run(machine, older) == []


def test_a_rule_that_another_run_does_not_have_is_no_quiet_host(tmp_path: Path) -> None:
    machine = machine_of(Rule("old"))
    machine.take(window(0), [row()])
    renamed = AlertMachine(Policy((Rule("new"),)), machine.alerts.values(), latest=machine.latest)
    events = renamed.take(window(0), [row()])
    assert [(each["event"], each["rule"], each.get("reason")) for each in events] == [
        ("opened", "new", None),
        ("closed", "old", "rule removed"),
    ]


def test_an_interrupted_window_opens_and_closes_nothing() -> None:
    machine = machine_of()
    machine.take(window(0), [row()])
    for number in (1, 2, 3):
        assert machine.take(window(number), [row(peers=300)], is_whole=False) == []
    (opened,) = machine.take(window(3), [row("203.0.113.7")], is_whole=False)
    assert (opened["event"], opened["host"]) == ("opened", "203.0.113.7")
    assert machine.take(window(1), [row(), row("203.0.113.7")]) == []
    assert kinds(run(machine, [[], [], [], [], [], []])) == ["closed", "closed"]


def test_rules_are_of_a_side_a_direction_and_what_is_counted() -> None:
    rules = Rule("out", direction="unanswered", threshold=100), Rule("ports", counts="ports", threshold=50)
    rows = [row(peers=5000), row("10.1.1.1", 200, direction="unanswered"), row("10.1.1.2", 60, counts="ports")]
    events = run(machine_of(*rules), [rows])
    assert [(event["rule"], event["host"]) for event in events] == [("out", "10.1.1.1"), ("ports", "10.1.1.2")]
    assert machine_of(*rules).policy.least == 40


def test_the_longest_prefix_has_the_threshold() -> None:
    rule = Rule(threshold=1000, prefixes={"10.0.0.0/8": 100, "10.1.0.0/16": 5000, "2001:db8::/32": 10})
    hosts = {"10.2.2.2": 100, "10.1.2.2": 4999, "192.0.2.1": 999, "2001:db8:1::/64": 10, "10.1.2.3:443": 5000}
    events = run(machine_of(rule), [[row(host, peers) for host, peers in hosts.items()]])
    assert {event["host"] for event in events} == {"10.2.2.2", "2001:db8:1::/64", "10.1.2.3:443"}


def test_a_saturated_host_counts_by_its_lower_bound() -> None:
    (event,) = run(
        machine_of(), [[row() | {"peers": None, "peers_low": 150_000, "peers_high": None, "saturated": True}]]
    )
    assert (event["event"], event["peers"]) == ("opened", 150_000)


def test_hosts_that_are_no_addresses() -> None:
    machine = machine_of(prefixes_rule := Rule(prefixes={"10.0.0.0/8": 5}, threshold=1000))
    assert Policy((prefixes_rule,)).least == 4
    events = run(machine, [[row(-7, 1500, family=None), row("name", 1500, family=None)]])
    assert {event["host"] for event in events} == {-7, "name"}
    assert not any(event["act"] for event in events)


# Allow-lists, mutes and what must never be acted upon


def test_a_resolver_that_is_always_busy_is_muted_by_one_line() -> None:
    machine = machine_of(allow=AllowList.of([f"{RESOLVER}  # our resolver"]))
    assert run(machine, [[row(RESOLVER, 50_000)]] * 20) == []
    assert machine.counters.allowed == 20


def test_a_list_that_changes_acts_at_once_on_open_alerts() -> None:
    machine = machine_of()
    run(machine, [[row(RESOLVER), row()]])
    events = machine.reload(Policy(machine.policy.rules, AllowList.of(["10.0.0.0/8"])))
    assert [(event["event"], event["host"], event["reason"]) for event in events] == [("closed", RESOLVER, "allowed")]
    assert [alert.host for alert in machine.alerts.values()] == [SCANNER]
    (closed,) = machine.reload(Policy((Rule("other"),)))
    assert closed["reason"] == "rule removed"


def test_an_entry_for_one_rule_leaves_the_others() -> None:
    rules = Rule("a", threshold=1000), Rule("b", threshold=1000)
    events = run(machine_of(*rules, allow=AllowList.of(["203.0.113.0/24 a"])), [[row()]])
    assert [event["rule"] for event in events] == ["b"]


def with_peers(*peers: str, pattern: str | None = None) -> Row:
    return row() | {"pattern": pattern, "evidence": {"peers": list(peers)}}


def test_hosts_that_talk_to_known_peers_alone_are_allowed() -> None:
    allow = AllowList.of(["peers:198.51.100.0/24", "peers:2001:db8::/32", "peers:192.0.2.0/24 other"])
    known, stranger = with_peers("198.51.100.7", "198.51.100.9", "2001:db8::1"), with_peers("198.51.100.7", "192.0.2.1")
    assert run(machine_of(allow=allow), [[known]]) == []
    for other in (stranger, with_peers(), row("198.51.100.7")):
        assert kinds(run(machine_of(allow=allow), [[other]])) == ["opened"]
    assert [event.get("reason") for event in run(machine_of(allow=allow), [[stranger], [known]])] == [None, "allowed"]


def test_a_rule_may_be_about_a_pattern() -> None:
    rule = Rule(threshold=1000, patterns=["horizontal scan", "prefix sweep"])
    scan, server = (with_peers(pattern=each) for each in ("horizontal scan", "web server"))
    assert run(machine_of(rule), [[server], [row()], [with_peers()]]) == []
    events = run(machine_of(rule), [[server], [scan], [server], [scan]])
    assert [(event["event"], event["pattern"]) for event in events] == [("opened", "horizontal scan")]
    with pytest.raises(UsageError, match="file: rule 1: unknown pattern 'sweep'; use "):
        rules_of([{"patterns": ["sweep"]}], "file")


def test_wrong_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "allow.txt"
    with pytest.raises(InputError, match="cannot be read"):
        AllowList.read(path)
    for line in ("10.0.0.1 two words", "10.0.0.300", "10.0.0.1 Rule!", "peers:", "peers:x"):
        path.write_text(f"# comment\n{line}\n")
        with pytest.raises(InputError, match=r"allow\.txt.*line 2"):
            AllowList.read(path)


def test_nothing_is_done_against_ones_own_hosts_resolvers_and_root_servers() -> None:
    machine = machine_of(never_act=never_act(["198.51.100.0/24"]))
    hosts = {SCANNER: True, "198.51.100.7": False, "10.1.1.1": False, "8.8.8.8": False, "198.41.0.4": False}
    events = run(machine, [[row(host) for host in hosts]])
    assert {event["host"]: event["act"] for event in events} == hosts


# Storms, hours, and a host's own past


def test_a_storm_is_capped_and_the_rest_is_told_and_comes_later() -> None:
    machine = machine_of(cap=3)
    rows = [row(f"203.0.113.{number}", 1000 + number) for number in range(10)]
    events = machine.take(window(0), rows)
    assert kinds(events) == ["opened"] * 3 + ["storm"]
    assert [event["host"] for event in events[:3]] == ["203.0.113.9", "203.0.113.8", "203.0.113.7"]
    assert events[-1]["held_back"] == machine.counters.held_back == 7
    assert kinds(machine.take(window(1), rows)) == ["opened"] * 3 + ["storm"]
    assert len(machine.alerts) == 6


def test_the_end_of_a_storm_closes_what_its_begin_has_opened_also_after_a_restart(tmp_path: Path) -> None:
    rows = [row(f"203.0.113.{number}", 2000 + number) for number in range(7)]
    told: list[Event] = []
    for number in range(4):
        store = AlertStore(tmp_path / "alerts")  # as after a restart
        told += [each for each in store.take(store.machine(Policy(cap=3)), window(number), rows) if "held_back" in each]
        store.close()
    assert kinds(told) == ["storm", "storm", "closed"]
    assert told[-1]["text"] == "CLOSED storm after 10 min: no alert is held back any more"
    records = [make_record(each, "ams") for each in told]
    incidents = [*as_pagerduty(Batch("1", records), "key")]
    assert [each["event_action"] for each in incidents] == ["trigger", "trigger", "resolve"]
    assert {each["dedup_key"] for each in incidents} == {f"superhosts/alert/ams/{told[0]['alert']}"}
    assert {each["payload"]["source"] for each in incidents} == {"ams"}
    batch = Batch("2", [*({"text": f"host {number}"} for number in range(100)), records[0]], kind=ALERT)
    assert [*shown_lines(batch)][:2] == [records[0]["text"], "host 0"]
    sender, now = Alertmanager.open("alertmanager+http://127.0.0.1:9093"), datetime.now(UTC)
    assert isinstance(sender, Alertmanager)
    alerts = [sender._alert(record, now, timedelta(hours=1)) for record in records]
    labels = {"alertname": "SuperHostStorm", "severity": "warning", "site": "ams"}
    assert [each["labels"] for each in alerts] == [labels] * 3
    assert [datetime.fromisoformat(each["endsAt"]) > now for each in alerts] == [True, True, False]


def test_hours() -> None:
    for hours, inside in {
        "08:00-18:00": True,
        "mon-fri 08:00-18:00": False,  # a Saturday
        "sat-mon 08:00-18:00": True,
        "22:00-06:00": False,
        "fri 22:00-13:00": True,  # since Friday evening
        "sat 22:00-13:00": False,
    }.items():
        assert Hours.parse(hours).include(NOON) == inside, hours
    minute = Hours.parse("12:00-12:01")
    assert (minute.include(NOON + 59), minute.include(NOON + 60)) == (True, False)
    assert Hours.parse("13:00-14:00", "Europe/Berlin").include(NOON)
    for wrong in ("8-18", "mon-fry 08:00-18:00", "25:00-26:00", ""):
        with pytest.raises(UsageError, match="hours"):
            Hours.parse(wrong)
    for nowhere in ("Europe/Nowhere", "Europe", "..", "", "x" * 5000):
        with pytest.raises(UsageError, match=r"zone .*: not a time zone"):
            Hours.parse("08:00-18:00", nowhere)
        with pytest.raises(UsageError, match=r"rule 1: zone .*: not a time zone"):
            rules_of([{"zone": nowhere}], "file")
    machine = machine_of(Rule(threshold=1000, hours=Hours.parse("00:00-06:00")))
    assert run(machine, [[row()]]) == []


def test_against_the_hosts_own_past() -> None:
    machine = machine_of(Rule(threshold=1000, times_usual=5))
    busy = [[row(RESOLVER, 3000)]] * 20
    assert run(machine, busy) == []
    assert kinds(machine.take(window(20), [row(RESOLVER, 14_999), row(SCANNER, 999)])) == []
    events = machine.take(window(21), [row(RESOLVER, 15_001), row(SCANNER, 1001)])
    assert {(event["event"], event["host"]) for event in events} == {("opened", RESOLVER), ("opened", SCANNER)}
    assert events[0]["threshold"] == 15_000


def test_nothing_is_usual_before_some_windows() -> None:
    machine = machine_of(Rule(threshold=1000, times_usual=2))
    assert run(machine, [[row(peers=50_000)]] * LEARNING) == []


def test_the_past_is_bounded() -> None:
    past = Past(hosts=100)
    for number in range(50):
        for host in range(10):
            past.note(f"{number}-{host}", 1000)
        past.note("always", number)
        past.windows += 1
    assert len(past) == 100
    assert past.usual("always") == 43.5  # of 38 to 49
    assert past.usual("0-0") == 0
    assert past.stored("0-0") is None
    assert "0-0" in past.changed  # so that it is removed from the file, too
    again = Past(windows=past.windows)
    again.restore([("always", past.stored("always") or "")])
    assert again.usual("always") == 43.5


def test_rules_that_make_no_sense() -> None:
    wrong: list[tuple[str, Any, str]] = [
        ("side", "left", "one of inner, outer"),
        ("direction", "up", "one of any"),
        ("threshold", 0, "threshold"),
        ("threshold", float("nan"), "threshold"),
        ("grown", 1.0, "grown"),
        ("quiet", 0, "quiet"),
        ("name", "a rule", "a name has"),
        ("prefixes", {"10.0.0.0/99": 5}, "neither an address nor a prefix"),
        ("prefixes", {"10.0.0.0/8": 0}, "must be at least 1"),
    ]
    for name, value, said in wrong:
        with pytest.raises(UsageError, match=rf"^file: rule 1: (?!rule).*{said}"):  # which names the rule once
            rules_of([{name: value}], "file")


# The file


def test_a_restart_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = [[row(peers=1500)], [row(peers=2500)], [], [row(peers=2600)], [], [], [row(peers=1500)]]
    expected, told = run(machine_of(Rule(threshold=1000, times_usual=1)), [*[[row("10.9.9.9")]] * 8, *whole]), []
    path = tmp_path / "alerts.sqlite"
    for number, rows in enumerate([*[[row("10.9.9.9")]] * 8, *whole]):
        store = AlertStore(path)
        machine = store.machine(Policy((Rule(threshold=1000, times_usual=1),)))
        told += store.take(machine, window(number), rows)
        store.close()
    assert told == expected
    assert "opened" in kinds(told)


def test_events_wait_until_they_are_handed_on(tmp_path: Path) -> None:
    store = AlertStore(tmp_path / "alerts.sqlite")
    machine = store.machine(Policy((Rule(threshold=1000),)))
    store.take(machine, window(0), [row()])
    store.take(machine, window(1), [row(peers=9000)])
    store.close()
    store = AlertStore(tmp_path / "alerts.sqlite")
    first, second = store.waiting()
    assert [first[1]["event"], second[1]["event"]] == ["opened", "grown"]
    store.handed_on(first[0])
    assert [number for number, _ in store.waiting()] == [second[0]]
    store.handed_on(second[0])
    assert store.waiting() == []


def test_mutes_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "alerts.sqlite"
    store, other = AlertStore(path), AlertStore(path)
    machine = store.machine(Policy((Rule(threshold=1000),)))
    store.take(machine, window(0), [row(), row(RESOLVER)])
    other.mute("10.0.0.0/24", "", time.time() + 600, "known")
    other.mute(SCANNER, "", time.time() - 1)  # over
    (closed,) = store.reload(machine, machine.policy)
    assert (closed["host"], closed["reason"]) == (RESOLVER, "muted")
    assert [alert.host for alert in other.alerts(is_open=True)] == [SCANNER]
    assert [alert.host for alert in other.alerts(is_open=False)] == [RESOLVER]
    assert other.unmute("10.0.0.0/24", "")
    assert not other.unmute("10.0.0.0/24", "")


def test_what_is_no_file_of_alerts(tmp_path: Path) -> None:
    path = tmp_path / "alerts.sqlite"
    path.write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    with pytest.raises(InputError, match="not a file of alerts"):
        AlertStore(path)
    with pytest.raises(InputError, match="no alerts are kept"):
        AlertStore(tmp_path / "missing", must_exist=True)
    for number, made in enumerate(("CREATE TABLE alerts (id)", "CREATE TABLE songs (id); PRAGMA user_version=1")):
        foreign = tmp_path / f"{number}.sqlite"
        with closing(sqlite3.connect(foreign)) as database:
            database.executescript(made)
        before = foreign.read_bytes()
        with pytest.raises(InputError, match=rf"{foreign}: a database of another program"):
            AlertStore(foreign)
        assert foreign.read_bytes() == before
    (tmp_path / "empty").touch()
    AlertStore(tmp_path / "empty").close()


def test_a_full_disk_delays_what_is_told_and_loses_nothing(tmp_path: Path) -> None:
    hosts = [row(f"203.0.113.{number}") for number in range(90)]
    with closing(AlertStore(tmp_path / "alerts.sqlite")) as store:
        machine = store.machine(Policy((Rule(threshold=1000),)))
        with full_disk(4096):
            assert len(store.take(machine, window(0), hosts)) == 90
        assert store.trouble
        store.take(machine, window(1), hosts)
        assert not store.trouble
        assert len(store.waiting()) == len(store.alerts()) == 90
