"""Labels of addresses and prefixes, from a CSV file: the most specific prefix that holds a host decides.

    prefix,label
    10.1.0.0/16,office
    10.1.2.3,mail gateway

A first line with names of columns is recognised by the names, in any order, among others; without one, the first two
columns count. Lines that begin with # are comments.
"""

from __future__ import annotations

import csv
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from superhosts.errors import UsageError
from superhosts.pairs import Network
from superhosts.text import printable

PREFIXES: Final = ("prefix", "network", "cidr", "subnet", "address", "ip", "host")
LABELS: Final = ("label", "name", "description", "hostname", "role")
MOST_LABEL: Final = 200  # characters that are kept
MOST_LINES: Final = 2_000_000


class Inventory:
    """Labels by prefix."""

    def __init__(self, path: Path) -> None:
        """Read a file. Raise UsageError, which names the line, if it is no such list."""
        self.path = path
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
        for family, lengths in self._labels.items():
            self._labels[family] = dict(sorted(lengths.items(), reverse=True))

    def _read(self, file: Iterable[str]) -> None:
        places: tuple[int, int] | None = None
        lines = csv.reader("" if line.lstrip().startswith("#") else line for line in file)
        for line in lines:
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
        numbers = self._labels[network.version].setdefault(network.prefixlen, {})
        numbers[int(network.network_address)] = label[:MOST_LABEL]

    def label(self, host: Network) -> str | None:
        """Return the label of a host, which is an address or a prefix."""
        number = int(host.network_address)
        bits = host.max_prefixlen
        for length, labels in self._labels[host.version].items():
            if length <= host.prefixlen and (found := labels.get(number >> (bits - length) << (bits - length))):
                return found
        return None


def _places(names: list[str]) -> tuple[int, int] | None:
    """Return which columns hold the prefix and the label, if these are names of columns."""
    known = [name.strip().lower() for name in names]
    places = [next((known.index(name) for name in wanted if name in known), None) for wanted in (PREFIXES, LABELS)]
    return None if places[0] is None or places[1] is None else (places[0], places[1])
