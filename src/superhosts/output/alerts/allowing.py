"""Allow-lists: hosts for which no alert is wanted, and hosts against which nothing may ever be done.

A line of a list is a host or a prefix, and perhaps the rule for which it is meant:

    10.0.0.53                # our resolver: no rule
    192.0.2.0/24  scan-out   # our own scanners: this rule only
    peers:198.51.100.0/24    # hosts that talk to these alone, as far as their evidence shows
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from superhosts.core.pairs import Network
from superhosts.core.prefixes import PRIVATE_NETWORKS
from superhosts.core.text import printable
from superhosts.errors import InputError, UsageError
from superhosts.output.alerts.rules import NAME, as_network, contains
from superhosts.output.rows import Row

# Public resolvers and the root servers: to block them harms everybody, and forged packets may come from them.
_RESOLVERS = "1.1.1.1 1.0.0.1 8.8.8.8 8.8.4.4 9.9.9.9 149.112.112.112 208.67.222.222 208.67.220.220"
_RESOLVERS += (
    " 2606:4700:4700::1111 2606:4700:4700::1001 2001:4860:4860::8888 2001:4860:4860::8844 2620:fe::fe 2620:fe::9"
)
_ROOTS = "198.41.0.4 170.247.170.2 192.33.4.12 199.7.91.13 192.203.230.10 192.5.5.241 192.112.36.4 198.97.190.53"
_ROOTS += " 192.36.148.17 192.58.128.30 193.0.14.129 199.7.83.42 202.12.27.33 2001:503:ba3e::2:30 2801:1b8:10::b"
_ROOTS += " 2001:500:2::c 2001:500:2d::d 2001:500:a8::e 2001:500:2f::f 2001:500:12::d0d 2001:500:1::53 2001:7fe::53"
_ROOTS += " 2001:503:c27::2:30 2001:7fd::1 2001:500:9f::42 2001:dc3::35"
_SPECIAL = "0.0.0.0/8 100.64.0.0/10 127.0.0.0/8 224.0.0.0/3 ::1/128 ff00::/8"


PEERS = "peers:"  # before a prefix of peers


class Entry(NamedTuple):
    """One line of a list."""

    network: Network
    rule: str = ""  # empty: all rules
    place: str = ""  # where it stands, for messages
    of_peers: bool = False  # the prefix is one of peers, not of hosts

    def covers(self, network: Network, rule: str) -> bool:
        """Return True if a host is allowed for a rule."""
        return not self.of_peers and self.rule in ("", rule) and contains(self.network, network)


class AllowList:
    """Hosts for which no alert is wanted. Asked once for a row, so a list of some thousand prefixes is fine."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = tuple(entries)

    @classmethod
    def of(cls, lines: Iterable[str], place: str = "allow") -> AllowList:
        """Read lines. Raise UsageError, which names the line, if one is wrong."""
        return cls(entry for number, line in enumerate(lines, 1) for entry in _entries(line, f"{place}, line {number}"))

    @classmethod
    def read(cls, path: Path) -> AllowList:
        """Read a file. Raise InputError, which names the line, if it cannot be read or a line is wrong."""
        try:
            return cls.of(path.read_text("utf-8").splitlines(), "the list")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read: {error}", file=str(path)) from None
        except UsageError as error:
            raise InputError(str(error), file=str(path)) from None

    def __or__(self, other: AllowList) -> AllowList:
        return AllowList((*self.entries, *other.entries))

    def entry_for(self, network: Network | None, rule: str) -> Entry | None:
        """Return the entry that allows a host; None if there is none."""
        return next((each for each in self.entries if network is not None and each.covers(network, rule)), None)

    def covers_peers(self, peers: Sequence[Network], rule: str) -> bool:
        """Return True if all of these peers of a host are allowed for a rule; False if none are known."""
        allowed = [each.network for each in self.entries if each.of_peers and each.rule in ("", rule)]
        return bool(peers) and all(any(contains(prefix, peer) for prefix in allowed) for peer in peers)


def peers_named(row: Row) -> list[Network]:
    """Return the peers that the evidence of a row names."""
    return [as_network(text, "peer") for text in row.get("evidence", {}).get("peers", ())]


def _entries(line: str, place: str) -> list[Entry]:
    words = line.partition("#")[0].split()
    if not words:
        return []
    if len(words) > 2 or (len(words) == 2 and not NAME.fullmatch(words[1])):
        raise UsageError(
            f"{place}: {printable(line.strip())!r}: write an address or a prefix, and perhaps a rule's name"
        )
    network, rule = (*words, "")[:2]
    of_peers = network.startswith(PEERS)
    return [Entry(as_network(network.removeprefix(PEERS), place), rule, place, of_peers)]


def never_act(own: Iterable[str] = ()) -> AllowList:
    """Return the hosts against which no action may be taken: one's own, private ones, resolvers and root servers."""
    listed = [as_network(text, "never act") for text in f"{_RESOLVERS} {_ROOTS} {_SPECIAL}".split()]
    given = [as_network(text, "never act") for text in own]
    return AllowList(Entry(network, place="never act") for network in (*given, *PRIVATE_NETWORKS, *listed))
