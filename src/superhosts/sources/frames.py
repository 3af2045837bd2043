"""From a captured frame to two addresses: the part that every capture format shares.

`ip_header` finds the outermost IP header of a frame; `put_ipv4` and `put_ipv6` write its addresses into columns. They
are scalar functions, compiled into the walk of each format (pcap.py, pcapng.py). A packet ends in exactly one of five
counters, so that none is lost in silence: ipv4, ipv6, not_ip, truncated (the captured bytes do not reach both
addresses) or unsupported_link.

What may stand before the outermost IP header, in any stacking: VLAN tags, an MPLS label stack, PPPoE, LLC/SNAP. Where
a frame says "IP", the version nibble of the header decides which one; tags and link types that claim another version
are common in the wild. After MPLS nothing names the payload, so the nibble alone decides there too, as in routers.
What is inside the outermost header (tunnels) is not looked at.

Why an own parser: a Python object for each packet costs microseconds (dpkt 0.06 to 0.3 million packets/s, scapy
0.004), a compiled walk over the bytes costs nanoseconds.

Habits that keep the loops fast: each walk has an inner loop for runs of usual records (Ethernet and IPv4), which takes
half the time of the loop for all records because its few variables stay in registers. Bytes are read through an
unsigned index, because a signed one makes numba test for negative values, and then LLVM no longer merges four byte
loads into one. A function that takes an array and branches costs two atomic operations for the array's reference
count, which is more than all the rest; so what runs for every packet either does not branch or takes numbers only, and
`ip_header`, which does both, is left for unusual frames.

Whoever calls a function here has checked that `start` and `end` lie inside the block; everything read lies between
them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.packetdetails import Details
from superhosts.sources.base import Wants

Bytes = NDArray[np.uint8]
Tally = NDArray[np.int64]

# The slots of a tally: the arguments and the results of a walk.
POSITION = 0  # where in the block the next record starts
STOP = 1  # do not read records that start here or later
LIMIT = 2  # stop after this many packets (the columns hold no more)
TIME = 3  # of the latest packet, kept from walk to walk
SIMPLE = 4  # pcapng packets that carry no time of their own
PACKETS, IPV4, IPV6, NOT_IP, TRUNCATED, UNSUPPORTED_LINK = 5, 6, 7, 8, 9, 10
EARLIEST4, LATEST4, EARLIEST6, LATEST6 = 11, 12, 13, 14  # times of the packets in the columns, by family
WANTS = 15  # what is to be read besides the outermost addresses: a sum of the following
TALLY_SLOTS = 16
DETAILS, INNER, BOTH = 1, 2, 4  # write details; addresses of the innermost IP header; of the outermost and it

# How a frame starts. Zero is an unsupported link type.
UNSUPPORTED, ETHERNET, RAW, NULL, SLL, SLL2 = 0, 1, 2, 3, 4, 5

# A captured Ethernet frame of this length has its last type and the first byte behind it, with or without a VLAN tag.
# Without a tag it has both IPv4 addresses.
QUICK_BYTES = 38
_LATEST = 2**63 - 1

_LINKS = {0: NULL, 1: ETHERNET, 12: RAW, 14: RAW, 101: RAW, 108: NULL, 113: SLL, 228: RAW, 229: RAW, 276: SLL2}

_NAMES = {
    6: "Token Ring",
    7: "ARCNET",
    8: "SLIP",
    9: "PPP",
    10: "FDDI",
    19: "ATM",
    50: "PPP in HDLC framing",
    51: "PPPoE",
    100: "ATM RFC 1483",
    104: "Cisco HDLC",
    105: "IEEE 802.11",
    107: "Frame Relay",
    109: "OpenBSD enc",
    117: "OpenBSD pflog",
    119: "IEEE 802.11 with Prism header",
    127: "IEEE 802.11 with radiotap",
    147: "user 0",
    163: "IEEE 802.11 with AVS header",
    166: "PPP with direction",
    187: "Bluetooth HCI",
    189: "USB, Linux",
    192: "PPI",
    195: "IEEE 802.15.4",
    201: "Bluetooth HCI with direction",
    220: "USB, Linux, padded",
    227: "CAN",
    239: "NFLOG",
    249: "USB, Windows",
    253: "netlink",
}


class Columns(NamedTuple):
    """Room for the packets of one walk."""

    src4: NDArray[np.uint32]
    dst4: NDArray[np.uint32]
    time4: NDArray[np.int64]
    src6: NDArray[np.uint64]
    dst6: NDArray[np.uint64]
    time6: NDArray[np.int64]
    details4: Details  # empty unless they are wanted
    details6: Details


def wants_of(wants: Wants) -> int:
    """Return the content of the slot WANTS."""
    return DETAILS * wants.details | {"outer": 0, "inner": INNER, "both": BOTH}[wants.tunnels]


def new_columns(ipv4: int, ipv6: int, details: bool = False) -> Columns:
    """Return columns for this many packets of each family. Memory that is never written costs nothing."""
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
    narrow, wide = int(tally[IPV4]), int(tally[IPV6])
    src4, dst4, time4, src6, dst6, time6, details4, details6 = columns
    first = src4[:narrow], dst4[:narrow], time4[:narrow]
    return Columns(*first, src6[:wide], dst6[:wide], time6[:wide], details4[:narrow], details6[:wide])


def copied(columns: Columns) -> Columns:
    """Return a copy."""
    src4, dst4, time4, src6, dst6, time6, details4, details6 = columns
    first = src4.copy(), dst4.copy(), time4.copy()
    return Columns(*first, src6.copy(), dst6.copy(), time6.copy(), details4.copy(), details6.copy())


def start_walk(tally: Tally, limit: int, stop: int = _LATEST) -> None:
    """Prepare a tally for a walk over at most `limit` packets, none of which starts at `stop` or behind it."""
    tally[LIMIT], tally[STOP] = limit, stop
    tally[PACKETS:WANTS] = 0
    tally[EARLIEST4] = tally[EARLIEST6] = _LATEST
    tally[LATEST4] = tally[LATEST6] = ~_LATEST


def link_of(link_type: int) -> int:
    """Return how frames of a link type of the capture formats start; UNSUPPORTED if it is not supported."""
    return _LINKS.get(link_type, UNSUPPORTED)


def unsupported(link_type: int) -> str:
    """Return the message for a link type that is not supported."""
    name = f" ({_NAMES[link_type]})" if link_type in _NAMES else ""
    return (
        f"link type {link_type}{name} is not supported; "
        "Ethernet, raw IP, Linux cooked (SLL, SLL2) and BSD null and loop are"
    )


@compiled
def byte(block: Bytes, at: int) -> int:
    """One byte, as a wide integer."""
    return np.int64(block[np.uint64(at)])  # type: ignore[return-value]


@compiled
def little(block: Bytes, at: int) -> int:
    """Four bytes as an unsigned number, least significant first."""
    return byte(block, at) | byte(block, at + 1) << 8 | byte(block, at + 2) << 16 | byte(block, at + 3) << 24


@compiled
def big(block: Bytes, at: int) -> int:
    """Four bytes in network order."""
    return byte(block, at) << 24 | byte(block, at + 1) << 16 | byte(block, at + 2) << 8 | byte(block, at + 3)


@compiled
def swapped(value: int) -> int:
    """Four bytes in the other order."""
    return (value & 0xFF) << 24 | (value & 0xFF00) << 8 | value >> 8 & 0xFF00 | value >> 24


@compiled
def half(block: Bytes, at: int) -> int:
    """Two bytes in network order."""
    return byte(block, at) << 8 | byte(block, at + 1)


@compiled
def is_tag(kind: int) -> bool:
    """Return True if an EtherType announces a VLAN tag."""
    return kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200


@compiled
def _behind_labels(block: Bytes, at: int, end: int) -> int:
    """Return where an MPLS label stack ends."""
    while end - at >= 4:
        at += 4
        if byte(block, at - 2) & 1:
            return at
    return -TRUNCATED


@compiled
def _behind_ppp(block: Bytes, at: int, end: int) -> int:
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
        return _behind_labels(block, at, end)
    return -NOT_IP


@compiled
def _behind_type(block: Bytes, at: int, end: int, kind: int) -> int:
    """Return where the IP header starts, given the EtherType `kind` (or the length) before `at`."""
    while True:
        if kind == 0x0800 or kind == 0x86DD:
            return at
        if is_tag(kind):
            if end - at < 4:
                return -TRUNCATED
            kind = half(block, at + 2)
            at += 4
        elif kind == 0x8847 or kind == 0x8848:
            return _behind_labels(block, at, end)
        elif kind == 0x8864:
            return _behind_ppp(block, at + 6, end)
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
def _behind_link(block: Bytes, start: int, end: int, link: int) -> int:
    """Return where the outermost IP header of a frame should start, or minus the counter of a frame without one."""
    if link == UNSUPPORTED:
        return -UNSUPPORTED_LINK
    if link == RAW:
        return start
    if link == ETHERNET:
        if end - start < 14:
            return -TRUNCATED
        return _behind_type(block, start + 14, end, half(block, start + 12))
    if link == NULL:
        if end - start < 4:
            return -TRUNCATED
        family = little(block, start)
        if family > 0xFFFF:
            family = big(block, start)
        # AF_INET is 2 everywhere, AF_INET6 on Linux 10, Windows 23, NetBSD and OpenBSD 24, FreeBSD 28, Darwin 30
        if family == 2 or family == 10 or family == 23 or family == 24 or family == 28 or family == 30:
            return start + 4
        return -NOT_IP
    behind = start + (16 if link == SLL else 20)
    if behind > end:
        return -TRUNCATED
    kind = half(block, start + 14) if link == SLL else half(block, start)
    if kind < 0x0600 and kind != 4:  # Linux's own numbers; 4 says that LLC follows
        return -NOT_IP
    return _behind_type(block, behind, end, kind)


@compiled
def ip_header(block: Bytes, start: int, end: int, link: int) -> int:
    """Return where the outermost IP header of block[start:end] starts, or minus the counter of a frame without one."""
    at = _behind_link(block, start, end, link)
    if at < 0:
        return at
    if at >= end:
        return -TRUNCATED
    version = byte(block, at) >> 4
    if version != 4 and version != 6:
        return -NOT_IP
    if end - at < (20 if version == 4 else 40):
        return -TRUNCATED
    return at


@compiled
def type_end(kind: int) -> int:
    """Bytes of an Ethernet header up to the end of its last type, given the first: usually 14, with a VLAN tag 18."""
    return 18 if is_tag(kind) else 14


@compiled
def is_whole(kind: int, version: int, length: int) -> bool:
    """Return True if `length` bytes behind an EtherType are an IP header of that type with both addresses."""
    return (kind == 0x0800 and version == 4 and length >= 20) or (kind == 0x86DD and version == 6 and length >= 40)


@compiled
def is_usual(block: Bytes, start: int) -> bool:
    """Return True if the Ethernet frame at `start`, of QUICK_BYTES or more, has IPv4 behind its first type.

    One load and one comparison decide, so that the walks have a short loop for runs of such frames.
    """
    return little(block, start + 12) & 0xF0FFFF == 0x400008


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
