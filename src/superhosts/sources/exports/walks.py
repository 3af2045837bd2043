"""The compiled walk over datagrams: of NetFlow v5, NetFlow v9 and IPFIX, or of sFlow v5.

It ends where it has no plan for a set of records, with a reason, and Python goes on from there.

A set of equal records is one strided loop over the records of a plan (`read_fixed`). Whoever reads numbers has checked
that their bytes are there.

A flow sample of sFlow describes one packet by one or more records. The first that has addresses counts: the packet's
first bytes, or its addresses as the agent found them. Counter samples are skipped. Nothing there needs Python.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from superhosts.core import pairs
from superhosts.jit.cache import compiled
from superhosts.sources.exports import layout
from superhosts.sources.exports.layout import (
    Bytes,
    Place,
    Rows,
    Tables,
    When,
    Words,
    add_records,
    find_plan,
    find_stream,
    judge,
    judge_ipfix,
)
from superhosts.sources.frames import columns as frames
from superhosts.sources.frames.columns import Columns
from superhosts.sources.frames.headers import find_headers, is_ipv4
from superhosts.sources.frames.links import big, byte, half, wide

_NTP_EPOCH = 2_208_988_800  # seconds from 1900 to 1970
_ERA = 1 << 32  # seconds after which NTP's count begins again, in 2036
_FAR = 4 * 10**9  # seconds; a time beyond them does not fit


@compiled
def number(block: Bytes, at: int, width: int) -> int:
    """Up to eight bytes in network order; 2^62 if they are more than that."""
    if width == 8:
        return np.int64(min(wide(block, at), np.uint64(1 << 62)))
    value = 0
    for place in range(at, at + width):
        value = value << 8 | byte(block, place)
    return value


@compiled
def signed(value: int) -> int:
    """Return a difference of 32 bits as the nearer one: uptimes begin again after 49 days."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


@compiled
def time_of(kind: int, value: int, export: int, uptime: int, boot: int) -> int:
    """Return the nanoseconds that a field says, 0 if it says nothing.

    `uptime` is that of the header in milliseconds, -1 if it has none; `boot` is 0 if it is not known. Of NTP times,
    `value` is what `ntp_time` returned.
    """
    if kind == layout.MILLISECONDS:
        return value * 1_000_000 if value < _FAR * 1000 else 0
    if kind == layout.SECONDS:
        return value * 1_000_000_000 if value < _FAR else 0
    if kind == layout.UPTIME:
        if uptime >= 0:
            return export - signed(uptime - value) * 1_000_000 if value < 1 << 32 else 0
        return boot + value * 1_000_000 if boot and value < _FAR * 1000 else 0
    if kind == layout.BEFORE_EXPORT:
        return export - value * 1000 if value < _FAR * 1000 else 0
    if kind == layout.NTP:
        return value
    return 0


@compiled
def ntp_time(block: Bytes, at: int) -> int:
    """Return the nanoseconds since 1970 of an NTP timestamp; 0 if it is 0."""
    seconds, fraction = big(block, at), big(block, at + 4)
    if seconds == 0 and fraction == 0:
        return 0
    seconds += 0 if seconds >= _NTP_EPOCH else _ERA
    return (seconds - _NTP_EPOCH) * 1_000_000_000 + (fraction * 1_000_000_000 >> 32)


@compiled
def _put_row(block: Bytes, ends: Place, is_narrow: bool, details: int, time: int, room: Columns, tally: Rows) -> None:
    """Write a packet. `ends`: where its source address is, and that of its destination."""
    src, dst = ends
    if is_narrow:
        row = np.uint64(tally[layout.ROWS4])
        room.src4[row], room.dst4[row], room.time4[row] = big(block, src), big(block, dst), time
        if len(room.details4):
            room.details4[row] = np.uint64(details)
        tally[layout.ROWS4] += 1
    else:
        row = np.uint64(tally[layout.ROWS6])
        room.src6[row, 0], room.src6[row, 1] = wide(block, src), wide(block, src + 8)
        room.dst6[row, 0], room.dst6[row, 1] = wide(block, dst), wide(block, dst + 8)
        room.time6[row] = time
        if len(room.details6):
            room.details6[row] = np.uint64(details)
        tally[layout.ROWS6] += 1


@compiled
def _ends_of(block: Bytes, header: int) -> Place:
    """Return where the addresses of an IP header are."""
    return (header + 12, header + 16) if is_ipv4(block, header) else (header + 8, header + 24)


@compiled
def put_frame(block: Bytes, place: Place, link: int, time: int, room: Columns, tally: Rows) -> int:
    """Write the packet that begins with block[place]; return 0, or the counter of one without addresses."""
    start, end = place
    header, details, second, second_details, _, _ = find_headers(block, start, end, link, tally[layout.WANTS])
    if header < 0:
        if header == -frames.NOT_IP:
            return layout.NOT_IP
        return layout.TRUNCATED if header == -frames.TRUNCATED else layout.UNSUPPORTED
    _put_row(block, _ends_of(block, header), is_ipv4(block, header), details, time, room, tally)
    if second:
        _put_row(block, _ends_of(block, second), is_ipv4(block, second), second_details, time, room, tally)
        tally[layout.SECOND_ROWS] += 1
    return 0


@compiled
def count_frame(block: Bytes, place: Place, link: int, time: int, room: Columns, tally: Rows) -> None:
    """Write the packet of a record that has its first bytes, or count why it has no addresses."""
    missing = put_frame(block, place, link, time, room, tally)
    if missing:
        tally[missing] += 1
    tally[layout.RECORDS] += 1


@compiled
def details_of(block: Bytes, at: int, plan: Rows) -> int:
    value = pairs.IS_RECORD
    if plan[layout.IS_BIFLOW]:
        value = pairs.IS_CONVERSATION
        if plan[layout.REVERSE_AT] >= 0 and number(block, at + plan[layout.REVERSE_AT], plan[layout.REVERSE_WIDTH]) > 0:
            value |= pairs.IS_ANSWERED
    protocol = -1
    if plan[layout.PROTOCOL] >= 0:
        protocol = byte(block, at + plan[layout.PROTOCOL])
        value |= protocol << pairs.PROTOCOL_SHIFT | pairs.HAS_PROTOCOL
    if protocol in (pairs.ICMP, pairs.ICMPV6):
        if plan[layout.ICMP] >= 0:
            value |= byte(block, at + plan[layout.ICMP]) << pairs.FLAGS_SHIFT | pairs.HAS_FLAGS
        elif plan[layout.DPORT] >= 0:  # by old custom the destination port has type and code
            value |= byte(block, at + plan[layout.DPORT]) << pairs.FLAGS_SHIFT | pairs.HAS_FLAGS
        return value
    has_ports = protocol == 6 or protocol == 17 or protocol == 132 or protocol == 136 or protocol == 33
    if plan[layout.SPORT] >= 0 and plan[layout.DPORT] >= 0 and has_ports:
        value |= (
            half(block, at + plan[layout.SPORT]) << pairs.SRC_PORT_SHIFT
            | half(block, at + plan[layout.DPORT])
            | pairs.HAS_PORTS
        )
    if plan[layout.FLAGS] >= 0 and protocol == 6:
        value |= (
            byte(block, at + plan[layout.FLAGS] + plan[layout.FLAGS_WIDTH] - 1) << pairs.FLAGS_SHIFT | pairs.HAS_FLAGS
        )
    return value


@compiled
def read_fixed(block: Bytes, place: Place, plan: Rows, when: When, room: Columns, tally: Rows) -> int:
    """Read the records of one length in block[place]; return how many.

    `when`: the time that counts where a record has none, the export time (both in nanoseconds), the header's uptime in
    milliseconds (-1: none) and the time of boot (0: not known).
    """
    at, end = place
    base, export, uptime, boot = when
    length, family, kind = plan[layout.LENGTH], plan[layout.FAMILY], plan[layout.TIME_KIND]
    src4_at, dst4_at, src6_at, dst6_at = plan[layout.SRC4], plan[layout.DST4], plan[layout.SRC6], plan[layout.DST6]
    time_at, width, version_at, boot_at = (
        plan[layout.TIME_AT],
        plan[layout.TIME_WIDTH],
        plan[layout.IP_VERSION],
        plan[layout.BOOT_AT],
    )
    wants_details = len(room.details4) > 0
    is_short = kind == layout.UPTIME and width == 4 and uptime >= 0 and boot_at < 0
    count = (end - at) // length
    for _ in range(count):
        time = base
        if kind != layout.NO_TIME:
            if is_short:
                time = export - signed(uptime - big(block, at + time_at)) * 1_000_000
            else:
                if boot_at >= 0:
                    boot = time_of(layout.MILLISECONDS, number(block, at + boot_at, 8), 0, 0, 0)
                value = ntp_time(block, at + time_at) if kind == layout.NTP else number(block, at + time_at, width)
                time = time_of(kind, value, export, -1 if boot_at >= 0 else uptime, boot)
                if kind == layout.UPTIME and boot == 0 and (uptime < 0 or boot_at >= 0):
                    time = base  # nothing says when the exporter was started
            if time - base > layout.DAY or base - time > layout.DAY:
                time = base
                tally[layout.WRONG_TIMES] += 1
        is_narrow = family == 4
        if family == layout.BOTH:
            if version_at >= 0:
                is_narrow = byte(block, at + version_at) != 6
            else:
                is_narrow = (big(block, at + src4_at) | big(block, at + dst4_at)) != 0
        ends = (at + src4_at, at + dst4_at) if is_narrow else (at + src6_at, at + dst6_at)
        details = details_of(block, at, plan) if wants_details else 0
        _put_row(block, ends, is_narrow, details, time, room, tally)
        at += length
    tally[layout.RECORDS] += count
    return count  # type: ignore[no-any-return]


@compiled
def highest_rate(block: Bytes, place: Place, plan: Rows) -> int:
    """Return the highest sampling rate that records of one length have; 0 if they have none."""
    at, end = place
    highest = 0
    while at + plan[layout.LENGTH] <= end:
        highest = max(highest, number(block, at + plan[layout.RATE_AT], plan[layout.RATE_WIDTH]))
        at += plan[layout.LENGTH]
    return highest if highest < 1 << 32 else 0


@compiled
def _measure(block: Bytes, place: Place, plan: Rows, fields: Rows, row: Rows) -> int:
    """Find the fields of one record of varying length. Return where it ends; -1 if it does not end in `place`."""
    start, end = place
    at = start
    for slot in range(layout.PLAN_SLOTS):
        row[slot] = plan[slot]
    for index in range(plan[layout.FIRST_FIELD], plan[layout.FIRST_FIELD] + plan[layout.FIELDS]):
        length, slot = fields[index, 0], fields[index, 1]
        if length == layout.VARIABLE:
            if at + 1 > end:
                return -1
            length = byte(block, at)
            at += 1
            if length == 255:
                if at + 2 > end:
                    return -1
                length = half(block, at)
                at += 2
        if at + length > end:
            return -1
        if slot >= 0:
            row[slot] = at - start
            if slot == layout.FRAME_AT:
                row[layout.FRAME_LENGTH] = length
        at += length
    row[layout.LENGTH] = at - start
    return at


@compiled
def read_varying(
    block: Bytes, place: Place, plan: Rows, when: When, tables: Tables, room: Columns, tally: Rows
) -> tuple[int, int]:
    """Read records of varying length; return how many, and the highest sampling rate in them.

    The remainder that is not a whole record is padding, or damage.
    """
    at, end = place
    count = rate = 0
    row = tables.present
    while end - at >= plan[layout.LENGTH]:  # the least that a record has
        behind = _measure(block, (at, end), plan, tables.fields, row)
        if behind < 0:
            break
        if row[layout.RATE_AT] >= 0:
            rate = max(rate, highest_rate(block, (at, behind), row))
        if plan[layout.FAMILY] == layout.FRAME:
            begins = at + row[layout.FRAME_AT]
            frame = begins, begins + row[layout.FRAME_LENGTH]
            count_frame(block, frame, row[layout.FRAME_LINK], when[0], room, tally)
        elif plan[layout.FAMILY]:
            read_fixed(block, (at, behind), row, when, room, tally)
        else:
            tally[layout.NOT_IP] += 1
            tally[layout.RECORDS] += 1
        count += 1
        at = behind
    return count, rate


V5_HEADER, V9_HEADER, IPFIX_HEADER, V5_RECORD = 24, 20, 16, 48
V5_PLAN = 0  # the row of the plan of NetFlow v5
_OFFSET = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)


@compiled
def template_hash(block: Bytes, at: int, end: int) -> int:
    value = _OFFSET
    for place in range(at, end):
        value = (value ^ np.uint64(block[np.uint64(place)])) * _PRIME
    return np.int64(value >> np.uint64(1))


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
def _is_known(block: Bytes, place: Place, kind: int, tables: Tables, stream: int) -> bool:
    """Return True if all templates of a set are those that are known."""
    at, end = place
    while end - at >= 4 and half(block, at) >= 256:
        plan = find_plan(tables, stream, half(block, at))
        behind = template_end(block, at, end, kind)
        if plan < 0 or behind < 0 or tables.plans[plan, layout.KIND] == layout.GONE:
            return False
        if tables.plans[plan, layout.HASH] != template_hash(block, at, behind):
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
        export = big(block, start + 4) * 1_000_000_000
        return version, IPFIX_HEADER, export, -1, big(block, start + 8), big(block, start + 12)
    if version == 9 and end - start >= V9_HEADER:
        export = big(block, start + 8) * 1_000_000_000
        return version, V9_HEADER, export, big(block, start + 4), big(block, start + 12), big(block, start + 16)
    if version == 5 and end - start >= V5_HEADER:
        nanoseconds = big(block, start + 12)
        export = big(block, start + 8) * 1_000_000_000 + (nanoseconds if nanoseconds < 1_000_000_000 else 0)
        return version, V5_HEADER, export, big(block, start + 4), big(block, start + 16), half(block, start + 20)
    return bad


@compiled
def _read_set(block: Bytes, place: Place, row: int, when: When, tables: Tables, room: Columns, tally: Rows) -> int:
    """Read the records of a set by a plan, and return how many."""
    plan = tables.plans[row]
    stream = tally[layout.STREAM]
    plan[layout.PLAN_USED] = tally[layout.CLOCK]
    rate = 0
    if plan[layout.KIND] == layout.FIXED:
        if plan[layout.RATE_AT] >= 0:
            rate = highest_rate(block, place, plan)
        if plan[layout.FAMILY] == layout.FRAME:
            count = 0
            at, end = place
            while at + plan[layout.LENGTH] <= end:
                begins = at + plan[layout.FRAME_AT]
                frame = begins, begins + plan[layout.FRAME_LENGTH]
                count_frame(block, frame, plan[layout.FRAME_LINK], when[0], room, tally)
                at += plan[layout.LENGTH]
                count += 1
        else:
            count = read_fixed(block, place, plan, when, room, tally)
    elif plan[layout.KIND] == layout.VARYING:
        count, rate = read_varying(block, place, plan, when, tables, room, tally)
    else:
        count = (place[1] - place[0]) // plan[layout.LENGTH]
        tally[layout.NOT_IP] += count
        tally[layout.RECORDS] += count
    if rate > tables.streams[stream, layout.RATE]:
        tables.streams[stream, layout.RATE] = rate
    tables.streams[stream, layout.STREAM_RECORDS] += count
    return count


@compiled
def _version5(block: Bytes, place: Place, when: When, tables: Tables, room: Columns, tally: Rows) -> None:
    """Read a datagram of NetFlow v5, as many records as there are."""
    start, end = place
    said = half(block, start + 2)
    there = (end - start - V5_HEADER) // V5_RECORD
    if there < said:
        tally[layout.DAMAGED] += 1
    begins = start + V5_HEADER
    _read_set(block, (begins, begins + min(said, there) * V5_RECORD), V5_PLAN, when, tables, room, tally)
    sampling = half(block, start + 22) & 0x3FFF
    if sampling:
        tables.streams[tally[layout.STREAM], layout.RATE] = sampling


@compiled
def _begin(block: Bytes, start: int, header: tuple[int, int, int, int, int, int], tables: Tables, tally: Rows) -> None:
    """Count a datagram, and what is missing before it."""
    version, _, _, _, sequence, _ = header
    streams, stream = tables.streams, tally[layout.STREAM]
    tally[layout.DATAGRAMS] += 1
    streams[stream, layout.STREAM_DATAGRAMS] += 1
    if version == 9:
        judge(streams, stream, sequence, 1, layout.FEW_DATAGRAMS)
    elif version == 5:
        judge(streams, stream, sequence, half(block, start + 2), layout.FEW_RECORDS)
    else:
        judge_ipfix(streams, stream, sequence)


@compiled
def _netflow(block: Bytes, row: Rows, key: Words, tables: Tables, room: Columns, tally: Rows, by_arrival: bool) -> int:
    """Read a datagram from tally[AT] on; return why it ended there. `key`: the two words of the exporter's address."""
    start, end, received, is_replayed = row[layout.START], row[layout.END], row[layout.RECEIVED], row[layout.REPLAYED]
    header = _header(block, start, end)
    version, length, export, uptime, _, domain = header
    if version == 10 and half(block, start + 2) < end - start:
        end = start + half(block, start + 2)
    if version == 0 or end - start < length:
        tally[layout.UNKNOWN_VERSION if version == 0 else layout.BAD] += 1
        return layout.DONE
    stream = find_stream(tables, key[0], key[1], np.uint64(version) << np.uint64(32) | np.uint64(domain), tally)
    if stream < 0:
        return layout.FULL
    tally[layout.STREAM] = stream
    is_first = tally[layout.AT] == 0 and not is_replayed
    if is_first:
        tally[layout.CLOCK] += 1
        _begin(block, start, header, tables, tally)
    if received and (export - received > layout.DAY or received - export > layout.DAY):
        if is_first:
            tally[layout.WRONG_TIMES] += 1
        export = received
    base = received if by_arrival and received else export
    when = (base, export, uptime, tables.streams[stream, layout.BOOT])
    if version == 5:
        _version5(block, (start, end), when, tables, room, tally)
        return layout.DONE
    # Records that were held are not in step with the sequence any more.
    kind_of = version, version == 10 and not is_replayed
    return _sets(block, (max(start + length, tally[layout.AT]), end), kind_of, when, tables, room, tally)


@compiled
def _sets(
    block: Bytes, place: Place, kind_of: tuple[int, bool], when: When, tables: Tables, room: Columns, tally: Rows
) -> int:
    """Read the sets of a datagram, from the first place on; return why it ended there.

    `kind_of`: the version, and True if its records are counted by the sequence numbers.
    """
    at, end = place
    version, counts = kind_of
    stream = tally[layout.STREAM]
    first = 0 if version == 9 else 2  # the id of sets of templates; the next one is that of templates of options
    while end - at >= 4:
        kind, length = half(block, at), half(block, at + 2)
        if length < 4 or at + length > end:
            tally[layout.DAMAGED] += 1
            tables.streams[stream, layout.IN_STEP] = 0
            return layout.DONE
        behind = at + length
        tally[layout.AT], tally[layout.SET_END] = at, behind
        if kind >= 256:
            row = find_plan(tables, stream, kind)
            if row < 0 or tables.plans[row, layout.KIND] == layout.GONE:
                return layout.UNKNOWN
            if tables.plans[row, layout.KIND] == layout.OPTION:
                return layout.OPTIONS
            count = _read_set(block, (at + 4, behind), row, when, tables, room, tally)
            if counts:
                add_records(tables.streams, stream, count, layout.OWN)
        elif kind == first or kind == first + 1:
            if not _is_known(block, (at + 4, behind), kind, tables, stream):
                return layout.TEMPLATES
        else:
            tally[layout.DAMAGED] += 1
        at = behind
    return layout.DONE


SFLOW_VERSION = 5
FLOW, EXPANDED_FLOW, DISCARDED = 1, 3, 5  # kinds of samples of packets
_RAW_HEADER, _IPV4, _IPV6 = 1, 3, 4  # kinds of records of a sample
_MAPPED = np.uint64(0xFFFF00000000)


@compiled
def _put_addresses(block: Bytes, at: int, is_narrow: bool, time: int, room: Columns, tally: Rows) -> None:
    """Write the packet of a record with addresses, whose fields begin at `at`."""
    protocol = big(block, at + 4)
    ports = at + 16 if is_narrow else at + 40
    value = (protocol & 0xFF) << pairs.PROTOCOL_SHIFT | pairs.HAS_PROTOCOL
    if protocol in (pairs.TCP, pairs.UDP):
        value |= (big(block, ports) & 0xFFFF) << pairs.SRC_PORT_SHIFT | big(block, ports + 4) & 0xFFFF | pairs.HAS_PORTS
    if protocol == pairs.TCP:
        value |= byte(block, ports + 11) << pairs.FLAGS_SHIFT | pairs.HAS_FLAGS
    _put_row(block, (at + 8, at + 12 if is_narrow else at + 24), is_narrow, value, time, room, tally)


@compiled
def _packet(block: Bytes, place: Place, records: int, time: int, links: Rows, room: Columns, tally: Rows) -> bool:
    """Write the packet that the records of a sample describe; return False if they go beyond it."""
    at, end = place
    missing = layout.NOT_IP  # the counter of a packet without addresses; 0 once it has some
    is_seen = False  # its first bytes have come
    is_whole = True
    for _ in range(records):
        is_whole = end - at >= 8 and big(block, at + 4) <= end - at - 8
        if not is_whole:
            break
        kind, length = big(block, at), big(block, at + 4)
        at += 8
        if missing and kind == _RAW_HEADER and length >= 16:
            protocol, there = big(block, at), min(big(block, at + 12), length - 16)
            link = links[protocol] if protocol < len(links) else 0
            found = put_frame(block, (at + 16, at + 16 + there), link, time, room, tally)
            missing, is_seen = missing if found and is_seen else found, True
        elif missing and ((kind == _IPV4 and length >= 32) or (kind == _IPV6 and length >= 56)):
            _put_addresses(block, at, kind == _IPV4, time, room, tally)
            missing = 0
        at += length + 3 & ~3
    if missing and (is_whole or is_seen):
        tally[missing] += 1
    return is_whole


@compiled
def _sample(
    block: Bytes, place: Place, kind: int, time: int, links: Rows, tables: Tables, room: Columns, tally: Rows
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
def _sflow(block: Bytes, row: Rows, links: Rows, tables: Tables, room: Columns, tally: Rows) -> int:
    """Read a datagram; return why it ended there."""
    start, end, time = row[layout.START], row[layout.END], row[layout.RECEIVED]
    if end - start < 28 or big(block, start) != SFLOW_VERSION:
        tally[layout.UNKNOWN_VERSION] += 1
        return layout.DONE
    family = big(block, start + 4)
    at = start + (12 if family == 1 else 24)
    if (family != 1 and family != 2) or end - at < 16:
        tally[layout.BAD] += 1
        return layout.DONE
    if family == 1:
        high, low = np.uint64(0), _MAPPED | np.uint64(big(block, start + 8))
    else:
        high, low = wide(block, start + 8), wide(block, start + 16)
    stream = find_stream(tables, high, low, np.uint64(1) << np.uint64(32) | np.uint64(big(block, at)), tally)
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
        if end - at < 8 or big(block, at + 4) > end - at - 8:
            tally[layout.DAMAGED] += 1
            break
        kind, length = big(block, at), big(block, at + 4)
        at += 8
        is_packet = kind in (FLOW, EXPANDED_FLOW, DISCARDED)
        if is_packet and not _sample(block, (at, at + length), kind, time, links, tables, room, tally):
            tally[layout.DAMAGED] += 1
        at += length + 3 & ~3
    return layout.DONE


@partial(compiled, counts=False)  # with counts it would take twice as long
def walk_exports(
    block: Bytes,
    datagrams: Rows,
    peers: Words,
    links: Rows,
    tables: Tables,
    room: Columns,
    tally: Rows,
    is_sflow: bool,
    by_arrival: bool,
) -> int:
    """Read datagrams from tally[DATAGRAM] on, in it from tally[AT] on, and return why the walk ended.

    `peers` has the addresses of the exporters. `links`: of each header protocol of sFlow. `by_arrival`: records without
    a time of their own, or whose time does not count, have the time of their arrival, where it is known, not that of
    their export.
    """
    while tally[layout.DATAGRAM] < len(datagrams):
        number = tally[layout.DATAGRAM]
        row = datagrams[number]
        most = (row[layout.END] - row[layout.START]) // layout.SHORTEST_RECORD + 1
        if tally[layout.ROWS4] + most > len(room.src4) or tally[layout.ROWS6] + most > len(room.src6):
            return layout.ROOM
        if is_sflow:
            reason = _sflow(block, row, links, tables, room, tally)
        else:
            reason = _netflow(block, row, peers[number], tables, room, tally, by_arrival)
        if reason != layout.DONE:
            return reason
        tally[layout.DATAGRAM], tally[layout.AT] = number + 1, 0
    return layout.DONE
