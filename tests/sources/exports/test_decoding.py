"""Decoders against the naive reader, and every fixture cut at every byte."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

import exports as e
import packets as p
from naive_exports import Naive
from superhosts.core.pairs import IS_ANSWERED, IS_CONVERSATION, IS_RECORD, pack

TIMES = ["start", "end", "export", "received"]


def both(datagrams: list[bytes], time: str = "start", received: int = 0) -> tuple[e.Reading, Naive]:
    reading, naive = e.Reading(time=time), Naive(time)
    reading.feed(*datagrams, received=received)
    for each in datagrams:
        naive.netflow(each, "192.0.2.1", received)
    return reading, naive


def agree(datagrams: list[bytes], time: str = "start", received: int = 0) -> e.Reading:
    reading, naive = both(datagrams, time, received)
    assert reading.ipv4 == naive.ipv4
    assert reading.ipv6 == naive.ipv6
    assert reading.counters.not_ip == naive.not_ip
    return reading


def five() -> list[bytes]:
    rng = random.Random(5)
    return [
        e.version5(
            [
                e.record5(p_(rng), p_(rng), first=rng.randrange(5000), last=rng.randrange(5000))
                for _ in range(rng.randrange(1, 31))
            ],
            sequence=number,
        )
        for number in range(20)
    ]


def p_(rng: random.Random) -> str:
    return f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"


def nine() -> list[bytes]:
    rng = random.Random(9)
    flows = [[e.usual(p_(rng), p_(rng), rng.randrange(5000), 4999) for _ in range(24)] for _ in range(4)]
    wide = [e.wide(f"2001:db8::{number:x}", "2001:db8::1", e.NOON * 1000 + number) for number in range(20)]
    return [
        e.version9(e.data(256, flows[0]), sequence=0),
        e.version9(e.template(256, e.USUAL), e.data(256, flows[1], padding=2), e.template(300, e.WIDE), sequence=1),
        e.version9(e.data(300, wide), e.data(256, flows[2]), sequence=2),
        e.version9(e.template(256, e.WIDE), e.data(256, wide[:3]), sequence=3),
        e.version9(e.template(256, e.USUAL), e.data(256, flows[3]), sequence=4),
    ]


def ten() -> list[bytes]:
    fields: list[e.Field] = [(8, 4), (82, e.VARIABLE), (12, 4), (96, e.VARIABLE, 9), (150, 4), (4, 1)]

    def record(number: int, name: bytes, long: bool = False) -> bytes:
        start = struct.pack("!I", e.NOON - number)
        ends = bytes([10, 0, 0, number]) + e.variable(name, long=long) + bytes([10, 0, 1, number])
        return ends + e.variable(b"x" * 300) + start + b"\x06"

    sized = {"is_ipfix": True}
    return [
        e.ipfix(e.template(256, fields, **sized), e.data(256, [record(1, b"eth0"), record(2, b"", True)], padding=3)),
        e.ipfix(e.template(257, e.WIDE, **sized), e.data(257, [e.wide("2001:db8::1", "2001:db8::2")] * 3), sequence=2),
        e.ipfix(e.data(256, [record(3, b"a" * 254), record(4, b"b" * 255)]), sequence=5),
        e.ipfix(e.a_set(2, struct.pack("!HH", 256, 0)), e.data(256, [record(5, b"c")]), sequence=7),
        e.ipfix(e.template(256, fields, **sized), sequence=8),
    ]


FIXTURES: list[Callable[[], list[bytes]]] = [five, nine, ten]


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("fixture", FIXTURES)
def test_the_decoders_agree_with_the_naive_reader(fixture: Callable[[], list[bytes]], time: str) -> None:
    received = (e.NOON + 3) * e.SECOND
    reading = agree(fixture(), time, received)
    assert len(reading.ipv4) + len(reading.ipv6) > 5
    agree(fixture(), time)


@pytest.mark.slow
@pytest.mark.parametrize("fixture", FIXTURES)
def test_a_datagram_that_is_cut_anywhere_harms_no_other(fixture: Callable[[], list[bytes]]) -> None:
    datagrams = fixture()[:3]
    for number, datagram in enumerate(datagrams):
        for at in range(0, len(datagram), 3 if len(datagram) < 700 else 5):  # Fields are of even lengths.
            agree([*datagrams[:number], datagram[:at], *datagrams[number + 1 :]])


def test_data_waits_for_its_template() -> None:
    flows = [e.usual("10.0.0.1", "10.0.0.2"), e.usual("10.0.0.3", "10.0.0.4")]
    reading = e.Reading().feed(e.version9(e.data(256, flows)))
    assert reading.ends == []
    assert reading.status["sets_waiting"] == 1
    reading.feed(e.version9(e.template(256, e.USUAL), sequence=1))
    assert reading.ends == [("10.0.0.1", "10.0.0.2"), ("10.0.0.3", "10.0.0.4")]
    assert reading.status["sets_waiting"] == 0


def test_templates_belong_to_an_exporter_and_a_domain() -> None:
    known = e.version9(e.template(256, e.USUAL), domain=1)
    flow = e.data(256, [e.usual("10.0.0.1", "10.0.0.2")])
    reading = e.Reading().feed(known, exporter="192.0.2.1")
    reading.feed(e.version9(flow, domain=2), exporter="192.0.2.1")
    reading.feed(e.version9(flow, domain=1), exporter="192.0.2.2")
    assert reading.ends == []
    reading.feed(e.version9(flow, domain=1, sequence=1), exporter="192.0.2.1")
    assert len(reading.ends) == 1


def test_details_of_records() -> None:
    record = e.record5("10.0.0.1", "10.0.0.2", ports=(1024, 80), flags=0x1B)
    ping = e.record5("10.0.0.1", "10.0.0.2", ports=(0, 0x0800), protocol=1)
    reading = e.Reading(details=True).feed(e.version5([record, ping]))
    assert [row[3] for row in reading.ipv4] == [
        pack(6, (1024, 80), 0x1B, marks=IS_RECORD),
        pack(1, None, 8, marks=IS_RECORD),
    ]


def test_details_of_conversations() -> None:
    fields: list[e.Field] = [(8, 4), (12, 4), (4, 1), (7, 2), (11, 2), (6, 2), (2, 4), (2, 4, 29305), (1, 8, 29305)]

    def record(back: int) -> bytes:
        ends = e.address("10.0.0.1") + e.address("10.0.0.2")
        return ends + struct.pack("!BHHHIIQ", 6, 5000, 443, 0x0112, 9, back, 0)

    flows = e.data(256, [record(0), record(7)])
    reading = e.Reading(details=True).feed(e.ipfix(e.template(256, fields, is_ipfix=True), flows))
    marks = IS_CONVERSATION, IS_CONVERSATION | IS_ANSWERED
    assert [row[3] for row in reading.ipv4] == [pack(6, (5000, 443), 0x12, marks=each) for each in marks]


def test_sections_of_packets_in_ipfix() -> None:
    frame = p.ethernet(0x0800, p.ipv4("10.0.0.1", "10.0.0.2"))
    fields: list[e.Field] = [(315, e.VARIABLE), (1, 4)]
    content = e.variable(frame) + bytes(4)
    reading = e.Reading().feed(e.ipfix(e.template(256, fields, is_ipfix=True), e.data(256, [content, content])))
    assert reading.ends == [("10.0.0.1", "10.0.0.2")] * 2


def test_records_without_addresses_are_counted() -> None:
    reading = agree([e.version9(e.template(256, [(80, 6), (1, 4)]), e.data(256, [bytes(10)] * 3))])
    assert (reading.counters.packets, reading.counters.not_ip) == (3, 3)


def test_more_records_than_a_block_holds() -> None:
    datagrams = [e.version5([e.record5("10.0.0.1", "10.0.0.2")] * 30, sequence=30 * n) for n in range(3000)]
    reading = e.Reading().feed(*datagrams)
    assert len(reading.ipv4) == 90_000
