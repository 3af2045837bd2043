"""The arrays that Python and the compiled loops of exports share: what each slot means, how the loops find a stream or
a plan in them, and how they take sequence numbers.

The sequence number of a datagram tells what an exporter sent and nobody got. It counts records before the datagram
(NetFlow v5, IPFIX) or datagrams (NetFlow v9, sFlow). A number a little ahead is a gap, and what lies between is lost. A
number a little behind belongs to a datagram that was overtaken: it was counted as lost, and is not. A number far away
is an exporter that was started again: nothing is known to be lost. Some exporters of IPFIX (softflowd) number a message
with the records up to its end, not before it (RFC 7011), and leave out records of options. So losses are counted in
both ways, and the one counts in which more messages follow from the one before. While all messages have as many
records, both ways are the same.

A plan is made of a template's fields (`make_plan`). NetFlow v9 and IPFIX share the numbers of fields. A field that
occurs twice counts where it occurs first. Fields of an enterprise are skipped, except those of the enterprise 29305,
which are the same fields of the other direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled
from superhosts.sources.frames.links import link_of

Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]
Words = NDArray[np.uint64]
Place = tuple[int, int]  # where bytes begin and end
When = tuple[int, int, int, int]  # base, export, uptime and boot (`walks.read_fixed`)

# A datagram of a batch: where it is in the block of bytes, and when it was received (ns; 0: not known).
START, END, RECEIVED, REPLAYED = 0, 1, 2, 3  # REPLAYED: 1 for records that were held until their template came
DATAGRAM_SLOTS = 4

# The slots of a tally: the place that a walk has reached, and what it counts.
DATAGRAM, AT, SET_END, STREAM = 0, 1, 2, 3  # AT is 0 at the start of a datagram
ROWS4, ROWS6 = 4, 5
DATAGRAMS, BAD, DAMAGED, UNKNOWN_VERSION = 6, 7, 8, 9
NOT_IP, TRUNCATED, UNSUPPORTED = 10, 11, 12  # records and samples without addresses, by reason
WRONG_TIMES, RECORDS, SAMPLES = 13, 14, 15
SECOND_ROWS = 16  # rows of packets in a tunnel that have one already
CLOCK = 17  # datagram counter; LRU clock
WANTS = 18  # what is wanted of the first bytes of packets: a sum of the bits of frames.tally
TALLY_SLOTS = 19
FIRST_COUNT = ROWS4  # slots from here to CLOCK begin at zero with every block

# Why a walk returns.
DONE, ROOM, TEMPLATES, OPTIONS, UNKNOWN, FULL = 0, 1, 2, 3, 4, 5

# A stream: the messages of one exporter and one observation domain (source id, engine, sub-agent).
EXPECTED, IN_STEP, LOST, RESTARTS = 0, 1, 2, 3
STREAM_DATAGRAMS, STREAM_RECORDS, RATE, USED, BOOT, VERSION, DROPPED = 4, 5, 6, 7, 8, 9, 10
# Of IPFIX, the reading in which a message's number includes its own records.
LAST, BEFORE, CHAIN, OWN, OWN_OPTIONS, FITS, SCORE, OWN_LOST, OWN_RESTARTS = 11, 12, 13, 14, 15, 16, 17, 18, 19
STREAM_SLOTS = 20

# A plan: where the fields of a template's records are. Places are bytes from the start of a record, -1 if absent.
KIND, LENGTH, HASH, PLAN_USED = 0, 1, 2, 3
FAMILY, SRC4, DST4, SRC6, DST6, IP_VERSION = 4, 5, 6, 7, 8, 9
TIME_KIND, TIME_AT, TIME_WIDTH, BOOT_AT = 10, 11, 12, 13
PROTOCOL, SPORT, DPORT, FLAGS, FLAGS_WIDTH, ICMP = 14, 15, 16, 17, 18, 19
REVERSE_AT, REVERSE_WIDTH, IS_BIFLOW, RATE_AT, RATE_WIDTH = 20, 21, 22, 23, 24
FRAME_AT, FRAME_LENGTH, FRAME_LINK = 25, 26, 27
FIRST_FIELD, FIELDS = 28, 29  # of records of varying length: rows of the table of fields
PLAN_SLOTS = 30

# Kinds of plans.
GONE, FIXED, VARYING, OPTION, WITHOUT_ADDRESSES = 0, 1, 2, 3, 4
# Families of a plan's records; FRAME: the record has the first bytes of a packet.
NO_FAMILY, BOTH, FRAME = 0, 46, 1
# Kinds of times.
NO_TIME, SECONDS, MILLISECONDS, NTP, UPTIME, BEFORE_EXPORT = 0, 1, 2, 3, 4, 5

VARIABLE = 65535  # the length of a field whose length is in each record
DAY = 86400 * 10**9
# No record with two addresses is shorter than this, so that a batch's rows can be bounded.
SHORTEST_RECORD = 8


class Index(NamedTuple):
    """A table with open addressing: the row of a key of three words."""

    slots: NDArray[np.int32]  # a row, -1 if free
    keys: Words  # (rows, 3)


class Tables(NamedTuple):
    """What the walks look up: streams by key, plans by stream and template."""

    stream_index: Index  # by address, high and low word, and version and domain
    streams: Rows
    plan_index: Index  # by stream, template and 0
    plans: Rows
    fields: Rows  # (fields, 2): length and slot of the plan, -1 if it does not matter
    present: Rows  # the plan of the record of varying length that is being read
    used: Rows  # (1,): streams in use
    secret: Words  # (2,): nobody can choose keys that meet in the tables


@compiled
def _mixed(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return value ^ (value >> np.uint64(32))


@compiled
def _place_of(index: Index, secret: Words, first: np.uint64, second: np.uint64, third: np.uint64) -> np.uint64:
    """Return the slot of a key, or the free one where it belongs."""
    slots, keys = index.slots, index.keys
    mask = np.uint64(len(slots) - 1)
    place = _mixed(_mixed(_mixed(first ^ secret[0]) + second ^ secret[1]) + third * np.uint64(0x9E3779B97F4A7C15))
    while True:
        place &= mask
        row = np.int64(slots[place])
        if row < 0 or (keys[row, 0] == first and keys[row, 1] == second and keys[row, 2] == third):
            return place
        place += np.uint64(1)


@compiled
def find_stream(tables: Tables, high: np.uint64, low: np.uint64, domain: np.uint64, tally: Rows) -> int:
    """Return the number of a stream, a new one if it was never seen; -1 if there is no room for another."""
    slots, keys, streams = tables.stream_index.slots, tables.stream_index.keys, tables.streams
    place = _place_of(tables.stream_index, tables.secret, high, low, domain)
    stream = np.int64(slots[place])
    if stream < 0:
        stream = tables.used[0]
        if stream >= len(keys):
            return -1
        tables.used[0] += 1
        slots[place] = stream
        keys[stream, 0], keys[stream, 1], keys[stream, 2] = high, low, domain
        for slot in range(STREAM_SLOTS):
            streams[stream, slot] = 0
        streams[stream, VERSION] = np.int64(domain >> np.uint64(32))
    streams[stream, USED] = tally[CLOCK]
    return stream


@compiled
def find_plan(tables: Tables, stream: int, template: int) -> int:
    """Return the row of a template's plan; -1 if there is none."""
    index = tables.plan_index
    place = _place_of(index, tables.secret, np.uint64(stream), np.uint64(template), np.uint64(0))
    return np.int64(index.slots[place])


@compiled
def add_rows(index: Index, secret: Words, rows: Rows) -> None:
    """Enter rows by their keys, in place of those that have the same keys."""
    keys = index.keys
    for row in rows:
        index.slots[_place_of(index, secret, keys[row, 0], keys[row, 1], keys[row, 2])] = row


FEW_DATAGRAMS = 100_000  # by which a number of datagrams may be off without a restart
FEW_RECORDS = 3_000_000
UNKNOWN_STEP, IN_ORDER, OVERTAKEN = 0, 1, 2  # whether the next number is known, by the last datagram
MOST_SCORE = 100  # messages by which one way may be ahead: another program may take over the exporter's address
_MASK = 0xFFFFFFFF


@compiled
def judge(streams: Rows, stream: int, sequence: int, count: int, few: int) -> None:
    """Take a datagram's number, and how much it counts itself; note the loss before it."""
    ahead = (sequence - streams[stream, EXPECTED]) & _MASK
    if streams[stream, IN_STEP] != UNKNOWN_STEP and ahead:
        behind = _MASK + 1 - ahead
        if ahead <= few:
            streams[stream, LOST] += ahead
        elif behind <= few // 100 and sequence > few // 100:
            streams[stream, LOST] = max(streams[stream, LOST] - count, 0)
            streams[stream, IN_STEP] = OVERTAKEN
            return
        else:
            streams[stream, RESTARTS] += 1
    streams[stream, EXPECTED] = sequence + count
    streams[stream, IN_STEP] = IN_ORDER


@compiled
def judge_ipfix(streams: Rows, stream: int, sequence: int) -> None:
    """Take the number of a message of IPFIX, whose records are not known yet; note the loss before it in both ways."""
    is_known = streams[stream, IN_STEP] != UNKNOWN_STEP  # how many records the last message has
    if is_known and streams[stream, CHAIN] == 2:
        _judge_last(streams, stream)
    streams[stream, FITS] = int((sequence - streams[stream, EXPECTED]) & _MASK == 0) if is_known else -1
    streams[stream, BEFORE], streams[stream, LAST] = streams[stream, LAST], sequence
    streams[stream, CHAIN] = min(streams[stream, CHAIN] + 1, 2)
    streams[stream, OWN] = streams[stream, OWN_OPTIONS] = 0
    judge(streams, stream, sequence, 0, FEW_RECORDS)  # its records are added set by set


@compiled
def _judge_last(streams: Rows, stream: int) -> None:
    """Note the loss before the last message, if its number includes its own records."""
    step, least = (streams[stream, LAST] - streams[stream, BEFORE]) & _MASK, streams[stream, OWN]
    most = least + streams[stream, OWN_OPTIONS]
    if streams[stream, FITS] >= 0:
        score = streams[stream, SCORE] + int(least <= step <= most) - streams[stream, FITS]
        streams[stream, SCORE] = max(min(score, MOST_SCORE), -MOST_SCORE)
    if step <= most:
        return
    if step <= FEW_RECORDS:
        streams[stream, OWN_LOST] += step - most
    elif _MASK + 1 - step <= FEW_RECORDS // 100 and streams[stream, LAST] > FEW_RECORDS // 100:  # it was overtaken
        streams[stream, OWN_LOST] = max(streams[stream, OWN_LOST] - most, 0)
        streams[stream, LAST] = streams[stream, BEFORE]
    else:
        streams[stream, OWN_RESTARTS] += 1


@compiled
def add_records(streams: Rows, stream: int, count: int, slot: int) -> None:
    """Count the records of a set of IPFIX, whose header does not say how many there are. `slot`: OWN or OWN_OPTIONS."""
    streams[stream, slot] += count
    if streams[stream, IN_STEP] == OVERTAKEN:
        streams[stream, LOST] = max(streams[stream, LOST] - count, 0)
    else:
        streams[stream, EXPECTED] += count


REVERSE = 29305  # the enterprise whose fields are those of the other direction
MOST_FIELDS = 512  # of a template


class Field(NamedTuple):
    element: int
    length: int  # VARIABLE: in each record
    enterprise: int = 0


# Element → slot of the plan, and the lengths that it may have.
_UP_TO_8 = range(1, 9)
_ELEMENTS: dict[int, tuple[int, Sequence[int]]] = {8: (SRC4, (4,)), 12: (DST4, (4,)), 60: (IP_VERSION, (1,))}
_ELEMENTS |= {27: (SRC6, (16,)), 28: (DST6, (16,))}
_ELEMENTS |= {4: (PROTOCOL, (1,)), 160: (BOOT_AT, (8,)), 6: (FLAGS, _UP_TO_8)}
_ELEMENTS |= dict.fromkeys((7, 182, 180, 205), (SPORT, (2,)))  # and those of TCP and UDP alone
_ELEMENTS |= dict.fromkeys((11, 183, 181), (DPORT, (2,)))
_ELEMENTS |= dict.fromkeys((32, 139, 176, 178), (ICMP, (1, 2)))  # the type is the first byte
_ELEMENTS |= dict.fromkeys((34, 50, 305), (RATE_AT, _UP_TO_8))
_STARTS = {22: UPTIME, 150: SECONDS, 152: MILLISECONDS, 154: NTP, 156: NTP, 158: BEFORE_EXPORT}
_ENDS = {21: UPTIME, 151: SECONDS, 153: MILLISECONDS, 155: NTP, 157: NTP, 159: BEFORE_EXPORT}
_EVENTS = {322: SECONDS, 323: MILLISECONDS, 324: NTP, 325: NTP, 258: MILLISECONDS}  # observed; collected
_EXACTNESS = {NTP: 0, MILLISECONDS: 1, BEFORE_EXPORT: 2, SECONDS: 3, UPTIME: 4}  # of several times the best counts
_SECTIONS = {313: 101, 315: 1}  # the first bytes of a packet, and the link type with which they begin
_REVERSE_COUNTS = (2, 86, 1, 85)  # packets, bytes


def make_plan(fields: list[Field], times: str | None) -> tuple[Rows, Rows]:
    """Return a plan, without its owner, and its table of fields, which is empty for records of one length.

    `times` is "start" or "end"; None if records have no time of their own that counts.
    """
    plan = np.full(PLAN_SLOTS, -1, np.int64)
    plan[[FAMILY, FIRST_FIELD, FIELDS, IS_BIFLOW, TIME_KIND, TIME_WIDTH, FLAGS_WIDTH]] = 0
    places: dict[int, tuple[int, int]] = {}  # slot → number of its field, and its length
    best: dict[int, tuple[int, int, Field]] = {}  # by rank of the time: exactness, number and field
    for number, field in enumerate(fields):
        _place(field, number, places, plan)
        if not field.enterprise and (ranked := _rank(field, times)) is not None:
            rank, kind = ranked
            chosen = (_EXACTNESS[kind], number, field)
            best[rank] = min(best.get(rank, chosen), chosen, key=lambda each: each[:2])
    if best:
        _, number, field = best[min(best)]
        plan[TIME_KIND] = (_STARTS | _ENDS | _EVENTS)[field.element]
        plan[TIME_WIDTH] = field.length
        places[TIME_AT] = (number, field.length)
        if plan[TIME_KIND] != UPTIME:
            places.pop(BOOT_AT, None)
    plan[FAMILY] = _family(places)
    for slot, width in ((FLAGS, FLAGS_WIDTH), (REVERSE_AT, REVERSE_WIDTH), (RATE_AT, RATE_WIDTH)):
        plan[width] = places[slot][1] if slot in places else 0
    return _laid_out(fields, places, plan)


def _place(field: Field, number: int, places: dict[int, tuple[int, int]], plan: Rows) -> None:
    element, length = field.element, field.length
    slot, lengths = _ELEMENTS.get(element, (0, ()))
    if field.enterprise == REVERSE:
        plan[IS_BIFLOW] = 1
        slot, lengths = REVERSE_AT, _UP_TO_8 if element in _REVERSE_COUNTS else ()
    elif field.enterprise:
        return
    elif element in _SECTIONS and FRAME_AT not in places:
        slot, lengths = FRAME_AT, (length,)
        plan[FRAME_LINK] = link_of(_SECTIONS[element])
        plan[FRAME_LENGTH] = length
    if length in lengths:
        places.setdefault(slot, (number, length))


def _rank(field: Field, times: str | None) -> tuple[int, int] | None:
    """Return how well a field suits as the time of a record, 0 is best, and its kind; None if it does not."""
    if times is None:
        return None
    ranks = (_STARTS, _ENDS, _EVENTS) if times == "start" else (_ENDS, _STARTS, _EVENTS)
    for rank, kinds in enumerate(ranks):
        kind = kinds.get(field.element, NO_TIME)
        fits = field.length == 8 if kind == NTP else 0 < field.length <= 8
        if kind != NO_TIME and fits:
            return rank, kind
    return None


def _family(places: dict[int, tuple[int, int]]) -> int:
    narrow, wide = SRC4 in places and DST4 in places, SRC6 in places and DST6 in places
    if narrow and wide:
        return BOTH
    return 4 if narrow else 6 if wide else FRAME if FRAME_AT in places else NO_FAMILY


def _laid_out(fields: list[Field], places: dict[int, tuple[int, int]], plan: Rows) -> tuple[Rows, Rows]:
    by_number = {number: slot for slot, (number, _) in places.items()}
    if any(field.length == VARIABLE for field in fields):
        plan[KIND] = VARYING
        plan[LENGTH] = max(sum(1 if field.length == VARIABLE else field.length for field in fields), 1)
        table = [(field.length, by_number.get(number, -1)) for number, field in enumerate(fields)]
        return plan, np.array(table, np.int64)
    at = 0
    for number, field in enumerate(fields):
        if number in by_number:
            plan[by_number[number]] = at
        at += field.length
    plan[KIND] = FIXED if plan[FAMILY] else WITHOUT_ADDRESSES
    plan[LENGTH] = at
    return plan, np.empty((0, 2), np.int64)


_V5 = [(8, 4), (12, 4), (15, 4), (10, 2), (14, 2), (2, 4), (1, 4), (22, 4), (21, 4), (7, 2), (11, 2), (210, 1), (6, 1)]
VERSION5 = [
    Field(element, length) for element, length in [*_V5, (4, 1), (5, 1), (16, 2), (17, 2), (9, 1), (13, 1), (210, 2)]
]
