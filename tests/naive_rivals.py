"""The oracle of the pair sample, beside those of `naive.py`: plain integers and a dictionary."""

from __future__ import annotations

from naive import M32, M64, Key, fold, mangle32, mangle64


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
