"""The sample of pairs and what is noted of them, in plain Python with sets, from the tables of the documentation.

Like `naive.py` it imports nothing of the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from naive import Key, fold, mangle64, pair_hash

HAS_PROTOCOL, HAS_PORTS, HAS_FLAGS = 1 << 48, 1 << 49, 1 << 50  # bits of a packet's details
IS_RECORD, IS_CONVERSATION, IS_ANSWERED = 1 << 51, 1 << 52, 1 << 53
SYN, RST, ACK = 2, 4, 16  # flags of TCP
MASK = (1 << 64) - 1
MIXER = 0xD6E8FEB86659FD93


class Packet(NamedTuple):
    src: int
    dst: int
    time: int
    detail: int


@cache
def key_of(secret: bytes) -> Key:
    return Key(secret)


def hash_of(low: int, high: int, family: int, secret: bytes) -> int:
    key = key_of(secret)
    return mangle64(low << 32 | high, key) if family == 4 else pair_hash(fold(low, key), fold(high, key), key)


def mixed(x: int) -> int:
    for _ in range(2):
        x = ((x ^ x >> 32) * MIXER) & MASK
    return x ^ x >> 32


def mark(hashed: int) -> int:
    level = next((each for each in range(7) if hashed >> each & 1), 7)
    return 1 << (8 * level + (hashed >> 60) % 8)


def deeds(detail: int) -> tuple[set[int], set[int]]:
    """Return the bits of what the source and the destination of a packet have sent."""
    protocol = detail >> 32 & 255 if detail & HAS_PROTOCOL else None
    flags = detail >> 40 & 255 if detail & HAS_FLAGS else None
    if detail & IS_CONVERSATION:
        kind = {6: 0, 17: 1, 1: 2, 58: 2}.get(protocol, 3)
        asks, answers = {6: (4, 5), 1: (8, 9), 58: (8, 9)}.get(protocol, (None, None))
        source = {kind} | ({asks} if asks is not None else set())
        answer = {kind} | ({answers} if answers is not None else set())
        if not detail & IS_ANSWERED:
            return source, set()
        return source | ({7} if protocol == 6 else set()), answer
    if protocol == 6:
        bits = {0} | {16 + bit for bit in range(8) if flags and flags >> bit & 1}
        flags_seen = flags or 0
        syn, ack, rst = (bool(flags_seen & each) for each in (SYN, ACK, RST))
        record = bool(detail & IS_RECORD)
        if syn and not ack:
            bits.add(4)
        elif syn and not record:
            bits.add(5)
        elif flags is not None and (record or not rst):
            bits.add(7)
        if rst:
            bits.add(6)
        return bits, set()
    if protocol == 17:
        return {1}, set()
    if protocol == 1:
        kinds = {0: 9, 14: 9, 16: 9, 18: 9, 3: 10, 4: 10, 5: 10, 11: 10, 12: 10}
        return {2} | ({kinds.get(flags, 8)} if flags is not None else set()), set()
    if protocol == 58:
        kind = None if flags is None else 10 if flags < 128 else 9 if flags in (129, 132, 136) else 8
        return {2} | ({kind} if kind is not None else set()), set()
    return {3}, set()


def service(detail: int) -> tuple[int, int, int, bool] | None:
    """Return class, protocol and port of the service of a packet, and whether it is the destination's."""
    if not detail & HAS_PROTOCOL:
        return None
    protocol = detail >> 32 & 255
    if not detail & HAS_PORTS:
        return 2, protocol, 0, True
    flags = detail >> 40 & 255 if detail & HAS_FLAGS else 0
    sent, asked = detail >> 16 & 0xFFFF, detail & 0xFFFF
    if detail & IS_CONVERSATION:
        return 0, protocol, asked, True
    if protocol == 6:
        if flags & SYN and not flags & ACK:
            return 0, protocol, asked, True
        if flags & SYN and not detail & IS_RECORD:
            return 0, protocol, sent, False
        if flags & RST:
            return None
    return (1, protocol, asked, True) if asked <= sent else (1, protocol, sent, False)


def sample(packets: Iterable[Packet], family: int, size: int, secret: bytes) -> list[list[int]]:
    pairs = defaultdict(list)
    for packet in packets:
        low, high = sorted((packet.src, packet.dst))
        pairs[low, high].append(packet)
    hashed = sorted((hash_of(*pair, family, secret), pair) for pair in pairs)[:size]
    rows = []
    for number, (low, high) in hashed:
        bits, packet_marks, ports, best = 0, 0, [0, 0], MASK
        for packet in pairs[low, high]:
            turned = packet.src > packet.dst
            source, destination = deeds(packet.detail)
            for end, some in ((turned, source), (not turned, destination)):
                bits |= sum(1 << (bit + 32 * end) for bit in some)
            detail = packet.detail | (turned << 63)
            packet_marks |= mark(mixed(mixed(packet.time & MASK) ^ detail))
            found = service(packet.detail)
            if found is None:
                continue
            kind, protocol, port, at_destination = found
            at_higher = at_destination != turned
            what = mixed(mixed((protocol << 19 | port << 3 | at_higher) & MASK) ^ number)
            word = kind << 62 | what >> 27 << 25 | protocol << 17 | port << 1 | at_higher
            best = min(best, word)
            if kind != 2:
                ports[at_higher] |= mark(what)
        ends = [] if family == 4 else [low >> 64, low & MASK, high >> 64, high & MASK]
        rows.append([number, bits, best, packet_marks, *ports, *ends])
    return rows
