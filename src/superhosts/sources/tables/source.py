"""A table as a source of packets: files, URLs, pipes and standard input, compressed or not.

What holds for captures holds here: the content decides, the next run recognises a file that was read to its end, files
are read again where their rows are far out of order, and a pipe's rows are yielded as they arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from superhosts.pairs import PacketBlock
from superhosts.sources.base import Source, SourceCounters, Wants
from superhosts.sources.capture import Span, identity_of
from superhosts.sources.inputs import Input
from superhosts.sources.streams import Stopped
from superhosts.sources.tables.base import TableFormat
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.packets import RowPackets
from superhosts.units import SECOND

_YEAR = 365 * 86400 * SECOND


class TableSource(Source):
    """The rows of a table as packets."""

    def __init__(self, source: Input, format: TableFormat, options: TableOptions) -> None:
        self.name = source.name
        self.replays = source.reopens
        self.live = source.live
        self.counters = SourceCounters()
        self._input = source
        self._format = format
        self._options = options
        self._one_window = False
        self._rows: RowPackets | None = None
        self._first: PacketBlock = ()  # read from a pipe for its time, not yet yielded
        self._first_time: int | None = None
        self._first_known = False
        self._opening: int | None = None  # time of the very first row of a file
        self._position = 0
        self._finished: dict[str, tuple[int, int]] = {}
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

    def first_time(self) -> int | None:
        """Return the time at which the table begins; None for an empty one. A stray time does not count."""
        if not self._first_known:
            if self._input.reopens:
                self._probe()
            else:
                rows = self._rows = self._open(self.counters)
                while (block := rows.read()) is not None and not block:
                    pass
                self._first = block or ()
                self._first_time = _begin(self._first)
            self._first_known = True
        return self._first_time

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the rows, once."""
        identity = self.identity() if self._identified() else None  # before reading: another may take its name
        span = Span(self._opening)
        try:
            rows = self._rows = self._rows or self._open(self.counters)
            if self._first:
                first, self._first = self._first, ()
                yield first
            while (block := rows.read()) is not None:
                if block:
                    span.add(block)
                    yield block
            if identity is not None:
                self._finished[identity] = span.ends()
        except Stopped:
            return
        finally:
            self.close()

    def again(self) -> Source:
        """Return the same file, to be read from its beginning."""
        source = TableSource(self._input, self._format, self._options)
        source._one_window = self._one_window
        return source

    def identity(self) -> str | None:
        """Return a name by which later runs recognise a file; None if it is empty or cannot be read again."""
        if not self._identified():
            return None
        if self._opening is None:
            self._probe()
        return None if self._opening is None else identity_of(self._input.path, self._opening)

    def waits(self) -> bool:
        """Return True if a pipe has been empty for a moment."""
        return self._input.waiting.waits

    def stop(self) -> None:
        """End the reading of a pipe soon."""
        self._input.waiting.stopped = True

    def finished(self) -> dict[str, tuple[int, int]]:
        """Return the file, once it was read to its end."""
        return dict(self._finished)

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""
        rows = self._rows  # read once: the reading thread may set it to None
        return rows.position() if rows else self._position

    def size(self) -> int | None:
        """Bytes of the whole input, None for a pipe."""
        return self._input.size

    def close(self) -> None:
        """Close the input. Done by itself at the end of `blocks`."""
        if self._rows:
            self._position = self._rows.position()
            self._rows.close()
            self._rows = None

    def _identified(self) -> bool:
        return self.replays and not self._one_window

    def _open(self, counters: SourceCounters) -> RowPackets:
        reader = self._format.open(self._input, self._options)
        return RowPackets(self.name, reader, counters, one_window=self._one_window)

    def _probe(self) -> None:
        """Look at the first rows of a file. What is wrong with them is said when the file is read."""
        rows = self._open(SourceCounters())
        try:
            while (block := rows.read()) is not None and not block:
                pass
            self._opening = rows.opening
            self._first_time = _begin(block or ())
        finally:
            rows.close()


def _begin(block: PacketBlock) -> int | None:
    """Return the earliest time of a block that is not years from most of them."""
    times = sorted(time for batch in block for time in batch.time[:1000].tolist())
    middle = times[len(times) // 2] if times else 0
    return min((time for time in times if abs(time - middle) < _YEAR), default=None)
