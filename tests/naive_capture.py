"""The oracle for captures: reads pcap and pcapng in the simplest way, one record after the other.

It imports nothing of the product and reads the whole file as bytes. It defines this contract:

- Every packet before damage counts, with the addresses of its outermost IP header (or its innermost, or both) and its
  time in nanoseconds. naive_frames.py finds them.
- A record or block with an impossible length, or a block that contradicts itself, is damage. The damage is at the
  first byte of that record or block, and nothing after it counts.
- A file that ends inside a record or block is truncated, not damaged: all packets before count.
- A packet of a link type that is not in `LINKS` is not damage in pcapng, where other interfaces may be readable. In the
  classic format it ends the reading, because all packets have that link type.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import naive_frames
from naive_frames import LINKS, NotIp, Truncated, Unsupported

Row = tuple[int, int, int]  # source, destination, time

LARGEST = 64 << 20  # bytes of the largest plausible record or block
LARGEST_USUAL = 256 << 10  # bytes of the largest plausible classic record, unless the file header allows more
MOST_INTERFACES = 65_536
EARLIEST, LATEST = -(2**63), 2**63 - 1


class Damaged(Exception):  # noqa: N818
    """The data at the current position contradicts the format."""


@dataclass
class Capture:
    """The content of a file, up to its end or to the damage."""

    tunnels: str = "outer"  # whose addresses count: "outer", "inner" or "both"
    ipv4: list[Row] = field(default_factory=list)
    ipv6: list[Row] = field(default_factory=list)
    details4: list[int] = field(default_factory=list)
    details6: list[int] = field(default_factory=list)
    not_ip: int = 0
    truncated: int = 0
    unsupported: dict[int, int] = field(default_factory=dict)  # link type → number of packets
    is_capture: bool = True
    damage: int | None = None  # where the damage begins
    ends_inside: int | None = None  # start of the record in which the file ends
    packets: int = 0  # each once, even if it has two rows

    def add(self, frame: bytes, link: int, time: int) -> None:
        if link not in LINKS:
            self.packets += 1
            self.unsupported[link] = self.unsupported.get(link, 0) + 1
            return
        try:
            parts = naive_frames.packets_of(link, frame)
        except (NotIp, Truncated, Unsupported) as problem:
            self.packets += 1
            self.miss(problem, link)
            return
        for part in parts:
            self.packets += 1
            try:
                header = naive_frames.ip_header(part.link, part.data)
            except (NotIp, Truncated) as problem:
                self.miss(problem, link)
                continue
            inner = naive_frames.innermost(header)
            wanted = {"outer": [header], "inner": [inner], "both": [header, inner]}[self.tunnels]
            if inner is header:
                wanted = [header]
            for each in wanted:
                family, src, dst = naive_frames.addresses(each)
                (self.ipv4 if family == 4 else self.ipv6).append((src, dst, time))
                (self.details4 if family == 4 else self.details6).append(naive_frames.details(each))

    def miss(self, problem: Exception, link: int) -> None:
        if isinstance(problem, Unsupported):
            self.unsupported[link] = self.unsupported.get(link, 0) + 1
        self.not_ip += isinstance(problem, NotIp)
        self.truncated += isinstance(problem, Truncated)


# The classic pcap format


def read_pcap(data: bytes, kind: tuple[int, int, str], found: Capture) -> None:
    header_size, unit, order = kind
    if len(data) < 24:
        found.ends_inside = 0
        return
    snaplen, link = struct.unpack(order + "II", data[16:24])
    link &= 0xFFFF  # The upper bits contain the length of the frame check sequence.
    largest = min(max(snaplen, LARGEST_USUAL), LARGEST)
    at = 24
    while len(data) - at >= header_size:
        seconds, units, size = struct.unpack(order + "III", data[at : at + 12])
        if link not in LINKS or size > largest:
            found.damage = at
            return
        if at + header_size + size > len(data):
            break
        at += header_size
        found.add(data[at : at + size], link, seconds * 10**9 + units * unit)
        at += size
    if at < len(data):
        found.ends_inside = at


def classic_kind(data: bytes) -> tuple[int, int, str] | None:
    """Return the size of record headers, the nanoseconds per unit and the byte order, or None if it is not pcap."""
    kinds = {0xA1B2C3D4: (16, 1000), 0xA1B23C4D: (16, 1), 0xA1B2CD34: (24, 1000)}
    for order, name in ("<", "little"), (">", "big"):
        magic = int.from_bytes(data[:4], name)  # type: ignore[arg-type]
        if magic in kinds:
            return *kinds[magic], order
    return None


# pcapng


@dataclass
class Interface:
    link: int
    snaplen: int
    resolution: int = 6
    offset: int = 0  # seconds

    def time(self, ticks: int) -> int:
        """Return nanoseconds since the epoch, clamped to 64 bits."""
        power = self.resolution & 0x7F
        second = 2**power if self.resolution & 0x80 else 10**power
        return min(max(ticks * 10**9 // second + self.offset * 10**9, EARLIEST), LATEST)


class Pcapng:
    def __init__(self, data: bytes, found: Capture) -> None:
        self.data = data
        self.found = found
        self.order = "<"
        self.interfaces: list[Interface] = []
        self.time = 0  # of the previous packet

    def read(self) -> None:
        at = 0
        while len(self.data) - at >= 12:
            try:
                size = self.block_size(at)
                if at + size > len(self.data):
                    break
                self.block(self.data[at : at + size])
            except Damaged:
                self.found.damage = at
                return
            at += size
        if at < len(self.data):
            self.found.ends_inside = at

    def block_size(self, at: int) -> int:
        is_section = self.data[at : at + 4] == b"\x0a\x0d\x0d\x0a"
        if is_section:
            self.order = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}.get(self.data[at + 8 : at + 12], "")
            if not self.order:
                raise Damaged
        (size,) = self.unpack("I", self.data, at + 4)
        if size < (28 if is_section else 12) or size % 4 or size > LARGEST:
            raise Damaged
        return size

    def unpack(self, form: str, data: bytes, at: int) -> tuple[int, ...]:
        return struct.unpack_from(self.order + form, data, at)

    def block(self, block: bytes) -> None:
        kind, size = self.unpack("II", block, 0)
        if self.unpack("I", block, size - 4) != (size,):
            raise Damaged
        body = block[8:-4]
        if kind == 0x0A0D0D0A:
            self.section(body)
        elif kind == 1:
            self.interface(body)
        elif kind in (2, 6):
            self.timed_packet(body, obsolete=kind == 2)
        elif kind == 3:
            self.simple_packet(body)

    def section(self, body: bytes) -> None:
        if self.unpack("H", body, 4) != (1,):  # an unknown version
            raise Damaged
        self.interfaces = []

    def interface(self, body: bytes) -> None:
        if len(body) < 8 or len(self.interfaces) == MOST_INTERFACES:
            raise Damaged
        link, _, snaplen = self.unpack("HHI", body, 0)
        made = Interface(link, snaplen or LARGEST)
        at = 8
        while len(body) - at >= 4:
            code, length = self.unpack("HH", body, at)
            if code == 0:
                break
            value = body[at + 4 : at + 4 + length]
            if len(value) < length:
                raise Damaged
            if code == 9 and length:
                made.resolution = value[0]
            if code == 14 and length == 8:
                (made.offset,) = self.unpack("q", value, 0)
            at += 4 + length + -length % 4
        self.interfaces.append(made)

    def timed_packet(self, body: bytes, *, obsolete: bool) -> None:
        if len(body) < 20:
            raise Damaged
        which, high, low, captured = self.unpack("IIII", body, 0)
        if obsolete:
            (which,) = self.unpack("H", body, 0)
        if captured > len(body) - 20:
            raise Damaged
        interface = self.declared(which)
        self.time = interface.time(high << 32 | low)
        self.found.add(body[20 : 20 + captured], interface.link, self.time)

    def simple_packet(self, body: bytes) -> None:
        if len(body) < 4:
            raise Damaged
        (original,) = self.unpack("I", body, 0)
        interface = self.declared(0)
        frame = body[4:][: min(original, interface.snaplen)]
        self.found.add(frame, interface.link, self.time)  # A simple packet block has no time.

    def declared(self, which: int) -> Interface:
        if which >= len(self.interfaces):
            raise Damaged
        return self.interfaces[which]


def read(data: bytes, tunnels: str = "outer") -> Capture:
    found = Capture(tunnels)
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        Pcapng(data, found).read()
    elif (kind := classic_kind(data)) is not None:
        read_pcap(data, kind, found)
    else:
        found.is_capture = not data  # an empty file is an empty capture
    return found
