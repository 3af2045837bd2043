"""One plain file of lines, read by several threads.

The file is cut into pieces of the same size; a line belongs to the piece in which it begins. Threads read pieces ahead,
each from the first newline in it. A piece counts if it begins where the one before it has ended and was read with the
layout that holds there; otherwise it is read again. So a newline in quotes, or a new header in the middle of the file,
costs time and never changes a row.

What is read ahead is bounded: two pieces for each thread.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from superhosts.errors import InputError
from superhosts.sources.capture import Cutting, reading_pool
from superhosts.sources.input import Input
from superhosts.sources.tables.base import RowBlock, TableReader
from superhosts.sources.tables.delimitedloop import Bytes
from superhosts.sources.tables.textreader import LONGEST_LINE, Grammar, Layout, LineWalker, TextReader, too_long
from superhosts.sources.tables.textscan import PADDING

PIECE_BYTES = 2 << 20
LEAST_PIECES = 3  # a smaller file is read by one thread
HEAD_BYTES = 1 << 20  # in which a file must begin
_MORE_BYTES = 64 * 1024  # read behind a piece at once, for its last line
_NEWLINE = 10


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
        """Return the next rows, None at the end."""
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
        """Bytes of the file read so far."""
        return self._place

    def close(self) -> None:
        """Stop reading ahead and close the file."""
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


def open_text(source: Input, grammar: Grammar, threads: int | None) -> TableReader:
    """Return a reader of a file: by several threads if it is plain and large."""
    cutting = Cutting(PIECE_BYTES, threads=threads)
    file = None
    if not source.compression and source.size is not None and cutting.suits(source.size):
        file = source.open_file()
    if file is None:
        return TextReader(source, grammar)
    try:
        head = os.pread(file, HEAD_BYTES, 0)
        begun = grammar.begin(head, ended=len(head) < HEAD_BYTES)
        if begun is not None:
            return PieceReader(file, source, begun, head[: begun[0]].count(b"\n"), cutting.workers())
    except OSError as error:
        os.close(file)
        raise InputError(f"cannot be read: {error.strerror or error}", file=source.name) from error
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return TextReader(source, grammar)


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
