"""The classic capture file: a header of 24 bytes, then records.

Both byte orders, microseconds and nanoseconds, and the 'modified' kind whose record headers have 24 bytes. A
record says how many bytes were captured; that number is the only thing that leads to the next record, so one that
is beyond all reason means that the file is damaged there, and reading on would be guessing.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from superhosts.core.units import SECOND
from superhosts.jit.cache import compiled, inlined
from superhosts.sources.frames.columns import POSITION, WANTS, Columns, Tally
from superhosts.sources.frames.headers import QUICK_BYTES, is_usual
from superhosts.sources.frames.links import (
    ETHERNET,
    UNSUPPORTED,
    Bytes,
    is_wrapped,
    link_of,
    little,
    swapped,
    unsupported,
)
from superhosts.sources.walk import (
    CHAIN,
    ENDLESS,
    LEAST_CHAIN,
    MORE,
    PACKET,
    Rows,
    State,
    make_lister,
    make_walk,
    piece_loop,
)

HEADER_BYTES = 24
LARGEST_USUAL = 256 * 1024  # the largest frame that libpcap itself captures
LARGEST = 64 * 1024 * 1024  # whatever the header says

_WEEKS = 1 << 21  # seconds by which times of records that follow each other may differ

_TOO_LARGE = 1  # why a walk stopped

# magic number: bytes of a record header, nanoseconds in a unit of its second field
_MAGIC = {0xA1B2C3D4: (16, 1000), 0xA1B23C4D: (16, 1), 0xA1B2CD34: (24, 1000)}


class Records(NamedTuple):
    header: int  # bytes in front of a frame
    swap: int  # 1: most significant byte first
    unit: int  # nanoseconds in a unit of the second time field
    link: int
    largest: int  # more captured bytes than this are damage


@inlined
def _begin(records: Records) -> State:
    is_quick = records.link == ETHERNET and not records.swap
    return State(records.link, ENDLESS if is_quick else 0, records.header)


@inlined
def _usual(block: Bytes, at: int, records: Records, state: State) -> tuple[bool, int, int, int, int]:
    captured = little(block, at + 8)
    start = at + records.header
    end = start + captured
    if captured < QUICK_BYTES or captured > records.largest or end > len(block) or not is_usual(block, start):
        return False, 0, 0, 0, 0
    return True, start, end, end, little(block, at) * SECOND + little(block, at + 4) * records.unit


@inlined
def _record(
    block: Bytes, at: int, records: Records, state: State, time: int, tally: Tally
) -> tuple[int, int, int, int, int, State]:
    seconds, units, captured = little(block, at), little(block, at + 4), little(block, at + 8)
    if records.swap:
        seconds, units, captured = swapped(seconds), swapped(units), swapped(captured)
    start = at + records.header
    end = start + captured
    if captured > records.largest:
        return _TOO_LARGE, 0, 0, 0, time, state
    if end > len(block):
        return MORE, 0, 0, 0, time, state
    return PACKET, start, end, end, seconds * SECOND + units * records.unit, state


_walk = make_walk(_begin, _usual, _record, rich=False, name="walk_pcap")
_list = make_lister(_begin, _record, name="list_pcap")
_walk_rich = make_walk(_begin, _usual, _record, rich=True, name="walk_pcap_rich")


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


_read_piece = piece_loop(_guess, _walk, "read_pcap")
_read_rich_piece = piece_loop(_guess, _walk_rich, "read_pcap_rich")


def _is_rich(records: Records, tally: Tally) -> bool:
    """Return True if more is wanted than addresses, or frames have a header that takes more than a look."""
    return bool(tally[WANTS]) or is_wrapped(records.link)


class Pcap:
    has_interfaces = False

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._records: Records | None = None
        self._link_type = 0

    def layout(self) -> Records | None:
        return self._records

    @staticmethod
    def recognises(head: bytes) -> bool:
        return int.from_bytes(head[:4], "big") in _MAGIC or int.from_bytes(head[:4], "little") in _MAGIC

    def read_piece(self, *arguments: Any) -> int:
        _, _, records, _, tally, _ = arguments
        return (_read_rich_piece if _is_rich(records, tally) else _read_piece)(*arguments)

    def walk(self, block: Bytes, tally: Tally, columns: Columns | Rows) -> str | None:
        """Read the records of a block, or list their frames in rows; return what is wrong with the next one."""
        if self._records is None:
            if len(block) < HEADER_BYTES:
                return None
            self._records = self._read_header(block[:HEADER_BYTES].tobytes())
            tally[POSITION] = HEADER_BYTES
        if self._records.link == UNSUPPORTED:
            left = len(block) - int(tally[POSITION])
            return unsupported(self._link_type) if left >= self._records.header else None
        walk: Any = _walk_rich if _is_rich(self._records, tally) else _walk
        if isinstance(columns, np.ndarray):
            walk = _list
        if walk(block, self._records, tally, columns) == MORE:
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
