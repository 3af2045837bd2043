"""Which columns of a table are source, destination and time, and which have details: protocol, ports, flags.

`--map src=a,dst=b,time=c` names them; what it leaves out is guessed from the names that tools use. A column can also be
named by its place, counted from 1, where no column has that number for a name: `src=1,dst=2` for a table without a
header. A unit may follow the name of a time or a duration: `time=start:ms`.

This is the one list of names that are guessed: tables and logs of every format use it.
"""

from __future__ import annotations

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from typing import Any, NamedTuple

from superhosts.core.text import either, printable
from superhosts.errors import InputError, UsageError

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # nanoseconds
TIMES = ("time", "time_end", "duration")  # roles that may have a unit
DETAILS = ("proto", "sport", "dport", "flags", "state", "replies")  # roles that are read where a run wants details
ROLES = ("src", "dst", *TIMES, *DETAILS)
EXAMPLE = "src=COLUMN,dst=COLUMN,time=COLUMN"
_MOST_NAMED = 30  # columns that an error lists

# Names of the two ends, in lower case: the first pair of which a table has both.
ENDS = (
    *(("src", "dst"), ("src_ip", "dst_ip"), ("srcip", "dstip"), ("srcaddr", "dstaddr"), ("src_addr", "dst_addr")),
    *(("id.orig_h", "id.resp_h"), ("id_orig_h", "id_resp_h"), ("orig_h", "resp_h")),  # Zeek
    *(("sa", "da"), ("sip", "dip"), ("saddr", "daddr"), ("ip_src", "ip_dst")),
    *(("source_ip", "destination_ip"), ("source_ip", "dest_ip"), ("src_ip", "dest_ip")),
    *(("source.ip", "destination.ip"), ("source.address", "destination.address")),
    *(
        ("source_address", "destination_address"),
        ("sourceip", "destinationip"),
        ("sourceaddress", "destinationaddress"),
    ),
    *(("source", "destination"), ("source ip", "destination ip"), ("src ip", "dst ip")),
    *(("ipv4_src_addr", "ipv4_dst_addr"), ("ipv6_src_addr", "ipv6_dst_addr")),
    *(("sourceipv4address", "destinationipv4address"), ("sourceipv6address", "destinationipv6address")),  # IPFIX
    *(("src4_addr", "dst4_addr"), ("src6_addr", "dst6_addr")),
    *(("pkt_srcaddr", "pkt_dstaddr"), ("pkt-srcaddr", "pkt-dstaddr")),
    *(("cli_ip", "srv_ip"), ("client_ip", "server_ip"), ("local_ip", "remote_ip")),
)
# Names of the start of a record and of its end, in lower case; the first that a table has.
STARTS = (
    *("time_flow_start_ns", "timestamp_start", "flow_start", "flow.start", "flowstart"),
    *("flowstartmilliseconds", "flowstartseconds", "start_time", "starttime", "stime", "start"),
    *("first_switched", "firstseen", "first_seen", "first"),
    *("ts", "time", "timestamp", "@timestamp", "event_time", "datetime", "date"),
    *("time_received_ns", "timereceived", "time_received", "timestamp_arrival", "stamp_inserted"),
)
STOPS = (
    *("time_flow_end_ns", "timestamp_end", "flow_end", "flow.end", "flowend"),
    *("flowendmilliseconds", "flowendseconds", "end_time", "endtime", "etime", "end"),
    *("last_switched", "lastseen", "last_seen", "last", "te"),
)
DURATIONS = ("duration", "dur", "td", "flow_duration")
# Names of details, in lower case: the first that a table has, of ports the first pair of which it has both.
PROTOCOLS = (
    *("proto", "protocol", "ip_proto", "ip_protocol", "l4_proto", "l4_protocol", "protocolidentifier"),
    *("network.transport", "transport", "pr", "pro", "prot"),
)
PORTS = (
    *(("sport", "dport"), ("src_port", "dst_port"), ("srcport", "dstport"), ("src_port", "dest_port")),
    *(("port_src", "port_dst"), ("id.orig_p", "id.resp_p"), ("id_orig_p", "id_resp_p"), ("orig_p", "resp_p")),
    *(("sp", "dp"), ("source_port", "destination_port"), ("source_port", "dest_port")),
    *(("source.port", "destination.port"), ("sourceport", "destinationport"), ("source port", "destination port")),
    *(("src port", "dst port"), ("l4_src_port", "l4_dst_port"), ("ip_src_port", "ip_dst_port")),
    ("sourcetransportport", "destinationtransportport"),  # IPFIX
    *(("cli_port", "srv_port"), ("client_port", "server_port"), ("local_port", "remote_port")),
)
FLAGS = ("tcp_flags", "tcpflags", "tcp-flags", "flags", "flg", "tcpcontrolbits", "tcp.flags")


class Column(NamedTuple):
    """A column by its name or place, with the unit of its numbers: one of UNITS, or "" to go by their magnitude."""

    name: str
    unit: str = ""


class Mapping(NamedTuple):
    """The columns of a table by what they mean. None: not said, or not there."""

    src: Column | None = None
    dst: Column | None = None
    time: Column | None = None  # start of a record
    time_end: Column | None = None
    duration: Column | None = None  # its numbers are seconds unless a unit is given
    proto: Column | None = None
    sport: Column | None = None
    dport: Column | None = None
    flags: Column | None = None  # of TCP
    state: Column | None = None  # of a whole conversation
    replies: Column | None = None  # packets or bytes that came back in a whole conversation
    untimed: bool = False  # "time=": the times of the table are not used

    def named(self) -> dict[str, Column]:
        return {role: column for role in ROLES if (column := getattr(self, role)) is not None}

    @property
    def has_time(self) -> bool:
        return self.time is not None or self.time_end is not None


def parse_map(text: str) -> Mapping:
    """Read `src=a,dst=b,time=c:ms`; UsageError if it makes no sense."""
    found: dict[str, Any] = {}
    untimed = False
    for item in filter(None, (item.strip() for item in text.split(","))):
        role, equals, name = item.partition("=")
        if not equals or role not in ROLES:
            raise UsageError(f"{map_option(text)}: {item!r}: write it like {EXAMPLE}; it may name {', '.join(ROLES)}")
        if role in found:
            raise UsageError(f"{map_option(text)}: {role} is given twice")
        if not name and role == "time":
            untimed = True
            continue
        if not name:
            raise UsageError(f"{map_option(text)}: {role}= names no column")
        found[role] = as_column(name, role)
    if not found and not untimed:
        raise UsageError(f"{map_option(text)}: it names no column; write it like {EXAMPLE}")
    return Mapping(**found, untimed=untimed)


def as_map(given: str | Dict[str, object] | Mapping | None) -> Mapping | None:
    """Return a map as callers in Python give it: text, a dictionary of role and column, or None."""
    if given is None or isinstance(given, Mapping):
        return given
    if isinstance(given, str):
        return parse_map(given)
    if not isinstance(given, Dict):
        raise UsageError(f"map={given!r}: write it like {EXAMPLE!r}, or as a dictionary")
    for role, name in given.items():
        if role not in ROLES or not isinstance(name, str | int) or not str(name):
            raise UsageError(f"map={dict(given)!r}: {role!r}: a column's name for one of {', '.join(ROLES)}")
    if not given:
        raise UsageError(f"map={{}}: it names no column; write it like {EXAMPLE}")
    named: dict[str, Any] = {role: as_column(str(name), role) for role, name in given.items()}
    return Mapping(**named)


def resolve(asked: Mapping | None, columns: Sequence[str], file: str) -> Mapping:
    """Return the mapping of a table with these columns: what was asked for, the rest guessed by usual names.

    InputError lists the columns if source or destination is not among them.
    """
    found = named(asked or Mapping(), columns, file)
    known = by_name(columns)
    if found.src is None or found.dst is None:
        src, dst = _pair(ENDS, known)
        # With one end given, the other need not belong to the same pair of names.
        src = src or (_first([pair[0] for pair in ENDS], known) if found.dst else None)
        dst = dst or (_first([pair[1] for pair in ENDS], known) if found.src else None)
        found = found._replace(src=found.src or src, dst=found.dst or dst)
    if not found.untimed and not found.has_time:
        stop = None if asked is not None and asked.duration is not None else _first(STOPS, known)
        found = found._replace(time=_first(STARTS, known), time_end=stop)
        if found.duration is None and found.time is not None:
            found = found._replace(duration=_first(DURATIONS, known))
    missing = [role for role in ("src", "dst") if getattr(found, role) is None]
    if missing:
        raise InputError(
            f"which column is {' and which is '.join(missing)}? say it with {_wanted(found, missing)}; "
            f"{columns_found(columns)}",
            file=file,
        )
    if found.src is not None and found.dst is not None and found.src.name == found.dst.name:
        raise InputError(f"src and dst are the same column, {found.src.name}; {columns_found(columns)}", file=file)
    return found


def usual_details(columns: Sequence[str]) -> Mapping:
    """Return the columns of protocol, ports and flags that a table has by their usual names."""
    known = by_name(columns)
    sport, dport = _pair(PORTS, known)
    dport = dport or _first([pair[1] for pair in PORTS], known)
    return Mapping(proto=_first(PROTOCOLS, known), sport=sport, dport=dport, flags=_first(FLAGS, known))


def has_usual_names(columns: Sequence[str]) -> bool:
    return _pair(ENDS, by_name(columns))[0] is not None


def columns_found(columns: Sequence[str]) -> str:
    if not columns:
        return "it has no columns"
    shown = ", ".join(printable(name, 40) for name in columns[:_MOST_NAMED])
    more = f" and {len(columns) - _MOST_NAMED:,} more" if len(columns) > _MOST_NAMED else ""
    return f"its columns: {shown}{more}"


def by_name(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns by their names in lower case; of those with one name the first."""
    return {name.strip().lower(): name for name in reversed(columns)}


def as_column(text: str, role: str) -> Column:
    """Return the column that a text like `start:ms` names; only times have a unit."""
    name, colon, unit = text.rpartition(":")
    return Column(name, unit) if colon and name and unit in UNITS and role in TIMES else Column(text)


def named(asked: Mapping, columns: Sequence[str], file: str) -> Mapping:
    """Return the columns that were asked for as the table spells them."""
    by_case: dict[str, list[str]] = {}
    for name in columns:
        by_case.setdefault(name.lower(), []).append(name)
    found: dict[str, Any] = {}
    for role, column in asked.named().items():
        name = column.name
        if name not in columns:
            like = by_case.get(name.lower(), [])
            if len(like) == 1:
                name = like[0]
            elif name.isascii() and name.isdigit() and 1 <= int(name) <= len(columns):
                name = columns[int(name) - 1]
            else:
                raise InputError(
                    f"{map_option(f'{role}={column.name}')}: it has no such column; {columns_found(columns)}", file=file
                )
        found[role] = Column(name, column.unit)
    return asked._replace(**found)


def _pair(names: Sequence[tuple[str, str]], known: Dict[str, str]) -> tuple[Column | None, Column | None]:
    for src, dst in names:
        if src in known and dst in known:
            return Column(known[src]), Column(known[dst])
    return None, None


def _first(names: Sequence[str], known: Dict[str, str]) -> Column | None:
    return next((Column(known[name]) for name in names if name in known), None)


def _wanted(found: Mapping, missing: Sequence[str]) -> str:
    items = [f"{role}=COLUMN" for role in missing]
    if not found.has_time:
        items.append("time=COLUMN")
    return map_option(",".join(items))


def map_option(text: str) -> str:
    return either(f"--map {text}", f'map="{text}"')
