"""Captured packets: pcap and pcapng, plain or compressed, from files, pipes and stdin.

`open_capture` looks at the content, never at the name. What it guarantees:

- The output does not depend on how the bytes arrive. A block of bytes may end anywhere; a record that is not whole yet
  is carried over to the next one.
- A capture that ends inside a record is read up to there, with a warning. A capture that is damaged (a record length
  above 64 MiB) is an `InputError` with the file and the byte offset in the uncompressed stream; the packets before it
  have been handed out by then.
- Interfaces of an unsupported link type are named in a warning, and their packets counted. A capture that has no
  other packets is an `InputError`.
- Memory is bounded for each input, by `most_memory`: blocks that are read ahead, the largest record that is accepted
  (64 MiB) and the longest window of a decompressor (128 MiB). Usual captures take a tenth of it.
- Packets of a live input (a pipe) are yielded as they arrive.

A plain file of more than a few megabytes is cut into pieces, which threads read ahead (`PieceReader`). A piece counts
if its first record starts exactly where the records before it have ended, and if what they declare (interfaces, byte
order) is what its thread took for granted. Otherwise, and from where a piece ended early (damage, the end of the file,
a new interface or section, a packet without a time, a record of megabytes), an ordinary `CaptureReader` reads up to the
end of the piece. So a wrong guess costs time and never changes a packet, a counter or a message.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from superhosts.core import filetypes
from superhosts.core.device import thread_count
from superhosts.core.pairs import PacketBlock
from superhosts.core.profile import measured
from superhosts.core.text import counted, setting
from superhosts.errors import InputError, UsageError
from superhosts.jit.cache import jit_disabled
from superhosts.sources.base import PLAIN, SourceCounters, Wants
from superhosts.sources.compression import LONGEST_WINDOW, MOST_AHEAD, MOST_INPUT, MOST_OUTPUT
from superhosts.sources.files import is_url
from superhosts.sources.frames import columns as frames
from superhosts.sources.frames.links import MOST_SUBFRAMES
from superhosts.sources.input import MOST_HEAD, FileFormat, FileSource, Input, Opens, Reader
from superhosts.sources.pcap import LARGEST, Pcap
from superhosts.sources.pcapng import LARGEST_BLOCK, Pcapng
from superhosts.sources.readers import MOST_SHARE
from superhosts.sources.stream import PlainStream, Stream
from superhosts.sources.walk import ROOM_BYTES, Rows

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


Format = Pcap | Pcapng


def format_of(head: bytes) -> Format | None:
    return next((kind() for kind in (Pcap, Pcapng) if kind.recognises(head)), None)


def not_a_capture(head: bytes, name: str, compression: str) -> InputError:
    """Return the error for an input of no format that is known, given its first bytes, decompressed."""
    file = "" if name == "stdin" or is_url(name) else name
    return InputError(filetypes.not_a_capture(head, file, compression), file=name)


class CaptureReader(Reader):
    """One pass over an input: a buffer of bytes, and where in it the next record starts."""

    def __init__(
        self,
        name: str,
        stream: Stream,
        counters: SourceCounters,
        block_bytes: int,
        packets: int,
        wants: Wants = PLAIN,
        size: int | None = None,
    ) -> None:
        """Begin to read. `size`: the bytes that a file had when it was found."""
        self._name, self._stream, self._size = name, stream, size
        self._counters = counters
        most_rows = 2 if wants.tunnels == "both" else 1  # of a packet
        self._packets = max(packets // most_rows, 1)
        room = (self._packets + MOST_SUBFRAMES) * most_rows
        self._columns = frames.new_columns(room, room, wants)
        self._tally = np.zeros(frames.TALLY_SLOTS, np.int64)
        self._tally[frames.WANTS], self._sampling = frames.wants_of(wants), wants.sampling
        self._named = frames.vlan_name if wants.group == "vlan" else "interface {}".format
        self._block_bytes = max(block_bytes, _MAGIC_BYTES)
        self._buffer = np.empty(self._block_bytes, np.uint8)
        self._filled = 0
        self._offset = 0  # of the buffer's first byte in the stream
        self._simple = False
        self._counted = self._unsupported = 0  # packets, and those of unsupported link types
        self.format: Format | None = None  # None before the first bytes were read
        self.opening: int | None = None  # time of the first packet, with addresses or not
        self._finished = False
        self._until: int | None = None  # do not read records that start at this byte or later

    def _start(self) -> None:
        """Find out the format; an empty input has none."""
        if self.format is not None or self._finished:
            return
        while self._filled < _MAGIC_BYTES and self._fill():
            pass
        if not self._filled or (self._filled < _MAGIC_BYTES and self._stream.ended_early):
            self._counters.truncated_files += bool(self._stream.ended_early)
            self._warn(self._stream.ended_early or "it is empty")
            self._finished = True
            return
        head = self._buffer[: min(self._filled, MOST_HEAD)].tobytes()
        self.format = format_of(head)
        if self.format is None:
            raise not_a_capture(head, self._name, self._stream.compression)
        if self._tally[frames.WANTS] & frames.INTERFACE and not self.format.has_interfaces:
            why = "a pcap file does not tell interfaces apart; pcapng files do"
            raise UsageError(f"{setting('group_by', 'interface')}: {self._name}: {why}")

    def read(self) -> PacketBlock | None:
        found = self._advance(self._columns)
        if found:
            return self._take(self._tally, frames.copied(frames.written(self._columns, self._tally)))
        return None if found is None else ()

    def _advance(self, columns: frames.Columns | Rows) -> bool | None:
        """Walk the next packets; False if there are none before byte `_until`, None at the end."""
        self._start()
        if self.format is None or self._finished:
            return None
        tally, until = self._tally, self._until
        while until is None or self._place() < until:
            frames.start_walk(tally, self._packets)
            frames.use_sampling(tally, self._sampling)
            if until is not None:
                tally[frames.STOP] = until - self._offset
            with measured("walk") as work:
                if self.opening is None:
                    self._read_opening(self.format, tally, columns)
                problem = self.format.walk(self._buffer[: self._filled], tally, columns)
                work.amount += int(tally[frames.PACKETS])
            while self.format.notes:
                self._warn(self.format.notes.pop(0))
            if tally[frames.PACKETS]:
                return True
            if problem:
                raise self._damaged(problem)
            if (until is None or self._place() < until) and not self._fill():
                self._finish()
                return None
        return False

    def _read_opening(self, format: Format, tally: frames.Tally, columns: frames.Columns | Rows) -> None:
        """Walk the first packet alone. The same walk goes on behind it."""
        tally[frames.LIMIT] = 1
        format.walk(self._buffer[: self._filled], tally, columns)
        tally[frames.LIMIT] = self._packets
        if tally[frames.PACKETS]:
            self.opening = int(tally[frames.TIME])

    def _place(self) -> int:
        return self._offset + int(self._tally[frames.POSITION])

    def list_frames(self, rows: Rows) -> tuple[NDArray[np.uint8], Rows] | None:
        """Return the bytes of the next records, until the next call, and the rows of their frames; None at the end."""
        if not self._advance(rows[: self._packets]):
            return None
        return self._buffer[: self._filled], rows[: int(self._tally[frames.PACKETS])]

    def _fill(self) -> bool:
        """Move what is not read yet to the front and read more behind it; False at the end."""
        start = int(self._tally[frames.POSITION])
        left = self._filled - start
        size, buffer = len(self._buffer), self._buffer
        if left == size:  # one record fills it; a series of growing buffers would leave used gaps
            size = 2 * size if 2 * size <= BLOCK_BYTES else self._block_bytes + LARGEST_RECORD
        elif size > self._block_bytes >= 2 * left:  # that was a large record
            size = self._block_bytes
        if size != len(buffer):
            self._buffer = np.empty(size, np.uint8)
        if start or size != len(buffer):
            self._buffer[:left] = buffer[start : self._filled]
        self._offset += start
        self._tally[frames.POSITION] = 0
        self._filled = left  # also if reading fails
        got = self._stream.readinto(self._buffer[left:].data)
        self._filled += got
        return got > 0

    def _damaged(self, problem: str) -> InputError:
        """Return the error for a problem at the next record. Its place is a byte of the decompressed stream."""
        compression = self._stream.compression
        text = f"{problem} (a byte of the decompressed {compression} data)" if compression else problem
        return InputError(text, file=self._name, offset=self._place())

    def _take(self, tally: frames.Tally, columns: frames.Columns) -> PacketBlock:
        self._counted += int(tally[frames.PACKETS])
        self._unsupported += int(tally[frames.UNSUPPORTED_LINK])
        if tally[frames.SIMPLE] and not self._simple:
            self._simple = True
            self._warn("packets without a time (simple packet blocks) get the time of the packet before them")
        return frames.take(columns, tally, self._counters, self._named)

    def _finish(self) -> None:
        """Warn if the input ended early; raise if none of its packets can be read."""
        self._finished = True
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
        position = self.position()  # even if a plain file now ends with a whole record
        if self._size is not None and not self._stream.compression and position < self._size:
            self._counters.truncated_files = 1
            read = f"{position:,} of {counted(self._size, 'byte was', 'bytes were')} there"
            self._warn(f"it has become shorter while it was read: {read}; what came before counts")

    def _warn(self, text: str) -> None:
        self._counters.warn(f"{self._name}: {text}")


AHEAD = 2  # pieces for each thread
MOST_THREADS = 16  # more would read faster than anything can use the packets
MOST_PIECES_AHEAD = 20  # pieces, of all files that are read at the same time
LEAST_AHEAD = 2  # pieces of a file, however many files there are
LARGEST_PIECE = 16 << 20  # bytes
LEAST_PIECES = 3  # a smaller file is read by one thread
LEAST_IPV4, LEAST_IPV6 = 16 + 20, 16 + 40  # bytes of a record with the addresses of such a packet
LEAST_BOTH4, LEAST_BOTH6 = (16 + 40) // 2, (16 + 80) // 2  # for each row of a record with a tunnel, if it has two rows
ROWS_BEYOND = 2 * MOST_SUBFRAMES  # of the last record that starts in a piece and ends behind it
_NO_LIMIT = 1 << 62  # the columns have room for all packets of a piece


class Cutting(NamedTuple):
    piece_bytes: int | None = None  # by the size of the file
    room_bytes: int = ROOM_BYTES  # of the buffer of a thread
    threads: int | None = None  # as many as there are CPUs

    def workers(self) -> int:
        return min(thread_count(self.threads), MOST_THREADS)

    def ahead(self, files: int = 1) -> int:
        return max(min(AHEAD * self.workers(), MOST_PIECES_AHEAD) // max(files, 1), LEAST_AHEAD)

    def memory(self) -> int:
        """Return the most bytes that a file takes while it is read. Several files at once take less each."""
        piece = LARGEST_PIECE if self.piece_bytes is None else self.piece_bytes
        columns = piece // LEAST_BOTH4 * (frames.NARROW_BYTES + frames.DETAIL_BYTES)
        columns += piece // LEAST_BOTH6 * (frames.WIDE_BYTES + frames.DETAIL_BYTES)
        pieces = (self.ahead() + BLOCKS_HELD) * columns
        return LARGEST_RECORD + BLOCK_BYTES + self.workers() * ROOM_BYTES + pieces

    def piece(self, size: int, files: int = 1) -> int:
        """Return the bytes of a piece of a file of this size, which is read at the same time as others.

        Pieces are large, because each costs a third of a millisecond during which only one thread works, but every
        thread should have several. Those of several files wait in memory until all files have reached their times.
        """
        wanted = self.piece_bytes
        if wanted is None:
            wanted = max(min(size // (8 * self.workers()), LARGEST_PIECE // files), BLOCK_BYTES)
        return wanted + -wanted % 4  # pcapng blocks start at multiples of four

    def suits(self, size: int) -> bool:
        """Return True if a file of this size is worth several threads. Only compiled code can read a piece."""
        return self.workers() > 1 and size > LEAST_PIECES * self.piece(size) and not jit_disabled()


CUTTING = Cutting()


class Piece(NamedTuple):
    begins: int  # guessed; -1 if no record was found
    ends: int
    layout: Any  # what the walk took for granted
    tally: frames.Tally
    columns: frames.Columns


class FileStream(PlainStream):
    """The bytes of a plain file, of which threads read others by its descriptor."""

    def __init__(self, name: str, descriptor: int) -> None:
        super().__init__(name, os.fdopen(descriptor, "rb", buffering=0), live=False)
        self.descriptor = descriptor
        self.until: int | None = None  # a reader needs few bytes behind this place

    def seek(self, position: int) -> None:
        self._position = self._file.seek(position)

    def readinto(self, view: memoryview) -> int:
        near = self.until is not None and self.until > self._position
        return super().readinto(view[: (self.until or 0) - self._position] if near else view)


_being_read: WeakSet[PieceReader] = WeakSet()  # of all threads


class PieceReader(CaptureReader):
    """One pass over a file: reads pieces ahead and confirms them in order."""

    def __init__(
        self, file: Input, descriptor: int, counters: SourceCounters, block_bytes: int, cutting: Cutting, wants: Wants
    ) -> None:
        stream = self._file = FileStream(file.name, descriptor)
        super().__init__(file.name, stream, counters, block_bytes, BLOCK_PACKETS, wants, file.size)
        self._cutting, self._wants = cutting, wants
        size = os.fstat(descriptor).st_size
        _being_read.add(self)
        self._piece = cutting.piece(size, len(_being_read))  # bytes
        self._count = -(-size // self._piece)  # bytes that are added later come last
        least = (LEAST_BOTH4, LEAST_BOTH6) if wants.tunnels == "both" else (LEAST_IPV4, LEAST_IPV6)
        rows4, rows6 = (self._piece // each + ROWS_BEYOND for each in least)
        self.lender = frames.ColumnLender(rows4, rows6, wants)
        self.confirmed = 0  # pieces that did not have to be read again
        self._next = 1  # the piece that is read next
        self.ahead: deque[tuple[int, Future[Piece]]] = deque()
        self._until = stream.until = self._piece  # the end of the current piece; the last one has none

    def read(self) -> PacketBlock | None:
        is_behind = self._until is not None and self._place() >= self._until
        block = (self._take_piece() if is_behind else ()) or super().read()
        if block is not None:  # else the file ends here, even if it was longer
            self._read_ahead()
        return block

    def close(self) -> None:
        _being_read.discard(self)
        _drop([future for _, future in self.ahead])
        self.ahead.clear()
        super().close()

    def _take_piece(self) -> PacketBlock:
        """Return the packets of the piece that begins here; () if it does not count."""
        place = self._place()
        number = place // self._piece
        self._until = self._file.until = (number + 1) * self._piece if number + 1 < self._count else None
        while self.ahead and self.ahead[0][0] < number:  # a large record covers them
            _drop([self.ahead.popleft()[1]])
        self._next = max(self._next, number + 1)
        if not self.ahead or self.ahead[0][0] != number:
            return ()
        with measured("wait"):
            begins, ends, layout, tally, columns = self.ahead.popleft()[1].result()
        if begins != place or self.format is None or layout is not self.format.layout():
            return ()
        self.confirmed += 1
        self._file.seek(ends)
        self._offset, self._filled, self._tally[frames.POSITION] = ends, 0, 0
        if tally[frames.PACKETS]:
            self._tally[frames.TIME] = tally[frames.TIME]
        return self._take(tally, self.lender.kept(columns, tally))

    def _read_ahead(self) -> None:
        format, time = self.format, int(self._tally[frames.TIME])
        layout = None if format is None else format.layout()
        if format is None or layout is None:
            return
        pool, most = reading_pool(self._cutting.workers()), self._cutting.ahead(len(_being_read))
        while self._next < self._count and len(self.ahead) < most:
            start = self._next * self._piece
            place, room = (start, start + self._piece, time), self._cutting.room_bytes
            job = pool.submit(_read, self._file.descriptor, place, format, layout, self.lender, room, self._wants)
            self.ahead.append((self._next, job))
            self._next += 1


def open_pieces(
    source: Input, counters: SourceCounters, block_bytes: int, cutting: Cutting, wants: Wants = PLAIN
) -> PieceReader | None:
    """Return a reader of a plain capture file that is worth several threads; None for any other input."""
    if not cutting.suits(source.size or 0) or format_of(source.head()) is None or source.compression:
        return None
    file = source.open_file()
    return None if file is None else PieceReader(source, file, counters, block_bytes, cutting, wants)


def _drop(futures: Iterable[Future[Piece]]) -> None:
    """Wait until no thread works on these any more: none may read from a file that is closed."""
    wait([future for future in futures if not future.cancel()])


_this_thread = threading.local()


@cache
def reading_pool(threads: int) -> ThreadPoolExecutor:
    """Return the threads that read pieces. All files share them: there may be many."""
    return ThreadPoolExecutor(threads, thread_name_prefix="pieces")


os.register_at_fork(after_in_child=reading_pool.cache_clear)  # A forked child has none of its parent's threads.


def _read(
    file: int,
    place: tuple[int, int, int],
    format: Format,
    layout: Any,
    lender: frames.ColumnLender,
    room_bytes: int,
    wants: Wants,
) -> Piece:
    buffer = getattr(_this_thread, "buffer", None)
    if buffer is None or len(buffer) != room_bytes:
        buffer = _this_thread.buffer = np.empty(room_bytes, np.uint8)
    tally = np.zeros(frames.TALLY_SLOTS, np.int64)
    columns = lender.borrow()
    tally[frames.WANTS] = frames.wants_of(wants)
    frames.start_walk(tally, _NO_LIMIT)
    frames.use_sampling(tally, wants.sampling)
    with measured("read and walk") as work:
        begins = format.read_piece(file, place, layout, buffer, tally, columns)
        work.amount += int(tally[frames.PACKETS])
    return Piece(begins, int(tally[frames.POSITION]), layout, tally, columns)


_PROBE_BYTES = 64 * 1024
_PROBE_PACKETS = 1000  # looked at to know when a file begins


def capture_format(block_bytes: int = BLOCK_BYTES, cutting: Cutting = CUTTING) -> FileFormat:
    def cut(wants: Wants) -> Cutting:
        return cutting if wants.threads is None else cutting._replace(threads=wants.threads)

    def open(file: Opens, counters: SourceCounters, wants: Wants) -> CaptureReader:
        if wants.first_only:  # If details are wanted, the other walk need not be loaded.
            wants = wants._replace(tunnels="outer")
            return CaptureReader(file.name, file.open(), counters, _PROBE_BYTES, _PROBE_PACKETS, wants)
        size = None
        if isinstance(file, Input):
            if (pieces := open_pieces(file, counters, block_bytes, cut(wants), wants)) is not None:
                return pieces
            size = file.size if file.reopens else None  # stdin may be a file that somebody else has begun to read
        return CaptureReader(file.name, file.open(), counters, block_bytes, BLOCK_PACKETS, wants, size)

    def one_thread(file: Input, wants: Wants) -> bool:
        is_small = file.size is not None and not cut(wants).suits(file.size)
        return is_small or bool(file.compression) or is_url(file.path)

    return FileFormat(lambda head: format_of(head) is not None, open, one_thread, ("interface", "vlan"))


CAPTURES = capture_format()


def open_capture(path: str | Path | Input, *, block_bytes: int = BLOCK_BYTES, cutting: Cutting = CUTTING) -> FileSource:
    """Open a capture file, a pipe or ("-") stdin; `InputError` if it is not there or not a capture."""

    def check(file: Input) -> FileFormat:
        if file.reopens and (head := file.head()) and format_of(head) is None:  # Readers say it of pipes.
            raise not_a_capture(head, file.name, file.compression)
        return capture_format(block_bytes, cutting)

    return FileSource(path if isinstance(path, Input) else Input(path), check)


def most_memory() -> int:
    return max(READER_MEMORY, CUTTING.memory())
