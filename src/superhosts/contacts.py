"""Who opened a conversation, and whether the other end answered.

A run that asks for this has a memory of each open window: a filter of bits in which the conversations that were opened
leave a mark (a blocked Bloom filter, of bounded size). Packets are judged in the order in which they were read:

- TCP: a SYN without ACK opens. A SYN with ACK answers, if the other end has opened in this window. Nothing else does:
  a packet in the middle says nothing, and a refusal (RST) is no answer.
- UDP and other protocols: who sends first in the window opens, and what comes back answers. A conversation is known by
  both addresses, the protocol and both ports. Fragments behind the first one have no ports and say nothing.
- ICMP: errors and replies never open, and errors do not answer.
- Records of flows have the flags of all their packets. A SYN without ACK opens, and nothing came back on it. With both
  flags, or without any known, who comes first opens. Records of whole conversations (Zeek and others) say it all.

What is found is noted in the details of the packets. The filter errs on one side: of n conversations in b bits, about
one in (b / 4n)^4 of those that open is taken for an answer, one in a thousand with a sixth of a bit in four set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.hashing import Key, fold, make_key, pair_hash, secret_of
from superhosts.packetdetails import (
    ACK,
    ANSWERED,
    ANSWERS,
    FLAGS_SHIFT,
    HAS_FLAGS,
    HAS_PORTS,
    HAS_PROTOCOL,
    ICMP,
    ICMPV6,
    IS_ANSWERED,
    IS_CONVERSATION,
    IS_RECORD,
    OPENED,
    PROTOCOL_SHIFT,
    RST,
    SYN,
    TCP,
    UDP,
    Details,
)
from superhosts.pairs import Addresses, PacketBatch
from superhosts.stopwatch import timed

FILTER_BYTES = 32 << 20  # for each open window; 16 million conversations leave one bit in four set
LINE = 8  # words of a block: a cache line, so that a question costs one visit to memory
PROBES = 4  # bits of a conversation
CROWDED = 0.5  # of the bits set: from here on one in sixteen openings may be taken for an answer

Words = NDArray[np.uint64]
_U = np.uint64
_ZERO, _ONE = _U(0), _U(1)
_NOTHING, _BY_ORDER, _OPENS, _REPLIES = range(4)  # what a packet does


class Marks(NamedTuple):
    """The bits of details as numbers that the compiler takes."""

    record: np.uint64 = _U(IS_RECORD)
    conversation: np.uint64 = _U(IS_CONVERSATION)
    was_answered: np.uint64 = _U(IS_ANSWERED)
    protocol: np.uint64 = _U(HAS_PROTOCOL)
    ports: np.uint64 = _U(HAS_PORTS)
    flags: np.uint64 = _U(HAS_FLAGS)
    opened: np.uint64 = _U(OPENED)
    answers: np.uint64 = _U(ANSWERS)
    answered: np.uint64 = _U(ANSWERED)


_MARKS = Marks()


@compiled
def _deed(detail: np.uint64, marks: Marks) -> int:
    """Return what a packet does, by itself: nothing, open, reply to who has opened, or what the order decides."""
    protocol = (detail >> _U(PROTOCOL_SHIFT)) & _U(0xFF) if detail & marks.protocol else _U(255)
    flags = (detail >> _U(FLAGS_SHIFT)) & _U(0xFF)
    known = detail & marks.flags != _ZERO
    is_record = detail & marks.record != _ZERO
    has_ports = detail & marks.ports != _ZERO
    if protocol == _U(TCP):
        if is_record:
            if not known or flags == _ZERO:
                return _BY_ORDER
            if not flags & _U(SYN):
                return _NOTHING
            return _BY_ORDER if flags & _U(ACK) else _OPENS
        if not known or not flags & _U(SYN) or flags & _U(RST):
            return _NOTHING
        return _REPLIES if flags & _U(ACK) else _OPENS
    if protocol == _U(ICMP) and known:
        if flags in (3, 4, 5, 11, 12):
            return _NOTHING
        return _REPLIES if flags in (0, 14, 16, 18) else _BY_ORDER
    if protocol == _U(ICMPV6) and known:
        if flags < 128:
            return _NOTHING
        return _REPLIES if flags in (129, 132, 136) else _BY_ORDER
    if protocol == _U(UDP) and not has_ports and not is_record:
        return _NOTHING
    return _BY_ORDER


@compiled
def _visit(words: Words, conversation: np.uint64, lines: np.uint64, sets: bool) -> bool:
    """Return True if the filter has a mark of a conversation; with `sets`, leave one."""
    line = ((conversation >> _U(32)) * lines >> _U(32)) * _U(LINE)
    seen = True
    for probe in range(PROBES):  # nine bits each: a word of the line and a bit of the word
        bits = conversation >> _U(9 * probe)
        word, bit = line + ((bits >> _U(6)) & _U(7)), _ONE << (bits & _U(63))
        if not words[word] & bit:
            seen = False
            if sets:
                words[word] |= bit
    return seen


@compiled
def _judge(src: Addresses, dst: Addresses, details: Details, words: Words, key: Key, marks: Marks) -> tuple[int, int]:
    """Note in the details of packets what they do; return how many do anything, and how many conversations are new."""
    lines = _U(len(words) // LINE)
    deeds, fresh = 0, 0
    for i in range(len(details)):
        detail = details[i]
        if detail & marks.conversation:
            details[i] = detail | marks.opened | (marks.answered if detail & marks.was_answered else _ZERO)
            deeds += 1
            continue
        deed = _deed(detail, marks)
        if deed == _NOTHING:
            continue
        if src.ndim == 1:
            one, other = _U(src[i]), _U(dst[i])
            there, back = one << _U(32) | other, other << _U(32) | one
        else:
            one, other = fold(src[i, 0], src[i, 1], key), fold(dst[i, 0], dst[i, 1], key)
            there, back = pair_hash(one, other, key), pair_hash(other, one, key)
        what = (detail >> _U(PROTOCOL_SHIFT)) & _U(0xFF)
        sent, received = (detail >> _U(16)) & _U(0xFFFF), detail & _U(0xFFFF)
        if not detail & marks.ports:
            sent = received = _ZERO
        if deed != _OPENS:
            turned = pair_hash(back, what << _U(32) | received << _U(16) | sent, key)
            if _visit(words, turned, lines, False):
                details[i] = detail | marks.answers
                deeds += 1
                continue
        if deed != _REPLIES:
            straight = pair_hash(there, what << _U(32) | sent << _U(16) | received, key)
            fresh += not _visit(words, straight, lines, True)
            details[i] = detail | marks.opened
            deeds += 1
    return deeds, fresh


def with_details(batch: PacketBatch) -> PacketBatch:
    """Return packets with details, of which nothing is known if the source cannot tell: then addresses count alone."""
    return batch if batch.details is not None else replace(batch, details=np.zeros(len(batch), np.uint64))


class Conversations:
    """The conversations of one window that were opened so far."""

    def __init__(self, key: bytes | str | None = None, size: int = FILTER_BYTES) -> None:
        self._words = np.zeros(size // 8 // LINE * LINE, np.uint64)
        self._key = make_key(secret_of(key))
        self.opened = 0  # conversations

    @timed("contacts", amount=lambda _, conversations, batches: sum(map(len, batches)))
    def judge(self, batches: Sequence[PacketBatch]) -> int:
        """Note in the details of packets whether they open or answer; return how many do neither."""
        others = 0
        for batch in batches:
            assert batch.details is not None
            deeds, fresh = _judge(batch.src, batch.dst, batch.details, self._words, self._key, _MARKS)
            others += len(batch) - deeds
            self.opened += fresh
        return others

    @property
    def fill(self) -> float:
        """The share of bits that are set, about."""
        return 1 - float(np.exp(-PROBES * self.opened / (64 * len(self._words))))

    @property
    def is_crowded(self) -> bool:
        """True if so many conversations were opened that many a new one is taken for an answer."""
        return self.fill > CROWDED
