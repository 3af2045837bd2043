"""A new detector needs one file and one line in the registry; commands, files and laws then include it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import test_laws

import superhosts as sh
from commands import Run
from superhosts.core.pairs import Addresses, format_for
from superhosts.core.results import SuperHosts
from superhosts.detectors.detector import Detector
from superhosts.detectors.engines.base import Arrays, ArrayShape
from superhosts.detectors.registry import DETECTORS
from superhosts.detectors.stored import Kind, Place
from traffic import talk, write


class Toy(Detector):
    """Stores every pair of IPv4 addresses in a sorted array of words."""

    name = "toy"

    def __init__(self, *, memory: Any = None, key: Any = None, device: str = "cpu", threads: int | None = None) -> None:
        self.format, self.threads = format_for(32), 1
        self._clear()

    @classmethod
    def _make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Self:
        return cls()

    @classmethod
    def _file_shapes(cls, kind: Kind) -> tuple[dict[str, ArrayShape], ...]:
        return ({"pairs": ArrayShape((None,))},)

    @classmethod
    def _loaded_memory(cls, kind: Kind, sides: Mapping[str, Sequence[int]]) -> int:
        return 8 * sides["pairs"][0]

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self.pairs = np.union1d(self.pairs, hosts.astype(np.uint64) << np.uint64(32) | peers)

    def _merge(self, other: Self) -> None:
        self.pairs = np.union1d(self.pairs, other.pairs)

    def _super_hosts(self, threshold: float) -> SuperHosts:
        hosts, peers = np.unique(self.pairs >> np.uint64(32), return_counts=True)
        keep = peers >= threshold
        return self._rows(hosts[keep].astype(np.uint32), peers[keep])

    def _top(self, count: int) -> SuperHosts:
        return self._super_hosts(1).select(slice(0, count))

    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        return self._rows(hosts, np.array([np.sum(self.pairs >> np.uint64(32) == host) for host in hosts], np.int64))

    def _rows(self, hosts: Addresses, peers: Any) -> SuperHosts:
        return SuperHosts(hosts, peers, peers, peers, np.zeros(len(peers), bool))

    def _clear(self) -> None:
        self.pairs = np.empty(0, np.uint64)

    def _memory(self) -> int:
        return self.pairs.nbytes

    def _arrays(self) -> Arrays:
        return {"pairs": self.pairs}

    def _load_arrays(self, arrays: Arrays) -> None:
        self.pairs = arrays["pairs"].copy()


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DETECTORS, "toy", Toy)


def test_commands_and_files_know_it(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a.pcap", talk("10.0.0.7", 300))
    scanned = run("scan", tmp_path / "a.pcap", "--detector", "toy", "-t", 100, "--json", "--save", tmp_path / "saved")
    assert [(row["host"], row["peers"], row["detector"]) for row in scanned.rows] == [("10.0.0.7", 300, "toy")]
    (saved,) = (tmp_path / "saved").iterdir()
    assert [row["peers"] for row in run("hosts", saved, "-t", 100, "--json").rows] == [300]
    assert [row["peers"] for row in run("explain", saved, "10.0.0.7", "--json").rows] == [300]
    assert run("merge", saved, saved, "-o", tmp_path / "b.cube").status == 0
    assert [(item.host, item.peers) for item in sh.load(tmp_path / "b.cube").top(1)] == [
        (item.host, item.peers) for item in sh.load(saved).top(1)
    ]


@pytest.mark.slow
def test_it_is_held_to_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_laws, "SHAPES", test_laws.SHAPES[:1])
    test_laws.test_neither_order_nor_repetition_nor_batches_matter("toy")
    test_laws.test_merging_equals_having_seen_both_streams("toy")
