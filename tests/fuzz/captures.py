"""Captures against the oracle: the same addresses, times and counters, and the damage at the same byte."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

import naive_capture
import naive_frames
import packets as p
from frames import FRAMES, mixed, mixed_pcapng, rows_of
from fuzz.mutations import NUMBERS, apply, edits
from fuzz.targets import fresh_folder, target
from links import AGGREGATE, radiotap
from places import DATA
from superhosts.errors import InputError
from superhosts.sources.base import PLAIN, Wants
from superhosts.sources.base import TUNNELS as MODES
from superhosts.sources.capture import Cutting, open_capture
from tunnels import ERSPAN2, ERSPAN3, TUNNELS, geneve, gre, gtp, l2tp, udp, vxlan

ONE_THREAD = Cutting(threads=1)
LARGEST_SEED = 16 << 10
_INSIDE = re.compile(r"byte (\d+)(?: decompressed)?: the file ends inside a record")


@dataclass
class Reading:
    ipv4: list[naive_capture.Row] = field(default_factory=list)
    ipv6: list[naive_capture.Row] = field(default_factory=list)
    details4: list[int] = field(default_factory=list)
    details6: list[int] = field(default_factory=list)
    error: InputError | None = field(default=None, compare=False)
    said: str = ""  # by the error
    warnings: list[str] = field(default_factory=list)
    counters: Any = None
    finished: dict[str, tuple[int, int]] = field(default_factory=dict)
    position: int = 0  # at the end; how far a reader looks beyond damage depends on the size of its blocks

    @property
    def ends(self) -> list[tuple[str, str]]:
        """Source and destination of all rows as text, IPv4 first."""
        narrow = [(str(IPv4Address(src)), str(IPv4Address(dst))) for src, dst, _ in self.ipv4]
        return narrow + [(str(IPv6Address(src)), str(IPv6Address(dst))) for src, dst, _ in self.ipv6]

    @property
    def ends_inside(self) -> int | None:
        found = [int(match[1]) for text in self.warnings if (match := _INSIDE.search(text))]
        return found[0] if found else None


def read(path: Path, block_bytes: int, cutting: Cutting = ONE_THREAD, wants: Wants = PLAIN) -> Reading:
    """Read a capture with the product, up to its end or its damage."""
    reading = Reading()
    try:
        source = open_capture(path, block_bytes=block_bytes, cutting=cutting)
        source.want(wants)
        reading.counters = source.counters
        reading.warnings = source.counters.warnings
        for block in source.blocks():
            assert block
            for batch in block:
                assert batch.span == (batch.time.min(), batch.time.max())
                assert (batch.details is not None) == wants.details
                own = (reading.ipv4, reading.details4) if batch.family == 4 else (reading.ipv6, reading.details6)
                for src, dst, time, *details in rows_of(batch):
                    own[0].append((src, dst, time))
                    own[1].extend(details)
        reading.finished, reading.position = source.finished(), source.position()
    except InputError as error:
        reading.error, reading.said = error, str(error)
    return reading


def compare(reading: Reading, oracle: naive_capture.Capture) -> None:
    assert reading.ipv4 == oracle.ipv4
    assert reading.ipv6 == oracle.ipv6
    if reading.details4 or reading.details6:
        assert reading.details4 == oracle.details4
        assert reading.details6 == oracle.details6
    counters = reading.counters
    if not oracle.is_capture:  # refused, or said to end early: the first bytes may be those of a compression
        assert reading.error is not None or any("ends early" in text for text in reading.warnings)
        return
    assert (reading.error.offset if reading.error else None) == oracle.damage, reading.error
    assert reading.ends_inside == oracle.ends_inside
    assert counters.packets == oracle.packets
    assert (counters.ipv4, counters.ipv6) == (len(oracle.ipv4), len(oracle.ipv6))
    assert (counters.not_ip, counters.truncated) == (oracle.not_ip, oracle.truncated)
    without_addresses = counters.not_ip + counters.truncated + counters.unsupported_link
    assert (counters.packets == counters.ipv4 + counters.ipv6 + without_addresses) or oracle.tunnels == "both"


def agreed(path: Path, block_bytes: int = 1 << 20) -> Reading:
    """Read a capture and compare it with the oracle."""
    reading = read(path, block_bytes)
    compare(reading, naive_capture.read(path.read_bytes()))
    return reading


# Captures that are well-formed but for a lie now and then. Each is made from a number of records and a seed: drawing
# every part of it by itself would take ten times as long as reading it, and there would be ten times fewer cases.

_IPV4 = ("10.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "127.0.0.1", "10.0.0.2")
_IPV6 = ("2001:db8::1", "::", "ff02::1", "::ffff:10.0.0.1", "fe80::1")
_TYPES = (0x0806, 0x8100, 0x88A8, 0x9100, 0x9200, 0x8847, 0x8848, 0x8864, 60, 0x05FF, 0x0600)
_LAYERS: list[tuple[int, Callable[[int, bytes], bytes]]] = [
    *((tag, p.vlan) for tag in (0x8100, 0x88A8, 0x9100, 0x9200)),
    (0x8847, lambda _, rest: p.mpls(1, rest)),
    (0x8848, lambda _, rest: p.mpls(3, rest)),
    (0x8864, lambda kind, rest: p.pppoe(b"\0\x57" if kind == 0x86DD else b"\0\x21", rest)),
    (0x8864, lambda _, rest: p.pppoe(b"\x21", rest)),
    (0x8864, lambda _, rest: p.pppoe(b"\x02\x81", p.mpls(2, rest))),
    (60, p.snap),
    (60, lambda _, rest: b"\x06\x06\x03" + rest),
]
_PROTOCOLS = (6, 6, 17, 17, 1, 58, 132, 136, 33, 47, 4, 41, 97, 137, 50, 59, 255)
_TUNNELS: list[tuple[int, bytes]] = [
    (4, b""),
    (41, b""),
    (47, gre(0x0800, b"")),
    (47, gre(0x6558, b"", 0xB000, bytes(12))),
    (47, gre(0x880B, b"\xff\x03\0\x21", 0x3081, bytes(12))),
    (47, gre(0x88BE, ERSPAN2, 0x1000, bytes(4))),
    (47, gre(0x22EB, ERSPAN3, 0x1000, bytes(4))),
    (97, b"\x30\0"),
    (137, p.mpls(2, b"")),
    *((17, udp(port, vxlan(b""))) for port in (4789, 8472)),
    (17, udp(4790, vxlan(b"", 0x0C, 1))),
    (17, udp(6081, geneve(0x6558, b"", bytes(8)))),
    (17, udp(2152, gtp(b"", 0x34, b"\0\0\0\x85\x01\0\0\0"))),
    (17, udp(1701, l2tp(0x4A02, b"\xff\x03\0\x21", bytes(6)))),
    (17, udp(6635, p.mpls(1, b""))),
    (17, udp(3544, b"\0\x01\0\0" + bytes(17))),
]
_LINKS: dict[int, Callable[[int, bytes], bytes]] = {
    1: p.ethernet,
    113: p.sll,
    276: p.sll2,
    0: lambda kind, rest: p.null(30 if kind == 0x86DD else 2, rest),
    108: lambda kind, rest: p.null(24 if kind == 0x86DD else 2, rest, ">"),
}


@cache
def _known(link: int) -> list[bytes]:
    """Return the frames that the tests of captures know, of one link type."""
    found = [frame for number, frame, _, _ in FRAMES.values() if number == link]
    if link == 1:
        found += [frame for frame, _ in TUNNELS.values()]
    return found + {105: [AGGREGATE], 127: [radiotap(0x10) + AGGREGATE + bytes(4)]}.get(link, [])


def _payload(random: Random, depth: int) -> tuple[int, bytes]:
    """Return a protocol and what it carries: perhaps a tunnel, with lies in its header now and then."""
    if depth and random.random() < 0.6:
        family, inner = _packet(random, depth - 1)
        inner = p.ethernet(0x0800 if family == 4 else 0x86DD, inner) if random.random() < 0.3 else inner
        protocol, head = random.choice(_TUNNELS)
        if random.random() < 0.2:
            place = random.randrange(len(head) + 1)
            head = head[:place] + bytes([random.getrandbits(8)]) + head[place + 1 :]
        return protocol, head + inner
    return random.choice(_PROTOCOLS), random.randbytes(random.randrange(24))


def _packet(random: Random, depth: int) -> tuple[int, bytes]:
    protocol, rest = _payload(random, depth)
    if random.random() < 0.5:
        first = random.choice((0x45, 0x45, 0x45, 0x45, 0x4F, 0x40, 0x55))
        fragment = random.choice((0, 0, 0, 0x4000, 0x2000, 1))
        return 4, p.ipv4(random.choice(_IPV4), random.choice(_IPV4), rest, first, protocol, fragment)
    for _ in range(random.choice((0, 0, 1, 2))):
        own = random.choice((0, 43, 44, 51, 60))
        size = random.choice((0, 0, 0, 1, 200))
        protocol, rest = own, bytes([protocol, size, 0, random.choice((0, 0, 1, 8)), *bytes(4)]) + rest
    return 6, p.ipv6(random.choice(_IPV6), random.choice(_IPV6), rest, protocol)


def frame_of(random: Random, link: int) -> bytes:
    if random.random() < 0.2 and (known := _known(link)):
        return random.choice(known)
    kind = 0
    if random.random() < 0.8:
        kind, frame = _packet(random, random.choice((0, 1, 1, 2, 10)))
    else:
        frame = random.choice((p.arp(), b"", random.randbytes(random.randrange(60))))
    kind = {4: 0x0800, 6: 0x86DD}.get(kind, 0) if random.random() < 0.8 else random.choice(_TYPES)
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        own, wrap = random.choice(_LAYERS)
        kind, frame = own, wrap(kind, frame)
    if link in _LINKS:
        frame = _LINKS[link](kind, frame)
    elif known := _known(link):  # the start of a frame that is well-formed, perhaps with a lie
        start = random.choice(known)
        frame = start[: random.randrange(len(start) + 1)] + frame
        if random.random() < 0.3 and frame:
            place = random.randrange(min(len(frame), 40))
            frame = frame[:place] + bytes([random.getrandbits(8)]) + frame[place + 1 :]
    if random.random() < 0.2:
        frame = frame[: random.randrange(len(frame) + 1)]
    return frame


_LINK_TYPES = (1,) * 20 + (105, 127, 0x2400_0001, 0x10001, 147, 195, *sorted(naive_frames.LINKS))
_SNAPLENS = (0, 20, 96, 65535, 262_144, 400_000, 1 << 26, 0xFFFFFFFF)
_RESOLUTIONS = (None, 0, 3, 6, 9, 10, 12, 19, 20, 40, 127, 0x80, 0x8A, 0x94, 0x9E, 0xA0, 0xBF, 0xC0, 0xFF)
_OFFSETS = (None, None, 0, 1, -1, 10**9, 9_223_372_036, -9_223_372_037, 2**62, 2**63 - 1, -(2**63))
_BLOCKS = ("interface", "enhanced", "enhanced", "enhanced", "obsolete", "simple", "other", "section")
_LIE = 0.03


def classic(random: Random, records: int) -> bytes:
    link, order = random.choice(_LINK_TYPES), random.choice("<>")
    magic = random.choice((p.MICRO, p.NANO, p.MODIFIED))
    data = p.pcap_header(link, magic, order, random.choice(_SNAPLENS))
    for _ in range(records):
        time, captured = random.randrange(2**32 * p.SECOND), None
        if random.random() < _LIE:
            captured = random.choice(NUMBERS)
        data += p.record(time, frame_of(random, link & 0xFFFF), magic, order, captured)
    return data


def modern(random: Random, blocks: int) -> bytes:
    order, links = random.choice("<>"), list[int]()
    made = [p.section(order)]
    for _ in range(blocks):
        kind = random.choice(_BLOCKS)
        if kind == "section":
            order, links = random.choice("<>"), []
            made.append(p.section(order, 2 if random.random() < _LIE else 1))
        elif kind == "interface" or not links:
            links.append(random.choice(_LINK_TYPES) & 0xFFFF)
            clock = random.choice(_RESOLUTIONS), random.choice(_OFFSETS)
            made.append(p.interface(links[-1], order, *clock, random.choice(_SNAPLENS)))
        elif kind == "simple":
            original = random.choice((None, *NUMBERS))
            made.append(p.simple(frame_of(random, links[0]), order, original))
        elif kind == "other":
            number = random.choice((4, 5, 10, 0x0BAD, 0x40000BAD, 0x80000001))
            made.append(p.block(number, bytes(4 * random.randrange(20)), order))
        else:
            number = random.randrange(len(links)) + (random.random() < _LIE)
            frame = frame_of(random, links[number] if number < len(links) else 1)
            ticks = random.choice((random.getrandbits(64), random.getrandbits(51), 0, 2**63 - 1, 2**63, 2**64 - 1))
            made.append((p.enhanced if kind == "enhanced" else p.obsolete)(ticks, frame, number, order))
        if random.random() < _LIE:
            length = random.choice(NUMBERS).to_bytes(4, "little" if order == "<" else "big")
            made[-1] = made[-1][:4] + length + made[-1][8:]
    return b"".join(made)


@cache
def seeds() -> list[bytes]:
    """Captures of the tests, and small real ones where they are present."""
    found = [p.pcap(mixed()), p.pcap(mixed(), 1, p.MODIFIED, ">"), p.pcap(mixed(), 1, p.NANO), mixed_pcapng()]
    paths = sorted(DATA.glob("*.pcap*")) if DATA.is_dir() else []
    contents = [path.read_bytes() for path in paths if path.stat().st_size <= LARGEST_SEED]
    return found + [data for data in contents if naive_capture.read(data).is_capture]


_made = st.builds(
    lambda make, records, number: make(Random(number), records),
    st.sampled_from([classic, modern]),
    st.integers(0, 10),
    st.integers(0, 2**32 - 1),
)
_real = st.deferred(lambda: st.sampled_from(seeds()))
captures_drawn = st.builds(apply, _made | _real, st.just([]) | edits)
block_sizes = st.integers(1, 200) | st.sampled_from([1024, 4096, 1 << 22])
wants_drawn = st.tuples(st.booleans(), st.sampled_from(MODES))


@target(st.tuples(captures_drawn, block_sizes, wants_drawn))
def captures(case: tuple[bytes, int, tuple[bool, str]]) -> None:
    data, block_bytes, (details, tunnels) = case
    wants = Wants(details, tunnels)
    with fresh_folder() as folder:
        path = folder / "capture"
        path.write_bytes(data)
        oracle = naive_capture.read(data, tunnels)
        compare(read(path, block_bytes, wants=wants), oracle)
        compare(read(path, 4096, Cutting(block_bytes, 16 * block_bytes, threads=2), wants), oracle)
