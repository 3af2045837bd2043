"""What is known of hosts besides their traffic: labels, networks, names, and what rows and tables say of them."""

from __future__ import annotations

import ipaddress
import json
import threading
from pathlib import Path

import pytest
from mmdb_writer import MMDBWriter
from netaddr import IPSet

from commands import Run
from superhosts.errors import UsageError
from superhosts.output.destination import Destinations
from superhosts.output.names import (
    KEPT_SECONDS,
    MOST_LABEL,
    PATIENCE,
    REGAINED,
    Annotator,
    Inventory,
    MaxMind,
    NamingOptions,
    ReverseNames,
    look_up,
)
from superhosts.output.records import describe, make_record
from superhosts.output.report import Report
from waiting import wait_for

INPUT = "synth:flows=2000,packets=4000,super_hosts=1"


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text)


LABELS = """# what we have
prefix,label
10.0.0.0/8,ours
10.1.0.0/16,"office, second floor"
10.1.2.3,mail gateway
2001:db8::/32,ours too
2001:db8:0:1::/64,laboratory
"""
INSIDE = """2001:db8::/32,ours
2001:db8:0:1::25,mail gateway
2001:db8:0:2::1,first
2001:db8:0:2::ffff,second
2001:db8:0:2:ffff:ffff:ffff:ffff,third
2001:db8:0:3::/64,laboratory
2001:db8:0:3::1,printer
10.1.2.3,desk
10.1.0.0/25,floor
"""
LABELLED: dict[str, dict[str, str | None]] = {
    LABELS: {  # the most specific label counts
        "10.9.9.9": "ours",
        "10.1.9.9": "office, second floor",
        "10.1.2.3": "mail gateway",
        "10.1.0.0/24": "office, second floor",
        "10.0.0.0/8": "ours",
        "8.0.0.0/6": None,  # it holds a prefix that has a label, and more
        "192.0.2.1": None,
        "2001:db8:0:1::/64": "laboratory",
        "2001:db8:0:2::/64": "ours too",
        "2001:db9::1": None,
    },
    INSIDE: {  # a prefix has the label of an address in it
        "2001:db8:0:1::/64": "mail gateway",
        "2001:db8:0:2::/64": "first and 2 more",
        "2001:db8:0:3::/64": "laboratory",
        "2001:db8:0:4::/64": "ours",
        "2001:db8:0:2::1": "first",
        "2001:db8:0:2::2": "ours",
        "10.1.2.0/24": "desk",
        "10.1.0.0/24": None,  # a part of it alone has a label
        "10.1.3.0/24": None,
        "10.1.2.0/23": None,  # larger than a subnet
        "2001:db8:0:2::/63": "ours",
    },
    # A label goes on in the next line.
    '10.0.0.1,"one\n# two"\n# 10.0.0.2,"no\n10.0.0.3,three\n': {
        "10.0.0.1": "one\n# two",
        "10.0.0.2": None,
        "10.0.0.3": "three",
    },
    # Forms of inventories
    "10.0.0.1,one\n": {"10.0.0.1": "one"},
    "ip,x,name\n10.0.0.1,5,one\n": {"10.0.0.1": "one"},
    "Name , Address\none,10.0.0.1\n": {"10.0.0.1": "one"},
    "\ufeffprefix,label\n\n10.0.0.1/32 , one\n": {"10.0.0.1": "one"},
    "10.0.0.1,two\n10.0.0.1,one\n": {"10.0.0.1": "one"},
    f"10.0.0.1,{'x' * 9999}\n": {"10.0.0.1": "x" * MOST_LABEL},
}


def test_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    for text, labels in LABELLED.items():
        path.write_text(text)
        found = Inventory(path)
        assert {host: found.label(network(host)) for host in labels} == labels


def test_lines_without_a_label_are_named_and_left_out(tmp_path: Path) -> None:
    path, said = tmp_path / "labels.csv", list[str]()
    path.write_text("prefix,label\n10.0.0.0/8,ours\n10.0.0.1,\n10.0.0.2,two\n10.0.0.3,  \n")
    annotator = Annotator(NamingOptions(path), said.append)
    assert [annotator.fields(f"10.0.0.{last}")["label"] for last in (1, 2, 3)] == ["ours", "two", "ours"]
    path.write_text("10.0.0.1,\n10.0.0.2,two\n")
    annotator.reload()
    first, again = f"--labels {path}: line 3 (and 1 other line): no label", f"--labels {path}: line 1: no label"
    assert said == [f"{each}; left out" for each in (first, again)]


def test_inventories_that_are_refused(tmp_path: Path) -> None:
    empty, path = r"labels\.csv: has no labels; lines are like 10\.1\.0\.0/16,office", tmp_path / "labels.csv"
    with pytest.raises(UsageError, match=r"--labels .*labels\.csv: cannot be read: No such file"):
        Inventory(path)
    for text, message in (
        *((each, empty) for each in ("", "prefix,label\n", "# nothing\n\n", "10.0.0.1,\n")),
        ("10.0.0.1,a\nnowhere,b\n", "line 2: 'nowhere' is neither an address nor a prefix"),
        ("# x\n10.0.0.1\n", "line 2: a prefix and a label are needed"),
        ("10.0.0.1,a\x00\n\xff\n", "cannot be read|line"),
    ):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(UsageError, match=message):
            Inventory(path)


def geo(tmp_path: Path, records: dict[str, dict[str, object]], *, version: int = 6) -> Path:
    writer = MMDBWriter(version, ipv4_compatible=version == 6)
    for prefix, record in records.items():
        writer.insert_network(IPSet([prefix]), record)
    writer.to_db_file(str(tmp_path / "geo.mmdb"))
    return tmp_path / "geo.mmdb"


def test_records_of_several_publishers(tmp_path: Path) -> None:
    names = {"autonomous_system_number": 64500, "autonomous_system_organization": "Example Net"}
    cases: list[tuple[dict[str, object], dict[str, object]]] = [
        (names, {"asn": 64500, "as_name": "Example Net"}),
        ({"country": {"iso_code": "DE", "names": {"en": "Germany"}}}, {"country": "DE"}),
        ({"asn": "AS64501", "as_name": "Other", "country": "NL"}, {"asn": 64501, "as_name": "Other", "country": "NL"}),
        ({"asn": "none", "country": "Germany", "as_name": ""}, {}),
    ]
    for record, fields in cases:
        file = MaxMind(geo(tmp_path, {"192.0.2.0/24": record, "2001:db8::/32": record}))
        assert file.fields(network("192.0.2.9")) == file.fields(network("2001:db8:0:1::/64")) == fields
        assert file.fields(network("198.51.100.1")) == {}


def test_a_file_of_ipv4_alone(tmp_path: Path) -> None:
    file = MaxMind(geo(tmp_path, {"192.0.2.0/24": {"country": "FR"}}, version=4))
    assert file.fields(network("192.0.2.1")) == {"country": "FR"}
    assert file.fields(network("2001:db8::1")) == {}


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.mmdb").write_bytes(b"nothing of that kind")
    for name in ("a.mmdb", "none.mmdb"):
        with pytest.raises(UsageError, match=rf"--geo .*{name}: cannot be read"):
            MaxMind(tmp_path / name)


def test_names_are_looked_up_once_and_kept() -> None:
    asked: list[str] = []
    now = [0.0]

    def look(address: str) -> str:
        asked.append(address)
        return f"host-{address}"

    names = ReverseNames(look, lambda: now[0])
    hosts = [network("192.0.2.1"), network("192.0.2.2"), network("2001:db8::/64")]
    for _ in range(3):
        names.expect(hosts)
        assert [names.name(host) for host in hosts] == ["host-192.0.2.1", "host-192.0.2.2", None]
    assert sorted(asked) == ["192.0.2.1", "192.0.2.2"]
    now[0] += KEPT_SECONDS + 1
    names.expect(hosts[:1])
    assert len(asked) == 3


def test_a_name_server_that_hangs_delays_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the patience is used up, nobody waits; a name that comes later is used later."""
    monkeypatch.setattr("superhosts.output.names.WAIT", 0.01)
    answered, may_answer = threading.Event(), threading.Event()

    def look(address: str) -> str:
        may_answer.wait()
        answered.set()
        return address

    names = ReverseNames(look)
    names._patience = 0.02
    for number in range(200):
        names.expect([network(f"192.0.2.{number}")])
    assert names._patience <= 0
    assert names.name(network("192.0.2.0")) is None
    may_answer.set()
    assert answered.wait(60)
    hosts = [network(f"192.0.2.{number}") for number in range(200)]
    wait_for(lambda: all(names.name(host) == str(host.network_address) for host in hosts), "all names are known")


def test_each_report_waits_as_long_as_there_is_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server is dead. Reports in a row soon wait no more; those of a service wait, window after window."""
    now, waits = [0.0], list[float]()

    def wait_in_vain(_futures: object, timeout: float) -> None:
        waits.append(timeout)
        now[0] += timeout

    monkeypatch.setattr("superhosts.output.names.wait", wait_in_vain)
    forever = threading.Event()
    names = ReverseNames(lambda _: str(forever.wait()), lambda: now[0])
    for number in range(50):
        names.expect([network(f"192.0.2.{number}")])
    assert waits[:5] == [1.0] * 5
    assert 5.0 <= sum(waits) <= PATIENCE / (1 - REGAINED) + 0.001
    before = len(waits)
    for number in range(50, 60):
        now[0] += 300
        names.expect([network(f"192.0.2.{number}")])
    assert waits[before:] == [1.0] * 10
    now[0] += 1e6  # Patience does not grow beyond what it was.
    before = len(waits)
    for number in range(60, 110):
        names.expect([network(f"192.0.2.{number}")])
    assert sum(waits[before:]) <= PATIENCE / (1 - REGAINED) + 0.001
    forever.set()


def test_only_so_many_names_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superhosts.output.names.KEPT", 10)
    names = ReverseNames(lambda address: address)
    names.expect([network(f"192.0.2.{number}") for number in range(50)])
    assert len(names._known) == 10


def test_the_system_is_asked() -> None:
    assert look_up("127.0.0.1") not in ("127.0.0.1", "")
    assert look_up("not an address at all \udcff") is None


def test_rows_have_what_is_known(tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text(LABELS)
    file = geo(tmp_path, {"10.1.0.0/16": {"autonomous_system_number": 64500, "country": {"iso_code": "DE"}}})
    annotator = Annotator(NamingOptions(labels, [file]))
    rows = annotator.annotated([{"host": host, "peers": 5} for host in ("10.1.2.3", "10.1.2.3:443", "192.0.2.1", 77)])
    known = {"peers": 5, "label": "mail gateway", "asn": 64500, "as_name": None, "country": "DE"}
    nothing = {"peers": 5, "label": None, "asn": None, "as_name": None, "country": None}
    assert rows[0] == {"host": "10.1.2.3", **known}
    assert rows[1:] == [{"host": "10.1.2.3:443", **known}, {"host": "192.0.2.1", **nothing}, {"host": 77, **nothing}]
    assert len(rows) == 4


def test_a_change_counts_after_it_was_read_again(tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("10.0.0.1,one\n")
    annotator = Annotator(NamingOptions(labels))
    destinations = Destinations([], annotator)
    labels.write_text("10.0.0.1,two\n")
    assert annotator.fields("10.0.0.1") == {"label": "one"}
    destinations.reopen()
    assert annotator.fields("10.0.0.1") == {"label": "two"}
    labels.write_text("nowhere,three\n")
    with pytest.raises(UsageError):
        destinations.reopen()
    assert annotator.fields("10.0.0.1") == {"label": "two"}
    destinations.write(Report(rows=[]))


def test_commands_say_it(tmp_path: Path, run: Run) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("10.0.0.0/8,=cmd|ours\x1b[31m\n")
    found = run("scan", INPUT, "--labels", labels, "--top", "1", "--quiet", "--json").rows
    assert found[0]["label"] == "=cmd|ours\x1b[31m"
    table = run("scan", INPUT, "--labels", labels, "--top", "1", "--quiet").out
    assert "=cmd|ours\\x1b[31m" in table
    wrong = run("scan", INPUT, "--labels", tmp_path / "none.csv")
    assert wrong.status == 2
    assert "--labels" in wrong.err
    assert "pattern" not in json.dumps(found)


ROW = {"host": "10.1.2.3", "direction": "any", "peers": 4120, "peers_low": 4043, "peers_high": 4197}


def test_lines_for_people_name_the_host_and_the_pattern() -> None:
    known = {"label": None, "name": "mail.example.net", "as_name": "Example Net", "pattern": "horizontal scan"}
    assert describe(make_record(ROW)) == "10.1.2.3: 4120 peers (4043 to 4197)"
    told = describe(make_record({**ROW, **known}))
    assert told == "10.1.2.3 (mail.example.net): 4120 peers (4043 to 4197), horizontal scan"
    # A name that becomes known later is the same record.
    first, again = (make_record({**ROW, "name": name}) for name in (None, "mail.example.net"))
    assert first["id"] == again["id"] == make_record(ROW)["id"]
    assert make_record({**ROW, "peers": 1})["id"] != first["id"]


def test_a_file_that_is_damaged_inside_says_nothing(tmp_path: Path) -> None:
    path = geo(tmp_path, {"192.0.2.0/24": {"country": "FR"}})
    content = path.read_bytes()
    place = content.index(b"FR") - 1
    damaged = 0
    for value in range(256):
        path.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
        try:
            file = MaxMind(path)
        except UsageError:
            continue
        damaged += file.fields(network("192.0.2.1")) != {"country": "FR"}
    assert damaged > 100
