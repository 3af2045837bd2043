"""Columns of packets, how the addresses of a header get there, and how they become a block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Details, PacketBatch, PacketBlock
from superhosts.jit.cache import compiled
from superhosts.sources.base import SourceCounters
from superhosts.sources.frames.reading import Bytes, big, byte
from superhosts.sources.frames.tally import (
    DETAILS,
    EARLIEST4,
    EARLIEST6,
    IPV4,
    IPV6,
    LATEST4,
    LATEST6,
    NOT_IP,
    PACKETS,
    TRUNCATED,
    UNSUPPORTED_LINK,
    WANTS,
    Tally,
)

_Span = tuple[int, int]  # the earliest and the latest time


class Columns(NamedTuple):
    """Room for the packets of one walk, over frames or over flow exports."""

    src4: NDArray[np.uint32]
    dst4: NDArray[np.uint32]
    time4: NDArray[np.int64]
    src6: NDArray[np.uint64]
    dst6: NDArray[np.uint64]
    time6: NDArray[np.int64]
    details4: Details  # empty unless they are wanted
    details6: Details


def new_columns(ipv4: int, ipv6: int, details: bool = False) -> Columns:
    """Return columns for this many rows of each family. Memory that is never written costs nothing."""
    return Columns(
        np.empty(ipv4, np.uint32),
        np.empty(ipv4, np.uint32),
        np.empty(ipv4, np.int64),
        np.empty((ipv6, 2), np.uint64),
        np.empty((ipv6, 2), np.uint64),
        np.empty(ipv6, np.int64),
        np.empty(ipv4 if details else 0, np.uint64),
        np.empty(ipv6 if details else 0, np.uint64),
    )


def written(columns: Columns, tally: Tally) -> Columns:
    """Return the rows of the columns that a walk has written, as views."""
    return first_rows(columns, int(tally[IPV4]), int(tally[IPV6]))


def first_rows(columns: Columns, narrow: int, wide: int) -> Columns:
    """Return the first rows of both families, as views."""
    src4, dst4, time4, src6, dst6, time6, details4, details6 = columns
    first = src4[:narrow], dst4[:narrow], time4[:narrow]
    return Columns(*first, src6[:wide], dst6[:wide], time6[:wide], details4[:narrow], details6[:wide])


def copied(columns: Columns) -> Columns:
    """Return a copy."""
    src4, dst4, time4, src6, dst6, time6, details4, details6 = columns
    first = src4.copy(), dst4.copy(), time4.copy()
    return Columns(*first, src6.copy(), dst6.copy(), time6.copy(), details4.copy(), details6.copy())


def take(columns: Columns, tally: Tally, counters: SourceCounters) -> PacketBlock:
    """Count the packets that a walk has found and return those with addresses: the rows that it has written."""
    counts = tally.tolist()
    counters.packets += counts[PACKETS]
    counters.ipv4 += counts[IPV4]
    counters.ipv6 += counts[IPV6]
    counters.not_ip += counts[NOT_IP]
    counters.truncated += counts[TRUNCATED]
    counters.unsupported_link += counts[UNSUPPORTED_LINK]
    spans = (counts[EARLIEST4], counts[LATEST4]), (counts[EARLIEST6], counts[LATEST6])
    return block_of(columns, *spans, details=bool(counts[WANTS] & DETAILS))


def block_of(columns: Columns, span4: _Span | None = None, span6: _Span | None = None, *, details: bool) -> PacketBlock:
    """Return columns as a block, given the earliest and the latest time of each family where they are known."""
    src4, dst4, time4, src6, dst6, time6, details4, details6 = columns
    block: PacketBlock = ()
    if len(time4):
        block += (PacketBatch(4, src4, dst4, time4, span4, details4 if details else None),)
    if len(time6):
        block += (PacketBatch(6, src6, dst6, time6, span6, details6 if details else None),)
    return block


@compiled
def is_ipv4(block: Bytes, at: int) -> bool:
    """Return True if the IP header at `at` is of version 4."""
    return byte(block, at) >> 4 == 4


@compiled
def put_ipv4(block: Bytes, at: int, row: int, src: NDArray[np.uint32], dst: NDArray[np.uint32]) -> None:
    """Write the addresses of the IPv4 header at `at`."""
    src[np.uint64(row)] = big(block, at + 12)
    dst[np.uint64(row)] = big(block, at + 16)


@compiled
def _wide(block: Bytes, at: int) -> np.uint64:
    """Eight bytes in network order."""
    return np.uint64(big(block, at)) << np.uint64(32) | np.uint64(big(block, at + 4))


@compiled
def put_ipv6(block: Bytes, at: int, row: int, src: NDArray[np.uint64], dst: NDArray[np.uint64]) -> None:
    """Write the addresses of the IPv6 header at `at`."""
    src[np.uint64(row), 0] = _wide(block, at + 8)
    src[np.uint64(row), 1] = _wide(block, at + 16)
    dst[np.uint64(row), 0] = _wide(block, at + 24)
    dst[np.uint64(row), 1] = _wide(block, at + 32)
