"""Readings that no command of the other tests brings about: losses of flow exports, very many sites."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import superhosts as sh
from superhosts.core.pairs import Window
from superhosts.pipeline.network import REASONS
from superhosts.pipeline.scan import Counters
from superhosts.ui.folder import PartState, state_of
from superhosts.ui.monitor import MOST_SITES, PREFIX, Sites, of_scan, of_sites, why_no_link


def by_name(reading: Iterator[Any]) -> dict[str, Any]:
    return {metric.name.removeprefix(PREFIX): metric for metric in reading}


def values(metric: Any) -> dict[Any, float]:
    return {next(iter(sample.labels.values()), None): sample.value for sample in metric.samples}


def test_losses_are_told_apart_by_where_they_happened() -> None:
    exports = [
        {"kernel_drops": 5, "lost_records": 7, "lost_datagrams": 0},
        {"kernel_drops": 1, "lost_records": None, "lost_datagrams": 2},
    ]
    full = [SimpleNamespace(fullness=lambda share=share: share) for share in (None, 0.25, 0.5)]
    scan: Any = SimpleNamespace(counters=Counters(drops=3, late=4, exports=exports), sources=full)
    found = by_name(of_scan(scan))
    assert values(found["dropped"]) == {"capture": 3, "receiver": 6}
    assert values(found["exports_lost"]) == {"records": 7, "datagrams": 2}
    assert values(found["packets_not_counted"])["late"] == 4
    assert set(values(found["packets_not_counted"])) == set(REASONS)
    assert values(found["ring_fullness_ratio"]) == {None: 0.5}


def test_the_sites_of_a_hub_that_anybody_may_send_to_are_bounded() -> None:
    names = [f"site{number:05d}" for number in range(MOST_SITES + 500)]
    heard = {name: float(number) for number, name in enumerate(names)}
    sites = Sites(lambda: heard)
    sites.note(Window(0, 300), names[1:], names[:1])
    found = by_name(of_sites(sites))
    assert values(found["sites_reporting"]) == {None: len(names) - 1}
    assert len(found["site_reporting"].samples) == len(found["site_last_seen_timestamp_seconds"].samples) == MOST_SITES
    assert values(found["site_reporting"])[names[0]] == 0  # The missing ones come first.
    assert names[-1] in values(found["site_last_seen_timestamp_seconds"])  # Those heard last, too.


def test_a_link_is_up_when_it_has_connected_and_nothing_is_wrong() -> None:
    assert why_no_link(SimpleNamespace(connects=0, down="")) == "the link is not connected yet"
    assert why_no_link(SimpleNamespace(connects=3, down="refused")) == "the link does not work: refused"
    assert why_no_link(SimpleNamespace(connects=3, down="")) == ""
    assert why_no_link(SimpleNamespace(down="")) == ""  # of files


def test_the_state_of_a_part_is_that_of_its_detector() -> None:
    cube = sh.Cube("256KiB", device="cpu", threads=1)
    cube.update([1, 1, 1, 2], [5, 6, 6, 5])
    assert state_of(cube) == PartState(True, 3, 3 / cube.geometry.exact_pairs)
    dense = sh.Cube("256KiB", device="cpu", threads=1, exact=False)
    assert state_of(dense) == PartState(False, 0, None, 0.0, 0)
    dense.update([1, 1, 1, 2], [5, 6, 6, 5])
    assert state_of(dense)[3] == dense.fill().mean > 0
    assert state_of(sh.Exact()) == PartState(exact=True)
