"""The set of pairs: merging, memory, and what it passes on, of which nothing is lost if that is interrupted."""

from __future__ import annotations

import numpy as np
import pytest

from superhosts.engines.bins import Bins
from superhosts.engines.pairset import PairSet
from superhosts.engines.pairtable import Portion, Table, compact, insert_narrow, insert_wide, make_table, unpack_portion
from superhosts.hashing import make_key

KEY = make_key()
COUNT = 5000


def filled_set(host_type: type[np.unsignedinteger] = np.uint32, threads: int = 1) -> PairSet:
    """Return a set of 5,000 distinct pairs of many hosts."""
    bits = np.dtype(host_type).itemsize * 8
    bins = Bins(KEY, key_bits=bits, slice_bits=3, memory=1 << 20, threads=threads, grows=True)
    pairs = PairSet(bins, 2 * COUNT)
    numbers = np.arange(COUNT)
    bins.add([((numbers % 400).astype(host_type), numbers.astype(np.uint32))], pairs.drain)
    pairs.drain()
    return pairs


def words_of(portions: list[Portion]) -> list[tuple[int, int]]:
    """Return the mangled hosts and the peers of all entries, sorted."""
    found = []
    for portion in portions:
        hosts, peers = unpack_portion(portion)
        found += list(zip(hosts[:, 1].tolist(), peers.tolist(), strict=True))
    return sorted(found)


def passed(pairs: PairSet, *, release: bool = False) -> list[tuple[int, int]]:
    """Return all pairs of a set."""
    portions: list[Portion] = []
    pairs.pass_to(lambda portion, _: portions.append(portion), 1, release=release)
    return words_of(portions)


def test_tables_are_freed_one_after_the_other():
    pairs = filled_set()
    sizes: list[int] = []
    pairs.pass_to(lambda _portion, _thread: sizes.append(pairs.memory), 1, release=True)
    assert len(sizes) == pairs.bins.bins
    assert sizes == sorted(set(sizes), reverse=True)  # Every table was freed before the next one was passed.
    assert pairs.memory == 0


def test_without_release_the_set_stays_as_it_is():
    pairs = filled_set()
    before, memory = passed(pairs), pairs.memory
    assert len(before) == len(set(before)) == COUNT
    assert passed(pairs) == before
    assert (pairs.memory, pairs.pairs) == (memory, COUNT)


@pytest.mark.parametrize("host_type", [np.uint32, np.uint64])
def test_a_set_that_was_interrupted_while_it_passed_its_pairs_passes_the_others_later(host_type):
    pairs, expected = filled_set(host_type), passed(filled_set(host_type))
    taken: list[tuple[int, int]] = []

    def take(portion: Portion, _thread: int) -> None:
        if len(taken) > COUNT // 3:
            raise KeyboardInterrupt
        taken.extend(words_of([portion]))

    with pytest.raises(KeyboardInterrupt):
        pairs.pass_to(take, 1, release=True)
    assert pairs.memory > 0
    assert sorted(taken + passed(pairs, release=True)) == expected


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("bin_", [0, 1])
def test_pairs_moved_to_the_start_of_a_table_are_still_its_pairs(width, bin_):
    """The slots that they left are empty, so that a second call finds the same."""
    pairs = filled_set(np.uint32 if width == 1 else np.uint64)
    portions: list[Portion] = []
    pairs.pass_to(lambda portion, _: portions.append(portion), 1)
    portion = next(portion for portion in portions if portion.pool.owner[0] == bin_)
    counts = np.zeros(pairs.bins.bins, np.int64)
    table: Table = make_table(2000, width, bin_, counts)
    (insert_narrow if width == 1 else insert_wide)((0, 0), portion, table, KEY)
    count = int(portion.sizes.sum())
    assert counts[bin_] == count
    assert compact(table, table.slots) == count
    moved = table.slots.copy()
    assert compact(table, table.slots) == count
    assert np.array_equal(table.slots, moved)
    assert not np.isin(moved[count * width :], moved[max(0, width - 2) : count * width : width]).any()


def set_of_one_host(peers: range, limit: int = 1 << 20) -> PairSet:
    """Return a set with these peers of host 7."""
    bins = Bins(KEY, key_bits=32, slice_bits=3, memory=1 << 22, threads=1, grows=True)
    pairs = PairSet(bins, limit)
    bins.add([(np.full(len(peers), 7, np.uint32), np.array(peers, np.uint32))], pairs.drain)
    pairs.drain()
    return pairs


@pytest.mark.parametrize("mine", [range(5), range(20_000)])
def test_a_large_set_merges_into_a_small_one(mine):
    pairs = set_of_one_host(mine)
    pairs.merge(set_of_one_host(range(3, 40_000)))
    assert pairs.pairs == len(set(passed(pairs))) == 40_000


def test_a_merge_does_not_take_pairs_in_the_order_of_their_table():
    """In this order, which is that of hashes, a smaller table crowds at its start: minutes for a million pairs."""
    portions: list[Portion] = []
    other = set_of_one_host(range(40_000))
    other.pass_to(lambda portion, _: portions.append(portion), 1)
    last_peers = set(unpack_portion(portions[0])[1][-4_000:].tolist())
    pairs = set_of_one_host(range(40_000, 40_005), limit=10_000)
    pairs.merge(other)
    assert pairs.is_over
    assert len(last_peers & {peer for _, peer in passed(pairs)}) > 100


def test_no_memory_for_a_large_table_is_a_memory_error():
    with pytest.raises(MemoryError, match="table of pairs"):
        make_table(1 << 57, 1, 1, np.zeros(2, np.int64))
