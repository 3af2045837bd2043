"""Alerts as a user gets them: a run that makes them, the commands that look at them, and receivers that fail."""

from __future__ import annotations

import json
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commands import Run
from first_hour.office import FOLDER
from output.alerts.test_alerts import row, window
from output.test_fanout import Fake
from processes import free_port
from superhosts.cli._alerts import check_threshold, policy_of
from superhosts.cli._options import AlertOptions
from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.errors import InputError, OutputError
from superhosts.output.alerts.machine import AlertMachine, Policy
from superhosts.output.alerts.rules import Rule
from superhosts.output.alerts.store import AlertDesk, AlertStore
from superhosts.output.report import Report

OFFICE = FOLDER / "office.pcap.gz"


def scanned(run: Run, folder: Path, *words: object) -> list[dict[str, object]]:
    told = folder / "told.jsonl"
    given = ("--inner", "private", "--window", "2m", "--alerts", folder / "alerts.sqlite", "--alert-to", told)
    ended = run("scan", OFFICE, FOLDER / "rotated", *given, *words)
    assert ended.status == 0, ended.err
    return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []


def test_a_scan_opens_and_closes_alerts_and_the_commands_show_them(run: Run, tmp_path: Path) -> None:
    told = scanned(run, tmp_path)
    assert [(each["event"], each["host"]) for each in told] == [
        ("opened", "10.20.0.80"),
        ("opened", "10.20.4.17"),
        ("closed", "10.20.0.80"),
        ("closed", "10.20.4.17"),
    ]
    file = tmp_path / "alerts.sqlite"
    assert "no open alerts" in run("alerts", "list", file).err
    listed = run("alerts", "list", file, "--all").out
    states = [(line.split()[2], line.split()[-1]) for line in listed.splitlines()[1:]]
    assert states == [("10.20.0.80", "closed"), ("10.20.4.17", "closed")]
    shown = json.loads(run("alerts", "show", file, "10.20.0.80", "--json").out)
    assert (shown["peak"], shown["since"], shown["alert"]) == (2600, "2026-03-02T09:06:00Z", told[0]["alert"])
    assert (shown["until"], "level" in shown) == (told[2]["until"], False)
    lines = dict(line.split(maxsplit=1) for line in run("alerts", "show", file, told[0]["alert"]).out.splitlines()[:-1])
    assert (lines["alert"], lines["act"], lines["muted_why"]) == (told[0]["alert"], "false", "-")
    assert len(run("alerts", "export", file).out.splitlines()) == 2
    missing = run("alerts", "show", file, "192.0.2.1")
    assert missing.status == 2
    assert "192.0.2.1" in missing.err
    assert run("alerts", "list", tmp_path / "missing").status == 3


def test_rules_of_the_configuration_and_hosts_that_are_allowed(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "superhosts.toml"
    config.write_text("[[rule]]\nname = 'small'\nthreshold = 250\nprefixes = { '10.20.0.0/24' = 2000 }\n")
    told = scanned(run, tmp_path, "--config", config, "--allow", "10.20.0.80")
    assert {(each["rule"], each["host"]) for each in told} == {("small", "10.20.4.17")}
    assert [each["event"] for each in told].count("opened") == 1


def test_the_threshold_is_that_of_the_rule_and_both_are_said(run: Run, tmp_path: Path) -> None:
    asked = ("scan", FOLDER / "services.pcap.gz", "--json", "--alerts")
    usual = run(*asked, tmp_path / "usual.sqlite", "--inner", "private")
    assert "alerts are opened by many-peers: inner hosts with 1,024 peers or more" in usual.err
    lower = run(*asked, tmp_path / "lower.sqlite", "--inner", "private", "--threshold", "300")
    assert "alerts are opened by many-peers: inner hosts with 300 peers or more" in lower.err
    assert {each["peers"] for each in run("alerts", "export", tmp_path / "lower.sqlite").rows} == {300, 701}
    config = tmp_path / "superhosts.toml"
    config.write_text(
        "[[rule]]\nname = 'few'\ndirection = 'out'\nthreshold = 50\nprefixes = { '10.20.0.0/24' = 700 }\n"
    )
    given = ("--threshold", "30", "--direction", "out", "--inner", "private", "--config", config)
    ruled = run(*asked, tmp_path / "ruled.sqlite", *given)
    assert "few: inner hosts with 50 peers or more, 700 in 10.20.0.0/24, direction out" in ruled.err
    for threshold in (1, 43, 81, 1024.5):  # its own rule's threshold, however 80 % of it are rounded
        check_threshold(policy_of(AlertOptions(), None, threshold=float(threshold)), Selection(float(threshold)))
    quiet = run(*asked, tmp_path / "quiet.sqlite", "--quiet")
    assert "alerts are opened" not in quiet.err


def test_open_alerts_are_listed_first_and_those_with_the_most_peers(run: Run, tmp_path: Path) -> None:
    store = AlertStore(tmp_path / "alerts.sqlite")
    machine = store.machine(Policy((Rule(threshold=1000),)))
    store.take(machine, window(0), [row("10.0.0.1", 9000), row("10.0.0.4", 3000), row("10.0.0.5", 1500)])
    store.mute("10.0.0.4", "", time.time() + 600)
    for number in (1, 2):
        store.take(machine, window(number), [row(f"10.1.0.{each}", 1000 * each) for each in (2, 5, 3)])
    store.close()
    lines = [line.split() for line in run("alerts", "list", tmp_path / "alerts.sqlite", "--all").out.splitlines()[1:]]
    ends = [line.index(next(cell for cell in reversed(line) if cell.endswith("Z"))) for line in lines]
    assert [(line[2], " ".join(line[end + 1 :])) for line, end in zip(lines, ends, strict=True)] == [
        *((f"10.1.0.{each}", "open") for each in (5, 3, 2)),
        ("10.0.0.1", "closed"),
        ("10.0.0.4", "closed: muted"),
        ("10.0.0.5", "closed"),
    ]


def test_mutes_are_listed_and_shown_with_the_alerts_that_they_are_about(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "alerts.sqlite"
    with closing(AlertStore(file)) as store:
        hosts = [row("10.0.0.7", 1500), row("10.0.0.8", 1200)]
        store.take(store.machine(Policy()), window(0), hosts)
    until = datetime.fromtimestamp(time.time() + 3600, UTC)
    run("alerts", "mute", file, "10.0.0.7", "--for", "1h", "--why", "our resolver", "--rule", "many-peers")
    listed = run("alerts", "list", file)
    open_one, muted_one = (line.rpartition("Z  ")[2].strip() for line in listed.out.splitlines()[1:])
    assert open_one == "open"
    assert muted_one.startswith(f"muted until {until:%Y-%m-%d}")
    assert muted_one.endswith(" (our resolver)")
    assert f"muted until {until:%Y-%m-%d}" in listed.err
    assert listed.err.endswith(": 10.0.0.7, many-peers (our resolver)\n")
    assert run("alerts", "list", file, "--rule", "other").err.startswith("muted until")  # also without alerts
    (shown,) = map(json.loads, run("alerts", "show", file, "10.0.0.7", "--json").out.splitlines())
    assert shown["muted_until"][:13] in (f"{until:%Y-%m-%dT%H}", f"{until + timedelta(minutes=1):%Y-%m-%dT%H}")
    assert shown["muted_why"] == "our resolver"
    others = map(json.loads, run("alerts", "list", file, "--json").out.splitlines())
    assert [each["muted_until"] is None for each in others] == [True, False]


def test_wrong_options(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rule.toml").write_text("[[rule]]\nname = 'small'\nthreshold = 250\n")
    for words, said in {
        "--alert-to x.jsonl": "--alert-to needs --alerts FILE",
        "--alerts a.sqlite --threshold 5000 --config rule.toml": "an alert rule starts at 250 peers",
        "--alerts a.sqlite --peers opened": "inner any hosts is not counted",
        "--alerts a.sqlite --allow nobody": "neither an address nor a prefix",
        "--alerts a.sqlite --alert-to what://x": "unknown scheme",
        "--alerts a.sqlite --alert-cap 0": "at least 1",
    }.items():
        ended = run("scan", OFFICE, *words.split())
        assert (ended.status, said in ended.err) == (2, True), ended.err


def test_queues_of_rows_and_of_alerts_know_of_each_other_and_what_is_left_is_an_error(run: Run, tmp_path: Path) -> None:
    words: list[object] = ["scan", OFFICE, "-q", "--inner", "private", "--window", "2m", "--output-wait", "1s"]
    words += ["--output-queue", tmp_path / "queue", "--output", f"webhook+http://127.0.0.1:{free_port()}/rows"]
    words += ["--alerts", tmp_path / "a.sqlite", "--alert-to", f"webhook+http://127.0.0.1:{free_port()}/alerts"]
    first, second = run(*words), run(*words)
    assert [first.err.count("NOT DELIVERED; they wait in"), first.status] == [2, 4]
    assert ("not named any more" in second.err, second.status) == (False, 4)
    rows_alone = run(*words[:13])
    assert rows_alone.err.count("for a destination that is not named any more") == 1


def test_muting_from_the_command_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "alerts.sqlite"
    assert "no alerts are kept here" in run("alerts", "mute", file, "10.20.0.0/16", "--off").err
    assert not file.exists()
    said = run("alerts", "mute", file, "10.20.0.0/16", "--for", "1h").err  # no run has made the file yet
    assert "muted until" in said
    assert f"{file} is new, for a run with --alerts {file}" in said
    assert "is new" not in run("alerts", "mute", file, "10.20.0.0/16", "--for", "2h").err
    assert scanned(run, tmp_path) == []
    assert "wanted again" in run("alerts", "mute", file, "10.20.0.0/16", "--off").err
    assert "was not muted" in run("alerts", "mute", file, "10.20.0.0/16", "--off").err
    assert run("alerts", "mute", file, "nobody").status == 2
    assert "no rule of this name is known in" not in run("alerts", "mute", file, "10.20.0.2").err
    unknown = run("alerts", "mute", file, "10.20.0.2", "--rule", "nosuch")
    assert (unknown.status, f"no rule of this name is known in {file}" in unknown.err) == (0, True)
    misnamed = run("alerts", "mute", file, "10.20.0.1", "--rule", "A Rule")
    assert misnamed.status == 2
    assert "rule 'A Rule'" in misnamed.err


def events_of(receiver: Fake) -> list[str]:
    return [each["event"] for report in receiver.reports for each in report.rows]


def test_a_receiver_that_fails_delays_neither_detection_nor_loses_an_alert(tmp_path: Path) -> None:
    receiver, said = Fake("write"), list[str]()
    policy = Policy((Rule(threshold=1000),))
    desk = AlertDesk(AlertStore(tmp_path / "a.sqlite"), policy, [receiver], said.append)
    desk.write(Report(rows=[row()], window=window(0)))
    desk.write(Report(rows=[row(peers=5000)], window=window(1)))
    assert desk.status()["waiting"] == 2
    assert said == ["ALERTS WAIT: write fails"]
    receiver.failing = ()
    desk.write(Report(rows=[row(peers=5000)], window=window(2)))
    assert events_of(receiver) == ["opened", "grown"]
    assert desk.status()["waiting"] == 0
    assert desk.status()["open"] == 1
    desk.reload(Policy((Rule("other"),)))
    assert events_of(receiver) == ["opened", "grown", "closed"]
    desk.close()


def test_every_receiver_is_closed_whichever_fails_and_events_that_wait_are_an_error(tmp_path: Path) -> None:
    receivers, said = [Fake("close"), Fake("write", "close"), Fake()], list[str]()
    desk = AlertDesk(AlertStore(tmp_path / "a.sqlite"), Policy(), receivers, said.append)
    with pytest.raises(OutputError, match=r"close fails; .*close fails"):
        desk.close()
    assert [each.calls for each in receivers] == [["close"]] * 3
    desk = AlertDesk(AlertStore(tmp_path / "b.sqlite"), Policy(), [Fake("write")], said.append)
    desk.write(Report(rows=[row()], window=window(0)))
    with pytest.raises(OutputError, match="alerts of the last windows were not handed on: write fails"):
        desk.close()


def test_rows_without_times_make_no_alerts_and_it_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    desk = AlertDesk(AlertStore(tmp_path / "a.sqlite"), Policy(), [], said.append)
    for span in (None, Window(0, 0)):
        desk.write(Report(rows=[row()], window=span))
    assert len(said) == 1
    assert desk.status()["open"] == 0
    desk.close()


def test_rules_about_patterns_need_evidence(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "superhosts.toml"
    config.write_text('[[rule]]\nname = "scans"\npatterns = ["horizontal scan"]\n')
    given = ("--quiet", "--config", config, "--alerts", tmp_path / "a.sqlite")
    asked = ("scan", "synth:flows=2000,packets=4000,super_hosts=1", *given)
    refused = run(*asked)
    assert (refused.status, "rule scans: patterns need --evidence" in refused.err) == (2, True)
    assert run(*asked, "--evidence").status == 0
    config.write_text('[[rule]]\npatterns = "horizontal scan"\n')
    wrong = run(*asked, "--evidence")
    assert wrong.status == 2
    assert 'must be a list of patterns: ["horizontal scan"]' in wrong.err


def test_hosts_to_be_spared_may_stand_in_a_file(tmp_path: Path) -> None:
    spared = tmp_path / "spared.txt"
    spared.write_text("203.0.113.0/24  # partners\n")
    policy = policy_of(AlertOptions(never_act=[f"@{spared}", "198.51.100.7"]), None)
    events = AlertMachine(policy).take(window(0), [row("203.0.113.9"), row("198.51.100.7"), row("192.0.2.1")])
    assert {event["host"]: event["act"] for event in events} == {
        "203.0.113.9": False,
        "198.51.100.7": False,
        "192.0.2.1": True,
    }
    for name, option in (("never_act", "--never-act"), ("allow", "--allow")):
        with pytest.raises(InputError, match=f"^{option} @/none/here: cannot be read: No such file"):
            policy_of(AlertOptions(**{name: ["@/none/here"]}), None)


def test_the_own_networks_are_spared_however_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "inner.txt"
    file.write_text("private\n198.51.100.0/24  # the office\n")
    for own in (["private,203.0.113.0/24,198.51.100.0/24"], [f"@{file}", "203.0.113.0/24"]):
        policy = policy_of(AlertOptions(), None, own)
        events = AlertMachine(policy).take(window(0), [row("203.0.113.9"), row("198.51.100.7"), row("192.0.2.1")])
        assert [event["host"] for event in events if event["act"]] == ["192.0.2.1"]
