"""Sets of equal records: one strided loop over the records of a plan.

What a plan says is read into local variables before the loop, and the helpers that take the block do not branch: a
function that does both would count references to the array for every field.
"""

from __future__ import annotations

import numpy as np

from superhosts.core.pairs import (
    FLAGS_SHIFT,
    HAS_FLAGS,
    HAS_PORTS,
    HAS_PROTOCOL,
    ICMPV6,
    IS_ANSWERED,
    IS_CONVERSATION,
    IS_RECORD,
    PROTOCOL_SHIFT,
    SRC_PORT_SHIFT,
)
from superhosts.core.pairs import (
    ICMP as ICMP4,
)
from superhosts.jit.cache import compiled
from superhosts.sources.exports.layout import (
    BOOT_AT,
    BOTH,
    DAY,
    DPORT,
    DST4,
    DST6,
    FAMILY,
    FIELDS,
    FIRST_FIELD,
    FLAGS,
    FLAGS_WIDTH,
    FRAME,
    FRAME_AT,
    FRAME_LENGTH,
    FRAME_LINK,
    ICMP,
    IP_VERSION,
    IS_BIFLOW,
    LENGTH,
    MILLISECONDS,
    NO_TIME,
    NOT_IP,
    NTP,
    PLAN_SLOTS,
    PROTOCOL,
    RATE_AT,
    RATE_WIDTH,
    RECORDS,
    REVERSE_AT,
    REVERSE_WIDTH,
    ROWS4,
    ROWS6,
    SPORT,
    SRC4,
    SRC6,
    TIME_AT,
    TIME_KIND,
    TIME_WIDTH,
    UPTIME,
    VARIABLE,
    WRONG_TIMES,
    Bytes,
    Rows,
    Tables,
)
from superhosts.sources.exports.numbers import byte, half, ntp_time, number, signed, time_of, wide, word
from superhosts.sources.exports.packets import put_frame
from superhosts.sources.frames.columns import Columns


@compiled
def details_of(block: Bytes, at: int, plan: Rows) -> int:
    """Return the details of the record at `at`."""
    value = IS_RECORD
    if plan[IS_BIFLOW]:
        value = IS_CONVERSATION
        if plan[REVERSE_AT] >= 0 and number(block, at + plan[REVERSE_AT], plan[REVERSE_WIDTH]) > 0:
            value |= IS_ANSWERED
    protocol = -1
    if plan[PROTOCOL] >= 0:
        protocol = byte(block, at + plan[PROTOCOL])
        value |= protocol << PROTOCOL_SHIFT | HAS_PROTOCOL
    if protocol in (ICMP4, ICMPV6):
        if plan[ICMP] >= 0:
            value |= byte(block, at + plan[ICMP]) << FLAGS_SHIFT | HAS_FLAGS
        elif plan[DPORT] >= 0:  # by old custom the destination port has type and code
            value |= byte(block, at + plan[DPORT]) << FLAGS_SHIFT | HAS_FLAGS
        return value
    has_ports = protocol == 6 or protocol == 17 or protocol == 132 or protocol == 136 or protocol == 33
    if plan[SPORT] >= 0 and plan[DPORT] >= 0 and has_ports:
        value |= half(block, at + plan[SPORT]) << SRC_PORT_SHIFT | half(block, at + plan[DPORT]) | HAS_PORTS
    if plan[FLAGS] >= 0 and protocol == 6:
        value |= byte(block, at + plan[FLAGS] + plan[FLAGS_WIDTH] - 1) << FLAGS_SHIFT | HAS_FLAGS
    return value


@compiled
def read_fixed(
    block: Bytes, place: tuple[int, int], plan: Rows, when: tuple[int, int, int, int], room: Columns, tally: Rows
) -> int:
    """Read the records of one length in block[place]; return how many.

    `when`: the time that counts where a record has none, the export time (both in nanoseconds), the header's uptime in
    milliseconds (-1: none) and the time of boot (0: not known).
    """
    at, end = place
    base, export, uptime, boot = when
    length, family, kind = plan[LENGTH], plan[FAMILY], plan[TIME_KIND]
    src_at, dst_at, time_at, width = plan[SRC4], plan[DST4], plan[TIME_AT], plan[TIME_WIDTH]
    src6_at, dst6_at, version_at, boot_at = plan[SRC6], plan[DST6], plan[IP_VERSION], plan[BOOT_AT]
    src4, dst4, time4, src6, dst6, time6, details4, details6 = room
    row4, row6, wrong = np.uint64(tally[ROWS4]), np.uint64(tally[ROWS6]), 0
    wants_details = len(details4) > 0
    is_short = kind == UPTIME and width == 4 and uptime >= 0 and boot_at < 0
    count = (end - at) // length
    for _ in range(count):
        time = base
        if kind != NO_TIME:
            if is_short:
                time = export - signed(uptime - word(block, at + time_at)) * 1_000_000
            else:
                if boot_at >= 0:
                    boot = time_of(MILLISECONDS, number(block, at + boot_at, 8), 0, 0, 0)
                value = ntp_time(block, at + time_at) if kind == NTP else number(block, at + time_at, width)
                time = time_of(kind, value, export, -1 if boot_at >= 0 else uptime, boot)
                if kind == UPTIME and boot == 0 and (uptime < 0 or boot_at >= 0):
                    time = base  # nothing says when the exporter was started
            if time - base > DAY or base - time > DAY:
                time = base
                wrong += 1
        is_narrow = family == 4
        if family == BOTH:
            if version_at >= 0:
                is_narrow = byte(block, at + version_at) != 6
            else:
                is_narrow = (word(block, at + src_at) | word(block, at + dst_at)) != 0
        if is_narrow:
            src4[row4] = word(block, at + src_at)
            dst4[row4] = word(block, at + dst_at)
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
    tally[ROWS4], tally[ROWS6] = np.int64(row4), np.int64(row6)
    tally[WRONG_TIMES] += wrong
    tally[RECORDS] += count
    return count  # type: ignore[no-any-return]


@compiled
def highest_rate(block: Bytes, place: tuple[int, int], plan: Rows) -> int:
    """Return the highest sampling rate that records of one length have; 0 if they have none."""
    at, end = place
    highest = 0
    while at + plan[LENGTH] <= end:
        highest = max(highest, number(block, at + plan[RATE_AT], plan[RATE_WIDTH]))
        at += plan[LENGTH]
    return highest if highest < 1 << 32 else 0


@compiled
def _measure(block: Bytes, place: tuple[int, int], plan: Rows, fields: Rows, row: Rows) -> int:
    """Find the fields of one record of varying length. Return where it ends; -1 if it does not end in `place`."""
    start, end = place
    at = start
    for slot in range(PLAN_SLOTS):
        row[slot] = plan[slot]
    for index in range(plan[FIRST_FIELD], plan[FIRST_FIELD] + plan[FIELDS]):
        length, slot = fields[index, 0], fields[index, 1]
        if length == VARIABLE:
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
            if slot == FRAME_AT:
                row[FRAME_LENGTH] = length
        at += length
    row[LENGTH] = at - start
    return at


@compiled
def read_varying(
    block: Bytes,
    place: tuple[int, int],
    plan: Rows,
    when: tuple[int, int, int, int],
    tables: Tables,
    room: Columns,
    tally: Rows,
) -> tuple[int, int]:
    """Read records of varying length; return how many, and the highest sampling rate in them.

    The remainder that is no whole record is padding, or damage.
    """
    at, end = place
    count = rate = 0
    row = np.empty(PLAN_SLOTS, np.int64)
    while end - at >= plan[LENGTH]:  # the least that a record has
        behind = _measure(block, (at, end), plan, tables.fields, row)
        if behind < 0:
            break
        if row[RATE_AT] >= 0:
            rate = max(rate, highest_rate(block, (at, behind), row))
        if plan[FAMILY] == FRAME:
            begins = at + row[FRAME_AT]
            put_frame(block, (begins, begins + row[FRAME_LENGTH]), row[FRAME_LINK], when[0], room, tally)
            tally[RECORDS] += 1
        elif plan[FAMILY]:
            read_fixed(block, (at, behind), row, when, room, tally)
        else:
            tally[NOT_IP] += 1
            tally[RECORDS] += 1
        count += 1
        at = behind
    return count, rate
