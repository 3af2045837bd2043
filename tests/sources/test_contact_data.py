"""Who opened and who answered in real captures: what tshark reads, judged by plain Python, against the command."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from naive_contacts import Packet, contacts
from places import DATA

FILES = (
    "gnutella.pcap",
    "cerber-ransomware.pcapng",
    "nmap_tcp_22_ipv6.pcap",
    "amp.TCP.reflection.SYNACK.pcap",
    "amp.UDP.snmp.src161.pcapng",
    "amp.dns.RRSIG.fragmented.pcap",
)
FIELDS = (
    *("ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "ip.proto", "ip.frag_offset", "icmp.type", "icmpv6.type"),
    *("tcp.flags", "tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport"),
)
pytestmark = [
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no captures in {DATA} (set SUPERHOSTS_DATA)"),
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
]


def packets_of(path: Path) -> list[Packet]:
    """Return the packets of a capture as tshark reads them. Addresses are numbers, those of IPv6 with a bit above."""
    fields = [word for field in FIELDS for word in ("-e", field)]
    plain = ["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]
    command = ["tshark", *plain, "-r", str(path), "-T", "fields", "-E", "occurrence=f", "-E", "separator=|", *fields]
    made = []
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        of = dict(zip(FIELDS, line.split("|"), strict=True))
        src, dst = of["ip.src"] or of["ipv6.src"], of["ip.dst"] or of["ipv6.dst"]
        if not src:
            continue
        ends = tuple(_number(ipaddress.ip_address(end)) for end in (src, dst))
        protocol = int(of["ip.proto"]) if of["ip.proto"] else None
        # An ICMP error contains the headers of another packet: its own type comes first.
        if of["icmp.type"] or of["icmpv6.type"]:
            kind = int(of["icmp.type"] or of["icmpv6.type"])
            made.append(Packet(*ends, 1 if of["icmp.type"] else 58, None, kind))
        elif of["ip.frag_offset"] not in ("", "0") or protocol not in (None, 6, 17):  # ports of a tunnel are inside
            made.append(Packet(*ends, protocol))
        elif of["tcp.srcport"]:
            ports = int(of["tcp.srcport"]), int(of["tcp.dstport"])
            made.append(Packet(*ends, 6, ports, int(of["tcp.flags"], 0) & 0xFF))
        elif of["udp.srcport"]:
            made.append(Packet(*ends, 17, (int(of["udp.srcport"]), int(of["udp.dstport"]))))
        else:
            made.append(Packet(*ends, protocol))
    return made


def _number(address: Any) -> int:
    return int(address) | (1 << 128 if address.version == 6 else 0)


@pytest.mark.parametrize("name", FILES)
def test_contacts_of_real_captures(name: str) -> None:
    opened, answered = contacts(packets_of(DATA / name))
    by_kind: dict[str, dict[int, set[Any]]] = {"opened": defaultdict(set), "answered": defaultdict(set)}
    ports: dict[int, set[int]] = defaultdict(set)
    for kind, pairs in (("opened", opened), ("answered", answered)):
        for host, peer, port in pairs:
            if host != peer:
                by_kind[kind][host].add(peer)
                if kind == "opened" and port is not None:
                    ports[host].add(port)
    sets = {(kind, host): peers for kind, hosts in by_kind.items() for host, peers in hosts.items()}
    left = {("unanswered", host): peers - by_kind["answered"][host] for host, peers in by_kind["opened"].items()}
    expected = {key: len(peers) for key, peers in (sets | left).items() if peers}
    whole: dict[str, Any] = {"window": "all", "top": 100_000, "special": "keep", "ipv6_prefix": 128}
    (window,) = sh.scan(DATA / name, peers=["opened", "answered", "unanswered"], **whole)
    assert {(row.direction, _number(row.host)): row.peers for row in window} == expected
    (window,) = sh.scan(DATA / name, count="ports", **whole)
    assert {_number(row.host): row.peers for row in window} == {host: len(each) for host, each in ports.items()}
