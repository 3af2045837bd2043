"""Rows of a table to packets: one batch for each address family.

The two ends of a row are columns of addresses: plain uint32 if all are IPv4, else an `AddressColumn`, as the parser of
text returns it. A row whose ends are of different families, or of which one is no address, is no packet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import Kinds, Words
from superhosts.core.packetdetails import Details
from superhosts.core.pairs import PacketBatch, PacketBlock, Times
from superhosts.jit.compiled import compiled

Rows = NDArray[np.int64]


class AddressColumn(NamedTuple):
    """Addresses of both families."""

    kinds: Kinds  # 4, 6, or 0 for what is no address
    words: Words  # rows (high word, low word)


Ends = AddressColumn | NDArray[np.uint32]


def packets_of(src: Ends, dst: Ends, time: Times, details: Details | None = None) -> tuple[PacketBlock, Rows]:
    """Return the packets of rows, in order, and the numbers of the rows that are none.

    Columns of uint32 are not copied, nor are their details.
    """
    if not isinstance(src, AddressColumn) and not isinstance(dst, AddressColumn):
        block = (PacketBatch(4, src, dst, time, details=details),) if len(time) else ()
        return block, np.empty(0, np.int64)
    left, right = widened(src), widened(dst)
    ipv4, ipv6 = _count(left.kinds, right.kinds)
    src4, dst4, time4 = np.empty(ipv4, np.uint32), np.empty(ipv4, np.uint32), np.empty(ipv4, np.int64)
    src6, dst6, time6 = np.empty((ipv6, 2), np.uint64), np.empty((ipv6, 2), np.uint64), np.empty(ipv6, np.int64)
    dropped = np.empty(len(time) - ipv4 - ipv6, np.int64)
    _split(left, right, time, (src4, dst4, time4), (src6, dst6, time6), dropped)
    details4, details6 = None, None
    if details is not None:
        kinds = np.where(left.kinds == right.kinds, left.kinds, 0)
        details4, details6 = details[kinds == 4], details[kinds == 6]
    batches = PacketBatch(4, src4, dst4, time4, details=details4), PacketBatch(6, src6, dst6, time6, details=details6)
    return tuple(batch for batch in batches if len(batch)), dropped


def widened(column: Ends) -> AddressColumn:
    """Return a column as one that may hold both families."""
    if isinstance(column, AddressColumn):
        return column
    words = np.zeros((len(column), 2), np.uint64)
    words[:, 1] = column
    return AddressColumn(np.full(len(column), 4, np.uint8), words)


@compiled
def _count(left: Kinds, right: Kinds) -> tuple[int, int]:
    """Return the number of rows with two IPv4 addresses and of those with two IPv6 addresses."""
    ipv4, ipv6 = 0, 0
    for i in range(len(left)):
        ipv4 += (left[i] == 4) & (right[i] == 4)
        ipv6 += (left[i] == 6) & (right[i] == 6)
    return ipv4, ipv6


@compiled
def _split(
    src: AddressColumn,
    dst: AddressColumn,
    time: Times,
    narrow: tuple[NDArray[np.uint32], NDArray[np.uint32], Times],
    wide: tuple[Words, Words, Times],
    dropped: Rows,
) -> None:
    """Write each row to the columns of its family, or its number to `dropped`; all have the right length."""
    src4, dst4, time4 = narrow
    src6, dst6, time6 = wide
    src_kinds, src_words = src
    dst_kinds, dst_words = dst
    ipv4, ipv6, none = 0, 0, 0
    for i in range(len(time)):
        if src_kinds[i] != dst_kinds[i] or src_kinds[i] == 0:
            dropped[none] = i
            none += 1
        elif src_kinds[i] == 4:
            src4[ipv4], dst4[ipv4], time4[ipv4] = src_words[i, 1], dst_words[i, 1], time[i]
            ipv4 += 1
        else:
            src6[ipv6, 0], src6[ipv6, 1] = src_words[i, 0], src_words[i, 1]
            dst6[ipv6, 0], dst6[ipv6, 1] = dst_words[i, 0], dst_words[i, 1]
            time6[ipv6] = time[i]
            ipv6 += 1
