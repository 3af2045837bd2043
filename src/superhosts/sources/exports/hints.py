"""Tells a capture of flow exports from a capture of traffic, by its first packets.

The packets of such a capture go from routers to a collector: their addresses say nothing about the traffic. Plain
Python, because most captures are something else, and compiled code takes time to load.
"""

from __future__ import annotations

from superhosts.sources.exports.captured import CAPTURES
from superhosts.sources.exports.splitting import looks_like_netflow, looks_like_sflow
from superhosts.sources.frames.links import link_of

LOOKED_AT = 50  # packets
LEAST = 0.5  # share of exports among them from which on the capture is one of exports
_ETHERNET, _RAW = link_of(1), link_of(101)


def exports_in(head: bytes) -> str | None:
    """Return which exports most of the first packets of a capture are, as --format takes it; None if they are not."""
    kind = next((kind for kind in CAPTURES if kind.recognises(head)), None)
    if kind is None:
        return None
    records = kind(head)
    packets = 0
    found = {"netflow": 0, "sflow": 0}
    try:
        for start, end, link, _, _ in records.records(head, records.begins):
            if start == end:
                continue
            packets += 1
            payload = _payload(head[start:end], link)
            found["netflow"] += looks_like_netflow(payload)
            found["sflow"] += looks_like_sflow(payload)
            if packets == LOOKED_AT:
                break
    except ValueError:  # It is reported when the capture is read.
        return None
    most = max(found, key=lambda name: found[name])
    return most if found[most] and found[most] > LEAST * packets else None


def _payload(frame: bytes, link: int) -> bytes:
    """Return the UDP payload of a frame; nothing if it has none, or is unusual."""
    at = 0
    if link == _ETHERNET:
        at = 14
        while frame[at - 2 : at] in (b"\x81\x00", b"\x88\xa8"):
            at += 4
        if frame[at - 2 : at] not in (b"\x08\x00", b"\x86\xdd"):
            return b""
    elif link != _RAW:
        return b""
    if len(frame) < at + 28:
        return b""
    if frame[at] >> 4 == 4:
        is_udp, behind = frame[at + 9] == 17, at + (frame[at] & 15) * 4
    else:
        is_udp, behind = frame[at + 6] == 17, at + 40
    return frame[behind + 8 :] if is_udp else b""


def advice(name: str, format: str) -> str:
    """Return the warning for a capture that is read as traffic and has exports."""
    shown = {"netflow": "NetFlow or IPFIX", "sflow": "sFlow"}[format]
    text = f"{name}: most of its packets are {shown} exports, and their addresses are those of exporters and collectors"
    return f"{text}; --format {format} reads the flows that they report"
