"""Keyed hashing, written once as scalar functions that return the same bits in plain Python, numba and CUDA.

- `mangle` maps a host's address to its mangled address m by a keyed bijection; `unmangle` inverts it. m selects the
  slice and the columns, and labels store m, so a sketch without its key reveals no address. A multiplication alone is
  not enough: the low bits of a product depend only on the low bits of the factor. For 32 bits, three keyed odd
  multipliers with xor-shifts between them reach full avalanche for every key; two do not. 128-bit addresses use a
  Feistel network over 64-bit halves.
- `pair_hash` maps a pair (m, peer) to 64 bits: the low bits select the row, the high bits give the priorities of
  labels. For one host it is a bijection of the (folded) peer, so two peers of a host never collide in the hash.
- `column_hash` maps m to a column by multiply-shift. Each array has its own multipliers, so two hosts that collide in
  one array are independent in the next.

All multipliers are derived from the key: without it nobody can choose addresses that collide. This is not encryption.

Three rules make the results identical on all three platforms: every product is masked, literals are below 2^63 except
for full masks, and right shifts act only on unsigned values.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.text import counted
from superhosts.errors import UsageError
from superhosts.jit.cache import compiled, plain

MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF
MAX_ARRAYS = 8
BLOCK = 1 << 13  # hosts that NumPy mangles at a time, so that they stay in a core's cache
SHORTEST_KEY = 8  # bytes
DEFAULT_KEY = b"superhosts default key: public, for tests and single sites"


class Key(NamedTuple):
    """The key schedule: all constants of the hash functions, as uint64."""

    mangle32: tuple[int, ...]  # whitening word, three odd multipliers, their inverses modulo 2^32
    mangle64: tuple[int, ...]  # whitening word, two odd multipliers, their inverses modulo 2^64
    feistel: tuple[int, ...]  # one word per round, four rounds
    pair: tuple[int, ...]  # host multiplier, two mixing multipliers, two for the high half of a wide peer
    columns: tuple[int, ...]  # multiplier and addend of each array


@lru_cache(maxsize=4)  # Every window has new detectors, of the same key.
def make_key(secret: bytes = DEFAULT_KEY, *, integer: type = np.uint64) -> Key:
    """Derive the key schedule from a secret of any length. Pass `integer=int` for use in plain Python."""
    count = iter(range(1 << 16))

    def word() -> int:
        digest = hashlib.blake2b(
            next(count).to_bytes(2, "little"), key=_digest(secret), person=b"superhosts key", digest_size=8
        )
        return int.from_bytes(digest.digest(), "little")

    def odd(bits: int) -> int:
        return word() >> (64 - bits) | 1

    def words(*values: int) -> tuple[int, ...]:
        return tuple(integer(value) for value in values)

    narrow = [odd(32) for _ in range(3)]
    wide = [odd(64) for _ in range(2)]
    return Key(
        mangle32=words(word() & MASK32, *narrow, *(pow(m, -1, 1 << 32) for m in narrow)),
        mangle64=words(word(), *wide, *(pow(m, -1, 1 << 64) for m in wide)),
        feistel=words(*(word() for _ in range(4))),
        pair=words(*(odd(64) for _ in range(5))),
        columns=words(*(odd(64) if i % 2 == 0 else word() for i in range(2 * MAX_ARRAYS))),
    )


def secret_of(key: bytes | str | None) -> bytes:
    """Return `key` as bytes; without one, the value of SUPERHOSTS_KEY if it is not empty, else the public default."""
    if key is not None:
        return check_secret(key, "key")
    from_environment = os.environ.get("SUPERHOSTS_KEY")
    return check_secret(from_environment, "SUPERHOSTS_KEY") if from_environment else DEFAULT_KEY


def check_secret(secret: bytes | str, place: str) -> bytes:
    """Return a secret as bytes. Raise UsageError if it has the wrong type or is too short to be hard to guess.

    The message names `place`, where the secret comes from, and never shows the secret.
    """
    if not isinstance(secret, bytes | bytearray | str):
        raise UsageError(f"{place}: a key must be bytes or text, not {type(secret).__name__}")
    encoded = secret.encode() if isinstance(secret, str) else bytes(secret)
    if len(encoded) < SHORTEST_KEY:
        raise UsageError(f"{place}: the key has {counted(len(encoded), 'byte')}; use at least {SHORTEST_KEY}")
    return encoded


def fingerprint(secret: bytes) -> str:
    """Return 16 hexadecimal digits that identify a key without revealing it."""
    return hashlib.blake2b(_digest(secret), person=b"superhosts print", digest_size=8).hexdigest()


def _digest(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, person=b"superhosts", digest_size=32).digest()


@compiled
def mangle32(x: int, key: Key) -> int:
    """Map a 32-bit address to its mangled form."""
    words = key.mangle32
    x = x ^ words[0]
    x = ((x ^ (x >> 16)) * words[1]) & MASK32
    x = ((x ^ (x >> 15)) * words[2]) & MASK32
    x = ((x ^ (x >> 16)) * words[3]) & MASK32
    return x ^ (x >> 15)


@compiled
def unmangle32(x: int, key: Key) -> int:
    """Undo `mangle32`."""
    words = key.mangle32
    x = x ^ (x >> 15) ^ (x >> 30)
    x = (x * words[6]) & MASK32
    x = x ^ (x >> 16)
    x = (x * words[5]) & MASK32
    x = x ^ (x >> 15) ^ (x >> 30)
    x = (x * words[4]) & MASK32
    x = x ^ (x >> 16)
    return x ^ words[0]


@compiled
def mangle64(x: int, key: Key) -> int:
    """Map a 64-bit address prefix to its mangled form."""
    words = key.mangle64
    x = x ^ words[0]
    x = ((x ^ (x >> 32)) * words[1]) & MASK64
    x = ((x ^ (x >> 29)) * words[2]) & MASK64
    return x ^ (x >> 32)


@compiled
def unmangle64(x: int, key: Key) -> int:
    """Undo `mangle64`."""
    words = key.mangle64
    x = x ^ (x >> 32)
    x = (x * words[4]) & MASK64
    x = x ^ (x >> 29) ^ (x >> 58)
    x = (x * words[3]) & MASK64
    x = x ^ (x >> 32)
    return x ^ words[0]


@compiled
def mangle128(high: int, low: int, key: Key) -> tuple[int, int]:
    """Map a 128-bit address to its mangled form by four Feistel rounds over `mangle64`."""
    words = key.feistel
    high = high ^ mangle64(low ^ words[0], key)
    low = low ^ mangle64(high ^ words[1], key)
    high = high ^ mangle64(low ^ words[2], key)
    low = low ^ mangle64(high ^ words[3], key)
    return high, low


@compiled
def fold(high: int, low: int, key: Key) -> int:
    """Fold 128 bits into 64 with the key. A value below 2^64 is unchanged, so it folds alike in any width."""
    words = key.pair
    high = (high * words[3]) & MASK64
    high = ((high ^ (high >> 32)) * words[4]) & MASK64
    return high ^ (high >> 29) ^ low


@compiled
def pair_hash(mangled: int, peer: int, key: Key) -> int:
    """Hash a pair, given as (folded) mangled host and (folded) peer, to 64 bits."""
    words = key.pair
    x = (mangled * words[0] + peer) & MASK64
    x = ((x ^ (x >> 32)) * words[1]) & MASK64
    x = ((x ^ (x >> 29)) * words[2]) & MASK64
    return x ^ (x >> 32)


@compiled
def column_draw(array: int, key: Key) -> tuple[int, int]:
    """Return the multiplier and addend of one array. Loops over many hosts call it once."""
    return key.columns[2 * array], key.columns[2 * array + 1]


@compiled
def column_hash(mangled: int, draw: tuple[int, int], count: int) -> int:
    """Return the column of a (folded) mangled host, from 0 to count - 1."""
    x = (mangled * draw[0] + draw[1]) & MASK64
    return ((x >> 32) * count) >> 32


def mangle_column(hosts: NDArray[np.uint64], bits: int, inverse: bool, key: Key) -> NDArray[np.uint64]:
    """Mangle a column of hosts (high and low word), or undo that, with NumPy: compiling a loop would take a second."""
    out = np.empty_like(hosts)
    for start in range(0, len(hosts), BLOCK):
        block = slice(start, start + BLOCK)
        out[block, 0], out[block, 1] = _mangle_block(hosts[block, 0], hosts[block, 1], bits, inverse, key)
    return out


def _mangle_block(high: Any, low: Any, bits: int, inverse: bool, key: Key) -> tuple[Any, Any]:
    do, undo = (mangle32, unmangle32) if bits == 32 else (mangle64, unmangle64)
    if bits < 128:
        return high, plain(undo if inverse else do)(low, key)
    sides, mix = [high, low], plain(mangle64)
    for number in reversed(range(4)) if inverse else range(4):  # the rounds of `mangle128`
        sides[number % 2] = sides[number % 2] ^ mix(sides[1 - number % 2] ^ key.feistel[number], key)
    return sides[0], sides[1]
