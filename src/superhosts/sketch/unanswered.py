"""Contacts that were not answered: the difference of two detectors of a sketch, which does not merge as they do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Part
from superhosts.core.results import UNBOUNDED, SuperHosts
from superhosts.detectors.arguments import Hosts
from superhosts.detectors.detector import Detector

_FIRST = 64  # hosts looked at when the largest are asked for; then twice as many


def with_unanswered(parts: Iterable[Part]) -> list[Part]:
    """Return parts and those that follow from them: where it is known who answered, it is known who did not."""
    held = list(parts)
    return held + [
        part.with_contact("unanswered")
        for part in held
        if part.contact == "opened" and part.with_contact("answered") in held
    ]


def sources_of(part: Part) -> list[Part]:
    """Return the parts of which a part is made: itself, unless its contacts are unanswered."""
    if part.contact != "unanswered":
        return [part]
    return [part.with_contact("opened"), part.with_contact("answered")]


def searched(parts: Mapping[Part, Detector], part: Part) -> Detector | Unanswered | None:
    held = [parts[each] for each in sources_of(part) if each in parts]
    return None if len(held) < len(sources_of(part)) else held[0] if len(held) == 1 else Unanswered(*held)


class Unanswered:
    def __init__(self, opened: Detector, answered: Detector) -> None:
        self.name = opened.name
        self.format = opened.format
        self._opened, self._answered = opened, answered

    def super_hosts(self, threshold: float) -> SuperHosts:
        found = self._left(self._opened.super_hosts(threshold))
        return found.select(found.saturated | (found.peers >= threshold))

    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with the most such peers.

        Hosts that opened to fewer peers than the last one found has left cannot be among them.
        """
        looked = max(_FIRST, 2 * count)
        while True:
            opened = self._opened.top(looked)
            found = self._left(opened)
            found = found.select(found.saturated | (found.peers > 0))[:count]
            if len(opened) < looked or (len(found) == count and found.peers[-1] >= opened.peers[-1]):
                return found
            looked *= 2

    def estimate_many(self, hosts: Hosts) -> SuperHosts:
        return difference(self._opened.estimate_many(hosts), self._answered.estimate_many(hosts))

    def _left(self, opened: SuperHosts) -> SuperHosts:
        return difference(opened, self._answered.estimate_many(opened)) if len(opened) else opened


def difference(opened: SuperHosts, answered: SuperHosts) -> SuperHosts:
    """Return hosts with the peers that are left of those they opened to, without those that answered."""
    peers = np.maximum(opened.peers - answered.peers, 0)
    # Errors of two estimates add up like the sides of a right angle; those of exact numbers are zero.
    below = np.hypot(opened.peers - opened.peers_low, _width(answered.peers_high, answered.peers))
    above = np.hypot(_width(opened.peers_high, opened.peers), answered.peers - answered.peers_low)
    low = np.maximum(np.floor(peers - below).astype(np.int64), 0)
    bounded = (opened.peers_high < UNBOUNDED) & ~opened.saturated
    high = np.where(bounded, np.ceil(peers + np.where(bounded, above, 0)).astype(np.int64), UNBOUNDED)
    exact = opened.exact & answered.exact
    found = SuperHosts(opened.hosts, peers, low, high, opened.saturated, exact)
    found.format = opened.format
    return found


def _width(high: NDArray[np.int64], peers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how far an upper bound lies above the number; of a saturated host, the number itself."""
    return np.where(high < UNBOUNDED, high - peers, peers).astype(np.float64)
