"""The exact answer to synthetic traffic, counted from the packets themselves.

Nothing here uses the model: a `Tally` takes packets, keeps the distinct (host, peer) pairs of the present window in
a hash set that compares whole addresses, and counts each host's peers when the window is over. Memory follows the
flows of one window.

Hosts are those of the design: an inner end of a packet (side "inner"), or its outer end where the other end is inner
(side "outer"). Hosts may be prefixes, peers are full addresses. Rows have the keys of every result of this package,
with the detector "exact" and an interval of no width.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import IPV4_PREFIX, IPV6_PREFIX, THRESHOLD
from superhosts.core.pairs import HostFormat, PacketBatch, PacketBlock
from superhosts.core.results import COLUMNS
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND
from superhosts.errors import UsageError
from superhosts.sources.synthetic.traffic import Traffic, insert_rows

Row = dict[str, Any]
Words = NDArray[np.uint64]


class DistinctRows:
    """A growing set of rows of 64-bit words; each keeps the number that it got when it was first seen."""

    def __init__(self, width: int) -> None:
        self._kept: Words = np.empty((1 << 12, width), np.uint64)
        self._table = np.full(1 << 13, -1, np.int32)
        self._count = 0

    @property
    def rows(self) -> Words:
        return self._kept[: self._count]

    def add(self, rows: Words) -> NDArray[np.int32]:
        """Add rows; return the number of each."""
        if self._count + len(rows) > len(self._kept):
            size = 1 << (self._count + len(rows)).bit_length()
            kept, table = np.empty((size, self._kept.shape[1]), np.uint64), np.full(2 * size, -1, np.int32)
            insert_rows(self.rows, table, kept, 0, np.empty(self._count, np.int32))
            self._kept, self._table = kept, table
        ids = np.empty(len(rows), np.int32)
        self._count = insert_rows(np.ascontiguousarray(rows), self._table, self._kept, self._count, ids)
        return ids


class Tally:
    """Counts the exact answer as packets pass. Windows must come in order."""

    def __init__(
        self, traffic: Traffic, minimum: int = 100, ipv6_prefix: int = IPV6_PREFIX, ipv4_prefix: int = IPV4_PREFIX
    ) -> None:
        for family, bits, most in ((4, ipv4_prefix, 32), (6, ipv6_prefix, 128)):
            if not 1 <= bits <= most:
                raise UsageError(f"IPv{family} prefix length {bits}: choose 1 to {most}")
        if minimum < 1:
            raise UsageError(f"smallest host of the truth {minimum}: at least 1 is needed")
        self.networks = {family: traffic.network(family) for family in traffic.families}
        self.length = traffic.window_seconds * SECOND
        self.minimum = minimum
        self._formats = {4: HostFormat(4, ipv4_prefix), 6: HostFormat(6, ipv6_prefix)}
        self.flows = 0  # distinct pairs of inner hosts, over all closed windows
        self.super_hosts = 0  # inner hosts of at least 1024 peers, over all closed windows
        self._window: int | None = None
        self._pairs: dict[int, DistinctRows] = {}
        self._rows: list[Row] = []

    def add(self, block: PacketBlock) -> None:
        for window in sorted({int(time // self.length) for batch in block for time in batch.time[[0, -1]]}):
            if window != self._window:
                self._close()
                self._window = window
            for batch in block:
                inside = batch.time // self.length == window
                self._add(batch.take(inside))

    def rows(self) -> list[Row]:
        """Close the last window; return all rows so far, sorted by window, then by peers descending."""
        self._close()
        return self._rows

    def _add(self, batch: PacketBatch) -> None:
        src, dst = _words(batch.src), _words(batch.dst)
        different = (src != dst).any(axis=1)
        inner_src, inner_dst = self._is_inner(src, batch.family), self._is_inner(dst, batch.family)
        pairs = self._pairs.setdefault(batch.family, DistinctRows(2 * src.shape[1]))
        for host, peer, chosen in ((src, dst, inner_src), (dst, src, inner_dst)):
            pairs.add(np.concatenate([host, peer], axis=1)[chosen & different])

    def _is_inner(self, words: Words, family: int) -> NDArray[np.bool_]:
        """Return which addresses are in the monitored network, whose prefix ends in the first word."""
        address, length = self.networks[family]
        shift = (32 if family == 4 else 64) - length
        top = address if family == 4 else address >> 64
        inner: NDArray[np.bool_] = (words[:, 0] >> np.uint64(shift)) == np.uint64(top >> shift)
        return inner

    def _close(self) -> None:
        found: list[tuple[Any, Row]] = []
        for family, pairs in self._pairs.items():
            half = pairs.rows.shape[1] // 2
            host, peer = pairs.rows[:, :half], pairs.rows[:, half:]
            self.flows += len(pairs.rows)
            found += self._side("inner", family, host, peer)
            outer = ~self._is_inner(peer, family)
            found += self._side("outer", family, peer[outer], host[outer])
        self._rows += [row for _, row in sorted(found, key=lambda entry: entry[0])]
        self._pairs = {}

    def _side(self, side: str, family: int, host: Words, peer: Words) -> Iterator[tuple[Any, Row]]:
        """Count the peers of each host; yield the rows of those that have enough, each behind what sorts them."""
        assert self._window is not None
        bits, width = self._formats[family].prefix, host.shape[1]
        whole = 32 if family == 4 else 128
        if bits < whole:  # several hosts of a prefix may share a peer: count it once
            mask = ((1 << bits) - 1) << (whole - bits)
            words = np.array([mask >> 64, mask & (2**64 - 1)][-width:], np.uint64)
            distinct = DistinctRows(2 * width)
            distinct.add(np.concatenate([host & words, peer], axis=1))
            host = distinct.rows[:, :width]
        hosts = DistinctRows(host.shape[1])
        peers = np.bincount(hosts.add(host), minlength=len(hosts.rows))
        if side == "inner":
            self.super_hosts += int((peers >= THRESHOLD).sum())
        start, end = (iso_time(window * self.length) for window in (self._window, self._window + 1))
        for place in np.flatnonzero(peers >= self.minimum).tolist():
            words_of_host, count = tuple(hosts.rows[place].tolist()), int(peers[place])
            part = (family, side, "any")
            name = self._text(words_of_host, family)
            row = dict(zip(COLUMNS, (start, end, name, *part, count, count, count, True, False, "exact"), strict=True))
            yield (-count, family, side, words_of_host), row

    def _text(self, words: tuple[int, ...], family: int) -> str:
        host = self._formats[family]
        if family == 4:
            return str(host.to_host(words[0]))
        return str(host.to_host(words[0] << 64 | words[1] if host.key_bits == 128 else words[0]))


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
    words: Words = addresses.astype(np.uint64, copy=False)
    return words.reshape(len(words), -1) if len(words) else words.reshape(0, 1 if words.ndim == 1 else 2)
