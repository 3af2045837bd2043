"""Packets are gathered before they are put into the sketch of their window."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import superhosts as sh
from superhosts.core.pairs import PacketBatch, Part, Window
from superhosts.pipeline.builder import GATHERED_BYTES, WindowBuilder, gathered_memory
from superhosts.pipeline.settings import Settings

SETTINGS = Settings(window="10s", threshold=5, families=[4], threads=2, device="cpu")


def packets(first: int, count: int) -> PacketBatch:
    """Return packets of one host to different peers."""
    return PacketBatch(
        4,
        np.full(count, 7, np.uint32),
        np.arange(1000 + first, 1000 + first + count, dtype=np.uint32),
        np.zeros(count, np.int64),
    )


def to_itself(count: int) -> PacketBatch:
    """Return packets from an address to itself, which become no pairs and are counted."""
    return PacketBatch(4, np.full(count, 9, np.uint32), np.full(count, 9, np.uint32), np.zeros(count, np.int64))


class Watched:
    """Makes detectors and tells how many pairs each has got."""

    def __init__(self) -> None:
        self.made: list[sh.Exact] = []

    def make(self, part: Part) -> sh.Exact:
        self.made.append(sh.Exact())
        return self.made[-1]

    def pairs(self) -> list[int]:
        return [round(detector.estimate("0.0.0.7").peers or 0) for detector in self.made]


def test_packets_wait_until_there_are_enough_or_the_window_closes() -> None:
    watched = Watched()
    builder = WindowBuilder(SETTINGS, watched.make, gathers=100)
    builder.update(0, packets(0, 60))
    assert (builder.packets, watched.made) == (60, [])
    builder.update(0, packets(60, 60))
    assert watched.pairs() == [120]
    builder.update(0, packets(120, 5))
    assert watched.pairs() == [120]
    result = builder.close(0, Window(0, 10))
    assert (result.packets, watched.pairs()) == (125, [125])
    assert [found.peers for found in result] == [125]
    assert result.sketch.entries[0]["pairs"] == 250  # both ends are hosts


def test_only_one_window_gathers() -> None:
    watched = Watched()
    builder = WindowBuilder(SETTINGS, watched.make, gathers=100)
    builder.update(0, packets(0, 10))
    builder.update(10, packets(0, 20))
    assert watched.pairs() == [10]
    builder.close(0, Window(0, 10))
    builder.update(20, packets(0, 30))
    assert watched.pairs() == [10, 20]
    assert builder.close(20, Window(20, 30)).packets == 30
    assert watched.pairs() == [10, 20, 30]


@pytest.mark.parametrize("threads", [1, 3])
def test_any_split_of_the_packets_gives_the_same(threads: int) -> None:
    rng = np.random.default_rng(4)
    src, dst = rng.integers(0, 1 << 32, (2, 70_000), dtype=np.uint32)
    dst[::9] = src[::9]
    times = np.zeros(len(src), np.int64)
    seen = []
    for edges in ([0, len(src)], [0, 1, 1, 20_000, 60_001, len(src)]):
        builder = WindowBuilder(Settings(window="10s", threshold=1, families=[4], threads=threads, device="cpu"))
        for a, b in pairwise(edges):
            builder.update(0, PacketBatch(4, src[a:b], dst[a:b], times[a:b]))
        result = builder.close(0, Window(0, 10))
        seen.append((result.packets, len(result.found), builder.network.counters.same_ends))
    assert seen[0] == seen[1]
    assert seen[0][2] == len(range(0, 70_000, 9))


def test_the_memory_of_gathered_packets_is_bounded() -> None:
    assert gathered_memory(1) < gathered_memory(4) < gathered_memory(1000) == gathered_memory(10_000)
    assert gathered_memory(1000) < 256 << 20
    assert gathered_memory(1) % GATHERED_BYTES == 0


def test_packets_that_go_into_no_sketch_are_counted_once() -> None:
    builder = WindowBuilder(SETTINGS, gathers=100)
    builder.update(0, to_itself(3))
    for _ in range(2):
        builder.count_gathered()
        assert (builder.packets, builder.network.counters.same_ends) == (3, 3)
    builder.update(0, to_itself(4))
    builder.clear()  # the windows are left open
    assert (builder.packets, builder.network.counters.same_ends) == (0, 7)
