"""Rings of packet sockets, byte by byte (TPACKET_V3 of linux/if_packet.h), and an oracle that reads them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import naive_frames as naive
from naive_capture import Row

SECOND = 10**9
ETHER, LOOPBACK, NONE, RADIOTAP = 1, 772, 65534, 803
HOST, OUTGOING = 0, 4
HEADER = 68  # bytes of a packet before its frame: struct tpacket3_hdr and struct sockaddr_ll


class Packet(NamedTuple):
    frame: bytes
    time: int = 0
    hardware: int = ETHER
    direction: int = HOST
    protocol: int = 0x0800
    net: int = 14  # bytes of the frame before the network header


def packet(one: Packet, following: int | None) -> bytes:
    """Return a packet in a block; `following` is the distance to the next one, None: as usual."""
    mac = 80
    room = -(-(mac + len(one.frame)) // 16) * 16
    head = struct.pack(
        "<6I2H2I2H8x",
        room if following is None else following,
        *divmod(one.time, SECOND),
        len(one.frame),
        len(one.frame),
        1,
        mac,
        mac + one.net,
        0,
        0,
        0,
        0,
    )
    address = struct.pack("<H", 17) + struct.pack(">H", one.protocol)
    address += struct.pack("<iHBB8x", 1, one.hardware, one.direction, 6)
    return (head + address + bytes(mac - HEADER) + one.frame).ljust(room, b"\0")


def block(packets: list[Packet], size: int, status: int = 1) -> bytes:
    parts = [packet(one, 0 if number == len(packets) - 1 else None) for number, one in enumerate(packets)]
    data = struct.pack("<5I", 1, 48, status, len(packets), 48).ljust(48, b"\0") + b"".join(parts)
    assert len(data) <= size
    return data.ljust(size, b"\0")


@dataclass
class Reading:
    ipv4: list[Row] = field(default_factory=list)
    ipv6: list[Row] = field(default_factory=list)
    not_ip: int = 0
    truncated: int = 0
    unsupported: int = 0
    twice: int = 0
    damaged: int = 0
    blocks: int = 0


def read(data: bytes, size: int, cooked: bool = False) -> Reading:
    """Read the blocks from the first on that belong to the reader."""
    found = Reading()
    for start in range(0, len(data), size):
        one = data[start : start + size]
        status, left, at = struct.unpack_from("<3I", one, 8)
        if not status & 1:
            break
        while left:
            if at > size - HEADER:
                found.damaged += left
                break
            following, seconds, nanoseconds, captured = struct.unpack_from("<4I", one, at)
            mac, net = struct.unpack_from("<2H", one, at + 24)
            if at + mac + captured > size:
                found.damaged += left
                break
            frame, time = one[at + mac : at + mac + captured], seconds * SECOND + nanoseconds
            (hardware,) = struct.unpack_from("<H", one, at + 56)
            if not (hardware == LOOPBACK and one[at + 58] == OUTGOING):
                _add(found, frame, time, hardware, cooked, int.from_bytes(one[at + 50 : at + 52], "big"), net - mac)
            else:
                found.twice += 1
            left -= 1
            if left and following < HEADER:
                found.damaged += left
                break
            at += following
        found.blocks += 1
    return found


def _add(found: Reading, frame: bytes, time: int, hardware: int, cooked: bool, protocol: int, net: int) -> None:
    try:
        if hardware in (ETHER, LOOPBACK) and not cooked:
            header = naive.ip_header(1, frame)
        elif hardware in (801, 802, RADIOTAP):
            found.unsupported += 1
            return
        elif protocol not in (0x0800, 0x86DD):
            raise naive.NotIp
        elif not 0 <= net <= len(frame):
            raise naive.Truncated
        else:
            header = naive.ip_header(101, frame[net:])
        family, src, dst = naive.addresses(header)
    except naive.NotIp:
        found.not_ip += 1
    except naive.Truncated:
        found.truncated += 1
    else:
        (found.ipv4 if family == 4 else found.ipv6).append((src, dst, time))
