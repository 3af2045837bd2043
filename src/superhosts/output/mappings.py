"""Records in the formats of other products: ECS, OCSF (class Detection Finding) and CEF (`?format=ecs`).

A format is a table. Each row names a place in an event, and what goes there: a field of the record, or a value that
`_derived` makes of it. A place like "src|dst" is the first if the host is the source of traffic, else the second. What
is not known is left out. Fields of a record that no row names follow behind: in ECS below `superhosts`, in OCSF below
`unmapped`, in CEF as keys that begin with `superhosts`. So fields that records get later are sent as well.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from superhosts import __version__
from superhosts.core.pairs import without_port
from superhosts.errors import UsageError
from superhosts.output.records import ALERT, CLOSED, GROWN, OPEN, OPENED, STORM, Record, describe

NAME: Final = "superhosts"
ECS_VERSION, OCSF_VERSION = "8.0.0", "1.4.0"  # the oldest that have all of these fields; later ones do, too
DETECTION_FINDING = 2004
MOST_TEXT = 1023  # characters of a value in CEF
Table = Sequence[tuple[str, str]]

# The kinds of events: name for people, severity of 0 to 10, severity and activity of OCSF, type of ECS
INFORMATIONAL, MEDIUM = (1, "Informational"), (3, "Medium")
CREATE, UPDATE, CLOSE = (1, "Create"), (2, "Update"), (3, "Close")
KINDS = {
    "": ("Super host", 3, INFORMATIONAL, CREATE, "info"),  # a row
    OPENED: ("Super host: alert opened", 6, MEDIUM, CREATE, "start"),
    GROWN: ("Super host: alert has grown", 7, MEDIUM, UPDATE, "info"),
    OPEN: ("Super host: alert is open", 6, MEDIUM, UPDATE, "info"),
    CLOSED: ("Super host: alert closed", 2, INFORMATIONAL, CLOSE, "end"),
    STORM: ("Super hosts: alerts held back", 7, MEDIUM, CREATE, "start"),
}
NEW, IN_PROGRESS, RESOLVED = (1, "New"), (2, "In Progress"), (4, "Resolved")
WHY_CLOSED = {"allowed": (3, "Suppressed"), "muted": (3, "Suppressed"), "rule removed": (5, "Archived")}
# Whether hosts with these patterns ask or are asked, where the direction does not tell
ASKING = {"horizontal scan", "prefix sweep", "vertical scan", "client, proxy or NAT"}
ASKED = {"DDoS or flash crowd", "scanned by many", "reflector or resolver", "mail server", "web server", "server"}

ECS: Table = (
    ("@timestamp", "when"),
    ("ecs.version", "ecs version"),
    ("message", "sentence"),
    ("event.id", "id"),
    ("event.kind", "ecs kind"),
    ("event.category", "ecs categories"),
    ("event.type", "ecs types"),
    ("event.action", "what"),
    ("event.provider", "product"),
    ("event.severity", "severity"),
    ("event.start", "begin"),
    ("event.end", "end"),
    ("event.duration", "nanoseconds"),
    ("event.reason", "why"),
    ("event.url", "url"),
    ("observer.vendor", "product"),
    ("observer.product", "product"),
    ("observer.version", "version"),
    ("observer.name", "site"),
    ("rule.name", "rule"),
    ("network.type", "ecs network"),
    ("network.direction", "ecs direction"),
    ("network.transport", "protocol"),
    ("source.address|destination.address", "host text"),
    ("source.ip|destination.ip", "ip"),
    ("source.domain|destination.domain", "name"),
    ("source.as.number|destination.as.number", "asn"),
    ("source.as.organization.name|destination.as.organization.name", "as_name"),
    ("source.geo.country_iso_code|destination.geo.country_iso_code", "country"),
    ("source.port|destination.port", "host port"),
    ("destination.port", "asked port"),
    ("related.ip", "addresses"),
    ("related.hosts", "names"),
)
OCSF: Table = (
    ("class_uid", "ocsf class"),
    ("class_name", "ocsf class name"),
    ("category_uid", "ocsf category"),
    ("category_name", "ocsf category name"),
    ("activity_id", "ocsf activity"),
    ("activity_name", "ocsf activity name"),
    ("type_uid", "ocsf type"),
    ("type_name", "ocsf type name"),
    ("severity_id", "ocsf severity"),
    ("severity", "ocsf severity name"),
    ("status_id", "ocsf status"),
    ("status", "ocsf status name"),
    ("status_detail", "closed why"),
    ("is_alert", "is alert"),
    ("time", "when"),
    ("start_time", "begin"),
    ("end_time", "end"),
    ("message", "sentence"),
    ("comment", "note"),
    ("metadata.version", "ocsf version"),
    ("metadata.uid", "id"),
    ("metadata.event_code", "what"),
    ("metadata.log_name", "kind"),
    ("metadata.product.name", "product"),
    ("metadata.product.vendor_name", "product"),
    ("metadata.product.version", "version"),
    ("finding_info.uid", "finding"),
    ("finding_info.title", "title"),
    ("finding_info.desc", "pattern why"),
    ("finding_info.types", "patterns"),
    ("finding_info.first_seen_time", "begin"),
    ("finding_info.last_seen_time", "end"),
    ("finding_info.src_url", "url"),
    ("finding_info.analytic.name", "analytic"),
    ("finding_info.analytic.type_id", "ocsf analytic"),
    ("finding_info.analytic.type", "ocsf analytic name"),
    ("evidences", "ocsf evidences"),
    ("resources", "ocsf resources"),
    ("observables", "ocsf observables"),
)
OCSF_ENDPOINT: Table = (
    ("name", "host text"),
    ("ip", "ip"),
    ("port", "host port"),
    ("hostname", "name"),
    ("autonomous_system.number", "asn"),
    ("autonomous_system.name", "as_name"),
    ("location.country", "country"),
)
OCSF_RESOURCE: Table = (("uid", "host text"), ("name", "shown name"))
CEF: Table = (
    ("rt", "when"),
    ("start", "begin"),
    ("end", "end"),
    ("cat", "kind"),
    ("externalId", "id"),
    ("deviceExternalId", "site"),
    ("deviceDirection", "cef direction"),
    ("src|dst", "ip4"),
    ("c6a2|c6a3", "ip6"),
    ("shost|dhost", "shown name"),
    ("spt|dpt", "host port"),
    ("dpt", "asked port"),
    ("proto", "cef protocol"),
    ("msg", "sentence"),
    ("reason", "why"),
    ("request", "url"),
    ("cs1", "rule"),
    ("cs2", "pattern"),
    ("cs3", "direction"),
    ("cs4", "service"),
    ("cs5", "alert"),
    ("cs6", "label"),
    ("cn1", "peers"),
    ("cn2", "peak"),
    ("cn3", "windows"),
    ("cfp1", "threshold"),
)
CEF_LABELS = {"c6a2": "Source IPv6 Address", "c6a3": "Destination IPv6 Address"}  # of others, the names of the fields


def ecs(record: Record) -> dict[str, Any]:
    content, rest = _filled(ECS, record, lambda time: time.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    return content | {NAME: rest}


def ocsf(record: Record) -> dict[str, Any]:
    content, rest = _filled(OCSF, record, _milliseconds)
    return content | {"unmapped": rest}


def cef(record: Record) -> str:
    derived = _derived(record)
    content, rest = _filled(CEF, record, _milliseconds)
    names = {place: name for places, name in CEF for place in places.split("|")}
    labels = {
        f"{key}Label": CEF_LABELS.get(key, names[key]) for key in content if re.fullmatch("c(s|n|fp|6a)[1-6]", key)
    }
    others = {
        NAME + "".join(word.capitalize() for word in re.split("[^A-Za-z0-9]+", name)): rest[name] for name in rest
    }
    head = ("CEF:0", NAME, NAME, __version__, derived["what"], derived["kind name"], derived["severity"])
    header = "|".join(re.sub(r"([\\|])", r"\\\1", _one_line(str(each))) for each in head)
    extension = (f"{key}={_cef_text(value)}" for key, value in (content | labels | others).items())
    return f"{header}|{' '.join(extension)}"


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]+", " ", text)


def _cef_text(value: Any) -> str:
    if isinstance(value, bool | dict | list):
        value = json.dumps(value, separators=(",", ":"))
    text = str(value)[:MOST_TEXT].replace("\\", "\\\\").replace("=", "\\=")
    return _one_line(text.replace("\r\n", "\n").replace("\n", "\\n").replace("\r", "\\r"))


def _filled(table: Table, record: Record, shown: Callable[[datetime], Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an event as its table has it, with times as they are `shown` there; and what the table does not have."""
    used = {"text", *(name for _, name in table)}  # the sentence is in each table
    rest = {name: value for name, value in record.items() if name not in used and value is not None}
    return _place(table, record | _derived(record), shown), rest


def _place(table: Table, values: Mapping[str, Any], shown: Callable[[datetime], Any] = str) -> dict[str, Any]:
    """Return the values that are known, in the places that a table has for them."""
    content: dict[str, Any] = {}
    for places, name in table:
        value = values.get(name)
        if value is None or value in ("", []):
            continue
        ends = places.split("|")
        *path, last = ends[-1 if values["is target"] else 0].split(".")
        inner = content
        for each in path:
            inner = inner.setdefault(each, {})
        inner[last] = shown(value) if isinstance(value, datetime) else value
    return content


def _derived(record: Record) -> dict[str, Any]:
    """Return the values of tables that are no fields of the record; fields have no spaces in their names."""
    event, kind, host = str(record.get("event", "")), str(record["kind"]), record.get("host")
    kind_name, severity, (rank, rank_name), (activity, activity_name), ecs_type = KINDS.get(event, KINDS[""])
    status, status_name = IN_PROGRESS if record.get("acknowledged") else NEW
    if event == CLOSED:
        status, status_name = WHY_CLOSED.get(str(record.get("reason")), RESOLVED)
    begin, end = _time(record, "since", "window_start"), _time(record, "until", "window_end")
    address, host_port = _split(host) if record.get("family") in (4, 6) else (None, None)
    version = None if address is None else ipaddress.ip_address(address).version
    protocol, port = _service(record)
    way, pattern = str(record.get("direction", "any")), record.get("pattern")
    is_target = pattern in ASKED if way == "any" else way == "in" or way.endswith("-in")
    inbound = None if way == "any" or "side" not in record else is_target == (record["side"] == "inner")
    peers = record.get("some_peers") or (record.get("evidence") or {}).get("peers") or []
    peers = [each for each in (_split(peer)[0] for peer in peers) if each]
    closed = record.get("reason") if event == CLOSED else None
    pattern_why = record.get("pattern_reason") or (None if event == CLOSED else record.get("reason"))
    found = {
        "when": moment(record),
        "begin": begin,
        "end": end,
        "nanoseconds": None if begin is None or end is None else max(round((end - begin).total_seconds() * 1e9), 0),
        "what": f"{kind}-{event}" if event else kind,
        "kind name": kind_name,
        "severity": severity,
        "sentence": describe(record),
        "why": closed or pattern_why,
        "product": NAME,
        "version": __version__,
        "is target": is_target,
        "host text": None if host is None else str(host),
        "shown name": record.get("name") or (None if host is None else str(host)),
        "ip": address,
        "ip4": address if version == 4 else None,
        "ip6": address if version == 6 else None,
        "host port": host_port,
        "asked port": port if not (is_target and host_port) and (way != "any" or pattern in ASKING | ASKED) else None,
        "protocol": protocol,
        "addresses": list(dict.fromkeys([*([address] if address else []), *peers])),
        "names": [record["name"]] if record.get("name") else None,
        "ecs version": ECS_VERSION,
        "ecs kind": "alert" if kind == ALERT else "event",
        "ecs categories": ["network"],
        "ecs types": [ecs_type],
        "ecs network": None if version is None else f"ipv{version}",
        "ecs direction": None if inbound is None else "inbound" if inbound else "outbound",
        "cef protocol": None if protocol is None else protocol.upper(),
        "cef direction": None if inbound is None else int(not inbound),
        "ocsf version": OCSF_VERSION,
        "ocsf class": DETECTION_FINDING,
        "ocsf class name": "Detection Finding",
        "ocsf category": 2,
        "ocsf category name": "Findings",
        "ocsf activity": activity,
        "ocsf activity name": activity_name,
        "ocsf type": DETECTION_FINDING * 100 + activity,
        "ocsf type name": f"Detection Finding: {activity_name}",
        "ocsf severity": rank,
        "ocsf severity name": rank_name,
        "ocsf status": status,
        "ocsf status name": status_name,
        "is alert": event in (OPENED, GROWN, STORM),
        "closed why": closed,
        "pattern why": pattern_why,
        "patterns": [pattern] if pattern else None,
        "finding": record.get("alert") or record["id"],
        "title": kind_name if host is None else f"{record.get('rule') or 'Super host'}: {host}",
        "analytic": record.get("rule") or NAME,
        "ocsf analytic": 1 if "rule" in record else 3,
        "ocsf analytic name": "Rule" if "rule" in record else "Statistical",
    }
    if host is not None:
        found |= _ocsf_objects(record | found, peers)
    return found


def _ocsf_objects(values: Mapping[str, Any], peers: Sequence[str]) -> dict[str, Any]:
    """Return the lists of OCSF: who talked to whom, what the finding is about, and the addresses."""
    ends = ["src_endpoint", "dst_endpoint"]
    own, other = reversed(ends) if values["is target"] else ends
    endpoint, resource = _place(OCSF_ENDPOINT, values), _place(OCSF_RESOURCE, values)
    return {
        "ocsf evidences": [{own: endpoint}, *({own: endpoint, other: {"ip": peer}} for peer in peers)],
        "ocsf resources": [resource],
        "ocsf observables": [
            {"name": name, "type_id": 2, "type": "IP Address", "value": address}
            for name, addresses in ((f"evidences.{own}.ip", [values["ip"]]), (f"evidences.{other}.ip", peers))
            for address in addresses
            if address
        ],
    }


def moment(record: Record) -> datetime:
    """Return when it happened what a record tells; now, if the record does not say it."""
    return _time(record, "closed", "until", "window_end") or datetime.now(UTC)


def _time(record: Record, *names: str) -> datetime | None:
    """Return the first of some times that a record has; a stray one is a number, and counts as none."""
    for name in names:
        try:
            return datetime.fromisoformat(str(record[name])).astimezone(UTC)
        except (KeyError, ValueError, OverflowError):
            continue
    return None


def _split(host: Any) -> tuple[str | None, int | None]:
    """Return the address and the port of a host; there is no address if it is a prefix."""
    text = str(host)
    try:
        address = without_port(text)
        return str(ipaddress.ip_address(address)), int(text.rpartition(":")[2]) if address != text else None
    except (ValueError, UsageError):
        return None, None


def _service(record: Record) -> tuple[str | None, int | None]:
    """Return protocol and port of the main service, like tcp and 445."""
    ports = record.get("ports") or (record.get("evidence") or {}).get("ports") or [{}]
    protocol, _, port = str(record.get("service") or ports[0].get("port") or "").partition("/")
    return protocol or None, int(port) if port.isdecimal() else None


FORMATS: Final[dict[str, Callable[[Record], Any]]] = {"ecs": ecs, "ocsf": ocsf, "cef": cef}


def shaped(record: Record, format: str) -> Any:
    """Return a record in a format, as what JSON can hold: a dictionary, or a line of CEF."""
    return FORMATS[format](record) if format in FORMATS else record


def line_of(record: Record, format: str) -> str:
    """Return a record as one line."""
    found = shaped(record, format)
    return found if isinstance(found, str) else json.dumps(found)
