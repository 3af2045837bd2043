"""The records of captures of exports, found in Python: there is one for dozens of flows."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from superhosts.sources.frames.links import link_of

_PCAP = {b"\xa1\xb2\xc3\xd4": (1000, 16), b"\xa1\xb2\x3c\x4d": (1, 16), b"\xa1\xb2\xcd\x34": (1000, 24)}
_SECTION, _INTERFACE, _PACKET, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6
_LATEST = 2**62  # nanoseconds, in the year 2116
LARGEST = 1 << 26  # bytes of a record; a longer one is damage

Record = tuple[int, int, int, int, int]  # start and end of a frame, its link (frames.py), its time, the next record


class PcapRecords:
    """The records of a pcap file."""

    def __init__(self, head: bytes) -> None:
        magic = head[:4]
        self._order = ">" if magic in _PCAP else "<"
        self._unit, self._header = _PCAP[magic if self._order == ">" else magic[::-1]]
        (link,) = struct.unpack_from(f"{self._order}I", head, 20)
        self._link = link_of(link & 0xFFFF)
        self.begins = 24

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Return True if bytes begin a pcap file."""
        return len(head) >= 24 and (head[:4] in _PCAP or head[3::-1] in _PCAP)

    def records(self, content: bytes, at: int) -> Iterator[Record]:
        """Yield the records that are whole."""
        read = struct.Struct(f"{self._order}IIII")
        while len(content) - at >= self._header:
            seconds, fraction, length, _ = read.unpack_from(content, at)
            at += self._header
            if length > LARGEST:
                raise ValueError("a record is longer than all reason")
            if at + length > len(content):
                return
            yield at, at + length, self._link, seconds * 10**9 + fraction * self._unit, at + length
            at += length


class PcapngRecords:
    """The records of a pcapng file."""

    def __init__(self, _head: bytes) -> None:
        self.begins = 0
        self._order = "<"
        self._interfaces: list[tuple[int, int, int]] = []  # link, ticks in a second, seconds to add
        self._time = 0

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Return True if bytes begin a pcapng file."""
        return len(head) >= 12 and head[:4] == b"\x0a\x0d\x0d\x0a"

    def records(self, content: bytes, at: int) -> Iterator[Record]:
        """Yield the records of whole blocks; of blocks without a frame, empty ones."""
        while len(content) - at >= 12:
            kind = struct.unpack_from(f"{self._order}I", content, at)[0]
            if kind == _SECTION:
                self._order = "<" if content[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
                self._interfaces = []
            (length,) = struct.unpack_from(f"{self._order}I", content, at + 4)
            if length < 12 or length > LARGEST:
                raise ValueError("a block has an impossible length")
            behind = at + (length + 3 & ~3)
            if behind > len(content):
                return
            yield *self._frame(kind, content, at + 8, at + length - 4), behind
            at = behind

    def _frame(self, kind: int, content: bytes, at: int, end: int) -> tuple[int, int, int, int]:
        """Return start, end, link and time of the frame in a block; nothing if there is none."""
        number = length = ticks = begins = 0
        if kind == _INTERFACE and end - at >= 8:
            self._interfaces.append(self._interface(content, at, end))
        elif kind in (_ENHANCED, _PACKET) and end - at >= 20:
            number, high, low, length, _ = struct.unpack_from(f"{self._order}IIIII", content, at)
            number = number if kind == _ENHANCED else number >> 16 if self._order == ">" else number & 0xFFFF
            ticks, begins = high << 32 | low, at + 20
        elif kind == _SIMPLE and end - at >= 4:
            length, begins = struct.unpack_from(f"{self._order}I", content, at)[0], at + 4
            length = min(length, end - begins)
        if not begins or number >= len(self._interfaces) or begins + length > end:
            return at, at, 0, self._time
        link, unit, offset = self._interfaces[number]
        if kind != _SIMPLE:
            self._time = min(max(ticks * 10**9 // unit + offset * 10**9, 0), _LATEST)
        return begins, begins + length, link, self._time

    def _interface(self, content: bytes, at: int, end: int) -> tuple[int, int, int]:
        link, unit, offset = struct.unpack_from(f"{self._order}H", content, at)[0], 10**6, 0
        at += 8
        while end - at >= 4:
            code, length = struct.unpack_from(f"{self._order}HH", content, at)
            value = content[at + 4 : at + 4 + length]
            if code == 9 and length == 1:  # resolution: a power of ten, or of two
                unit = 1 << min(value[0] & 0x7F, 64) if value[0] & 0x80 else 10 ** min(value[0], 20)
            elif code == 14 and length == 8:
                offset = struct.unpack(f"{self._order}q", value)[0]
            elif code == 0:
                break
            at += 4 + (length + 3 & ~3)
        return link_of(link), unit, offset


CAPTURES = (PcapRecords, PcapngRecords)
