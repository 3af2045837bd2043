"""docs/reference/metrics.md, the dashboard and the rules name metrics that exist, and the page names all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from places import ROOT
from processes import Node, ending, make_edge, make_hub_on_files
from scraping import ask, endpoint, scrape
from superhosts.fleet.sites import ENOUGH, Roster
from superhosts.ui.monitor import of_roster
from traffic import three_windows, write
from waiting import wait_for

PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
LIVE_ONLY = {"superhosts_ring_fullness_ratio"}  # needs the right to capture; another test asks for it


# The hub here reads files, over which sites tell nothing about themselves.
TOLD_OVER_NATS = {f"superhosts_site_{name}" for name in ("clock_offset_seconds", "spool_sketches", "spool_bytes")}


def described(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the kind and labels of our metrics in the text of an endpoint; a histogram has one name."""
    kinds = dict(re.findall(r"(?m)^# TYPE (superhosts_\w+) (\w+)$", text))
    labels: dict[str, set[str]] = {name: set() for name in kinds}
    for name, inside in re.findall(r"(?m)^(superhosts_\w+?)(?:\{(.*?)\})? ", text):
        if name in labels:
            labels[name] |= set(re.findall(r'(\w+)="', inside))
    return {name: (kind, frozenset(labels[name])) for name, kind in kinds.items()}


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, frozenset[str]]]]:
    """All metrics of a hub with an upstream hub, an edge and a watch, with everything that has metrics."""
    folder = tmp_path_factory.mktemp("all")
    (folder / "captures").mkdir()
    write(folder / "captures" / "a.pcap", three_windows())
    alerts = ["--alerts", str(folder / "alerts.sqlite"), "--alert-to", str(folder / "alerts.jsonl")]
    up = ["--to", str(folder / "up")]
    hub, link = make_hub_on_files(folder, "--metrics", ":0", *alerts, *up, sites=("ams",))
    own = ["--metrics", ":0", "--output", str(folder / "own.jsonl")]
    edge = make_edge(folder, "ams", link, str(folder / "captures"), *own)
    watch = Node(folder / "watch.log", "watch", str(folder / "captures"), "--json", "--metrics", ":0")
    nodes = (hub, edge, watch)
    with ending(*nodes):
        for node in nodes:
            node.start()
        for node in nodes:
            wait_for(lambda node=node: scrape(node).of("windows_closed_total") == 2, lambda node=node: node.words)
        found: dict[str, tuple[str, frozenset[str]]] = {}
        for node in nodes:
            for name, (kind, labels) in described(ask(f"{endpoint(node)}/metrics").text).items():
                found[name] = kind, labels | found.get(name, (kind, frozenset()))[1]
        yield found


def documented() -> dict[str, tuple[str, str]]:
    rows = re.findall(r"(?m)^\| `(superhosts_\w+)` \| (\w+) \|(.*)$", PAGE)
    return {name: (kind, cells.split("|")[0]) for name, kind, cells in rows}


@pytest.mark.slow
def test_the_page_has_every_metric_with_its_kind_and_no_other(exposed: dict[str, tuple[str, frozenset[str]]]) -> None:
    page = documented()
    assert set(page) - LIVE_ONLY == set(exposed)
    assert {name: page[name][0] for name in exposed} == {name: kind for name, (kind, _) in exposed.items()}


def test_the_page_names_the_labels(exposed: dict[str, tuple[str, frozenset[str]]]) -> None:
    for name, (_, labels) in exposed.items():
        if name.startswith("superhosts_part_"):
            assert labels <= {"family", "side", "direction", "counts", "filter"}
        elif name.startswith("superhosts_destination_"):
            assert labels == {"purpose", "kind", "number"}
        elif name not in TOLD_OVER_NATS:
            assert set(re.findall(r"`(\w+)`", documented()[name][1])) == labels, name


def test_what_sites_tell_has_the_label_of_the_page() -> None:
    roster = Roster()
    for _ in range(ENOUGH):
        roster.told("ams", "1", 1, (2, 3))
    found = {each.name: each for each in of_roster(roster)}
    for name in TOLD_OVER_NATS:
        assert [sample.labels for sample in found[name].samples] == [{"site": "ams"}]
        assert re.findall(r"`(\w+)`", documented()[name][1]) == ["site"]
