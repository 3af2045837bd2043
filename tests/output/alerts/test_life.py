"""The life of an alert as the outside hears it: opened, grown, open, closed, by the rules of each destination."""

from __future__ import annotations

import contextlib
import csv
import email.policy
import importlib.util
import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from needs import needed
from output.alerts.test_alerts import row, window
from output.test_senders import asked, make_hook
from processes import free_port
from receivers import Receiver
from superhosts.cli._alerts import ALERTS
from superhosts.core.units import SECOND
from superhosts.output.alerts.machine import Alert, AlertMachine, Policy
from superhosts.output.alerts.rules import Rule, never_act
from superhosts.output.alerts.store import AlertDesk, AlertStore
from superhosts.output.delivery import DeliveryOptions
from superhosts.output.destination import RunKind
from superhosts.output.records import make_record
from superhosts.output.registry import OutputOptions, open_each
from superhosts.output.report import Report, Row
from waiting import DEADLINE, wait_for

SCANNER, OURS = "203.0.113.9", "10.0.0.80"  # nothing may be done against the second one
SWEEP = {"pattern": "prefix sweep", "evidence": {"ports": [{"port": "tcp/445", "at": "peer", "share": 0.98}]}}
SINCE = "prefix sweep on tcp/445, since 2026-11-14 12:00 UTC"
OPENED = f"has 1,500 peers (threshold 1,024), {SINCE} for 5 min, peak 1,500"
GROWN = f"has 3,500 peers (threshold 1,024), {SINCE} for 10 min, peak 3,500"
CLOSED = "is quiet after 15 min (2026-11-14 12:00 to 12:15 UTC), peak 3,500 peers (threshold 1,024), prefix sweep"
TITLES = [f"OPENED many-peers: {SCANNER} {OPENED}", f"GROWN many-peers: {SCANNER} {GROWN}"]
TITLES.append(f"CLOSED many-peers: {SCANNER} {CLOSED} on tcp/445")
MORE = ["", "; +2,000 (+133 %) to the window before; in 2 of the last 2 windows", "; in 3 of the last 3 windows"]
SENTENCES = [f"{title}; ports tcp/445 98 %{more}" for title, more in zip(TITLES, MORE, strict=True)]


def windows(*hosts: str) -> Iterator[list[Row]]:
    """Yield the rows of a life: opened, grown, open, and two windows without the host."""
    for peers in (1500, 3500, 2500):
        yield [row(host, peers, **SWEEP) for host in hosts]
    yield from ([], [])


@contextlib.contextmanager
def desk_of(store: Path, addresses: Sequence[str], policy: Policy | None = None) -> Iterator[AlertDesk]:
    delivery = DeliveryOptions(site="ams", wait=DEADLINE)
    receivers = open_each(OutputOptions(outputs=addresses, delivery=delivery), ALERTS)
    desk = AlertDesk(AlertStore(store), policy or Policy(never_act=never_act()), receivers, print)
    try:
        yield desk
    finally:
        desk.close()


def live(folder: Path, *addresses: str, hosts: Sequence[str] = (SCANNER,), policy: Policy | None = None) -> None:
    """Send the whole life of alerts, one window after the other, and wait until everything was delivered."""
    with desk_of(folder / f"{time.monotonic_ns()}.sqlite", addresses, policy) as desk:
        for number, rows in enumerate(windows(*hosts)):
            desk.write(Report(rows=rows, window=window(number)))


def calls(folder: Path, options: str = "", **others: Any) -> list[list[str]]:
    out = folder / f"calls-{time.monotonic_ns()}"
    live(folder, make_hook(folder, f'echo "$@" >> {out}', "cat > /dev/null") + options, **others)
    return [line.split() for line in out.read_text().splitlines()] if out.exists() else []


def test_a_program_bans_once_and_frees_the_host_and_never_bans_our_own(tmp_path: Path) -> None:
    both = (OURS, SCANNER)
    assert calls(tmp_path, hosts=both) == [[SCANNER, "any", "1500", "ban"], [SCANNER, "any", "2500", "unban"]]
    assert [each[3] for each in calls(tmp_path, "?action=drop")] == ["drop", "unban"]
    told = [(each[0], each[3]) for each in calls(tmp_path, "?events=all", hosts=both)]
    assert [action for host, action in told if host == SCANNER] == ["ban", "grown", "unban"]
    assert [action for host, action in told if host == OURS] == ["opened", "grown", "closed"]
    both, storm = (SCANNER, "198.51.100.1"), Policy((Rule(),), cap=1, never_act=never_act())
    assert {each[0] for each in calls(tmp_path, hosts=both, policy=storm)} <= {*both}


def test_a_host_stays_banned_until_its_last_alert_is_closed() -> None:
    both = AlertMachine(Policy((Rule("first", quiet=1), Rule("second", quiet=3)), never_act=never_act()))
    events = [event for number, rows in enumerate(windows(SCANNER)) for event in both.take(window(number), rows)]
    events += both.take(window(5), [])
    assert [(each["rule"], each["act"]) for each in events if each["event"] == "closed"] == [
        ("first", False),
        ("second", True),
    ]


def test_a_host_that_was_banned_is_freed_also_if_nothing_may_be_done_against_it_now() -> None:
    machine = AlertMachine(Policy(never_act=never_act()))
    (opened,) = machine.take(window(0), [row(SCANNER, 1500)])
    machine.reload(Policy(never_act=never_act([SCANNER])))
    (grown,) = machine.take(window(1), [row(SCANNER, 3500)])
    (closed,) = machine.reload(Policy((Rule("other"),), never_act=never_act([SCANNER])))
    assert [each["act"] for each in (opened, grown, closed)] == [True, False, True]


def test_sentences_of_other_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: window(3).end)
    rule = Rule("ports", direction="out", counts="ports", threshold=100.5)
    machine = AlertMachine(Policy((rule,), never_act=never_act(), cap=1))
    many = row(SCANNER, direction="out", counts="ports", label="lab", peers=0) | {"peers": None, "peers_low": 900}
    opened, storm = machine.take(window(0), [many, {**many, "host": OURS}])
    said = "OPENED ports: 203.0.113.9 (lab) has at least 900 ports (threshold 100.5), direction out, since 12:00 UTC"
    assert opened["text"] == f"{said} for 5 min, peak 900"
    assert storm["text"] == "STORM: 1 more host has reached a threshold; at most 1 alert is opened in a window"
    (closed,) = machine.reload(Policy((Rule("other"),)))
    said = "CLOSED ports: 203.0.113.9 (lab): rule removed after 5 min (12:00 to 12:05 UTC), peak 900 ports"
    assert closed["text"] == f"{said} (threshold 100.5), direction out"
    for seconds, span in ((45, "45 s"), (60, "1 min"), (7500, "2 h 5 min"), (86400, "1 d"), (97200, "1 d 3 h")):
        alert = Alert("r", "h", 4, "inner", "any", "hosts", 10, 0, seconds * SECOND, reason="quiet")
        said = alert.event("closed", act=True)["text"]
        assert said.startswith(f"CLOSED r: h is quiet after {span} (1970-01-01 00:00 to ")
    assert said.endswith(" to 1970-01-02 03:00 UTC), peak 0 peers (threshold 10)")
    assert alert.event("open", act=True)["text"].endswith("since 1970-01-01 00:00 UTC for 1 d 3 h, peak 0")


def test_every_destination_over_http_hears_the_whole_life(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("R0UT1NG")
    with Receiver("http") as receiver:
        place = f"127.0.0.1:{receiver.port}"
        addresses = [f"webhook+http://{place}/{name}?format={name}" for name in ("json", "slack", "teams")]
        addresses.append(f"webhook+http://{place}/pagerduty?format=pagerduty&routing-key-file={tmp_path / 'key'}")
        addresses.append(f"alertmanager+http://{place}/am?resolve-after=1h")
        if importlib.util.find_spec("apprise"):
            addresses.append(f"apprise:json://{place}/apprise")
        live(tmp_path, *addresses)
        got: dict[str, list[Any]] = {}
        for each in receiver.got:
            got.setdefault(each["path"].split("/")[1].split("?")[0], []).append(json.loads(each["body"]))

    assert [each["heading"] for each in got["json"]] == ["1 opened", "1 grown", "1 closed"]
    records = [each["records"][0] for each in got["json"]]
    assert [each["text"] for each in records] == SENTENCES
    told = [("alert", event, True) for event in ("opened", "grown", "closed")]
    assert [(each["kind"], each["event"], each["act"]) for each in records] == told
    assert len({each["alert"] for each in records}) == 1
    assert (records[2]["closed"], records[2]["until"]) == ("2026-11-14T12:25:00Z", "2026-11-14T12:15:00Z")

    headings = [f"Alerts (ams): 1 {event}" for event in ("opened", "grown", "closed")]
    assert [each["text"].splitlines() for each in got["slack"]] == [
        [f"*{heading}*", f"• {sentence}"] for heading, sentence in zip(headings, SENTENCES, strict=True)
    ]
    cards = [[block["text"] for block in each["attachments"][0]["content"]["body"]] for each in got["teams"]]
    assert cards == [list(pair) for pair in zip(headings, SENTENCES, strict=True)]

    # Events API v2: events with one key are one incident, which a "resolve" with that key ends.
    assert [each["event_action"] for each in got["pagerduty"]] == ["trigger", "trigger", "resolve"]
    assert {each["dedup_key"] for each in got["pagerduty"]} == {f"superhosts/alert/ams/{records[0]['alert']}"}
    assert [each["payload"]["summary"] for each in got["pagerduty"]] == SENTENCES
    assert got["pagerduty"][2]["payload"]["timestamp"] == "2026-11-14T12:25:00Z"
    assert all({"summary", "source", "severity"} <= set(each["payload"]) for each in got["pagerduty"])

    # Alertmanager: labels identify an alert, annotations may change, and it ends at `endsAt`. Repeats may be between.
    alerts = [each for posted in got["am"] for each in posted]
    labels = {"alertname": "SuperHost", "severity": "warning", "rule": "many-peers", "host": SCANNER, "side": "inner"}
    labels |= {"direction": "any", "site": "ams", "counts": "hosts"}
    assert [each["labels"] for each in alerts] == [labels] * len(alerts)
    assert {each["startsAt"] for each in alerts} == {"2026-11-14T12:00:00+00:00"}
    assert {each["annotations"]["act"] for each in alerts} == {"true"}
    ends = {each["annotations"]["event"]: datetime.fromisoformat(each["endsAt"]) for each in alerts}
    assert ends["closed"] == datetime(2026, 11, 14, 12, 25, tzinfo=UTC)
    assert min(ends["opened"], ends["grown"]) > datetime.now(UTC)
    assert [each["annotations"]["summary"] for each in alerts if each["annotations"]["event"] != "open"] == SENTENCES

    if "apprise" in got:
        assert [(each["title"], each["message"]) for each in got["apprise"]] == [*zip(headings, SENTENCES, strict=True)]
        assert [each["type"] for each in got["apprise"]] == ["warning", "warning", "success"]


EVIDENCE = {
    "ports": [{"port": "tcp/445", "at": "peer", "share": 0.93}, {"port": "icmp", "at": None, "share": 0.07}],
    "peers": [f"198.51.100.{number}" for number in range(1, 9)],
    "networks": [{"network": "198.51.0.0/16", "share": 0.81}, {"network": "192.0.0.0/16", "share": 0.19}],
}
FACTS = {  # what lets one act, in words and as fields
    "rule": ("scan-out", "scan-out"),
    "threshold": ("threshold 1,024", 1024),
    "pattern": ("horizontal scan", "horizontal scan"),
    "pattern_reason": ("it asks, 98 % do not answer", "it asks, 98 % do not answer"),
    "ports": (
        "tcp/445 93 %, icmp 7 %",
        [{"port": "tcp/445", "at": "peer", "share": 0.93}, {"port": "icmp", "at": None, "share": 0.07}],
    ),
    "some_peers": ("198.51.100.1, 198.51.100.2", EVIDENCE["peers"][:5]),
    "networks": ("198.51.0.0/16 81 %, 192.0.0.0/16 19 %", EVIDENCE["networks"]),
    "direction": ("direction out", "out"),
    "since": ("since 2026-11-14 12:00 UTC", "2026-11-14T12:00:00Z"),
    "duration": ("for 10 min", 600.0),
    "peak": ("peak 3,500", 3500),
    "change": ("+2,000 (+133 %) to the window before", 2000),
    "peers_before": ("3,500 peers", 1500),
    "sites": ("at ams, fra", ["ams", "fra"]),
    "url": (f"https://hub.example/x/#/host/{SCANNER}", f"https://hub.example/x/#/host/{SCANNER}"),
}


def test_all_that_lets_one_act_is_in_every_destination(tmp_path: Path) -> None:
    pytest.importorskip("aiosmtpd")
    about = {"direction": "out", "pattern": "horizontal scan", "reason": FACTS["pattern_reason"][0]}
    about |= {"evidence": EVIDENCE, "sites": [{"site": "ams"}, {"site": "fra"}]}
    policy = Policy((Rule("scan-out", direction="out"),), never_act=never_act(), web_url="https://hub.example/x")
    (tmp_path / "key").write_text("R0UT1NG")
    lines, table = tmp_path / "lines.jsonl", tmp_path / "lines.csv"
    with Receiver("http") as web, Receiver("tcp") as log, Receiver("smtp") as mail:
        place = f"127.0.0.1:{web.port}"
        addresses = [f"webhook+http://{place}/{name}?template={name}" for name in ("json", "slack", "teams")]
        addresses.append(f"webhook+http://{place}/pagerduty?template=pagerduty&routing-key-file={tmp_path / 'key'}")
        addresses.append(f"alertmanager+http://{place}/am?resolve-after=1h")
        addresses += [f"apprise:json://{place}/apprise"] * bool(importlib.util.find_spec("apprise"))
        addresses.append(f"smtp://127.0.0.1:{mail.port}/?to=noc@example.net&from=me@example.net")
        addresses += [f"syslog+tcp://127.0.0.1:{log.port}", str(lines), str(table)]
        with desk_of(tmp_path / "alerts.sqlite", addresses, policy) as desk:
            for number, peers in enumerate((1500, 3500)):
                desk.write(Report(rows=[row(SCANNER, peers, **about)], window=window(number)))
        got = {
            each["path"].split("/")[1].split("?")[0]: json.loads(each["body"]) for each in web.got if not _is_open(each)
        }
        message, posted = (
            log.wait(2)[1],
            email.message_from_string(mail.wait(2)[1]["mail"], policy=email.policy.default),
        )
    body = posted.get_body().get_content()
    card, cells = got["teams"]["attachments"][0]["content"], [*csv.DictReader(table.read_text().splitlines())][1]
    sentences = {
        "json": got["json"]["records"][0]["text"],
        "slack": got["slack"]["text"],
        "teams": re.sub(r"\\([\\`*_~\[\]<>])", r"\1", card["body"][1]["text"]),
        "pagerduty": got["pagerduty"]["payload"]["summary"],
        "alertmanager": got["am"][0]["annotations"]["summary"],
        "mail": re.sub(r"\s+", " ", body),
        "syslog": message,
        "jsonl": json.loads(lines.read_text().splitlines()[1])["text"],
        "csv": cells["text"],
        **({"apprise": got["apprise"]["message"]} if "apprise" in got else {}),
    }
    records = {
        "json": got["json"]["records"][0],
        "pagerduty": got["pagerduty"]["payload"]["custom_details"],
        "jsonl": json.loads(lines.read_text().splitlines()[1]),
        "mail": json.loads(next(posted.iter_attachments()).get_content().splitlines()[0]),
    }
    notes = {**got["am"][0]["annotations"], **got["am"][0]["labels"]}
    for name, (words, value) in FACTS.items():
        for where, sentence in sentences.items():
            assert words in sentence, (name, where)
        for where, record in records.items():
            assert record[name] == value, (name, where)
        assert notes[name] == (value if isinstance(value, str) else json.dumps(value)), name
        assert f' {name}="' in message, name
        assert cells[name], name
    url = FACTS["url"][0]
    assert got["am"][0]["generatorURL"] == url
    assert got["pagerduty"]["links"] == [{"href": url, "text": f"{SCANNER} in the dashboard"}]
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": SCANNER, "url": url}]
    assert posted["Subject"] == f"{records['json']['text'].partition('; ')[0]} at ams"
    assert json.loads(cells["ports"]) == FACTS["ports"][1]
    with contextlib.closing(AlertStore(tmp_path / "alerts.sqlite")) as store:
        (shown,) = store.alerts()
    assert shown.text == records["json"]["text"].replace("GROWN", "OPEN")  # as lists and the dashboard have it


def _is_open(got: Any) -> bool:
    return b'"event": "open"' in (got["body"] if isinstance(got["body"], bytes) else got["body"].encode())


def test_links_lead_to_the_page_of_any_host() -> None:
    machine = AlertMachine(Policy((Rule(),), web_url="http://127.0.0.1:8105"))
    hosts = {"2001:db8::/64": "2001%3Adb8%3A%3A%2F64", "10.1.2.3:443": "10.1.2.3%3A443", "a b#c": "a%20b%23c"}
    events = machine.take(window(0), [row(host, 2000) | {"family": None} for host in hosts])
    assert [each["url"].partition("/#/host/")[2] for each in events] == [hosts[each["host"]] for each in events]


def test_the_site_is_named_if_rows_do_not_say_it() -> None:
    (named,) = AlertMachine(Policy(site="ams")).take(window(0), [row()])
    (alone,) = AlertMachine(Policy()).take(window(0), [row()])
    assert (named["sites"], "; at ams" in named["text"], "sites" in alone) == (["ams"], True, False)


def test_logs_and_mail_say_what_happened(tmp_path: Path) -> None:
    pytest.importorskip("aiosmtpd")
    with Receiver("tcp") as log, Receiver("smtp") as server:
        mail = f"smtp://127.0.0.1:{server.port}/?to=noc@example.net&from=me@example.net"
        live(tmp_path, f"syslog+tcp://127.0.0.1:{log.port}", mail)
        messages = log.wait(3)
        mails = [email.message_from_string(got["mail"], policy=email.policy.default) for got in server.wait(3)]
    assert [message.rpartition("] ")[2] for message in messages] == SENTENCES
    assert [message.split('event="')[1].split('"')[0] for message in messages] == ["opened", "grown", "closed"]
    assert [mail["Subject"] for mail in mails] == [f"{title} at ams" for title in TITLES]
    assert all(sentence in mail.get_body().get_content() for mail, sentence in zip(mails, SENTENCES, strict=True))


def test_open_alerts_are_repeated_and_closed_ones_are_not(tmp_path: Path) -> None:
    """One that was repeated after the news that it is closed would be open there again."""
    with Receiver("http") as receiver:
        address = f"alertmanager+http://127.0.0.1:{receiver.port}?resolve-after=1s"
        with desk_of(tmp_path / "a.sqlite", [address]) as desk:
            rows = list(windows(SCANNER))
            desk.write(Report(rows=rows[0], window=window(0)))
            wait_for(lambda: events_of(receiver).count("open") >= 3, lambda: events_of(receiver))
            for number in (1, 2, 3, 4):
                desk.write(Report(rows=rows[number], window=window(number)))
            wait_for(lambda: "closed" in events_of(receiver), lambda: events_of(receiver))
            desk.write(Report(rows=[row("198.51.100.1", 1500)], window=window(5)))
            wait_for(
                lambda: events_of(receiver).count("open") and hosts_of(receiver)[-2:] == ["198.51.100.1"] * 2, "news"
            )
        told = [(alert["annotations"]["event"], alert["labels"]["host"]) for alert in alerts_of(receiver)]
    assert SCANNER not in [host for _, host in told[told.index(("closed", SCANNER)) + 1 :]]


def alerts_of(receiver: Receiver) -> list[Any]:
    return [alert for got in receiver.got for alert in json.loads(got["body"])]


def events_of(receiver: Receiver) -> list[str]:
    return [alert["annotations"]["event"] for alert in alerts_of(receiver)]


def hosts_of(receiver: Receiver) -> list[str]:
    return [alert["labels"]["host"] for alert in alerts_of(receiver)]


def test_a_receiver_that_is_away_hears_the_news_once_it_is_back(tmp_path: Path) -> None:
    """Repeats of open alerts fill no queue while the receiver is away."""
    port, said = free_port(), list[str]()
    delivery = DeliveryOptions(say=said.append, wait=DEADLINE, first_pause=0.05, last_pause=0.05)
    address = f"alertmanager+http://127.0.0.1:{port}?resolve-after=1s"
    receivers = open_each(OutputOptions(outputs=[address], delivery=delivery), RunKind(endless=True))
    desk = AlertDesk(AlertStore(tmp_path / "a.sqlite"), Policy(), receivers, said.append)
    for number, rows in enumerate(windows(SCANNER)):
        desk.write(Report(rows=rows, window=window(number)))
    wait_for(lambda: receivers[0].status()["failures"] >= 3, "attempts that fail")
    assert receivers[0].status()["waiting"] == 3
    with Receiver("http", port=port) as receiver:
        desk.close()
        assert [each for each in events_of(receiver) if each != "open"] == ["opened", "grown", "closed"]
    assert sum("does NOT TAKE" in line for line in said) == 1


@pytest.mark.slow
def test_a_real_alertmanager_hears_the_whole_life(tmp_path: Path) -> None:
    """Opened, grown, open beyond the lapse and over a restart of ours, closed: one alert there, resolved at the end."""
    program = needed("prometheus-alertmanager", "SUPERHOSTS_NEED_ALERTMANAGER")
    place, store = f"127.0.0.1:{free_port()}", tmp_path / "alerts.sqlite"
    rows = list(windows(SCANNER))
    with Receiver("http") as pager:
        route = {"receiver": "pager", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
        hook = {"url": f"http://127.0.0.1:{pager.port}/", "send_resolved": True}
        config = {"route": route, "receivers": [{"name": "pager", "webhook_configs": [hook]}]}
        (tmp_path / "conf.yml").write_text(json.dumps(config))  # JSON is YAML
        options = {"config.file": tmp_path / "conf.yml", "storage.path": tmp_path / "am", "web.listen-address": place}
        command = [program, *(f"--{name}={value}" for name, value in options.items()), "--cluster.listen-address="]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            try:
                wait_for(lambda: asked(f"http://{place}/-/ready") is not None, "Alertmanager is ready")

                def active() -> list[Any]:
                    return list(json.loads(asked(f"http://{place}/api/v2/alerts") or "[]"))

                def stays_open() -> None:
                    """Wait until the alert is open there although it would have lapsed."""
                    lapses = datetime.fromisoformat(wait_for(active, "it is shown")[0]["endsAt"])
                    wait_for(
                        lambda: (
                            datetime.now(UTC) > lapses
                            and [each for each in active() if datetime.fromisoformat(each["endsAt"]) > lapses]
                        ),
                        "it stays open",
                    )

                address = f"alertmanager+http://{place}?resolve-after="
                with desk_of(store, [f"{address}3s"]) as desk:
                    desk.write(Report(rows=rows[0], window=window(0)))
                    stays_open()
                with desk_of(store, [f"{address}3s"]):  # after a restart, without a window
                    stays_open()
                with desk_of(store, [f"{address}1h"]) as desk:
                    desk.write(Report(rows=rows[1], window=window(1)))
                    (found,) = wait_for(
                        lambda: [each for each in active() if each["annotations"]["peers"] == "3500"], "it has grown"
                    )
                    assert found["annotations"]["pattern"] == "prefix sweep"
                    for number in (2, 3, 4):
                        desk.write(Report(rows=rows[number], window=window(number)))
                    wait_for(lambda: not active(), active)

                    def resolved() -> list[Any]:
                        bodies = [json.loads(got["body"]) for got in pager.got]
                        found = [each["alerts"][0] for each in bodies if each["status"] == "resolved"]
                        return [each for each in found if each["endsAt"] == "2026-11-14T12:25:00Z"]

                    (last, *_) = wait_for(lambda: resolved(), lambda: pager.got)
            finally:
                process.kill()
        fired = [each for got in pager.got for each in json.loads(got["body"])["alerts"]]
    assert len({each["fingerprint"] for each in fired}) == 1
    assert last["labels"]["rule"] == "many-peers"
    assert last["startsAt"] == "2026-11-14T12:00:00Z"
    assert last["annotations"]["summary"] == SENTENCES[2]


def test_records_of_open_alerts_have_the_labels_of_all_others() -> None:
    machine = AlertMachine(Policy(never_act=never_act()))
    events = [event for number, rows in enumerate(windows(SCANNER)) for event in machine.take(window(number), rows)]
    machine = AlertMachine(Policy(never_act=never_act()))
    machine.take(window(0), next(windows(SCANNER)))
    (still,) = machine.open_events()
    assert still["text"] == SENTENCES[0].replace("OPENED", "OPEN")
    names = ("alert", "rule", "host", "side", "direction", "counts", "pattern", "service", "since")
    assert {tuple(make_record(each)[name] for name in names) for each in (*events, still)} == {
        tuple(still[name] for name in names)
    }
