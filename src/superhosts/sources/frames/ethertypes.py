"""What may stand between a link's header and IP: VLAN and switch tags, MPLS, PPPoE and PPP, LLC and SNAP.

A function here returns where the IP header should start, or minus the counter of a frame without one. Where a frame
says "IP", the version nibble of the header decides which one; tags and link types that claim another version are common
in the wild. After MPLS nothing names the payload, so the nibble alone decides there too, as in routers.
"""

from __future__ import annotations

from superhosts.jit.cache import compiled
from superhosts.sources.frames.reading import Bytes, byte, half
from superhosts.sources.frames.tally import NOT_IP, TRUNCATED


@compiled
def is_tag(kind: int) -> bool:
    """Return True if an EtherType announces a VLAN tag."""
    return kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200


@compiled
def behind_labels(block: Bytes, at: int, end: int) -> int:
    """Return where an MPLS label stack ends."""
    while end - at >= 4:
        at += 4
        if byte(block, at - 2) & 1:
            return at
    return -TRUNCATED


@compiled
def behind_ppp(block: Bytes, at: int, end: int) -> int:
    """Return where the IP header after a PPP protocol field starts."""
    if end - at < 2:
        return -TRUNCATED
    protocol = half(block, at)
    at += 2
    if protocol & 0x100:  # an odd first byte is the whole field, compressed
        protocol >>= 8
        at -= 1
    if protocol == 0x21 or protocol == 0x57:
        return at
    if protocol == 0x281 or protocol == 0x283:
        return behind_labels(block, at, end)
    return -NOT_IP


@compiled
def behind_type(block: Bytes, at: int, end: int, kind: int) -> int:
    """Return where the IP header starts, given the EtherType `kind` (or the length) before `at`."""
    while True:
        if kind == 0x0800 or kind == 0x86DD:
            return at
        if is_tag(kind):
            if end - at < 4:
                return -TRUNCATED
            kind = half(block, at + 2)
            at += 4
        elif kind == 0xDADA:  # the tag of a Marvell switch: two zeros, four bytes, the next type
            if end - at < 8:
                return -TRUNCATED
            kind = half(block, at + 6)
            at += 8
        elif kind == 0x8847 or kind == 0x8848:
            return behind_labels(block, at, end)
        elif kind == 0x8864:
            return behind_ppp(block, at + 6, end)
        elif kind < 0x0600:  # a length: LLC follows
            if end - at < 3:
                return -TRUNCATED
            service = half(block, at) << 8 | byte(block, at + 2)
            if service == 0x060603:
                return at + 3
            if service != 0xAAAA03:
                return -NOT_IP
            if end - at < 8:
                return -TRUNCATED
            organisation = half(block, at + 3) << 8 | byte(block, at + 5)
            if organisation != 0 and organisation != 0xF8:  # 0000f8: bridged, 802.1H
                return -NOT_IP
            kind = half(block, at + 6)
            at += 8
            if kind < 0x0600:
                return -NOT_IP
        else:
            return -NOT_IP


@compiled
def behind_ethernet(block: Bytes, at: int, end: int) -> int:
    """Return where the IP header of the Ethernet frame at `at` starts."""
    if end - at < 14:
        return -TRUNCATED
    return behind_type(block, at + 14, end, half(block, at + 12))


@compiled
def behind_hdlc(block: Bytes, at: int, end: int) -> int:
    """Return where the IP header of a PPP frame starts: with HDLC's address and control, without, or Cisco's HDLC."""
    if end - at < 1:
        return -TRUNCATED
    first = byte(block, at)
    if first == 0x0F or first == 0x8F:
        if end - at < 4:
            return -TRUNCATED
        kind = half(block, at + 2)
        return behind_type(block, at + 4, end, kind) if kind >= 0x0600 else -NOT_IP
    if first == 0xFF:
        at += 2
    elif first == 0x03:  # a direction stood in place of the address
        at += 1
    return behind_ppp(block, at, end)
