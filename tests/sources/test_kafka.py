"""Topics of flow records: the decoders against a plain encoder, and the source against librdkafka's mock cluster.

The mock cluster is part of librdkafka: a broker that speaks the protocol of Kafka over TCP, with topics, groups and
committed offsets, in the process of the producer. No Apache Kafka runs in these tests.
"""

from __future__ import annotations

import ipaddress
import json
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive_details
import superhosts as sh
from superhosts.core.columns.addresses import AddressColumn
from superhosts.errors import InputError, UsageError
from superhosts.sources.base import Notes
from superhosts.sources.kafka import (
    GOFLOW2,
    Fields,
    JsonRecords,
    KafkaSource,
    forget,
    is_delimited,
    parse_topic,
    read_proto,
    read_protobuf,
)
from superhosts.sources.open import open_all
from superhosts.sources.tables.times import NO_TIME

pytestmark = pytest.mark.slow

NOON = 1_700_000_100
IMPATIENT = Path(tempfile.gettempdir(), f"superhosts-kafka-{os.getpid()}.properties")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
PROTO = """
syntax = "proto3";
message FlowMessagevABC {
 uint64 TimeReceived = 1;
 uint64 SamplingRate = 2;
 bytes SrcAddr = 10;
 bytes DstAddr = 25;
}
"""
addresses = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address) | st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def flow(src: Address, dst: Address, time: int, *others: bytes) -> bytes:
    """Return a record as goflow2 writes it, with other fields between."""
    message = b"".join(others) + field(6, src.packed) + field(110, time) + b"".join(others) + field(7, dst.packed)
    return varint(len(message)) + message


def found(column: AddressColumn) -> list[Address | None]:
    ends: list[Address | None] = []
    for kind, (high, low) in zip(column.kinds.tolist(), column.words.tolist(), strict=True):
        make = {4: ipaddress.IPv4Address, 6: ipaddress.IPv6Address}.get(kind)
        ends.append(None if make is None else make(high << 64 | low))
    return ends


def plain(address: Address) -> Address:
    return address if address.version == 4 else address.ipv4_mapped or address


others = st.lists(
    st.builds(field, st.sampled_from([1, 3, 4, 9, 20, 30, 80]), st.integers(0, 2**64 - 1))
    | st.builds(field, st.sampled_from([11, 12, 100]), st.binary(max_size=20))
    | st.binary(min_size=8, max_size=8).map(lambda data: varint(50 << 3 | 1) + data)
    | st.binary(min_size=4, max_size=4).map(lambda data: varint(51 << 3 | 5) + data),
    max_size=4,
)


@given(st.lists(st.tuples(addresses, addresses, st.integers(1, 2**62), others), min_size=1, max_size=10))
def test_protobuf_is_that_of_the_encoder(rows: list[tuple[Address, Address, int, list[bytes]]]) -> None:
    records = read_protobuf([flow(src, dst, time, *rest) for src, dst, time, rest in rows], GOFLOW2)
    assert found(records.src) == [plain(row[0]) for row in rows]
    assert found(records.dst) == [plain(row[1]) for row in rows]


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5), st.booleans())
def test_any_bytes_are_records_or_bad(messages: list[bytes], delimited: bool) -> None:
    records = read_protobuf(messages, GOFLOW2._replace(delimited=delimited))
    assert len(records.time) == len(messages)
    good = [message for message, kind in zip(messages, records.src.kinds, strict=True) if kind]
    assert not delimited or all(map(is_delimited, good))


@given(st.integers(0, 80), st.integers(0, 255))
def test_a_damaged_record_does_no_harm_to_others(place: int, byte: int) -> None:
    good = flow(ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("2001:db8::1"), NOON)
    bad = bytearray(good)
    bad[place % len(bad)] = byte
    sources = found(read_protobuf([good, bytes(bad), good], GOFLOW2).src)
    assert [sources[0], sources[2]] == 2 * [ipaddress.ip_address("10.0.0.1")]


def test_details_of_records() -> None:
    ends = field(6, bytes(4)) + field(7, bytes(4)) + field(111, NOON * 10**9)
    numbers = [(6, 40000, 443, 0x1B, 0), (17, 5, 53, 0, 0), (1, 0, 0, 0, 8), (0, 0, 0, 0, 0), (300, 70000, 1, 0, 0)]
    messages = []
    for values in numbers:
        more = (field(number, value) for number, value in zip((20, 21, 22, 26, 31), values, strict=True) if value)
        message = ends + b"".join(more)
        messages.append(varint(len(message)) + message)
    known = [(6, 40000, 443, 0x1B), (17, 5, 53, None), (1, None, None, None, 8), (None, 0, 0, 0), (None, None, 1, 0)]
    expected = [naive_details.packed(*each, mark=naive_details.RECORD) for each in known]
    found = read_protobuf(messages, GOFLOW2, details=True).details
    assert found is not None
    assert found.tolist() == expected
    assert read_protobuf(messages, GOFLOW2).details is None
    records = [{"src_addr": "10.0.0.1", "dst_addr": "10.0.0.2", "time_received_ns": NOON * 10**9, "proto": "TCP"}]
    records += [{**records[0], "src_port": 7, "dst_port": 80, "tcp_flags": 2, "proto": name} for name in ("UDP", 6)]
    texts = [json.dumps(record).encode() for record in (records[2], records[1], records[0], {"no": 1})]
    json_details = JsonRecords("topic", details=True).read(texts).details
    assert json_details is not None
    rows = [(6, 7, 80, 2), (17, 7, 80, None), (6, None, None, None), (None, None, None, None)]
    assert json_details.tolist() == [naive_details.packed(*row, mark=naive_details.RECORD) for row in rows]
    assert JsonRecords("topic").read(texts).details is None


def test_times_are_those_of_the_start_or_else_of_the_arrival() -> None:
    ends = field(6, bytes(4)) + field(7, bytes(4))
    messages = [ends + field(110, NOON), ends + field(110, 5) + field(111, NOON * 10**9), ends, field(111, NOON)]
    records = read_protobuf([varint(len(message)) + message for message in messages], GOFLOW2)
    assert records.time.tolist() == [NOON * 10**9, NOON * 10**9, NO_TIME, NOON * 10**9]
    assert found(records.src)[3] is None


def test_json_of_goflow2_and_pmacct() -> None:
    goflow2 = {"type": "IPFIX", "time_flow_start_ns": NOON * 10**9, "src_addr": "10.0.0.1", "dst_addr": "192.0.2.1"}
    pmacct = {"ip_src": "10.0.0.1", "ip_dst": "192.0.2.1", "timestamp_start": "2023-11-14 22:15:00.000000"}
    for record in (goflow2, pmacct):
        bad = json.dumps({**record, ("src_addr" if "src_addr" in record else "ip_src"): "?"})
        records = JsonRecords("topic").read([json.dumps(record).encode(), b"{", b"7", b"{}", bad.encode()])
        assert found(records.src) == [ipaddress.ip_address("10.0.0.1"), None, None, None, None]
        assert found(records.dst)[0] == ipaddress.ip_address("192.0.2.1")
        assert records.time[0] == NOON * 10**9


def test_fields_of_a_proto_file(tmp_path: Path) -> None:
    path = tmp_path / "schema.proto"
    path.write_text(PROTO)
    assert read_proto(str(path)) == Fields(src=10, dst=25, time=1, other_time=0, delimited=False)
    path.write_text("message M { bytes SrcAddr = 10; bytes DstAddr = 25; }")
    with pytest.raises(InputError, match="no field of the record is a time"):
        read_proto(str(path))
    with pytest.raises(InputError, match="cannot be opened: No such file"):
        read_proto(str(tmp_path / "none.proto"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kafka://broker", "write it like kafka://broker:9092/flows"),
        ("kafka:///flows", "write it like kafka://broker:9092/flows"),
        ("kafka://[::1/flows", "this is not an address of a broker; write it like kafka://broker:9092/flows"),
        ("kafka://broker/flows?colour=red", "unknown word 'colour'; use group, from, until, format, proto, config"),
        ("kafka://broker/flows?from=now", "from=now: use earliest or latest"),
        ("kafka://broker/flows?group=", "group=: a name"),
        ("kafka://broker/flows?format=proto", "format=proto: name the file of its fields: proto=schema.proto"),
    ],
)
def test_a_name_that_makes_no_sense_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_topic(name)
    assert parse_topic("kafka://a,b:1/flows").brokers == "a:9092,b:1"  # a broker has the usual port
    assert str(raised.value) == f"{name}: {message}" or message in str(raised.value)


# The mock cluster


@pytest.fixture(scope="module", autouse=True)
def impatient() -> Iterator[None]:
    """The mock cluster waits almost for the session's timeout before another member may follow one that has left."""
    IMPATIENT.write_text("session.timeout.ms=6000\n# remark\nheartbeat.interval.ms = 300\n")
    yield
    IMPATIENT.unlink()


@pytest.fixture(scope="module")
def producer() -> Iterator[Any]:
    kafka = pytest.importorskip("confluent_kafka", reason="pip install 'superhosts[kafka]'")
    producer = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock:1", "log_level": 0})
    yield producer
    producer.flush(10)


def address_of(producer: Any) -> str:
    (broker,) = producer.list_topics(timeout=30).brokers.values()
    return f"kafka://{broker.host}:{broker.port}"


def make_flows(windows: int = 2) -> list[tuple[Address, Address, int]]:
    draw = random.Random(9)
    rows: list[tuple[Address, Address, int]] = []
    for window in range(windows):
        for host, peers in (("10.0.0.1", 300), ("10.0.0.2", 100), ("2001:db8::7", 200)):
            src = ipaddress.ip_address(host)
            for _ in range(peers):
                dst = type(src)(draw.getrandbits(src.max_prefixlen))
                rows.append((src, dst, (NOON + 300 * window + draw.randrange(300)) * 10**9))
    return sorted(rows, key=lambda row: row[2])


FLOWS = make_flows()


def encode(kind: str, row: tuple[Address, Address, int]) -> bytes:
    src, dst, time = row
    if kind == "json":
        return json.dumps({"src_addr": str(src), "dst_addr": str(dst), "time_received_ns": time}).encode()
    if kind == "akvorado":
        wide = [end.packed if end.version == 6 else b"\0" * 10 + b"\xff\xff" + end.packed for end in (src, dst)]
        return field(1, time // 10**9) + field(10, wide[0]) + field(25, wide[1])
    return flow(src, dst, time)


def send(producer: Any, topic: str, messages: list[bytes]) -> str:
    for number, message in enumerate(messages):
        producer.produce(topic, message, partition=number % 2)
    assert producer.flush(60) == 0
    return f"{address_of(producer)}/{topic}?until=end&config={IMPATIENT}"


@pytest.mark.parametrize("kind", ["goflow2", "json", "akvorado"])
def test_a_topic_has_the_super_hosts_of_its_records(producer: Any, tmp_path: Path, kind: str) -> None:
    (tmp_path / "schema.proto").write_text(PROTO)
    name = send(producer, f"flows-{kind}", [encode(kind, row) for row in FLOWS])
    if kind == "akvorado":
        name += f"&proto={tmp_path / 'schema.proto'}"
    (window,) = sh.scan(name, window="all", direction="out", top=3)
    expected = {host: len({dst for src, dst, _ in FLOWS if str(src) == host}) for host in ("10.0.0.1", "10.0.0.2")}
    peers = {str(row.host): row.peers for row in window}
    assert peers == {**expected, "2001:db8::/64": 400}


def committed(source: KafkaSource) -> dict[int, int]:
    import confluent_kafka as kafka

    topic = source._topic
    client = kafka.Consumer({"bootstrap.servers": topic.brokers, "group.id": topic.words["group"], "log_level": 0})
    wanted = [kafka.TopicPartition(topic.name, number) for number in range(2)]
    found = {each.partition: each.offset for each in client.committed(wanted, 30)}
    client.close()
    return found


def test_offsets_are_committed_once_their_windows_are_safe_and_the_next_run_begins_there(producer: Any) -> None:
    name = send(producer, "flows-offsets", [encode("goflow2", row) for row in FLOWS[:500]]) + "&group=offsets"
    (source,) = open_all(name)
    assert isinstance(source, KafkaSource)
    assert sum(len(batch) for block in source.blocks() for batch in block) == 500
    nothing = committed(source)
    assert all(offset < 0 for offset in nothing.values())
    source.release(NOON * 10**9)
    assert committed(source) == nothing
    source.release((NOON + 3600) * 10**9)
    assert sum(committed(source).values()) == 500
    del source  # leaves the group
    send(producer, "flows-offsets", [encode("goflow2", row) for row in FLOWS[500:]])
    (following,) = open_all(name)
    assert sum(len(batch) for block in following.blocks() for batch in block) == len(FLOWS) - 500


def test_bad_messages_are_counted_and_shown(producer: Any) -> None:
    messages = [encode("goflow2", FLOWS[0]), b"\5nonsense", b"\0"]
    (source,) = open_all(send(producer, "flows-bad", messages) + "&format=goflow2")  # Any of them may come first.
    assert sum(len(batch) for block in source.blocks() for batch in block) == 1
    assert (source.counters.rows, source.counters.bad_rows) == (3, 2)
    assert any("offset 0 does not count: 0x056e6f6e73656e7365" in text for text in source.counters.warnings)


def test_a_format_that_is_not_recognised_says_what_to_do(producer: Any) -> None:
    (source,) = open_all(send(producer, "flows-what", [b"what is this?"]))
    with pytest.raises(InputError, match="neither JSON nor protobuf behind its length; say format=goflow2 or json"):
        list(source.blocks())


def test_a_broker_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("confluent_kafka", reason="pip install 'superhosts[kafka]'")
    monkeypatch.setattr("superhosts.sources.kafka.REACHED_WITHIN", 0.5)
    with pytest.raises(InputError, match=r"kafka://127.0.0.1:1/flows: cannot be read: "):
        list(open_all("kafka://127.0.0.1:1/flows")[0].blocks())


def test_a_scan_leaves_the_group_at_its_end(producer: Any) -> None:
    run = sh.scan(send(producer, "flows-left", [encode("goflow2", FLOWS[0])]), window="all")
    assert len([*run]) == 1
    (source,) = run.sources
    assert isinstance(source, KafkaSource)
    assert not source._closes.alive
    source.release(2**62)
    source.leave()
    assert not source.counters.warnings


def test_notes_of_offsets_are_bounded_and_never_too_early() -> None:
    notes, draw = Notes(max, 8), random.Random(3)
    added = [(offset + 1, draw.randrange(1000)) for offset in range(5000)]
    for offset, time in added:
        notes.add(time, offset)
        assert len(notes._notes) <= 8
    for before in (0, 500, 1001):
        offset = notes.take(before) or 0
        assert all(time < before for each, time in added if each <= offset)
    assert offset == 5000
    assert notes.take(10**9) is None


def test_partitions_of_another_member_are_forgotten() -> None:
    notes = {1: Notes(max, 8), 2: Notes(max, 8)}
    forget(notes, None, [SimpleNamespace(partition=1)])
    assert list(notes) == [2]
