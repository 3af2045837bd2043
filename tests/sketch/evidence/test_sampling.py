"""The sample of an open window: the pairs with the smallest hashes, whatever the order, the threads and the memory."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import superhosts as sh
from naive_evidence import Packet, sample
from superhosts.core import pairs as said
from superhosts.core.hashing import make_key
from superhosts.core.pairs import PacketBatch
from superhosts.cubefile.container import CubeReader, write
from superhosts.errors import MergeError, SketchFileError
from superhosts.sketch.evidence import sample as sampling
from superhosts.sketch.evidence.observations import MOST, distinct, mark_of
from superhosts.sketch.evidence.sample import ALL, HASH, LIMIT, Evidence, OpenSample, Reach, admit, new_reach, united
from superhosts.sketch.sketch import Sketch, load, union

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


# Evidence in sketches: saved, loaded, merged in any order, and refused where it is damaged


SIZE = 1024


def sketch_of(seed: int, *, secret: bytes = SECRET, hosts: int = 60, size: int = SIZE) -> Sketch:
    """Return a sketch with a cube and evidence of both families."""
    cube = sh.Cube("64KiB", key=secret, device="cpu")
    cube.update(np.arange(100, dtype=np.uint32) % 3, np.arange(seed, seed + 100, dtype=np.uint32))
    sketch = Sketch.of(cube)
    rows = {family: sampled(random_packets(900, family, hosts, seed), family, size) for family in (4, 6)}
    sketch.evidence = Evidence(secret, size, rows)
    return sketch


def test_files_bytes_copies_and_pickles_bring_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_KEY", SECRET.decode())
    sketch = sketch_of(1)
    sketch.save(tmp_path / "a.cube")
    copied = sketch.copy()
    again = [load(tmp_path / "a.cube", key=SECRET), Sketch.from_bytes(sketch.to_bytes(), key=SECRET), copied]
    for each in (*again, load(io.BytesIO(sketch.to_bytes()), key=SECRET), pickle.loads(pickle.dumps(sketch))):
        assert each == sketch
        assert each.evidence == sketch.evidence
        assert each.evidence is not None
        assert each.evidence.rows[6].tolist() == sample(random_packets(900, 6, 60, 1), 6, SIZE, SECRET)
    sketch.merge(sketch_of(2))
    assert copied.evidence == again[0].evidence != sketch.evidence
    sketch.clear()
    assert sketch.evidence is None


def test_files_show_no_address_without_the_key(tmp_path: Path) -> None:
    sketch = sketch_of(1)
    sketch.save(tmp_path / "a.cube")
    with CubeReader(tmp_path / "a.cube") as reader:
        wide = reader.read_array("evidence/6")
    assert not np.isin(wide[:, 6:], np.array([0x20010DB8 << 32], np.uint64)).any()
    with pytest.raises(MergeError, match="written with key"):
        load(tmp_path / "a.cube", key=b"another key")
    with_it, sketch.evidence = sketch.memory, None
    assert with_it - sketch.memory == sum(rows.nbytes for rows in sketch_of(1).evidence.rows.values())  # type: ignore[union-attr]
    sketch.save(tmp_path / "a.cube")
    with CubeReader(tmp_path / "a.cube") as reader:
        assert "evidence" not in reader.header
    assert load(tmp_path / "a.cube", key=SECRET).evidence is None


@pytest.mark.slow
def test_the_union_is_that_of_all_packets_in_any_order(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        sketch_of(seed).save(tmp_path / f"{seed}.cube")
    packets = {family: [p for seed in (1, 2, 3) for p in random_packets(900, family, 60, seed)] for family in (4, 6)}
    for order in itertools.permutations((1, 2, 3)):
        merged = union([sketch_of(seed) for seed in order])
        of_files = union([tmp_path / f"{seed}.cube" for seed in (*order, order[0])], key=SECRET)
        assert merged.evidence == of_files.evidence
        for family, all_of_them in packets.items():
            assert merged.evidence.rows[family].tolist() == sample(all_of_them, family, SIZE, SECRET)


@pytest.mark.slow
def test_the_smaller_sample_decides() -> None:
    large, small = sketch_of(1, size=2048), sketch_of(2, size=1024)
    packets = [packet for seed in (1, 2) for packet in random_packets(900, 4, 60, seed)]
    for whole in (large.copy().merge(small), small.copy().merge(large)):
        assert whole.evidence is not None
        assert whole.evidence.size == 1024
        assert whole.evidence.rows[4].tolist() == sample(packets, 4, 1024, SECRET)


def test_a_sketch_without_evidence_adds_none_and_takes_none_away() -> None:
    plain = sketch_of(2)
    plain.evidence = None
    own = sketch_of(1).evidence
    assert own is not None
    for whole in (sketch_of(1) | plain, plain | sketch_of(1), sketch_of(1) | plain | sketch_of(1)):
        assert whole.evidence is not None
        assert whole.evidence.rows[4].tolist() == own.rows[4].tolist()
        assert whole.evidence == own.as_lacking() != own
        assert not whole.evidence.is_whole(4)
        assert Sketch.from_bytes(whole.to_bytes(), key=SECRET).evidence == whole.evidence
    assert (Sketch() | sketch_of(1)).evidence == (sketch_of(1) | Sketch()).evidence == own


def test_evidence_of_another_key_is_refused() -> None:
    one, other = Sketch(), Sketch()
    one.evidence, other.evidence = sketch_of(1).evidence, sketch_of(1, secret=b"another key").evidence
    with pytest.raises(MergeError, match="evidence with key"):
        one.merge(other)


def too_many(arrays: dict[str, np.ndarray]) -> None:
    arrays["evidence/4"] = np.zeros((SIZE + 1, 6), np.uint64)
    arrays["evidence/4"][:, 0] = np.arange(SIZE + 1)


DAMAGE: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], Any]] = {
    "order": lambda header, arrays: arrays.update({"evidence/4": arrays["evidence/4"][::-1].copy()}),
    "repeated": lambda header, arrays: arrays["evidence/4"].__setitem__(1, arrays["evidence/4"][0]),
    "too many": lambda header, arrays: too_many(arrays),
    "width": lambda header, arrays: arrays.update({"evidence/4": arrays["evidence/4"][:, :5].copy()}),
    "no field": lambda header, arrays: header.pop("evidence"),
    "size": lambda header, arrays: header["evidence"].update(pairs=5),
    "key": lambda header, arrays: header["evidence"].update(key="0" * 16),
}


@pytest.mark.parametrize("change", DAMAGE)
def test_damaged_evidence_is_refused_and_changes_nothing(tmp_path: Path, change: str) -> None:
    """The digest of the file is right."""
    path = tmp_path / "damaged.cube"
    sketch_of(1).save(path)
    with CubeReader(path) as reader:
        header, arrays = dict(reader.header), reader.arrays()
    header.pop("arrays")
    DAMAGE[change](header, arrays)
    write(path, json.loads(json.dumps(header)), arrays)
    sketch = sketch_of(2)
    for read in (lambda: load(path, key=SECRET), lambda: sketch.merge_file(path, key=SECRET)):
        with pytest.raises((SketchFileError, MergeError)):
            read()
    assert sketch == sketch_of(2)
