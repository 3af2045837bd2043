"""Sets of records that came before their template: they wait for it, as many as there is room for."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from superhosts.sources.exports.registry import StreamKey

MOST_BYTES = 16 << 20
MOST_EACH = 2 << 20  # of one template
_BESIDES = 200  # bytes that Python takes for each


class HeldSet(NamedTuple):
    """The header of a datagram and one of its sets, which is a datagram again, and when it was received."""

    content: bytes
    received: int


Key = tuple[StreamKey, int]  # and the number of the template


class Held:
    """The sets that wait, by template; the oldest are given up first."""

    def __init__(self, most: int = MOST_BYTES, each: int = MOST_EACH) -> None:
        self.given_up = 0
        self._most, self._each = most, each
        self._sets: OrderedDict[Key, deque[HeldSet]] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._sets.values()))

    def add(self, key: Key, held: HeldSet) -> None:
        """Keep a set until its template comes."""
        size = len(held.content) + _BESIDES
        self._sets.setdefault(key, deque()).append(held)
        self._sizes[key] = self._sizes.get(key, 0) + size
        self._bytes += size
        while self._sizes.get(key, 0) > self._each:
            self._drop(key)
        while self._bytes > self._most:
            self._drop(next(iter(self._sets)))

    def take(self, key: Key) -> list[HeldSet]:
        """Return the sets that wait for a template, whose time has come."""
        self._bytes -= self._sizes.pop(key, 0)
        return list(self._sets.pop(key, ()))

    def _drop(self, key: Key) -> None:
        waiting = self._sets[key]
        size = len(waiting.popleft().content) + _BESIDES
        self._sizes[key] -= size
        self._bytes -= size
        self.given_up += 1
        if not waiting:
            del self._sets[key], self._sizes[key]
