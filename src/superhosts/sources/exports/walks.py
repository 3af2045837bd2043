"""The compiled walks over datagrams: `walk_netflow` for NetFlow v5, NetFlow v9 and IPFIX, `walk_sflow` for sFlow v5.

The first one ends where it has no plan for a set of records, with a reason, and Python goes on from there.

A set of equal records is one strided loop over the records of a plan (`read_fixed`). What the plan says is read into
local variables before the loop, and the helpers that take the block do not branch: a function that does both would
count references to the array for every field. Whoever reads numbers has checked that their bytes are there.

A flow sample of sFlow describes one packet by one or more records. The first that has addresses counts: the packet's
first bytes, or its addresses as the agent found them. Counter samples are skipped. Nothing there needs Python.
"""

from __future__ import annotations

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
from superhosts.sources.frames.headers import find_headers, is_ipv4, put_ipv4, put_ipv6
from superhosts.sources.frames.links import big, byte, half

_NTP_EPOCH = 2_208_988_800  # seconds from 1900 to 1970
_ERA = 1 << 32  # seconds after which NTP's count begins again, in 2036
_FAR = 4 * 10**9  # seconds; a time beyond them does not fit


@compiled
def wide(block: Bytes, at: int) -> np.uint64:
    return np.uint64(big(block, at)) << np.uint64(32) | np.uint64(big(block, at + 4))


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


_NOT_IP, _TRUNCATED = frames.NOT_IP, frames.TRUNCATED


@compiled
def _put_row(block: Bytes, header: int, details: int, time: int, room: Columns, tally: Rows) -> None:
    """Write the packet whose IP header is at `header`."""
    if is_ipv4(block, header):
        row = tally[layout.ROWS4]
        put_ipv4(block, header, row, room.src4, room.dst4)
        room.time4[row] = time
        if len(room.details4):
            room.details4[row] = np.uint64(details)
        tally[layout.ROWS4] += 1
    else:
        row = tally[layout.ROWS6]
        put_ipv6(block, header, row, room.src6, room.dst6)
        room.time6[row] = time
        if len(room.details6):
            room.details6[row] = np.uint64(details)
        tally[layout.ROWS6] += 1


@compiled
def put_frame(block: Bytes, place: Place, link: int, time: int, room: Columns, tally: Rows) -> bool:
    """Write the packet that begins with block[place]; return False, and count why, if it has no addresses."""
    start, end = place
    header, details, second, second_details, _, _ = find_headers(block, start, end, link, tally[layout.WANTS])
    if header < 0:
        tally[
            layout.NOT_IP if header == -_NOT_IP else layout.TRUNCATED if header == -_TRUNCATED else layout.UNSUPPORTED
        ] += 1
        return False
    _put_row(block, header, details, time, room, tally)
    if second:
        _put_row(block, second, second_details, time, room, tally)
        tally[layout.SECOND_ROWS] += 1
    return True


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
    src_at, dst_at, time_at, width = plan[layout.SRC4], plan[layout.DST4], plan[layout.TIME_AT], plan[layout.TIME_WIDTH]
    src6_at, dst6_at, version_at, boot_at = (
        plan[layout.SRC6],
        plan[layout.DST6],
        plan[layout.IP_VERSION],
        plan[layout.BOOT_AT],
    )
    src4, dst4, time4, src6, dst6, time6, details4, details6 = room
    row4, row6, wrong = np.uint64(tally[layout.ROWS4]), np.uint64(tally[layout.ROWS6]), 0
    wants_details = len(details4) > 0
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
                wrong += 1
        is_narrow = family == 4
        if family == layout.BOTH:
            if version_at >= 0:
                is_narrow = byte(block, at + version_at) != 6
            else:
                is_narrow = (big(block, at + src_at) | big(block, at + dst_at)) != 0
        if is_narrow:
            src4[row4] = big(block, at + src_at)
            dst4[row4] = big(block, at + dst_at)
            time4[row4] = time
            if wants_details:
                details4[row4] = np.uint64(details_of(block, at, plan))
            row4 += np.uint64(1)
        else:
            src6[row6, 0] = wide(block, at + src6_at)
            src6[row6, 1] = wide(block, at + src6_at + 8)
            dst6[row6, 0] = wide(block, at + dst6_at)
            dst6[row6, 1] = wide(block, at + dst6_at + 8)
            time6[row6] = time
            if wants_details:
                details6[row6] = np.uint64(details_of(block, at, plan))
            row6 += np.uint64(1)
        at += length
    tally[layout.ROWS4], tally[layout.ROWS6] = np.int64(row4), np.int64(row6)
    tally[layout.WRONG_TIMES] += wrong
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
    row = np.empty(layout.PLAN_SLOTS, np.int64)
    while end - at >= plan[layout.LENGTH]:  # the least that a record has
        behind = _measure(block, (at, end), plan, tables.fields, row)
        if behind < 0:
            break
        if row[layout.RATE_AT] >= 0:
            rate = max(rate, highest_rate(block, (at, behind), row))
        if plan[layout.FAMILY] == layout.FRAME:
            begins = at + row[layout.FRAME_AT]
            put_frame(block, (begins, begins + row[layout.FRAME_LENGTH]), row[layout.FRAME_LINK], when[0], room, tally)
            tally[layout.RECORDS] += 1
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
                put_frame(
                    block, (begins, begins + plan[layout.FRAME_LENGTH]), plan[layout.FRAME_LINK], when[0], room, tally
                )
                at += plan[layout.LENGTH]
                count += 1
            tally[layout.RECORDS] += count
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
def walk_netflow(
    block: Bytes, datagrams: Rows, peers: Words, tables: Tables, room: Columns, tally: Rows, by_arrival: int
) -> int:
    """Read datagrams from tally[DATAGRAM] on, in it from tally[AT] on, and return why the walk ended.

    `peers` has the addresses of the exporters. `by_arrival`: records without a time of their own, or whose time does
    not count, have the time of their arrival (1), not that of their export (0), where it is known.
    """
    while tally[layout.DATAGRAM] < len(datagrams):
        number = tally[layout.DATAGRAM]
        start, end, received = (
            datagrams[number, layout.START],
            datagrams[number, layout.END],
            datagrams[number, layout.RECEIVED],
        )
        most = (end - start) // layout.SHORTEST_RECORD + 1
        if tally[layout.ROWS4] + most > len(room.src4) or tally[layout.ROWS6] + most > len(room.src6):
            return layout.ROOM
        header = _header(block, start, end)
        version, length, export, uptime, _, domain = header
        if version == 10 and half(block, start + 2) < end - start:
            end = start + half(block, start + 2)
        if version == 0 or end - start < length:
            tally[layout.UNKNOWN_VERSION if version == 0 else layout.BAD] += 1
            tally[layout.DATAGRAM], tally[layout.AT] = number + 1, 0
            continue
        key = np.uint64(version) << np.uint64(32) | np.uint64(domain)
        stream = find_stream(tables, peers[number, 0], peers[number, 1], key, tally)
        if stream < 0:
            return layout.FULL
        tally[layout.STREAM] = stream
        is_first = tally[layout.AT] == 0 and not datagrams[number, layout.REPLAYED]
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
            tally[layout.DATAGRAM], tally[layout.AT] = number + 1, 0
            continue
        # Records that were held are not in step with the sequence any more.
        counts = version == 10 and not datagrams[number, layout.REPLAYED]
        place = max(start + length, tally[layout.AT]), end
        reason = _sets(block, place, (version, counts), when, tables, room, tally)
        if reason != layout.DONE:
            return reason
        tally[layout.DATAGRAM], tally[layout.AT] = number + 1, 0
    return layout.DONE


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
def _packet(block: Bytes, place: Place, records: int, time: int, links: Rows, room: Columns, tally: Rows) -> bool:
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
        if end - start < 28 or big(block, start) != SFLOW_VERSION:
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
