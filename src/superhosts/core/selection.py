"""Which hosts of a sketch are reported: those with enough peers, the largest ones, or both."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from superhosts.core.defaults import THRESHOLD, TOP
from superhosts.core.results import SuperHosts


class Searchable(Protocol):
    """A sketch, or the monitored hosts of one."""

    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts with at least `threshold` peers, most peers first."""

    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with the most peers, most peers first."""


class Selection(NamedTuple):
    """Which hosts to report: those with at least `threshold` peers, the `top` ones, or the top ones of those.

    With `either`, the top ones and those with at least `threshold` peers.
    """

    threshold: float | None = None
    top: int | None = None
    either: bool = False

    @classmethod
    def of(cls, threshold: float | None, top: int | None) -> Selection:
        """Return the selection for a user's options. The default threshold applies if neither option is given."""
        return cls(float(THRESHOLD) if threshold is None and top is None else threshold, top)

    @classmethod
    def of_scan(cls, threshold: float | None, top: int | None) -> Selection:
        """Return the selection of a scan. If neither is given: the largest hosts, and all from the threshold on."""
        return cls(threshold, top) if threshold is not None or top is not None else cls(float(THRESHOLD), TOP, True)

    def find(self, searched: Searchable) -> SuperHosts:
        """Return the hosts that are asked for."""
        return self.search(searched)[0]

    def search(self, searched: Searchable) -> tuple[SuperHosts, int]:
        """Return the hosts that are asked for, and how many with at least `threshold` peers `top` leaves out."""
        if self.threshold is None:
            return searched.top(self.top or 1), 0
        found = searched.super_hosts(self.threshold)
        if not self.either:
            chosen = found[: self.top]
            return chosen, len(found) - len(chosen)
        missing = (self.top or 1) - len(found)
        if missing <= 0:
            return found, 0
        known = {(row.part, row.host) for row in found}
        largest = searched.top(self.top or 1)
        others = largest[[(row.part, row.host) not in known for row in largest]]
        return SuperHosts.joined([found, others[:missing]], found.window), 0

    def reached(self, found: SuperHosts) -> int:
        """Return how many of the hosts found have the peers that are asked for; all if only the top ones are."""
        if self.threshold is None:
            return len(found)
        return int((found.saturated | (found.peers >= self.threshold)).sum())


DEFAULT_SELECTION = Selection.of(None, None)
