"""Named shapes of traffic with known answers: columns of pairs, and the exact number of peers of each host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Shape(NamedTuple):
    name: str
    hosts: np.ndarray
    peers: np.ndarray

    @property
    def truth(self) -> dict[int, int]:
        pairs = np.unique(self.hosts.astype(np.uint64) << np.uint64(32) | self.peers)
        hosts, counts = np.unique(pairs >> np.uint64(32), return_counts=True)
        return dict(zip(hosts.tolist(), counts.tolist(), strict=True))


def _address(text: str) -> int:
    a, b, c, d = map(int, text.split("."))
    return a << 24 | b << 16 | c << 8 | d


def _columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(pairs, np.uint32).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


def one_scanner() -> Shape:
    """One host contacts 5,000 consecutive addresses; 2,000 others talk to one server each."""
    scanner, server = _address("10.0.0.7"), _address("192.0.2.1")
    pairs = [(scanner, _address("172.16.0.0") + i) for i in range(5000)]
    pairs += [(_address("10.1.0.0") + i, server) for i in range(2000)]
    return Shape("one scanner", *_columns(pairs))


def ddos_victim() -> Shape:
    """Twenty thousand spoofed sources hit one victim, which talks to no other host."""
    sources = np.random.default_rng(1).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    return Shape("ddos victim", np.full(20_000, _address("10.9.9.9"), np.uint32), sources)


def zipf() -> Shape:
    """Numbers of peers have a heavy tail, and addresses are structured."""
    rng = np.random.default_rng(2)
    sizes = np.minimum((rng.pareto(1.05, 3000) * 8 + 1).astype(np.int64), 30_000)
    hosts = np.repeat((_address("10.0.0.0") + rng.permutation(1 << 16)[:3000] * 256 + 1).astype(np.uint32), sizes)
    return Shape("zipf", hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32))


def all_equal() -> Shape:
    """Four hundred hosts have exactly 100 peers each."""
    hosts = np.repeat((_address("10.0.1.0") + np.arange(400)).astype(np.uint32), 100)
    return Shape("all equal", hosts, np.random.default_rng(3).permutation(1 << 20)[: len(hosts)].astype(np.uint32))


def near_threshold() -> Shape:
    """Sixty hosts have 964 to 1,083 peers, around a threshold of 1,024."""
    sizes = np.arange(964, 1084, 2)
    hosts = np.repeat((_address("10.7.0.1") + 256 * np.arange(len(sizes))).astype(np.uint32), sizes)
    return Shape(
        "near the threshold", hosts, np.random.default_rng(4).integers(0, 1 << 32, len(hosts), dtype=np.uint32)
    )


def flood_of_sources() -> Shape:
    """A hundred thousand spoofed sources send one packet each, among ten real super hosts; every address is a host."""
    rng = np.random.default_rng(5)
    spoofed = rng.integers(0, 1 << 32, 100_000, dtype=np.uint32)
    real = np.repeat((_address("10.3.0.0") + np.arange(10)).astype(np.uint32), 3000)
    hosts = np.concatenate([spoofed, real])
    return Shape("flood of one-packet sources", hosts, rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32))


def repeats() -> Shape:
    """Few pairs repeat many times, like the packets of flows."""
    rng = np.random.default_rng(6)
    pairs = rng.integers(0, 3000, 60_000)
    return Shape("repeats", (pairs // 1500 + _address("10.0.0.1")).astype(np.uint32), pairs.astype(np.uint32))


SHAPES = [one_scanner(), ddos_victim(), zipf(), all_equal(), near_threshold(), flood_of_sources(), repeats()]
