"""Packets that are held until their window opens.

However many windows they are spread over, and in whatever order they come, taking a piece in and taking the earliest
window of a year out costs the logarithm of the number of windows. Years are the unit in which stray times are judged
(tumbling.py): either all windows of a year are strays or none is, and times of 64 bits span fewer than 600 years.
"""

from __future__ import annotations

import heapq
from bisect import insort
from dataclasses import dataclass

from superhosts.core.pairs import PacketBatch
from superhosts.core.units import SECOND

YEAR = 365 * 86400 * SECOND


@dataclass(frozen=True)
class Limits:
    """How much waits in memory at most."""

    packets: int = 1 << 23  # held for other windows; beyond that, or `pieces`, the current window closes early
    pieces: int = 1 << 18  # one packet in each of very many windows takes more memory than the packets
    off_time: int = 1 << 20  # packets that lie off their time, in one direction (jumps.py)
    put_off: int = 1 << 20  # windows noted to be read a second time; what is late for further ones stays late


LIMITS = Limits()


def is_far_behind(index: int, frontier: int, length: int) -> bool:
    """Return True if a window ends more than a year before the first one that is not closed begins."""
    return (frontier - index - 1) * length > YEAR


class Held:
    """Packets by window, the windows of each year in order."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.count = 0  # packets
        self.pieces = 0
        self.windows: dict[int, list[PacketBatch]] = {}
        self.years: list[int] = []  # those that hold packets, in order
        self._packets: dict[int, int] = {}  # by year
        self._heaps: dict[int, list[int]] = {}  # windows by year, the earliest first

    def year_of(self, index: int) -> int:
        """Return the year in which a window begins, counted from the epoch."""
        return index * self.length // YEAR

    def add(self, index: int, piece: PacketBatch) -> None:
        """Hold packets of a window."""
        year = self.year_of(index)
        if year not in self._packets:
            self._packets[year], self._heaps[year] = 0, []
            insort(self.years, year)
        if index not in self.windows:
            self.windows[index] = []
            heapq.heappush(self._heaps[year], index)
        self.windows[index].append(piece)
        self._packets[year] += len(piece)
        self.count += len(piece)
        self.pieces += 1

    def pop(self, index: int) -> list[PacketBatch]:
        """Remove and return all packets of a window, which is the first of its year."""
        year = self.year_of(index)
        first = heapq.heappop(self._heaps[year])
        assert first == index
        pieces = self.windows.pop(index)
        packets = sum(map(len, pieces))
        self._packets[year] -= packets
        self.count -= packets
        self.pieces -= len(pieces)
        if not self._heaps[year]:
            del self._packets[year], self._heaps[year]
            self.years.remove(year)
        return pieces

    def packets(self, year: int) -> int:
        """Return the number of packets of a year."""
        return self._packets.get(year, 0)

    def first(self, year: int) -> int | None:
        """Return the earliest window of a year. Any thread may call this, or read `years`."""
        return next(iter(self._heaps.get(year, [])[:1]), None)
