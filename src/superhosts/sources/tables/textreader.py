"""One pass over a text of lines: moves bytes to a compiled loop and makes blocks of rows of what it finds.

A text has a `Layout`: what is wanted of a line and how it is found. Some lines may change it (a `#fields` line in the
middle of a log): the loop stops there, and `Layout.after` says what holds from then on. Bytes may end anywhere; a line
that is not whole yet waits for the rest. The last line of a file counts if it is whole, with or without a newline.

A plain file may be read by several threads (`PieceReader`). It is cut into pieces of the same size; a line belongs to
the piece in which it begins. Threads read pieces ahead, each from the first newline in it. A piece counts if it begins
where the one before it has ended and was read with the layout that holds there; otherwise it is read again. So a
newline in quotes, or a new header in the middle of the file, costs time and never changes a row.

Memory is bounded: a line of more than `LONGEST_LINE` bytes is an error, and two pieces for each thread are read ahead.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn
from superhosts.core.profile import measured
from superhosts.core.text import printable
from superhosts.errors import InputError
from superhosts.sources.capture import Cutting, reading_pool
from superhosts.sources.input import Input, Opens
from superhosts.sources.tables import textrow
from superhosts.sources.tables.details import DetailRoles
from superhosts.sources.tables.source import BadRow, RowBlock, TableReader
from superhosts.sources.tables.textrow import Bytes, Roles, Rows, new_rows
from superhosts.sources.tables.textscan import PADDING

BLOCK_BYTES = 4 << 20
BLOCK_ROWS = 1 << 16
LONGEST_LINE = 16 << 20
MOST_TEXT = 80  # characters of a bad line that are shown
_NEWLINE = 10


@dataclass(frozen=True, eq=False)
class Layout:
    """What is wanted of the lines of a text. It never changes."""

    columns: Sequence[str]  # for messages
    has_time: bool
    roles: Roles
    details: DetailRoles | None  # None: not wanted
    shape: Any  # how lines are divided: the third argument of `walk`
    walk: Callable[..., int]  # the compiled loop

    def after(self, _line: bytes) -> Layout:
        """Return what holds behind a line that the loop left to the reader; the same object if nothing changes."""
        return self

    def skip(self, _data: Bytes, start: int, _stop: int) -> int:
        """Return where the next line begins that counts: `start`, unless lines are skipped now."""
        return start

    def is_whole(self, line: bytes) -> bool:
        """Return True if the last line of a text, which has no newline, is not cut off."""
        return bool(line)


# How a text begins: given its first bytes and whether there are no more, it returns the bytes before the first row and
# its layout; None if these bytes are too few. InputError if the columns are not what is needed.
Begin = Callable[[bytes, bool], tuple[int, Layout] | None]


@dataclass
class Walked:
    """The rows of some lines, and where the next line is."""

    blocks: list[RowBlock]
    position: int
    line: int
    layout: Layout


class LineWalker:
    """Walks whole lines of a buffer. `rows` is used again for every walk: what is kept is copied."""

    def __init__(self) -> None:
        self._rows = new_rows(BLOCK_ROWS)
        self._tally = np.zeros(textrow.TALLY_SLOTS, np.int64)

    def walk(self, data: Bytes, place: tuple[int, int], layout: Layout, *, line: int, final: bool) -> Walked:
        """Read the lines of data[start:stop], which ends with a newline; `line` is the number of the first."""
        tally, (start, stop) = self._tally, place
        found: list[RowBlock] = []
        while (start := layout.skip(data, start, stop)) < stop:
            tally[:] = 0
            tally[textrow.POSITION], tally[textrow.STOP], tally[textrow.LIMIT] = start, stop, BLOCK_ROWS
            with measured("walk") as work:
                reason = layout.walk(data, final, layout.shape, layout.roles, layout.details, tally, self._rows)
                work.amount += int(tally[textrow.ROWS])
            if tally[textrow.ROWS] or tally[textrow.BAD] or tally[textrow.SKIPS]:
                found.append(_block(self._rows, tally, layout, data, line))
            start, line = int(tally[textrow.POSITION]), line + int(tally[textrow.LINES])
            if reason == textrow.DIRECTIVE:
                end = start + int(np.argmax(data[start:stop] == _NEWLINE))
                layout = layout.after(data[start:end].tobytes())
                start, line = end + 1, line + 1
            elif reason != textrow.FULL:
                break
        return Walked(found, start, line, layout)

    def last(self, data: Bytes, place: tuple[int, int], layout: Layout, *, line: int) -> Walked:
        """Read what is left at the end of a text: data[start:end], perhaps without a newline, which is added."""
        start, end = place
        stop = _behind_last_newline(data, start, end)
        walked = self.walk(data, (start, stop), layout, line=line, final=True)
        if stop == end:
            return walked
        layout, line = walked.layout, walked.line
        if layout.is_whole(data[stop:end].tobytes()):
            data[end] = _NEWLINE
            rest = self.walk(data, (stop, end + 1), layout, line=line, final=True)
            return Walked([*walked.blocks, *rest.blocks], end, rest.line, rest.layout)
        bad = BadRow(line, f"the input ends inside this line: {_shown(data[:end], stop)}")
        nothing = np.empty(0, np.uint32)
        time = np.empty(0, np.int64) if layout.has_time else None
        details = np.empty(0, np.uint64) if layout.details is not None else None
        block = RowBlock(nothing, nothing, time, bad=[bad], unreadable=1, details=details)
        return Walked([*walked.blocks, block], end, line + 1, layout)


class TextReader:
    """One pass over a stream of lines."""

    def __init__(self, source: Opens, begin: Begin) -> None:
        self._name = source.name
        self._buffer = np.empty(BLOCK_BYTES + PADDING, np.uint8)
        self._start = self._filled = 0  # what is not read yet
        self._offset = 0  # of the buffer's first byte in the stream
        self._ended = False
        self._walker = LineWalker()
        self._ready: deque[RowBlock] = deque()
        self._stream = source.open()
        try:
            self._start, self._layout = self._begin(begin)
        except BaseException:
            self._stream.close()
            raise
        self._line = 1 + int(np.count_nonzero(self._buffer[: self._start] == _NEWLINE))
        self.columns, self.has_time = self._layout.columns, self._layout.has_time

    def read(self) -> RowBlock | None:
        while not self._ready:
            stop = _behind_last_newline(self._buffer, self._start, self._filled)
            before = self._start
            if stop > before:
                self._take(self._walker.walk(self._buffer, (before, stop), self._layout, line=self._line, final=False))
            if self._start == before and not self._fill():
                if self._start == self._filled:
                    return None
                place = self._start, self._filled
                self._take(self._walker.last(self._buffer, place, self._layout, line=self._line))
                self._start = self._filled
        return self._ready.popleft()

    @property
    def ended_early(self) -> str:
        """A message if compressed data ended early; else ""."""
        return self._stream.ended_early

    def position(self) -> int:
        return self._stream.position()

    def close(self) -> None:
        self._stream.close()

    def _begin(self, begin: Begin) -> tuple[int, Layout]:
        while (begun := begin(self._buffer[: self._filled].tobytes(), self._ended)) is None:
            self._fill()
        return begun

    def _take(self, walked: Walked) -> None:
        self._ready += walked.blocks
        self._start, self._line, self._layout = walked.position, walked.line, walked.layout

    def _fill(self) -> bool:
        """Move what is not read yet to the front and read more behind it; False at the end."""
        left = self._filled - self._start
        room = len(self._buffer) - PADDING
        if left == room:  # one line fills it
            if left >= LONGEST_LINE:
                raise too_long(self._name, self._offset + self._start)
            larger = np.empty(min(2 * room, LONGEST_LINE) + PADDING, np.uint8)
            larger[:left] = self._buffer[self._start : self._filled]
            self._buffer = larger
        elif self._start:
            self._buffer[:left] = self._buffer[self._start : self._filled]
        self._offset += self._start
        self._start, self._filled = 0, left
        got = self._stream.readinto(self._buffer[left : len(self._buffer) - PADDING].data)
        self._filled += got
        self._ended = got == 0
        return got > 0


def too_long(name: str, offset: int) -> InputError:
    """Return the error for a line that does not fit into memory."""
    return InputError(f"a line is longer than {LONGEST_LINE >> 20} MiB; is this a table?", file=name, offset=offset)


def _behind_last_newline(data: Bytes, start: int, end: int) -> int:
    """Return the place behind the last newline, `start` if there is none."""
    span = 4096
    while end > start:
        first = max(start, end - span)
        found = data[first:end].tobytes().rfind(b"\n")
        if found >= 0:
            return first + found + 1
        end, span = first, 16 * span
    return start


def _block(rows: Rows, tally: NDArray[np.int64], layout: Layout, data: Bytes, line: int) -> RowBlock:
    count = int(tally[textrow.ROWS])
    src: Any
    dst: Any
    if tally[textrow.WIDE]:
        kinds = rows.kinds[:count].copy()
        src, dst = AddressColumn(kinds, rows.src[:count].copy()), AddressColumn(kinds, rows.dst[:count].copy())
    else:
        src, dst = rows.src[:count, 1].astype(np.uint32), rows.dst[:count, 1].astype(np.uint32)
    time = rows.time[:count].copy() if layout.has_time else None
    bad = []
    for mark in range(textrow.MARKS, textrow.MARKS + 3 * min(int(tally[textrow.BAD]), textrow.SHOWN), 3):
        number, begin, reason = tally[mark : mark + 3].tolist()
        bad.append(BadRow(line + number, f"{textrow.REASONS[reason]}: {_shown(data, begin)}"))
    details = rows.details[:count].copy() if layout.details is not None else None
    unreadable, skipped = int(tally[textrow.BAD]), int(tally[textrow.SKIPS])
    return RowBlock(src, dst, time, bad=bad, unreadable=unreadable, skipped=skipped, details=details)


def _shown(data: Bytes, begin: int) -> str:
    text = data[begin : begin + 8 * MOST_TEXT].tobytes().split(b"\n")[0].rstrip(b"\r")
    shown = printable(text.decode("utf-8", "replace"), MOST_TEXT)
    return shown.split("… (")[0] + "…" if len(shown) > MOST_TEXT else shown


PIECE_BYTES = 2 << 20
HEAD_BYTES = 1 << 20  # in which a file must begin
_MORE_BYTES = 64 * 1024  # read behind a piece at once, for its last line


class Piece(NamedTuple):
    """What a thread has read."""

    begins: int  # -1: no line begins in it
    ends: int
    before: Layout
    after: Layout
    blocks: list[RowBlock]
    lines: int


class PieceReader:
    """One pass over a file: reads pieces ahead and takes them in order."""

    def __init__(self, file: int, source: Input, begun: tuple[int, Layout], lines: int, workers: int) -> None:
        self._file, self._name = file, source.name
        self._size = os.fstat(file).st_size
        self._place, self._layout = begun
        self._line = lines + 1
        self._workers = workers
        self._next = self._place // PIECE_BYTES + 1  # the piece that is read ahead next
        self._ahead: deque[tuple[int, Future[Piece]]] = deque()
        self._ready: deque[RowBlock] = deque()
        self._begun = False
        self.ended_early = ""
        self.confirmed = 0  # pieces that did not have to be read again
        self.columns, self.has_time = self._layout.columns, self._layout.has_time

    def read(self) -> RowBlock | None:
        while not self._ready:
            if self._place >= self._size:
                return None
            if self._begun:  # whoever wants the first rows only needs no threads
                self._read_ahead()
            self._begun = True
            piece = self._take()
            for block in piece.blocks:
                self._ready.append(_renumbered(block, self._line - 1))
            if piece.ends == self._place:
                self.ended_early = "it has become shorter while it was read"
                self._size = self._place
            self._place, self._layout, self._line = piece.ends, piece.after, self._line + piece.lines
        return self._ready.popleft()

    def position(self) -> int:
        return self._place

    def close(self) -> None:
        wait([future for _, future in self._ahead if not future.cancel()])
        self._ahead.clear()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _take(self) -> Piece:
        """Return the piece in which the next line begins."""
        number = self._place // PIECE_BYTES
        while self._ahead and self._ahead[0][0] < number:  # a line of another piece covers it
            wait([self._ahead[0][1]])
            self._ahead.popleft()
        if self._ahead and self._ahead[0][0] == number:
            job = self._ahead.popleft()[1]
            guessed = None if isinstance(job.exception(), InputError) else job.result()  # A guess may have been wrong.
            if guessed is not None and guessed.begins == self._place and guessed.before is self._layout:
                self.confirmed += 1
                return guessed
        self._next = max(self._next, number + 1)
        end = min((number + 1) * PIECE_BYTES, self._size)
        return _read(self._file, self._name, (self._place, end, self._size), self._layout, guess=False)

    def _read_ahead(self) -> None:
        while self._next * PIECE_BYTES < self._size and len(self._ahead) < 2 * self._workers:
            start = self._next * PIECE_BYTES
            place = start, min(start + PIECE_BYTES, self._size), self._size
            job = reading_pool(self._workers).submit(_read, self._file, self._name, place, self._layout, guess=True)
            self._ahead.append((self._next, job))
            self._next += 1


def open_text(source: Input, begin: Begin, threads: int | None) -> TableReader:
    """Return a reader of a file: by several threads if it is plain and large."""
    cutting = Cutting(PIECE_BYTES, threads=threads)
    file = None
    if not source.compression and source.size is not None and cutting.suits(source.size):
        file = source.open_file()
    if file is None:
        return TextReader(source, begin)
    try:
        head = os.pread(file, HEAD_BYTES, 0)
        begun = begin(head, len(head) < HEAD_BYTES)
        if begun is not None:
            return PieceReader(file, source, begun, head[: begun[0]].count(b"\n"), cutting.workers())
    except OSError as error:
        os.close(file)
        raise InputError(f"cannot be read: {error.strerror or error}", file=source.name) from error
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return TextReader(source, begin)


_this_thread = threading.local()


def _read(file: int, name: str, place: tuple[int, int, int], layout: Layout, *, guess: bool) -> Piece:
    """Read the lines that begin between two places of a file, given its size. `guess`: one is behind a newline."""
    start, end, size = place
    walker = getattr(_this_thread, "walker", None)
    if walker is None:
        walker = _this_thread.walker = LineWalker()
        _this_thread.buffer = np.empty(0, np.uint8)
    if len(_this_thread.buffer) < PIECE_BYTES + 2 * _MORE_BYTES + PADDING:
        _this_thread.buffer = np.empty(PIECE_BYTES + 2 * _MORE_BYTES + PADDING, np.uint8)
    data: Bytes = _this_thread.buffer
    offset = start - guess  # of the first byte of the buffer; a guess begins behind the newline before the piece
    filled = _pread(file, name, data, (0, end - offset), offset)
    at = 0
    if guess:
        newlines = data[:filled] == _NEWLINE
        at = int(np.argmax(newlines)) + 1
        if not newlines[at - 1]:
            return Piece(-1, end, layout, layout, [], 0)
    begins, before, line = offset + at, layout, 1
    blocks: list[RowBlock] = []
    last = end - offset - 1  # The lines up to the first newline from here on are read.
    while offset + at < end:
        ended = offset + filled >= size
        stop = _line_end(data, max(last, at), filled)
        if stop or ended:
            if ended and stop != filled:
                walked = walker.last(data, (at, filled), layout, line=line)
            else:
                walked = walker.walk(data, (at, stop), layout, line=line, final=ended)
            blocks += walked.blocks
            at, line, layout = walked.position, walked.line, walked.layout
            if offset + at >= end or ended:
                break
            last = 2 * stop - at  # That newline is in quotes.
            continue
        if filled - at > LONGEST_LINE:
            raise too_long(name, offset + at)
        data, filled = _with_room(data, filled)
        got = _pread(file, name, data, (filled, filled + _MORE_BYTES), offset + filled)
        filled += got
        size = size if got else offset + filled  # the file has become shorter
    return Piece(begins, offset + at, before, layout, blocks, line - 1)


def _line_end(data: Bytes, start: int, filled: int) -> int:
    """Return the place behind the first newline from `start` on, 0 if there is none."""
    found = data[start:filled].tobytes().find(b"\n")
    return start + found + 1 if found >= 0 else 0


def _with_room(data: Bytes, filled: int) -> tuple[Bytes, int]:
    if len(data) - filled >= _MORE_BYTES + PADDING:
        return data, filled
    larger = np.empty(2 * len(data), np.uint8)
    larger[:filled] = data[:filled]
    return larger, filled


def _pread(file: int, name: str, data: Bytes, span: tuple[int, int], offset: int) -> int:
    """Read bytes of a file into a part of a buffer; return how many there were."""
    view, done = data[span[0] : span[1]].data, 0
    try:
        while done < len(view) and (got := os.preadv(file, [view[done:]], offset + done)):
            done += got
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=name) from error
    return done


def _renumbered(block: RowBlock, lines: int) -> RowBlock:
    if not block.bad or not lines:
        return block
    bad = [row._replace(row=row.row + lines) for row in block.bad]
    return replace(block, bad=bad)
