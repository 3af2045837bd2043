"""Flow exports in files: captures of exports, IPFIX files, and files of datagrams.

Files of datagrams are recognised by their content. A capture is read as packets unless the caller says that its exports
matter (--format netflow). Inputs of one run learn templates from each other, so that a capture whose templates are in
the file before it can be read.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from superhosts.errors import InputError
from superhosts.pairs import PacketBlock
from superhosts.sources.base import Source, SourceCounters, Wants
from superhosts.sources.capture import Span, identity_of
from superhosts.sources.exports.captured import CAPTURES
from superhosts.sources.exports.collector import Batch, Collector, Manner, Pool, as_block
from superhosts.sources.exports.layout import DATAGRAM_SLOTS, END, RECEIVED, START
from superhosts.sources.exports.payloads import find_payloads, room_for
from superhosts.sources.exports.splitting import datagrams_of
from superhosts.sources.inputs import Input
from superhosts.sources.streams import Stopped, Stream

BLOCK_BYTES = 1 << 20
FILE_TIME = {"record": "start"}
SFLOW = "sflow"
_LEAST = 28  # bytes by which captures and files of datagrams are told apart


class ExportFile(Source):
    """The flows that a file of exports, or a capture of exports, reports."""

    def __init__(self, file: Input, format: str, time: str, pool: Pool) -> None:
        self.name = file.name
        self.replays, self.live = file.reopens, file.live
        self.one_thread = file.reopens
        self.counters = SourceCounters()
        self._input, self._format, self._pool = file, format, pool
        self._manner = Manner(is_sflow=format == SFLOW, time=FILE_TIME.get(time, time))
        self._time = time
        self._stream: Stream | None = None
        self._position = 0
        self._opening: int | None = None
        self._first_time: int | None = None
        self._first: Batch | None = None  # read from a pipe for its time
        self._batches: Iterator[Batch] | None = None
        self._finished: dict[str, tuple[int, int]] = {}
        self.counters.exports = [{"input": self.name, "sampling": None}]

    def want(self, wants: Wants) -> None:
        """Take note of what is to be read besides addresses and times."""
        self._manner = self._manner._replace(wants=wants)

    def first_time(self) -> int | None:
        """Return the time of the first records; None for an empty input. Its templates are known to others then."""
        if self._first_time is None:
            batches = self._read()
            batch = next(batches, None)
            if self._input.reopens:
                self._close()
            else:
                self._first, self._batches = batch, batches
            if batch is not None:
                self._opening = self._first_time = int(batch.datagrams[0, RECEIVED])
                block = _decoded(Collector(SourceCounters(), self._manner, self._pool), batch)
                self._first_time = min((each.span[0] for each in block), default=self._first_time)
        return self._first_time

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the records, once."""
        identity, span = self.identity(), Span(self._opening)
        collector = Collector(self.counters, self._manner, self._pool)
        try:
            for block in self._blocks(collector):
                span.add(block)
                yield block
            if identity is not None:
                self._finished[identity] = span.ends()
        except Stopped:
            return
        finally:
            self._close()
            self.counters.exports = [collector.status(self.name)]
        self._tell(collector)

    def _blocks(self, collector: Collector) -> Iterator[PacketBlock]:
        first, self._first = self._first, None
        batches = self._batches or self._read()
        for batch in [first] if first is not None else []:
            yield from collector.feed(batch)
        for batch in batches:
            yield from collector.feed(batch)
            if self._input.live and (block := collector.take()):
                yield block
            self.counters.exports = [{"input": self.name, "sampling": collector.registry.rate() or None}]
        if block := collector.take():
            yield block

    def again(self) -> Source:
        """Return the same file, to be read from its beginning."""
        source = ExportFile(self._input, self._format, self._time, self._pool)
        source._manner = self._manner
        return source

    def identity(self) -> str | None:
        """Return a name by which later runs recognise a file; None if it is empty or cannot be read again."""
        if not self.replays:
            return None
        self.first_time()
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
        stream = self._stream
        return self._position if stream is None else stream.position()

    def size(self) -> int | None:
        """Bytes of the whole input, None for a pipe."""
        return self._input.size

    def _close(self) -> None:
        if self._stream is not None:
            self._position = self._stream.position()
            self._stream.close()
            self._stream = None

    def _read(self) -> Iterator[Batch]:
        """Yield the datagrams of the file, a block of bytes at a time."""
        stream = self._stream = self._input.open()
        content, more = b"", bytearray(BLOCK_BYTES)
        splitter: _Splitter | None = None
        while True:
            got = stream.readinto(memoryview(more))
            content += bytes(more[:got])
            if splitter is None:
                if got and len(content) < _LEAST:
                    continue
                splitter = _Splitter(content, self._manner.is_sflow, self.name)
            behind, batch = splitter.split(content, is_last=got == 0)
            if batch is not None and len(batch.datagrams):
                yield batch
            content = content[behind:]
            if got == 0:
                if content or stream.ended_early:
                    self.counters.truncated_files += 1
                    self.counters.warn(f"{self.name}: the file ends inside a record; what came before counts")
                return

    def _tell(self, collector: Collector) -> None:
        """Warn of records that nobody can read."""
        status = collector.status(self.name)
        if waiting := status["sets_waiting"] + status["sets_without_template"]:
            way = "give the file that has the templates, too"
            self.counters.warn(
                f"{self.name}: {waiting:,} sets of records without their template are not counted; {way}"
            )
        if status["other_datagrams"] and not status["datagrams"]:
            kind = "sFlow v5" if self._manner.is_sflow else "NetFlow v5, v9 or IPFIX"
            self.counters.warn(f"{self.name}: none of its {status['other_datagrams']:,} datagrams is {kind}")


class _Splitter:
    """Cuts blocks of bytes into datagrams."""

    def __init__(self, head: bytes, is_sflow: bool, name: str) -> None:
        self._is_sflow, self._name = is_sflow, name
        kinds = (kind for kind in CAPTURES if kind.recognises(head))
        kind = next(kinds, None)
        self._records = None if kind is None else kind(head)
        self._begins = 0 if self._records is None else self._records.begins
        self._offset = 0

    def split(self, content: bytes, *, is_last: bool) -> tuple[int, Batch | None]:
        """Return how many bytes were used, and the datagrams in them."""
        begins, self._begins = self._begins, 0
        if self._records is None:
            places = list(datagrams_of(content, is_sflow=self._is_sflow, is_last=is_last))
            datagrams = np.zeros((len(places), DATAGRAM_SLOTS), np.int64)
            if places:
                datagrams[:, [START, END]] = places
            behind = places[-1][1] if places else 0
            return behind, Batch(as_block(content), datagrams, np.zeros((len(places), 2), np.uint64))
        try:
            rows = list(self._records.records(content, begins))
        except ValueError as error:
            raise InputError(str(error), file=self._name, offset=self._offset) from None
        behind = rows[-1][4] if rows else begins
        self._offset += behind
        if not rows:
            return behind, None
        datagrams, peers = room_for(len(rows))
        block = as_block(content)
        found = find_payloads(block, np.array([row[:4] for row in rows], np.int64), datagrams, peers)
        return behind, Batch(block, datagrams[:found], peers[:found])


def _decoded(collector: Collector, batch: Batch) -> PacketBlock:
    """Return the first records of a batch, and let the collector learn its templates."""
    first: PacketBlock = ()
    for block in collector.feed(batch):
        first = first or block
    return first or collector.take()
