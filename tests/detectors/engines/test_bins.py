"""Bins lose no pair and invent none, and no thread writes outside its own chunks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from superhosts.core.hashing import make_key, mangle_column
from superhosts.detectors.engines.bins import CHUNK, FINE_BINS_MEMORY, Bins

KEY = make_key()


def entries_of(bins: Bins) -> tuple[np.ndarray, np.ndarray]:
    """Return all pending entries in the order in which threads would write them, and the bin of each."""
    rows = bins.pool.entries.reshape(-1, CHUNK, bins.width)
    owned: dict[int, int] = {}
    entries, numbers = [rows[0, :0]], []
    for number, portion in enumerate(bins.take()):
        for chunk, size in zip(portion.chunks, portion.sizes, strict=True):
            bin_ = int(bins.pool.owner[chunk])
            assert owned.setdefault(bin_ % bins.slices, number) == number  # A slice belongs to one thread.
            assert 0 < size <= CHUNK
            entries.append(rows[chunk, :size].copy())
            numbers += [bin_] * int(size)
    return np.concatenate(entries), np.array(numbers, np.uint64)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("slice_bits", [0, 3, 9])
@pytest.mark.parametrize("flood", [False, True], ids=["all distinct", "one host"])
def test_full_bins_never_overflow_and_lose_nothing(threads, slice_bits, flood):
    """Return distinct pairs, spread over all bins or all in one: many times the capacity of the smallest pool."""
    rng = np.random.default_rng(slice_bits)
    count = 300_000
    hosts = np.full(count, 77, np.uint32) if flood else rng.integers(0, 1 << 32, count, dtype=np.uint32)
    peers = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    bins = Bins(KEY, key_bits=32, slice_bits=slice_bits, memory=1, threads=threads)
    found: list[tuple[np.ndarray, np.ndarray]] = []

    def drain() -> None:
        for thread in range(threads):
            assert bins.pool.cursors[thread, bins.bins] <= (thread + 1) * bins.chunks
        found.append(entries_of(bins))
        bins.done()

    for start in range(0, count, 70_001):
        bins.add([(hosts[start : start + 70_001], peers[start : start + 70_001])], drain)
    drain()
    assert len(found) > 3 or threads > 2
    words = np.zeros((count, 2), np.uint64)
    words[:, 1] = hosts
    mangled = mangle_column(words, 32, False, KEY)[:, 1]
    entries, numbers = (np.concatenate(each) for each in zip(*found, strict=True))
    assert entries.shape[1] == 1
    assert np.array_equal(np.unique(entries), np.unique(mangled << np.uint64(32) | peers))
    assert np.array_equal(numbers, entries[:, 0] >> np.uint64(32) & np.uint64(bins.bins - 1))


def test_several_batches_of_any_size_and_width_are_added_at_once():
    rng = np.random.default_rng(5)
    hosts, peers = rng.integers(0, 1 << 32, (2, 100_000), dtype=np.uint32)
    edges = [0, 1, 1, 20_000, 20_003, 90_000, 100_000]
    batches = [(hosts[a:b], peers[a:b]) for a, b in pairwise(edges)]
    bins = Bins(KEY, key_bits=32, slice_bits=3, memory=1, threads=3, min_pairs_per_thread=1000)
    found: list[np.ndarray] = []

    def drain() -> None:
        found.append(entries_of(bins)[0])
        bins.done()

    bins.add(batches, drain)
    wide = [(hosts[:10], peers[:10].astype(np.uint64)), (hosts[10:20], peers[10:20].astype(np.uint64) << np.uint64(9))]
    bins.add([*batches[:2], *wide], drain)
    drain()
    assert len(np.unique(np.concatenate([each for each in found if each.shape[1] == 1]))) == 100_000
    assert sum(len(each) for each in found if each.shape[1] == 2) == 20


def test_recent_repeats_are_dropped_once_and_forgotten_on_clear():
    bins = Bins(KEY, key_bits=32, slice_bits=2, memory=1, threads=1)
    hosts, peers = np.arange(100, dtype=np.uint32), np.arange(100, dtype=np.uint32)
    for _ in range(3):
        bins.add([(np.tile(hosts, 5), np.tile(peers, 5))], bins.done)
    assert len(entries_of(bins)[0]) == 100
    bins.done()
    bins.add([(hosts, peers)], bins.done)
    assert len(entries_of(bins)[0]) == 0  # The pairs were written before, and the caches still have them.
    bins.clear()
    bins.add([(hosts, peers)], bins.done)
    assert len(entries_of(bins)[0]) == 100


@pytest.mark.parametrize("threads", [1, 3])
def test_pairs_in_both_directions_are_binned_in_both(threads):
    """A pair that was seen in one direction alone hides nothing of a batch that has both."""
    rng = np.random.default_rng(8)
    hosts, peers = rng.integers(0, 1 << 32, (2, 40_000), dtype=np.uint32)
    parts = [slice(0, 20_000), slice(10_000, 40_000), slice(35_000, 35_000)]
    both = [each for part in parts for each in ((hosts[part], peers[part]), (peers[part], hosts[part]))]
    bins = Bins(KEY, key_bits=32, slice_bits=3, memory=1, threads=threads, min_pairs_per_thread=1000)
    found: list[np.ndarray] = []

    def drain() -> None:
        found.append(entries_of(bins)[0])
        bins.done()

    bins.add([(hosts[:5000], peers[:5000]), *both, (peers[20_000:], hosts[20_000:])], drain)
    drain()
    words = np.zeros((80_000, 2), np.uint64)
    words[:, 1] = np.concatenate([hosts, peers])
    mangled = mangle_column(words, 32, False, KEY)[:, 1]
    expected = mangled << np.uint64(32) | np.concatenate([peers, hosts])
    assert np.array_equal(np.unique(np.concatenate(found)), np.unique(expected))
    bins.clear()
    for _ in range(2):
        bins.add([(hosts[:100], peers[:100]), (peers[:100], hosts[:100])], drain)
        bins.add([(peers[:100], hosts[:100]), (hosts[:100], peers[:100])], drain)
    assert bins.pending == 800
    assert threads > 1 or len(entries_of(bins)[0]) == 200  # the cache knows both directions


@pytest.mark.parametrize("threads", [1, 2])
def test_a_growing_pool_starts_small_and_grows_with_the_pairs_up_to_its_memory(threads):
    rng = np.random.default_rng(2)
    hosts, peers = rng.integers(0, 1 << 32, (2, 400_000), dtype=np.uint32)
    memory = 1 << 20
    bins = Bins(KEY, key_bits=32, slice_bits=2, memory=memory, threads=threads, grows=True)
    sizes, taken = [], 0

    def drain() -> None:
        nonlocal taken
        taken += len(entries_of(bins)[0])
        sizes.append(bins.pool.entries.nbytes)
        bins.done()

    for start in range(0, len(hosts), 10_000):
        bins.add([(hosts[start : start + 10_000], peers[start : start + 10_000])], drain)
    drain()
    assert taken == len(hosts)
    assert sizes[0] <= memory // 3
    assert sizes == sorted(sizes)
    assert 0.9 * memory < sizes[-1] <= memory
    fixed = Bins(KEY, key_bits=32, slice_bits=2, memory=memory, threads=threads)
    fixed.add([(hosts[:1], peers[:1])], fixed.done)
    assert fixed.pool.entries.nbytes == sizes[-1]


@pytest.mark.parametrize("slice_bits", [0, 2, 4, 9])
def test_bins_finer_than_slices_still_give_a_slice_to_one_thread(slice_bits):
    """Two threads in one slice would lose bits, because there are no atomics."""
    rng = np.random.default_rng(1)
    hosts, peers = rng.integers(0, 1 << 32, (2, 20_000), dtype=np.uint32)
    bins = Bins(KEY, key_bits=32, slice_bits=slice_bits, memory=FINE_BINS_MEMORY, threads=3)
    bins.add([(hosts, peers)], bins.done)
    assert bins.bins == 128
    assert len(entries_of(bins)[0]) == 20_000


def test_an_allocation_that_fails_leaves_the_bins_as_they_were():
    """Otherwise the sizes would be those of a pool that does not exist, and threads would write outside the old one."""
    bins = Bins(KEY, key_bits=32, slice_bits=0, memory=1, threads=1)
    hosts = np.arange(300, dtype=np.uint32)
    bins.add([(hosts, hosts)], lambda: None)
    before, chunks = entries_of(bins)[0].tolist(), bins.chunks
    bins.memory = 1 << 60  # no machine has this much
    with pytest.raises(MemoryError):
        bins.add([(hosts, hosts.astype(np.uint64))], lambda: None)
    assert (bins.width, bins.chunks) == (1, chunks)
    assert entries_of(bins)[0].tolist() == before
