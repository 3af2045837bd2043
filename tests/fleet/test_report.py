"""What the rows of a hub and its lines say: estimates of single sites, evidence, why hosts are not listed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import superhosts as sh
from fleets import SETTINGS, make_sketch, window
from hubs import Node
from naive_evidence import Packet, sample
from sketch.evidence.scenes import HOST, Scene, browsing, horizontal_scan
from sketch.evidence.test_sampling import batch_of
from superhosts.cli._alerts import NeededEvidence
from superhosts.cli.hub import with_title
from superhosts.core.hashing import secret_of
from superhosts.core.pairs import Part
from superhosts.core.results import Selection
from superhosts.detectors.cbaa import Geometry
from superhosts.detectors.estimate import saturation_of
from superhosts.fleet.link import MERGED
from superhosts.fleet.names import SketchId
from superhosts.fleet.report import SiteEstimates
from superhosts.fleet.sites import Roster
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.rules import Rule
from superhosts.pipeline.builder import WindowBuilder
from superhosts.pipeline.settings import Settings
from superhosts.sketch.evidence.patterns import NAMES
from superhosts.sketch.evidence.sample import ends_of
from superhosts.sketch.sketch import Sketch, load

SMALL = Geometry(slice_bits=6, index_bits=9, validating_bits=8, column_bits=8)  # columns of 256 rows


def site(path: Path, peers: int) -> Path:
    cube = sh.Cbaa(geometry=SMALL, device="cpu")
    cube.update(np.full(peers, 7, np.uint32), np.arange(peers, dtype=np.uint32))
    cube.save(path)
    return path


@pytest.mark.slow
def test_a_site_at_which_the_host_is_saturated_has_no_number_and_comes_first(tmp_path: Path) -> None:
    files = {"ams": [site(tmp_path / "ams.cube", 40)], "fra": [site(tmp_path / "fra.cube", 9000)]}
    union = Sketch()
    for paths in files.values():
        union.merge_file(paths[0])
    found = union.super_hosts(100)
    site_estimates = SiteEstimates(found, union, None)
    assert site_estimates.ask(files, trusted=True) == []
    full, measured = site_estimates.of(0)
    assert full == {"site": "fra", "peers": None, "peers_low": saturation_of(256).low, "peers_high": None}
    assert measured["site"] == "ams"
    assert measured["peers_low"] <= 40 <= measured["peers_high"]

    again = SiteEstimates(found, union, None)  # after a restart, when the sites' own sketches are gone
    row = {"host": "0.0.0.7", "family": 4, "side": "inner", "direction": "any", "sites": site_estimates.of(0)}
    again.remember(json.loads(json.dumps([row])))
    assert again.of(0) == [full, measured]


SIZE = 1024


def packets_of(seed: int) -> list[Packet]:
    scene, other = Scene(seed), Scene(seed, host=HOST + 1)
    horizontal_scan(scene, 800)
    browsing(other, 50)
    return scene.packets + other.packets


def sketch_of(site: str, packets: list[Packet], *, evidence: bool = True) -> Sketch:
    """Return the sketch that an edge makes of packets."""
    kept = {"evidence": True, "evidence_pairs": SIZE} if evidence else {}
    builder = WindowBuilder(replace(SETTINGS, site=site, **kept), find=False)
    builder.update(window(0).start, batch_of(packets, 4))
    return builder.close(window(0).start, window(0)).sketch


def test_rows_have_the_evidence_of_all_sites(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams", "fra"), selection=Selection(1000))
    both = {"ams": packets_of(1), "fra": packets_of(2)}
    for site, packets in both.items():
        node.send(sketch_of(site, packets))
    node.hub.step()
    (report,) = node.reports
    (row,) = report.rows
    assert row["pattern"] == "horizontal scan"
    assert row["evidence"]["ports"][0]["port"] == "tcp/22"
    (archived,) = (path for path in tmp_path.rglob("*.cube") if load(path, key=SETTINGS.key).sites == set(both))
    stored = load(archived, key=SETTINGS.key).evidence
    expected = sample([*both["ams"], *both["fra"]], 4, SIZE, secret_of(SETTINGS.key))
    assert stored.rows[4].tolist() == expected
    assert row["evidence"]["pairs"] == sum(
        HOST in (lower, higher) for lower, higher in ends(stored.rows[4], secret_of(SETTINGS.key))
    )


def ends(rows: np.ndarray, secret: bytes) -> list[tuple[int, int]]:
    lower, higher = ends_of(rows, 4, secret)
    return list(zip(lower[:, 1].tolist(), higher[:, 1].tolist(), strict=True))


def test_a_site_that_keeps_none_adds_none(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams", "fra"), selection=Selection(1000)).step(
        sketch_of("ams", packets_of(1)), sketch_of("fra", packets_of(2), evidence=False)
    )
    (row,) = node.reports[0].rows
    assert row["evidence"]["pairs"] == 800


@pytest.mark.filterwarnings("ignore:this cube is too full")
def test_a_hub_that_cannot_list_its_top_hosts_says_why(tmp_path: Path) -> None:
    """Very many hosts of few peers each, in a small cube: none of them can be told from chance."""
    sizes = "slices=1,arrays=4,columns=112,rows=1024,labels=2,share=8,giants=1"
    settings, top = Settings(geometry=sizes, device="cpu", threads=1), Selection(None, 5)
    node = Node(tmp_path, sites=("ams",), kind=settings, selection=top)
    sketch = Sketch(settings.make_detector, window=window(0), site="ams")
    count = 40_000
    numbers = np.arange(count, dtype=np.uint32)
    sketch.part(Part()).update(numbers + np.uint32(0x0A000000), numbers[::-1].copy())
    span = {"start": window(0).start, "end": window(0).end}
    sketch.entries = [{"site": "ams", **span, **Part()._asdict(), "pairs": count}]
    assert sketch.least_listed > 1
    assert node.send(sketch).verdict == MERGED
    node.hub.step()
    assert len(node.reports) == 1, node.said
    report = node.reports[0]
    assert len(report.rows) == 0
    titled = with_title(report, top)
    assert titled.title.startswith("none with ")
    assert "cannot be listed: the window is estimated" in titled.title
    assert titled.is_incomplete


def test_rules_with_patterns_that_lack_evidence_are_told_once(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams",)).step(*(make_sketch("ams", number) for number in range(2)))
    assert [report.has_evidence for report in node.reports] == [False, False]
    said: list[str] = []
    rules = [Rule(), Rule(name="scans", patterns=NAMES[:1])]
    policy = [Policy(rules)]
    needed = NeededEvidence(lambda: policy[0], said.append)
    for report in node.reports:
        needed.note(report.has_evidence)
    assert said == ["NO EVIDENCE: rules with patterns open no alerts (scans): start all edges with --evidence"]
    assert needed.waiting == ["scans"]
    needed.note(True)
    assert needed.waiting == []
    policy[0] = Policy((Rule(),))
    needed.note(False)
    assert (len(said), needed.waiting) == (1, [])


def test_a_site_is_seen_when_a_sketch_of_it_is_accepted() -> None:
    roster = Roster()
    roster.refused("fra")
    roster.told("nyc", "1.0", None, None)
    assert roster.taken() == {}
    roster.accepted(SketchId("ams", window(0), "0" * 16))
    assert list(roster.taken()) == ["ams"]
    before = roster.taken()
    roster.refused("ams")
    assert roster.taken() == before
