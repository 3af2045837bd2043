"""What of the traffic is looked at besides addresses: protocols, ports, and what hosts and peers are."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from superhosts.core.pairs import DCCP, ICMP, ICMPV6, SCTP, TCP, UDP, UDP_LITE
from superhosts.core.prefixes import Flags
from superhosts.core.text import setting
from superhosts.errors import UsageError

PROTOCOLS = {
    "icmp": ICMP,
    "igmp": 2,
    "ipip": 4,
    "tcp": TCP,
    "udp": UDP,
    "dccp": DCCP,
    "ipv6": 41,
    "gre": 47,
    "esp": 50,
    "ah": 51,
    "icmp6": ICMPV6,
    "icmpv6": ICMPV6,
    "ospf": 89,
    "pim": 103,
    "vrrp": 112,
    "l2tp": 115,
    "sctp": SCTP,
    "udplite": UDP_LITE,
}
_NAMES = {number: name for name, number in reversed(PROTOCOLS.items())}  # the first name of each
_MOST_PORT = (1 << 16) - 1


class Allowed(NamedTuple):
    protocols: Flags  # 256
    ports: Flags  # 65,536


@dataclass(frozen=True)
class Lens:
    protocols: frozenset[int] | None = None  # None: all
    ports: frozenset[int] | None = None  # of either end; None: all
    counts: str = "hosts"  # what peers are: hosts, ports or host-ports
    hosts_have_ports: bool = False  # a host is an address with the port to which packets go

    @property
    def needs_ports(self) -> bool:
        return self.counts != "hosts" or self.hosts_have_ports

    @property
    def needs_details(self) -> bool:
        return self.needs_ports or self.protocols is not None or self.ports is not None

    @property
    def filter_words(self) -> str:
        """Which packets count, the same words however the options were written: tcp,udp port 80,8000-8100."""
        protocols = sorted(self.protocols or ())
        words = ",".join(_NAMES.get(number, str(number)) for number in protocols)
        ports = f"port {','.join(_ranges(sorted(self.ports)))}" if self.ports is not None else ""
        return " ".join(filter(None, (words, ports)))

    @cached_property
    def allowed(self) -> Allowed:
        protocols, ports = np.zeros(256, np.uint8), np.zeros(1 << 16, np.uint8)
        protocols[sorted(self.protocols or ())] = 1
        ports[sorted(self.ports or ())] = 1
        return Allowed(protocols, ports)


PLAIN_LENS = Lens()


def protocol_name(number: int) -> str:
    return _NAMES.get(number, str(number))


def parse_protocols(words: Iterable[str]) -> frozenset[int]:
    found = set()
    for word in words:
        number = PROTOCOLS.get(word.lower(), int(word) if word.isascii() and word.isdigit() else -1)
        if not 0 <= number <= 255:
            known = ", ".join(PROTOCOLS)
            raise UsageError(f"{setting('proto', word)}: neither a number up to 255 nor one of {known}")
        found.add(number)
    return frozenset(found)


def parse_ports(words: Iterable[str]) -> frozenset[int]:
    """Return ports, given as numbers, ranges (8000-8100) or names of services (https). Raise UsageError for others."""
    found: set[int] = set()
    for word in words:
        first, dash, last = word.partition("-")
        ends = [first, last if dash else first]
        if not all(end.isascii() and end.isdigit() for end in ends):
            ends = [_service(word)] * 2
        low, high = int(ends[0] or -1), int(ends[1] or -1)
        if not 0 <= low <= high <= _MOST_PORT:
            known = "a number up to 65535, a range like 8000-8100 or a service like https"
            raise UsageError(f"{setting('port', word)}: write {known}")
        found.update(range(low, high + 1))
    return frozenset(found)


def _service(word: str) -> str:
    try:
        return str(socket.getservbyname(word))
    except OSError:
        return ""


def _ranges(numbers: list[int]) -> list[str]:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]
