"""Senders against real receivers: processes that listen on this machine, and well-known servers where installed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import email
import hashlib
import hmac
import importlib.util
import json
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme

from needs import needed
from processes import free_port
from receivers import Receiver
from superhosts.core.pairs import Window
from superhosts.core.results import SuperHost
from superhosts.errors import UsageError
from superhosts.output.delivery import DeliveryOptions
from superhosts.output.destination import ENDLESS
from superhosts.output.mappings import FORMATS, line_of, shaped
from superhosts.output.records import Batch, batches_of
from superhosts.output.registry import SENDERS, load_sender, open_destination
from superhosts.output.report import Report, make_rows
from superhosts.output.senders import PermanentError, Sender, TemporaryError
from waiting import DEADLINE, wait_for

NOON = 1_794_657_600 * 10**9
WINDOW = Window(NOON, NOON + 300 * 10**9)
HEADER = re.compile(
    r"<(?P<pri>\d{1,3})>1 (?P<time>\S+) (?P<host>\S+) (?P<app>\S+) (?P<pid>\S+) (?P<msgid>\S+) "
    r'(?P<data>\[(?P<sdid>[^ =\]"]+)(?P<params>(?: [^ =\]"]+="(?:[^"\\\]]|\\.)*")*)\]) (?P<msg>.*)',
    re.DOTALL,
)


def row(host: Any, peers: int | None = 4120, **more: Any) -> dict[str, Any]:
    found = SuperHost(host, peers, 4043, None if peers is None else 4197, False, peers is None, detector="cube")
    (made,) = make_rows(WINDOW, [found])
    return {**made, "direction": "out", **more}


def batch(*rows: dict[str, Any], site: str = "ams") -> Batch:
    (made,) = batches_of(Report(rows=rows or [row("10.0.0.7")], window=WINDOW, title="2 hosts"), site)
    return made


TWO = batch(row("10.0.0.7"), row("2001:db8::/64", None, direction="in"))


@contextlib.contextmanager
def opened(text: str) -> Iterator[Sender]:
    sender = load_sender(text.partition(":")[0]).open(text)
    try:
        yield sender
    finally:
        sender.close()


def deliver(text: str, one: Batch = TWO) -> None:
    with opened(text) as sender:
        sender.deliver(one)


def opens(address: str) -> bool:
    return not address.startswith("apprise") or importlib.util.find_spec("apprise") is not None


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ours", "others"):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / f"{name}-ca.pem")
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    return folder


# Syslog


def parse_params(text: str) -> dict[str, str]:
    found = re.findall(r' ([^ =\]"]+)="((?:[^"\\\]]|\\.)*)"', text)
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in found}


def check_messages(messages: list[str]) -> None:
    first, second = (HEADER.fullmatch(message) for message in messages)
    assert first.group("pri", "app", "msgid", "sdid") == ("29", "superhosts", "superhost", "superhosts@32473")
    params = parse_params(first["params"])
    wanted = {"host": "10.0.0.7", "peers": "4120", "peers_low": "4043", "exact": "false", "site": "ams"}
    assert {"id": TWO.records[0]["id"], **wanted}.items() <= params.items()
    assert first["msg"] == "10.0.0.7: 4120 peers (4043 to 4197), direction out"
    assert "peers" not in parse_params(second["params"])
    assert second["msg"] == "2001:db8::/64: at least 4043 peers, direction in"


def test_syslog_over_udp(tmp_path: Path) -> None:
    with Receiver("udp") as receiver:
        deliver(f"syslog://127.0.0.1:{receiver.port}")
        check_messages(receiver.wait(2))


def test_syslog_over_tls(tmp_path: Path, certificates: Path) -> None:
    with Receiver("tcp", cert=certificates / "ours.pem") as receiver:
        address = f"syslog+tls://127.0.0.1:{receiver.port}"
        with pytest.raises(TemporaryError, match="certificate is not trusted"):
            deliver(f"{address}?ca={certificates / 'others-ca.pem'}")
        deliver(f"{address}?ca={certificates / 'ours-ca.pem'}")
        check_messages(receiver.wait(2))


def test_syslog_options_and_characters_that_need_escapes(tmp_path: Path) -> None:
    one = batch(row("10.0.0.7", note='a "b" [c] \\ d', missing=["fra", "nyc"], umlaut="ä"))
    options = "facility=local3&severity=warning&app=noc&sd-id=hosts@4711"
    with Receiver("udp") as receiver:
        deliver(f"syslog://127.0.0.1:{receiver.port}?{options}", one)
        deliver(f"syslog://127.0.0.1:{receiver.port}?format=json", one)
        text, as_json = (HEADER.fullmatch(message) for message in receiver.wait(2))
    assert (text["pri"], text["app"], text["sdid"]) == (str(19 * 8 + 4), "noc", "hosts@4711")
    params = parse_params(text["params"])
    assert (params["note"], params["missing"]) == ('a "b" [c] \\ d', '["fra","nyc"]')
    assert params["umlaut"] == "ä"
    assert json.loads(as_json["msg"]) == one.records[0]
    assert parse_params(as_json["params"]) == {"id": one.records[0]["id"]}


def test_a_syslog_that_refuses_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    with opened(f"syslog+tcp://127.0.0.1:{port}") as sender:
        with pytest.raises(TemporaryError, match="Connection refused"):
            sender.deliver(TWO)
        with Receiver("tcp", port=port) as receiver:
            sender.deliver(TWO)
            check_messages(receiver.wait(2))
        wait_for(lambda: _refuses(port), "the port is closed")
        with pytest.raises(TemporaryError):  # It notices that the connection is gone, and finds no listener.
            sender.deliver(TWO)
        with Receiver("tcp", port=port) as receiver:
            sender.deliver(TWO)
            check_messages(receiver.wait(2))


def _refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_message_that_is_too_long_for_a_datagram(tmp_path: Path) -> None:
    with Receiver("udp") as receiver, pytest.raises(PermanentError, match=r"use syslog\+tcp"):
        deliver(f"syslog://127.0.0.1:{receiver.port}", batch(row("10.0.0.7", note="x" * 70_000)))


@pytest.mark.parametrize("transport", ["syslog", "syslog+tcp"])
def test_rsyslog_understands_us(tmp_path: Path, transport: str) -> None:
    program = needed("rsyslogd", "SUPERHOSTS_NEED_RSYSLOG")
    port, out = free_port(), tmp_path / "out"
    kind = "imudp" if transport == "syslog" else "imtcp"
    fields = "%pri%|%app-name%|%msgid%|%structured-data%|%msg%"
    (tmp_path / "conf").write_text(
        f'module(load="{kind}")\ninput(type="{kind}" port="{port}" address="127.0.0.1")\n'
        f'template(name="all" type="string" string="{fields}\\n")\n'
        f'action(type="omfile" file="{out}" template="all")\n'
    )
    command = [program, "-n", "-f", str(tmp_path / "conf"), "-i", str(tmp_path / "pid")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: (tmp_path / "pid").exists(), "rsyslogd runs")
            table = Path("/proc/net/udp" if kind == "imudp" else "/proc/net/tcp")
            wait_for(lambda: f":{port:04X} " in table.read_text(), "rsyslogd listens")
            deliver(f"{transport}://127.0.0.1:{port}?facility=local1&severity=err")
            ours = wait_for(lambda: _ours(out), "both messages are there")
        finally:
            process.kill()
    pri, app, msgid, data, msg = ours[0].split("|")
    assert (pri, app, msgid) == (str(17 * 8 + 3), "superhosts", "superhost")
    assert parse_params(data.removeprefix("[superhosts@32473").removesuffix("]"))["host"] == "10.0.0.7"
    assert msg.strip() == "10.0.0.7: 4120 peers (4043 to 4197), direction out"
    assert "2001:db8::/64" in ours[1]


def _ours(out: Path) -> list[str]:
    lines = out.read_text().splitlines() if out.exists() else []
    ours = [line for line in lines if "|superhosts|" in line]
    return ours if len(ours) == 2 else []


# Webhooks


def test_a_webhook_gets_the_batch_with_a_signature(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("tell nobody\n")
    with Receiver("http") as receiver:
        deliver(f"webhook+http://127.0.0.1:{receiver.port}/in?code=a%20b&secret-file={tmp_path / 'secret'}")
        (got,) = receiver.wait(1)
    assert got["path"] == "/in?code=a%20b"  # Our options do not reach the receiver.
    content = json.loads(got["body"])
    assert content == TWO.as_json()
    assert (content["window_start"], content["revision"], content["kind"]) == ("2026-11-14T12:00:00Z", 1, "superhost")
    headers = got["headers"]
    assert (headers["content-type"], headers["webhook-id"]) == ("application/json", TWO.id)
    signed = f"{TWO.id}.{headers['webhook-timestamp']}.{got['body']}".encode()
    digest = hmac.new(b"tell nobody", signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


def test_a_webhook_over_tls_and_who_sends(tmp_path: Path, certificates: Path) -> None:
    (tmp_path / "token").write_text("abc")
    (tmp_path / "password").write_text("geheim")
    with Receiver("http", cert=certificates / "ours.pem") as receiver:
        place = f"127.0.0.1:{receiver.port}/"
        with pytest.raises(TemporaryError, match="certificate is not trusted"):
            deliver(f"webhook+https://{place}")
        ca = f"ca={certificates / 'ours-ca.pem'}"
        deliver(f"webhook+https://{place}?{ca}&token-file={tmp_path / 'token'}")
        deliver(f"webhook+https://ops@{place}?{ca}&password-file={tmp_path / 'password'}")
        tokens = [got["headers"]["authorization"] for got in receiver.wait(2)]
    assert tokens == ["Bearer abc", f"Basic {base64.b64encode(b'ops:geheim').decode()}"]


def test_answers_of_a_webhook(tmp_path: Path) -> None:
    kinds: dict[int, type[Exception]] = dict.fromkeys((500, 503, 429, 404, 401, 302), TemporaryError)
    kinds |= dict.fromkeys((400, 413, 422), PermanentError)
    with Receiver("http", answers=list(kinds)) as receiver:
        for status, kind in kinds.items():
            with pytest.raises(kind, match=f"it answers {status}"):
                deliver(f"webhook+http://127.0.0.1:{receiver.port}/")


@pytest.mark.slow
def test_a_webhook_that_hangs(tmp_path: Path) -> None:
    with (
        Receiver("http", gate=tmp_path / "never") as receiver,
        pytest.raises(TemporaryError, match="it does not answer"),
    ):
        deliver(f"webhook+http://127.0.0.1:{receiver.port}/?timeout=1s")


def test_slack_and_teams(tmp_path: Path) -> None:
    many = batch(
        row("<!channel>&", label="[x](http://evil) *bold*"), *(row(f"10.0.0.{number}") for number in range(25))
    )
    with Receiver("http") as receiver:
        for format in ("slack", "teams"):
            deliver(f"webhook+http://127.0.0.1:{receiver.port}/?format={format}", many)
        slack, teams = (json.loads(got["body"]) for got in receiver.wait(2))
    lines = slack["text"].splitlines()
    assert lines[0].startswith("*Super hosts (ams) 2026-11-14")
    assert lines[0].endswith(": 2 hosts*")
    first, second = (
        "• &lt;!channel&gt;&amp; ([x](http://evil) *bold*): 4120",
        "• 10.0.0.0: 4120 peers (4043 to 4197), direction out",
    )
    assert (lines[1].startswith(first), lines[2], lines[-1]) == (True, second, "• and 6 more")
    (card,) = teams["attachments"]
    assert (teams["type"], card["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    assert card["content"]["type"] == "AdaptiveCard"
    assert len(card["content"]["body"]) == 22
    assert card["content"]["body"][1]["text"].startswith(r"\<!channel\>& (\[x\](http://evil) \*bold\*): 4120")


def test_pagerduty_gets_an_event_for_each_host_and_goes_on_where_it_failed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("R0UT1NG\n")
    with Receiver("http", answers=[202, 503, 202]) as receiver:
        address = f"webhook+http://127.0.0.1:{receiver.port}/v2/enqueue?format=pagerduty"
        with pytest.raises(UsageError, match="routing-key-file=FILE"):
            deliver(address)
        with opened(f"{address}&routing-key-file={tmp_path / 'key'}") as sender:
            with pytest.raises(TemporaryError):
                sender.deliver(TWO)
            sender.deliver(TWO)
        events = [json.loads(got["body"]) for got in receiver.wait(3)]
    hosts = [event["payload"]["source"] for event in events]
    assert hosts == ["10.0.0.7", "2001:db8::/64", "2001:db8::/64"]
    assert {(event["routing_key"], event["event_action"]) for event in events} == {("R0UT1NG", "trigger")}
    assert events[0]["dedup_key"] == "superhosts/superhost/ams/10.0.0.7/inner/out"
    assert events[0]["payload"]["severity"] == "warning"


def test_formats_of_others_and_the_former_name_of_the_option(tmp_path: Path) -> None:
    with Receiver("http") as receiver:
        address = f"webhook+http://127.0.0.1:{receiver.port}/"
        for query in ("format=ecs", "format=cef", "template=ocsf", "template=json"):
            deliver(f"{address}?{query}")
        with pytest.raises(UsageError, match="same option"):
            deliver(f"{address}?template=json&format=json")
        deliver(f"{address}?format=ecs", next(batches_of(Report(rows=[], revision=2))))  # sends nothing
        documents, lines, findings, whole = receiver.wait(4)
    assert json.loads(documents["body"]) == [shaped(record, "ecs") for record in TWO.records]
    assert lines["body"].split("\n") == [line_of(record, "cef") for record in TWO.records]
    assert lines["headers"]["content-type"].startswith("text/plain")
    assert json.loads(findings["body"]) == [shaped(record, "ocsf") for record in TWO.records]
    assert json.loads(whole["body"]) == TWO.as_json()


def test_syslog_in_formats_of_others(tmp_path: Path) -> None:
    one = batch(row("10.0.0.7", label="ä"))
    with Receiver("udp") as receiver:
        for format in FORMATS:
            deliver(f"syslog://127.0.0.1:{receiver.port}?format={format}", one)
        got = receiver.wait(3)
    for message, format in zip(got, FORMATS, strict=True):
        head, _, text = message.partition(" superhost - ")
        assert head.startswith("<29>1 ")
        assert text == line_of(one.records[0], format)


# Splunk and Elasticsearch


def test_splunk_gets_events_with_their_times(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    options = f"token-file={tmp_path / 'token'}"
    with Receiver("http", answers=[(200, '{"text":"Success","code":0}')]) as receiver:
        address = f"splunk+http://127.0.0.1:{receiver.port}"
        deliver(f"{address}?{options}&index=network&sourcetype=our:hosts")
        deliver(f"{address}/prefix/?{options}&format=ocsf")
        deliver(f"{address}?{options}&format=cef")
        first, second, third = receiver.wait(3)
    assert (first["path"], second["path"]) == ("/services/collector/event", "/prefix/services/collector/event")
    assert first["headers"]["authorization"] == "Splunk abc"
    events = [[json.loads(line) for line in got["body"].splitlines()] for got in (first, second, third)]
    common = {"time": NOON / 1e9 + 300, "source": "superhosts", "sourcetype": "our:hosts", "index": "network"}
    assert events[0] == [{**common, "event": record} for record in TWO.records]
    assert [each["event"] for each in events[1]] == [shaped(record, "ocsf") for record in TWO.records]
    assert [each["event"] for each in events[2]] == [line_of(record, "cef") for record in TWO.records]
    assert "index" not in events[1][0]


def test_what_splunk_answers(tmp_path: Path) -> None:
    answers: list[tuple[int, str, type[Exception]]] = [
        (403, '{"text":"Invalid token","code":4}', TemporaryError),
        (400, '{"text":"Incorrect index","code":7,"invalid-event-number":1}', TemporaryError),
        (400, '{"text":"Invalid data format","code":6,"invalid-event-number":0}', PermanentError),
        (400, '{"text":"No such code","code":70}', PermanentError),
        (503, '{"text":"Server is busy","code":9}', TemporaryError),
    ]
    with Receiver("http", answers=[(status, text) for status, text, _ in answers]) as receiver:
        for status, _, kind in answers:
            with pytest.raises(kind, match=f"it answers {status}"):
                deliver(f"splunk+http://127.0.0.1:{receiver.port}")


def bulk_answer(*statuses: int) -> tuple[int, str]:
    """Return what `_bulk` answers: a status for each document."""
    error = {"type": "mapper_parsing_exception", "reason": "failed to parse field [host]"}
    items = [{"create": {"status": each} | ({} if each < 300 else {"error": error})} for each in statuses]
    return 200, json.dumps({"items": items})


def bulk(body: str) -> dict[str, Any]:
    """Return the documents of a request by their ids."""
    lines = [json.loads(line) for line in body.splitlines()]
    assert body.endswith("\n")
    assert all(list(action) == ["create"] for action in lines[::2])
    return {action["create"]["_id"]: document for action, document in zip(lines[::2], lines[1::2], strict=True)}


def test_elasticsearch_gets_documents_by_their_ids(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a2V5\n")
    with Receiver("http", answers=[bulk_answer(201, 409)]) as receiver:  # the second one is there already
        address = f"elastic+http://127.0.0.1:{receiver.port}/prefix/hosts/"
        deliver(f"{address}?token-file={tmp_path / 'token'}")
        deliver(f"{address}?format=json")
        first, second = receiver.wait(2)
    assert first["path"].startswith("/prefix/hosts/_bulk?filter_path=")
    assert first["headers"]["authorization"] == "ApiKey a2V5"
    assert first["headers"]["content-type"] == "application/x-ndjson"
    assert bulk(first["body"]) == {record["id"]: shaped(record, "ecs") for record in TWO.records}
    assert bulk(second["body"]) == {record["id"]: record for record in TWO.records}


def test_what_elasticsearch_refuses_is_dropped_alone_and_what_it_does_not_take_now_comes_again() -> None:
    many = batch(*(row(f"10.0.0.{number}") for number in range(5)))
    ids = [record["id"] for record in many.records]
    answers = [(503, "no"), bulk_answer(201, 400, 429, 404, 201), bulk_answer(201, 503), bulk_answer(400)]
    with Receiver("http", answers=[*answers, bulk_answer(201, 201)]) as receiver:
        with opened(f"elastic+http://127.0.0.1:{receiver.port}/hosts") as sender:
            for why in ("it answers 503", "it answers 429 .*for 2 records", "it answers 503 .* for 1 record$"):
                with pytest.raises(TemporaryError, match=why):
                    sender.deliver(many)
            with pytest.raises(PermanentError, match=r"2 records of 5: it answers 400 .*mapper_parsing_exception"):
                sender.deliver(many)
            sender.deliver(TWO)
        sent = [list(bulk(got["body"])) for got in receiver.wait(5)]
    assert sent == [ids, ids, ids[2:4], ids[3:4], [record["id"] for record in TWO.records]]


@pytest.mark.parametrize("answer", ["", "[]", '{"items": 3}', '{"items": []}', '{"items": [{"create": {}}, {}]}'])
def test_an_answer_that_is_none_of_elasticsearch(answer: str) -> None:
    with Receiver("http", answers=[(200, answer)]) as receiver, pytest.raises(TemporaryError, match="its answer"):
        deliver(f"elastic+http://127.0.0.1:{receiver.port}/hosts")


def test_elasticsearch_with_a_queue(tmp_path: Path) -> None:
    """One report, of which a record is refused and another comes again: told once, and nothing else is lost."""
    said: list[str] = []
    options = DeliveryOptions(tmp_path / "queue", site="ams", say=said.append, first_pause=0.01)
    with Receiver("http", answers=[bulk_answer(429, 400), bulk_answer(201)]) as receiver:
        address = f"elastic+http://127.0.0.1:{receiver.port}/hosts"
        destination = open_destination(address, ENDLESS, options)
        destination.write(Report(rows=[row("10.0.0.7"), row("10.0.0.8")], window=WINDOW))
        sent = [bulk(got["body"]) for got in receiver.wait(2)]
        wait_for(lambda: destination.status()["dropped"] == 1, "the refused record is counted")
        destination.close()
    assert [len(each) for each in sent] == [2, 1]
    assert destination.status()["waiting"] == 0
    assert any("REFUSES a report: 1 record of 2: it answers 400" in each for each in said)


# Alertmanager


def test_alertmanager_gets_alerts(tmp_path: Path) -> None:
    with Receiver("http") as receiver:
        deliver(f"alertmanager+http://127.0.0.1:{receiver.port}/prefix/?severity=page")
        (got,) = receiver.wait(1)
    assert got["path"] == "/prefix/api/v2/alerts"
    first, second = json.loads(got["body"])
    labels = {"alertname": "SuperHost", "severity": "page", "host": "10.0.0.7", "side": "inner"}
    assert first["labels"] == {**labels, "direction": "out", "site": "ams"}
    assert first["annotations"]["peers"] == "4120"
    assert second["labels"]["host"] == "2001:db8::/64"
    assert first["endsAt"] > first["startsAt"]


def asked(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


# Programs


def make_hook(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "a hook"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return f"exec:{path}".replace(" ", "%20")


def test_a_program_gets_the_arguments_of_fastnetmon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_KEY", "secret")
    out = tmp_path / "out"
    hook = make_hook(tmp_path, f'printf "%s|" "$@" >> {out}', f"cat >> {out}", f'echo "$SUPERHOSTS_KEY" >> {out}')
    deliver(hook, batch(row("10.0.0.7; rm -rf /"), row("2001:db8::/64", None, direction="in")))
    first, empty, second, _ = out.read_text().splitlines()
    *arguments, record = first.split("|", 4)
    assert arguments == ["10.0.0.7; rm -rf /", "outgoing", "4120", "ban"]
    assert json.loads(record)["host"] == "10.0.0.7; rm -rf /"
    assert empty == ""
    assert second.split("|")[:4] == ["2001:db8::/64", "incoming", "4043", "ban"]
    deliver(f"{hook}?action=report")
    assert "|report|" in out.read_text()


def test_statuses_of_a_program(tmp_path: Path) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    hook = make_hook(tmp_path, f"echo $1 >> {out}", f"[ -e {again} ] && exit 75", "exit 0")
    again.touch()
    with opened(hook) as sender:
        with pytest.raises(TemporaryError, match="ended with status 75"):
            sender.deliver(TWO)
        again.unlink()
        sender.deliver(TWO)
    assert out.read_text().split() == ["10.0.0.7", "10.0.0.7", "2001:db8::/64"]
    failing = make_hook(tmp_path, f"echo $1 >> {out}", "echo something is wrong >&2", "exit 3")
    with pytest.raises(PermanentError, match=r"ended with status 3: something is wrong .*that failed: 2"):
        deliver(failing)
    assert len(out.read_text().split()) == 5


@pytest.mark.slow
def test_a_program_that_hangs_is_killed_and_its_children_always(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    begin = ("sleep 1000 &", f"echo $$ $! > {pids}")
    with pytest.raises(PermanentError, match=r"took longer than 1 s and was killed"):
        deliver(f"{make_hook(tmp_path, *begin, 'wait')}?timeout=1s", batch())
    wait_for(lambda: not _living(pids), "both have ended")
    deliver(f"{make_hook(tmp_path, *begin, 'exit 0')}?timeout=1s", batch())  # the child still holds the pipe
    wait_for(lambda: not _living(pids), "both have ended")


def test_a_program_is_killed_when_ours_ends(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hook = make_hook(tmp_path, f"echo $$ > {pids}", "sleep 1000")
    with opened(f"{hook}?timeout=1h") as sender, ThreadPoolExecutor() as threads:
        delivered = threads.submit(sender.deliver, batch())
        wait_for(lambda: pids.exists() and pids.read_text().strip(), "the program runs")
        sender.abort()
        with pytest.raises(TemporaryError, match="the program was killed, because the time"):
            delivered.result(DEADLINE)


def _living(pids: Path) -> list[str]:
    stats = [Path(f"/proc/{pid}/stat") for pid in pids.read_text().split()]
    return [text for path in stats if path.exists() and (text := path.read_text()).rpartition(") ")[2][0] != "Z"]


# Mail


def test_one_mail_a_window(tmp_path: Path) -> None:
    pytest.importorskip("aiosmtpd")
    with Receiver("smtp") as receiver:
        deliver(f"smtp://127.0.0.1:{receiver.port}/?to=noc@example.net,cert@example.net&from=me@example.net")
        (got,) = receiver.wait(1)
    assert (got["from"], got["to"]) == ("me@example.net", ["noc@example.net", "cert@example.net"])
    mail = email.message_from_string(got["mail"])
    assert mail["Subject"] == "2 super hosts at ams, 2026-11-14T12:00:00Z"
    assert mail["Message-ID"] == f"<{TWO.id}@superhosts.invalid>"
    text, rows = mail.get_payload()
    assert "10.0.0.7: 4120 peers" in text.get_payload()
    attached = rows.get_payload(decode=True).decode()
    assert [json.loads(line) for line in attached.splitlines()] == TWO.records


def test_mail_with_a_password_needs_tls(tmp_path: Path, certificates: Path) -> None:
    pytest.importorskip("aiosmtpd")
    (tmp_path / "right").write_text("geheim\n")
    (tmp_path / "wrong").write_text("geraten\n")
    with Receiver("smtp", cert=certificates / "ours.pem") as receiver:
        address = f"smtp://ops@127.0.0.1:{receiver.port}/?to=noc@example.net&from=me@example.net"
        ca = f"ca={certificates / 'ours-ca.pem'}"
        with pytest.raises(TemporaryError, match="refuses user or password") as raised:
            deliver(f"{address}&{ca}&password-file={tmp_path / 'wrong'}")
        assert "geraten" not in str(raised.value)
        with pytest.raises(TemporaryError, match="certificate is not trusted"):
            deliver(f"{address}&password-file={tmp_path / 'right'}")
        deliver(f"{address}&{ca}&password-file={tmp_path / 'right'}")
        (got,) = receiver.wait(1)
    assert (got["tls"], got["user"]) == (True, "ops")
    with Receiver("smtp") as plain, pytest.raises(TemporaryError, match="offers no STARTTLS"):
        deliver(address.replace(str(receiver.port), str(plain.port)) + f"&password-file={tmp_path / 'right'}")


# NATS and Kafka


@contextlib.contextmanager
def nats_server(tmp_path: Path, *options: str) -> Iterator[str]:
    process = pytest.importorskip("superhosts.fleet.nats.broker", reason="pip install 'superhosts[fleet]'")
    place = f"127.0.0.1:{free_port()}"
    host, port = place.split(":")
    command = [str(process.find_server()), "-a", host, "-p", port, "-js", "-sd", str(tmp_path / "js"), *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: not _refuses(int(port)), "nats-server listens")
            yield place
        finally:
            server.kill()


def test_nats_subscribers_get_records(tmp_path: Path) -> None:
    import nats

    async def main(place: str) -> list[Any]:
        client = await nats.connect(f"nats://{place}")
        subscription = await client.subscribe("hosts.found")
        await client.flush()
        await asyncio.to_thread(deliver, f"nats://{place}/hosts.found")
        got = [await subscription.next_msg(DEADLINE) for _ in range(2)]
        await client.close()
        return got

    with nats_server(tmp_path) as place:
        got = asyncio.run(main(place))
    assert [json.loads(message.data) for message in got] == TWO.records
    assert [message.headers["Nats-Msg-Id"] for message in got] == [record["id"] for record in TWO.records]


@pytest.mark.slow
def test_a_stream_of_nats_keeps_records_once(tmp_path: Path) -> None:
    import nats

    async def make_stream(place: str) -> None:
        client = await nats.connect(f"nats://{place}")
        await client.jetstream().add_stream(name="HOSTS", subjects=["hosts.>"])
        await client.close()

    async def count(place: str) -> int:
        client = await nats.connect(f"nats://{place}")
        info = await client.jetstream().stream_info("HOSTS")
        await client.close()
        return int(info.state.messages)

    with nats_server(tmp_path) as place:
        address = f"nats://{place}/hosts.found?jetstream=on"
        with pytest.raises(TemporaryError, match=r"no stream stores the subject hosts\.found"):
            deliver(address)
        asyncio.run(make_stream(place))
        deliver(address)
        deliver(address)
        assert asyncio.run(count(place)) == 2


@pytest.mark.slow
def test_nats_credentials_and_tls(tmp_path: Path, certificates: Path) -> None:
    (tmp_path / "right").write_text("geheim")
    (tmp_path / "wrong").write_text("geraten")
    cert = str(certificates / "ours.pem")
    tls = ["--tls", "--tlscert", cert, "--tlskey", cert]
    with nats_server(tmp_path, "--user", "ops", "--pass", "geheim", *tls) as place:
        address = f"nats+tls://ops@{place}/hosts?ca={certificates / 'ours-ca.pem'}"
        deliver(f"{address}&password-file={tmp_path / 'right'}")
        with pytest.raises(TemporaryError, match="does not accept these credentials"):
            deliver(f"{address}&password-file={tmp_path / 'wrong'}")
    with nats_server(tmp_path) as place, pytest.raises(TemporaryError, match="offers no TLS"):
        deliver(f"nats+tls://ops@{place}/hosts?password-file={tmp_path / 'right'}")
    with pytest.raises(TemporaryError, match=r"Connection refused|Connect call failed"):
        deliver(f"nats://127.0.0.1:{free_port()}/hosts")


@pytest.mark.slow
def test_kafka_gets_records_with_the_host_as_key() -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="pip install 'superhosts[kafka]'")
    cluster = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock:1", "log_level": 0})
    (broker,) = cluster.list_topics(timeout=30).brokers.values()
    place = f"{broker.host}:{broker.port}"
    deliver(f"kafka://{place}/found")
    consumer = kafka.Consumer({"bootstrap.servers": place, "group.id": "t", "auto.offset.reset": "earliest"})
    consumer.subscribe(["found"])
    got: list[Any] = []

    def read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            got.append(message)
        return len(got) == 2

    wait_for(read, "two messages")
    consumer.close()
    found = {message.key().decode(): json.loads(message.value()) for message in got}
    assert found == {record["host"]: record for record in TWO.records}
    assert {dict(message.headers())["id"].decode() for message in got} == {record["id"] for record in TWO.records}


@pytest.mark.slow
def test_kafka_that_is_not_there() -> None:
    pytest.importorskip("confluent_kafka", reason="pip install 'superhosts[kafka]'")
    with pytest.raises(TemporaryError):
        deliver(f"kafka://127.0.0.1:{free_port()}/found?timeout=1s")


@pytest.mark.slow
def test_apprise(tmp_path: Path) -> None:
    pytest.importorskip("apprise", reason="pip install 'superhosts[apprise]'")
    with Receiver("http", answers=[200, 500]) as receiver:
        address = f"apprise:json://127.0.0.1:{receiver.port}/token"
        deliver(address)
        with pytest.raises(TemporaryError):
            deliver(address)
        content = json.loads(receiver.wait(1)[0]["body"])
    assert "Super hosts (ams)" in content["title"]
    assert "10.0.0.7: 4120 peers" in content["message"]


# Addresses


WRONG = {
    "syslog://": "^syslog:.*: name a host",
    "syslog://host:x": "name a host",
    "syslog://host?colour=red": "unknown option colour; known options: facility, severity, app",
    "syslog://host?facility=kitchen": "facility=kitchen: use kern, user",
    "syslog://host?app=a b": "app: use 1 to 48 printable ASCII",
    "syslog+tls://host?ca=/none": "ca=/none: cannot be read: No such file",
    "syslog://host?timeout=soon": "timeout: ",
    "webhook+https://host/secret?template=fax": "^webhook.https://host/…: format=fax: use json, slack",
    "webhook+https://host/?secret-file=/none": "secret-file=/none: cannot be read",
    "webhook+https://me:pass@host/": "every user of this machine can see a password on a command line",
    "exec:notify": "name a program by its full path",
    "exec:/etc/passwd": "no such program, or it may not be executed",
    "smtp://host": "name the recipients: to=",
    "smtp://host/?to=nobody": "nobody: not an address",
    "smtp://me@host/?to=a@b.example": "name the file of the password: password-file=FILE",
    "nats://host:4222": "name a subject",
    "nats://host:4222/a.*": "name a subject",
    "elastic+https://host:9200": "name an index",
    "elastic+https://host/index?format=cef": "format=cef: use ecs, ocsf, json",
    "splunk+https://host:8088?token-file=/none": "token-file=/none: cannot be read",
    "syslog://host?format=xml": "format=xml: use text, json, ecs, ocsf, cef",
    "kafka://host": "name a broker and a topic",
    "apprise:nonsense": "Apprise does not know such a URL",
}


def test_addresses_that_make_no_sense() -> None:
    for address in filter(opens, WRONG):
        with pytest.raises(UsageError, match=WRONG[address]) as raised:
            load_sender(address.partition(":")[0]).open(address)
        assert "pass@" not in str(raised.value)
        assert "/secret" not in str(raised.value)


def test_secrets_are_not_shown() -> None:
    addresses = {
        "syslog://host:514?format=json": "syslog://host:514",
        "webhook+https://hooks.example/T000/B000/XXXX": "webhook+https://hooks.example/…",
        "webhook+https://hooks.example/?sig=XXXX": "webhook+https://hooks.example/…",
        "webhook+https://me:XXXX@hooks.example": "webhook+https://me@hooks.example",
        "smtp://me:XXXX@host/?to=a@b.example&tls=off": "smtp://me@host",
        "nats://me:XXXX@host:4222/found": "nats://me@host:4222/found",
        "exec:/bin/true?timeout=3s": "exec:/bin/true",
        "apprise:json://me:XXXX@host/": "apprise:…",
    }
    for address in filter(opens, addresses):
        sender = load_sender(address.partition(":")[0]).open(address, private=True)
        assert sender.address.shown == addresses[address]
        assert "XXXX" not in repr(sender.address)


def test_ids_depend_on_the_content_alone() -> None:
    again = batch(row("10.0.0.7"), row("2001:db8::/64", None, direction="in"))
    assert again == TWO
    assert batch(row("10.0.0.7"), row("2001:db8::/64", None, direction="in"), site="fra").id != TWO.id
    assert len({record["id"] for record in TWO.records}) == 2
    report = Report(rows=[row(f"10.0.0.{number}") for number in range(5)], window=Window(NOON, NOON + 1), revision=2)
    parts = [*batches_of(report, most=2)]
    assert [(len(part.records), part.part, part.parts) for part in parts] == [(2, 1, 3), (2, 2, 3), (1, 3, 3)]
    assert len({part.id for part in parts}) == 3
    assert [*batches_of(Report(rows=[]))] == []
    assert [part.records for part in batches_of(Report(rows=[], revision=2))] == [[]]


def test_the_page_of_destinations_names_every_scheme_and_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "destinations.md").read_text(encoding="utf-8")
    for scheme in SENDERS:
        assert f"`{scheme}:" in page
        if scheme != "apprise":
            for option in load_sender(scheme).options:
                assert f"`{option}`" in page, (scheme, option)
