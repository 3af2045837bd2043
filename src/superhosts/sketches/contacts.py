"""Contacts that were not answered: the difference of two detectors of a sketch.

A sketch keeps who was opened to and, of these, who answered. Both are sets that merge over sites and windows. Their
difference would not: a peer that answers at another site, or later, leaves it. So it is computed when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from superhosts.detectors.base import Detector
from superhosts.pairs import Part
from superhosts.results import UNBOUNDED, SuperHosts

_FIRST = 64  # hosts looked at when the largest are asked for; then twice as many


def searched(parts: Mapping[Part, Detector], part: Part) -> Detector | Unanswered | None:
    """Return what is searched for the hosts of a part; None if there is nothing."""
    if part.contact != "unanswered":
        return parts.get(part)
    opened = parts.get(part.with_contact("opened"))
    return None if opened is None else Unanswered(opened, parts.get(part.with_contact("answered")))


class Unanswered:
    """Hosts by the peers they opened to that did not answer."""

    def __init__(self, opened: Detector, answered: Detector | None) -> None:
        """`answered` is None if nobody answered anybody."""
        self.name = opened.name
        self.format = opened.format
        self._opened, self._answered = opened, answered

    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts with at least `threshold` such peers: they opened to at least as many."""
        found = self._less(self._opened.super_hosts(threshold))
        return found.select(found.saturated | (found.peers >= threshold))

    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with the most such peers.

        Hosts that opened to fewer peers than the last one found has left cannot be among them.
        """
        looked = max(_FIRST, 2 * count)
        while True:
            opened = self._opened.top(looked)
            found = self._less(opened)
            found = found.select(found.saturated | (found.peers > 0))[:count]
            if len(opened) < looked or (len(found) == count and found.peers[-1] >= opened.peers[-1]):
                return found
            looked *= 2

    def _less(self, opened: SuperHosts) -> SuperHosts:
        """Return the hosts that opened with the peers that are left without those that answered."""
        if self._answered is None or not len(opened):
            return opened
        other = self._answered.estimate_many(opened)
        peers = np.maximum(opened.peers - other.peers, 0)
        # Errors of two estimates add up like the sides of a right angle; those of exact numbers are zero.
        below = np.hypot(opened.peers - opened.peers_low, _width(other.peers_high, other.peers))
        above = np.hypot(_width(opened.peers_high, opened.peers), other.peers - other.peers_low)
        low = np.maximum(np.floor(peers - below).astype(np.int64), 0)
        bounded = (opened.peers_high < UNBOUNDED) & ~opened.saturated
        high = np.where(bounded, np.ceil(peers + np.where(bounded, above, 0)).astype(np.int64), UNBOUNDED)
        exact = opened.exact & other.exact
        found = SuperHosts(opened.hosts, peers, low, high, opened.saturated, exact)
        found.format = opened.format
        return found


def _width(high: NDArray[np.int64], peers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how far an upper bound lies above the number; of a saturated host, the number itself."""
    return np.where(high < UNBOUNDED, high - peers, peers).astype(np.float64)
