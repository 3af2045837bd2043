"""The estimates of single sites in the rows of a hub."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import superhosts as sh
from superhosts.detectors.cbaa import Geometry
from superhosts.detectors.estimate import saturation_of
from superhosts.fleet.report import SiteEstimates
from superhosts.sketch.sketch import Sketch

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
    assert again.remember(json.loads(json.dumps([row])))
    assert again.of(0) == [full, measured]
