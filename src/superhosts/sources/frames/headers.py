"""The IP headers of a frame: which of them count, what is inside, and their addresses.

`is_usual`, `is_whole` and `glance` decide about usual frames, with few loads; they take numbers where they branch.
`find_headers` reads any frame. `put_ipv4` and `put_ipv6` write addresses into columns.

Bytes behind the length that a header states are padding of the link. A length of 0 is that of packets that a network
card will cut, or of jumbograms: they reach as far as the captured bytes.

A tunnel is recognised by the protocol of the outer header, or by the UDP port to which the tunnel's end listens; of
protocols whose ends answer from that port (L2TP, Teredo), by either port. What is inside has to look like an IP header
of version 4 or 6 that was captured as a whole. Otherwise the header around it is the innermost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
from superhosts.sources.frames.columns import BOTH, DETAILS, INNER, NOT_IP, TRUNCATED
from superhosts.sources.frames.links import (
    SUBFRAME,
    Bytes,
    behind_ethernet,
    behind_hdlc,
    behind_labels,
    behind_type,
    big,
    byte,
    half,
    ip_header,
    is_tag,
    is_wrapped,
    little,
    next_subframe,
    subframe_end,
    unwrapped,
    wide,
)

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


MOST_HEADERS = 8  # below each other: more are an attack on whoever unpacks them

_IPV4, _IPV6, _GRE, _ETHERIP, _MPLS = 4, 41, 47, 97, 137  # protocols
# UDP ports
_VXLAN, _VXLAN_LINUX, _VXLAN_GPE, _GENEVE, _GTP, _MPLS_PORT = 4789, 8472, 4790, 6081, 2152, 6635
_L2TP, _TEREDO = 1701, 3544
_BRIDGING, _PPP, _ERSPAN, _ERSPAN_3 = 0x6558, 0x880B, 0x88BE, 0x22EB  # types of GRE; the first is Ethernet


@compiled
def is_tunnel_port(src: int, dst: int) -> bool:
    """Return True if UDP between these ports may be a tunnel."""
    listens = dst in (_VXLAN, _VXLAN_LINUX, _VXLAN_GPE, _GENEVE, _GTP, _MPLS_PORT)
    return listens or dst in (_L2TP, _TEREDO) or src in (_L2TP, _TEREDO)


@compiled
def _behind_gre_type(block: Bytes, at: int, end: int, kind: int) -> int:
    """Return where the IP header inside GRE or Geneve starts, given the type before `at`."""
    if kind == _BRIDGING:
        return behind_ethernet(block, at, end)
    if kind == _PPP:
        return behind_hdlc(block, at, end)
    return behind_type(block, at, end, kind) if kind >= 0x0600 else -NOT_IP


@compiled
def _behind_gre(block: Bytes, at: int, end: int) -> int:
    """Version 0 with a checksum, routes, a key and a number if its bits say so; version 1 is that of PPTP."""
    if end - at < 4:
        return -TRUNCATED
    flags, kind = half(block, at), half(block, at + 2)
    version, numbered = flags & 7, flags & 0x1000
    if version > 1 or (version == 1 and kind != _PPP):
        return -NOT_IP
    at += 4
    if flags & 0xC000:
        at += 4
    if flags & 0x2000:
        at += 4
    if numbered:
        at += 4
    if version == 1 and flags & 0x80:  # an acknowledgement
        at += 4
    if flags & 0x4000:  # routes, up to one of family and length 0
        while True:
            if end - at < 4:
                return -TRUNCATED
            family, length = half(block, at), byte(block, at + 3)
            at += 4 + length
            if not family and not length:
                break
    if kind == _ERSPAN:  # type I has neither a number nor a header
        return behind_ethernet(block, at + 8 if numbered else at, end)
    if kind == _ERSPAN_3:
        if end - at < 12:
            return -TRUNCATED
        header = 20 if byte(block, at + 11) & 1 else 12
        content = byte(block, at + 10) >> 2 & 0x1F
        if content == 0:
            return behind_ethernet(block, at + header, end)
        return at + header if content == 2 else -NOT_IP
    return _behind_gre_type(block, at, end, kind)


@compiled
def _behind_gtp(block: Bytes, at: int, end: int) -> int:
    """User data of version 1, behind a number and extension headers if there are any."""
    if end - at < 8:
        return -TRUNCATED
    flags = byte(block, at)
    if flags & 0xF0 != 0x30 or byte(block, at + 1) != 0xFF:
        return -NOT_IP
    at += 8
    if not flags & 7:
        return at
    if end - at < 4:
        return -TRUNCATED
    following = byte(block, at + 3) if flags & 4 else 0
    at += 4
    while following:
        if end - at < 1:
            return -TRUNCATED
        length = byte(block, at) * 4
        if not length:
            return -NOT_IP
        at += length
        if at > end:
            return -TRUNCATED
        following = byte(block, at - 1)
    return at


@compiled
def _behind_l2tp(block: Bytes, at: int, end: int) -> int:
    """A data message of version 2; then PPP."""
    if end - at < 6:
        return -TRUNCATED
    flags = half(block, at)
    if flags & 0x8000 or flags & 15 != 2:
        return -NOT_IP
    at += 6
    if flags & 0x4000:
        at += 2
    if flags & 0x0800:
        at += 4
    if flags & 0x0200:
        if end - at < 2:
            return -TRUNCATED
        at += 2 + half(block, at)
    return behind_hdlc(block, at, end)


@compiled
def _behind_teredo(block: Bytes, at: int, end: int) -> int:
    """Who the client is, and where it seems to be, if that is said; then IPv6."""
    if end - at < 4:
        return -TRUNCATED
    if half(block, at) == 1:
        at += 13 + byte(block, at + 2) + byte(block, at + 3)
    if end - at < 2:
        return -TRUNCATED
    if half(block, at) == 0:
        at += 8
    if end - at < 1:
        return -TRUNCATED
    return at if byte(block, at) >> 4 == 6 else -NOT_IP


@compiled
def _behind_vxlan(block: Bytes, at: int, end: int, generic: bool) -> int:
    """A header of eight bytes; then Ethernet, or what the generic extension says."""
    if end - at < 8:
        return -TRUNCATED
    flags = byte(block, at)
    if not flags & 8:
        return -NOT_IP
    content = byte(block, at + 3) if generic and flags & 4 else 3
    at += 8
    if content == 3:
        return behind_ethernet(block, at, end)
    if content == 5:
        return behind_labels(block, at, end)
    return at if content == 1 or content == 2 else -NOT_IP


@compiled
def _behind_udp(block: Bytes, at: int, end: int) -> int:
    """Return where the IP header inside a UDP datagram starts."""
    if end - at < 8:
        return -TRUNCATED
    src, dst = half(block, at), half(block, at + 2)
    if not is_tunnel_port(src, dst):
        return -NOT_IP
    at += 8
    if dst in (_VXLAN, _VXLAN_LINUX, _VXLAN_GPE):
        return _behind_vxlan(block, at, end, dst == _VXLAN_GPE)
    if dst == _GENEVE:
        if end - at < 8:
            return -TRUNCATED
        first = byte(block, at)
        if first >> 6:
            return -NOT_IP
        return _behind_gre_type(block, at + 8 + first * 4, end, half(block, at + 2))
    if dst == _GTP:
        return _behind_gtp(block, at, end)
    if dst == _MPLS_PORT:
        return behind_labels(block, at, end)
    if dst == _TEREDO or src == _TEREDO:
        return _behind_teredo(block, at, end)
    return _behind_l2tp(block, at, end)


@compiled
def _inside(block: Bytes, at: int, end: int) -> int:
    """Return where the IP header directly inside the packet at `at` starts; a negative number if there is none."""
    protocol, place = payload(block, at, end)
    if not place:
        return -NOT_IP
    if protocol in (_IPV4, _IPV6):
        return place
    if protocol == UDP:
        return _behind_udp(block, place, end)
    if protocol == _GRE:
        return _behind_gre(block, place, end)
    if protocol == _MPLS:
        return behind_labels(block, place, end)
    if protocol == _ETHERIP:
        if end - place < 2:
            return -TRUNCATED
        return behind_ethernet(block, place + 2, end) if byte(block, place) >> 4 == 3 else -NOT_IP
    return -NOT_IP


@compiled
def innermost(block: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the innermost IP header inside the whole one at `at` starts, and where its bytes end."""
    for _ in range(MOST_HEADERS - 1):
        stop = packet_end(block, at, end)
        inside = _inside(block, at, stop)
        if inside < 0 or inside >= stop:
            break
        version = byte(block, inside) >> 4
        if (version != 4 and version != 6) or stop - inside < (20 if version == 4 else 40):
            break
        at, end = inside, stop
    return at, end


# A captured Ethernet frame of this length has its last type and the first byte behind it, with or without a VLAN tag.
# Without a tag it has both IPv4 addresses, and four bytes of what is inside.
QUICK_BYTES = 38
_LEAST_TCP = 14  # bytes of TCP up to its flags

_TCP = TCP << PROTOCOL_SHIFT | HAS_PROTOCOL | HAS_PORTS | HAS_FLAGS
_UDP = UDP << PROTOCOL_SHIFT | HAS_PROTOCOL | HAS_PORTS
_ICMP = ICMP << PROTOCOL_SHIFT | HAS_PROTOCOL | HAS_FLAGS


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
def peek(block: Bytes, header: int, end: int, version: int) -> tuple[int, int, int, int]:
    """Return what `glance` takes of the whole IP header at `header`: four numbers, by arithmetic without branches.

    These are the protocol, the first four bytes inside, the byte where TCP has its flags, and the number of captured
    bytes inside, or less than 4 if the packet has options or is a fragment after the first.
    """
    inside = header + 10 * version - 20  # 20 bytes behind the start of an IPv4 header, 40 of an IPv6 header
    protocol = byte(block, header + 15 - 3 * (version >> 1))
    length = half(block, header + version - 2) - 20 * (version == 4)
    is_plain = (version == 6) | ((byte(block, header) == 0x45) & (half(block, header + 6) & 0x1FFF == 0))
    first, flags = big(block, min(inside, end - 4)), byte(block, min(inside + 13, end - 1))
    return protocol, first, flags, min(length, end - inside) * is_plain


@compiled
def glance(protocol: int, first: int, flags: int, length: int, wants: int) -> int:
    """Return the details of a packet that is not a tunnel, 0 if that takes a closer look."""
    if length < 4:
        return 0
    if protocol == TCP:
        return _TCP | flags << FLAGS_SHIFT | first if length >= _LEAST_TCP else 0
    if protocol == UDP:
        return 0 if wants & (INNER | BOTH) and is_tunnel_port(first >> 16, first & 0xFFFF) else _UDP | first
    if protocol == ICMP:
        return _ICMP | first >> 24 << FLAGS_SHIFT
    return 0


@compiled
def find_headers(block: Bytes, start: int, end: int, link: int, wants: int) -> tuple[int, int, int, int, int, int]:
    """Return the headers of the first packet of a frame: their places and details, and where the next packet starts.

    These are six numbers: the header that counts, or minus the counter of a packet without one; its details; a second
    header that counts, too, or 0; its details; the place and the link of the next packet in the frame, both 0 if there
    is none.
    """
    if is_wrapped(link):
        start, link = unwrapped(block, start, end, link)
        if start < 0:
            return start, 0, 0, 0, 0, 0
    following = 0
    if link == SUBFRAME:
        following = next_subframe(block, start, end)
        end = subframe_end(block, start, end)
    header = ip_header(block, start, end, link)
    following_link = SUBFRAME if following else 0
    if header < 0 or not wants:
        return header, 0, 0, 0, following, following_link
    inner, inner_end = header, end
    if wants & (INNER | BOTH):
        inner, inner_end = innermost(block, header, end)
    details = inner_details = 0
    if wants & DETAILS:
        inner_details = details_of(block, inner, inner_end)
        details = details_of(block, header, end) if wants & BOTH and inner != header else inner_details
    if not wants & BOTH or inner == header:
        return inner, inner_details, 0, 0, following, following_link
    return header, details, inner, inner_details, following, following_link


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
def put_ipv6(block: Bytes, at: int, row: int, src: NDArray[np.uint64], dst: NDArray[np.uint64]) -> None:
    """Write the addresses of the IPv6 header at `at`."""
    src[np.uint64(row), 0] = wide(block, at + 8)
    src[np.uint64(row), 1] = wide(block, at + 16)
    dst[np.uint64(row), 0] = wide(block, at + 24)
    dst[np.uint64(row), 1] = wide(block, at + 32)
