"""Dense cubes, and the comparison of cubes and CBAA with their oracles."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

import naive
from superhosts import Cbaa, Cube
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.core.pairs import numbers_to_array

dense_cube = partial(Cube, exact=False)  # bits and labels from the first pair on


def filled_oracle(cube: Cube, pairs: list[tuple[int, int]]) -> naive.Cube:
    oracle = naive.Cube(cube.geometry._asdict(), DEFAULT_KEY)
    for host, peer in set(pairs):
        oracle.update(host, peer)
    return oracle


def assert_equal_to_oracle(cube: Cube, pairs: list[tuple[int, int]]) -> None:
    oracle = filled_oracle(cube, pairs)
    bits = np.zeros((cube.geometry.total_columns, cube.geometry.rows), bool)
    for column, rows in oracle.columns.items():
        bits[column, list(rows)] = True
    _assert_bits(cube, bits)
    labels = np.zeros_like(cube.labels)
    for place, word in oracle.labels.items():
        labels[place] = word
    assert np.array_equal(cube.labels, labels)


def assert_equal_to_oracle_of_cbaa(detector: Cbaa, oracle: naive.Cbaa) -> None:
    bits, edges = np.zeros((detector.geometry.total_columns, detector.geometry.rows), bool), detector.geometry.edges
    for (slice_, array, column), rows in oracle.arrays.items():
        bits[slice_ * edges[-1] + edges[array] + column, list(rows)] = True
    _assert_bits(detector, bits)


def _assert_bits(sketch: Cube | Cbaa, bits: NDArray[np.bool_]) -> None:
    sketch.flush()
    stored = np.unpackbits(sketch.bits.view(np.uint8), axis=1, bitorder="little").astype(bool)
    assert np.array_equal(stored, bits)
    assert np.array_equal(sketch.zeros, (~bits).sum(axis=1))


def random_pairs(bits: int, peer_bits: int, count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Return pairs of few hosts and repeated peers, with collisions of every kind."""
    rng = np.random.default_rng(seed)
    hosts = [int(x) * 0x9E3779B97F4A7C15F39CC0605CEDC835 & (1 << bits) - 1 for x in rng.integers(0, 40, count)]
    peers = [int(x) * 0x9E3779B97F4A7C15F39CC0605CEDC835 & (1 << peer_bits) - 1 for x in rng.integers(0, 300, count)]
    return list(zip(hosts, peers, strict=True))


def feed(cube: Cube, pairs: list[tuple[int, int]], peer_bits: int) -> None:
    hosts = numbers_to_array([host for host, _ in pairs], cube.key_bits)
    cube.update(hosts, numbers_to_array([peer for _, peer in pairs], peer_bits))
