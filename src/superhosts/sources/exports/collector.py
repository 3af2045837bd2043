"""From batches of datagrams to blocks of packets.

The compiled walks read almost everything. What they leave is done here: new templates, options, records that wait for
their template. Then the walk goes on behind it.
"""

from __future__ import annotations

import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from superhosts.core.pairs import PacketBatch, PacketBlock
from superhosts.core.profile import measured
from superhosts.core.text import setting
from superhosts.errors import UsageError
from superhosts.sources.base import PLAIN, SourceCounters, Wants
from superhosts.sources.exports import layout
from superhosts.sources.exports.containers import LONGEST
from superhosts.sources.exports.layout import Bytes, Rows, Words, add_records
from superhosts.sources.exports.registry import (
    ESTABLISHED,
    LIMITS,
    BadTemplateError,
    Limits,
    Registry,
    StreamKey,
    Template,
    read_options,
    read_templates,
)
from superhosts.sources.exports.walks import IPFIX_HEADER, V9_HEADER, walk_exports
from superhosts.sources.frames.columns import block_of, copied, first_rows, new_columns, wants_of
from superhosts.sources.frames.links import link_of

BLOCK_ROWS = 65_536  # of a family in a block, from which on it is handed out
SHOWN_EXPORTERS = 100
# The link types of the capture formats for the header protocols of sFlow.
_LINKS = {1: 1, 5: 107, 7: 9, 11: 101, 12: 101, 13: 219}
BURST = 500_000  # bytes of templates of all new exporters together
RATE = 50_000  # bytes of them in a second
BURST_EACH = 65_536  # bytes of templates of one exporter that is established
RATE_EACH = 2_000
MOST_NAMES = 4096
MOST_HELD = 16 << 20  # bytes of sets of records that wait for their template
MOST_HELD_EACH = 2 << 20  # of one template
_BESIDES = 200  # bytes that Python takes for each


class Batch(NamedTuple):
    block: Bytes
    datagrams: Rows
    peers: Words  # (n, 2): IPv6 addresses, IPv4 ones mapped; 0 in files of datagrams


Pool = dict[StreamKey, dict[int, Template]]  # templates that inputs of one run know of each other


class Settings(NamedTuple):
    is_sflow: bool = False
    time: str = "start"  # "start", "end", "export" or "received"
    wants: Wants = PLAIN
    is_live: bool = False  # from the network: anybody may send anything
    limits: Limits = LIMITS


class Collector:
    def __init__(self, counters: SourceCounters, settings: Settings, pool: Pool | None = None) -> None:
        self.registry = Registry(settings.time if settings.time in ("start", "end") else None, settings.limits)
        self.held = Held()
        self.dropped = 0  # datagrams that the kernel had no room for
        self._counters, self.settings, self._pool = counters, settings, pool
        rows = BLOCK_ROWS + LONGEST // layout.SHORTEST_RECORD + 1
        self._room = new_columns(rows, rows, settings.wants)
        self._tally = np.zeros(layout.TALLY_SLOTS, np.int64)
        self._tally[layout.WANTS] = wants_of(settings.wants)
        self._totals = np.zeros(layout.TALLY_SLOTS, np.int64)
        self._bad_templates = self._refused = 0
        self.budget = Budget()
        self._links = np.array([link_of(_LINKS.get(protocol, -1)) for protocol in range(16)], np.int64)

    def feed(self, batch: Batch) -> Iterator[PacketBlock]:
        """Read datagrams; yield blocks whenever one is full. `take` returns the rest.

        If packets are grouped, all of the batch is one block, so that no window closes between its exporters.
        """
        if not self.settings.wants.group:
            yield from self._feed(batch)
            return
        whole: list[PacketBatch] = []
        senders, numbers = np.unique(batch.peers, axis=0, return_inverse=True)
        for number, (high, low) in enumerate(senders.tolist()):
            if not high | low:
                raise UsageError(
                    f"{setting('group_by', 'exporter')}: nobody knows who has sent the datagrams of a file"
                )
            rows = numbers.reshape(-1) == number
            name = StreamKey(high << 64 | low, 0, 0).shown
            for block in [*self._feed(Batch(batch.block, batch.datagrams[rows], batch.peers[rows])), self.take()]:
                whole += [replace(each, group=name) for each in block]
        yield tuple(whole)

    def _feed(self, batch: Batch) -> Iterator[PacketBlock]:
        self._tally[layout.DATAGRAM] = self._tally[layout.AT] = 0
        while True:
            with measured("walk") as work:
                before = int(self._tally[layout.ROWS4] + self._tally[layout.ROWS6])
                reason = self._walk(batch)
                work.amount += int(self._tally[layout.ROWS4] + self._tally[layout.ROWS6]) - before
            if reason == layout.DONE:
                return
            if reason == layout.ROOM:
                yield self.take()
            elif reason == layout.FULL:
                self.registry.make_room()
            else:
                yield from self._handle(batch, reason)
                self._tally[layout.AT] = self._tally[layout.SET_END]

    def take(self) -> PacketBlock:
        tally = self._tally
        narrow, wide = int(tally[layout.ROWS4]), int(tally[layout.ROWS6])
        block = block_of(copied(first_rows(self._room, narrow, wide)), details=self.settings.wants.details)
        counters = self._counters
        counters.not_ip += int(tally[layout.NOT_IP])
        counters.truncated += int(tally[layout.TRUNCATED])
        counters.unsupported_link += int(tally[layout.UNSUPPORTED])
        counters.packets += int(
            tally[layout.NOT_IP] + tally[layout.TRUNCATED] + tally[layout.UNSUPPORTED] - tally[layout.SECOND_ROWS]
        )
        counters.records += int(tally[layout.RECORDS])
        self._totals += tally
        tally[layout.FIRST_COUNT : layout.CLOCK] = 0
        return block

    def status(self, name: str) -> dict[str, Any]:
        totals = self._totals.tolist()
        lost_records, lost_datagrams, restarts = self.registry.losses()
        return {
            "input": name,
            "datagrams": totals[layout.DATAGRAMS],
            "sampling": self.registry.rate() or None,
            "lost_records": lost_records,
            "lost_datagrams": lost_datagrams,
            "kernel_drops": self.dropped,
            "restarts": restarts,
            "other_datagrams": totals[layout.UNKNOWN_VERSION],
            "damaged": totals[layout.BAD] + totals[layout.DAMAGED],
            "wrong_times": totals[layout.WRONG_TIMES],
            "bad_templates": self._bad_templates,
            "refused_templates": self._refused,
            "sets_waiting": len(self.held),
            "sets_without_template": self.held.given_up,
            "given_up": self.registry.given_up,
            "exporters": list(self.registry.exporters(SHOWN_EXPORTERS)),
        }

    def _walk(self, batch: Batch) -> int:
        tables, room, tally = self.registry.tables, self._room, self._tally
        is_sflow, by_arrival = self.settings.is_sflow, self.settings.time == "received"
        return walk_exports(*batch, self._links, tables, room, tally, is_sflow, by_arrival)

    def _handle(self, batch: Batch, reason: int) -> Iterator[PacketBlock]:
        """Do what the walk leaves to Python, for the set at which it has stopped."""
        tally = self._tally
        at, end, stream = int(tally[layout.AT]), int(tally[layout.SET_END]), int(tally[layout.STREAM])
        content = batch.block[at + 4 : end].tobytes()
        kind = int(batch.block[at]) << 8 | int(batch.block[at + 1])
        if reason == layout.TEMPLATES and not self._may_learn(stream, len(content)):
            self._refused += 1
        elif reason == layout.TEMPLATES:
            for template in self._learn(stream, content, kind):
                yield from self._replay(stream, template)
        elif reason == layout.OPTIONS:
            self._note_options(stream, content, self.registry.templates[stream, kind])
        else:
            others = {} if self._pool is None else self._pool.get(self.registry.key_of(stream), {})
            if kind in others and self.registry.learn(stream, others[kind]):
                tally[layout.SET_END] = at  # another input of the run knew the template: read the set
            else:
                self._hold(batch, stream, kind, (at, end))

    def _may_learn(self, stream: int, size: int) -> bool:
        """Return True unless an exporter from the network sends more new templates than there is time for."""
        if not self.settings.is_live:
            return True
        is_established = int(self.registry.tables.streams[stream, layout.STREAM_DATAGRAMS]) >= ESTABLISHED
        return self.budget.allows(self.registry.key_of(stream), size, is_established=is_established)

    def _learn(self, stream: int, content: bytes, kind: int) -> list[Template]:
        found = []
        try:
            for template in read_templates(content, kind):
                if not template.fields:
                    self.registry.withdraw(stream, template)
                elif self.registry.learn(stream, template):
                    found.append(template)
                    if self._pool is not None:
                        self._pool.setdefault(self.registry.key_of(stream), {})[template.number] = template
        except BadTemplateError:
            self._bad_templates += 1
        return found

    def _note_options(self, stream: int, content: bytes, template: Template) -> None:
        count = 0
        for options in read_options(content, template):
            count += 1
            if options.rate:
                self.registry.note_rate(stream, options.sampler, options.rate)
            if options.boot:
                self.registry.tables.streams[stream, layout.BOOT] = options.boot
        if self.registry.key_of(stream).version == 10:
            add_records(self.registry.tables.streams, stream, count, layout.OWN_OPTIONS)

    def _hold(self, batch: Batch, stream: int, number: int, place: tuple[int, int]) -> None:
        row = batch.datagrams[self._tally[layout.DATAGRAM]]
        key = self.registry.key_of(stream)
        start, header = int(row[layout.START]), IPFIX_HEADER if key.version == 10 else V9_HEADER
        content = batch.block[start : start + header].tobytes() + batch.block[place[0] : place[1]].tobytes()
        if key.version == 10:
            content = content[:2] + len(content).to_bytes(2, "big") + content[4:]
            self.registry.tables.streams[stream, layout.IN_STEP] = (
                layout.UNKNOWN_STEP
            )  # nobody knows how many records it has
        self.held.add((key, number), HeldSet(content, int(row[layout.RECEIVED])))

    def _replay(self, stream: int, template: Template) -> Iterator[PacketBlock]:
        key = self.registry.key_of(stream)
        waiting = self.held.take((key, template.number))
        if not waiting:
            return
        place = self._tally[: layout.FIRST_COUNT].copy()
        yield from self._feed(_as_batch(waiting, key.address))
        self._tally[: layout.FIRST_COUNT] = place


def _as_batch(waiting: list[HeldSet], address: int) -> Batch:
    ends = np.cumsum([len(held.content) for held in waiting])
    datagrams = np.ones((len(waiting), layout.DATAGRAM_SLOTS), np.int64)
    datagrams[:, 0], datagrams[:, 1] = ends - [len(held.content) for held in waiting], ends
    datagrams[:, layout.RECEIVED] = [held.received for held in waiting]
    peers = np.empty((len(waiting), 2), np.uint64)
    peers[:] = address >> 64, address & (1 << 64) - 1
    return Batch(as_block(b"".join(held.content for held in waiting)), datagrams, peers)


def as_block(content: bytes) -> Bytes:
    """Return bytes as an array. It can be written, as all blocks can: the loops are compiled for one kind of array."""
    return np.frombuffer(bytearray(content), np.uint8)


def made_up_batch() -> Batch:
    """Return a datagram of IPFIX with a template, one of options, and a record of each: it uses all compiled loops."""
    templates = 2, 16, 256, 2, 8, 4, 12, 4, 3, 14, 257, 1, 1, 302, 4
    content = struct.pack("!HHIII15HHHIHHII", 10, 66, 0, 0, 0, *templates, 257, 8, 0, 256, 12, 1 << 24, 2 << 24)
    return _as_batch([HeldSet(content, 0)], 1)


class Budget:
    """How much work exporters may cause with new templates.

    Templates are read in Python, far more slowly than records. A template that is known costs nothing, so an exporter
    that means well needs a budget only when it starts. One that sends ever new templates is refused when its own is
    spent; those that were never heard of before share one, because a source address can be forged.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[Hashable, tuple[float, float]] = {}  # bytes, and since when; None: of all new exporters

    def allows(self, name: Hashable, amount: int, *, is_established: bool) -> bool:
        name, burst, rate = (name, BURST_EACH, RATE_EACH) if is_established else (None, BURST, RATE)
        if name not in self._left and len(self._left) > MOST_NAMES:
            del self._left[next(filter(None, self._left))]
        now = self._clock()
        left, then = self._left.get(name, (burst, now))
        left = min(burst, left + (now - then) * rate)
        is_allowed = left >= amount
        self._left[name] = left - amount * is_allowed, now
        return is_allowed


class HeldSet(NamedTuple):
    """The header of a datagram and one of its sets, which is a datagram again, and when it was received."""

    content: bytes
    received: int


Key = tuple[StreamKey, int]  # and the number of the template


class Held:
    """Sets of records that came before their template and wait for it; the oldest are given up first."""

    def __init__(self, most: int = MOST_HELD, each: int = MOST_HELD_EACH) -> None:
        self.given_up = 0
        self._most, self._each = most, each
        self._sets: OrderedDict[Key, deque[HeldSet]] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._sets.values()))

    def add(self, key: Key, held: HeldSet) -> None:
        size = len(held.content) + _BESIDES
        self._sets.setdefault(key, deque()).append(held)
        self._sizes[key] = self._sizes.get(key, 0) + size
        self._bytes += size
        while self._sizes.get(key, 0) > self._each:
            self._drop(key)
        while self._bytes > self._most:
            self._drop(next(iter(self._sets)))

    def take(self, key: Key) -> list[HeldSet]:
        self._bytes -= self._sizes.pop(key, 0)
        return list(self._sets.pop(key, ()))

    def _drop(self, key: Key) -> None:
        waiting = self._sets[key]
        size = len(waiting.popleft().content) + _BESIDES
        self._sizes[key] -= size
        self._bytes -= size
        self.given_up += 1
        if not waiting:
            del self._sets[key], self._sizes[key]
