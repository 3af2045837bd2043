"""The exact answer to synthetic traffic.

The flows of a window are its distinct (inner host, outer peer) pairs, and each has a packet. So counting the flows of a
host (side "inner") or of an outer peer (side "outer") counts what the packets show. Hosts may be prefixes, peers are
full addresses. Rows have the keys of every result of this package, with the detector "exact" and an interval of no
width.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import IPV4_PREFIX, IPV6_PREFIX, THRESHOLD
from superhosts.core.pairs import HostFormat
from superhosts.core.results import COLUMNS
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND
from superhosts.errors import UsageError
from superhosts.sources.synthetic.traffic import Traffic, window_flows

Row = dict[str, Any]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Truth:
    """The answer to some traffic: hosts of at least `minimum` peers."""

    traffic: Traffic
    minimum: int = 100
    ipv6_prefix: int = IPV6_PREFIX
    ipv4_prefix: int = IPV4_PREFIX

    def __post_init__(self) -> None:
        for family, bits, most in ((4, self.ipv4_prefix, 32), (6, self.ipv6_prefix, 128)):
            if not 1 <= bits <= most:
                raise UsageError(f"IPv{family} prefix length {bits}: choose 1 to {most}")
        if self.minimum < 1:
            raise UsageError(f"smallest host of the truth {self.minimum}: at least 1 is needed")

    def rows(self) -> tuple[list[Row], int]:
        """Return the rows, by window and then by peers descending; and how many inner hosts have 1024 or more peers."""
        rows: list[Row] = []
        supers = 0
        length = self.traffic.window_seconds * SECOND
        for number in range(self.traffic.windows):
            start = self.traffic.first_window + number * length
            span = iso_time(start), iso_time(start + length)
            found = []
            for family in self.traffic.families:
                host, peer = (_words(ends) for ends in window_flows(self.traffic, number, family))
                for side, hosts, peers in (("inner", host, peer), ("outer", peer, host)):
                    counted = self._count(family, hosts, peers)
                    supers += int((counted[1] >= THRESHOLD).sum()) if side == "inner" else 0
                    for words, name, count in self._large(family, *counted):
                        values = (*span, name, family, side, "any", count, count, count, True, False, "exact")
                        found.append(((-count, family, side, words), dict(zip(COLUMNS, values, strict=True))))
            rows += [row for _, row in sorted(found, key=lambda entry: entry[0])]
        return rows, supers

    def _format(self, family: int) -> HostFormat:
        return HostFormat(4, self.ipv4_prefix) if family == 4 else HostFormat(6, self.ipv6_prefix)

    def _count(self, family: int, hosts: Words, peers: Words) -> tuple[Words, NDArray[np.int64]]:
        """Return the distinct hosts, and the number of peers of each. The pairs are distinct."""
        bits, whole, width = self._format(family).prefix, 32 if family == 4 else 128, hosts.shape[1]
        if bits < whole:  # several hosts of a prefix may share a peer: count it once
            mask = ((1 << bits) - 1) << (whole - bits)
            words = np.array([mask >> 64, mask & (2**64 - 1)][-width:], np.uint64)
            hosts = _distinct(np.concatenate([hosts & words, peers], axis=1))[0][:, :width]
        return _distinct(hosts)

    def _large(self, family: int, hosts: Words, peers: NDArray[np.int64]) -> Iterator[tuple[tuple[int, ...], str, int]]:
        format = self._format(family)
        for place in np.flatnonzero(peers >= self.minimum).tolist():
            words = tuple(hosts[place].tolist())
            number = words[0] << 64 | words[1] if family == 6 and format.key_bits == 128 else words[0]
            yield words, str(format.to_host(number)), int(peers[place])


def _distinct(rows: Words) -> tuple[Words, NDArray[np.int64]]:
    """Return the distinct rows, sorted, and how often each is there."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = np.flatnonzero(is_first)
    return ordered[places], np.diff(places, append=len(rows))


def is_truth(path: Path) -> bool:
    """Return True if a file looks like one that `write_rows` wrote: rows of exact numbers, or nothing."""
    try:
        with path.open(encoding="ascii") as file:
            line = file.readline()
        row = json.loads(line) if line else {}
    except (OSError, ValueError, RecursionError):
        return False
    return not line or (isinstance(row, dict) and tuple(row) == COLUMNS and row["detector"] == "exact")


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", encoding="ascii") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _words(addresses: NDArray[Any]) -> Words:
    """Return addresses as rows of 64-bit words: one for IPv4, two for IPv6."""
    return addresses.astype(np.uint64).reshape(len(addresses), -1)
