"""The sample of an open window: the pairs with the smallest hashes, whatever the order, the threads and the memory."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive_evidence import Packet, sample
from superhosts.core import pairs as said
from superhosts.core.hashing import make_key
from superhosts.core.pairs import PacketBatch
from superhosts.sketch.evidence import sample as sampling
from superhosts.sketch.evidence.observations import MOST, distinct, mark_of
from superhosts.sketch.evidence.sample import ALL, HASH, LIMIT, OpenSample, Reach, admit, new_reach, united

SECRET = b"a secret of some length"
KEY = make_key(SECRET)
MARKS = (0, said.IS_RECORD, said.IS_CONVERSATION, said.IS_CONVERSATION | said.IS_ANSWERED)


def random_packets(count: int, family: int, hosts: int, seed: int) -> list[Packet]:
    """Return packets of all kinds between few hosts, so that pairs repeat."""
    draw = random.Random(seed)
    base = 10 << 24 if family == 4 else 0x20010DB8 << 96
    step = 7 if family == 4 else (1 << 64) + 1
    packets = []
    for number in range(count):
        src, dst = (base + step * draw.randrange(hosts) for _ in range(2))
        protocol = draw.choice([6, 6, 6, 17, 17, 1, 58, 47, None])
        ports = (draw.randrange(1 << 16), draw.choice([22, 53, 443, 40000])) if draw.random() < 0.8 else None
        flags = draw.randrange(256) if draw.random() < 0.8 else None
        if src != dst:
            detail = said.pack(protocol, ports, flags, marks=draw.choice(MARKS))
            packets.append(Packet(src, dst, 1_000_000 * number, detail))
    return packets


def batch_of(packets: list[Packet], family: int) -> PacketBatch:
    ends = [[packet.src for packet in packets], [packet.dst for packet in packets]]
    if family == 4:
        columns = [np.array(end, np.uint32) for end in ends]
    else:
        columns = [np.array([[x >> 64, x & (1 << 64) - 1] for x in end], np.uint64).reshape(-1, 2) for end in ends]
    times = np.array([packet.time for packet in packets], np.int64)
    details = np.array([packet.detail for packet in packets], np.uint64)
    return PacketBatch(family, *columns, times, details=details)


def all_count(batch: PacketBatch) -> np.ndarray:
    return np.ones(len(batch), np.uint8)


def sampled(packets: list[Packet], family: int, size: int, pieces: int = 3) -> np.ndarray:
    opened = OpenSample(family, size, KEY)
    for start in range(0, len(packets), -(-len(packets) // pieces) or 1):
        opened.add(batch_of(packets[start : start + -(-len(packets) // pieces)], family), all_count)
    return opened.rows()


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("size", [64, 1000, 10_000])
def test_it_is_the_naive_one(family: int, size: int) -> None:
    packets = random_packets(3000, family, 60, seed=size)
    assert sampled(packets, family, size).tolist() == sample(packets, family, size, SECRET)


@pytest.mark.slow
@pytest.mark.parametrize("family", [4, 6])
def test_small_buffers_give_the_same(family: int, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = random_packets(4000, family, 70, seed=9)
    packets += packets  # The second time no pair is new: the limit is that of the whole sample.
    expected = sample(packets, family, 200, SECRET)
    for waiting in (1, 128, 300, 4096):
        monkeypatch.setitem(sampling.WAITING, family, waiting)
        assert sampled(packets, family, 200).tolist() == expected


def test_threads_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sampling.WAITING, 4, 512)
    packets = random_packets(8000, 4, 90, seed=3)
    opened = OpenSample(4, 250, KEY)
    shares = [batch_of(packets[start : start + 200], 4) for start in range(0, len(packets), 200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda share: opened.add(share, all_count), shares))
    assert opened.rows().tolist() == sample(packets, 4, 250, SECRET)


def test_asking_does_not_change_it() -> None:
    packets = random_packets(2000, 4, 60, seed=7)
    opened = OpenSample(4, 200, KEY)
    opened.add(batch_of(packets[:1000], 4), all_count)
    assert opened.rows().tolist() == sample(packets[:1000], 4, 200, SECRET)
    opened.add(batch_of(packets[1000:], 4), all_count)
    assert opened.rows().tolist() == sample(packets, 4, 200, SECRET)


def test_packets_that_do_not_count_are_not_in_it() -> None:
    packets = random_packets(2000, 4, 60, seed=8)
    kept = [packet for packet in packets if packet.src % 2]

    def odd(batch: PacketBatch) -> np.ndarray:
        return (batch.src % 2).astype(np.uint8)

    opened = OpenSample(4, 200, KEY)
    opened.add(batch_of(packets, 4), odd)
    assert opened.rows().tolist() == sample(kept, 4, 200, SECRET)


@given(st.lists(st.integers(0, 40), max_size=60), st.lists(st.integers(0, 40), max_size=60), st.integers(1, 50))
def test_the_union_is_that_of_all_packets(first: list[int], second: list[int], size: int) -> None:
    packets = random_packets(400, 4, 12, seed=11)
    parts = [[packets[number * 7 % len(packets)] for number in numbers] for numbers in (first, second)]
    rows = [sampled(part, 4, size, pieces=1) for part in parts]
    whole = united(rows[0], rows[1], size)
    assert whole.tolist() == sample([*parts[0], *parts[1]], 4, size, SECRET)
    assert united(whole, rows[0], size).tolist() == whole.tolist()
    assert (np.diff(whole[:, HASH].astype(object)) > 0).all()


# The limit of a sample: never below the largest hash of the sample, and soon close to it


BITS = st.integers(0, 64)


def take(hashes: list[int], reach: Reach, counts: list[int] | None = None) -> list[int]:
    """Admit hashes; return those that are left."""
    rows = np.array([[hashed, number] for number, hashed in enumerate(hashes)], np.uint64).reshape(-1, 2)
    flags = np.array([1] * len(hashes) if counts is None else counts, np.uint8)
    left = admit(rows, 0, len(rows), flags, reach)
    assert [hashes[int(number)] for number in rows[:left, 1]] == rows[:left, 0].tolist()  # rows stay whole
    return [int(hashed) for hashed in rows[:left, 0]]


def limit_of(reach: Reach) -> int:
    return int(reach.state[LIMIT])


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 1000])
def test_it_follows_the_largest_hash_of_the_sample(size: int) -> None:
    draw, reach, seen = random.Random(size), new_reach(size), set()
    for _ in range(200):
        fresh = [draw.getrandbits(64) for _ in range(size // 4)]
        seen.update(fresh)
        take([hashed for hashed in (*fresh, *fresh) if hashed <= limit_of(reach)], reach)
        if len(seen) < size:
            assert limit_of(reach) == ALL
        else:
            largest = sorted(seen)[size - 1]
            assert largest <= limit_of(reach) <= 1.02 * largest


@given(st.lists(st.tuples(BITS, st.integers(0, ALL)), max_size=300), st.integers(1, 40))
def test_no_hash_of_the_sample_is_above_it(drawn: list[tuple[int, int]], size: int) -> None:
    hashes = [value >> shift for shift, value in drawn]  # also small ones, which fill few buckets
    reach = new_reach(size)
    for start in range(0, len(hashes), 50):
        before = limit_of(reach)
        left = take(hashes[start : start + 50], reach)
        smallest = sorted(set(hashes[: start + 50]))[:size]
        assert smallest[-1] <= limit_of(reach) <= before
        assert set(hashes[start : start + 50]) & set(smallest) <= set(left)


def test_repeats_and_what_does_not_count_do_not_lower_it() -> None:
    reach = new_reach(64)
    hashes = [number << 50 for number in range(1, 64)]
    assert take(hashes * 40, reach) == hashes * 40
    assert limit_of(reach) == ALL
    others = [number << 40 for number in range(1, 64)]
    assert take(others, reach, [0] * len(others)) == []
    assert limit_of(reach) == ALL
    assert take([1, 1 << 62], reach) == [1]  # The sample is full with the first of both.
    assert limit_of(reach) < ALL


# How many distinct things were seen, in 64 bits


def marks_of(count: int, draw: np.random.Generator) -> int:
    word = 0
    for hashed in draw.integers(0, 2**64, count, dtype=np.uint64):
        word |= int(mark_of(hashed))
    return word


def test_nothing_and_one_are_exact() -> None:
    draw = np.random.default_rng(1)
    words = np.array([0, *(marks_of(1, draw) for _ in range(50))], np.uint64)
    assert distinct(words).tolist() == [0.0, *[1.0] * 50]


@pytest.mark.parametrize("count", [2, 3, 5, 10, 30, 100, 300, 1000])
def test_the_mean_over_pairs_is_about_right(count: int) -> None:
    draw = np.random.default_rng(count)
    words = np.array([marks_of(count, draw) for _ in range(200)], np.uint64)
    found = distinct(words)
    assert found.mean() == pytest.approx(count, rel=0.15)
    assert np.quantile(np.abs(found - count) / count, 0.7) < 0.5


def test_it_is_bounded() -> None:
    assert distinct(np.array([2**64 - 1], np.uint64)).tolist() == [MOST]
