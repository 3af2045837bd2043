"""The sketches that are arriving at a hub, and what each site may use for them: disk space, and places in the queue."""

from __future__ import annotations

from collections import Counter

from superhosts.fleet.nats.assembly import Assembly
from superhosts.fleet.nats.stream import Queue

ARRIVING = 32  # sketches of one site that may arrive at once
LARGE = 4  # how many of them may have the largest size: an edge sends that many at once


class Arrivals:
    """The sketches that are arriving, by name, and the resources that they use."""

    def __init__(self, queue: Queue, largest: int) -> None:
        """Divide a queue and the disk among sites; no sketch has more than `largest` bytes."""
        self.assemblies: dict[str, Assembly] = {}
        self._queue, self._largest = queue, largest
        self._held = 0  # bytes of pieces that are acknowledged when their sketch is handed in
        self._held_of: Counter[str] = Counter()  # the number of these pieces, by site

    def clear(self) -> None:
        """Forget all sketches."""
        self.assemblies.clear()
        self._held_of.clear()
        self._held = 0

    def of(self, site: str) -> list[Assembly]:
        """Return the sketches that are arriving from a site."""
        return [each for each in self.assemblies.values() if each.site == site]

    def has(self, site: str, size: int) -> bool:
        """Return True if a site may begin one more sketch: it must not fill the disk with unfinished ones."""
        sizes = [each.size for each in self.of(site)]
        return len(sizes) < ARRIVING and sum(sizes) + size <= LARGE * self._largest

    def hold(self, assembly: Assembly, place: int, address: str, size: int) -> bool:
        """Keep the address for a later acknowledgement; return False if the queue would become too full."""
        if place not in assembly.held:  # otherwise it was delivered a second time
            of_site = self._held_of[assembly.site]
            if self._held + size > self._queue.cap // 2 or of_site >= self._queue.site_pieces // 2:
                return False
            self._held += size
            self._held_of[assembly.site] += 1
        assembly.held[place] = (address, size)
        return True

    def is_current(self, assembly: Assembly) -> bool:
        """Return True unless a sketch was handed in or given up; it may have begun again meanwhile."""
        return self.assemblies.get(assembly.name) is assembly

    def forget(self, assembly: Assembly) -> None:
        """Release the resources of a sketch that was handed in or given up."""
        if self.is_current(assembly):
            del self.assemblies[assembly.name]
            self._held -= sum(size for _, size in assembly.held.values())
            self._held_of[assembly.site] -= len(assembly.held)
