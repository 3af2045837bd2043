"""Who opened and who answered, in plain Python: the oracle for contacts. It imports nothing of the project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
SYN, RST, ACK = 2, 4, 16


@dataclass(frozen=True)
class Packet:
    src: int
    dst: int
    protocol: int | None = None
    ports: tuple[int, int] | None = None
    flags: int | None = None  # of ICMP: the type
    record: bool = False
    conversation: bool = False
    answered: bool = False


def deed(packet: Packet) -> str:
    """Return what a packet does by itself: nothing, opens, replies, or what the order decides."""
    known = packet.flags is not None
    flags = packet.flags or 0
    if packet.protocol == TCP and packet.record:
        if not known or flags == 0:
            return "order"
        if not flags & SYN:
            return "nothing"
        return "order" if flags & ACK else "opens"
    if packet.protocol == TCP:
        if not known or not flags & SYN or flags & RST:
            return "nothing"
        return "replies" if flags & ACK else "opens"
    if packet.protocol == ICMP and known:
        return "nothing" if flags in (3, 4, 5, 11, 12) else "replies" if flags in (0, 14, 16, 18) else "order"
    if packet.protocol == ICMPV6 and known:
        return "nothing" if flags < 128 else "replies" if flags in (129, 132, 136) else "order"
    if packet.protocol == UDP and packet.ports is None and not packet.record:
        return "nothing"
    return "order"


def contacts(packets: list[Packet]) -> tuple[list[tuple[int, int, int | None]], list[tuple[int, int, int | None]]]:
    """Return who opened to whom at which port, and who was answered, packet by packet."""
    seen: set[Any] = set()
    opened, answered = [], []
    for packet in packets:
        there = (packet.src, packet.dst, packet.protocol or 0, packet.ports or (0, 0))
        ports = packet.ports[::-1] if packet.ports else (0, 0)
        back = (packet.dst, packet.src, packet.protocol or 0, ports)
        port = packet.ports[1] if packet.ports else None
        asked = packet.ports[0] if packet.ports else None  # of an answer, the port that was asked
        if packet.conversation:
            opened.append((packet.src, packet.dst, port))
            if packet.answered:
                answered.append((packet.src, packet.dst, port))
            continue
        what = deed(packet)
        if what in ("replies", "order") and back in seen:
            answered.append((packet.dst, packet.src, asked))
        elif what in ("opens", "order"):
            seen.add(there)
            opened.append((packet.src, packet.dst, port))
    return opened, answered
