"""Which hosts of a sketch are wanted: those of some prefixes, sides and directions."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from superhosts.core.lens import Lens
from superhosts.core.pairs import CONTACT_DIRECTIONS, DIRECTIONS, SIDES, Part
from superhosts.core.prefixes import parse_networks
from superhosts.core.results import Searchable, SuperHosts
from superhosts.detectors.detector import Detector
from superhosts.errors import UsageError
from superhosts.pipeline.network import Network
from superhosts.sketch.sketch import Sketch
from superhosts.sketch.unanswered import Unanswered, with_unanswered

MORE = 4  # times as many hosts are asked for, when too few of the largest are wanted


class HostFilter(NamedTuple):
    """Prefixes, sides and directions; an empty list stands for all."""

    prefixes: Sequence[str] = ()
    sides: Sequence[str] = ()
    directions: Sequence[str] = ()

    def check(self) -> None:
        """Raise UsageError if a value is none."""
        if self.prefixes and not parse_networks(self.prefixes, "prefix"):
            raise UsageError(f"--prefix {' '.join(self.prefixes)}: contains no prefix")
        directions = (*DIRECTIONS, *CONTACT_DIRECTIONS)
        for option, values, known in (("side", self.sides, SIDES), ("direction", self.directions, directions)):
            for value in values:
                if value not in known:
                    raise UsageError(f"--{option} {value}: one of {', '.join(known)}")

    def check_parts(self, parts: Set[Part]) -> None:
        """Raise UsageError if the sketches hold no such side and direction: "none" would be no answer."""
        if parts and not any(map(self.takes, parts)):
            given = [f"--side {side}" for side in self.sides] + [f"--direction {each}" for each in self.directions]
            held = ", ".join(sorted({f"--side {part.side} --direction {part.direction}" for part in parts}))
            raise UsageError(f"{' '.join(given)}: the sketches hold only {held}")

    def takes(self, part: Part) -> bool:
        """Return True if hosts of this side and direction are wanted."""
        wants_side = not self.sides or part.side in self.sides
        return wants_side and (not self.directions or part.direction in self.directions)

    def of(self, sketch: Sketch) -> Searchable:
        """Return the wanted hosts of a sketch."""
        return _Wanted(sketch, [part for part in with_unanswered(sketch.parts) if self.takes(part)], self.prefixes)


class _Wanted(NamedTuple):
    """The hosts of some parts of a sketch, and of some prefixes if there are any."""

    sketch: Sketch
    parts: Sequence[Part]
    prefixes: Sequence[str]

    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts with at least `threshold` peers."""
        return self.sketch.collect(
            lambda part, detector: self._inside(part, detector, detector.super_hosts(threshold)), self.parts
        )

    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with the most peers."""
        return self.sketch.collect(lambda part, detector: self._top(part, detector, count), self.parts)[:count]

    def _top(self, part: Part, detector: Detector | Unanswered, count: int) -> SuperHosts:
        """Return the largest hosts of a part: more of all hosts are asked for until enough of them are inside."""
        asked = count
        while True:
            found = detector.top(asked)
            inside = self._inside(part, detector, found)
            if len(inside) >= count or len(found) < asked:
                return inside.select(slice(count))
            asked *= MORE

    def _inside(self, part: Part, detector: Detector | Unanswered, found: SuperHosts) -> SuperHosts:
        if not self.prefixes:
            return found
        if detector.format.keys:
            raise UsageError(f"--prefix selects addresses, but hosts here are {detector.format.words}; leave it out")
        bits = detector.format.prefix
        narrow, wide = (bits, 64) if part.family == 4 else (32, bits)
        lens = Lens(hosts_have_ports=detector.format.port)
        network = Network(self.prefixes, special="keep", ipv4_prefix=narrow, ipv6_prefix=wide, lens=lens)
        return found.select(network.monitors(found.hosts, part._replace(side="inner")))
