"""Frames of every link type other than Ethernet and the simplest ones, byte by byte from their descriptions."""

from __future__ import annotations

import struct

import packets as p

Frame = tuple[int, bytes, int, int]  # link type, frame, family (0: not IP), bytes up to the end of the addresses
V4, V6 = p.ipv4(), p.ipv6()
SNAP4, SNAP6 = p.snap(0x0800, b""), p.snap(0x86DD, b"")
ETHERNET4 = p.ethernet(0x0800, b"")


def wireless(*, subtype: int = 0, flags: int = 1, qos: int | None = None, kind: int = 2, sequence: int = 16) -> bytes:
    """Return the header of an 802.11 frame; `flags` 1 is to the distribution system, 2 from it, 0x40 protected."""
    head = bytes([subtype << 4 | kind << 2, flags, 0, 0]) + b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x02\0\0\0\0\x03"
    head += struct.pack("<H", sequence)
    if flags & 3 == 3:
        head += b"\x02\0\0\0\0\x04"
    if subtype & 8:
        head += struct.pack("<H", qos or 0) + (bytes(4) if flags & 0x80 else b"")
    return head


def radiotap(flags: int | None = None, *, time: bool = False, more: int = 0) -> bytes:
    present = (flags is not None) << 1 | time
    words = [present | (more > 0) << 31, *((i < more - 1) << 31 for i in range(more))]
    fields = b""
    if time:
        fields += bytes(-(4 + 4 * len(words)) % 8) + bytes(8)
    if flags is not None:
        fields += bytes([flags])
    return struct.pack(f"<BBH{len(words)}I", 0, 0, 4 + 4 * len(words) + len(fields), *words) + fields


def subframe(rest: bytes, *, last: bool = False) -> bytes:
    made = b"\x02\0\0\0\0\x01" + b"\x02\0\0\0\0\x02" + struct.pack(">H", len(rest)) + rest
    return made if last else p.padded(made)


def ppi(link: int, fields: bytes = b"") -> bytes:
    return struct.pack("<BBHI", 0, 0, 8 + len(fields), link) + fields


def pktap(link: int) -> bytes:
    return struct.pack("<III", 108, 1, link) + b"en0".ljust(96, b"\0")


def prism(order: str = "<") -> bytes:
    return struct.pack(order + "II16s", 0x44, 144, b"wlan0") + bytes(120)


def avs() -> bytes:
    return struct.pack(">II", 0x80211001, 64) + bytes(56)


def nflog(order: str = "<", family: int = 2) -> bytes:
    """Return an NFLOG header up to the payload, which is the last attribute."""
    packet, kind = (V4, b"\x08\0") if family == 2 else (V6, b"\x86\xdd")
    first = struct.pack(order + "HH", 8, 1) + kind + bytes(2)
    name = struct.pack(order + "HH", 10, 10) + b"filter" + bytes(2)
    return struct.pack(">BBH", family, 0, 0) + first + name + struct.pack(order + "HH", 4 + len(packet), 9)


def made(link: int, before: bytes, family: int = 4) -> Frame:
    packet = V4 if family == 4 else V6
    return link, before + packet, family, len(before) + (20 if family == 4 else 40)


DATA, QOS, TO_FROM = 0, 8, 3
_FR = b"\x18\x41"

LINK_FRAMES: dict[str, Frame] = {
    "ppp": made(9, b"\xff\x03\0\x21"),
    "ppp6": made(9, b"\xff\x03\0\x57", 6),
    "ppp-without-address": made(9, b"\0\x21"),
    "ppp-compressed": made(9, b"\x21"),
    "ppp-mpls": made(9, b"\xff\x03\x02\x81" + p.mpls(2, b"")),
    "ppp-hdlc": made(50, b"\xff\x03\0\x57", 6),
    "ppp-cisco": made(50, b"\x0f\0\x08\0"),
    "ppp-cisco-multicast": made(50, b"\x8f\0\x86\xdd", 6),
    "ppp-direction": made(166, b"\x01\x03\0\x21"),
    "ppp-direction-whole": made(166, b"\0\xff\x03\0\x21"),
    "ppp-with-direction": made(204, b"\x01\xff\x03\0\x21"),
    "ppp-with-direction-short": made(204, b"\0\0\x57", 6),
    "cisco-hdlc": made(104, b"\x0f\0\x08\0"),
    "cisco-hdlc6": made(104, b"\x0f\0\x86\xdd", 6),
    "cisco-hdlc-direction": made(205, b"\x01\x0f\0\x08\0"),
    "pppoe-link": made(51, p.pppoe(b"\0\x21", V4)[:8]),
    "802.11": made(105, wireless() + SNAP4),
    "802.11-from": made(105, wireless(flags=2) + SNAP6, 6),
    "802.11-direct": made(105, wireless(flags=0) + SNAP4),
    "802.11-four-addresses": made(105, wireless(flags=3) + SNAP4),
    "802.11-qos": made(105, wireless(subtype=8, qos=5) + SNAP4),
    "802.11-qos-four": made(105, wireless(subtype=8, flags=3) + SNAP6, 6),
    "802.11-qos-control": made(105, wireless(subtype=8, flags=0x82) + SNAP4),
    "802.11-vlan": made(105, wireless() + p.snap(0x8100, p.vlan(0x0800, b""))),
    "radiotap": made(127, radiotap() + wireless() + SNAP4),
    "radiotap-flags": made(127, radiotap(0x10) + wireless(subtype=8) + SNAP4),
    "radiotap-time": made(127, radiotap(0, time=True) + wireless(flags=2) + SNAP6, 6),
    "radiotap-padded": made(127, radiotap(0x20, time=True) + wireless(subtype=8) + bytes(2) + SNAP4),
    "radiotap-padded-more": made(127, radiotap(0x20, time=True, more=2) + wireless(subtype=8) + bytes(2) + SNAP4),
    "radiotap-padded-aligned": made(127, radiotap(0x20, time=True, more=1) + wireless(subtype=8) + bytes(2) + SNAP6, 6),
    "prism": made(119, prism() + wireless() + SNAP4),
    "prism-big": made(119, prism(">") + wireless() + SNAP6, 6),
    "prism-avs": made(119, avs() + wireless() + SNAP4),
    "avs": made(163, avs() + wireless() + SNAP4),
    "ppi-802.11": made(192, ppi(105, struct.pack("<HH20s", 2, 20, b"")) + wireless(subtype=8) + SNAP4),
    "ppi-ethernet": made(192, ppi(1) + p.ethernet(0x86DD, b""), 6),
    "ppi-raw": made(192, ppi(101)),
    "nflog": made(239, nflog()),
    "nflog-big": made(239, nflog(">")),
    "nflog6": made(239, nflog(family=10), 6),
    "pktap": made(258, pktap(1) + ETHERNET4),
    "pktap-raw": made(258, pktap(12), 6),
    "pktap-apple": made(149, pktap(0) + p.null(2, b"")),
    "enc": made(109, struct.pack(">III", 2, 7, 0)),
    "enc6": made(109, struct.pack("<III", 24, 7, 0), 6),
    "pflog": made(117, bytes([61, 2]) + bytes(62)),
    "pflog6": made(117, bytes([100, 24]) + bytes(98), 6),
    "frame-relay": made(107, _FR + b"\x03\xcc"),
    "frame-relay6": made(107, _FR + b"\x03\x8e", 6),
    "frame-relay-padded": made(107, _FR + b"\x03\0\xcc"),
    "frame-relay-long": made(107, b"\x18\x40\x01\x03\xcc"),
    "frame-relay-cisco": made(107, _FR + b"\x08\0"),
    "frame-relay-snap": made(107, _FR + b"\x03\0\x80\0\0\0\x86\xdd", 6),
    "frame-relay-bridged": made(107, _FR + b"\x03\0\x80\0\x80\xc2\0\x07" + ETHERNET4),
    "frame-relay-ppp": made(107, _FR + b"\x03\xcf\0\x21"),
    "frame-relay-direction": made(206, b"\0" + _FR + b"\x03\xcc"),
    "fddi": made(10, b"\x50" + bytes(12) + SNAP4),
    "fddi6": made(10, b"\x57" + bytes(12) + SNAP6, 6),
    "token-ring": made(6, b"\x10\x40" + b"\x02" * 12 + SNAP4),
    "token-ring-route": made(6, b"\x10\x40" + b"\x02" * 6 + b"\x82" + bytes(5) + b"\x06\x30\0\x11\0\x20" + SNAP6, 6),
    "token-ring-long": made(6, b"\x10\x40" + b"\x02" * 6 + b"\x82" + bytes(5) + b"\x12\x30" + bytes(16) + SNAP4),
    "ipoib": made(242, bytes(40) + b"\x08\0\0\0"),
    "ipoib6": made(242, bytes(40) + b"\x86\xdd\0\0", 6),
    "docsis": made(143, b"\0\0\0\x2a\0\0" + ETHERNET4),
    "docsis-extended": made(143, b"\x01\x03\0\x41\x11\x12\x13\0\0" + p.ethernet(0x86DD, b""), 6),
    "dsa": made(284, bytes(12) + b"\x40\0\0\0\x08\0"),
    "edsa": made(285, bytes(12) + b"\xda\xda\0\0\xc0\0\0\0\x86\xdd", 6),
    "edsa-ethernet": made(1, p.ethernet(0xDADA, b"\0\0\xc0\0\0\0\x08\0")),
    "edsa-vlan": made(1, p.ethernet(0xDADA, b"\0\0\xc0\0\0\0\x81\0" + p.vlan(0x0800, b""))),
    "broadcom": made(281, bytes(12) + b"\0\0\0\x01\x08\0"),
    "broadcom-prepended": made(282, b"\0\0\0\x01" + ETHERNET4),
    "fibre-channel": made(122, bytes(16) + SNAP4),
    "atm": made(100, SNAP6, 6),
    "firewire": made(138, bytes(16) + b"\x08\0"),
    "mpls": made(219, p.mpls(3, b"")),
    # not IP, decided by this many bytes
    "ppp-lcp": (9, b"\xff\x03\xc0\x21" + bytes(20), 0, 4),
    "cisco-keepalive": (104, b"\x8f\0\x80\x35" + bytes(20), 0, 4),
    "ppp-cisco-short": (50, b"\x0f\0\0\x21" + V4, 0, 4),
    "802.11-beacon": (105, wireless(kind=0, subtype=8), 0, 2),
    "802.11-null": (105, wireless(subtype=4), 0, 2),
    "802.11-qos-null": (105, wireless(subtype=12), 0, 2),
    "802.11-protected": (105, wireless(flags=0x41) + SNAP4 + V4, 0, 2),
    "802.11-fragment": (105, wireless(sequence=17) + V4, 0, 24),
    "802.11-arp": (105, wireless() + p.snap(0x0806, p.arp()), 0, 32),
    "radiotap-short": (127, b"\0\0\x07\0" + bytes(30), 0, 8),
    "radiotap-beacon": (127, radiotap(0) + wireless(kind=0, subtype=8), 0, 11),
    "ppi-in-ppi": (192, ppi(192) + ppi(1) + ETHERNET4 + V4, 0, 8),
    "pktap-short": (258, bytes(12) + V4, 0, 12),
    "nflog-other": (239, nflog()[:-4] + b"\x03\0\x09\0" + V4, 0, len(nflog())),
    "pflog-short": (117, b"\x02" + bytes(40), 0, 1),
    "frame-relay-lmi": (107, b"\0\x01\x03\x08\0\x75\x95" + bytes(9), 0, 4),
    "frame-relay-endless": (107, bytes(9), 0, 7),
    "frame-relay-old": (107, _FR + b"\x01\0" + V4, 0, 4),
    "frame-relay-snap-other": (107, _FR + b"\x03\x80\0\0\x0c\x20\0" + V4, 0, 9),
    "frame-relay-snap-short": (107, _FR + b"\x03\x80\0\0\0\0\x07" + V4, 0, 9),
    "fddi-token": (10, b"\x80" + bytes(30), 0, 13),
    "token-ring-mac": (6, b"\x10\0" + bytes(30), 0, 15),
    "docsis-management": (143, b"\xc2\0" + bytes(30), 0, 2),
}

# A frame with three packets, the second of which is not IP.
AGGREGATE = (
    wireless(subtype=8, qos=0x80)
    + subframe(SNAP4 + p.ipv4("10.0.0.1"))
    + subframe(p.snap(0x0806, p.arp()))
    + subframe(SNAP6 + p.ipv6(payload=b"12"), last=True)
)
