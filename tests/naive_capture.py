"""The oracle for captures: reads pcap and pcapng in the simplest way, one record after the other.

It imports nothing of the product and reads the whole file as bytes. It defines this contract:

- Every packet before damage counts, with the addresses of its outermost IP header and its time in nanoseconds.
- A record or block with an impossible length, or a block that contradicts itself, is damage. The damage is at the
  first byte of that record or block, and nothing after it counts.
- A file that ends inside a record or block is truncated, not damaged: all packets before count.
- A packet of a link type that is not in `LINKS` is not damage in pcapng, where other interfaces may be readable. In the
  classic format it ends the reading, because all packets have that link type.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

Row = tuple[int, int, int]  # source, destination, time

LARGEST = 64 << 20  # bytes of the largest plausible record or block
LARGEST_USUAL = 256 << 10  # bytes of the largest plausible classic record, unless the file header allows more
MOST_INTERFACES = 65_536
EARLIEST, LATEST = -(2**63), 2**63 - 1

ETHERNET, RAW, NULL, SLL, SLL2 = "ethernet", "raw", "null", "sll", "sll2"
LINKS = {0: NULL, 1: ETHERNET, 12: RAW, 14: RAW, 101: RAW, 108: NULL, 113: SLL, 228: RAW, 229: RAW, 276: SLL2}
TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)
LABELS = (0x8847, 0x8848)
FAMILIES = (2, 10, 23, 24, 28, 30)  # AF_INET, and AF_INET6 of Linux, Windows, OpenBSD, FreeBSD and Darwin


class NotIp(Exception):  # noqa: N818
    """A frame that carries no IP header."""


class Truncated(Exception):  # noqa: N818
    """A frame that ends before its addresses are complete."""


class Damaged(Exception):  # noqa: N818
    """The data at the current position contradicts the format."""


@dataclass
class Capture:
    """The content of a file, up to its end or to the damage."""

    ipv4: list[Row] = field(default_factory=list)
    ipv6: list[Row] = field(default_factory=list)
    not_ip: int = 0
    truncated: int = 0
    unsupported: dict[int, int] = field(default_factory=dict)  # link type → number of packets
    is_capture: bool = True
    damage: int | None = None  # where the damage begins
    ends_inside: int | None = None  # start of the record in which the file ends

    @property
    def packets(self) -> int:
        """Number of all packets, including those of unsupported link types."""
        return len(self.ipv4) + len(self.ipv6) + self.not_ip + self.truncated + sum(self.unsupported.values())

    def add(self, frame: bytes, link: int, time: int) -> None:
        if link not in LINKS:
            self.unsupported[link] = self.unsupported.get(link, 0) + 1
            return
        try:
            family, src, dst = addresses(ip_header(frame, LINKS[link]))
        except NotIp:
            self.not_ip += 1
        except Truncated:
            self.truncated += 1
        else:
            (self.ipv4 if family == 4 else self.ipv6).append((src, dst, time))


# One frame


def number(data: bytes, start: int, length: int) -> int:
    """Read `length` bytes in network order."""
    if start + length > len(data):
        raise Truncated
    return int.from_bytes(data[start : start + length], "big")


def addresses(header: bytes) -> tuple[int, int, int]:
    """Return the version and both addresses of an IP header."""
    version = number(header, 0, 1) >> 4
    if version == 4:
        return 4, number(header, 12, 4), number(header, 16, 4)
    if version == 6:
        if len(header) < 40:
            raise Truncated
        return 6, number(header, 8, 16), number(header, 24, 16)
    raise NotIp


def ip_header(frame: bytes, link: str) -> bytes:
    """Return the rest of a frame from its outermost IP header on."""
    if link == RAW:
        return frame
    if link == ETHERNET:
        return behind_type(number(frame, 12, 2), frame[14:])
    if link == NULL:
        family = number(frame, 0, 4)
        swapped = int.from_bytes(frame[:4], "little")
        if (swapped if swapped <= 0xFFFF else family) not in FAMILIES:
            raise NotIp
        return frame[4:]
    size, place = (16, 14) if link == SLL else (20, 0)
    if len(frame) < size:
        raise Truncated
    kind = number(frame, place, 2)
    if kind < 0x0600 and kind != 4:
        raise NotIp
    return behind_type(kind, frame[size:])


def behind_type(kind: int, rest: bytes) -> bytes:
    """Return the rest of a frame from its IP header on, given an EtherType (or a length) and the data after it."""
    while kind in TAGS:
        kind, rest = number(rest, 2, 2), rest[4:]
    if kind in (0x0800, 0x86DD):
        return rest
    if kind in LABELS:
        return behind_labels(rest)
    if kind == 0x8864:
        return behind_ppp(rest[6:])
    if kind < 0x0600:
        return behind_llc(rest)
    raise NotIp


def behind_labels(rest: bytes) -> bytes:
    while not number(rest, 0, 4) & 0x100:  # The last label of a stack has this bit set.
        rest = rest[4:]
    return rest[4:]


def behind_ppp(rest: bytes) -> bytes:
    if number(rest, 0, 2) & 0x100:  # If the first byte is odd, the field has one byte.
        protocol, rest = rest[0], rest[1:]
    else:
        protocol, rest = number(rest, 0, 2), rest[2:]
    if protocol in (0x21, 0x57):
        return rest
    if protocol in (0x281, 0x283):
        return behind_labels(rest)
    raise NotIp


def behind_llc(rest: bytes) -> bytes:
    service = number(rest, 0, 3)
    if service == 0x060603:
        return rest[3:]
    if service != 0xAAAA03:
        raise NotIp
    if len(rest) < 8:
        raise Truncated
    if number(rest, 3, 3) not in (0, 0xF8):
        raise NotIp
    kind = number(rest, 6, 2)
    if kind < 0x0600:
        raise NotIp
    return behind_type(kind, rest[8:])


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
    """The blocks of a file, read in order."""

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


def read(data: bytes) -> Capture:
    """Read an uncompressed capture."""
    found = Capture()
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        Pcapng(data, found).read()
    elif (kind := classic_kind(data)) is not None:
        read_pcap(data, kind, found)
    else:
        found.is_capture = not data  # an empty file is an empty capture
    return found
