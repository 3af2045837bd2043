"""Integers of 64 bits for hosts of 32: narrowed on the way into the bins, or looked at first if some do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import superhosts as sh
from superhosts.core.pairs import PairBatch
from superhosts.detectors.cube.geometry import Geometry
from superhosts.detectors.engines.bins import NARROWED
from superhosts.errors import UsageError

COUNT = 3 * NARROWED + 7
DRAW = np.random.default_rng(4)
HOSTS = DRAW.integers(0, 50, COUNT)
PEERS = DRAW.integers(0, 1 << 32, COUNT)
SMALL = Geometry.for_memory(1 << 20)


def cube(**options: Any) -> sh.Cube:
    return sh.Cube(device="cpu", threads=2, **options)


def answer(detector: Any, threshold: int = 1) -> dict[int, int]:
    found = detector.super_hosts(threshold)
    return dict(zip(found.hosts.tolist(), found.peers.tolist(), strict=True))


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
@pytest.mark.parametrize("exact", [True, False])
def test_integers_are_those_of_narrow_columns(kind: Any, exact: bool) -> None:
    narrow, wide = cube(exact=exact), cube(exact=exact)
    narrow.update(HOSTS.astype(np.uint32), PEERS.astype(np.uint32))
    wide.update(HOSTS.astype(kind), PEERS.astype(kind))
    assert wide == narrow
    assert answer(wide, 500) == answer(narrow, 500) != {}


@pytest.mark.parametrize("at", [0, NARROWED, COUNT - 1])
def test_a_host_that_does_not_fit_is_named_wherever_it_is(at: int) -> None:
    hosts = HOSTS.copy()
    hosts[at] = 1 << 32
    detector = cube()
    with pytest.raises(UsageError, match=f"hosts, row {at}: 4294967296 does not fit in 32 bits"):
        detector.update(hosts, PEERS)
    hosts[at] = -1
    with pytest.raises(UsageError, match=f"hosts, row {at}: -1 is negative"):
        detector.update(hosts, PEERS)
    assert all(host < 50 for host in answer(detector))


def test_a_call_that_fails_at_its_first_pair_leaves_an_empty_sketch() -> None:
    detector = cube()
    with pytest.raises(UsageError, match="hosts, row 0: 4294967296 does not fit in 32 bits"):
        detector.update([1 << 32] * 3, [1, 2, 3])
    assert answer(detector) == {}
    detector.update([0] * 3, [(1 << 40) + peer for peer in range(3)])  # peers of another width than the first
    assert answer(detector) == {0: 3}


@pytest.mark.parametrize("at", [0, NARROWED, COUNT - 1])
def test_peers_may_be_wider(at: int) -> None:
    peers = PEERS.copy()
    peers[at] = (1 << 40) + int(PEERS[at])  # another peer than the one of its low half
    hosts = np.zeros(COUNT, np.int64)
    detector = cube()
    detector.update(hosts, peers)
    assert answer(detector) == {0: len(np.unique(peers))}
    with pytest.raises(UsageError, match=f"peers, row {at}: -5 is negative"):
        detector.update(hosts, np.where(np.arange(COUNT) == at, -5, PEERS))


def test_many_batches() -> None:
    narrow, wide = cube(), cube()
    parts = np.array_split(np.arange(COUNT), 5)
    narrow.update_many(PairBatch(HOSTS[part].astype(np.uint32), PEERS[part].astype(np.uint32)) for part in parts)
    wide.update_many(PairBatch(HOSTS[part], PEERS[part]) for part in parts)
    assert wide == narrow
    peers = PEERS.copy()
    peers[-1] += 1 << 33
    wide.update_many(PairBatch(HOSTS[part], peers[part]) for part in parts)
    assert sum(answer(wide).values()) == sum(answer(narrow).values()) + 1


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_integers_of_a_set_that_overflows(device: str) -> None:
    hosts = np.arange(400_000) % 1000
    peers = np.arange(400_000) * 7
    narrow, wide = (sh.Cube(geometry=SMALL, device=device, threads=2) for _ in range(2))
    for _ in range(2):  # the second time, the cube is dense
        narrow.update(hosts.astype(np.uint32), peers.astype(np.uint32))
        wide.update(hosts, peers)
        assert wide == narrow
    assert not wide.estimate(1).exact
