"""Logs of services: text on a terminal, JSON elsewhere; rows alone on standard output."""

from __future__ import annotations

import json
import signal
import sys
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from commands import Run
from fleets import make_sketch, write_parcel
from isolation import TEXT_LOGS
from processes import Node, ending, make_edge, rows
from superhosts.output.console import tell, use_log_format
from superhosts.ui import service
from superhosts.ui.service import log_in_background
from terminals import COMMAND, OnTerminal
from traffic import three_windows, write
from waiting import wait_for


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TEXT_LOGS:
        monkeypatch.delenv(name)


def records(node: Node) -> list[dict[str, Any]]:
    """The complete lines of a log, each of which is JSON."""
    return rows(node.log)


def events(node: Node) -> list[str]:
    return [record["event"] for record in records(node)]


def make_hub(folder: Path, *options: str) -> Node:
    arguments = ["hub", "--state", str(folder / "hub"), "--from", str(folder / "link"), "--sites", "ams,fra"]
    return Node(folder / "hub.log", *arguments, "--memory", "64KiB", "--grace", "1s", *options)


@pytest.mark.slow
def test_a_hub_logs_json_and_standard_output_has_rows_alone(tmp_path: Path) -> None:
    hub, out = make_hub(tmp_path, "--json"), tmp_path / "out.jsonl"
    with ending(hub), out.open("wb") as file:
        hub.start(stdout=file)
        write_parcel(make_sketch("ams", 0), tmp_path / "link" / "ams")
        wait_for(lambda: "window" in events(hub), lambda: hub.words)
        hub.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded" in events(hub), lambda: hub.words)
        assert hub.end() == 0
    assert [row["host"] for row in rows(out)] == ["10.0.0.7"]
    found = {record["event"]: record for record in records(hub)}
    assert (found["ready"]["level"], found["ready"]["message"][:9]) == ("info", "hub ready")
    window = found["window"]
    assert (window["level"], window["sites"], window["missing"]) == ("warning", ["ams"], ["fra"])
    assert (window["hosts"], window["revision"], window["window"]) == (1, 1, "20261114T120000Z-5m")
    assert found["reloaded"]["parts"][0] == "--output"
    assert (found["stopped"]["accepted"], found["stopped"]["reports"]) == (1, 1)
    for record in records(hub):
        assert datetime.fromisoformat(record["time"]).utcoffset() is not None
        assert record["time"].endswith("Z")


@pytest.mark.slow
def test_an_edge_logs_json(tmp_path: Path) -> None:
    capture = write(tmp_path / "a.pcap", three_windows())
    edge = make_edge(tmp_path, "ams", ["--to", str(tmp_path / "link")], str(capture), str(tmp_path / "missing.pcap"))
    with ending(edge):
        edge.start()
        wait_for(lambda: "input-ended" in events(edge), lambda: edge.words)
        assert edge.end() == 3  # that of the missing file
    found = {record["event"]: record for record in records(edge)}
    assert (found["ready"]["site"], found["ready"]["waiting"]) == ("ams", 0)
    assert found["error"]["level"] == "error"
    assert "missing.pcap" in found["error"]["message"]
    assert found["summary"]["packets"] == len(three_windows())
    assert (found["stopped"]["spooled"], found["stopped"]["waiting"]) == (3, 3)


def test_watch_logs_json(run: Run, tmp_path: Path) -> None:
    ended = run("watch", write(tmp_path / "a.pcap", three_windows()), "--json", "--window", "5m")
    assert [json.loads(line)["event"] for line in ended.err.splitlines()] == ["summary"]
    assert len({row["window_start"] for row in ended.rows}) == 3


def test_an_error_of_options_that_a_service_finds_itself_is_json_too(run: Run, tmp_path: Path) -> None:
    ended = run("hub", "--state", tmp_path / "hub", "--from", tmp_path / "link", "--archive-sites")
    record = json.loads(ended.err)
    assert (ended.status, record["message"]) == (2, "--archive-sites needs --archive DIR")
    assert (record["event"], record["level"]) == ("error", "error")


@pytest.mark.parametrize(("options", "is_json"), [((), False), (("--log-format", "json"), True)])
def test_a_terminal_gets_text_unless_json_is_asked_for(tmp_path: Path, options: tuple[str, ...], is_json: bool) -> None:
    capture = write(tmp_path / "a.pcap", three_windows())
    with OnTerminal(*COMMAND, "watch", capture, "--csv", "--window", "5m", *options, streams=("stderr",)) as terminal:
        assert terminal.ends() == 0
        (*before, last) = terminal.text.splitlines()
    assert last.startswith("{") == is_json
    assert "packets" in last
    if is_json:
        assert [json.loads(line)["event"] for line in (*before, last)] == ["warning", "summary"]  # of the option


class FullOnce(StringIO):
    """A stream on a disk that is full for one line."""

    is_full = True

    def flush(self) -> None:
        if self.is_full:
            self.is_full = False
            self.seek(0)
            self.truncate()
            raise OSError(28, "No space left on device")


def test_lines_that_were_lost_are_told_in_the_same_format(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FullOnce()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(service, "raw_stream", lambda _stream: stream)
    use_log_format("json")
    try:
        with log_in_background():
            for text in ("one", "two"):
                tell(text)
    finally:
        use_log_format("text")
    lost, two = map(json.loads, stream.getvalue().splitlines())
    assert lost["message"] == "log lines lost on standard error: 1"
    assert two["message"] == "two"
