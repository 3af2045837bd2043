"""A hub's union keeps the names of text keys; a hub of addresses refuses sketches of generic keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import superhosts as sh
from fleets import window
from hubs import Node
from superhosts.core.times import window_name
from superhosts.fleet.link import REFUSED
from superhosts.fleet.report import SiteEstimates
from superhosts.fleet.union import UnionBuilder
from superhosts.sketch.sketch import Sketch


def save(site: str, first: int, path: Path, keys: str = "text") -> Sketch:
    cube = sh.Cube("1MiB", keys=keys)
    cube.update(["größe" if keys == "text" else -5] * 2000, np.arange(first, first + 2000))
    cube.update([f"{site} {i}" if keys == "text" else i for i in range(50)], np.arange(50))
    sketch = Sketch.of(cube)
    sketch.window, sketch.sites = window(0), {site}
    sketch.save(path)
    return sketch


def test_a_union_has_the_names_of_all_sites(tmp_path: Path) -> None:
    for keys, host in (("text", "größe"), ("int64", -5)):
        paths = {site: tmp_path / f"{site}.cube" for site in ("ams", "fra")}
        for number, (site, path) in enumerate(paths.items()):
            save(site, 1000 * number, path, keys)
        builder = UnionBuilder(None, lambda stored: None)
        builder.begin(window_name(window(0)))
        for path in paths.values():
            builder.add(path)
        union = builder.take()
        found = union.super_hosts(1000)
        assert [row.host for row in found] == [host]
        assert abs(int(found.peers[0]) - 3000) < 400
        if keys == "text":
            assert union.part(sh.Part(0)).names_kept == 101
        site_estimates = SiteEstimates(found, union, None)
        assert not site_estimates.ask({site: [path] for site, path in paths.items()}, trusted=False)
        assert {seen["site"] for seen in site_estimates.of(0)} == {"ams", "fra"}
        row = {"host": host, "family": None, "side": "inner", "direction": "any", "sites": []}
        assert site_estimates.remember([row])


def test_a_hub_of_addresses_refuses_them(tmp_path: Path) -> None:
    receipt = Node(tmp_path).send(save("ams", 0, tmp_path / "a.cube"))
    assert receipt.verdict == REFUSED
    assert "no part generic keys inner any" in receipt.reason
