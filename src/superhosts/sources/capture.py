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
from pathlib import Path

from superhosts.errors import InputError
from superhosts.pairs import PacketBlock
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
from superhosts.sources.inputs import Input
from superhosts.sources.kinds import FileFormat
from superhosts.sources.pieces import CUTTING, Cutting, PieceReader, open_pieces
from superhosts.sources.streams import Stopped
from superhosts.sources.urls import is_url
from superhosts.text import counted
from superhosts.units import SECOND

COMPRESSED = (".gz", ".zst", ".xz")
_PROBE_BYTES = 64 * 1024
_PROBE_PACKETS = 1000  # looked at to know when a file begins
_YEAR = 365 * 86400 * SECOND


class CaptureSource(Source):
    """A capture as a source of packets."""

    def __init__(self, source: Input, block_bytes: int = BLOCK_BYTES, cutting: Cutting = CUTTING) -> None:
        self.name = source.name
        self.replays = source.reopens
        self.live = source.live
        self.counters = SourceCounters()
        self._input = source
        self._block_bytes = block_bytes
        self._cutting = cutting
        self._reader: CaptureReader | PieceReader | None = None
        self._first: PacketBlock = ()  # read from a pipe for its time, not yet yielded
        self._first_time: int | None = None
        self._first_known = False
        self._opening: int | None = None  # time of the very first packet of a file, stray or not
        self._position = 0
        self._finished: dict[str, tuple[int, int]] = {}
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

    def first_time(self) -> int | None:
        """Return the time at which the input begins; None for an empty input.

        The first packets of a file decide; a stray time, years from the others, does not count.
        """
        if not self._first_known:
            if self._input.reopens:
                probed = SourceCounters()
                reader = CaptureReader(self._input, probed, _PROBE_BYTES, _PROBE_PACKETS)
                try:
                    if reader.read(limit=1) is not None:
                        self._opening = reader.last_time()
                        self._first_time = _begin(self._opening, _probe(reader))
                    else:  # an input without packets is not read again, so its warnings are passed on here
                        for text in probed.warnings:
                            self.counters.warn(text)
                        self.counters.truncated_files = probed.truncated_files
                finally:
                    reader.close()
            else:
                reader = self._open()
                block = reader.read(limit=1)
                self._first = block or ()
                self._first_time = None if block is None else reader.last_time()
            self._first_known = True
        return self._first_time

    def first_bytes(self) -> bytes:
        """Return the first bytes of a file, decompressed."""
        return self._input.head() if self._input.reopens else b""

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the packets, once."""
        identity = self.identity()  # before reading: meanwhile another capture may take its name
        span = Span(self._opening)
        try:
            if self._reader is None:
                self._reader = open_pieces(self._input, self.counters, self._block_bytes, self._cutting, self._wants)
            reader = self._reader or self._open()
            if self._first:
                first, self._first = self._first, ()
                yield first
            while (block := reader.read()) is not None:
                if block:
                    span.add(block)
                    yield block
            self._check_length(reader.position())
            if identity is not None:
                self._finished[identity] = span.ends()
        except Stopped:
            return
        finally:
            self.close()

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

    def identity(self) -> str | None:
        """Return a name by which later runs recognise a file; None if it is empty or cannot be read again."""
        if self.replays and self._opening is None:
            self._opening = first_packet(self._input)
        return None if self._opening is None else identity_of(self._input.path, self._opening)

    def waits(self) -> bool:
        """Return True if a pipe has been empty for a moment."""
        return self._input.waiting.waits

    def stop(self) -> None:
        """End the reading of a pipe soon."""
        self._input.waiting.stopped = True

    def finished(self) -> dict[str, tuple[int, int]]:
        """Return the file, once it was read to its end."""
        return dict(self._finished)

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""
        reader = self._reader  # read once: the reading thread may set it to None
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

    def _takes_one_thread(self) -> bool:
        source = self._input
        is_small = source.size is not None and not self._cutting.suits(source.size)
        return source.reopens and (is_small or bool(source.compression) or is_url(source.path))

    def _open(self) -> CaptureReader:
        if not isinstance(self._reader, CaptureReader):
            self._reader = CaptureReader(self._input, self.counters, self._block_bytes, BLOCK_PACKETS, self._wants)
        return self._reader


class Span:
    """The earliest and the latest time of a file's packets, given that of the first."""

    def __init__(self, time: int | None) -> None:
        self._first = self._last = time or 0

    def add(self, block: PacketBlock) -> None:
        """Take in a block."""
        for batch in block:
            if len(batch):
                self._first = min(self._first, batch.span[0])
                self._last = max(self._last, batch.span[1])

    def ends(self) -> tuple[int, int]:
        """Return the earliest and the latest time."""
        return self._first, self._last


def first_packet(source: Opens) -> int | None:
    """Return the time of the very first packet of a file, None where it has none yet."""
    reader = CaptureReader(source, SourceCounters(), _PROBE_BYTES, 1)
    try:
        return None if reader.read(limit=1) is None else reader.last_time()
    finally:
        reader.close()


def without_compression(name: str) -> str:
    """Return a file's name without the ending that compressing it adds."""
    return next((name.removesuffix(ending) for ending in COMPRESSED if name.endswith(ending)), name)


def identity_of(path: str | Path, first: int) -> str:
    """Return the identity of a capture file, given the time of its first packet.

    Compressing a file after its rotation does not change its identity; another capture under the same name, as in a
    ring of files, has another one.
    """
    name = str(path) if is_url(path) else str(Path(path).absolute())
    return f"{without_compression(name)}@{first}"


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
