"""The oracle of columns: pairs of addresses as Python sets, from values of any kind, one by one."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

IPv4 = ipaddress.IPv4Address
IPv6 = ipaddress.IPv6Address


def address(value: Any) -> IPv4 | IPv6:
    """Return one value as an address; IPv4-mapped IPv6 is IPv4."""
    found = ipaddress.ip_address(value)
    return (found.ipv4_mapped or found) if isinstance(found, IPv6) else found


def peers_of(hosts: Iterable[Any], peers: Iterable[Any]) -> tuple[dict[str, int], int]:
    """Return the number of distinct peers of each host, and the number of rows with a None."""
    seen: dict[str, set[Any]] = {}
    dropped = 0
    for host, peer in zip(hosts, peers, strict=True):
        if host is None or peer is None:
            dropped += 1
        else:
            seen.setdefault(str(address(host)), set()).add(address(peer))
    return {host: len(found) for host, found in seen.items()}, dropped
