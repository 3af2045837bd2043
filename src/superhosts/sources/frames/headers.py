"""What an IP header says besides its addresses: where its packet ends, what is inside, and the details of that.

Bytes behind the length that the header states are padding of the link. A length of 0 is that of packets that a network
card will cut, or of jumbograms: they reach as far as the captured bytes.
"""

from __future__ import annotations

from superhosts.core.pairs import (
    DCCP,
    FLAGS_SHIFT,
    HAS_FLAGS,
    HAS_PORTS,
    HAS_PROTOCOL,
    ICMP,
    ICMPV6,
    PROTOCOL_SHIFT,
    SCTP,
    TCP,
    UDP,
    UDP_LITE,
)
from superhosts.jit.cache import compiled
from superhosts.sources.frames.reading import Bytes, big, byte, half

UNKNOWN = -1  # a protocol that the captured bytes do not reach
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _OPTIONS = 0, 43, 44, 51, 60


@compiled
def packet_end(block: Bytes, at: int, end: int) -> int:
    """Return where the packet of the whole IP header at `at` ends."""
    if byte(block, at) >> 4 == 4:
        length = half(block, at + 2)
    else:
        length = half(block, at + 4)
        if length:
            length += 40
    return min(at + length, end) if length else end


@compiled
def payload(block: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the protocol of a packet behind all extension headers, and where its payload starts.

    UNKNOWN if these are cut. A fragment after the first has its protocol and no payload: the place is 0. `end` is that
    of the packet.
    """
    if byte(block, at) >> 4 == 4:
        length, protocol = (byte(block, at) & 0x0F) * 4, byte(block, at + 9)
        if length < 20 or half(block, at + 6) & 0x1FFF:
            return protocol, 0
        at += length
    else:
        protocol = byte(block, at + 6)
        at += 40
    while True:
        if protocol == _FRAGMENT:
            if end - at < 8:
                return UNKNOWN, 0
            protocol = byte(block, at)
            if half(block, at + 2) >> 3:
                return protocol, 0
            at += 8
        elif protocol in (_HOP_BY_HOP, _ROUTING, _OPTIONS, _AUTHENTICATION):
            if end - at < 2:
                return UNKNOWN, 0
            length = byte(block, at + 1)
            length = (length + 2) * 4 if protocol == _AUTHENTICATION else (length + 1) * 8
            if end - at < length:
                return UNKNOWN, 0
            protocol = byte(block, at)
            at += length
        else:
            return protocol, at


@compiled
def details_of(block: Bytes, at: int, end: int) -> int:
    """Return the details of the packet whose whole IP header is at `at`, as far as it was captured."""
    end = packet_end(block, at, end)
    protocol, place = payload(block, at, end)
    if protocol == UNKNOWN:
        return 0
    details = protocol << PROTOCOL_SHIFT | HAS_PROTOCOL
    left = end - place if place else 0
    if protocol in (TCP, UDP, SCTP, UDP_LITE, DCCP):
        if left >= 4:
            details |= big(block, place) | HAS_PORTS
        if protocol == TCP and left >= 14:
            details |= byte(block, place + 13) << FLAGS_SHIFT | HAS_FLAGS
    elif (protocol in (ICMP, ICMPV6)) and left >= 1:
        details |= byte(block, place) << FLAGS_SHIFT | HAS_FLAGS
    return details
