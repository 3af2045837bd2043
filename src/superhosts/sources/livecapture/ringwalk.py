"""The compiled walk over the blocks of a ring.

The kernel fills a block and sets its status to TO_USER; the walk reads it and sets it to TO_KERNEL. Fences keep both
sides from seeing a block half written. The walk stops at a block that the kernel still has, or when the columns are
full, even inside a block, and goes on there.

Frames of Ethernet and of the loopback interface begin with an Ethernet header. Those of all other interfaces (tun, PPP,
tunnels) begin with whatever their driver uses, so there the kernel's own offset of the network header counts, and the
protocol that it found. The kernel has taken off the outermost VLAN tag, which addresses do not depend on.

Numbers in the ring are the kernel's, and yet they are checked like those of a file: nothing is read outside the block.
All numbers are little-endian, as numba supports no other machines.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core.types import void
from numba.core.typing import signature
from numba.extending import intrinsic
from numpy.typing import NDArray

from superhosts.core.units import SECOND
from superhosts.jit.cache import compiled, is_switched_off
from superhosts.sources.frames import (
    DETAILS,
    EARLIEST4,
    EARLIEST6,
    ETHERNET,
    IPV4,
    IPV6,
    LATEST4,
    LATEST6,
    LIMIT,
    NOT_IP,
    PACKETS,
    QUICK_BYTES,
    RAW,
    TIME,
    TRUNCATED,
    UNSUPPORTED_LINK,
    WANTS,
    Bytes,
    Columns,
    Tally,
    byte,
    find_headers,
    glance,
    half,
    ip_header,
    is_ipv4,
    is_usual,
    little,
    peek,
    put_ipv4,
    put_ipv6,
)
from superhosts.sources.livecapture.layout import (
    ARPHRD_ETHER,
    ARPHRD_IEEE80211,
    ARPHRD_IEEE80211_RADIOTAP,
    ARPHRD_LOOPBACK,
    BLOCK_FIRST,
    BLOCK_PACKETS,
    BLOCK_STATUS,
    CAPTURED,
    DIRECTION,
    HARDWARE,
    MAC,
    NANOSECONDS,
    NET,
    NEXT,
    OUTGOING,
    PACKET_HEADER,
    PROTOCOL,
    SECONDS,
    TO_KERNEL,
    TO_USER,
)

Words = NDArray[np.uint32]
Place = NDArray[np.int64]

# The slots of a place: where the walk goes on, and what it met.
BLOCK, AT, LEFT = 0, 1, 2  # the block; the next packet in it, and how many are left; 0 left: the block is not begun
BLOCKS, TWICE, DAMAGED = 3, 4, 5  # blocks read; packets of `lo` that come again; packets whose numbers make no sense
PLACE_SLOTS = 6


class Layout(NamedTuple):
    """The sizes of a ring."""

    block_bytes: int
    blocks: int
    cooked: int  # 1: no frame has its link-layer header


@intrinsic  # type: ignore[untyped-decorator]
def _fence(_context: Any) -> Any:
    """Keep reads and writes before this point before those behind it."""

    def generate(target: Any, builder: Any, _types: Any, _values: Any) -> Any:
        builder.fence("seq_cst")
        return target.get_dummy_value()

    return signature(void), generate


@compiled
def _short(block: Bytes, at: int) -> int:
    """Two bytes as an unsigned number, least significant first."""
    return byte(block, at) | byte(block, at + 1) << 8


if is_switched_off():

    def _fence() -> None:
        """Do nothing: the interpreter is slow enough."""


@compiled
def _network_header(ring: Bytes, at: int, start: int, end: int) -> int:
    """Return where the IP header of a packet without a usable link-layer header should be, or minus its counter."""
    hardware, protocol, header = _short(ring, at + HARDWARE), half(ring, at + PROTOCOL), at + _short(ring, at + NET)
    if ARPHRD_IEEE80211 <= hardware <= ARPHRD_IEEE80211_RADIOTAP:
        return -UNSUPPORTED_LINK
    if protocol != 0x0800 and protocol != 0x86DD:
        return -NOT_IP
    if header < start or header > end:
        return -TRUNCATED
    return header


@compiled
def walk_ring(ring: Bytes, words: Words, layout: Layout, place: Place, tally: Tally, columns: Columns) -> None:
    """Read the packets of blocks that the kernel has filled, at most as many as the tally allows.

    `words` are the same bytes as `ring`: a status is read and written as a whole.
    """
    src4, dst4, time4, src6, dst6, time6, details4, details6 = columns
    wants = tally[WANTS]
    size, limit, cooked = layout.block_bytes, tally[LIMIT], layout.cooked
    index, at, left = place[BLOCK], place[AT], place[LEFT]
    time, packets, ipv4, ipv6 = tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6]
    earliest4, latest4, earliest6, latest6 = tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6]
    while packets < limit:
        start = index * size
        end = start + size
        status = np.uint64(start + BLOCK_STATUS) >> np.uint64(2)
        if not left:
            if not words[status] & np.uint32(TO_USER):
                break
            _fence()
            left = little(ring, start + BLOCK_PACKETS)
            at = start + little(ring, start + BLOCK_FIRST)
        while left and packets < limit:
            if at > end - PACKET_HEADER:
                place[DAMAGED] += left
                left = 0
                break
            following, captured = little(ring, at + NEXT), little(ring, at + CAPTURED)
            frame = at + _short(ring, at + MAC)
            behind = frame + captured
            if behind > end:
                place[DAMAGED] += left
                left = 0
                break
            time = little(ring, at + SECONDS) * SECOND + little(ring, at + NANOSECONDS)
            hardware = _short(ring, at + HARDWARE)
            if hardware == ARPHRD_LOOPBACK and byte(ring, at + DIRECTION) == OUTGOING:  # It comes again, incoming.
                place[TWICE] += 1
            else:
                header = details = second = second_details = 0
                if hardware == ARPHRD_ETHER and not cooked and captured >= QUICK_BYTES and is_usual(ring, frame):
                    header = frame + 14
                    if wants:
                        protocol, first, flags, inside = peek(ring, header, behind, 4)
                        details = glance(protocol, first, flags, inside, wants)
                        if not details:
                            header = 0
                if not header:
                    link, begin = ETHERNET, frame
                    if cooked or hardware not in (ARPHRD_ETHER, ARPHRD_LOOPBACK):
                        link, begin = RAW, _network_header(ring, at, frame, behind)
                    if begin < 0:
                        header = begin
                    elif not wants:
                        header = ip_header(ring, begin, behind, link)
                    else:
                        header, details, second, second_details, _, _ = find_headers(ring, begin, behind, link, wants)
                    if header < 0:
                        tally[-header] += 1
                while header > 0:
                    if is_ipv4(ring, header):
                        put_ipv4(ring, header, ipv4, src4, dst4)
                        time4[np.uint64(ipv4)] = time
                        if wants & DETAILS:
                            details4[np.uint64(ipv4)] = details
                        earliest4, latest4 = min(earliest4, time), max(latest4, time)
                        ipv4 += 1
                    else:
                        put_ipv6(ring, header, ipv6, src6, dst6)
                        time6[np.uint64(ipv6)] = time
                        if wants & DETAILS:
                            details6[np.uint64(ipv6)] = details
                        earliest6, latest6 = min(earliest6, time), max(latest6, time)
                        ipv6 += 1
                    header, details, second = second, second_details, 0
                packets += 1
            left -= 1
            if left and following < PACKET_HEADER:
                place[DAMAGED] += left
                left = 0
            at += following
        if not left:
            _fence()
            words[status] = TO_KERNEL
            place[BLOCKS] += 1
            index = index + 1 if index + 1 < layout.blocks else 0
    place[BLOCK], place[AT], place[LEFT] = index, at, left
    tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6] = time, packets, ipv4, ipv6
    tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6] = earliest4, latest4, earliest6, latest6
