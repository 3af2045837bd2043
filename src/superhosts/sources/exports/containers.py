"""What contains exports besides UDP: captures of exports, and files of datagrams, one behind the other. Both are
recognised by their first bytes, and the latter are cut into datagrams here.

Files of datagrams are IPFIX files (RFC 5655), and what programs dump of NetFlow and sFlow. IPFIX, NetFlow v5 and sFlow
say where a datagram ends. A datagram of NetFlow v9 ends where no set follows: the version 9 of the next header is no
set that there can be.

The packets of a capture of exports go from routers to a collector: their addresses say nothing about the traffic. So
whoever reads such a capture as traffic is warned (`exports_in`). Files are cut in plain Python: there is one datagram
for dozens of flows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from superhosts.sources.capture import format_of
from superhosts.sources.frames.columns import PACKETS, TALLY_SLOTS, start_walk
from superhosts.sources.frames.links import ETHERNET, RAW

LONGEST = 65_535  # bytes of a datagram
V5_MOST = 1000  # records of a datagram of NetFlow v5; 30 is usual
_VERSIONS = (b"\0\5", b"\0\x09", b"\0\x0a"), (b"\0\0\0\5",)  # first bytes of a datagram, by is_sflow
V9_MOST = 5000  # records that its header may say
LOOKED_AT = 50  # packets
LEAST = 0.5  # share of exports among them from which on the capture is one of exports


def recognise_exports(head: bytes) -> str | None:
    return "netflow" if looks_like_netflow(head) else "sflow" if looks_like_sflow(head) else None


def looks_like_netflow(head: bytes) -> bool:
    """Return True if bytes begin like a datagram of NetFlow v5, v9 or IPFIX; all that are there must fit."""
    if len(head) < 20:
        return False
    version, count = struct.unpack_from("!HH", head)
    if version == 5:
        return len(head) >= 72 and 1 <= count <= 30 and head[22] >> 6 <= 3 and not any(head[24 + 46 : 72])
    if version == 9 and 1 <= count <= V9_MOST:
        return _is_set(head, 20, (0, 1), len(head))
    if version == 10 and count >= 20:
        following = head[count : count + 2]  # the next message, where its header is known
        return _is_set(head, 16, (2, 3), max(count, 20)) and (len(following) < 2 or following == b"\0\x0a")
    return False


def looks_like_sflow(head: bytes) -> bool:
    if len(head) < 28:
        return False
    version, family = struct.unpack_from("!II", head)
    at = 24 if family == 1 else 36  # where the number of samples is
    if version != 5 or family not in (1, 2) or len(head) < at + 12:
        return False
    samples, kind, length = struct.unpack_from("!III", head, at)
    return bool(1 <= samples <= 1000 and kind & 0xFFF <= 16 and 8 <= length <= LONGEST)


def _is_set(head: bytes, at: int, templates: tuple[int, int], end: int) -> bool:
    if len(head) < at + 4:
        return False
    kind, length = struct.unpack_from("!HH", head, at)
    is_near = at + length <= end or len(head) >= 4096  # of a file, only its first bytes are known
    return (kind in templates or kind >= 256) and length >= 4 and is_near


def datagrams_of(content: bytes, *, is_sflow: bool, is_last: bool) -> Iterator[tuple[int, int, bool]]:
    """Yield where datagrams begin and end, and if the content ends inside; without `is_last`, only whole ones.

    Bytes that are not a datagram are yielded in pieces that are no longer than one, so that memory is bounded.
    """
    at = 0
    length_of = _sflow_length if is_sflow else _netflow_length
    while at < len(content):
        length = length_of(content, at)
        is_cut = False
        if length is None or at + length > len(content):
            is_cut = any(version.startswith(content[at : at + len(version)]) for version in _VERSIONS[is_sflow])
            if len(content) - at <= LONGEST:
                if is_last:
                    yield at, len(content), is_cut
                return
            length = LONGEST
        if not is_last and at + length == len(content) and content[at + 1] == 9 and not is_sflow:
            return  # of version 9: another set may follow
        yield at, at + length, is_cut
        at += length


def _netflow_length(content: bytes, at: int) -> int | None:
    if len(content) - at < 4:
        return None
    version, count = int.from_bytes(content[at : at + 2], "big"), int.from_bytes(content[at + 2 : at + 4], "big")
    if version == 10:
        return max(count, 16)
    if version == 5:
        return 24 + 48 * count if count <= V5_MOST else None
    if version != 9 or len(content) - at < 20:
        return None
    end: int = at + 20
    while len(content) - end >= 4:
        kind, length = struct.unpack_from("!HH", content, end)
        if length < 4 or 2 <= kind < 256:
            break
        end += length
        if end - at > LONGEST:
            return None
    return end - at


def _sflow_length(content: bytes, at: int) -> int | None:
    if len(content) - at < 28:
        return None
    end = at + (24 if content[at + 7] == 1 else 36)
    if len(content) - end < 4:
        return None
    (samples,) = struct.unpack_from("!I", content, end)
    end += 4
    for _ in range(samples):
        if len(content) - end < 8 or end - at > LONGEST:
            return None
        end += 8 + (int.from_bytes(content[end + 4 : end + 8], "big") + 3 & ~3)
    return end - at if end - at <= LONGEST else None


def exports_in(head: bytes) -> str | None:
    """Return the format of the exports that most of the first packets of a capture are; None if there are none."""
    format, tally, rows = format_of(head), np.zeros(TALLY_SLOTS, np.int64), np.zeros((LOOKED_AT, 4), np.int64)
    start_walk(tally, LOOKED_AT)
    if format is None or format.walk(np.frombuffer(bytearray(head), np.uint8), tally, rows) is not None:
        return None
    packets = [(head[start:end], link) for start, end, link, _ in rows[: tally[PACKETS]].tolist() if start < end]
    payloads = [_payload(frame, link) for frame, link in packets]
    found = {"netflow": sum(map(looks_like_netflow, payloads)), "sflow": sum(map(looks_like_sflow, payloads))}
    most = max(found, key=lambda name: found[name])
    return most if found[most] and found[most] > LEAST * len(packets) else None


def _payload(frame: bytes, link: int) -> bytes:
    """Return the UDP payload of a frame; nothing if it has none, or is unusual."""
    at = 0
    if link == ETHERNET:
        at = 14
        while frame[at - 2 : at] in (b"\x81\x00", b"\x88\xa8"):
            at += 4
        if frame[at - 2 : at] not in (b"\x08\x00", b"\x86\xdd"):
            return b""
    elif link != RAW:
        return b""
    if len(frame) < at + 28:
        return b""
    if frame[at] >> 4 == 4:
        is_udp, behind = frame[at + 9] == 17, at + (frame[at] & 15) * 4
    else:
        is_udp, behind = frame[at + 6] == 17, at + 40
    return frame[behind + 8 :] if is_udp else b""


def advice(name: str, format: str) -> str:
    shown = {"netflow": "NetFlow or IPFIX", "sflow": "sFlow"}[format]
    text = f"{name}: most of its packets are {shown} exports, and their addresses are those of exporters and collectors"
    return f"{text}; --format {format} reads the flows that they report"
