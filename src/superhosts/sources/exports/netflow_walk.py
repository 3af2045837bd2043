"""The compiled walk over datagrams of NetFlow v5, NetFlow v9 and IPFIX.

It reads headers, sequence numbers and sets of records for which there is a plan. Everything else ends the walk at the
place where it is, with a reason, for Python to go on: templates that differ from those that are known, data of options,
data without a template. An exporter sends its templates again and again; equal ones are told by a hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled
from superhosts.sources.exports.layout import (
    AT,
    BAD,
    BOOT,
    CLOCK,
    DAMAGED,
    DATAGRAM,
    DATAGRAMS,
    DAY,
    DONE,
    END,
    FAMILY,
    FIXED,
    FRAME,
    FRAME_AT,
    FRAME_LENGTH,
    FRAME_LINK,
    FULL,
    GONE,
    HASH,
    IN_STEP,
    KIND,
    LENGTH,
    NOT_IP,
    OPTION,
    OPTIONS,
    OWN,
    PLAN_USED,
    RATE,
    RATE_AT,
    RECEIVED,
    RECORDS,
    REPLAYED,
    ROOM,
    ROWS4,
    ROWS6,
    SET_END,
    SHORTEST_RECORD,
    START,
    STREAM,
    STREAM_DATAGRAMS,
    STREAM_RECORDS,
    TEMPLATES,
    UNKNOWN,
    UNKNOWN_VERSION,
    VARYING,
    WRONG_TIMES,
    Bytes,
    Rows,
    Tables,
)
from superhosts.sources.exports.lookup import find_plan, find_stream
from superhosts.sources.exports.numbers import half, word
from superhosts.sources.exports.packets import put_frame
from superhosts.sources.exports.recordsets import highest_rate, read_fixed, read_varying
from superhosts.sources.exports.sequence import FEW_DATAGRAMS, FEW_RECORDS, add_records, judge, judge_ipfix
from superhosts.sources.frames.columns import Columns

V5_HEADER, V9_HEADER, IPFIX_HEADER, V5_RECORD = 24, 20, 16, 48
V5_PLAN = 0  # the row of the plan of NetFlow v5
_OFFSET = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)


@compiled
def template_hash(block: Bytes, at: int, end: int) -> int:
    """Return a hash of a template's bytes."""
    value = _OFFSET
    for place in range(at, end):
        value = (value ^ np.uint64(block[np.uint64(place)])) * _PRIME
    return np.int64(value >> np.uint64(1))  # type: ignore[return-value]


@compiled
def template_end(block: Bytes, at: int, end: int, kind: int) -> int:
    """Return where the template record at `at` ends; -1 where it is a withdrawal, or goes beyond the set.

    `kind` is the id of the set: 0 and 1 of NetFlow v9, 2 and 3 of IPFIX; 1 and 3 are templates of options.
    """
    if kind == 1:
        if end - at < 6:
            return -1
        behind = at + 6 + half(block, at + 2) + half(block, at + 4)
        return behind if behind <= end else -1
    fields = half(block, at + 2)
    if fields == 0:
        return -1
    at += 6 if kind == 3 else 4
    for _ in range(fields):
        if end - at < 4:
            return -1
        at += 8 if kind >= 2 and half(block, at) & 0x8000 else 4
    return at if at <= end else -1


@compiled
def _is_known(block: Bytes, place: tuple[int, int], kind: int, tables: Tables, stream: int) -> bool:
    """Return True if all templates of a set are those that are known."""
    at, end = place
    while end - at >= 4 and half(block, at) >= 256:
        plan = find_plan(tables, stream, half(block, at))
        behind = template_end(block, at, end, kind)
        if plan < 0 or behind < 0 or tables.plans[plan, KIND] == GONE:
            return False
        if tables.plans[plan, HASH] != template_hash(block, at, behind):
            return False
        at = behind
    return end - at < 4 or half(block, at) == 0  # padding


@compiled
def _header(block: Bytes, start: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Return version, length of the header, export time, uptime, sequence number and domain; version 0 if it is bad."""
    bad = (0, 0, 0, 0, 0, 0)
    if end - start < IPFIX_HEADER:
        return bad
    version = half(block, start)
    if version == 10:
        export = word(block, start + 4) * 1_000_000_000
        return version, IPFIX_HEADER, export, -1, word(block, start + 8), word(block, start + 12)
    if version == 9 and end - start >= V9_HEADER:
        export = word(block, start + 8) * 1_000_000_000
        return version, V9_HEADER, export, word(block, start + 4), word(block, start + 12), word(block, start + 16)
    if version == 5 and end - start >= V5_HEADER:
        nanoseconds = word(block, start + 12)
        export = word(block, start + 8) * 1_000_000_000 + (nanoseconds if nanoseconds < 1_000_000_000 else 0)
        return version, V5_HEADER, export, word(block, start + 4), word(block, start + 16), half(block, start + 20)
    return bad


@compiled
def _read_set(
    block: Bytes,
    place: tuple[int, int],
    row: int,
    when: tuple[int, int, int, int],
    tables: Tables,
    room: Columns,
    tally: Rows,
) -> int:
    """Read the records of a set by a plan, and return how many."""
    plan = tables.plans[row]
    stream = tally[STREAM]
    plan[PLAN_USED] = tally[CLOCK]
    rate = 0
    if plan[KIND] == FIXED:
        if plan[RATE_AT] >= 0:
            rate = highest_rate(block, place, plan)
        if plan[FAMILY] == FRAME:
            count = 0
            at, end = place
            while at + plan[LENGTH] <= end:
                begins = at + plan[FRAME_AT]
                put_frame(block, (begins, begins + plan[FRAME_LENGTH]), plan[FRAME_LINK], when[0], room, tally)
                at += plan[LENGTH]
                count += 1
            tally[RECORDS] += count
        else:
            count = read_fixed(block, place, plan, when, room, tally)
    elif plan[KIND] == VARYING:
        count, rate = read_varying(block, place, plan, when, tables, room, tally)
    else:
        count = (place[1] - place[0]) // plan[LENGTH]
        tally[NOT_IP] += count
        tally[RECORDS] += count
    if rate > tables.streams[stream, RATE]:
        tables.streams[stream, RATE] = rate
    tables.streams[stream, STREAM_RECORDS] += count
    return count


@compiled
def _version5(
    block: Bytes, place: tuple[int, int], when: tuple[int, int, int, int], tables: Tables, room: Columns, tally: Rows
) -> None:
    """Read a datagram of NetFlow v5, as many records as there are."""
    start, end = place
    said = half(block, start + 2)
    there = (end - start - V5_HEADER) // V5_RECORD
    if there < said:
        tally[DAMAGED] += 1
    begins = start + V5_HEADER
    _read_set(block, (begins, begins + min(said, there) * V5_RECORD), V5_PLAN, when, tables, room, tally)
    sampling = half(block, start + 22) & 0x3FFF
    if sampling:
        tables.streams[tally[STREAM], RATE] = sampling


@compiled
def _begin(block: Bytes, start: int, header: tuple[int, int, int, int, int, int], tables: Tables, tally: Rows) -> None:
    """Count a datagram, and what is missing before it."""
    version, _, _, _, sequence, _ = header
    streams, stream = tables.streams, tally[STREAM]
    tally[DATAGRAMS] += 1
    streams[stream, STREAM_DATAGRAMS] += 1
    if version == 9:
        judge(streams, stream, sequence, 1, FEW_DATAGRAMS)
    elif version == 5:
        judge(streams, stream, sequence, half(block, start + 2), FEW_RECORDS)
    else:
        judge_ipfix(streams, stream, sequence)


@compiled
def walk_netflow(
    block: Bytes,
    datagrams: Rows,
    peers: NDArray[np.uint64],
    tables: Tables,
    room: Columns,
    tally: Rows,
    by_arrival: int,
) -> int:
    """Read datagrams from tally[DATAGRAM] on, in it from tally[AT] on, and return why the walk ended.

    `peers` has the addresses of the exporters. `by_arrival`: records without a time of their own, or whose time does
    not count, have the time of their arrival (1), not that of their export (0), where it is known.
    """
    while tally[DATAGRAM] < len(datagrams):
        number = tally[DATAGRAM]
        start, end, received = datagrams[number, START], datagrams[number, END], datagrams[number, RECEIVED]
        most = (end - start) // SHORTEST_RECORD + 1
        if tally[ROWS4] + most > len(room.src4) or tally[ROWS6] + most > len(room.src6):
            return ROOM
        header = _header(block, start, end)
        version, length, export, uptime, _, domain = header
        if version == 10 and half(block, start + 2) < end - start:
            end = start + half(block, start + 2)
        if version == 0 or end - start < length:
            tally[UNKNOWN_VERSION if version == 0 else BAD] += 1
            tally[DATAGRAM], tally[AT] = number + 1, 0
            continue
        key = np.uint64(version) << np.uint64(32) | np.uint64(domain)
        stream = find_stream(tables, peers[number, 0], peers[number, 1], key, tally)
        if stream < 0:
            return FULL
        tally[STREAM] = stream
        is_first = tally[AT] == 0 and not datagrams[number, REPLAYED]
        if is_first:
            tally[CLOCK] += 1
            _begin(block, start, header, tables, tally)
        if received and (export - received > DAY or received - export > DAY):
            if is_first:
                tally[WRONG_TIMES] += 1
            export = received
        base = received if by_arrival and received else export
        when = (base, export, uptime, tables.streams[stream, BOOT])
        if version == 5:
            _version5(block, (start, end), when, tables, room, tally)
            tally[DATAGRAM], tally[AT] = number + 1, 0
            continue
        # Records that were held are not in step with the sequence any more.
        counts = version == 10 and not datagrams[number, REPLAYED]
        place = max(start + length, tally[AT]), end
        reason = _sets(block, place, (version, counts), when, tables, room, tally)
        if reason != DONE:
            return reason
        tally[DATAGRAM], tally[AT] = number + 1, 0
    return DONE


@compiled
def _sets(
    block: Bytes,
    place: tuple[int, int],
    kind_of: tuple[int, bool],
    when: tuple[int, int, int, int],
    tables: Tables,
    room: Columns,
    tally: Rows,
) -> int:
    """Read the sets of a datagram, from the first place on; return why it ended there.

    `kind_of`: the version, and True if its records are counted by the sequence numbers.
    """
    at, end = place
    version, counts = kind_of
    stream = tally[STREAM]
    first = 0 if version == 9 else 2  # the id of sets of templates; the next one is that of templates of options
    while end - at >= 4:
        kind, length = half(block, at), half(block, at + 2)
        if length < 4 or at + length > end:
            tally[DAMAGED] += 1
            tables.streams[stream, IN_STEP] = 0
            return DONE
        behind = at + length
        tally[AT], tally[SET_END] = at, behind
        if kind >= 256:
            row = find_plan(tables, stream, kind)
            if row < 0 or tables.plans[row, KIND] == GONE:
                return UNKNOWN
            if tables.plans[row, KIND] == OPTION:
                return OPTIONS
            count = _read_set(block, (at + 4, behind), row, when, tables, room, tally)
            if counts:
                add_records(tables.streams, stream, count, OWN)
        elif kind == first or kind == first + 1:
            if not _is_known(block, (at + 4, behind), kind, tables, stream):
                return TEMPLATES
        else:
            tally[DAMAGED] += 1
        at = behind
    return DONE
