"""The newer capture file: a sequence of blocks, in sections that each have their own interfaces and byte order.

The compiled walk reads packet blocks (Enhanced, Simple and the obsolete one), begins sections and steps over blocks
that it does not know. At an interface, and at a section that is not as usual, it hands back to Python, which is slow
there. Most files have few interfaces; where a damaged or hostile one has a million, they are alike, and a row of the
interface table is made once for all that are.

Times are exact. An interface counts time in units of 10⁻ᵏ or 2⁻ᵏ seconds from an offset, both its own, so a packet's
time is ⌊ticks · numerator / denominator⌋ + offset. For each interface Python's unbounded integers find out once which
ticks give a time inside 64 bits. Ticks outside are clamped to the smallest or largest time; inside, arithmetic
modulo 2⁶⁴ gives the exact answer, even where a step on the way overflows.

Simple packet blocks carry no time; they get that of the packet before them in the file.

Packets of an interface whose link type cannot be read are counted; the link type is named once, when the first of them
comes. The rest of the file is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.sources.frames import (
    ETHERNET,
    IPV4,
    IPV6,
    LIMIT,
    PACKETS,
    POSITION,
    QUICK_BYTES,
    SIMPLE,
    TIME,
    UNSUPPORTED,
    Bytes,
    Columns,
    Tally,
    byte,
    half,
    ip_header,
    is_ipv4,
    is_whole,
    link_of,
    little,
    put_ipv4,
    put_ipv6,
    swapped,
    type_end,
    unsupported,
)
from superhosts.units import SECOND

LARGEST_BLOCK = 64 * 1024 * 1024
MOST_INTERFACES = 65_536
MOST_NAMED = 10  # unsupported link types that are named
MOST_KEPT, LONGEST_KEPT = 1000, 1000  # rows of the interface table that are kept, and bytes of their blocks

# Block types
_SECTION, _INTERFACE, _OBSOLETE, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6
_SECTION_BYTES = _SECTION.to_bytes(4, "big")  # reads the same in both byte orders

# Why a walk stopped
_MORE, _AT_SECTION, _AT_INTERFACE, _BAD_LENGTH, _BAD_TRAILER, _BAD_PACKET, _NO_INTERFACE, _NO_LINK = range(8)

_PROBLEMS = {
    _BAD_TRAILER: "damaged: the two lengths of a block differ",
    _BAD_PACKET: "damaged: a packet is longer than its block",
    _NO_INTERFACE: "damaged: a packet of an interface that was not declared",
}

# The columns of the interface table
_LINK, _UNIT, _SCALE, _OFFSET, _LOWEST, _HIGHEST, _SNAPLEN, _TYPE, _UNNAMED = range(9)
# How ticks become nanoseconds (the column _UNIT): times, divided by, or 2 to the power of minus _SCALE seconds
_TIMES, _DIVIDED, _BINARY = range(3)

_EARLIEST, _LATEST = -(2**63), 2**63 - 1
_MOST_TICKS = 2**64 - 1

_ORDER = 0x1A2B3C4D  # the magic number of a section, in its own byte order

# The slots of a section: 1 if its byte order is the other one, and the number of its interfaces so far
_SWAP, _DECLARED = range(2)

Section = NDArray[np.int64]
Interfaces = NDArray[np.uint64]
_U32 = np.uint64(32)
_SECOND = np.uint64(SECOND)
_ZERO = np.uint64(0)


class Clock(NamedTuple):
    """How the ticks of an interface become nanoseconds."""

    unit: np.uint64  # _TIMES, _DIVIDED or _BINARY
    scale: np.uint64
    offset: np.uint64  # nanoseconds, modulo 2⁶⁴
    lowest: np.uint64  # fewer ticks than this are clamped to the earliest time
    highest: np.uint64  # more ticks than this are clamped to the latest time


@compiled
def _binary(ticks: np.uint64, bits: np.uint64) -> np.uint64:
    """⌊ticks · 10⁹ / 2ᵇⁱᵗˢ⌋ modulo 2⁶⁴."""
    seconds, rest = np.uint64(0), ticks
    if bits < np.uint64(64):
        seconds = ticks >> bits
        rest = ticks & ((np.uint64(1) << bits) - np.uint64(1))
    if bits <= _U32:
        return seconds * _SECOND + (rest * _SECOND >> bits)
    low = (rest & np.uint64(0xFFFFFFFF)) * _SECOND  # the product has up to 94 bits: two halves
    high = (rest >> _U32) * _SECOND + (low >> _U32)
    return seconds * _SECOND + (high >> (bits - _U32))


@compiled
def _unusual(clock: Clock, ticks: np.uint64) -> int:
    """The same for a clock that is binary or finer than nanoseconds, and for a time that is out of range."""
    if ticks > clock.highest:
        return _LATEST
    if ticks < clock.lowest:
        return _EARLIEST
    ticks = ticks // clock.scale if clock.unit == _DIVIDED else _binary(ticks, clock.scale)
    return np.int64(ticks + clock.offset)  # type: ignore[return-value]


@compiled
def nanoseconds(clock: Clock, ticks: np.uint64) -> int:
    """Time in nanoseconds since the epoch, clamped to 64 bits."""
    if clock.unit != _TIMES or ticks > clock.highest or ticks < clock.lowest:
        return _unusual(clock, ticks)  # a separate function, so that this one is small enough to be inlined
    return np.int64(ticks * clock.scale + clock.offset)  # type: ignore[return-value]


@compiled
def _section_bytes(block: Bytes, at: int, swap: int) -> int:
    """Length of the section header at `at`, if it is whole, as usual, and of this byte order; else 0."""
    if len(block) - at < 28:
        return 0
    magic, length, version = little(block, at + 8), little(block, at + 4), half(block, at + 12)
    if swap:
        magic, length = swapped(magic), swapped(length)
    else:
        version = version >> 8 | (version & 0xFF) << 8
    if magic != _ORDER or version != 1 or length < 28 or length & 3 or length > len(block) - at:
        return 0
    return length if little(block, at + length - 4) == little(block, at + 4) else 0


@compiled
def _walk(block: Bytes, section: Section, interfaces: Interfaces, tally: Tally, columns: Columns) -> int:
    """Read the whole blocks of `block`, at most as many packets as the tally allows; return why it stopped."""
    src4, dst4, time4, src6, dst6, time6 = columns
    swap, declared = section[_SWAP], section[_DECLARED]
    at, size, reason = tally[POSITION], len(block), _MORE
    time, packets, ipv4, ipv6 = tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6]
    current, link, clock = -1, UNSUPPORTED, Clock(_ZERO, _ZERO, _ZERO, _ZERO, _ZERO)
    while packets < tally[LIMIT] and size - at >= 12:
        kind, length = little(block, at), little(block, at + 4)
        if swap:
            kind, length = swapped(kind), swapped(length)
        if kind == _SECTION:
            length = _section_bytes(block, at, swap)
            if not length:  # perhaps of the other byte order
                reason = _AT_SECTION
                break
            declared, current = 0, -1
            at += length
            continue
        if length < 12 or length & 3 or length > LARGEST_BLOCK:
            reason = _BAD_LENGTH
            break
        after = at + length
        if after > size:
            break
        if little(block, after - 4) != little(block, at + 4):
            reason = _BAD_TRAILER
            break
        if kind in (_ENHANCED, _OBSOLETE):
            if length < 32:
                reason = _BAD_PACKET
                break
            interface, captured = little(block, at + 8), little(block, at + 20)
            high, low = little(block, at + 12), little(block, at + 16)
            if swap:
                interface, captured, high, low = swapped(interface), swapped(captured), swapped(high), swapped(low)
            if kind == _OBSOLETE:  # 16 bits, then a count of drops
                interface = interface >> 16 if swap else interface & 0xFFFF
            start = at + 28
            end = start + captured
        elif kind == _SIMPLE:
            if length < 16:
                reason = _BAD_PACKET
                break
            interface = high = low = 0
            start = at + 12
            captured = swapped(little(block, at + 8)) if swap else little(block, at + 8)
            end = min(start + captured, after - 4)
        elif kind == _INTERFACE:
            reason = _AT_INTERFACE
            break
        else:
            at = after
            continue
        if end > after - 4:
            reason = _BAD_PACKET
            break
        if interface != current:  # kept from packet to packet
            if interface >= declared:
                reason = _NO_INTERFACE
                break
            row = interfaces[interface]
            current, link = interface, int(row[_LINK])
            clock = Clock(row[_UNIT], row[_SCALE], row[_OFFSET], row[_LOWEST], row[_HIGHEST])
            if row[_UNNAMED]:
                reason = _NO_LINK
                break
        if kind == _SIMPLE:
            tally[SIMPLE] += 1
            end = min(end, start + int(interfaces[0, _SNAPLEN]))
        else:
            ticks = np.uint64(high) << _U32 | np.uint64(low)
            time = nanoseconds(clock, ticks)
        header = 0
        if link == ETHERNET and end - start >= QUICK_BYTES:
            header = start + type_end(half(block, start + 12))
            if not is_whole(half(block, header - 2), byte(block, header) >> 4, end - header):
                header = 0
        if not header:
            header = ip_header(block, start, end, link)
        if header < 0:
            tally[-header] += 1
        elif is_ipv4(block, header):
            put_ipv4(block, header, ipv4, src4, dst4)
            time4[np.uint64(ipv4)] = time
            ipv4 += 1
        else:
            put_ipv6(block, header, ipv6, src6, dst6)
            time6[np.uint64(ipv6)] = time
            ipv6 += 1
        packets += 1
        at = after
    tally[POSITION], tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6] = at, time, packets, ipv4, ipv6
    section[_DECLARED] = declared
    return reason


def _clock(resolution: int, offset: int) -> tuple[int, int, int, int, int]:
    """The columns _UNIT to _HIGHEST for an if_tsresol byte and an offset in nanoseconds."""
    power = resolution & 0x7F
    if resolution & 0x80:
        unit, scale, numerator, denominator = _BINARY, power, SECOND, 2**power
    elif power <= 9:
        unit, scale, numerator, denominator = _TIMES, 10 ** (9 - power), 10 ** (9 - power), 1
    else:
        unit, scale, numerator, denominator = _DIVIDED, 10 ** (power - 9), 1, 10 ** (power - 9)
    lowest = -(-(_EARLIEST - offset) * denominator // numerator)
    highest = ((_LATEST - offset + 1) * denominator - 1) // numerator
    if lowest > _MOST_TICKS or highest < 0 or denominator > _MOST_TICKS * numerator:  # the same for all ticks
        only = min(max(offset, _EARLIEST), _LATEST)
        return _TIMES, 0, only % 2**64, 0, _MOST_TICKS
    return unit, scale, offset % 2**64, max(lowest, 0), min(highest, _MOST_TICKS)


class Pcapng:
    """A pcapng capture, from its first byte."""

    def __init__(self) -> None:
        self._section = np.zeros(2, np.int64)
        self._table = np.zeros((4, 9), np.uint64)
        self._rows: dict[tuple[bool, bytes], Interfaces] = {}  # by byte order and content of the block
        self._named: set[int] = set()  # link types
        self.notes: list[str] = []

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Return True if a stream that starts with these four bytes is one."""
        return head[:4] == _SECTION_BYTES

    def walk(self, block: Bytes, tally: Tally, columns: Columns) -> str | None:
        """Read on from tally[POSITION]; return what is wrong there, if anything."""
        while True:
            reason = _walk(block, self._section, self._table, tally, columns)
            if reason == _MORE:
                return None
            at = int(tally[POSITION])
            if reason == _NO_LINK:
                self._name_link(block[at : at + 12].tobytes())
                continue
            if reason not in (_AT_SECTION, _AT_INTERFACE):
                return self._problem(reason, block[at : at + 12].tobytes())
            if reason == _AT_SECTION and (problem := self._set_order(block[at + 8 : at + 12].tobytes())):
                return problem
            length = self._number(block[at + 4 : at + 8].tobytes())
            shortest = 28 if reason == _AT_SECTION else 20
            if length < shortest or length % 4 or length > LARGEST_BLOCK:
                return self._problem(_BAD_LENGTH, block[at : at + 8].tobytes())
            if at + length > len(block):
                return None
            body = block[at + 8 : at + length].tobytes()
            if self._number(body[-4:]) != length:
                return _PROBLEMS[_BAD_TRAILER]
            problem = self._begin(body) if reason == _AT_SECTION else self._declare(body[:-4])
            if problem:
                return problem
            tally[POSITION] = at + length

    @property
    def _is_big(self) -> bool:
        return bool(self._section[_SWAP])

    def _number(self, raw: bytes) -> int:
        return int.from_bytes(raw, "big" if self._is_big else "little")

    def _problem(self, reason: int, start: bytes) -> str:
        """Return the message for what stopped the walk at a block with these first bytes."""
        if reason == _BAD_LENGTH:
            return f"damaged: a block of {self._number(start[4:8])} bytes"
        return _PROBLEMS[reason]

    def _name_link(self, start: bytes) -> None:
        """Record the unsupported link type of an interface, given the start of a packet block; each type once."""
        kind, number = self._number(start[:4]), self._number(start[8:12])
        if kind == _OBSOLETE:
            number = self._number(start[8:10])
        elif kind == _SIMPLE:
            number = 0
        interface = self._table[number]
        interface[_UNNAMED] = 0
        link_type = int(interface[_TYPE])
        if link_type not in self._named and len(self._named) < MOST_NAMED:
            self._named.add(link_type)
            self.notes.append(f"interface {number}: {unsupported(link_type)}; its packets are only counted")

    def _set_order(self, magic: bytes) -> str | None:
        number = int.from_bytes(magic, "big")
        if number not in (_ORDER, swapped(_ORDER)):
            return f"damaged: a section with byte order {magic.hex(' ')}"
        self._section[_SWAP] = number == _ORDER
        return None

    def _begin(self, body: bytes) -> str | None:
        """Begin a section."""
        version = self._number(body[4:6])
        if version != 1:
            return f"a section of pcapng version {version}, which is not known"
        self._section[_DECLARED] = 0
        return None

    def _declare(self, body: bytes) -> str | None:
        """Add an interface to the table."""
        declared = int(self._section[_DECLARED])
        if declared == MOST_INTERFACES:
            return f"more than {MOST_INTERFACES} interfaces in a section"
        key = (self._is_big, body)
        row = self._rows.get(key)
        if row is None:
            made = self._row(body)
            if isinstance(made, str):
                return made
            row = made
            if len(self._rows) < MOST_KEPT and len(body) <= LONGEST_KEPT:
                self._rows[key] = row
        if declared == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        self._table[declared] = row
        self._section[_DECLARED] = declared + 1
        return None

    def _row(self, body: bytes) -> Interfaces | str:
        """Return the row of an interface in the table, or what is wrong with it."""
        link_type, snaplen = self._number(body[:2]), self._number(body[4:8])
        resolution, seconds = 6, 0
        for code, value in self._options(body[8:]):
            if value is None:
                return "damaged: an option of an interface is longer than its block"
            if code == 9 and value:
                resolution = value[0]
            elif code == 14 and len(value) == 8:
                seconds = int.from_bytes(value, "big" if self._is_big else "little", signed=True)
        link = link_of(link_type)
        clock = _clock(resolution, seconds * SECOND)
        return np.array((link, *clock, snaplen or LARGEST_BLOCK, link_type, link == UNSUPPORTED), np.uint64)

    def _options(self, raw: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Yield code and value of each option; None for a value that does not fit."""
        at = 0
        while at + 4 <= len(raw):
            code, length = self._number(raw[at : at + 2]), self._number(raw[at + 2 : at + 4])
            if code == 0:
                return
            value = raw[at + 4 : at + 4 + length]
            yield code, value if len(value) == length else None
            at += 4 + (length + 3) // 4 * 4
