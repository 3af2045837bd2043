"""What a hub says: why it lists no hosts, which rules lack evidence, when a sketch of a site was accepted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fleets import make_sketch, window
from hubs import Node
from superhosts.cli._alerts import NeededEvidence
from superhosts.cli.hub import with_title
from superhosts.core.pairs import Part
from superhosts.core.results import Selection
from superhosts.fleet.link import MERGED
from superhosts.fleet.names import SketchId
from superhosts.fleet.sites import Roster
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.rules import Rule
from superhosts.pipeline.settings import Settings
from superhosts.sketch.evidence.patterns import NAMES
from superhosts.sketch.sketch import Sketch


@pytest.mark.filterwarnings("ignore:this cube is too full")
def test_a_hub_that_cannot_list_its_top_hosts_says_why(tmp_path: Path) -> None:
    """Very many hosts of few peers each, in a small cube: none of them can be told from chance."""
    settings, top = Settings(memory="64KiB", device="cpu", threads=1), Selection(None, 5)
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
    node = Node(tmp_path, sites=("ams",))
    for number in range(2):
        node.send(make_sketch("ams", number))
    node.hub.step()
    assert [report.has_evidence for report in node.reports] == [False, False]
    said: list[str] = []
    rules = [Rule(), Rule(name="scans", patterns=NAMES[:1])]
    policy = [Policy(rules)]
    needed = NeededEvidence(lambda: policy[0], said.append)
    for report in node.reports:
        needed.note(report.has_evidence)
    assert said == [
        "NO EVIDENCE: rules with patterns open no alerts (scans): start all edges with --evidence",
    ]
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
