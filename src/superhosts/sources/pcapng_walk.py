"""The compiled part of pcapng.py: the walk over blocks, and the clocks of interfaces.

Times are exact. An interface counts time in units of 10⁻ᵏ or 2⁻ᵏ seconds from an offset, both its own, so a packet's
time is ⌊ticks · numerator / denominator⌋ + offset. For each interface Python's unbounded integers find out once which
ticks give a time inside 64 bits. Ticks outside are clamped to the smallest or largest time; inside, arithmetic
modulo 2⁶⁴ gives the exact answer, even where a step on the way overflows.

Simple packet blocks carry no time; they get that of the packet before them in the file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import SKIPPED
from superhosts.core.units import SECOND
from superhosts.jit.cache import compiled
from superhosts.sources.frames.columns import (
    DETAILS,
    EARLIEST4,
    EARLIEST6,
    IPV4,
    IPV6,
    LATEST4,
    LATEST6,
    LIMIT,
    PACKETS,
    POSITION,
    SAMPLED,
    SIMPLE,
    STOP,
    TIME,
    WANTS,
    Columns,
    Tally,
    is_sampled,
    sampled_of,
)
from superhosts.sources.frames.headers import (
    QUICK_BYTES,
    find_headers,
    glance,
    is_ipv4,
    is_usual,
    is_whole,
    peek,
    put_ipv4,
    put_ipv6,
    type_end,
)
from superhosts.sources.frames.links import (
    ETHERNET,
    MOST_SUBFRAMES,
    UNSUPPORTED,
    Bytes,
    byte,
    half,
    ip_header,
    is_wrapped,
    little,
    swapped,
)
from superhosts.sources.piece_loop import CHAIN, LEAST_CHAIN, Walk, piece_loop

LARGEST_BLOCK = 64 * 1024 * 1024
ORDER = 0x1A2B3C4D  # the magic number of a section, in its own byte order

# Block types
SECTION, INTERFACE, OBSOLETE_PACKET, SIMPLE_PACKET, ENHANCED_PACKET = 0x0A0D0D0A, 1, 2, 3, 6

# Why a walk stopped
MORE, AT_SECTION, AT_INTERFACE, BAD_LENGTH, BAD_TRAILER, BAD_PACKET, NO_INTERFACE, NO_LINK, NO_TIME = range(9)

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
    """What the blocks of a section mean: its byte order, and its interfaces."""

    section: Section
    interfaces: Interfaces


class Clock(NamedTuple):
    """How the ticks of an interface become nanoseconds."""

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


def _make_walk(rich: bool) -> Walk:
    """Return the compiled walk over blocks.

    The rich one reads whatever is wanted and every kind of link; the other one reads addresses on links with simple
    headers, which takes a third of the time to compile. Both are one text: the compiler knows `rich`.
    """

    def walk(block: Bytes, blocks: Blocks, tally: Tally, columns: Columns) -> int:
        """Read the whole blocks of `block`, at most as many packets as the tally allows; return why it stopped."""
        src4, dst4, time4, src6, dst6, time6, details4, details6 = columns
        section, interfaces = blocks
        swap, declared, alone = section[SWAP], section[DECLARED], section[ALONE]
        at, size, limit, reason = tally[POSITION], len(block), tally[LIMIT], MORE
        time, packets, ipv4, ipv6 = tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6]
        earliest4, latest4, earliest6, latest6 = tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6]
        last = min(tally[STOP] - 1, size - 12)  # where the last block can start
        wants, sampled = tally[WANTS], sampled_of(tally)
        current, link, clock = -1, UNSUPPORTED, Clock(_ZERO, _ZERO, _ZERO, _ZERO, _ZERO)
        while packets < limit and at <= last:
            if link == ETHERNET and clock.unit == TIMES and not swap and not wants:  # a run of usual packets
                before, most = ipv4, ipv4 + limit - packets
                while ipv4 < most and at <= min(last, size - 32):
                    length, captured = little(block, at + 4), little(block, at + 20)
                    if little(block, at) != ENHANCED_PACKET or little(block, at + 8) != current:
                        break
                    if (
                        captured < QUICK_BYTES
                        or captured > length - 32
                        or length & 3
                        or length > min(size - at, LARGEST_BLOCK)
                    ):
                        break
                    ticks = np.uint64(little(block, at + 12)) << _U32 | np.uint64(little(block, at + 16))
                    if ticks > clock.highest or ticks < clock.lowest or little(block, at + length - 4) != length:
                        break
                    if not is_usual(block, at + 28):
                        break
                    time = np.int64(ticks * clock.scale + clock.offset)
                    put_ipv4(block, at + 42, ipv4, src4, dst4)
                    time4[np.uint64(ipv4)] = time
                    earliest4, latest4 = min(earliest4, time), max(latest4, time)
                    ipv4 += 1
                    at += length
                packets += ipv4 - before
                if packets >= limit or at > last:
                    break
            if rich and (
                link == ETHERNET and clock.unit == TIMES and not swap and wants
            ):  # a run of usual packets that are no tunnels
                before, most = ipv4, ipv4 + limit - packets
                while ipv4 < most and at <= min(last, size - 32):
                    length, captured = little(block, at + 4), little(block, at + 20)
                    if little(block, at) != ENHANCED_PACKET or little(block, at + 8) != current:
                        break
                    if (
                        captured < QUICK_BYTES
                        or captured > length - 32
                        or length & 3
                        or length > min(size - at, LARGEST_BLOCK)
                    ):
                        break
                    ticks = np.uint64(little(block, at + 12)) << _U32 | np.uint64(little(block, at + 16))
                    if ticks > clock.highest or ticks < clock.lowest or little(block, at + length - 4) != length:
                        break
                    if not is_usual(block, at + 28):
                        break
                    time, row = np.int64(ticks * clock.scale + clock.offset), np.uint64(ipv4)
                    put_ipv4(block, at + 42, ipv4, src4, dst4)
                    details = SKIPPED
                    if not wants & SAMPLED or is_sampled(src4[row], dst4[row], time, sampled):
                        protocol, first, flags, left = peek(block, at + 42, at + 28 + captured, 4)
                        details = glance(protocol, first, flags, left, wants)
                        if not details:
                            break
                    time4[row] = time
                    if rich and wants & DETAILS:
                        details4[np.uint64(ipv4)] = details
                    earliest4, latest4 = min(earliest4, time), max(latest4, time)
                    ipv4 += 1
                    at += length
                packets += ipv4 - before
                if packets >= limit or at > last:
                    break
            kind, length = little(block, at), little(block, at + 4)
            if swap:
                kind, length = swapped(kind), swapped(length)
            if kind == SECTION:
                length = 0 if alone else _section_bytes(block, at, swap)
                if not length:  # perhaps of the other byte order
                    reason = AT_SECTION
                    break
                declared, current = 0, -1
                at += length
                continue
            if length < 12 or length & 3 or length > LARGEST_BLOCK:
                reason = BAD_LENGTH
                break
            after = at + length
            if after > size:
                break
            if little(block, after - 4) != little(block, at + 4):
                reason = BAD_TRAILER
                break
            if kind in (ENHANCED_PACKET, OBSOLETE_PACKET):
                if length < 32:
                    reason = BAD_PACKET
                    break
                interface, captured = little(block, at + 8), little(block, at + 20)
                high, low = little(block, at + 12), little(block, at + 16)
                if swap:
                    interface, captured, high, low = swapped(interface), swapped(captured), swapped(high), swapped(low)
                if kind == OBSOLETE_PACKET:  # 16 bits, then a count of drops
                    interface = interface >> 16 if swap else interface & 0xFFFF
                start = at + 28
                end = start + captured
            elif kind == SIMPLE_PACKET:
                if alone:
                    reason = NO_TIME
                    break
                if length < 16:
                    reason = BAD_PACKET
                    break
                interface = high = low = 0
                start = at + 12
                captured = swapped(little(block, at + 8)) if swap else little(block, at + 8)
                end = min(start + captured, after - 4)
            elif kind == INTERFACE:
                reason = AT_INTERFACE
                break
            else:
                at = after
                continue
            if end > after - 4:
                reason = BAD_PACKET
                break
            if interface != current:  # kept from packet to packet
                if interface >= declared:
                    reason = NO_INTERFACE
                    break
                row = interfaces[interface]
                current, link = interface, np.int64(row[LINK])  # type: ignore[assignment]
                clock = Clock(row[UNIT], row[SCALE], row[OFFSET], row[LOWEST], row[HIGHEST])
                if row[UNNAMED]:
                    reason = NO_LINK
                    break
            if kind == SIMPLE_PACKET:
                tally[SIMPLE] += 1
                end = min(end, start + int(interfaces[0, SNAPLEN]))
            else:
                ticks = np.uint64(high) << _U32 | np.uint64(low)
                time = nanoseconds(clock, ticks)
            header = details = second = second_details = following = parts = 0
            if link == ETHERNET and end - start >= QUICK_BYTES:
                header = start + type_end(half(block, start + 12))
                if not is_whole(half(block, header - 2), byte(block, header) >> 4, end - header):
                    header = 0
                if rich and header and wants:
                    protocol, first, flags, left = peek(block, header, end, byte(block, header) >> 4)
                    details = glance(protocol, first, flags, left, wants)
                    if not details:
                        header = 0
            part, is_simple = link, not wants and not is_wrapped(link)
            while True:  # once for each packet of the frame
                if not header:
                    if rich:
                        if is_simple:
                            header = ip_header(block, start, end, part)
                        else:
                            found = find_headers(block, start, end, part, wants)
                            header, details, second, second_details, following, part = found
                    else:
                        header = ip_header(block, start, end, part)
                if header < 0:
                    tally[-header] += 1
                    header = 0
                while header:
                    if is_ipv4(block, header):
                        put_ipv4(block, header, ipv4, src4, dst4)
                        time4[np.uint64(ipv4)] = time
                        if rich and wants & DETAILS:
                            details4[np.uint64(ipv4)] = details
                        earliest4, latest4 = min(earliest4, time), max(latest4, time)
                        ipv4 += 1
                    else:
                        put_ipv6(block, header, ipv6, src6, dst6)
                        time6[np.uint64(ipv6)] = time
                        if rich and wants & DETAILS:
                            details6[np.uint64(ipv6)] = details
                        earliest6, latest6 = min(earliest6, time), max(latest6, time)
                        ipv6 += 1
                    header, details, second = second, second_details, 0
                packets += 1
                parts += 1
                if not following or parts == MOST_SUBFRAMES:
                    break
                start = following
            at = after
        tally[POSITION], tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6] = at, time, packets, ipv4, ipv6
        tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6] = earliest4, latest4, earliest6, latest6
        section[DECLARED] = declared
        return reason

    walk.__qualname__ = "walk_rich" if rich else "walk"  # names the file of the machine code
    return compiled(walk)


walk, walk_rich = _make_walk(False), _make_walk(True)


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


read_piece, read_rich_piece = piece_loop(guess, walk), piece_loop(guess, walk_rich, "read_rich_piece")


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
