"""The streaming detector against its oracle, its intervals, its exact state and its files."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import naive
import superhosts as sh
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.core.results import UNBOUNDED
from superhosts.core.units import parse_size
from superhosts.detectors.stream import Geometry, Stream
from superhosts.errors import GeometryError, MergeError, SketchFileError, ThresholdWarning, UsageError

SIZES = {"words": 20, "buckets": 3}


def traffic(count: int, key_bits: int = 32, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of two hundred hosts, of very different numbers of peers, some of them twice."""
    rng = np.random.default_rng(seed)
    hosts = np.minimum(rng.geometric(0.02, count), 200).astype(np.uint64)
    peers = rng.integers(0, 3000, count, dtype=np.uint64)
    if key_bits == 32:
        return hosts.astype(np.uint32), peers.astype(np.uint32)
    if key_bits == 64:
        return hosts << np.uint64(40), np.column_stack((peers, peers * np.uint64(3)))
    return np.column_stack((hosts, hosts << np.uint64(50))), np.column_stack((peers, peers))


def number(words: Any) -> int:
    return int(words[0]) << 64 | int(words[1]) if np.ndim(words) else int(words)


def cells(stream: Stream) -> dict[int, tuple[float, float]]:
    arrays = stream.arrays()
    hosts = [sum(int(word) << 64 * place for place, word in enumerate(row[::-1])) for row in arrays["hosts"]]
    found = zip(hosts, arrays["counts"].tolist(), arrays["variances"].view(np.float32).tolist(), strict=True)
    return {host: (count, variance) for host, count, variance in found if count}


@pytest.mark.parametrize("key_bits", [32, 64, 128])
def test_it_holds_what_the_oracle_holds(key_bits: int) -> None:
    hosts, peers = traffic(6000, key_bits)
    for slice_bits, threads in ((0, 1), (0, 3), (2, 1), (2, 3)):
        stream = Stream(geometry=Geometry(key_bits, slice_bits, **SIZES), threads=threads)
        stream.tuning = stream.tuning._replace(min_pairs_per_thread=100)
        oracle = naive.Stream(key_bits, slice_bits, **SIZES, secret=DEFAULT_KEY)
        for start in range(0, len(hosts), 1000):
            stream.update(hosts[start : start + 1000], peers[start : start + 1000])
        for host, peer in zip(hosts, peers, strict=True):
            oracle.update(number(host), number(peer))
        assert cells(stream) == oracle.cells()
        bits = np.unpackbits(stream.arrays()["bits"].view(np.uint8), axis=1, bitorder="little")
        assert [set(np.flatnonzero(row).tolist()) for row in bits] == oracle.bits
        assert not stream.exact


def test_numbers_are_right_on_average_and_intervals_hold_them() -> None:
    """Of 40 windows with other keys: 95 % intervals hold 94 to 98 % of the truths, by the binomial law ± 1.4 %."""
    rng = np.random.default_rng(5)
    sizes = np.concatenate([np.geomspace(300, 4000, 24).astype(np.int64), np.full(20_000, 2)])
    hosts = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    truth, held, errors = sizes[:24], [], []
    for seed in range(40):
        order = rng.permutation(len(hosts))
        stream = Stream("16KiB", key=b"window %06d" % seed, threads=1)
        stream.update(hosts[order], rng.integers(0, 1 << 32, len(hosts), dtype=np.uint32))
        found = stream.estimate(np.arange(24, dtype=np.uint32))
        held.append((found.peers_low <= truth) & (truth <= found.peers_high))
        errors.append(found.peers / truth - 1)
    assert 0.93 < np.mean(held) < 0.99
    deviations = np.std(errors, axis=0, ddof=1) / np.sqrt(40)
    assert (np.abs(np.mean(errors, axis=0)) < 4 * deviations).all()


def test_it_is_exact_while_the_pairs_fit() -> None:
    hosts, peers = traffic(3000)
    truth = naive.peers(list(zip(hosts.tolist(), peers.tolist(), strict=True)))
    stream = Stream("256KiB")
    stream.update(hosts, peers)
    found = stream.super_hosts(1)
    assert dict(zip(found.hosts.tolist(), found.peers.tolist(), strict=True)) == truth
    assert found.exact.all()
    assert stream.exact
    assert stream.least_listed == 1
    assert [row.peers for row in stream.top(3)] == sorted(truth.values())[:-4:-1]
    assert stream.estimate(7).peers == truth[7]
    assert stream.estimate(1 << 20).peers == 0
    many = np.arange(stream.geometry.exact_pairs, dtype=np.uint32)
    twin = stream.copy()
    stream.update(many, many)
    assert not stream.exact
    assert not stream.super_hosts(1000).exact.any()
    assert twin.exact
    assert twin == twin.copy()


def test_files_of_an_exact_window_are_exact(tmp_path) -> None:
    hosts, peers = traffic(3000, 64)
    stream = Stream("256KiB", key_bits=64, key=b"a secret of a site")
    stream.update(hosts, peers)
    stream.save(tmp_path / "a.cube")
    loaded = sh.load(tmp_path / "a.cube", key=b"a secret of a site").part(sh.Part(6))
    assert loaded == stream
    assert loaded.super_hosts(1).to_dict() == stream.super_hosts(1).to_dict()
    assert loaded.estimate(hosts[:9]).to_dict() == stream.estimate(hosts[:9]).to_dict()
    loaded.save(tmp_path / "b.cube")
    assert (tmp_path / "a.cube").read_bytes() == (tmp_path / "b.cube").read_bytes()
    loaded.update(hosts[:1], peers[:1])  # It cannot know whether this pair is new.
    assert not loaded.exact
    assert loaded == stream


def test_files_of_others_answer_as_before() -> None:
    hosts, peers = traffic(6000, 128)
    stream = Stream(geometry=Geometry(128, 1, **SIZES), threads=2)
    stream.update(hosts, peers)
    again = pickle.loads(pickle.dumps(stream))
    assert again == stream
    assert again.super_hosts(100).to_dict() == stream.super_hosts(100).to_dict()
    stream.update(hosts[::-1], peers[::-1])
    again.update(hosts[::-1], peers[::-1])
    assert again == stream


def test_hosts_without_a_cell_have_few_peers() -> None:
    stream = Stream(geometry=Geometry(32, 0, words=2000, buckets=3))
    hosts, peers = traffic(60_000)
    stream.update(hosts, peers)
    truth = naive.peers(list(zip(hosts.tolist(), peers.tolist(), strict=True)))
    found = [row for row in stream.estimate(np.array(list(truth), np.uint32)) if row.peers == 0]
    assert len(found) > 100
    assert np.mean([row.peers_high >= truth[int(row.host)] for row in found]) > 0.95
    least = stream.least_listed
    assert {host for host, count in truth.items() if count > 4 * least} <= set(stream.top(24).hosts.tolist())


def test_a_full_one_says_so_and_gives_no_upper_bounds() -> None:
    stream = Stream(geometry=Geometry(32, 0, words=2, buckets=8))
    hosts = np.repeat(np.arange(8, dtype=np.uint32), 500)
    stream.update(hosts, np.arange(len(hosts), dtype=np.uint32))
    with pytest.warns(ThresholdWarning, match=r"8\d\.\d% of the bits of this stream are set"):
        (first, *_) = stream.top(8)
    assert first.saturated
    assert first.peers is first.peers_high is None
    assert stream.estimate(np.arange(8, dtype=np.uint32)).peers_high.tolist() == [UNBOUNDED] * 8


def test_it_cannot_be_merged_and_says_what_can() -> None:
    one, other = Stream("64KiB"), Stream("64KiB")
    for work in (lambda: one.merge(other), lambda: one | other):
        with pytest.raises(MergeError, match=r"cannot merge stream sketches: .* take a cube .*which merges exactly"):
            work()


def test_sizes_and_devices_that_it_does_not_take_are_refused() -> None:
    with pytest.raises(GeometryError, match=r"memory 1KiB is too small: a stream takes from 4 KiB to 2 GiB"):
        Stream("1KiB")
    with pytest.raises(GeometryError, match=r"memory 4GiB is too large: a stream takes"):
        Stream("4GiB")
    with pytest.raises(GeometryError, match=r"geometry: a stream has sizes of its own"):
        Stream(geometry=sh.Cube("1MiB").geometry)
    with pytest.raises(UsageError, match="stream runs on the CPU only"):
        Stream("64KiB", device="cuda")
    for memory in ("4KiB", "64KiB", "100KB", "1MiB", "3MiB", "512MiB"):
        for key_bits in (32, 64, 128):
            stream = Stream(memory, key_bits=key_bits)
            assert 0.95 * parse_size(memory) <= stream.geometry.memory <= parse_size(memory)
            assert sum(array.nbytes for array in stream.arrays().values()) == stream.geometry.memory


@pytest.mark.parametrize("damage", ["nan", "negative", "large", "twice", "nobody", "many", "cells", "bits"])
def test_files_with_impossible_content_are_refused(damage: str) -> None:
    hosts, peers = traffic(3000)
    stream = Stream("256KiB")
    stream.update(hosts, peers)
    arrays = stream._file_arrays()
    arrays = {name: array.copy() for name, array in arrays.items()}
    used = np.flatnonzero(arrays["counts"])
    if damage == "twice":
        arrays["knownhosts"][1] = arrays["knownhosts"][0]
    elif damage in ("nobody", "many"):
        arrays["knownpeers"][1] = 0 if damage == "nobody" else 1 << 31
    elif damage == "cells":
        arrays["hosts"][used[1]] = arrays["hosts"][used[0]]
    elif damage == "bits":
        arrays["bits"][:] = ~np.uint64(0)
    else:
        arrays["variances"].view(np.float32)[3] = {"nan": np.nan, "negative": -1.0, "large": 3e38}[damage]
    stream._file_arrays = lambda: arrays
    data = stream.to_bytes()
    with pytest.raises(SketchFileError, match=r"variance|come twice|no peers, or more|two cells|more bits are set"):
        Stream.from_bytes(data)


@pytest.mark.parametrize("key_bits", [32, 64, 128])
def test_an_empty_one_is_saved_and_loaded(key_bits: int) -> None:
    stream = Stream("64KiB", key_bits=key_bits)
    again = pickle.loads(pickle.dumps(stream))
    assert again == stream
    assert again.exact
    assert len(again.top(5)) == 0


def test_a_file_that_claims_more_hosts_than_an_exact_window_has_is_refused_before_they_are_read() -> None:
    stream = Stream("8KiB")
    arrays = stream._file_arrays()
    many = stream.geometry.exact_pairs + 1
    arrays |= {"knownhosts": np.arange(many, dtype=np.uint32)[:, None], "knownpeers": np.ones(many, np.uint32)}
    stream._file_arrays = lambda: arrays  # type: ignore[method-assign]
    with pytest.raises(SketchFileError, match="an exact window has more hosts than it can have pairs"):
        Stream.from_bytes(stream.to_bytes())


def test_hosts_that_have_a_cell_by_chance_are_not_listed() -> None:
    """Many hosts of one peer each, and ten of a thousand: below what a host may inherit, nothing is known."""
    stream = Stream("8KiB")
    hosts = np.concatenate([np.arange(1000, 60_000, dtype=np.uint32), np.repeat(np.arange(10, dtype=np.uint32), 1000)])
    order = np.random.default_rng(3).permutation(len(hosts))
    stream.update(hosts[order], order)
    assert stream.least_listed > 20
    with pytest.warns(
        ThresholdWarning, match=r"threshold 20 is low for this stream: hosts with up to \d+ peers have a"
    ):
        found = stream.super_hosts(20)
    assert set(found.hosts.tolist()) >= set(range(10))
    assert found.peers.min() >= stream.least_listed - 1
    assert set(stream.top(1000).hosts.tolist()) == set(found.hosts.tolist())
