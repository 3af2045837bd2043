"""A table as a source of packets: files, URLs, pipes and standard input, compressed or not.

A reader of one table format (`TableReader`) finds its columns and then returns block after block. It leaves out rows
that it cannot read at all and says so in `bad`. Rows whose addresses or times make no sense stay in the columns, marked
there (kind 0, `NO_TIME`), so that a reader's loop has no branches for errors: `RowPackets` drops, counts and describes
them, the same for every format. A table all of whose rows are bad is an error that shows the first of them and the
columns: most likely the columns are not what they were taken for.

As for captures, the next run recognises a file that was read to its end, files are read again where their rows are far
out of order, and a pipe's rows are yielded as they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn, Ends, packets_of, widened
from superhosts.core.pairs import Details, PacketBatch, PacketBlock, Times
from superhosts.core.text import counted, either, printable, setting
from superhosts.core.units import SECOND
from superhosts.errors import InputError
from superhosts.sources.base import Source, SourceCounters, Wants
from superhosts.sources.input import FileSource, Input, Opens
from superhosts.sources.tables.mapping import columns_found
from superhosts.sources.tables.options import TableOptions

SHOWN = 3  # bad rows of a table
_MOST_SHOWN = 160  # characters of a row
_YEAR = 365 * 86400 * SECOND


class BadRow(NamedTuple):
    """A row that does not count: its number in the table, from 1 (of text: its line), and the row as people read it."""

    row: int
    text: str


@dataclass(frozen=True, slots=True)
class RowBlock:
    src: Ends
    dst: Ends
    time: Times | None  # nanoseconds since the epoch, UTC; None: the table has no times
    describe: Callable[[int], BadRow] | None = None  # a bad row of these columns, by its index; None: none is bad
    bad: Sequence[BadRow] = ()  # the first rows that could not be read at all and are not in the columns
    unreadable: int = 0  # how many these are
    skipped: int = 0  # records that are not meant: other events of a log. They do not count as rows
    details: Details | None = None  # None: not wanted

    def __len__(self) -> int:
        return len(self.src[0] if isinstance(self.src, AddressColumn) else self.src)


class TableReader(Protocol):
    columns: Sequence[str]  # those found, for messages; known once it was opened
    has_time: bool  # rows have a time

    def read(self) -> RowBlock | None:
        """Return the next rows, None at the end. An empty block is fine. InputError names what is damaged."""

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class TableFormat:
    """A format of tables: its name for --format, how it is recognised, how it is read."""

    name: str
    title: str  # what people call it: "a Parquet file"
    recognises: Callable[[bytes], bool]  # by the first bytes: some lines of a text, unless it is shorter
    open: Callable[[Opens, TableOptions], TableReader]  # given an `Input`, a reader may read anywhere in its file
    one_thread: bool = True  # one thread reads it; else its reader has threads of its own


class RowPackets:
    def __init__(self, name: str, reader: TableReader, counters: SourceCounters, *, one_window: bool) -> None:
        self._name = name
        self._reader = reader
        self._counters = counters
        self._bad: list[BadRow] = []  # the first few
        self._bad_rows = 0
        self._good = False  # some row counts
        self.opening: int | None = None  # time of the very first packet
        if not reader.has_time and not one_window:
            reader.close()
            way = f"{setting('window', 'all')} counts them all as one window"
            mapped = either("--map time=COLUMN", 'map="time=COLUMN"')
            columns = columns_found(reader.columns)
            raise InputError(f"its rows have no time: {way}; or name the column: {mapped}; {columns}", file=name)

    def read(self) -> PacketBlock | None:
        rows = self._reader.read()
        if rows is None:
            self._check()
            return None
        block = self._packets(rows)
        if block and self.opening is None:
            self.opening = min(int(batch.time[0]) for batch in block if len(batch))
        return block

    def position(self) -> int:
        return self._reader.position()

    def close(self) -> None:
        self._reader.close()

    def _packets(self, rows: RowBlock) -> PacketBlock:
        src, time = rows.src, rows.time
        if time is None:
            time = _no_times(len(rows))
        elif len(time) and int(time.min()) < 0:  # NO_TIME, or before 1970
            kinds, words = widened(src)
            src = AddressColumn(np.where(time < 0, np.uint8(0), kinds), words)
        block, dropped = packets_of(src, rows.dst, time, rows.details)
        if rows.time is None:
            block = tuple(
                PacketBatch(batch.family, batch.src, batch.dst, _no_times(len(batch)), (0, 0), batch.details)
                for batch in block
            )
        self._count(rows, block, dropped)
        return block

    def _count(self, rows: RowBlock, block: PacketBlock, dropped: NDArray[np.int64]) -> None:
        counters, bad = self._counters, len(dropped) + rows.unreadable
        counters.count(block)
        counters.packets += bad
        counters.rows += len(rows) + rows.unreadable
        counters.bad_rows += bad
        self._bad_rows += bad
        counters.skipped_records += rows.skipped
        self._good = self._good or bool(block)
        if bad and len(self._bad) < SHOWN:
            found = list(rows.bad[:SHOWN])
            if rows.describe is not None:
                found += map(rows.describe, dropped[:SHOWN].tolist())
            self._show(sorted(found)[: SHOWN - len(self._bad)])

    def _show(self, found: list[BadRow]) -> None:
        self._bad += found
        if self._good:  # else it may be the error of the whole table
            for row in found:
                self._counters.warn(f"{self._name}: {_words(row)}")

    def _check(self) -> None:
        """Warn if compressed text ended early, as readers of other tables raise; InputError if no row counts."""
        if early := getattr(self._reader, "ended_early", ""):
            self._counters.truncated_files += 1
            self._counters.warn(f"{self._name}: {early}; what came before counts")
        bad = self._bad_rows
        if not self._good and bad:
            rows = "its only row is bad" if bad == 1 else f"all of its {counted(bad, 'row')} are bad"
            first = f"; {_words(self._bad[0])}" if self._bad else ""
            mapped = either("--map src=COLUMN,dst=COLUMN", 'map="src=COLUMN,dst=COLUMN"')
            columns = columns_found(self._reader.columns)
            raise InputError(f"{rows}{first}; {columns}; {mapped} says which to read", file=self._name)


def _words(bad: BadRow) -> str:
    return f"row {bad.row:,} does not count: {printable(bad.text, _MOST_SHOWN)}"


def _no_times(count: int) -> Times:
    return np.broadcast_to(np.int64(0), (count,))


class TableSource(FileSource[RowPackets]):
    def __init__(self, source: Input, format: TableFormat, options: TableOptions) -> None:
        super().__init__(source)
        self._format = format
        self._options = options
        self._first: PacketBlock = ()  # read from a pipe for its time, not yet yielded
        self.one_thread = source.reopens and (format.one_thread or bool(source.compression))

    def want(self, wants: Wants) -> None:
        self.wants = wants
        threads = self._options.threads if wants.threads is None else wants.threads
        self._options = replace(self._options, details=wants.details, threads=threads)

    def _look(self) -> int | None:
        """Return the time at which the table begins; None for an empty one. A stray time does not count.

        What is wrong with the first rows of a file is said when the file is read.
        """
        if not self.replays:
            pipe = self._reader = self._open(self.counters)
            self._first = _first_rows(pipe)
            return _begin(self._first)
        rows = self._open(SourceCounters())
        try:
            first = _first_rows(rows)
        finally:
            rows.close()
        self._opening = rows.opening
        return _begin(first)

    def _read(self) -> Iterator[PacketBlock]:
        rows = self._reader = self._reader or self._open(self.counters)
        if self._first:
            first, self._first = self._first, ()
            yield first
        while (block := rows.read()) is not None:
            if block:
                yield block

    def again(self) -> Source:
        source = TableSource(self._input, self._format, self._options)
        source.wants = self.wants
        return source

    def identity(self) -> str | None:
        """Return a name by which later runs recognise a file; None also if its rows need no time."""
        return None if self.wants.one_window else super().identity()

    def _open(self, counters: SourceCounters) -> RowPackets:
        reader = self._format.open(self._input, self._options)
        return RowPackets(self.name, reader, counters, one_window=self.wants.one_window)


def _first_rows(rows: RowPackets) -> PacketBlock:
    while (block := rows.read()) is not None and not block:
        pass
    return block or ()


def _begin(block: PacketBlock) -> int | None:
    """Return the earliest time of a block that is not years from most of them."""
    times = sorted(time for batch in block for time in batch.time[:1000].tolist())
    middle = times[len(times) // 2] if times else 0
    return min((time for time in times if abs(time - middle) < _YEAR), default=None)
