"""Rows as packets: drops rows that make no sense, counts them, shows the first three, and makes blocks of the rest.

A table all of whose rows are bad is an error that shows the first of them and the columns: most likely the columns are
not what they were taken for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn, Ends, packets_of
from superhosts.core.pairs import PacketBatch, PacketBlock, Times
from superhosts.core.text import counted, either, printable, setting
from superhosts.errors import InputError
from superhosts.sources.base import SourceCounters
from superhosts.sources.tables.base import BadRow, RowBlock, TableReader
from superhosts.sources.tables.mapping import columns_found

SHOWN = 3  # bad rows of a table
_MOST_SHOWN = 160  # characters of a row


class RowPackets:
    """The packets of a table, block by block, and its counters."""

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
        """Return the next packets, perhaps none; None at the end."""
        rows = self._reader.read()
        if rows is None:
            self._warn_of_end()
            self._check()
            return None
        block = self._packets(rows)
        if block and self.opening is None:
            self.opening = min(int(batch.time[0]) for batch in block if len(batch))
        return block

    def position(self) -> int:
        """Bytes of the input read so far."""
        return self._reader.position()

    def close(self) -> None:
        """Close the input."""
        self._reader.close()

    def _packets(self, rows: RowBlock) -> PacketBlock:
        src, dst, time, details, kept = rows.src, rows.dst, rows.time, rows.details, None
        dropped: NDArray[np.int64] = np.empty(0, np.int64)
        if time is None and not isinstance(src, AddressColumn) and not isinstance(dst, AddressColumn):
            block: PacketBlock = ()
            if len(rows):
                block = (PacketBatch(4, src, dst, _no_times(len(rows)), (0, 0), details),)
            self._count(rows, block, dropped)
            return block
        if time is None:
            time = _no_times(len(rows))
        elif len(time) and int(time.min()) < 0:  # NO_TIME, or before 1970
            without = time < 0
            dropped, kept = np.flatnonzero(without), np.flatnonzero(~without)
            src, dst, time = _taken(src, kept), _taken(dst, kept), time[kept]
            details = None if details is None else details[kept]
        block, refused = packets_of(src, dst, time, details)
        if len(refused):
            refused = refused if kept is None else kept[refused]
            dropped = np.sort(np.concatenate([dropped, refused])) if len(dropped) else refused
        if rows.time is None:
            block = tuple(
                PacketBatch(batch.family, batch.src, batch.dst, _no_times(len(batch)), (0, 0), batch.details)
                for batch in block
            )
        block = tuple(batch for batch in block if len(batch))
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
            found = [*rows.bad[:SHOWN], *(rows.describe(int(index)) for index in dropped[:SHOWN])]
            self._show(sorted(found)[: SHOWN - len(self._bad)])

    def _show(self, found: list[BadRow]) -> None:
        self._bad += found
        if self._good:  # else it may be the error of the whole table
            for row in found:
                self._counters.warn(f"{self._name}: {_words(row)}")

    def _warn_of_end(self) -> None:
        """Warn if compressed text ended early; readers of other tables raise."""
        if early := getattr(self._reader, "ended_early", ""):
            self._counters.truncated_files += 1
            self._counters.warn(f"{self._name}: {early}; what came before counts")

    def _check(self) -> None:
        """Raise InputError if no row counts."""
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
    """Return times that are all the epoch, in no memory."""
    return np.broadcast_to(np.int64(0), (count,))


def _taken(ends: Ends, kept: NDArray[np.int64]) -> Ends:
    return AddressColumn(ends.kinds[kept], ends.words[kept]) if isinstance(ends, AddressColumn) else ends[kept]
