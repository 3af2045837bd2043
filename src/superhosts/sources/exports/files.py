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
from superhosts.core.pairs import UDP, PacketBlock
from superhosts.core.text import counted, setting
from superhosts.errors import InputError
from superhosts.jit.cache import compiled
from superhosts.sources.base import SourceCounters, Wants
from superhosts.sources.capture import CaptureReader, format_of
from superhosts.sources.exports.collector import Batch, Collector, Pool, Settings, as_block
from superhosts.sources.exports.containers import datagrams_of, exports_in, recognise_exports
from superhosts.sources.exports.layout import DATAGRAM_SLOTS, END, RECEIVED, START, Bytes, Rows
from superhosts.sources.files import is_url
from superhosts.sources.frames.headers import is_ipv4, packet_end, payload
from superhosts.sources.frames.links import big, half, ip_header, wide
from superhosts.sources.input import MOST_HEAD, FileFormat, Input, Opens, Reader, read_head

BLOCK_BYTES = 1 << 20
BLOCK_FRAMES = 16_384
FILE_TIME = {"record": "start"}
SFLOW = "sflow"
_KINDS = ("NetFlow v5, v9 or IPFIX", "sFlow v5")  # by is_sflow
_LEAST = 28  # bytes by which captures and files of datagrams are told apart


def export_files(format: str, time: str, pool: Pool) -> FileFormat:
    """Return the format of files with these exports, whose readers know the templates of a pool."""
    settings = Settings(is_sflow=format == SFLOW, time=FILE_TIME.get(time, time))

    def open(file: Opens, counters: SourceCounters, wants: Wants) -> ExportReader:
        return ExportReader(file, Collector(counters, settings._replace(wants=wants), pool), counters, format)

    return FileFormat(lambda head: recognise_exports(head) == format, open, groups=("exporter",))


class ExportReader(Reader):
    def __init__(self, file: Opens, collector: Collector, counters: SourceCounters, format: str) -> None:
        self.name = file.name
        self.opening: int | None = None
        self._format, self._is_sflow = format, format == SFLOW
        self._collector, self._counters = collector, counters
        # Nothing waits for more records in a pipe, or where the first ones are enough.
        self._at_once = collector.settings.wants.first_only or not isinstance(file, Input) or file.live
        self._frames = 0  # of a capture that are not empty; of other files, datagrams
        counters.exports = [{"input": self.name, "sampling": None}]
        self._stream = file.open()
        self._head = b""
        self._is_capture = False
        self._blocks = self._packets()

    def read(self) -> PacketBlock | None:
        return next(self._blocks, None)

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
        self._head = read_head(self._stream, MOST_HEAD, lambda head: len(head) >= _LEAST)
        self._stream.unread(self._head)
        self._is_capture = format_of(self._head) is not None
        return self._captured() if self._is_capture else self._cut()

    def _captured(self) -> Iterator[Batch]:
        reader = CaptureReader(self.name, self._stream, self._counters, BLOCK_BYTES, BLOCK_FRAMES)
        rows = np.zeros((BLOCK_FRAMES, 4), np.int64)
        while (found := reader.list_frames(rows)) is not None:
            block, frames = found
            self._frames += int((frames[:, 0] < frames[:, 1]).sum())
            datagrams, peers = np.zeros((len(frames), DATAGRAM_SLOTS), np.int64), np.zeros((len(frames), 2), np.uint64)
            if count := find_payloads(block, frames, datagrams, peers):
                yield Batch(block, datagrams[:count], peers[:count])

    def _cut(self) -> Iterator[Batch]:
        content, more, got = b"", bytearray(BLOCK_BYTES), 1
        while got:
            got = self._stream.readinto(memoryview(more))
            content += bytes(more[:got])
            places = list(datagrams_of(content, is_sflow=self._is_sflow, is_last=got == 0))
            if places:
                self._frames += len(places)
                datagrams = np.zeros((len(places), DATAGRAM_SLOTS), np.int64)
                datagrams[:, [START, END]] = [place[:2] for place in places]
                yield Batch(as_block(content), datagrams, np.zeros((len(places), 2), np.uint64))
            _, behind, is_cut = places[-1] if places else (0, 0, False)
            if not got and (content[behind:] or self._stream.ended_early or is_cut):
                self._counters.truncated_files += 1
                self._counters.warn(f"{self.name}: the file ends inside a record; what came before counts")
            content = content[behind:]

    def _check_exports(self, found: int) -> None:
        """Raise if the input, read to its end, is not empty and had none of the exports that are wanted."""
        if found or not self._frames:
            return
        kind, format = _KINDS[self._is_sflow], self._format
        head, compression = self._head, self._stream.compression
        if not self._is_capture:
            file = "" if self.name == "stdin" or is_url(self.name) else self.name
            raise InputError(not_exports(head, kind, format, file, compression), file=self.name)
        text = f"none of its {self._frames:,} packets is an export of {kind}"
        if self._frames == 1:
            text = f"its only packet is not an export of {kind}"
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
        last = packet_end(block, at, end)
        protocol, behind = payload(block, at, last)
        is_narrow = is_ipv4(block, at)
        if protocol != UDP or not behind or last - behind < 8 or (is_narrow and half(block, at + 6) & 0x2000):
            continue
        length = half(block, behind + 4)
        if length >= 8:
            last = min(last, behind + length)
        datagrams[count, START], datagrams[count, END] = behind + 8, last
        datagrams[count, RECEIVED] = records[row, 3]
        if is_narrow:
            peers[count, 0], peers[count, 1] = 0, np.uint64(0xFFFF) << np.uint64(32) | np.uint64(big(block, at + 12))
        else:
            peers[count, 0], peers[count, 1] = wide(block, at + 8), wide(block, at + 16)
        count += 1
    return count
