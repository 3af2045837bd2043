"""A table as a source of packets: files, URLs, pipes and standard input, compressed or not.

A reader of one table format (`TableReader`) finds its columns and then returns block after block. It leaves out rows
that it cannot read at all and says so in `bad`. Rows whose addresses or times make no sense stay in the columns, marked
there (kind 0, `NO_TIME`), so that a reader's loop has no branches for errors: `RowPackets` drops, counts and describes
them, the same for every format. A table all of whose rows are bad is an error that shows the first of them and the
columns: most likely the columns are not what they were taken for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn, Ends, packets_of, widened
from superhosts.core.pairs import Details, PacketBatch, PacketBlock, Times
from superhosts.core.text import counted, either, printable, setting
from superhosts.errors import InputError
from superhosts.sources.base import SourceCounters, Wants
from superhosts.sources.input import FileFormat, Opens, Reader
from superhosts.sources.tables.mapping import columns_found
from superhosts.sources.tables.options import TableOptions

SHOWN = 3  # bad rows of a table
_MOST_SHOWN = 160  # characters of a row


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
    recognises: Callable[[bytes], bool]  # by the first bytes: some lines of a text, unless it is shorter
    open: Callable[[Opens, TableOptions], TableReader]  # given an `Input`, a reader may read anywhere in its file
    one_thread: bool = True  # one thread reads it; else its reader has threads of its own


def packets_of_rows(rows: RowBlock) -> tuple[PacketBlock, NDArray[np.int64]]:
    """Return the packets of rows, and the indices of the rows that make none."""
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
    return block, dropped


class RowPackets(Reader):
    def __init__(self, name: str, reader: TableReader, counters: SourceCounters, *, one_window: bool) -> None:
        self._name = name
        self._reader = reader
        self._counters = counters
        self._bad: list[BadRow] = []  # the first few
        self._bad_rows = 0
        self._good = False  # some row counts
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
        block, dropped = packets_of_rows(rows)
        self._count(rows, block, dropped)
        return block

    def position(self) -> int:
        return self._reader.position()

    def close(self) -> None:
        self._reader.close()

    def _count(self, rows: RowBlock, block: PacketBlock, dropped: NDArray[np.int64]) -> None:
        counters, bad = self._counters, len(dropped) + rows.unreadable
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


def table_files(format: TableFormat, options: TableOptions) -> FileFormat:
    """Return the format of files and pipes that are such tables."""

    def open(file: Opens, counters: SourceCounters, wants: Wants) -> RowPackets:
        threads = options.threads if wants.threads is None else wants.threads
        reader = format.open(file, replace(options, details=wants.details, threads=threads))
        return RowPackets(file.name, reader, counters, one_window=wants.one_window)

    return FileFormat(format.recognises, open, lambda file, _: format.one_thread or bool(file.compression))
