"""Packets in tunnels of every kind, byte by byte from their descriptions."""

from __future__ import annotations

import struct

import packets as p

INNER4 = "10.200.0.1", "198.51.100.9"
INNER6 = "2001:db8:9::1", "2001:db8:9::2"
TCP = struct.pack(">HHIIBBHHH", 51000, 443, 1, 2, 0x50, 0x12, 1000, 0, 0)
IN4 = p.ipv4(*INNER4, TCP, protocol=6)
IN6 = p.ipv6(*INNER6, TCP, protocol=6)
ETHERNET4, ETHERNET6 = p.ethernet(0x0800, IN4), p.ethernet(0x86DD, IN6)


def udp(dst: int, rest: bytes, src: int = 40000) -> bytes:
    return struct.pack(">HHHH", src, dst, 8 + len(rest), 0) + rest


def gre(kind: int, rest: bytes, flags: int = 0, options: bytes = b"") -> bytes:
    return struct.pack(">HH", flags, kind) + options + rest


def gtp(rest: bytes, flags: int = 0x30, options: bytes = b"", kind: int = 255) -> bytes:
    return struct.pack(">BBHI", flags, kind, len(options + rest), 7) + options + rest


def vxlan(rest: bytes, flags: int = 8, following: int = 0) -> bytes:
    return bytes([flags, 0, 0, following, 0, 0, 5, 0]) + rest


def geneve(kind: int, rest: bytes, options: bytes = b"") -> bytes:
    return struct.pack(">BBHI", len(options) // 4, 0, kind, 0x500) + options + rest


def l2tp(flags: int, rest: bytes, options: bytes = b"") -> bytes:
    """Return a message; `options` stand in front of the identifiers if there is a length, behind them if not."""
    if flags & 0x4000:
        return struct.pack(">HHHH", flags, 8 + len(options + rest), 1, 2) + options + rest
    return struct.pack(">HHH", flags, 1, 2) + options + rest


def extension(following: int, size: int = 8) -> bytes:
    """Return hop-by-hop or destination options that are padding."""
    return bytes([following, size // 8 - 1, 1, size - 4]) + bytes(size - 4)


def around(protocol: int, rest: bytes, family: int = 4) -> bytes:
    if family == 4:
        return p.ethernet(0x0800, p.ipv4(payload=rest, protocol=protocol))
    return p.ethernet(0x86DD, p.ipv6(payload=rest, protocol=protocol))


ERSPAN2 = b"\x10\x64\0\0\0\0\0\0"
ERSPAN3 = b"\x20\x64\0\0" + bytes(4) + b"\0\0\0\0"
ROUTES = struct.pack(">HBB4sHBB", 0x0800, 0, 4, b"\x0a\0\0\x01", 0, 0, 0)

# name: frame, the family of the innermost header (0: there is no tunnel that can be read)
TUNNELS: dict[str, tuple[bytes, int]] = {
    "4in4": (around(4, IN4), 4),
    "6in4": (around(41, IN6), 6),
    "4in6": (around(4, IN4, 6), 4),
    "6in6": (around(41, IN6, 6), 6),
    "gre": (around(47, gre(0x0800, IN4)), 4),
    "gre6": (around(47, gre(0x86DD, IN6), 6), 6),
    "gre-checksum": (around(47, gre(0x0800, IN4, 0x8000, bytes(4))), 4),
    "gre-key": (around(47, gre(0x0800, IN4, 0x2000, bytes(4))), 4),
    "gre-all": (around(47, gre(0x86DD, IN6, 0xB000, bytes(12))), 6),
    "gre-routes": (around(47, gre(0x0800, IN4, 0x4000, bytes(4) + ROUTES)), 4),
    "gre-bridge": (around(47, gre(0x6558, ETHERNET6)), 6),
    "gre-mpls": (around(47, gre(0x8847, p.mpls(2, IN4))), 4),
    "gre-vlan": (around(47, gre(0x6558, p.ethernet(0x8100, p.vlan(0x0800, IN4)))), 4),
    "pptp": (around(47, gre(0x880B, b"\xff\x03\0\x21" + IN4, 0x3081, bytes(12))), 4),
    "pptp-short": (around(47, gre(0x880B, b"\x21" + IN4, 0x3001, bytes(8))), 4),
    "erspan-1": (around(47, gre(0x88BE, ETHERNET4)), 4),
    "erspan-2": (around(47, gre(0x88BE, ERSPAN2 + ETHERNET4, 0x1000, bytes(4))), 4),
    "erspan-3": (around(47, gre(0x22EB, ERSPAN3 + ETHERNET6, 0x1000, bytes(4))), 6),
    "erspan-3-platform": (around(47, gre(0x22EB, ERSPAN3[:-1] + b"\x01" + bytes(8) + ETHERNET4, 0x1000, bytes(4))), 4),
    "erspan-3-ip": (around(47, gre(0x22EB, ERSPAN3[:-2] + b"\x08\0" + IN4, 0x1000, bytes(4))), 4),
    "mpls-in-ip": (around(137, p.mpls(2, IN4)), 4),
    "etherip": (around(97, b"\x30\0" + ETHERNET6), 6),
    "vxlan": (around(17, udp(4789, vxlan(ETHERNET4))), 4),
    "vxlan-6": (around(17, udp(4789, vxlan(ETHERNET6)), 6), 6),
    "vxlan-linux": (around(17, udp(8472, vxlan(ETHERNET4))), 4),
    "vxlan-gpe": (around(17, udp(4790, vxlan(IN4, 0x0C, 1))), 4),
    "vxlan-gpe-ethernet": (around(17, udp(4790, vxlan(ETHERNET6, 0x0C, 3))), 6),
    "vxlan-gpe-mpls": (around(17, udp(4790, vxlan(p.mpls(1, IN4), 0x0C, 5))), 4),
    "geneve": (around(17, udp(6081, geneve(0x6558, ETHERNET4))), 4),
    "geneve-options": (around(17, udp(6081, geneve(0x6558, ETHERNET6, bytes([0, 0, 0, 1]) + bytes(4)))), 6),
    "geneve-ip": (around(17, udp(6081, geneve(0x0800, IN4))), 4),
    "gtp": (around(17, udp(2152, gtp(IN4), 2152)), 4),
    "gtp6": (around(17, udp(2152, gtp(IN6), 2152), 6), 6),
    "gtp-number": (around(17, udp(2152, gtp(IN4, 0x32, b"\0\x07\0\0"), 2152)), 4),
    "gtp-extension": (around(17, udp(2152, gtp(IN6, 0x34, b"\0\0\0\x85" + b"\x01\x10\x09\0"), 2152)), 6),
    "gtp-extensions": (
        around(17, udp(2152, gtp(IN4, 0x36, b"\0\x07\0\xc0" + b"\x01\0\0\x85" + b"\x02" + bytes(7)), 2152)),
        4,
    ),
    "l2tp": (around(17, udp(1701, l2tp(2, b"\xff\x03\0\x21" + IN4), 1701)), 4),
    "l2tp-length": (around(17, udp(1701, l2tp(0x4002, b"\xff\x03\0\x57" + IN6), 1701)), 6),
    "l2tp-number": (around(17, udp(1701, l2tp(0x0802, b"\0\x21" + IN4, bytes(4)), 1701)), 4),
    "l2tp-offset": (around(17, udp(40000, l2tp(0x4202, b"\xff\x03\0\x21" + IN4, b"\0\x02\0\0"), 1701)), 4),
    "mpls-in-udp": (around(17, udp(6635, p.mpls(2, IN4))), 4),
    "teredo": (around(17, udp(3544, IN6)), 6),
    "teredo-origin": (around(17, udp(40000, bytes(8) + IN6, 3544)), 6),
    "teredo-authentication": (around(17, udp(3544, b"\0\x01\0\0" + bytes(9) + bytes(8) + IN6)), 6),
    "options": (p.ethernet(0x0800, p.ipv4(first=0x46, payload=b"\x01" * 4 + IN4, protocol=4)), 4),
    "hop-by-hop": (around(0, extension(41) + IN6, 6), 6),
    "extensions": (
        around(0, extension(60) + extension(43, 16) + bytes([44, 0]) + bytes(6) + bytes([4]) + bytes(7) + IN4, 6),
        4,
    ),
    "authentication": (around(51, bytes([4, 4, 0, 0]) + bytes(20) + IN4), 4),
    "fragment-first": (p.ethernet(0x0800, p.ipv4(payload=IN4, protocol=4, fragment=0x2000)), 4),
    "nested": (around(4, p.ipv4("1.1.1.1", "2.2.2.2", gre(0x86DD, p.ipv6("::1", "::2", IN4, 4)), protocol=47)), 4),
    "vxlan-gre": (
        around(17, udp(4789, vxlan(p.ethernet(0x0800, p.ipv4("1.1.1.1", "2.2.2.2", gre(0x86DD, IN6), protocol=47))))),
        6,
    ),
    # no tunnel, or none that can be read
    "fragment-later": (p.ethernet(0x0800, p.ipv4(payload=IN4, protocol=4, fragment=0x0001)), 0),
    "fragment-later6": (around(44, bytes([4, 0, 0, 9]) + bytes(4) + IN4, 6), 0),
    "gre-version-2": (around(47, gre(0x0800, IN4, 2)), 0),
    "gre-keepalive": (around(47, gre(0, b"")), 0),
    "vxlan-without-id": (around(17, udp(4789, vxlan(ETHERNET4, 0))), 0),
    "vxlan-source": (around(17, udp(40000, vxlan(ETHERNET4), 4789)), 0),
    "vxlan-arp": (around(17, udp(4789, vxlan(p.ethernet(0x0806, p.arp())))), 0),
    "vxlan-gpe-nsh": (around(17, udp(4790, vxlan(IN4, 0x0C, 4))), 0),
    "geneve-version": (around(17, udp(6081, b"\x40\0" + geneve(0x0800, IN4)[2:])), 0),
    "gtp-echo": (around(17, udp(2152, gtp(IN4, 0x30, b"", 1), 2152)), 0),
    "gtp-prime": (around(17, udp(2152, gtp(IN4, 0x20), 2152)), 0),
    "gtp-endless": (around(17, udp(2152, gtp(IN4, 0x34, b"\0\0\0\x85\0\0\0\0"), 2152)), 0),
    "l2tp-control": (around(17, udp(1701, l2tp(0xC802, bytes(20)), 1701)), 0),
    "l2tp-version": (around(17, udp(1701, l2tp(3, b"\0\x21" + IN4), 1701)), 0),
    "teredo-4": (around(17, udp(3544, IN4)), 0),
    "erspan-other": (around(47, gre(0x22EB, ERSPAN3[:-2] + b"\x10\0" + IN4, 0x1000, bytes(4))), 0),
    "etherip-version": (around(97, b"\x40\0" + ETHERNET4), 0),
    "version-5": (around(4, b"\x55" + IN4[1:]), 0),
    "padding": (p.ethernet(0x0800, p.ipv4(payload=b"", protocol=4) + IN4), 0),
    "dns": (around(17, udp(53, IN4)), 0),
    "esp": (around(50, IN4), 0),
}
