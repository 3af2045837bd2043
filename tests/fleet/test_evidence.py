"""Evidence at a hub: the union of what the sites have sampled, in every row; edges keep it, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fleets import SETTINGS, window
from hubs import Node
from naive_evidence import Packet, sample
from sketch.evidence.scenes import HOST, Scene, browsing, horizontal_scan
from sketch.evidence.test_sampling import batch_of
from superhosts.core.hashing import secret_of
from superhosts.core.results import Selection
from superhosts.pipeline.builder import WindowBuilder
from superhosts.sketch.evidence.sample import ends_of
from superhosts.sketch.sketch import Sketch, load

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
    assert stored is not None
    expected = sample([*both["ams"], *both["fra"]], 4, SIZE, secret_of(SETTINGS.key))
    assert stored.rows[4].tolist() == expected
    assert row["evidence"]["pairs"] == sum(
        HOST in (lower, higher) for lower, higher in ends(stored.rows[4], secret_of(SETTINGS.key))
    )


def ends(rows: np.ndarray, secret: bytes) -> list[tuple[int, int]]:
    lower, higher = ends_of(rows, 4, secret)
    return list(zip(lower[:, 1].tolist(), higher[:, 1].tolist(), strict=True))


def test_a_site_that_keeps_none_adds_none(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams", "fra"), selection=Selection(1000))
    node.send(sketch_of("ams", packets_of(1)))
    node.send(sketch_of("fra", packets_of(2), evidence=False))
    node.hub.step()
    (row,) = node.reports[0].rows
    assert row["evidence"]["pairs"] == 800
