"""What docs/explanation/security.md says of somebody who knows the key, and of somebody who does not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import naive
import superhosts as sh
from docs.test_format_page import reader
from places import DOCS

KEY, OTHER = b"a key that the attacker knows", b"a key that he does not know"
HOST, PEERS = 0x0A010203, np.arange(1500, dtype=np.uint32) * 7919


def cube_with(key: bytes, pairs: list[tuple[int, int]]) -> sh.Cube:
    cube = sh.Cube(memory="128MiB", exact=False, key=key, device="cpu")
    cube.update(np.full(len(PEERS), HOST, np.uint32), PEERS)
    hosts, peers = zip(*pairs, strict=True) if pairs else ((), ())
    cube.update(np.array(hosts, np.uint32), np.array(peers, np.uint32))
    return cube


def priorities(cube: naive.Cube, mangled: int, peer: int) -> list[int]:
    """The priorities of a pair for the labels of the arrays, by the steps of docs/reference/format.md."""
    ticket, found = naive.pair_hash(naive.fold(mangled, cube.key), naive.fold(peer, cube.key), cube.key), []
    for array in range(cube.g["arrays"]):
        if array and array % 4 == 0:
            ticket = naive.pair_hash(ticket, cube.key.pair[1], cube.key)
        turn = 16 * (array % 4)
        found.append(((ticket << turn | ticket >> (64 - turn)) & naive.M64) >> 32)
    return found


def taking_labels() -> list[tuple[int, int]]:
    """Return pairs that take the labels of the super host: one for each array."""
    cube = naive.Cube(cube_with(KEY, []).geometry._asdict(), KEY)
    low = cube.g["slice_bits"] + cube.g["label_bits"]
    mangled = naive.mangle(HOST, 32, cube.key)
    highest = np.max([priorities(cube, mangled, int(peer)) for peer in PEERS], axis=0)
    places, words = cube.places(mangled), reader.make_key(KEY)[1]
    pairs = []
    for array in range(cube.g["arrays"]):
        same_label = (high << low | mangled % (1 << low) for high in itertools.count(1))
        other = next(m for m in same_label if m != mangled and cube.places(m)[array] == places[array])
        peer = next(peer for peer in itertools.count() if priorities(cube, other, peer)[array] > highest[array])
        pairs.append((reader.unmangle(other, 32, words), peer))
    return pairs


@pytest.mark.slow
def test_who_knows_the_key_hides_a_super_host_with_one_packet_for_each_array() -> None:
    pairs = taking_labels()
    assert len(pairs) == 5
    assert "five in the default cube" in (DOCS / "explanation" / "security.md").read_text("utf-8")
    assert len(cube_with(KEY, []).super_hosts(1024)) == 1
    assert len(cube_with(KEY, pairs[:4]).super_hosts(1024)) == 1
    assert len(cube_with(KEY, pairs).super_hosts(1024)) == 0
    assert [str(row.host) for row in cube_with(OTHER, pairs).super_hosts(1024)] == ["10.1.2.3"]


def test_who_has_the_key_and_a_sketch_can_test_a_guess() -> None:
    cube = cube_with(KEY, [])
    plain, bits = naive.Cube(cube.geometry._asdict(), KEY), cube.bits
    mangled = naive.mangle(HOST, 32, plain.key)

    def is_set(peer: int) -> bool:
        row = naive.pair_hash(naive.fold(mangled, plain.key), naive.fold(peer, plain.key), plain.key) % 65_536
        turned = [plain.turned(row, mangled, array) for array in range(plain.g["arrays"])]
        columns = zip(plain.places(mangled), turned, strict=True)
        return all(int(bits[column][place // 64]) >> place % 64 & 1 for column, place in columns)

    assert all(is_set(int(peer)) for peer in PEERS)
    passing = sum(is_set(1 << 31 | number) for number in range(4000))
    mean = 4000 * len(PEERS) / 65_536  # 92; the standard deviation is below 10
    assert mean - 50 < passing < mean + 50
