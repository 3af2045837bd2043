"""ECS, OCSF and CEF: every kind of event and row has what the schemas require, in the types that they say.

The tables here are the rules of ECS 9.4 and OCSF 1.8 for the fields that this program writes, and of CEF 0.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from commands import Run
from superhosts.core.pairs import Window
from superhosts.core.results import SuperHost
from superhosts.output.alerts.machine import AlertMachine, Policy
from superhosts.output.alerts.rules import Rule
from superhosts.output.destination import ENDLESS, RUN_THAT_ENDS, RunKind
from superhosts.output.mappings import FORMATS, KINDS, line_of, moment
from superhosts.output.records import Record, make_record
from superhosts.output.registry import OutputOptions, open_each
from superhosts.output.report import Report, Row, make_rows

LENGTH = 300 * 10**9
NOON = 1_794_657_600 * 10**9
WAYS = {
    "203.0.113.9": "any",
    "2001:db8::1": "in",
    "2001:db8:20:7::/64": "out",
    "10.1.2.3:443": "opened",
    "[2001:db8::1]:443": "opened-in",
    "10.0.0.0/24": "unanswered",
}
EVIDENCE = {"ports": [{"port": "tcp/445", "at": "peer", "share": 0.93}], "peers": ["198.51.100.1", "2001:db8::5"]}
ODD = "a|b=c\\d\r\ne\x1bf\u2028 ä"  # what needs escapes
KNOWN = {
    "pattern": "prefix sweep",
    "reason": ODD,
    "evidence": EVIDENCE,
    "name": "srv.example",
    "label": ODD,
    "asn": 64500,
    "as_name": "Example",
    "country": "DE",
}
LATER = {
    "pattern_reason": ODD,
    "ports": EVIDENCE["ports"],
    "some_peers": EVIDENCE["peers"],
    "duration": 300.0,
    "networks": ["198.51.100.0/24"],
    "peers_before": None,
    "change": 5,
    "sites": ["ams"],
    "usual_low": 40,
    "url": "https://hub.example/host",
    "persistence": {"windows": 9, "of": 12},
    "owner": "anna",
    "note": ODD,
    "acknowledged": "2026-11-14T12:10:00Z",
    "group": "vlan 12",
    "field_of_tomorrow": [1, {"a": None}],
}


def rows(number: int, peers: int | None, **more: Any) -> tuple[Window, list[Row]]:
    window = Window(NOON + number * LENGTH, NOON + (number + 1) * LENGTH)
    high = None if peers is None else peers + 10
    found = [SuperHost(host, peers, 900, high, False, peers is None, detector="cube") for host in WAYS]
    made = make_rows(window, found)
    for row in made:
        family = 6 if row["host"].count(":") > 1 else 4
        row |= {"family": family, "direction": WAYS[row["host"]], **more}
    return window, made


def records() -> list[Record]:
    """Return rows of every kind, and the events of alerts as a machine tells them."""
    rules = tuple(Rule(name=f"rule-{way}", direction=way, threshold=500) for way in WAYS.values())
    machine = AlertMachine(Policy(rules=rules, cap=3))
    events: list[Row] = []
    for number, peers in enumerate([1000, 5000, 5000]):
        events += machine.take(*rows(number, peers, **KNOWN))
    events += machine.open_events()
    for number in range(3, 8):
        events += machine.take(rows(number, 1000)[0], [])
    assert {each["event"] for each in events} == set(KINDS) - {""}
    found = [make_record(each, site) for each in events for site in ("", "ams")]
    found += [{**each, **LATER} for each in found]
    for more in ({}, KNOWN, {"side": "outer"}, {"partial": True, "revision": 2}):
        found += [make_record(row, "ams") for peers in (4000, None) for row in rows(0, peers, **more)[1]]
    for odd in (
        {"window_start": None, "window_end": None, "host": -5, "family": None},
        {"window_end": "9e30", "host": f"key {ODD}:12", "family": None},
    ):
        found.append(make_record({**rows(0, 10)[1][0], **odd}))
    return [*found, make_record({"rows": 3})]


RECORDS = records()
FULL = {**next(each for each in RECORDS if each.get("event") == "opened" and each["host"] == "203.0.113.9"), **LATER}


def leaves(content: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, dict):
        for name, value in content.items():
            yield from leaves(value, f"{path}.{name}" if path else name)
    elif isinstance(content, list) and content and isinstance(content[0], dict):
        for value in content:
            yield from leaves(value, f"{path}[]")
    else:
        yield path, content


def is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def is_whole(value: Any) -> bool:
    return type(value) is int


def is_flag(value: Any) -> bool:
    return type(value) is bool


def is_ip(value: Any) -> bool:
    return is_text(value) and str(ipaddress.ip_address(value)) == value


def is_port(value: Any) -> bool:
    return is_whole(value) and 0 <= value < 1 << 16


def is_date(value: Any) -> bool:
    return (
        bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value))
        and datetime.fromisoformat(value) is not None
    )


def is_millisecond(value: Any) -> bool:
    return is_whole(value) and 1e12 < value < 1e13


def one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(value == each and type(value) is type(each) for each in values)


def all_are(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and bool(value) and all(map(holds, value))


def optional(*names: str, holds: Callable[[Any], bool] = is_text) -> dict[str, tuple[bool, Callable[[Any], bool]]]:
    return dict.fromkeys(names, (False, holds))


def required(*names: str, holds: Callable[[Any], bool] = is_text) -> dict[str, tuple[bool, Callable[[Any], bool]]]:
    return dict.fromkeys(names, (True, holds))


ENDS = ("source", "destination")
ECS = {
    **required("@timestamp", holds=is_date),
    **required("ecs.version", "message", "event.id", "event.action", "event.provider"),
    **required("event.kind", holds=one_of("alert", "event")),
    **required("event.category", holds=one_of(["network"])),
    **required("event.type", holds=one_of(["start"], ["info"], ["end"])),  # those of the category
    **required("event.severity", holds=is_whole),
    **optional("event.start", "event.end", holds=is_date),
    **optional("event.duration", holds=is_whole),
    **optional("event.reason", "event.url", "rule.name", "network.transport"),
    **required("observer.vendor", "observer.product", "observer.version"),
    **optional("observer.name", *(f"{end}.{name}" for end in ENDS for name in ("address", "domain"))),
    **optional("network.type", holds=one_of("ipv4", "ipv6")),
    **optional("network.direction", holds=one_of("inbound", "outbound")),
    **optional(*(f"{end}.ip" for end in ENDS), holds=is_ip),
    **optional(*(f"{end}.port" for end in ENDS), holds=is_port),
    **optional(*(f"{end}.as.number" for end in ENDS), holds=is_whole),
    **optional(*(f"{end}.{name}" for end in ENDS for name in ("as.organization.name", "geo.country_iso_code"))),
    **optional("related.ip", holds=all_are(is_ip)),
    **optional("related.hosts", holds=all_are(is_text)),
}
POINTS = ("evidences[].src_endpoint", "evidences[].dst_endpoint")
OCSF = {
    **required("class_uid", holds=one_of(2004)),
    **required("class_name", holds=one_of("Detection Finding")),
    **required("category_uid", holds=one_of(2)),
    **required("category_name", holds=one_of("Findings")),
    **required("activity_id", holds=one_of(1, 2, 3)),
    **required("activity_name", holds=one_of("Create", "Update", "Close")),
    **required("type_uid", holds=one_of(200401, 200402, 200403)),
    **required("type_name"),
    **required("severity_id", holds=one_of(1, 3)),
    **required("severity", holds=one_of("Informational", "Medium")),
    **required("status_id", holds=one_of(1, 2, 3, 4, 5)),
    **required("status", holds=one_of("New", "In Progress", "Suppressed", "Resolved", "Archived")),
    **required("is_alert", holds=is_flag),
    **required("time", holds=is_millisecond),
    **optional("start_time", "end_time", holds=is_millisecond),
    **required("message"),
    **optional("status_detail", "comment"),
    **required("metadata.version", "metadata.uid", "metadata.event_code", "metadata.log_name"),
    **required(*(f"metadata.product.{name}" for name in ("name", "vendor_name", "version"))),
    **required("finding_info.uid", "finding_info.title", "finding_info.analytic.name"),
    **required("finding_info.analytic.type_id", holds=one_of(1, 3)),
    **required("finding_info.analytic.type", holds=one_of("Rule", "Statistical")),
    **optional("finding_info.desc", "finding_info.src_url"),
    **optional("finding_info.types", holds=all_are(is_text)),
    **optional("finding_info.first_seen_time", "finding_info.last_seen_time", holds=is_millisecond),
    **optional(*(f"{point}.{name}" for point in POINTS for name in ("name", "hostname", "location.country"))),
    **optional(*(f"{point}.autonomous_system.name" for point in POINTS), "resources[].uid", "resources[].name"),
    **optional(*(f"{point}.ip" for point in POINTS), holds=is_ip),
    **optional(*(f"{point}.port" for point in POINTS), holds=is_port),
    **optional(*(f"{point}.autonomous_system.number" for point in POINTS), holds=is_whole),
    **optional("observables[].name", "observables[].value"),
    **optional("observables[].type_id", holds=one_of(2)),
    **optional("observables[].type", holds=one_of("IP Address")),
}
CEF_TEXTS = {"cat": 1023, "externalId": 40, "deviceExternalId": 255, "shost": 1023, "dhost": 1023, "proto": 31}
CEF_TEXTS |= {"msg": 1023, "reason": 1023, "request": 1023}
CEF_WHOLE = ("rt", "start", "end", "spt", "dpt", "deviceDirection", "cn1", "cn2", "cn3")


@pytest.mark.parametrize(("format", "table", "rest"), [("ecs", ECS, "superhosts"), ("ocsf", OCSF, "unmapped")])
def test_all_fields_are_those_of_the_schema(format: str, table: dict[str, Any], rest: str) -> None:
    used = set()
    for record in RECORDS:
        event = json.loads(line_of(record, format))
        others = event.pop(rest)
        found = [*leaves(event)]
        assert {name for name, (is_required, _) in table.items() if is_required} <= {name for name, _ in found}
        for name, value in found:
            assert name in table, (name, value)
            assert table[name][1](value), (name, value)
            used.add(name)
        assert all(others[name] == value for name, value in record.items() if name in LATER and name in others)
    assert used == set(table)  # the records above show them all


def test_what_an_event_is_agrees_with_itself() -> None:
    wanted = {
        "opened": (1, "Create", 3, True, "start", "alert"),
        "grown": (2, "Update", 3, True, "info", "alert"),
        "open": (2, "Update", 3, False, "info", "alert"),
        "closed": (3, "Close", 1, False, "end", "alert"),
        "storm": (1, "Create", 3, True, "start", "alert"),
        None: (1, "Create", 1, False, "info", "event"),
    }
    for record in RECORDS:
        finding, document = (json.loads(line_of(record, format)) for format in ("ocsf", "ecs"))
        found = [finding[name] for name in ("activity_id", "activity_name", "severity_id", "is_alert")]
        assert (*found, *document["event"]["type"], document["event"]["kind"]) == wanted[record.get("event")]
        assert finding["type_uid"] == 2004 * 100 + finding["activity_id"]
        assert finding["type_name"] == f"Detection Finding: {finding['activity_name']}"
        assert finding["finding_info"]["uid"] == (record.get("alert") or record["id"])
        assert finding["status_id"] == (4 if record.get("event") == "closed" else 2 if "acknowledged" in record else 1)


def parsed(line: str) -> tuple[list[str], dict[str, str]]:
    """Return header and extension of a line of CEF, as a receiver reads them."""
    *header, extension = re.split(r"(?<!\\)(?:\\\\)*\|", line, maxsplit=7)
    pairs = re.findall(r"(?:^| )([A-Za-z0-9]+)=((?:[^\\=]|\\[\\=nr])*?)(?= [A-Za-z0-9]+=|$)", extension)
    assert " ".join(f"{key}={value}" for key, value in pairs) == extension  # nothing is left over
    assert len({key for key, _ in pairs}) == len(pairs)
    plain = {"\\\\": "\\", "\\=": "=", "\\n": "\n", "\\r": "\r"}
    return header, {key: re.sub(r"\\.", lambda found: plain[found[0]], value) for key, value in pairs}


def test_lines_of_cef() -> None:
    for record in RECORDS:
        line = line_of(record, "cef")
        assert line.isprintable(), line
        header, extension = parsed(line)
        assert header[:3] == ["CEF:0", "superhosts", "superhosts"]
        assert len(header) == 7
        assert all(header)
        assert header[6] in {"2", "3", "6", "7"}
        assert "rt" in extension
        assert extension["externalId"] == record["id"]
        for key, value in extension.items():
            if key in CEF_WHOLE:
                assert int(value) >= 0
            elif key in ("src", "dst"):
                ipaddress.IPv4Address(value)
            elif key in ("c6a2", "c6a3"):
                ipaddress.IPv6Address(value)
            elif key == "cfp1":
                assert float(value) > 0
            elif re.fullmatch("c(s|n|fp|6a)[1-6](Label)?", key):
                assert key.endswith("Label") or f"{key}Label" in extension
                assert len(value) <= 1023
            else:
                assert key.startswith("superhosts") or len(value) <= CEF_TEXTS[key]
    _, extension = parsed(line_of(FULL, "cef"))
    assert extension["superhostsNote"] == ODD.replace("\r\n", "\n").replace("\x1b", " ").replace("\u2028", " ")
    assert (extension["cs1"], extension["cs1Label"]) == ("rule-any", "rule")
    assert extension["superhostsPersistence"] == '{"windows":9,"of":12}'
    assert len(parsed(line_of({**FULL, "note": "x" * 5000}, "cef"))[1]["superhostsNote"]) == 1023


def test_the_header_of_cef_is_escaped() -> None:
    assert line_of({**FULL, "event": "o|d\\d\n"}, "cef").split("rt=")[0].split("|", 4)[4] == (
        r"alert-o\|d\\d |Super host|3|"
    )


@pytest.mark.parametrize(
    ("more", "end", "port", "way"),
    [
        ({"direction": "any"}, "source", None, None),
        ({"direction": "any", "pattern": "prefix sweep", "service": "tcp/445"}, "source", 445, None),
        ({"direction": "any", "pattern": "web server", "service": "tcp/443"}, "destination", 443, None),
        ({"direction": "out", "service": "udp/53"}, "source", 53, "outbound"),
        ({"direction": "unanswered"}, "source", None, "outbound"),
        ({"direction": "opened-in", "service": "tcp/22"}, "destination", 22, "inbound"),
        ({"direction": "in", "side": "outer"}, "destination", None, "outbound"),
        ({"direction": "out", "side": "outer"}, "source", None, "inbound"),
    ],
)
def test_which_end_the_host_is(more: dict[str, Any], end: str, port: int | None, way: str | None) -> None:
    record = make_record({**rows(0, 4000)[1][0], **more})
    document, finding = (json.loads(line_of(record, format)) for format in ("ecs", "ocsf"))
    _, extension = parsed(line_of(record, "cef"))
    other = "source" if end == "destination" else "destination"
    assert document[end]["ip"] == "203.0.113.9"
    assert "ip" not in document.get(other, {})
    assert document.get("destination", {}).get("port") == port
    assert document["network"].get("direction") == way
    point = {"source": "src_endpoint", "destination": "dst_endpoint"}[end]
    assert finding["evidences"] == [{point: {"name": "203.0.113.9", "ip": "203.0.113.9"}}]
    assert extension["src" if end == "source" else "dst"] == "203.0.113.9"
    assert extension.get("dpt") == (None if port is None else str(port))
    assert extension.get("deviceDirection") == {"outbound": "1", "inbound": "0"}.get(way or "")


def test_some_values() -> None:
    document, finding = (json.loads(line_of(FULL, format)) for format in ("ecs", "ocsf"))
    assert document["@timestamp"] == "2026-11-14T12:05:00.000Z"
    assert document["event"]["duration"] == LENGTH
    assert document["related"]["ip"] == ["203.0.113.9", *EVIDENCE["peers"]]
    assert document["superhosts"]["peers"] == 1000
    assert document["superhosts"]["field_of_tomorrow"] == [1, {"a": None}]
    assert finding["time"] == (NOON + LENGTH) // 10**6
    assert [each["value"] for each in finding["observables"]] == ["203.0.113.9", *EVIDENCE["peers"]]
    assert [each.get("dst_endpoint") for each in finding["evidences"]] == [
        None,
        *({"ip": x} for x in EVIDENCE["peers"]),
    ]
    closed = next(each for each in RECORDS if each.get("event") == "closed" and each.get("host"))
    assert moment(closed).isoformat() == closed["closed"].replace("Z", "+00:00")
    for reason, status in (("quiet", 4), ("allowed", 3), ("muted", 3), ("rule removed", 5)):
        finding = json.loads(line_of({**closed, "reason": reason}, "ocsf"))
        assert (finding["status_id"], finding["status_detail"]) == (status, reason)


@pytest.mark.parametrize("run", [RUN_THAT_ENDS, ENDLESS])
def test_files_in_these_formats(tmp_path: Path, run: RunKind) -> None:
    paths = [tmp_path / f"{format}.log" for format in FORMATS]
    names = [f"{path}?format={path.stem}" for path in paths]
    window, made = rows(0, 4000)
    for destination in open_each(OutputOptions(outputs=names), run):
        destination.write(Report(rows=made, window=window))
        destination.close()
    for path in paths:
        assert path.read_text() == "".join(line_of(make_record(row), path.stem) + "\n" for row in made)


def test_standard_output_and_names_that_do_not_fit(run: Run, tmp_path: Path) -> None:
    scan = ("scan", "synth:flows=30k,seed=1", "--top", "3", "--quiet")
    found = run(*scan, "-o", "-?format=cef", "--site", "ams")
    assert [parsed(line)[1]["deviceExternalId"] for line in found.out.splitlines()] == ["ams"] * 3
    for name, words in (
        ("rows.csv?format=ecs", "the ending says another format"),
        ("x.log?format=xml", "ecs, ocsf, cef"),
    ):
        found = run(*scan, "-o", tmp_path / name)
        assert (found.status, words in found.err) == (2, True)
