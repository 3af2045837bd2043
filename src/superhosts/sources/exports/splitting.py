"""Files of datagrams, one behind the other: IPFIX files (RFC 5655), and what programs dump of NetFlow and sFlow.

IPFIX, NetFlow v5 and sFlow say where a datagram ends. A datagram of NetFlow v9 ends where no set follows: the version 9
of the next header is no set that there can be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from superhosts.sources.exports.layout import LONGEST

V5_MOST = 1000  # records of a datagram of NetFlow v5; 30 is usual
_VERSIONS = (b"\0\5", b"\0\x09", b"\0\x0a"), (b"\0\0\0\5",)  # first bytes of a datagram, by is_sflow
V9_MOST = 5000  # records that its header may say


def recognise_exports(head: bytes) -> str | None:
    """Return the format of a file of datagrams by its first bytes; None if it is none."""
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
        return _is_set(head, 16, (2, 3), max(count, 20)) and _ends_well(head, count)
    return False


def looks_like_sflow(head: bytes) -> bool:
    """Return True if bytes begin like a datagram of sFlow v5."""
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


def _ends_well(head: bytes, length: int) -> bool:
    """Return True if the next message, where its header is known, begins like this one."""
    return len(head) < length + 2 or head[length : length + 2] == b"\0\x0a"


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
    """Return True if a datagram begins at `at`, by its version, and does not end within the content."""
    length = _sflow_length(content, at) if is_sflow else _netflow_length(content, at)
    begins = any(version.startswith(content[at : at + len(version)]) for version in _VERSIONS[is_sflow])
    return begins and (length is None or at + length > len(content))


def _netflow_length(content: bytes, at: int) -> int | None:
    """Return the length of the datagram at `at`; None if that is not known."""
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
