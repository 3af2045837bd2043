"""What each site may take of a hub while its sketches arrive: disk for beginnings, the queue for held pieces."""

from __future__ import annotations

from collections import Counter

from superhosts.fleet.nats.assembly import Assembly
from superhosts.fleet.nats.stream import Queue

ARRIVING = 32  # sketches of one site that may be arriving at once
LARGE = 4  # and how many of the largest size: all that an edge sends at once


class Arrivals:
    """The sketches that are arriving, by name, and what is counted for them."""

    def __init__(self, queue: Queue, largest: int) -> None:
        """Share out a queue and the disk; no sketch has more than `largest` bytes."""
        self.assemblies: dict[str, Assembly] = {}
        self._queue, self._largest = queue, largest
        self._held = 0  # bytes of pieces that the server keeps until their sketch is handed in
        self._held_of: Counter[str] = Counter()  # and the number of these pieces, by site

    def clear(self) -> None:
        """Forget all that was arriving."""
        self.assemblies.clear()
        self._held_of.clear()
        self._held = 0

    def of(self, site: str) -> list[Assembly]:
        """Return the sketches that are arriving from a site."""
        return [each for each in self.assemblies.values() if each.site == site]

    def has(self, site: str, size: int) -> bool:
        """Return True if a site may begin one more sketch: it must not fill the disk with beginnings."""
        sizes = [each.size for each in self.of(site)]
        return len(sizes) < ARRIVING and sum(sizes) + size <= LARGE * self._largest

    def hold(self, assembly: Assembly, place: int, address: str, size: int) -> bool:
        """Keep the address for the acknowledgement of a piece; False if that would leave the server too little room."""
        if place not in assembly.held:  # else it was delivered a second time
            of_site = self._held_of[assembly.site]
            if self._held + size > self._queue.cap // 2 or of_site >= self._queue.site_pieces // 2:
                return False
            self._held += size
            self._held_of[assembly.site] += 1
        assembly.held[place] = (address, size)
        return True

    def is_current(self, assembly: Assembly) -> bool:
        """Return True unless a sketch was handed in or given up; it may even have begun again meanwhile."""
        return self.assemblies.get(assembly.name) is assembly

    def forget(self, assembly: Assembly) -> None:
        """Free what a sketch takes: it was handed in or given up."""
        if self.is_current(assembly):
            del self.assemblies[assembly.name]
            self._held -= sum(size for _, size in assembly.held.values())
            self._held_of[assembly.site] -= len(assembly.held)
