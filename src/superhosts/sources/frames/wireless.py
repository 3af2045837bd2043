"""IEEE 802.11: from what a radio says of a frame, and from the frame's own header, to LLC.

Data frames count, with and without QoS, between any kinds of stations. Those that are encrypted carry no IP that
anybody could see, nor do fragments after the first. An aggregate (A-MSDU) holds several packets, each in a subframe
with a small header of its own.
"""

from __future__ import annotations

from superhosts.jit.cache import compiled
from superhosts.sources.frames.linktypes import AVS, PRISM, RADIOTAP
from superhosts.sources.frames.reading import Bytes, big, byte, half, little, little_half
from superhosts.sources.frames.tally import NOT_IP, TRUNCATED

MOST_SUBFRAMES = 1024  # of a frame; the standard's longest aggregate holds 700 of the shortest
_PADDED = 0x20  # a radiotap flag: the header is padded to a multiple of four
_AVS_COOKIE = 0x80211


@compiled
def behind_radio(block: Bytes, at: int, end: int, kind: int) -> int:
    """Return where the 802.11 frame behind a radio's header starts."""
    if end - at < 8:
        return -TRUNCATED
    if kind == RADIOTAP:
        length = little_half(block, at + 2)
    elif kind == AVS or (kind == PRISM and big(block, at) >> 12 == _AVS_COOKIE):
        length = big(block, at + 4)
    else:  # Prism, in the byte order of the machine
        length = little(block, at + 4)
        if length > 0xFFFF:
            length = big(block, at + 4)
    if length < 8:
        return -NOT_IP
    return at + length if length <= end - at else -TRUNCATED


@compiled
def is_padded(block: Bytes, at: int, behind: int) -> bool:
    """Return True if the radiotap header between both places says that the 802.11 header is padded."""
    words = at + 4
    present = little(block, words)
    while words < behind - 8 and little(block, words) >> 31:
        words += 4
    field = words + 4  # behind the words that say which fields are present
    if not present & 2:
        return False
    if present & 1:  # a time of eight bytes comes first, at a multiple of eight
        field += -(field - at) % 8 + 8
    return field < behind and byte(block, field) & _PADDED != 0


@compiled
def behind_wireless(block: Bytes, at: int, end: int, padded: bool) -> int:
    """Return where the payload of the 802.11 frame at `at` starts."""
    if end - at < 2:
        return -TRUNCATED
    kind, flags = byte(block, at), byte(block, at + 1)
    if kind & 0x0F != 0x08 or kind & 0x40 or flags & 0x40:  # no data frame, one without data, encrypted
        return -NOT_IP
    length = 30 if flags & 3 == 3 else 24
    if kind & 0x80:  # QoS, and an HT control field behind it
        length += 6 if flags & 0x80 else 2
    if padded:
        length += -length % 4
    if length > end - at:
        return -TRUNCATED
    return -NOT_IP if byte(block, at + 22) & 0x0F else at + length


@compiled
def is_aggregate(block: Bytes, at: int) -> bool:
    """Return True if the 802.11 data frame at `at`, whose header is whole, holds subframes."""
    place = at + (30 if byte(block, at + 1) & 3 == 3 else 24)
    return byte(block, at) & 0x80 != 0 and byte(block, place) & 0x80 != 0


@compiled
def subframe_end(block: Bytes, at: int, end: int) -> int:
    """Return where the subframe at `at` ends, by its own length, as far as it was captured."""
    return min(at + 14 + half(block, at + 12), end) if end - at >= 14 else end


@compiled
def next_subframe(block: Bytes, at: int, end: int) -> int:
    """Return where the subframe behind the one at `at` starts, 0 if there is no other."""
    if end - at < 14:
        return 0
    length = 14 + half(block, at + 12)
    behind = at + length + -length % 4
    return behind if end - behind >= 14 else 0  # fewer bytes are a checksum
