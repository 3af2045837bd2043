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
from superhosts.sketch.evidence.sample import HASH, OpenSample, united

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


@pytest.mark.parametrize("family", [4, 6])
def test_the_order_of_packets_does_not_matter(family: int) -> None:
    packets = random_packets(2000, family, 80, seed=5)
    other = random.Random(1).sample(packets, len(packets))
    assert sampled(packets, family, 300).tolist() == sampled(other, family, 300, pieces=7).tolist()


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
