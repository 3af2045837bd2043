"""The classic capture file: a header of 24 bytes, then records.

Both byte orders, microseconds and nanoseconds, and the 'modified' kind whose record headers have 24 bytes. A
record says how many bytes were captured; that number is the only thing that leads to the next record, so one that
is beyond all reason means that the file is damaged there, and reading on would be guessing.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

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
    link_of,
    little,
    swapped,
    unsupported,
)
from superhosts.sources.piece_loop import CHAIN, LEAST_CHAIN, Walk, piece_loop

HEADER_BYTES = 24
LARGEST_USUAL = 256 * 1024  # the largest frame that libpcap itself captures
LARGEST = 64 * 1024 * 1024  # whatever the header says

_WEEKS = 1 << 21  # seconds by which times of records that follow each other may differ

# Why a walk stopped
_MORE, _TOO_LARGE = range(2)

# magic number: bytes of a record header, nanoseconds in a unit of its second field
_MAGIC = {0xA1B2C3D4: (16, 1000), 0xA1B23C4D: (16, 1), 0xA1B2CD34: (24, 1000)}


class Records(NamedTuple):
    """Layout of the records of a file."""

    header: int  # bytes in front of a frame
    swap: int  # 1: most significant byte first
    unit: int  # nanoseconds in a unit of the second time field
    link: int
    largest: int  # more captured bytes than this are damage


def _make_walk(rich: bool) -> Walk:
    """Return the compiled walk over records.

    The rich one reads whatever is wanted and every kind of link; the other one reads addresses on links with simple
    headers, which takes a third of the time to compile. Both are one text: the compiler knows `rich`.
    """

    def walk(block: Bytes, records: Records, tally: Tally, columns: Columns) -> int:
        """Read the whole records of a block, at most as many as the tally allows; return why it stopped."""
        src4, dst4, time4, src6, dst6, time6, details4, details6 = columns
        at, size, limit, reason = tally[POSITION], len(block), tally[LIMIT], _MORE
        time, packets, ipv4, ipv6 = tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6]
        earliest4, latest4, earliest6, latest6 = tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6]
        header_bytes, unit, largest = records.header, records.unit, records.largest
        last = min(tally[STOP] - 1, size - header_bytes)  # where the last record can start
        wants, sampled = tally[WANTS], sampled_of(tally)
        quick = records.link == ETHERNET and not records.swap
        while packets < limit and at <= last:
            if quick and not wants:  # a run of usual records
                before, most = ipv4, ipv4 + limit - packets
                while ipv4 < most and at <= last:
                    captured = little(block, at + 8)
                    start = at + header_bytes
                    end = start + captured
                    if captured < QUICK_BYTES or captured > largest or end > size or not is_usual(block, start):
                        break
                    time = little(block, at) * SECOND + little(block, at + 4) * unit
                    put_ipv4(block, start + 14, ipv4, src4, dst4)
                    time4[np.uint64(ipv4)] = time
                    earliest4, latest4 = min(earliest4, time), max(latest4, time)
                    ipv4 += 1
                    at = end
                packets += ipv4 - before
                if packets >= limit or at > last:
                    break
            if rich and quick and wants:  # a run of usual records that are no tunnels
                before, most = ipv4, ipv4 + limit - packets
                while ipv4 < most and at <= last:
                    captured = little(block, at + 8)
                    start = at + header_bytes
                    end = start + captured
                    if captured < QUICK_BYTES or captured > largest or end > size or not is_usual(block, start):
                        break
                    time, row = little(block, at) * SECOND + little(block, at + 4) * unit, np.uint64(ipv4)
                    put_ipv4(block, start + 14, ipv4, src4, dst4)
                    details = SKIPPED
                    if not wants & SAMPLED or is_sampled(src4[row], dst4[row], time, sampled):
                        protocol, first, flags, left = peek(block, start + 14, end, 4)
                        details = glance(protocol, first, flags, left, wants)
                        if not details:
                            break
                    time4[row] = time
                    if rich and wants & DETAILS:
                        details4[np.uint64(ipv4)] = details
                    earliest4, latest4 = min(earliest4, time), max(latest4, time)
                    ipv4 += 1
                    at = end
                packets += ipv4 - before
                if packets >= limit or at > last:
                    break
            seconds, units, captured = little(block, at), little(block, at + 4), little(block, at + 8)
            if records.swap:
                seconds, units, captured = swapped(seconds), swapped(units), swapped(captured)
            if captured > largest:
                reason = _TOO_LARGE
                break
            start = at + header_bytes
            end = start + captured
            if end > size:
                break
            time = seconds * SECOND + units * unit
            header = details = second = second_details = following = parts = 0
            if records.link == ETHERNET and end - start >= QUICK_BYTES:
                header = start + type_end(half(block, start + 12))
                if not is_whole(half(block, header - 2), byte(block, header) >> 4, end - header):
                    header = 0
                if rich and header and wants:
                    protocol, first, flags, left = peek(block, header, end, byte(block, header) >> 4)
                    details = glance(protocol, first, flags, left, wants)
                    if not details:
                        header = 0
            part, is_simple = records.link, not wants and not is_wrapped(records.link)
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
            at = end
        tally[POSITION], tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6] = at, time, packets, ipv4, ipv6
        tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6] = earliest4, latest4, earliest6, latest6
        return reason

    walk.__qualname__ = "walk_rich" if rich else "walk"  # names the file of the machine code
    return compiled(walk)


_walk, _walk_rich = _make_walk(False), _make_walk(True)


@compiled
def _guess(block: Bytes, records: Records, near: int) -> int:
    """Return where the first record in the middle of a file seems to start, -1 if nothing looks like one.

    That is where a chain of headers begins whose times are within weeks of `near`.
    """
    swap, header_bytes, expected = records.swap, records.header, near // SECOND
    most = SECOND // records.unit
    last = len(block) - header_bytes
    for first in range(last + 1):
        at, links = first, 0
        while at <= last and links < CHAIN:
            seconds, units, captured = little(block, at), little(block, at + 4), little(block, at + 8)
            if swap:
                seconds, units, captured = swapped(seconds), swapped(units), swapped(captured)
            if captured > records.largest or units >= most or abs(seconds - expected) > _WEEKS:
                links = 0
                break
            at += header_bytes + captured
            links += 1
        if links >= LEAST_CHAIN:
            return first
    return -1


def _is_rich(records: Records, tally: Tally) -> bool:
    """Return True if more is wanted than addresses, or frames have a header that takes more than a look."""
    return bool(tally[WANTS]) or is_wrapped(records.link)


class Pcap:
    """A classic capture, from its first byte."""

    _read_piece, _read_rich_piece = piece_loop(_guess, _walk), piece_loop(_guess, _walk_rich, "read_rich_piece")

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._records: Records | None = None
        self._link_type = 0

    def layout(self) -> Records | None:
        """Return what the walk of a piece needs to know; None before the header was read."""
        return self._records

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Return True if a stream that starts with these four bytes is one."""
        return int.from_bytes(head[:4], "big") in _MAGIC or int.from_bytes(head[:4], "little") in _MAGIC

    def read_piece(self, *arguments: Any) -> int:
        """Read a piece of a file (piece_loop.py)."""
        _, _, records, _, tally, _ = arguments
        return (type(self)._read_rich_piece if _is_rich(records, tally) else type(self)._read_piece)(*arguments)

    def walk(self, block: Bytes, tally: Tally, columns: Columns) -> str | None:
        """Read on from tally[POSITION]; return what is wrong there, if anything."""
        if self._records is None:
            if len(block) < HEADER_BYTES:
                return None
            self._records = self._read_header(block[:HEADER_BYTES].tobytes())
            tally[POSITION] = HEADER_BYTES
        if self._records.link == UNSUPPORTED:
            left = len(block) - int(tally[POSITION])
            return unsupported(self._link_type) if left >= self._records.header else None
        walk = _walk_rich if _is_rich(self._records, tally) else _walk
        if walk(block, self._records, tally, columns) == _MORE:
            return None
        field = int(tally[POSITION]) + 8
        captured = int.from_bytes(block[field : field + 4].tobytes(), "big" if self._records.swap else "little")
        return f"damaged: a record of {captured} captured bytes (more than {self._records.largest})"

    def _read_header(self, header: bytes) -> Records:
        big = int.from_bytes(header[:4], "big") in _MAGIC
        magic, _version, _zone, _accuracy, snaplen, link = struct.unpack(">6I" if big else "<6I", header)
        self._link_type = link & 0xFFFF  # above it: the length of the frame check sequence
        record, unit = _MAGIC[magic]
        return Records(record, int(big), unit, link_of(self._link_type), min(max(snaplen, LARGEST_USUAL), LARGEST))
