"""The oracles of the pair sample and of RGS-Sketch, beside those of `naive.py`: plain integers, sets and lists."""

from __future__ import annotations

from naive import M32, M64, Key, column_hash, fold, mangle32, mangle64, pair_hash


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
