"""Who opened a conversation, and whether the other end answered.

A run that asks for this has a memory of each open window: a filter of bits in which the conversations that were opened
leave a mark (a blocked Bloom filter, of bounded size). Packets are judged in the order in which they were read:

- TCP: a SYN without ACK opens. A SYN with ACK answers, if the other end has opened in this window. Nothing else does:
  a packet in the middle says nothing, and a refusal (RST) is not an answer.
- UDP and other protocols: who sends first in the window opens, and what comes back answers. A conversation is known by
  both addresses, the protocol and both ports. Fragments behind the first one have no ports and say nothing.
- ICMP: errors and replies never open, and errors do not answer.
- Records of flows have the flags of all their packets. A SYN without ACK opens, and nothing came back on it. With both
  flags, or without any known, who comes first opens. Records of whole conversations (Zeek and others) say it all.

What is found is noted in the details of the packets. The filter errs on one side: with a share s of its bits set, about
s^4 of the conversations that open are taken for answers, one in 256 when a quarter is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core import pairs as traffic
from superhosts.core.hashing import make_key, secret_of
from superhosts.core.pairs import ACK, FLAGS_SHIFT, ICMP, ICMPV6, PROTOCOL_SHIFT, RST, SYN, TCP, UDP, PacketBatch
from superhosts.core.profile import timed
from superhosts.jit.cache import compiled

FILTER_BYTES = 32 << 20  # for each open window; 16 million conversations leave one bit in four set
LINE = 8  # words of a block: a cache line, so that a question costs one visit to memory
PROBES = 4  # bits of a mark
BLOCK = 512  # packets whose lines are fetched before they are judged
CROWDED = 0.5  # of the bits set: from here on one in sixteen openings may be taken for an answer

Words = NDArray[np.uint64]
_U = np.uint64
_ZERO, _ONE = _U(0), _U(1)
_TURNS = _U(0x9E3779B97F4A7C15)  # odd: the marks of the two directions have nothing in common
_NOTHING, _BY_ORDER, _OPENS, _REPLIES, _UNKNOWN = range(5)  # what a packet does


# The bits of details as numbers of their own type.
_IS_RECORD, _IS_CONVERSATION = _U(traffic.IS_RECORD), _U(traffic.IS_CONVERSATION)
_HAS_PROTOCOL, _HAS_PORTS, _HAS_FLAGS = _U(traffic.HAS_PROTOCOL), _U(traffic.HAS_PORTS), _U(traffic.HAS_FLAGS)
_IS_ANSWERED, _OPENED = _U(traffic.IS_ANSWERED), _U(traffic.OPENED)
_ANSWERS, _ANSWERED = _U(traffic.ANSWERS), _U(traffic.ANSWERED)


class Multipliers(NamedTuple):
    """The part of a key that conversations need: a call with all of it costs more than the hashing."""

    first: np.uint64
    second: np.uint64
    third: np.uint64
    fourth: np.uint64


@compiled
def _deed(detail: np.uint64) -> int:
    """Return what a packet does, by itself: nothing, open, reply to who has opened, or what the order decides.

    It is not known of TCP without flags and UDP without ports: of fragments, and of packets that were cut.
    """
    protocol = np.int64((detail >> _U(PROTOCOL_SHIFT)) & _U(0xFF)) if detail & _HAS_PROTOCOL else -1
    flags = np.int64((detail >> _U(FLAGS_SHIFT)) & _U(0xFF))
    known = detail & _HAS_FLAGS != _ZERO
    is_record = detail & _IS_RECORD != _ZERO
    if protocol == TCP:
        if is_record:
            if not known or flags == 0:
                return _BY_ORDER
            if not flags & SYN:
                return _NOTHING
            return _BY_ORDER if flags & ACK else _OPENS
        if not known:
            return _UNKNOWN
        if not flags & SYN or flags & RST:
            return _NOTHING
        return _REPLIES if flags & ACK else _OPENS
    if protocol == UDP:
        return _UNKNOWN if detail & _HAS_PORTS == _ZERO and not is_record else _BY_ORDER
    if protocol == ICMP and known:
        if flags in (3, 4, 5, 11, 12):
            return _NOTHING
        return _REPLIES if flags in (0, 14, 16, 18) else _BY_ORDER
    if protocol == ICMPV6 and known:
        if flags < 128:
            return _NOTHING
        return _REPLIES if flags in (129, 132, 136) else _BY_ORDER
    return _BY_ORDER


@compiled
def _bits(found: np.uint64) -> np.uint64:
    """Return the bits that choose the mark of a direction of a conversation in its line."""
    return (found >> _ONE) * (_TURNS if found & _ONE else _ONE)


@compiled
def _word(bits: np.uint64, probe: int) -> np.uint64:
    """Return which word of a line holds a bit of a mark: three of nine bits."""
    return (bits >> _U(9 * probe + 6)) & _U(LINE - 1)


@compiled
def _bit(bits: np.uint64, probe: int) -> np.uint64:
    """Return a bit of a mark in its word."""
    return _ONE << ((bits >> _U(9 * probe)) & _U(63))


@compiled
def _folded(high: np.uint64, low: np.uint64, key: Multipliers) -> np.uint64:
    """Return an IPv6 address in 64 bits."""
    high *= key.third
    return (high ^ (high >> _U(32))) * key.fourth ^ low


@compiled
def _conversation(here: np.uint64, there: np.uint64, detail: np.uint64, key: Multipliers) -> np.uint64:
    """Return the hash of a conversation, the same for both directions but for the last bit, which is the direction."""
    sent, received = (detail >> _U(16)) & _U(0xFFFF), detail & _U(0xFFFF)
    if not detail & _HAS_PORTS:
        sent, received = _ZERO, _ZERO
    back = there < here or (there == here and received < sent)
    low, high = (there, here) if back else (here, there)
    asked, other = (received, sent) if back else (sent, received)
    what = (detail >> _U(PROTOCOL_SHIFT)) & _U(0xFF) if detail & _HAS_PROTOCOL else _ZERO
    x = low * key.first + high * key.second
    x = (x ^ (x >> _U(32))) * key.third + (what << _U(32) | asked << _U(16) | other)
    x = (x ^ (x >> _U(29))) * key.fourth
    return (x ^ (x >> _U(32))) & ~_ONE | _U(back)


@compiled
def _judge(
    src: traffic.Addresses, dst: traffic.Addresses, details: traffic.Details, words: Words, key: Multipliers
) -> tuple[int, int]:
    """Note in the details of packets what they do; return of how many that is not known, and the new conversations.

    A block of packets is looked at twice: first all their lines of the filter are touched, so that the memory fetches
    several at a time, then the packets are judged one after the other.
    """
    lines = _U(len(words) // LINE)
    acting, deeds = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    hashes = np.empty(BLOCK, np.uint64)
    unknown, fresh, touched = 0, 0, _ZERO
    for start in range(0, len(details), BLOCK):
        count = 0
        for i in range(start, min(start + BLOCK, len(details))):
            detail = details[i]
            if detail & _IS_CONVERSATION:
                details[i] = detail | _OPENED | (_ANSWERED if detail & _IS_ANSWERED else _ZERO)
                continue
            deed = _deed(detail)
            if deed in (_NOTHING, _UNKNOWN):
                unknown += deed == _UNKNOWN
                continue
            if src.ndim == 1:
                found = _conversation(_U(src[i]), _U(dst[i]), detail, key)
            else:
                here, there = _folded(src[i, 0], src[i, 1], key), _folded(dst[i, 0], dst[i, 1], key)
                found = _conversation(here, there, detail, key)
            touched ^= words[((found >> _U(32)) * lines >> _U(32)) * _U(LINE)]
            acting[count], deeds[count], hashes[count] = i, deed, found
            count += 1
        for number in range(count):  # no function that takes the filter is called: that would count references
            i, deed, found = acting[number], deeds[number], hashes[number]
            line = ((found >> _U(32)) * lines >> _U(32)) * _U(LINE)
            if deed != _OPENS:
                bits = _bits(found ^ _ONE)
                missing = _ZERO
                for probe in range(PROBES):
                    missing |= ~words[line + _word(bits, probe)] & _bit(bits, probe)
                if missing == _ZERO:
                    details[i] |= _ANSWERS
                    continue
            if deed != _REPLIES:
                bits = _bits(found)
                missing = _ZERO
                for probe in range(PROBES):
                    missing |= ~words[line + _word(bits, probe)] & _bit(bits, probe)
                if missing != _ZERO:
                    fresh += 1
                    for probe in range(PROBES):
                        words[line + _word(bits, probe)] |= _bit(bits, probe)
                details[i] |= _OPENED
    return unknown, fresh if touched | _ONE else 0  # what was touched must seem to matter


def with_details(batch: PacketBatch) -> PacketBatch:
    """Return packets with details, of which nothing is known if the source cannot tell: then addresses count alone."""
    return batch if batch.details is not None else replace(batch, details=np.zeros(len(batch), np.uint64))


def in_order(batches: Sequence[PacketBatch], before: int | None) -> tuple[list[PacketBatch], list[PacketBatch]]:
    """Return packets in the order of time: those before `before`, which all inputs have reached, and the others.

    Packets of different families or groups never belong to one conversation, so those of each are one batch.
    """
    ready, later = [], []
    for family, group in sorted({(batch.family, batch.group) for batch in batches}):
        several = [with_details(batch) for batch in batches if (batch.family, batch.group) == (family, group)]
        src, dst, time, details = (
            np.concatenate([getattr(batch, name) for batch in several]) for name in ("src", "dst", "time", "details")
        )
        whole = PacketBatch(family, src, dst, time, details=details, group=group)
        whole = whole.take(np.argsort(time, kind="stable"), whole.span)
        edge = len(time) if before is None else int(np.searchsorted(whole.time, before))
        ready += [whole.take(slice(edge))] if edge else []
        later += [whole.take(slice(edge, None))] if edge < len(time) else []
    return ready, later


class Conversations:
    def __init__(self, key: bytes | str | None = None, size: int = FILTER_BYTES) -> None:
        self._words = np.zeros(size // 8 // LINE * LINE, np.uint64)
        self._key = Multipliers(*make_key(secret_of(key)).pair[:4])
        self.opened = 0  # conversations

    @timed("contacts", amount=lambda _, conversations, batches: sum(map(len, batches)))
    def judge(self, batches: Sequence[PacketBatch]) -> int:
        not_known = 0
        for batch in batches:
            assert batch.details is not None
            unknown, fresh = _judge(batch.src, batch.dst, batch.details, self._words, self._key)
            not_known += unknown
            self.opened += fresh
        return not_known

    @property
    def fill(self) -> float:
        return 1 - float(np.exp(-PROBES * self.opened / (64 * len(self._words))))

    @property
    def is_crowded(self) -> bool:
        return self.fill > CROWDED
