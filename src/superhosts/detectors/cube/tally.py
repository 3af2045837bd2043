"""What is known exactly of a cube that no longer has its pairs: how many peers each host had in the exact cubes in it.

A file of an exact cube has a tally: its hosts, and the number of peers of each. A union has the tallies of all its
members. A host of one tally has as many peers as it says; one of several has at least the largest of its numbers and at
most their sum. Tallies are known by the identity of their set of pairs, so to unite them is commutative, associative
and idempotent. A union with a cube that has none, of too many tallies, or with more hosts than an exact cube may have
pairs, has none: it estimates.

    tallies     (2, n)      identity of each tally, ascending, and its number of hosts
    tallyhosts  (words, n)  mangled hosts, ascending in each tally, stored as in the rows form, which has its own
    tallypeers  (n)         peers of each; in the rows form, less its number of rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Addresses, as_words, words_to_column
from superhosts.core.text import counted
from superhosts.cubefile.header import ArrayError
from superhosts.detectors.cube.geometry import Geometry
from superhosts.detectors.cube.rowform import Gathered, HostRows, add_differences, host_differences
from superhosts.detectors.cube.rowform import shapes as row_shapes
from superhosts.detectors.engines.base import Arrays, ArrayShape, Words

Numbers = NDArray[np.int64]
MOST = 10_000  # tallies of a union: each further one takes longer to add
BYTES_PER_HOST, BYTES_PER_TALLY = 64, 500  # upper bounds of the memory while they are read


def shapes(geometry: Geometry, *, rows: bool = False) -> dict[str, ArrayShape]:
    """Return the shapes of the arrays; beside `rows`, which have their hosts."""
    hosts = {} if rows else {"tallyhosts": row_shapes(geometry)["hosts"]}
    return {"tallies": ArrayShape((2, None)), **hosts, "tallypeers": ArrayShape((None,), "<u4")}


def memory_of(sides: Mapping[str, Sequence[int]]) -> int:
    tallies, hosts = (sides.get(name, [0])[-1] for name in ("tallies", "tallypeers"))
    return BYTES_PER_TALLY * tallies + BYTES_PER_HOST * max(hosts, sides.get("tallyhosts", [0])[-1])


class Tally(NamedTuple):
    hosts: Addresses  # mangled, ascending
    peers: NDArray[np.uint32]


class Bounds(NamedTuple):
    """Each host of some tallies once, ascending, and bounds of the number of its peers, which may be equal."""

    hosts: Addresses  # mangled
    low: Numbers
    high: Numbers


class Tallies:
    """Never changed: copies of a cube share them."""

    def __init__(self, geometry: Geometry, members: Mapping[int, Tally] | None = None) -> None:
        self._geometry, self._members = geometry, members or {}  # by identity

    @classmethod
    def of(cls, gathered: Gathered, geometry: Geometry) -> Tallies:
        tally = _tally(words_to_column(gathered.hosts, geometry.key_bits), gathered.peers)
        return cls(geometry, {gathered.identity: tally} if len(tally.peers) else {})

    @property
    def memory(self) -> int:
        return sum(tally.hosts.nbytes + tally.peers.nbytes for tally in self._members.values())

    def united(self, other: Tallies) -> Tallies | None:
        both = self._members.keys() & other._members.keys()
        if any(not _are_equal(self._members[each], other._members[each]) for each in both):
            return None  # Somebody has forged one of them.
        members = {**self._members, **other._members}
        hosts = sum(len(tally.peers) for tally in members.values())
        fits = len(members) <= MOST and hosts <= self._geometry.exact_pairs
        return Tallies(self._geometry, members) if fits else None

    @cached_property
    def bounds(self) -> Bounds:
        if len(self._members) == 1:
            (tally,) = self._members.values()
            peers = tally.peers.astype(np.int64)
            return Bounds(tally.hosts, peers, peers)
        hosts, all_peers = _tally(*self._columns())
        words = as_words(hosts)
        starts = np.flatnonzero(np.append(np.ones(min(len(words), 1), bool), (words[1:] != words[:-1]).any(axis=1)))
        if not len(starts):
            return Bounds(hosts, np.zeros(0, np.int64), np.zeros(0, np.int64))
        low, high = np.maximum.reduceat(all_peers, starts), np.add.reduceat(all_peers, starts, dtype=np.int64)
        return Bounds(hosts[starts], low.astype(np.int64), high)

    def _columns(self) -> tuple[Addresses, NDArray[np.uint32]]:
        """Return the hosts and peers of all tallies, by identity."""
        members = [tally for _, tally in sorted(self._members.items())]
        none: Any = words_to_column(np.zeros((0, 2), np.uint64), self._geometry.key_bits)
        hosts = np.concatenate([none, *(tally.hosts for tally in members)])
        return hosts, np.concatenate([np.zeros(0, np.uint32), *(tally.peers for tally in members)])

    @property
    def pairs(self) -> int | None:
        """The number of distinct pairs; None if it does not follow."""
        _, low, high = self.bounds
        return int(low.sum()) if np.array_equal(low, high) else None

    def find(self, mangled: Words) -> tuple[Numbers, Numbers]:
        """Return the bounds of hosts: 0 for those of no tally."""
        hosts, low, high = self.bounds
        asked = words_to_column(mangled, self._geometry.key_bits)
        if not len(hosts):
            return np.zeros(len(asked), np.int64), np.zeros(len(asked), np.int64)
        known, asked = _in_one(hosts), _in_one(asked)
        places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        found = known[places] == asked
        return np.where(found, low[places], 0), np.where(found, high[places], 0)

    # Files

    def arrays(self) -> Arrays:
        """Return the arrays of a file with bits."""
        hosts, peers = self._columns()
        identities = sorted(self._members)
        sizes = np.array([len(self._members[each].peers) for each in identities], np.int64)
        shape = shapes(self._geometry)["tallyhosts"]
        stored = host_differences(as_words(hosts), sizes)
        return {
            "tallies": np.stack([np.array(identities, np.uint64), sizes.astype(np.uint64)]),
            "tallyhosts": stored[0 if shape.sides[0] == 2 else 1 :].astype(shape.dtype),
            "tallypeers": peers,
        }

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]], rows: HostRows | None, geometry: Geometry) -> Tallies | None:
        """Return the tallies of a file, with `rows` if it has any; None if it has none. Raise ArrayError."""
        if "tallies" not in arrays:
            return None
        (identities, sizes), peers = arrays["tallies"], arrays["tallypeers"].astype(np.int64)
        if len(identities) > MOST or (identities[1:] <= identities[:-1]).any():
            raise ArrayError("tallies", f"must be at most {MOST:,}, in ascending order")
        if (sizes < 1).any() or (sizes > len(peers)).any() or sizes.sum() != len(peers):
            raise ArrayError("tallies", f"must have {counted(len(peers), 'host')} in all, at least one in each")
        if rows is not None:
            hosts = rows.hosts
            if len(sizes) > 1 or len(hosts) != len(peers):
                raise ArrayError("tallies", f"must be one, of {counted(len(hosts), 'host')}")
            peers += np.diff(rows.starts)
        else:
            hosts = np.empty((len(peers), 2), np.uint64)
            stored = arrays["tallyhosts"]
            if stored.shape[1] != len(peers):
                raise ArrayError("tallyhosts", f"has {counted(stored.shape[1], 'host')}, must have {len(peers):,}")
            wrong = add_differences(stored, sizes.astype(np.int64), geometry.key_bits, hosts)
            if wrong >= 0:
                raise ArrayError("tallyhosts", f"host {wrong} has more than {geometry.key_bits} bits")
        ends = np.cumsum(sizes).astype(np.int64)
        if len(peers) > geometry.exact_pairs or (peers < 1).any():
            raise ArrayError("tallypeers", f"must be at least 1, for at most {counted(geometry.exact_pairs, 'host')}")
        if len(peers) and (np.add.reduceat(peers, ends - sizes.astype(np.int64)) > geometry.exact_pairs).any():
            raise ArrayError("tallypeers", f"more than {counted(geometry.exact_pairs, 'pair')}, the most that is exact")
        column: Any = words_to_column(hosts, geometry.key_bits)
        spans = zip(identities.tolist(), np.split(column, ends), np.split(peers.astype(np.uint32), ends), strict=False)
        return cls(geometry, {identity: _tally(hosts, peers) for identity, hosts, peers in spans})


def beside_rows(gathered: Gathered) -> Arrays:
    """Return the arrays of the tally in a file with rows."""
    tallies = np.array([[gathered.identity], [len(gathered.hosts)]], np.uint64)
    return {
        "tallies": tallies if len(gathered.hosts) else tallies[:, :0],
        "tallypeers": (gathered.peers - gathered.counts).astype(np.uint32),
    }


def _are_equal(one: Tally, other: Tally) -> bool:
    return one is other or all(map(np.array_equal, one, other))


def _tally(hosts: Addresses, peers: NDArray[np.uint32]) -> Tally:
    order = np.lexsort((hosts[:, 1], hosts[:, 0])) if hosts.ndim == 2 else np.argsort(hosts, kind="stable")
    return Tally(hosts[order], peers[order])


def _in_one(hosts: Addresses) -> Any:
    """Return hosts as one value each, in the same order."""
    if hosts.ndim == 1:
        return hosts
    return np.ascontiguousarray(hosts).view([("high", np.uint64), ("low", np.uint64)])[:, 0]
