"""The rows of a window as the screen needs them: safe to show, in some order, and those that a filter leaves.

Names, labels and addresses come from traffic and from other machines. They are made printable here, once.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from superhosts.core.text import printable
from superhosts.ui.top.feed import Json
from superhosts.ui.views.board import name_of

MOST_NAME = 80  # characters


class HostRow(NamedTuple):
    """One host of a window. All text is printable."""

    host: str
    name: str  # its label or name
    side: str
    direction: str
    peers: int | None  # None: saturated
    low: int
    high: int | None
    pattern: str
    sites: tuple[str, ...]  # that saw it, the one with the most peers first
    asked: str  # the host as the other side writes it
    row: Json  # everything

    @property
    def key(self) -> tuple[str, str, str, Any]:
        """What the cursor stays on when rows change."""
        return self.asked, self.side, self.direction, self.row.get("counts")

    @property
    def known(self) -> int:
        """The peers, or the least that they are."""
        return self.low if self.peers is None else self.peers

    @property
    def most(self) -> int:
        """The end of the interval, as far as it is known."""
        return max(self.known, self.high or 0)

    @property
    def is_exact(self) -> bool:
        """Return True if the interval is a single number."""
        return self.peers is not None and self.low == self.peers == self.high


def host_rows(rows: Iterable[Json]) -> list[HostRow]:
    """Return the rows of an answer."""
    return [_host_row(row) for row in rows]


def _host_row(row: Json) -> HostRow:
    sites = row.get("sites") or ()
    names = tuple(printable(site["site"], MOST_NAME) for site in sites)
    peers, high = row["peers"], row["peers_high"]
    return HostRow(
        host=printable(row["host"]),
        name=printable(name_of(row), MOST_NAME),
        side=printable(row.get("side", "")),
        direction=printable(row.get("direction", "")),
        peers=None if peers is None else int(peers),
        low=int(row["peers_low"]),
        high=None if high is None else int(high),
        pattern=printable(row.get("pattern") or "", MOST_NAME),
        sites=names,
        asked=str(row["host"]),
        row=row,
    )


def _by_address(row: HostRow) -> tuple[int, int, str]:
    """Sort addresses as numbers, IPv4 before IPv6, and names behind them."""
    try:
        network = ipaddress.ip_network(row.asked, strict=False)
    except ValueError:
        return 9, 0, row.asked
    return network.version, int(network.network_address), row.asked


ORDERS: dict[str, Callable[[HostRow], Any]] = {  # names of columns, in the order in which one key cycles through them
    "peers": lambda row: -row.known,
    "host": _by_address,
    "name": lambda row: (not row.name, row.name.casefold()),
    "pattern": lambda row: (not row.pattern, row.pattern),
    "sites": lambda row: -len(row.sites),
}


def ordered(rows: Sequence[HostRow], order: str) -> list[HostRow]:
    """Return rows in an order, and those that it leaves equal by their peers."""
    return sorted(sorted(rows, key=ORDERS["peers"]), key=ORDERS[order])


def filtered(rows: Sequence[HostRow], text: str) -> list[HostRow]:
    """Return the rows that contain a text, or whose address is in a prefix. Several words must all be found."""
    tests = [_test(word) for word in text.split()]
    return [row for row in rows if all(test(row) for test in tests)]


def _test(word: str) -> Callable[[HostRow], bool]:
    if "/" in word:
        try:
            network = ipaddress.ip_network(word, strict=False)
        except ValueError:
            pass
        else:
            return lambda row: _is_in(row.asked, network)
    wanted = word.casefold()
    return lambda row: wanted in "\n".join((row.host, row.name, row.pattern, *row.sites)).casefold()


def _is_in(host: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    try:
        address = ipaddress.ip_network(host, strict=False)
    except ValueError:
        return False
    return (
        address.version == network.version
        and address.network_address in network
        and address.prefixlen >= network.prefixlen
    )
