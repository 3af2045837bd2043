"""From the first byte of a frame to its outermost IP header, for every link type.

A link is a number: a kind, which says what code reads the frame, and up to three small numbers for it. So types that
differ by lengths alone share their code, and one more of them is one more line in `_LINKS`.

Between a link's header and IP there may be VLAN and switch tags, MPLS, PPPoE and PPP, LLC and SNAP, in any stacking. A
function `behind_…` returns where the IP header should start, or minus the counter of a frame without one. Where a frame
says "IP", the version nibble of the header decides which one; tags and link types that claim another version are common
in the wild. After MPLS nothing names the payload, so the nibble alone decides there too, as in routers.

Bytes are read through an unsigned index, because a signed one makes numba test for negative values, and then LLVM no
longer merges four byte loads into one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled
from superhosts.sources.frames.columns import NOT_IP, TRUNCATED, UNSUPPORTED_LINK

Bytes = NDArray[np.uint8]


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
def wide(block: Bytes, at: int) -> np.uint64:
    """Eight bytes in network order."""
    return np.uint64(big(block, at)) << np.uint64(32) | np.uint64(big(block, at + 4))


@compiled
def swapped(value: int) -> int:
    """Four bytes in the other order."""
    return (value & 0xFF) << 24 | (value & 0xFF00) << 8 | value >> 8 & 0xFF00 | value >> 24


@compiled
def half(block: Bytes, at: int) -> int:
    """Two bytes in network order."""
    return byte(block, at) << 8 | byte(block, at + 1)


@compiled
def little_half(block: Bytes, at: int) -> int:
    """Two bytes, least significant first."""
    return byte(block, at) | byte(block, at + 1) << 8


# How a frame starts, behind the bytes that are skipped. Zero is an unsupported link type.
UNSUPPORTED, ETHERNET, RAW, NULL, TYPED, LLC, LABELS = 0, 1, 2, 3, 4, 5, 6
PPP, PPPOE, FRAME_RELAY, FDDI, TOKEN_RING, DOCSIS, NFLOG, PFLOG = 7, 8, 9, 10, 11, 12, 13, 14
NOTHING = 15  # no IP, whatever the frame holds
# These are read in two steps: something else is inside, or several packets are.
WIRELESS, RADIOTAP, PRISM, AVS, PPI, PKTAP, SUBFRAME = 32, 33, 34, 35, 36, 37, 38
FIRST_WRAPPED = WIRELESS
KIND, SKIP_SHIFT, PLACE_SHIFT, HEADER_SHIFT = 0xFF, 8, 16, 24


def _skip(count: int, kind: int) -> int:
    """A frame of this kind behind some bytes that say nothing of its content."""
    return kind | count << SKIP_SHIFT


def _typed(place: int, header: int, kind: int = TYPED) -> int:
    """A header with an EtherType at `place`. As kind ETHERNET, that may be a length, too."""
    return kind | place << PLACE_SHIFT | header << HEADER_SHIFT


_LINKS = {
    **dict.fromkeys((0, 108), NULL),
    1: ETHERNET,
    6: TOKEN_RING,
    **dict.fromkeys((9, 50), PPP),
    10: FDDI,
    **dict.fromkeys((12, 14, 101, 228, 229), RAW),
    51: PPPOE,
    100: LLC,
    104: _typed(2, 4),
    105: WIRELESS,
    107: FRAME_RELAY,
    109: _skip(12, RAW),
    113: _typed(14, 16),
    117: PFLOG,
    119: PRISM,
    122: _skip(16, LLC),
    127: RADIOTAP,
    138: _typed(16, 18),
    143: DOCSIS,
    **dict.fromkeys((149, 258), PKTAP),  # the first is Apple's own number for it, before it had one
    163: AVS,
    **dict.fromkeys((166, 204), _skip(1, PPP)),
    192: PPI,
    205: _skip(1, _typed(2, 4)),
    206: _skip(1, FRAME_RELAY),
    219: LABELS,
    239: NFLOG,
    242: _typed(40, 44),
    276: _typed(0, 20),
    **dict.fromkeys((281, 284), _typed(16, 18, ETHERNET)),
    282: _skip(4, ETHERNET),
    285: _typed(20, 22, ETHERNET),
}

_NAMES = {
    7: "ARCNET",
    8: "SLIP",
    19: "ATM",
    147: "user 0",
    187: "Bluetooth HCI",
    189: "USB, Linux",
    195: "IEEE 802.15.4",
    201: "Bluetooth HCI with direction",
    220: "USB, Linux, padded",
    227: "CAN",
    247: "InfiniBand",
    249: "USB, Windows",
    253: "netlink",
}

_TABLE = np.zeros(max(_LINKS) + 1, np.int64)
_TABLE[list(_LINKS)] = list(_LINKS.values())


@compiled
def link_of(link_type: int) -> int:
    """Return how frames of a link type of the capture formats start; UNSUPPORTED if it is not supported."""
    if link_type < 0 or link_type >= len(_TABLE):
        return UNSUPPORTED
    return _TABLE[link_type]  # type: ignore[no-any-return]


def unsupported(link_type: int) -> str:
    name = f" ({_NAMES[link_type]})" if link_type in _NAMES else ""
    return (
        f"link type {link_type}{name} is not supported; "
        "Ethernet, raw IP, Linux cooked, BSD null and loop, IEEE 802.11, PPP, HDLC, Frame Relay and others are"
    )


@compiled
def is_tag(kind: int) -> bool:
    """Return True if an EtherType announces a VLAN tag."""
    return kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200


@compiled
def vlan_of(block: Bytes, at: int, end: int, link: int) -> int:
    """Return the number of the outermost VLAN of the frame at `at`, 0 if it is in none, or of another kind of link."""
    kind, place, header = link & KIND, link >> PLACE_SHIFT & 0xFF, link >> HEADER_SHIFT
    at += link >> SKIP_SHIFT & 0xFF
    if kind not in (ETHERNET, TYPED):
        return 0
    if not header:
        place, header = 12, 14
    if end - at < header + 2 or not is_tag(half(block, at + place)):
        return 0
    return half(block, at + header) & 0x0FFF


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


MOST_SUBFRAMES = 1024  # of a frame; the standard's longest aggregate holds 700 of the shortest
_PADDED = 0x20  # a radiotap flag: the header is padded to a multiple of four
_AVS_COOKIE = 0x80211


@compiled
def behind_radio(block: Bytes, at: int, end: int, kind: int) -> int:
    """Return where the 802.11 frame behind a radio's header starts."""
    if end - at < 8:
        return -TRUNCATED
    if kind == RADIOTAP:
        length = little_half(block, at + 2)
    elif kind == AVS or (kind == PRISM and big(block, at) >> 12 == _AVS_COOKIE):
        length = big(block, at + 4)
    else:  # Prism, in the byte order of the machine
        length = little(block, at + 4)
        if length > 0xFFFF:
            length = big(block, at + 4)
    if length < 8:
        return -NOT_IP
    return at + length if length <= end - at else -TRUNCATED


@compiled
def is_padded(block: Bytes, at: int, behind: int) -> bool:
    """Return True if the radiotap header between both places says that the 802.11 header is padded."""
    words = at + 4
    present = little(block, words)
    while words < behind - 8 and little(block, words) >> 31:
        words += 4
    field = words + 4  # behind the words that say which fields are present
    if not present & 2:
        return False
    if present & 1:  # a time of eight bytes comes first, at a multiple of eight
        field += -(field - at) % 8 + 8
    return field < behind and byte(block, field) & _PADDED != 0


@compiled
def behind_wireless(block: Bytes, at: int, end: int, padded: bool) -> int:
    """Return where the payload of the 802.11 frame at `at` starts."""
    if end - at < 2:
        return -TRUNCATED
    kind, flags = byte(block, at), byte(block, at + 1)
    if kind & 0x0F != 0x08 or kind & 0x40 or flags & 0x40:  # no data frame, one without data, encrypted
        return -NOT_IP
    length = 30 if flags & 3 == 3 else 24
    if kind & 0x80:  # QoS, and an HT control field behind it
        length += 6 if flags & 0x80 else 2
    if padded:
        length += -length % 4
    if length > end - at:
        return -TRUNCATED
    return -NOT_IP if byte(block, at + 22) & 0x0F else at + length


@compiled
def is_aggregate(block: Bytes, at: int) -> bool:
    """Return True if the 802.11 data frame at `at`, whose header is whole, holds subframes."""
    place = at + (30 if byte(block, at + 1) & 3 == 3 else 24)
    return byte(block, at) & 0x80 != 0 and byte(block, place) & 0x80 != 0


@compiled
def subframe_end(block: Bytes, at: int, end: int) -> int:
    """Return where the subframe at `at` ends, by its own length, as far as it was captured."""
    return min(at + 14 + half(block, at + 12), end) if end - at >= 14 else end


@compiled
def next_subframe(block: Bytes, at: int, end: int) -> int:
    """Return where the subframe behind the one at `at` starts, 0 if there is no other."""
    if end - at < 14:
        return 0
    length = 14 + half(block, at + 12)
    behind = at + length + -length % 4
    return behind if end - behind >= 14 else 0  # fewer bytes are a checksum


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
