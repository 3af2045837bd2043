"""The pattern of a host whose behaviour is known, also from a small sample, and what is not judged."""

from __future__ import annotations

import ipaddress
import random
from collections import Counter

import numpy as np
import pytest

from naive_evidence import Packet
from sketch.evidence.scenes import ACTS, HOST, ICMP, ICMPV6, SCENES, TCP, UDP, Act, Scene
from sketch.evidence.test_sampling import SECRET, sampled
from superhosts.core import pairs as said
from superhosts.core.pairs import ACK, SYN, Part
from superhosts.sketch.evidence.patterns import LEAST_PAIRS, PATTERNS, Judge, Verdict
from superhosts.sketch.evidence.sample import Evidence
from superhosts.sketch.evidence.summary import Service, Share, Summaries, service_text

ANY = Part()
browsing, horizontal_scan, web_server = (ACTS[name] for name in ("browsing", "horizontal_scan", "web_server"))


def background(seed: int = 2) -> list[Packet]:
    """Return usual connections of other hosts, so that both directions come by."""
    packets: list[Packet] = []
    for number in range(20):
        scene = Scene(seed + number, host=10 << 24 | 1000 + number)
        browsing(scene, 10)
        packets += scene.packets
    return packets


def acting(*acts: Act, peers: int, seed: int = 1) -> list[Packet]:
    scene = Scene(seed)
    for act in acts:
        act(scene, peers)
    return scene.packets


def verdict(packets: list[Packet], size: int = 1 << 16, part: Part = ANY, host: int = HOST) -> Verdict:
    evidence = Evidence(SECRET, size, {4: sampled(packets, 4, size)})
    return Judge(evidence).verdict(ipaddress.IPv4Address(host), part)


@pytest.mark.parametrize("act", SCENES, ids=lambda act: act.__name__)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_behaviour_is_known(act: Act, seed: int) -> None:
    found = verdict(acting(act, peers=400, seed=seed) + background())
    assert found.pattern == SCENES[act], found.reason
    assert found.summary.pairs == 400
    assert found.reason


@pytest.mark.slow
@pytest.mark.parametrize("act", SCENES, ids=lambda act: act.__name__)
def test_a_small_sample_is_never_wrong(act: Act) -> None:
    """A host of whose 2,000 pairs about 20 are in the sample is judged rightly, or not at all."""
    known = 0
    for seed in range(8):
        found = verdict(acting(act, peers=300, seed=seed) + background(seed), size=30)
        assert found.pattern in (SCENES[act], "unknown", None), (found.pattern, found.reason)
        known += found.pattern == SCENES[act]
    assert known >= 2


def test_what_is_not_judged() -> None:
    packets = acting(horizontal_scan, peers=LEAST_PAIRS - 1)
    few = verdict(packets + background())
    assert (few.pattern, few.reason) == (None, "only 7 pairs of it in the sample")
    absent = verdict(background(), host=1)
    assert (absent.pattern, absent.summary.pairs, absent.summary.peers) == (None, 0, [])
    judge = Judge(Evidence(SECRET, 1 << 16, {4: sampled(packets, 4, 1 << 16)}))
    found = judge.verdict("10.0.0.1:443", Part())
    assert (found.pattern, found.reason) == (None, "evidence is about whole addresses and their peers")
    assert judge.verdict("10.0.0.1", Part(counts="ports")).pattern is None


def test_services_in_words() -> None:
    for service, words in (
        (Service(TCP, 22, at_host=False), "tcp/22 at the peer 97 %"),
        (Service(UDP, 53, at_host=True), "udp/53 at the host 97 %"),
        (Service(ICMP, None, at_host=False), "icmp 97 %"),
    ):
        assert service_text({"port": service.name, "at": service.place, "share": 0.972}) == words


def test_silence_means_nothing_if_one_direction_alone_comes_by() -> None:
    """A client is seen from afar: its own packets take another way. It is a client, and no victim of a flood."""
    packets = []
    for number in range(10):
        scene = Scene(number, host=HOST + number)
        browsing(scene, 50)
        packets += [packet for packet in scene.packets if packet.dst == scene.host]
    assert verdict(packets).pattern == "client, proxy or NAT"


def test_attempts_without_any_other_packet_fail_even_then() -> None:
    sent = [packet for packet in acting(horizontal_scan, peers=200) if packet.src == HOST]
    assert verdict(sent).pattern == "horizontal scan"


def test_a_capture_of_openings_alone() -> None:
    """Captures of SYN packets are usual. A server in one is not flooded because nobody seems to go on."""
    packets = acting(web_server, peers=100)
    openings = [packet for packet in packets if packet.detail >> 40 & SYN]
    assert verdict(openings).pattern == verdict(packets).pattern == "web server"


def test_errors_of_a_router_are_no_scan() -> None:
    scene = Scene()
    for peer in scene.peers(100):
        scene.send(peer, ICMP, None, 11)
    found = verdict(scene.packets + background())
    assert (found.pattern, found.summary.opened.hits) == ("unknown", 0)
    assert found.summary.fields()["ports"] == [{"port": "icmp", "at": None, "share": 1.0}]


def test_packets_that_were_cut_before_their_ports_have_no_service() -> None:
    scene = Scene()
    for peer in scene.peers(100):
        scene.send(peer, TCP, None)
    found = verdict(scene.packets + background())
    assert (found.pattern, found.summary.services) == ("unknown", [])


def queries(scene: Scene, clients: int, each: int, net: int | None = None) -> list[Packet]:
    """Return queries of DNS to the host, whose answers take another way."""
    for peer in scene.peers(clients, net):
        for _ in range(scene.draw.randrange(1, 2 * each)):
            scene.get(peer, UDP, (scene.any_port(), 53))
    return scene.packets


def test_a_resolver_whose_answers_take_another_way() -> None:
    """Whether the host's own answers are seen counts: those of others say nothing about it."""
    packets, other = queries(Scene(), 800, 11), Scene(7, host=HOST + 1)
    for peer in other.peers(8):
        other.get(peer, UDP, (other.any_port(), 53))
        other.send(peer, UDP, (53, 40000))
    for rest in ([], other.packets, background()):
        found = verdict(packets + rest)
        assert found.pattern == "reflector or resolver"
        assert "its own packets are not seen" in found.reason
    assert verdict(queries(Scene(), 800, 1, net=0x0A0B)).pattern == "reflector or resolver"


def test_a_resolver_that_is_asked_once_by_each_may_be_flooded() -> None:
    for rest in ([], background()):
        found = verdict(queries(Scene(), 800, 1) + rest)
        assert found.pattern == "unknown"
        assert found.reason.endswith("its own packets are not seen: a server or a flood of requests, 100 % on udp/53")


def test_a_flooded_resolver_answers_some() -> None:
    scene = Scene()
    packets = queries(scene, 800, 1)
    answered = [Packet(each.dst, each.src, each.time + 1, said.pack(UDP, (53, 40000))) for each in packets[::20]]
    assert verdict(packets + answered + background()).pattern == "DDoS or flash crowd"


def test_amplification_in_one_direction() -> None:
    """Services that answer at any port of the victim, at one that is below theirs, or where nobody listens."""
    spread, below, low = Scene(1), Scene(2), Scene(3)
    for number, peer in enumerate(spread.peers(900)):
        spread.get(peer, UDP, (4500, spread.draw.randrange(1, 65536)))
        if number % 3 == 0:
            spread.get(peer, UDP, (4500, spread.draw.randrange(1, 65536)))
    for number, peer in enumerate(below.peers(900)):
        if number % 50 == 0:
            below.get(peer, ICMP, None, 3)
        else:
            below.get(peer, UDP, (below.draw.choice([37810, 47808]), 30120))
    for peer in low.peers(60):  # among strangers that knock at all kinds of ports
        for _ in range(12):
            low.get(peer, UDP, (53, 22))
            low.get(peer, UDP, None)
    for peer in low.peers(190, net=0x1234):
        low.get(peer, TCP, (low.any_port(), low.draw.randrange(1, 20000)), SYN)
    found = [verdict(scene.packets) for scene in (spread, below, low)]
    assert [each.pattern for each in found] == 3 * ["DDoS or flash crowd"]
    assert found[1].reason == (
        "100 % of the peers send to it, about 1 packet a peer, its own packets are not seen, 98 % on udp/30120"
    )


def test_devices_that_report_to_their_owner_are_no_flood() -> None:
    """Devices of one network, seen in one direction: answers to who watches them, and reports to a port of its own."""
    watched, reporting = Scene(1), Scene(2)
    for peer in watched.peers(300, net=0x0A0B):
        watched.get(peer, UDP, (161, 50000))
    for peer in reporting.peers(300, net=0x0A0B):
        reporting.get(peer, UDP, (reporting.any_port(), 12345))
    assert [verdict(scene.packets).pattern for scene in (watched, reporting)] == ["unknown", "unknown"]


def probes(ports: list[int], peers: int, net: int | None, copies: int = 4) -> list[Packet]:
    """Return what nmap -sU sends where nothing answers: two copies of a payload, and both again, from two ports."""
    scene = Scene()
    for peer in scene.peers(peers, net):
        for port in ports:
            for copy in range(copies):
                scene.send(peer, UDP, (50000 + copy // 2, port))
    return scene.packets


def test_a_udp_scan_of_dark_space_on_a_quiet_link() -> None:
    several = [53, 67, 123, 137, 161, 500, 1900, 5353]
    for ports in ([161], [53], [53, 123, 161], several):
        assert verdict(probes(ports, 256, net=0xC612)).pattern == "prefix sweep", ports
    assert verdict(probes([1900], 300, net=None, copies=2)).pattern == "horizontal scan"
    assert verdict(probes(list(range(1, 101)), 32, net=0xC612)).pattern == "vertical scan"


def test_what_looks_like_a_scan_in_one_direction_only() -> None:
    """A resolver asks servers everywhere, a server of NTP answers port 123, and traceroute has a port for each step."""
    for packets in (
        probes([53], 300, net=None, copies=2),
        probes([123], 300, net=0x0A0B),
        probes(list(range(33434, 33464)), 30, net=None, copies=1),
    ):
        assert verdict(packets).pattern == "unknown"


# One direction of these looks like another behaviour, in which the host is silent on a link that shows both directions:
# answers to a scan, answers of DNS, packets to a port of a peer-to-peer network.
LOOK_FLOODED = ["sweep", "vertical_scan", "answered_sweep", "ping_scan", "hash_table_node", "recursive_resolver"]


@pytest.mark.slow
def test_half_of_the_packets_is_never_wrong() -> None:
    """One direction, every second packet, or both, alone in a window and beside connections of others."""
    wrong = set()
    beside = background()[:300]
    for act, label in SCENES.items():
        scene, draw = Scene(), random.Random(5)
        act(scene, 100)
        for there, here in ((True, True), (True, False), (False, True)):
            packets = [each for each in scene.packets if (there and each.dst == HOST) or (here and each.src == HOST)]
            for kept in (packets, [each for each in packets if draw.random() < 0.5]):
                for others in ([], beside):
                    found = verdict(kept + others).pattern
                    if found not in (label, "unknown", None) and len(kept) < len(scene.packets):
                        wrong.add((act, found, here, bool(others)))
    assert wrong == {(act, "DDoS or flash crowd", False, True) for act in map(ACTS.get, LOOK_FLOODED)}


def test_packets_without_an_opening_do_not_make_silence_meaningless() -> None:
    scene, other = Scene(), Scene(9, host=HOST + 1)
    ACTS["udp_scan"](scene, 200)
    for peer in other.peers(800):
        other.get(peer, TCP, (40000, 80), ACK)
    packets = scene.packets + other.packets + background()
    assert verdict(packets).pattern == "horizontal scan"
    victim = verdict(packets, host=HOST + 1)
    assert (victim.pattern, victim.summary.fields()["answered"]) == ("DDoS or flash crowd", 0.0)


def test_answers_alone_prove_nothing() -> None:
    """A victim of amplified DNS, and nothing else in the window."""
    scene = Scene()
    for peer in scene.peers(200):
        scene.get(peer, UDP, (53, 4444))
    found = verdict(scene.packets)
    assert (found.pattern, found.summary.fields()["answered"]) == ("unknown", None)


def test_neighbours_of_ipv6_are_no_sweep_and_no_flood() -> None:
    """A router and its neighbours ask for each other's addresses, as anybody pings, and all are answered."""
    asking, asked = Scene(), Scene(5, host=HOST + 1)
    for peer in asking.peers(100, net=0xC0A8):
        asking.send(peer, ICMPV6, None, 135)
        asking.get(peer, ICMPV6, None, 136)
    for peer in asked.peers(100, net=0xC0A8):
        asked.get(peer, ICMPV6, None, 135)
        asked.send(peer, ICMPV6, None, 136)
    packets = asking.packets + asked.packets + background()
    assert [verdict(packets, host=each).pattern for each in (HOST, HOST + 1)] == ["unknown", "unknown"]


def test_reasons_of_floods_and_of_a_high_port() -> None:
    acts = (ACTS[name] for name in ("answered_ping_flood", "dns_reflection", "tunnel_server"))
    assert [verdict(acting(act, peers=100) + background()).reason for act in acts] == [
        "100 % of the peers send requests of ICMP to it, 100 % get an answer",
        "100 % of the peers send to it and get nothing back, 100 % on udp/53",
        "100 % of the peers use udp/51820 of it, 95 % get an answer",
    ]


def test_a_common_port_of_the_peers_is_their_service() -> None:
    """A host asks servers at 5060 from one port of its own, and some strangers use that port."""
    scene = Scene()
    for number, peer in enumerate(scene.peers(200)):
        theirs = 5060 if number % 4 else 60000
        scene.send(peer, UDP, (41000, theirs))
        scene.get(peer, UDP, (theirs, 41000))
    assert verdict(scene.packets + background()).pattern == "unknown"


def test_a_server_that_answers_some_is_not_peer_to_peer() -> None:
    scene = Scene()
    for number, peer in enumerate(scene.peers(300)):
        theirs = scene.draw.randrange(1024, 65536)
        scene.get(peer, UDP, (theirs, 51820))
        if number % 3 == 0:
            scene.send(peer, UDP, (51820, theirs))
    assert verdict(scene.packets + background()).pattern == "unknown"


def test_each_pair_keeps_a_service_of_its_own() -> None:
    scene = Scene()
    for peer in scene.peers(300):
        scene.serve(peer, 80, 1)
        scene.serve(peer, 443, 1)
    shares = [share.value for _, share in verdict(scene.packets + background()).summary.services]
    assert len(shares) == 2
    assert all(0.4 < share < 0.6 for share in shares)


def test_the_direction_of_a_part_chooses_the_pairs() -> None:
    scene = Scene()
    web_server(scene, 100)
    for peer in scene.peers(50, net=0x0808):
        scene.send(peer, TCP, (80, 40000), ACK)
    packets = scene.packets + background()
    assert verdict(packets).summary.pairs == 150
    assert verdict(packets, part=Part(direction="out")).summary.pairs == 150
    assert verdict(packets, part=Part(direction="in")).summary.pairs == 100


@pytest.mark.parametrize("contact", ["opened", "answered", "unanswered"])
def test_contacts_choose_the_pairs_that_their_end_opened(contact: str) -> None:
    """A host that scans and serves is a scanner by those that it opened to, and a server by those that opened to it."""
    packets = acting(horizontal_scan, web_server, peers=200) + background()
    out, into = (verdict(packets, part=Part(direction=contact + suffix)) for suffix in ("", "-in"))
    assert (out.pattern, out.summary.pairs, out.summary.opened.value) == ("horizontal scan", 200, 1.0)
    assert (into.pattern, into.summary.pairs, into.summary.asked.value) == ("web server", 200, 1.0)


def test_who_sends_unasked_has_opened() -> None:
    scene, sender = Scene(), Scene(7, host=HOST + 1)
    ACTS["dns_reflection"](scene, 100)
    for peer in sender.peers(100):
        sender.send(peer, UDP, (53, sender.any_port()))
    packets = scene.packets + sender.packets + background()
    found = verdict(packets, part=Part(direction="opened-in"))
    assert (found.pattern, found.summary.pairs) == ("DDoS or flash crowd", 100)
    assert verdict(packets, part=Part(direction="opened"), host=HOST + 1).summary.pairs == 100


def test_the_summary_is_right() -> None:
    packets = acting(horizontal_scan, peers=100)
    summary = verdict(packets + background()).summary
    fields = summary.fields()
    assert fields["pairs"] == fields["attempts"] == 100
    assert (fields["complete"], fields["failed"], fields["answered"], fields["opened"]) == (True, 0.96, 0.04, 1.0)
    assert fields["ports"] == [{"port": "tcp/22", "at": "peer", "share": 1.0}]
    assert fields["ports_per_peer"] == 1.0
    assert len(fields["peers"]) == 10
    sent_to = {packet.dst for packet in packets if packet.src == HOST}
    assert set(fields["peers"]) <= {str(ipaddress.IPv4Address(peer)) for peer in sent_to}
    assert fields["nets"] == {f"/{32 - bits}": len({peer >> bits for peer in sent_to}) for bits in (16, 8)}


@pytest.mark.parametrize(
    ("peers", "within"),
    [
        ([0x0A140000 + 300 * number for number in range(90)], "10.20.0.0/16"),
        ([0x0A140000 + 300 * number for number in range(90)] + [0xC6120001], "10.20.0.0/16"),  # one elsewhere
        ([0x0A000000 + 70_000 * number for number in range(90)], "10.0.0.0/8"),
        ([0x0A000000 + 20_000_000 * number for number in range(90)], "0.0.0.0/0"),
        ([0x0A140101] * 40, "10.20.0.0/16"),
        ([], "0.0.0.0/0"),
    ],
)
def test_the_map_is_of_the_longest_prefix_that_holds_almost_all_peers(peers: list[int], within: str) -> None:
    words = np.array([[0, peer] for peer in peers], np.uint64).reshape(-1, 2)
    found = Summaries(Evidence(SECRET, 1 << 16, {}), 4)._map(words)
    network = ipaddress.ip_network(within)
    inside = Counter(peer >> 24 - network.prefixlen & 255 for peer in peers if ipaddress.ip_address(peer) in network)
    assert found["within"] == within
    assert len(found["cells"]) == 256
    assert {at: int(digit, 36) for at, digit in enumerate(found["cells"]) if digit != "0"} == {
        part: min(count, 35) for part, count in inside.items()
    }


def test_the_map_of_ipv6_peers() -> None:
    peers = [(0x20010DB8_0007_0000 | number << 8, number) for number in range(64)]
    found = Summaries(Evidence(SECRET, 1 << 16, {}), 6)._map(np.array(peers, np.uint64))
    assert found == {"within": "2001:db8:7::/48", "cells": "1" * 64 + "0" * 192}


def test_a_prefix_is_a_host() -> None:
    packets = background()
    for last in range(4):
        scene = Scene(last, host=HOST - 1 + last)
        horizontal_scan(scene, 30)
        packets += scene.packets
    evidence = Evidence(SECRET, 1 << 16, {4: sampled(packets, 4, 1 << 16)})
    found = Judge(evidence).verdict(ipaddress.IPv4Network("10.0.0.0/29"), Part())
    assert (found.pattern, found.summary.pairs) == ("horizontal scan", 120)


def test_bounds_of_shares() -> None:
    assert (Share(0, 0).value, Share(0, 0).low, Share(0, 0).high) == (None, 0.0, 1.0)
    assert Share(10, 10).low == pytest.approx(0.722, abs=0.001)
    assert Share(5, 10).low == pytest.approx(0.237, abs=0.001)
    assert Share(5, 10).high == pytest.approx(0.763, abs=0.001)


def test_every_pattern_of_the_table_is_tested() -> None:
    assert {pattern.name for pattern in PATTERNS} == set(SCENES.values())
