"""From the text of fields to numbers, and from these numbers to the details of a packet, in compiled functions.

`textnumbers.py` reads numbers and flags; what the words of a log mean is said here. Every format reads the same values
with these functions: text loops give them places of fields (`textdetails.py`), the readers of columns whole columns
(`detailcolumns.py`). A number is -1 where a value is missing or makes no sense.

Texts are given by addresses (rawmemory.py); eight bytes behind them can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.lens import PROTOCOLS
from superhosts.core.pairs import (
    DCCP,
    FLAGS_SHIFT,
    HAS_FLAGS,
    HAS_PORTS,
    HAS_PROTOCOL,
    ICMP,
    ICMPV6,
    IS_ANSWERED,
    IS_CONVERSATION,
    IS_RECORD,
    PROTOCOL_SHIFT,
    RST,
    SCTP,
    SRC_PORT_SHIFT,
    SYN,
    TCP,
    UDP,
    UDP_LITE,
)
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at, number_at
from superhosts.sources.tables.claims import (
    ANSWERED,
    CONVERSATION,
    ICMP_IN_DPORT,
    ICMP_IN_SPORT,
    ICMP_IS_SPORT,
    NO_CLAIM,
    RECORD,
    UNANSWERED,
)
from superhosts.sources.tables.textnumbers import find_point, read_digits, read_flags, read_letters, read_number
from superhosts.sources.tables.textscan import short_word

# What a field is. The numbers are the places of the values in `Values`.
PROTO, SPORT, DPORT, FLAGS, ICMP_TYPE, DIRECTION, STATE, REPLY_FLAGS, REPLIES = range(9)
VALUES = 9
_DOTTED = 1 << 16  # larger than any port
LONGEST_WORD = 8  # characters of a direction or a state

# How logs write protocols besides the names that --proto takes; Argus names some by what UDP carries.
_SPELLINGS = {
    "t": TCP,
    "u": UDP,
    "rtp": UDP,
    "rtcp": UDP,
    "udt": UDP,
    "ipv6-icmp": ICMPV6,
    "icmp-v6": ICMPV6,
    "ip": 4,
    "ipencap": 4,
    "ipv4": 4,
    "hopopt": 0,
    "ipv6-frag": 44,
    "egp": 8,
    "igp": 9,
    "rsvp": 46,
    "eigrp": 88,
    "ospfigp": 89,
    "isis": 124,
    "ipcomp": 108,
    "udp-lite": UDP_LITE,
}
_NAMES = {"tcp": TCP, "udp": UDP, "icmp": ICMP, **PROTOCOLS, **_SPELLINGS}  # the frequent ones first
_MOST_NAME = max(map(len, _NAMES))
_LOWER = 0x2020202020202020  # makes letters of a word lower-case, and the zeros behind it blanks


class Codes(NamedTuple):
    """How a log writes its values."""

    protocols: int  # address of a table of names: the first eight characters; the length, and the number below it
    protocol_count: int
    has_hex_flags: int  # 1: flags are hexadecimal digits without 0x
    icmp_place: int  # one of claims.ICMP_…
    claim: int  # what records are, unless a word says otherwise
    directions: int  # address of a table of words (word, claim)
    direction_count: int
    states: int
    state_count: int


class Values(NamedTuple):
    """The numbers of a record; those of a direction and a state are claims."""

    proto: int
    sport: int
    dport: int
    flags: int
    icmp_type: int
    direction: int
    state: int
    reply_flags: int
    replies: int


@cache
def numbers_table(rows: tuple[tuple[int, int], ...]) -> NDArray[np.int64]:
    """Return pairs of numbers as the loops read them. Tables stay for good: loops know their addresses."""
    return np.array(rows or [(0, 0)], np.int64)


def _words_table(words: Mapping[str, int]) -> NDArray[np.int64]:
    """Return words and their claims."""
    assert all(len(word) <= LONGEST_WORD for word in words)
    signed = [(int.from_bytes(word.encode(), "little", signed=len(word) == LONGEST_WORD)) for word in words]
    return numbers_table(tuple(zip(signed, words.values(), strict=True)))


def make_codes(
    directions: Mapping[str, int], states: Mapping[str, int], *, claim: int, icmp_place: int, has_hex_flags: bool
) -> Codes:
    """Return codes with tables of words."""
    first, second = _words_table(directions), _words_table(states)
    addresses = first.ctypes.data, len(directions), second.ctypes.data, len(states)
    names = numbers_table(tuple((_lower_word(name), len(name) << 8 | number) for name, number in _NAMES.items()))
    return Codes(names.ctypes.data, len(_NAMES), int(has_hex_flags), icmp_place, claim, *addresses)


def _lower_word(name: str) -> int:
    return int.from_bytes(name.encode()[:8].ljust(8), "little", signed=True) | _LOWER


@compiled
def _read_port(begin: int, end: int, is_dotted: bool) -> int:
    """Return a port. `is_dotted`: 3.1 is the type and the code of an ICMP message, in the bytes below _DOTTED."""
    point = find_point(begin, end) if is_dotted else end
    if point < end:
        kind, code = read_digits(begin, point), read_digits(point + 1, end)
        if 0 <= kind < 256 and 0 <= code < 256:
            return _DOTTED | kind << 8 | code
    value = read_number(begin, end)
    return value if value < _DOTTED else -1


@compiled
def _read_protocol(begin: int, end: int, codes: Codes) -> int:
    """Return a protocol by its number or its name, in any case."""
    if 48 <= byte_at(begin) <= 57:
        value = read_number(begin, end)
        return value if value < 256 else -1
    length = end - begin
    if length > _MOST_NAME:
        return -1
    word = np.int64(short_word(begin, end) | np.uint64(_LOWER))
    for i in range(codes.protocol_count):
        if number_at(codes.protocols + 16 * i) == word:
            found = number_at(codes.protocols + 16 * i + 8)
            if found >> 8 == length:
                number: int = found & 0xFF
                return number
    return -1


@compiled
def _claim_of(begin: int, end: int, table: int, count: int) -> int:
    """Return the claim of a word, -1 if the table does not have it."""
    if end - begin > LONGEST_WORD:
        return -1
    word = np.int64(short_word(begin, end))
    for i in range(count):
        if number_at(table + 16 * i) == word:
            claim: int = number_at(table + 16 * i + 8)
            return claim
    return -1


@compiled
def _read_state(begin: int, end: int, codes: Codes) -> int:
    """Return the claim of a state: a word of the log, or the TCP flags of both ends, as Argus writes them (S_SA)."""
    found = _claim_of(begin, end, codes.states, codes.state_count)
    if found >= 0 or end - begin > 32:
        return found
    for at in range(begin, end):
        if byte_at(at) == 95:  # _
            flags = read_letters(at + 1, end)
            return -1 if flags < 0 else _claim_of_flags(flags)
    return -1


@compiled
def _claim_of_flags(flags: int) -> int:
    """Return whether TCP flags of a destination are an answer: not if there are none, nor if it only refused."""
    if flags & SYN:
        return ANSWERED
    return UNANSWERED if flags & RST or flags == 0 else ANSWERED


@compiled
def read_value(begin: int, end: int, what: int, codes: Codes) -> int:
    """Return the number of a field, -1 if it has none."""
    if end <= begin:
        return -1
    if what == PROTO:
        return _read_protocol(begin, end, codes)
    if what in (SPORT, DPORT):
        return _read_port(begin, end, what == DPORT and codes.icmp_place == ICMP_IN_DPORT)
    if what in (FLAGS, REPLY_FLAGS):
        return read_flags(begin, end, codes.has_hex_flags == 1)
    if what == DIRECTION:
        return _claim_of(begin, end, codes.directions, codes.direction_count)
    if what == STATE:
        return _read_state(begin, end, codes)
    value = read_number(begin, end)
    return value if what == REPLIES or value < 256 else -1


@compiled
def _icmp_type(values: Values, place: int) -> int:
    """Return the type of an ICMP message."""
    if values.icmp_type >= 0:
        return values.icmp_type
    if place == ICMP_IS_SPORT:
        return values.sport if values.sport < 256 else -1
    if place == ICMP_IN_SPORT:
        return values.sport & 0xFF if values.sport >= 0 else -1
    return values.dport >> 8 & 0xFF if place == ICMP_IN_DPORT and values.dport >= 0 else -1


@compiled
def _conclude(values: Values, claim: int) -> int:
    """Return what a record claims, given what records of its log claim."""
    found = claim if values.direction < 0 else values.direction
    if found == RECORD:
        return ANSWERED if values.replies > 0 else RECORD
    if found == NO_CLAIM:
        return NO_CLAIM
    if values.state == NO_CLAIM and (values.proto == ICMP or values.proto == ICMPV6) and values.replies > 0:
        return ANSWERED  # States are about TCP.
    if values.state >= 0:
        return values.state
    if found == CONVERSATION and values.proto == TCP and values.reply_flags > 0:
        found = _claim_of_flags(values.reply_flags)
    return ANSWERED if found == CONVERSATION and values.replies > 0 else found


@compiled
def combine(values: Values, codes: Codes) -> int:
    """Return the details of a record (packetdetails.py).

    A destination port is enough for a record to have ports, as it is the one that counts; the other is 0 then.
    """
    detail, proto = 0, values.proto
    if proto >= 0:
        detail = proto << PROTOCOL_SHIFT | HAS_PROTOCOL
    has_ports = proto in (TCP, UDP, SCTP, UDP_LITE, DCCP) or proto < 0
    if has_ports and 0 <= values.dport < _DOTTED:
        detail |= max(values.sport, 0) << SRC_PORT_SHIFT | values.dport | HAS_PORTS
    flags = -1
    if proto in (ICMP, ICMPV6):
        flags = _icmp_type(values, codes.icmp_place)
    elif proto == TCP or proto < 0:
        flags = values.flags
    if flags >= 0:
        detail |= flags << FLAGS_SHIFT | HAS_FLAGS
    claim = _conclude(values, codes.claim)
    if claim == RECORD:
        detail |= IS_RECORD
    elif claim != NO_CLAIM:
        detail |= IS_CONVERSATION
        if claim == ANSWERED:
            detail |= IS_ANSWERED
    return detail
