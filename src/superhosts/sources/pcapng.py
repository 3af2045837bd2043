"""The newer capture file: a sequence of blocks, in sections that each have their own interfaces and byte order.

The compiled walk (pcapng_walk.py) reads packet blocks (Enhanced, Simple and the obsolete one), begins sections and
steps over blocks that it does not know. At an interface, and at a section that is not as usual, it hands back to
Python, which is slow there. Most files have few interfaces; where a damaged or hostile one has a million, they are
alike, and a row of the interface table is made once for all that are.

Packets of an interface whose link type cannot be read are counted; the link type is named once, when the first of them
comes. The rest of the file is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from superhosts.core.text import counted
from superhosts.core.units import SECOND
from superhosts.sources.frames.columns import POSITION, WANTS, Columns, Tally
from superhosts.sources.frames.links import UNSUPPORTED, Bytes, is_wrapped, link_of, swapped, unsupported
from superhosts.sources.pcapng_walk import (
    ALONE,
    AT_INTERFACE,
    AT_SECTION,
    BAD_LENGTH,
    BAD_PACKET,
    BAD_TRAILER,
    DECLARED,
    LARGEST_BLOCK,
    MORE,
    NO_INTERFACE,
    NO_LINK,
    OBSOLETE_PACKET,
    ORDER,
    SECTION,
    SIMPLE_PACKET,
    SWAP,
    TYPE,
    UNNAMED,
    Blocks,
    Interfaces,
    clock_of,
    read_piece,
    read_rich_piece,
    walk,
    walk_rich,
)

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
    """A pcapng capture, from its first byte."""

    def __init__(self) -> None:
        self._section = np.zeros(3, np.int64)
        self._table = np.zeros((4, 9), np.uint64)
        self._rows: dict[tuple[bool, bytes], Interfaces] = {}  # by byte order and content of the block
        self._named: set[int] = set()  # link types
        self._layout: Blocks | None = None
        self._wrapped = False  # an interface has frames that only the rich walk reads
        self.notes: list[str] = []

    def layout(self) -> Blocks | None:
        """Return what the walk of a piece needs to know: the same object as long as that is the same."""
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
        """Return True if a stream that starts with these four bytes is one."""
        return head[:4] == _SECTION_BYTES

    def read_piece(self, *arguments: Any) -> int:
        """Read a piece of a file (piece_loop.py)."""
        _, _, _, _, tally, _ = arguments
        return (read_rich_piece if self._wrapped or tally[WANTS] else read_piece)(*arguments)

    def walk(self, block: Bytes, tally: Tally, columns: Columns) -> str | None:
        """Read on from tally[POSITION]; return what is wrong there, if anything."""
        while True:
            chosen = walk_rich if self._wrapped or tally[WANTS] else walk
            reason = chosen(block, Blocks(self._section, self._table), tally, columns)
            if reason == MORE:
                return None
            at = int(tally[POSITION])
            if reason == NO_LINK:
                self._name_link(block[at : at + 12].tobytes())
                continue
            if reason not in (AT_SECTION, AT_INTERFACE):
                return self._problem(reason, block[at : at + 12].tobytes())
            if reason == AT_SECTION and (problem := self._set_order(block[at + 8 : at + 12].tobytes())):
                return problem
            length = self._number(block[at + 4 : at + 8].tobytes())
            shortest = 28 if reason == AT_SECTION else 20
            if length < shortest or length % 4 or length > LARGEST_BLOCK:
                return self._problem(BAD_LENGTH, block[at : at + 8].tobytes())
            if at + length > len(block):
                return None
            body = block[at + 8 : at + length].tobytes()
            if self._number(body[-4:]) != length:
                return _PROBLEMS[BAD_TRAILER]
            problem = self._begin(body) if reason == AT_SECTION else self._declare(body[:-4])
            if problem:
                return problem
            tally[POSITION] = at + length

    @property
    def _is_big(self) -> bool:
        return bool(self._section[SWAP])

    def _number(self, raw: bytes) -> int:
        return int.from_bytes(raw, "big" if self._is_big else "little")

    def _problem(self, reason: int, start: bytes) -> str:
        """Return the message for what stopped the walk at a block with these first bytes."""
        if reason == BAD_LENGTH:
            return f"damaged: a block of {counted(self._number(start[4:8]), 'byte')}"
        return _PROBLEMS[reason]

    def _name_link(self, start: bytes) -> None:
        """Record the unsupported link type of an interface, given the start of a packet block; each type once."""
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

    def _set_order(self, magic: bytes) -> str | None:
        number = int.from_bytes(magic, "big")
        if number not in (ORDER, swapped(ORDER)):
            return f"damaged: a section with byte order {magic.hex(' ')}"
        self._section[SWAP] = number == ORDER
        return None

    def _begin(self, body: bytes) -> str | None:
        """Begin a section."""
        version = self._number(body[4:6])
        if version != 1:
            return f"a section of pcapng version {version}, which is not known"
        self._section[DECLARED] = 0
        return None

    def _declare(self, body: bytes) -> str | None:
        """Add an interface to the table."""
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
