"""Labels of addresses and prefixes, from a CSV file: the most specific one decides.

A host that is a prefix has the label of that prefix; else of an address in it, because of IPv6 a host is a /64, and
inventories name addresses; else of the longest prefix around it. Of prefixes that are larger than a subnet, one address
says nothing.

    prefix,label
    10.1.0.0/16,office
    10.1.2.3,mail gateway

A first line with names of columns is recognised by the names, in any order, among others; without one, the first two
columns count. Lines that begin with # are comments.
"""

from __future__ import annotations

import csv
import ipaddress
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from superhosts.core.pairs import Network
from superhosts.core.text import counted, printable
from superhosts.errors import UsageError

PREFIXES: Final = ("prefix", "network", "cidr", "subnet", "address", "ip", "host")
LABELS: Final = ("label", "name", "description", "hostname", "role")
MOST_LABEL: Final = 200  # characters that are kept
MOST_LINES: Final = 2_000_000
BITS: Final = {4: 32, 6: 128}
SUBNET: Final = {4: 24, 6: 64}  # bits of the largest prefix that is named after an address in it


class Inventory:
    """Labels by prefix."""

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda _: None) -> None:
        """Read a file. Raise UsageError, which names the line, if it is no such list, or an empty one."""
        self.path = path
        self._nameless: list[int] = []  # lines without a label
        if path.exists() and not path.is_file():
            raise UsageError(f"--labels {path}: not a plain file")
        # address family → prefix length, longest first → number of the prefix → label
        self._labels: dict[int, dict[int, dict[int, str]]] = {4: {}, 6: {}}
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                self._read(file)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--labels {path}: cannot be read: {reason}") from None
        if not any(self._labels.values()):
            raise UsageError(f"--labels {path}: has no labels; lines are like 10.1.0.0/16,office")
        if self._nameless:
            others = counted(len(self._nameless) - 1, "other line")
            more = f" (and {others})" if len(self._nameless) > 1 else ""
            warn(f"--labels {path}: line {self._nameless[0]}{more}: no label; left out")
        self._addresses = {family: sorted(lengths.get(BITS[family], ())) for family, lengths in self._labels.items()}
        for family, lengths in self._labels.items():
            self._labels[family] = dict(sorted(lengths.items(), reverse=True))

    def _read(self, file: Iterable[str]) -> None:
        places: tuple[int, int] | None = None
        begins = True  # A quoted label may go on in the next line, which is no comment then.

        def without_comments() -> Iterator[str]:
            nonlocal begins
            for text in file:
                is_comment, begins = begins and text.lstrip().startswith("#"), False
                yield "" if is_comment else text

        lines = csv.reader(without_comments())
        for line in lines:
            begins = True
            if not any(cell.strip() for cell in line):
                continue
            if places is None:
                places = _places(line)
                if places is not None:
                    continue
                places = 0, 1
            if lines.line_num > MOST_LINES:
                raise UsageError(f"--labels {self.path}: has more than {MOST_LINES:,} lines")
            self._add(line, places, lines.line_num)

    def _add(self, line: list[str], places: tuple[int, int], number: int) -> None:
        where = f"--labels {self.path}: line {number}"
        if len(line) <= max(places):
            raise UsageError(f"{where}: a prefix and a label are needed, like 10.1.0.0/16,office")
        text, label = line[places[0]].strip(), line[places[1]].strip()
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise UsageError(f"{where}: {printable(text)!r} is neither an address nor a prefix") from None
        if not label:
            self._nameless.append(number)
            return
        numbers = self._labels[network.version].setdefault(network.prefixlen, {})
        numbers[int(network.network_address)] = label[:MOST_LABEL]

    def label(self, host: Network) -> str | None:
        """Return the label of a host, which is an address or a prefix."""
        number, bits, known = int(host.network_address), host.max_prefixlen, self._labels[host.version]
        inside = known.get(host.prefixlen, {}).get(number) or self._inside(host)
        if inside is not None:
            return inside
        for length, labels in known.items():
            if length < host.prefixlen and (found := labels.get(number >> (bits - length) << (bits - length))):
                return found
        return None

    def _inside(self, host: Network) -> str | None:
        """Return the label of the address with a label that a prefix has; if there are several, of the first one."""
        if host.prefixlen < SUBNET[host.version]:
            return None
        addresses = self._addresses[host.version]
        first = bisect_left(addresses, int(host.network_address))
        count = bisect_left(addresses, int(host.broadcast_address) + 1) - first
        if not count:
            return None
        label = self._labels[host.version][host.max_prefixlen][addresses[first]]
        return label if count == 1 else f"{label} and {count - 1:,} more"


def _places(names: list[str]) -> tuple[int, int] | None:
    """Return which columns hold the prefix and the label, if these are names of columns."""
    known = [name.strip().lower() for name in names]
    places = [next((known.index(name) for name in wanted if name in known), None) for wanted in (PREFIXES, LABELS)]
    return None if places[0] is None or places[1] is None else (places[0], places[1])
