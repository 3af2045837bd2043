"""What one packet says about its pair: what it does, which service it is about, and how many distinct things were seen.

The ends of a pair are the lower address and the higher one. What a packet does (`observed_flags`) are bits; those of
the lower end are in the low half of a word and those of the higher end in the high half. The words of a pair's packets
are ORed.

| bit | an end has sent |
|---|---|
| 0 to 3 | TCP, UDP, ICMP, another protocol or one that is not known |
| 4 | an attempt to connect: SYN without ACK |
| 5 | an acceptance: SYN with ACK |
| 6 | a refusal: RST |
| 7 | what belongs to a connection: TCP without SYN and RST |
| 8, 9, 10 | ICMP: a request, a reply, an error |
| 16 to 23 | the TCP flags themselves |

A pair may use many services. One of them is kept (`service_of`): by its hash, so that it is as good as random, but one
that is known from the opening of a connection precedes one that is only likely, because its port is the lower one.

Marks (`mark_of`, `distinct`) say how many distinct things were seen, in 64 bits that are combined by OR. Each thing
sets one bit of eight levels of eight bits. Half of all things belong to the first level, a quarter to the second, and
so on, so that one of the levels is neither empty nor full. The number is found by maximum likelihood: one thing reads
as 1; hundreds have an error of about a third, which is enough for a mean over several pairs.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import (
    ACK,
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
    SRC_PORT_SHIFT,
    SYN,
    TCP,
    UDP,
)
from superhosts.jit.cache import compiled

LEVELS, BITS = 8, 8
MOST = 2000  # distinct things; beyond it nearly all bits are set

_U = np.uint64
# The share of things that set bits of each level
_SHARES = np.array([2.0 ** -(level + 1) for level in range(LEVELS - 1)] + [2.0 ** -(LEVELS - 1)])
_STEPS = 30  # halvings of the logarithm of the number


@compiled
def mark_of(hashed: np.uint64) -> np.uint64:
    """Return the bit that a thing with this hash sets."""
    low = hashed | _U(1 << LEVELS - 1)
    lowest = low & (~low + _U(1))  # the bit whose number is the level; found without branches, which nobody predicts
    level = _U(lowest & _U(0xAA) != _U(0)) | _U(lowest & _U(0xCC) != _U(0)) << _U(1)
    level |= _U(lowest & _U(0xF0) != _U(0)) << _U(2)
    return _U(1) << (level * _U(BITS) + (hashed >> _U(60)) % _U(BITS))


def unique(values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct values in order, where each value is among them, and how many there are of each."""
    order = np.argsort(values)  # `np.unique` would load numpy.ma first, in 20 ms
    ordered, places = values[order], np.empty(len(values), np.int64)
    is_new = np.append(True, ordered[1:] != ordered[:-1])[: len(values)]
    places[order] = np.cumsum(is_new) - 1
    return ordered[is_new], places, np.bincount(places)


def distinct(marks: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Estimate how many things have set the bits of each word; of words with as many bits in each level, once."""
    levels, places, _ = unique(np.bitwise_count(marks.view(np.uint8)).view(np.uint64))  # A level is a byte.
    filled = levels.view(np.uint8).reshape(-1, LEVELS).astype(np.float64)
    rate = _SHARES / BITS  # with which a bit of each level is chosen
    low, high = np.zeros(len(levels)), np.full(len(levels), np.log(2 * MOST))
    for _ in range(_STEPS):  # The derivative of the likelihood falls with the number; it is 0 at the most likely one.
        middle = (low + high) / 2
        chance = np.exp(middle)[:, None] * rate
        slope = (filled * rate / np.expm1(chance) - (BITS - filled) * rate).sum(axis=1)
        low, high = np.where(slope > 0, middle, low), np.where(slope > 0, high, middle)
    found = np.minimum(np.exp((low + high) / 2), MOST)
    return np.where(levels == 0, 0.0, np.where(filled.sum(axis=1) == 1, 1.0, found))[places]


SENT_TCP, SENT_UDP, SENT_ICMP, SENT_OTHER = 1, 2, 4, 8
ATTEMPT, ACCEPTS, REFUSES, CONNECTED = 16, 32, 64, 128
REQUEST, REPLY, ERROR = 256, 512, 1024
FLAGS_AT: Final = 16  # the first bit of the flags
HIGH_END: Final = 32  # the first bit of what the higher end has sent

# A service: class (2 bits), hash (37), protocol (8), port (16), and 1 if the higher end offers it.
NO_SERVICE: Final = (1 << 64) - 1
KNOWN, LIKELY, PORTLESS = 0, 1, 2  # classes: from an opening, by the lower port, without ports
CLASS_AT, PROTOCOL_AT, PORT_AT = 62, 17, 1
HASH_AT, HASH_BITS = 25, 37

_ZERO, _ONE = _U(0), _U(1)
_PORT = _U(0xFFFF)
_MIXED = _U(0xD6E8FEB86659FD93)


@compiled
def mixed(x: np.uint64) -> np.uint64:
    """Return 64 bits each of which depends on all of `x`."""
    x = (x ^ (x >> _U(32))) * _MIXED
    x = (x ^ (x >> _U(32))) * _MIXED
    return x ^ (x >> _U(32))


@compiled
def observed_flags(detail: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return what a packet shows that its source has sent, and what it shows of its destination."""
    protocol = np.int64((detail >> _U(PROTOCOL_SHIFT)) & _U(0xFF)) if detail & _U(HAS_PROTOCOL) else -1
    flags: int = np.int64((detail >> _U(FLAGS_SHIFT)) & _U(0xFF)) if detail & _U(HAS_FLAGS) else 0  # type: ignore[assignment]
    known = detail & _U(HAS_FLAGS) != _ZERO
    source, destination = SENT_OTHER, 0
    if protocol == TCP:
        source = SENT_TCP | flags << FLAGS_AT
        is_record = detail & _U(IS_RECORD) != _ZERO
        if flags & SYN and not flags & ACK:
            source |= ATTEMPT
        elif flags & SYN and not is_record:
            source |= ACCEPTS
        elif known and (is_record or not flags & RST):
            source |= CONNECTED
        if flags & RST:
            source |= REFUSES
    elif protocol == UDP:
        source = SENT_UDP
    elif protocol == ICMP:
        source = SENT_ICMP
        if known:
            is_reply, is_error = flags in (0, 14, 16, 18), flags in (3, 4, 5, 11, 12)
            source |= REPLY if is_reply else ERROR if is_error else REQUEST
    elif protocol == ICMPV6:
        source = SENT_ICMP
        if known:
            source |= ERROR if flags < 128 else REPLY if flags in (129, 132, 136) else REQUEST
    if detail & _U(IS_CONVERSATION):
        sent = source & (SENT_TCP | SENT_UDP | SENT_ICMP | SENT_OTHER)
        source = sent | (ATTEMPT if protocol == TCP else REQUEST if protocol in (ICMP, ICMPV6) else 0)
        if detail & _U(IS_ANSWERED):
            destination = sent | (ACCEPTS if protocol == TCP else REPLY if protocol in (ICMP, ICMPV6) else 0)
            source |= CONNECTED if protocol == TCP else 0
    return _U(source), _U(destination)


@compiled
def service_of(detail: np.uint64) -> tuple[np.uint64, int]:
    """Return the service that a packet is about, and whose: 1 the destination's, 0 the source's, -1 nobody's."""
    if not detail & _U(HAS_PROTOCOL):
        return _U(NO_SERVICE), -1
    protocol = (detail >> _U(PROTOCOL_SHIFT)) & _U(0xFF)
    flags = np.int64((detail >> _U(FLAGS_SHIFT)) & _U(0xFF)) if detail & _U(HAS_FLAGS) else 0
    if not detail & _U(HAS_PORTS):
        return _U(PORTLESS) << _U(CLASS_AT) | protocol << _U(PROTOCOL_AT), 1
    source, destination = (detail >> _U(SRC_PORT_SHIFT)) & _PORT, detail & _PORT
    to_destination = bool(destination <= source)
    kind = LIKELY
    if detail & _U(IS_CONVERSATION):
        kind, to_destination = KNOWN, True
    elif protocol == _U(TCP):
        is_record = detail & _U(IS_RECORD) != _ZERO
        if flags & SYN and not flags & ACK:
            kind, to_destination = KNOWN, True
        elif flags & SYN and not is_record:
            kind, to_destination = KNOWN, False
        elif flags & RST:
            return _U(NO_SERVICE), -1  # A refusal comes from any port.
    port = destination if to_destination else source
    return _U(kind) << _U(CLASS_AT) | protocol << _U(PROTOCOL_AT) | port << _U(PORT_AT), int(to_destination)
