"""The set of pairs: merging, memory, and what it passes on, of which nothing is lost if that is interrupted."""

from __future__ import annotations

import ctypes
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, Key, fold, make_key, mangle32, mangle64
from superhosts.detectors.engines import pairset
from superhosts.detectors.engines.bins import Bins, Portion, unpack_all
from superhosts.detectors.engines.pairset import PairSet
from superhosts.detectors.engines.pairtable import find_places, map_tables, place_of

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
        hosts, peers = unpack_all(portion)
        found += list(zip(hosts[:, 1].tolist(), peers.tolist(), strict=True))
    return sorted(found)


def passed(pairs: PairSet, *, release: bool = False) -> list[tuple[int, int]]:
    """Return all pairs of a set."""
    portions: list[Portion] = []
    pairs.pass_to(lambda portion: portions.append(portion), 1, release=release)
    return words_of(portions)


def test_tables_are_freed_one_after_the_other():
    pairs = filled_set()
    sizes: list[int] = []
    pairs.pass_to(lambda _portion: sizes.append(pairs.memory), 1, release=True)
    assert len(sizes) == pairs.bins.bins
    assert sizes == sorted(set(sizes), reverse=True)  # Every table was freed before the next one was passed.
    assert pairs.memory == 0


@pytest.mark.parametrize("host_type", [np.uint32, np.uint64])
def test_a_set_that_was_interrupted_while_it_passed_its_pairs_passes_the_others_later(host_type):
    pairs, expected = filled_set(host_type), passed(filled_set(host_type))
    taken: list[tuple[int, int]] = []

    def take(portion: Portion) -> None:
        if len(taken) > COUNT // 3:
            raise KeyboardInterrupt
        taken.extend(words_of([portion]))

    with pytest.raises(KeyboardInterrupt):
        pairs.pass_to(take, 1, release=True)
    assert pairs.memory > 0
    assert sorted(taken + passed(pairs, release=True)) == expected


@pytest.mark.parametrize(("host_type", "threads"), [(np.uint32, 1), (np.uint32, 3), (np.uint64, 1)])
def test_tables_grow_while_pairs_are_inserted_if_more_are_new_than_the_last_time(host_type, threads):
    bits = np.dtype(host_type).itemsize * 8
    bins = Bins(KEY, key_bits=bits, slice_bits=3, memory=1 << 20, threads=threads, grows=True)
    pairs, known = PairSet(bins, 6 * COUNT), np.arange(COUNT)
    for numbers in (known, known, np.arange(COUNT, 6 * COUNT)):
        bins.add([((numbers % 400).astype(host_type), numbers.astype(np.uint32))], pairs.drain)
        pairs.drain()
        assert pairs.pairs == len(set(passed(pairs))) == numbers[-1] + 1


def test_the_tables_of_a_slice_are_passed_together():
    bins = Bins(KEY, key_bits=32, slice_bits=3, memory=1 << 24, threads=1, grows=True)
    pairs = PairSet(bins, 1 << 20)
    numbers = np.arange(100_000, dtype=np.uint32)
    bins.add([(numbers % 4_000, numbers)], pairs.drain)
    pairs.drain()
    assert bins.bins > 1 << 3
    portions: list[Portion] = []
    pairs.pass_to(lambda portion: portions.append(portion), 1)
    assert len(portions) == 1 << 3
    for portion in portions:
        assert len(set(portion.pool.owner.tolist())) == bins.bins >> 3
        assert len(set((portion.pool.owner & 7).tolist())) == 1
    found = words_of(portions)
    assert len(found) == len(set(found)) == 100_000


def set_of_one_host(peers: range, limit: int = 1 << 20) -> PairSet:
    """Return a set with these peers of host 7."""
    bins = Bins(KEY, key_bits=32, slice_bits=3, memory=1 << 22, threads=1, grows=True)
    pairs = PairSet(bins, limit)
    bins.add([(np.full(len(peers), 7, np.uint32), np.array(peers, np.uint32))], pairs.drain)
    pairs.drain()
    return pairs


@pytest.mark.parametrize("host_type", [np.uint32, np.uint64])
@pytest.mark.parametrize("peer_type", [np.uint32, np.uint64])
def test_a_merge_has_every_pair_of_both_once(host_type, peer_type):
    """Peers beyond 32 bits make slots wider, so that tables of two widths are merged."""
    first = filled_set(host_type)
    numbers = np.arange(COUNT // 2, COUNT + 1000).astype(peer_type)
    second = PairSet(make_bins(first), 2 * COUNT)
    hosts, peers = (numbers % 400).astype(host_type), numbers
    if peer_type == np.uint64:
        peers = np.concatenate([numbers, numbers + (np.uint64(1) << np.uint64(40))])
        hosts = np.concatenate([hosts, hosts])
    second.bins.add([(hosts, peers)], second.drain)
    second.drain()
    expected = sorted({*passed(first), *passed(second)})
    for one, other in ((first, second), (second, first)):
        before, counted = passed(one), one.pairs
        whole = one.copy(make_bins(one))
        whole.merge(other)
        for minimum in (1, 3, 12, 13, 20):
            assert hosts_of(whole, minimum) == heavy(expected, minimum)  # found before the union is made
        assert sum(peers for _, peers in zip(*[each.tolist() for each in whole.top(5)], strict=True)) > 0
        assert whole.pairs == len(expected)
        assert passed(whole) == expected
        for minimum in (1, 3, 12, 13, 20):
            assert hosts_of(whole, minimum) == heavy(expected, minimum)
        whole.merge(other)  # nothing new
        assert passed(whole) == expected
        assert (passed(one), one.pairs) == (before, counted)  # a copy is independent


def test_wide_hosts_are_found_in_two_sets_that_differ_in_their_bins():
    """Hosts differ in one word only, some bins have a table in one of the sets, and some pairs are in both."""
    bins = [Bins(KEY, key_bits=128, slice_bits=3, memory=1 << 20, threads=1, grows=True) for _ in range(3)]
    sets, pairs = [PairSet(each, 4 * COUNT) for each in bins], set()
    for number, whole in enumerate(sets[:2]):
        peers = np.arange(50 * number, 50 * number + 300, dtype=np.uint64)
        for host in range(10 * number, 10 * number + 20):
            for words in ((host, 5), (5, host)):
                hosts = np.tile(np.array(words, np.uint64), (len(peers), 1))
                chosen = slice(0, 10 * host + 1)
                bins[number].add([(hosts[chosen], peers[chosen])], whole.drain)
                pairs |= {(words, int(peer)) for peer in peers[chosen]}
        whole.drain()
    union = sets[0].copy(bins[2])
    union.merge(sets[1])
    assert union._later is not None
    for minimum in (1, 50, 150, 220):
        hosts, counts = union.super_hosts(minimum)
        expected = [count for count in Counter(words for words, _ in pairs).values() if count >= minimum]
        assert sorted(counts.tolist()) == sorted(expected)
        assert len({tuple(words) for words in hosts.tolist()}) == len(expected)
    assert union.pairs == len(pairs)


def hosts_of(pairs: PairSet, minimum: int) -> dict[int, int]:
    hosts, peers = pairs.super_hosts(minimum)
    return dict(zip(hosts[:, 1].tolist(), peers.tolist(), strict=True))


def heavy(pairs: list[tuple[int, int]], minimum: int) -> dict[int, int]:
    return {host: count for host, count in Counter(host for host, _ in pairs).items() if count >= minimum}


@pytest.mark.parametrize("shared", [1, 1 << 40])
def test_threads_that_share_the_work_have_every_pair_once(monkeypatch, shared):
    monkeypatch.setattr(pairset, "SHARED_PAIRS", shared)
    sets: list[PairSet] = []
    for first in (0, 12_000):
        bins = Bins(KEY, key_bits=32, slice_bits=3, memory=1 << 24, threads=3, grows=True)
        sets.append(PairSet(bins, 1 << 20))
        numbers = np.arange(first, first + 20_000, dtype=np.uint32)
        # Host 7 has most pairs, so that tables differ in size; each pair comes twice, beyond the cache of the bins.
        hosts = np.where(numbers % 3 > 0, 7, numbers % 500).astype(np.uint32)
        bins.add([(hosts, numbers), (hosts, numbers)], sets[-1].drain)
        sets[-1].drain()
        assert sets[-1].pairs == 20_000
    whole = sets[0].copy(Bins(KEY, key_bits=32, slice_bits=3, memory=1 << 24, threads=3, grows=True))
    whole.merge(sets[1])
    peers = np.arange(32_000)
    counts = Counter(np.where(peers % 3 > 0, 7, peers % 500).tolist())
    expected = sorted(count for count in counts.values() if count >= 20)
    assert sorted(whole.super_hosts(20)[1].tolist()) == expected  # of two sets
    assert whole.pairs == 32_000
    assert sorted(whole.super_hosts(20)[1].tolist()) == expected  # of their union
    assert passed(whole) == sorted(set(passed(sets[0])) | set(passed(sets[1])))


def test_a_set_and_its_copy_change_apart():
    first = filled_set()
    twin = first.copy(make_bins(first))
    before = passed(first)
    for pairs, peer in ((first, COUNT), (twin, COUNT + 1)):
        pairs.bins.add([(np.full(1, 7, np.uint32), np.full(1, peer, np.uint32))], pairs.drain)
        pairs.drain()
    mine, others = set(passed(first)), set(passed(twin))
    assert mine & others == set(before)
    assert sorted(peer for _, peer in mine ^ others) == [COUNT, COUNT + 1]
    assert passed(first.copy(make_bins(first)), release=True) == sorted(mine)
    assert set(passed(first)) == mine  # the tables of the copy, which were freed, are not those of the set


def test_tables_are_copied_once_and_only_while_a_copy_has_them():
    pairs = filled_set()
    tables = places_of(pairs)
    pairs.copy(make_bins(pairs))  # gone at once
    pairs.merge(filled_set())
    assert places_of(pairs) == tables
    twin = pairs.copy(make_bins(pairs))
    third = twin.copy(make_bins(pairs))
    del twin  # the third still has the tables
    for _ in range(2):
        pairs.merge(filled_set())
        assert not set(places_of(pairs)) & set(tables)
        own = places_of(pairs)
    pairs.merge(filled_set())
    assert places_of(pairs) == own
    assert passed(third) == passed(pairs)


def places_of(pairs: PairSet) -> list[int]:
    """Return the addresses of the tables of a set."""
    return pairs._places.addresses[pairs._places.sizes > 0].tolist()


def make_bins(pairs: PairSet) -> Bins:
    """Return empty bins like those of a set."""
    return Bins(KEY, key_bits=pairs.bins.key_bits, slice_bits=3, memory=1 << 20, threads=1, grows=True)


def test_a_merge_beyond_the_limit_inserts_nothing_into_a_table_that_is_too_small():
    """In the order of hashes, pairs crowd at the start of such a table: minutes for a million pairs."""
    pairs = set_of_one_host(range(40_000, 40_005), limit=10_000)
    before = passed(pairs)
    pairs.merge(set_of_one_host(range(40_000)))
    assert pairs.is_over
    assert passed(pairs) == before
    pairs.clear()
    assert not pairs.is_over


def test_a_table_gets_its_size_before_pairs_are_merged_into_it():
    pairs = set_of_one_host(range(40_000, 40_005))
    pairs.merge(set_of_one_host(range(40_000)))
    assert pairs.pairs == 40_005
    # With linear probing at three quarters; about 40,000 if all were inserted into a smaller one.
    assert longest_run(pairs) < 400


def test_no_memory_for_a_large_table_is_a_memory_error():
    with pytest.raises(MemoryError, match="bytes of memory"):
        map_tables(np.array([1]), np.array([1 << 57]), 1)


def longest_run(pairs: PairSet) -> int:
    """Return the most full slots of any table that follow each other: a search may pass all of them."""
    longest = 0
    tables = pairs._places.at(np.flatnonzero(pairs._places.sizes))
    for address, size, width, bin_ in zip(*(numbers.tolist() for numbers in tables), strict=True):
        slots = np.ctypeslib.as_array((ctypes.c_uint64 * (size * width)).from_address(address))
        low = slots[max(0, width - 2) :: width] >> np.uint64(32 if width == 1 else 0)
        edges = np.flatnonzero(np.concatenate(([True], low == (bin_ == 0), [True])))
        longest = max(longest, int(np.diff(edges).max()) - 1)
    return longest


# Pairs chosen by somebody who knows the key: by that key, all of their searches begin at one slot


def unshifted(values: list[int], shift: int, bits: int) -> list[int]:
    """Invert x ^ (x >> shift)."""
    found = list(values)
    for _ in range(bits // shift):
        found = [value ^ (x >> shift) for value, x in zip(values, found, strict=True)]
    return found


def narrow_peers(host: int, count: int, key: Key) -> NDArray[np.uint32]:
    """Return peers of an IPv4 host whose hashes in `find_places` are 0, 1, 2 and so on."""
    words = [int(word) for word in key.pair]
    a, b, c = words[1] & MASK32, words[2] & MASK32, words[1] >> 32 | 1
    mixed = unshifted(list(range(count)), 15, 32)
    mixed = unshifted([x * pow(c, -1, 1 << 32) & MASK32 for x in mixed], 15, 32)
    begin = int(mangle32(np.uint64(host), key)) * a
    return np.array([(x - begin) * pow(b, -1, 1 << 32) & MASK32 for x in mixed], np.uint32)


def wide_peers(host: int, count: int, key: Key) -> NDArray[np.uint64]:
    """Return peers of a 64-bit host whose hashes in `place_of` are 0, 1, 2 and so on."""
    words, mask = [int(word) for word in key.pair], (1 << 64) - 1
    mixed = unshifted(list(range(count)), 32, 64)
    mixed = unshifted([x * pow(words[2], -1, 1 << 64) & mask for x in mixed], 29, 64)
    mixed = unshifted([x * pow(words[1], -1, 1 << 64) & mask for x in mixed], 32, 64)
    mangled = int(fold(np.uint64(0), np.uint64(mangle64(np.uint64(host), key)), key))
    return np.array([(x - mangled * words[0]) & mask for x in mixed], np.uint64)


@pytest.mark.parametrize(("bits", "choose"), [(32, narrow_peers), (64, wide_peers)])
def test_nobody_can_choose_pairs_that_collide_although_the_key_is_known(bits, choose):
    """Of random pairs, in tables that are at most three quarters full, the longest run is of about 150 slots."""
    hosts, peers = np.full(20_000, 5, f"u{bits // 8}"), choose(5, 20_000, KEY)

    def set_of(hosts, peers, step=1 << 20):
        bins = Bins(KEY, key_bits=bits, slice_bits=3, memory=1 << 20, threads=1, grows=True)
        pairs = PairSet(bins, 10 * len(hosts))
        for start in range(0, len(hosts), step):
            bins.add([(hosts[start : start + step], peers[start : start + step])], pairs.drain)
            pairs.drain()
        assert pairs.pairs == len(hosts)
        return pairs

    whole = set_of(hosts, peers)  # The first entries are inserted together, others table by table.
    for pairs in (whole, set_of(hosts, peers, 5000), set_of(hosts[:9000], peers[:9000])):
        assert longest_run(pairs) < 1000
        pairs.merge(whole)
        assert pairs.pairs == len(hosts)
        assert longest_run(pairs) < 1000


def test_pairs_of_multiples_of_a_power_of_two_have_different_places():
    """Whatever the key, sums of products of such numbers are alike."""
    size = 1 << 24
    for secret, bits, count in ((0, 32, 200), (1, 32, 200), (2, 32, 200), (0, 64, 80), (1, 64, 80)):
        key = make_key(bytes([secret] * 8))
        powers = [number << (bits - 8) for number in range(count)]
        if bits == 32:
            words = np.array([host << 32 | peer for host in powers for peer in powers], np.uint64)
            places = np.empty(len(words), np.uint32)
            find_places(words, np.uint32(size), places, key)
        else:
            zero = np.uint64(0)
            places = [place_of(zero, np.uint64(host), np.uint64(peer), size, key) for host in powers for peer in powers]
        assert len(np.unique(places)) > 0.9 * len(powers) ** 2
