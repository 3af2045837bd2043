"""The published JSON Schemas: they are those of the declared types, and real output is what they describe."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from acting import ENDLESS, options
from cli.test_hosts import NOON, save
from commands import Run
from dashboards import LENGTH, Shown, serving
from output.alerts.test_alerts import row, window
from output.alerts.test_life import SCANNER, windows
from output.test_senders import make_hook
from places import DOCS, load_module
from sketch.evidence.test_runs import traffic, write
from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.fleet.report import HubReport, Reporter
from superhosts.output.acts import Act, Change, Ledger
from superhosts.output.alerts.machine import AlertMachine, Policy
from superhosts.output.alerts.rules import Rule, never_act
from superhosts.output.alerts.store import AlertStore
from superhosts.output.records import batches_of, make_record
from superhosts.output.registry import open_destination
from superhosts.output.report import Report, Row
from superhosts.ui.web.app import GET_ROUTES, POST_ROUTES
from ui.web.test_web_server import ask
from waiting import wait_for

FOLDER = DOCS / "reference" / "schemas"
HOST = "10.2.7.66"


def check(name: str, found: Any) -> None:
    """Check that output fits a schema, and that the schema describes all of its fields."""
    import jsonschema

    schema = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    closed = {kind: each | {"additionalProperties": False} for kind, each in schema.get("$defs", {}).items()}
    jsonschema.validate(json.loads(json.dumps(found)), schema | {"$defs": closed})


def test_the_schemas_are_those_of_the_types() -> None:
    pytest.importorskip("msgspec")
    made = load_module(DOCS / "schemas.py").schemas()
    assert {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()} == made, "run `make schemas`"


def test_rows_of_scans_and_sketches(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = ("scan", write(tmp_path / "a.pcap", traffic()), "--window", "2m", "--top", "3", "--json", "--quiet")
    (tmp_path / "labels.csv").write_text("prefix,label\n0.0.0.0/0,any\n")
    monkeypatch.setenv("SUPERHOSTS_SCAN_LABELS", str(tmp_path / "labels.csv"))
    rows = []
    for words in (
        (*scan, "--save", tmp_path / "saved.cube"),
        (*scan, "--evidence"),
        (*scan, "--count", "ports", "--port", "0-65535", "--proto", "tcp"),
        ("hosts", tmp_path / "saved.cube", "--top", "3", "--json", "--quiet"),
    ):
        rows += run(*words).rows
    explained = run("explain", tmp_path / "saved.cube", HOST, "--json").rows
    assert [row.pop("union", False) for row in explained] == [False, False, True]  # a mark that explain alone has
    rows += explained
    rows += hub_rows(tmp_path / "ams.cube")
    (batch,) = batches_of(Report(rows=rows), "ams")
    assert len(batch.records) >= 12
    assert {"evidence", "label", "counts", "filter", "sites"} <= {name for row in batch.records for name in row}
    for each in (*rows, *batch.records):
        check("row", each)


def hub_rows(path: Path) -> Sequence[Row]:
    save(path, "ams", NOON)
    draft = HubReport(window=Window(NOON, NOON + LENGTH), sites=["ams"], missing=["lon"], refused={}, revision=2)
    reporter = Reporter(lambda: Selection(100.0), None, print)
    return reporter.make(sh.load(path), draft, {"ams": [path]}, []).rows


def test_events_of_the_whole_life_of_alerts() -> None:
    machine = AlertMachine(Policy((Rule(),), cap=1))
    events = []
    for number, rows in enumerate(windows(SCANNER)):
        events += machine.take(
            window(number), [*rows, row("203.0.113.7", 1200, label="lab", asn=64500)] if rows else []
        )
        events += machine.open_events()
    assert {event["event"] for event in events} == {"opened", "grown", "open", "closed", "storm"}
    assert {"host" in event for event in events if event["event"] == "closed"} == {True, False}
    for event in events:
        check("alert", event)
        check("alert", make_record(event, "ams") | event)


def test_alerts_that_are_listed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "alerts.sqlite"
    with closing(AlertStore(path)) as store:
        machine = store.machine(Policy((Rule(),)))
        facts = {
            "pattern": "unknown",
            "label": "lab",
            "name": "a.example",
            "asn": 64500,
            "as_name": "LAB",
            "country": "DE",
        }
        others = [row(f"203.0.113.{number}", 1200, **facts) for number in (7, 8)]
        for number, rows in enumerate(windows(SCANNER)):
            store.take(machine, window(number), [*rows, *others[: 2 if number < 2 else 1]])
        store.mute("203.0.113.7", "", time.time() + 3600, "known")
    found = [run("alerts", *words).rows for words in (("list", path, "--all", "--json"), ("export", path))]
    found.append(run("alerts", "show", path, "203.0.113.7", "--json").rows)
    assert [len(rows) for rows in found] == [len(found[1]), len(found[1]), 1]
    for name in ("closed", "muted_until", "service", "country"):
        assert {bool(each.get(name)) for each in found[1]} == {True, False}, name
    for each in (*found[0], *found[1], *found[2]):
        check("listed-alert", each)


def test_acts_as_commands_list_them_and_programs_get_them(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("jsonschema")
    said = tmp_path / "said"
    rule = Rule(name="scan", side="outer", threshold=100)
    machine = AlertMachine(Policy([rule], never_act=never_act()))
    now = time.time_ns()
    machine.take(Window(now - 10**9, now), [row("203.0.113.9", 500, side="outer")])
    hook = make_hook(tmp_path, f"cat >> {said}")
    acting = open_destination(f"{hook}?contract=1&act=true", ENDLESS, options(tmp_path / "alerts.acts.sqlite"))
    acting.keep_open(machine.open_events)
    wait_for(said.exists, "it acts")
    acting.close()
    calls = [json.loads(line) for line in said.read_text().splitlines()]
    assert [call["action"] for call in calls] == ["ban", "unban"]
    for call in calls:
        check("exec-call", call)
    ledger = Ledger(tmp_path / "alerts.acts.sqlite")
    about = ("203.0.113.9", "in force", False, 1.0, 2.0, "", hook, machine.open_events()[0])
    ledger.change([Change(None, Act("exec:/bin/true", *about))])
    ledger.close()
    for listed in run("acts", "list", tmp_path / "alerts.sqlite", "--json").rows:
        check("listed-act", listed)
    lines = run("acts", "list", tmp_path / "alerts.sqlite", "--audit", "--json").rows
    assert [line["what"] for line in lines] == ["acted", "withdrawn"]
    for line in lines:
        check("audit-line", line)


def test_answers_of_the_dashboard(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    asked: dict[str, Any] = {
        "host": f"host?host={HOST}",
        "ask": "ask?threshold=100",
        "mute": {"host": HOST, "rule": "", "seconds": 60, "why": "known"},
        "unmute": {"host": HOST, "rule": ""},
    }
    alert = shown.alerts.alerts()[0].id
    asked |= {
        "alert": f"alert?id={alert}",
        "acknowledge": {"alerts": [alert], "by": "ana", "note": "known", "off": False},
        "note": {"alert": alert, "owner": "ana", "note": "ticket 4711"},
    }
    with serving(shown.view) as web:
        for name in (*POST_ROUTES, *GET_ROUTES):
            question = asked.get(name, name)
            method, body = ("GET", None) if isinstance(question, str) else ("POST", question)
            found = ask(web, f"/api/{name if body else question}", method, body)
            assert found.status == 200, found.body
            check(f"api-{name}", found.content)
        check("api-window", ask(web, f"/api/window?start={NOON / 1e9}").content)
        check("api-events", shown.view.state())
    shown.close()
