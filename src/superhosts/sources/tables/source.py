"""A table as a source of packets: files, URLs, pipes and standard input, compressed or not.

What holds for captures holds here: the content decides, the next run recognises a file that was read to its end, files
are read again where their rows are far out of order, and a pipe's rows are yielded as they arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from superhosts.core.pairs import PacketBlock
from superhosts.core.units import SECOND
from superhosts.sources.base import Source, SourceCounters, Wants
from superhosts.sources.input import FileSource, Input
from superhosts.sources.tables.base import TableFormat
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.packets import RowPackets

_YEAR = 365 * 86400 * SECOND


class TableSource(FileSource[RowPackets]):
    """The rows of a table as packets."""

    def __init__(self, source: Input, format: TableFormat, options: TableOptions) -> None:
        super().__init__(source)
        self._format = format
        self._options = options
        self._one_window = False
        self._first: PacketBlock = ()  # read from a pipe for its time, not yet yielded
        self.one_thread = source.reopens and (format.one_thread or bool(source.compression))

    def use_threads(self, threads: int) -> None:
        """Let no more than this many threads read."""
        self._options = replace(self._options, threads=threads)

    def use_one_window(self) -> None:
        """All rows are one window: they need no time."""
        self._one_window = True

    def want(self, wants: Wants) -> None:
        """Read protocols, ports and flags, too, if the run wants details."""
        self._options = replace(self._options, details=wants.details)

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
        """Return the same file, to be read from its beginning."""
        source = TableSource(self._input, self._format, self._options)
        source._one_window = self._one_window
        return source

    def identity(self) -> str | None:
        """Return a name by which later runs recognise a file; None also if its rows need no time."""
        return None if self._one_window else super().identity()

    def _open(self, counters: SourceCounters) -> RowPackets:
        reader = self._format.open(self._input, self._options)
        return RowPackets(self.name, reader, counters, one_window=self._one_window)


def _first_rows(rows: RowPackets) -> PacketBlock:
    """Return the first rows that count; none if there are none."""
    while (block := rows.read()) is not None and not block:
        pass
    return block or ()


def _begin(block: PacketBlock) -> int | None:
    """Return the earliest time of a block that is not years from most of them."""
    times = sorted(time for batch in block for time in batch.time[:1000].tolist())
    middle = times[len(times) // 2] if times else 0
    return min((time for time in times if abs(time - middle) < _YEAR), default=None)
