"""Decoders against the naive reader, and every fixture cut at every byte."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

import exports as e
import packets as p
from fuzz.exports import netflow_of
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


SEEDS = range(100)  # of what `fuzz/exports.py` makes with damage, too


@pytest.mark.parametrize("time", TIMES)
def test_the_decoders_agree_with_the_naive_reader(time: str) -> None:
    versions, records = Counter[int](), 0
    for seed in SEEDS:
        datagrams = netflow_of(seed)
        reading = agree(datagrams, time, (e.NOON + 3) * e.SECOND)
        agree(datagrams, time)
        versions.update(datagram[1] for datagram in datagrams)
        records += len(reading.ipv4) + len(reading.ipv6)
    assert min(versions[5], versions[9], versions[10]) > 10
    assert records > 500


@pytest.mark.slow
def test_a_datagram_that_is_cut_anywhere_harms_no_other() -> None:
    for seed in SEEDS[:9]:
        datagrams = netflow_of(seed)[-3:]
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
    expected = [pack(6, (1024, 80), 0x1B, marks=IS_RECORD), pack(1, None, 8, marks=IS_RECORD)]
    assert [row[3] for row in reading.ipv4] == expected


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
