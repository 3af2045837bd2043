"""Flow exports from the network: netflow:// and sflow://.

A thread for each socket receives, and what it has received waits in a queue of bounded memory. The thread that reads
the source decodes it, everything that waits at once, so that blocks are large when there is much to do.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from superhosts.core.pairs import PacketBlock
from superhosts.sources.base import Source, SourceCounters, Wants
from superhosts.sources.exports.collector import Batch, Collector, Manner, empty_batch
from superhosts.sources.exports.listening import Listening, parse_listening
from superhosts.sources.exports.receiving import DROPPED, IDLE, new_batch, new_stage, open_sockets, receive
from superhosts.sources.exports.state import TemplateFile

MOST_WAITING = 128  # batches of 1 MiB that wait to be decoded
STATUS_PAUSE = 0.5  # seconds between two looks at all exporters
LINGER = 0.5  # seconds after a stop in which what has come is still read
LONGEST_WAIT = 0.2  # seconds for which records wait for others in their block
LIVE_TIME = {"record": "received"}  # a flow is reported after it has ended: windows do not wait for it


@dataclass
class _Reception:
    """What the threads of the sockets share with the one that decodes."""

    batches: queue.Queue[Batch]
    stopped: threading.Event
    quiet: list[bool]  # by socket: nothing has come for a moment
    dropped: list[int]  # by socket


class UdpSource(Source):
    """Exports that are received on a port."""

    live = True
    replays = False

    def __init__(self, name: str, listening: Listening) -> None:
        self.name = name
        self.counters = SourceCounters()
        self._listening = listening
        self._manner = Manner(is_sflow=listening.scheme == "sflow", time="received", is_live=True)
        self._sockets = open_sockets(listening, name)
        count = len(self._sockets)
        self._reception = _Reception(queue.Queue(MOST_WAITING), threading.Event(), [False] * count, [0] * count)
        self._collector: Collector | None = None
        self._templates: TemplateFile | None = None
        self._blocks: Iterator[PacketBlock] | None = None
        self._threads: list[threading.Thread] = []
        self._first: PacketBlock = ()
        self._bytes = 0
        self._waits = False
        self._looked = 0.0
        self.counters.exports = [{"input": name, "sampling": None}]

    def choose_time(self, which: str) -> None:
        """Count records by this time."""
        self._manner = self._manner._replace(time=LIVE_TIME.get(which, which))

    def want(self, wants: Wants) -> None:
        """Take note of what is to be read besides addresses and times."""
        self._manner = self._manner._replace(wants=wants)

    def first_time(self) -> int | None:
        """Return the time of the first record, for which this waits; None if it was stopped before."""
        self._blocks = self._read()
        self._first = next(self._blocks, ())
        return min((batch.span[0] for batch in self._first if len(batch)), default=None)

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the records as they come."""
        if self._first:
            first, self._first = self._first, ()
            yield first
        yield from self._blocks or self._read()

    def position(self) -> int:
        """Bytes of datagrams read so far."""
        return self._bytes

    def size(self) -> int | None:
        """Return None: there is no end."""
        return None

    def waits(self) -> bool:
        """Return True if nothing has come for a moment, and everything that came was read."""
        return self._waits

    def stop(self) -> None:
        """End the reading soon."""
        self._reception.stopped.set()

    def leave(self) -> None:
        """Let the threads end; the one that reads closes the sockets and keeps the templates."""
        self._reception.stopped.set()

    def _read(self) -> Iterator[PacketBlock]:
        collector = self._collector = Collector(self.counters, self._manner)
        path = self._listening.state_file
        if path is not None:
            self._templates = TemplateFile(path, self.counters.warn)
            self._templates.load(collector.registry)
        threads = self._threads = [
            threading.Thread(target=self._receive, args=(number,), name=f"receive {self.name}", daemon=True)
            for number in range(len(self._sockets))
        ]
        for thread in threads:
            thread.start()
        try:
            yield from collector.feed(empty_batch())
            yield from self._decode(collector)
        finally:
            self._reception.stopped.set()
            for thread in threads:
                thread.join()
            for each in self._sockets:
                each.close()
            self._look(collector, now=True)
            self._waits = True

    def _decode(self, collector: Collector) -> Iterator[PacketBlock]:
        """Decode what was received; yield it when nothing more waits, or a block is full."""
        batches, has_rows, taken = self._reception.batches, False, time.monotonic()
        while True:
            if has_rows and time.monotonic() - taken > LONGEST_WAIT:
                self._look(collector)
                has_rows, taken = False, time.monotonic()
                yield collector.take()
            try:
                batch = batches.get(block=False) if has_rows else batches.get(timeout=IDLE)
            except queue.Empty:
                self._look(collector)
                if has_rows:
                    has_rows, taken = False, time.monotonic()
                    yield collector.take()
                elif self._reception.stopped.is_set() and not any(thread.is_alive() for thread in self._threads):
                    return
                else:
                    self._waits = all(self._reception.quiet) and batches.empty()
                continue
            self._waits = False
            has_rows = True
            self._bytes += int(batch.datagrams[-1, 1])
            yield from collector.feed(batch)

    def _look(self, collector: Collector, *, now: bool = False) -> None:
        """Keep new templates, and bring the status up to date."""
        collector.dropped = sum(self._reception.dropped)
        if self._templates is not None:
            self._templates.save(collector.registry, now=now)
        if now or time.monotonic() - self._looked >= STATUS_PAUSE:
            self._looked = time.monotonic()
            self.counters.exports = [collector.status(self.name)]

    def _receive(self, number: int) -> None:
        """Receive on one socket until the end."""
        reception, stage, file = self._reception, new_stage(), self._sockets[number].fileno()
        until = math.inf
        while True:
            is_last = reception.stopped.is_set()  # what is in the kernel's buffer is still read, but not for ever
            block, datagrams, peers = new_batch()
            count = receive(file, stage, block, datagrams, peers)
            until = min(until, time.monotonic() + LINGER) if is_last else until  # The first call may compile.
            reception.dropped[number] = int(stage.state[DROPPED])
            reception.quiet[number] = count == 0
            if count:
                _put(reception, Batch(block, datagrams[:count], peers[:count]))
            if is_last and (not count or time.monotonic() >= until):
                return


def _put(reception: _Reception, batch: Batch) -> None:
    """Hand a batch over; wait while too many wait already."""
    while True:
        try:
            reception.batches.put(batch, timeout=IDLE)
            return
        except queue.Full:
            if reception.stopped.is_set():
                return


def open_udp(text: str) -> Source:
    """Open a port by the name of the input."""
    return UdpSource(text, parse_listening(text))
