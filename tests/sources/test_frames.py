"""Tunnels, aggregates and details: what a frame holds besides the addresses of its outermost header."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import naive_capture
import packets as p
from frames import FRAMES, T, write
from fuzz.captures import compare, read
from links import AGGREGATE, SNAP4, radiotap, subframe, wireless
from superhosts.core import pairs as d
from superhosts.sources.base import TUNNELS as MODES
from superhosts.sources.base import Wants
from superhosts.sources.capture import Cutting
from superhosts.sources.frames.links import MOST_SUBFRAMES
from tunnels import INNER4, INNER6, TCP, TUNNELS, around, extension, udp

EVERY_WANT = [Wants(details, tunnels) for details in (False, True) for tunnels in MODES]
OUTER = {4: (p.A4, p.B4), 6: (p.A6, p.B6)}


def rows(data: bytes, wants: Wants, folder: Path) -> list[tuple[str, str]]:
    reading = read(write(folder, data), 1 << 20, wants=wants)
    assert reading.error is None
    return reading.ends


def details(frame: bytes, folder: Path, link: int = 1, tunnels: str = "outer") -> list[int]:
    """Return the details of all rows of a frame."""
    reading = read(write(folder, p.pcap([(T, frame)], link)), 4096, wants=Wants(True, tunnels))
    return reading.details4 + reading.details6


def both_formats(frames: list[bytes], link: int) -> list[bytes]:
    modern = p.section() + p.interface(link) + b"".join(p.enhanced(T // 1000, frame) for frame in frames)
    timed = [(T, frame) for frame in frames]
    return [p.pcap(timed, link), p.pcap(timed, link, order=">"), modern]


@pytest.mark.parametrize("case", TUNNELS)
def test_every_tunnel(case: str, tmp_path: Path) -> None:
    frame, family = TUNNELS[case]
    outer = OUTER[6 if frame[12:14] == b"\x86\xdd" else 4]
    inner = {0: outer, 4: INNER4, 6: INNER6}[family]
    for data in both_formats([frame], 1):
        assert rows(data, Wants(tunnels="outer"), tmp_path) == [outer]
        assert rows(data, Wants(tunnels="inner"), tmp_path) == [inner]
        assert sorted(rows(data, Wants(tunnels="both"), tmp_path)) == sorted({outer, inner})


@pytest.mark.slow
@pytest.mark.parametrize("wants", EVERY_WANT, ids=str)
def test_every_part_of_every_frame_is_what_the_oracle_says(wants: Wants, tmp_path: Path) -> None:
    cases = {f"link {name}": (link, frame) for name, (link, frame, _, _) in FRAMES.items()}
    cases |= {f"tunnel {name}": (1, frame) for name, (frame, _) in TUNNELS.items()}
    cases |= {"aggregate": (105, AGGREGATE), "radiotap": (127, radiotap(0x10) + AGGREGATE + bytes(4))}
    for name, (link, frame) in cases.items():
        # the next record starts right behind the cut, so that reading too far would find bytes there
        parts = [frame[:length] for length in range(len(frame) + 1)]
        for data in both_formats(parts, link)[:: 2 if name.startswith("link") else 1]:
            oracle = naive_capture.read(data, wants.tunnels)
            reading = read(write(tmp_path, data), 1 << 20, wants=wants)
            assert len(reading.details4 + reading.details6) == wants.details * len(reading.ipv4 + reading.ipv6), name
            compare(reading, oracle)


@pytest.mark.parametrize("depth", range(1, 12))
def test_headers_below_each_other_are_bounded(depth: int, tmp_path: Path) -> None:
    packet = p.ipv4(f"10.0.0.{depth}", "10.1.1.1", TCP, protocol=6)
    for number in reversed(range(1, depth)):
        packet = p.ipv4(f"10.0.0.{number}", "10.1.1.1", packet, protocol=4)
    found = rows(p.pcap([(T, packet)], 101), Wants(tunnels="inner"), tmp_path)
    assert found == [(f"10.0.0.{min(depth, 8)}", "10.1.1.1")]


@pytest.mark.parametrize("wants", EVERY_WANT, ids=str)
@pytest.mark.parametrize("family", [4, 6])
def test_columns_have_room_for_two_rows_of_the_shortest_records(family: int, wants: Wants, tmp_path: Path) -> None:
    within = p.ipv4(payload=b"") if family == 4 else p.ipv6("::1", "::2", b"")
    record = p.record(T, p.ipv4(payload=within, protocol=4) if family == 4 else p.ipv6("::1", "::2", within, 41))
    path = write(tmp_path, p.pcap_header(101) + record * 3000)
    for cutting in (Cutting(threads=1), Cutting(5000, 1 << 16, threads=2)):
        reading = read(path, 4096, cutting, wants)
        assert len(reading.ipv4 + reading.ipv6) == 3000 * (2 if wants.tunnels == "both" else 1)
        assert reading.counters.packets == 3000


# Aggregates of 802.11


def test_every_packet_of_an_aggregate_counts(tmp_path: Path) -> None:
    for link, frame in ((105, AGGREGATE), (127, radiotap(0x10) + AGGREGATE + bytes(4)), (127, radiotap() + AGGREGATE)):
        for data in both_formats([frame, frame], link):
            assert rows(data, Wants(), tmp_path) == [("10.0.0.1", p.B4)] * 2 + [(p.A6, p.B6)] * 2
            counters = read(write(tmp_path, data), 4096).counters
            assert (counters.packets, counters.ipv4, counters.ipv6, counters.not_ip) == (6, 2, 2, 2)


@pytest.mark.parametrize("wants", EVERY_WANT, ids=str)
def test_an_aggregate_of_very_many_packets_is_bounded(wants: Wants, tmp_path: Path) -> None:
    frame = wireless(subtype=8, qos=0x80) + subframe(SNAP4 + p.ipv4(payload=p.ipv4(payload=b""), protocol=4)) * 3000
    path = write(tmp_path, p.pcap([(T, frame)] * 5, 105))
    for cutting in (Cutting(threads=1), Cutting(1000, 1 << 20, threads=2)):
        reading = read(path, 4096, cutting, wants)
        assert reading.counters.packets == 5 * MOST_SUBFRAMES
        assert len(reading.ipv4) == 5 * MOST_SUBFRAMES * (2 if wants.tunnels == "both" else 1)


# Details


SEGMENT = struct.pack(">HHIIBBHHH", 1234, 80, 0, 0, 0x50, d.SYN | d.ACK, 0, 0, 0)
PORTS = 1234, 80
DATAGRAM = struct.pack(">HH", *PORTS) + bytes(4)


@pytest.mark.parametrize(
    ("protocol", "rest", "expected"),
    [
        (d.TCP, SEGMENT, d.pack(d.TCP, PORTS, d.SYN | d.ACK)),
        (d.TCP, SEGMENT[:13], d.pack(d.TCP, PORTS)),
        (d.TCP, SEGMENT[:3], d.pack(d.TCP)),
        (d.UDP, DATAGRAM, d.pack(d.UDP, PORTS)),
        (d.UDP, DATAGRAM[:4], d.pack(d.UDP, PORTS)),
        (d.UDP, DATAGRAM[:3], d.pack(d.UDP)),
        (d.SCTP, SEGMENT, d.pack(d.SCTP, PORTS)),
        (d.UDP_LITE, DATAGRAM, d.pack(d.UDP_LITE, PORTS)),
        (d.DCCP, SEGMENT, d.pack(d.DCCP, PORTS)),
        (d.ICMP, b"\x08\0" + bytes(6), d.pack(d.ICMP, flags=8)),
        (d.ICMP, b"\x08", d.pack(d.ICMP, flags=8)),
        (d.ICMP, b"", d.pack(d.ICMP)),
        (d.ICMPV6, b"\x88\0" + bytes(6), d.pack(d.ICMPV6, flags=0x88)),
        (89, bytes(30), d.pack(89)),
    ],
)
def test_details_by_protocol(protocol: int, rest: bytes, expected: int, tmp_path: Path) -> None:
    frames = [
        p.ethernet(0x0800, p.ipv4(payload=rest, protocol=protocol)),
        p.ethernet(0x8100, p.vlan(0x0800, p.ipv4(payload=rest, protocol=protocol))),
        p.ethernet(0x0800, p.ipv4(payload=bytes(40) + rest, protocol=protocol, first=0x4F)),
        p.ethernet(0x86DD, p.ipv6(payload=rest, protocol=protocol)),
        p.ethernet(0x86DD, p.ipv6(payload=extension(60) + extension(protocol, 24) + rest, protocol=0)),
        p.ethernet(0x86DD, p.ipv6(payload=bytes([protocol, 0, 0, 1]) + bytes(4) + rest, protocol=44)),
        p.ethernet(0x0800, p.ipv4(payload=rest, protocol=protocol, fragment=0x2000)),
    ]
    for frame in frames:
        assert details(frame, tmp_path) == [expected]
        if rest:  # an IPv6 header of length 0 would be that of a jumbogram
            assert details(frame + b"\x99" * 60, tmp_path) == [expected]  # padding says nothing
        assert details(frame[14:], tmp_path, 101) == ([expected] if frame[12:14] != b"\x81\0" else [])


def test_a_fragment_after_the_first_has_a_protocol_and_no_ports(tmp_path: Path) -> None:
    narrow = p.ipv4(payload=SEGMENT, protocol=d.TCP, fragment=0x0001)
    assert details(p.ethernet(0x0800, narrow), tmp_path) == [d.pack(d.TCP)]
    wide = p.ipv6(payload=bytes([d.UDP, 0, 0, 8]) + bytes(4) + DATAGRAM, protocol=44)
    assert details(p.ethernet(0x86DD, wide), tmp_path) == [d.pack(d.UDP)]


def test_a_length_of_zero_reaches_to_the_end(tmp_path: Path) -> None:
    """Packets that a network card will cut have no length yet."""
    for place, frame in ((16, around(6, SEGMENT)), (18, around(6, SEGMENT, 6))):
        without = frame[:place] + b"\0\0" + frame[place + 2 :]
        assert details(without, tmp_path) == [d.pack(d.TCP, PORTS, d.SYN | d.ACK)]


def test_details_are_those_of_the_header_whose_addresses_count(tmp_path: Path) -> None:
    frame = TUNNELS["vxlan"][0]
    outer, inner = d.pack(d.UDP, (40000, 4789)), d.pack(d.TCP, (51000, 443), 0x12)
    assert details(frame, tmp_path, tunnels="outer") == [outer]
    assert details(frame, tmp_path, tunnels="inner") == [inner]
    assert details(frame, tmp_path, tunnels="both") == [outer, inner]
    assert details(around(17, udp(53, b"")), tmp_path, tunnels="both") == [d.pack(d.UDP, (40000, 53))]
