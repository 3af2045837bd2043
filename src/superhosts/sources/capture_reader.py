"""One pass over a capture: moves bytes from a stream to a format, which walks the records (pcap.py, pcapng.py).

Memory is bounded, by `READER_MEMORY`: blocks that are read ahead, the largest record that is accepted (64 MiB) and the
longest window of a decompressor (128 MiB). Usual captures take a tenth of it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from superhosts.core import filetypes
from superhosts.core.pairs import PacketBlock
from superhosts.core.profile import measured
from superhosts.errors import InputError
from superhosts.sources.ahead import MOST_SHARE
from superhosts.sources.base import PLAIN, SourceCounters, Wants
from superhosts.sources.decompressing import MOST_AHEAD
from superhosts.sources.frames import (
    MOST_SUBFRAMES,
    PACKETS,
    POSITION,
    SIMPLE,
    STOP,
    TALLY_SLOTS,
    TIME,
    UNSUPPORTED_LINK,
    WANTS,
    Bytes,
    Columns,
    Tally,
    copied,
    new_columns,
    start_walk,
    take,
    use_sampling,
    wants_of,
    written,
)
from superhosts.sources.inputs import MOST_HEAD
from superhosts.sources.pcap import LARGEST, Pcap
from superhosts.sources.pcapng import Pcapng
from superhosts.sources.pcapng_walk import LARGEST_BLOCK
from superhosts.sources.piece_loop import Loop
from superhosts.sources.streams import Stream
from superhosts.sources.unpacking import LONGEST_WINDOW, MOST_INPUT, MOST_OUTPUT
from superhosts.sources.urls import is_url

BLOCK_BYTES = 4 * 1024 * 1024
BLOCK_PACKETS = 65_536
_MAGIC_BYTES = 4
LARGEST_RECORD = max(LARGEST, LARGEST_BLOCK) + 64  # with its header
_PACKET_BYTES = 48  # of an IPv6 packet with details in a block
BLOCKS_HELD = 8  # of one input: four that are read ahead, those at both ends of that queue, and room for copies
READER_MEMORY = (
    LARGEST_RECORD
    + BLOCK_BYTES
    + LONGEST_WINDOW
    + 2 * (MOST_INPUT + MOST_OUTPUT)
    + MOST_AHEAD
    + MOST_SHARE
    + (BLOCKS_HELD + 2)
    * (BLOCK_PACKETS + 2 * MOST_SUBFRAMES)
    * _PACKET_BYTES  # two: the columns of the walk, of both families
)


class Format(Protocol):
    """A file format of packet records."""

    notes: list[str]  # messages for the user about the packets so far

    def walk(self, block: Bytes, tally: Tally, columns: Columns) -> str | None:
        """Read the whole records from tally[POSITION] on and advance it; return what is wrong there, if anything."""

    def layout(self) -> Any:
        """Return what the walk of a piece needs to know, the same object as long as that is the same; None at first."""

    @property
    def read_piece(self) -> Loop:
        """The compiled loop that reads a piece of a file (piece_loop.py)."""


def format_of(head: bytes) -> Format | None:
    """Return the format of a stream that starts with these bytes."""
    return next((kind() for kind in (Pcap, Pcapng) if kind.recognises(head)), None)


def not_a_capture(head: bytes, name: str, compression: str) -> InputError:
    """Return the error for an input of no format that is known, given its first bytes, decompressed."""
    file = "" if name == "stdin" or is_url(name) else name
    return InputError(filetypes.not_a_capture(head, file, compression), file=name)


class Opens(Protocol):
    """An input as a reader needs it: its name and its bytes."""

    name: str

    def open(self) -> Stream:
        """Return its bytes, decompressed."""


class CaptureReader:
    """One pass over an input: a buffer of bytes, and where in it the next record starts."""

    def __init__(
        self, source: Opens, counters: SourceCounters, block_bytes: int, packets: int, wants: Wants = PLAIN
    ) -> None:
        self._name = source.name
        self._counters = counters
        most_rows = 2 if wants.tunnels == "both" else 1  # of a packet
        self._packets = max(packets // most_rows, 1)
        room = (self._packets + MOST_SUBFRAMES) * most_rows
        self._columns = new_columns(room, room, wants.details)
        self._tally = np.zeros(TALLY_SLOTS, np.int64)
        self._tally[WANTS], self._sampling = wants_of(wants), wants.sampling
        self._block_bytes = max(block_bytes, _MAGIC_BYTES)
        self._buffer = np.empty(self._block_bytes, np.uint8)
        self._filled = 0
        self._offset = 0  # of the buffer's first byte in the stream
        self._simple = False
        self._counted = self._unsupported = 0  # packets, and those of unsupported link types
        self._format: Format | None = None
        self._finished = False
        self._stream = source.open()

    def _start(self) -> None:
        """Find out the format; an empty input has none."""
        if self._format is not None or self._finished:
            return
        while self._filled < _MAGIC_BYTES and self._fill():
            pass
        if not self._filled or (self._filled < _MAGIC_BYTES and self._stream.ended_early):
            self._counters.truncated_files += bool(self._stream.ended_early)
            self._warn(self._stream.ended_early or "it is empty")
            self._finished = True
            return
        head = self._buffer[: min(self._filled, MOST_HEAD)].tobytes()
        self._format = format_of(head)
        if self._format is None:
            raise not_a_capture(head, self._name, self._stream.compression)

    def read(self, limit: int | None = None, until: int | None = None) -> PacketBlock | None:
        """Return the next packets, about `limit` at most; () if none of them has addresses, None at the end.

        Records that start at byte `until` or later are not read; () also if there are no others.
        """
        self._start()
        if self._format is None or self._finished:
            return None
        tally = self._tally
        while until is None or self.place() < until:
            start_walk(tally, min(limit or self._packets, self._packets))
            use_sampling(tally, self._sampling)
            if until is not None:
                tally[STOP] = until - self._offset
            with measured("walk") as work:
                problem = self._format.walk(self._buffer[: self._filled], tally, self._columns)
                work.amount += int(tally[PACKETS])
            while self._format.notes:
                self._warn(self._format.notes.pop(0))
            if tally[PACKETS]:
                return self._take(tally, copied(written(self._columns, tally)))
            if problem:
                raise self._damaged(problem)
            if (until is None or self.place() < until) and not self._fill():
                self._finish()
                return None
        return ()

    def skip(self, place: int, tally: Tally, columns: Columns) -> PacketBlock:
        """Go on at byte `place` and return the packets before it, the rows that another walk has written.

        The caller makes the stream go on at the same byte.
        """
        self._offset, self._filled, self._tally[POSITION] = place, 0, 0
        if tally[PACKETS]:
            self._tally[TIME] = tally[TIME]
        return self._take(tally, columns)

    def place(self) -> int:
        """Return where the next record starts in the stream."""
        return self._offset + int(self._tally[POSITION])

    def format(self) -> Format | None:
        """Return the format, None before the first bytes were read."""
        return self._format

    def last_time(self) -> int:
        """Time of the packet that was read last; after one packet, of the first."""
        return int(self._tally[TIME])

    def position(self) -> int:
        """Bytes of the input read so far."""
        return self._stream.position()

    def close(self) -> None:
        """Close the input."""
        self._stream.close()

    def _fill(self) -> bool:
        """Move what is not read yet to the front and read more behind it; False at the end."""
        start = int(self._tally[POSITION])
        left = self._filled - start
        if left == len(self._buffer):  # one record fills it
            self._move_to(np.empty(self._larger(), np.uint8), left)
        elif len(self._buffer) > self._block_bytes >= 2 * left:  # that was a large record
            self._move_to(np.empty(self._block_bytes, np.uint8), left)
        elif start:
            self._buffer[:left] = self._buffer[start : self._filled]
        self._offset += start
        self._tally[POSITION] = 0
        self._filled = left  # also if reading fails
        self._pass_on_notes(self._offset)
        try:
            got = self._stream.readinto(self._buffer[left:].data)
        except InputError:
            self._pass_on_notes()
            raise
        self._filled += got
        return got > 0

    def _move_to(self, buffer: Bytes, left: int) -> None:
        buffer[:left] = self._buffer[self._filled - left : self._filled]
        self._buffer = buffer

    def _larger(self) -> int:
        """Size of a larger buffer: doubled while it is small, then for the largest record.

        Memory that is never written costs nothing, while a series of growing buffers leaves used gaps.
        """
        doubled = 2 * len(self._buffer)
        return doubled if doubled <= BLOCK_BYTES else self._block_bytes + LARGEST_RECORD

    def _damaged(self, problem: str) -> InputError:
        """Return the error for a problem at the next record. Its place is a byte of the decompressed stream."""
        compression = self._stream.compression
        text = f"{problem} (a byte of the decompressed {compression} data)" if compression else problem
        place = self._offset + int(self._tally[POSITION])
        self._pass_on_notes(place)
        return InputError(text, file=self._name, offset=place)

    def _take(self, tally: Tally, columns: Columns) -> PacketBlock:
        """Count the packets that a walk has found and return those with addresses."""
        self._counted += int(tally[PACKETS])
        self._unsupported += int(tally[UNSUPPORTED_LINK])
        if tally[SIMPLE] and not self._simple:
            self._simple = True
            self._warn("packets without a time (simple packet blocks) get the time of the packet before them")
        return take(columns, tally, self._counters)

    def _finish(self) -> None:
        """Warn if the input ended early; raise if none of its packets can be read."""
        self._finished = True
        self._pass_on_notes()
        place = f"byte {self._offset}" + (" decompressed" if self._stream.compression else "")
        self._counters.truncated_files += bool(self._stream.ended_early or self._filled)
        if self._stream.ended_early:
            self._warn(f"{place}: {self._stream.ended_early}; what came before counts")
        elif self._filled:
            self._warn(f"{place}: the file ends inside a record; what came before counts")
        if self._counted and self._counted == self._unsupported:
            text = f"none of its {self._counted:,} packets can be read: their link types are not supported"
            if self._counted == 1:
                text = "its only packet cannot be read: its link type is not supported"
            raise InputError(text, file=self._name)

    def _pass_on_notes(self, most: int | None = None) -> None:
        """Pass on the stream's notes about its first `most` bytes, so that messages do not depend on the block size."""
        notes = self._stream.notes
        while notes and (most is None or notes[0][0] <= most):
            self._warn(notes.pop(0)[1])

    def _warn(self, text: str) -> None:
        self._counters.warn(f"{self._name}: {text}")
