"""One pass over a text of lines: moves bytes to a compiled loop and makes blocks of rows of what it finds.

A text has a `Layout`: what is wanted of a line and how it is found. Some lines may change it (a `#fields` line in the
middle of a log): the loop stops there, and `Layout.after` says what holds from then on. Bytes may end anywhere; a line
that is not whole yet waits for the rest. The last line of a file counts if it is whole, with or without a newline.

A plain file is cut into pieces behind newlines, which threads walk ahead. A piece counts if the one before it has ended
with it and was walked with the layout that holds there; otherwise it is walked again. So a newline in quotes, or a new
header in the middle of the file, costs time and never changes a row.

Memory is bounded: a line of more than `LONGEST_LINE` bytes is an error, and two pieces for each thread are read ahead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn
from superhosts.core.profile import measured
from superhosts.core.text import printable
from superhosts.errors import InputError
from superhosts.sources.capture import Cutting, reading_pool
from superhosts.sources.files import is_url
from superhosts.sources.input import Input, Opens
from superhosts.sources.tables import textrow
from superhosts.sources.tables.details import DetailRoles
from superhosts.sources.tables.source import BadRow, RowBlock
from superhosts.sources.tables.textrow import Bytes, Roles, Rows, new_rows
from superhosts.sources.tables.textscan import PADDING

PIECE_BYTES = 2 << 20
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


class Walked(NamedTuple):
    """The rows of some lines, how many lines these are, and where the next one is."""

    blocks: list[RowBlock]
    position: int
    lines: int
    layout: Layout


class _Room(threading.local):
    """Where a thread writes rows. It is used again for every walk: what is kept is copied."""

    def __init__(self) -> None:
        self.rows = new_rows(BLOCK_ROWS)
        self.tally = np.zeros(textrow.TALLY_SLOTS, np.int64)


_room = _Room()


def walk_lines(data: Bytes, place: tuple[int, int], layout: Layout, *, final: bool = False) -> Walked:
    """Read the lines of data[start:stop], which ends with a newline; `final`: nothing comes behind them.

    Bad rows have the numbers of their lines, from 0.
    """
    rows, tally, (start, stop), line = _room.rows, _room.tally, place, 0
    found: list[RowBlock] = []
    while (start := layout.skip(data, start, stop)) < stop:
        tally[:] = 0
        tally[textrow.POSITION], tally[textrow.STOP], tally[textrow.LIMIT] = start, stop, BLOCK_ROWS
        with measured("walk") as work:
            reason = layout.walk(data, final, layout.shape, layout.roles, layout.details, tally, rows)
            work.amount += int(tally[textrow.ROWS])
        if tally[textrow.ROWS] or tally[textrow.BAD] or tally[textrow.SKIPS]:
            found.append(_block(rows, tally, layout, data, line))
        start, line = int(tally[textrow.POSITION]), line + int(tally[textrow.LINES])
        if reason == textrow.DIRECTIVE:
            end = start + int(np.argmax(data[start:stop] == _NEWLINE))
            layout = layout.after(data[start:end].tobytes())
            start, line = end + 1, line + 1
        elif reason != textrow.FULL:
            break
    return Walked(found, start, line, layout)


def last_lines(data: Bytes, end: int, layout: Layout) -> list[RowBlock]:
    """Read what is left at the end of a text: data[:end], perhaps without a newline, which is added."""
    stop = _behind_last_newline(data, 0, end)
    blocks, _, line, layout = walk_lines(data, (0, stop), layout, final=True)
    if stop == end:
        return blocks
    if layout.is_whole(data[stop:end].tobytes()):
        data[end] = _NEWLINE
        rest = walk_lines(data, (stop, end + 1), layout, final=True).blocks
        return [*blocks, *(_renumbered(block, line) for block in rest)]
    bad = BadRow(line, f"the input ends inside this line: {_shown(data[:end], stop)}")
    nothing = np.empty(0, np.uint32)
    time = np.empty(0, np.int64) if layout.has_time else None
    details = np.empty(0, np.uint64) if layout.details is not None else None
    return [*blocks, RowBlock(nothing, nothing, time, bad=[bad], unreadable=1, details=details)]


class Piece(NamedTuple):
    """Whole lines, data[start:stop]; what a thread makes of them if they begin a row, and with which layout."""

    data: Bytes
    start: int
    stop: int
    layout: Layout | None = None
    job: Future[Walked] | None = None


class TextReader:
    """One pass over lines; with several workers, threads walk pieces ahead."""

    def __init__(self, source: Opens, begin: Begin, workers: int = 1) -> None:
        self._name = source.name
        self._workers = workers
        self._buffer = np.empty(PIECE_BYTES + PADDING, np.uint8)
        self._start = self._filled = 0  # what is not a piece yet
        self._offset = 0  # of the buffer's first byte in the stream
        self._rest = np.empty(0, np.uint8)  # lines of the last piece that go on behind it
        self._ahead: deque[Piece] = deque()
        self._ready: deque[RowBlock] = deque()
        self._is_begun = self._is_ended = False
        self._stream = source.open()
        self._size = _plain_size(source)
        try:
            while (begun := begin(self._buffer[: self._filled].tobytes(), self._is_ended)) is None:
                self._fill()
        except BaseException:
            self._stream.close()
            raise
        self._start, self._layout = begun
        self._line = 1 + int(np.count_nonzero(self._buffer[: self._start] == _NEWLINE))
        self.columns, self.has_time = self._layout.columns, self._layout.has_time

    def read(self) -> RowBlock | None:
        while not self._ready:
            if self._workers > 1 and self._is_begun:  # Whoever wants the first rows only needs no threads.
                self._read_ahead()
            self._is_begun = True
            piece = self._ahead.popleft() if self._ahead else self._next()
            if piece is not None:
                self._take(piece)
            elif not self._finish():
                return None
        return self._ready.popleft()

    @property
    def ended_early(self) -> str:
        """A message if compressed data ended early, or a file has fewer bytes than it had; else ""."""
        is_shorter = self._is_ended and self._stream.position() < self._size
        return self._stream.ended_early or ("it has become shorter while it was read" if is_shorter else "")

    def position(self) -> int:
        return self._stream.position()

    def close(self) -> None:
        for piece in self._ahead:
            assert piece.job is not None
            piece.job.cancel()
        self._ahead.clear()
        self._stream.close()

    def _read_ahead(self) -> None:
        pool, layout = reading_pool(self._workers), self._layout
        try:
            while len(self._ahead) < 2 * self._workers and (piece := self._next()) is not None:
                job = pool.submit(walk_lines, piece.data, (piece.start, piece.stop), layout)
                self._ahead.append(piece._replace(layout=layout, job=job))
        except InputError:
            if not self._ahead:  # else it comes again, behind the rows before it
                raise

    def _next(self) -> Piece | None:
        """Read until there are whole lines; None at the end."""
        while True:
            start, stop = self._start, _behind_last_newline(self._buffer, self._start, self._filled)
            if stop > start:
                self._start = stop
                return Piece(self._buffer, start, stop)
            if not self._fill():
                return None

    def _take(self, piece: Piece) -> None:
        """Add the rows of a piece: those that a thread found, if the piece begins a row and the layout still holds."""
        data, start, stop, layout, job = piece
        if job is not None and layout is self._layout and not len(self._rest):
            walked = job.result()
        else:
            if len(self._rest):
                data = _padded(self._rest, data[start:stop])
                start, stop = 0, len(data) - PADDING
            walked = walk_lines(data, (start, stop), self._layout)
        self._ready += (_renumbered(block, self._line) for block in walked.blocks)
        self._line += walked.lines
        self._layout, self._rest = walked.layout, data[walked.position : stop].copy()
        if len(self._rest) > LONGEST_LINE:
            raise self._too_long()

    def _finish(self) -> bool:
        """Add what is left behind the last whole line; False if nothing is."""
        data = _padded(self._rest, self._buffer[self._start : self._filled])
        if len(data) == PADDING:
            return False
        blocks = last_lines(data, len(data) - PADDING, self._layout)
        self._ready += (_renumbered(block, self._line) for block in blocks)
        self._start, self._rest = self._filled, self._rest[:0]
        return True

    def _fill(self) -> bool:
        """Read more, into a new buffer if this one is full: threads may read the old one. False at the end."""
        if self._filled == len(self._buffer) - PADDING:
            left = self._buffer[self._start : self._filled]
            if len(left) >= LONGEST_LINE:
                raise self._too_long()
            self._buffer = np.empty(max(PIECE_BYTES, min(2 * len(left), LONGEST_LINE)) + PADDING, np.uint8)
            self._buffer[: len(left)] = left
            self._offset += self._start
            self._start, self._filled = 0, len(left)
        got = self._stream.readinto(self._buffer[self._filled : len(self._buffer) - PADDING].data)
        self._filled += got
        self._is_ended = got == 0
        return got > 0

    def _too_long(self) -> InputError:
        reason = f"a line is longer than {LONGEST_LINE >> 20} MiB; is this a table?"
        return InputError(reason, file=self._name, offset=self._offset + self._start)


def open_text(source: Opens, begin: Begin, threads: int | None) -> TextReader:
    cutting = Cutting(PIECE_BYTES, threads=threads)
    return TextReader(source, begin, cutting.workers() if cutting.suits(_plain_size(source)) else 1)


def _plain_size(source: Opens) -> int:
    """Return the bytes of a file on a disk that is not compressed; 0 for other inputs."""
    is_plain = isinstance(source, Input) and source.reopens and not source.compression and not is_url(source.path)
    return (source.size or 0) if isinstance(source, Input) and is_plain else 0


def _padded(first: Bytes, second: Bytes) -> Bytes:
    return np.concatenate([first, second, np.zeros(PADDING, np.uint8)])


def _renumbered(block: RowBlock, lines: int) -> RowBlock:
    return replace(block, bad=[row._replace(row=row.row + lines) for row in block.bad]) if block.bad else block


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
