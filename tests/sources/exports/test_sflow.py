"""sFlow v5: samples of packets."""

from __future__ import annotations

import pytest

import exports as e
import packets as p
from superhosts.core.pairs import pack
from tunnels import TUNNELS

NOW = e.NOON * e.SECOND
TCP = bytes.fromhex("0400005000000000000000005012000000000000")
FRAME = p.ethernet(0x0800, p.ipv4("10.0.0.1", "10.0.0.2", b"payload!"))


def read(*datagrams: bytes, **manner: object) -> e.Reading:
    return e.Reading(is_sflow=True, **manner).feed(*datagrams, received=NOW)


@pytest.mark.parametrize("sample", [e.flow_sample, e.expanded_sample, e.discarded_sample])
def test_samples_of_every_kind(sample: object) -> None:
    reading = read(e.sflow(sample(e.raw_header(FRAME)), sample(e.sampled("10.0.0.3", "10.0.0.4"))))  # type: ignore[operator]
    assert reading.ends == [("10.0.0.1", "10.0.0.2"), ("10.0.0.3", "10.0.0.4")]
    assert reading.times == [NOW, NOW]
    assert (reading.counters.packets, reading.counters.records) == (2, 0)  # They are packets, not records.


@pytest.mark.parametrize(
    ("protocol", "frame"),
    [
        (1, p.ethernet(0x8100, p.vlan(0x88A8, p.vlan(0x0800, p.ipv4("10.0.0.1", "10.0.0.2"))))),
        (7, b"\xff\x03\x00\x21" + p.ipv4("10.0.0.1", "10.0.0.2")),
        (7, b"\x00\x21" + p.ipv4("10.0.0.1", "10.0.0.2")),
        (7, b"\x21" + p.ipv4("10.0.0.1", "10.0.0.2")),
        (11, p.ipv4("10.0.0.1", "10.0.0.2")),
    ],
)
def test_headers_of_every_protocol(protocol: int, frame: bytes) -> None:
    assert read(e.sflow(e.flow_sample(e.raw_header(frame, protocol)))).ends == [("10.0.0.1", "10.0.0.2")]


def test_ipv6() -> None:
    header = e.flow_sample(e.raw_header(p.ipv6("2001:db8::1", "2001:db8::2"), 12))
    fields = e.flow_sample(e.sampled("2001:db8::3", "2001:db8::4"))
    reading = read(e.sflow(header, fields, agent="2001:db8::9"))
    assert reading.ends == [("2001:db8::1", "2001:db8::2"), ("2001:db8::3", "2001:db8::4")]
    assert reading.status["exporters"][0]["address"] == "2001:db8::9"  # type: ignore[index]


def test_a_sample_counts_once() -> None:
    several = e.flow_sample(e.tagged(1001, bytes(16)), e.raw_header(FRAME), e.sampled("10.0.0.1", "10.0.0.2"))
    assert read(e.sflow(several)).ends == [("10.0.0.1", "10.0.0.2")]


def test_samples_without_addresses_are_counted() -> None:
    samples = [
        e.flow_sample(e.raw_header(p.ethernet(0x0806, p.arp()))),
        e.flow_sample(e.raw_header(FRAME[:20])),
        e.flow_sample(e.raw_header(FRAME, 3)),
        e.flow_sample(e.tagged(1001, bytes(16))),
        e.tagged(2, bytes(40)),  # counters
    ]
    counters = read(e.sflow(*samples)).counters
    assert (counters.packets, counters.not_ip, counters.truncated, counters.unsupported_link) == (4, 2, 1, 1)


@pytest.mark.parametrize("frame", [p.ethernet(0x0806, p.arp()), FRAME[:20]])
@pytest.mark.parametrize("protocol", [1, 3])
def test_addresses_count_where_the_bytes_have_none(frame: bytes, protocol: int) -> None:
    sample = e.flow_sample(e.raw_header(frame, protocol), e.sampled("10.0.0.3", "10.0.0.4"))
    counters = read(e.sflow(sample)).counters
    assert (counters.packets, counters.ipv4) == (1, 1)
    assert (counters.not_ip, counters.truncated, counters.unsupported_link) == (0, 0, 0)


def test_details_are_those_of_packets() -> None:
    header = e.raw_header(p.ethernet(0x0800, p.ipv4("10.0.0.1", "10.0.0.2", TCP, protocol=6)))
    fields = e.sampled("10.0.0.1", "10.0.0.2", 17, (5000, 53))
    reading = read(e.sflow(e.flow_sample(header), e.flow_sample(fields)), details=True)
    assert [row[3] for row in reading.ipv4] == [pack(6, (1024, 80), 0x12), pack(17, (5000, 53))]


def test_tunnels_in_headers_of_packets() -> None:
    """All kinds of tunnels are read by the loops of captures (`sources/test_frames.py`)."""
    outer, inner = ("10.1.2.3", "192.0.2.77"), ("10.200.0.1", "198.51.100.9")
    for tunnels, ends in (("outer", [outer]), ("inner", [inner]), ("both", [outer, inner])):
        reading = read(e.sflow(e.flow_sample(e.raw_header(TUNNELS["vxlan"][0]))), details=True, tunnels=tunnels)
        assert reading.ends == ends
        ports = {outer: pack(17, (40000, 4789)), inner: pack(6, (51000, 443), 0x12)}
        assert [row[3] for row in reading.ipv4] == [ports[each] for each in ends]
        assert reading.counters.packets == 1


def test_rates_gaps_and_sub_agents() -> None:
    sample = e.flow_sample(e.raw_header(FRAME), rate=1000)
    datagrams = [e.sflow(sample, sequence=each) for each in (5, 6, 9)]
    reading = read(*datagrams, e.sflow(e.expanded_sample(e.raw_header(FRAME), rate=400), sub_agent=2))
    status = reading.status
    assert (status["sampling"], status["lost_datagrams"]) == (1000, 2)
    assert {each["domain"]: each["sampling"] for each in status["exporters"]} == {0: 1000, 2: 400}  # type: ignore[attr-defined]


def test_a_datagram_that_is_cut_anywhere() -> None:
    whole = e.sflow(e.flow_sample(e.raw_header(FRAME)), e.expanded_sample(e.sampled("10.0.0.3", "10.0.0.4")))
    for at in range(len(whole)):
        reading = read(whole[:at], e.sflow(e.flow_sample(e.raw_header(FRAME)), sequence=1))
        assert reading.ends[-1] == ("10.0.0.1", "10.0.0.2")
        assert len(reading.ends) <= 3


def test_other_datagrams_are_counted() -> None:
    reading = read(b"", b"x" * 100, e.version5([e.record5("10.0.0.1", "10.0.0.2")]))
    assert (reading.status["other_datagrams"], reading.status["datagrams"]) == (3, 0)
