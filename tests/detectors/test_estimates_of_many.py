"""Estimates of one host and of many: the same numbers, whatever the order, the company and the type of the column."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from superhosts.detectors.cube.search import all_ones, and_ones, find_places, make_places
from superhosts.detectors.engines import cpu
from superhosts.detectors.registry import DETECTORS
from superhosts.lab.rivals import RIVALS

RNG = np.random.default_rng(7)
HOSTS = (0x0A000000 + RNG.integers(0, 2000, 60_000)).astype(np.uint32)
PEERS = RNG.integers(0, 1 << 32, len(HOSTS)).astype(np.uint32)
SIZES = {**dict.fromkeys(("cbaa", "cbaa-paper", "gse", "rgs"), "8MiB"), "dcds": "16MiB"}


def fed(name: str, **options: Any) -> Any:
    kind: Any = (DETECTORS | RIVALS)[name]
    made = sh.Exact(device="cpu") if name == "exact" else kind(SIZES.get(name, "4MiB"), device="cpu", **options)
    made.update(HOSTS, PEERS)
    return made


@pytest.mark.parametrize("name", [*DETECTORS, "dcds", "gse", "rgs"])
def test_many_are_estimated_as_each_alone(name: str) -> None:
    detector = fed(name)
    asked = np.array([0x0A000000, 5, 0x0A000007, 0x0A000007, 0xFFFFFFFF, 0x0A000100], np.uint32)
    many = detector.estimate(asked)
    assert isinstance(many, sh.SuperHosts)
    assert many.hosts.tolist() == asked.tolist()
    assert list(many) == [detector.estimate(host) for host in asked] == [detector.estimate(int(host)) for host in asked]
    assert many == detector.estimate_many(asked) == detector.estimate(list(map(int, asked)))


@pytest.mark.parametrize("exact", [True, False])
def test_the_number_of_threads_and_hosts_does_not_matter(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cube = fed("cube", exact=exact)
    asked = RNG.permutation((0x0A000000 + np.arange(4000)).astype(np.uint32))
    whole = cube.estimate(asked)
    assert cube.exact == exact
    monkeypatch.setattr(cpu, "MEASURED_HOSTS", 64)
    monkeypatch.setattr("superhosts.detectors.estimate.MEASURED_HOSTS", 100)
    assert cube.estimate(asked) == whole
    assert [row.host for row in whole[:3]] == [ipaddress.ip_address(int(host)) for host in asked[:3]]
    truth = {int(host): len(set(PEERS[host == HOSTS].tolist())) for host in asked[:50]}
    for row in whole[:50]:
        peers = truth[int(row.host)]
        assert row.known_peers == peers if exact else abs(row.known_peers - peers) < 60


def test_a_sketch_asks_every_part_for_the_hosts_of_its_family() -> None:
    sketch = sh.Sketch(lambda part: sh.Exact(key_bits=32 if part.family == 4 else 128))
    sketch.window = sh.Window(0, 5)
    six = int(ipaddress.ip_address("2001:db8::7"))
    wide = np.array([[six >> 64, six & (1 << 64) - 1]] * 3, np.uint64)
    for direction in ("in", "out"):
        sketch.part(sh.Part(4, "inner", direction)).update(HOSTS, PEERS)
        sketch.part(sh.Part(6, "inner", direction)).update(wide, np.arange(3, dtype=np.uint64))
    found = sketch.estimate(["10.0.0.7", "2001:db8::7", "10.0.0.9"])
    assert [(str(row.host), row.part.direction) for row in found] == [
        *(("10.0.0.7", "in"), ("10.0.0.9", "in"), ("2001:db8::7", "in")),
        *(("10.0.0.7", "out"), ("10.0.0.9", "out"), ("2001:db8::7", "out")),
    ]
    assert [row.peers for row in found if row.family == 6] == [3, 3]
    assert found.window == sketch.window
    large = sketch.super_hosts(3)
    again = {(row.host, row.part): row.peers for row in sketch.estimate(large)}
    assert again == {(row.host, row.part): row.peers for row in large}
    assert {row.family for row in sketch.estimate(wide)} == {6}
    assert {row.family for row in sketch.estimate(HOSTS[:2])} == {4}


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_exact_numbers_of_many_wide_hosts(bits: int) -> None:
    rows = RNG.integers(0, 5, (4000, 2)).astype(np.uint64) << np.uint64(1)
    hosts = rows if bits == 128 else rows[:, 1].astype(np.uint32 if bits == 32 else np.uint64)
    detector = sh.Exact(key_bits=bits, device="cpu")
    assert detector.estimate_many(hosts[:9]).peers.tolist() == [0] * 9
    detector.update(hosts, PEERS[:4000])
    asked = np.unique(np.concatenate([hosts, hosts + hosts.dtype.type(1)]), axis=0)
    seen: dict[Any, set[int]] = {}
    for host, peer in zip(hosts.tolist(), PEERS.tolist(), strict=False):
        seen.setdefault(str(host), set()).add(peer)
    assert detector.estimate(asked).peers.tolist() == [len(seen.get(str(host), ())) for host in asked.tolist()]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9, 1.0])
def test_lines_in_vector_registers_give_the_ones_of_the_plain_loop(share: float) -> None:
    cube = sh.Cube("1MiB", device="cpu", exact=False)
    geometry, places = cube.geometry, make_places(cube.geometry)
    bits = np.packbits(RNG.random((geometry.total_columns, 1 << geometry.column_bits)) < share, axis=1).view(np.uint64)
    left = np.empty(bits.shape[1], np.uint64)
    for host in range(50):
        find_places(np.uint64(0), np.uint64(host * 2654435761 % (1 << 32)), False, places, geometry, cube.key)
        wanted = and_ones(bits, places, 0, bits.shape[1])
        rows = np.unpackbits(np.ascontiguousarray(bits[places.columns]).view(np.uint8), axis=1)
        assert (0 if share == 0 else wanted) <= rows.sum(axis=1).min()
        assert all_ones(bits, places, left) == wanted
