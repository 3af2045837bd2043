"""The oracle for frames: which addresses and details a captured frame has, in the simplest way.

It imports nothing of the product. A frame is bytes, a header is a slice of it, and what cannot be read is an exception:

- `packets_of` gives the parts of a frame that are packets: one, or the subframes of an 802.11 aggregate.
- `ip_header` gives a packet from its outermost IP header on.
- `innermost` goes from there to the innermost header that was captured as a whole.
- `details` says what is inside a header.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_HEADERS = 8
MOST_SUBFRAMES = 1024
TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)
LABELS = (0x8847, 0x8848)
FAMILIES = (2, 10, 23, 24, 28, 30)  # AF_INET, and AF_INET6 of Linux, Windows, OpenBSD, FreeBSD and Darwin
PORTS = (6, 17, 33, 132, 136)  # protocols that have ports
LINKS = {
    *(0, 1, 6, 9, 10, 12, 14, 50, 51, 100, 101, 104, 105, 107, 108, 109, 113, 117, 119, 122, 127, 138, 143, 149, 163),
    *(166, 192, 204, 205, 206, 219, 228, 229, 239, 242, 258, 276, 281, 282, 284, 285),
}


class NotIp(Exception):  # noqa: N818
    """A frame that carries no IP header."""


class Truncated(Exception):  # noqa: N818
    """A frame that ends before its addresses are complete."""


class Unsupported(Exception):  # noqa: N818
    """A frame of a link type that is not read, inside one that is."""


def number(data: bytes, start: int, length: int, order: str = "big") -> int:
    if start + length > len(data):
        raise Truncated
    return int.from_bytes(data[start : start + length], order)  # type: ignore[arg-type]


def need(data: bytes, length: int) -> None:
    if len(data) < length:
        raise Truncated


@dataclass
class Part:
    """A part of a frame that is a packet: its link type, or "llc" where LLC follows."""

    link: int | str
    data: bytes


# Links


def packets_of(link: int, frame: bytes) -> list[Part]:
    if link in (192, 258, 149):
        size = number(frame, 2, 2, "little") if link == 192 else number(frame, 0, 4, "little")
        inner = number(frame, 4, 4, "little") if link == 192 else number(frame, 8, 4, "little")
        if size < 8 or inner in (192, 258, 149):
            raise NotIp
        need(frame, size)
        if inner not in LINKS:
            raise Unsupported
        link, frame = inner, frame[size:]
    padded = False
    if link in (119, 127, 163):
        need(frame, 8)
        if link == 127:
            size = number(frame, 2, 2, "little")
        elif link == 163 or (frame[:2] == b"\x80\x21" and frame[2] >> 4 == 1):
            size = number(frame, 4, 4)
        else:
            size = number(frame, 4, 4, "little")
            size = size if size <= 0xFFFF else number(frame, 4, 4)
        if size < 8:
            raise NotIp
        need(frame, size)
        padded = link == 127 and has_padding(frame[:size])
        link, frame = 105, frame[size:]
    if link == 105:
        return wireless(frame, padded)
    return [Part(link, frame)]


def has_padding(radiotap: bytes) -> bool:
    present = number(radiotap, 4, 4, "little")
    words = 4
    while words < len(radiotap) - 8 and number(radiotap, words, 4, "little") >> 31:
        words += 4
    at = words + 4
    if present & 1:
        at = (at + 7) // 8 * 8 + 8
    return bool(present & 2) and at < len(radiotap) and bool(radiotap[at] & 0x20)


def wireless(frame: bytes, padded: bool) -> list[Part]:
    control = number(frame, 0, 2)
    version, kind, subtype = control >> 8 & 3, control >> 10 & 3, control >> 12 & 15
    if version != 0 or kind != 2 or subtype & 4 or control & 0x40:
        raise NotIp
    size = 24 if control & 3 != 3 else 30
    qos = size if subtype & 8 else 0
    if qos:
        size += 2 + (4 if control & 0x80 else 0)
    if padded:
        size = (size + 3) // 4 * 4
    need(frame, size)
    is_aggregate = bool(qos and frame[qos] & 0x80)
    if frame[22] & 15:
        raise NotIp
    if not is_aggregate:
        return [Part("llc", frame[size:])]
    parts, rest = [], frame[size:]
    while not parts or (len(rest) >= 14 and len(parts) < MOST_SUBFRAMES):
        length = 14 + number(rest, 12, 2) if len(rest) >= 14 else 0
        # A subframe too short for its header is a packet that is cut.
        parts.append(Part("llc" if length else "cut", rest[14:length]))
        rest = rest[length + -length % 4 :] if length else b""
    return parts


def ip_header(link: int | str, frame: bytes) -> bytes:
    """Return the rest of a packet from its outermost IP header on."""
    header = behind_link(link, frame)
    version = number(header, 0, 1) >> 4
    if version not in (4, 6):
        raise NotIp
    need(header, 20 if version == 4 else 40)
    return header


TYPED = {104: (2, 4), 113: (14, 16), 138: (16, 18), 242: (40, 44), 276: (0, 20)}  # place of the type, bytes


def behind_link(link: int | str, frame: bytes) -> bytes:
    match link:
        case "llc" | 100:
            return behind_llc(frame)
        case "cut":
            raise Truncated
        case 12 | 14 | 101 | 228 | 229:
            return frame
        case 109:
            return frame[12:]
        case 0 | 108:
            swapped = number(frame, 0, 4, "little")
            if (swapped if swapped <= 0xFFFF else number(frame, 0, 4)) not in FAMILIES:
                raise NotIp
            return frame[4:]
        case 1 | 282:
            return behind_ethernet(frame[4 if link == 282 else 0 :])
        case 6:
            need(frame, 15)
            if frame[1] >> 6 != 1:
                raise NotIp
            return behind_llc(frame[14 + (frame[14] & 0x1F if frame[8] & 0x80 else 0) :])
        case 9 | 50 | 166 | 204:
            return behind_hdlc(frame[1 if link > 50 else 0 :])
        case 10:
            need(frame, 13)
            if frame[0] >> 4 != 5:
                raise NotIp
            return behind_llc(frame[13:])
        case 51:
            return behind_ppp(frame[6:])
        case 205:
            return typed(frame[1:], *TYPED[104])
        case 107 | 206:
            return behind_frame_relay(frame[1 if link == 206 else 0 :])
        case 117:
            length = number(frame, 0, 1)
            if length < 4:
                raise NotIp
            return frame[(length + 3) // 4 * 4 :]
        case 122:
            return behind_llc(frame[16:])
        case 143:
            control, size = number(frame, 0, 1), number(frame, 1, 1)
            if control >> 6:
                raise NotIp
            return behind_ethernet(frame[6 + (size if control & 1 else 0) :])
        case 219:
            return behind_labels(frame)
        case 239:
            return behind_nflog(frame[4:])
        case 281 | 284 | 285:
            size = 22 if link == 285 else 18
            need(frame, size)
            return behind_type(number(frame, size - 2, 2), frame[size:])
    return typed(frame, *TYPED[link])


def typed(frame: bytes, place: int, size: int) -> bytes:
    need(frame, size)
    kind = number(frame, place, 2)
    if kind < 0x0600 and kind != 4:
        raise NotIp
    return behind_type(kind, frame[size:])


def behind_ethernet(frame: bytes) -> bytes:
    return behind_type(number(frame, 12, 2), frame[14:])


def behind_frame_relay(frame: bytes) -> bytes:
    size = next((i + 1 for i in range(min(4, len(frame))) if frame[i] & 1), 0)
    if not size:
        need(frame, 7)
        raise NotIp
    rest = frame[size:]
    need(rest, 2)
    if rest[0] != 3:
        if number(rest, 0, 2) < 0x0600:
            raise NotIp
        return behind_type(number(rest, 0, 2), rest[2:])
    rest = rest[2:] if rest[1] == 0 else rest[1:]
    protocol = number(rest, 0, 1)
    if protocol in (0xCC, 0x8E):
        return rest[1:]
    if protocol == 0xCF:
        return behind_ppp(rest[1:])
    if protocol != 0x80:
        raise NotIp
    organisation, kind = number(rest, 1, 3), number(rest, 4, 2)
    if organisation == 0 and kind >= 0x0600:
        return behind_type(kind, rest[6:])
    if organisation == 0x0080C2 and kind == 7:
        return behind_ethernet(rest[6:])
    raise NotIp


def behind_nflog(rest: bytes) -> bytes:
    while True:
        order = "little" if number(rest, 2, 2, "little") <= 0xFF else "big"
        length, kind = number(rest, 0, 2, order), number(rest, 2, 2, order)
        if length < 4:
            raise NotIp
        if kind == 9:
            return rest[4:]
        rest = rest[(length + 3) // 4 * 4 :]


# Between a link and IP


def behind_type(kind: int, rest: bytes) -> bytes:
    """Return the rest of a frame from its IP header on, given an EtherType (or a length) and the data after it."""
    if kind in TAGS:
        return behind_type(number(rest, 2, 2), rest[4:])
    if kind == 0xDADA:
        return behind_type(number(rest, 6, 2), rest[8:])
    if kind in (0x0800, 0x86DD):
        return rest
    if kind in LABELS:
        return behind_labels(rest)
    if kind == 0x8864:
        return behind_ppp(rest[6:])
    if kind < 0x0600:
        return behind_llc(rest)
    raise NotIp


def behind_labels(rest: bytes) -> bytes:
    while not number(rest, 0, 4) & 0x100:  # The last label of a stack has this bit set.
        rest = rest[4:]
    return rest[4:]


def behind_ppp(rest: bytes) -> bytes:
    if number(rest, 0, 2) & 0x100:  # If the first byte is odd, the field has one byte.
        protocol, rest = rest[0], rest[1:]
    else:
        protocol, rest = number(rest, 0, 2), rest[2:]
    if protocol in (0x21, 0x57):
        return rest
    if protocol in (0x281, 0x283):
        return behind_labels(rest)
    raise NotIp


def behind_hdlc(rest: bytes) -> bytes:
    first = number(rest, 0, 1)
    if first in (0x0F, 0x8F):
        kind = number(rest, 2, 2)
        if kind < 0x0600:
            raise NotIp
        return behind_type(kind, rest[4:])
    return behind_ppp(rest[{0xFF: 2, 0x03: 1}.get(first, 0) :])


def behind_llc(rest: bytes) -> bytes:
    service = number(rest, 0, 3)
    if service == 0x060603:
        return rest[3:]
    if service != 0xAAAA03:
        raise NotIp
    need(rest, 8)
    if number(rest, 3, 3) not in (0, 0xF8):
        raise NotIp
    kind = number(rest, 6, 2)
    if kind < 0x0600:
        raise NotIp
    return behind_type(kind, rest[8:])


# Inside an IP header


def addresses(header: bytes) -> tuple[int, int, int]:
    if header[0] >> 4 == 4:
        return 4, number(header, 12, 4), number(header, 16, 4)
    return 6, number(header, 8, 16), number(header, 24, 16)


def without_padding(header: bytes) -> bytes:
    """Return a packet up to the length that its header states, 0 if it states none."""
    if header[0] >> 4 == 4:
        return header[: max(number(header, 2, 2), 20)] if number(header, 2, 2) else header
    return header[: number(header, 4, 2) + 40] if number(header, 4, 2) else header


def inside(packet: bytes) -> tuple[int | None, bytes | None]:
    """Return the protocol behind extension headers and what it carries; None for what is not there."""
    if packet[0] >> 4 == 4:
        size, protocol = packet[0] % 16 * 4, packet[9]
        if size < 20 or number(packet, 6, 2) % 8192:
            return protocol, None
        rest = packet[size:]
    else:
        protocol, rest = packet[6], packet[40:]
    while protocol in (0, 43, 44, 51, 60):
        if len(rest) < 2:
            return None, None
        size = 8 if protocol == 44 else (rest[1] + 2) * 4 if protocol == 51 else (rest[1] + 1) * 8
        if len(rest) < size:
            return None, None
        if protocol == 44 and number(rest, 2, 2) // 8:
            return rest[0], None
        protocol, rest = rest[0], rest[size:]
    return protocol, rest


def details(header: bytes) -> int:
    """Return the details of a packet as `superhosts.core.pairs` describes them."""
    protocol, rest = inside(without_padding(header))
    if protocol is None:
        return 0
    value = 1 << 48 | protocol << 32
    rest = rest or b""
    if protocol in PORTS and len(rest) >= 4:
        value |= 1 << 49 | number(rest, 0, 2) << 16 | number(rest, 2, 2)
    if protocol == 6 and len(rest) >= 14:
        value |= 1 << 50 | rest[13] << 40
    if protocol in (1, 58) and rest:
        value |= 1 << 50 | rest[0] << 40
    return value


# Tunnels


def innermost(header: bytes) -> bytes:
    for _ in range(MOST_HEADERS - 1):
        packet = without_padding(header)
        try:
            following = tunnelled(packet)
            version = number(following, 0, 1) >> 4
            if version not in (4, 6):
                break
            need(following, 20 if version == 4 else 40)
        except (NotIp, Truncated):
            break
        header = following
    return header


def tunnelled(packet: bytes) -> bytes:
    """Return what may be the IP header inside a packet, and all behind it."""
    protocol, rest = inside(packet)
    if rest is None:
        raise NotIp
    if protocol in (4, 41):
        return rest
    if protocol == 47:
        return behind_gre(rest)
    if protocol == 97:
        if number(rest, 0, 2) >> 12 != 3:
            raise NotIp
        return behind_ethernet(rest[2:])
    if protocol == 137:
        return behind_labels(rest)
    if protocol == 17:
        need(rest, 8)
        return behind_udp(number(rest, 0, 2), number(rest, 2, 2), rest[8:])
    raise NotIp


def behind_udp(src: int, dst: int, rest: bytes) -> bytes:
    if dst in (4789, 8472, 4790):
        need(rest, 8)
        if not rest[0] & 8:
            raise NotIp
        content = rest[3] if dst == 4790 and rest[0] & 4 else 3
        if content in (1, 2):
            return rest[8:]
        if content == 5:
            return behind_labels(rest[8:])
        if content == 3:
            return behind_ethernet(rest[8:])
        raise NotIp
    if dst == 6081:
        need(rest, 8)
        if rest[0] >= 64:
            raise NotIp
        return behind_gre_type(number(rest, 2, 2), rest[8 + 4 * rest[0] :])
    if dst == 2152:
        return behind_gtp(rest)
    if dst == 6635:
        return behind_labels(rest)
    if 3544 in (src, dst):
        need(rest, 4)
        if rest[:2] == b"\0\x01":
            rest = rest[13 + rest[2] + rest[3] :]
        need(rest, 2)
        if rest[:2] == b"\0\0":
            rest = rest[8:]
        if number(rest, 0, 1) >> 4 != 6:
            raise NotIp
        return rest
    if 1701 in (src, dst):
        need(rest, 6)
        flags = number(rest, 0, 2)
        if flags >> 15 or flags % 16 != 2:
            raise NotIp
        rest = rest[8 if flags & 0x4000 else 6 :]
        rest = rest[4 if flags & 0x0800 else 0 :]
        if flags & 0x0200:
            rest = rest[2 + number(rest, 0, 2) :]
        return behind_hdlc(rest)
    raise NotIp


def behind_gtp(rest: bytes) -> bytes:
    need(rest, 8)
    if rest[0] >> 4 != 3 or rest[1] != 255:
        raise NotIp
    flags, rest = rest[0], rest[8:]
    if flags & 7:
        following = number(rest, 3, 1)
        rest = rest[4:]
        while flags & 4 and following:
            size = 4 * number(rest, 0, 1)
            if not size:
                raise NotIp
            following = number(rest, size - 1, 1)
            rest = rest[size:]
    return rest


def behind_gre(rest: bytes) -> bytes:
    flags, kind = number(rest, 0, 2), number(rest, 2, 2)
    version = flags % 8
    if version > 1 or (version == 1 and kind != 0x880B):
        raise NotIp
    bits = [flags & 0xC000, flags & 0x2000, flags & 0x1000, version == 1 and flags & 0x80]
    rest = rest[4 + 4 * sum(map(bool, bits)) :]
    if flags & 0x4000:
        while number(rest, 0, 4) & 0xFFFF00FF:
            rest = rest[4 + rest[3] :]
        rest = rest[4:]
    if kind == 0x88BE:
        return behind_ethernet(rest[8 if flags & 0x1000 else 0 :])
    if kind == 0x22EB:
        need(rest, 12)
        content, rest = rest[10] // 4 % 32, rest[20 if rest[11] % 2 else 12 :]
        if content == 0:
            return behind_ethernet(rest)
        if content == 2:
            return rest
        raise NotIp
    return behind_gre_type(kind, rest)


def behind_gre_type(kind: int, rest: bytes) -> bytes:
    if kind == 0x6558:
        return behind_ethernet(rest)
    if kind == 0x880B:
        return behind_hdlc(rest)
    if kind < 0x0600:
        raise NotIp
    return behind_type(kind, rest)
