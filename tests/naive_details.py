"""Details of records of logs, the slow and obvious way. Imports nothing of ours.

A record is a dictionary of its fields as text; what it lacks, or has as None, is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Fields = Mapping[str, str | None]
NAMES = {"tcp": 6, "udp": 17, "icmp": 1, "icmp6": 58, "icmpv6": 58, "ipv6-icmp": 58, "sctp": 132, "gre": 47, "esp": 50}
NAMES |= {"igmp": 2, "t": 6, "u": 17, "rtp": 17, "ospf": 89}
WITH_PORTS = (6, 17, 132, 136, 33)
LETTERS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16, "U": 32, "E": 64, "C": 128}
RECORD, CONVERSATION, ANSWERED = 1 << 51, 1 << 52, 1 << 52 | 1 << 53


def number(text: str | None) -> int | None:
    if text is None:
        return None
    if re.fullmatch("[0-9]{1,18}([.]0*)?", text):
        return int(text.split(".")[0])
    return int(text, 16) if re.fullmatch("0[xX][0-9a-fA-F]{1,8}", text) else None


def up_to(text: str | None, most: int) -> int | None:
    found = number(text)
    return found if found is not None and found <= most else None


def protocol(text: str | None) -> int | None:
    found = up_to(text, 255)
    return NAMES.get((text or "").lower()) if found is None else found


def flags(text: str | None, *, bare_hex: bool = False) -> int | None:
    if not text or text == "-":
        return None
    if bare_hex:
        return int(text, 16) & 255 if re.fullmatch("[0-9a-fA-F]{1,4}", text) else None
    if text[0].isdigit():
        found = up_to(text, 65535)
        return None if found is None else found & 255
    letters = set(text.upper()) - {".", " "}
    return sum(LETTERS[each] for each in letters) if letters <= set(LETTERS) else None


def packed(
    proto: int | None, sport: int | None, dport: int | None, flag: int | None, icmp: int | None = None, mark: int = 0
) -> int:
    """Return the 64 bits: ports, protocol, flags or type, what is known, and a mark."""
    value = mark
    if proto is not None:
        value += proto * 2**32 + 2**48
    if (proto is None or proto in WITH_PORTS) and dport is not None:
        value += (sport or 0) * 2**16 + dport + 2**49
    shown = icmp if proto in (1, 58) else flag if proto in (6, None) else None
    if shown is not None:
        value += shown * 2**40 + 2**50
    return value


def of_zeek(record: Fields) -> int:
    proto, sport = protocol(record.get("proto")), up_to(record.get("id.orig_p"), 65535)
    state, came = record.get("conn_state"), number(record.get("resp_bytes")) or 0
    if state in ("SF", "S1", "S2", "S3", "RSTO", "RSTR"):
        mark = ANSWERED
    elif state in ("S0", "REJ", "RSTOS0", "SH"):
        mark = CONVERSATION
    elif state in ("OTH", "SHR", "RSTRH"):
        mark = ANSWERED if proto in (1, 58) and came else 0
    else:
        came += 0 if "conn_state" in record else number(record.get("resp_pkts")) or 0
        mark = ANSWERED if came else CONVERSATION
    icmp = sport if sport is not None and sport < 256 else None
    return packed(proto, sport, up_to(record.get("id.resp_p"), 65535), None, icmp, mark)


def of_eve(record: Fields) -> int:
    proto, back = protocol(record.get("proto")), flags(record.get("tcp.tcp_flags_tc"), bare_hex=True)
    mark = {"flow": CONVERSATION, "netflow": RECORD}.get(record["event_type"] or "", 0)
    came = bool(number(record.get("flow.pkts_toclient")))
    if mark == CONVERSATION and proto == 6 and back:
        mark = ANSWERED if back & 2 or not back & 4 else CONVERSATION
    elif mark and came:
        mark = ANSWERED
    ports = up_to(record.get("src_port"), 65535), up_to(record.get("dest_port"), 65535)
    flag = flags(record.get("tcp.tcp_flags"), bare_hex=True)
    return packed(proto, *ports, flag, up_to(record.get("icmp_type"), 255), mark)


def of_argus(record: Fields) -> int:
    proto, sport = protocol(record.get("Proto")), up_to(record.get("Sport"), 65535)
    state, arrow = record.get("State") or "", record.get("Dir")
    mark = 0
    if arrow in ("->", "<->", None):
        mark = ANSWERED if arrow == "<->" or number(record.get("DstPkts")) else CONVERSATION
        if state in ("CON", "EST", "ACC", "CLO", "FIN"):
            mark = ANSWERED
        elif state in ("INT", "REQ"):
            mark = CONVERSATION
        elif state in ("URP", "URH", "URN", "URF", "URS", "URO", "URHPRO", "URNPRO", "URCUT", "TXD", "RED"):
            mark = 0
        elif "_" in state and set(back := state.partition("_")[2].upper()) <= set(LETTERS):
            mark = ANSWERED if "S" in back or (back and "R" not in back) else CONVERSATION
    icmp = None if sport is None else sport & 255
    return packed(proto, sport, up_to(record.get("Dport"), 65535), None, icmp, mark)


def of_record(record: Fields, names: tuple[str, str, str, str], icmp: str = "", *, icmp_in_dport: bool = False) -> int:
    proto, sport, dport, flag = (record.get(name) for name in names)
    to, kind = up_to(dport, 65535), up_to(record.get(icmp), 255)
    if kind is None and icmp_in_dport:
        dotted = re.fullmatch("([0-9]{1,3})[.]([0-9]{1,3})", dport or "")
        if dotted and int(dotted[1]) < 256 > int(dotted[2]):
            to, kind = None, int(dotted[1])  # type and code
        else:
            kind = None if to is None else to // 256
    return packed(protocol(proto), up_to(sport, 65535), to, flags(flag), kind, RECORD)
