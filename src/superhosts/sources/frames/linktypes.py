"""The link types of the capture formats: how their frames start, and what they are called.

A link is a number: a kind, which says what code reads the frame, and up to three small numbers for it. So types that
differ by lengths alone share their code, and one more of them is one more line here.
"""

from __future__ import annotations

import numpy as np

from superhosts.jit.cache import compiled

# How a frame starts, behind the bytes that are skipped. Zero is an unsupported link type.
UNSUPPORTED, ETHERNET, RAW, NULL, TYPED, LLC, LABELS = 0, 1, 2, 3, 4, 5, 6
PPP, PPPOE, FRAME_RELAY, FDDI, TOKEN_RING, DOCSIS, NFLOG, PFLOG = 7, 8, 9, 10, 11, 12, 13, 14
# These are read in two steps: something else is inside, or several packets are.
WIRELESS, RADIOTAP, PRISM, AVS, PPI, PKTAP, SUBFRAME = 32, 33, 34, 35, 36, 37, 38
FIRST_WRAPPED = WIRELESS
KIND, SKIP_SHIFT, PLACE_SHIFT, HEADER_SHIFT = 0xFF, 8, 16, 24


def _skip(count: int, kind: int) -> int:
    """A frame of this kind behind some bytes that say nothing of its content."""
    return kind | count << SKIP_SHIFT


def _typed(place: int, header: int, kind: int = TYPED) -> int:
    """A header with an EtherType at `place`. As kind ETHERNET, that may be a length, too."""
    return kind | place << PLACE_SHIFT | header << HEADER_SHIFT


_LINKS = {
    0: NULL,
    1: ETHERNET,
    6: TOKEN_RING,
    9: PPP,
    10: FDDI,
    12: RAW,
    14: RAW,
    50: PPP,
    51: PPPOE,
    100: LLC,
    101: RAW,
    104: _typed(2, 4),
    105: WIRELESS,
    107: FRAME_RELAY,
    108: NULL,
    109: _skip(12, RAW),
    113: _typed(14, 16),
    117: PFLOG,
    119: PRISM,
    122: _skip(16, LLC),
    127: RADIOTAP,
    138: _typed(16, 18),
    143: DOCSIS,
    149: PKTAP,  # Apple's own number for it, before it had one
    163: AVS,
    166: _skip(1, PPP),
    192: PPI,
    204: _skip(1, PPP),
    205: _skip(1, _typed(2, 4)),
    206: _skip(1, FRAME_RELAY),
    219: LABELS,
    228: RAW,
    229: RAW,
    239: NFLOG,
    242: _typed(40, 44),
    258: PKTAP,
    276: _typed(0, 20),
    281: _typed(16, 18, ETHERNET),
    282: _skip(4, ETHERNET),
    284: _typed(16, 18, ETHERNET),
    285: _typed(20, 22, ETHERNET),
}

_NAMES = {
    7: "ARCNET",
    8: "SLIP",
    19: "ATM",
    147: "user 0",
    187: "Bluetooth HCI",
    189: "USB, Linux",
    195: "IEEE 802.15.4",
    201: "Bluetooth HCI with direction",
    220: "USB, Linux, padded",
    227: "CAN",
    247: "InfiniBand",
    249: "USB, Windows",
    253: "netlink",
}

_TABLE = np.zeros(max(_LINKS) + 1, np.int64)
_TABLE[list(_LINKS)] = list(_LINKS.values())


@compiled
def link_of(link_type: int) -> int:
    """Return how frames of a link type of the capture formats start; UNSUPPORTED if it is not supported."""
    if link_type < 0 or link_type >= len(_TABLE):
        return UNSUPPORTED
    return _TABLE[link_type]  # type: ignore[no-any-return]


def unsupported(link_type: int) -> str:
    """Return the message for a link type that is not supported."""
    name = f" ({_NAMES[link_type]})" if link_type in _NAMES else ""
    return (
        f"link type {link_type}{name} is not supported; "
        "Ethernet, raw IP, Linux cooked, BSD null and loop, IEEE 802.11, PPP, HDLC, Frame Relay and others are"
    )
