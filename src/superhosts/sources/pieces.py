"""One plain capture file, read by several threads.

The file is cut into pieces of the same size. Threads read them ahead, each from the first record that it guesses in its
piece (piece_loop.py) to the first record that starts behind it. The thread that wants the packets goes through the
pieces in order. A piece counts if

- its first record starts exactly where the records before it have ended, and
- what the records before it declare (interfaces, byte order) is what its thread took for granted.

Otherwise, and from where a piece ended early (damage, the end of the file, a new interface or section, a packet without
a time, a record of megabytes), an ordinary `CaptureReader` reads up to the end of the piece. So a wrong guess costs
time and never changes a packet, a counter or a message, and whatever is unusual has one home.

Memory is bounded, by `Cutting.memory`: two pieces for each thread, but no more than `MOST_AHEAD`, and the largest
record that is accepted. Files that are read at the same time share what may be read ahead, and their pieces are
smaller.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from superhosts.core.device import thread_count
from superhosts.core.pairs import PacketBlock
from superhosts.core.profile import measured, timed
from superhosts.errors import InputError
from superhosts.jit.cache import is_switched_off
from superhosts.sources.base import PLAIN, SourceCounters, Wants
from superhosts.sources.capture_reader import (
    BLOCK_BYTES,
    BLOCK_PACKETS,
    BLOCKS_HELD,
    LARGEST_RECORD,
    CaptureReader,
    Format,
    format_of,
)
from superhosts.sources.columns import DETAIL_BYTES, NARROW_BYTES, WIDE_BYTES, ColumnLender
from superhosts.sources.frames import (
    MOST_SUBFRAMES,
    PACKETS,
    POSITION,
    TALLY_SLOTS,
    WANTS,
    Columns,
    Tally,
    start_walk,
    use_sampling,
    wants_of,
)
from superhosts.sources.inputs import Input
from superhosts.sources.piece_loop import ROOM_BYTES

AHEAD = 2  # pieces for each thread
MOST_THREADS = 16  # more would read faster than anything can use the packets
MOST_AHEAD = 20  # pieces, of all files that are read at the same time
LEAST_AHEAD = 2  # pieces of a file, however many files there are
LARGEST_PIECE = 16 << 20  # bytes
LEAST_PIECES = 3  # a smaller file is read by one thread
LEAST_IPV4, LEAST_IPV6 = 16 + 20, 16 + 40  # bytes of a record with the addresses of such a packet
LEAST_BOTH4, LEAST_BOTH6 = (16 + 40) // 2, (16 + 80) // 2  # for each row of a record with a tunnel, if it has two rows
ROWS_BEYOND = 2 * MOST_SUBFRAMES  # of the last record that starts in a piece and ends behind it
_HEAD = 4  # bytes that tell the format
_NO_LIMIT = 1 << 62  # the columns have room for all packets of a piece


class Cutting(NamedTuple):
    """How a file is cut."""

    piece_bytes: int | None = None  # by the size of the file
    room_bytes: int = ROOM_BYTES  # of the buffer of a thread
    threads: int | None = None  # as many as there are CPUs

    def workers(self) -> int:
        """Return the number of threads that read."""
        return min(thread_count(self.threads), MOST_THREADS)

    def ahead(self, files: int = 1) -> int:
        """Return the number of pieces that are read ahead of each of this many files."""
        return max(min(AHEAD * self.workers(), MOST_AHEAD) // max(files, 1), LEAST_AHEAD)

    def memory(self) -> int:
        """Return the most bytes that a file takes while it is read. Several files at once take less each."""
        piece = LARGEST_PIECE if self.piece_bytes is None else self.piece_bytes
        columns = piece // LEAST_BOTH4 * (NARROW_BYTES + DETAIL_BYTES)
        columns += piece // LEAST_BOTH6 * (WIDE_BYTES + DETAIL_BYTES)
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
        return self.workers() > 1 and size > LEAST_PIECES * self.piece(size) and not is_switched_off()


CUTTING = Cutting()


class Piece(NamedTuple):
    """What a thread has read."""

    begins: int  # guessed; -1 if no record was found
    ends: int
    layout: Any  # what the walk took for granted
    tally: Tally
    columns: Columns


class FileStream:
    """The bytes of a file from any place on."""

    compression = ended_early = ""

    def __init__(self, name: str, file: int) -> None:
        self.name = name
        self.notes: list[tuple[int, str]] = []
        self.file = file
        self.until: int | None = None  # a reader needs few bytes behind this place
        self._position = 0

    def seek(self, position: int) -> None:
        """Go on at a byte of the file."""
        self._position = position

    @timed("read", amount=lambda got, *_: got)
    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        if self.until is not None and self.until > self._position:
            view = view[: self.until - self._position]
        try:
            got = os.preadv(self.file, [view], self._position)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", file=self.name) from error
        self._position += got
        return got

    def position(self) -> int:
        """Bytes read so far."""
        return self._position

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)

    def open(self) -> FileStream:
        """Return the stream itself: a reader opens its input."""
        return self


_being_read: WeakSet[PieceReader] = WeakSet()  # of all threads


class PieceReader:
    """One pass over a file: reads pieces ahead and confirms them in order."""

    def __init__(
        self, stream: FileStream, counters: SourceCounters, block_bytes: int, cutting: Cutting, wants: Wants = PLAIN
    ) -> None:
        self._cutting = cutting
        self._stream = stream
        self._wants = wants
        self._reader = CaptureReader(stream, counters, block_bytes, BLOCK_PACKETS, wants)
        size = os.fstat(self._stream.file).st_size
        _being_read.add(self)
        self._size = cutting.piece(size, len(_being_read))
        self._count = -(-size // self._size)  # bytes that are added later come last
        least = (LEAST_BOTH4, LEAST_BOTH6) if wants.tunnels == "both" else (LEAST_IPV4, LEAST_IPV6)
        rows4, rows6 = (self._size // each + ROWS_BEYOND for each in least)
        self.lender = ColumnLender(rows4, rows6, wants.details)
        self.confirmed = 0  # pieces that did not have to be read again
        self._next = 1  # the piece that is read next
        self._ahead: deque[tuple[int, Future[Piece]]] = deque()
        self._until: int | None = self._size  # of the current piece; the last one has no end
        stream.until = self._until

    def read(self) -> PacketBlock | None:
        """Return the next packets; () if none of them has addresses, None at the end."""
        block: PacketBlock | None = (
            self._take() if self._until is not None and self._reader.place() >= self._until else ()
        )
        if not block:
            block = self._reader.read(until=self._until)
        if block is not None:  # else the file ends here, even if it was longer
            self._read_ahead()
        return block

    def position(self) -> int:
        """Bytes of the file read so far."""
        return self._stream.position()

    def ahead(self) -> int:
        """Return the number of pieces that are read ahead now."""
        return len(self._ahead)

    def close(self) -> None:
        """Stop reading ahead and close the file."""
        _being_read.discard(self)
        _drop([future for _, future in self._ahead])
        self._ahead.clear()
        self._reader.close()

    def _take(self) -> PacketBlock:
        """Go on to the piece in which the next record starts; return its packets, () if they have to be read again."""
        place = self._reader.place()
        number = place // self._size
        self._until = self._stream.until = (number + 1) * self._size if number + 1 < self._count else None
        while self._ahead and self._ahead[0][0] < number:  # a large record covers them
            _drop([self._ahead.popleft()[1]])
        self._next = max(self._next, number + 1)
        if not self._ahead or self._ahead[0][0] != number:
            return ()
        with measured("wait"):
            piece = self._ahead.popleft()[1].result()
        format = self._reader.format()
        if piece.begins != place or format is None or piece.layout is not format.layout():
            return ()
        self.confirmed += 1
        self._stream.seek(piece.ends)
        return self._reader.skip(piece.ends, piece.tally, self.lender.kept(piece.columns, piece.tally))

    def _read_ahead(self) -> None:
        """Make threads read the next pieces."""
        workers = self._cutting.workers()
        format = self._reader.format()
        layout = None if format is None else format.layout()
        if format is None or layout is None:
            return
        most = self._cutting.ahead(len(_being_read))
        while self._next < self._count and len(self._ahead) < most:
            start = self._next * self._size
            place = start, start + self._size, self._reader.last_time()
            job = reading_pool(workers).submit(
                _read, self._stream.file, place, format, layout, self.lender, self._cutting.room_bytes, self._wants
            )
            self._ahead.append((self._next, job))
            self._next += 1


def open_pieces(
    source: Input, counters: SourceCounters, block_bytes: int, cutting: Cutting, wants: Wants = PLAIN
) -> PieceReader | None:
    """Return a reader of a plain capture file that is worth several threads; None for any other input."""
    file = source.open_file() if cutting.suits(source.size or 0) else None
    if file is None:
        return None
    reader = None
    try:
        if format_of(os.pread(file, _HEAD, 0)) is not None:
            reader = PieceReader(FileStream(source.name, file), counters, block_bytes, cutting, wants)
    except OSError:  # reported by whoever reads it instead
        pass
    finally:
        if reader is None:
            os.close(file)
    return reader


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
    lender: ColumnLender,
    room_bytes: int,
    wants: Wants,
) -> Piece:
    """Read a piece."""
    buffer = getattr(_this_thread, "buffer", None)
    if buffer is None or len(buffer) != room_bytes:
        buffer = _this_thread.buffer = np.empty(room_bytes, np.uint8)
    tally = np.zeros(TALLY_SLOTS, np.int64)
    columns = lender.borrow()
    tally[WANTS] = wants_of(wants)
    start_walk(tally, _NO_LIMIT)
    use_sampling(tally, wants.sampling)
    with measured("read and walk") as work:
        begins = format.read_piece(file, place, layout, buffer, tally, columns)
        work.amount += int(tally[PACKETS])
    return Piece(begins, int(tally[POSITION]), layout, tally, columns)
