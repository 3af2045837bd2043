"""The newer capture file: a sequence of blocks, in sections that each have their own interfaces and byte order.

The compiled walk reads packet blocks (Enhanced, Simple and the obsolete one), begins sections and
steps over blocks that it does not know. At an interface, and at a section that is not as usual, it hands back to
Python, which is slow there. Most files have few interfaces; where a damaged or hostile one has a million, they are
alike, and a row of the interface table is made once for all that are.

Packets of an interface whose link type cannot be read are counted; the link type is named once, when the first of them
comes. The rest of the file is read.

Times are exact. An interface counts time in units of 10⁻ᵏ or 2⁻ᵏ seconds from an offset, both its own, so a packet's
time is ⌊ticks · numerator / denominator⌋ + offset. For each interface Python's unbounded integers find out once which
ticks give a time inside 64 bits. Ticks outside are clamped to the smallest or largest time; inside, arithmetic
modulo 2⁶⁴ gives the exact answer, even where a step on the way overflows.

Simple packet blocks carry no time; they get that of the packet before them in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.text import counted
from superhosts.core.units import SECOND
from superhosts.jit.cache import compiled, inlined
from superhosts.sources.frames.columns import INTERFACE as BY_INTERFACE
from superhosts.sources.frames.columns import POSITION, SIMPLE, WANTS, Columns, Tally
from superhosts.sources.frames.headers import QUICK_BYTES, is_usual
from superhosts.sources.frames.links import (
    ETHERNET,
    UNSUPPORTED,
    Bytes,
    half,
    is_wrapped,
    link_of,
    little,
    swapped,
    unsupported,
    vlan_of,
)
from superhosts.sources.walk import (
    CHAIN,
    ENDLESS,
    LEAST_CHAIN,
    MORE,
    PACKET,
    SKIP,
    Rows,
    make_lister,
    make_walk,
    piece_loop,
)

LARGEST_BLOCK = 64 * 1024 * 1024
ORDER = 0x1A2B3C4D  # the magic number of a section, in its own byte order

# Block types
SECTION, INTERFACE, OBSOLETE_PACKET, SIMPLE_PACKET, ENHANCED_PACKET = 0x0A0D0D0A, 1, 2, 3, 6

# Why a walk stopped
AT_SECTION, AT_INTERFACE, BAD_LENGTH, BAD_TRAILER, BAD_PACKET, NO_INTERFACE, NO_LINK, NO_TIME = range(1, 9)

# The columns of the interface table
LINK, UNIT, SCALE, OFFSET, LOWEST, HIGHEST, SNAPLEN, TYPE, UNNAMED = range(9)
# How ticks become nanoseconds (the column UNIT): times, divided by, or 2 to the power of minus SCALE seconds
TIMES, DIVIDED, BINARY = range(3)

_EARLIEST, _LATEST = -(2**63), 2**63 - 1
_MOST_TICKS = 2**64 - 1

# The slots of a section: 1 if its byte order is the other one, the number of its interfaces so far, and 1 in a piece of
# a file, whose walk stops at what needs the bytes before it or is needed behind it (sections, packets without a time)
SWAP, DECLARED, ALONE = range(3)

Section = NDArray[np.int64]
Interfaces = NDArray[np.uint64]
_U32 = np.uint64(32)
_SECOND = np.uint64(SECOND)
_ZERO = np.uint64(0)


class Blocks(NamedTuple):
    section: Section
    interfaces: Interfaces


class Clock(NamedTuple):
    unit: np.uint64  # TIMES, DIVIDED or BINARY
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
    ticks = ticks // clock.scale if clock.unit == DIVIDED else _binary(ticks, clock.scale)
    return np.int64(ticks + clock.offset)  # type: ignore[return-value]


@compiled
def nanoseconds(clock: Clock, ticks: np.uint64) -> int:
    """Time in nanoseconds since the epoch, clamped to 64 bits."""
    if clock.unit != TIMES or ticks > clock.highest or ticks < clock.lowest:
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
    if magic != ORDER or version != 1 or length < 28 or length & 3 or length > len(block) - at:
        return 0
    return length if little(block, at + length - 4) == little(block, at + 4) else 0


class Interface(NamedTuple):
    """The state of a walk: the interface of the packet before, and the number of interfaces so far."""

    link: int
    run: int
    shortest: int
    number: int
    declared: int
    swap: int
    alone: int
    clock: Clock


@inlined
def _begin(blocks: Blocks) -> Interface:
    clock = Clock(_ZERO, _ZERO, _ZERO, _ZERO, _ZERO)
    section = blocks.section
    return Interface(UNSUPPORTED, 0, 12, -1, section[DECLARED], section[SWAP], section[ALONE], clock)


@inlined
def _usual(block: Bytes, at: int, blocks: Blocks, state: Interface) -> tuple[bool, int, int, int, int]:
    if at > len(block) - 32:
        return False, 0, 0, 0, 0
    length, captured, clock = little(block, at + 4), little(block, at + 20), state.clock
    if little(block, at) != ENHANCED_PACKET or little(block, at + 8) != state.number:
        return False, 0, 0, 0, 0
    if captured < QUICK_BYTES or captured > length - 32 or length & 3 or length > min(len(block) - at, LARGEST_BLOCK):
        return False, 0, 0, 0, 0
    ticks = np.uint64(little(block, at + 12)) << _U32 | np.uint64(little(block, at + 16))
    if ticks > clock.highest or ticks < clock.lowest or little(block, at + length - 4) != length:
        return False, 0, 0, 0, 0
    start = at + 28
    if not is_usual(block, start):
        return False, 0, 0, 0, 0
    time: Any = np.int64(ticks * clock.scale + clock.offset)
    return True, start, start + captured, at + length, time


@inlined
def _record(
    block: Bytes, at: int, blocks: Blocks, state: Interface, time: int, tally: Tally
) -> tuple[int, int, int, int, int, Interface]:
    swap, alone = state.swap, state.alone
    kind, length = little(block, at), little(block, at + 4)
    if swap:
        kind, length = swapped(kind), swapped(length)
    if kind == SECTION:
        length = 0 if alone else _section_bytes(block, at, swap)
        if not length:  # perhaps of the other byte order
            return AT_SECTION, 0, 0, 0, time, state
        return SKIP, 0, 0, at + length, time, Interface(UNSUPPORTED, 0, 12, -1, 0, swap, alone, state.clock)
    if length < 12 or length & 3 or length > LARGEST_BLOCK:
        return BAD_LENGTH, 0, 0, 0, time, state
    after = at + length
    if after > len(block):
        return MORE, 0, 0, 0, time, state
    if little(block, after - 4) != little(block, at + 4):
        return BAD_TRAILER, 0, 0, 0, time, state
    if kind in (ENHANCED_PACKET, OBSOLETE_PACKET):
        if length < 32:
            return BAD_PACKET, 0, 0, 0, time, state
        number, captured = little(block, at + 8), little(block, at + 20)
        high, low = little(block, at + 12), little(block, at + 16)
        if swap:
            number, captured, high, low = swapped(number), swapped(captured), swapped(high), swapped(low)
        if kind == OBSOLETE_PACKET:  # 16 bits, then a count of drops
            number = number >> 16 if swap else number & 0xFFFF
        start = at + 28
        end = start + captured
    elif kind == SIMPLE_PACKET:
        if alone:
            return NO_TIME, 0, 0, 0, time, state
        if length < 16:
            return BAD_PACKET, 0, 0, 0, time, state
        number = high = low = 0
        start = at + 12
        captured = swapped(little(block, at + 8)) if swap else little(block, at + 8)
        end = min(start + captured, after - 4)
    elif kind == INTERFACE:
        return AT_INTERFACE, 0, 0, 0, time, state
    else:
        return SKIP, 0, 0, after, time, state
    if end > after - 4:
        return BAD_PACKET, 0, 0, 0, time, state
    if number != state.number:  # kept from packet to packet
        if number >= state.declared:
            return NO_INTERFACE, 0, 0, 0, time, state
        row = blocks.interfaces[number]
        if row[UNNAMED]:
            return NO_LINK, 0, 0, 0, time, state
        clock = Clock(row[UNIT], row[SCALE], row[OFFSET], row[LOWEST], row[HIGHEST])
        link: Any = np.int64(row[LINK])
        run = ENDLESS if link == ETHERNET and clock.unit == TIMES and not swap else 0
        state = Interface(link, run, 12, number, state.declared, swap, alone, clock)
    if kind == SIMPLE_PACKET:
        tally[SIMPLE] += 1
        end = min(end, start + int(blocks.interfaces[0, SNAPLEN]))
    else:
        time = nanoseconds(state.clock, np.uint64(high) << _U32 | np.uint64(low))
    return PACKET, start, end, after, time, state


@inlined
def _finish(blocks: Blocks, state: Interface) -> None:
    blocks.section[DECLARED] = state.declared


walk = make_walk(_begin, _usual, _record, _finish, rich=False, name="walk_pcapng")
list_frames = make_lister(_begin, _record, _finish, name="list_pcapng")


@inlined
def _group(block: Bytes, at: int, start: int, end: int, state: Interface, wants: int) -> int:
    return state.number & 0xFFFF if wants & BY_INTERFACE else vlan_of(block, start, end, state.link)


walk_rich = make_walk(_begin, _usual, _record, _finish, group=_group, rich=True, name="walk_pcapng_rich")


@compiled
def guess(block: Bytes, blocks: Blocks, near: int) -> int:
    """Return where the first block in the middle of a section seems to start, -1 if nothing looks like one.

    That is where a chain of blocks begins that all end with their length. `block` starts at a multiple of four in the
    file, as all its blocks do.
    """
    swap, size = blocks.section[SWAP], len(block)
    for first in range(0, size - 11, 4):
        at, links = first, 0
        while size - at >= 12 and links < CHAIN:
            length = swapped(little(block, at + 4)) if swap else little(block, at + 4)
            if length < 12 or length & 3 or length > LARGEST_BLOCK:
                links = 0
                break
            if length > size - at:
                break
            if little(block, at + length - 4) != little(block, at + 4):
                links = 0
                break
            at += length
            links += 1
        if links >= LEAST_CHAIN:
            return first
    return -1


read_piece = piece_loop(guess, walk, "read_pcapng")
read_rich_piece = piece_loop(guess, walk_rich, "read_pcapng_rich")


def clock_of(resolution: int, offset: int) -> tuple[int, int, int, int, int]:
    """The columns UNIT to HIGHEST for an if_tsresol byte and an offset in nanoseconds."""
    power = resolution & 0x7F
    if resolution & 0x80:
        unit, scale, numerator, denominator = BINARY, power, SECOND, 2**power
    elif power <= 9:
        unit, scale, numerator, denominator = TIMES, 10 ** (9 - power), 10 ** (9 - power), 1
    else:
        unit, scale, numerator, denominator = DIVIDED, 10 ** (power - 9), 1, 10 ** (power - 9)
    lowest = -(-(_EARLIEST - offset) * denominator // numerator)
    highest = ((_LATEST - offset + 1) * denominator - 1) // numerator
    if lowest > _MOST_TICKS or highest < 0 or denominator > _MOST_TICKS * numerator:  # the same for all ticks
        only = min(max(offset, _EARLIEST), _LATEST)
        return TIMES, 0, only % 2**64, 0, _MOST_TICKS
    return unit, scale, offset % 2**64, max(lowest, 0), min(highest, _MOST_TICKS)


MOST_INTERFACES = 65_536
MOST_NAMED = 10  # unsupported link types that are named
MOST_KEPT, LONGEST_KEPT = 1000, 1000  # rows of the interface table that are kept, and bytes of their blocks

_SECTION_BYTES = SECTION.to_bytes(4, "big")  # reads the same in both byte orders
_PROBLEMS = {
    BAD_TRAILER: "damaged: the two lengths of a block differ",
    BAD_PACKET: "damaged: a packet is longer than its block",
    NO_INTERFACE: "damaged: a packet of an interface that was not declared",
}


class Pcapng:
    has_interfaces = True

    def __init__(self) -> None:
        self._section = np.zeros(3, np.int64)
        self._table = np.zeros((4, 9), np.uint64)
        self._rows: dict[tuple[bool, bytes], Interfaces] = {}  # by byte order and content of the block
        self._named: set[int] = set()  # link types
        self._layout: Blocks | None = None
        self._wrapped = False  # an interface has frames that only the rich walk reads
        self.notes: list[str] = []

    def layout(self) -> Blocks | None:
        declared = int(self._section[DECLARED])
        interfaces = self._table[:declared]
        known = self._layout
        if (
            known is None
            or known.section[SWAP] != self._section[SWAP]
            or known.section[DECLARED] != declared
            or not np.array_equal(known.interfaces, interfaces)
        ):
            section = self._section.copy()
            section[ALONE] = 1
            self._layout = Blocks(section, interfaces.copy())
        return self._layout

    @staticmethod
    def recognises(head: bytes) -> bool:
        return head[:4] == _SECTION_BYTES

    def read_piece(self, *arguments: Any) -> int:
        _, _, _, _, tally, _ = arguments
        return (read_rich_piece if self._wrapped or tally[WANTS] else read_piece)(*arguments)

    def walk(self, block: Bytes, tally: Tally, columns: Columns | Rows) -> str | None:
        while True:
            chosen: Any = walk_rich if self._wrapped or tally[WANTS] else walk
            if isinstance(columns, np.ndarray):
                chosen = list_frames
            reason = chosen(block, Blocks(self._section, self._table), tally, columns)
            if reason == MORE:
                return None
            at = int(tally[POSITION])
            if reason == NO_LINK:
                self._name_link(block[at : at + 12].tobytes())
                continue
            if reason not in (AT_SECTION, AT_INTERFACE):
                return _PROBLEMS.get(reason) or self._bad_length(block[at : at + 8])
            if reason == AT_SECTION:
                magic = block[at + 8 : at + 12].tobytes()
                number = int.from_bytes(magic, "big")
                if number not in (ORDER, swapped(ORDER)):
                    return f"damaged: a section with byte order {magic.hex(' ')}"
                self._section[SWAP] = number == ORDER
            length = self._number(block[at + 4 : at + 8].tobytes())
            shortest = 28 if reason == AT_SECTION else 20
            if length < shortest or length % 4 or length > LARGEST_BLOCK:
                return self._bad_length(block[at : at + 8])
            if at + length > len(block):
                return None
            body = block[at + 8 : at + length].tobytes()
            if self._number(body[-4:]) != length:
                return _PROBLEMS[BAD_TRAILER]
            if reason == AT_INTERFACE:
                if problem := self._declare(body[:-4]):
                    return problem
            elif (version := self._number(body[4:6])) != 1:
                return f"a section of pcapng version {version}, which is not known"
            else:
                self._section[DECLARED] = 0
            tally[POSITION] = at + length

    @property
    def _is_big(self) -> bool:
        return bool(self._section[SWAP])

    def _number(self, raw: bytes) -> int:
        return int.from_bytes(raw, "big" if self._is_big else "little")

    def _bad_length(self, start: Bytes) -> str:
        return f"damaged: a block of {counted(self._number(start[4:].tobytes()), 'byte')}"

    def _name_link(self, start: bytes) -> None:
        kind, number = self._number(start[:4]), self._number(start[8:12])
        if kind == OBSOLETE_PACKET:
            number = self._number(start[8:10])
        elif kind == SIMPLE_PACKET:
            number = 0
        interface = self._table[number]
        interface[UNNAMED] = 0
        link_type = int(interface[TYPE])
        if link_type not in self._named and len(self._named) < MOST_NAMED:
            self._named.add(link_type)
            self.notes.append(f"interface {number}: {unsupported(link_type)}; its packets are only counted")

    def _declare(self, body: bytes) -> str | None:
        declared = int(self._section[DECLARED])
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
        self._section[DECLARED] = declared + 1
        return None

    def _row(self, body: bytes) -> Interfaces | str:
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
        self._wrapped |= is_wrapped(link)
        clock = clock_of(resolution, seconds * SECOND)
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
