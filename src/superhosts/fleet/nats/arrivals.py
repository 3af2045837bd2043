"""The sketches that are arriving at a hub, and what each site may use for them: disk space, and places in the queue."""

from __future__ import annotations

from collections import Counter

from superhosts.errors import UsageError
from superhosts.fleet.nats.assembly import Assembly
from superhosts.fleet.nats.stream import Queue
from superhosts.fleet.parcels import Parcel

ARRIVING = 32  # sketches of one site that may arrive at once
SILENCE = 5.0  # seconds without a new piece, after which a question suggests that pieces are lost
SLOWED = 150.0  # seconds for which a sketch that waits for a quota counts as arriving; its pieces come again sooner
MAX_SLOWED = 100_000  # sketches that are remembered so
LARGE = 4  # how many of them may have the largest size: an edge sends that many at once


class Arrivals:
    """The sketches that are arriving, by name, and the resources that they use."""

    def __init__(self, queue: Queue, largest: int) -> None:
        """Divide a queue and the disk among sites; no sketch has more than `largest` bytes."""
        self.assemblies: dict[str, Assembly] = {}
        self.largest = largest
        self._queue = queue
        self._slowed: dict[str, float] = {}  # sketches of which a piece waits for its site's quota, and since when
        self.held_bytes = 0  # bytes of pieces that are acknowledged when their sketch is handed in
        self.held_pieces: Counter[str] = Counter()  # the number of these pieces, by site

    def clear(self) -> None:
        """Forget all sketches."""
        self.assemblies.clear()
        self.held_pieces.clear()
        self.held_bytes = 0

    def of(self, site: str) -> list[Assembly]:
        """Return the sketches that are arriving from a site."""
        return [each for each in self.assemblies.values() if each.site == site]

    def has(self, site: str, size: int, instead: Assembly | None = None) -> bool:
        """Return True if a site may begin one more sketch, or one anew: it must not fill the disk with unfinished ones.

        A sketch that begins anew is `instead`: what it has used so far does not count.
        """
        sizes = [each.size for each in self.of(site) if each is not instead]
        return len(sizes) < ARRIVING and sum(sizes) + size <= LARGE * self.largest

    def is_arriving(self, name: str, now: float) -> bool:
        """Return True if a sketch is complete, or a piece of it came a moment ago, or waits for its site's quota."""
        if now - self._slowed.get(name, -SLOWED) < SLOWED:
            return True
        found = self.assemblies.get(name)
        return found is not None and (found.whole or now - found.touched < SILENCE)

    def slow(self, site: str, name: str, now: float) -> None:
        """Note that a piece of a sketch waits for its site's quota. A site can name no sketch of another."""
        try:
            if Parcel.parse(name).site != site:
                return
        except UsageError:
            return
        if len(self._slowed) >= MAX_SLOWED:
            self._slowed.clear()
        self._slowed[name] = now

    def hold(self, assembly: Assembly, place: int, address: str, size: int) -> bool:
        """Keep the address for a later acknowledgement; return False if the queue would become too full."""
        if place not in assembly.held:  # otherwise it was delivered a second time
            of_site = self.held_pieces[assembly.site]
            if self.held_bytes + size > self._queue.cap // 2 or of_site >= self._queue.site_pieces // 2:
                return False
            self.held_bytes += size
            self.held_pieces[assembly.site] += 1
        assembly.held[place] = (address, size)
        return True

    def is_current(self, assembly: Assembly) -> bool:
        """Return True unless a sketch was handed in or given up; it may have begun again meanwhile."""
        return self.assemblies.get(assembly.name) is assembly

    def forget(self, assembly: Assembly) -> None:
        """Release the resources of a sketch that was handed in or given up."""
        if self.is_current(assembly):
            del self.assemblies[assembly.name]
            self.held_bytes -= sum(size for _, size in assembly.held.values())
            self.held_pieces[assembly.site] -= len(assembly.held)
