"""What a walk asks about a frame: a glance at usual ones, and everything about the others.

`is_usual`, `is_whole` and `glance` decide with few loads and take numbers where they branch. `find_headers` reads any
frame.
"""

from __future__ import annotations

from superhosts.core.pairs import (
    FLAGS_SHIFT,
    HAS_FLAGS,
    HAS_PORTS,
    HAS_PROTOCOL,
    ICMP,
    PROTOCOL_SHIFT,
    TCP,
    UDP,
)
from superhosts.jit.cache import compiled
from superhosts.sources.frames.ethertypes import is_tag
from superhosts.sources.frames.headers import details_of
from superhosts.sources.frames.links import ip_header, is_wrapped, unwrapped
from superhosts.sources.frames.linktypes import SUBFRAME
from superhosts.sources.frames.reading import Bytes, big, byte, half, little
from superhosts.sources.frames.tally import BOTH, DETAILS, INNER
from superhosts.sources.frames.tunnels import innermost, is_tunnel_port
from superhosts.sources.frames.wireless import next_subframe, subframe_end

# A captured Ethernet frame of this length has its last type and the first byte behind it, with or without a VLAN tag.
# Without a tag it has both IPv4 addresses, and four bytes of what is inside.
QUICK_BYTES = 38
_LEAST_TCP = 14  # bytes of TCP up to its flags

_TCP = TCP << PROTOCOL_SHIFT | HAS_PROTOCOL | HAS_PORTS | HAS_FLAGS
_UDP = UDP << PROTOCOL_SHIFT | HAS_PROTOCOL | HAS_PORTS
_ICMP = ICMP << PROTOCOL_SHIFT | HAS_PROTOCOL | HAS_FLAGS


@compiled
def type_end(kind: int) -> int:
    """Bytes of an Ethernet header up to the end of its last type, given the first: usually 14, with a VLAN tag 18."""
    return 18 if is_tag(kind) else 14


@compiled
def is_whole(kind: int, version: int, length: int) -> bool:
    """Return True if `length` bytes behind an EtherType are an IP header of that type with both addresses."""
    return (kind == 0x0800 and version == 4 and length >= 20) or (kind == 0x86DD and version == 6 and length >= 40)


@compiled
def is_usual(block: Bytes, start: int) -> bool:
    """Return True if the Ethernet frame at `start`, of QUICK_BYTES or more, has IPv4 behind its first type.

    One load and one comparison decide, so that the walks have a short loop for runs of such frames.
    """
    return little(block, start + 12) & 0xF0FFFF == 0x400008


@compiled
def peek(block: Bytes, header: int, end: int, version: int) -> tuple[int, int, int, int]:
    """Return what `glance` takes of the whole IP header at `header`: four numbers, by arithmetic without branches.

    These are the protocol, the first four bytes inside, the byte where TCP has its flags, and the number of captured
    bytes inside, or less than 4 if the packet has options or is a fragment after the first.
    """
    inside = header + 10 * version - 20  # 20 bytes behind the start of an IPv4 header, 40 of an IPv6 header
    protocol = byte(block, header + 15 - 3 * (version >> 1))
    length = half(block, header + version - 2) - 20 * (version == 4)
    is_plain = (version == 6) | ((byte(block, header) == 0x45) & (half(block, header + 6) & 0x1FFF == 0))
    first, flags = big(block, min(inside, end - 4)), byte(block, min(inside + 13, end - 1))
    return protocol, first, flags, min(length, end - inside) * is_plain


@compiled
def glance(protocol: int, first: int, flags: int, length: int, wants: int) -> int:
    """Return the details of a packet that is no tunnel, 0 if that takes a closer look."""
    if length < 4:
        return 0
    if protocol == TCP:
        return _TCP | flags << FLAGS_SHIFT | first if length >= _LEAST_TCP else 0
    if protocol == UDP:
        return 0 if wants & (INNER | BOTH) and is_tunnel_port(first >> 16, first & 0xFFFF) else _UDP | first
    if protocol == ICMP:
        return _ICMP | first >> 24 << FLAGS_SHIFT
    return 0


@compiled
def find_headers(block: Bytes, start: int, end: int, link: int, wants: int) -> tuple[int, int, int, int, int, int]:
    """Return the headers of the first packet of a frame: their places and details, and where the next packet starts.

    These are six numbers: the header that counts, or minus the counter of a packet without one; its details; a second
    header that counts, too, or 0; its details; the place and the link of the next packet in the frame, both 0 if there
    is none.
    """
    if is_wrapped(link):
        start, link = unwrapped(block, start, end, link)
        if start < 0:
            return start, 0, 0, 0, 0, 0
    following = 0
    if link == SUBFRAME:
        following = next_subframe(block, start, end)
        end = subframe_end(block, start, end)
    header = ip_header(block, start, end, link)
    following_link = SUBFRAME if following else 0
    if header < 0 or not wants:
        return header, 0, 0, 0, following, following_link
    inner, inner_end = header, end
    if wants & (INNER | BOTH):
        inner, inner_end = innermost(block, header, end)
    details = inner_details = 0
    if wants & DETAILS:
        inner_details = details_of(block, inner, inner_end)
        details = details_of(block, header, end) if wants & BOTH and inner != header else inner_details
    if not wants & BOTH or inner == header:
        return inner, inner_details, 0, 0, following, following_link
    return header, details, inner, inner_details, following, following_link
