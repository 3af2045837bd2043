"""Hashing: bijections with inverses, one result in all worlds, no structure left of structured addresses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from superhosts.core import hashing
from superhosts.core.hashing import DEFAULT_KEY, fingerprint, make_key, mangle_column, secret_of
from superhosts.errors import UsageError
from superhosts.jit.cache import compiled

SECRETS = [DEFAULT_KEY, b"another secret", b"\x00" * 32]
KEY, PLAIN, ORACLE = make_key(), make_key(integer=int), naive.Key(DEFAULT_KEY)


def u64(x: int) -> np.uint64:
    return np.uint64(x)


def draw_of(array: int, key: hashing.Key) -> tuple[np.uint64, np.uint64]:
    """The draw of an array, unsigned as kernels have it (called from Python, compiled code returns plain numbers)."""
    first, second = hashing.column_draw(array, key)
    return u64(first), u64(second)


@compiled
def fold_all(pairs: np.ndarray, key: hashing.Key) -> np.ndarray:
    return np.array([hashing.fold(pairs[i, 0], pairs[i, 1], key) for i in range(len(pairs))], np.uint64)


@compiled
def columns_of(folded: np.ndarray, draw: tuple[int, int], columns: int) -> np.ndarray:
    return np.array([hashing.column_hash(x, draw, columns) for x in folded], np.int64)


@compiled
def pair_hashes(host: int, peers: np.ndarray, key: hashing.Key) -> np.ndarray:
    return np.array([hashing.pair_hash(host, peer, key) for peer in peers], np.uint64)


def words(numbers: list[int]) -> np.ndarray:
    return np.array([(n >> 64, n & naive.M64) for n in numbers], np.uint64).reshape(-1, 2)


def structured(bits: int) -> dict[str, list[int]]:
    """Addresses as networks have them, not as random number generators make them."""
    shift = max(0, bits - 32)
    return {
        "10.0.0.0/8, every 4096th": [(10 << 24 | i << 12) << shift for i in range(4096)],
        "last octet .1": [(10 << 24 | i << 8 | 1) << shift for i in range(4096)],
        "one /20": [(192 << 24 | 168 << 16 | i) << shift for i in range(4096)],
        "low bits": list(range(4096)),
    }


@pytest.mark.parametrize("bits", [32, 64, 128])
@given(data=st.data())
def test_mangling_is_undone_by_its_inverse_and_equals_the_oracle(bits, data):
    numbers = data.draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=1, max_size=20))
    secret = data.draw(st.sampled_from(SECRETS))
    key = make_key(secret)
    mangled = mangle_column(words(numbers), bits, False, key)
    oracle = naive.Key(secret)
    assert [int(h) << 64 | int(low) for h, low in mangled] == [naive.mangle(n, bits, oracle) for n in numbers]
    assert np.array_equal(mangle_column(mangled, bits, True, key), words(numbers))


@given(st.integers(0, naive.M64), st.integers(0, naive.M64))
def test_plain_python_compiled_code_and_oracle_give_the_same_bits(a, b):
    compiled_pair = int(hashing.pair_hash(u64(a), u64(b), KEY))
    assert compiled_pair == hashing.pair_hash.py_func(a, b, PLAIN) == naive.pair_hash(a, b, ORACLE)
    compiled_fold = int(hashing.fold(u64(a), u64(b), KEY))
    assert compiled_fold == hashing.fold.py_func(a, b, PLAIN) == naive.fold(a << 64 | b, ORACLE)
    low = a & naive.M32
    assert int(hashing.mangle32(u64(low), KEY)) == hashing.mangle32.py_func(low, PLAIN) == naive.mangle32(low, ORACLE)
    assert int(hashing.mangle64(u64(a), KEY)) == hashing.mangle64.py_func(a, PLAIN)
    for array in (0, 2, 7):
        draw, plain_draw = draw_of(array, KEY), hashing.column_draw.py_func(array, PLAIN)
        column = int(hashing.column_hash(u64(a), draw, 1323))
        assert column == hashing.column_hash.py_func(a, plain_draw, 1323) == naive.column_hash(a, array, 1323, ORACLE)
        assert 0 <= column < 1323


@given(st.integers(0, naive.M64))
def test_a_peer_hashes_alike_whatever_width_it_is_given_in(peer):
    assert int(hashing.fold(u64(0), u64(peer), KEY)) == peer


@pytest.mark.parametrize("secret", [SECRETS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in SECRETS[1:])])
@pytest.mark.parametrize("bits", [32, 64, 128])
def test_avalanche_on_structured_addresses(bits, secret):
    """Flipping any input bit flips every output bit of about half of the addresses."""
    key = make_key(secret)
    for name, numbers in structured(bits).items():
        base = mangle_column(words(numbers), bits, False, key)
        for flip in range(0, bits, bits // 10):
            other = mangle_column(words([n ^ 1 << flip for n in numbers]), bits, False, key)
            changed = np.unpackbits((base ^ other).view(np.uint8), axis=1).mean(axis=0)
            changed = changed[changed > 0] if bits < 128 else changed  # the upper words of short keys stay empty
            assert len(changed) == bits, name
            # 4,096 fair coins stay within 5.5 standard deviations but once in 10^7
            assert np.abs(changed - 0.5).max() < 5.5 * 0.5 / np.sqrt(len(numbers)) + 0.02, (name, flip)


def chi_square_ok(counts: np.ndarray, total: int) -> bool:
    """Say whether counts look uniform; the normal limit of chi-square, five standard deviations."""
    expected = total / len(counts)
    statistic = ((counts - expected) ** 2 / expected).sum()
    return bool(abs(statistic - (len(counts) - 1)) < 5 * np.sqrt(2 * (len(counts) - 1)))


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("bits", [32, 64, 128])
def test_slices_columns_and_rows_are_uniform_on_structured_addresses(bits, secret):
    key = make_key(secret)
    for name, numbers in structured(bits).items():
        mangled = mangle_column(words(numbers), bits, False, key)
        low = mangled[:, 1]
        assert chi_square_ok(np.bincount((low & u64(15)).astype(int), minlength=16), len(low)), name
        folded = fold_all(mangled, key)
        for array in range(3):
            columns = columns_of(folded, draw_of(array, key), 64)
            assert chi_square_ok(np.bincount(columns, minlength=64), len(low)), (name, array)
        rows = pair_hashes(folded[0], fold_all(words(numbers), key), key)
        assert chi_square_ok(np.bincount((rows & u64(63)).astype(int), minlength=64), len(rows)), name
        assert chi_square_ok(np.bincount((rows >> u64(58)).astype(int), minlength=64), len(rows)), name


def test_two_hosts_that_meet_in_one_array_are_independent_in_the_next():
    rng = np.random.default_rng(1)
    folded = rng.integers(0, 1 << 32, 60_000, dtype=np.uint64)
    first, second = (columns_of(folded, draw_of(a, KEY), 64) for a in (0, 1))
    joint = np.bincount(first * 64 + second, minlength=64 * 64)
    assert chi_square_ok(joint, len(folded))


def test_keys_differ_and_their_prints_tell_them_apart():
    assert make_key(b"secret one") != make_key(b"secret two")
    assert len({fingerprint(secret) for secret in SECRETS}) == len(SECRETS)
    assert all(secret.hex() not in fingerprint(secret) for secret in SECRETS)


def test_the_key_comes_from_the_argument_then_the_environment_then_the_default(monkeypatch):
    monkeypatch.delenv("SUPERHOSTS_KEY", raising=False)
    assert secret_of(None) == DEFAULT_KEY
    monkeypatch.setenv("SUPERHOSTS_KEY", "from the environment")
    assert secret_of(None) == b"from the environment"
    assert secret_of("as given") == b"as given" == secret_of(b"as given") == secret_of(bytearray(b"as given"))
    monkeypatch.setenv("SUPERHOSTS_KEY", "")  # as if it were not set
    assert secret_of(None) == DEFAULT_KEY


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "the key has 0 bytes; use at least 8"),
        ("seven 7", "the key has 7 bytes"),
        (b"seven 7", "the key has 7 bytes"),
        (5, "a key must be bytes or text, not int"),
        (["a secret"], "not list"),
    ],
)
def test_what_is_no_key(monkeypatch, key, problem):
    with pytest.raises(UsageError, match=f"^key: .*{problem}"):
        secret_of(key)
    monkeypatch.setenv("SUPERHOSTS_KEY", "short")
    with pytest.raises(UsageError, match="SUPERHOSTS_KEY: the key has 5 bytes"):
        secret_of(None)
    assert secret_of("ünï-öäü") == "ünï-öäü".encode()  # bytes count, not letters
