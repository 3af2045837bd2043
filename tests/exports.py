"""Builders of flow exports: datagrams of NetFlow v5, NetFlow v9, IPFIX and sFlow v5, as exporters send them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from ipaddress import ip_address

import numpy as np

from frames import rows_of
from superhosts.core.pairs import PacketBlock
from superhosts.sources.base import SourceCounters, Wants
from superhosts.sources.exports.collector import Batch, Collector, Settings, as_block

NOON = 1_700_000_000  # seconds
SECOND = 10**9
VARIABLE = 65535
Field = tuple[int, int] | tuple[int, int, int]  # element, length and enterprise

# The usual fields of a flow, and a record of them.
USUAL: list[Field] = [(8, 4), (12, 4), (22, 4), (21, 4), (7, 2), (11, 2), (4, 1), (6, 1), (2, 4), (1, 4)]
WIDE: list[Field] = [(27, 16), (28, 16), (152, 8), (153, 8), (7, 2), (11, 2), (4, 1), (6, 1)]


def address(text: str) -> bytes:
    return ip_address(text).packed


def usual(src: str, dst: str, first: int = 1000, last: int = 2000, sport: int = 1024, dport: int = 80) -> bytes:
    """Return a record of the usual fields; times are milliseconds of uptime."""
    return address(src) + address(dst) + struct.pack("!IIHHBBII", first, last, sport, dport, 6, 0x12, 3, 180)


def wide(src: str, dst: str, start: int = NOON * 1000, end: int = NOON * 1000 + 500) -> bytes:
    """Return a record of the fields `WIDE`; times are milliseconds since 1970."""
    return address(src) + address(dst) + struct.pack("!QQHHBB", start, end, 4000, 443, 17, 0)


def version5(
    records: Sequence[bytes],
    *,
    sequence: int = 0,
    uptime: int = 5000,
    seconds: int = NOON,
    engine: int = 0,
    sampling: int = 0,
) -> bytes:
    header = struct.pack("!HHIIIIHH", 5, len(records), uptime, seconds, 0, sequence, engine, sampling)
    return header + b"".join(records)


def record5(
    src: str,
    dst: str,
    *,
    first: int = 1000,
    last: int = 2000,
    ports: tuple[int, int] = (1024, 80),
    protocol: int = 6,
    flags: int = 2,
) -> bytes:
    ends = address(src) + address(dst)
    middle = struct.pack("!IHHIIIIHHBBBB", 0, 1, 2, 3, 180, first, last, *ports, 0, flags, protocol, 0)
    return ends + middle + struct.pack("!HHBBH", 0, 0, 24, 24, 0)


def field(each: Field, *, is_ipfix: bool) -> bytes:
    element, length, *enterprise = each
    if enterprise and is_ipfix:
        return struct.pack("!HHI", element | 0x8000, length, enterprise[0])
    return struct.pack("!HH", element, length)


def a_set(number: int, content: bytes, padding: int = 0) -> bytes:
    return struct.pack("!HH", number, 4 + len(content) + padding) + content + bytes(padding)


def template(number: int, fields: Sequence[Field], *, is_ipfix: bool = False) -> bytes:
    record = struct.pack("!HH", number, len(fields)) + b"".join(field(each, is_ipfix=is_ipfix) for each in fields)
    return a_set(2 if is_ipfix else 0, record)


def options_template(number: int, scope: Sequence[Field], fields: Sequence[Field], *, is_ipfix: bool = False) -> bytes:
    content = b"".join(field(each, is_ipfix=is_ipfix) for each in (*scope, *fields))
    if is_ipfix:
        return a_set(3, struct.pack("!HHH", number, len(scope) + len(fields), len(scope)) + content)
    return a_set(1, struct.pack("!HHH", number, 4 * len(scope), 4 * len(fields)) + content, padding=2)


def data(number: int, records: Sequence[bytes], padding: int = 0) -> bytes:
    return a_set(number, b"".join(records), padding)


def variable(content: bytes, *, long: bool = False) -> bytes:
    """Return a field of varying length with its length before it."""
    is_long = long or len(content) > 254
    return (b"\xff" + struct.pack("!H", len(content)) if is_long else bytes([len(content)])) + content


def version9(*sets: bytes, sequence: int = 0, uptime: int = 5000, seconds: int = NOON, domain: int = 0) -> bytes:
    return struct.pack("!HHIIII", 9, len(sets), uptime, seconds, sequence, domain) + b"".join(sets)


def ipfix(*sets: bytes, sequence: int = 0, seconds: int = NOON, domain: int = 0) -> bytes:
    content = b"".join(sets)
    return struct.pack("!HHIII", 10, 16 + len(content), seconds, sequence, domain) + content


# sFlow


def sflow(*samples: bytes, sequence: int = 0, agent: str = "192.0.2.1", sub_agent: int = 0) -> bytes:
    packed = address(agent)
    header = struct.pack("!II", 5, 1 if len(packed) == 4 else 2) + packed
    return header + struct.pack("!IIII", sub_agent, sequence, 1000, len(samples)) + b"".join(samples)


def tagged(kind: int, content: bytes) -> bytes:
    """Return a sample, or a record of a sample: its kind and length before its content."""
    return struct.pack("!II", kind, len(content)) + content + bytes(-len(content) % 4)


def flow_sample(*records: bytes, rate: int = 100, drops: int = 0) -> bytes:
    return tagged(1, struct.pack("!IIIIIIII", 1, 2, rate, 1000, drops, 3, 4, len(records)) + b"".join(records))


def expanded_sample(*records: bytes, rate: int = 100, drops: int = 0) -> bytes:
    numbers = struct.pack("!IIIIIIIIIII", 1, 0, 2, rate, 1000, drops, 0, 3, 0, 4, len(records))
    return tagged(3, numbers + b"".join(records))


def discarded_sample(*records: bytes, drops: int = 0) -> bytes:
    return tagged(5, struct.pack("!IIIIIIII", 1, 0, 2, drops, 3, 4, 5, len(records)) + b"".join(records))


def raw_header(frame: bytes, protocol: int = 1) -> bytes:
    return tagged(1, struct.pack("!IIII", protocol, len(frame) + 4, 4, len(frame)) + frame)


def sampled(src: str, dst: str, protocol: int = 6, ports: tuple[int, int] = (1024, 80), flags: int = 2) -> bytes:
    ends = address(src) + address(dst)
    numbers = struct.pack("!II", 60, protocol) + ends + struct.pack("!IIII", *ports, flags, 0)
    return tagged(3 if len(ends) == 8 else 4, numbers)


# Reading them


def batch(datagrams: Sequence[bytes], exporter: str | Sequence[str] = "192.0.2.1", received: int = 0) -> Batch:
    sizes = [len(each) for each in datagrams]
    rows = np.zeros((len(sizes), 4), np.int64)
    rows[:, 1] = np.cumsum(sizes)
    rows[:, 0] = rows[:, 1] - sizes
    rows[:, 2] = received
    names = [exporter] * len(sizes) if isinstance(exporter, str) else exporter
    numbers = [_number(name) for name in names]
    peers = np.array([(each >> 64, each & (1 << 64) - 1) for each in numbers], np.uint64).reshape(len(sizes), 2)
    return Batch(as_block(b"".join(datagrams) or b"\0"), rows, peers)


def _number(name: str) -> int:
    found = ip_address(name)
    return int(found) | (0xFFFF << 32 if found.version == 4 else 0)


class Reading:
    """A collector and what it has read: rows of source, destination, time and details."""

    def __init__(self, *, details: bool = False, tunnels: str = "outer", **settings: object) -> None:
        self.counters = SourceCounters()
        wants = Wants(details, tunnels)
        self.collector = Collector(self.counters, Settings(wants=wants, **settings))  # type: ignore[arg-type]
        self.ipv4: list[tuple[int, ...]] = []
        self.ipv6: list[tuple[int, ...]] = []

    def feed(self, *datagrams: bytes, exporter: str | Sequence[str] = "192.0.2.1", received: int = 0) -> Reading:
        for block in self.collector.feed(batch(datagrams, exporter, received)):
            self._add(block)
        self._add(self.collector.take())
        return self

    def _add(self, block: PacketBlock) -> None:
        self.counters.count(block)
        for each in block:
            (self.ipv4 if each.family == 4 else self.ipv6).extend(rows_of(each))

    @property
    def ends(self) -> list[tuple[str, str]]:
        return [(str(ip_address(row[0])), str(ip_address(row[1]))) for row in self.ipv4 + self.ipv6]

    @property
    def times(self) -> list[int]:
        return [row[2] for row in self.ipv4 + self.ipv6]

    @property
    def status(self) -> dict[str, object]:
        return self.collector.status("test")
