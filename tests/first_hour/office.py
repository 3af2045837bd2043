"""The traffic of the cookbook: ten minutes of an office, ten more minutes in rotated files, a branch, and services.

    python tests/first_hour/office.py      # writes the captures of tests/first_hour/captures again

Everything that a question asks for is planned here, so the right answers can be read off this file. A record keeps only
the headers of its packet; only those of the services have ports, and a router exports these as flows, too. Outer
addresses are those of documentation (RFC 5737) and benchmarks (RFC 2544).
"""

from __future__ import annotations

import gzip
import random
import struct
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

FOLDER = Path(__file__).parent / "captures"
START = 1_772_442_000  # 2026-03-02 09:00:00 UTC
MINUTE = 60.0
SCANNER, WORM, SERVER, RESOLVER = "203.0.113.66", "10.20.4.17", "10.20.0.80", "10.20.0.53"
PROBER = "203.0.113.99"
TCP, UDP = 6, 17
SYN, SYN_ACK = 0x02, 0x12
Packet = tuple[float, str, str]  # seconds since the start, source, destination
Service = tuple[float, str, str, int, int, int, int]  # and protocol, ports of both ends, flags


def outer(number: int) -> str:
    """Return an address outside, a different one for each number."""
    return f"198.{18 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def spread(ends: list[tuple[str, str]], begin: float, minutes: float) -> Iterator[Packet]:
    """Send one packet from each source to its destination, evenly over some minutes."""
    for number, (source, destination) in enumerate(ends):
        yield begin * MINUTE + number * minutes * MINUTE / len(ends), source, destination


def both_ways(packets: Iterator[Packet]) -> Iterator[Packet]:
    """Have every packet answered after 20 ms."""
    for time, source, destination in packets:
        yield time, source, destination
        yield time + 0.02, destination, source


def background(rng: random.Random, network: str, hosts: int, minutes: float) -> Iterator[Packet]:
    """Workstations that talk to some of 254 web servers, and look for printers at a multicast address."""
    for number in range(1, hosts + 1):
        host = f"{network}.1.{number}"
        servers = rng.sample(range(300), rng.randint(5, 30))
        visits = [(host, f"198.51.100.{server % 254 + 1}") for server in servers]
        yield from both_ways(spread(visits, rng.random(), minutes - 1.5))
        yield rng.random() * minutes * MINUTE, host, "224.0.0.251"


def office() -> Iterator[Packet]:
    """Ten minutes: two windows of five."""
    rng = random.Random(1)
    yield from background(rng, "10.20", 60, 10)
    queries = [(RESOLVER, outer(60_000 + number)) for number in range(420)]
    yield from both_ways(spread(queries, 0, 4.9))
    yield from both_ways(spread(queries[:400], 5, 4.9))
    probed = rng.sample(range(1 << 16), 1400)
    yield from spread([(SCANNER, f"10.20.{number >> 8}.{number & 255}") for number in probed], 2, 2)
    bombed = [(outer(10_000 + number), f"10.20.7.{number % 254 + 1}") for number in range(1600)]
    yield from spread(bombed, 3, 1)
    yield from spread([(WORM, outer(20_000 + number)) for number in range(1900)], 6, 3.5)
    yield from spread([(outer(30_000 + number), SERVER) for number in range(2600)], 7, 1)
    laptop = [(f"2001:db8:20:7::{number % 60 + 1:x}", f"2001:db8:ffff::{number + 1:x}") for number in range(1200)]
    yield from both_ways(spread(laptop, 1, 8))
    yield 0.5, "0.0.0.0", "255.255.255.255"  # a workstation that asks for its address


def rotated(number: int) -> Iterator[Packet]:
    """The ten minutes after that, as a folder of captures, of which each has two minutes: the worm goes on."""
    begin = 10 + 2 * number
    rng = random.Random(100 + number)
    for time, source, destination in background(rng, "10.20", 20, 2):
        yield time + begin * MINUTE, source, destination
    yield from spread([(WORM, outer(40_000 + 300 * number + n)) for n in range(300)], begin, 1.9)


def branch() -> Iterator[Packet]:
    """Five minutes of another site, which the same scanner probes."""
    rng = random.Random(2)
    yield from background(rng, "10.30", 20, 5)
    probed = rng.sample(range(1 << 16), 700)
    yield from spread([(SCANNER, f"10.30.{number >> 8}.{number & 255}") for number in probed], 1, 3)


def services() -> Iterator[Service]:
    """Five minutes at the router, half an hour later: who opens which port, and who answers."""
    rng = random.Random(3)
    for number, probed in enumerate(rng.sample(range(1 << 16), 1200)):  # one port of many hosts, few of which answer
        asked = (SCANNER, f"10.20.{probed >> 8}.{probed & 255}", TCP, 40_000 + number, 22)
        yield from _conversation(30 * MINUTE + number * 0.2, *asked, answered=number % 40 == 0)
    for number in range(900):  # many ports of one host
        port = 1 + number if number != 442 else 8443
        yield from _conversation(31 * MINUTE + number * 0.2, PROBER, SERVER, TCP, 50_000, port, answered=port == 80)
    for number in range(700):
        yield from _conversation(30 * MINUTE + number * 0.4, outer(number), SERVER, TCP, 1024 + number, 443)
    for number in range(300):
        yield from _conversation(30 * MINUTE + number * 0.9, RESOLVER, outer(60_000 + number), UDP, 5353, 53)


def _conversation(
    time: float, source: str, destination: str, protocol: int, port: int, to: int, *, answered: bool = True
) -> Iterator[Service]:
    yield time, source, destination, protocol, port, to, SYN if protocol == TCP else 0
    if answered:
        yield time + 0.02, destination, source, protocol, to, port, SYN_ACK if protocol == TCP else 0


def services_capture() -> bytes:
    records = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 64, 1)]
    for time, source, destination, protocol, port, to, flags in sorted(services()):
        micros, frame = round((START + time) * 1e6), _frame(source, destination, protocol)
        frame += struct.pack(">HH", port, to)
        frame += struct.pack(">IIBBHHH", 0, 0, 0x50, flags, 1024, 0, 0) if protocol == TCP else struct.pack(">HH", 8, 0)
        records.append(struct.pack("<IIII", micros // 1_000_000, micros % 1_000_000, len(frame), len(frame)) + frame)
    return b"".join(records)


def services_flows() -> bytes:
    """Return the same as the IPFIX messages of a router: a record for each packet, 100 in a message."""
    fields = ((8, 4), (12, 4), (4, 1), (7, 2), (11, 2), (6, 1), (152, 8))
    template = struct.pack(">HH", 256, len(fields)) + b"".join(struct.pack(">HH", *field) for field in fields)
    records = [
        ip_address(source).packed
        + ip_address(destination).packed
        + struct.pack(">BHHBQ", protocol, port, to, flags, round((START + time) * 1000))
        for time, source, destination, protocol, port, to, flags in sorted(services())
    ]
    messages, end = [_message(2, template, 0)], len(records)
    for first in range(0, end, 100):
        messages.append(_message(256, b"".join(records[first : first + 100]), first))
    return b"".join(messages)


def _message(number: int, content: bytes, sequence: int) -> bytes:
    header = struct.pack(">HHIII", 10, 20 + len(content), START + 35 * 60, sequence, 1)
    return header + struct.pack(">HH", number, 4 + len(content)) + content


def capture(packets: Iterator[Packet], gap: float = 0.0) -> bytes:
    """Return a pcap file of packets in the order of their times, cut off behind the addresses."""
    records = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 64, 1)]
    for time, source, destination in sorted(packets):
        frame = _frame(source, destination)
        micros = round((START + time + gap) * 1e6)
        records.append(struct.pack("<IIII", micros // 1_000_000, micros % 1_000_000, len(frame), 60) + frame)
    return b"".join(records)


def _frame(source: str, destination: str, protocol: int = TCP) -> bytes:
    sent, to = ip_address(source), ip_address(destination)
    ethernet = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02"
    if sent.version == 4:
        header = struct.pack(">BBHHHBBH", 0x45, 0, 40 if protocol == TCP else 28, 0, 0, 64, protocol, 0)
        return ethernet + b"\x08\0" + header + sent.packed + to.packed
    return ethernet + b"\x86\xdd" + struct.pack(">IHBB", 0x60000000, 20, 6, 64) + sent.packed + to.packed


def captures() -> dict[str, bytes]:
    files = {"office.pcap.gz": capture(office()), "branch.pcap.gz": capture(branch())}
    files |= {"services.pcap.gz": services_capture(), "services.ipfix.gz": services_flows()}
    return files | {f"rotated/office-{n + 1:02}.pcap.gz": capture(rotated(n)) for n in range(5)}


def main() -> None:
    for name, content in captures().items():
        file = FOLDER / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(content, 9, mtime=0))
        sys.stdout.write(f"{file} {file.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
