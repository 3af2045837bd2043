"""The labelled cube against the oracle: no pair is lost, bits and labels are equal, and hosts are recovered."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from cubes import assert_equal_to_oracle, dense_cube, feed, filled_oracle, random_pairs
from shapes import SHAPES, Shape, ddos_victim, one_scanner, zipf
from superhosts import Cube, Geometry, GeometryError, ThresholdWarning, UsageError
from superhosts.core.pairs import Part, numbers_to_array
from superhosts.detectors.engines.base import Tuning
from superhosts.fleet.intake import expected_kinds
from superhosts.pipeline.settings import Settings
from tuned import tuned

SMALL = Geometry(32, 3, 3, 10, 17, 2, 1, giants=2)  # small enough that everything collides


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("bits", "peer_bits"), [(32, 32), (32, 64), (32, 128), (64, 64), (64, 128), (128, 128)])
def test_bits_and_labels_are_the_oracles_for_every_width(bits, peer_bits, threads):
    kind = tuned(Cube, Tuning(min_pairs_per_thread=64))  # lets several threads work on few pairs
    cube = kind(geometry=SMALL._replace(key_bits=bits), threads=threads)
    pairs = random_pairs(bits, peer_bits, 3000)
    feed(cube, pairs, peer_bits)
    assert_equal_to_oracle(cube, pairs)


@given(
    slice_bits=st.integers(0, 9),
    arrays=st.integers(1, 8),
    column_bits=st.integers(6, 12),
    columns=st.integers(2, 40),
    label_bits=st.integers(0, 4),
    share_bits=st.integers(0, 6),
    giants=st.integers(0, 3),
    sample_bits=st.integers(0, 3),
    turned_lines=st.integers(0, 1),
    seed=st.integers(0, 1000),
)
def test_any_legal_geometry(seed, **sizes):
    geometry = Geometry(key_bits=32, **sizes)
    cube = dense_cube(geometry=geometry, threads=2)
    pairs = random_pairs(32, 32, 200, seed)
    feed(cube, pairs, 32)
    assert_equal_to_oracle(cube, pairs)


def test_the_all_zero_pair_is_not_taken_for_a_repeat():
    for bits, peer_bits in ((32, 32), (64, 64), (128, 128)):
        cube = dense_cube(geometry=SMALL._replace(key_bits=bits), threads=1)
        feed(cube, [(0, 0), (1, 1)], peer_bits)
        assert_equal_to_oracle(cube, [(0, 0), (1, 1)])


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_super_hosts_of_named_shapes(shape: Shape):
    """The cube finds all hosts clearly above the threshold, none clearly below, and only hosts that were seen."""
    cube = dense_cube("16MiB")
    cube.update(shape.hosts, shape.peers)
    truth, threshold = shape.truth, 1024
    rows = cube.super_hosts(threshold)
    found = dict(zip(rows.hosts.tolist(), rows, strict=True))
    assert set(found) <= set(truth)
    sigma = np.sqrt(4096 * (np.exp(0.25) - 1.25))  # linear counting at the threshold, 12 column bits; 5 deviations
    for host, peers in truth.items():
        if peers >= threshold + 5 * sigma:
            assert host in found
        elif peers <= threshold - 5 * sigma:
            assert host not in found
    for host, row in found.items():
        if not row.saturated:  # 95 % intervals are 1.96 deviations wide; the truth must be within 3 times that.
            assert abs(row.peers - truth[host]) <= 3 * (row.peers_high - row.peers_low) / 2 + 1


def test_every_reported_host_was_seen_even_in_a_crowded_cube():
    shape = zipf()
    cube = dense_cube("256KiB")
    cube.update(shape.hosts, shape.peers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)
        found = cube.super_hosts(200)
    assert len(found) > 0
    assert set(found.hosts.tolist()) <= set(shape.truth)


@pytest.mark.parametrize("bits", [64, 128])
def test_wide_hosts_come_back(bits):
    rng = np.random.default_rng(7)
    numbers = [int.from_bytes(rng.bytes(bits // 8)) for _ in range(5)]
    sizes = [400, 700, 1500, 2500, 9000]
    cube = dense_cube("8MiB", key_bits=bits)
    for number, size in zip(numbers, sizes, strict=True):
        peers = rng.integers(0, 1 << 63, (size, 2), dtype=np.uint64)
        cube.update(np.repeat(numbers_to_array([number], bits), size, axis=0), peers)
    found = cube.super_hosts(1000)
    assert [row.host for row in found] == [cube.format.to_host(n) for n in (numbers[4], numbers[3], numbers[2])]
    assert cube.estimate(str(cube.format.to_host(numbers[0]))).peers == pytest.approx(400, rel=0.1)


def test_estimate_of_any_host_agrees_with_the_oracles_equations():
    shape = one_scanner()
    cube = dense_cube(geometry=SMALL._replace(column_bits=13))
    cube.update(shape.hosts, shape.peers)
    oracle = filled_oracle(cube, list(zip(shape.hosts.tolist(), shape.peers.tolist(), strict=True)))
    for host in [int(shape.hosts[0]), int(shape.hosts[-1]), 12345]:
        zeros, common = oracle.zeros(host)
        row = cube.estimate(host)
        assert row.peers == pytest.approx(naive.estimate(zeros, common, 1 << 13), abs=0.51)
        assert row.peers_low <= row.peers <= row.peers_high


def test_top_gives_the_largest_in_order():
    shape = zipf()
    cube = dense_cube("32MiB")
    cube.update(shape.hosts, shape.peers)
    top = cube.top(10)
    assert len(top) == 10
    truth = sorted(shape.truth.values(), reverse=True)[:10]
    assert top.peers.tolist() == pytest.approx(truth, rel=0.05)
    assert list(top.peers) == sorted(top.peers, reverse=True)
    assert len(cube.top(1_000_000)) < 1_000_000
    assert len(dense_cube("1MiB").top(3)) == 0


def test_saturated_hosts_are_reported_whatever_the_threshold():
    cube = dense_cube(geometry=SMALL._replace(column_bits=6, giants=0))
    shape = ddos_victim()
    cube.update(shape.hosts, shape.peers)
    (row,) = cube.super_hosts(100)
    assert row.saturated
    assert (row.peers, row.peers_low, row.peers_high) == (None, 182, None)  # 64·(ln 64 − ln 3.69)
    assert cube.fill().saturated == 3
    with pytest.warns(ThresholdWarning, match="more than 266 peers cannot be measured"):
        found = cube.super_hosts(10_000)
    assert found.hosts.tolist() == [int(shape.hosts[0])]


ILLEGAL = (
    ({"slice_bits": 17}, "slice_bits=17: must be a whole number from 0 to 16"),
    ({"arrays": 0}, "arrays=0: must be a whole number from 1 to 8"),
    ({"column_bits": 5}, "column_bits=5"),
    ({"columns": 1}, "columns=1"),
    ({"label_bits": 11}, "label_bits=11"),
    ({"share_bits": -1}, "share_bits=-1"),
    ({"share_bits": 7}, "share_bits=7: must be a whole number from 0 to 6"),
    ({"giants": -1}, "giants=-1"),
    ({"sample_bits": 9}, "sample_bits=9"),
    ({"turned_lines": 2}, "turned_lines=2"),
    ({"key_bits": 33}, "key_bits=33: must be 32, 64 or 128"),
)


def test_illegal_geometries_are_refused_with_the_rule():
    for change, rule in ILLEGAL:
        with pytest.raises(GeometryError, match=rule):
            dense_cube(geometry=SMALL._replace(**change))
    with pytest.raises(GeometryError, match=r"too small.*two columns"):
        dense_cube("100B")
    assert Geometry.for_memory("128MiB") == Geometry(32, 6, 5, 16, 47, 6, 3, giants=1)  # as the documents say


@given(st.integers(1 << 13, 1 << 40), st.sampled_from([32, 64, 128]))
def test_geometry_fills_the_memory_and_never_exceeds_it(memory, bits):
    geometry = Geometry.for_memory(memory, bits)
    assert geometry.memory <= memory
    assert geometry._replace(columns=geometry.columns + 1).memory > memory


def test_thresholds_that_cannot_be_are_refused():
    cube = dense_cube("1MiB")
    one = np.zeros(1, np.uint32)
    for threshold in (0, -1, 0.5, float("nan")):
        with pytest.raises(UsageError, match=r"threshold .*at least 1"):
            cube.super_hosts(threshold)
    cube.update(one[:0], one[:0])
    assert len(cube.super_hosts(1)) == 0


# Labels that are mixed or forged, as a damaged file or two pairs of equal priority can leave them

CROWD = Geometry(64, 0, 3, 8, 4, 1, 0)


def spelled(cube: Cube, host: int) -> list[tuple[int, int]]:
    """Return the places (column, label) whose labels name a host, in the order of the arrays."""
    high, low = (int(word) for word in cube.mangled(host)[0])
    assert high == 0
    words = (cube.labels & np.uint64(0xFFFFFFFF)).tolist()
    return [
        (column, label)
        for column, labels in enumerate(words)
        for label, limbs in enumerate(labels)
        if limbs == [low & 0xFFFFFFFF, low >> 32]
    ]


def crowded(device: str) -> tuple[Cube, dict[int, list[tuple[int, int]]]]:
    """Return a cube of two super hosts that no column shares, and where their labels are."""
    for other in range(2, 200):
        cube = dense_cube(geometry=CROWD, device=device)
        for host in (1, other):
            cube.update(np.full(150, host, np.uint64), np.arange(150, dtype=np.uint64))
        places = {host: spelled(cube, host) for host in (1, other)}
        if all(len(each) == 3 for each in places.values()):
            return cube, places
    raise AssertionError("no two hosts with labels of their own in all arrays")


def found(cube: Cube, threshold: float = 100) -> list[int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)  # the cube is tiny on purpose
        return sorted(cube.super_hosts(threshold).hosts.tolist())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_labels_that_are_mixed_or_in_a_wrong_place(device):
    cube, places = crowded(device)
    (host, (mine, *_)), (_, (theirs, *_)) = places.items()
    good, lowest = cube.arrays(), cube.search_for(100).priority
    own = good["labels"][mine]

    def found_with(*changes) -> list[int]:
        labels = good["labels"].copy()
        for place, label in changes:
            labels[place] = label
        cube.load_arrays({**good, "labels": labels})
        return found(cube)

    assert found_with(((theirs[0], mine[1]), own)) == sorted(places)  # The index is right, the column is not.
    assert found_with(((mine[0], 1 - mine[1]), own)).count(host) == 1  # The column is right, the index is not.
    assert host in found_with((mine, own + np.array([0, 1 << 32], np.uint64)))  # Its words have two priorities.
    assert host in found_with((mine, good["labels"][theirs]))  # Another host has won this one.
    # With 100 peers, one of them has a high priority, except with a tiny probability.
    for priority, is_named in ((lowest, True), (lowest - 1, False)):
        words = [(place, good["labels"][place] & np.uint64(0xFFFFFFFF)) for place in places[host]]
        assert (host in found_with(*((place, word | np.uint64(priority << 32)) for place, word in words))) is is_named


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_empty_labels_name_nobody(device):
    """An empty label spells the mangled host 0. Here all columns are hot, its own too."""
    cube = dense_cube(geometry=CROWD, device=device)
    arrays = cube.arrays()
    cube.load_arrays({"bits": np.full_like(arrays["bits"], ~np.uint64(0)), "labels": arrays["labels"]})
    assert found(cube) == found(cube, 2) == []


@pytest.mark.parametrize("bits", [None, 32, 64, 128])
def test_a_geometry_may_be_given_as_text(bits):
    geometry = SMALL._replace(key_bits=bits or 32)
    assert Cube(geometry=geometry.spelled, key_bits=bits, device="cpu").geometry == geometry
    with pytest.raises(GeometryError, match="'slices=3' is not a geometry"):
        Cube(geometry="slices=3", device="cpu")
    with pytest.raises(UsageError, match="memory=1MiB cannot be combined with a geometry"):
        Cube("1MiB", geometry=geometry.spelled, device="cpu")


# The text form of a geometry: plan prints it, and every command that makes cubes parses it

TEXT = "slices=8,arrays=4,columns=17,rows=1024,labels=4,share=2"
SPELLED = Geometry(32, 3, 4, 10, 17, 2, 1)


def test_spelling_and_reading() -> None:
    assert SPELLED.spelled == TEXT
    assert Geometry.parse(TEXT) == SPELLED
    assert Geometry.parse("rows=1024, share=2, labels=4, slices=8, columns=17, arrays=4") == SPELLED
    assert Geometry.parse(TEXT, 128) == SPELLED._replace(key_bits=128)
    for geometry in (Geometry.for_memory("128MiB"), Geometry.for_traffic("8MiB", flows="20M", threshold=300)):
        assert Geometry.parse(geometry.spelled) == geometry


NONE = (
    ("128MiB", "'128MiB' is invalid; write it as superhosts plan prints it: slices=64"),
    (TEXT.replace("share=2", "share=x"), "'share=x' is invalid"),
    (TEXT.replace("share=2", "share=-2"), "'share=-2' is invalid"),
    (TEXT.replace("arrays=4", "arrays=0"), "'arrays=0' is invalid"),
    (TEXT + ",arrays=4", "'arrays=4' is invalid"),
    (TEXT + ",height=4", "'height=4' is invalid"),
    ("slices=8,arrays=4,columns=17", "labels, rows, share missing"),
    (TEXT.replace("rows=1024", "rows=1000"), "rows=1000 must be a power of two"),
    (TEXT.replace("columns=17", "columns=1"), "columns=1"),
    (TEXT.replace("arrays=4", "arrays=99"), "arrays=99"),
)


def test_a_geometry_that_is_none() -> None:
    for text, words in NONE:
        with pytest.raises(GeometryError, match=words):
            Settings(geometry=text)
    for options, words in (({"memory": "64MiB"}, "choose one"), ({"detector": "cbaa"}, 'only with detector="cube"')):
        with pytest.raises(UsageError, match=words):
            Settings(geometry=TEXT, **options)


def test_settings_make_cubes_of_it() -> None:
    settings = Settings(geometry=TEXT, ipv6_prefix=128, device="cpu", threads=2)
    assert settings.make_detector(Part(4, "inner", "any")).geometry == SPELLED
    wide = settings.make_detector(Part(6, "inner", "any"))
    assert wide.geometry == SPELLED._replace(key_bits=128)
    assert settings.cube_memory == wide.geometry.memory > SPELLED.memory
    assert settings.most_memory == (SPELLED.memory * 3 // 2) + (wide.geometry.memory * 3 // 2) + (2 * 2 * 4 << 20)
    assert settings.fingerprint != Settings(ipv6_prefix=128).fingerprint
    assert expected_kinds(settings) != expected_kinds(Settings(ipv6_prefix=128, device="cpu"))


@pytest.mark.parametrize(
    ("memory", "pairs", "least"), [("64KiB", 1_000_000, 0.8), ("100KB", 1_000_000, 0.85), ("256KiB", 2_000_000, 0.85)]
)
def test_a_small_cube_that_is_told_nothing_finds_most_of_the_largest_hosts(memory, pairs, least):
    """F1 of the largest 100: .87 to .94 over three windows each; .53 to .73 if every pair is written."""
    random, count = np.random.default_rng(1), pairs // 15
    sizes = np.minimum(random.pareto(1.05, count) + 1, count)
    sizes = np.maximum(1, sizes * pairs / sizes.sum()).astype(np.int64)
    names = random.permutation(np.unique(random.integers(0, 1 << 32, 2 * count, dtype=np.uint32)))[:count]
    hosts = random.permutation(np.repeat(names, sizes))
    cube = Cube(memory, device="cpu", exact=False)
    cube.update(hosts, random.integers(0, 1 << 32, len(hosts), dtype=np.uint32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)
        found = set(cube.top(100).hosts.tolist())
    right = len(found & set(names[np.argsort(-sizes)][:100].tolist()))
    assert 2 * right / (100 + len(found)) > least
