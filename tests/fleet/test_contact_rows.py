"""Contacts at a hub: who opened, who answered and, from both, who did not; and filters, which keep sketches apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import superhosts as sh
from fleets import SETTINGS, window
from hubs import Node
from superhosts.core.pairs import HostKeys, Part
from superhosts.core.results import Selection
from superhosts.errors import MergeError
from superhosts.sketch.files import estimate_in_file
from superhosts.sketch.sketch import Sketch

HOST = 0x0A000007
OPENED, ANSWERED, UNANSWERED = (Part(direction=each) for each in ("opened", "answered", "unanswered"))


def sketch_of(site: str, contents: dict[Part, range]) -> Sketch:
    """Return a site's sketch of one host with these peers in each part."""
    sketch = Sketch(SETTINGS.make_detector, window=window(0), site=site)
    for part, peers in contents.items():
        sketch.part(part).update(np.full(len(peers), HOST, np.uint32), np.array(peers, np.uint32))
    span = {"start": window(0).start, "end": window(0).end}
    sketch.entries = [{"site": site, **span, **part.fields, "pairs": len(peers)} for part, peers in contents.items()]
    return sketch


def test_a_hub_tells_who_did_not_answer_at_any_site(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams", "fra"), selection=Selection(1000))
    node.send(sketch_of("ams", {OPENED: range(6000), ANSWERED: range(1000)}))
    node.send(sketch_of("fra", {OPENED: range(6000), ANSWERED: range(500, 2000)}))
    node.hub.step()
    (report,) = node.reports
    found = {row["direction"]: row for row in report.rows}
    assert set(found) == {"opened", "answered", "unanswered"}
    row = found["unanswered"]
    assert row["peers_low"] <= 4000 <= row["peers_high"]
    sites = {site["site"]: site for site in row["sites"]}
    assert sites["ams"]["peers_low"] <= 5000 <= sites["ams"]["peers_high"]
    assert sites["fra"]["peers_low"] <= 4500 <= sites["fra"]["peers_high"]


def test_sites_that_were_restarted_within_the_window_are_asked_too(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams",), selection=Selection(1000))
    node.send(sketch_of("ams", {OPENED: range(3000), ANSWERED: range(0)}))
    node.send(sketch_of("ams", {OPENED: range(3000, 6000), ANSWERED: range(1000)}))
    node.hub.step()
    (row,) = [row for row in node.reports[-1].rows if row["direction"] == "unanswered"]
    ((site),) = row["sites"]
    assert site["peers_low"] <= 5000 <= site["peers_high"]
    assert (site["peers"], site["peers_low"]) == (row["peers"], row["peers_low"])


def test_where_nobody_asked_who_answered_nothing_is_said_of_it(tmp_path: Path) -> None:
    sketch = sketch_of("ams", {OPENED: range(3000)})
    assert {row.part for row in sketch.top(10)} == {OPENED}
    sketch.save(tmp_path / "a.cube")
    asked = {part: HostKeys(np.array([HOST], np.uint32)) for part in (OPENED, UNANSWERED)}
    assert list(estimate_in_file(tmp_path / "a.cube", asked)) == [OPENED]


def test_in_a_file_as_in_memory(tmp_path: Path) -> None:
    sketch_of("ams", {OPENED: range(3000), ANSWERED: range(1000)}).save(tmp_path / "a.cube")
    asked = {UNANSWERED: HostKeys(np.array([HOST], np.uint32))}
    (stored,) = estimate_in_file(tmp_path / "a.cube", asked)[UNANSWERED]
    (held,) = sh.load(tmp_path / "a.cube").collect(lambda _, detector: detector.top(1), [UNANSWERED])
    assert (stored.peers, stored.peers_low, stored.peers_high) == (held.peers, held.peers_low, held.peers_high)


@pytest.mark.parametrize("turn", [False, True])
def test_one_that_knows_who_answered_does_not_merge_with_one_that_does_not(tmp_path: Path, turn: bool) -> None:
    knows, not_ = sketch_of("ams", {OPENED: range(9), ANSWERED: range(9)}), sketch_of("fra", {OPENED: range(9)})
    mine, other = (not_, knows) if turn else (knows, not_)
    with pytest.raises(MergeError, match=r"peers.*opened,answered"):
        mine.merge(other)
    other.save(tmp_path / "other.cube")
    with pytest.raises(MergeError, match=r"other\.cube.*peers"):
        mine.merge_file(tmp_path / "other.cube")


def test_filters_keep_rows_apart(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams", "fra"), selection=Selection(1000))
    node.send(sketch_of("ams", {Part(filter="tcp port 443"): range(3000)}))
    node.send(sketch_of("fra", {Part(): range(2000, 6000)}))
    node.hub.step()
    found = {row.get("filter"): row for row in node.reports[0].rows}
    assert {name: [site["site"] for site in row["sites"]] for name, row in found.items()} == {
        "tcp port 443": ["ams"],
        None: ["fra"],
    }
    assert found["tcp port 443"]["peers_high"] < 3600


def test_a_sketch_has_so_many_parts_and_no_more() -> None:
    whole = Sketch(SETTINGS.make_detector)
    for number in range(84):
        whole.merge(sketch_of("ams", {Part(filter=f"port {number}"): range(1)}))
    with pytest.raises(MergeError, match="84 parts"):
        whole.merge(sketch_of("ams", {Part(filter="port 84"): range(1)}))
