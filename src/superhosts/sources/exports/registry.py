"""What is known of exporters: their streams, templates and sampling rates, all of it bounded.

An exporter is an address. It has streams, one for each version and domain (source id, engine, sub-agent), because
templates and sequence numbers belong to a domain. A router sends from any port, so that the port says nothing. The
sampling rate belongs to the address: some exporters announce it under another domain than their flows.

If there are too many streams or templates, those that were used least recently are given up, and among streams those
first that have sent little: whoever forges source addresses sends few datagrams from each.
"""

from __future__ import annotations

import ipaddress
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from superhosts.sources.exports.elements import VERSION5, make_plan, option_plan
from superhosts.sources.exports.layout import (
    FIELDS,
    FIRST_FIELD,
    GONE,
    HASH,
    KIND,
    LOST,
    OWN_LOST,
    OWN_RESTARTS,
    OWNER,
    PLAN_SLOTS,
    PLAN_USED,
    RATE,
    RESTARTS,
    SCORE,
    STREAM_DATAGRAMS,
    STREAM_RECORDS,
    STREAM_SLOTS,
    TEMPLATE,
    USED,
    VARYING,
    VERSION,
    Rows,
    Tables,
)
from superhosts.sources.exports.lookup import index_plan, index_plans, index_streams
from superhosts.sources.exports.netflow_walk import V5_PLAN, template_hash
from superhosts.sources.exports.templates import Template

ESTABLISHED = 64  # datagrams after which a stream is given up later than others
MOST_SAMPLERS = 64  # of an exporter
_NAMES = {5: "NetFlow v5", 9: "NetFlow v9", 10: "IPFIX", 1: "sFlow v5"}


class Limits(NamedTuple):
    """How much is known at most."""

    streams: int = 4096
    templates: int = 8192  # of all streams
    templates_each: int = 512  # of one stream
    fields: int = 262_144  # of all templates with records of varying length


LIMITS = Limits()


class StreamKey(NamedTuple):
    """An exporter's address as an IPv6 address, the version of its format, and the domain."""

    address: int
    version: int
    domain: int

    @property
    def shown(self) -> str:
        """The address as people write it; empty for datagrams of a file."""
        return shown_address(self.address)


def shown_address(address: int) -> str:
    """Return an address of 128 bits as people write it, an IPv4 address as such; empty if it is 0."""
    if not address:
        return ""
    full = ipaddress.IPv6Address(address)
    return str(full.ipv4_mapped or full)


class Registry:
    """Streams and plans, in the arrays that the walks use, and templates as they were sent."""

    def __init__(self, times: str | None = "start", limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.templates: dict[tuple[int, int], Template] = {}  # by stream and number
        self.samplers: dict[int, dict[int, int]] = {}  # by address: sampler → rate
        self.given_up = 0  # streams and templates
        self.changed = False  # since somebody has looked
        self.lost = {"records": 0, "datagrams": 0}  # of streams that were given up
        self.restarts = 0
        self._times = times
        self._plans = 0  # rows in use
        self._fields = 0
        self._free: list[int] = []
        self._own: Counter[int] = Counter()  # templates of each stream
        self._rows: dict[tuple[int, int], int] = {}  # row of the plan, by stream and number
        streams, plans = limits.streams, limits.templates + 1
        self.tables = Tables(
            np.zeros((streams, 3), np.uint64),
            np.full(_power(2 * streams), -1, np.int32),
            np.zeros((streams, STREAM_SLOTS), np.int64),
            np.full(_power(2 * plans), -1, np.int32),
            np.zeros((plans, PLAN_SLOTS), np.int64),
            np.zeros((limits.fields, 2), np.int64),
            np.zeros(1, np.int64),
            np.frombuffer(os.urandom(16), np.uint64).copy(),
        )
        plan, _ = make_plan(VERSION5, times)
        plan[OWNER] = -1
        self.tables.plans[V5_PLAN] = plan
        self._plans = 1

    def key_of(self, stream: int) -> StreamKey:
        """Return the key of a stream."""
        high, low, domain = (int(word) for word in self.tables.stream_keys[stream])
        return StreamKey(high << 64 | low, domain >> 32, domain & 0xFFFFFFFF)

    def stream_of(self, key: StreamKey) -> int | None:
        """Return the number of a stream, a new one if it was never seen; None if there is no room."""
        streams = int(self.tables.used[0])
        words = np.array([key.address >> 64, key.address & (1 << 64) - 1, key.version << 32 | key.domain], np.uint64)
        found = np.flatnonzero((self.tables.stream_keys[:streams] == words).all(axis=1))
        if len(found):
            return int(found[0])
        if streams >= self.limits.streams:
            return None
        self.tables.stream_keys[streams] = words
        self.tables.streams[streams] = 0
        self.tables.streams[streams, VERSION] = key.version
        self.tables.used[0] += 1
        index_streams(self.tables)
        return streams

    def learn(self, stream: int, template: Template) -> bool:
        """Take a template in place of the one with its number; return True if it is new or has changed."""
        key = (stream, template.number)
        if self.templates.get(key) == template:
            return False
        self.changed = True
        if template.is_option:
            plan, fields = option_plan(), np.empty((0, 2), np.int64)
        else:
            plan, fields = make_plan(template.fields, self._times)
        if self._fields + len(fields) > self.limits.fields:
            self._compact_fields()
            if self._fields + len(fields) > self.limits.fields:
                self.given_up += 1
                return False
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self._new_row(stream)
            self._own[stream] += 1
        plan[OWNER], plan[TEMPLATE] = key
        content = np.frombuffer(bytearray(template.content), np.uint8)
        plan[HASH] = template_hash(content, 0, len(content))
        plan[PLAN_USED] = self.tables.streams[stream, USED]
        if len(fields):
            plan[FIRST_FIELD], plan[FIELDS] = self._fields, len(fields)
            self.tables.fields[self._fields : self._fields + len(fields)] = fields
            self._fields += len(fields)
        self.tables.plans[row] = plan
        self.templates[key] = template
        index_plan(self.tables, row)
        return True

    def withdraw(self, stream: int, template: Template) -> None:
        """Forget a template, or all of a kind if it has the number of a set."""
        every = template.number < 256
        for key in [key for key in self.templates if key[0] == stream and (every or key[1] == template.number)]:
            if not every or self.templates[key].kind == template.number:
                self._forget(key)
                self.changed = True

    def note_rate(self, stream: int, sampler: int, rate: int) -> None:
        """Take the sampling rate that an exporter announces."""
        samplers = self.samplers.setdefault(self.key_of(stream).address, {})
        if samplers.get(sampler) != rate and (sampler in samplers or len(samplers) < MOST_SAMPLERS):
            samplers[sampler] = rate
            self.changed = True
        while len(self.samplers) > self.limits.streams:
            self.samplers.pop(next(iter(self.samplers)))

    def row_of(self, key: tuple[int, int]) -> int:
        """Return the row of a template's plan."""
        return self._rows[key]

    def with_rates(self) -> list[int]:
        """Return one stream of each exporter that has announced its sampling rate."""
        first: dict[int, int] = {}
        for stream in range(int(self.tables.used[0])) if self.samplers else ():
            first.setdefault(self.key_of(stream).address, stream)
        return [stream for address, stream in first.items() if address in self.samplers]

    def rate_of(self, stream: int) -> int:
        """Return the sampling rate of a stream's exporter; 0 if it is not known."""
        announced = self.samplers.get(self.key_of(stream).address, {}).values()
        return max([int(self.tables.streams[stream, RATE]), *announced])

    def rate(self) -> int:
        """Return the highest sampling rate of all exporters; 0 if none is known."""
        streams = self.tables.streams[: self.tables.used[0], RATE]
        return max([int(streams.max(initial=0)), *(max(each.values(), default=0) for each in self.samplers.values())])

    def make_room(self) -> list[int]:
        """Give up a quarter of the streams. Return the new number of each that is left, -1 for the others."""
        used = int(self.tables.used[0])
        streams = self.tables.streams[:used]
        order = np.lexsort((streams[:, USED], streams[:, STREAM_DATAGRAMS] >= ESTABLISHED))
        gone = order[: max(used // 4, 1)]
        self._count_lost(gone)
        kept = np.sort(order[max(used // 4, 1) :])
        numbers = np.full(used, -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        addresses = {self.key_of(int(stream)).address for stream in gone}
        for key in [key for key in self.templates if numbers[key[0]] < 0]:
            self._forget(key, reindex=False)
        tables = self.tables
        tables.stream_keys[: len(kept)] = tables.stream_keys[kept]
        tables.streams[: len(kept)] = tables.streams[kept]
        tables.used[0] = len(kept)
        self._renumber(numbers)
        for address in addresses - {self.key_of(stream).address for stream in range(len(kept))}:
            self.samplers.pop(address, None)
        self.given_up += len(gone)
        index_streams(self.tables)
        return numbers.tolist()

    def exporters(self, most: int) -> Iterator[dict[str, Any]]:
        """Yield what status shows of the streams that have sent most datagrams."""
        rows = self.tables.streams[: self.tables.used[0]]
        for stream in np.argsort(-rows[:, STREAM_DATAGRAMS], kind="stable")[:most].tolist():
            key, row = self.key_of(stream), rows[stream]
            unit = "records" if key.version in (5, 10) else "datagrams"
            yield {
                "address": key.shown,
                "format": _NAMES.get(key.version, str(key.version)),
                "domain": key.domain,
                "datagrams": int(row[STREAM_DATAGRAMS]),
                "records": int(row[STREAM_RECORDS]),
                f"lost_{unit}": int(_losses(row)[0]),
                "restarts": int(_losses(row)[1]),
                "sampling": self.rate_of(stream) or None,
            }

    def losses(self) -> tuple[dict[str, int], int]:
        """Return the lost records and datagrams of all streams, and how often exporters were restarted."""
        rows = self.tables.streams[: self.tables.used[0]]
        of_records = np.isin(rows[:, VERSION], (5, 10))
        lost, restarts = _losses(rows)
        records, datagrams = int(lost[of_records].sum()), int(lost[~of_records].sum())
        total = {"records": self.lost["records"] + records, "datagrams": self.lost["datagrams"] + datagrams}
        return total, self.restarts + int(restarts.sum())

    def _count_lost(self, gone: Rows) -> None:
        for row in self.tables.streams[gone]:
            lost, restarts = _losses(row)
            self.lost["records" if row[VERSION] in (5, 10) else "datagrams"] += int(lost)
            self.restarts += int(restarts)

    def _new_row(self, stream: int) -> int:
        """Return a row for a plan; if there are too many, give up the one that was used least recently."""
        has_many = self._own[stream] >= self.limits.templates_each
        if has_many or len(self._rows) >= self.limits.templates:
            keys = [key for key in self._rows if key[0] == stream or not has_many]
            oldest = sorted(keys, key=lambda key: self.tables.plans[self._rows[key], PLAN_USED])
            for key in oldest[: max(len(keys) // 4, 1)]:
                self._forget(key, reindex=False)
                self.given_up += 1
            self._index_plans()
        if self._free:
            return self._free.pop()
        self._plans += 1
        return self._plans - 1

    def _forget(self, key: tuple[int, int], *, reindex: bool = True) -> None:
        """Forget a template. Its row is free for another one once the rows are indexed anew."""
        row = self._rows.pop(key)
        self._own[key[0]] -= 1
        self.templates.pop(key, None)
        self.tables.plans[row, KIND] = GONE
        self.tables.plans[row, OWNER] = -1
        self._free.append(row)
        if reindex:
            self._index_plans()

    def _renumber(self, numbers: Rows) -> None:
        """Take the new numbers of streams."""
        self.templates = {(int(numbers[stream]), number): each for (stream, number), each in self.templates.items()}
        self._rows = {(int(numbers[stream]), number): row for (stream, number), row in self._rows.items()}
        self._own = Counter(stream for stream, _ in self._rows)
        for (stream, _), row in self._rows.items():
            self.tables.plans[row, OWNER] = stream
        self._index_plans()

    def _compact_fields(self) -> None:
        """Move the fields of the plans together: templates that changed have left theirs behind."""
        at, plans, fields = 0, self.tables.plans, self.tables.fields.copy()
        for row in self._rows.values():
            if plans[row, KIND] == VARYING:
                first, count = int(plans[row, FIRST_FIELD]), int(plans[row, FIELDS])
                self.tables.fields[at : at + count] = fields[first : first + count]
                plans[row, FIRST_FIELD] = at
                at += count
        self._fields = at

    def _index_plans(self) -> None:
        index_plans(self.tables, np.array(list(self._rows.values()), np.int64))


def _power(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _losses(streams: Rows) -> Any:
    """Return what streams, or one of them, have lost, and their restarts, by what their numbers count (sequence.py)."""
    includes_own = streams[..., SCORE] > 0
    lost = np.where(includes_own, streams[..., OWN_LOST], streams[..., LOST])
    return lost, np.where(includes_own, streams[..., OWN_RESTARTS], streams[..., RESTARTS])
