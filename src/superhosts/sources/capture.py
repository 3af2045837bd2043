"""Captured packets: pcap and pcapng, plain or compressed, from files, pipes and stdin.

`open_capture` looks at the content, never at the name. What it guarantees:

- Every packet is counted once: packets = ipv4 + ipv6 + not_ip + truncated + unsupported_link.
- The output does not depend on how the bytes arrive. A block of bytes may end anywhere; a record that is not whole yet
  is carried over to the next one.
- A capture that ends inside a record is read up to there, with a warning. A capture that is damaged (a length beyond
  all reason) is an `InputError` with the file and the byte offset in the uncompressed stream; the packets before it
  have been handed out by then.
- Interfaces of an unsupported link type are named in a warning, and their packets counted. A capture that has no
  other packets is an `InputError`.
- Memory is bounded for each input, by `most_memory` (capture_reader.py, pieces.py).
- Packets of a live input (a pipe) are yielded as they arrive.

The work is divided like this: streams.py reads bytes, capture_reader.py passes them to a format (pcap.py, pcapng.py),
which walks the records of a block in compiled code, and frames.py finds the addresses in a frame. A plain file of more
than a few megabytes is cut into pieces, which several threads read (pieces.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from superhosts.core.pairs import PacketBlock
from superhosts.core.text import counted
from superhosts.core.units import SECOND
from superhosts.errors import InputError
from superhosts.sources.base import PLAIN, Source, SourceCounters, Wants
from superhosts.sources.capture_reader import (
    BLOCK_BYTES,
    BLOCK_PACKETS,
    READER_MEMORY,
    CaptureReader,
    Opens,
    format_of,
    not_a_capture,
)
from superhosts.sources.filesource import FileSource
from superhosts.sources.inputs import Input
from superhosts.sources.kinds import FileFormat
from superhosts.sources.pieces import CUTTING, Cutting, PieceReader, open_pieces
from superhosts.sources.urls import is_url

_PROBE_BYTES = 64 * 1024
_PROBE_PACKETS = 1000  # looked at to know when a file begins
_YEAR = 365 * 86400 * SECOND


class CaptureSource(FileSource[CaptureReader | PieceReader]):
    """A capture as a source of packets."""

    def __init__(self, source: Input, block_bytes: int = BLOCK_BYTES, cutting: Cutting = CUTTING) -> None:
        super().__init__(source)
        self._block_bytes = block_bytes
        self._cutting = cutting
        self._first: PacketBlock = ()  # read from a pipe for its time, not yet yielded
        self._wants = PLAIN
        # Nothing is held open until it is read: there may be thousands of files.
        if source.reopens and (head := source.head()) and format_of(head) is None:
            raise not_a_capture(head, self.name, source.compression)
        self.one_thread = self._takes_one_thread()

    def use_threads(self, threads: int) -> None:
        """Let no more than this many threads read pieces of a file."""
        self._cutting = self._cutting._replace(threads=threads)
        self.one_thread = self._takes_one_thread()

    def want(self, wants: Wants) -> None:
        """Take note of what is to be read besides addresses and times."""
        self._wants = wants

    def _look(self) -> int | None:
        """Return the time at which the input begins; None for an empty input.

        The first packets of a file decide; a stray time, years from the others, does not count.
        """
        if not self._input.reopens:
            pipe = self._open()
            block = pipe.read(limit=1)
            self._first = block or ()
            return None if block is None else pipe.last_time()
        probed = SourceCounters()
        wants = replace(self._wants, tunnels="outer")  # If details are wanted, the other walk need not be loaded.
        reader = CaptureReader(self._input, probed, _PROBE_BYTES, _PROBE_PACKETS, wants)
        try:
            if reader.read(limit=1) is not None:
                self._opening = reader.last_time()
                return _begin(self._opening, _probe(reader))
        finally:
            reader.close()
        for text in probed.warnings:  # an input without packets is not read again, so its warnings are passed on here
            self.counters.warn(text)
        self.counters.truncated_files = probed.truncated_files
        return None

    def first_bytes(self) -> bytes:
        """Return the first bytes of a file, decompressed."""
        return self._input.head() if self._input.reopens else b""

    def _read(self) -> Iterator[PacketBlock]:
        if self._reader is None:
            self._reader = open_pieces(self._input, self.counters, self._block_bytes, self._cutting, self._wants)
        reader = self._reader or self._open()
        if self._first:
            first, self._first = self._first, ()
            yield first
        while (block := reader.read()) is not None:
            if block:
                yield block
        self._check_length(reader.position())

    def _check_length(self, position: int) -> None:
        """Warn if a plain file has become shorter since it was opened, even if it now ends with a whole record.

        Standard input may be a file that somebody else has begun to read.
        """
        size = self._input.size
        if self._input.reopens and size is not None and not self._input.compression and position < size:
            self.counters.truncated_files = 1
            read = f"{position:,} of {counted(size, 'byte was', 'bytes were')} there"
            self.counters.warn(f"{self.name}: it has become shorter while it was read: {read}; what came before counts")

    def again(self) -> Source:
        """Return the same file, to be read from its beginning."""
        source = CaptureSource(self._input, self._block_bytes, self._cutting)
        source.want(self._wants)
        return source

    def _find_opening(self) -> None:
        self._opening = first_packet(self._input)

    def _takes_one_thread(self) -> bool:
        source = self._input
        is_small = source.size is not None and not self._cutting.suits(source.size)
        return source.reopens and (is_small or bool(source.compression) or is_url(source.path))

    def _open(self) -> CaptureReader:
        if not isinstance(self._reader, CaptureReader):
            self._reader = CaptureReader(self._input, self.counters, self._block_bytes, BLOCK_PACKETS, self._wants)
        return self._reader


def first_packet(source: Opens) -> int | None:
    """Return the time of the very first packet of a file, None where it has none yet."""
    reader = CaptureReader(source, SourceCounters(), _PROBE_BYTES, 1)
    try:
        return None if reader.read(limit=1) is None else reader.last_time()
    finally:
        reader.close()


def _probe(reader: CaptureReader) -> PacketBlock:
    """Return the packets after the first one. Damage there is reported when the file is read."""
    try:
        return reader.read() or ()
    except InputError:
        return ()


def _begin(first: int, block: PacketBlock) -> int:
    """Return the earliest time, of the first frame and those behind it, that is not years from most of them."""
    times: list[int] = [first, *(time for batch in block for time in batch.time.tolist())]
    middle = sorted(times)[len(times) // 2]
    return min(time for time in times if abs(time - middle) < _YEAR)


def open_capture(path: str | Path, *, block_bytes: int = BLOCK_BYTES, cutting: Cutting = CUTTING) -> Source:
    """Open a capture file, a pipe or ("-") stdin; `InputError` if it is not there or not a capture."""
    return CaptureSource(Input(path), block_bytes, cutting)


def most_memory() -> int:
    """Return the most bytes that an open input takes."""
    return max(READER_MEMORY, CUTTING.memory())


CAPTURES = FileFormat(lambda head: format_of(head) is not None, CaptureSource)
