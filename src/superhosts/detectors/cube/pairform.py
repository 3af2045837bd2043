"""The pairs form of a cube: the set of pairs itself, for another process of one program.

Only pickles have it, and bytes for which it is asked: unlike the other forms, it tells who talked to whom.

    pairs   (n, 1)      mangled host, 32 bits, and peer, 32 bits, if all of them are as short
            (n, words)  else one or two words of the mangled host, high first, and one of the peer (folded if wider)

Pairs ascend, so the form is a function of the set alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, Key, mangle_column
from superhosts.core.pairs import Addresses, words_to_column
from superhosts.core.text import counted
from superhosts.cubefile.header import ArrayError
from superhosts.detectors.cube.geometry import Geometry
from superhosts.detectors.engines.base import Arrays, ArrayShape, Words
from superhosts.detectors.engines.bins import Portion, unpack_all
from superhosts.detectors.engines.pairset import PairSet

_LOW, _32 = np.uint64(MASK32), np.uint64(32)


def shapes(geometry: Geometry) -> dict[str, ArrayShape]:
    return {"pairs": ArrayShape((None, {32: (1, 2), 64: (2,), 128: (3,)}[geometry.key_bits]))}


def memory_of(sides: Mapping[str, Sequence[int]]) -> int:
    return 4 * 8 * math.prod(sides.get("pairs", [0]))  # as they are read, ordered and put into tables


def encode(pairs: PairSet, geometry: Geometry) -> Arrays:
    found = [(np.empty((0, 2), np.uint64), np.empty(0, np.uint64))]

    def take(portion: Portion) -> None:
        found.append(unpack_all(portion))

    pairs.pass_to(take, pairs.bins.threads)
    hosts, peers = map(np.concatenate, zip(*found, strict=True))
    found.clear()
    if geometry.key_bits == 32 and not (peers > _LOW).any():
        return {"pairs": np.sort(hosts[:, 1] << _32 | peers)[:, None]}
    order = np.lexsort((peers, hosts[:, 1], hosts[:, 0]))
    words = hosts[order] if geometry.key_bits == 128 else hosts[order, 1:]
    return {"pairs": np.column_stack((words, peers[order]))}


def hosts_of(pairs: NDArray[np.uint64]) -> Words:
    """Return the mangled host of each pair."""
    words = np.zeros((len(pairs), 2), np.uint64)
    if pairs.shape[1] == 1:
        words[:, 1] = pairs[:, 0] >> _32
    else:
        words[:, 3 - pairs.shape[1] :] = pairs[:, :-1]
    return words


def decode(arrays: Arrays, geometry: Geometry, key: Key) -> tuple[Addresses, Addresses]:
    """Return the hosts and peers of pairs. Raise ArrayError if there are too many, or a host is too large."""
    pairs, bits = arrays["pairs"], geometry.key_bits
    if len(pairs) > geometry.exact_pairs:
        most = f"the most of a cube of these sizes is {geometry.exact_pairs:,}"
        raise ArrayError("pairs", f"has {counted(len(pairs), 'pair')}, {most}")
    mangled = hosts_of(pairs)
    if bits == 32 and (mangled[:, 1] > _LOW).any():
        raise ArrayError("pairs", "has a host of more than 32 bits")
    hosts = words_to_column(mangle_column(mangled, bits, True, key), bits)
    return hosts, (pairs[:, 0] & _LOW).astype(np.uint32) if pairs.shape[1] == 1 else pairs[:, -1].copy()
