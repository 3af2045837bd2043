"""Text keys as plainly as possible: a hash in Python integers, a dictionary as a sorted list. Imports nothing of ours.

SipHash-2-4 with 128 bits of output, as its authors describe it.
"""

from __future__ import annotations

import hashlib

import naive

M64 = (1 << 64) - 1


def key_of(secret: bytes) -> tuple[int, int]:
    digest = hashlib.blake2b(secret, person=b"superhosts text", digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def rotated(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & M64


def siphash(message: bytes, k0: int, k1: int) -> int:
    """Return the hash: the first eight bytes of the output are its low word."""
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    v[1] ^= 0xEE

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & M64
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & M64
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & M64
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & M64
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return (v[0] ^ v[1] ^ v[2] ^ v[3]) << 64 | low


def names_kept(pairs: set[tuple[str, str]], most: int, secret: bytes) -> list[str]:
    """Return the names that a dictionary of `most` names keeps, by rank."""
    words, key = key_of(secret), naive.Key(secret)
    ranks: dict[str, int] = {}
    for host, peer in pairs:
        left, right = (naive.fold(siphash(text.encode(), *words), key) for text in (host, peer))
        rank = naive.pair_hash(left, right, key)
        ranks[host] = min(rank, ranks.get(host, rank))
    return sorted(ranks, key=lambda host: ranks[host])[:most]
