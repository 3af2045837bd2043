"""The compiled walk over datagrams of sFlow v5: samples of packets, each counted once.

A flow sample describes one packet by one or more records. The first that has addresses counts: the packet's first
bytes, or its addresses as the agent found them. Counter samples are skipped. Nothing here needs Python.
"""

from __future__ import annotations

import numpy as np

from superhosts.core.pairs import (
    FLAGS_SHIFT,
    HAS_FLAGS,
    HAS_PORTS,
    HAS_PROTOCOL,
    PROTOCOL_SHIFT,
    SRC_PORT_SHIFT,
    TCP,
    UDP,
)
from superhosts.jit.cache import compiled
from superhosts.sources.exports import layout
from superhosts.sources.exports.layout import Bytes, Rows, Tables, find_stream, judge
from superhosts.sources.exports.netflow_walk import put_frame, wide
from superhosts.sources.frames.columns import Columns
from superhosts.sources.frames.links import big, byte

VERSION = 5
FLOW, EXPANDED_FLOW, DISCARDED = 1, 3, 5  # kinds of samples of packets
_RAW_HEADER, _IPV4, _IPV6 = 1, 3, 4  # kinds of records of a sample
_MAPPED = np.uint64(0xFFFF00000000)


@compiled
def _put_addresses(block: Bytes, at: int, is_narrow: bool, time: int, room: Columns, tally: Rows) -> None:
    """Write the packet of a record with addresses, whose fields begin at `at`."""
    protocol = big(block, at + 4)
    ports = at + 16 if is_narrow else at + 40
    value = (protocol & 0xFF) << PROTOCOL_SHIFT | HAS_PROTOCOL
    if protocol in (TCP, UDP):
        value |= (big(block, ports) & 0xFFFF) << SRC_PORT_SHIFT | big(block, ports + 4) & 0xFFFF | HAS_PORTS
    if protocol == TCP:
        value |= byte(block, ports + 11) << FLAGS_SHIFT | HAS_FLAGS
    if is_narrow:
        row = tally[layout.ROWS4]
        room.src4[row], room.dst4[row], room.time4[row] = big(block, at + 8), big(block, at + 12), time
        if len(room.details4):
            room.details4[row] = np.uint64(value)
        tally[layout.ROWS4] += 1
    else:
        row = tally[layout.ROWS6]
        room.src6[row, 0], room.src6[row, 1] = wide(block, at + 8), wide(block, at + 16)
        room.dst6[row, 0], room.dst6[row, 1] = wide(block, at + 24), wide(block, at + 32)
        room.time6[row] = time
        if len(room.details6):
            room.details6[row] = np.uint64(value)
        tally[layout.ROWS6] += 1


@compiled
def _packet(
    block: Bytes, place: tuple[int, int], records: int, time: int, links: Rows, room: Columns, tally: Rows
) -> bool:
    """Write the packet that the records of a sample describe; return False if they go beyond it."""
    at, end = place
    has_addresses = is_counted = False
    reason = layout.NOT_IP  # the counter of bytes without addresses
    for _ in range(records):
        if end - at < 8:
            return False
        kind, length = big(block, at), big(block, at + 4)
        at += 8
        if length > end - at:
            return False
        if has_addresses:
            at += length + 3 & ~3
            continue
        if kind == _RAW_HEADER and length >= 16:
            protocol, there = big(block, at), min(big(block, at + 12), length - 16)
            link = links[protocol] if protocol < len(links) else 0
            before = tally.copy() if is_counted else tally
            not_ip, truncated = tally[layout.NOT_IP], tally[layout.TRUNCATED]
            has_addresses = put_frame(block, (at + 16, at + 16 + there), link, time, room, tally)
            if is_counted and not has_addresses:
                tally[:] = before
            elif not has_addresses:
                reason = (
                    layout.NOT_IP
                    if tally[layout.NOT_IP] > not_ip
                    else layout.TRUNCATED
                    if tally[layout.TRUNCATED] > truncated
                    else layout.UNSUPPORTED
                )
            is_counted = True
        elif (kind == _IPV4 and length >= 32) or (kind == _IPV6 and length >= 56):
            if is_counted:  # the bytes of the packet had no addresses, and the agent found some
                tally[reason] -= 1
            _put_addresses(block, at, kind == _IPV4, time, room, tally)
            has_addresses = is_counted = True
        at += length + 3 & ~3
    if not is_counted:
        tally[layout.NOT_IP] += 1
    return True


@compiled
def _sample(
    block: Bytes, place: tuple[int, int], kind: int, time: int, links: Rows, tables: Tables, room: Columns, tally: Rows
) -> bool:
    """Read a sample of a packet; return False if it ends early."""
    at, end = place
    stream, streams = tally[layout.STREAM], tables.streams
    length = 44 if kind == EXPANDED_FLOW else 32
    if end - at < length:
        return False
    if kind == FLOW:
        rate, dropped = big(block, at + 8), big(block, at + 16)
    elif kind == EXPANDED_FLOW:
        rate, dropped = big(block, at + 12), big(block, at + 20)
    else:
        rate, dropped = 0, big(block, at + 12)
    if rate > streams[stream, layout.RATE]:
        streams[stream, layout.RATE] = rate
    if dropped > streams[stream, layout.DROPPED]:
        streams[stream, layout.DROPPED] = dropped
    tally[layout.SAMPLES] += 1
    streams[stream, layout.STREAM_RECORDS] += 1
    return _packet(block, (at + length, end), big(block, at + length - 4), time, links, room, tally)


@compiled
def walk_sflow(block: Bytes, datagrams: Rows, links: Rows, tables: Tables, room: Columns, tally: Rows) -> int:
    """Read datagrams from tally[DATAGRAM] on and return why the walk ended. `links`: of each header protocol."""
    while tally[layout.DATAGRAM] < len(datagrams):
        number = tally[layout.DATAGRAM]
        start, end, time = (
            datagrams[number, layout.START],
            datagrams[number, layout.END],
            datagrams[number, layout.RECEIVED],
        )
        most = (end - start) // layout.SHORTEST_RECORD + 1
        if tally[layout.ROWS4] + most > len(room.src4) or tally[layout.ROWS6] + most > len(room.src6):
            return layout.ROOM
        if end - start < 28 or big(block, start) != VERSION:
            tally[layout.UNKNOWN_VERSION] += 1
            tally[layout.DATAGRAM] += 1
            continue
        family = big(block, start + 4)
        at = start + (12 if family == 1 else 24)
        if (family != 1 and family != 2) or end - at < 16:
            tally[layout.BAD] += 1
            tally[layout.DATAGRAM] += 1
            continue
        if family == 1:
            high, low = np.uint64(0), _MAPPED | np.uint64(big(block, start + 8))
        else:
            high, low = wide(block, start + 8), wide(block, start + 16)
        key = np.uint64(1) << np.uint64(32) | np.uint64(big(block, at))
        stream = find_stream(tables, high, low, key, tally)
        if stream < 0:
            return layout.FULL
        tally[layout.STREAM] = stream
        tally[layout.CLOCK] += 1
        tally[layout.DATAGRAMS] += 1
        tables.streams[stream, layout.STREAM_DATAGRAMS] += 1
        judge(tables.streams, stream, big(block, at + 4), 1, layout.FEW_DATAGRAMS)
        samples = big(block, at + 12)
        at += 16
        for _ in range(samples):
            if end - at < 8:
                tally[layout.DAMAGED] += 1
                break
            kind, length = big(block, at), big(block, at + 4)
            at += 8
            if length > end - at:
                tally[layout.DAMAGED] += 1
                break
            is_packet = kind in (FLOW, EXPANDED_FLOW, DISCARDED)
            if is_packet and not _sample(block, (at, at + length), kind, time, links, tables, room, tally):
                tally[layout.DAMAGED] += 1
            at += length + 3 & ~3
        tally[layout.DATAGRAM] += 1
        tally[layout.AT] = 0
    return layout.DONE
