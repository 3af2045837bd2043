"""The row that the wanted fields of a line of text make: two addresses and a time.

`make_roles` gives each field that is wanted (wanted.py) a slot. The compiled loop of a format (delimited.py,
jsonlines.py) finds where the wanted fields of a line begin and end, and `read_row`, compiled into it, makes a row of
them.

A row whose source and destination are both unset (empty, "-", null) is a record without addresses, such as NODATA of a
cloud's flow log, and one that has MAC addresses is not IP: neither is bad.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import Kinds, Words, parse_at
from superhosts.core.pairs import Details, Times
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at, number_at
from superhosts.sources.tables.details import DetailRoles, numbers_table
from superhosts.sources.tables.textscan import read_digits, short_word
from superhosts.sources.tables.times import NO_TIME, UNIT_DIGITS, parse_duration, parse_time
from superhosts.sources.tables.wanted import Wanted

Bytes = NDArray[np.uint8]
Tally = NDArray[np.int64]
MARK = b"\xef\xbb\xbf"  # byte order mark of UTF-8
MORE, FULL, DIRECTIVE = 0, 1, 2  # why a walk ends: no whole line is left, no room is left, or a line for the reader
MOST_SLOTS = 56
MOST_TIMES = 15  # of the slots, times and durations
MOST_DEPTH = 8  # of wanted keys; other values may lie as deep as they like
MOST_KINDS, LONGEST_KIND = 4, 8

GOOD, SKIPPED, NO_ADDRESS, MIXED, BAD_TIME, BAD_LINE = 0, 1, 2, 3, 4, 5  # what became of a line
REASONS = {
    NO_ADDRESS: "no address",
    MIXED: "IPv4 and IPv6 in one row",
    BAD_TIME: "no time",
    BAD_LINE: "fields are missing",
}
SHOWN = 3  # bad lines of a block that are described

# The slots of a tally: the arguments and the results of a walk.
POSITION = 0  # where the next line starts
STOP = 1  # where the whole lines end
LIMIT = 2  # rows for which there is room
ROWS, LINES, SKIPS, BAD, WIDE = 3, 4, 5, 6, 7  # counted by the walk; WIDE: rows that are IPv6
MARKS = 8  # three numbers of each of the first bad lines: which line it is, where it begins, and the reason
PLACES = MARKS + 3 * SHOWN  # where the wanted fields of a line begin and end, slot by slot; 0: the line lacks it
STACK = PLACES + 2 * MOST_SLOTS  # nodes of objects that are open
TALLY_SLOTS = STACK + MOST_DEPTH

_UNSET = tuple(
    np.uint64(int.from_bytes(word, "little"))
    for word in (b"-", b"null", b"NULL", b"None", b"none", b"nan", b"NaN", b"N/A", b"\\N", b"(empty)")
)


def make_roles(wanted: Wanted) -> Roles:
    src = len(wanted.src)
    dst = src + len(wanted.dst)
    time = dst + len(wanted.time)
    last = time + len(wanted.duration)
    assert last < MOST_SLOTS
    assert last - dst <= MOST_TIMES
    assert len(wanted.kinds) <= MOST_KINDS
    units = 0
    for slot, column in enumerate((*wanted.time, *wanted.duration), dst):
        digits = UNIT_DIGITS[column.unit or ("s" if slot >= time else "")]
        units |= digits << (4 * (slot - dst))
    words = [np.uint64(int.from_bytes(kind.encode()[:LONGEST_KIND], "little")) for kind in wanted.kinds]
    one, two, three, four = *words, *[np.uint64(0)] * (MOST_KINDS - len(words))
    return Roles(src, dst, time, last, wanted.sign, units, last if wanted.kind else -1, (one, two, three, four))


def make_detail_roles(wanted: Wanted) -> DetailRoles | None:
    """Return which of the slots behind the others are what; None if no details are wanted."""
    if wanted.details is None:
        return None
    place = first = len(wanted.used())
    bounds = []
    for names in wanted.more():
        bounds.append((place, place + len(names)))
        place += len(names)
    assert place <= MOST_SLOTS
    for role, names in enumerate(wanted.details.names):
        if wanted.kind in names:
            bounds[role] = first - 1, first  # The kind is the last of the others.
    return DetailRoles(first, numbers_table(tuple(bounds)).ctypes.data, wanted.details.codes)


class Roles(NamedTuple):
    """Which slots are what: [0, src) are sources, [src, dst) destinations, and so on."""

    src: int
    dst: int
    time: int  # no times if it equals `dst`
    duration: int
    sign: int  # 1: the duration is added to the time, -1: it is subtracted
    units: int  # of times and durations: values of UNIT_DIGITS, four bits for each slot from `dst` on
    kind: int  # slot of the kind of a record; -1: every record counts
    kinds: tuple[np.uint64, np.uint64, np.uint64, np.uint64]  # kinds that count, up to eight characters each


class Rows(NamedTuple):
    kinds: Kinds  # of both ends: 4 or 6
    src: Words
    dst: Words
    time: Times
    details: Details  # written only if they are wanted


class Row(NamedTuple):
    """What became of a line, and its row. The loops write it: a function given the arrays would cost a quarter more."""

    status: int
    kind: int
    src_high: np.uint64
    src_low: np.uint64
    dst_high: np.uint64
    dst_low: np.uint64
    time: int


def new_rows(count: int) -> Rows:
    """Return room for this many rows. Memory that is never written costs nothing."""
    words = np.empty((2, count, 2), np.uint64)
    return Rows(np.empty(count, np.uint8), words[0], words[1], np.empty(count, np.int64), np.empty(count, np.uint64))


@compiled
def unit_of(roles: Roles, slot: int) -> int:
    return roles.units >> (4 * (slot - roles.dst)) & 15


@compiled
def is_unset(begin: int, end: int) -> bool:
    if end - begin > 7:
        return False
    word = short_word(begin, end)
    if word == np.uint64(0):
        return True
    found = False
    for unset in _UNSET:
        found |= word == unset
    return found


@compiled
def _is_mac(begin: int, end: int) -> bool:
    if end - begin != 17:
        return False
    for i in range(5):
        mark = byte_at(begin + 3 * i + 2)
        if mark != 58 and mark != 45:  # : -
            return False
    return True


@compiled
def read_address(begin: int, end: int) -> tuple[int, np.uint64, np.uint64]:
    """Return (kind, high, low) of a field: an address, perhaps with a zone (%eth0), or the number of an IPv4 one."""
    kind, high, low = parse_at(np.uint64(begin), np.uint64(end - begin))
    if kind:
        return kind, high, low
    number = read_digits(begin, end)
    if 0 <= number < 1 << 32 and end - begin <= 10:
        return 4, np.uint64(0), np.uint64(number)
    for at in range(begin, end):
        if byte_at(at) == 37:  # %
            return parse_at(np.uint64(begin), np.uint64(at - begin))
    return 0, np.uint64(0), np.uint64(0)


@compiled
def _pick(places: int, first: int, last: int) -> tuple[int, np.uint64, np.uint64]:
    """Return the first address of several slots; one that is zero only if there is no other.

    The kind is 0 if none of them is an address, -1 if none of them is set or one is a MAC address.
    """
    found, high, low = -1, np.uint64(0), np.uint64(0)
    for slot in range(first, last):
        begin, end = number_at(places + 16 * slot), number_at(places + 16 * slot + 8)
        if not begin or is_unset(begin, end):
            continue
        kind, this_high, this_low = read_address(begin, end)
        if kind and (this_high or this_low):
            return kind, this_high, this_low
        if kind and found <= 0:
            found, high, low = kind, this_high, this_low
        elif found < 0 and not _is_mac(begin, end):
            found = 0
    return found, high, low


@compiled
def _read_time(places: int, roles: Roles) -> int:
    time = NO_TIME
    for slot in range(roles.dst, roles.time):
        begin, end = number_at(places + 16 * slot), number_at(places + 16 * slot + 8)
        if begin:
            found = parse_time(begin, end, unit_of(roles, slot))
            if found != NO_TIME:
                time = found
                if found:  # Zero is not a start of a flow, if there is another time.
                    break
    if time == NO_TIME or roles.sign == 0:
        return time
    for slot in range(roles.time, roles.duration):
        begin, end = number_at(places + 16 * slot), number_at(places + 16 * slot + 8)
        if begin and not is_unset(begin, end):
            length = parse_duration(begin, end, unit_of(roles, slot))
            if length == NO_TIME or (roles.sign < 0 and length > time) or length > 2**63 - 1 - time:
                return NO_TIME
            return time + roles.sign * length
    return time


@compiled
def is_other_kind(places: int, roles: Roles) -> bool:
    """Return True for a record of a kind that does not count."""
    if roles.kind < 0:
        return False
    begin, end = number_at(places + 16 * roles.kind), number_at(places + 16 * roles.kind + 8)
    if begin and end - begin <= 8:
        word = short_word(begin, end)
        for kind in roles.kinds:
            if word == kind:
                return False
    return True


@compiled
def read_row(places: int, roles: Roles, is_whole: bool) -> Row:
    """Return the row whose wanted fields are at `places`, if the line has them all."""
    zero = np.uint64(0)
    if not is_whole or is_other_kind(places, roles):
        return Row(SKIPPED if is_whole else BAD_LINE, 0, zero, zero, zero, zero, 0)
    src_kind, src_high, src_low = _pick(places, 0, roles.src)
    dst_kind, dst_high, dst_low = _pick(places, roles.src, roles.dst)
    status, time = GOOD, 0
    if src_kind <= 0 or dst_kind <= 0:
        status = SKIPPED if src_kind < 0 and dst_kind < 0 else NO_ADDRESS
    elif src_kind != dst_kind:
        status = MIXED
    elif roles.time > roles.dst:
        time = _read_time(places, roles)
        if time == NO_TIME:
            status = BAD_TIME
    return Row(status, src_kind, src_high, src_low, dst_high, dst_low, time)


@compiled
def count_other(tally: Tally, status: int, begin: int) -> None:
    """Count a line that is not a row, and note where the first bad ones begin."""
    if status == SKIPPED:
        tally[SKIPS] += 1
        return
    if tally[BAD] < SHOWN:
        mark = MARKS + 3 * tally[BAD]
        tally[mark] = tally[LINES]
        tally[mark + 1] = begin
        tally[mark + 2] = status
    tally[BAD] += 1
