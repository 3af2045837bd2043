"""Captures for tests: every kind of frame with its expected addresses, and packets read back as rows."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import zstandard

import packets as p
from links import LINK_FRAMES
from superhosts.core.pairs import PacketBatch
from superhosts.sources.base import SourceCounters
from superhosts.sources.capture import open_capture

Row = tuple[int, str, str, int]


T = 1_700_000_000 * p.SECOND + 123_456_000


def rows_of(batch: PacketBatch) -> list[tuple[int, ...]]:
    """Return source, destination and time of each packet, and its details if there are any, as numbers."""
    columns = [batch.src.tolist(), batch.dst.tolist()]
    if batch.family == 6:
        columns = [[high << 64 | low for high, low in column] for column in columns]
    columns += [column.tolist() for column in (batch.time, batch.details) if column is not None]
    return list(zip(*columns, strict=True))


def rows(path: Path | str, **options: int) -> tuple[list[Row], SourceCounters]:
    source = open_capture(path, **options)
    found: list[Row] = []
    for batches in source.blocks():
        assert batches
        for batch in batches:
            assert len(batch) > 0
            assert batch.src.base is None
            for src, dst, time in rows_of(batch):
                ends = [str(ip_address(end.to_bytes(4 if batch.family == 4 else 16, "big"))) for end in (src, dst)]
                found.append((batch.family, ends[0], ends[1], time))
    counters = source.counters
    without_addresses = counters.not_ip + counters.truncated + counters.unsupported_link
    assert counters.packets == counters.ipv4 + counters.ipv6 + without_addresses
    assert counters.ipv4 == sum(row[0] == 4 for row in found)
    assert counters.ipv6 == sum(row[0] == 6 for row in found)
    return sorted(found, key=lambda row: row[0]), counters


def write(folder: Path, data: bytes, name: str = "capture") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
    "xz": lzma.compress,
}
V4, V6 = p.ipv4(), p.ipv6()


# name: link type, frame, family (0: not IP), bytes up to the end of the addresses
FRAMES: dict[str, tuple[int, bytes, int, int]] = {
    "ethernet4": (1, p.ethernet(0x0800, V4), 4, 34),
    "ethernet6": (1, p.ethernet(0x86DD, V6), 6, 54),
    "options": (1, p.ethernet(0x0800, p.ipv4(first=0x4F, payload=bytes(40))), 4, 34),
    "claims4-is6": (1, p.ethernet(0x0800, V6), 6, 54),
    "claims6-is4": (1, p.ethernet(0x86DD, V4), 4, 34),
    "vlan": (1, p.ethernet(0x8100, p.vlan(0x0800, V4)), 4, 38),
    "qinq-88a8": (1, p.ethernet(0x88A8, p.vlan(0x8100, p.vlan(0x86DD, V6))), 6, 62),
    "qinq-9100": (1, p.ethernet(0x9100, p.vlan(0x9100, p.vlan(0x8100, p.vlan(0x0800, V4)))), 4, 46),
    "mpls-1": (1, p.ethernet(0x8847, p.mpls(1, V4)), 4, 38),
    "mpls-3": (1, p.ethernet(0x8848, p.mpls(3, V6)), 6, 66),
    "vlan-mpls": (1, p.ethernet(0x8100, p.vlan(0x8847, p.mpls(2, V4))), 4, 46),
    "pppoe4": (1, p.ethernet(0x8864, p.pppoe(b"\0\x21", V4)), 4, 42),
    "pppoe6": (1, p.ethernet(0x8100, p.vlan(0x8864, p.pppoe(b"\0\x57", V6))), 6, 66),
    "pppoe-short": (1, p.ethernet(0x8864, p.pppoe(b"\x21", V4)), 4, 41),
    "pppoe-mpls": (1, p.ethernet(0x8864, p.pppoe(b"\x02\x81", p.mpls(1, V4))), 4, 46),
    "snap": (1, p.ethernet(60, p.snap(0x0800, V4)), 4, 42),
    "snap-bridged": (1, p.ethernet(60, p.snap(0x86DD, V6, b"\0\0\xf8")), 6, 62),
    "vlan-snap-vlan": (1, p.ethernet(0x8100, p.vlan(60, p.snap(0x8100, p.vlan(0x0800, V4)))), 4, 50),
    "llc-ip": (1, p.ethernet(60, b"\x06\x06\x03" + V4), 4, 37),
    "tunnel": (1, p.ethernet(0x0800, p.ipv4(payload=p.ipv4("1.1.1.1", "2.2.2.2"))), 4, 34),
    "raw-101": (101, V4, 4, 20),
    "raw-101-6": (101, V6, 6, 40),
    "raw-12": (12, V6, 6, 40),
    "raw-14": (14, V4, 4, 20),
    "ipv4": (228, V4, 4, 20),
    "ipv6": (229, V6, 6, 40),
    "ipv6-is4": (229, V4, 4, 20),
    "sll4": (113, p.sll(0x0800, V4), 4, 36),
    "sll6-vlan": (113, p.sll(0x8100, p.vlan(0x86DD, V6)), 6, 60),
    "sll-llc": (113, p.sll(4, p.snap(0x0800, V4)), 4, 44),
    "sll2-4": (276, p.sll2(0x0800, V4), 4, 40),
    "sll2-6": (276, p.sll2(0x86DD, V6), 6, 60),
    "null-little": (0, p.null(2, V4), 4, 24),
    "null-big": (0, p.null(2, V4, ">"), 4, 24),
    "null-linux6": (0, p.null(10, V6), 6, 44),
    "null-windows6": (0, p.null(23, V6), 6, 44),
    "null-openbsd6": (0, p.null(24, V6, ">"), 6, 44),
    "null-freebsd6": (0, p.null(28, V6), 6, 44),
    "null-darwin6": (0, p.null(30, V6, ">"), 6, 44),
    "loop": (108, p.null(2, V4, ">"), 4, 24),
    "loop6": (108, p.null(24, V6, ">"), 6, 44),
    "arp": (1, p.ethernet(0x0806, p.arp()), 0, 14),
    "vlan-arp": (1, p.ethernet(0x8100, p.vlan(0x0806, p.arp())), 0, 18),
    "stp": (1, p.ethernet(38, b"\x42\x42\x03" + bytes(35)), 0, 17),
    "novell": (1, p.ethernet(38, b"\xff\xff" + bytes(36)), 0, 17),
    "cdp": (1, p.ethernet(60, p.snap(0x2000, bytes(40), b"\0\0\x0c")), 0, 22),
    "snap-length": (1, p.ethernet(60, p.snap(0x0100, V4)), 0, 22),
    "pseudowire": (1, p.ethernet(0x8847, p.mpls(2, bytes(4) + V4)), 0, 23),
    "lcp": (1, p.ethernet(0x8864, p.pppoe(b"\xc0\x21", bytes(20))), 0, 22),
    "discovery": (1, p.ethernet(0x8863, bytes(30)), 0, 14),
    "version-5": (1, p.ethernet(0x0800, b"\x55" + V4[1:]), 0, 15),
    "version-5-as-6": (1, p.ethernet(0x86DD, b"\x55" + V6[1:]), 0, 15),
    "sll-other": (113, p.sll(0x0001, V4), 0, 16),
    "null-other": (0, p.null(7, V4), 0, 4),
    "raw-other": (101, b"\0" + V4[1:], 0, 1),
    **LINK_FRAMES,
}


def mixed(count: int = 40) -> list[tuple[int, bytes]]:
    """Return Ethernet frames of every kind. The largest is longer than several small blocks."""
    kinds = [frame for link, frame, _, _ in FRAMES.values() if link == 1]
    kinds += [p.ethernet(0x0800, p.ipv4("1.2.3.4", payload=bytes(700))), b"", b"\x02"]
    return [(T + 1_000_000 * i, kinds[i % len(kinds)]) for i in range(count)]


def mixed_pcapng() -> bytes:
    parts = []
    for order, resolution in (("<", 6), (">", 9), ("<", 0x94)):
        parts += [p.section(order), p.interface(1, order, resolution, 5), p.interface(101, order)]
        parts += [p.block(0x0BAD, bytes(64), order), p.enhanced(2**60 + 1, V6, 1, order)]
        parts += [p.enhanced(time // 1000, frame, 0, order) for time, frame in mixed()]
        parts += [p.simple(p.ethernet(0x0800, V4), order), p.obsolete(77, p.ethernet(0x86DD, V6), 0, order)]
        parts += [p.interface(113, order), p.enhanced(5, p.sll(0x0800, V4), 2, order)]
    return b"".join(parts)
