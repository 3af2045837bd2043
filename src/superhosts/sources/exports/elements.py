"""What the fields of templates mean: from a list of fields to a plan for the compiled loops.

NetFlow v9 and IPFIX share the numbers of fields. A field that occurs twice counts where it occurs first. Fields of an
enterprise are skipped, except those of the enterprise 29305, which are the same fields of the other direction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superhosts.sources.exports.layout import (
    BEFORE_EXPORT,
    BOOT_AT,
    BOTH,
    DPORT,
    DST4,
    DST6,
    FAMILY,
    FIELDS,
    FIRST_FIELD,
    FIXED,
    FLAGS,
    FLAGS_WIDTH,
    FRAME,
    FRAME_AT,
    FRAME_LENGTH,
    FRAME_LINK,
    ICMP,
    ICMP_WIDTH,
    IP_VERSION,
    IS_BIFLOW,
    KIND,
    LENGTH,
    MILLISECONDS,
    NO_FAMILY,
    NO_TIME,
    NTP,
    OPTION,
    PLAN_SLOTS,
    PROTOCOL,
    RATE_AT,
    RATE_WIDTH,
    REVERSE_AT,
    REVERSE_WIDTH,
    SECONDS,
    SPORT,
    SRC4,
    SRC6,
    TIME_AT,
    TIME_KIND,
    TIME_WIDTH,
    UPTIME,
    VARIABLE,
    VARYING,
    WITHOUT_ADDRESSES,
    Rows,
)
from superhosts.sources.frames.links import link_of

REVERSE = 29305  # the enterprise whose fields are those of the other direction
MOST_FIELDS = 512  # of a template


class Field(NamedTuple):
    element: int
    length: int  # VARIABLE: in each record
    enterprise: int = 0


# Element → slot of the plan and the length that it must have.
_ADDRESSES = {8: (SRC4, 4), 12: (DST4, 4), 27: (SRC6, 16), 28: (DST6, 16), 60: (IP_VERSION, 1)}
_OTHERS = {4: (PROTOCOL, 1), 7: (SPORT, 2), 11: (DPORT, 2)}
# TCP's and UDP's own ports, where there are no others.
_PORTS = {182: SPORT, 180: SPORT, 205: SPORT, 183: DPORT, 181: DPORT}
_ICMP = (32, 139, 176, 178)  # type and code, or the type alone; the type is the first byte
_RATES = (34, 50, 305)  # of a record itself
_STARTS = {22: UPTIME, 150: SECONDS, 152: MILLISECONDS, 154: NTP, 156: NTP, 158: BEFORE_EXPORT}
_ENDS = {21: UPTIME, 151: SECONDS, 153: MILLISECONDS, 155: NTP, 157: NTP, 159: BEFORE_EXPORT}
_EVENTS = {322: SECONDS, 323: MILLISECONDS, 324: NTP, 325: NTP, 258: MILLISECONDS}  # observed; collected
_EXACTNESS = {NTP: 0, MILLISECONDS: 1, BEFORE_EXPORT: 2, SECONDS: 3, UPTIME: 4}  # of several times the best counts
_SECTIONS = {313: 101, 315: 1}  # the first bytes of a packet, and the link type with which they begin
_BOOT = 160  # systemInitTimeMilliseconds
_REVERSE_COUNTS = (2, 86, 1, 85)  # packets, bytes
_FLAGS = 6


def make_plan(fields: list[Field], times: str | None) -> tuple[Rows, Rows]:
    """Return a plan, without its owner, and its table of fields, which is empty for records of one length.

    `times` is "start" or "end"; None if records have no time of their own that counts.
    """
    plan = np.full(PLAN_SLOTS, -1, np.int64)
    plan[[FAMILY, FIRST_FIELD, FIELDS, IS_BIFLOW, TIME_KIND, TIME_WIDTH, FLAGS_WIDTH, ICMP_WIDTH]] = 0
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
    for slot, width in ((FLAGS, FLAGS_WIDTH), (ICMP, ICMP_WIDTH), (REVERSE_AT, REVERSE_WIDTH), (RATE_AT, RATE_WIDTH)):
        plan[width] = places[slot][1] if slot in places else 0
    return _laid_out(fields, places, plan)


def _place(field: Field, number: int, places: dict[int, tuple[int, int]], plan: Rows) -> None:
    here = (number, field.length)
    element, length = field.element, field.length
    if field.enterprise == REVERSE:
        plan[IS_BIFLOW] = 1
        if element in _REVERSE_COUNTS and 0 < length <= 8:
            places.setdefault(REVERSE_AT, here)
    elif field.enterprise:
        return
    elif element in _ADDRESSES or element in _OTHERS:
        slot, needed = (_ADDRESSES | _OTHERS)[element]
        if length == needed:
            places.setdefault(slot, here)
    elif element in _PORTS and length == 2:
        places.setdefault(_PORTS[element], here)
    elif element == _FLAGS and 0 < length <= 8:
        places.setdefault(FLAGS, here)
    elif element in _ICMP and 0 < length <= 2:
        places.setdefault(ICMP, here)
    elif element in _RATES and 0 < length <= 8:
        places.setdefault(RATE_AT, here)
    elif element == _BOOT and length == 8:
        places.setdefault(BOOT_AT, here)
    elif element in _SECTIONS and FRAME_AT not in places:
        places[FRAME_AT] = here
        plan[FRAME_LINK] = link_of(_SECTIONS[element])
        plan[FRAME_LENGTH] = length


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
    """Write where the fields are, or for records of varying length, which of them matter."""
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


def option_plan() -> Rows:
    plan = np.full(PLAN_SLOTS, -1, np.int64)
    plan[KIND] = OPTION
    return plan


_V5 = [(8, 4), (12, 4), (15, 4), (10, 2), (14, 2), (2, 4), (1, 4), (22, 4), (21, 4), (7, 2), (11, 2), (210, 1), (6, 1)]
VERSION5 = [
    Field(element, length) for element, length in [*_V5, (4, 1), (5, 1), (16, 2), (17, 2), (9, 1), (13, 1), (210, 2)]
]
