"""Captured packets: pcap and pcapng, plain or compressed, from files, pipes and stdin.

`open_capture` looks at the content, never at the name. What it guarantees:

- Every packet is counted once: packets = ipv4 + ipv6 + not_ip + cut + unsupported_link.
- The output does not depend on how the bytes arrive. Blocks may be cut anywhere; a record that is not whole yet is
  carried over to the next.
- A capture that ends inside a record is read up to there, with a warning. A capture that is damaged (a length beyond
  all reason) is an `InputError` with the file and the byte offset in the uncompressed stream; the packets before it
  have been handed out by then.
- Interfaces of an unsupported link type are named in a warning, and their packets counted. A capture that has no
  other packets is an `InputError`.
- Memory is bounded for each input, by `MOST_MEMORY`: blocks that are read ahead, the largest record that is believed
  (64 MiB) and the longest window of a decompressor (128 MiB). Usual captures take a tenth of it.
- A live input (a pipe) is handed out as it arrives.

The work is divided so: streams.py gives bytes, a format (pcap.py, pcapng.py) walks the records of a block in compiled
code, frames.py turns a frame into addresses. This module moves bytes from the first to the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from superhosts.errors import InputError
from superhosts.pairs import PacketBatch, PacketBlock
from superhosts.sources.base import Source, SourceCounters
from superhosts.sources.frames import (
    CUT,
    IPV4,
    IPV6,
    LIMIT,
    NOT_IP,
    PACKETS,
    POSITION,
    SIMPLE,
    TALLY_SLOTS,
    TIME,
    UNSUPPORTED_LINK,
    Bytes,
    Columns,
    Tally,
    new_columns,
)
from superhosts.sources.kinds import FileFormat
from superhosts.sources.pcap import LARGEST, Pcap
from superhosts.sources.pcapng import LARGEST_BLOCK, Pcapng
from superhosts.sources.streams import Input, Stopped, Stream
from superhosts.sources.unpacking import LONGEST_WINDOW, MOST_INPUT, MOST_OUTPUT
from superhosts.sources.urls import is_url
from superhosts.units import SECOND

BLOCK_BYTES = 4 * 1024 * 1024
BLOCK_PACKETS = 65_536
_PROBE_BYTES = 64 * 1024
_PROBE_PACKETS = 1000  # looked at to know when a file begins
_YEAR = 365 * 86400 * SECOND
_MAGIC_BYTES = 4
COMPRESSED = (".gz", ".zst", ".xz")
_LARGEST_RECORD = max(LARGEST, LARGEST_BLOCK) + 64  # with its header
_PACKET_BYTES = 40  # of an IPv6 packet in a block
_BLOCKS_HELD = 8  # of one input: four that are read ahead, those at both ends of that queue, and room for copies
MOST_MEMORY = (
    _LARGEST_RECORD
    + BLOCK_BYTES
    + LONGEST_WINDOW
    + 2 * (MOST_INPUT + MOST_OUTPUT)
    + (_BLOCKS_HELD + 2) * BLOCK_PACKETS * _PACKET_BYTES  # two: the columns of the walk, of both families
)


class Format(Protocol):
    """A way to write packets one after the other."""

    notes: list[str]  # what the user should know of the packets so far

    def walk(self, block: Bytes, tally: Tally, columns: Columns) -> str | None:
        """Read the whole records from tally[POSITION] on, and move it; what is wrong there, if something is."""


def _format_of(head: bytes) -> Format | None:
    """Return the format of a stream that starts with these bytes."""
    return next((kind() for kind in (Pcap, Pcapng) if kind.recognises(head)), None)


def _not_a_capture(head: bytes, name: str) -> InputError:
    return InputError(f"not a capture: it starts with {head[:8].hex(' ')}", file=name)


class Opens(Protocol):
    """What a reader needs of an input: its name and its bytes."""

    name: str

    def open(self) -> Stream:
        """Its bytes, decompressed."""


class Reader:
    """One pass over an input: a buffer of bytes, and where in it the next record starts."""

    def __init__(self, source: Opens, counters: SourceCounters, block_bytes: int, packets: int) -> None:
        self._name = source.name
        self._counters = counters
        self._packets = packets
        self._columns = new_columns(packets)
        self._tally = np.zeros(TALLY_SLOTS, np.int64)
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
            self._warn(self._stream.ended_early or "it is empty")
            self._finished = True
            return
        head = self._buffer[: min(self._filled, 8)].tobytes()
        self._format = _format_of(head)
        if self._format is None:
            raise _not_a_capture(head, self._name)

    def read(self, limit: int | None = None) -> PacketBlock | None:
        """The next packets, at most `limit`; () if none of them has addresses, None at the end."""
        self._start()
        if self._format is None or self._finished:
            return None
        tally = self._tally
        while True:
            tally[LIMIT] = min(limit or self._packets, self._packets)
            tally[PACKETS:] = 0
            problem = self._format.walk(self._buffer[: self._filled], tally, self._columns)
            while self._format.notes:
                self._warn(self._format.notes.pop(0))
            if tally[PACKETS]:
                return self._take()
            if problem:
                raise self._damaged(problem)
            if not self._fill():
                self._finish()
                return None

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

        Memory that is not written to is not used, while many sizes one after the other leave gaps that are.
        """
        doubled = 2 * len(self._buffer)
        return doubled if doubled <= BLOCK_BYTES else self._block_bytes + _LARGEST_RECORD

    def _damaged(self, problem: str) -> InputError:
        """Return the error for a problem at the next record. Its place is a byte of the decompressed stream."""
        compression = self._stream.compression
        text = f"{problem} (a byte of the decompressed {compression} data)" if compression else problem
        place = self._offset + int(self._tally[POSITION])
        self._pass_on_notes(place)
        return InputError(text, file=self._name, offset=place)

    def _take(self) -> PacketBlock:
        """What the walk has found, counted and copied: the columns are used again."""
        tally, columns, counters = self._tally, self._columns, self._counters
        counters.packets += int(tally[PACKETS])
        counters.ipv4 += int(tally[IPV4])
        counters.ipv6 += int(tally[IPV6])
        counters.not_ip += int(tally[NOT_IP])
        counters.cut += int(tally[CUT])
        counters.unsupported_link += int(tally[UNSUPPORTED_LINK])
        self._counted += int(tally[PACKETS])
        self._unsupported += int(tally[UNSUPPORTED_LINK])
        if tally[SIMPLE] and not self._simple:
            self._simple = True
            self._warn("packets without a time (simple packet blocks) get the time of the packet before them")
        narrow, wide = int(tally[IPV4]), int(tally[IPV6])
        block: PacketBlock = ()
        if narrow:
            src, dst, time = columns.src4[:narrow], columns.dst4[:narrow], columns.time4[:narrow]
            block += (PacketBatch(4, src.copy(), dst.copy(), time.copy()),)
        if wide:
            src6, dst6, time = columns.src6[:wide], columns.dst6[:wide], columns.time6[:wide]
            block += (PacketBatch(6, src6.copy(), dst6.copy(), time.copy()),)
        return block

    def _finish(self) -> None:
        """Say it if the input ended too early, or held nothing that can be read."""
        self._finished = True
        self._pass_on_notes()
        place = f"byte {self._offset}" + (" decompressed" if self._stream.compression else "")
        if self._stream.ended_early:
            self._warn(f"{place}: {self._stream.ended_early}; what came before counts")
        elif self._filled:
            self._warn(f"{place}: the file ends inside a record; what came before counts")
        if self._counted and self._counted == self._unsupported:
            text = f"none of its {self._counted:,} packets can be read: their link types are not supported"
            raise InputError(text, file=self._name)

    def _pass_on_notes(self, most: int | None = None) -> None:
        """Warn of what the stream has noted of its first `most` bytes: what a user sees depends on no block size."""
        notes = self._stream.notes
        while notes and (most is None or notes[0][0] <= most):
            self._warn(notes.pop(0)[1])

    def _warn(self, text: str) -> None:
        self._counters.warn(f"{self._name}: {text}")


class CaptureSource(Source):
    """A capture as a source of packets."""

    def __init__(self, source: Input, block_bytes: int = BLOCK_BYTES) -> None:
        self.name = source.name
        self.replays = source.reopens
        self.live = source.live
        self.counters = SourceCounters()
        self._input = source
        self._block_bytes = block_bytes
        self._reader: Reader | None = None
        self._first: PacketBlock = ()  # read from a pipe to know its time, not yet handed out
        self._first_time: int | None = None
        self._first_known = False
        self._opening: int | None = None  # time of the very first packet of a file, whatever it is
        self._position = 0
        self._finished: dict[str, tuple[int, int]] = {}
        # Nothing is held open until it is read: there may be thousands of files.
        if source.reopens and (head := source.head()) and _format_of(head) is None:
            raise _not_a_capture(head, self.name)

    def first_time(self) -> int | None:
        """Time at which the input begins; None for an empty input.

        Of a file the first packets are looked at, and a stray time among them, years from the others, does not count.
        """
        if not self._first_known:
            if self._input.reopens:
                probed = SourceCounters()
                reader = Reader(self._input, probed, _PROBE_BYTES, _PROBE_PACKETS)
                try:
                    if reader.read(limit=1) is not None:
                        self._opening = reader.last_time()
                        self._first_time = _begin(self._opening, _probe(reader))
                    else:  # nobody reads on in an input that has no packet
                        for text in probed.warnings:
                            self.counters.warn(text)
                finally:
                    reader.close()
            else:
                reader = self._open()
                block = reader.read(limit=1)
                self._first = block or ()
                self._first_time = None if block is None else reader.last_time()
            self._first_known = True
        return self._first_time

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the packets, once."""
        identity = self.identity()  # now: while it is read its name may come to stand for another capture
        span = Span(self._opening)
        try:
            reader = self._open()
            if self._first:
                first, self._first = self._first, ()
                yield first
            while (block := reader.read()) is not None:
                if block:
                    span.add(block)
                    yield block
            if identity is not None:
                self._finished[identity] = span.ends()
        except Stopped:
            return
        finally:
            self.close()

    def again(self) -> Source:
        """Return the same file, to be read from its beginning."""
        return CaptureSource(self._input, self._block_bytes)

    def identity(self) -> str | None:
        """What a file is known by in later runs; None for an empty one and for what cannot be read again."""
        if self.replays and self._opening is None:
            self._opening = first_packet(self._input)
        return None if self._opening is None else identity_of(self._input.path, self._opening)

    def waits(self) -> bool:
        """Say whether a pipe is empty, and has been for a moment."""
        return self._input.waiting.waits

    def stop(self) -> None:
        """End the reading of a pipe soon."""
        self._input.waiting.stopped = True

    def finished(self) -> dict[str, tuple[int, int]]:
        """Return the file, once it was read to its end."""
        return dict(self._finished)

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""
        reader = self._reader  # bound once: the reading thread may be closing it
        return reader.position() if reader else self._position

    def size(self) -> int | None:
        """Bytes of the whole input, None for a pipe."""
        return self._input.size

    def close(self) -> None:
        """Close the input. Done by itself at the end of `blocks`."""
        if self._reader:
            self._position = self._reader.position()
            self._reader.close()
            self._reader = None

    def _open(self) -> Reader:
        if self._reader is None:
            self._reader = Reader(self._input, self.counters, self._block_bytes, BLOCK_PACKETS)
        return self._reader


class Span:
    """The earliest and the latest time of a file's packets, given that of the first."""

    def __init__(self, time: int | None) -> None:
        self._first = self._last = time or 0

    def add(self, block: PacketBlock) -> None:
        """Take in a block."""
        for batch in block:
            if len(batch):
                self._first = min(self._first, int(batch.time.min()))
                self._last = max(self._last, int(batch.time.max()))

    def ends(self) -> tuple[int, int]:
        """Return the earliest and the latest time."""
        return self._first, self._last


def first_packet(source: Opens) -> int | None:
    """Return the time of the very first packet of a file, None where it has none yet."""
    reader = Reader(source, SourceCounters(), _PROBE_BYTES, 1)
    try:
        return None if reader.read(limit=1) is None else reader.last_time()
    finally:
        reader.close()


def without_compression(name: str) -> str:
    """Return a file's name without the ending that compressing it adds."""
    return next((name.removesuffix(ending) for ending in COMPRESSED if name.endswith(ending)), name)


def identity_of(path: str | Path, first: int) -> str:
    """Return what a capture file is known by, given the time of its first packet.

    A file that was compressed after its rotation is still the same one; another capture under a name that is used
    again, as in a ring of files, is not.
    """
    name = str(path) if is_url(path) else str(Path(path).absolute())
    return f"{without_compression(name)}@{first}"


def _probe(reader: Reader) -> PacketBlock:
    """Return the packets behind the first one; damage there is for the reading that hands out the first."""
    try:
        return reader.read() or ()
    except InputError:
        return ()


def _begin(first: int, block: PacketBlock) -> int:
    """Return the earliest time, of the first frame and those behind it, that is not years from most of them."""
    times: list[int] = [first, *(time for batch in block for time in batch.time.tolist())]
    middle = sorted(times)[len(times) // 2]
    return min(time for time in times if abs(time - middle) < _YEAR)


def open_capture(path: str | Path, *, block_bytes: int = BLOCK_BYTES) -> Source:
    """Open a capture file, a pipe or ("-") stdin; `InputError` if it is not there or not a capture."""
    return CaptureSource(Input(path), block_bytes)


CAPTURES = FileFormat(lambda head: _format_of(head) is not None, CaptureSource)
