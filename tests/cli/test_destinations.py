"""Destinations that send, from the command line: several at once, queues that outlive a process, statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import Run
from fleets import make_sketch, write_parcel
from processes import COMMON, ending, free_port, make_edge, make_hub_on_files, rows, status_of
from queues import waiting_in
from receivers import Receiver
from superhosts.pipeline.settings import Settings
from traffic import MINUTES, NOON, talk, write
from waiting import wait_for


@pytest.fixture
def scan(tmp_path: Path) -> list[Any]:
    frames = talk("10.0.0.7", 50) + talk("10.0.0.8", 60, NOON + 5 * MINUTES)
    return ["scan", write(tmp_path / "a.pcap", frames), "-q", "--detector", "exact", "-t", 20]


def hosts_in(bodies: list[Any]) -> list[str]:
    return [record["host"] for got in bodies for record in json.loads(got["body"])["records"]]


def test_a_scan_writes_to_several_places(run, scan, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_SCAN_OUTPUT_WAIT", "600s")
    with Receiver("http") as web, Receiver("tcp") as log:
        outputs = ["-o", f"webhook+http://127.0.0.1:{web.port}/in", "-o", f"syslog+tcp://127.0.0.1:{log.port}"]
        files = ["-o", tmp_path / "rows.jsonl", "-o", tmp_path / "rows.csv", "-o", "-"]
        ended = run(*scan, *outputs, *files, "--site", "ams")
        assert (ended.status, ended.err) == (0, "")
        assert hosts_in(web.got) == ["10.0.0.7", "10.0.0.8"]
        assert len(log.wait(2)) == 2
        assert json.loads(web.got[0]["body"])["site"] == "ams"
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == ended.rows
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3


def test_the_next_scan_sends_what_waits_on_disk(run: Run, scan: list[Any], tmp_path: Path) -> None:
    port = free_port()
    options = ["-o", f"webhook+http://127.0.0.1:{port}/", "--output-queue", tmp_path / "queue"]
    ended = run(*scan, *options, "--output-wait", "0")
    assert (ended.status, "they wait in" in ended.err) == (4, True)
    with Receiver("http", port=port) as receiver:
        assert run(*scan, *options, "--output-wait", "600s").status == 0
        got = receiver.wait(4)
    assert hosts_in(got) == ["10.0.0.7", "10.0.0.8"] * 2
    ids = [each["headers"]["webhook-id"] for each in got]
    assert ids[:2] == ids[2:]  # the same capture again: a receiver may drop it


@pytest.mark.slow
def test_an_edge_sends_its_own_rows(tmp_path: Path) -> None:
    capture = write(tmp_path / "a.pcap", talk("10.0.0.7", 50) + talk("10.0.0.8", 60, NOON + 5 * MINUTES))
    with Receiver("http") as receiver:
        outputs = ["-o", f"webhook+http://127.0.0.1:{receiver.port}/", "-t", "20", "--window", "5m"]
        edge = make_edge(tmp_path, "ams", ["--to", str(tmp_path / "link")], str(capture), *outputs)
        with ending(edge):
            edge.start()
            got = receiver.wait(2)
            edge.end()
    assert hosts_in(got) == ["10.0.0.7", "10.0.0.8"]
    assert {json.loads(each["body"])["site"] for each in got} == {"ams"}
    assert list(json.loads((tmp_path / "spool-ams" / "status.json").read_text())["outputs"]) != []


def test_missing_packages_are_named(run: Run, scan: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module, extra, address in (
        ("nats", "fleet", "nats://host/subject"),
        ("confluent_kafka", "kafka", "kafka://host/topic"),
        ("apprise", "apprise", "apprise:json://host"),
    ):
        with monkeypatch.context() as patch:
            for name in ("superhosts.output.senders.nats", "superhosts.output.senders.apprise"):
                patch.delitem(__import__("sys").modules, name, raising=False)
            patch.setitem(__import__("sys").modules, module, None)
            ended = run(*scan, "-o", address)
        assert ended.status == 2
        assert f"pip install 'superhosts[{extra}]'" in ended.err


@pytest.mark.slow
def test_a_hub_is_restarted_and_goes_on_with_its_queue(tmp_path: Path) -> None:
    """The receiver is down while a hub reports, and is told everything by the next hub; the file has it at once."""
    port, settings = free_port(), Settings(memory=COMMON[1], device="cpu", threads=1)
    hub, _ = make_hub_on_files(tmp_path, "-o", f"webhook+http://127.0.0.1:{port}/hidden", "-t", "20", sites=("ams",))
    for number in range(3):
        write_parcel(make_sketch("ams", number, settings=settings), tmp_path / "link" / "ams")
    with ending(hub):
        hub.start()
        wait_for(lambda: len(rows(tmp_path / "found.jsonl")) == 3, "the windows are reported")
        wait_for(lambda: len(waiting_in(tmp_path / "hub" / "outputs")) == 3, "reports wait on disk")
        hub.kill()
        with Receiver("http", port=port) as receiver:
            hub.start()
            got = receiver.wait(3)
            wait_for(lambda: not waiting_in(tmp_path / "hub" / "outputs"), "the queue is empty")
            assert hub.end() == 0
    assert hosts_in(got) == [row["host"] for row in rows(tmp_path / "found.jsonl")] == ["10.0.0.7"] * 3
    status = status_of(tmp_path / "hub")
    assert status["outputs"][f"webhook+http://127.0.0.1:{port}/…"]["delivered"] == 3
    assert "hidden" not in hub.words + json.dumps(status)
    assert "reports of earlier runs that wait" in hub.words
