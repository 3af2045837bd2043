"""The dictionary of names: which ones it keeps, against the oracle, and the probability of losing one."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive_names
from superhosts.core.columns.column import text_of
from superhosts.core.hashing import DEFAULT_KEY, make_key
from superhosts.core.textkeys import hash_texts, text_key
from superhosts.cubefile.header import ArrayError
from superhosts.detectors.hostnames import HostNames

KEY, TEXT_KEY = make_key(), text_key(DEFAULT_KEY)
Pairs = list[tuple[str, str]]


def empty(most: int) -> HostNames:
    return HostNames(most, KEY, TEXT_KEY)


def add(names: HostNames, pairs: Iterable[tuple[str | bytes, str]]) -> HostNames:
    hosts, peers = zip(*pairs, strict=True)
    text = text_of(hosts)
    names.add(hash_texts(text, TEXT_KEY), hash_texts(text_of(peers), TEXT_KEY), text)
    return names


def listed(names: HostNames) -> list[str]:
    """Return the names by rank."""
    arrays = names.arrays()
    ends = np.cumsum(arrays["namesizes"], dtype=np.int64)
    starts = ends - arrays["namesizes"]
    return [bytes(arrays["names"][a:b]).decode() for a, b in zip(starts, ends, strict=True)]


def same(left: HostNames, right: HostNames) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left.arrays().values(), right.arrays().values(), strict=True))


def traffic(hosts: int, pairs: int, seed: int = 1) -> Pairs:
    rng = np.random.default_rng(seed)
    chosen = (rng.pareto(0.5, pairs) * 5).astype(int) % hosts
    return [(f"host {h}", f"peer {p}") for h, p in zip(chosen, rng.integers(300, size=pairs), strict=True)]


def test_all_names_are_kept_while_they_fit() -> None:
    pairs = traffic(500, 3000)
    names = add(empty(5000), pairs)
    assert set(listed(names)) == {host for host, _ in pairs}


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 7, 100, 300])
def test_the_names_are_those_of_the_oracle(most: int) -> None:
    pairs = traffic(2000, 5000)
    names = empty(most)
    for start in range(0, len(pairs), 700):
        add(names, pairs[start : start + 700])
    assert listed(names) == naive_names.names_kept(set(pairs), most, DEFAULT_KEY)
    assert len(names) == most


@pytest.mark.slow
@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), min_size=1, max_size=60), st.integers(1, 12))
def test_any_pairs_in_any_order_and_any_number_of_parts(pairs: Pairs, most: int) -> None:
    whole = add(empty(most), pairs)
    assert same(whole, add(empty(most), [*reversed(pairs), *pairs]))
    half = len(pairs) // 2
    left, right = add(empty(most), pairs[: half + 1]), add(empty(most), pairs[half:])
    right.merge(left)
    assert same(whole, right)
    right.merge(right)
    assert same(whole, right)


def test_merging_small_parts_is_one_pass_over_all() -> None:
    """A part that forgot nothing may have names that the union forgets, and ranks that are not its true ones."""
    pairs = traffic(3000, 9000)
    whole, merged = add(empty(200), pairs), empty(200)
    for start, stop in ((0, 6000), (6000, 6300), (6300, 9000), (100, 200)):
        merged.merge(add(empty(200), pairs[start:stop]))
    assert same(whole, merged)


def test_a_file_holds_the_same_names() -> None:
    names = add(empty(300), traffic(2000, 5000))
    read = empty(300).read(names.arrays())
    assert same(names, read)
    more = traffic(2000, 5000, seed=2)
    assert same(add(names, more), add(read, more))  # The largest rank that matters is known, too.


def test_long_odd_and_empty_names() -> None:
    hosts = ["", "x" * 255, "y" * 256, "ü" * 1000, b"\xff\xfe", "#" + "a" * 32, "tab\tand\nline", "\ud800"]
    names = add(empty(100), [(host, "peer") for host in hosts])
    numbers = hash_texts(text_of(hosts), TEXT_KEY)
    found = names.find(numbers)
    tails = [f"…#{int(high) << 64 | int(low):032x}" for high, low in numbers]
    assert found[:2] == ["", "x" * 255]
    assert found[2] == "y" * 200 + tails[2]
    assert found[3] == "ü" * 100 + tails[3]
    assert found[4] == "\\xff\\xfe" + tails[4]
    assert found[5] == "#" + "a" * 32 + tails[5]
    assert found[6:] == ["tab\tand\nline", "\\ud800" + tails[7]]
    read = empty(100).read(names.arrays())
    assert read.find(numbers) == found
    read.merge(names)
    assert read.find(numbers) == found
    assert names.find(hash_texts(text_of(["nobody"]), TEXT_KEY)) == [None]


def test_a_whole_name_replaces_a_shortened_one_that_another_file_claims() -> None:
    number = naive_names.siphash(b"alice", *naive_names.key_of(DEFAULT_KEY))
    claimed = f"mallory…#{number:032x}".encode()
    forged = {
        "names": np.frombuffer(claimed, np.uint8),
        "namesizes": np.array([len(claimed)], np.uint16),
        "nameranks": np.zeros(1, np.uint64),
    }
    for order in (1, -1):
        two = [empty(10).read(forged), add(empty(10), [("alice", "bob")])][::order]
        two[0].merge(two[1])
        assert listed(two[0]) == ["alice"]


@pytest.mark.parametrize("most", [2000, 4000])
def test_hosts_with_many_peers_lose_their_names_as_rarely_as_promised(most: int) -> None:
    """Of N pairs and k names, a host with n peers is missed with a probability of at most about exp(−n·k/N)."""
    rng = np.random.default_rng(5)
    few, peers, big = 60_000, 20, 500
    hosts = np.concatenate([np.arange(few), few + np.repeat(np.arange(big), peers)])
    texts = [f"h{i}" for i in hosts]
    column = text_of(texts)
    names = empty(most)
    names.add(hash_texts(column, TEXT_KEY), rng.integers(1 << 62, size=len(hosts), dtype=np.uint64), column)
    kept = set(listed(names))
    missed = sum(f"h{few + i}" not in kept for i in range(big)) / big
    expected = math.exp(-peers * most / len(hosts))
    assert missed <= expected + 4 * math.sqrt(expected / big)


def arrays_of(*texts: bytes) -> dict[str, np.ndarray]:
    return {
        "names": np.frombuffer(b"".join(texts), np.uint8),
        "namesizes": np.array(list(map(len, texts)), np.uint16),
        "nameranks": np.arange(len(texts), dtype=np.uint64),
    }


BAD = {
    "name 1 is not UTF-8": arrays_of(b"a", b"\xff"),
    "name 0 is not UTF-8": arrays_of(b"\xc3", b"\xbc"),  # ü in two pieces
    "name 2 is not UTF-8": arrays_of(b"", b"", b"\xe2\x82"),
    "names a host twice": arrays_of(b"a", b"b", b"a"),
    "must be in ascending order": arrays_of(b"a", b"b") | {"nameranks": np.array([2, 1], np.uint64)},
    "2 sizes, must be as many as nameranks": arrays_of(b"a", b"b") | {"nameranks": np.zeros(1, np.uint64)},
    "up to 255 bytes each, 3 in all": arrays_of(b"a", b"b") | {"names": np.zeros(3, np.uint8)},
    "up to 255 bytes each, 256 in all": arrays_of(b"a" * 256),
    "11 sizes, must be of at most 10 names": arrays_of(*(b"%d" % i for i in range(11))),
}


@pytest.mark.parametrize("reason", BAD)
def test_names_of_hostile_files_are_refused(reason: str) -> None:
    with pytest.raises(ArrayError, match=reason):
        empty(10).read(BAD[reason])
