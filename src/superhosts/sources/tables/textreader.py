"""One pass over a text of lines: moves bytes to a compiled loop and makes blocks of rows of what it finds.

A text has a `Layout`: what is wanted of a line and how it is found. Some lines may change it (a `#fields` line in the
middle of a log): the loop stops there, and `Layout.after` says what holds from then on. Bytes may end anywhere; a line
that is not whole yet waits for the rest. The last line of a file counts if it is whole, with or without a newline.

Memory is bounded: a line of more than `LONGEST_LINE` bytes is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn
from superhosts.core.profile import measured
from superhosts.core.text import printable
from superhosts.errors import InputError
from superhosts.sources.tables.base import BadRow, Opens, RowBlock
from superhosts.sources.tables.delimitedloop import DIRECTIVE, FULL, Bytes
from superhosts.sources.tables.textdetails import DetailRoles
from superhosts.sources.tables.textrow import (
    BAD,
    LIMIT,
    LINES,
    MARKS,
    POSITION,
    REASONS,
    ROWS,
    SHOWN,
    SKIPS,
    STOP,
    TALLY_SLOTS,
    WIDE,
    Roles,
    Rows,
    new_rows,
)
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


class Grammar(Protocol):
    """How a text begins."""

    def begin(self, head: bytes, *, ended: bool) -> tuple[int, Layout] | None:
        """Return the bytes before the first row and its layout, given the first bytes; None if they are too few.

        `ended`: there are no more. InputError if the columns are not what is needed.
        """


@dataclass
class Walked:
    """The rows of some lines, and where the next line is."""

    blocks: list[RowBlock]
    position: int
    line: int
    layout: Layout


class LineWalker:
    """Walks whole lines of a buffer. `rows` is used again for every walk: what is kept is copied."""

    def __init__(self, block_rows: int = BLOCK_ROWS) -> None:
        self._rows = new_rows(block_rows)
        self._limit = block_rows
        self._tally = np.zeros(TALLY_SLOTS, np.int64)

    def walk(self, data: Bytes, place: tuple[int, int], layout: Layout, *, line: int, final: bool) -> Walked:
        """Read the lines of data[start:stop], which ends with a newline; `line` is the number of the first."""
        tally, (start, stop) = self._tally, place
        found: list[RowBlock] = []
        while (start := layout.skip(data, start, stop)) < stop:
            tally[:] = 0
            tally[POSITION], tally[STOP], tally[LIMIT] = start, stop, self._limit
            with measured("walk") as work:
                reason = layout.walk(data, final, layout.shape, layout.roles, layout.details, tally, self._rows)
                work.amount += int(tally[ROWS])
            if tally[ROWS] or tally[BAD] or tally[SKIPS]:
                found.append(_block(self._rows, tally, layout, data, line))
            start, line = int(tally[POSITION]), line + int(tally[LINES])
            if reason == DIRECTIVE:
                end = start + int(np.argmax(data[start:stop] == _NEWLINE))
                layout = layout.after(data[start:end].tobytes())
                start, line = end + 1, line + 1
            elif reason != FULL:
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
        block = RowBlock(nothing, nothing, time, _no_row, [bad], 1, details=details)
        return Walked([*walked.blocks, block], end, line + 1, layout)


class TextReader:
    """One pass over a stream of lines."""

    def __init__(self, source: Opens, grammar: Grammar, block_bytes: int = BLOCK_BYTES) -> None:
        self._name = source.name
        self._block_bytes = block_bytes
        self._buffer = np.empty(block_bytes + PADDING, np.uint8)
        self._start = self._filled = 0  # what is not read yet
        self._offset = 0  # of the buffer's first byte in the stream
        self._ended = False
        self._walker = LineWalker()
        self._ready: deque[RowBlock] = deque()
        self._stream = source.open()
        try:
            self._start, self._layout = self._begin(grammar)
        except BaseException:
            self._stream.close()
            raise
        self._line = 1 + int(np.count_nonzero(self._buffer[: self._start] == _NEWLINE))
        self.columns, self.has_time = self._layout.columns, self._layout.has_time

    def read(self) -> RowBlock | None:
        """Return the next rows, None at the end."""
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
        """Bytes of the input read so far."""
        return self._stream.position()

    def close(self) -> None:
        """Close the input."""
        self._stream.close()

    def _begin(self, grammar: Grammar) -> tuple[int, Layout]:
        while (begun := grammar.begin(self._buffer[: self._filled].tobytes(), ended=self._ended)) is None:
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
    count = int(tally[ROWS])
    src: Any
    dst: Any
    if tally[WIDE]:
        kinds = rows.kinds[:count].copy()
        src, dst = AddressColumn(kinds, rows.src[:count].copy()), AddressColumn(kinds, rows.dst[:count].copy())
    else:
        src, dst = rows.src[:count, 1].astype(np.uint32), rows.dst[:count, 1].astype(np.uint32)
    time = rows.time[:count].copy() if layout.has_time else None
    bad = []
    for mark in range(MARKS, MARKS + 3 * min(int(tally[BAD]), SHOWN), 3):
        number, begin, reason = tally[mark : mark + 3].tolist()
        bad.append(BadRow(line + number, f"{REASONS[reason]}: {_shown(data, begin)}"))
    details = rows.details[:count].copy() if layout.details is not None else None
    return RowBlock(src, dst, time, _no_row, bad, int(tally[BAD]), int(tally[SKIPS]), details)


def _no_row(_index: int) -> BadRow:
    """All rows of a block are good."""
    raise AssertionError("every row of a text has two addresses and a time")


def _shown(data: Bytes, begin: int) -> str:
    text = data[begin : begin + 8 * MOST_TEXT].tobytes().split(b"\n")[0].rstrip(b"\r")
    shown = printable(text.decode("utf-8", "replace"), MOST_TEXT)
    return shown.split("… (")[0] + "…" if len(shown) > MOST_TEXT else shown
