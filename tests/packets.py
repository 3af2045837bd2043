"""Build captures byte by byte, from the standards and with `struct` alone, without any code of the product."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

A4, B4 = "10.1.2.3", "192.0.2.77"
A6, B6 = "2001:db8::1", "fe80::dead:beef:1:2"
SECOND = 1_000_000_000


# IP packets


def ipv4(
    src: str = A4, dst: str = B4, payload: bytes = b"payload!", first: int = 0x45, protocol: int = 17, fragment: int = 0
) -> bytes:
    head = struct.pack(">BBHHHBBH", first, 0, 20 + len(payload), 7, fragment, 64, protocol, 0)
    return head + IPv4Address(src).packed + IPv4Address(dst).packed + payload


def ipv6(src: str = A6, dst: str = B6, payload: bytes = b"payload!", protocol: int = 17) -> bytes:
    head = struct.pack(">IHBB", 0x60000000, len(payload), protocol, 64)
    return head + IPv6Address(src).packed + IPv6Address(dst).packed + payload


def arp() -> bytes:
    return struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + bytes(20)


# Link-layer headers


def ethernet(kind: int, rest: bytes) -> bytes:
    return b"\x02\0\0\0\0\x01" + b"\x02\0\0\0\0\x02" + struct.pack(">H", kind) + rest


def vlan(kind: int, rest: bytes, tag: int = 100) -> bytes:
    """Return a VLAN tag and its payload, as they follow an EtherType of VLAN."""
    return struct.pack(">HH", tag, kind) + rest


def mpls(labels: int, rest: bytes) -> bytes:
    return b"".join(struct.pack(">I", (16 + i) << 12 | (i == labels - 1) << 8 | 64) for i in range(labels)) + rest


def pppoe(protocol: bytes, rest: bytes) -> bytes:
    return struct.pack(">BBHH", 0x11, 0, 5, len(protocol + rest)) + protocol + rest


def snap(kind: int, rest: bytes, organisation: bytes = b"\0\0\0") -> bytes:
    return b"\xaa\xaa\x03" + organisation + struct.pack(">H", kind) + rest


def sll(kind: int, rest: bytes) -> bytes:
    return struct.pack(">HHH8sH", 0, 1, 6, b"\x02\0\0\0\0\x01\0\0", kind) + rest


def sll2(kind: int, rest: bytes) -> bytes:
    return struct.pack(">HHIHBB8s", kind, 0, 3, 1, 0, 6, b"\x02\0\0\0\0\x01\0\0") + rest


def null(family: int, rest: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "I", family) + rest


# The classic pcap format

MICRO, NANO, MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34


def pcap_header(link: int = 1, magic: int = MICRO, order: str = "<", snaplen: int = 65535) -> bytes:
    return struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, link)


def record(time: int, frame: bytes, magic: int = MICRO, order: str = "<", captured: int | None = None) -> bytes:
    """Return a record. `captured` overrides the length in its header."""
    seconds, rest = divmod(time, SECOND)
    size = len(frame) if captured is None else captured
    head = struct.pack(order + "IIII", seconds, rest if magic == NANO else rest // 1000, size, len(frame))
    if magic == MODIFIED:
        head += struct.pack(order + "IHBB", 2, 0x0800, 0, 0)
    return head + frame


def pcap(frames: list[tuple[int, bytes]], link: int = 1, magic: int = MICRO, order: str = "<") -> bytes:
    return pcap_header(link, magic, order) + b"".join(record(time, frame, magic, order) for time, frame in frames)


# pcapng


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    size = 12 + len(body)
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def section(order: str = "<", version: int = 1) -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, version, 0, -1), order)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + padded(value)


def interface(
    link: int = 1, order: str = "<", resolution: int | None = None, offset: int | None = None, snaplen: int = 0
) -> bytes:
    options = option(2, b"eth0", order)
    if resolution is not None:
        options += option(9, bytes([resolution]), order)
    if offset is not None:
        options += option(14, struct.pack(order + "q", offset), order)
    return block(1, struct.pack(order + "HHI", link, 0, snaplen) + options + option(0, b"", order), order)


def enhanced(ticks: int, frame: bytes, number: int = 0, order: str = "<", options: bytes = b"") -> bytes:
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + padded(frame) + options, order)


def obsolete(ticks: int, frame: bytes, number: int = 0, order: str = "<", drops: int = 9) -> bytes:
    head = struct.pack(order + "HHIIII", number, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(2, head + padded(frame), order)


def simple(frame: bytes, order: str = "<", original: int | None = None) -> bytes:
    return block(3, struct.pack(order + "I", original or len(frame)) + padded(frame), order)
