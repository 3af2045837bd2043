"""Patterns of hosts in real captures, logs and exports, whose behaviour was found out by reading these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

import superhosts as sh
from places import DATA
from superhosts.evidence.patterns import UNKNOWN

SWEEP, SCAN, FLOOD, NOISE = "prefix sweep", "horizontal scan", "DDoS or flash crowd", "scanned by many"
CLIENT, WEB, DNS, P2P = "client, proxy or NAT", "web server", "reflector or resolver", "peer-to-peer"
FLOWS = "example_flows.ipfix"  # exports of one direction only
# The file, the host and what it does. Where a reader would hesitate, too, the pattern is unknown.
LABELS = {
    ("amp.TCP.reflection.SYNACK.pcap", "10.10.10.10"): FLOOD,  # acceptances of 7,055 peers that it never asked
    ("amp.UDP.snmp.src161.pcapng", "10.10.10.10"): FLOOD,
    ("argus.binetflow", "10.8.0.69"): CLIENT,  # a person's computer: https, NTP, chat
    ("cerber-ransomware.pcapng", "10.0.0.143"): SWEEP,  # ransomware that calls every address of some prefixes
    ("gnutella.pcap", "10.0.2.15"): P2P,
    ("nmap_tcp_22_ipv6.pcap", "fc00::/64"): SWEEP,  # neighbours are asked for, which nobody is
    ("suricata-eve.json", "192.168.1.129"): NOISE,  # all kinds of strangers at all kinds of ports
    ("zeek-conn.00_00_00-01_00_00.log.gz", "64.225.56.201"): NOISE,
    ("zeek-conn.01_00_00-02_00_00.log.gz", "64.225.56.201"): NOISE,
    ("exports-netflow5_test_juniper_mx80.dat", "192.168.0.1"): WEB,
    (FLOWS, "91.13.1.127"): SCAN,  # SYN alone to 34 hosts in as many /24, tcp/80
    (FLOWS, "52.183.220.82"): SWEEP,  # SYN alone to one /24, tcp/23
    (FLOWS, "192.37.99.201"): SWEEP,
    (FLOWS, "62.150.38.169"): SWEEP,
    (FLOWS, "215.25.53.107"): UNKNOWN,  # whole SSH sessions with 110 hosts: an administrator, or a guesser
    (FLOWS, "215.25.53.109"): UNKNOWN,
    (FLOWS, "66.185.13.208"): UNKNOWN,
    (FLOWS, "91.155.141.223"): WEB,
    (FLOWS, "91.155.141.162"): WEB,
    (FLOWS, "79.120.172.102"): WEB,
    (FLOWS, "34.58.135.238"): WEB,
    (FLOWS, "34.58.135.234"): WEB,
    (FLOWS, "79.254.252.185"): CLIENT,
    (FLOWS, "0.195.4.249"): CLIENT,
    (FLOWS, "79.254.252.157"): CLIENT,
    (FLOWS, "77.83.232.38"): CLIENT,
    (FLOWS, "91.17.33.174"): DNS,
    (FLOWS, "91.17.35.244"): DNS,
    (FLOWS, "84.59.222.38"): DNS,
    # A victim of amplified DNS, of whose 237 peers only 50 are reflectors, and the rest strangers that knock.
    ("amp.dns.RRSIG.fragmented.pcap", "10.10.10.10"): FLOOD,
}
ENOUGH = 0.9  # of the labels


class Found(NamedTuple):
    """The verdict of one host."""

    label: str
    pattern: str | None
    reason: str


def verdicts() -> Iterator[Found]:
    for file in dict.fromkeys(file for file, _ in LABELS):
        if not (DATA / file).exists():
            continue
        for window in sh.scan(DATA / file, window="all", threshold=8, evidence=True, key=b"a key of eight"):
            rows = {str(row.host): row for row in window}
            for (name, host), label in LABELS.items():
                if name == file:
                    found = window.verdict(rows[host])
                    assert found is not None
                    yield Found(label, found.pattern, f"{file} {host}: {found.reason}")


def test_patterns_of_real_traffic() -> None:
    found = list(verdicts())
    if len(found) < len(LABELS):
        pytest.skip("the captures are not here")
    right = [each for each in found if each.pattern == each.label]
    assert len(right) >= ENOUGH * len(found), [each for each in found if each not in right]
    # What is not right is at most less than certain: the flood among strangers is not called a scan or a server.
    wrong = [each for each in found if each not in right and each.pattern not in (UNKNOWN, None, NOISE)]
    assert not wrong
