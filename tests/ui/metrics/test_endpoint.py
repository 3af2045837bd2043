"""The endpoint of real commands over known traffic, and the page about it: docs/reference/metrics.md."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import packets
from commands import Run
from needs import needed
from places import ROOT
from processes import (
    Node,
    ending,
    free_port,
    make_edge,
    make_hub_on_files,
    packets_in,
    rows,
    sites_traffic,
    write_captures,
)
from scraping import ask, endpoint, scrape
from superhosts import __version__
from superhosts.fleet.sites import ENOUGH, Roster
from superhosts.ui.monitor import of_roster
from traffic import MINUTES, NOON, packet, three_windows, write
from waiting import wait_for

INNER = {"side": "inner", "direction": "any", "counts": "hosts", "filter": "", "group": ""}
WINDOWS = 3
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
LIVE_ONLY = {"superhosts_ring_fullness_ratio"}  # needs the right to capture; test_health.py asks for it
# The hub here reads files, over which sites tell nothing about themselves.
TOLD_OVER_NATS = {f"superhosts_site_{name}" for name in ("clock_offset_seconds", "spool_sketches", "spool_bytes")}


class Fleet(NamedTuple):
    hub: Node
    edge: Node
    watch: Node
    captures: list[Path]

    @property
    def nodes(self) -> dict[str, Node]:
        return {"hub": self.hub, "edge": self.edge, "watch": self.watch}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A hub that waits for two sites and has an upstream hub, one edge that has sent its closed windows, and a watch.

    They have everything that has metrics.
    """
    folder = tmp_path_factory.mktemp("fleet")
    captures = write_captures(folder / "captures", sites_traffic(WINDOWS)["ams"], 1000)
    (folder / "conf.toml").write_text('[[rule]]\nname = "many"\nthreshold = 100\n')
    alerts = ["--alerts", str(folder / "alerts.sqlite"), "--alert-to", str(folder / "alerts.jsonl")]
    alerts += ["--config", str(folder / "conf.toml"), "--to", str(folder / "up")]
    hub, link = make_hub_on_files(folder, "--metrics", ":0", "--grace", "1s", *alerts, sites=("ams", "fra"))
    own = ["--window", "60s", "--metrics", ":0", "--output", str(folder / "own.jsonl"), "--threshold", "100"]
    edge = make_edge(folder, "ams", link, str(folder / "captures"), *own)
    watch = Node(
        folder / "watch.log", "watch", str(folder / "captures"), "--window", "60s", "--json", "--metrics", ":0"
    )
    with ending(hub, edge, watch):
        for node in (hub, edge, watch):
            node.start()
        # The last window stays open: a folder may get more files.
        wait_for(lambda: scrape(hub).of("windows_closed_total") == WINDOWS - 1, lambda: hub.words + edge.words)
        wait_for(lambda: not scrape(edge).of("spool_sketches"), lambda: edge.words)
        wait_for(lambda: scrape(watch).of("windows_closed_total") == WINDOWS - 1, lambda: watch.words)
        yield Fleet(hub, edge, watch, captures)
        assert (edge.end(), hub.end()) == (0, 0)


@pytest.mark.slow
def test_an_edge_counts_what_it_has_read_and_sent(fleet: Fleet) -> None:
    found = scrape(fleet.edge)
    packets_read = sum(packets_in(path.read_bytes()) for path in fleet.captures)
    assert found.of("packets_total") == packets_read
    assert 0 < found.of("pairs_total") <= 2 * packets_read
    assert found.of("windows_closed_total") == WINDOWS - 1
    assert found.of("window_seconds") == 60
    assert found.of("packets_not_counted_total", reason="late") == 0
    assert found.of("dropped_total", where="capture") == found.of("dropped_total", where="receiver") == 0
    for outcome, count in {"spooled": WINDOWS - 1, "delivered": WINDOWS - 1, "refused": 0}.items():
        assert found.of("spooled_sketches_total", outcome=outcome) == count
    assert found.of("spool_bytes") == found.of("spool_oldest_age_seconds") == 0
    assert found.of("link_up") == found.of("ready") == found.of("healthy") == 1
    assert found.of("restore_seconds_count") == WINDOWS - 1
    assert found.of("destination_sent_total", purpose="rows", kind="file", number="1") == WINDOWS - 1
    assert found.of("part_exact", family="4", **INNER) == 1
    assert 0 < found.of("part_exact_ratio", family="4", **INNER) < 1


def test_a_hub_counts_sites_windows_and_alerts(fleet: Fleet) -> None:
    found, folder = scrape(fleet.hub), fleet.captures[0].parent.parent
    assert (found.of("sites_reporting"), found.of("sites_missing")) == (1, 1)
    assert (found.of("site_reporting", site="ams"), found.of("site_reporting", site="fra")) == (1, 0)
    assert 0 <= time.time() - found.of("site_last_seen_timestamp_seconds", site="ams") < 3600
    assert found.of("site_refused_total", site="ams") == found.of("site_slowed_total", site="ams") == 0
    assert found.of("sketches_total", outcome="accepted") == WINDOWS - 1
    assert found.of("merge_seconds_count") >= WINDOWS - 1
    assert found.of("restore_seconds_count") == found.of("reports_incomplete_total") == WINDOWS - 1
    assert found.of("part_exact", family="4", **INNER) == 1  # The other site is missing.
    assert 0 < found.of("part_fill_ratio", family="4", **INNER) < 1
    reported = rows(folder / "found.jsonl")
    assert found.of("last_window_hosts") == sum(row["window_end"] == reported[-1]["window_end"] for row in reported) > 0
    events = rows(folder / "alerts.jsonl")
    assert found.of("alerts_total", event="opened") == sum(row["event"] == "opened" for row in events) > 0
    assert found.of("alerts_open") > 0
    assert found.of("destination_sent_total", purpose="alerts", kind="file", number="1") > 0


def test_the_probes_answer(fleet: Fleet) -> None:
    for node in fleet.nodes.values():
        for path in ("healthz", "readyz"):
            assert ask(f"{endpoint(node)}/{path}")[:2] == (200, "ok\n")
        assert ask(f"{endpoint(node)}/metrics").kind == "text/plain; version=0.0.4; charset=utf-8"
        assert ask(f"{endpoint(node)}/other").status == 404


def test_every_program_says_what_it_is_and_since_when(fleet: Fleet) -> None:
    for command, node in fleet.nodes.items():
        found = scrape(node)
        assert found.of("build_info", version=__version__, command=command) == 1
        assert 0 <= time.time() - found["process_start_time_seconds", frozenset()] < 7 * 86400


def test_no_label_is_an_address_or_a_path(fleet: Fleet) -> None:
    address = re.compile(r"\d+\.\d+\.\d+\.\d+|::|/")
    for node in fleet.nodes.values():
        for name, labels in scrape(node):
            assert not [value for _, value in labels if address.search(value)], name


def test_promtool_accepts_the_metrics(fleet: Fleet) -> None:
    program = needed("promtool", "SUPERHOSTS_NEED_PROMTOOL")
    for node in fleet.nodes.values():
        text = ask(f"{endpoint(node)}/metrics").text
        done = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def described(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the kind and labels of our metrics in the text of an endpoint; a histogram has one name."""
    kinds = dict(re.findall(r"(?m)^# TYPE (superhosts_\w+) (\w+)$", text))
    labels: dict[str, set[str]] = {name: set() for name in kinds}
    for name, inside in re.findall(r"(?m)^(superhosts_\w+?)(?:\{(.*?)\})? ", text):
        if name in labels:
            labels[name] |= set(re.findall(r'(\w+)="', inside))
    return {name: (kind, frozenset(labels[name])) for name, kind in kinds.items()}


@pytest.fixture(scope="module")
def documented() -> dict[str, tuple[str, str]]:
    rows = re.findall(r"(?m)^\| `(superhosts_\w+)` \| (\w+) \|(.*)$", PAGE)
    return {name: (kind, cells.split("|")[0]) for name, kind, cells in rows}


def test_the_page_has_every_metric_with_its_kind_and_its_labels(fleet: Fleet, documented) -> None:
    exposed: dict[str, tuple[str, frozenset[str]]] = {}
    for node in fleet.nodes.values():
        for name, (kind, labels) in described(ask(f"{endpoint(node)}/metrics").text).items():
            exposed[name] = kind, labels | exposed.get(name, (kind, frozenset()))[1]
    assert set(documented) - LIVE_ONLY == set(exposed)
    for name, (kind, labels) in exposed.items():
        assert documented[name][0] == kind
        if name.startswith("superhosts_part_"):
            assert labels <= {"family", "side", "direction", "counts", "filter", "group"}
        elif name.startswith("superhosts_destination_"):
            assert labels == {"purpose", "kind", "number"}
        elif name not in TOLD_OVER_NATS:
            assert set(re.findall(r"`(\w+)`", documented[name][1])) == labels, name


def test_what_sites_tell_has_the_label_of_the_page(documented) -> None:
    roster = Roster()
    for _ in range(ENOUGH):
        roster.told("ams", "1", 1, (2, 3))
    found = {each.name: each for each in of_roster(roster)}
    for name in TOLD_OVER_NATS:
        assert [sample.labels for sample in found[name].samples] == [{"site": "ams"}]
        assert re.findall(r"`(\w+)`", documented[name][1]) == ["site"]


@pytest.mark.slow
def test_an_edge_is_not_ready_while_its_hub_is_away(tmp_path: Path) -> None:
    """Over NATS, where nobody listens; and windows wait in the spool."""
    capture = write(tmp_path / "a.pcap", three_windows())
    link = ["--nats", f"nats://127.0.0.1:{free_port()}"]
    edge = make_edge(tmp_path, "ams", link, str(capture), "--metrics", ":0")
    with ending(edge):
        edge.start()
        wait_for(lambda: scrape(edge).of("spool_sketches") == 3, lambda: edge.words)
        found = scrape(edge)
        assert found.of("ready") == found.of("link_up") == 0
        assert found.of("spool_bytes") == sum(path.stat().st_size for path in (tmp_path / "spool-ams").glob("*.cube"))
        assert found.of("spool_oldest_age_seconds") > 0
        assert ask(f"{endpoint(edge)}/healthz").status == 200
        answer = ask(f"{endpoint(edge)}/readyz")
        assert answer.status == 503
        assert "the link" in answer.text
        assert edge.end() == 0


@pytest.mark.slow
def test_an_edge_is_ready_while_windows_of_earlier_runs_wait(tmp_path: Path) -> None:
    capture = write(tmp_path / "a.pcap", three_windows())
    edge = make_edge(tmp_path, "ams", ["--to", str(tmp_path / "nowhere" / "link")], str(capture))
    with ending(edge):
        edge.start()
        wait_for(lambda: "windows that wait for the hub: 3" in edge.words, lambda: edge.words)
        edge.kill()
    hub, link = make_hub_on_files(tmp_path, sites=("ams",))
    (tmp_path / "empty").mkdir()
    edge = make_edge(tmp_path, "ams", link, str(tmp_path / "empty"), "--metrics", ":0")
    with ending(hub, edge):
        edge.start()
        wait_for(lambda: ask(f"{endpoint(edge)}/readyz").status == 200, lambda: edge.words)
        assert scrape(edge).of("backlog", of="spool") == 3
        hub.start()
        wait_for(lambda: scrape(edge).of("backlog", of="spool") == 0, lambda: hub.words + edge.words)
        # A sketch leaves the spool a moment before it is counted.
        wait_for(lambda: scrape(edge).of("spooled_sketches_total", outcome="delivered") == 3, lambda: edge.words)


def test_watch_counts_packets_by_reason_and_windows_and_alerts(tmp_path: Path) -> None:
    odd = [(NOON + 1, packets.ethernet(0x0806, packets.arp())), packet(NOON + 2, "10.0.0.1", "10.0.0.1")]
    late = packet(NOON + 3, "10.0.0.7", "172.31.0.1")
    (tmp_path / "captures").mkdir()
    frames = three_windows()
    write(tmp_path / "captures" / "a.pcap", [*odd, *frames])
    arguments = ["--inner", "10.0.0.0/8", "--window", "5m", "--json", "--alerts", str(tmp_path / "alerts.sqlite")]
    watch = Node(tmp_path / "watch.log", "watch", str(tmp_path / "captures"), *arguments, "--metrics", ":0")
    with ending(watch):
        watch.start()
        total = len(frames) + 2
        wait_for(lambda: scrape(watch).of("packets_total") == total, lambda: watch.words)
        wait_for(lambda: scrape(watch).of("windows_closed_total") == 2, lambda: watch.words)
        write(tmp_path / "captures" / "b.pcap", [late])
        wait_for(lambda: scrape(watch).of("packets_not_counted_total", reason="late") == 1, lambda: watch.words)
        found = scrape(watch)
        assert found.of("packets_not_counted_total", reason="not_ip") == 1
        assert found.of("packets_not_counted_total", reason="same_ends") == 1
        assert found.of("packets_not_counted_total", reason="no_inner_end") == 2 * 1300
        assert found.of("pairs_total") == 3 * (1500 + 400 + 180)
        assert found.of("part_pairs", family="4", **INNER) == 1500 + 400 + 180
        assert found.of("last_window_end_timestamp_seconds") * 10**9 == NOON + 10 * MINUTES
        assert found.of("alerts_open") == found.of("alerts_total", event="opened") == 1
        assert found.of("ready") == 1
        assert found.of("destination_queued", purpose="rows", kind="stdout", number="1") == 0
        assert watch.end(signal.SIGTERM) == 128 + signal.SIGTERM


def test_without_the_package_one_line_says_what_to_install(run: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.chdir(tmp_path)
    why = "--metrics needs packages that are not installed: pip install 'superhosts[metrics]'"
    for words in ("edge . --site ams --to link --spool spool", "hub --from link --state state", "watch ."):
        assert run(*words.split(), "--metrics", ":0") == (2, "", f"superhosts: {why}\n")
    assert list(tmp_path.iterdir()) == []
