"""From the first byte of a frame to its outermost IP header, for every kind of link."""

from __future__ import annotations

from superhosts.jit.cache import compiled
from superhosts.sources.frames.ethertypes import (
    behind_ethernet,
    behind_hdlc,
    behind_labels,
    behind_ppp,
    behind_type,
)
from superhosts.sources.frames.linktypes import (
    DOCSIS,
    ETHERNET,
    FDDI,
    FIRST_WRAPPED,
    FRAME_RELAY,
    HEADER_SHIFT,
    KIND,
    LABELS,
    LLC,
    NFLOG,
    NULL,
    PFLOG,
    PKTAP,
    PLACE_SHIFT,
    PPI,
    PPP,
    PPPOE,
    RADIOTAP,
    RAW,
    SKIP_SHIFT,
    SUBFRAME,
    TOKEN_RING,
    TYPED,
    UNSUPPORTED,
    WIRELESS,
    link_of,
)
from superhosts.sources.frames.reading import Bytes, big, byte, half, little, little_half
from superhosts.sources.frames.tally import NOT_IP, TRUNCATED, UNSUPPORTED_LINK
from superhosts.sources.frames.wireless import behind_radio, behind_wireless, is_aggregate, is_padded

_BRIDGED = 0x0080C2  # the organisation of bridged frames, RFC 2427
_PAYLOAD = 9  # an attribute of NFLOG


@compiled
def _behind_null(block: Bytes, at: int, end: int) -> int:
    """A protocol family in the byte order of the machine."""
    if end - at < 4:
        return -TRUNCATED
    family = little(block, at)
    if family > 0xFFFF:
        family = big(block, at)
    # AF_INET is 2 everywhere, AF_INET6 on Linux 10, Windows 23, NetBSD and OpenBSD 24, FreeBSD 28, Darwin 30
    if family == 2 or family == 10 or family == 23 or family == 24 or family == 28 or family == 30:
        return at + 4
    return -NOT_IP


@compiled
def _behind_frame_relay(block: Bytes, at: int, end: int) -> int:
    """An address whose last byte is odd; then RFC 2427, or an EtherType as Cisco does it."""
    last = min(at + 4, end)
    while at < last and not byte(block, at) & 1:
        at += 1
    if end - at < 3:
        return -TRUNCATED
    if not byte(block, at) & 1:
        return -NOT_IP
    at += 1
    if byte(block, at) != 0x03:
        kind = half(block, at)
        return behind_type(block, at + 2, end, kind) if kind >= 0x0600 else -NOT_IP
    at += 1
    if not byte(block, at):  # padding
        at += 1
    if end - at < 1:
        return -TRUNCATED
    protocol = byte(block, at)
    if protocol == 0xCC or protocol == 0x8E:
        return at + 1
    if protocol == 0xCF:
        return behind_ppp(block, at + 1, end)
    if protocol != 0x80:
        return -NOT_IP
    if end - at < 6:
        return -TRUNCATED
    organisation, kind = half(block, at + 1) << 8 | byte(block, at + 3), half(block, at + 4)
    if organisation == 0:
        return behind_type(block, at + 6, end, kind) if kind >= 0x0600 else -NOT_IP
    if organisation == _BRIDGED and kind == 7:  # Ethernet without its checksum
        return behind_ethernet(block, at + 6, end)
    return -NOT_IP


@compiled
def _behind_token_ring(block: Bytes, at: int, end: int) -> int:
    """Access and frame control, two addresses, and a route if the source address says so; then LLC."""
    if end - at < 15:
        return -TRUNCATED
    if byte(block, at + 1) >> 6 != 1:
        return -NOT_IP
    route = byte(block, at + 14) & 0x1F if byte(block, at + 8) & 0x80 else 0
    return behind_type(block, at + 14 + route, end, 0)


@compiled
def _behind_docsis(block: Bytes, at: int, end: int) -> int:
    """A cable modem's header, with an extension if its lowest bit is set; then Ethernet."""
    if end - at < 2:
        return -TRUNCATED
    control = byte(block, at)
    if control >> 6:
        return -NOT_IP
    return behind_ethernet(block, at + 6 + (byte(block, at + 1) if control & 1 else 0), end)


@compiled
def _behind_nflog(block: Bytes, at: int, end: int) -> int:
    """Attributes in the byte order of the machine, one of which is the packet."""
    at += 4
    while end - at >= 4:
        length, kind = little_half(block, at), little_half(block, at + 2)
        if kind > 0xFF:  # the other byte order: there are few attributes
            length, kind = half(block, at), half(block, at + 2)
        if length < 4:
            return -NOT_IP
        if kind == _PAYLOAD:
            return at + 4
        at += length + -length % 4
    return -TRUNCATED


@compiled
def _behind_pflog(block: Bytes, at: int, end: int) -> int:
    """A header that begins with its length."""
    if end - at < 1:
        return -TRUNCATED
    length = byte(block, at)
    return at + length + -length % 4 if length >= 4 else -NOT_IP


@compiled
def _behind_link(block: Bytes, at: int, end: int, link: int) -> int:
    """Return where the outermost IP header should start, or minus the counter of a frame without one."""
    kind, place, header = link & KIND, link >> PLACE_SHIFT & 0xFF, link >> HEADER_SHIFT
    at += link >> SKIP_SHIFT & 0xFF
    if kind == UNSUPPORTED:
        return -UNSUPPORTED_LINK
    if kind == RAW:
        return at
    if kind == NULL:
        return _behind_null(block, at, end)
    if kind in (ETHERNET, TYPED):
        if not header:
            place, header = 12, 14
        if end - at < header:
            return -TRUNCATED
        value = half(block, at + place)
        if kind == TYPED and value < 0x0600 and value != 4:  # Linux's own numbers; 4 says that LLC follows
            return -NOT_IP
        return behind_type(block, at + header, end, value)
    if kind == LLC:
        return behind_type(block, at, end, 0)
    if kind == LABELS:
        return behind_labels(block, at, end)
    if kind == PPP:
        return behind_hdlc(block, at, end)
    if kind == PPPOE:
        return behind_ppp(block, at + 6, end)
    if kind == FRAME_RELAY:
        return _behind_frame_relay(block, at, end)
    if kind == FDDI:
        if end - at < 13:
            return -TRUNCATED
        return behind_type(block, at + 13, end, 0) if byte(block, at) >> 4 == 5 else -NOT_IP
    if kind == TOKEN_RING:
        return _behind_token_ring(block, at, end)
    if kind == DOCSIS:
        return _behind_docsis(block, at, end)
    if kind == NFLOG:
        return _behind_nflog(block, at, end)
    if kind == PFLOG:
        return _behind_pflog(block, at, end)
    if kind == SUBFRAME:  # as in Ethernet, two addresses and a length
        return behind_type(block, at + 14, end, 0) if end - at >= 14 else -TRUNCATED
    return -NOT_IP


@compiled
def ip_header(block: Bytes, start: int, end: int, link: int) -> int:
    """Return where the outermost IP header of block[start:end] starts, or minus the counter of a frame without one.

    Of links that `unwrapped` opens, only what it returns may be passed on to here.
    """
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
def unwrapped(block: Bytes, start: int, end: int, link: int) -> tuple[int, int]:
    """Return where the frame inside another starts, and its link; minus a counter and 0 if there is none.

    The result is a link that `ip_header` reads. An aggregate becomes its first subframe.
    """
    padded = False
    if link in (PPI, PKTAP):
        if end - start < (8 if link == PPI else 12):
            return -TRUNCATED, 0
        if link == PPI:
            length, link = little_half(block, start + 2), link_of(little(block, start + 4))
        else:
            length, link = little(block, start), link_of(little(block, start + 8))
        if length < 8 or link in (PPI, PKTAP):
            return -NOT_IP, 0
        if length > end - start:
            return -TRUNCATED, 0
        if link == UNSUPPORTED:
            return -UNSUPPORTED_LINK, 0
        start += length
    if link & KIND > WIRELESS:
        behind = behind_radio(block, start, end, link)
        if behind < 0:
            return behind, 0
        padded = link == RADIOTAP and is_padded(block, start, behind)
        start, link = behind, WIRELESS
    if link == WIRELESS:
        behind = behind_wireless(block, start, end, padded)
        if behind < 0:
            return behind, 0
        return behind, SUBFRAME if is_aggregate(block, start) else LLC
    return start, link


@compiled
def is_wrapped(link: int) -> bool:
    """Return True if `unwrapped` has to open frames of this link."""
    return link & KIND >= FIRST_WRAPPED and link != SUBFRAME
