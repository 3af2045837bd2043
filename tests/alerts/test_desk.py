"""Alerts as a user gets them: a run that makes them, the commands that look at them, and receivers that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from alerts.test_alerts import row, window
from commands import Run
from first_hour.office import FOLDER
from superhosts.alerts.desk import AlertDesk
from superhosts.alerts.machine import AlertMachine, Policy
from superhosts.alerts.rules import Rule
from superhosts.alerts.store import AlertStore
from superhosts.cli._alerting import policy_of
from superhosts.cli._options import AlertOptions
from superhosts.errors import InputError, OutputError
from superhosts.pairs import Window
from superhosts.reports.base import Destination, Report

OFFICE = FOLDER / "office.pcap.gz"


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "superhosts", *map(str, words)]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=600
    )


def scanned(folder: Path, *words: object) -> list[dict[str, object]]:
    """Scan the office for alerts; return what was told."""
    told = folder / "told.jsonl"
    given = ("--inner", "private", "--window", "2m", "--alerts", folder / "alerts.sqlite", "--alert-to", told)
    ended = run("scan", OFFICE, FOLDER / "rotated", *given, *words)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []


def test_a_scan_opens_and_closes_alerts_and_the_commands_show_them(tmp_path: Path) -> None:
    told = scanned(tmp_path)
    assert [(each["event"], each["host"]) for each in told] == [
        ("opened", "10.20.0.80"),
        ("opened", "10.20.4.17"),
        ("closed", "10.20.0.80"),
        ("closed", "10.20.4.17"),
    ]
    file = tmp_path / "alerts.sqlite"
    assert "no open alerts" in run("alerts", "list", file).stderr
    listed = run("alerts", "list", file, "--all").stdout
    assert "10.20.4.17" in listed
    assert "quiet" in listed
    shown = json.loads(run("alerts", "show", file, "10.20.0.80", "--json").stdout)
    assert (shown["peak"], shown["opened"], shown["alert"]) == (2600, "2026-03-02T09:06:00Z", told[0]["alert"])
    assert run("alerts", "show", file, told[0]["alert"]).stdout.startswith("alert")
    assert len(run("alerts", "export", file).stdout.splitlines()) == 2
    missing = run("alerts", "show", file, "192.0.2.1")
    assert missing.returncode == 2
    assert "192.0.2.1" in missing.stderr
    assert run("alerts", "list", tmp_path / "missing").returncode == 3


def test_rules_of_the_configuration_and_hosts_that_are_allowed(tmp_path: Path) -> None:
    config = tmp_path / "superhosts.toml"
    config.write_text("[[rule]]\nname = 'small'\nthreshold = 250\nprefixes = { '10.20.0.0/24' = 2000 }\n")
    told = scanned(tmp_path, "--config", config, "--allow", "10.20.0.80")
    assert {(each["rule"], each["host"]) for each in told} == {("small", "10.20.4.17")}
    assert [each["event"] for each in told].count("opened") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--alert-to", "x.jsonl"], "--alert-to needs --alerts FILE"),
        (["--alerts", "a.sqlite", "--threshold", "5000"], "a rule of alerts begins at 1,024 peers"),
        (["--alerts", "a.sqlite", "--peers", "opened"], "inner any hosts is not counted"),
        (["--alerts", "a.sqlite", "--allow", "nobody"], "neither an address nor a prefix"),
        (["--alerts", "a.sqlite", "--alert-to", "what://x"], "unknown scheme"),
        (["--alerts", "a.sqlite", "--alert-cap", "0"], "at least 1"),
    ],
)
def test_wrong_options(words: list[str], said: str, tmp_path: Path) -> None:
    given = [str(tmp_path / word) if word == "a.sqlite" else word for word in words]
    ended = run("scan", OFFICE, *given)
    assert ended.returncode == 2
    assert said in ended.stderr


def test_muting_from_the_command_line(tmp_path: Path) -> None:
    AlertStore(tmp_path / "alerts.sqlite").close()
    file = tmp_path / "alerts.sqlite"
    assert "muted until" in run("alerts", "mute", file, "10.20.0.0/16", "--for", "1h").stderr
    assert scanned(tmp_path) == []
    assert "wanted again" in run("alerts", "mute", file, "10.20.0.0/16", "--off").stderr
    assert "was not muted" in run("alerts", "mute", file, "10.20.0.0/16", "--off").stderr
    assert run("alerts", "mute", file, "nobody").returncode == 2
    misnamed = run("alerts", "mute", file, "10.20.0.1", "--rule", "A Rule")
    assert misnamed.returncode == 2
    assert "rule 'A Rule'" in misnamed.stderr


class Receiver(Destination):
    """A destination that fails as long as it is told to."""

    def __init__(self) -> None:
        super().__init__("receiver")
        self.fails = False
        self.got: list[str] = []

    def _write(self, report: Report) -> None:
        if self.fails:
            raise OutputError("nobody listens")
        self.got += [each["event"] for each in report.rows]


def test_a_receiver_that_fails_delays_neither_detection_nor_loses_an_alert(tmp_path: Path) -> None:
    receiver, said = Receiver(), list[str]()
    desk = AlertDesk(AlertStore(tmp_path / "a.sqlite"), Policy((Rule(threshold=1000),)), [receiver], said.append)
    receiver.fails = True
    desk.write(Report(rows=[row()], window=window(0)))
    desk.write(Report(rows=[row(peers=5000)], window=window(1)))
    assert desk.status()["waiting"] == 2
    assert said == ["ALERTS WAIT: nobody listens"]
    receiver.fails = False
    desk.write(Report(rows=[row(peers=5000)], window=window(2)))
    assert receiver.got == ["opened", "grown"]
    assert desk.status()["waiting"] == 0
    assert desk.status()["open"] == 1
    desk.reload(Policy((Rule("other"),)))
    assert receiver.got[-1] == "closed"
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
    asked = (
        "scan",
        "synth:flows=2000,packets=4000,super_hosts=1",
        "--quiet",
        "--config",
        config,
        "--alerts",
        tmp_path / "a.sqlite",
    )
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
    missing = AlertOptions(never_act=["@/none/here"])
    with pytest.raises(InputError, match="cannot be read"):
        policy_of(missing, None)
