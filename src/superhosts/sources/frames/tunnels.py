"""From an IP header to the one inside it, and on to the innermost.

A tunnel is recognised by the protocol of the outer header, or by the UDP port to which the tunnel's end listens; of
protocols whose ends answer from that port (L2TP, Teredo), by either port. What is inside has to look like an IP header
of version 4 or 6 that was captured as a whole. Otherwise the header around it is the innermost: so control messages,
encrypted packets, fragments after the first and truncated packets count with the deepest header that can be read.
"""

from __future__ import annotations

from superhosts.core.pairs import UDP
from superhosts.jit.cache import compiled
from superhosts.sources.frames.ethertypes import behind_ethernet, behind_hdlc, behind_labels, behind_type
from superhosts.sources.frames.headers import packet_end, payload
from superhosts.sources.frames.reading import Bytes, byte, half
from superhosts.sources.frames.tally import NOT_IP, TRUNCATED

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
