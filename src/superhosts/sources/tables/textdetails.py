"""From the wanted fields of one line to its details. Compiled into the loops of both text formats.

A loop that is called without `DetailRoles` is compiled without any of this.
"""

from __future__ import annotations

from typing import NamedTuple

from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import number_at
from superhosts.sources.tables.detailvalues import (
    DIRECTION,
    DPORT,
    FLAGS,
    ICMP_TYPE,
    PROTO,
    REPLIES,
    REPLY_FLAGS,
    SPORT,
    STATE,
    Codes,
    Values,
    combine,
    read_value,
)


class DetailRoles(NamedTuple):
    """Which slots are what."""

    first: int  # slots before it are those of addresses, times and the kind
    bounds: int  # address of two numbers for each value: its first slot, and the one behind its last
    codes: Codes


@compiled
def _first_value(places: int, bounds: int, what: int, codes: Codes) -> int:
    """Return the first number that one of several slots has, of replies the first that is not 0; -1 if none has."""
    for slot in range(number_at(bounds + 16 * what), number_at(bounds + 16 * what + 8)):
        begin = number_at(places + 16 * slot)
        if begin:
            value = read_value(begin, number_at(places + 16 * slot + 8), what, codes)
            if value >= (what == REPLIES):
                return value
    return -1


@compiled
def read_details(places: int, roles: DetailRoles) -> int:
    """Return the details of a line whose wanted fields are at `places`."""
    proto = _first_value(places, roles.bounds, PROTO, roles.codes)
    sport = _first_value(places, roles.bounds, SPORT, roles.codes)
    dport = _first_value(places, roles.bounds, DPORT, roles.codes)
    flags = _first_value(places, roles.bounds, FLAGS, roles.codes)
    icmp_type = _first_value(places, roles.bounds, ICMP_TYPE, roles.codes)
    direction = _first_value(places, roles.bounds, DIRECTION, roles.codes)
    state = _first_value(places, roles.bounds, STATE, roles.codes)
    reply_flags = _first_value(places, roles.bounds, REPLY_FLAGS, roles.codes)
    replies = _first_value(places, roles.bounds, REPLIES, roles.codes)
    values = Values(proto, sport, dport, flags, icmp_type, direction, state, reply_flags, replies)
    return combine(values, roles.codes)
