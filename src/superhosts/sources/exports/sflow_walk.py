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
from superhosts.sources.exports.layout import (
    AT,
    BAD,
    CLOCK,
    DAMAGED,
    DATAGRAM,
    DATAGRAMS,
    DONE,
    DROPPED,
    END,
    FULL,
    NOT_IP,
    RATE,
    RECEIVED,
    ROOM,
    ROWS4,
    ROWS6,
    SAMPLES,
    SHORTEST_RECORD,
    START,
    STREAM,
    STREAM_DATAGRAMS,
    STREAM_RECORDS,
    TRUNCATED,
    UNKNOWN_VERSION,
    UNSUPPORTED,
    Bytes,
    Rows,
    Tables,
)
from superhosts.sources.exports.lookup import find_stream
from superhosts.sources.exports.numbers import byte, wide, word
from superhosts.sources.exports.packets import put_frame
from superhosts.sources.exports.sequence import FEW_DATAGRAMS, judge
from superhosts.sources.frames.columns import Columns

VERSION = 5
FLOW, EXPANDED_FLOW, DISCARDED = 1, 3, 5  # kinds of samples of packets
_RAW_HEADER, _IPV4, _IPV6 = 1, 3, 4  # kinds of records of a sample
_MAPPED = np.uint64(0xFFFF00000000)


@compiled
def _put_addresses(block: Bytes, at: int, is_narrow: bool, time: int, room: Columns, tally: Rows) -> None:
    """Write the packet of a record with addresses, whose fields begin at `at`."""
    protocol = word(block, at + 4)
    ports = at + 16 if is_narrow else at + 40
    value = (protocol & 0xFF) << PROTOCOL_SHIFT | HAS_PROTOCOL
    if protocol in (TCP, UDP):
        value |= (word(block, ports) & 0xFFFF) << SRC_PORT_SHIFT | word(block, ports + 4) & 0xFFFF | HAS_PORTS
    if protocol == TCP:
        value |= byte(block, ports + 11) << FLAGS_SHIFT | HAS_FLAGS
    if is_narrow:
        row = tally[ROWS4]
        room.src4[row], room.dst4[row], room.time4[row] = word(block, at + 8), word(block, at + 12), time
        if len(room.details4):
            room.details4[row] = np.uint64(value)
        tally[ROWS4] += 1
    else:
        row = tally[ROWS6]
        room.src6[row, 0], room.src6[row, 1] = wide(block, at + 8), wide(block, at + 16)
        room.dst6[row, 0], room.dst6[row, 1] = wide(block, at + 24), wide(block, at + 32)
        room.time6[row] = time
        if len(room.details6):
            room.details6[row] = np.uint64(value)
        tally[ROWS6] += 1


@compiled
def _packet(
    block: Bytes, place: tuple[int, int], records: int, time: int, links: Rows, room: Columns, tally: Rows
) -> bool:
    """Write the packet that the records of a sample describe; return False if they go beyond it."""
    at, end = place
    has_addresses = is_counted = False
    reason = NOT_IP  # the counter of bytes without addresses
    for _ in range(records):
        if end - at < 8:
            return False
        kind, length = word(block, at), word(block, at + 4)
        at += 8
        if length > end - at:
            return False
        if has_addresses:
            at += length + 3 & ~3
            continue
        if kind == _RAW_HEADER and length >= 16:
            protocol, there = word(block, at), min(word(block, at + 12), length - 16)
            link = links[protocol] if protocol < len(links) else 0
            before = tally.copy() if is_counted else tally
            not_ip, truncated = tally[NOT_IP], tally[TRUNCATED]
            has_addresses = put_frame(block, (at + 16, at + 16 + there), link, time, room, tally)
            if is_counted and not has_addresses:
                tally[:] = before
            elif not has_addresses:
                reason = (
                    NOT_IP if tally[NOT_IP] > not_ip else TRUNCATED if tally[TRUNCATED] > truncated else UNSUPPORTED
                )
            is_counted = True
        elif (kind == _IPV4 and length >= 32) or (kind == _IPV6 and length >= 56):
            if is_counted:  # the bytes of the packet had no addresses, and the agent found some
                tally[reason] -= 1
            _put_addresses(block, at, kind == _IPV4, time, room, tally)
            has_addresses = is_counted = True
        at += length + 3 & ~3
    if not is_counted:
        tally[NOT_IP] += 1
    return True


@compiled
def _sample(
    block: Bytes, place: tuple[int, int], kind: int, time: int, links: Rows, tables: Tables, room: Columns, tally: Rows
) -> bool:
    """Read a sample of a packet; return False if it ends early."""
    at, end = place
    stream, streams = tally[STREAM], tables.streams
    length = 44 if kind == EXPANDED_FLOW else 32
    if end - at < length:
        return False
    if kind == FLOW:
        rate, dropped = word(block, at + 8), word(block, at + 16)
    elif kind == EXPANDED_FLOW:
        rate, dropped = word(block, at + 12), word(block, at + 20)
    else:
        rate, dropped = 0, word(block, at + 12)
    if rate > streams[stream, RATE]:
        streams[stream, RATE] = rate
    if dropped > streams[stream, DROPPED]:
        streams[stream, DROPPED] = dropped
    tally[SAMPLES] += 1
    streams[stream, STREAM_RECORDS] += 1
    return _packet(block, (at + length, end), word(block, at + length - 4), time, links, room, tally)


@compiled
def walk_sflow(block: Bytes, datagrams: Rows, links: Rows, tables: Tables, room: Columns, tally: Rows) -> int:
    """Read datagrams from tally[DATAGRAM] on and return why the walk ended. `links`: of each header protocol."""
    while tally[DATAGRAM] < len(datagrams):
        number = tally[DATAGRAM]
        start, end, time = datagrams[number, START], datagrams[number, END], datagrams[number, RECEIVED]
        most = (end - start) // SHORTEST_RECORD + 1
        if tally[ROWS4] + most > len(room.src4) or tally[ROWS6] + most > len(room.src6):
            return ROOM
        if end - start < 28 or word(block, start) != VERSION:
            tally[UNKNOWN_VERSION] += 1
            tally[DATAGRAM] += 1
            continue
        family = word(block, start + 4)
        at = start + (12 if family == 1 else 24)
        if (family != 1 and family != 2) or end - at < 16:
            tally[BAD] += 1
            tally[DATAGRAM] += 1
            continue
        if family == 1:
            high, low = np.uint64(0), _MAPPED | np.uint64(word(block, start + 8))
        else:
            high, low = wide(block, start + 8), wide(block, start + 16)
        key = np.uint64(1) << np.uint64(32) | np.uint64(word(block, at))
        stream = find_stream(tables, high, low, key, tally)
        if stream < 0:
            return FULL
        tally[STREAM] = stream
        tally[CLOCK] += 1
        tally[DATAGRAMS] += 1
        tables.streams[stream, STREAM_DATAGRAMS] += 1
        judge(tables.streams, stream, word(block, at + 4), 1, FEW_DATAGRAMS)
        samples = word(block, at + 12)
        at += 16
        for _ in range(samples):
            if end - at < 8:
                tally[DAMAGED] += 1
                break
            kind, length = word(block, at), word(block, at + 4)
            at += 8
            if length > end - at:
                tally[DAMAGED] += 1
                break
            is_packet = kind in (FLOW, EXPANDED_FLOW, DISCARDED)
            if is_packet and not _sample(block, (at, at + length), kind, time, links, tables, room, tally):
                tally[DAMAGED] += 1
            at += length + 3 & ~3
        tally[DATAGRAM] += 1
        tally[AT] = 0
    return DONE
