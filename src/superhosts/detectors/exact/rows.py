"""Operations on rows of pairs: pack, group into buckets by host, sort and count.

A row is one word if host and peer have 32 bits; otherwise it is the host in one or two words and the peer in two.
Functions of rows take the array library `xp`: NumPy, or CuPy for rows in a GPU's memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Addresses
from superhosts.detectors.exact import cuda
from superhosts.jit.cache import compiled

Rows = NDArray[np.uint64]
HALF, LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)


class Counts(NamedTuple):
    """Hosts of one bucket and the number of distinct peers of each."""

    hosts: Rows
    peers: NDArray[np.int64]

    def at_least(self, minimum: float) -> Counts:
        """Return the hosts with at least `minimum` peers."""
        enough = self.peers >= minimum
        return Counts(self.hosts[enough], self.peers[enough])


@compiled
def group_by_bucket(rows: Rows, host_words: int, buckets: int) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows in the order of their host's bucket, and the start of each bucket."""
    bucket = np.empty(len(rows), np.uint8)
    begins = np.zeros(buckets + 1, np.int64)
    for i in range(len(rows)):
        x = rows[i, 0]
        if rows.shape[1] == 1:
            x >>= np.uint64(32)  # The host must have the same bucket as in a wider row.
        if host_words == 2:
            x ^= rows[i, 1] * np.uint64(3)
        bucket[i] = (x * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58)
        begins[np.int64(bucket[i]) + 1] += 1
    for b in range(buckets):
        begins[b + 1] += begins[b]
    cursors = begins.copy()
    out = np.empty_like(rows)
    for i in range(len(rows)):
        slot = cursors[bucket[i]]
        cursors[bucket[i]] += 1
        for w in range(rows.shape[1]):
            out[slot, w] = rows[i, w]
    return out, begins


def pack(hosts: Addresses, peers: Addresses, xp: Any) -> Rows:
    """Return rows of one word, with a 32-bit host and a 32-bit peer each."""
    if xp is not np:
        rows: Rows = cuda.pack(hosts, peers, xp)[:, None]
        return rows
    words = hosts.astype(np.uint64)
    words <<= HALF
    words |= peers
    return words[:, None]


def wide_rows(hosts: Addresses, peers: Addresses, host_words: int, xp: Any) -> Rows:
    """Return rows with the words of the host and two words for the peer."""
    rows: Rows = xp.zeros((len(hosts), host_words + 2), np.uint64)
    rows[:, :host_words] = hosts if hosts.ndim == 2 else hosts[:, None]
    rows[:, -peers.ndim :] = peers if peers.ndim == 2 else peers[:, None]  # A peer has as many words as dimensions.
    return rows


def widen(rows: Rows, xp: Any) -> Rows:
    """Convert rows of one word to the format for wide peers. Their order and buckets do not change."""
    return wide_rows(rows[:, 0] >> HALF, rows[:, 0] & LOW_HALF, 1, xp)


def _changes(rows: Rows, xp: Any) -> NDArray[np.bool_]:
    """Mark the rows that differ from the previous one. The first row is always marked."""
    marks: NDArray[np.bool_] = xp.zeros(len(rows), bool)
    marks[:1] = True
    later = marks[1:]
    for column in rows.T:  # Word by word, this is faster than a reduction over such a short axis.
        later |= column[1:] != column[:-1]
    return marks


def distinct(kept: Rows, new: list[Rows], xp: Any) -> Rows:
    """Sort new rows into the kept ones and drop repeats. Only new rows may be sorted in place."""
    new = [rows for rows in new if len(rows)]
    if not new:
        return kept
    parts = [kept, *new] if len(kept) else new
    rows: Rows = parts[0] if len(parts) == 1 else xp.concatenate(parts)
    if rows.shape[1] == 1:
        words = rows.reshape(-1)  # In one dimension, CuPy sorts in place, and masks cost half.
        words.sort()
        return words[_changes(words[:, None], xp)][:, None]
    rows = rows[xp.lexsort(rows.T[::-1])]
    return rows[_changes(rows, xp)]


def hosts_of(rows: Rows, host_words: int) -> Rows:
    """Return only the words of the hosts."""
    return rows >> HALF if rows.shape[1] == 1 else rows[:, :host_words]


def count_peers(rows: Rows, host_words: int, xp: Any) -> Counts:
    """Return the number of rows of each host. Rows must be sorted and distinct."""
    hosts = hosts_of(rows, host_words)
    begins = xp.flatnonzero(_changes(hosts, xp))
    return Counts(hosts[begins], xp.diff(begins, append=len(rows)))
