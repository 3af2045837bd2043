"""Details of rows: protocol, ports, TCP flags, and what a record claims about a conversation.

`read_value` makes a number of the text of a field (-1: missing, or it makes no sense), and `combine` the details of a
record of its numbers. The loops over lines of text call both by way of `read_details`; `details_of_columns` does the
same with columns (Arrow, messages).

Texts are given by addresses (jit/intrinsics.py); eight bytes behind them can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Dict
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core import pairs
from superhosts.core.columns.column import Column as TableColumn
from superhosts.core.columns.column import Text, count_of
from superhosts.core.lens import PROTOCOLS
from superhosts.core.pairs import Details
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at, number_at
from superhosts.sources.tables.knownlogs import (
    ANSWERED,
    CONVERSATION,
    CSV,
    ICMP_IN_DPORT,
    ICMP_IN_SPORT,
    ICMP_IS_SPORT,
    NO_CLAIM,
    RECORD,
    UNANSWERED,
    Log,
)
from superhosts.sources.tables.textscan import (
    PADDING,
    Bytes,
    Places,
    find_point,
    read_digits,
    read_flags,
    read_letters,
    read_number,
    short_word,
)

# What a field is. The numbers are the places of the values in `Values`.
PROTO, SPORT, DPORT, FLAGS, ICMP_TYPE, DIRECTION, STATE, REPLY_FLAGS, REPLIES = range(9)
VALUES = 9
_DOTTED = 1 << 16  # larger than any port
LONGEST_WORD = 8  # characters of a direction or a state

# The names of protocols that --proto takes, the frequent ones first, and how logs write them besides; Argus names some
# by what UDP carries.
_NAMES = {
    "tcp": pairs.TCP,
    "udp": pairs.UDP,
    "icmp": pairs.ICMP,
    **PROTOCOLS,
    "t": pairs.TCP,
    "udp-lite": pairs.UDP_LITE,
    **dict.fromkeys(("u", "rtp", "rtcp", "udt"), pairs.UDP),
    **dict.fromkeys(("ipv6-icmp", "icmp-v6"), pairs.ICMPV6),
    **dict.fromkeys(("ip", "ipencap", "ipv4"), 4),
    "hopopt": 0,
    "egp": 8,
    "igp": 9,
    "ipv6-frag": 44,
    "rsvp": 46,
    "eigrp": 88,
    "ospfigp": 89,
    "ipcomp": 108,
    "isis": 124,
}
_MOST_NAME = max(map(len, _NAMES))
_LOWER = 0x2020202020202020  # makes letters of a word lower-case, and the zeros behind it blanks


class Codes(NamedTuple):
    protocols: int  # address of a table of names: the first eight characters; the length, and the number below it
    protocol_count: int
    has_hex_flags: int  # 1: flags are hexadecimal digits without 0x
    icmp_place: int  # one of knownlogs.ICMP_…
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
def numbers_table(rows: tuple[Any, ...]) -> NDArray[np.int64]:
    """Return numbers, or tuples of them, as the loops read them. Tables stay for good: loops know their addresses."""
    return np.array(rows or [0], np.int64)


@cache
def bytes_table(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text or b"\0", np.uint8)


def _words_table(words: Dict[str, int]) -> NDArray[np.int64]:
    assert all(len(word) <= LONGEST_WORD for word in words)
    signed = [(int.from_bytes(word.encode(), "little", signed=len(word) == LONGEST_WORD)) for word in words]
    return numbers_table(tuple(zip(signed, words.values(), strict=True)))


def make_codes(log: Log, claim: int) -> Codes:
    """Return how a log writes its values; `claim`: what its records are, unless a word says otherwise."""
    states = log.states or CSV.states
    words = _words_table(log.directions).ctypes.data, len(log.directions), _words_table(states).ctypes.data, len(states)
    lower = (int.from_bytes(name.encode()[:8].ljust(8), "little", signed=True) | _LOWER for name in _NAMES)
    names = numbers_table(
        tuple((word, len(name) << 8 | _NAMES[name]) for word, name in zip(lower, _NAMES, strict=True))
    )
    return Codes(names.ctypes.data, len(_NAMES), int(log.has_hex_flags), log.icmp_place, claim, *words)


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
    if flags & pairs.SYN:
        return ANSWERED
    return UNANSWERED if flags & pairs.RST or flags == 0 else ANSWERED


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
    if values.state == NO_CLAIM and (values.proto == pairs.ICMP or values.proto == pairs.ICMPV6) and values.replies > 0:
        return ANSWERED  # States are about TCP.
    if values.state >= 0:
        return values.state
    if found == CONVERSATION and values.proto == pairs.TCP and values.reply_flags > 0:
        found = _claim_of_flags(values.reply_flags)
    return ANSWERED if found == CONVERSATION and values.replies > 0 else found


@compiled
def combine(values: Values, codes: Codes) -> int:
    """Return the details of a record (core/pairs.py).

    A destination port is enough for a record to have ports, as it is the one that counts; the other is 0 then.
    """
    detail, proto = 0, values.proto
    if proto >= 0:
        detail = proto << pairs.PROTOCOL_SHIFT | pairs.HAS_PROTOCOL
    has_ports = proto in (pairs.TCP, pairs.UDP, pairs.SCTP, pairs.UDP_LITE, pairs.DCCP) or proto < 0
    if has_ports and 0 <= values.dport < _DOTTED:
        detail |= max(values.sport, 0) << pairs.SRC_PORT_SHIFT | values.dport | pairs.HAS_PORTS
    flags = -1
    if proto in (pairs.ICMP, pairs.ICMPV6):
        flags = _icmp_type(values, codes.icmp_place)
    elif proto == pairs.TCP or proto < 0:
        flags = values.flags
    if flags >= 0:
        detail |= flags << pairs.FLAGS_SHIFT | pairs.HAS_FLAGS
    claim = _conclude(values, codes.claim)
    if claim == RECORD:
        detail |= pairs.IS_RECORD
    elif claim != NO_CLAIM:
        detail |= pairs.IS_CONVERSATION
        if claim == ANSWERED:
            detail |= pairs.IS_ANSWERED
    return detail


@dataclass(frozen=True)
class DetailFields:
    """The names of the columns of each of `Values`, the preferred ones first, and how their values are read."""

    names: tuple[tuple[str, ...], ...]
    codes: Codes

    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for names in self.names for name in names))


Numbers = NDArray[np.int64]
_MOST = {PROTO: 255, SPORT: 65535, DPORT: 65535, FLAGS: 65535, ICMP_TYPE: 255, REPLY_FLAGS: 65535, REPLIES: 2**63 - 1}
_FLAG_BITS = 0xFF


def details_of_columns(fields: DetailFields, count: int, read: Callable[[str], TableColumn | None]) -> Details:
    """Return the details of rows. `read` returns a column by its name, None if its type has no values of details."""
    values = np.full((VALUES, count), -1, np.int64)
    for what, names in enumerate(fields.names):
        for name in names:
            column = read(name)
            if column is not None:
                found = _numbers_of(column, what, fields.codes)
                values[what] = np.where(values[what] < (what == REPLIES), found, values[what])  # no 0 of replies
    details = np.empty(count, np.uint64)
    combine_columns(values, fields.codes, details)
    return details


@compiled
def combine_columns(values: NDArray[np.int64], codes: Codes, details: Details) -> None:
    for i in range(len(details)):
        first = values[PROTO, i], values[SPORT, i], values[DPORT, i], values[FLAGS, i], values[ICMP_TYPE, i]
        rest = values[DIRECTION, i], values[STATE, i], values[REPLY_FLAGS, i], values[REPLIES, i]
        details[i] = combine(Values(*first, *rest), codes)


def of_integers(numbers: Numbers, what: int) -> Numbers:
    """Return whole numbers as values of a field: those that cannot be are unknown."""
    most = _MOST.get(what, -1)  # A direction and a state are words.
    kept = np.where((numbers >= 0) & (numbers <= most), numbers, -1)
    return np.where(kept >= 0, kept & _FLAG_BITS, -1) if what in (FLAGS, REPLY_FLAGS) else kept


def _numbers_of(column: TableColumn, what: int, codes: Codes) -> Numbers:
    """Return a column as values of a field; those of addresses and of large integers are unknown."""
    values = column.values
    numbers = np.full(count_of(values), -1, np.int64)
    if isinstance(values, Text):
        padded = np.append(values.data, np.zeros(PADDING, np.uint8))  # The functions read whole words.
        read_places(padded, np.stack([values.starts, values.ends], axis=1), what, codes, numbers)
    elif isinstance(values, np.ndarray) and values.dtype.kind == "f":
        whole = (values >= 0) & (values < 2.0**53) & (np.floor(values) == values)
        numbers = of_integers(np.where(whole, values, -1).astype(np.int64), what)
    elif isinstance(values, np.ndarray) and values.dtype != object:  # Those beyond int64 become negative, and are none.
        numbers = of_integers(values.astype(np.int64), what)
    if column.codes is not None:
        numbers = numbers[column.codes] if len(numbers) else np.full(len(column), -1, np.int64)
    return numbers if column.valid is None else np.where(column.valid, numbers, -1)


@compiled
def read_places(data: Bytes, places: Places, what: int, codes: Codes, numbers: Numbers) -> None:
    """Read the values of texts, without the blanks around them. Texts lie inside, with `PADDING` bytes behind them."""
    base = data.ctypes.data
    for i in range(len(numbers)):
        begin, end = base + places[i, 0], base + places[i, 1]
        if begin < base:
            numbers[i] = -1
            continue
        while end > begin and byte_at(end - 1) <= 32:
            end -= 1
        while begin < end and byte_at(begin) <= 32:
            begin += 1
        numbers[i] = read_value(begin, end, what, codes)


class DetailRoles(NamedTuple):
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
