"""The oracle: every algorithm as plainly as it can be said, in Python's own numbers, sets and loops.

It imports nothing of the product. Fast paths are compared with it; where they differ, the oracle is right until shown
otherwise. Hash functions are written out here a second time, from their description, on purpose.
"""

from __future__ import annotations

import hashlib
import math

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


class Key:
    """The key schedule, word by word."""

    def __init__(self, secret: bytes) -> None:
        root = hashlib.blake2b(secret, person=b"superhosts", digest_size=32).digest()
        stream = []
        for number in range(64):
            data = number.to_bytes(2, "little")
            word = hashlib.blake2b(data, key=root, person=b"superhosts key", digest_size=8).digest()
            stream.append(int.from_bytes(word, "little"))
        take = iter(stream)
        self.m32 = [next(take) >> 32 | 1 for _ in range(3)]
        self.m64 = [next(take) | 1 for _ in range(2)]
        self.w32 = next(take) & M32
        self.w64 = next(take)
        self.feistel = [next(take) for _ in range(4)]
        self.pair = [next(take) | 1 for _ in range(5)]
        self.columns = [(next(take) | 1, next(take)) for _ in range(8)]


def mangle32(x: int, key: Key) -> int:
    x ^= key.w32
    for shift, multiplier in zip((16, 15, 16), key.m32, strict=True):
        x = ((x ^ x >> shift) * multiplier) & M32
    return x ^ x >> 15


def mangle64(x: int, key: Key) -> int:
    x ^= key.w64
    for shift, multiplier in zip((32, 29), key.m64, strict=True):
        x = ((x ^ x >> shift) * multiplier) & M64
    return x ^ x >> 32


def mangle128(x: int, key: Key) -> int:
    high, low = x >> 64, x & M64
    for number, word in enumerate(key.feistel):
        if number % 2 == 0:
            high ^= mangle64(low ^ word, key)
        else:
            low ^= mangle64(high ^ word, key)
    return high << 64 | low


def mangle(host: int, bits: int, key: Key) -> int:
    return {32: mangle32, 64: mangle64, 128: mangle128}[bits](host, key)


def fold(x: int, key: Key) -> int:
    high = (x >> 64) * key.pair[3] & M64
    high = (high ^ high >> 32) * key.pair[4] & M64
    return high ^ high >> 29 ^ x & M64


def pair_hash(folded_host: int, folded_peer: int, key: Key) -> int:
    x = (folded_host * key.pair[0] + folded_peer) & M64
    x = (x ^ x >> 32) * key.pair[1] & M64
    x = (x ^ x >> 29) * key.pair[2] & M64
    return x ^ x >> 32


def column_hash(folded: int, array: int, count: int, key: Key) -> int:
    multiplier, addend = key.columns[array]
    return ((folded * multiplier + addend & M64) >> 32) * count >> 32


class Cube:
    """The labelled cube as sets of rows and a dictionary of labels."""

    def __init__(self, geometry: dict[str, int], secret: bytes) -> None:
        self.g = geometry
        self.key = Key(secret)
        self.columns: dict[int, set[int]] = {}
        self.labels: dict[tuple[int, int, int], int] = {}

    def places(self, m: int) -> list[int]:
        """Columns of a mangled host, one for each array."""
        slice_ = m & ((1 << self.g["slice_bits"]) - 1)
        count = self.g["columns"]
        return [
            (slice_ * self.g["arrays"] + a) * count + column_hash(fold(m, self.key), a, count, self.key)
            for a in range(self.g["arrays"])
        ]

    def update(self, host: int, peer: int) -> None:
        g = self.g
        m = mangle(host, g["key_bits"], self.key)
        h = pair_hash(fold(m, self.key), fold(peer, self.key), self.key)
        label = m >> g["slice_bits"] & ((1 << g["label_bits"]) - 1)
        ticket = h
        for array, column in enumerate(self.places(m)):
            self.columns.setdefault(column, set()).add(h & ((1 << g["column_bits"]) - 1))
            if array and array % 3 == 0:
                ticket = pair_hash(ticket, self.key.pair[1], self.key)
            turn = 16 * (array % 3)
            priority = ((ticket << turn | ticket >> (64 - turn)) & M64) >> 32
            if priority < (1 << 32) - (1 << (32 - g["share_bits"])):
                continue
            for limb in range(g["key_bits"] // 32):
                word = priority << 32 | m >> 32 * limb & M32
                place = (column, label, limb)
                self.labels[place] = max(self.labels.get(place, 0), word)

    def zeros(self, host: int) -> tuple[list[int], int]:
        """Zero bits of a host's columns, and of their AND."""
        sets = [self.columns.get(c, set()) for c in self.places(mangle(host, self.g["key_bits"], self.key))]
        rows = 1 << self.g["column_bits"]
        return [rows - len(s) for s in sets], rows - len(set.intersection(*sets))


class Cbaa:
    """The paper's cube as sets of rows; restoring by trying every tuple of hot columns."""

    def __init__(self, geometry: dict[str, int], secret: bytes) -> None:
        self.g = geometry
        self.key = Key(secret)
        self.arrays: dict[tuple[int, int, int], set[int]] = {}
        self.length = 32 - geometry["slice_bits"]
        share, rest = divmod(self.length, geometry["restoring"])
        self.offsets = [i * share + min(i, rest) for i in range(geometry["restoring"] + 1)]

    def tuple_of(self, m: int) -> list[tuple[int, int, int]]:
        """Slice, array and column of a mangled host in every array."""
        g = self.g
        slice_, left = m & ((1 << g["slice_bits"]) - 1), m >> g["slice_bits"]
        bits = [left >> i & 1 for i in range(self.length)]
        places = []
        for a in range(g["restoring"]):
            column = sum(bits[(self.offsets[a] + i) % self.length] << i for i in range(g["index_bits"]))
            places.append((slice_, a, column))
        for a in range(g["restoring"], g["restoring"] + g["validating"]):
            places.append((slice_, a, column_hash(left, a, 1 << g["validating_bits"], self.key)))
        return places

    def update(self, host: int, peer: int) -> None:
        m = mangle32(host, self.key)
        h = pair_hash(0 if self.g["rows_by_peer"] else m, fold(peer, self.key), self.key)
        for place in self.tuple_of(m):
            self.arrays.setdefault(place, set()).add(h & ((1 << self.g["column_bits"]) - 1))

    def restore(self, limit: int) -> set[int]:
        """Mangled addresses whose columns, and their AND, all have at most `limit` zeros: every address is tried."""
        rows = 1 << self.g["column_bits"]
        hot = {place for place, ones in self.arrays.items() if rows - len(ones) <= limit}
        first = {(s, c) for s, a, c in hot if a == 0}
        found = set()
        own = self.offsets[1]
        for slice_, column in first:
            # The first window fixes the low bits of LP; all that is left of it is tried.
            for rest in range(1 << (self.length - self.g["index_bits"])):
                left = column | rest << self.g["index_bits"]
                m = left << self.g["slice_bits"] | slice_
                places = self.tuple_of(m)
                if all(place in hot for place in places):
                    union = set.intersection(*(self.arrays[place] for place in places))
                    if rows - len(union) <= limit:
                        found.add(m)
        assert own <= self.g["index_bits"]
        return found


def estimate(zeros: list[int], common: int, rows: int) -> float:
    """Peers from zero counts: solve u·(1 − Π(1 − z_i/u)) = z by scanning down from a fine grid, then bisect."""
    z, zs = common / rows, [count / rows for count in zeros]

    def left(u: float) -> float:
        return u * (1 - math.prod(1 - zi / u for zi in zs))

    low, high = max(z, *zs), 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if left(middle) < z:
            low = middle
        else:
            high = middle
    return -rows * math.log((low + high) / 2)


def zero_limit(rows: int, threshold: float, q: float = 3.0) -> int:
    t = threshold / rows
    return math.floor(rows * math.exp(-t) + q * math.sqrt(rows * (math.exp(-t) - (1 + t) * math.exp(-2 * t))))


def peers(pairs: list[tuple[int, int]]) -> dict[int, int]:
    """The exact number of distinct peers of every host."""
    sets: dict[int, set[int]] = {}
    for host, peer in pairs:
        sets.setdefault(host, set()).add(peer)
    return {host: len(found) for host, found in sets.items()}
