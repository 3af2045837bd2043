"""The UDP payloads of a capture, as a batch of datagrams.

Fragments are left out: an export that does not fit into a packet is rare, and what is left of it makes no sense alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled
from superhosts.sources.exports.layout import DATAGRAM_SLOTS, END, RECEIVED, START, Bytes, Rows
from superhosts.sources.exports.numbers import byte, half, wide, word
from superhosts.sources.frames.headers import is_ipv4
from superhosts.sources.frames.links import ip_header

_UDP = 17


@compiled
def find_payloads(block: Bytes, records: Rows, datagrams: Rows, peers: NDArray[np.uint64]) -> int:
    """Write where the UDP payloads of frames are, and who sent them; return how many there are."""
    count = 0
    for row in range(len(records)):
        start, end, link = records[row, 0], records[row, 1], records[row, 2]
        at = ip_header(block, start, end, link)
        if at < 0:
            continue
        if is_ipv4(block, at):
            behind, protocol = at + (byte(block, at) & 15) * 4, byte(block, at + 9)
            last = at + half(block, at + 2)
            is_whole = half(block, at + 6) & 0x3FFF == 0
            high, low = np.uint64(0), np.uint64(0xFFFF) << np.uint64(32) | np.uint64(word(block, at + 12))
        else:
            behind, protocol = at + 40, byte(block, at + 6)
            last = at + 40 + half(block, at + 4)
            is_whole = True
            high, low = wide(block, at + 8), wide(block, at + 16)
        last = min(last, end)
        if protocol != _UDP or not is_whole or last - behind < 8:
            continue
        length = half(block, behind + 4)
        if length >= 8:
            last = min(last, behind + length)
        datagrams[count, START], datagrams[count, END] = behind + 8, last
        datagrams[count, RECEIVED] = records[row, 3]
        peers[count, 0], peers[count, 1] = high, low
        count += 1
    return count


def room_for(records: int) -> tuple[Rows, NDArray[np.uint64]]:
    """Return room for the payloads of this many frames."""
    return np.zeros((records, DATAGRAM_SLOTS), np.int64), np.zeros((records, 2), np.uint64)
