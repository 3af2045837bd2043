"""The oracle: every algorithm in its simplest form, with plain Python integers, sets and loops.

It imports nothing of the product. Fast implementations are compared with it; where they differ, the oracle is presumed
right. The hash functions are deliberately implemented a second time here, from their description.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


class Key:
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
        """Return the plain columns of a mangled host, one for each array."""
        slice_ = m & ((1 << self.g["slice_bits"]) - 1)
        count = self.g["columns"]
        return [
            (slice_ * self.g["arrays"] + a) * count + column_hash(fold(m, self.key), a, count, self.key)
            for a in range(self.g["arrays"])
        ]

    def giants(self, m: int) -> list[int]:
        """Return the giant columns of a mangled host, one for each array; they follow all plain columns."""
        g = self.g
        slice_, first = m & ((1 << g["slice_bits"]) - 1), g["arrays"] * g["columns"] << g["slice_bits"]
        return [
            first + (slice_ * g["arrays"] + a) * g["giants"] + column_hash(fold(m, self.key), a, g["giants"], self.key)
            for a in range(g["arrays"])
        ]

    def update(self, host: int, peer: int) -> None:
        g = self.g
        m = mangle(host, g["key_bits"], self.key)
        h = pair_hash(fold(m, self.key), fold(peer, self.key), self.key)
        if (h >> 32 - g["sample_bits"]) % (1 << g["sample_bits"]) != (1 << g["sample_bits"]) - 1:
            return
        label = m >> g["slice_bits"] & ((1 << g["label_bits"]) - 1)
        ticket = h
        row = h & ((1 << g["column_bits"]) - 1)
        if g["giants"] and h >> 58 == 63:
            for array, column in enumerate(self.giants(m)):
                self.columns.setdefault(column, set()).add(self.turned(row, m, array))
        for array, column in enumerate(self.places(m)):
            self.columns.setdefault(column, set()).add(self.turned(row, m, array))
            in_ticket = 4 if g["turned_lines"] else 3
            if array and array % in_ticket == 0:
                ticket = pair_hash(ticket, self.key.pair[1], self.key)
            rotation = 16 * (array % in_ticket)
            priority = ((ticket << rotation | ticket >> (64 - rotation)) & M64) >> 32
            if priority < (1 << 32) - (1 << (32 - g["share_bits"])):
                continue
            for limb in range(g["key_bits"] // 32):
                word = priority << 32 | m >> 32 * limb & M32
                place = (column, label, limb)
                self.labels[place] = max(self.labels.get(place, 0), word)

    def turned(self, row: int, m: int, array: int, *, back: bool = False) -> int:
        """Rotate a host's row within its group of 64 and move its line of 512 rows, or undo both."""
        multiplier, addend = self.key.columns[array]
        x = fold(m, self.key) * multiplier + addend & M64
        rotation, lines = x >> 26 & 63, max(1, (1 << self.g["column_bits"]) // 512)
        line = (x >> 12) % lines if self.g["turned_lines"] else 0
        within = (row + (-rotation if back else rotation)) % 64
        return (row // 64 * 64 + within) ^ line * 512

    def zeros(self, host: int, *, giant: bool = False) -> tuple[list[int], int]:
        """Return the zero bits of a host's plain or giant columns, and of their AND after each is turned back."""
        m = mangle(host, self.g["key_bits"], self.key)
        sets = [self.columns.get(c, set()) for c in (self.giants(m) if giant else self.places(m))]
        back = [{self.turned(row, m, array, back=True) for row in rows} for array, rows in enumerate(sets)]
        count = 1 << self.g["column_bits"]
        return [count - len(s) for s in sets], count - len(set.intersection(*back))


class Cbaa:
    """The paper's cube as sets of rows. It restores by trying every tuple of hot columns."""

    def __init__(self, geometry: dict[str, int], secret: bytes) -> None:
        self.g = geometry
        self.key = Key(secret)
        self.arrays: dict[tuple[int, int, int], set[int]] = {}
        self.length = 32 - geometry["slice_bits"]
        share, rest = divmod(self.length, geometry["restoring"])
        self.offsets = [i * share + min(i, rest) for i in range(geometry["restoring"] + 1)]

    def tuple_of(self, m: int) -> list[tuple[int, int, int]]:
        """Return slice, array and column of a mangled host in every array."""
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
        """Return mangled addresses whose columns, and their AND, have at most `limit` zeros. Tries every address."""
        rows = 1 << self.g["column_bits"]
        hot = {place for place, ones in self.arrays.items() if rows - len(ones) <= limit}
        first = {(s, c) for s, a, c in hot if a == 0}
        found = set()
        own = self.offsets[1]
        for slice_, column in first:
            # The first window determines the low bits of LP; all values of the other bits are tried.
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
    """Estimate peers from zero counts: solve u·(1 − Π(1 − z_i/u)) = z by bisection."""
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
    sets: dict[int, set[int]] = {}
    for host, peer in pairs:
        sets.setdefault(host, set()).add(peer)
    return {host: len(found) for host, found in sets.items()}


class Dcds:
    """Columns by coprime moduli, as sets of rows. Solves every combination of hot columns by the textbook formula."""

    def __init__(self, reversible: int, moduli: tuple[int, ...], column_bits: int, secret: bytes) -> None:
        self.reversible, self.moduli, self.rows = reversible, moduli, 1 << column_bits
        self.key = Key(secret)
        self.arrays: dict[tuple[int, int], set[int]] = {}

    def update(self, host: int, peer: int) -> None:
        m = mangle32(host, self.key)
        row = pair_hash(m, fold(peer, self.key), self.key) % self.rows
        for array, modulus in enumerate(self.moduli):
            self.arrays.setdefault((array, m % modulus), set()).add(row)

    def solve(self, columns: tuple[int, ...]) -> int:
        """Return the only number below the product of the moduli that has these remainders."""
        moduli = self.moduli[: len(columns)]
        product = math.prod(moduli)
        parts = [c * (product // m) * pow(product // m, -1, m) for c, m in zip(columns, moduli, strict=True)]
        return sum(parts) % product

    def zeros(self, m: int) -> list[int]:
        """Return the zero bits of the columns of a mangled host, then of their AND."""
        sets = [self.arrays.get((array, m % modulus), set()) for array, modulus in enumerate(self.moduli)]
        return [self.rows - len(s) for s in [*sets, set.intersection(*sets)]]

    def restore(self, limit: int) -> dict[int, list[int]]:
        """Return mangled addresses whose columns, and their AND, have at most `limit` zeros, with these zeros."""
        hot = {place for place, ones in self.arrays.items() if self.rows - len(ones) <= limit}
        lists = [[c for a, c in hot if a == array] for array in range(self.reversible)]
        numbers = [self.solve(columns) for columns in itertools.product(*lists)]
        found = {m: self.zeros(m) for m in numbers if m <= M32}
        return {m: zeros for m, zeros in found.items() if max(zeros) <= limit}


class Vbfa:
    """The vector Bloom filter as published: four windows of the address's bytes, joined one after the other."""

    def __init__(self, window: int, hashed: int, column_bits: int, secret: bytes) -> None:
        self.window, self.hashed, self.rows = window, hashed, 1 << column_bits
        self.key = Key(secret)
        self.arrays: dict[tuple[int, int], set[int]] = {}

    def rotated(self, x: int) -> int:
        """Return the address to hash: rotated right, so that the third byte's window begins at the lowest bit."""
        rotation = 16 - self.window
        return (x >> rotation | x << (32 - rotation)) & M32

    def address(self, host: int) -> int:
        """Return the address whose bytes are used: the one whose rotation is the host's mangled form."""
        m, rotation = mangle32(host, self.key), 16 - self.window
        return (m << rotation | m >> (32 - rotation)) & M32

    def windows(self, x: int) -> list[int]:
        """Return h1 to h4, windows of bits that begin at each byte and wrap around to the first, and then h5."""
        ring = 2 * f"{x:032b}"
        own = [int(ring[8 * byte : 8 * byte + self.window], 2) for byte in range(4)]
        return [*own, column_hash(self.rotated(x), 4, 1 << self.hashed, self.key)]

    def update(self, host: int, peer: int) -> None:
        x = self.address(host)
        row = pair_hash(self.rotated(x), fold(peer, self.key), self.key) % self.rows
        for array, column in enumerate(self.windows(x)):
            self.arrays.setdefault((array, column), set()).add(row)

    def noise(self) -> float:
        """Return the noise δ, that of two arrays, from the mean fraction of zeros in the fifth."""
        ones = sum(len(rows) for (array, _), rows in self.arrays.items() if array == 4)
        zeros = 1 - ones / (self.rows << self.hashed)
        return -self.rows * math.log(1 - (1 - zeros) ** 2)

    def restore(self, limit: int) -> set[int]:
        """Join addresses as published: partial addresses grow by a byte, and the last window closes the ring."""
        hot = [{c: s for (a, c), s in self.arrays.items() if a == k and self.rows - len(s) <= limit} for k in range(5)]
        shared = self.window - 8
        partial = [(f"{c:0{self.window}b}", rows) for c, rows in hot[0].items()]
        for array in (1, 2, 3):
            joined = []
            for text, rows in partial:
                for column, others in hot[array].items():
                    bits = f"{column:0{self.window}b}"
                    if text[len(text) - shared :] == bits[:shared] and self.rows - len(rows & others) <= limit:
                        joined.append((text + bits[shared:], rows & others))
            partial = joined
        found = set()
        for text, rows in partial:
            x = int(text[:32], 2)
            last = self.arrays.get((4, self.windows(x)[4]), set())
            if text[32:] == text[:shared] and self.rows - len(rows & last) <= limit:
                found.add(x)
        return found


class SpreadSketch:
    """Buckets as sets of (component, bit), and a pair (level, mangled host) that only increases."""

    def __init__(self, geometry: dict[str, int], secret: bytes) -> None:
        self.rows, self.buckets = geometry["rows"], geometry["buckets"]
        self.sizes = [geometry["component_bits"]] * (geometry["components"] - 1)
        self.sizes.append(448 - sum(self.sizes))
        self.key = Key(secret)
        self.maps: dict[tuple[int, int], set[tuple[int, int]]] = {}
        self.labels: dict[tuple[int, int], tuple[int, int]] = {}

    def places(self, m: int) -> list[tuple[int, int]]:
        return [(row, column_hash(m, row, self.buckets, self.key)) for row in range(self.rows)]

    def update(self, host: int, peer: int) -> None:
        m = mangle32(host, self.key)
        h = pair_hash(m, fold(peer, self.key), self.key)
        text = f"{h:064b}"
        component = min(len(self.sizes) - 1, len(text) - len(text.lstrip("1")))
        bit = (h >> 32) % 2**16 * self.sizes[component] >> 16
        level = min(32, len(text) - len(text.rstrip("1")))
        for place in self.places(m):
            self.maps.setdefault(place, set()).add((component, bit))
            self.labels[place] = max(self.labels.get(place, (-1, 0)), (level, m))

    def count(self, seen: set[tuple[int, int]]) -> float:
        """Return the distinct pairs of a bitmap, or infinity if its last component is full."""
        ones = [sum(1 for c, _ in seen if c == i) for i in range(len(self.sizes))]
        if ones[-1] == self.sizes[-1]:
            return math.inf
        base = len(self.sizes) - 1
        while base > 0 and ones[base - 1] <= 0.93105 * self.sizes[base - 1]:
            base -= 1
        return 2**base * sum(s * math.log(s / (s - n)) for s, n in list(zip(self.sizes, ones, strict=True))[base:])

    def estimate(self, m: int) -> float:
        return self.count(set.intersection(*[self.maps.get(place, set()) for place in self.places(m)]))

    def find(self, threshold: float) -> dict[int, float]:
        """Return mangled hosts that some bucket names, with at least `threshold` pairs in the AND of their buckets."""
        named = {self.labels[place][1] for place, seen in self.maps.items() if self.count(seen) >= threshold}
        return {m: self.estimate(m) for m in named if self.estimate(m) >= threshold}


class Filter:
    """A set of marked bits, a dictionary of 32-bit float counters, and a list to which hosts are added one by one."""

    def __init__(self, geometry: dict[str, int], secret: bytes) -> None:
        self.g = geometry
        self.key = Key(secret)
        self.marked: set[int] = set()
        self.counters: dict[tuple[int, int], float] = {}
        self.listed: list[int] = []

    def places(self, m: int) -> list[tuple[int, int]]:
        return [(row, column_hash(m, row, self.g["counters"], self.key)) for row in range(self.g["rows"])]

    def estimate(self, m: int) -> float:
        return min(self.counters.get(place, 0.0) for place in self.places(m))

    def update(self, host: int, peer: int) -> None:
        m = mangle32(host, self.key)
        bits = 64 * self.g["words"]
        bit = (pair_hash(m, fold(peer, self.key), self.key) >> 32) * bits >> 32
        if bit in self.marked:
            return
        weight = bits / (bits - len(self.marked))
        self.marked.add(bit)
        for place in self.places(m):
            self.counters[place] = single(self.counters.get(place, 0.0) + weight)
        if self.estimate(m) >= self.g["threshold"] and m not in self.listed:
            self.listed.append(m)


def single(x: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


class Gse:
    """Virtual vectors in one set of bits. The table of recent pairs does not affect results, so it is left out."""

    def __init__(self, geometry: dict[str, int], secret: bytes) -> None:
        self.m, self.s = 1 << geometry["array_bits"], 1 << geometry["vector_bits"]
        self.key = Key(secret)
        self.bits: set[int] = set()
        self.hosts: set[int] = set()

    def bit(self, m: int, place: int) -> int:
        return pair_hash(m, place, self.key) % self.m

    def update(self, host: int, peer: int) -> None:
        m = mangle32(host, self.key)
        self.bits.add(self.bit(m, pair_hash(0, fold(peer, self.key), self.key) % self.s))
        self.hosts.add(m)

    def zeros(self, m: int) -> int:
        return sum(self.bit(m, place) not in self.bits for place in range(self.s))

    def estimate(self, m: int) -> float:
        free, left = 1 - len(self.bits) / self.m, max(1, self.zeros(m)) / self.s
        return max(0.0, self.s * math.log(free) - self.s * math.log(left))

    def find(self, threshold: float) -> dict[int, float]:
        """Return mangled hosts with at least `threshold` peers. Those without a zero bit may have any number."""
        return {m: self.estimate(m) for m in self.hosts if self.estimate(m) >= threshold or self.zeros(m) == 0}


class PairSample:
    """All distinct pairs by their hashes; the sample is taken when somebody asks."""

    def __init__(self, pairs: int, secret: bytes) -> None:
        self.size = pairs
        self.key = Key(secret)
        self.seen: dict[int, int] = {}  # hash → mangled host

    def update(self, host: int, peer: int) -> None:
        m, folded = mangle32(host, self.key), fold(peer, self.key)
        high = (folded >> 32) * self.key.pair[3] & M64
        high = (high ^ high >> 29) * self.key.pair[4] & M64
        self.seen[mangle64(m << 32 | high >> 32 ^ folded & M32, self.key)] = m

    def kept(self) -> list[int]:
        return sorted(self.seen)[: self.size]

    def estimates(self) -> dict[int, float]:
        """Return the mangled hosts in the sample, and their numbers of peers."""
        kept = self.kept()
        full = len(kept) == self.size
        hosts = [self.seen[each] for each in (kept[:-1] if full else kept)]
        return {m: hosts.count(m) * (2**64 / kept[-1] if full else 1) for m in set(hosts)}


class Rgs:
    def __init__(self, groups: int, buckets: int, secret: bytes) -> None:
        self.key = Key(secret)
        self.groups = [[0] * 8 for _ in range(groups)]
        self.buckets: list[list[list[int]]] = [[] for _ in range(buckets)]

    def update(self, host: int, peer: int) -> None:
        m = mangle32(host, self.key)
        h = pair_hash(m, fold(peer, self.key), self.key)
        group = self.groups[(pair_hash(m, h % 32, self.key) >> 32) * len(self.groups) >> 32]
        register, rank = h // 32 % 8, min(31, 65 - h.bit_length())
        if rank > group[register] and self.count(m, h, group):
            group[register] = rank

    def count(self, m: int, h: int, group: list[int]) -> bool:
        """Count a pair that would raise a register of its group; return False if its host gets no cell."""
        draw = (pair_hash(h, self.key.pair[1], self.key) >> 32) / 2**32
        weight = 8 / sum(2.0**-value for value in group if value < 31)
        cells = self.buckets[column_hash(m, 0, len(self.buckets), self.key)]
        for cell in cells:
            if cell[0] == m:
                cell[1] += int(weight) + (draw < weight % 1)
                return True
        if len(cells) < 8:
            cells.append([m, int(weight) + (draw < weight % 1)])
            return True
        least = min(cells, key=lambda cell: cell[1])
        if draw * (least[1] + 1) < 1:
            least[:] = [m, least[1] + 1]
            return True
        return False

    def find(self, threshold: float) -> dict[int, int]:
        return {m: count for cells in self.buckets for m, count in cells if count >= threshold}


class Stream:
    """Counts that grow while pairs arrive, beside bits that say which came before. Hosts are mangled integers."""

    def __init__(self, bits: int, slice_bits: int, words: int, buckets: int, secret: bytes) -> None:
        self.key, self.key_bits, self.size = Key(secret), bits, 64 * words
        self.bits: list[set[int]] = [set() for _ in range(1 << slice_bits)]
        self.buckets: list[list[list[list[float]]]] = [[[] for _ in range(buckets)] for _ in self.bits]

    def update(self, host: int, peer: int) -> None:
        m = mangle(host, self.key_bits, self.key)
        folded = fold(m, self.key)
        h = pair_hash(folded, fold(peer, self.key), self.key)
        bits, place = self.bits[m % len(self.bits)], (h >> 32) * self.size >> 32
        zeros = self.size - len(bits)
        if place in bits or zeros <= 16:
            return
        weight = self.size / zeros
        buckets = self.buckets[m % len(self.bits)]
        cells = buckets[column_hash(folded, 0, len(buckets), self.key)]
        cell = next((cell for cell in cells if cell[0] == m), None)
        if cell is None and len(cells) < 8:
            cells.append(cell := [m, 0, 0.0])  # host, count in sixteenths, variance
        if cell is None:
            cell = min(cells, key=lambda cell: cell[1])
            if (h & M32) / 2**32 * (cell[1] / 16 + weight) >= weight:
                return
            cell[0], cell[2] = m, single((cell[1] / 16) ** 2)
        cell[1] = min(M32, cell[1] + int(16 * weight + (h * self.key.pair[1] & M64) // 2**40 / 2**24))
        cell[2] = single(cell[2] + single(weight * (weight - 1)))
        bits.add(place)

    def cells(self) -> dict[int, tuple[float, float]]:
        """Return the count and the variance of each host that has a cell."""
        return {cell[0]: (cell[1], cell[2]) for slice_ in self.buckets for cells in slice_ for cell in cells}
