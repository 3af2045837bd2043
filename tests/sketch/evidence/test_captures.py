"""Patterns of hosts in real captures, logs and exports, whose behaviour was found out by reading these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import numpy as np
import pytest
from numpy.typing import NDArray

from places import DATA
from sketch.evidence.test_patterns import background
from sketch.evidence.test_sampling import all_count, batch_of
from superhosts.core.hashing import make_key
from superhosts.core.pairs import Addresses, Network, PacketBatch, Part
from superhosts.sketch.evidence.patterns import UNKNOWN, Judge
from superhosts.sketch.evidence.sample import Evidence, OpenSample
from superhosts.sources.base import Wants
from superhosts.sources.open import open_inputs

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
# Floods that may be beside them, named by those who published them; nobody has to have these. One is left out, because
# it is called "scanned by many": amp.TCP.syn.optionallyACK.optionallysamePort.pcapng, 60 sources at all kinds of ports.
FLOODS = {
    ("amp.UDP.bacnet.IOT.37810.pcapng", "10.10.10.1"): FLOOD,  # 6,276 reflectors, at udp/30120
    ("amp.UDP.isakmp.pcap", "10.10.10.10"): FLOOD,  # 2,767 of udp/4500
    ("pkt.TCP.DOMINATE.syn.ecn.cwr.pcapng", "10.10.10.10"): FLOOD,
    ("pkt.TCP.synflood.spoofed.pcap", "10.10.10.10"): FLOOD,
}
SECRET = b"a key of eight"
Batches = list[PacketBatch]


def read(file: str) -> Batches:
    """Return all packets or records of a file, with what they say."""
    batches = []
    for source in open_inputs([DATA / file]):
        source.want(Wants(details=True, one_window=True))
        batches += [batch.take(slice(None)) for block in source.blocks() for batch in block if len(batch)]
    return batches


def judge(batches: Batches) -> Judge:
    samples: dict[int, OpenSample] = {}
    for batch in batches:
        sample = samples.setdefault(batch.family, OpenSample(batch.family, 1 << 16, make_key(SECRET)))
        sample.add(batch, all_count)
    return Judge(Evidence(SECRET, 1 << 16, {family: sample.rows() for family, sample in samples.items()}))


def is_of(host: Network, addresses: Addresses, family: int) -> NDArray[np.bool_]:
    """Return which addresses are those of a host. Prefixes of IPv6 are not longer than 64 bits."""
    first, last, shift = int(host.network_address), int(host.broadcast_address), 0 if family == 4 else 64
    words = addresses if family == 4 else addresses[:, 0]
    return (words >= first >> shift) & (words <= last >> shift) & (host.version == family)


def views(batches: Batches, host: Network) -> Iterator[tuple[str, Batches]]:
    """Yield what is seen of a host: all, its own packets, those to it, and the half of each."""
    draw = np.random.default_rng(5)
    one_way = {
        "all": batches,
        "sent": [each.take(~is_of(host, each.dst, each.family)) for each in batches],
        "got": [each.take(~is_of(host, each.src, each.family)) for each in batches],
    }
    for name, seen in one_way.items():
        yield name, seen
        yield f"half of {name}", [each.take(draw.random(len(each)) < 0.5) for each in seen]


@pytest.mark.slow
def test_patterns_of_real_traffic() -> None:
    """All are right, and in part of the packets, alone or beside other traffic, none is confidently wrong."""
    if not all((DATA / file).exists() for file, _ in LABELS):
        pytest.skip("the captures are not here")
    others = [batch_of(background(), 4)]
    labels = LABELS | {key: label for key, label in FLOODS.items() if (DATA / key[0]).exists()}
    right: Counter[str] = Counter()
    wrong = []
    for file in dict.fromkeys(file for file, _ in labels):
        batches = read(file)
        for host, label in ((host, label) for (name, host), label in labels.items() if name == file):
            for view, seen in views(batches, ip_network(host)):
                for rest in ([], others):
                    found = judge(seen + rest).verdict(ip_network(host) if "/" in host else ip_address(host), Part())
                    right[view] += found.pattern == label
                    if found.pattern != label and (view == "all" or found.pattern not in (UNKNOWN, None)):
                        wrong.append((file, host, view, found.pattern, found.reason))
    assert not wrong
    assert right["all"] == 2 * len(labels)
    assert all(count >= 2 * len(labels) / 3 for view, count in right.items() if view == "half of all")
