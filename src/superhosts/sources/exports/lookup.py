"""Streams and plans by their keys: two tables with open addressing, keyed with a secret of the process."""

from __future__ import annotations

import numpy as np

from superhosts.jit.cache import compiled
from superhosts.sources.exports.layout import (
    CLOCK,
    OWNER,
    STREAM_SLOTS,
    TEMPLATE,
    USED,
    VERSION,
    Rows,
    Tables,
)


@compiled
def _mixed(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return value ^ (value >> np.uint64(32))


@compiled
def stream_hash(high: np.uint64, low: np.uint64, domain: np.uint64, secret: np.uint64, more: np.uint64) -> np.uint64:
    """Return the place where the search for a stream begins, before it is cut to the table."""
    return _mixed(_mixed(_mixed(high ^ secret) + low ^ more) + domain * np.uint64(0x9E3779B97F4A7C15))


@compiled
def plan_hash(stream: int, template: int, secret: np.uint64) -> np.uint64:
    """Return the place where the search for a plan begins, before it is cut to the table."""
    return _mixed(np.uint64(stream) << np.uint64(16) ^ np.uint64(template) ^ secret)


@compiled
def find_stream(tables: Tables, high: np.uint64, low: np.uint64, domain: np.uint64, tally: Rows) -> int:
    """Return the number of a stream, a new one if it was never seen; -1 if there is no room for another."""
    slots, keys = tables.stream_slots, tables.stream_keys
    mask = np.uint64(len(slots) - 1)
    place = stream_hash(high, low, domain, tables.secret[0], tables.secret[1]) & mask
    while True:
        stream = np.int64(slots[place])
        if stream < 0:
            break
        if keys[stream, 0] == high and keys[stream, 1] == low and keys[stream, 2] == domain:
            tables.streams[stream, USED] = tally[CLOCK]
            return stream
        place = (place + np.uint64(1)) & mask
    stream = tables.used[0]
    if stream >= len(keys):
        return -1
    tables.used[0] += 1
    slots[place] = stream
    keys[stream, 0], keys[stream, 1], keys[stream, 2] = high, low, domain
    for slot in range(STREAM_SLOTS):
        tables.streams[stream, slot] = 0
    tables.streams[stream, USED] = tally[CLOCK]
    tables.streams[stream, VERSION] = np.int64(domain >> np.uint64(32))
    return stream  # type: ignore[no-any-return]


@compiled
def find_plan(tables: Tables, stream: int, template: int) -> int:
    """Return the row of a template's plan; -1 if there is none."""
    slots, plans = tables.plan_slots, tables.plans
    mask = np.uint64(len(slots) - 1)
    place = plan_hash(stream, template, tables.secret[0]) & mask
    while True:
        plan = np.int64(slots[place])
        if plan < 0 or (plans[plan, OWNER] == stream and plans[plan, TEMPLATE] == template):
            return plan
        place = (place + np.uint64(1)) & mask


@compiled
def index_streams(tables: Tables) -> None:
    """Write the places of all streams anew."""
    slots, keys = tables.stream_slots, tables.stream_keys
    mask = np.uint64(len(slots) - 1)
    slots[:] = -1
    for stream in range(tables.used[0]):
        high, low, domain = keys[stream, 0], keys[stream, 1], keys[stream, 2]
        place = stream_hash(high, low, domain, tables.secret[0], tables.secret[1]) & mask
        while slots[place] >= 0:
            place = (place + np.uint64(1)) & mask
        slots[place] = stream


@compiled
def index_plan(tables: Tables, row: int) -> None:
    """Write the place of a plan."""
    slots = tables.plan_slots
    mask = np.uint64(len(slots) - 1)
    place = plan_hash(tables.plans[row, OWNER], tables.plans[row, TEMPLATE], tables.secret[0]) & mask
    while slots[place] >= 0 and slots[place] != row:
        place = (place + np.uint64(1)) & mask
    slots[place] = row


@compiled
def index_plans(tables: Tables, rows: Rows) -> None:
    """Write the places of these plans, and of no other."""
    tables.plan_slots[:] = -1
    for row in rows:
        index_plan(tables, row)
