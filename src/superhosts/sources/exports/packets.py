"""The first bytes of a packet within an export: sFlow's header records, and sections of frames in IPFIX."""

from __future__ import annotations

import numpy as np

from superhosts.compiled import compiled
from superhosts.packetdetails import (
    FLAGS_SHIFT,
    HAS_FLAGS,
    HAS_PORTS,
    HAS_PROTOCOL,
    ICMP,
    ICMPV6,
    PROTOCOL_SHIFT,
    SRC_PORT_SHIFT,
    TCP,
)
from superhosts.sources import frames
from superhosts.sources.exports.layout import NOT_IP, ROWS4, ROWS6, TRUNCATED, UNSUPPORTED, Bytes, Room, Rows
from superhosts.sources.exports.numbers import byte, half
from superhosts.sources.frames import ip_header, is_ipv4, put_ipv4, put_ipv6

PPP = -1  # a link that is read here: a PPP header, with or without address and control
_RAW = frames.RAW
_NOT_IP, _TRUNCATED = frames.NOT_IP, frames.TRUNCATED


@compiled
def _behind_ppp(block: Bytes, at: int, end: int) -> int:
    """Return where the IP header of a PPP frame starts, or minus the counter of a frame without one."""
    if end - at >= 2 and half(block, at) == 0xFF03:
        at += 2
    if end - at < 2:
        return -_TRUNCATED
    if byte(block, at) & 1:  # a compressed protocol field
        protocol, at = byte(block, at), at + 1
    else:
        protocol, at = half(block, at), at + 2
    return at if protocol == 0x21 or protocol == 0x57 else -_NOT_IP


@compiled
def header_details(block: Bytes, at: int, end: int) -> int:
    """Return the details of the packet whose IP header is at `at`, as far as its bytes are there."""
    if byte(block, at) >> 4 == 4:
        protocol, behind = byte(block, at + 9), at + (byte(block, at) & 15) * 4
        is_later = half(block, at + 6) & 0x1FFF != 0
    else:
        protocol, behind = byte(block, at + 6), at + 40
        is_later = False
        for _ in range(8):  # extension headers
            if (protocol == 0 or protocol == 43 or protocol == 60) and end - behind >= 8:
                protocol, behind = byte(block, behind), behind + (byte(block, behind + 1) + 1) * 8
            elif protocol == 44 and end - behind >= 8:
                is_later = half(block, behind + 2) & 0xFFF8 != 0
                protocol, behind = byte(block, behind), behind + 8
            else:
                break
    value = protocol << PROTOCOL_SHIFT | HAS_PROTOCOL
    if is_later:
        return value
    if protocol in (ICMP, ICMPV6):
        if end - behind >= 1:
            value |= byte(block, behind) << FLAGS_SHIFT | HAS_FLAGS
    elif protocol == TCP or protocol == 17 or protocol == 132 or protocol == 136 or protocol == 33:
        if end - behind >= 4:
            value |= half(block, behind) << SRC_PORT_SHIFT | half(block, behind + 2) | HAS_PORTS
        if protocol == TCP and end - behind >= 14:
            value |= byte(block, behind + 13) << FLAGS_SHIFT | HAS_FLAGS
    return value


@compiled
def put_frame(block: Bytes, place: tuple[int, int], link: int, time: int, room: Room, tally: Rows) -> bool:
    """Write the packet that begins with block[place]; return False, and count why, if it has no addresses."""
    start, end = place
    at = start
    if link == PPP:
        at = _behind_ppp(block, start, end)
        link = _RAW
    if at >= 0:
        at = ip_header(block, at, end, link)
    if at < 0:
        tally[NOT_IP if at == -_NOT_IP else TRUNCATED if at == -_TRUNCATED else UNSUPPORTED] += 1
        return False
    if is_ipv4(block, at):
        row = tally[ROWS4]
        put_ipv4(block, at, row, room.src4, room.dst4)
        room.time4[row] = time
        if len(room.details4):
            room.details4[row] = np.uint64(header_details(block, at, end))
        tally[ROWS4] += 1
    else:
        row = tally[ROWS6]
        put_ipv6(block, at, row, room.src6, room.dst6)
        room.time6[row] = time
        if len(room.details6):
            room.details6[row] = np.uint64(header_details(block, at, end))
        tally[ROWS6] += 1
    return True
