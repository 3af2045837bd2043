"""Flow exports in files: captures of exports, IPFIX files, and files of datagrams.

Files of datagrams are recognised by their content. A capture is read as packets unless the caller says that its exports
matter (--format netflow). An input that is not empty and has no export is an `InputError`. Inputs of one run learn
templates from each other, so that a capture whose templates are in the file before it can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.filetypes import not_exports
from superhosts.core.pairs import PacketBlock
from superhosts.core.text import counted, setting
from superhosts.errors import InputError
from superhosts.jit.cache import compiled
from superhosts.sources.base import SourceCounters, Wants
from superhosts.sources.exports.collector import Batch, Collector, Pool, Settings, as_block
from superhosts.sources.exports.containers import CAPTURES, datagrams_of, exports_in, is_cut, recognise_exports
from superhosts.sources.exports.layout import DATAGRAM_SLOTS, END, RECEIVED, START, Bytes, Rows
from superhosts.sources.exports.walks import wide
from superhosts.sources.files import is_url
from superhosts.sources.frames.headers import is_ipv4
from superhosts.sources.frames.links import big, byte, half, ip_header, link_of
from superhosts.sources.input import MOST_HEAD, FileFormat, Input, Opens, Reader

BLOCK_BYTES = 1 << 20
FILE_TIME = {"record": "start"}
SFLOW = "sflow"
_UDP = 17
_KINDS = ("NetFlow v5, v9 or IPFIX", "sFlow v5")  # by is_sflow
_LEAST = 28  # bytes by which captures and files of datagrams are told apart


def export_files(format: str, time: str, pool: Pool) -> FileFormat:
    """Return the format of files with these exports, whose readers know the templates of a pool."""
    settings = Settings(is_sflow=format == SFLOW, time=FILE_TIME.get(time, time))

    def open(file: Opens, counters: SourceCounters, wants: Wants) -> ExportReader:
        return ExportReader(file, Collector(counters, settings._replace(wants=wants), pool), counters, format)

    return FileFormat(lambda head: recognise_exports(head) == format, open)


class ExportReader(Reader):
    def __init__(self, file: Opens, collector: Collector, counters: SourceCounters, format: str) -> None:
        self.name = file.name
        self.opening: int | None = None
        self._format, self._is_sflow = format, format == SFLOW
        self._collector, self._counters = collector, counters
        # Nothing waits for more records in a pipe, or where the first ones are enough.
        self._at_once = collector.settings.wants.first_only or not isinstance(file, Input) or file.live
        self._head = b""
        self._splitter: _Splitter | None = None
        counters.exports = [{"input": self.name, "sampling": None}]
        self._stream = file.open()
        self._blocks = self._packets()

    def read(self) -> PacketBlock | None:
        return next(self._blocks, None)

    def position(self) -> int:
        return self._stream.position()

    def close(self) -> None:
        self._stream.close()

    def _packets(self) -> Iterator[PacketBlock]:
        collector, counters = self._collector, self._counters
        try:
            for batch in self._datagrams():
                if self.opening is None:
                    self.opening = int(batch.datagrams[0, RECEIVED])
                # Of the first datagrams all are read at once, for their templates.
                yield from list(collector.feed(batch)) if self._at_once else collector.feed(batch)
                if self._at_once:
                    yield collector.take()
                counters.exports = [{"input": self.name, "sampling": collector.registry.rate() or None}]
            yield collector.take()
            self._check_exports(collector.status(self.name)["datagrams"])
        finally:
            counters.exports = [collector.status(self.name)]
        self._tell(counters.exports[0])

    def _datagrams(self) -> Iterator[Batch]:
        stream = self._stream
        content, more = b"", bytearray(BLOCK_BYTES)
        splitter: _Splitter | None = None
        while True:
            got = stream.readinto(memoryview(more))
            content += bytes(more[:got])
            if splitter is None:
                if got and len(content) < _LEAST:
                    continue
                splitter = self._splitter = _Splitter(content, self._is_sflow, self.name)
                self._head = content[:MOST_HEAD]
            behind, batch = splitter.split(content, is_last=got == 0)
            if batch is not None and len(batch.datagrams):
                yield batch
            content = content[behind:]
            if got == 0:
                if content or stream.ended_early or splitter.is_cut:
                    self._counters.truncated_files += 1
                    self._counters.warn(f"{self.name}: the file ends inside a record; what came before counts")
                return

    def _check_exports(self, found: int) -> None:
        """Raise if the input, read to its end, is not empty and had none of the exports that are wanted."""
        splitter = self._splitter
        if found or splitter is None or not splitter.frames:
            return
        kind, format = _KINDS[self._is_sflow], self._format
        head, compression = self._head, self._stream.compression
        if not splitter.is_capture:
            file = "" if self.name == "stdin" or is_url(self.name) else self.name
            raise InputError(not_exports(head, kind, format, file, compression), file=self.name)
        text = f"none of its {splitter.frames:,} packets is an export of {kind}"
        if splitter.frames == 1:
            text = f"its only packet is no export of {kind}"
        way = f"without {setting('format', format)} its packets are traffic"
        other = exports_in(head)
        if other is not None and (other == SFLOW) != self._is_sflow:
            way = f"{setting('format', other)} reads its exports"
        raise InputError(f"{text}; {way}", file=self.name)

    def _tell(self, status: dict[str, Any]) -> None:
        if waiting := status["sets_waiting"] + status["sets_without_template"]:
            way = "give the file that has the templates, too"
            lost = counted(
                waiting, "set of records without its template is", "sets of records without their template are"
            )
            self._counters.warn(f"{self.name}: {lost} not counted; {way}")


class _Splitter:
    def __init__(self, head: bytes, is_sflow: bool, name: str) -> None:
        self._is_sflow, self._name = is_sflow, name
        kinds = (kind for kind in CAPTURES if kind.recognises(head))
        kind = next(kinds, None)
        self._records = None if kind is None else kind(head)
        self.is_capture = kind is not None
        self.is_cut = False  # a file of datagrams ends inside one
        self.frames = 0  # of a capture that are not empty; of other files, datagrams
        self._begins = 0 if self._records is None else self._records.begins
        self._offset = 0

    def split(self, content: bytes, *, is_last: bool) -> tuple[int, Batch | None]:
        begins, self._begins = self._begins, 0
        if self._records is None:
            places = list(datagrams_of(content, is_sflow=self._is_sflow, is_last=is_last))
            datagrams = np.zeros((len(places), DATAGRAM_SLOTS), np.int64)
            if places:
                datagrams[:, [START, END]] = places
            self.frames += len(places)
            if is_last and places:
                self.is_cut = is_cut(content, places[-1][0], is_sflow=self._is_sflow)
            behind = places[-1][1] if places else 0
            return behind, Batch(as_block(content), datagrams, np.zeros((len(places), 2), np.uint64))
        try:
            rows = list(self._records.records(content, begins))
        except ValueError as error:
            raise InputError(str(error), file=self._name, offset=self._offset) from None
        behind = rows[-1][4] if rows else begins
        self._offset += behind
        self.frames += sum(start < end for start, end, *_ in rows)
        if not rows:
            return behind, None
        datagrams, peers = np.zeros((len(rows), DATAGRAM_SLOTS), np.int64), np.zeros((len(rows), 2), np.uint64)
        block = as_block(content)
        frames = [(start, end, link_of(link), time) for start, end, link, time, _ in rows]
        found = find_payloads(block, np.array(frames, np.int64), datagrams, peers)
        return behind, Batch(block, datagrams[:found], peers[:found])


@compiled
def find_payloads(block: Bytes, records: Rows, datagrams: Rows, peers: NDArray[np.uint64]) -> int:
    """Write where the UDP payloads of frames are, and who sent them; return how many there are.

    Fragments are left out: an export that does not fit into a packet is rare, and what is left of it makes no sense.
    """
    count = 0
    for row in range(len(records)):
        start, end, link = records[row, 0], records[row, 1], records[row, 2]
        at = ip_header(block, start, end, link)
        if at < 0:
            continue
        if is_ipv4(block, at):
            behind, protocol = at + (byte(block, at) & 15) * 4, byte(block, at + 9)
            last = at + half(block, at + 2)
            is_whole = half(block, at + 6) & 0x3FFF == 0
            high, low = np.uint64(0), np.uint64(0xFFFF) << np.uint64(32) | np.uint64(big(block, at + 12))
        else:
            behind, protocol = at + 40, byte(block, at + 6)
            last = at + 40 + half(block, at + 4)
            is_whole = True
            high, low = wide(block, at + 8), wide(block, at + 16)
        last = min(last, end)
        if protocol != _UDP or not is_whole or last - behind < 8:
            continue
        length = half(block, behind + 4)
        if length >= 8:
            last = min(last, behind + length)
        datagrams[count, START], datagrams[count, END] = behind + 8, last
        datagrams[count, RECEIVED] = records[row, 3]
        peers[count, 0], peers[count, 1] = high, low
        count += 1
    return count
