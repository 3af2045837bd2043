"""SIGHUP: rules, thresholds, lists and destinations are read again, and no window is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fleets import make_sketch, write_parcel
from hubs import SITES
from processes import Node, ending, free_port, make_edge, make_hub_on_files, rows
from scraping import scrape
from superhosts.cli._alerts import exchange
from superhosts.errors import UsageError
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.store import AlertDesk, AlertStore
from superhosts.output.delivery import DeliveryOptions
from superhosts.output.destination import Destinations, RunKind
from superhosts.output.registry import OutputOptions
from traffic import MINUTES, NOON, talk, write
from waiting import wait_for

RULE = '[[rule]]\nname = "many"\nthreshold = {threshold}\n'


class Watched:
    """A watch that follows a folder, window by window."""

    def __init__(self, folder: Path, config: str, *options: str) -> None:
        self.folder, self.captures, self.config = folder, folder / "captures", folder / "conf.toml"
        self.captures.mkdir()
        self.config.write_text(config)
        self.found, self.alerts = folder / "found.jsonl", folder / "alerts.jsonl"
        arguments = [str(self.captures), "--window", "5m", "--inner", "10.0.0.0/8", "--config", str(self.config)]
        self.node = Node(folder / "watch.log", "watch", *arguments, *options, "--metrics", ":0")
        self.windows = 0

    def add_window(self, peers: int) -> None:
        """Let a host talk to that many peers in the next window, and wait until the one before has closed."""
        start = NOON + self.windows * 5 * MINUTES
        write(self.captures / f"{self.windows}.pcap", talk("10.0.0.7", peers, start, step=5 * MINUTES // (peers + 1)))
        closed = self.windows
        self.windows += 1
        wait_for(lambda: scrape(self.node).of("windows_closed_total") == closed, lambda: self.node.words)

    def reload(self, config: str, said: str = "reloaded: --output, rules") -> None:
        """Change the file, send SIGHUP, and wait until this was said once more."""
        before = self.node.words.count(said)
        self.config.write_text(config)
        self.node.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.node.words.count(said) > before, lambda: self.node.words)


def events(path: Path) -> list[tuple[str, str]]:
    return [(row["event"], row["host"]) for row in rows(path)]


def windows_in(path: Path) -> list[str]:
    return [row["window_start"] for row in rows(path)]


@pytest.mark.slow
def test_watch_takes_other_rules_thresholds_and_destinations_and_loses_no_window(tmp_path: Path) -> None:
    options = ["--output", str(tmp_path / "found.jsonl"), "--alerts", str(tmp_path / "alerts.sqlite")]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    config = f'alert-to = ["{first}"]\n' + RULE
    watched = Watched(tmp_path, config.format(threshold=2000), *options)
    with ending(watched.node):
        watched.node.start()
        watched.add_window(500)
        watched.add_window(500)
        assert rows(watched.found) == []  # Nobody asks for hosts with so few peers.
        watched.reload(config.format(threshold=400))
        watched.add_window(500)
        wait_for(lambda: events(first) == [("opened", "10.0.0.7")], lambda: watched.node.words)
        watched.reload(config.replace("first", "second").format(threshold=100))
        watched.add_window(1200)
        watched.add_window(1200)
        wait_for(lambda: events(second) == [("grown", "10.0.0.7")], lambda: watched.node.words)
        assert len(events(first)) == 1
        watched.reload(config.replace("first", "second").replace("many", "other").format(threshold=5000))
        assert events(second)[-1] == ("closed", "10.0.0.7")  # at once, as the rule is gone
        assert scrape(watched.node).of("reload_failures") == 0
        assert watched.node.end() == 128 + signal.SIGTERM
    # Windows 2 to 4 were reported once each, with the hosts that were asked for when they closed.
    assert len(set(windows_in(watched.found))) == len(rows(watched.found)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("[[rule]]\nname = 'many'\nthreshold = 'few'\n", "conf.toml: rule 1: threshold = 'few': must be a number"),
        ("threshold = 5000\n" + RULE.format(threshold=400), "--threshold 5000: an alert rule starts at 400 peers"),
        ("alert-to = ['what://x']\n" + RULE.format(threshold=400), "what://x: unknown scheme"),
    ],
)
def test_a_wrong_file_changes_nothing_and_one_line_says_why(tmp_path: Path, config: str, said: str) -> None:
    alerts = ["--alerts", str(tmp_path / "alerts.sqlite"), "--json"]
    good = f'alert-to = ["{tmp_path / "first.jsonl"}"]\n' + RULE.format(threshold=400)
    watched = Watched(tmp_path, good, *alerts)
    with ending(watched.node):
        watched.node.start()
        watched.add_window(500)
        lines = len(watched.node.words.splitlines())
        watched.reload(config, "NOT RELOADED: rules, thresholds and destinations: ")
        assert scrape(watched.node).of("reload_failures") == 1
        new = watched.node.words.splitlines()[lines:]
        assert [line for line in new if "reloaded: --output" not in line] == [line for line in new if said in line]
        assert len(new) <= 2
        watched.add_window(500)
        opened = [("opened", "10.0.0.7")]
        wait_for(lambda: events(tmp_path / "first.jsonl") == opened, lambda: watched.node.words)
        watched.reload(good)
        assert scrape(watched.node).of("reload_failures") == 0


def test_destinations_that_were_opened_for_a_reload_that_fails_are_given_up(tmp_path: Path) -> None:
    """Its queue can be opened again by the next reload."""
    outputs = Destinations([])
    good = f"webhook+http://127.0.0.1:{free_port()}/x"
    delivery = DeliveryOptions(queue=tmp_path / "queue")
    desk = AlertDesk(AlertStore(tmp_path / "alerts.sqlite"), Policy(), [], lambda _text: None)
    kind, asked = RunKind(endless=True), OutputOptions(outputs=[good], delivery=delivery)
    for _ in range(2):
        with pytest.raises(UsageError, match="unknown scheme"):
            exchange(outputs, kind, desk, asked, ["what://x"], Policy())
        assert outputs.each() == desk.receivers() == []
    exchange(outputs, kind, desk, asked, [], Policy())
    (kept,) = outputs.each()
    exchange(outputs, kind, desk, asked, [], Policy())
    assert outputs.each() == [kept]  # with its queue
    for each in (kept, desk):
        each.close()


@pytest.mark.slow
def test_a_threshold_of_rows_and_what_needs_a_restart(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "threshold = 2000\n", "--output", str(tmp_path / "found.jsonl"))
    with ending(watched.node):
        watched.node.start()
        watched.add_window(500)
        watched.add_window(500)
        assert rows(watched.found) == []
        watched.reload("threshold = 400\nmemory = '2MiB'\n", "only a restart takes it: --memory")
        watched.add_window(500)
        wait_for(lambda: [row["peers"] for row in rows(watched.found)] == [500], lambda: watched.node.words)
        watched.reload("threshold = 400\nmemory = '2MiB'\n")
        assert watched.node.words.count("restart") == 1


@pytest.mark.slow
def test_a_hub_takes_other_lists_and_destinations(tmp_path: Path) -> None:
    allowed, config = tmp_path / "allowed", tmp_path / "conf.toml"
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    allowed.write_text("192.0.2.1\n")
    config.write_text(f'output = ["{first}"]\n' + RULE.format(threshold=1000))
    alerts = ["--alerts", str(tmp_path / "alerts.sqlite"), "--alert-to", str(tmp_path / "alerts.jsonl")]
    arguments = ["--state", str(tmp_path / "hub"), "--from", str(tmp_path / "link"), "--sites", "ams"]
    hub = Node(
        tmp_path / "hub.log",
        *("hub", *arguments, *alerts, "--memory", "64KiB", "--allow", f"@{allowed}", "--config", str(config)),
    )
    with ending(hub):
        hub.start()
        write_parcel(make_sketch("ams", 0), tmp_path / "link" / "ams")
        wait_for(lambda: events(tmp_path / "alerts.jsonl") == [("opened", "10.0.0.7")], lambda: hub.words)
        allowed.write_text("10.0.0.0/8\n")
        config.write_text(f'output = ["{second}"]\n' + RULE.format(threshold=1000))
        hub.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(events(tmp_path / "alerts.jsonl")) == 2, lambda: hub.words)
        assert events(tmp_path / "alerts.jsonl")[-1] == ("closed", "10.0.0.7")
        write_parcel(make_sketch("ams", 1), tmp_path / "link" / "ams")
        wait_for(lambda: len(rows(second)) == 1, lambda: hub.words)
        assert len(rows(first)) == 1
        assert hub.end() == 0
    assert len(events(tmp_path / "alerts.jsonl")) == 2


def test_an_edge_with_nothing_to_reload_goes_on(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    _, link = make_hub_on_files(tmp_path, sites=SITES)
    edge = make_edge(tmp_path, "ams", link, str(tmp_path / "captures"))
    with ending(edge):
        edge.start().wait_ready()
        edge.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded: nothing, as there is nothing to reload" in edge.words, lambda: edge.words)
        assert edge.running
        assert edge.end() == 0
