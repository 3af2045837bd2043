"""What contains exports besides UDP: captures of exports, and files of datagrams, one behind the other. Both are
recognised by their first bytes and cut into records here.

Files of datagrams are IPFIX files (RFC 5655), and what programs dump of NetFlow and sFlow. IPFIX, NetFlow v5 and sFlow
say where a datagram ends. A datagram of NetFlow v9 ends where no set follows: the version 9 of the next header is no
set that there can be.

The packets of a capture of exports go from routers to a collector: their addresses say nothing about the traffic. So
whoever reads such a capture as traffic is warned (`exports_in`). All of this is plain Python: there is one record for
dozens of flows, most captures are something else, and compiled code takes time to load.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

LONGEST = 65_535  # bytes of a datagram
V5_MOST = 1000  # records of a datagram of NetFlow v5; 30 is usual
_VERSIONS = (b"\0\5", b"\0\x09", b"\0\x0a"), (b"\0\0\0\5",)  # first bytes of a datagram, by is_sflow
V9_MOST = 5000  # records that its header may say
LOOKED_AT = 50  # packets
LEAST = 0.5  # share of exports among them from which on the capture is one of exports
_ETHERNET, _RAW = 1, 101  # link types
_PCAP = {b"\xa1\xb2\xc3\xd4": (1000, 16), b"\xa1\xb2\x3c\x4d": (1, 16), b"\xa1\xb2\xcd\x34": (1000, 24)}
_SECTION, _INTERFACE, _PACKET, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6
_LATEST = 2**62  # nanoseconds, in the year 2116
LARGEST = 1 << 26  # bytes of a record; a longer one is damage

Record = tuple[int, int, int, int, int]  # start and end of a frame, its link type, its time, the next record


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


def datagrams_of(content: bytes, *, is_sflow: bool, is_last: bool) -> Iterator[tuple[int, int]]:
    """Yield where datagrams begin and end; without `is_last`, only those that are whole without what follows.

    Bytes that are no datagram are yielded in pieces that are no longer than one, so that memory is bounded.
    """
    at = 0
    length_of = _sflow_length if is_sflow else _netflow_length
    while at < len(content):
        length = length_of(content, at)
        if length is None or at + length > len(content):
            if len(content) - at <= LONGEST:
                if is_last:
                    yield at, len(content)
                return
            length = LONGEST
        if not is_last and at + length == len(content) and content[at + 1] == 9 and not is_sflow:
            return  # of version 9: another set may follow
        yield at, at + length
        at += length


def is_cut(content: bytes, at: int, *, is_sflow: bool) -> bool:
    length = _sflow_length(content, at) if is_sflow else _netflow_length(content, at)
    begins = any(version.startswith(content[at : at + len(version)]) for version in _VERSIONS[is_sflow])
    return begins and (length is None or at + length > len(content))


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


class PcapRecords:
    def __init__(self, head: bytes) -> None:
        magic = head[:4]
        self._order = ">" if magic in _PCAP else "<"
        self._unit, self._header = _PCAP[magic if self._order == ">" else magic[::-1]]
        (link,) = struct.unpack_from(f"{self._order}I", head, 20)
        self._link = link & 0xFFFF
        self.begins = 24

    @staticmethod
    def recognises(head: bytes) -> bool:
        return len(head) >= 24 and (head[:4] in _PCAP or head[3::-1] in _PCAP)

    def records(self, content: bytes, at: int) -> Iterator[Record]:
        read = struct.Struct(f"{self._order}IIII")
        while len(content) - at >= self._header:
            seconds, fraction, length, _ = read.unpack_from(content, at)
            at += self._header
            if length > LARGEST:
                raise ValueError("record length exceeds 64 MiB")
            if at + length > len(content):
                return
            yield at, at + length, self._link, seconds * 10**9 + fraction * self._unit, at + length
            at += length


class PcapngRecords:
    def __init__(self, _head: bytes) -> None:
        self.begins = 0
        self._order = "<"
        self._interfaces: list[tuple[int, int, int]] = []  # link, ticks in a second, seconds to add
        self._time = 0

    @staticmethod
    def recognises(head: bytes) -> bool:
        return len(head) >= 12 and head[:4] == b"\x0a\x0d\x0d\x0a"

    def records(self, content: bytes, at: int) -> Iterator[Record]:
        while len(content) - at >= 12:
            kind = struct.unpack_from(f"{self._order}I", content, at)[0]
            if kind == _SECTION:
                self._order = "<" if content[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
                self._interfaces = []
            (length,) = struct.unpack_from(f"{self._order}I", content, at + 4)
            if length < 12 or length > LARGEST:
                raise ValueError("a block has an impossible length")
            behind = at + (length + 3 & ~3)
            if behind > len(content):
                return
            yield *self._frame(kind, content, at + 8, at + length - 4), behind
            at = behind

    def _frame(self, kind: int, content: bytes, at: int, end: int) -> tuple[int, int, int, int]:
        number = length = ticks = begins = 0
        if kind == _INTERFACE and end - at >= 8:
            self._interfaces.append(self._interface(content, at, end))
        elif kind in (_ENHANCED, _PACKET) and end - at >= 20:
            number, high, low, length, _ = struct.unpack_from(f"{self._order}IIIII", content, at)
            number = number if kind == _ENHANCED else number >> 16 if self._order == ">" else number & 0xFFFF
            ticks, begins = high << 32 | low, at + 20
        elif kind == _SIMPLE and end - at >= 4:
            length, begins = struct.unpack_from(f"{self._order}I", content, at)[0], at + 4
            length = min(length, end - begins)
        if not begins or number >= len(self._interfaces) or begins + length > end:
            return at, at, 0, self._time
        link, unit, offset = self._interfaces[number]
        if kind != _SIMPLE:
            self._time = min(max(ticks * 10**9 // unit + offset * 10**9, 0), _LATEST)
        return begins, begins + length, link, self._time

    def _interface(self, content: bytes, at: int, end: int) -> tuple[int, int, int]:
        link, unit, offset = struct.unpack_from(f"{self._order}H", content, at)[0], 10**6, 0
        at += 8
        while end - at >= 4:
            code, length = struct.unpack_from(f"{self._order}HH", content, at)
            value = content[at + 4 : at + 4 + length]
            if code == 9 and length == 1:  # resolution: a power of ten, or of two
                unit = 1 << min(value[0] & 0x7F, 64) if value[0] & 0x80 else 10 ** min(value[0], 20)
            elif code == 14 and length == 8:
                offset = struct.unpack(f"{self._order}q", value)[0]
            elif code == 0:
                break
            at += 4 + (length + 3 & ~3)
        return link, unit, offset


CAPTURES = (PcapRecords, PcapngRecords)


def exports_in(head: bytes) -> str | None:
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
    shown = {"netflow": "NetFlow or IPFIX", "sflow": "sFlow"}[format]
    text = f"{name}: most of its packets are {shown} exports, and their addresses are those of exporters and collectors"
    return f"{text}; --format {format} reads the flows that they report"
