"""From batches of datagrams to blocks of packets.

The compiled walks read almost everything. What they leave is done here: new templates, options, records that wait for
their template. Then the walk goes on behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import PacketBlock
from superhosts.core.profile import measured
from superhosts.sources.base import PLAIN, SourceCounters, Wants
from superhosts.sources.exports.budget import Budget
from superhosts.sources.exports.held import Held, HeldSet
from superhosts.sources.exports.layout import (
    AT,
    BAD,
    BOOT,
    CLOCK,
    DAMAGED,
    DATAGRAM,
    DATAGRAM_SLOTS,
    DATAGRAMS,
    DONE,
    FIRST_COUNT,
    FULL,
    IN_STEP,
    LONGEST,
    NOT_IP,
    OPTIONS,
    OWN_OPTIONS,
    RECEIVED,
    RECORDS,
    ROOM,
    ROWS4,
    ROWS6,
    SECOND_ROWS,
    SET_END,
    SHORTEST_RECORD,
    START,
    STREAM,
    STREAM_DATAGRAMS,
    TALLY_SLOTS,
    TEMPLATES,
    TRUNCATED,
    UNKNOWN_VERSION,
    UNSUPPORTED,
    WANTS,
    WRONG_TIMES,
    Bytes,
    Rows,
)
from superhosts.sources.exports.netflow_walk import IPFIX_HEADER, V9_HEADER, walk_netflow
from superhosts.sources.exports.registry import ESTABLISHED, LIMITS, Limits, Registry, StreamKey
from superhosts.sources.exports.sequence import UNKNOWN_STEP, add_records
from superhosts.sources.exports.sflow_walk import walk_sflow
from superhosts.sources.exports.templates import BadTemplateError, Template, read_options, read_templates
from superhosts.sources.frames.columns import block_of, copied, first_rows, new_columns, wants_of
from superhosts.sources.frames.links import link_of

BLOCK_ROWS = 65_536  # of a family in a block, from which on it is handed out
SHOWN_EXPORTERS = 100
# The link types of the capture formats for the header protocols of sFlow.
_LINKS = {1: 1, 5: 107, 7: 9, 11: 101, 12: 101, 13: 219}


class Batch(NamedTuple):
    """Datagrams: their bytes, where each of them is, and who sent it."""

    block: Bytes
    datagrams: Rows
    peers: NDArray[np.uint64]  # (n, 2): IPv6 addresses, IPv4 ones mapped; 0 in files of datagrams


Pool = dict[StreamKey, dict[int, Template]]  # templates that inputs of one run know of each other


class Manner(NamedTuple):
    """How exports are read."""

    is_sflow: bool = False
    time: str = "start"  # "start", "end", "export" or "received"
    wants: Wants = PLAIN
    is_live: bool = False  # from the network: anybody may send anything
    limits: Limits = LIMITS


class Collector:
    """Reads the datagrams of one input."""

    def __init__(self, counters: SourceCounters, manner: Manner, pool: Pool | None = None) -> None:
        self.registry = Registry(manner.time if manner.time in ("start", "end") else None, manner.limits)
        self.held = Held()
        self.dropped = 0  # datagrams that the kernel had no room for
        self._counters, self._manner, self._pool = counters, manner, pool
        rows = BLOCK_ROWS + LONGEST // SHORTEST_RECORD + 1
        self._room = new_columns(rows, rows, manner.wants.details)
        self._tally = np.zeros(TALLY_SLOTS, np.int64)
        self._tally[WANTS] = wants_of(manner.wants)
        self._totals = np.zeros(TALLY_SLOTS, np.int64)
        self._bad_templates = self._refused = 0
        self.budget = Budget()
        self._links = np.array([_link(protocol) for protocol in range(16)], np.int64)

    def feed(self, batch: Batch) -> Iterator[PacketBlock]:
        """Read datagrams; yield blocks whenever one is full. `take` returns the rest."""
        self._tally[DATAGRAM] = self._tally[AT] = 0
        while True:
            with measured("walk") as work:
                before = int(self._tally[ROWS4] + self._tally[ROWS6])
                reason = self._walk(batch)
                work.amount += int(self._tally[ROWS4] + self._tally[ROWS6]) - before
            if reason == DONE:
                return
            if reason == ROOM:
                yield self.take()
            elif reason == FULL:
                self.registry.make_room()
            else:
                yield from self._handle(batch, reason)
                self._tally[AT] = self._tally[SET_END]

    def take(self) -> PacketBlock:
        """Return the packets that were read since the last call, and count them."""
        tally = self._tally
        narrow, wide = int(tally[ROWS4]), int(tally[ROWS6])
        block = block_of(copied(first_rows(self._room, narrow, wide)), details=self._manner.wants.details)
        counters = self._counters
        counters.ipv4 += narrow
        counters.ipv6 += wide
        counters.not_ip += int(tally[NOT_IP])
        counters.truncated += int(tally[TRUNCATED])
        counters.unsupported_link += int(tally[UNSUPPORTED])
        others = int(tally[NOT_IP] + tally[TRUNCATED] + tally[UNSUPPORTED] - tally[SECOND_ROWS])
        counters.packets += narrow + wide + others
        counters.records += int(tally[RECORDS])
        self._totals += tally
        tally[FIRST_COUNT:CLOCK] = 0
        return block

    def status(self, name: str) -> dict[str, Any]:
        """Return what is known of the datagrams so far, and of those who sent them."""
        totals = self._totals.tolist()
        lost, restarts = self.registry.losses()
        return {
            "input": name,
            "datagrams": totals[DATAGRAMS],
            "sampling": self.registry.rate() or None,
            "lost_records": lost["records"],
            "lost_datagrams": lost["datagrams"],
            "kernel_drops": self.dropped,
            "restarts": restarts,
            "other_datagrams": totals[UNKNOWN_VERSION],
            "damaged": totals[BAD] + totals[DAMAGED],
            "wrong_times": totals[WRONG_TIMES],
            "bad_templates": self._bad_templates,
            "refused_templates": self._refused,
            "sets_waiting": len(self.held),
            "sets_without_template": self.held.given_up,
            "given_up": self.registry.given_up,
            "exporters": list(self.registry.exporters(SHOWN_EXPORTERS)),
        }

    def _walk(self, batch: Batch) -> int:
        tables, room, tally = self.registry.tables, self._room, self._tally
        if self._manner.is_sflow:
            return walk_sflow(batch.block, batch.datagrams, self._links, tables, room, tally)
        arrival = int(self._manner.time == "received")
        return walk_netflow(batch.block, batch.datagrams, batch.peers, tables, room, tally, arrival)

    def _handle(self, batch: Batch, reason: int) -> Iterator[PacketBlock]:
        """Do what the walk leaves to Python, for the set at which it has stopped."""
        tally = self._tally
        at, end, stream = int(tally[AT]), int(tally[SET_END]), int(tally[STREAM])
        content = batch.block[at + 4 : end].tobytes()
        kind = int(batch.block[at]) << 8 | int(batch.block[at + 1])
        if reason == TEMPLATES and not self._may_learn(stream, len(content)):
            self._refused += 1
        elif reason == TEMPLATES:
            for template in self._learn(stream, content, kind):
                yield from self._replay(stream, template)
        elif reason == OPTIONS:
            self._note_options(stream, content, self.registry.templates[stream, kind])
        elif not self._borrow(stream, kind):
            self._hold(batch, stream, kind, (at, end))
        else:
            tally[SET_END] = at  # the template is known now: read the set

    def _may_learn(self, stream: int, size: int) -> bool:
        """Return True unless an exporter from the network sends more new templates than there is time for."""
        if not self._manner.is_live:
            return True
        is_established = int(self.registry.tables.streams[stream, STREAM_DATAGRAMS]) >= ESTABLISHED
        return self.budget.allows(self.registry.key_of(stream), size, is_established=is_established)

    def _learn(self, stream: int, content: bytes, kind: int) -> list[Template]:
        """Take the templates of a set; return those that are new."""
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

    def _borrow(self, stream: int, number: int) -> bool:
        """Take a template that another input of the run knows; return False if none does."""
        known = None if self._pool is None else self._pool.get(self.registry.key_of(stream), {}).get(number)
        return known is not None and self.registry.learn(stream, known)

    def _note_options(self, stream: int, content: bytes, template: Template) -> None:
        count = 0
        for options in read_options(content, template):
            count += 1
            if options.rate:
                self.registry.note_rate(stream, options.sampler, options.rate)
            if options.boot:
                self.registry.tables.streams[stream, BOOT] = options.boot
        if self.registry.key_of(stream).version == 10:
            add_records(self.registry.tables.streams, stream, count, OWN_OPTIONS)

    def _hold(self, batch: Batch, stream: int, number: int, place: tuple[int, int]) -> None:
        """Keep a set until its template comes."""
        row = batch.datagrams[self._tally[DATAGRAM]]
        key = self.registry.key_of(stream)
        start, header = int(row[START]), IPFIX_HEADER if key.version == 10 else V9_HEADER
        content = batch.block[start : start + header].tobytes() + batch.block[place[0] : place[1]].tobytes()
        if key.version == 10:
            content = content[:2] + len(content).to_bytes(2, "big") + content[4:]
            self.registry.tables.streams[stream, IN_STEP] = UNKNOWN_STEP  # nobody knows how many records it has
        self.held.add((key, number), HeldSet(content, int(row[RECEIVED])))

    def _replay(self, stream: int, template: Template) -> Iterator[PacketBlock]:
        """Read the sets that have waited for a template."""
        key = self.registry.key_of(stream)
        waiting = self.held.take((key, template.number))
        if not waiting:
            return
        place = self._tally[:FIRST_COUNT].copy()
        yield from self.feed(_as_batch(waiting, key.address))
        self._tally[:FIRST_COUNT] = place


def _as_batch(waiting: list[HeldSet], address: int) -> Batch:
    ends = np.cumsum([len(held.content) for held in waiting])
    datagrams = np.ones((len(waiting), DATAGRAM_SLOTS), np.int64)
    datagrams[:, 0], datagrams[:, 1] = ends - [len(held.content) for held in waiting], ends
    datagrams[:, RECEIVED] = [held.received for held in waiting]
    peers = np.empty((len(waiting), 2), np.uint64)
    peers[:] = address >> 64, address & (1 << 64) - 1
    return Batch(as_block(b"".join(held.content for held in waiting)), datagrams, peers)


def as_block(content: bytes) -> Bytes:
    """Return bytes as an array. It can be written, as all blocks can: the loops are compiled for one kind of array."""
    return np.frombuffer(bytearray(content), np.uint8)


def empty_batch() -> Batch:
    """Return a batch without datagrams: reading it loads the compiled loops before the first datagram comes."""
    return Batch(as_block(b"\0"), np.zeros((0, DATAGRAM_SLOTS), np.int64), np.zeros((0, 2), np.uint64))


def _link(protocol: int) -> int:
    """Return how frames of a header protocol of sFlow start."""
    return link_of(_LINKS.get(protocol, -1))
